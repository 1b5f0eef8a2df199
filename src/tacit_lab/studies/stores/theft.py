"""What a thief of codes is right about who knows encoder, codebook and all but what is asked."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from tacit_lab.studies.stores.encoder import WordMeans, words_of

Code = Callable[[Any], npt.NDArray[Any]]


@dataclass(frozen=True)
class Theft:
    """How often a thief is right, and how often anyone can be.

    Attributes:
        game: what is guessed.
        right: share, the mean over texts.
        within: half-width of its 95% interval over texts.
        blind: without the store.
        most: ``2^(b rows)`` times that, and 1 at most: for any thief, whatever else it knows.
        rows: of the store that tell about what is guessed.
    """

    game: str
    right: float
    within: float
    blind: float
    most: float
    rows: int


def occupied(codes: npt.NDArray[Any]) -> int:
    """Return how many different codes there are."""
    return len(np.unique(codes.reshape(len(codes), -1), axis=0))


def named_among(codes: npt.NDArray[Any]) -> float:
    """Return how often the right one of N equally likely candidates is named by its code.

    The thief names one of the candidates that have the code: it is right 1/n_c of the time where
    n_c have it, on average Σ_c (n_c/N)(1/n_c) = occupied codes / N.

    Example:
        >>> named_among(np.array([[0], [0], [1], [2]]))
        0.75
    """
    return occupied(codes) / len(codes)


def own_recall(codes: npt.NDArray[Any], k: int) -> float:
    """Return how often a document is among k found by its own vector: Σ_c min(k, n_c)/N.

    All that have its code are as near, and stand in an order of chance.

    Example:
        >>> own_recall(np.array([[0], [0], [0], [1]]), 2)
        0.75
    """
    counts = np.unique(codes.reshape(len(codes), -1), axis=0, return_counts=True)[1]
    return float(np.minimum(k, counts).sum()) / len(codes)


def told(game: str, values: Sequence[float], blind: float, b: float, rows: int = 1) -> Theft:
    """Return a game's success over texts beside what any thief can reach by ``rows`` codes."""
    held = np.asarray(values, float)
    within = 1.96 * float(held.std()) / max(1.0, len(held) ** 0.5)
    most = most_right(b * rows, blind)
    return Theft(game, float(held.mean()), within, blind, most, rows)


def most_right(bits: float, blind: float) -> float:
    """Return ``min(1, 2^bits · blind)``, where bits may be too many for a float."""
    return min(1.0, 2.0 ** min(bits, 1000.0) * blind)


def fields(
    game: str,
    candidates: Sequence[str],
    texts: Sequence[str],
    means: WordMeans,
    code: Code,
    b: float,
) -> Theft:
    """Return how often a field is named of texts of which all else is known."""
    found = [named_among(code(means([f"{text} {one}" for one in candidates]))) for text in texts]
    return told(game, found, 1.0 / len(candidates), b)


def chunks(
    candidates: Sequence[str],
    groups: Sequence[Sequence[str]],
    means: WordMeans,
    code: Code,
    b: float,
) -> Theft:
    """Return how often a name is named that stands in every one of several rows."""
    found = []
    for texts in groups:
        held = [code(means([f"{text} {one}" for one in candidates])) for text in texts]
        found.append(named_among(np.concatenate(held, axis=1)))
    rows = len(groups[0])
    game = f"a name of {len(candidates):,}, from {rows} rows of one person"
    return told(game, found, 1.0 / len(candidates), b, rows)


def duplicates(texts: Sequence[str], means: WordMeans, code: Code, b: float) -> Theft:
    """Return how often it is told which of two texts is there that differ in one word."""
    source, changed = np.random.default_rng(0), []
    for text in texts:
        held = words_of(text)
        place, other = source.integers(len(held)), source.integers(len(means.words))
        # the next word of the vocabulary where the same one was drawn
        same = held[place] == means.words[other]
        held[place] = means.words[(other + same) % len(means.words)]
        changed.append(" ".join(held))
    apart = (code(means(list(texts))) != code(means(changed))).any(axis=1)
    return told("which of two near duplicates", 0.5 + 0.5 * apart, 0.5, b)
