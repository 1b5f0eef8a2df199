"""Worst-case design against the published gradient and general conic solvers, in one run.

``make bench`` runs everything; ``make bench BENCH='--sizes 40,100'`` runs some of it. Ratios are
peer seconds over ours. A peer that did not reach the gap in its time is marked with ``>``: the
ratio is then a lower bound, at a larger gap than ours. "gradient" is the published algorithm from
λ = 1; "helped" is the same from our start and in our units.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path

import numpy as np
from rich.console import Console
from tests.design.families import FAMILIES, instance

from benchmarks import published_gradient, semidefinite
from tacit.design import Design, worst_case

TARGET = 1e-6
DIMENSIONS = {40: 100, 100: 1000, 400: 1000, 1000: 1000, 2000: 2000}
SCS_FAMILIES = {1000: ("random",)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sizes", default="40,100,400,1000,2000")
    parser.add_argument("--families", default=",".join(FAMILIES))
    parser.add_argument("--peer-seconds", type=float, default=30.0)
    parser.add_argument("--json", type=Path, help="also write the rows here")
    options = parser.parse_args()
    console = Console(width=160)
    rows: list[dict[str, object]] = []
    console.print(
        f"{'family':22}{'m × d':>13}{'ours':>11}{'gap':>9}{'rows−1':>9}   "
        f"{'gradient':>10}{'gap':>9}{'viol.':>9}   {'helped':>10}{'gap':>9}   "
        f"{'SCS':>10}{'gap':>9}   {'Clarabel':>10}{'gap':>9}"
    )
    for size in (int(text) for text in options.sizes.split(",") if text):
        for family in options.families.split(","):
            rows.append(compare(family, size, DIMENSIONS[size], options.peer_seconds))
            console.print(line(rows[-1]), highlight=False)
    for family in options.families.split(","):
        rows.append(compare(family, 2000, 50, options.peer_seconds))
        console.print(line(rows[-1]), highlight=False)
    rows.append(adjacency_program())
    console.print(line(rows[-1]), highlight=False)
    console.print("hidden-state U.4 took 792 s as published (another machine, d = 192, m = 40).")
    if options.json:
        options.json.write_text(json.dumps(rows, indent=1) + "\n", encoding="utf-8")


def compare(family: str, m: int, d: int, limit: float) -> dict[str, object]:
    """Time ours and every peer that can be asked at this size."""
    differences, budgets = instance(family, m, d)
    row = ours(f"{family}", differences, budgets, None)
    design_bound = float(row.pop("lower_bound"))  # type: ignore[arg-type]
    if m <= 1000 or d <= 50:
        for name, helped in (("gradient", False), ("helped", True)):
            run = published_gradient.solve(differences, budgets, TARGET, limit, helped=helped)
            row[name] = peer(run.seconds, run.gap, run.violation, row)
    scaled = differences / np.sqrt(budgets)[:, None]
    if m <= 400 or family in SCS_FAMILIES.get(m, ()):
        conic = semidefinite.solve(scaled @ scaled.T, design_bound, "SCS", limit)
        row["scs"] = peer(conic.seconds, conic.gap, conic.violation, row)
    if m <= 40:
        conic = semidefinite.solve(scaled @ scaled.T, design_bound, "CLARABEL", limit)
        row["clarabel"] = peer(conic.seconds, conic.gap, conic.violation, row)
    return row


def adjacency_program() -> dict[str, object]:
    """The program of hidden-state U.4: 40 differences, 192 dimensions, condition of F 1e12."""
    rng = np.random.default_rng(0)
    basis = np.linalg.qr(rng.standard_normal((192, 192)))[0]
    fisher = basis * np.logspace(0, -12, 192) @ basis.T
    fisher = (fisher + fisher.T) / 2 + 1e-13 * np.eye(192)
    row = ours("hidden-state U.4", rng.standard_normal((40, 192)), np.ones(40), fisher)
    row.pop("lower_bound")
    return row


def ours(
    name: str, differences: np.ndarray, budgets: np.ndarray, cost: np.ndarray | None
) -> dict[str, object]:
    """Best of three runs, Gram matrix and factor included."""
    seconds, design = np.inf, None
    for _ in range(3 if len(differences) < 2000 or differences.shape[1] <= 50 else 1):
        start = time.perf_counter()
        design = worst_case(differences, budgets, cost=cost, rtol=TARGET)
        seconds = min(seconds, time.perf_counter() - start)
    assert isinstance(design, Design)
    assert design.constraint_factor is not None
    return {
        "family": name,
        "m": differences.shape[0],
        "d": differences.shape[1],
        "seconds": seconds,
        "gap": design.gap,
        "excess": float(np.linalg.norm(design.constraint_factor, axis=1).max() - 1),
        "iterations": design.iterations,
        "lower_bound": design.cost * (1 - design.gap),
    }


def peer(seconds: float, gap: float, violation: float, row: dict[str, object]) -> dict[str, object]:
    """Return a peer's result with its ratio to ours."""
    mine = float(row["seconds"])  # type: ignore[arg-type]
    return {
        "seconds": seconds,
        "gap": gap,
        "violation": violation,
        "ratio": seconds / mine,
        "reached": bool(gap <= 2 * TARGET),
    }


def line(row: dict[str, object]) -> str:
    """Return one line of the table."""
    text = (
        f"{row['family']:22}{row['m']:>6} ×{row['d']:>5}{row['seconds'] * 1e3:>9.1f}ms"
        f"{row['gap']:>9.0e}{row['excess']:>9.0e}"
    )
    for name in ("gradient", "helped", "scs", "clarabel"):
        found = row.get(name)
        if not isinstance(found, dict):
            text += f"   {'–':>10}{'':>9}" + (f"{'':>9}" if name == "gradient" else "")
            continue
        ratio = f"{'' if found['reached'] else '>'}{found['ratio']:,.0f}×"
        text += f"   {ratio:>10}{found['gap']:>9.0e}"
        if name == "gradient":
            text += f"{found['violation']:>9.0e}"
    return text


if __name__ == "__main__":
    main()
