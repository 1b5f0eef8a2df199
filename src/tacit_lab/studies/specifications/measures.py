"""Who is found, and what reusing it is worth."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from torch import nn

from tacit_lab.studies.specifications.learnwares import logits, records, trained_from
from tacit_lab.studies.specifications.pictures import LabelledPictures
from tacit_lab.studies.specifications.tasks import StudyTask

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class TaskQuery:
    """A user: few examples of a task, and records to test on that the examples have not.

    Attributes:
        truth: number of the task among the learnwares'.
        examples: balanced, with the labels of the task.
        test: balanced.
        order: π, what the user calls the labels of the task where the order is permuted.
    """

    truth: int
    examples: LabelledPictures
    test: LabelledPictures
    order: npt.NDArray[np.int64]


def query(task: StudyTask, truth: int, count: int, tested: int, seed: int) -> TaskQuery:
    """Draw a user's records of a task; ``seed`` is no developer's."""
    drawn = records(task, count + tested, "users", seed)
    chosen = np.zeros(len(drawn.labels), dtype=bool)
    for label in range(task.labels):
        share = count // task.labels + (label < count % task.labels)
        chosen[np.flatnonzero(drawn.labels == label)[:share]] = True
    order = np.random.default_rng([seed, truth]).permutation(task.labels)
    return TaskQuery(truth, _part(drawn, chosen), _part(drawn, ~chosen), order.astype(np.int64))


def _part(drawn: LabelledPictures, chosen: npt.NDArray[np.bool_]) -> LabelledPictures:
    if isinstance(drawn.inputs, list):
        inputs: Any = [text for text, kept in zip(drawn.inputs, chosen, strict=True) if kept]
    else:
        inputs = drawn.inputs[chosen]
    return LabelledPictures(inputs, drawn.labels[chosen])


def found(learnwares: Floats, queries: Floats) -> npt.NDArray[np.int64]:
    """Return the learnware of largest cosine for every query: rows of (q, p) against (t, p)."""
    return np.asarray((_unit(queries) @ _unit(learnwares).T).argmax(axis=1))


def share(hits: Any) -> list[float]:
    """Return a share and its standard error; of a share of 0 or 1 that of half a miss."""
    values = np.asarray(hits, dtype=float)
    count = len(values)
    shrunk = min(max(float(values.mean()), 0.5 / count), 1 - 0.5 / count)
    return [float(values.mean()), float((shrunk * (1 - shrunk) / count) ** 0.5)]


def mean_error(values: Any) -> list[float]:
    """Return a mean and its standard error."""
    held = np.asarray(values, dtype=float)
    return [float(held.mean()), float(held.std(ddof=1) / len(held) ** 0.5)]


def accuracies(models: list[nn.Module], asked: list[TaskQuery]) -> Floats:
    """Return (q, t) accuracies on the users' tests, labels matched on their examples.

    A model's classes are renamed to the label that its examples of that class have most often, as
    a user does who has a hundred of them.
    """
    table = np.zeros((len(asked), len(models)))
    for row, user in enumerate(asked):
        for column, network in enumerate(models):
            guesses = logits(network, user.examples.inputs).argmax(axis=1)
            names = _matched(guesses, user.examples.labels)
            tested = names[logits(network, user.test.inputs).argmax(axis=1)]
            table[row, column] = (tested == user.test.labels).mean()
    return table


def few_shot(task: StudyTask, user: TaskQuery, seed: int) -> float:
    """Return the accuracy of a scratch model trained from the user's few examples."""
    network = trained_from(task, user.examples, seed)
    guesses = logits(network, user.test.inputs).argmax(axis=1)
    return float((guesses == user.test.labels).mean())


def probed(examples: Floats, labels: Any, test: Floats, test_labels: Any) -> float:
    """Return the accuracy of ridge regression on frozen features of the few examples.

    The ridge is the one of four with the least leave-one-out error, in closed form.
    """
    centre, scale = examples.mean(axis=0), float(np.linalg.norm(examples.std(axis=0))) + 1e-12
    known = np.hstack([(examples - centre) / scale, np.ones((len(examples), 1))])
    targets = np.eye(int(np.max(labels)) + 1)[labels]
    kernel = known @ known.T
    fits = []
    for ridge in (1e-3, 1e-2, 1e-1, 1.0):
        hat = kernel @ np.linalg.inv(kernel + ridge * np.eye(len(kernel)))
        left_out = targets - (targets - hat @ targets) / (1 - np.diag(hat))[:, None]
        fits.append(((left_out.argmax(axis=1) == labels).mean(), ridge))
    ridge = max(fits)[1]
    weights = known.T @ np.linalg.solve(kernel + ridge * np.eye(len(kernel)), targets)
    asked = np.hstack([(test - centre) / scale, np.ones((len(test), 1))])
    return float(((asked @ weights).argmax(axis=1) == test_labels).mean())


def _matched(guesses: npt.NDArray[np.int64], labels: npt.NDArray[np.int64]) -> npt.NDArray[Any]:
    counts = np.zeros((10, 10))
    np.add.at(counts, (guesses, labels), 1)
    return counts.argmax(axis=1)


def _unit(rows: Floats) -> Floats:
    lengths = np.linalg.norm(rows, axis=1, keepdims=True)
    return np.asarray(rows / np.maximum(lengths, np.finfo(float).tiny))
