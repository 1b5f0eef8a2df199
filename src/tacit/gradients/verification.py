"""Whether examples are separate, and their captured gradients those of plain backpropagation."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from tacit._ground.checks import integer, positive
from tacit.gradients.batches import (
    Batch,
    Loss,
    batch_size,
    evaluating,
    frozen_parameters,
    losses_of,
    part,
    random_states,
    refuse_mixing,
    replay,
    same_states,
    trainable_parameters,
    without_masks,
)
from tacit.gradients.capture import Exact, record_losses, run_back
from tacit.gradients.hooks import LinearHooks, check_graph, turn

# Share of the whole gradient beyond which float32 is not forgiven for rounding.
ROUGH = 0.02


class CheckedGradients:
    """Holds the 1st, 2nd, 4th, 8th … batch of every shape against plain backpropagation.

    Args:
        exact: whether gradients are captured, not the losses alone.
    """

    def __init__(self, *, exact: bool) -> None:
        self._exact = exact
        self._seen: dict[Any, int] = {}

    def verify(self, model: nn.Module, loss: Loss, inputs: Any, targets: Any) -> None:
        """Verify a batch if it is its turn."""
        # a mode or a shape that was not seen yet is a new program
        modes = tuple(module.training for module in model.modules())
        key = (_shapes((inputs, targets)), modes)
        count = self._seen.get(key, 0) + 1
        # powers of two: the checks of n batches cost log n
        if count & (count - 1) == 0:
            verify_examples(model, loss, inputs, targets, exact=self._exact)
        self._seen[key] = count


def verify_examples(
    model: nn.Module,
    loss: Loss,
    inputs: Any,
    targets: Any,
    *,
    examples: Sequence[int] = (0, -1),
    exact: bool = True,
) -> None:
    """Refuse a model whose examples meet, or whose per-example gradients are not what they seem.

    For each i in ``examples``: ∂ℓ_i/∂(a layer's output) is exactly zero in every row but i; the
    losses of half of the batch alone are the same (evaluated, where masks are drawn); and the
    captured g_i is the gradient of ℓ_i by plain backpropagation. Structure can hide all three: a
    batch along another dimension, a statistic of the batch, a layer that computes apart from its
    function. Shapes decide what is read as what: verify the first batch of every shape.

    Args:
        model: the module.
        loss: one loss per example, as in ``per_example``.
        inputs: a batch.
        targets: its targets.
        examples: positions in the batch.
        exact: whether g_i is compared too, which only ``gram="exact"`` needs.

    Raises:
        ValueError: examples are not separate, or a parameter's captured gradient is another.

    Example:
        >>> import torch
        >>> model = torch.nn.Linear(2, 1)
        >>> def centred(model, inputs, targets):
        ...     outputs = model(inputs)[:, 0]
        ...     return (outputs - outputs.mean() - targets).square()
        >>> verify_examples(model, centred, torch.eye(2), torch.ones(2))
        Traceback (most recent call last):
        ValueError: model: the output of bias, weight for one example moves the loss of another
    """
    count = batch_size(inputs)
    refuse_mixing(model)
    parameters = trainable_parameters(model)
    # negative places count from the end
    chosen = sorted(
        {integer("examples", i, minimum=-count, maximum=count - 1) % count for i in examples}
    )
    states, batch = random_states(model), (inputs, targets)
    # ℓ_i alone is run back: every other row of every output must stay 0
    for example in chosen:
        with replay(model, states), frozen_parameters(parameters):
            losses, recorder = record_losses(model, loss, batch, count, parameters)
            recorder.only_rows = example
            run_back(losses[example], recorder.leaves)
        if recorder.mixed:
            raise ValueError(
                f"model: the output of {recorder.mixed[0] or 'a layer'} for one example moves the "
                "loss of another"
            )
    with _without_draws(model, loss, batch, count, states):
        _same_in_parts(model, loss, batch, count, states)
        if exact:
            off = _gradients_off(model, loss, batch, count, parameters, states, chosen)
            # rounding alone, as where normalisation cancels, is gone in double precision
            rounding = off is not None and off[1] <= ROUGH
            if off is not None and not (rounding and _same_in_double(model, loss, batch, chosen)):
                raise ValueError(
                    f"model: the per-example gradient of {off[0]} is not the loss's: it is off by "
                    f"{off[1]:.2g} of the whole gradient"
                )


@contextmanager
def _without_draws(
    model: nn.Module, loss: Loss, batch: Batch, count: int, states: list[Tensor]
) -> Iterator[None]:
    """Leave out masks that a model draws, two passes would have two of them; else evaluate it."""

    def draws() -> bool:
        with torch.no_grad(), replay(model, states):
            losses_of(loss, model, *batch, count)
            return not same_states(states, random_states(model))

    with ExitStack() as stack:
        # what joins examples in training alone is seen in no evaluation
        for held in (without_masks, evaluating):
            if not draws():
                break
            stack.enter_context(held(model))
        yield


def _same_in_parts(
    model: nn.Module, loss: Loss, batch: Batch, count: int, states: list[Tensor]
) -> None:
    """Refuse losses that depend on what else is in the batch."""
    if count < 2:
        return
    # the first half by itself
    stop = (count + 1) // 2
    with torch.no_grad(), replay(model, states):
        whole = losses_of(loss, model, *batch, count)
        if not same_states(states, random_states(model)):
            # another batch would draw other masks
            return
        inputs, targets = (part(one, slice(stop), count) for one in batch)
        half = losses_of(loss, model, inputs, targets, stop)
    # rounding may differ with the size of a product, and nothing else
    if not torch.allclose(half, whole[:stop], rtol=_tolerance(whole), atol=_tolerance(whole)):
        raise ValueError("model: a loss changes with the examples that share its batch")


def _gradients_off(
    model: nn.Module,
    loss: Loss,
    batch: Batch,
    count: int,
    parameters: Mapping[str, nn.Parameter],
    states: list[Tensor],
    chosen: list[int],
) -> tuple[str, float] | None:
    """Return the parameter whose captured gradient is another than plain backpropagation's.

    Beside it stands by how much of the whole gradient it is off; None where there is none.
    """
    with replay(model, states):
        # ours
        captured = Exact(model, loss, [batch], [count], parameters)
    # plain backpropagation of the same masks
    with replay(model, states), torch.enable_grad():
        losses = losses_of(loss, model, *batch, count)
    values = list(parameters.values())
    for example in chosen:
        # c = e_i picks g_i out of the weighted sum
        ours = captured.sums(torch.eye(count, dtype=torch.float64)[example])
        plain = torch.autograd.grad(losses[example], values, retain_graph=True, allow_unused=True)
        known = [one for one in plain if one is not None]
        # ‖∂ℓ_i/∂θ‖ over all parameters, the scale that errors are held against
        length = (
            torch.stack([one.norm() for one in known]).norm() if known else losses.new_zeros(())
        )
        if not bool(torch.isfinite(length)):
            raise ValueError("loss: expected finite gradients, got one that is not")
        for name, one in zip(parameters, plain, strict=True):
            # a parameter that plain backpropagation does not reach must have gradient 0
            missed = (ours[name] if one is None else ours[name] - one).norm()
            # √eps of the whole gradient, for sums are taken in another order
            if not bool(missed <= _tolerance(losses) * length):
                return name, float(missed / length)
    return None


def _same_in_double(model: nn.Module, loss: Loss, batch: Batch, chosen: list[int]) -> bool:
    """Return whether the gradients of a copy in double precision are the loss's own."""
    if all(one.dtype == torch.float64 for one in model.parameters()):
        return False
    try:
        # what is rounding in float32 is gone at 2⁻⁵³
        twin = copy.deepcopy(model).double()
        inputs, targets = (
            one.double() if isinstance(one, Tensor) and one.is_floating_point() else one
            for one in batch
        )
        doubled: Batch = (inputs, targets)
        count, parameters = batch_size(inputs), trainable_parameters(twin)
        states = random_states(twin)
        return _gradients_off(twin, loss, doubled, count, parameters, states, chosen) is None
    except (RuntimeError, ValueError, TypeError):
        return False


def _shapes(values: Any) -> Any:
    """Return the shapes of the tensors in any nesting, hashable."""
    if isinstance(values, Tensor):
        return tuple(values.shape)
    if isinstance(values, Mapping):
        return tuple((name, _shapes(value)) for name, value in values.items())
    if isinstance(values, (tuple, list)):
        return tuple(_shapes(value) for value in values)
    return None


def _tolerance(losses: Tensor) -> float:
    # half of the digits: products and sums of many terms lose the others
    return math.sqrt(torch.finfo(losses.dtype).eps)


def check_gradients(
    hooks: LinearHooks, losses: Callable[[], Tensor], *, example: int = 0, tolerance: float = 0.05
) -> None:
    """Compare the gradients of one example's loss with those of plain autograd.

    The loss of one example is run back by itself: every other example's gradients must be zero,
    which an input whose first dimension is not the batch, or examples that depend on each other,
    break; and its own must be those that autograd leaves in the weights' ``.grad``, which a
    weight that is used elsewhere breaks. Two forward and two backward passes, with the same
    random numbers; gradients and states of random generators are as before afterwards.

    Args:
        hooks: on the layers of a model.
        losses: runs the model on a batch and gives its losses, (B,).
        example: whose loss, 0 <= example < B.
        tolerance: largest ‖G − G'‖/‖G'‖ of a layer; room for gradients in half precision.

    Raises:
        ValueError: naming the layer at which they differ, or what `LinearHooks.backward` refuses.

    Example:
        >>> model = nn.Sequential(nn.Linear(3, 2), nn.Tanh())
        >>> hooks = LinearHooks({"first": model[0]}, model=model)
        >>> check_gradients(hooks, lambda: model(torch.eye(3)).sum(dim=1))
        >>> check_gradients(hooks, lambda: model(torch.eye(3)).softmax(dim=0)[:, 0])
        Traceback (most recent call last):
            ...
        ValueError: losses: expected examples that do not depend on each other, got the loss of \
example 0 with a gradient of example 1 at first
    """
    positive("tolerance", tolerance)
    # both passes draw the same masks, and the caller's randomness goes on
    with torch.random.fork_rng():
        torch.manual_seed(0)
        with hooks:
            found = losses()
            check_graph(found)
            integer("example", example, minimum=0, maximum=len(found) - 1)
            # ℓ_i alone through the hooks
            found[example].backward()  # type: ignore[no-untyped-call]
        # every other row must have no gradient at all
        _refuse_others(hooks, len(found), example)
        torch.manual_seed(0)
        with _training(hooks):
            # and once more as autograd has it, into .grad
            losses()[example].backward()  # type: ignore[no-untyped-call]
            ordinary = {name: one.grad for name, one in hooks.parameters().items()}
    for name, rows in hooks.gradients().items():
        ours, plain = rows[example], ordinary[name]
        # a weight that the loss does not reach
        expected = torch.zeros_like(ours) if plain is None else plain
        if plain is not None and name in hooks.modules:
            expected = turn(hooks.modules[name], plain)
        exact = expected.double()
        # ‖G − G'‖ against ‖G'‖, in float64
        error = float((ours.double() - exact).norm())
        if not error <= tolerance * float(exact.norm()):
            raise ValueError(
                f"modules: expected all uses of a weight to be those of its layer at {name}, got a "
                f"gradient that is {error:.2g} away from autograd's, of norm {exact.norm():.2g}"
            )


def _refuse_others(hooks: LinearHooks, count: int, example: int) -> None:
    """Refuse a gradient that is not of the example whose loss was run back."""
    hooks.refuse_other_batch(count)
    for name, norms in hooks.squared_norms.items():
        # rows that the loss of another example moved
        others = norms.nonzero().flatten().tolist()
        wrong = [index for index in others if index != example]
        if wrong:
            raise ValueError(
                "losses: expected examples that do not depend on each other, got the loss of "
                f"example {example} with a gradient of example {wrong[0]} at {name}"
            )


@contextmanager
def _training(hooks: LinearHooks) -> Iterator[None]:
    """Let the layers' parameters train, and give back every gradient as it was."""
    ours = list(hooks.parameters().values())
    every: dict[int, nn.Parameter] = {id(one): one for one in ours}
    if hooks.model is not None:
        every |= {id(one): one for one in hooks.model.parameters()}
    # what .grad held is nobody's to lose
    before = [(one, one.grad) for one in every.values()]
    states = [one.requires_grad for one in ours]
    try:
        for one, _ in before:
            one.grad = None
        for one in ours:
            one.requires_grad_(True)
        yield
    finally:
        for one, state in zip(ours, states, strict=True):
            one.requires_grad_(state)
        for one, gradient in before:
            one.grad = gradient
