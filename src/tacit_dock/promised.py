"""What a guarantee is called, and what it says in one short line."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from tacit.guarantees import guarantee_from_dict
from tacit.guarantees.one_line import one_line

# Names of guarantees as a reader says them; a type that is not here is shown by its own name.
LAWS = {
    "GaussianDP": "Gaussian differential privacy",
    "ApproximateDP": "differential privacy",
    "RenyiDP": "Rényi differential privacy",
    "InformationBound": "bounded information",
    "MaximalLeakage": "maximal leakage",
    "SuccessBound": "bounded success of an attacker",
    "none": "no guarantee",
    "any": "any guarantee",
}


def claim(guarantee: Mapping[str, Any] | None) -> str:
    """Return a guarantee in one short line: that of the newest revision, and of all that are kept.

    Example:
        >>> claim({"type": "GaussianDP", "epsilon": 1.9321, "delta": 1e-5, "advantage": 0.1975})
        'ε ≤ 1.933 at δ = 1e-5'
        >>> claim(None)
        'no guarantee'
    """
    if guarantee is None:
        return "no guarantee"
    epsilon, advantage = guarantee.get("epsilon"), guarantee.get("advantage")
    if epsilon is not None:
        told = f"ε ≤ {rounded_up(epsilon)} at δ = {_plain(guarantee['delta'])}"
    elif advantage is not None:
        told = f"advantage over guessing ≤ {rounded_up(advantage)}"
    else:
        told = law(str(guarantee["type"]))
    kept = guarantee.get("together")
    if not kept:
        return told
    limit = "no bound" if kept["epsilon"] is None else f"ε ≤ {rounded_up(kept['epsilon'])}"
    return f"{told}; {kept['revisions']} revisions together: {limit}"


def title(guarantee: Mapping[str, Any]) -> str:
    """Return the first guarantee in one line as every outlet says it, or its short claim."""
    told = guarantee.get("all")
    if not told:
        return claim(guarantee)
    return one_line(guarantee_from_dict(told[0])).text


def law(kind: str) -> str:
    """Return the name of a type of guarantee."""
    return LAWS.get(kind, kind)


def _plain(value: float) -> str:
    return re.sub(r"e-0+", "e-", f"{value:g}")


def rounded_up(value: float) -> str:
    """Return a limit to four digits, never smaller than it is."""
    told = f"{value:.4g}"
    while float(told) < value:
        told = f"{float(told) * (1 + 6e-4):.4g}"
    return told
