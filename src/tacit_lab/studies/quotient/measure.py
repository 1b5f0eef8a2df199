"""Releases of one layer as rows: what is certified, what Bayes' attacker reaches, what is left."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from tacit.attacks import retrieve
from tacit.hidden_states import (
    Ball,
    Bench,
    Mechanism,
    Point,
    PredictiveQuotient,
    Quotient,
    Recipe,
    Sizes,
    SweepRequest,
    SweepRun,
    estimate_rate,
    read_mechanism,
)
from tacit.hidden_states.audit.laboratory import Laboratory
from tacit_lab.studies.quotient import clipped


def rows_of(
    layer: int,
    scale: dict[str, Any],
    bench: Bench,
    out: Path,
    progress: Callable[[str, int, int], None],
) -> list[dict[str, Any]]:
    """Measure every mechanism of a scale; what stands in the file is not measured again."""
    groups: list[tuple[Sequence[Mechanism | str], dict[str, Any]]] = [
        (scale["codebooks"], {"codewords": scale["codewords"], "kl_budgets": ()}),
        (scale["noise"], {"kl_budgets": scale["kl_budgets"]}),
        (scale["quotients"], {"kl_budgets": ()}),
    ]
    points: list[Point] = []
    for mechanisms, options in groups:
        request = SweepRequest(
            mechanisms=tuple(mechanisms), attackers=("mahalanobis",),
            readings=("raw", "posterior-mean", "posterior-behaviour"), **options,
        )  # fmt: skip
        points += bench.sweep([layer], request, SweepRun(out=out, progress=progress))
    return [row(point) for point in points]


def row(point: Point) -> dict[str, Any]:
    """Return what the page needs of a point."""
    best = point.best_attack
    return {
        "mechanism": point.mechanism,
        "family": point.family,
        "setting": point.setting,
        "reading": point.reading,
        "protocol": point.protocol,
        **{name: _ends(getattr(point, name)) for name in ("kl", "agreement")},
        "attack": _ends(best.top1),
        "bound": point.bound,
        "information": point.information,
        "factor_nats": _factor(point),
    }


def _factor(point: Point) -> float | None:
    """Return the nats of maximal leakage that are certified."""
    if point.family == "codebook" and point.cells:
        return math.log(point.cells)
    held = read_mechanism(point.mechanism)
    if isinstance(held, Quotient):
        return held.ball.leakage().nats
    if isinstance(held, clipped.ClippedState):
        return Ball.at(256, nats=held.nats).leakage().nats
    return None


def _ends(measured: Any) -> list[float]:
    return [round(end, 4) for end in (measured.value, measured.low, measured.high)]


def estimated(laboratory: Laboratory, sizes: Sizes, nats: float, seed: int) -> dict[str, Any]:
    """Return what estimates say of one quotient, and what they do not see.

    The rate of App. X is worked out for z drawn with deviation σ; the same means released with σ/5
    have the same rate for whoever forgets which deviation it was of.
    """
    ball = Ball.at(16, nats=nats)
    quotient = PredictiveQuotient.fit(
        laboratory.calibration,
        laboratory.calibration_behaviours,
        ball,
        Recipe(epochs=sizes_epochs(sizes)),
        rng=seed,
        progress=False,
    )
    means = quotient.encode(laboratory.bank)
    source = np.random.default_rng(seed)
    # in units in which N(0, I) has the variance of z
    unit = math.sqrt(ball.noise_std**2 + float(means.var(axis=0).mean()))

    def attack(noise: float) -> list[float]:
        truth = np.arange(laboratory.sizes.queries)
        seen = means[truth] + noise * source.standard_normal((len(truth), ball.dimension))
        found = retrieve(means, seen, truth)
        return [round(found.top1, 4), *(round(end, 4) for end in found.top1_interval)]

    return {
        "certified": ball.information().nats,
        "factor_nats": ball.leakage().nats,
        "log_det": quotient.estimate(laboratory.bank).nats,
        "rate": estimate_rate((means - means.mean(axis=0)) / unit, ball.noise_std / unit).nats,
        "attack": attack(ball.noise_std),
        "attack_less_noise": attack(ball.noise_std / 5),
    }


def sizes_epochs(sizes: Sizes) -> int:
    """Return passes: few for a smoke test."""
    return 2 if sizes.prompts < 200 else 30
