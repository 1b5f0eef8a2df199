"""That a run trained what it should and nothing else, and that its records stand alone."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from tacit.adapters.layers import AdapterLayer
from tacit.adapters.steps import AdapterSteps
from tacit.runs.identity import digest_of_tensors

# Between the norm of a record's gradient alone and among others.
ALONE = 1e-3
# Records whose gradients are tried together and alone, and most whose losses are.
TRIED, MOST_TRIED = 4, 4096
COUPLED = (
    "model: expected outputs of a record that depend on that record alone, got a {} that another "
    "record of the batch changes"
)
# Between the loss of a record among some others and among other others.
SAME = 1e-4


class Frozen:
    """Everything that must not move, by its digest.

    Args:
        model: with the adapters on.
        layers: whose trained parameters may move.
    """

    def __init__(self, model: nn.Module, layers: Sequence[AdapterLayer]) -> None:
        self._model = model
        self._free = {id(layer.trained) for layer in layers}
        self._layers = layers
        # what must have moved after a step with noise
        self._start = {layer.name: layer.trained.detach().clone() for layer in layers}
        self._digests = self._now()

    def check_moved(self) -> None:
        """Refuse what moved though it is frozen, and what did not though it is trained.

        Raises:
            ValueError: names it.
        """
        self.check()
        if all(torch.equal(self._start[one.name], one.trained.detach()) for one in self._layers):
            raise ValueError(
                "rate: expected a step that moves the trained weights, got one that moves none"
            )

    def check(self) -> None:
        """Refuse what moved though it is frozen.

        Raises:
            ValueError: names it.
        """
        for name, digest in self._now().items():
            if self._digests.get(name) != digest:
                raise ValueError(
                    f"model: expected {name} to stay as it was, got another value after a step"
                )

    def _now(self) -> dict[str, str]:
        held = [*self._model.named_parameters(), *self._model.named_buffers()]
        found = {
            name: digest_of_tensors([("", value)])
            for name, value in held
            # all parameters and buffers but the trained ones
            if id(value) not in self._free
        }
        for layer in self._layers:
            if layer.matrix_a is not None:
                found[f"A of {layer.name}"] = digest_of_tensors([("", layer.matrix_a)])
        return found


def check_alone(run: AdapterSteps, count: int) -> None:
    """Refuse a model whose gradients are not autograd's, or depend on what else is in the batch.

    One record's gradients are held against autograd's, a few records' against those of each alone,
    and the losses of up to 4,096 records, each among some of them and among others.

    Args:
        run: that is to be trained.
        count: how many records there are.

    Raises:
        ValueError: they differ.
    """
    # from everywhere, for neighbours in a table may be equal
    some = _spread(count, MOST_TRIED)
    # each record among the others ahead of it and among those behind
    ahead, behind = run.losses(some), run.losses(some.flip(0)).flip(0)
    # what has no finite loss adds nothing to a step, and its gradient is no one's
    finite = ahead.isfinite() & behind.isfinite()
    if bool(((ahead - behind).abs() > SAME * (ahead.abs() + behind.abs()) + 1e-12)[finite].any()):
        raise ValueError(COUPLED.format("loss"))
    known = some[finite]
    if not len(known):
        return
    tried = known[_spread(len(known), TRIED)]
    # hooks against autograd, where a weight may be used twice
    run.check_gradients(tried)
    # ‖G_i‖² of a few records in one batch
    together = _norms(run.gradients(tried))
    for place in range(len(tried)):
        # and of each by itself: 10⁻³ is above what a batch's products round
        alone = _norms(run.gradients(tried[place : place + 1]))[0]
        if abs(float(together[place] - alone)) > ALONE * float(alone) + 1e-12:
            raise ValueError(COUPLED.format("gradient"))


def _spread(count: int, most: int) -> Tensor:
    return torch.linspace(0, count - 1, min(count, most), dtype=torch.float64).round().long()


def _norms(hooks: Any) -> Tensor:
    return torch.stack([held.double() for held in hooks.squared_norms.values()]).sum(dim=0)
