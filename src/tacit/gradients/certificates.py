"""What noisy steps certify."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

from tacit.accounting import PrivacyProfile
from tacit.gradients.steps import Method, Schedule
from tacit.guarantees import ApproximateDP, SuccessBound
from tacit.guarantees.base import Guarantee
from tacit.text import number_up, share_up

# Of passes in bfloat16 or float16.
HALF = (
    "passes ran in half precision: how what a record adds is rounded follows from the size of its "
    "batch and from the longest record there, which the account leaves out"
)
# Whoever is right that often at even odds is told the answer.
TOLD = 0.99


def certified_steps(
    method: Method,
    noise_multiplier: float,
    schedule: Schedule,
    *,
    delta: float,
    common: tuple[str, ...],
) -> tuple[SuccessBound, ApproximateDP]:
    """Return the success at even odds and (ε, δ) of noisy steps, both rounded up.

    Args:
        method: of the steps.
        noise_multiplier: of the noise, over what the method scales it with.
        schedule: of the run.
        delta: δ at which ε is told.
        common: assumptions beside those of the account.

    Source: the Neyman-Pearson lemma.
    """
    # exact for one step or full batches, composed numerically else
    profile = _profile(method, noise_multiplier, schedule)
    return certified_profile(profile, schedule.adjacency.sentence(), delta=delta, common=common)


def certified_profile(
    profile: PrivacyProfile, adjacency: str, *, delta: float, common: tuple[str, ...]
) -> tuple[SuccessBound, ApproximateDP]:
    """Return the success at even odds and (ε, δ) of a profile, both rounded up.

    Args:
        profile: of all steps.
        adjacency: which inputs are neighbours, in words.
        delta: δ at which ε is told.
        common: assumptions beside those of the account.
    """
    # each once, in order
    assumptions = tuple(dict.fromkeys([*profile.assumptions, *common]))
    success = profile.success()
    return (
        SuccessBound(
            success=success.success,
            prior=success.prior,
            task=f"which of two neighbouring inputs ({adjacency}) was used",
            law=success.law,
            evidence=success.evidence,
            assumptions=assumptions,
            source=f"{success.source}; the Neyman-Pearson lemma",
        ),
        ApproximateDP(
            epsilon=profile.epsilon(delta),
            delta=delta,
            adjacency=adjacency,
            evidence="numerical",
            assumptions=assumptions,
            source=profile.source,
        ),
    )


def weakness(guarantees: Sequence[Guarantee], units: int | None) -> str:
    """Return in words why a promise protects hardly anybody; nothing where it does.

    Args:
        guarantees: as ``certified_profile`` returns them.
        units: how many records or persons there are; None where that is not told.

    Example:
        >>> from tacit.accounting import gaussian
        >>> weakness(certified_profile(gaussian(1.0, 1.0), "near", delta=0.5, common=()), 20)
        ' δ = 0.5 is at least one in 20: publishing each with this probability keeps it too.'
    """
    words = ""
    for held in guarantees:
        if isinstance(held, SuccessBound) and held.success >= TOLD:
            words += (
                f" Whoever attacks may be right {share_up(held.success)} of the time: such a "
                "promise protects hardly anybody."
            )
        if isinstance(held, ApproximateDP) and units is not None and held.delta * units >= 1.0:
            words += (
                f" δ = {number_up(held.delta)} is at least one in {units:,}: publishing each with "
                "this probability keeps it too."
            )
    return words


@lru_cache(maxsize=8)
def _profile(method: Method, noise_multiplier: float, schedule: Schedule) -> PrivacyProfile:
    """Composing many steps takes a second, and a certificate is asked for more than once."""
    return method.profile(noise_multiplier, schedule)
