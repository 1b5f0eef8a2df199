"""What attackers who know more, or ask less, reach against releases of one layer at equal KL."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

from tacit.hidden_states import Bench, Point, Sizes, SweepRequest, SweepRun
from tacit.hidden_states.audit.guessers import (
    Digit,
    Guesser,
    KnownPrefix,
    KnownToken,
    Name,
    TokenGuesser,
    Topic,
    clean_state,
    run_guessers,
)
from tacit.hidden_states.audit.points import GuessPoint
from tacit.measured import Interval
from tacit_lab.studies.hidden.measure import DENOISED
from tacit_lab.studies.hidden.rows import NoiseRow, ends, row

NOISE = ("isotropic", "mahalanobis-optimal")
REFERENCE = "codebook-decision"
# how near to the KL asked for, relative to it, and how often it is tried
CLOSE, REFINEMENTS = 0.04, 4
READINGS = ("raw", "wiener", DENOISED)


@dataclass(frozen=True)
class AttackerScale:
    """How large the experiment is.

    Attributes:
        bank: N.
        calibration: public prompts.
        sizes: of the sweep.
        grid: budgets K that bracket the KL of the reference.
        codewords: C of the codes; the largest is the reference for equal KL.
        books: other codes, at the largest C.
        prompts: attacked by who knows all earlier tokens.
        candidates: last tokens tried.
        topics: clusters.
    """

    bank: int
    calibration: int
    sizes: Sizes
    grid: tuple[float, ...]
    codewords: tuple[int, ...]
    books: tuple[str, ...]
    prompts: int
    candidates: int
    topics: int

    @property
    def guessers(self) -> tuple[Guesser, ...]:
        """Who attack."""
        return (
            KnownPrefix(self.prompts, self.candidates),
            KnownToken(0),
            KnownToken(-1),
            TokenGuesser(-1),
            TokenGuesser(-2),
            Topic(self.topics),
            Digit(),
            Name(),
        )


def measure_layer(
    layer: int,
    scale: AttackerScale,
    bench: Bench,
    *,
    out: Path,
    progress: Callable[[str], None],
) -> list[Point]:
    """Measure codes, then noise at the KL of the largest code, read raw and denoised."""

    def run(
        mechanisms: Sequence[str],
        budgets: Sequence[float],
        reading: str,
        guessers: Any,
        **more: Any,
    ) -> list[Point]:
        request = SweepRequest(
            mechanisms=tuple(mechanisms), kl_budgets=tuple(budgets), readings=(reading,),
            guessers=guessers, **more,
        )  # fmt: skip
        told = SweepRun(out=out, progress=lambda label, *_: progress(label))
        points = bench.sweep([layer], request, told)
        return [point for point in points if point.protocol == "A"]

    found = run((REFERENCE,), (), "raw", scale.guessers, codewords=scale.codewords)
    found += run(scale.books, (), "raw", scale.guessers, codewords=scale.codewords[-1:])
    target = next(p for p in found if p.codewords == scale.codewords[-1]).kl.value
    for name in NOISE:
        for reading in READINGS:
            grid = [row(point) for point in run((name,), scale.grid, reading, ())]
            budget = budget_at(grid, target)
            for _ in range(REFINEMENTS):
                if budget is None or any(abs(r.kl / target - 1.0) < CLOSE for r in grid):
                    break
                grid += [row(point) for point in run((name,), [budget], reading, ())]
                budget = budget_at(grid, target)
            # a posterior mean over few public states may cost more without any noise
            nearest = min(grid, key=lambda r: abs(math.log(r.kl / target))).level
            found += run((name,), [nearest], reading, scale.guessers)
    return found


def budget_at(grid: Sequence[NoiseRow], target: float) -> float | None:
    """Return the largest K, to three digits, at which a KL is expected: ln K is linear in ln KL."""
    ordered = sorted(grid, key=lambda r: r.level, reverse=True)
    for right, left in pairwise(ordered):
        if left.kl <= target <= right.kl and left.kl < right.kl:
            share = math.log(target / left.kl) / math.log(right.kl / left.kl)
            return float(f"{left.level ** (1 - share) * right.level**share:.3g}")
    return None


def clean_facts(bench: Bench, layer: int, scale: AttackerScale) -> dict[str, Any]:
    """Return what is reached against the clean state."""
    laboratory = bench.at(layer)
    guesses = run_guessers(laboratory, clean_state(laboratory), scale.guessers)
    return {"layer": layer, "guesses": [_plain(guess) for guess in guesses]}


def packed(points: Sequence[Point]) -> list[dict[str, Any]]:
    """Return a short row for each release."""
    return [
        {
            "layer": point.layer,
            "mechanism": point.mechanism,
            "codewords": point.codewords,
            "kl_budget": point.kl_budget,
            "reading": point.reading,
            "codes": point.codes,
            "occupied": point.rank if point.codewords is not None else None,
            "kl": _short(point.kl.value),
            "kl_median": None if point.kl_median is None else _short(point.kl_median.value),
            "kl_95": None if point.kl_95 is None else _short(point.kl_95.value),
            "agreement": _short(point.agreement.value),
            "top5": None if point.top5 is None else _short(point.top5.value),
            "bound": point.bound,
            "bank": [_short(value) for value in ends(point.best_attack.top1)],
            "guesses": [_packed(_plain(guess)) for guess in point.guesses],
        }
        for point in points
    ]


def _plain(guess: GuessPoint) -> dict[str, Any]:
    """Return a guess as the pages read it, a share as [value, low, high]."""
    held = {name: getattr(guess, name) for name in guess.__dataclass_fields__}
    return {k: list(ends(v)) if isinstance(v, Interval) else v for k, v in held.items()}


def _packed(guess: dict[str, Any]) -> dict[str, Any]:
    shares = ("success", "prior", "gain")
    return {k: [_short(x) for x in v] if k in shares else v for k, v in guess.items()}


def _short(value: float) -> float:
    return float(f"{value:.5g}")
