"""Numbers released under a promise, worked out again from what their file holds."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from tacit._ground.checks import integer, non_negative
from tacit.conversions import success_from_information
from tacit.guarantees import GaussianDP, InformationBound, SuccessBound
from tacit.statistics import NumbersRelease
from tacit.statistics.bounded.workflow import NEIGHBOURS
from tacit.statistics.bounded.workflow import SECRET as TABLE_SECRET
from tacit.statistics.bounded.workflow import assumptions as table_assumptions
from tacit.statistics.rows.words import TOGETHER, assumed_of
from tacit.statistics.strength import naming_success, success_of

# What a sum in another order may lose, and what the noise of a design may.
ROUNDING, SPENT_SLACK = 1e-9, 1e-6
LIMITS = ("budget", "spend")
# Between a success that was computed on two machines.
AGREEMENT = 1e-6


def check_promise(release: NumbersRelease) -> None:
    """Refuse a release whose parts contradict each other.

    Raises:
        ValueError: a success below what μ gives, errors that are not those of the noise, an
            assumption that is missing, or a μ, number of groups or seed that disagrees.
    """
    if release.seed is not None and not release.reproducible:
        raise ValueError("a seed is stored, and 'reproducible' is false")
    private = [held for held in release.guarantees if isinstance(held, GaussianDP)]
    if len(private) > 1:
        raise ValueError("it states two μ")
    if "turn" in release.diagnostics:
        _check_answer(release, private)
        return
    if release.protect == "draw":
        raise ValueError("numbers under a promise about the draw are an answer of a session")
    if release.protect == "table":
        _check_table(release, private)
        return
    size = _check_rows(release, private)
    if not private:
        if release.membership.evidence != "statistical" or release.membership.confidence is None:
            raise ValueError("a success without a μ rests on simulation and has a confidence")
        return
    _check_successes(release, private[0].mu, size)


def _check_answer(release: NumbersRelease, private: list[GaussianDP]) -> None:
    """Hold an answer of a session against the budget that bounds all its answers."""
    seen = release.diagnostics
    budget, spend = (non_negative(f"diagnostics.{name}", seen.get(name)) for name in LIMITS)
    if spend > budget * (1.0 + ROUNDING):
        raise ValueError(f"it spent {spend:.6g} of a budget of {budget:.6g}")
    prior = release.membership.prior
    told = [held.nats for held in release.guarantees if isinstance(held, InformationBound)]
    spent = told if release.protect == "draw" else [held.mu for held in private]
    if len(spent) != 1 or spent[0] > spend * (1.0 + SPENT_SLACK):
        raise ValueError("what it says that it told is not what the session was charged")
    least = (
        float(success_from_information(budget, prior))
        if release.protect == "draw"
        else success_of(budget, 1.0 - prior)
    )
    _check_success(release.membership, least, prior)
    _check_assumptions(release, (TOGETHER,))


def _check_successes(release: NumbersRelease, mu: float, size: int) -> None:
    _check_mu(release, mu)
    successes = [held for held in release.guarantees if isinstance(held, SuccessBound)]
    blind = max(0.5, 1.0 - 1.0 / size)
    least = success_of(mu, 1.0 / size) if mu > 0.0 else blind
    _check_success(successes[0], least, blind)
    for named in successes[1:]:
        _check_success(named, naming_success(mu, size), 1.0 / size)


def _check_success(bound: SuccessBound, least: float, prior: float) -> None:
    # above it too: then it is μ that was made smaller
    if not math.isclose(bound.success, least, rel_tol=AGREEMENT):
        raise ValueError(f"its μ gives a success of {least:.6g}, not {bound.success:.6g}")
    if abs(bound.prior - prior) > ROUNDING:
        raise ValueError(f"blind success is {prior:.6g}, not {bound.prior:.6g}")


def _check_mu(release: NumbersRelease, mu: float) -> None:
    designed = non_negative("diagnostics.mu", release.diagnostics.get("mu"))
    if mu < designed * (1.0 - ROUNDING):
        raise ValueError(f"the noise was designed for μ = {designed!r}, the guarantee says {mu!r}")


def _check_rows(release: NumbersRelease, private: list[GaussianDP]) -> int:
    """Return the size of a group, with what the diagnostics say of the groups held against it."""
    pairing = release.diagnostics.get("pairing")
    found: dict[str, Any] = dict(pairing) if isinstance(pairing, dict) else {}
    size = integer("diagnostics.pairing.group_size", found.get("group_size"), minimum=2)
    groups = integer("diagnostics.pairing.groups", found.get("groups"), minimum=1)
    outside = integer("diagnostics.pairing.left_out", found.get("left_out"), minimum=0)
    rows = integer("diagnostics.pool_rows", release.diagnostics.get("pool_rows"), minimum=2)
    if size * groups + outside != rows:
        raise ValueError(f"{groups} groups of {size} and {outside} rows in none are not {rows}")
    power = non_negative("diagnostics.noise_power", release.diagnostics.get("noise_power"))
    if not math.isclose(float(np.square(release.errors).sum()), power, rel_tol=1e-6):
        raise ValueError("the errors of the numbers are not those of the noise")
    expected = assumed_of(size, groups, outside, reproducible=release.reproducible)
    if private:
        _check_assumptions(release, expected)
    else:
        # the secret, the attacker and further releases are told in other words there
        own = set(expected) - {expected[0], expected[1], expected[-3]}
        _check_assumptions(release, tuple(own))
    return size


def _check_table(release: NumbersRelease, private: list[GaussianDP]) -> None:
    if not private:
        raise ValueError("a promise about the table states a μ, and there is none")
    kinds = {words: name for name, words in NEIGHBOURS.items()}
    adjacency = kinds.get(private[0].adjacency)
    if adjacency is None or release.secret != TABLE_SECRET:
        raise ValueError("a promise about the table is about one of its rows")
    if release.sampling is not None:
        raise ValueError("a promise about the table keeps its sampling error to itself")
    _check_mu(release, private[0].mu)
    _check_success(release.membership, success_of(private[0].mu), 0.5)
    _check_assumptions(release, table_assumptions(adjacency, reproducible=release.reproducible))


def _check_assumptions(release: NumbersRelease, expected: tuple[str, ...]) -> None:
    for held in release.guarantees:
        missing = [line for line in expected if line not in held.assumptions]
        if missing:
            raise ValueError(f"{len(missing)} of the assumptions were removed")
