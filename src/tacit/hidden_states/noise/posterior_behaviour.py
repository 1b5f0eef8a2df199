"""What a noisy state says of the next token to a consumer who holds nothing else (protocol B)."""

from __future__ import annotations

from typing import Any

import torch
from numpy.typing import ArrayLike
from scipy import sparse
from torch import Tensor

from tacit._ground.checks import in_interval
from tacit.covariance import Covariance
from tacit.guarantees import Guarantee
from tacit.hidden_states.noise.posterior import POST_PROCESSING, Posterior, double_rows, unchanged
from tacit.models.behaviours import Behaviours, logarithms

NUMBERS_TOGETHER = 2**24
# A dense product beats a sparse one from this share of weights on.
DENSE = 0.06


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
        self._posterior = Posterior(calibration, covariance)
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
        mass = self._posterior.log_mass(asked)
        together = max(1, NUMBERS_TOGETHER // self._behaviours.vocabulary)
        for part, score in self._posterior.scores(asked):
            weights = score.sub_(mass[:, None]).float().exp_()
            weights.masked_fill_(weights < self.tolerance / self.calibration, 0.0)
            used = (weights > 0).any(dim=0).nonzero()[:, 0]
            for chosen in torch.split(used, together) if len(used) else ():
                read = self._behaviours.probabilities(part.start + chosen)
                into += _product(weights[:, chosen], read)


def _product(weights: Tensor, rows: Tensor) -> Tensor:
    if int(weights.count_nonzero()) > DENSE * weights.numel():
        return weights @ rows
    thin = sparse.csr_array(weights.numpy())
    return torch.from_numpy(thin @ rows.numpy())
