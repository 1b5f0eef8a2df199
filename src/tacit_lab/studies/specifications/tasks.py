"""Tasks drawn by a seed: which classes of a data set, put together how, seen through what."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import combinations

import numpy as np

CLASSES = {"mnist": 10, "cifar10": 10, "agnews": 4}
# How many of the tasks of a data set and a transform ask for that many classes; 10: all of them,
# mapped onto two or three labels.
SIZES = (2, 3, 5, 10)
TRANSFORMS = {
    "mnist": ("plain", "turned", "inverted", "noisy", "mirrored"),
    "cifar10": ("plain", "turned", "inverted", "grey", "blurred"),
}
# Topics that two corpora tell apart, and what stands for each: (file, documents or None for all).
PARAGRAPHS: dict[str, tuple[tuple[str, slice | None], ...]] = {
    "wine notes, conversations": (("webtext", slice(2, 3)), ("webtext", slice(1, 2))),
    "bug titles, conversations": (("webtext", slice(0, 1)), ("webtext", slice(1, 2))),
    "negative, positive reviews": (
        ("movie_reviews", slice(0, 1000)),
        ("movie_reviews", slice(1000, 2000)),
    ),
    "rural, science news": (("abc", slice(0, 1)), ("abc", slice(1, 2))),
    "Shakespeare, inaugural, Genesis": (
        ("tiny_shakespeare", None),
        ("inaugural", None),
        ("genesis", None),
    ),
    "early, late State of the Union": (
        ("state_union", slice(0, 25)),
        ("state_union", slice(40, 65)),
    ),
    "Brown: press, fiction": (("brown", slice(0, 88)), ("brown", slice(374, 500))),
    "WikiText, reviews, Brown": (
        ("wikitext2_train", None), ("movie_reviews", None), ("brown", None),
    ),
}  # fmt: skip


@dataclass(frozen=True)
class StudyTask:
    """Inputs of a data set, seen through a transform, with the number of their group as label.

    Attributes:
        source: a data set, or ``"paragraphs"`` of several corpora.
        groups: source classes of label 0, of label 1 and so on.
        transform: what is done to every input.
        topic: which paragraphs, where they are what is told apart.
    """

    source: str
    groups: tuple[tuple[int, ...], ...]
    transform: str = "plain"
    topic: str = ""

    @property
    def name(self) -> str:
        """Return source, transform and groups in words."""
        if self.topic:
            return f"paragraphs: {self.topic} ({self.transform})"
        groups = " / ".join("+".join(map(str, group)) for group in self.groups)
        return f"{self.source} {self.transform}: {groups}"

    @property
    def classes(self) -> tuple[str, ...]:
        """Return what developers who share names call the labels, whatever the transform."""
        of = self.topic or self.source
        return tuple(f"{of} {'+'.join(map(str, group))}" for group in self.groups)

    @property
    def labels(self) -> int:
        """Return how many labels there are."""
        return len(self.groups)


def image_tasks(seed: int, transforms: int = 5) -> list[StudyTask]:
    """Return four tasks of every data set and transform, no two of them alike."""
    rng = np.random.default_rng([seed, 16])
    found: list[StudyTask] = []
    for source, ways in TRANSFORMS.items():
        for transform in ways[:transforms]:
            seen: set[frozenset[frozenset[int]]] = set()
            for size in SIZES:
                groups = _groups(size, rng)
                while frozenset(map(frozenset, groups)) in seen:
                    groups = _groups(size, rng)
                seen.add(frozenset(map(frozenset, groups)))
                found.append(StudyTask(source, groups, transform))
    return found


def text_tasks() -> list[StudyTask]:
    """Return the pairs of news topics, all four, two unions, reversed letters, and paragraphs."""
    pairs = [((a,), (b,)) for a, b in combinations(range(4), 2)]
    groups = [*pairs, ((0,), (1,), (2,), (3,)), ((0, 1), (2, 3)), ((0, 2), (1, 3))]
    news = [StudyTask("agnews", held) for held in groups]
    reversed_news = [
        StudyTask("agnews", held, "reversed") for held in (groups[0], groups[5], groups[6])
    ]
    paragraphs = [
        StudyTask("paragraphs", tuple((i,) for i in range(len(parts))), topic=topic)
        for topic, parts in PARAGRAPHS.items()
    ]
    return [*news, *reversed_news, *paragraphs]


def relabelled_tasks(seed: int, count: int = 24, transform: str = "plain") -> list[StudyTask]:
    """Return partitions of all ten classes into two labels: the inputs are those of every other."""
    rng = np.random.default_rng([seed, 18])
    found: dict[tuple[str, frozenset[frozenset[int]]], StudyTask] = {}
    while len(found) < count:
        source = ("mnist", "cifar10")[len(found) % 2]
        groups = _groups(10, rng, labels=2)
        found.setdefault((source, frozenset(map(frozenset, groups))),
                         StudyTask(source, groups, transform))  # fmt: skip
    return list(found.values())


def crossed_tasks(seed: int, count: int = 24) -> list[StudyTask]:
    """Return partitions whose label is flipped where the picture is inverted (exclusive or).

    Half of every class is inverted, so the inputs are those of every other task, and a label's mean
    input tells of the partition only as far as inverting a picture does not mirror its features.
    """
    return relabelled_tasks(seed, count, "crossed inverted")


def _groups(
    size: int, rng: np.random.Generator, labels: int | None = None
) -> tuple[tuple[int, ...], ...]:
    chosen = [int(value) for value in rng.permutation(10)[:size]]
    if size < 10:
        return tuple((value,) for value in chosen)
    count = labels or int(rng.integers(2, 4))
    return tuple(tuple(sorted(chosen[i::count])) for i in range(count))
