"""What each source does to the held-out likelihood, and who can tell that it was there."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from scipy import stats

from tacit._ground.checks import Array
from tacit.attacks.intervals import proportion_interval
from tacit.measured import Interval
from tacit.releases.form import Attack, Use
from tacit.training.contribution.runs import Task
from tacit.training.contribution.schedule import Indices

CONFIDENCE = 0.95
Advance = Callable[[int], None]


def influences(
    task: Task, names: Sequence[str], seeds: Sequence[int], advance: Advance
) -> tuple[Use, ...]:
    """Return by how much each source raises the mean held-out log-likelihood, in nats.

    Without noise: one training with the source and one without, its interval over held-out
    examples by the normal law. With noise: pairs of runs with the same normal draws, Student's
    interval over pairs.

    Args:
        task: what is trained.
        names: of the sources.
        seeds: of the noise, one for each pair, at least 2.
        advance: told after every training.
    """

    def score(model: object) -> Array:
        advance(1)
        return task.likelihoods(model, task.held_out)  # type: ignore[arg-type]

    plain = score(task.without_noise(None))
    noisy = [float(score(task.with_noise(None, seed)).mean()) for seed in seeds]
    told = []
    for index, name in enumerate(names):
        alone = plain - score(task.without_noise(index))
        pairs = np.array(
            [
                whole - float(score(task.with_noise(index, seed)).mean())
                for whole, seed in zip(noisy, seeds, strict=True)
            ]
        )
        for values, way in ((alone, "without noise"), (pairs, "with noise")):
            told.append(
                Use(
                    name=f"influence of {name} {way}",
                    unit="nats",
                    better="higher",
                    measured=mean_of(values),
                )
            )
    return tuple(told)


def mean_of(values: Array) -> Interval:
    """Return a mean with Student's interval, of two values or more."""
    mean = float(values.mean())
    error = float(values.std(ddof=1)) / values.size**0.5
    half = float(stats.t.ppf(0.5 + CONFIDENCE / 2, values.size - 1)) * error
    return Interval(value=mean, low=mean - half, high=mean + half, confidence=CONFIDENCE)


def presence(
    task: Task, index: int, name: str, guess: str, seeds: Sequence[int], advance: Advance
) -> Attack:
    """Return how often the likelihood of a source's own examples tells whether it was learned.

    The threshold is chosen on the first half of the runs and measured on the others.

    Args:
        task: what is trained.
        index: of the source.
        name: of the source.
        guess: the task as the certificate names it.
        seeds: of the noise, an even number: a run with and one without the source each.
        advance: told after every training.
    """
    own: Indices = np.flatnonzero(task.groups == index).astype(np.intp)
    scores = np.empty((2, len(seeds)))
    for side, left_out in enumerate((index, None)):
        for place, seed in enumerate(seeds):
            # runs with and without have draws of their own: an attacker sees one of them
            model = task.with_noise(left_out, 2 * seed + side)
            scores[side, place] = task.likelihoods(model, task.batch(own)).mean()
            advance(1)
    half = len(seeds) // 2
    threshold, above = best_threshold(scores[0, :half], scores[1, :half])
    said = (scores[:, half:] > threshold) == above
    hits, trials = int((~said[0]).sum() + said[1].sum()), said.size
    low, high = proportion_interval(hits, trials, CONFIDENCE)
    return Attack(
        name=f"likelihood of the examples of {name}",
        task=guess,
        success=Interval(value=hits / trials, low=low, high=high, confidence=CONFIDENCE),
        prior=0.5,
        trials=trials,
    )


def best_threshold(without: Array, learned: Array) -> tuple[float, bool]:
    """Return the threshold that parts two samples best, and whether "learned" is above it."""
    values = np.unique(np.concatenate([without, learned]))
    cuts = [values[0] - 1.0, *((values[1:] + values[:-1]) / 2.0)]
    right = [(float((without <= cut).mean() + (learned > cut).mean()) / 2.0, cut) for cut in cuts]
    best, least = max(right), min(right)
    return (best[1], True) if best[0] >= 1.0 - least[0] else (least[1], False)
