"""Bayes' rule over public states: how likely each of them is, given a noisy one."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from scipy import linalg as scipy_linalg
from torch import Tensor

from tacit._ground.checks import Array, matrix
from tacit._ground.threads import one_thread
from tacit.covariance import Covariance
from tacit.guarantees import Guarantee
from tacit.models.behaviours import as_matrix

POST_PROCESSING = (
    "a function of the release and of public data: the guarantee is that of the release"
)
ROWS_TOGETHER, CALIBRATION_TOGETHER = 2048, 4096


class Posterior:
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
        states = public_states(calibration, covariance)
        if covariance.rank < covariance.dim:
            raise ValueError(
                f"covariance: expected full rank {covariance.dim}, got {covariance.rank}: no "
                "public state agrees with a release in a direction without noise; give Σ a floor, "
                "or denoise linearly"
            )
        try:
            with one_thread():
                self._factor = scipy_linalg.cholesky(covariance.to_dense(), lower=True)
        except scipy_linalg.LinAlgError:
            raise ValueError(
                "covariance: expected one that double precision can invert, got one whose "
                "smallest variance is lost beside its largest"
            ) from None
        self.count, self.width = states.shape
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
        for low in range(0, self.count, CALIBRATION_TOGETHER):
            part = slice(low, low + CALIBRATION_TOGETHER)
            yield part, torch.addmm(-self._offset[part], asked, self._whitened[part].T)

    def log_mass(self, asked: Tensor) -> Tensor:
        """Return ln Σ_m exp(score_m) of whitened rows, (b,)."""
        mass = torch.full((len(asked),), -torch.inf, dtype=torch.float64)
        for _, score in self.scores(asked):
            mass = torch.logaddexp(mass, score.logsumexp(dim=1))
        return mass

    def _whiten(self, rows: Array) -> Tensor:
        with one_thread():
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
