"""The proof of a release of a table: what one row adds, within which boxes, under which noise."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from tacit._ground.checks import Array
from tacit._ground.proof import Node, composed, decimal
from tacit.covariance import Covariance, Diagonal
from tacit.guarantees.adjacency import Adjacency
from tacit.releases.proof import ReleaseProof, claims_of
from tacit.releases.proofs import of_answer
from tacit.releases.release import Release
from tacit.statistics.bounded.contributions import Contributions, contributions, families
from tacit.statistics.bounded.release import TableDetails
from tacit.statistics.details import declared_columns
from tacit.statistics.queries.language import bind_query

# What a checker compares: patterns of which a row has one, pairs of them, and numbers together.
MOST_PATTERNS, MOST_PAIRED, MOST_TOGETHER = 4096, 128, 512
DECLARED = "the sums are those of the query, and a row adds to them no more than the bounds allow"


def proof(release: Release[TableDetails]) -> ReleaseProof | None:
    """Return the boxes of a row beside the noise; None where a file or a checker cannot hold them.

    Sums that share no condition are released side by side: one row moves all of them, so that the
    squares of their distances add up.
    """
    details = release.details
    if details.noise is None:
        return None
    columns = declared_columns(details.promise, details.columns)
    query: Any = bind_query(details.query, columns)
    added = contributions(query, details.columns, columns.bounds or {})
    adjacency = details.promise.adjacency
    found: list[Node | None] = []
    for part in details.noise:
        places = np.array(part.places, dtype=np.intp)
        if added.numeric[places].all() and isinstance(part.law, Diagonal):
            found += _boxes(added, places, part.law.diagonal())
        else:
            found.append(_counts(added, places, part.law, adjacency))
    mechanism = composed([(one, 1) for one in found])
    if mechanism is None:
        return None
    return ReleaseProof(
        mechanism=mechanism,
        claims=claims_of(of_answer(release, alone=details.session is None)),
        adjacency="replace" if adjacency is Adjacency.REPLACE else "add-remove",
        given=(DECLARED, *release.all_assumptions),
    )


def _boxes(added: Contributions, places: npt.NDArray[np.intp], variances: Array) -> list[Node]:
    """Return one node for each family of numbers: a row is in one of its cells at most."""
    held = dict(zip(places.tolist(), variances.tolist(), strict=True))
    nodes: list[Node] = []
    widths = added.widths.tolist()
    for family in families(added):
        order = [place for cell in family for place in cell if place in held]
        if not order:
            continue
        parts = [
            {
                "low": [decimal(-widths[one]) if one in cell else "0" for one in order],
                "high": [decimal(widths[one]) if one in cell else "0" for one in order],
            }
            for cell in map(set, family)
        ]
        nodes.append(_node([[held[one] for one in order]], parts))
    return nodes


def _counts(
    added: Contributions, places: npt.NDArray[np.intp], law: Covariance, adjacency: Adjacency
) -> Node | None:
    """Return the node of counts whose conditions depend on each other: every pattern of a row."""
    whole, patterns = next(part for part in added.parts if np.isin(places, part[0]).all())
    kinds = np.unique(patterns[:, np.isin(whole, places)], axis=0)
    most = MOST_PAIRED if adjacency is Adjacency.REPLACE else MOST_PATTERNS
    if len(kinds) > most or law.dim > MOST_TOGETHER:
        return None
    dense = law.to_dense()
    # symmetric to the last bit, as a checker wants it
    numbers = law.diagonal()[None] if isinstance(law, Diagonal) else (dense + dense.T) / 2
    listed = [[str(int(one)) for one in kind] for kind in kinds]
    return _node(numbers.tolist(), [{"listed": listed}])


def _node(covariance: Sequence[Sequence[float]], parts: Sequence[Any]) -> Node:
    rows = [[decimal(float(one)) for one in row] for row in covariance]
    return {"kind": "boxes", "covariance": rows, "parts": list(parts)}
