"""A real stored file of every kind of release, made by its workflow, small."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import torch

from tacit import Draw, Effort, Rows, Table
from tacit.classifiers import privatize_logits
from tacit.design import isotropic
from tacit.hidden_states import (
    Ball,
    Codebook,
    CodebookFit,
    Differences,
    PredictiveQuotient,
    PromptCodes,
    Recipe,
    prepare_codes,
    prepare_quotients,
    prepare_states,
)
from tacit.hidden_states.origin import Origin
from tacit.statistics import Session, privatize

ROWS = np.random.default_rng(2).normal(size=(41, 2))
STATES = np.random.default_rng(3).normal(size=(40, 4)).astype(np.float32)
BOUNDS = [(-5.0, 5.0)] * 2
DIGEST = "0123456789abcdef" * 4
ORIGIN = Origin(
    model="a model", model_digest=DIGEST, layer=1, calibration_size=7, calibration_digest=DIGEST,
    served_digest=DIGEST, texts={"public_texts": DIGEST},
)  # fmt: skip
QUICK = Effort(trials=0)


def draw() -> Any:
    return privatize("mean", ROWS, Draw(success=0.6), Effort(simulations=60, trials=40))


def rows() -> Any:
    return privatize("mean+std", ROWS, Rows(success=0.6), QUICK)


def table() -> Any:
    return privatize("mean", ROWS, Table(success=0.6, bounds=BOUNDS), QUICK)


def people() -> Any:
    visits = np.column_stack([ROWS, np.arange(41) % 13])
    promise = Table(success=0.6, person="who", clip=3, bounds={"a": BOUNDS[0], "b": BOUNDS[1]})
    return privatize("mean+median", visits, promise, QUICK, columns=["a", "b", "who"])


def answer() -> Any:
    return Session(ROWS, Rows(success=0.6)).ask("mean", share=0.5)


def classifier() -> Any:
    labels = np.arange(60) % 3
    pool = 4.0 * np.eye(3)[labels] + np.random.default_rng(0).normal(size=(60, 3))
    return privatize_logits(lambda batch: 2.0 * batch, pool, Draw(nats=1.0), labels=labels)


def training() -> Any:
    from tests.training import runs

    return runs.released()


def loop() -> Any:
    from tests.training import loops

    return loops.released()


def streamed() -> Any:
    from tests.training import loops

    return loops.streamed()


def adapter() -> Any:
    from tests.adapters import models

    return models.released()


def specification() -> Any:
    from tests.specifications import samples

    return samples.released()


def codes(out: Path | None = None) -> Any:
    book = Codebook.fit(STATES, CodebookFit(size=4, least_cell=2), rng=0)
    object.__setattr__(book, "origin", ORIGIN)
    return prepare_codes(book, STATES, out=out).draw()


def reported() -> Any:
    return prepare_codes(
        Codebook.fit(STATES, CodebookFit(size=4, least_cell=2), rng=0),
        STATES,
        PromptCodes(epsilon=1.0),
    ).draw()


def quotients() -> Any:
    states = torch.from_numpy(STATES)
    head = torch.randn(4, 5, generator=torch.Generator().manual_seed(0))
    fitted = PredictiveQuotient.fit(
        states,
        states @ head,
        Ball.at(3, nats=5.0),
        Recipe(hidden=4, epochs=2),
        rng=0,
        progress=False,
    )
    return prepare_quotients(fitted.named(ORIGIN), states).draw()


def states() -> Any:
    return prepare_states(
        STATES, isotropic(np.ones(4), 4.0), Differences(listed=np.eye(4)), origin=ORIGIN.public
    ).draw()


def store() -> Any:
    from tacit.stores import StoreSettings
    from tacit.stores.release import SealedRows, release_of

    details = SealedRows(
        documents=40,
        sizes=(8, 7),
        settings=StoreSettings(rows_per_person=3),
        backend="a folder of safetensors",
        left="nothing in its files",
    )
    return release_of(details, "0123456789abcdef" * 4)


def audit() -> Any:
    from tests.audits import found

    return found()


MAKERS = {
    made.__name__: made
    for made in (
        draw, rows, table, people, answer, classifier, training, loop, streamed, adapter,
        specification, codes, reported, quotients, states, store, audit,
    )
}  # fmt: skip


@cache
def _text(name: str) -> str:
    return json.dumps(MAKERS[name]().to_dict())


def real(name: str, folder: Path | None = None) -> Any:
    """Return what stands in a file of this kind."""
    del folder
    return json.loads(_text(name))
