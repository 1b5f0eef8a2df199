"""One example's gradients against plain autograd, on the model that is to be trained."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn

from tacit._ground.checks import integer, positive
from tacit.adapters.gradients.hooks import LinearHooks
from tacit.adapters.gradients.layers import turned
from tacit.adapters.gradients.losses import one_per_example


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
    with torch.random.fork_rng():
        torch.manual_seed(0)
        with hooks:
            found = losses()
            one_per_example(found)
            integer("example", example, minimum=0, maximum=len(found) - 1)
            found[example].backward()  # type: ignore[no-untyped-call]
        _refuse_others(hooks, len(found), example)
        torch.manual_seed(0)
        with _training(hooks):
            losses()[example].backward()  # type: ignore[no-untyped-call]
            ordinary = {name: one.grad for name, one in hooks.parameters().items()}
    for name, rows in hooks.gradients().items():
        ours, plain = rows[example], ordinary[name]
        expected = torch.zeros_like(ours) if plain is None else plain
        if plain is not None and name in hooks.modules:
            expected = turned(hooks.modules[name], plain)
        exact = expected.double()
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
