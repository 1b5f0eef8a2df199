"""The parts of the study: who is found in each way, agreement with the full space, γ, seconds."""

from __future__ import annotations

import functools
import time
from typing import Any

import numpy as np

from tacit.specifications import judge_match
from tacit_lab.studies.specifications import backbones
from tacit_lab.studies.specifications.backbones import Way
from tacit_lab.studies.specifications.baselines import (
    HISTOGRAM,
    LABELS,
    NAMES,
    BaselineFrame,
    histogram,
    vectors,
)
from tacit_lab.studies.specifications.learnwares import records
from tacit_lab.studies.specifications.measures import (
    Floats,
    TaskQuery,
    found,
    mean_error,
    probed,
    query,
    share,
)
from tacit_lab.studies.specifications.pictures import LabelledPictures
from tacit_lab.studies.specifications.reuse import USERS
from tacit_lab.studies.specifications.rows import ObjectiveRow
from tacit_lab.studies.specifications.tasks import StudyTask

# Developers draw their private records with this seed, and their scratch models' with 0.
DEVELOPERS = 100


class Collection:
    """The learnwares of a collection of tasks, and the users who ask for each of them.

    Args:
        name: of the collection.
        tasks: one learnware each.
        sizes: of the study.
        worth: accuracies of every learnware for every user, where it was measured.
    """

    def __init__(
        self, name: str, tasks: list[StudyTask], sizes: dict[str, Any], worth: list[Any] | None
    ) -> None:
        self.name, self.tasks, self.sizes = name, tasks, sizes
        self.modality = "texts" if name == "texts" else "images"
        self._asked: dict[Any, Floats] = {}
        self.worth = None if worth is None else np.concatenate([h["accuracies"] for h in worth])

    def private(self, task: StudyTask, count: int) -> LabelledPictures:
        """Return the records that a developer's specification is made from."""
        return records(task, count, "private", DEVELOPERS)

    @functools.cached_property
    def users(self) -> list[TaskQuery]:
        """Return every user, draw by draw."""
        sizes = self.sizes
        return [
            query(task, row, sizes["examples"], sizes["tested"], USERS + draw)
            for draw in range(sizes["draws"])
            for row, task in enumerate(self.tasks)
        ]

    def asked(self, way: Way) -> Floats:
        """Return the users' vectors of a way, made once whatever the learnwares' records and ε."""
        key = (way.route, way.rank, way.subspace, way.order)
        if key not in self._asked:
            self._asked[key] = np.stack([
                backbones.described(
                    "task", _asked(user, way), self.modality, way, private=False
                )[0.0]
                for user in self.users
            ])  # fmt: skip
        return self._asked[key]

    @property
    def truth(self) -> np.ndarray:
        """Return the number of the learnware that every user asks for."""
        return np.array([user.truth for user in self.users])

    def rivals(self) -> list[np.ndarray]:
        """Return the learnwares that a user chooses from, those of the same data set in a case."""
        if self.name in ("images", "texts"):
            return [np.arange(len(self.tasks))] * len(self.users)
        sources = np.array([task.source for task in self.tasks])
        return [np.flatnonzero(sources == sources[user.truth]) for user in self.users]

    def row(
        self, what: str, way: Way, epsilon: float, chosen: np.ndarray, size: int
    ) -> ObjectiveRow:
        """Return how often the learnware asked for came first, and what the first is worth."""
        worth = None
        if self.worth is not None:
            worth = mean_error(self.worth[np.arange(len(chosen)), chosen])
        ours = what == "PAVE"
        return ObjectiveRow(
            tasks=self.name, what=what, route=way.route if ours else "", order=way.order,
            records=way.records, rank=way.rank if ours else 0,
            subspace=way.subspace if ours else 0, epsilon=epsilon,
            top1=share(chosen == self.truth), reuse=worth, numbers=size,
        )  # fmt: skip


def identified(collection: Collection, way: Way) -> list[ObjectiveRow]:
    """Return a row for every ε of a way, and for every baseline where that is the way."""
    return _trivial(collection, way) if way.route == "baselines" else _pave(collection, way)


def _pave(collection: Collection, way: Way) -> list[ObjectiveRow]:
    held = [collection.private(task, way.records) for task in collection.tasks]
    made = [backbones.described("model", part, collection.modality, way) for part in held]
    asked = collection.asked(way)
    rows = []
    for epsilon in way.epsilons:
        learnwares = np.stack([one[epsilon] for one in made])
        chosen = _found(collection, learnwares, asked)
        rows.append(collection.row("PAVE", way, epsilon, chosen, learnwares.shape[1]))
    return rows


def _trivial(collection: Collection, way: Way) -> list[ObjectiveRow]:
    frames = [BaselineFrame.of(held) for held in backbones.public_features(collection.modality)]
    held = [collection.private(task, way.records) for task in collection.tasks]
    mine = [backbones.features(collection.modality, part.inputs) for part in held]
    asked = [_asked(user, way) for user in collection.users]
    theirs = [backbones.features(collection.modality, part.inputs) for part in asked]
    rng = np.random.default_rng([len(held), way.records])
    known = [
        _means(both, part.labels, frames, None, rng)
        for both, part in zip(theirs, asked, strict=True)
    ]
    rows = []
    for epsilon in way.epsilons:
        made = [
            _means(both, part.labels, frames, epsilon or None, rng)
            for both, part in zip(mine, held, strict=True)
        ]
        for name in NAMES:
            learnwares = np.stack([one[name] for one in made])
            chosen = _found(collection, learnwares, np.stack([one[name] for one in known]))
            rows.append(collection.row(name, way, epsilon, chosen, learnwares.shape[1]))
    return rows + histograms(collection, way)


def histograms(collection: Collection, way: Way) -> list[ObjectiveRow]:
    """Return a row for every ε of what the names of classes find alone, without any input.

    Names are those that developers share; where labels are permuted, each user's own numbers.
    """
    named = way.order == "aligned"
    known = [str(label) for label in range(LABELS)]
    if named:
        known = sorted({name for task in collection.tasks for name in task.classes})

    def made(task: StudyTask, labels: Any, epsilon: float) -> Floats:
        names = task.classes if named else known[: task.labels]
        return histogram(labels, names, known, epsilon=epsilon or None, rng=rng)

    rng = np.random.default_rng([len(known), way.records])
    held = [collection.private(task, way.records).labels for task in collection.tasks]
    asked = np.stack([
        made(collection.tasks[user.truth], _asked(user, way).labels, 0.0)
        for user in collection.users
    ])  # fmt: skip
    rows = []
    for epsilon in way.epsilons:
        learnwares = np.stack([
            made(task, labels, epsilon)
            for task, labels in zip(collection.tasks, held, strict=True)
        ])  # fmt: skip
        chosen = _found(collection, learnwares, asked)
        rows.append(collection.row(HISTOGRAM, way, epsilon, chosen, len(known)))
    return rows


def _means(
    both: tuple[Floats, Floats],
    labels: Any,
    frames: list[BaselineFrame],
    epsilon: float | None,
    rng: np.random.Generator,
) -> dict[str, Floats]:
    last, inner = (
        vectors(held, labels, frame, epsilon=epsilon, rng=rng)
        for held, frame in zip(both, frames, strict=True)
    )
    return {**last, "inner class means": inner["class means"]}


def _asked(user: TaskQuery, way: Way) -> LabelledPictures:
    labels = user.examples.labels
    return LabelledPictures(
        user.examples.inputs, user.order[labels] if way.order == "permuted" else labels
    )


def _found(collection: Collection, learnwares: Floats, queries: Floats) -> np.ndarray:
    return np.array([
        rivals[int(found(learnwares[rivals], one[None])[0])]
        for one, rivals in zip(queries, collection.rivals(), strict=True)
    ])  # fmt: skip


def agreement(collection: Collection) -> dict[str, Any]:
    """Return, for every rank, how far cosines of all of B are from those of the full space."""
    held = [collection.private(task, 100) for task in collection.tasks]
    asked = [_asked(user, Way("aligned")) for user in collection.users[: len(held)]]
    parts = (held, asked)
    whole = _cosines(*([backbones.full(one, collection.modality) for one in two] for two in parts))
    result = {}
    for rank in collection.sizes["ranks"]:
        way = Way("aligned", rank=rank, subspace=0)
        compact = _cosines(*(
            [backbones.described("task", one, collection.modality, way, private=False)[0.0]
             for one in two]
            for two in parts
        ))  # fmt: skip
        result[str(rank)] = {
            "error": float(np.abs(compact - whole).mean()),
            "same": float((compact.argmax(axis=1) == whole.argmax(axis=1)).mean()),
        }
    return result


def _cosines(mine: list[Floats], theirs: list[Floats]) -> Floats:
    one, two = np.stack(theirs), np.stack(mine)
    lengths = np.linalg.norm(one, axis=1)[:, None] * np.linalg.norm(two, axis=1)
    return np.asarray(one @ two.T / lengths)


def gammas(collection: Collection) -> dict[str, dict[str, float]]:
    """Return for every k the largest γ over replaced records of three learnwares, by n."""
    return {
        str(size): {
            str(count): max(
                backbones.measured_gamma(collection.private(task, count), collection.modality, size)
                for task in collection.tasks[:: max(len(collection.tasks) // 3, 1)][:3]
            )
            for count in (100, 1000)
        }
        for size in collection.sizes["subspaces"]
    }


def verdicts(collection: Collection) -> list[dict[str, Any]]:
    """Return how often the best of a search passes for a match, by what is there to be found.

    The learnware asked for and all others; all but that one; and those of other data sets alone.
    """
    sources = np.array([task.source for task in collection.tasks])
    truth = collection.truth
    present = {
        "the one asked for": np.ones((len(truth), len(sources)), dtype=bool),
        "others of the same data": np.arange(len(sources)) != truth[:, None],
        "other data alone": sources != sources[truth][:, None],
    }
    rows = []
    for way in (
        Way("aligned", epsilons=(0.0, 4.0)),
        Way("label-free", order="permuted", epsilons=(0.0, 4.0)),
    ):
        made = [
            backbones.described("model", collection.private(task, way.records), "images", way)
            for task in collection.tasks
        ]
        asked = collection.asked(way)
        for epsilon in way.epsilons:
            cosines = _cosines([one[epsilon] for one in made], list(asked))
            for what, held in present.items():
                best = np.where(held, cosines, -1.0).max(axis=1)
                passed = [
                    judge_match(float(one), int(count), asked.shape[1]).good_match
                    for one, count in zip(best, held.sum(axis=1), strict=True)
                ]
                about = {"what": what, "route": way.route, "epsilon": epsilon}
                rows.append({**about, "passed": share(passed), "median": float(np.median(best))})
    return rows


def seconds(collection: Collection) -> dict[str, float]:
    """Return the median time of one thread for a specification, by what it is made of."""
    result = {}
    for count in (100, 1000):
        times = []
        for task in collection.tasks[:: max(len(collection.tasks) // 5, 1)][:5]:
            held = collection.private(task, count)
            start = time.thread_time()
            backbones.described("model", held, collection.modality,
                              Way("aligned", records=count, epsilons=(1.0,)))  # fmt: skip
            times.append(time.thread_time() - start)
        result[f"{count:,} images at ε = 1"] = float(np.median(times))
    return result


def probe(collection: Collection) -> list[float]:
    """Return the accuracy of ridge regression on frozen features of every user's examples."""
    return mean_error([
        probed(
            backbones.features(collection.modality, user.examples.inputs)[0], user.examples.labels,
            backbones.features(collection.modality, user.test.inputs)[0], user.test.labels,
        )
        for user in collection.users
    ])  # fmt: skip
