"""What a release means, in words a manager can repeat, and numbers rounded the safe way."""

from __future__ import annotations

from tacit.conversions import success_from_information
from tacit.measured import Interval
from tacit.releases.contradiction import surely
from tacit.report.statistic.record import AttackRecord, ReleaseRecord
from tacit.report.words import Verdict, void_sentence
from tacit.text import percent, percent_up

KNOWS = "An attacker who knows everything but the noise and which rows were drawn"
KNOWS_ALL = (
    "This is released without noise: an attacker who knows everything but which rows were drawn"
)


def verdict(release: ReleaseRecord) -> Verdict:
    """Return the verdict on a release: bound first, strongest measured attack second."""
    bound = success_bound(release)
    measured = (
        "" if release.attack is None else f"; the strongest we ran got {plus_minus(release.attack)}"
    )
    if release.reproducible:
        return Verdict(kind="void", sentence=void_sentence(release.seed), success=1.0)
    if release.attack is not None and _lowest(release.attack) > bound:
        sentence = (
            f"Do not release this: the bound says {percent_up(bound)} and an attack we ran got "
            f"{plus_minus(release.attack)}, so something assumed does not hold."
        )
        return Verdict(kind="contradicted", sentence=sentence, success=1.0)
    knows = KNOWS_ALL if release.noiseless else KNOWS
    law = f"{release.candidates:,} candidates, all equally likely"
    sentence = (
        f"{knows} ({law}) guesses membership of any one row right at most {percent_up(bound)} of "
        f"the time{measured}."
    )
    return Verdict(kind="bounded", sentence=sentence, success=bound)


def success_bound(release: ReleaseRecord) -> float:
    """Return the larger of the success stored and the success the information bound gives."""
    derived = float(success_from_information(release.guarantee.nats, release.prior))
    return max(release.membership.success, derived)


def seed_words(release: ReleaseRecord) -> str:
    """Say which seed, as far as it is known."""
    return "a generator given by the caller" if release.seed is None else f"the seed {release.seed}"


def plus_minus(attack: AttackRecord) -> str:
    """Return success ± the longer side of its interval, rounded up, such as "51.2 ± 0.9%"."""
    low, high = attack.interval
    half = max(attack.success - low, high - attack.success)
    return f"{percent(attack.success)[:-1]} ± {percent_up(half)}"


def _lowest(attack: AttackRecord) -> float:
    ends = ((attack.success, attack.interval), (attack.worst_success, attack.worst_interval))
    return max(
        surely(Interval(value=value, low=low, high=high, confidence=attack.confidence))
        for value, (low, high) in ends
    )
