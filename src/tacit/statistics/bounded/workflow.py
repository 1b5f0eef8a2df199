"""Prepare a release under differential privacy of the table's rows."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

import numpy as np

from tacit._ground.checks import Array, RandomSource, generator, integer, is_reproducible
from tacit.guarantees import GaussianDP, SuccessBound
from tacit.releases.prepared import Expected
from tacit.statistics.bounded.contributions import Contributions, contributions
from tacit.statistics.bounded.plan import table_plan
from tacit.statistics.plan import FROM_SYSTEM, REPRODUCIBLE
from tacit.statistics.prepared_numbers import PreparedNumbers
from tacit.statistics.rows.words import NOISE, TOGETHER
from tacit.statistics.rows.workflow import PROJECTED, output_names
from tacit.statistics.strength import Strength, success_of
from tacit.statistics.sums.query import SumQuery

# As guarantees of other workflows name them, so that a ledger adds them up.
NEIGHBOURS = {"add-remove": "add or remove one record", "replace": "replace one record"}
TASKS = {
    "add-remove": "whether any one row is in the table",
    "replace": "which of two rows is in the table",
}
LAWS = {
    "add-remove": "every other row, and that a fair coin decided whether this one is in,",
    "replace": "every other row, and that a fair coin chose between two for this one,",
}
SECRET = "any one row of the table"
SOURCE = (
    "Dong, Roth and Su (2022), Theorem 2.7 (Gaussian mechanism); least noise for a box by "
    "Cauchy-Schwarz, for counts by dsi, Theorem 3.3"
)
METHOD = "least noise for the declared bounds"


def prepare_table(
    query: SumQuery,
    rows: Array,
    *,
    names: Sequence[str] | None,
    columns: Sequence[str],
    strength: Strength,
    bounds: Mapping[int, tuple[float, float]],
    adjacency: str,
    cost: Any,
    rng: RandomSource,
    attack: bool,
    attack_trials: int,
) -> PreparedNumbers:
    """Certify a query that adds up over a table whose rows are clamped to declared bounds."""
    mu = strength.mu_for(0.5)
    added = contributions(query, columns, bounds)
    plan = table_plan(added, rows, mu, adjacency, cost)
    source = generator(rng)
    membership, private = held(mu, adjacency, reproducible=is_reproducible(rng))
    labels = output_names(names, query.names)
    return PreparedNumbers(
        guarantees=(membership, private),
        spends=(private,),
        expected=tuple(
            Expected(name=name, error=float(error))
            for name, error in zip(labels, plan.errors, strict=True)
        ),
        description=query.description,
        reproducible=is_reproducible(rng),
        plan=plan,
        protect="table",
        secret=SECRET,
        method=METHOD,
        notes=table_notes(added, columns, len(rows), adjacency),
        diagnostics={
            "table_rows": len(rows),
            "clamped_rows": added.clamped(rows),
            "sums": len(query.terms),
            "mu": mu,
            "noise_power": float(np.square(plan.errors).sum()),
        },
        limits=added.limits(),
        attack=plan.attacked(integer("attack_trials", attack_trials, minimum=4), source)
        if attack
        else None,
        seed=int(rng) if isinstance(rng, (int, np.integer)) else None,
        source=None if rng is None else source,
    )


def held(
    mu: float, adjacency: str, *, reproducible: bool, together: bool = False
) -> tuple[SuccessBound, GaussianDP]:
    """Return what noise that keeps every row within μ certifies."""
    rest: dict[str, Any] = {
        "evidence": "theorem",
        "assumptions": assumptions(adjacency, reproducible=reproducible, together=together),
        "source": SOURCE,
    }
    membership = SuccessBound(
        success=success_of(mu), prior=0.5, task=TASKS[adjacency], law=LAWS[adjacency], **rest
    )
    return membership, GaussianDP(mu=mu, adjacency=NEIGHBOURS[adjacency], **rest)


def table_notes(
    added: Contributions, columns: Sequence[str], rows: int, adjacency: str
) -> tuple[str, ...]:
    """Return what a reader should know of the numbers."""
    clamped = [columns[place] for place in np.flatnonzero(np.isfinite(added.lows)).tolist()]
    notes = [
        f"numbers outside the declared bounds are taken as the bounds: {', '.join(clamped)}"
        if clamped
        else "only conditions on the rows are counted: no number is added up, and none is clamped"
    ]
    if adjacency == "replace":
        notes.append(f"the number of rows, {rows:,}, is public")
    return (*notes, PROJECTED, "errors are computed from the released sums")


def check_declared(query: SumQuery, columns: Sequence[str], observed: Collection[str]) -> None:
    """Refuse a query that reads codes of categories that were found in the table.

    Raises:
        ValueError: it does.
    """
    read = {place for one in query.terms for place in (*one.factors, *one.columns)}
    undeclared = sorted(columns[place] for place in read if columns[place] in observed)
    if undeclared:
        raise ValueError(
            f"levels: expected the categories of {', '.join(undeclared)} to be declared when the "
            "table is read, as one row more may change the codes of all, got those found in it"
        )


def assumptions(adjacency: str, *, reproducible: bool, together: bool = False) -> tuple[str, ...]:
    """Return what must hold, and what is not hidden; ``together`` of all answers of a session."""
    lines = [
        "the bounds, categories, bins and thresholds were declared without looking at the table",
        "the attacker may know every other row, the query, the bounds and the law of the noise",
        "several rows of one person count as several: g of them are hidden with g times the μ of "
        "one",
    ]
    if adjacency == "replace":
        lines.append("the number of rows is taken as public, as a replaced row does not change it")
    else:
        lines.append("whether the row is in or not is equally likely beforehand")
    lines += [
        "what is common to all rows of such a kind is not hidden",
        "whether the table could be read is not hidden: a row of another length refuses it, as "
        "does a field that holds no value of its column, unless such rows were dropped",
        TOGETHER if together else "one release; further releases of the same table add up as μ²",
        NOISE,
        REPRODUCIBLE if reproducible else FROM_SYSTEM,
    ]
    return tuple(lines)
