"""The proof of a release: what is claimed, and by which mechanism, for a checker of its own."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from importlib import import_module
from typing import Any, Literal

from tacit._ground.proof import Node, claim_up, decimal
from tacit.guarantees import (
    ApproximateDP,
    GaussianDP,
    Guarantee,
    Indistinguishability,
    InformationBound,
    MaximalLeakage,
    RenyiDP,
    SuccessBound,
)
from tacit.guarantees.adjacency import Adjacency
from tacit.releases.kinds import kind_named, known_kinds

FORMAT, VERSION = "tacit-proof", 1
# The field of a stored file that holds one.
PROOF = "proof"
# Of a Rényi curve so many orders are claimed, and of all a checker reads so much.
MOST_ORDERS, MOST_CLAIMS, MOST_SENTENCE = 8, 256, 2000
# A claim about naming one of several.
NAMING = "naming"


@dataclass(frozen=True, kw_only=True)
class ReleaseProof:
    """What follows from what.

    Attributes:
        mechanism: a tree of nodes (docs/reference/format.md).
        claims: what is claimed of it, as ``claims_of`` writes them.
        adjacency: which pairs of inputs are spoken of.
        given: what must hold, a sentence each.
    """

    mechanism: Node
    claims: tuple[Mapping[str, Any], ...]
    adjacency: Literal["add-remove", "replace", "inputs"] = "inputs"
    given: tuple[str, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """Return the node as a file has it."""
        return {
            "format": FORMAT,
            "version": VERSION,
            "adjacency": self.adjacency,
            "mechanism": self.mechanism,
            "claims": list(self.claims[:MOST_CLAIMS]),
            "given": [line[:MOST_SENTENCE] for line in self.given],
        }


def proof_of(release: Any) -> ReleaseProof | None:
    """Return what a checker would work the guarantees of a release out from.

    None where its kind has no such mechanism, or where nothing is guaranteed.
    """
    place = kind_named(release.kind).proof if release.kind in known_kinds() else None
    if place is None or release.reproducible or not release.guarantees:
        return None
    module, _, name = place.partition(":")
    found: ReleaseProof | None = getattr(import_module(module), name)(release)
    return found if found is not None and found.claims else None


def check_proof(stated: Any, release: Any) -> None:
    """Refuse a stored proof other than that of the release it stands in.

    Raises:
        ValueError: it claims something else, of another mechanism, or takes less as given.
    """
    found = proof_of(release)
    expected: Any = {} if found is None else found.to_dict()
    given = stated if isinstance(stated, Mapping) else {}
    if given != expected:
        names = [name for name in expected if given.get(name) != expected[name]]
        raise ValueError(f"{(names or [PROOF])[0]!r} of its proof is not what its details give")


def claims_of(guarantees: Iterable[Guarantee]) -> tuple[dict[str, Any], ...]:
    """Return guarantees as claims, every bound rounded up to four digits."""
    return tuple(claim for held in guarantees for claim in _claims(held))


def relation(sentence: str) -> Literal["add-remove", "replace", "inputs"]:
    """Return the adjacency of a proof from that of a guarantee in words."""
    found = Adjacency.of(sentence)
    if found is None:
        # the records of a person, in the words of an account
        return "add-remove" if sentence.endswith("added or removed") else "inputs"
    return "replace" if found is Adjacency.REPLACE else "add-remove"


def _claims(held: Guarantee) -> list[dict[str, Any]]:
    """Return what a guarantee claims: nothing where its bound is infinite."""
    if held.confidence is not None:
        said = {"statement": held.describe()[:MOST_SENTENCE]}
        return [{"kind": "statistical", **said, "confidence": decimal(held.confidence)}]
    if isinstance(held, SuccessBound):
        numbers = {"prior": decimal(held.prior), "success": claim_up(held.success)}
        return [{"kind": "success", **numbers}]
    if isinstance(held, GaussianDP):
        return [] if math.isinf(held.mu) else [{"kind": "gaussian-dp", "mu": claim_up(held.mu)}]
    if isinstance(held, ApproximateDP):
        return _approximate(held.epsilon, held.delta)
    if isinstance(held, RenyiDP):
        pairs = zip(held.orders, held.epsilons, strict=True)
        known = [(order, nats) for order, nats in pairs if math.isfinite(nats)][:MOST_ORDERS]
        return [{"kind": "renyi", "order": decimal(a), "epsilon": claim_up(e)} for a, e in known]
    if isinstance(held, MaximalLeakage):
        finite = math.isfinite(held.factor)
        return [{"kind": "factor", "factor": claim_up(held.factor)}] if finite else []
    if isinstance(held, InformationBound):
        finite = math.isfinite(held.nats)
        return [{"kind": "information", "nats": claim_up(held.nats)}] if finite else []
    if isinstance(held, Indistinguishability) and held.divergence[0] == "hockey-stick":
        # the loosest of the references: it bounds the others
        return [_hockey_stick(float(held.divergence[1]), max(held.bounds))]
    return []


def _approximate(epsilon: float, delta: float) -> list[dict[str, Any]]:
    if math.isinf(epsilon):
        return []
    if delta == 0.0:
        return [{"kind": "pure-dp", "epsilon": claim_up(epsilon)}]
    numbers = {"epsilon": claim_up(epsilon), "delta": decimal(delta)}
    return [{"kind": "approximate-dp", **numbers}]


def _hockey_stick(epsilon: float, bound: float) -> dict[str, Any]:
    return {"kind": "approximate-dp", "epsilon": decimal(epsilon), "delta": claim_up(bound)}
