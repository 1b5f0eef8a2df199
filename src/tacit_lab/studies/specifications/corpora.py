"""Records of text tasks: news topics and paragraphs, developers' and users' apart."""

from __future__ import annotations

import csv
import functools
import gzip

import numpy as np

from tacit_lab.studies.pac.data import find
from tacit_lab.studies.specifications.pictures import LabelledPictures
from tacit_lab.studies.specifications.tasks import PARAGRAPHS, StudyTask

# Characters of a text that a task takes, and the shortest that counts as one.
LONGEST, SHORTEST = 240, 40
# Of every corpus so many paragraphs are kept, the last part of them for users.
KEPT, FOR_USERS = 4000, 0.4
NEWS = {"private": "ag_news_train_part.csv.gz", "users": "ag_news_test.csv.gz"}


def records(task: StudyTask, count: int, part: str, rng: np.random.Generator) -> LabelledPictures:
    """Draw ``count`` texts without replacement, as many of every label as may be."""
    texts: list[str] = []
    labels: list[int] = []
    for label, group in enumerate(task.groups):
        share = count // task.labels + (label < count % task.labels)
        pool = _pool(task, group, part)
        chosen = rng.choice(len(pool), min(share, len(pool)), replace=False)
        texts += [_seen(pool[row], task.transform) for row in chosen]
        labels += [label] * len(chosen)
    order = rng.permutation(len(texts))
    return LabelledPictures([texts[row] for row in order], np.array(labels, dtype=np.int64)[order])


def _pool(task: StudyTask, group: tuple[int, ...], part: str) -> list[str]:
    if task.source == "agnews":
        texts, classes = _news(part)
        return [text for text, found in zip(texts, classes, strict=True) if found in group]
    return [text for label in group for text in _paragraphs(task.topic, label, part)]


def _seen(text: str, transform: str) -> str:
    return text[::-1] if transform == "reversed" else text


@functools.cache
def _news(part: str) -> tuple[list[str], list[int]]:
    with gzip.open(find(NEWS[part]), "rt", encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    texts = [f"{row['title']} {row['description']}".strip()[:LONGEST] for row in rows]
    return texts, [int(row["class"]) - 1 for row in rows]


@functools.cache
def _paragraphs(topic: str, label: int, part: str) -> list[str]:
    """Return paragraphs of a corpus in an order of its own, the same in every run."""
    name, documents = PARAGRAPHS[topic][label]
    with gzip.open(find(f"text/{name}.txt.gz"), "rt", encoding="utf-8", newline="") as file:
        text = file.read()
    if documents is not None:
        text = "\n".join(text.rstrip("\n").split("\n\n")[documents])
    lines = (line.strip()[:LONGEST] for line in text.split("\n"))
    kept = [line for line in dict.fromkeys(lines) if len(line) >= SHORTEST]
    order = np.random.default_rng(0).permutation(len(kept))[:KEPT]
    cut = round(len(order) * (1 - FOR_USERS))
    rows = order[:cut] if part == "private" else order[cut:]
    return [kept[row] for row in rows]
