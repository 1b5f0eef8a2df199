"""Per-example gradients of linear layers by hooks, in one forward and one backward pass."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from types import TracebackType
from typing import Any, TypeAlias

import torch
from torch import Tensor, nn
from torch.autograd.function import FunctionCtx, once_differentiable
from torch.nn.modules.batchnorm import _BatchNorm
from torch.utils.hooks import RemovableHandle

from tacit.gradients.batches import check_losses, without_autocast
from tacit.gradients.products import BiasGradients, LayerGradients, sequences

PARALLEL = (nn.DataParallel, nn.parallel.DistributedDataParallel)
LINEAR = "expected torch.nn.Linear or transformers' Conv1D with the forward pass of its class"


def check_graph(losses: Tensor) -> None:
    """Refuse losses that a backward pass of per-example gradients cannot start from.

    Raises:
        ValueError: they are not one number per example, or depend on nothing that is trained.
    """
    if not check_losses("losses", losses).requires_grad:
        raise ValueError("losses: expected losses that depend on a layer, got none that does")


def widths(name: str, module: nn.Module) -> tuple[int, int]:
    """Return (out, in) of a linear layer.

    Args:
        name: what the layer is called in messages.
        module: ``nn.Linear``, or ``Conv1D`` of transformers, whose weight is (in, out).

    Raises:
        ValueError: anything else, which may compute something else.
    """
    if not isinstance(module, nn.Module):
        raise ValueError(f"modules: {LINEAR} at {name}, got {type(module).__name__}")
    # parametrised or fused layers have no plain weight here
    weight = module._parameters.get("weight")
    if "forward" in vars(module):
        raise ValueError(f"modules: {LINEAR} at {name}, got one whose forward was replaced")
    # a layer whose weight is no matrix multiplies by something else
    if weight is None or weight.ndim != 2:
        raise ValueError(f"modules: {LINEAR} at {name}, got {type(module).__name__}")
    if type(module).forward is nn.Linear.forward:
        return int(weight.shape[0]), int(weight.shape[1])
    # a model that has a Conv1D has imported it
    written: Any = sys.modules.get("transformers.pytorch_utils")
    if written is not None and type(module).forward is written.Conv1D.forward:
        return int(weight.shape[1]), int(weight.shape[0])
    raise ValueError(f"modules: {LINEAR} at {name}, got {type(module).__name__}")


def turn(module: nn.Module, values: Tensor) -> Tensor:
    """Return (…, out, in) of a linear layer's weight as it keeps it, (in, out) in ``Conv1D``."""
    return values if type(module).forward is nn.Linear.forward else values.mT


def refuse_tied(modules: Mapping[str, nn.Module]) -> None:
    """Refuse two names of one module or of one parameter.

    Raises:
        ValueError: naming both.
    """
    # a parameter of two layers would be counted twice
    owners: dict[int, str] = {}
    for name, module in modules.items():
        for parameter in module.parameters(recurse=False):
            other = owners.setdefault(id(parameter), name)
            if other != name:
                raise ValueError(
                    f"modules: expected layers that share no parameter, got {other} and {name} "
                    "tied to each other"
                )


def refuse_around(modules: Mapping[str, nn.Module], model: nn.Module) -> None:
    """Refuse a model in which the layers' gradients are not all there is, or not per example.

    Args:
        modules: the layers.
        model: what they are part of.

    Raises:
        ValueError: a layer is not in the model, another module has its parameter, the model runs
            as replicas, or it has a batch normalisation that is training.
    """
    # parameters and layers, known by identity
    ours = {id(one): name for name, module in modules.items() for one in module.parameters()}
    layers = {id(module): name for name, module in modules.items()}
    found = set()
    # a weight read elsewhere has gradients that no hook sees
    for path, module in model.named_modules():
        if isinstance(module, PARALLEL):
            raise ValueError(
                f"model: expected one that runs by itself, got {type(module).__name__} around it"
            )
        if isinstance(module, _BatchNorm) and module.training:
            raise ValueError(
                "model: expected examples that do not depend on each other, got "
                f"{type(module).__name__} in training mode at {path}"
            )
        if id(module) in layers:
            found.add(id(module))
            continue
        for parameter in module.parameters(recurse=False):
            if id(parameter) in ours:
                raise ValueError(
                    f"modules: expected a weight of its own at {ours[id(parameter)]}, got one that "
                    f"is tied to {path or 'the model itself'}"
                )
    # a layer outside of the model is never run by it
    for key, name in layers.items():
        if key not in found:
            raise ValueError(f"modules: expected layers of the model, got {name}, which is not one")


# Takes an output's gradient, the input of the layer, and the entry that the forward ran in.
Catch: TypeAlias = Callable[[Tensor, Tensor, int], None]


class Watch:
    """A forward hook that puts a node behind a layer's output."""

    def __init__(self, catch: Catch, module: nn.Module, name: str, entry: int) -> None:
        self.catch, self.module, self.name, self.entry = catch, module, name, entry
        # the node is there even where nothing before the layer has a gradient
        self.anchor = torch.zeros((), requires_grad=True)

    def __call__(
        self, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], output: Tensor
    ) -> Tensor | None:
        """Return the output with the node behind it; None, as it is, where none is recorded."""
        # no backward pass comes of it
        if not torch.is_grad_enabled():
            return None
        if module is not self.module:
            raise ValueError(
                f"modules: expected {self.name} to run by itself, got a replica of it "
                "(DataParallel)"
            )
        # the layer's x, given by place or by name
        inputs = args[0] if args else next(iter(kwargs.values()))
        caught: Tensor = _Node.apply(  # type: ignore[no-untyped-call]
            output, inputs.detach(), self.anchor, self
        )
        return caught


class _Node(torch.autograd.Function):
    """The identity, which shows its gradient to a watch beside the layer's input.

    The input is a saved tensor: a checkpoint drops it and computes it again, once per backward
    pass whatever the number of forward passes, and a change of it in place is refused.
    """

    @staticmethod
    def forward(
        ctx: FunctionCtx, output: Tensor, inputs: Tensor, _anchor: Tensor, watch: Watch
    ) -> Tensor:
        # x of ∂ℓ/∂W = g xᵀ
        ctx.save_for_backward(inputs)
        ctx.watch = watch  # type: ignore[attr-defined]
        # neither a copy nor a view, so that what follows may change it in place
        return output.detach()

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradients: Tensor) -> tuple[Tensor | None, None, None, None]:
        # refused by torch where it was changed in place
        (inputs,) = ctx.saved_tensors
        # sums are taken in full precision, under autocast too
        with torch.no_grad(), without_autocast(gradients.device):
            ctx.watch.catch(gradients, inputs, ctx.watch.entry)
        # the identity: what is before the layer sees the same gradient
        return (gradients if ctx.needs_input_grad[0] else None), None, None, None


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
        # "layer.bias" may be the name of another layer
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
        # two entries would count every gradient twice
        if self._handles:
            raise ValueError("modules: expected one entry at a time, got a second inside it")
        if self.model is not None:
            refuse_around(self.modules, self.model)
        self.clear()
        self._entry += 1
        # biases that train have gradients of their own
        self._trained = {
            name
            for name, module in self.modules.items()
            if isinstance(module.bias, nn.Parameter) and module.bias.requires_grad
        }
        # frozen meanwhile: no memory for ordinary gradients, and .grad stays
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
        check_graph(losses)
        # Σ_i ℓ_i: row i of every output's gradient is ℓ_i's own
        losses.sum().backward()  # type: ignore[no-untyped-call]
        # layers that saw another number of rows do not see examples
        self.refuse_other_batch(losses.shape[0])
        # now, while factors are as they were: a later change of them is refused
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

    def shape(self, name: str) -> tuple[int, int]:
        """Return (out, in) of a layer, whatever way its weight is kept."""
        return self._widths[name]

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
        # ‖G_i‖² of each layer
        norms = {name: found.squared_norms() for name, found in self._found().items()}
        # one layer's overflow takes the record out of all layers
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
        # a common tensor is looked at once
        for values in {id(one): one for one in given.values()}.values():
            if not bool(torch.isfinite(values).all()):
                raise ValueError("coefficients: expected finite numbers, got one that is not")
        # inf·0 is no number: such a record's factor is 0 and its gradient is left out
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
        # weights first, then biases, as names has them
        biases = {self._biases[name]: found for name, found in self._bias_sums.items()}
        every: dict[str, LayerGradients | BiasGradients] = {**self._layers, **biases}
        return {name: every[name] for name in self.names}

    def _examples(self) -> int:
        """B, on which the layers agree; refuse a layer that had no backward pass."""
        # a layer without gradients would be trained by noise alone
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
            # two backward passes through one forward pass would add up
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
