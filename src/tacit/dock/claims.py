"""What a submission claims about privacy: held together with itself, then against the policy."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tacit.conversions import epsilon_from_renyi
from tacit.dock.errors import RefusedError
from tacit.dock.settings import Policy
from tacit.dock.texts import check_texts
from tacit.documents import loads
from tacit.gate.consistency import consistent_form
from tacit.guarantees import (
    ApproximateDP,
    GaussianDP,
    InformationBound,
    MaximalLeakage,
    RenyiDP,
    SuccessBound,
    membership_bound,
)
from tacit.guarantees.base import Guarantee
from tacit.specifications import Specification

# ε is compared at this δ.
DELTA = 1e-5
CLAIMED = "claimed by the developer; the dock cannot run it again"
NONE = "no guarantee is claimed"
BISECTIONS = 200
STATUS = {"accept": "listed", "quarantine": "quarantined"}


@dataclass(frozen=True)
class Decision:
    """What becomes of a submission, and why.

    Attributes:
        status: ``"listed"`` or ``"quarantined"``.
        reason: a sentence.
    """

    status: str
    reason: str


def decide(specification: Specification, release: bytes | None, policy: Policy) -> Decision:
    """Return what becomes of a submission by its guarantees.

    Args:
        specification: whose guarantees are claimed.
        release: the JSON of the release that made it, where it is given.
        policy: of the dock.

    Raises:
        RefusedError: a guarantee is infinite, void or not that of the release, whatever the
            policy; or the policy refuses what has none, or one that is too weak (422).
    """
    for held in specification.guarantees:
        _check_sound(held)
    if release is not None:
        _check_release(specification, release)
    weak = weakness(specification.guarantees, policy)
    if weak is None:
        return Decision("listed", CLAIMED)
    if policy.without == "refuse":
        raise RefusedError(422, f"specification: {weak}, and this dock refuses that")
    return Decision(STATUS[policy.without], weak)


def weakness(guarantees: tuple[Guarantee, ...], policy: Policy) -> str | None:
    """Say why guarantees do not meet a policy; None where they do."""
    if not guarantees:
        return NONE
    if policy.max_epsilon < math.inf:
        epsilon = min(map(epsilon_of, guarantees))
        if epsilon > policy.max_epsilon:
            told = "no ε" if math.isinf(epsilon) else f"ε = {epsilon:.4g}"
            return f"{told} at δ = {DELTA:g} is claimed, at most {policy.max_epsilon:g} is asked"
    advantage = min(map(advantage_of, guarantees))
    if advantage >= 1.0:
        return "the guarantee that is claimed says nothing about an attacker's success"
    if advantage > policy.max_advantage:
        return (
            f"an advantage of {advantage:.4g} over guessing is claimed, at most "
            f"{policy.max_advantage:g} is asked"
        )
    return None


def epsilon_of(held: Guarantee) -> float:
    """Return ε at δ = 1e-5, infinite where the guarantee has none."""
    if isinstance(held, ApproximateDP):
        return held.epsilon if held.delta <= DELTA else math.inf
    if isinstance(held, RenyiDP):
        return float(epsilon_from_renyi(held.orders, held.epsilons, DELTA))
    if isinstance(held, GaussianDP):
        return _gaussian_epsilon(held)
    return math.inf


def advantage_of(held: Guarantee) -> float:
    """Return 2 P(right) − 1 at even odds, 1 where the guarantee says nothing about it."""
    if isinstance(held, (ApproximateDP, GaussianDP)):
        return max(2.0 * held.success().success - 1.0, 0.0)
    if isinstance(held, RenyiDP):
        return max(2.0 * held.approximate(DELTA).success().success - 1.0, 0.0)
    if isinstance(held, InformationBound):
        return max(2.0 * membership_bound(held).success - 1.0, 0.0)
    if isinstance(held, MaximalLeakage):
        return max(2.0 * held.success(0.5, "a fair coin").success - 1.0, 0.0)
    if isinstance(held, SuccessBound) and held.prior == 0.5:
        return max(2.0 * held.success - 1.0, 0.0)
    return 1.0


def summary(guarantees: tuple[Guarantee, ...]) -> dict[str, Any] | None:
    """Return the headline as an answer tells it, None where nothing is claimed."""
    if not guarantees:
        return None
    epsilon = min(map(epsilon_of, guarantees))
    advantage = min(map(advantage_of, guarantees))
    return {
        "type": type(guarantees[0]).__name__,
        "sentence": guarantees[0].describe(),
        "epsilon": epsilon if math.isfinite(epsilon) else None,
        "delta": DELTA if math.isfinite(epsilon) else None,
        "advantage": advantage if advantage < 1.0 else None,
        "checked": CLAIMED,
        "all": [held.to_dict() for held in guarantees],
    }


def _gaussian_epsilon(held: GaussianDP) -> float:
    """Bisect δ(ε) <= 1e-5 from above, so that the ε returned is never too small."""
    if math.isinf(held.mu):
        return math.inf
    # δ(ε) <= Φ(μ/2 − ε/μ) <= 1e-5 where ε/μ >= μ/2 + 4.27
    low, high = 0.0, held.mu * (held.mu / 2.0 + 5.0)
    if held.approximate(0.0).delta <= DELTA:
        return 0.0
    for _ in range(BISECTIONS):
        middle = 0.5 * (low + high)
        if middle in (low, high):
            break
        low, high = (low, middle) if held.approximate(middle).delta <= DELTA else (middle, high)
    return high


def _check_sound(held: Guarantee) -> None:
    for name in held.number_fields:
        value = getattr(held, name)
        values = value if isinstance(value, tuple) else (value,)
        # of a Rényi curve some orders may have no bound
        kept = any if isinstance(held, RenyiDP) and name == "epsilons" else all
        if not kept(math.isfinite(number) for number in values):
            raise RefusedError(422, f"specification: the guarantee's {name} is infinite")
    if any(line.lstrip().upper().startswith("VOID") for line in held.assumptions):
        raise RefusedError(422, "specification: the guarantee says itself that it is void")


def _check_release(specification: Specification, release: bytes) -> None:
    """Refuse a release that contradicts itself or the manifest, or that a seed can repeat."""
    try:
        content = loads(release, name="release", source="the JSON")
        check_texts("release", content)
        form = consistent_form(content)
    except RefusedError:
        raise
    except ValueError as error:
        raise RefusedError(422, str(error)) from None
    except (TypeError, KeyError, AttributeError, IndexError, RecursionError, OverflowError):
        raise RefusedError(422, "release: expected the JSON of a release") from None
    if form.reproducible or form.seed is not None:
        raise RefusedError(422, "release: a seed can repeat its draw, which voids its guarantee")
    told, given = (
        [held.to_dict() for held in held_by.guarantees] for held_by in (specification, form)
    )
    if told != given:
        raise RefusedError(
            422, "specification: the manifest claims other guarantees than the release"
        )
    if not _names(content, specification.revision):
        raise RefusedError(
            422, "release: expected the release of this specification, it names another or none"
        )


def _names(content: Any, revision: str) -> bool:
    """Whether the digest of a specification stands in a release."""
    bare = revision.removeprefix("sha256:")
    if isinstance(content, Mapping):
        return any(_names(held, revision) for held in content.values())
    if isinstance(content, (list, tuple)):
        return any(_names(held, revision) for held in content)
    return isinstance(content, str) and content in (revision, bare)
