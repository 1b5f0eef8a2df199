"""What one layer is measured at: a grid of budgets, then the budgets that cost the same KL."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from tacit.hidden_states import Bench, Sizes, SweepRequest, SweepRun
from tacit.hidden_states.audit.laboratory import Laboratory
from tacit_lab.studies.hidden.equal import budgets_for
from tacit_lab.studies.hidden.rows import NoiseRow, row

DESIGNS = ("isotropic", "inverse-fisher", "inverse-fisher-diagonal", "mahalanobis-optimal")
SCALED = ("isotropic", "inverse-fisher-diagonal", "mahalanobis-optimal")
DENOISED = "posterior-mean"
# order and δ of the published conversion, App. U.1
ORDERS = (2, 4, 8, 16, 32, 64, 128)
DELTA = 1e-6


@dataclass(frozen=True)
class LayerScale:
    """How large the experiment is."""

    bank: int
    calibration: int
    sizes: Sizes
    budgets: tuple[float, ...]
    coarse: tuple[float, ...]
    targets: tuple[float, ...]
    exponents: tuple[float, ...]
    epsilons: tuple[float, ...]
    codewords: tuple[int, ...]
    books: tuple[str, ...]


def measure_layer(
    layer: int,
    scale: LayerScale,
    bench: Bench,
    *,
    out: Path,
    progress: Callable[[str], None],
) -> list[NoiseRow]:
    """Measure every release of a layer: the grid, equal KL, equal ε, and codebooks."""
    found: list[NoiseRow] = []

    def run(mechanisms: tuple[str, ...], budgets: Any, readings: tuple[str, ...], **more: Any):  # type: ignore[no-untyped-def]
        request = SweepRequest(mechanisms=mechanisms, kl_budgets=budgets, readings=readings, **more)
        told = SweepRun(out=out, progress=lambda label, *_: progress(label))
        points = bench.sweep([layer], request, told)
        found.extend(row(point) for point in points)

    rank = min(128, bench.model.width // 2)
    family = tuple(f"power({exponent:g})" for exponent in scale.exponents)
    run(DESIGNS, scale.budgets, ("raw", DENOISED))
    # no public state agrees with a release in a direction without noise
    run((f"generalized-eigen({rank})",), scale.coarse, ("raw",))
    run(family, scale.coarse, ("raw",))
    for name in (*DESIGNS, *family):
        grid = [r for r in found if r.mechanism == name and r.reading == "raw"]
        taken = {r.level for r in grid}
        levels = [level for level in budgets_for(grid, scale.targets) if level not in taken]
        if levels:
            run((name,), levels, ("raw",))
    if scale.epsilons:
        run(SCALED, (), ("raw",), epsilons=[order_two(epsilon) for epsilon in scale.epsilons])
    run(scale.books, (), ("raw",), codewords=scale.codewords)
    return found


def order_two(epsilon: float) -> float:
    """Return the Rényi ε of order 2 at which noise converts to (ε, δ) by the published rule.

    Gaussian noise has ε_α = α s/2, so ``ε = min over α of α s/2 + ln(1/δ)/(α − 1)``, and s itself
    is the ε of order 2.
    """
    return max(2.0 * (epsilon - math.log(1.0 / DELTA) / (order - 1)) / order for order in ORDERS)


def geometry_facts(laboratory: Laboratory, exponents: tuple[float, ...]) -> dict[str, Any]:
    """Return what the geometry of a layer predicts: gains at equal K = ½ tr(FΣ)."""
    found, designs = laboratory.geometry, laboratory.designs
    family = [f"power({exponent:g})" for exponent in exponents]
    signals: dict[str, float] = {}
    for name in (*DESIGNS, *family):
        dense = designs.at(name, 1.0).covariance.to_dense()
        # mean Mahalanobis signal of a difference of prompts, tr(S Σ⁻¹)
        signals[name] = float(np.trace(np.linalg.solve(dense, found.spread)))
    return {
        "layer": found.layer,
        "width": found.width,
        "fisher_trace": float(np.trace(found.dense_fisher)),
        "rank": found.rank,
        "energy": found.energy,
        "crossed_energy": found.crossed_energy,
        "euclidean_gain": found.euclidean_gain,
        "mahalanobis_gain": found.mahalanobis_gain,
        "projector_bound": found.projector_bound,
        "least_signal": found.least_signal,
        "predicted_gain": {name: signals["isotropic"] / value for name, value in signals.items()},
    }


def kept_facts(path: Path, key: str, compute: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    """Return facts kept in a file under a key, computed and added where they are not there."""
    known = {}
    if path.exists():
        lines = path.read_text(encoding="utf-8").splitlines()
        known = {entry["key"]: entry["facts"] for entry in map(json.loads, lines)}
    if key not in known:
        known[key] = compute()
        with path.open("a", encoding="utf-8") as stream:
            stream.write(json.dumps({"key": key, "facts": known[key]}) + "\n")
    return dict(known[key])
