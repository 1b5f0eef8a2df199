"""What attackers reached in the canary game, beside what a privacy profile leaves them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
from numpy.typing import ArrayLike

from tacit import codec
from tacit._ground.checks import Array, RandomSource, generator, in_interval, matrix, vector
from tacit._ground.numbers import EPS
from tacit.accounting import PrivacyProfile
from tacit.attacks import RocSummary, lira, rmia, roc
from tacit.attacks.membership.roc import truth_values
from tacit.guarantees import SuccessBound
from tacit.measured import Interval
from tacit.releases import Attack

LARGEST_EPSILON, EPSILONS, CELLS = 40.0, 400, 4000


def auc_from_profile(profile: PrivacyProfile) -> float:
    """Bound the AUC of every test of membership.

    With ``f(α) = max_ε max(1 − δ(ε) − e^ε α, e^−ε (1 − δ(ε) − α), 0)`` no test has a true positive
    rate above ``1 − f(α)`` at the false positive rate α, hence ``AUC <= 1 − ∫ f``. On a grid of ε
    f is no larger and still convex, so that the midpoint rule is below its integral.

    Args:
        profile: of two neighbouring data sets, with the record and without it.

    Returns:
        The bound, rounded up, at least ½.

    Example:
        >>> from tacit.accounting import gaussian
        >>> round(auc_from_profile(gaussian(1.0, 1.0)), 3)
        0.76

    Source: Dong, Roth and Su (2022), Proposition 2.12.
    """
    # denser near 0, where δ(ε) bends most
    epsilons = LARGEST_EPSILON * np.linspace(0.0, 1.0, EPSILONS) ** 2
    # 1 − δ(ε)
    kept = 1.0 - profile.delta(epsilons)
    # α at the middle of every cell
    rates = (np.arange(CELLS) + 0.5) / CELLS
    missed = np.zeros(CELLS)
    for epsilon, share in zip(epsilons, kept, strict=True):
        # f(α) >= 1 − δ − e^ε α
        np.maximum(missed, share - np.exp(epsilon) * rates, out=missed)
        # f(α) >= e^−ε (1 − δ − α)
        np.maximum(missed, np.exp(-epsilon) * (share - rates), out=missed)
    # AUC <= 1 − ∫ f, rounded up by what a sum of cells may lose
    area = 1.0 - float(missed.mean()) + 8.0 * CELLS * EPS
    return min(1.0, max(0.5, area))


TASK = "whether the canary was among the records"
LOSS, RATIO, LIRA, RMIA = (
    "loss of the canary",
    "every update, the other records known",
    "LiRA on the loss",
    "RMIA on the loss",
)
# Each part, in and out: as many as a summary of scores needs.
SMALLEST_SIDE = 8
SMALLEST_LOSS = 1e-300
# Relative spread of log odds from which on a Gaussian is fitted to them.
SMALLEST_SPREAD = 1e-9
# Scores of models m, given the models they are learned from.
Scores: TypeAlias = Callable[[npt.NDArray[np.int64]], Array]


@dataclass(frozen=True, kw_only=True)
class CanaryGame:
    """What attackers reached in the canary game: a measurement, beside what is certified.

    Attributes:
        models: number of models played with.
        played: (attacker, what its scores say), every interval at failure (1 − confidence)/(2k)
            for k attackers, so that all of balanced accuracy and AUC hold together.
        bound: certified success at even odds, which no attacker's balanced accuracy exceeds; None
            where nothing is certified.
        auc_bound: certified AUC; 1 where nothing is.
        confidence: of all intervals together.
    """

    models: int
    played: tuple[tuple[str, RocSummary], ...]
    bound: SuccessBound | None
    auc_bound: float
    confidence: float

    @property
    def attacks(self) -> tuple[Attack, ...]:
        """Balanced accuracy of every attacker, as a release states attacks."""
        return tuple(
            Attack(
                name=name,
                task=TASK,
                success=Interval(
                    found.balanced_accuracy, *found.balanced_accuracy_interval, found.confidence
                ),
                prior=0.5,
                trials=self._measured(found),
            )
            for name, found in self.played
        )

    def _measured(self, found: RocSummary) -> int:
        """Return how many models a balanced accuracy is of: thresholds are chosen on others."""
        if found.members + found.non_members < self.models:
            return found.members + found.non_members
        # of all models the second half of each kind
        return found.members // 2 + found.non_members // 2

    @property
    def refuted(self) -> bool:
        """Whether an attacker passes a bound by more than its interval."""
        # no bound is passed by nobody
        most = 1.0 if self.bound is None else self.bound.success
        return any(
            found.balanced_accuracy_interval[0] > most or found.auc_interval[0] > self.auc_bound
            for _, found in self.played
        )

    def to_dict(self) -> dict[str, Any]:
        """Return a JSON-able description."""
        return {
            "models": self.models,
            "played": {name: codec.write(RocSummary, found) for name, found in self.played},
            "bound": None if self.bound is None else self.bound.success,
            "auc_bound": self.auc_bound,
            "refuted": self.refuted,
            "confidence": self.confidence,
        }


def canary_game(
    losses: ArrayLike,
    memberships: ArrayLike,
    *,
    population_losses: ArrayLike | None = None,
    log_ratios: ArrayLike | None = None,
    profile: PrivacyProfile | None = None,
    confidence: float = 0.95,
    rng: RandomSource = None,
) -> CanaryGame:
    """Guess from each of M models whether it was trained with the canary.

    The loss itself and the log-ratio of the updates need no other models. LiRA and RMIA learn from
    a random half of the models, choose their threshold there, and attack the other half. LiRA is
    left out where the losses with the canary, or those without it, are all the same.

    Args:
        losses: (M,) in nats, of the canary under each model.
        memberships: (M,) truth values, whether it was trained with the canary; 8 of each at least.
        population_losses: (M, Z) in nats, of other records that no model was trained with; for
            RMIA, which is left out without them.
        log_ratios: (M,), sums of `update_log_ratio` over the steps: of an attacker who sees every
            update and A, and knows all other records. None where they were not computed.
        profile: of the run; None where nothing is certified.
        confidence: of all intervals together.
        rng: seed or generator that splits the models; the operating system's when None.

    Returns:
        What each attacker reached, and the bound.

    Raises:
        ValueError: a bad argument.

    Example:
        >>> from tacit.accounting import gaussian
        >>> source = np.random.default_rng(0)
        >>> saw = np.arange(400) % 2
        >>> game = canary_game(
        ...     9.0 - saw + source.normal(size=400), saw, profile=gaussian(1.0, 1.0), rng=0
        ... )
        >>> [name for name, _ in game.played], round(game.bound.success, 3), game.refuted
        (['loss of the canary', 'LiRA on the loss'], 0.691, False)

    Source: lora-privacy, Appendix F.1; Carlini et al. (2022); Zarifzadeh et al. (2024).
    """
    values = vector("losses", losses)
    if values.size and values.min() < 0.0:
        raise ValueError(f"losses: expected none below 0, got {values.min():g}")
    inside = truth_values("memberships", memberships, values.shape)
    level = in_interval("confidence", confidence, 0.0, 1.0, open_low=True, open_high=True)
    count = min(int(inside.sum()), int((~inside).sum()))
    if count < SMALLEST_SIDE:
        raise ValueError(
            f"memberships: expected at least {SMALLEST_SIDE} models with the canary and as many "
            f"without it, got {count} of one kind"
        )
    source = generator(rng)
    direct: dict[str, Array] = {LOSS: -values}
    if log_ratios is not None:
        ratios = vector("log_ratios", log_ratios)
        if ratios.shape != values.shape:
            raise ValueError(f"log_ratios: expected {values.size} values, got {ratios.size}")
        direct[RATIO] = ratios
    # what LiRA and RMIA learn from, and choose their thresholds on
    known = _half(inside, source)
    learned: dict[str, Scores] = {}
    odds = _log_odds(values)
    if all(_varies(odds[known][group]) for group in (inside[known], ~inside[known])):
        learned[LIRA] = _lira_scores(odds, inside, known)
    if population_losses is not None:
        others = _population(population_losses, values.size)
        learned[RMIA] = _rmia_scores(values, inside, others, known)
    # 2k intervals, each at failure (1 − confidence)/(2k): a union bound
    each = 1.0 - (1.0 - level) / (2.0 * (len(direct) + len(learned)))
    played = [
        (name, roc(scores, inside, confidence=each, rng=source)) for name, scores in direct.items()
    ]
    # attacked are the others alone
    left = np.setdiff1d(np.arange(values.size), known)
    for name, score in learned.items():
        chosen_on = score(known), inside[known]
        found = roc(score(left), inside[left], confidence=each, rng=source, chosen_on=chosen_on)
        played.append((name, found))
    return CanaryGame(
        models=values.size,
        played=tuple(played),
        bound=None if profile is None else profile.success(),
        auc_bound=1.0 if profile is None else auc_from_profile(profile),
        confidence=level,
    )


def _half(inside: npt.NDArray[np.bool_], source: np.random.Generator) -> npt.NDArray[np.int64]:
    """Return a random half of the models that saw the canary and one of the others, in order."""
    chosen = [
        source.permutation(np.flatnonzero(group))[: int(group.sum()) // 2]
        for group in (inside, ~inside)
    ]
    return np.sort(np.concatenate(chosen))


def _population(losses: ArrayLike, models: int) -> Array:
    others = matrix("population_losses", losses)
    if len(others) != models:
        raise ValueError(f"population_losses: expected {models} rows, got {len(others)}")
    if others.min() < 0.0:
        raise ValueError(f"population_losses: expected none below 0, got {others.min():g}")
    return others


def _log_odds(losses: Array) -> Array:
    """Return ln p/(1 − p) of the label, which is nearer to a Gaussian than its loss −ln p."""
    # −ln p > 0, so that 1 − p is no zero
    positive = np.maximum(losses, SMALLEST_LOSS)
    odds: Array = -positive - np.log(-np.expm1(-positive))
    return odds


def _varies(odds: Array) -> bool:
    return bool(np.ptp(odds) > SMALLEST_SPREAD * np.abs(odds).max())


def _lira_scores(
    odds: Array, inside: npt.NDArray[np.bool_], known: npt.NDArray[np.int64]
) -> Scores:
    def scores(models: npt.NDArray[np.int64]) -> Array:
        shape = known.size, models.size
        shadows, saw = (np.broadcast_to(v[known, None], shape) for v in (odds, inside))
        return lira(odds[models], shadows, saw)

    return scores


def _rmia_scores(
    losses: Array, inside: npt.NDArray[np.bool_], others: Array, known: npt.NDArray[np.int64]
) -> Scores:
    shadows, saw = -losses[known, None], inside[known, None]
    return lambda models: np.concatenate(
        [
            rmia(
                -losses[model : model + 1],
                shadows,
                saw,
                population_scores=-others[model],
                population_shadow_scores=-others[known],
            )
            for model in models
        ]
    )
