"""How a release is drawn from a candidate: the law that an attacker inverts by Bayes' rule."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from tacit._ground.checks import Array, RandomSource, generator, matrix, non_negative, plain
from tacit.covariance import Covariance
from tacit.covariance.coercion import as_covariance

if TYPE_CHECKING:
    from torch import Tensor

    from tacit.models.behaviours import Behaviours

Codes = npt.NDArray[np.int64]
Assign = Callable[["Tensor", "Behaviours | None"], Any]

# States of one prompt differ by this much between two batch shapes, relative to the largest entry.
STATE_ROUNDING = 2.0**-18
# ln P(y | code) where it should be −∞: rounding may move a state over the border of its cell, and
# a release that no candidate explains leaves the prior to decide.
UNEXPLAINED = -200.0
ROW_SUMS = 1e-9


class Channel(ABC):
    """``P(release | candidate)``, what is held of a candidate being its state or its code.

    Attributes:
        predicts: whether a candidate's code depends on what the model predicts after it.
        deterministic: whether a candidate has one release.
    """

    predicts: bool = False
    deterministic: bool = False

    @abstractmethod
    def held(self, states: Tensor, behaviours: Behaviours | None) -> Any:
        """Return what decides the likelihood of each candidate: states (m, d) or codes (m,)."""

    @abstractmethod
    def checked(self, name: str, values: Any, *, released: bool = False) -> Any:
        """Return releases, or what is held of candidates, or say what is wrong with them."""

    @abstractmethod
    def log_likelihood(self, released: Any, held: Any) -> Array:
        """Return ``ln P(release_i | candidate_j)`` up to a constant of each row, (n, m)."""

    @abstractmethod
    def draw(self, held: Any, rng: RandomSource = None) -> Any:
        """Draw a release of every candidate, for simulation."""


class GaussianChannel(Channel):
    """The state and noise N(0, Σ): ``ln P(y | h) = −½ (y − h)ᵀ (Σ + τI)⁻¹ (y − h)``.

    A denoised state is a function of the noisy one: pass the noisy states. No attacker of the
    denoised states does better, and none has to do worse where the denoiser is one-to-one. Over
    public states that span the space the Wiener denoiser is, and the posterior mean: it is Σ∇φ of
    a strictly convex φ.

    Args:
        covariance: Σ, or an array of variances (d,) or of shape (d, d); None for clean states.
        floor: τ >= 0, so that the rounding of states is not taken for information; by default
            2⁻³⁶ of the largest squared entry.

    Raises:
        ValueError: a floor of 0 where a direction has no noise.

    Example:
        >>> channel = GaussianChannel([1.0, 4.0])
        >>> channel.log_likelihood(np.array([[1.0, 2.0]]), np.zeros((1, 2))).round(3).tolist()
        [[-1.0]]
    """

    predicts = False

    def __init__(self, covariance: Any = None, *, floor: float | None = None) -> None:
        self.covariance: Covariance | None = None
        self._values = self._vectors = None
        if covariance is not None:
            self.covariance = as_covariance("covariance", covariance)
            values, vectors = np.linalg.eigh(self.covariance.to_dense())
            self._values, self._vectors = np.maximum(values, 0.0), vectors
        self.deterministic = self.covariance is None
        self.floor = None if floor is None else non_negative("floor", floor)
        bare = self.covariance is None or self.covariance.rank < self.covariance.dim
        if bare and self.floor == 0.0:
            raise ValueError("floor: expected a number > 0 where a direction has no noise, got 0")

    def held(self, states: Tensor, behaviours: Behaviours | None) -> Array:
        return matrix("states", states)

    def checked(self, name: str, values: Any, *, released: bool = False) -> Array:
        width = None if self.covariance is None else self.covariance.dim
        return matrix(name, values, columns=width)

    def log_likelihood(self, released: Array, held: Array) -> Array:
        # τ of states whose rounding alone tells them apart; it moves no posterior of noisier ones
        largest = float(max(np.abs(held).max(), np.abs(released).max()))
        floor = (STATE_ROUNDING * largest) ** 2 if self.floor is None else self.floor
        centre = held.mean(axis=0)
        rows, own = released - centre, held - centre
        if self._values is None or self._vectors is None:
            scale = 1.0 / np.sqrt(max(floor, np.finfo(np.float64).tiny))
            rows, own = rows * scale, own * scale
        else:
            # in the eigenbasis of Σ, each coordinate in units of its noise
            scales = 1.0 / np.sqrt(self._values + floor)
            rows, own = rows @ self._vectors * scales, own @ self._vectors * scales
        # ‖y − h‖² by one product of matrices; about the middle, so that little cancels
        squares = (rows**2).sum(axis=1)[:, None] + (own**2).sum(axis=1) - 2.0 * rows @ own.T
        scores: Array = -0.5 * np.maximum(squares, 0.0)
        return scores

    def draw(self, held: Array, rng: RandomSource = None) -> Array:
        if self.covariance is None:
            return held
        return held + self.covariance.sample(len(held), generator(rng))


class CodeChannel(Channel):
    """A code of the state, reported as it is or through a table of probabilities.

    Args:
        assign: (states (m, d), behaviours or None) → codes (m,); None where codes are all that is
            held of candidates.
        table: (C, Y), ``P(report | code)``, each row a distribution; None reports the code itself.
        predicts: whether ``assign`` reads what the model predicts after a candidate.

    Raises:
        ValueError: a table with a row that is no distribution.

    Example:
        >>> import math
        >>> response = CodeChannel(table=[[0.75, 0.25], [0.25, 0.75]])
        >>> response.log_likelihood(np.array([0]), np.array([0, 1])).round(3).tolist()
        [[-0.288, -1.386]]
    """

    def __init__(
        self, assign: Assign | None = None, *, table: Any = None, predicts: bool = False
    ) -> None:
        self.assign, self.predicts = assign, predicts
        self.deterministic = table is None
        self._table: Array | None = None
        self._logs: Array | None = None
        if table is not None:
            chances = matrix("table", table)
            if chances.min() < 0.0 or np.abs(chances.sum(axis=1) - 1.0).max() > ROW_SUMS:
                raise ValueError("table: expected rows that are distributions, got other values")
            self._table = chances
            with np.errstate(divide="ignore"):
                self._logs = np.maximum(np.log(chances), UNEXPLAINED)

    def held(self, states: Tensor, behaviours: Behaviours | None) -> Codes:
        if self.assign is None:
            raise ValueError("assign: expected a function from states to codes, got None")
        return self.checked("assign", self.assign(states, behaviours))

    def checked(self, name: str, values: Any, *, released: bool = False) -> Codes:
        found = as_array(name, values)
        if found.ndim != 1 or found.dtype.kind not in "iu" or found.size == 0 or found.min() < 0:
            raise ValueError(
                f"{name}: expected codes, integers >= 0 of shape (n,), got {found.dtype} of shape "
                f"{found.shape}"
            )
        if self._table is not None:
            size = self._table.shape[1 if released else 0]
            if found.max() >= size:
                raise ValueError(f"{name}: expected codes below {size}, got {int(found.max())}")
        codes: Codes = found.astype(np.int64)
        return codes

    def log_likelihood(self, released: Codes, held: Codes) -> Array:
        if self._logs is None:
            return np.where(released[:, None] == held, 0.0, UNEXPLAINED)
        scores: Array = self._logs.T[released[:, None], held]
        return scores

    def draw(self, held: Codes, rng: RandomSource = None) -> Codes:
        if self._table is None:
            return held
        levels = generator(rng).random(len(held))[:, None]
        below: Codes = (self._table.cumsum(axis=1)[held] < levels).sum(axis=1)
        # a row may sum to less than a level drawn, by rounding
        below[below == self._table.shape[1]] -= 1
        return below


def as_array(name: str, values: Any) -> Any:
    """Return an array of whatever entries, or say that the rows are ragged."""
    try:
        return np.asarray(plain(values))
    except (TypeError, ValueError):
        raise ValueError(f"{name}: expected an array, got ragged rows") from None
