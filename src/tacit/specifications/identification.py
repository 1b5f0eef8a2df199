"""Which models fit a task, and when the truth is that none does."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from scipy.special import betaincinv

from tacit._ground.checks import in_interval, integer
from tacit._ground.reprs import shown
from tacit.specifications.specification import Specification, check_comparable

# Chance that directions without relation to the task pass for a match.
FALSE_ALARM = 0.01
# by which a cosine of float32 vectors may surpass 1
ROUNDING = 1e-5


@dataclass(frozen=True)
class ModelMatch:
    """One model beside a task.

    Attributes:
        name: of the model.
        similarity: cosine of its specification and the task's (Eq. 3), as it is.
        specification: the model's, with its guarantees.
    """

    name: str
    similarity: float
    specification: Specification


@dataclass(frozen=True)
class Identification:
    """Models in the order of their similarity to a task.

    Attributes:
        matches: the most similar first.
        compared: how many models were compared.
        verdict: whether the first is a match at all.
    """

    matches: tuple[ModelMatch, ...]
    compared: int
    verdict: MatchVerdict


@dataclass(frozen=True)
class CosineAgreement:
    """How far compact cosines are from those of the full space, over all pairs.

    Attributes:
        correlation: of the two cosines.
        error: root of the mean squared difference.
        pairs: how many.
    """

    correlation: float
    error: float
    pairs: int


@dataclass(frozen=True)
class MatchVerdict:
    """Whether the best match of a search is one.

    Attributes:
        good_match: whether its similarity is above the threshold.
        threshold: what unrelated directions surpass in 1 search of 100.
        sentence: both, in words.
    """

    good_match: bool
    threshold: float
    sentence: str


def judge_match(best: float | None, compared: int, size: int) -> MatchVerdict:
    """Return whether the best similarity of a search is more than chance.

    Of a direction drawn uniformly at random in d dimensions, the cosine c with any other has
    c² ~ Beta(1/2, (d−1)/2). The threshold t is what the largest of n such cosines surpasses
    with probability at most n P(c > t) = 1%.

    Args:
        best: largest similarity, None where nothing was compared.
        compared: n, how many learnwares were compared.
        size: d, how many numbers a specification has.

    Raises:
        ValueError: a number out of range.

    Example:
        >>> judge_match(0.5, 100, 64).good_match, judge_match(0.4, 100, 64).good_match
        (True, False)
    """
    count = integer("compared", compared, minimum=0, maximum=None)
    width = integer("size", size, minimum=1, maximum=None)
    if best is None or count == 0:
        return MatchVerdict(False, 1.0, "No good match: there is nothing to compare with.")
    similarity = in_interval("best", best, -1.0 - ROUNDING, 1.0 + ROUNDING)
    if width == 1:
        # c = ±1, each as likely: no threshold is surpassed by chance as rarely as that
        return MatchVerdict(False, 1.0, "No good match: one number has a sign and no direction.")
    # P(c > t) = ½ P(c² > t²), and P(c² > t²) = I_{1 − t²}((d − 1)/2, ½)
    tail = min(1.0, 2.0 * FALSE_ALARM / min(count, 10**300))
    rest = float(betaincinv((width - 1) / 2.0, 0.5, tail))
    threshold = math.sqrt(max(0.0, 1.0 - rest))
    told = (
        f"the best of {count} has similarity {similarity:.3f}; directions without any relation "
        f"surpass {threshold:.3f} in 1 search of 100"
    )
    if similarity >= threshold:
        return MatchVerdict(True, threshold, f"A match: {told}.")
    return MatchVerdict(False, threshold, f"No good match: {told}.")


def identify(
    task: Specification, models: Mapping[str, Specification], *, limit: int | None = None
) -> Identification:
    """Rank models for a task by ``cos(τ_h, τ_u)``.

    Args:
        task: what a user asks for.
        models: specifications by name, of the task's space.
        limit: how many to return; all when None.

    Returns:
        The ``Identification``: raw similarities, and whether the best is more than chance.

    Raises:
        ValueError: a specification of another space, which is refused and not compared; or one
            without a direction.

    Example:
        >>> from tacit.specifications import SpecificationSpace
        >>> space = SpecificationSpace(
        ...     backbone="sha256:0", layers=("fc",), shapes=((2, 1),), factor="seed:0",
        ...     subspace="none", output="labels",
        ... )
        >>> def made(kind, *numbers):
        ...     return Specification(kind=kind, space=space, factors={"fc": [[n] for n in numbers]},
        ...                          method="compact", guarantees=(), created="2026-01-01")
        >>> models = {"digits": made("model", 1, 0), "birds": made("model", 0, 1)}
        >>> found = identify(made("task", 2, 1), models)
        >>> [(match.name, round(match.similarity, 3)) for match in found.matches]
        [('digits', 0.894), ('birds', 0.447)]

    Source: pave, Eq. 3.
    """
    _checked("task", task)
    if not isinstance(models, Mapping):
        raise ValueError(f"models: expected a mapping, got {shown(models)}")
    for name, held in models.items():
        _checked("models", held)
        try:
            check_comparable(task.space, held.space)
        except ValueError as error:
            raise ValueError(f"models: {shown(name)}: {error}") from None
        if not held.vector.any():
            raise ValueError(
                f"models: expected specifications that are not zero, got {shown(name)}"
            )
    if not task.vector.any():
        raise ValueError("task: expected a specification that is not zero, got one that is")
    most = len(models) if limit is None else integer("limit", limit, minimum=1)
    matches = [ModelMatch(name, task.cosine(held), held) for name, held in models.items()]
    # the most similar first; of equal ones the first given
    matches.sort(key=lambda match: -match.similarity)
    best = matches[0].similarity if matches else None
    verdict = judge_match(best, len(matches), task.space.size)
    return Identification(tuple(matches[:most]), len(matches), verdict)


def cosine_agreement(
    compact: Sequence[Specification], full: Sequence[Specification]
) -> CosineAgreement:
    """Return how far cosines of compact specifications are from those of the full space (Eq. 4).

    Args:
        compact: at least three specifications of one space.
        full: of the same things, in the same order, in another space.

    Raises:
        ValueError: fewer than three, another number, or more than one space on a side.
    """
    for name, held in (("compact", compact), ("full", full)):
        if not isinstance(held, (list, tuple)):
            raise ValueError(f"{name}: expected a list of specifications, got {shown(held)}")
        for one in held:
            _checked(name, one)
    if len(compact) != len(full) or len(compact) < 3:
        raise ValueError(
            f"full: expected as many as compact, at least 3, got {len(full)} and {len(compact)}"
        )
    # every pair once
    pairs = [(i, j) for i in range(len(compact)) for j in range(i)]
    # the same pairs in both spaces
    left = np.array([compact[i].cosine(compact[j]) for i, j in pairs])
    right = np.array([full[i].cosine(full[j]) for i, j in pairs])
    spread = left.std() * right.std()
    if spread == 0.0:
        raise ValueError("compact: expected cosines that differ, got cosines all alike")
    # Pearson's, of the two cosines over all pairs
    correlation = float(((left - left.mean()) * (right - right.mean())).mean() / spread)
    error = float(np.sqrt(((left - right) ** 2).mean()))
    return CosineAgreement(correlation, error, len(pairs))


def _checked(name: str, value: object) -> None:
    if not isinstance(value, Specification):
        raise ValueError(f"{name}: expected a Specification, got {shown(value)}")
