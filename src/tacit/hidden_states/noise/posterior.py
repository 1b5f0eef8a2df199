"""Bayes' rule over public states: how likely each of them is, given a noisy one, and what follows.

For whoever holds the release alone (protocol B) the next token then has the law of the public
prompts, each as likely as its state makes it.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike
from scipy import linalg as scipy_linalg
from scipy import sparse
from torch import Tensor

from tacit._ground.checks import Array, in_interval, matrix
from tacit._ground.threads import one_thread
from tacit.covariance import Covariance
from tacit.guarantees import Guarantee
from tacit.models.behaviours import Behaviours, as_matrix, logarithms

POST_PROCESSING = (
    "a function of the release and of public data: the guarantee is that of the release"
)
# noisy rows, and public states, whose scores are held at once: 64 MB of float64
ROWS_TOGETHER, CALIBRATION_TOGETHER = 2048, 4096
# probabilities that are read at once, 64 MB of float32
NUMBERS_TOGETHER = 2**24
# a dense product beats a sparse one from this share of weights on, as measured
DENSE = 0.06


class StatePosterior:
    """Weights ``w_m(z) ∝ exp(−½ ‖z − h_m‖²_{Σ⁻¹})`` of public states h_m, a block at a time.

    Args:
        calibration: (M, d) public clean states.
        covariance: Σ of the release, of full rank.

    Raises:
        ValueError: bad states, or a singular Σ: no public state agrees with a release in a
            direction without noise.
    """

    count: int
    width: int

    def __init__(self, calibration: Any, covariance: Covariance) -> None:
        # a direction without noise would weigh every public state 0 there
        states = public_states(calibration, covariance)
        if covariance.rank < covariance.dim:
            raise ValueError(
                f"covariance: expected full rank {covariance.dim}, got {covariance.rank}: no "
                "public state agrees with a release in a direction without noise; give Σ a floor, "
                "or denoise linearly"
            )
        # Σ = L Lᵀ, so that ‖z − h‖²_{Σ⁻¹} = ‖L⁻¹z − L⁻¹h‖²: distances of whitened rows
        try:
            with one_thread():
                self._factor = scipy_linalg.cholesky(covariance.to_dense(), lower=True)
        except scipy_linalg.LinAlgError:
            raise ValueError(
                "covariance: expected one that double precision can invert, got one whose "
                "smallest variance is lost beside its largest"
            ) from None
        self.count, self.width = states.shape
        # about their mean, so that the squares below do not cancel
        self.centre: Array = states.mean(axis=0)
        self.states = torch.from_numpy(states - self.centre)
        self._whitened = self._whiten(self.states.numpy())
        self._offset = 0.5 * self._whitened.square().sum(dim=1)

    def blocks(self, noisy: Array) -> Iterator[tuple[slice, Tensor]]:
        """Yield noisy rows (b, d) together, whitened: what ``scores`` takes."""
        for low in range(0, len(noisy), ROWS_TOGETHER):
            part = slice(low, low + ROWS_TOGETHER)
            yield part, self._whiten(noisy[part] - self.centre)

    def scores(self, asked: Tensor) -> Iterator[tuple[slice, Tensor]]:
        """Yield ln w_m of whitened rows up to a constant a row, (b, c), for states c together."""
        # −½ ‖a − b‖² = a·b − ½ ‖b‖² − ½ ‖a‖², whose last term is the same for every state
        for low in range(0, self.count, CALIBRATION_TOGETHER):
            part = slice(low, low + CALIBRATION_TOGETHER)
            yield part, torch.addmm(-self._offset[part], asked, self._whitened[part].T)

    def log_mass(self, asked: Tensor) -> Tensor:
        """Return ln Σ_m exp(score_m) of whitened rows, (b,)."""
        # ln(e^a + e^b) block by block: the sum of exponentials itself would underflow
        mass = torch.full((len(asked),), -torch.inf, dtype=torch.float64)
        for _, score in self.scores(asked):
            mass = torch.logaddexp(mass, score.logsumexp(dim=1))
        return mass

    def _whiten(self, rows: Array) -> Tensor:
        with one_thread():
            # L⁻¹ rows by substitution: no inverse is formed
            solved = scipy_linalg.solve_triangular(self._factor, rows.T, lower=True)
        return torch.from_numpy(np.ascontiguousarray(solved.T))


def public_states(states: Any, covariance: Any) -> Array:
    """Return calibration states (M, d) in float64, as wide as Σ."""
    if not isinstance(covariance, Covariance):
        raise ValueError(f"covariance: expected a Covariance, got {type(covariance).__name__}")
    return double_rows("calibration", states, covariance.dim)


def double_rows(name: str, states: Any, width: int) -> Array:
    """Return finite states (n, width) in float64."""
    return matrix(name, as_matrix(name, states).double().numpy(), columns=width)


def unchanged(release: Any) -> Guarantee:
    """Return the guarantee of a release after post-processing: the same one.

    Raises:
        ValueError: not a guarantee.
    """
    if not isinstance(release, Guarantee):
        raise ValueError(f"release: expected a guarantee, got {type(release).__name__}")
    return release


class PosteriorBehaviour:
    """The Bayes reader of a release alone: ``p̂(· | z) = Σ_j w_j(z) p_j``.

    ``w_j(z) ∝ exp(−½ (z − h_j)ᵀ Σ⁻¹ (z − h_j))`` weighs the public prompts j by their states h_j,
    and p_j is what the model itself predicts after prompt j. Were the secret one of the public
    prompts, each as likely, no reader of z would have a smaller expected log loss. It is
    post-processing: the guarantee of the release holds unchanged.

    Args:
        calibration: (M, d) public clean states, disjoint from what is released.
        covariance: Σ of the release, of full rank.
        behaviours: (M, V) logits or log-probabilities of the public prompts, or ``Behaviours``.
        tolerance: τ in [0, 1). Weights below τ/M are left out, a mass of at most τ, so that the
            total variation from the exact mixture is at most τ; 0 keeps every weight.

    Attributes:
        calibration: M.
        tolerance: τ.
        statement: why it changes no guarantee.

    Raises:
        ValueError: bad states, a singular Σ (no public state agrees with a release in a direction
            without noise), not one behaviour a state, or a bad tolerance.

    Example:
        >>> from tacit.covariance import Isotropic
        >>> public, behaviours = torch.tensor([[-1.0], [1.0]]), torch.tensor([[9.0, 0], [0, 9.0]])
        >>> reader = PosteriorBehaviour(public, Isotropic(1.0, 1), behaviours)
        >>> reader.distributions(torch.tensor([[0.5]])).exp()
        tensor([[0.2690, 0.7310]])

    Source: Bayes' rule for a uniform prior on the calibration prompts.
    """

    statement = POST_PROCESSING

    def __init__(
        self,
        calibration: ArrayLike,
        covariance: Covariance,
        behaviours: Any,
        *,
        tolerance: float = 1e-4,
    ) -> None:
        self.tolerance = in_interval("tolerance", tolerance, 0.0, 1.0, open_high=True)
        self._posterior = StatePosterior(calibration, covariance)
        self._behaviours = Behaviours.of(behaviours)
        self.calibration = self._posterior.count
        if len(self._behaviours) != self.calibration:
            raise ValueError(
                f"behaviours: expected {self.calibration} rows, one a calibration state, got "
                f"{len(self._behaviours)}"
            )

    def distributions(self, noisy: ArrayLike) -> Tensor:
        """Return log-probabilities of the next token for each noisy state, (n, V) of float32.

        Args:
            noisy: (n, d) released states.

        Raises:
            ValueError: not finite, or of another width.
        """
        rows = double_rows("noisy", noisy, self._posterior.width)
        found = torch.zeros(len(rows), self._behaviours.vocabulary)
        for part, asked in self._posterior.blocks(rows):
            self._mix(asked, found[part])
            # what the weights left out would have added is spread over those kept
            found[part] = logarithms(found[part] / found[part].sum(dim=1, keepdim=True))
        return found

    def guarantee(self, release: Guarantee) -> Guarantee:
        """Return the guarantee of what is read: that of the release, unchanged.

        Raises:
            ValueError: not a guarantee.

        Source: post-processing (data processing inequality).
        """
        return unchanged(release)

    def _mix(self, asked: Tensor, into: Tensor) -> None:
        """Add ``Σ_j w_j p_j`` over the weights ``w_j >= τ/M``; at least one is 1/M or more."""
        # w_j = exp(score_j − ln Σ_m exp score_m): no exponential overflows
        mass = self._posterior.log_mass(asked)
        together = max(1, NUMBERS_TOGETHER // self._behaviours.vocabulary)
        for part, score in self._posterior.scores(asked):
            weights = score.sub_(mass[:, None]).float().exp_()
            weights.masked_fill_(weights < self.tolerance / self.calibration, 0.0)
            # only the predictions of states that some row weighs are read
            used = (weights > 0).any(dim=0).nonzero()[:, 0]
            for chosen in torch.split(used, together) if len(used) else ():
                read = self._behaviours.probabilities(part.start + chosen)
                into += _product(weights[:, chosen], read)


def _product(weights: Tensor, rows: Tensor) -> Tensor:
    if int(weights.count_nonzero()) > DENSE * weights.numel():
        return weights @ rows
    thin = sparse.csr_array(weights.numpy())
    return torch.from_numpy(thin @ rows.numpy())
