"""Proofs that several kinds of release have alike."""

from __future__ import annotations

from typing import Any

from tacit._ground.proof import Node, node
from tacit.guarantees import GaussianDP, InformationBound, SuccessBound
from tacit.guarantees.base import Guarantee
from tacit.releases.proof import ReleaseProof, claims_of, relation
from tacit.releases.recompute import only
from tacit.releases.release import Release


def told_information(release: Release[Any]) -> ReleaseProof | None:
    """Return the proof of bounds that follow from nats: these are given without the data."""
    told = only(release, InformationBound)
    if told is None:
        return None
    mechanism = node("log-det", nats=told.nats)
    return ReleaseProof(
        mechanism=mechanism, claims=claims_of(release.guarantees), given=release.all_assumptions
    )


def told_distance(release: Release[Any], distance: float, kind: str) -> ReleaseProof:
    """Return the proof of bounds that follow from a distance: it is given without the data."""
    return ReleaseProof(
        mechanism=node(kind, distance=distance),
        claims=claims_of(release.guarantees),
        given=release.all_assumptions,
    )


def of_mechanism(
    release: Release[Any], mechanism: Node | None, sentence: str
) -> ReleaseProof | None:
    """Return the proof of all that a release guarantees of a mechanism; None without one."""
    if mechanism is None:
        return None
    return ReleaseProof(
        mechanism=mechanism,
        claims=claims_of(release.guarantees),
        adjacency=relation(sentence),
        given=release.all_assumptions,
    )


def of_answer(release: Release[Any], *, alone: bool) -> tuple[Guarantee, ...]:
    """Return what a release of numbers claims: an answer of a session no success of all of them."""
    if alone:
        return release.guarantees
    return tuple(held for held in release.guarantees if not isinstance(held, SuccessBound))


def distance_of(release: Release[Any]) -> float | None:
    """Return the one μ that a release states; None where it states none."""
    held = only(release, GaussianDP)
    return None if held is None else float(held.mu)
