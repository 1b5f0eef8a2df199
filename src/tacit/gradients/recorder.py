"""One forward pass in which every use of a trainable parameter is seen and its output watched."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from typing import Any, TypeAlias

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode
from torch.utils.weak import WeakTensorKeyDictionary

from tacit.gradients.batches import tensors_in
from tacit.gradients.uses import Contribution, DenseGradients

Receive: TypeAlias = Callable[[Tensor], None]
Rule: TypeAlias = Callable[["Recorder", tuple[Any, ...], dict[str, Any]], Any]


class Recorder(TorchFunctionMode):
    """Watches the functions that a forward pass calls with trainable parameters.

    The parameters are frozen meanwhile, so that a backward pass stops at the outputs. A function
    with a rule (``rules``) leaves a watch on its output, which turns the output's gradient into
    per-example gradients of its parameters. What functions make of parameters alone is a
    parameter in its turn (``derived``). A parameter that anything else reads is ``free``.

    Attributes:
        names: of the trainable parameters, by identity.
        batch: number of examples, which rules expect along the first dimension.
        free: names of parameters with a use that no rule covers.
        found: per-example gradients by key, a name or the identity of a derived value.
        only_rows: the example whose loss alone the backward pass is of, when gradients are not
            kept but held against it: ``mixed`` names what another example's output does to it.
        leaves: outputs that nothing before them gives a gradient, where the backward pass ends.
    """

    def __init__(
        self, names: Mapping[int, str], parameters: Mapping[str, Tensor], rules: Any, batch: int
    ) -> None:
        super().__init__()
        self.names, self.batch, self.rules = names, batch, rules
        self.free: set[str] = set()
        self.found: dict[str | int, list[Contribution]] = {}
        self.only_rows: int | None = None
        self.mixed: list[str] = []
        self.derived: dict[int, tuple[Tensor, Tensor, frozenset[str]]] = {}
        self._parameters = parameters
        self._leaves: dict[str, Tensor] = {}
        self._examples = WeakTensorKeyDictionary()
        self.leaves: list[Tensor] = []

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        kwargs = kwargs or {}
        # the trainable parameters among what the function is given
        held = {self.key(one) for one in tensors_in((args, kwargs))} - {None}
        if held and torch.is_grad_enabled():
            # a rule knows J of its function, and refuses a call that it does not cover
            rule = self.rules.get(func)
            result = NotImplemented if rule is None else rule(self, args, kwargs)
            if result is NotImplemented:
                result = self._without_rule(func, held, args, kwargs)
        else:
            result = func(*args, **kwargs)
        # values made of the examples are known as such further down
        self._pass_on((args, kwargs), result)
        return result

    def start_from(self, values: Any) -> None:
        """Mark tensors as made of the examples."""
        for tensor in tensors_in(values):
            self._examples[tensor] = True

    def _pass_on(self, given: Any, result: Any) -> None:
        """Mark what was made of marked values; gradients say it for what comes after a watch."""
        # what requires a gradient says it by itself
        if any(self.is_of_examples(one) for one in tensors_in(given)):
            for one in tensors_in(result):
                if not one.requires_grad and self.key(one) is None:
                    self._examples[one] = True

    def is_of_examples(self, tensor: Tensor) -> bool:
        """Whether a tensor depends on the examples."""
        return bool(tensor.requires_grad) or tensor in self._examples

    def has_rows(self, tensor: Any) -> bool:
        """Whether a tensor depends on the examples and has one row for each."""
        return (
            isinstance(tensor, Tensor)
            and self.is_of_examples(tensor)
            and tensor.ndim > 0
            and tensor.shape[0] == self.batch
        )

    def key(self, value: Any) -> str | int | None:
        """Return the name of a trainable parameter, the identity of a derived one, or None."""
        if not isinstance(value, Tensor):
            return None
        name = self.names.get(id(value))
        if name is not None:
            return name
        return id(value) if id(value) in self.derived else None

    def roots(self, keys: Any) -> frozenset[str]:
        """Return the trainable parameters behind some keys."""
        # a derived value stands for all that it was made of
        names: set[str] = set()
        for key in keys:
            names |= {key} if isinstance(key, str) else self.derived[key][2]
        return frozenset(names)

    def watch(self, output: Tensor, receive: Receive, what: str) -> Tensor:
        """Return the output, whose gradient ``receive`` is going to be called with."""
        # the first watched output on its way has nothing before it to differentiate
        if not output.requires_grad:
            # a copy, because what follows may work in place, which no leaf allows
            self.leaves.append(output.requires_grad_())
            output = output.clone()
        # called in the backward pass with ∂Σℓ/∂output
        output.register_hook(  # type: ignore[no-untyped-call]
            lambda gradient: self._receive(receive, gradient, what)
        )
        return output

    def _receive(self, receive: Receive, gradient: Tensor, what: str) -> None:
        if self.only_rows is None:
            receive(gradient)
            return
        # max |∂ℓ_k/∂output_i| by row i: exactly 0 where examples are separate
        per_row = gradient.reshape(self.batch, -1).abs().amax(dim=1)
        per_row[self.only_rows] = 0.0
        # a gradient that is no number is refused by its name when it is asked for
        if bool(((per_row != 0.0) & torch.isfinite(per_row)).any()):
            self.mixed.append(what)

    def add(self, key: str | int, contribution: Contribution) -> None:
        """Keep what one use of a parameter adds, unless another use needs all of it anyway."""
        # a free parameter's J comes whole from elsewhere
        if not self.free & self.roots([key]):
            self.found.setdefault(key, []).append(contribution)

    def _without_rule(
        self, func: Any, held: set[Any], args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Any:
        """Run a function that no rule covers: it makes a new parameter, or frees its own."""
        # of parameters alone, such as a weight that is normalised: a derived parameter
        if not any(
            self.is_of_examples(one) for one in tensors_in((args, kwargs)) if self.key(one) is None
        ):
            return self._derive(func, held, args, kwargs)
        # parameters meet examples in a way that no rule knows
        result = func(*args, **kwargs)
        if any(True for _ in tensors_in(result)):
            self.free |= self.roots(held)
        return result

    def _derive(
        self, func: Any, held: set[Any], args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Any:
        """Run a function of parameters alone, and keep its graph for the way back."""
        # on leaves of its own, with a graph back to the parameters
        graph = func(*self._with_graph(args), **self._with_graph(kwargs))
        roots = self.roots(held)

        def detached(value: Any) -> Any:
            if isinstance(value, Tensor):
                if not value.requires_grad:
                    return value
                # the model goes on with a value that has no graph
                plain = value.detach()
                self.derived[id(plain)] = (plain, value, roots)
                return plain
            if isinstance(value, (list, tuple)) and type(value) in (list, tuple):
                return type(value)(detached(one) for one in value)
            if any(True for _ in tensors_in(value)):
                self.free.update(roots)
            return value

        return detached(graph)

    def _with_graph(self, value: Any) -> Any:
        """Return arguments with leaves in place of parameters."""
        if isinstance(value, (list, tuple)) and type(value) in (list, tuple):
            return type(value)(self._with_graph(one) for one in value)
        if isinstance(value, dict):
            return {name: self._with_graph(one) for name, one in value.items()}
        key = self.key(value)
        if key is None:
            return value
        if isinstance(key, int):
            return self.derived[key][1]
        # one leaf for each parameter, so that all that is derived of it adds up there
        if key not in self._leaves:
            self._leaves[key] = self._parameters[key].detach().requires_grad_()
        return self._leaves[key]

    def contributions(self) -> dict[str, list[Contribution]]:
        """Return the per-example gradients of every parameter that is not free."""
        every: dict[str, list[Contribution]] = {}
        # J of derived values is pulled back to the parameters that they were made of
        for key, uses in self.found.items():
            if isinstance(key, str):
                if key not in self.free:
                    every.setdefault(key, []).extend(uses)
                continue
            for name, contribution in self._pull_back(key, uses):
                every.setdefault(name, []).append(contribution)
        return every

    def _pull_back(self, key: int, uses: list[Contribution]) -> Iterator[tuple[str, Contribution]]:
        """Yield J of the parameters behind a derived one: its own J through the graph, by rows."""
        _, graph, roots = self.derived[key]
        # all uses of a free parameter are found elsewhere
        if roots & self.free:
            return
        names = sorted(roots)
        leading = graph.shape[0] if graph.ndim else 1
        # J of the derived value, (B, p)
        gradients = sum((use.rows(0, leading) for use in uses[1:]), uses[0].rows(0, leading))
        leaves = [self._leaves[name] for name in names]
        found: dict[str, list[Tensor]] = {name: [] for name in names}
        # (∂derived/∂θ)ᵀ of every example's row: one small backward pass each
        for row in gradients:
            back = torch.autograd.grad(
                graph, leaves, row.reshape(graph.shape), retain_graph=True, allow_unused=True
            )
            for name, leaf, part in zip(names, leaves, back, strict=True):
                found[name].append(torch.zeros_like(leaf) if part is None else part)
        for name in names:
            # a scalar parameter has one column
            rows = torch.stack(found[name])
            yield (
                name,
                DenseGradients(rows.flatten(1) if rows.ndim > 1 else rows[:, None], rows.shape[1:]),
            )


class KeptInput:
    """An input that the backward pass needs as it was."""

    def __init__(self, tensor: Tensor) -> None:
        self._tensor, self._version = tensor.detach(), tensor._version

    def get(self, what: str) -> Tensor:
        """Return the input, refusing one that was overwritten since."""
        # J would be made of other inputs than the forward pass saw
        if self._tensor._version != self._version:
            raise ValueError(f"model: {what} has an input that is modified in place after its use")
        return self._tensor


def names_of(recorder: Recorder, *keys: str | int | None) -> str:
    """Return the trainable parameters among some keys, for messages."""
    return ", ".join(sorted(recorder.roots([key for key in keys if key is not None])))


def add_factors(recorder: Recorder, key: str | int, use: Contribution, *factors: Tensor) -> None:
    """Keep J where it is no larger than its factors, per example; else those."""
    # T (in + out) numbers of factors, or in·out of J: the fewer
    if math.prod(use.shape) <= sum(factor[0].numel() for factor in factors):
        use = DenseGradients(use.rows(0, use.shape[0]), use.shape)
    recorder.add(key, use)
