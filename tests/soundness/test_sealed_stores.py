"""Sealed stores: what is certified is at least what the files on the disk tell."""

import itertools
import math
from collections import Counter

import numpy as np
import pytest

pytest.importorskip("torch")
pytest.importorskip("cryptography")

from safetensors.numpy import load_file

from tacit.guarantees import InformationBound, MaximalLeakage
from tacit.hidden_states import Codebook, CodebookFit, ProductCodebook, ProductFit
from tacit.stores import Document, FolderBackend, SealedStore, StoreSettings

from .registry import certifies

KEY = bytes(range(32))
ROWS = np.random.default_rng(0).normal(size=(600, 4)).astype(np.float32)
ROWS /= np.linalg.norm(ROWS, axis=1, keepdims=True)
BUCKETS = (64, 128, 256)


def made(kind):
    if kind == "plain":
        return Codebook.fit(ROWS, CodebookFit(size=6, least_cell=2), rng=0)
    return ProductCodebook.fit(ROWS, ProductFit(parts=2, size=5, least_cell=2), rng=0)


def seen(folder):
    """Return (handle, code, sealed length) of every document, as a thief reads the files."""
    found = []
    for path in folder.glob("part-*.safetensors"):
        held = load_file(path)
        lengths = np.diff(held["starts"].astype(np.int64))
        rows = zip(held["handles"], held["codes"], lengths, strict=True)
        found += [(bytes(h), (*c.tolist(), int(n))) for h, c, n in rows]
    return dict(found)


def entropy(values):
    counts = Counter(values)
    total = sum(counts.values())
    return math.fsum(-n / total * math.log(n / total) for n in counts.values())


@certifies(InformationBound, MaximalLeakage)
@pytest.mark.parametrize("people", [1, 2])
@pytest.mark.parametrize("kind", ["plain", "product"])
def test_a_store_tells_no_more_of_a_document_or_person_than_is_certified(tmp_path, kind, people):
    book = made(kind)
    settings = StoreSettings(buckets=BUCKETS, rows_per_person=people)
    store = SealedStore(book, KEY, FolderBackend(tmp_path / "s"), settings)
    # candidates of every direction with texts of every length that fits: the law is uniform
    rows, sizes = ROWS[::3], np.arange(len(ROWS[::3])) * 7919 % 190
    given = [
        Document(id=str(n), text="x" * int(size), person=f"p{n // people}")
        for n, size in enumerate(sizes)
    ]
    store.add(given, rows)
    told = seen(tmp_path / "s")
    handle = store._seals.handle
    what = [told[handle(document.id)] for document in given]
    by_person = [tuple(what[n : n + people]) for n in range(0, len(what), people)]
    guarantees = store.certificate().guarantees
    for held, observed in ((guarantees[:2], by_person), (guarantees[-2:], what)):
        leakage, information = held
        # a function of the candidate: I(X; seen) = H(seen), to rounding
        truth = entropy(observed)
        assert truth <= information.nats * (1 + 1e-12)
        # the best attacker names one of N candidates for every value that is seen
        assert len(set(observed)) <= leakage.factor
    # the bound is attained by lengths and codes that are all there: the files tell no fewer
    assert len({row[-1] for row in what}) == len(BUCKETS)
    every = list(itertools.product(*map(range, book.sizes), BUCKETS))
    assert guarantees[-2].factor == len(every)
    assert guarantees[0].factor == len(every) ** people


@certifies(MaximalLeakage)
def test_one_bucket_tells_nothing_of_lengths(tmp_path):
    book = made("product")
    settings = StoreSettings(buckets=(256,))
    store = SealedStore(book, KEY, FolderBackend(tmp_path / "s"), settings)
    given = [Document(id=str(n), text="x" * n) for n in range(200)]
    store.add(given, ROWS[:200])
    assert len({row[-1] for row in seen(tmp_path / "s").values()}) == 1
    assert store.certificate().guarantees[0].factor == math.prod(book.sizes)
