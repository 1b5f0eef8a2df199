"""Per-example gradients of a batch, exact, approximate or none at all, and their weighted sums."""

from __future__ import annotations

import warnings
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Literal, TypeAlias

import numpy as np
import torch
from numpy.typing import ArrayLike
from torch import Tensor, nn
from torch.func import functional_call, grad, vmap
from torch.nn import functional
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.overrides import TorchFunctionMode
from torch.utils.checkpoint import CheckpointError

from tacit._ground.checks import Array, choice, integer, vector
from tacit.gradients.batches import (
    Batch,
    Loss,
    LossModule,
    batch_size,
    frozen_parameters,
    losses_of,
    map_tensors,
    part,
    random_states,
    refuse_mixing,
    replay,
    same_states,
    tensors_in,
    trainable_parameters,
    unchanged_buffers,
)
from tacit.gradients.gramian import Gramian, gram_matrix
from tacit.gradients.recorder import Recorder
from tacit.gradients.rules import RULES
from tacit.gradients.uses import (
    Contributions,
    DenseGradients,
    LinearFactors,
    at_least_single,
)

Grams: TypeAlias = Literal["exact", "forward", "none"]
# Principal directions of the last features that the Gram matrix of a sequence is taken in.
DIRECTIONS = 16


class PerExample(ABC):
    """The gradients g_i of a batch's losses, as far as they are known, and their weighted sums.

    Attributes:
        losses: (B,) losses, one per example.
        gram: (B, B) inner products ⟨g_i, g_j⟩; approximate for ``"forward"``, None for ``"none"``.
        unused: names of trainable parameters that no loss depends on.
    """

    losses: Array
    gram: Array | None
    unused: tuple[str, ...]
    _parameters: Mapping[str, nn.Parameter]

    @property
    def squared_norms(self) -> Array | None:
        """(B,) squared norms ‖g_i‖² as the Gram matrix has them, None without one."""
        return None if self.gram is None else np.diagonal(self.gram).copy()

    def check(self) -> None:
        """Refuse a batch that no step can be made of, before anything is spent on it.

        Raises:
            ValueError: a trainable parameter that no loss depends on, a gradient that is not
                finite, or only zero gradients.
        """
        # a parameter without a gradient would be trained by noise alone
        if self.unused:
            raise ValueError(
                f"model: expected every trainable parameter to be used, got {self.unused[0]} "
                f"without a gradient ({len(self.unused)} of {len(self._parameters)}; freeze what "
                "is not trained, and let nothing run under torch.no_grad or reentrant checkpoints)"
            )
        if self.gram is None:
            return
        # a Gram matrix that is not finite has no least noise
        if not np.isfinite(self.gram).all():
            raise ValueError(f"model: expected finite gradients, got {self._first_bad()}")
        # ‖g_i‖ = 0 for all i: there is no direction to step in
        if not np.diagonal(self.gram).any():
            raise ValueError("loss: expected a gradient that is not zero, got zeros only")

    def weighted(self, coefficients: ArrayLike) -> None:
        """Write ``Σ_i c_i g_i`` into the gradient of every trainable parameter, and only there.

        Args:
            coefficients: (B,) c, rounded to the parameters' precision.

        Raises:
            ValueError: a coefficient is not finite or their number is not B, or a gradient is not
                finite, in which case no parameter's gradient was touched.
        """
        given = vector("coefficients", coefficients, size=self.losses.size)
        # Σ_i c_i g_i of every parameter before the first is written
        sums = self.sums(torch.as_tensor(given))
        for name, value in sums.items():
            if not bool(torch.isfinite(value).all()):
                raise ValueError(f"model: expected finite gradients, got a bad one of {name}")
        for name, parameter in self._parameters.items():
            # in the parameter's own precision, as an ordinary backward pass leaves it
            parameter.grad = sums[name].to(parameter.dtype)

    @abstractmethod
    def sums(self, coefficients: Tensor) -> dict[str, Tensor]:
        """Return Σ_i c_i g_i by parameter."""

    def _first_bad(self) -> str:
        """Name what is not finite."""
        return "one that is not"


class Exact(PerExample):
    """Per-example gradients kept layer by layer."""

    def __init__(
        self,
        model: nn.Module,
        loss: Loss,
        batches: list[Batch],
        sizes: list[int],
        parameters: Mapping[str, nn.Parameter],
    ) -> None:
        self._parameters, self._sizes = parameters, sizes
        # one recorded pass for each micro-batch; their gradients stay apart
        found = [
            _one_pass(model, loss, batch, size, parameters)
            for batch, size in zip(batches, sizes, strict=True)
        ]
        self.losses = np.concatenate([losses for losses, _ in found])
        self._found = [uses for _, uses in found]
        # what no use was seen of has no gradient
        known = {name for uses in self._found for name in uses}
        self.unused = tuple(name for name in parameters if name not in known)
        # G = J Jᵀ of all examples, those of different micro-batches too
        self.gram = gram_matrix(self._found, sizes)

    def sums(self, coefficients: Tensor) -> dict[str, Tensor]:
        """Return Σ_i c_i g_i by parameter, from what every layer kept."""
        # c of every micro-batch
        parts = torch.split(coefficients, self._sizes)
        sums: dict[str, Tensor] = {}
        for name, parameter in self._parameters.items():
            # float32 at least: half precision would round the sum of thousands
            total = torch.zeros_like(parameter.detach(), dtype=at_least_single(parameter).dtype)
            for own, uses in zip(parts, self._found, strict=True):
                for use in uses.get(name, ()):
                    # cᵀJ of one use; a parameter used twice has the sum of both
                    total += use.weighted(own.to(total.device))
            sums[name] = total
        return sums

    def _first_bad(self) -> str:
        for name, parameter in self._parameters.items():
            for size, uses in zip(self._sizes, self._found, strict=True):
                for use in uses.get(name, ()):
                    ones = torch.ones(size, dtype=torch.float64, device=parameter.device)
                    if not bool(torch.isfinite(use.weighted(ones)).all()):
                        return f"a bad one of {name}"
        return "inner products that overflow"


def _one_pass(
    model: nn.Module,
    loss: Loss,
    batch: Batch,
    count: int,
    parameters: Mapping[str, nn.Parameter],
) -> tuple[Array, dict[str, Contributions]]:
    """Return losses and per-example gradients of one micro-batch."""
    # if a mask is drawn, a second pass has to draw the same one
    states = random_states(model)
    with frozen_parameters(parameters):
        # a forward pass in which every output of a parameter's function is watched
        losses, recorder = record_losses(model, loss, batch, count, parameters)
        # whether layers drew random numbers
        drew = not same_states(states, random_states(model))
        # ∂Σℓ/∂output has the gradient of ℓ_i in row i, as no example sees another
        run_back(losses.sum(), recorder.leaves)
        found: dict[str, Contributions] = dict(recorder.contributions())
        # parameters that a function without a rule reads: their J by another way
        free = {name: one for name, one in parameters.items() if name in recorder.free}
        if free:
            found |= free_gradients(model, loss, batch, free, count, states if drew else None)
    values: Array = losses.detach().double().cpu().numpy()
    return values, found


def record_losses(
    model: nn.Module,
    loss: Loss,
    batch: Batch,
    count: int,
    parameters: Mapping[str, nn.Parameter],
) -> tuple[Tensor, Recorder]:
    """Return the losses of frozen parameters and what watched the forward pass."""
    # tensors compare by value, parameters are known by identity
    names = {id(one): name for name, one in parameters.items()}
    recorder = Recorder(names, parameters, RULES, count)
    recorder.start_from(batch)
    with unchanged_buffers(model), torch.enable_grad(), recorder:
        losses = losses_of(loss, model, *batch, count)
    return losses, recorder


def run_back(total: Tensor, leaves: list[Tensor]) -> None:
    """Run the backward pass to the outputs that are watched."""
    # nothing that is trained was used
    if not leaves or not total.requires_grad:
        return
    try:
        # it ends at the outputs: no gradient of a parameter is formed
        torch.autograd.grad(total, leaves, allow_unused=True)
    except CheckpointError:
        raise ValueError(
            "model: expected layers that run once, got torch.utils.checkpoint, which runs them "
            "again; give micro_batch instead, which saves the same memory"
        ) from None


def free_gradients(
    model: nn.Module,
    loss: Loss,
    batch: Batch,
    parameters: Mapping[str, nn.Parameter],
    count: int,
    drawn_from: list[Tensor] | None,
) -> dict[str, list[DenseGradients]]:
    """Return J of some parameters, every use of them included.

    By ``torch.func`` where it can follow the model; else, and where layers draw random numbers
    that have to be the same ones, by one backward pass per example through one graph.

    Args:
        model: whose layers read the parameters.
        loss: one loss per example.
        batch: inputs and targets.
        parameters: by name; all others are constants.
        count: B.
        drawn_from: the generators' states before the forward pass, None where nothing was drawn.
    """
    if drawn_from is None:
        try:
            # the fused kernels of attention have no rule of vmap
            with sdpa_kernel(SDPBackend.MATH), warnings.catch_warnings():
                warnings.filterwarnings("ignore", "There is a performance drop", UserWarning)
                return _vectorise(model, loss, batch, parameters, count)
        except RuntimeError:
            # no rule of vmap covers some function of the model
            pass
    return _one_by_one(model, loss, batch, parameters, drawn_from)


def _vectorise(
    model: nn.Module,
    loss: Loss,
    batch: Batch,
    parameters: Mapping[str, nn.Parameter],
    count: int,
) -> dict[str, list[DenseGradients]]:
    # what has a row for each example is mapped over, all else is shared
    rows = [one for one in tensors_in(batch) if one.ndim and one.shape[0] == count]
    whole = LossModule(model, loss)
    # constants in the graph, so that grad is of these alone
    values = {f"model.{name}": one.detach() for name, one in parameters.items()}

    def single(given: dict[str, Tensor], *parts: Tensor) -> Tensor:
        left = iter(parts)
        replaced = map_tensors(
            batch, lambda one: next(left) if one.ndim and one.shape[0] == count else one
        )
        # ℓ of a batch of one
        found: Tensor = functional_call(whole, given, replaced)
        return found[0]

    # θ is shared, examples are mapped over
    over = (None, *(0 for _ in rows))
    # J: row i is ∂ℓ_i/∂θ
    found = vmap(grad(single), in_dims=over)(values, *(one.unsqueeze(1) for one in rows))
    return {name: [_dense(found[f"model.{name}"].detach())] for name in parameters}


def _dense(values: Tensor) -> DenseGradients:
    """Return J of one parameter from its rows, (B, …)."""
    return DenseGradients(values.reshape(values.shape[0], -1), tuple(values.shape[1:]))


def _one_by_one(
    model: nn.Module,
    loss: Loss,
    batch: Batch,
    parameters: Mapping[str, nn.Parameter],
    drawn_from: list[Tensor] | None,
) -> dict[str, list[DenseGradients]]:
    values = list(parameters.values())
    try:
        for one in values:
            one.requires_grad_(True)
        with replay(model, drawn_from):
            losses = loss(model, *batch)
        rows: list[list[Tensor]] = [[] for _ in values]
        # one backward pass an example through the graph that is there
        for single in losses:
            found = torch.autograd.grad(single, values, retain_graph=True, allow_unused=True)
            for kept, one, own in zip(rows, values, found, strict=True):
                # an example that does not reach a parameter has gradient 0
                kept.append(torch.zeros_like(one) if own is None else own)
    finally:
        for one in values:
            one.requires_grad_(False)
    return {name: [_dense(torch.stack(kept))] for name, kept in zip(parameters, rows, strict=True)}


class LastLinear(TorchFunctionMode):
    """Remembers the input and the output of the last matrix product of a forward pass.

    Attributes:
        features: H, what the last product multiplies.
        output: what comes of it, where a backward pass starts that is worth next to nothing.
    """

    def __init__(self, count: int, *, cut: bool) -> None:
        super().__init__()
        self.features: Tensor | None = None
        self.output: Tensor | None = None
        self._count, self._cut = count, cut

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        result = func(*args, **(kwargs or {}))
        # addmm(b, a, V) has its input second
        place = 1 if func is torch.addmm else 0
        if func not in (functional.linear, torch.addmm) or len(args) <= place:
            return result
        features = args[place]
        # a product that has no row for each example is not one of examples
        if features.ndim < 2 or features.shape[0] % self._count:
            return result
        # the backward pass of P then stops here
        if self._cut:
            result = result.detach().requires_grad_()
        self.features, self.output = features.detach(), result
        return result


class Ordinary(PerExample):
    """Per-example gradients that are never formed."""

    def __init__(
        self,
        model: nn.Module,
        loss: Loss,
        batches: list[Batch],
        sizes: list[int],
        parameters: Mapping[str, nn.Parameter],
        *,
        forward: bool,
    ) -> None:
        self._parameters, self._sizes = parameters, sizes
        self._model, self._loss, self._batches = model, loss, batches
        # an optimizer's step in between would give gradients of other parameters
        self._versions = [one._version for one in parameters.values()]
        self._states: list[list[Tensor]] = []
        # one micro-batch keeps its graph; several are run again when their weights are known
        self._graph: tuple[Tensor, Tensor | None] | None = None
        losses, factors, unused = [], [], set[str]()
        # losses first; the weights c are known only afterwards
        for batch, size in zip(batches, sizes, strict=True):
            self._states.append(random_states(model))
            found, last = self._pass(batch, size, forward)
            losses.append(found.detach().double().cpu().numpy())
            # P = ∂ℓ/∂(output of the last layer), next to nothing to compute
            gradient = _at_the_last_layer(found, last) if forward else None
            if gradient is not None:
                factors.append(_factors(gradient, last, size))
            unused = self._keep(found, last, gradient) if len(batches) == 1 else set()
        self.losses = np.concatenate(losses)
        self.unused = tuple(name for name in parameters if name in unused)
        self.gram = _last_layer_gram(factors) if forward else None

    def _pass(self, batch: Batch, count: int, forward: bool) -> tuple[Tensor, LastLinear]:
        """Run one micro-batch, and keep its graph when it is the only one."""
        # one micro-batch: its graph is kept for the weighted backward pass
        whole = len(self._batches) == 1
        last = LastLinear(count, cut=not whole)
        grads = torch.enable_grad() if whole or forward else torch.no_grad()
        frozen = _as_they_are() if whole else frozen_parameters(self._parameters)
        with frozen, unchanged_buffers(self._model), grads, last if forward else _as_they_are():
            losses = losses_of(self._loss, self._model, *batch, count)
        return losses, last

    def _keep(self, losses: Tensor, last: LastLinear, gradient: Tensor | None) -> set[str]:
        """Keep the graph from the last layer on where all goes through it; return what is unused.

        ``Σ c_i ∂ℓ_i/∂θ`` is then a product with c_i P_i, and P is known.
        """
        names = {id(one): name for name, one in self._parameters.items()}
        # the parameters that the losses depend on
        every = reached(losses.grad_fn, names, None)
        self._graph = (losses, None)
        node = None if last.output is None else last.output.grad_fn
        if gradient is not None and last.output is not None and node is not None:
            # those that they depend on other than through the last layer
            around = reached(losses.grad_fn, names, node)
            self._graph = (losses, None) if around else (last.output, gradient)
        return set(self._parameters) - every

    def sums(self, coefficients: Tensor) -> dict[str, Tensor]:
        """Return Σ_i c_i g_i by parameter, from a backward pass."""
        # the second pass must see the parameters of the first
        if self._versions != [one._version for one in self._parameters.values()]:
            raise ValueError("model: expected the parameters of the capture, got changed ones")
        sums: dict[str, Tensor] = {}
        for index, own in enumerate(torch.split(coefficients, self._sizes)):
            for name, value in self._weighted(index, own).items():
                sums[name] = sums[name] + value if name in sums else value
        missing = [name for name in self._parameters if name not in sums]
        if missing:
            raise ValueError(
                f"model: expected a gradient of every parameter, got none of {missing[0]}"
            )
        return sums

    def _weighted(self, index: int, coefficients: Tensor) -> dict[str, Tensor]:
        """Return Σ c_i g_i over one micro-batch, whose graph is gone afterwards."""
        if len(self._batches) == 1:
            # a graph is used once: what it holds is freed
            kept, self._graph = self._graph, None
            if kept is None:
                raise ValueError('gram: expected "exact" for a second weighted sum of one capture')
            end, weights = kept[0], coefficients
            if kept[1] is not None:
                # Σ c_i ∂ℓ_i/∂θ = (c_i P_i)ᵀ ∂output/∂θ: the layers above are not run through again
                end, weights = _by_example(kept[0], kept[1], coefficients)
        else:
            # the same masks as in the first pass
            with torch.enable_grad(), replay(self._model, self._states[index]):
                end = losses_of(self._loss, self._model, *self._batches[index], self._sizes[index])
            weights = coefficients
        # a backward pass weighted by c: Σ_i c_i ∂ℓ_i/∂θ
        found = torch.autograd.grad(
            end, list(self._parameters.values()), weights.to(end), allow_unused=True
        )
        named = zip(self._parameters, found, strict=True)
        return {name: value for name, value in named if value is not None}


@contextmanager
def _as_they_are() -> Iterator[None]:
    yield


def _by_example(output: Tensor, gradient: Tensor, coefficients: Tensor) -> tuple[Tensor, Tensor]:
    """Return the output and its gradient with the rows of example i times c_i."""
    # rows of P by example
    rows = gradient.view(len(coefficients), -1)
    return output, (rows * coefficients.to(rows)[:, None]).view(gradient.shape)


def reached(end: Any, names: Mapping[int, str], without: Any) -> set[str]:
    """Return the parameters that a graph leads to, other than through one of its nodes."""
    found: set[str] = set()
    # depth first from the losses, one node left out
    seen, waiting = {without}, [end]
    while waiting:
        node = waiting.pop()
        if node is None or node in seen:
            continue
        seen.add(node)
        name = names.get(id(getattr(node, "variable", None)))
        if name is not None:
            found.add(name)
        waiting.extend(following for following, _ in node.next_functions)
    return found


def _at_the_last_layer(losses: Tensor, last: LastLinear) -> Tensor:
    """Return P = ∂ℓ/∂(output of the last linear layer)."""
    # a model whose last product is of no examples has no P
    if last.output is None or not last.output.requires_grad or not losses.requires_grad:
        raise ValueError(
            'gram: expected "exact" or "none" for a model without a linear layer of its examples'
        )
    # rows of P belong to one loss each
    found = torch.autograd.grad(losses.sum(), last.output, retain_graph=True, allow_unused=True)[0]
    return torch.zeros_like(last.output) if found is None else found.contiguous()


def _factors(gradient: Tensor, last: LastLinear, count: int) -> LinearFactors:
    """Return H and P by example and position."""
    assert last.features is not None
    # H, (B, T, d), and P, (B, T, out)
    features = at_least_single(last.features).reshape(count, -1, last.features.shape[-1])
    rows = at_least_single(gradient).reshape(count, -1, gradient.shape[-1])
    return LinearFactors(features.to(rows.dtype), rows)


def _last_layer_gram(factors: list[LinearFactors]) -> Array:
    """Return the Gram matrix of the last layer's weight and bias.

    For one position G̃ = (PPᵀ)∘(HHᵀ + 1). For sequences it is that of Σ_t p_t [V h_t, 1], V the
    principal directions of H.
    """
    # one position: J_i = p_i [h_i, 1]ᵀ has rank one
    positions = {use.inputs.shape[1] for use in factors}
    count = sum(len(use.inputs) for use in factors)
    total = Gramian(count)
    if positions == {1}:
        features = torch.cat([use.inputs[:, 0] for use in factors]).double()
        outer = torch.cat([use.gradients[:, 0] for use in factors]).double()
        # ⟨p_i [h_i,1]ᵀ, p_j [h_j,1]ᵀ⟩ = ⟨p_i, p_j⟩ (⟨h_i, h_j⟩ + 1), the 1 for the bias
        total.add_matrix((outer @ outer.T) * (features @ features.T + 1.0))
        return total.result()
    # sequences: h in its k leading directions, which is where J is large
    basis = _principal([use.inputs for use in factors])
    blocks = []
    for use in factors:
        reduced = use.inputs @ basis
        # the 1 of the bias
        reduced = torch.cat([reduced, reduced.new_ones(*reduced.shape[:2], 1)], dim=2)
        # Σ_t p_t [V h_t, 1]ᵀ
        blocks.append(torch.bmm(use.gradients.transpose(1, 2), reduced).flatten(1))
    total.add(torch.cat(blocks))
    return total.result()


def _principal(features: list[Tensor]) -> Tensor:
    """Return the leading principal directions of some features, (d, k)."""
    width = features[0].shape[-1]
    # M = Σ h hᵀ in float64
    moments = torch.zeros(width, width, dtype=torch.float64, device=features[0].device)
    for some in features:
        flat = some.flatten(0, 1)
        moments += (flat.T @ flat).double()
    # eigenvalues rise, so that the last vectors are the leading ones
    _, vectors = torch.linalg.eigh(moments)
    leading: Tensor = vectors[:, -DIRECTIONS:].to(features[0].dtype)
    return leading


def per_example(
    model: nn.Module,
    loss: Loss,
    inputs: Any,
    targets: Any,
    *,
    gram: Grams = "exact",
    micro_batch: int | None = None,
) -> PerExample:
    """Return per-example gradients of a batch's losses and their Gram matrix.

    ``g_i = ∂ℓ_i/∂θ, G_ij = ⟨g_i, g_j⟩`` for the trainable parameters θ. ``"exact"`` takes one
    forward pass and one backward pass to the outputs of the layers, whose gradients give the
    per-example gradients layer by layer; a weighted sum needs no second backward pass.
    ``"forward"`` has the Gram matrix of the last linear layer instead of the whole one, and
    ``"none"`` has none; their weighted sum, of which there is one, is an ordinary backward pass.

    A layer that draws random numbers, such as dropout, draws them once for every example; the
    gradients are those of the masks drawn, the same with and without another example.

    Args:
        model: a module in which no example's loss depends on another example.
        loss: ``loss(model, inputs, targets)`` gives the losses, shape (B,), one per example.
        inputs: tensors with the B examples along their first dimension, in any nesting.
        targets: the same, or anything the loss reads.
        gram: ``"exact"``, ``"forward"`` or ``"none"``.
        micro_batch: number of examples that pass through the model at a time; None for all. The
            Gram matrix has every inner product nevertheless.

    Returns:
        The gradients as ``PerExample``.

    Raises:
        ValueError: a module mixes examples, a buffer changes in the forward pass, the losses are
            not one finite number per example, or nothing is trainable.

    Example:
        >>> import torch
        >>> model = torch.nn.Linear(2, 1)
        >>> def loss(model, inputs, targets):
        ...     return (model(inputs)[:, 0] - targets).square()
        >>> inputs, targets = torch.eye(2), torch.zeros(2)
        >>> found = per_example(model, loss, inputs, targets)
        >>> found.weighted([0.5, 0.5])
        >>> ordinary = torch.autograd.grad(loss(model, inputs, targets).mean(), model.weight)
        >>> torch.allclose(model.weight.grad, ordinary[0])
        True
    """
    choice("gram", gram, ("exact", "forward", "none"))
    count = batch_size(inputs)
    size = count if micro_batch is None else integer("micro_batch", micro_batch, minimum=1)
    # where one example moves another's loss there is no g_i
    refuse_mixing(model)
    parameters = trainable_parameters(model)
    # micro-batches of at most m examples, in order
    pieces = [slice(start, min(start + size, count)) for start in range(0, count, size)]
    batches = [(part(inputs, rows, count), part(targets, rows, count)) for rows in pieces]
    sizes = [rows.stop - rows.start for rows in pieces]
    if gram == "exact":
        return Exact(model, loss, batches, sizes, parameters)
    return Ordinary(model, loss, batches, sizes, parameters, forward=gram == "forward")
