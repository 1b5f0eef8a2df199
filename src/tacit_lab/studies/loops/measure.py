"""Every way picks the rate of one grid that is best on records apart, then is tested."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tacit_lab.studies.loops.ways import WAYS, LearningTask, accuracy
from tacit_lab.studies.pac.state import StoredStudy

# of which no other run has the seed
TUNING_SEED = 100
# between neighbours of the rates
STEP = 10**0.5


def reached(
    task: LearningTask,
    way: str,
    epsilon: float | None,
    rates: Sequence[float],
    seeds: Sequence[int],
    kept: StoredStudy,
) -> dict[str, Any]:
    """Return the best rate, and the accuracies of the test with it.

    Args:
        task: what is learned.
        way: a word of ``WAYS``.
        epsilon: of the guarantee; None for a way that has none.
        rates: that are tried.
        seeds: of the tested runs.
        kept: where finished runs stand.
    """

    multiplier = 0.0
    if epsilon is not None:
        told = f"{way} {epsilon} multiplier"
        multiplier = float(kept.row(told, lambda: WAYS[way].multiplier(task, epsilon)))

    def run(rate: float, seed: int, part: str) -> float:
        def compute() -> float:
            model = WAYS[way].train(task, multiplier, rate, seed)
            return accuracy(model, getattr(task, part))

        return float(kept.row(f"{way} {epsilon} {rate} {seed} {part}", compute))

    tried = {rate: run(rate, TUNING_SEED, "tuning") for rate in rates}
    while (best := max(tried, key=tried.__getitem__)) in (ends := (min(tried), max(tried))):
        # the best rate lies inside of what was tried
        beyond = float(f"{best * (STEP if best == ends[1] else 1.0 / STEP):.1g}")
        tried[beyond] = run(beyond, TUNING_SEED, "tuning")
    tested = [run(best, seed, "test") for seed in seeds]
    return {
        "multiplier": multiplier,
        "rate": best,
        "tried": {str(one): tried[one] for one in sorted(tried)},
        "accuracies": tested,
    }
