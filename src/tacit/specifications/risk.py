"""The two risks of a specification beside a model, as games on simulated views."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tacit._ground.checks import RandomSource, generator, in_interval, integer
from tacit._ground.reprs import short_repr, shown
from tacit.attacks.intervals import mean_interval, proportion_interval
from tacit.measured import Interval
from tacit.releases import Attack

Floats = NDArray[np.float64]
Drawing = Callable[[Any, np.random.Generator], ArrayLike]
# How far an attacker's covariance is drawn to its diagonal: few draws of many numbers need more.
SHRINKAGES = (0.02, 0.3, 1.0)
LEAST_DRAWS = 40


@short_repr
@dataclass(frozen=True, kw_only=True)
class RiskGame:
    """What attackers of each view reached, of K candidate data sets equally likely.

    Attributes:
        specification: with the specification alone.
        model: with the model alone; None where none was given.
        both: with both; None where no model was given.
        disclosure: success with the specification less 1/K (Eq. 8).
        amplification: success with both less that with the model alone (Eq. 9), on the same draws.
        candidates: K.
    """

    specification: Attack
    model: Attack | None
    both: Attack | None
    disclosure: Interval
    amplification: Interval | None
    candidates: int

    @property
    def attacks(self) -> tuple[Attack, ...]:
        """Those that were run."""
        every = (self.specification, self.model, self.both)
        return tuple(attack for attack in every if attack is not None)


def play_risk(
    candidates: Sequence[Any],
    release: Drawing,
    model: Drawing | None = None,
    *,
    draws: int = 2000,
    confidence: float = 0.95,
    task: str = "which of the data sets was described",
    rng: RandomSource = None,
) -> RiskGame:
    """Play the disclosure and the amplification game of a specification.

    One of K data sets, equally likely, is described and trained on; an attacker sees the
    specification, the model, or both, and names the data set. With two that differ in a record the
    game is membership; with K that differ in one attribute of a record it is attribute inference by
    an attacker who knows every other record. Gaussian discriminants of several shrinkages are
    fitted on the first half of the draws and chosen there, and the second half is what is measured:
    a success is what these attackers reached, and never a bound.

    Args:
        candidates: K >= 2 data sets.
        release: from a data set and a generator to the specification's numbers.
        model: from a data set and a generator to what is public of the model: its numbers, or its
            outputs on inputs of the attacker's choice. Its draws are independent of the release's.
        draws: of each data set, at least 40.
        confidence: of every interval, each alone.
        task: what is guessed, for the sentences.
        rng: of the simulation.

    Returns:
        The ``RiskGame``.

    Raises:
        ValueError: fewer than two candidates or 40 draws, something that is not callable, or views
            that are not finite numbers of one shape.

    Example:
        >>> def noisy(data, rng):
        ...     return np.mean(data, axis=0) + rng.normal(size=1)
        >>> pair = [np.zeros((4, 1)), np.array([[8.0], [0.0], [0.0], [0.0]])]
        >>> game = play_risk(pair, noisy, draws=2000, rng=0)
        >>> abs(game.specification.success.value - 0.841) < 0.05
        True

    Source: pave, Sec. 2.2, Eq. 7 to 9.
    """
    if not isinstance(candidates, Sequence) or len(candidates) < 2:
        raise ValueError(f"candidates: expected at least two data sets, got {shown(candidates)}")
    for name, drawing in (("release", release), ("model", model)):
        if not callable(drawing) and not (name == "model" and drawing is None):
            raise ValueError(f"{name}: expected a function of a data set and a generator")
    count = integer("draws", draws, minimum=LEAST_DRAWS)
    level = in_interval("confidence", confidence, 0.0, 1.0, open_low=True, open_high=True)
    source = generator(rng)
    # what an attacker sees, drawn afresh for every data set
    views = {"specification": _views("release", candidates, release, count, source)}
    if model is not None:
        views["model"] = _views("model", candidates, model, count, source)
        # the same draws side by side, so that the gain is of the same games
        views["both"] = np.concatenate([views["specification"], views["model"]], axis=2)
    # whether each draw of the second half was named right
    hits = {name: _hits(held) for name, held in views.items()}
    prior = 1.0 / len(candidates)
    attacks = {
        name: Attack(
            name=f"Gaussian discriminant of {LABELS[name]}",
            task=task,
            success=_share(held, level),
            prior=prior,
            trials=held.size,
        )
        for name, held in hits.items()
    }
    reached = attacks["specification"].success
    return RiskGame(
        specification=attacks["specification"],
        model=attacks.get("model"),
        both=attacks.get("both"),
        disclosure=Interval(
            reached.value - prior, reached.low - prior, reached.high - prior, level
        ),
        amplification=None if model is None else _gain(hits["both"], hits["model"], level),
        candidates=len(candidates),
    )


LABELS = {
    "specification": "the specification",
    "model": "the model",
    "both": "the specification and the model",
}


def risk_bound(advantage: float, candidates: int = 2) -> float:
    """Return the most that a specification adds to any attacker's success: ``(1 − 1/K) TV``.

    Every two of the K candidates are told apart with advantage TV at most. Naming one of K, equally
    likely, then succeeds with ``(1/K) Σ_k P_k(k) ≤ (1/K)(1 + (K − 1) TV)``. Beside a model that was
    drawn independently of the specification's noise, given the data set, the laws of both together
    are products, whose total variations add: the same bound holds for what the specification adds.

    Args:
        advantage: TV in [0, 1], twice a certified success at even odds less 1. For candidates that
            differ in one record; for more records a group's.
        candidates: K >= 2.

    Example:
        >>> risk_bound(0.1), round(risk_bound(0.1, 10), 3)
        (0.05, 0.09)

    Source: in place of pave, Theorems 4.2 and 4.3, whose bound is never below 1.
    """
    # (1 − 1/K) TV, at most: Σ_k P_k(k)/K ≤ (1 + (K − 1) TV)/K
    variation = in_interval("advantage", advantage, 0.0, 1.0)
    return (1.0 - 1.0 / integer("candidates", candidates, minimum=2)) * variation


def _views(
    name: str,
    candidates: Sequence[Any],
    drawing: Drawing,
    draws: int,
    source: np.random.Generator,
) -> Floats:
    """Return (K, draws, d) simulated views."""
    found = []
    for data in candidates:
        rows = [_view(name, drawing(data, source)) for _ in range(draws)]
        if len({row.shape for row in rows}) > 1:
            raise ValueError(f"{name}: expected finite numbers of one shape at every draw")
        found.append(np.stack(rows))
    if len({held.shape for held in found}) > 1 or found[0].shape[1] == 0:
        raise ValueError(f"{name}: expected as many numbers for every data set, at least one")
    return np.stack(found)


def _view(name: str, drawn: Any) -> Floats:
    try:
        held = np.asarray(drawn.detach().cpu() if hasattr(drawn, "detach") else drawn)
        if held.dtype.kind not in "fiub" or not np.isfinite(held).all():
            raise ValueError
    except (TypeError, ValueError):
        raise ValueError(f"{name}: expected finite numbers of one shape at every draw") from None
    return np.asarray(held.ravel(), dtype=float)


def _hits(views: Floats) -> NDArray[np.bool_]:
    """Return (K, draws) whether each draw of the second half was named right."""
    # what is fitted and chosen on one half is measured on the other
    half = views.shape[1] // 2
    # a number's scale says nothing of how much it tells
    scale = views[:, :half].std(axis=1).mean(axis=0)
    views = views / np.where(scale > 0.0, scale, 1.0)
    known, asked = views[:, :half], views[:, half:]
    # of the first half, two thirds to fit and a third to choose the shrinkage by
    split = max(1, 2 * half // 3)
    fitted, tried = known[:, :split], known[:, split:]
    ways = [(shrunk, shared) for shrunk in SHRINKAGES for shared in (True, False)]
    scores = [_right(_fitted(fitted, *way), tried).mean() for way in ways]
    # fitted again on the whole of the first half
    best = ways[int(np.argmax(scores))]
    return _right(_fitted(known, *best), asked)


def _fitted(views: Floats, shrunk: float, shared: bool) -> list[tuple[Floats, Floats, float]]:
    """Return mean, inverse root and log volume of every candidate's law."""
    means = views.mean(axis=1)
    # Σ̂ of all candidates together, of less noise than each one's own
    moved = views - means[:, None]
    pooled = np.einsum("kni,knj->ij", moved, moved) / (moved.shape[0] * moved.shape[1])
    found = []
    for place, rows in enumerate(moved):
        own = pooled if shared else rows.T @ rows / len(rows)
        spread = np.diagonal(own if shared else 0.5 * (own + pooled))
        # (1 − λ) Σ̂ + λ diag Σ̂: inverted safely where draws are few
        held = (1 - shrunk) * own + shrunk * np.diag(np.maximum(spread, 1e-300))
        values, vectors = np.linalg.eigh(held)
        # a direction in which nothing varies is told from by any difference there
        values = np.maximum(values, 1e-12 * max(float(values.max()), 1e-300))
        # V S^(-1/2) and log|Σ|, all that a Gaussian likelihood needs
        found.append((means[place], vectors / np.sqrt(values), float(np.log(values).sum())))
    return found


def _right(laws: list[tuple[Floats, Floats, float]], views: Floats) -> NDArray[np.bool_]:
    found = np.empty(views.shape[:2], dtype=bool)
    for place, rows in enumerate(views):
        # −(y − m)ᵀ Σ⁻¹ (y − m) − log|Σ|: twice the log likelihood but for a constant
        scores = np.stack(
            [-(((rows - mean) @ root) ** 2).sum(axis=1) - volume for mean, root, volume in laws]
        )
        found[place] = scores.argmax(axis=0) == place
    return found


def _share(hits: NDArray[np.bool_], level: float) -> Interval:
    low, high = proportion_interval(int(hits.sum()), hits.size, level)
    return Interval(float(hits.mean()), low, high, level)


def _gain(both: NDArray[np.bool_], alone: NDArray[np.bool_], level: float) -> Interval:
    """Return the mean difference of two attackers on the same draws."""
    differences = both.astype(float).ravel() - alone.astype(float).ravel()
    # differences in [−1, 1], taken to [0, 1], as the interval of a mean asks
    low, high = mean_interval((1.0 + differences) / 2.0, level)
    value = float(differences.mean())
    return Interval(value, min(2 * low - 1, value), max(2 * high - 1, value), level)
