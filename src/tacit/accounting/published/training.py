"""The published composition of the noisy projection over training steps (lora-privacy, F.2)."""

from __future__ import annotations

import math

from tacit._ground.checks import integer, positive
from tacit.accounting.mechanisms.steps import least_noise
from tacit.accounting.mechanisms.subsampled import subsampled_gaussian
from tacit.accounting.published.claims import Claim, open_unit
from tacit.accounting.published.lora import captured_share

FAILURE_SHARE = 0.1


def lora_theorem_5_steps(
    *,
    dim: int,
    rank: int,
    sampling_rate: float,
    noise_multiplier: float,
    steps: int,
    delta: float,
    difference_rank: int = 1,
    failure_share: float = FAILURE_SHARE,
    neighbours: str = "add-remove",
) -> Claim:
    """Claim for T steps of M2: a Gaussian mechanism of sensitivity √α C at δ (1 − share).

    α is the share of the energy that a projection captures but for probability share·δ/T a step.
    The Gaussian part is composed exactly here, which the paper leaves to any accountant.
    `noisy_projection_steps` has the composed exact profile.

    Args:
        dim: d >= 2.
        rank: r in [1, d − 1].
        sampling_rate: q in [0, 1].
        noise_multiplier: s > 0, noise standard deviation over the norm bound C.
        steps: T >= 1.
        delta: δ in (0, 1).
        difference_rank: s >= 1, rank of one record's gradient.
        failure_share: Share of δ in (0, 1) for the projections' failures; the paper uses 0.1.
        neighbours: ``"add-remove"`` or ``"replace"``.

    Returns:
        The claimed ε at ``delta``.

    Raises:
        ValueError: An argument is outside its range.

    Example:
        >>> rate = {"sampling_rate": 1024 / 50_000, "noise_multiplier": 0.41556, "steps": 1000}
        >>> claim = lora_theorem_5_steps(dim=2000, rank=16, **rate, delta=1e-4)
        >>> round(claim.epsilon, 3)
        1.0

    Source: lora-privacy, Theorem 5 and Appendix F.2.
    """
    noise = positive("noise_multiplier", noise_multiplier)
    left, gain = _split(dim, rank, steps, delta, difference_rank, failure_share)
    profile = subsampled_gaussian(sampling_rate, noise / gain, steps, neighbours)
    return Claim(profile.epsilon(left), float(delta), "lora-privacy, Theorem 5 and F.2")


def lora_theorem_5_multiplier(
    *,
    dim: int,
    rank: int,
    sampling_rate: float,
    steps: int,
    epsilon: float,
    delta: float,
    difference_rank: int = 1,
    failure_share: float = FAILURE_SHARE,
    neighbours: str = "add-remove",
) -> float:
    """Return the noise multiplier that `lora_theorem_5_steps` asks for.

    √α times the multiplier of the plain subsampled Gaussian at (ε, (1 − share) δ).

    Args:
        dim: d >= 2.
        rank: r in [1, d − 1].
        sampling_rate: q in [0, 1].
        steps: T >= 1.
        epsilon: ε > 0 in nats.
        delta: δ in (0, 1).
        difference_rank: As in `lora_theorem_5_steps`.
        failure_share: As in `lora_theorem_5_steps`.
        neighbours: ``"add-remove"`` or ``"replace"``.

    Returns:
        s, the noise standard deviation over the norm bound.

    Raises:
        ValueError: An argument is outside its range.

    Example:
        >>> s = lora_theorem_5_multiplier(
        ...     dim=2000, rank=16, sampling_rate=1024 / 50_000, steps=1000, epsilon=1.0, delta=1e-4
        ... )
        >>> round(s, 3)
        0.416

    Source: lora-privacy, Theorem 5 and Appendix F.2.
    """
    left, gain = _split(dim, rank, steps, delta, difference_rank, failure_share)
    return gain * least_noise(
        lambda noise: subsampled_gaussian(sampling_rate, noise, steps, neighbours),
        epsilon=epsilon,
        delta=left,
    )


def _split(
    dim: int, rank: int, steps: int, delta: float, difference_rank: int, share: float
) -> tuple[float, float]:
    """Return δ of the Gaussian part and √α."""
    count = integer("steps", steps, minimum=1)
    failure, part = open_unit("delta", delta), open_unit("failure_share", share)
    captured = captured_share(
        dim=dim, rank=rank, delta=part * failure / count, difference_rank=difference_rank
    )
    return (1 - part) * failure, math.sqrt(captured)
