"""Noisy projections as training uses them, and the least noise without a bracket."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

from tacit._ground.checks import choice, in_interval, integer, positive
from tacit.accounting.curves.calibration import calibrate
from tacit.accounting.curves.profile import PrivacyProfile
from tacit.accounting.mechanisms.projection import noisy_projection

NEIGHBOURS = ("add-remove", "replace")
WIDEST = 1e12
FIRST_FACTOR, LARGEST_FACTOR = 1.25, 16.0


def noisy_projection_steps(
    *,
    dim: int,
    rank: int,
    sampling_rate: float,
    noise_multiplier: float,
    steps: int,
    difference_rank: int | None = None,
    neighbours: str = "add-remove",
) -> PrivacyProfile:
    """Return the profile of training by M_t(V_t + Ξ_t), each M_t drawn afresh, on Poisson samples.

    V_t is a sum of per-record gradients of Frobenius norm at most C over a Poisson sample, Ξ_t has
    independent N(0, (sC)²) entries. One record adds at most C to V_t ("add-remove"), or moves it
    by at most 2C ("replace").

    Args:
        dim: d >= 1, the dimension that is projected.
        rank: r >= 1.
        sampling_rate: q in [0, 1], the probability that a record is in a step's sample.
        noise_multiplier: s > 0.
        steps: Number of steps T >= 1.
        difference_rank: Rank of one record's gradient; 1 is exact under "add-remove", None sound
            for every spectrum. A replaced record moves V_t by the difference of two gradients, of
            rank two, for which the bound for every spectrum is taken.
        neighbours: ``"add-remove"`` or ``"replace"``.

    Returns:
        The composed profile.

    Raises:
        ValueError: An argument is out of range.

    Example:
        >>> rate = {"sampling_rate": 1024 / 50_000, "noise_multiplier": 0.2016, "steps": 1000}
        >>> profile = noisy_projection_steps(dim=2000, rank=16, **rate)
        >>> round(profile.epsilon(1e-4), 2)
        1.0

    Source: lora-privacy, Theorem 5 and Appendix F.2, with the exact mixture for their bound.
    """
    rate = in_interval("sampling_rate", sampling_rate, 0.0, 1.0)
    noise = positive("noise_multiplier", noise_multiplier)
    count = integer("steps", steps, minimum=1)
    relation = choice("neighbours", neighbours, NEIGHBOURS)
    # one record's own gradient, in the sample or not
    own = noisy_projection(
        dim=dim, rank=rank, sensitivity=1.0, noise_std=noise, difference_rank=difference_rank
    )
    if relation == "add-remove":
        return own.poisson_subsample(rate, neighbours=relation) * count
    # both in the sample: g − g' of norm 2 at most, whose rank is two though each has rank one
    apart = noisy_projection(
        dim=dim, rank=rank, sensitivity=2.0, noise_std=noise, difference_rank=None
    )
    return apart.poisson_subsample(rate, neighbours=relation, without=own) * count


def least_noise(
    build: Callable[[float], PrivacyProfile], *, epsilon: float, delta: float, start: float = 1.0
) -> float:
    """Return what `calibrate` returns, with a bracket found from a first guess.

    Args:
        build: From a parameter s > 0 to a profile that grows more private with s.
        epsilon: Target ε > 0 in nats.
        delta: Target δ in [0, 1).
        start: First guess, > 0; steps away from it grow from a quarter.

    Returns:
        The smallest s that is (ε, δ)-private, on the safe side.

    Raises:
        ValueError: A number is out of range, or no s between start/10¹² and 10¹² start works.

    Example:
        >>> from tacit.accounting import gaussian
        >>> round(least_noise(lambda s: gaussian(1.0, s), epsilon=1.0, delta=1e-5), 4)
        3.7306

    Source: as `calibrate`.
    """
    target = positive("epsilon", epsilon)
    failure = in_interval("delta", delta, 0.0, 1.0, open_high=True)
    guess = positive("start", start)
    built = cache(build)

    def private(parameter: float) -> bool:
        return built(parameter).epsilon(failure) <= target

    low = high = guess
    factor = FIRST_FACTOR
    if private(guess):
        while private(low):
            high, low = low, low / factor
            factor = min(factor * factor, LARGEST_FACTOR)
            _refuse_beyond(low, guess, "more than enough")
    else:
        while not private(high):
            low, high = high, high * factor
            factor = min(factor * factor, LARGEST_FACTOR)
            _refuse_beyond(high, guess, "not enough")
    return calibrate(built, epsilon=target, delta=failure, bracket=(low, high))


def _refuse_beyond(parameter: float, start: float, reason: str) -> None:
    if not start / WIDEST <= parameter <= start * WIDEST:
        raise ValueError(
            f"epsilon, delta: expected a pair that some parameter reaches, and {parameter:.3g} is "
            f"{reason}"
        )
