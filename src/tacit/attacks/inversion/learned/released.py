"""What an attacker sees of a state: a channel, and the vector that stands for what it says."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor

from tacit._ground.checks import Array, RandomSource, generator, matrix
from tacit._ground.reprs import short_repr
from tacit.attacks.exact.channels import (
    STATE_ROUNDING,
    Channel,
    CodeChannel,
    GaussianChannel,
)
from tacit.covariance import Covariance
from tacit.models.behaviours import Behaviours

POSITIONS_TOGETHER = 4096
# below it a number is not normal in single precision
SMALLEST = float(np.finfo(np.float32).tiny)
LARGEST = float(np.finfo(np.float32).max)


class MappedChannel(GaussianChannel):
    """A function of the state, with noise N(0, Σ) or without: ``y = f(h) + z``.

    Args:
        function: f, from states (m, d) to vectors (m, k).
        covariance: Σ of shape (k, k); None for no noise.
        floor: as for ``GaussianChannel``.

    Example:
        >>> half = MappedChannel(lambda rows: rows[:, :1])
        >>> half.held(torch.tensor([[1.0, 2.0]]), None).tolist()
        [[1.0]]
    """

    def __init__(
        self,
        function: Callable[[Array], Array],
        covariance: Any = None,
        *,
        floor: float | None = None,
    ) -> None:
        super().__init__(covariance, floor=floor)
        self.function = function

    def held(self, states: Tensor, behaviours: Behaviours | None) -> Array:
        return matrix("function", self.function(super().held(states, behaviours)))


@short_repr
class StateRelease:
    """How one state of a prompt is released, and the vector that a network reads of it.

    Args:
        channel: the law of the release; None for the state as it is; an array or a ``Covariance``
            for noise.
        vectors: (Y, d), what stands for each code or report, where codes are released: the
            codeword, or the mean public state of a cell.

    Raises:
        ValueError: a channel of another kind, or codes without vectors.

    Example:
        >>> release = StateRelease([0.25, 1.0])
        >>> release.vectors_of(release.draw(torch.zeros(3, 2), rng=0)).shape
        torch.Size([3, 2])
    """

    def __init__(self, channel: Any = None, vectors: Any = None) -> None:
        known = isinstance(channel, Channel)
        self.channel: Channel = channel if known else GaussianChannel(channel)
        codes = isinstance(self.channel, CodeChannel)
        if codes == (vectors is None):
            found = "none" if vectors is None else "some"
            raise ValueError(f"vectors: expected them with codes and only there, got {found}")
        self.vectors: Array | None = None if vectors is None else matrix("vectors", vectors)

    @property
    def codes(self) -> bool:
        """Whether codes are released."""
        return self.vectors is not None

    @property
    def covariance(self) -> Covariance | None:
        """Σ where noise is added."""
        return self.channel.covariance if isinstance(self.channel, GaussianChannel) else None

    def draw(
        self, states: Any, behaviours: Behaviours | None = None, rng: RandomSource = None
    ) -> Any:
        """Return a release of every state, (m, k) or codes (m,).

        Args:
            states: (m, d).
            behaviours: what the model predicts after each, where the channel asks for it.
            rng: source of the noise or the reports.
        """
        given = states if isinstance(states, Tensor) else torch.as_tensor(np.asarray(states))
        return self.channel.draw(self.channel.held(given, behaviours), generator(rng))

    def checked(self, released: Any) -> Any:
        """Return releases, or say what is wrong with them."""
        found = self.channel.checked("released", released, released=True)
        if self.vectors is None and np.abs(found).max() > LARGEST:
            raise ValueError(
                f"released: expected numbers up to {LARGEST:.3g}, got {np.abs(found).max():.3g}"
            )
        if self.vectors is not None and int(found.max()) >= len(self.vectors):
            raise ValueError(
                f"released: expected codes below {len(self.vectors)}, got {int(found.max())}"
            )
        return found

    def vectors_of(self, released: Any) -> Tensor:
        """Return what a network reads of releases, (m, k) in float32."""
        found = self.checked(released)
        rows = found if self.vectors is None else self.vectors[found]
        return torch.from_numpy(np.asarray(rows, dtype=np.float32))

    def distances(self, released: Any, held: Any) -> Array:
        """Return ``−2 ln P(release | candidate)`` up to a constant of each row, (n, m)."""
        found: Array = -2.0 * self.channel.log_likelihood(released, held)
        return found

    def nearness(self, released: Any, held: Any) -> Array:
        """Return the same on a scale that does not depend on the candidates, (n, m).

        Where there is no noise, ``Σ ((y_i − h_i) / u_i)²`` with u of ``rounding``, from the
        differences themselves: for large states their expansion would drown in rounding.
        """
        if not self.bare:
            return self.distances(released, held)
        units = self.rounding(released)
        rows = [(((held - row) / unit) ** 2).sum(axis=1) for row, unit in zip(
            released, units, strict=True)]  # fmt: skip
        return np.stack(rows)

    @property
    def bare(self) -> bool:
        """Whether states, or a function of them, are released without noise."""
        return not self.codes and self.covariance is None

    def rounding(self, released: Any) -> Array:
        """Return what rounding may move coordinates by, ``2⁻¹⁸ max(|y_i|, median |y|)``, (n, d).

        One that is much larger than the others says nothing of how they are rounded.
        """
        sizes = np.abs(released)
        usual = np.median(sizes, axis=1, keepdims=True)
        found: Array = STATE_ROUNDING * np.maximum(np.maximum(sizes, usual), SMALLEST)
        return found


def states_of(
    network: Any, layer: int, prompts: Tensor, predicts: bool
) -> tuple[Tensor, Behaviours | None]:
    """Return the last states of prompts and what the model predicts after them, if that counts."""
    if not predicts:
        return network.states(prompts, layer), None
    rows, logits = [], []
    for states, found in network.passes(prompts, [layer]):
        rows.append(states[layer])
        logits.append(found.log_softmax(dim=-1))
    return torch.cat(rows), Behaviours(torch.cat(logits))


def trajectories_of(
    network: Any, layer: int, prompts: Tensor, predicts: bool
) -> tuple[Tensor, Behaviours | None]:
    """Return the states of all positions, (n, T, d), and the n T predictions if those count."""
    states = network.states(prompts, layer, positions="all")
    if not predicts:
        return states, None
    with torch.no_grad():
        top = network.states(prompts, network.layers, positions="all").flatten(0, 1)
        logits = [network.anatomy.read_out(part) for part in torch.split(top, POSITIONS_TOGETHER)]
    return states, Behaviours(torch.cat(logits).log_softmax(dim=-1))
