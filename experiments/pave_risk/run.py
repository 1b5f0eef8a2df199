"""The advantage that a compact specification gives away: published chain, exact bound, attack."""

from __future__ import annotations

import argparse
import json
import math
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from scipy import stats

from tacit.accounting import published, sketch

ROOT = Path(__file__).parents[2]
SHAPES = ((4, 4), (8, 8), (16, 64), (64, 256))
COLOURS = {(4, 4): "#0072B2", (8, 8): "#009E73", (16, 64): "#D55E00", (64, 256): "#CC79A7"}
GAMMAS = np.geomspace(1e-4, 0.3, 15)
DELTAS = np.concatenate([np.geomspace(1e-12, 0.1, 45), np.linspace(0.1, 1, 400)[1:-1]])
ATTACKED = (0.003, 0.03, 0.2)
DRAWS = 20_000
GREY = "#6E6E6E"
SLOPE = 20.0  # of the bounds on the page, in degrees


def published_risk(rank: int, dim: int, gamma: float) -> float:
    """The smallest e^ε − 1 + δ over δ, ε from Theorem 3.5."""
    return min(
        published.pave_risk(
            published.pave_theorem_3_5(rank=rank, dim=dim, gamma=gamma, delta=d).epsilon, d
        )
        for d in DELTAS.tolist()
    )


def attack(rank: int, dim: int, gamma: float, rng: np.random.Generator) -> tuple[float, float]:
    """Advantage of the best test on drawn sketches, every eigenvalue at 1 − γ; 95% half-width."""
    ratio = 1 - gamma
    # the likelihood ratio is above 1 where the energy is below this
    cut = rank * dim * math.log(ratio) / (1 - 1 / ratio)
    rates = []
    for scale in (ratio, 1.0):
        energy = np.zeros(DRAWS)
        for start in range(0, DRAWS, 1000):
            # H Aᵀ in the coordinates where the neighbour's covariance is I, A_ij ~ N(0, 1/r)
            drawn = rng.normal(size=(1000, dim, rank)) * math.sqrt(scale / rank)
            energy[start : start + 1000] = rank * np.einsum("nij,nij->n", drawn, drawn)
        rates.append(float((energy < cut).mean()))
    spread = sum(rate * (1 - rate) for rate in rates) / DRAWS
    return rates[0] - rates[1], float(stats.norm.isf(0.025)) * math.sqrt(spread)


def measure(seed: int) -> dict[str, Any]:
    """Every number of the page."""
    rng = np.random.default_rng(seed)
    rows = []
    for rank, dim in SHAPES:
        for gamma in GAMMAS.tolist():
            exact = sketch(rank=rank, dim=dim, gamma=gamma).advantage()
            claim = published_risk(rank, dim, gamma)
            rows.append(
                {"rank": rank, "dim": dim, "gamma": gamma, "advantage": exact, "published": claim}
            )
    attacks = []
    for rank, dim in SHAPES[:3]:
        for gamma in ATTACKED:
            value, half = attack(rank, dim, gamma, rng)
            attacks.append(
                {
                    "rank": rank,
                    "dim": dim,
                    "gamma": gamma,
                    "advantage": value,
                    "half_width": half,
                    "bound": sketch(rank=rank, dim=dim, gamma=gamma).advantage(),
                }
            )
    return {"seed": seed, "draws": DRAWS, "bounds": rows, "attacks": attacks}


def draw(results: dict[str, Any]) -> Figure:
    """Solid: the exact bound. Points: the attack. Dashed grey: the published chain."""
    figure = Figure(figsize=(7.2, 4.4), layout="constrained")
    axes = figure.add_subplot()
    axes.axhspan(1.0, 10.0, color="#F2F2F2")
    axes.annotate("an advantage above 1 says nothing", (1.1e-4, 5.6), color=GREY, fontsize=9)
    for rank, dim in SHAPES:
        rows = [r for r in results["bounds"] if (r["rank"], r["dim"]) == (rank, dim)]
        gammas = [r["gamma"] for r in rows]
        colour = COLOURS[rank, dim]
        bound = [r["advantage"] for r in rows]
        axes.loglog(gammas, bound, color=colour, linewidth=1.8)
        claimed = [r["published"] for r in rows]
        axes.loglog(gammas, claimed, color=GREY, linestyle="--", linewidth=1.0)
        axes.annotate(
            f"r·k = {rank * dim:,}",
            (gammas[2], bound[2]),
            xytext=(0, 4),
            textcoords="offset points",
            rotation=SLOPE,
            rotation_mode="anchor",
            color=colour,
        )
        points = [a for a in results["attacks"] if (a["rank"], a["dim"]) == (rank, dim)]
        shown = [a for a in points if a["advantage"] > 2 * a["half_width"]]
        axes.errorbar(
            [a["gamma"] for a in shown],
            [a["advantage"] for a in shown],
            yerr=[a["half_width"] for a in shown],
            fmt="o",
            color=colour,
            markersize=4,
            capsize=2,
        )
    axes.annotate("published chain, at its best δ", (1.1e-4, 1.1), color=GREY, fontsize=9)
    axes.set_xlim(GAMMAS[0], GAMMAS[-1])
    axes.set_ylim(5e-5, 10.0)
    axes.set_xlabel("covariance stability γ (log scale)")
    axes.set_ylabel("advantage (log scale)")
    axes.set_title("What a compact specification gives away", loc="left")
    axes.spines[["top", "right"]].set_visible(False)
    return figure


def table(results: dict[str, Any]) -> str:
    """Ours beside theirs beside the attack, as Markdown."""
    lines = [
        "| r × k | γ | published, δ = 1e-5 | published, best δ | exact advantage | attack, ± 95% |",
        "|---|---|---|---|---|---|",
    ]
    for a in results["attacks"]:
        shape = {name: a[name] for name in ("rank", "dim", "gamma")}
        usual = published.pave_theorem_3_5(**shape, delta=1e-5).epsilon
        lines.append(
            f"| {a['rank']} × {a['dim']} | {a['gamma']:g} | "
            f"{published.pave_risk(usual, 1e-5):,.0f} | "
            f"{published_risk(**shape):.4g} | {a['bound']:.4f} | "
            f"{a['advantage']:.4f} ± {a['half_width']:.4f} |"
        )
    return "\n".join(lines)


def main() -> None:
    """Measure, write the numbers and the figure, print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, default=0)
    seed = parser.parse_args().seed
    results = measure(seed)
    target = ROOT / "experiments" / "results" / "pave_risk.json"
    target.write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")
    import matplotlib as mpl

    with mpl.rc_context({"svg.hashsalt": "pave-risk", "font.size": 10}):
        figure = draw(results)
        picture = ROOT / "docs" / "images" / "pave-risk.svg"
        figure.savefig(picture, metadata={"Date": None})
    print(table(results))


if __name__ == "__main__":
    main()
