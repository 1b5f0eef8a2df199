"""What a draw reads is what was prepared: owned, or refused where it was changed in between."""

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from tacit.design import isotropic  # noqa: E402
from tacit.hidden_states import (  # noqa: E402
    Codebook,
    CodebookFit,
    Consumer,
    Differences,
    prepare_codes,
    prepare_states,
)
from tacit.hidden_states.codebooks.encoding import KnownCodes  # noqa: E402
from tacit.ledger import Ledger  # noqa: E402
from tacit.releases import open_vectors  # noqa: E402
from tacit.specifications import (  # noqa: E402
    Description,
    LabelCodes,
    PublicTasks,
    ReplacedRecord,
    load_backbone,
    prepare_specification,
    public_subspace,
)

from ..hidden_states.networks import random_model  # noqa: E402

CLASSES = 3


def records(count=12, seed=0):
    rng = np.random.default_rng(seed)
    return rng.normal(size=(count, 6)), np.arange(count) % CLASSES


def network():
    torch.manual_seed(0)
    return torch.nn.Sequential(torch.nn.Linear(6, 8), torch.nn.Tanh(), torch.nn.Linear(8, 5))


SUBSPACE = public_subspace(
    network(), *records(200, seed=9), size=6, tasks=PublicTasks(count=20, records=30)
)
PROMISE = ReplacedRecord(epsilon=1.0)
KINDS = {
    "labels": LabelCodes(),
    "steps": LabelCodes(steps=3),
    "tensor data": LabelCodes(steps=3),
}


def described(kind, *, changed):
    rows, labels = records()
    data = torch.tensor(rows, dtype=torch.float32) if kind == "tensor data" else rows
    shares = np.eye(CLASSES)[labels]
    prepared = prepare_specification(
        shares, data, PROMISE, KINDS[kind],
        about=Description(classes=CLASSES, targets="independent"), backbone=network(),
        space=SUBSPACE, rng=3,
    )  # fmt: skip
    if changed:
        data *= 1e3
        shares[:] = np.roll(shares, 1, axis=1)
    return prepared.draw().details.specification.vector


@pytest.mark.parametrize("kind", KINDS)
def test_a_specification_owns_its_records(kind):
    expected, found = described(kind, changed=False), described(kind, changed=True)
    np.testing.assert_array_equal(found, expected)


def refused(prepared, folder, match):
    """The draw is refused, and nothing is counted for it."""
    ledger = Ledger(folder / "ledger.db")
    with pytest.raises(ValueError, match=match):
        prepared.draw(ledger=ledger, secret="s", no_budget=True)
    assert not ledger.entries("s")
    with pytest.raises(ValueError, match=match):
        prepared.draw()


def test_a_specification_of_another_network_is_refused(tmp_path):
    shared, (rows, labels) = load_backbone(network()), records()
    prepared = prepare_specification(
        labels, rows, PROMISE, about=Description(classes=CLASSES), backbone=shared,
        space=SUBSPACE,
    )  # fmt: skip
    with torch.no_grad():
        shared.module[0].weight.mul_(2.0)
    refused(prepared, tmp_path, "backbone: expected it as it was prepared")
    with torch.no_grad():
        shared.module[0].weight.div_(2.0)
    assert prepared.draw().details.records == len(rows)


def test_known_codes_are_copied():
    rows = np.random.default_rng(0).normal(size=(300, 4)).astype(np.float32)
    book = Codebook.fit(rows, CodebookFit(size=8), rng=0, progress=False)
    codes = np.arange(40).reshape(40, 1) % book.size
    prepared = prepare_codes(book, KnownCodes(codes))
    expected = codes.copy()
    codes[:] = 0
    np.testing.assert_array_equal(prepared.draw().details.codes, expected)


def test_codes_of_a_changed_codebook_or_file_are_refused(tmp_path):
    rows = np.random.default_rng(0).normal(size=(300, 4)).astype(np.float32)
    np.save(tmp_path / "rows.npy", rows)
    source = open_vectors("states", tmp_path / "rows.npy")
    book = Codebook.fit(rows, CodebookFit(size=8), rng=0, progress=False)
    out = tmp_path / "codes.safetensors"
    prepared = prepare_codes(book, source, out=out)
    centres = book.centres.clone()
    book.centres.mul_(-3.0)
    refused(prepared, tmp_path, "codec: expected it as it was prepared")
    book.centres.copy_(centres)
    np.save(tmp_path / "rows.npy", rows[::-1].copy())
    refused(prepared, tmp_path, "states: expected it as it was prepared")
    assert not out.exists()
    np.save(tmp_path / "rows.npy", rows)
    assert prepared.draw().details.rows == 300


def test_states_own_theirs_and_refuse_another_model(tmp_path):
    model = random_model("gpt2")
    run = model.continuation(torch.arange(24).reshape(4, 6), 2)
    states = run.clean_states.clone()
    design = isotropic(np.ones(states.shape[1]), 4.0)
    listed = np.ones((1, states.shape[1]))
    promise = Differences(listed=listed)
    listed[:] = 0.0
    expected = prepare_states(states.clone(), design, promise, rng=5).draw().details.states
    prepared = prepare_states(states, design, promise, rng=5)
    states *= 1e3
    np.testing.assert_array_equal(prepared.draw().details.states, expected)
    consumer = Consumer(continuation=run)
    prepared = prepare_states(run.clean_states, design, promise, consumer, rng=5)
    weight = next(run.anatomy.network.parameters())
    for held in (weight, run.clean_logits):
        with torch.no_grad():
            before = held.clone()
            held.add_(1.0)
        refused(prepared, tmp_path, "consumer: expected it as it was prepared")
        with torch.no_grad():
            held.copy_(before)
    np.testing.assert_array_equal(prepared.draw().details.states, expected)
