"""What a submission claims about privacy: worked out again from its release, then the policy."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tacit.accounting import gaussian_shift
from tacit.documents import loads
from tacit.releases import Release
from tacit.releases.loading import read_checked
from tacit.releases.verification import FALSE, NOT_SHOWN, verify
from tacit.specifications import CertifiedSpecification, Specification
from tacit.specifications.release import KIND
from tacit_dock.errors import RefusedError
from tacit_dock.settings import AdmissionPolicy
from tacit_dock.texts import check_texts

# ε is compared and told at this δ.
DELTA = 1e-5
CLAIMED = (
    "worked out by the dock from the noise that its developer claims; the dock cannot run it again"
)
NONE = "no guarantee is claimed"
STATUS = {"accept": "listed", "quarantine": "quarantined"}
# A release certifies a success, μ and (ε, δ), each once.
MOST_GUARANTEES = 8
# δ of more steps than this on samples takes seconds to work out.
MOST_STEPS = 10_000
# Under so much noise two specifications of one task have a cosine of about 0: nobody finds it.
LEAST_MU = 1e-3


@dataclass(frozen=True)
class Decision:
    """What becomes of a submission, and why.

    Attributes:
        status: ``"listed"`` or ``"quarantined"``.
        reason: a sentence.
        headline: what the guarantee says in one place, JSON-able; None where there is none.
    """

    status: str
    reason: str
    headline: Mapping[str, Any] | None


def decide(
    specification: Specification, release: bytes | None, policy: AdmissionPolicy
) -> Decision:
    """Return what becomes of a submission by what its release certifies.

    Args:
        specification: whose guarantees are claimed.
        release: the JSON of the release that made it; required where a guarantee is claimed.
        policy: of the dock.

    Raises:
        RefusedError: a guarantee has no release, or its release is malformed, of another
            specification, repeatable by a seed or not what its noise gives, whatever the policy;
            or the policy refuses what has none, or one that is too weak (422).
    """
    held = specification.guarantees
    if len(held) > MOST_GUARANTEES:
        raise RefusedError(
            422,
            f"specification: expected at most {MOST_GUARANTEES} guarantees, got {len(held)}",
        )
    if any(line.lstrip().upper().startswith("VOID") for one in held for line in one.assumptions):
        raise RefusedError(422, "specification: the guarantee says itself that it is void")
    if release is None and held:
        raise RefusedError(
            422,
            "release: expected the JSON of the release beside a specification that claims a "
            "guarantee, got none",
        )
    made = None if release is None else _release_of(specification, release)
    told = None if made is None or not held else headline(made)
    if told is not None and math.isinf(told["epsilon"]):
        raise RefusedError(422, f"release: expected noise that bounds ε at δ = {DELTA:g}, got less")
    weak = weakness(told, policy)
    if weak is None:
        return Decision("listed", CLAIMED, told)
    if policy.without == "refuse":
        raise RefusedError(422, f"specification: {weak}, and this dock refuses that")
    return Decision(STATUS[policy.without], weak, told)


def weakness(told: Mapping[str, Any] | None, policy: AdmissionPolicy) -> str | None:
    """Say why what is certified does not meet a policy; None where it does."""
    if told is None:
        return NONE
    epsilon, advantage = told["epsilon"], told["advantage"]
    if epsilon > policy.max_epsilon:
        return (
            f"ε = {epsilon:.4g} at δ = {DELTA:g} is claimed, at most {policy.max_epsilon:g} is "
            "asked"
        )
    if advantage >= 1.0:
        return "the guarantee that is claimed says nothing about an attacker's success"
    if advantage > policy.max_advantage:
        return (
            f"an advantage of {advantage:.4g} over guessing is claimed, at most "
            f"{policy.max_advantage:g} is asked"
        )
    return None


def headline(release: Release[CertifiedSpecification]) -> dict[str, Any]:
    """Return what a release certifies as an answer tells it, from the law of its noise.

    Args:
        release: read back, so that its guarantees are those of its noise.

    Returns:
        ε at δ = 1e-5, the advantage 2 P(right) − 1 of guessing which of two neighbouring inputs
        was used at even odds, the sentence of the first guarantee, and all of them.
    """
    mu, schedule = release.details.mu, release.details.schedule
    profile = schedule.profile(mu)
    first = release.guarantees[0]
    return {
        "type": type(first).__name__,
        "sentence": first.describe(),
        "epsilon": profile.epsilon(DELTA),
        "delta": DELTA,
        "advantage": max(2.0 * profile.success().success - 1.0, 0.0),
        "checked": f"{CLAIMED}; {_proved(release)}",
        "shift": schedule.distance(mu) if schedule.full else None,
        "together": None,
        "all": [held.to_dict() for held in release.guarantees],
    }


def _proved(release: Release[CertifiedSpecification]) -> str:
    """Return what a checker that shares no code finds of the claims.

    Raises:
        RefusedError: it proves one to be false, or cannot show it (422).
    """
    found = verify(release)
    wrong = [line for line in found.lines if line.startswith((FALSE, NOT_SHOWN))]
    if wrong:
        raise RefusedError(422, f"release: {found.sentence} ({wrong[0]})")
    return found.sentence


def together(told: Mapping[str, Any] | None, earlier: Sequence[Mapping[str, Any] | None]) -> Any:
    """Return a headline that says what all revisions of a learnware tell, if of the same records.

    Gaussian shifts add in squares (Dong, Roth and Su, 2022, Corollary 3.3). Nothing is bounded
    where one of them has no guarantee, or is of sampled steps.

    Args:
        told: headline of the newest.
        earlier: headlines of those before, which are kept and served too.
    """
    if told is None or not earlier:
        return told
    shifts = [None if held is None else held.get("shift") for held in (told, *earlier)]
    known = [shift for shift in shifts if shift is not None]
    epsilon = None
    if len(known) == len(shifts):
        # rounded up: every square and the root may be off by half a unit in the last place
        shift = math.hypot(*known) * (1.0 + len(known) * 2.0**-50)
        found = gaussian_shift(shift).epsilon(DELTA)
        epsilon = found if math.isfinite(found) else None
    return {**told, "together": {"revisions": len(shifts), "epsilon": epsilon, "delta": DELTA}}


def _release_of(specification: Specification, release: bytes) -> Release[CertifiedSpecification]:
    """Return the release of a specification, whose guarantees are those of its noise.

    Raises:
        RefusedError: as `decide`.
    """
    try:
        content = loads(release, name="release", source="the JSON")
        check_texts("release", content)
        # of another kind nothing is worked out, and a text would be the path of a file here
        if not isinstance(content, Mapping) or content.get("kind") != KIND:
            raise RefusedError(422, "release: expected that of a specification, got another")
        _check_cheap(content)
        found = read_checked(content).release
    except RefusedError:
        raise
    except ValueError as error:
        raise RefusedError(422, str(error)) from None
    except (TypeError, KeyError, AttributeError, IndexError, RecursionError, OverflowError):
        raise RefusedError(422, "release: expected the JSON of a release") from None
    # everybody reads it: a digest of the data could be held against a guess of them
    if found.provenance is not None or found.attacks or found.use or found.remarks:
        raise RefusedError(
            422,
            "release: expected what may be published of it alone, the JSON beside the "
            "specification, got where its data come from or what was measured on them",
        )
    if found.reproducible:
        raise RefusedError(422, "release: a seed can repeat its draw, which voids its guarantee")
    if found.details.specification.revision != specification.revision:
        raise RefusedError(
            422, "release: expected the release of this specification, it holds another"
        )
    mu = found.details.mu
    if mu < LEAST_MU:
        raise RefusedError(
            422,
            f"release: expected μ ≥ {LEAST_MU:g}, got {mu:g}: under so much noise a "
            "specification describes nothing",
        )
    return found


def _check_cheap(content: Mapping[str, Any]) -> None:
    """Refuse a release whose accounting would take long, before any of it is worked out."""
    details = content.get("details")
    held = details.get("schedule") if isinstance(details, Mapping) else None
    steps = held.get("steps") if isinstance(held, Mapping) else None
    if isinstance(steps, (int, float)) and steps > MOST_STEPS:
        raise RefusedError(422, f"release: expected at most {MOST_STEPS} steps")
