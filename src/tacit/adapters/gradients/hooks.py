"""Per-example gradients of linear layers by hooks, in one forward and one backward pass."""

from __future__ import annotations

from collections.abc import Mapping
from types import TracebackType
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.hooks import RemovableHandle

from tacit.adapters.gradients.layers import refuse_around, refuse_tied, widths
from tacit.adapters.gradients.losses import one_per_example
from tacit.adapters.gradients.node import Catch, Watch
from tacit.adapters.gradients.products import BiasGradients, LayerGradients, sequences


class LinearHooks:
    """Per-example gradients of linear layers: ``G_i = ∂ℓ_i/∂W = Σ_t g_it x_itᵀ``, (out, in).

    Between entry and exit every layer's output passes through a node that sees, in the backward
    pass, its gradient g and the layer's input x; nothing else of the module is touched, and its
    own weight and bias take no part in the backward pass, so that their ``.grad`` stays. One
    entry is for one forward and one backward pass; what they gave can be read until the next
    entry. A layer that is used several times in the forward pass has the sum of its uses.

    A bias is trained where it requires a gradient; its gradients, (out,), are entries of their
    own, ``"name.bias"``. The weight's are taken whether it requires a gradient or not. Everything
    is accumulated in float32 at least, under autocast too.

    Args:
        modules: layers by name, ``nn.Linear`` (such as peft's ``lora_B``) or GPT-2's ``Conv1D``.
        model: what they are part of; with it, a weight that another module also has, replicas
            and batch normalisation in training mode are refused.

    Attributes:
        modules, model: as given.

    Raises:
        ValueError: a module is not a linear layer, or two of them share a parameter.

    Example:
        >>> import torch
        >>> model = torch.nn.Sequential(torch.nn.Linear(3, 2, bias=False), torch.nn.Tanh())
        >>> hooks = LinearHooks({"first": model[0]}, model=model)
        >>> inputs = torch.eye(3)
        >>> with hooks:
        ...     hooks.backward(model(inputs).square().sum(dim=1))
        >>> factors = (1 / hooks.squared_norms["first"].sqrt()).clamp(max=1.0)
        >>> hooks.sums(factors)["first"].shape
        torch.Size([2, 3])
        >>> ordinary = torch.autograd.grad(model(inputs).square().sum(), model[0].weight)[0]
        >>> torch.allclose(hooks.sums(torch.ones(3))["first"].float(), ordinary)
        True

    Source: lora-privacy, Algorithm 2; Goodfellow (2015) for the norms of wide layers.
    """

    def __init__(self, modules: Mapping[str, nn.Module], *, model: nn.Module | None = None) -> None:
        if not modules:
            raise ValueError("modules: expected at least one layer, got none")
        self._widths = {name: widths(name, module) for name, module in modules.items()}
        self.modules = dict(modules)
        refuse_tied(self.modules)
        self.model = model
        if model is not None:
            refuse_around(self.modules, model)
        self._biases = {name: f"{name}.bias" for name in modules}
        taken = sorted(set(self._biases.values()) & set(modules))
        if taken:
            raise ValueError(f"modules: expected names that no bias has, got {taken[0]}")
        self._entry = 0
        self._handles: list[RemovableHandle] = []
        self._frozen: list[nn.Parameter] = []
        self._trained: set[str] = set()
        self._passes: dict[str, int] = {}
        self._layers: dict[str, LayerGradients] = {}
        self._bias_sums: dict[str, BiasGradients] = {}

    def __enter__(self) -> LinearHooks:
        """Forget the last batch, and watch the layers."""
        if self._handles:
            raise ValueError("modules: expected one entry at a time, got a second inside it")
        if self.model is not None:
            refuse_around(self.modules, self.model)
        self.clear()
        self._entry += 1
        self._trained = {
            name
            for name, module in self.modules.items()
            if isinstance(module.bias, nn.Parameter) and module.bias.requires_grad
        }
        self._frozen = [
            parameter
            for module in self.modules.values()
            for parameter in module.parameters(recurse=False)
            if parameter.requires_grad
        ]
        try:
            for parameter in self._frozen:
                parameter.requires_grad_(False)
            for name, module in self.modules.items():
                watch = Watch(self._catcher(name), module, name, self._entry)
                # first, for a hook of someone else's may change the output
                handle = module.register_forward_hook(watch, prepend=True, with_kwargs=True)
                self._handles.append(handle)
        except BaseException:
            self._leave()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Leave the modules as they were, whatever happened."""
        self._leave()
        if kind is not None:
            self.clear()

    def backward(self, losses: Tensor) -> None:
        """Run the backward pass of the sum of the losses, checked before and after.

        Args:
            losses: (B,), one per example.

        Raises:
            ValueError: the losses are not one number per example that depends on a layer, a layer
                was not used, or a first dimension is not B.
        """
        one_per_example(losses)
        losses.sum().backward()  # type: ignore[no-untyped-call]
        self.refuse_other_batch(losses.shape[0])
        _ = self.squared_norms

    def refuse_other_batch(self, count: int) -> None:
        """Refuse inputs of layers whose first dimension is not the batch.

        Args:
            count: B, the number of losses.

        Raises:
            ValueError: it is not B, or a layer had no backward pass.
        """
        found = self._examples()
        if found != count:
            raise ValueError(
                "modules: expected inputs whose first dimension is the batch, of "
                f"{count} losses, got {found} at {next(iter(self._layers))}"
            )

    def parameters(self) -> dict[str, nn.Parameter]:
        """Return the weights, and the biases that were trained, under the gradients' names."""
        found: dict[str, Any] = {name: module.weight for name, module in self.modules.items()}
        found |= {f"{name}.bias": self.modules[name].bias for name in sorted(self._trained)}
        return {name: found[name] for name in self.names}

    @property
    def names(self) -> tuple[str, ...]:
        """What has gradients: the layers, and ``"name.bias"`` of those whose bias is trained."""
        return (
            *self.modules,
            *(self._biases[one] for one in self.modules if one in self._trained),
        )

    @property
    def squared_norms(self) -> dict[str, Tensor]:
        """(B,) ‖G_i‖²_F in float64, by name, no less than those of what ``sums`` adds.

        A record whose gradient of one layer is not finite has inf at every layer: it is clipped to
        nothing, and whether there is one is nobody's to see.

        Raises:
            ValueError: a layer had no backward pass.
        """
        norms = {name: found.squared_norms() for name, found in self._found().items()}
        finite = torch.stack([held.isfinite() for held in norms.values()]).all(dim=0)
        return {name: torch.where(finite, held, torch.inf) for name, held in norms.items()}

    def sums(self, coefficients: Tensor | Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Return Σ_i c_i G_i by name in float64, (out, in), or (out,) for a bias.

        Args:
            coefficients: (B,) c, or one by name.

        Raises:
            ValueError: coefficients are missing, not (B,) or not finite, or a layer had no
                backward pass.
        """
        every = self._found()
        count = self._examples()
        given = coefficients
        if isinstance(given, Tensor):
            given = dict.fromkeys(every, given)
        if set(given) != set(every):
            odd = sorted(set(given) ^ set(every))[0]
            raise ValueError(f"coefficients: expected one for each of the names, got {odd} amiss")
        for name, values in given.items():
            if tuple(values.shape) != (count,):
                raise ValueError(
                    f"coefficients: expected shape ({count},) at {name}, got {tuple(values.shape)}"
                )
        for values in {id(one): one for one in given.values()}.values():
            if not bool(torch.isfinite(values).all()):
                raise ValueError("coefficients: expected finite numbers, got one that is not")
        finite = {name: held.isfinite() for name, held in self.squared_norms.items()}
        return {
            name: found.sums(torch.where(finite[name], given[name].double(), 0.0))
            for name, found in every.items()
        }

    def gradients(self) -> dict[str, Tensor]:
        """Return every G_i by name, (B, out, in), or (B, out) for a bias.

        Raises:
            ValueError: a layer had no backward pass.
        """
        return {name: found.products() for name, found in self._found().items()}

    def clear(self) -> None:
        """Forget the last batch, and free what it holds."""
        self._passes, self._layers, self._bias_sums = {}, {}, {}

    def _leave(self) -> None:
        """Take the hooks off, and let the parameters train again."""
        while self._handles:
            self._handles.pop().remove()
        while self._frozen:
            self._frozen.pop().requires_grad_(True)

    def _found(self) -> dict[str, LayerGradients | BiasGradients]:
        self._examples()
        biases = {self._biases[name]: found for name, found in self._bias_sums.items()}
        every: dict[str, LayerGradients | BiasGradients] = {**self._layers, **biases}
        return {name: every[name] for name in self.names}

    def _examples(self) -> int:
        """B, on which the layers agree; refuse a layer that had no backward pass."""
        missing = [name for name in self.modules if name not in self._layers]
        if missing:
            raise ValueError(
                f"modules: expected a backward pass through every layer, got none at {missing[0]} "
                f"({len(missing)} of {len(self.modules)}; not used in the forward pass, run under "
                "torch.no_grad, or behind reentrant checkpoints of inputs without a gradient)"
            )
        return next(iter(self._layers.values())).examples

    def _catcher(self, name: str) -> Catch:
        out, width = self._widths[name]

        def catch(gradients: Tensor, inputs: Tensor, entry: int) -> None:
            if entry != self._entry:
                raise ValueError(
                    f"modules: expected the forward pass of this entry at {name}, got "
                    "a backward pass through an earlier one"
                )
            ours = torch._C._current_graph_task_id()
            if self._passes.setdefault(name, ours) != ours:
                raise ValueError(
                    f"modules: expected one backward pass per entry, got a second at {name} (or a "
                    "layer that two reentrant checkpoints use: take use_reentrant=False)"
                )
            rows, columns = sequences(name, gradients, inputs)
            first = next(iter(self._layers), name)
            if self._layers and self._layers[first].examples != rows.shape[0]:
                raise ValueError(
                    "modules: expected inputs whose first dimension is the batch, got "
                    f"{self._layers[first].examples} at {first} and {rows.shape[0]} at {name}"
                )
            layer = self._layers.setdefault(name, LayerGradients(out, width))
            layer.add(rows, columns)
            if name in self._trained:
                self._bias_sums.setdefault(name, BiasGradients()).add(rows)

        return catch
