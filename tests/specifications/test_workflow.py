"""What describes a model or a task: what is refused, the release, its file and its cost."""

import json
import math

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from tacit import Ledger  # noqa: E402
from tacit.gate import check_release  # noqa: E402
from tacit.specifications import (  # noqa: E402
    SpecificationRelease,
    cosine_agreement,
    full_specification,
    identify,
    load_backbone,
    load_subspace,
    prepare_specification,
    public_subspace,
    read_specification,
    specify,
)
from tests.arguments import check  # noqa: E402

COUNT, CLASSES = 30, 3


def network(seed=0):
    torch.manual_seed(seed)
    return torch.nn.Sequential(torch.nn.Linear(6, 8), torch.nn.Tanh(), torch.nn.Linear(8, 5))


RNG = np.random.default_rng(0)
DATA, LABELS = RNG.normal(size=(COUNT, 6)), np.arange(COUNT) % CLASSES
NAMES = ["ant", "bee", "cat"]
SHARES = RNG.dirichlet(np.ones(CLASSES), size=COUNT)
SUBSPACE = public_subspace(
    network(), RNG.normal(size=(200, 6)), np.arange(200) % 3, size=6, tasks=20, records=30
)
OPTIONS = {"classes": CLASSES, "epsilon": 1.0, "subspace": SUBSPACE}


def prepared(about=LABELS, data=DATA, **changes):
    return prepare_specification(about, data, network(), **{**OPTIONS, **changes})


def released(**changes):
    return specify(LABELS, DATA, network(), **{**OPTIONS, **changes})


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"kind": "both"}, "kind: "),
        ({"objective": "codes"}, "objective: "),
        ({"method": "none"}, "method: "),
        ({"targets": "outputs"}, "targets: "),
        ({"classes": 1}, "classes: "),
        ({"classes": ["a", "a"]}, "classes: .*each once"),
        ({"classes": "ab"}, "classes: "),
        ({"classes": None}, "classes: .*public"),
        ({"classes": 2}, "model_or_labels: expected one of 2 classes, not so in record 2"),
        ({"epsilon": None}, "epsilon: "),
        ({"epsilon": 0.0}, "epsilon: "),
        ({"epsilon": math.nan}, "epsilon: "),
        ({"epsilon": math.inf}, "epsilon: "),
        ({"method": "compact"}, "epsilon: expected None"),
        ({"delta": 0.0}, "delta: "),
        ({"delta": 1.0}, "delta: "),
        ({"clip": 0.0}, "clip: "),
        ({"clip": math.inf}, "clip: "),
        ({"rank": 0}, "rank"),
        ({"rank": 7}, "subspace: expected one of rank 7"),
        ({"factor": 1}, "subspace: expected one of factor"),
        ({"layers": ["0"]}, "subspace: expected one of layers"),
        ({"layers": "0", "subspace": None}, "layers: "),
        ({"layers": ["1"], "subspace": None, "clip": 1.0}, "layers: .*'1'"),
        ({"layers": ["0", "0"], "subspace": None, "clip": 1.0}, "layers: .*once"),
        ({"subspace": None}, "clip: expected a length chosen without looking"),
        ({"subspace": "public"}, "subspace: expected None or a PublicSubspace"),
        ({"subspace": 3}, "subspace: "),
        ({"objective": "scatter"}, "subspace: expected one of objective"),
        ({"objective": "scatter", "subspace": None}, "subspace: .*scatter"),
        ({"objective": "mean"}, "subspace: expected one of objective 'mean'"),
        ({"objective": "mean", "subspace": None}, "subspace: .*mean"),
        ({"rng": -1}, "rng: "),
    ],
)
def test_bad_options_are_refused_by_name(changes, message):
    with pytest.raises(ValueError, match=message):
        prepared(**changes)


@pytest.mark.parametrize(
    ("targets", "data", "message"),
    [
        (LABELS[:-1], DATA, "model_or_labels: expected one target for each of 30"),
        (LABELS + 0.5, DATA, "model_or_labels: .*record 0"),
        (np.where(LABELS == 0, math.inf, LABELS), DATA, "model_or_labels: .*record 0"),
        (np.where(LABELS == 0, -1, LABELS), DATA, "model_or_labels: .*record 0"),
        (LABELS, DATA[:-1], "model_or_labels: expected one target for each of 29"),
        (np.where(LABELS == 0, math.nan, LABELS), DATA, "model_or_labels: .*record 0"),
        (["elephant-of-mr-smith"] * COUNT, DATA, "model_or_labels: .*record 0"),
        (SHARES[:, :2], DATA, r"model_or_labels: expected numbers \(n, 3\)"),
        (SHARES - 0.5, DATA, "model_or_labels: expected finite numbers >= 0"),
        (SHARES * math.nan, DATA, "model_or_labels: expected finite numbers"),
        (0 * SHARES, DATA, "model_or_labels: .*not all of a record's 0"),
        (LABELS, DATA * math.inf, "data: expected finite"),
        (LABELS, DATA[:, 0], "data: expected records"),
        (LABELS[:0], DATA[:0], "data: expected records"),
        (LABELS, "text", "data: "),
        (LABELS, 1e38 * DATA, "data: expected finite"),
    ],
)
def test_bad_records_are_refused_without_a_cell_of_them(targets, data, message):
    with pytest.raises(ValueError, match=message) as caught:
        prepared(targets, data)
    assert "smith" not in str(caught.value)


def test_a_model_must_say_what_it_was_trained_on():
    def model(_):
        return torch.from_numpy(SHARES)

    with pytest.raises(ValueError, match=r"targets: .*changes every target"):
        prepared(model)
    told = {}
    for targets in ("independent", "given-model"):
        held = prepared(model, targets=targets)
        told[targets] = " ".join(held.guarantees[0].assumptions)
    assert "was not trained on these records" in told["independent"]
    assert "known to the attacker already" in told["given-model"]


def test_names_are_aligned_and_their_order_does_not_matter():
    words = np.array(NAMES)[LABELS]
    vectors = [
        specify(words, DATA, network(), classes=names, method="compact", epsilon=None,
                subspace=SUBSPACE).specification
        for names in (NAMES, NAMES[::-1])
    ]  # fmt: skip
    assert vectors[0].cosine(vectors[1]) == pytest.approx(1.0, abs=1e-6)
    bare = {"method": "compact", "epsilon": None}
    assert vectors[0].cosine(released(**bare).specification) < 0.99
    places = released(classes=NAMES, **bare).specification
    assert vectors[0].cosine(places) == pytest.approx(1.0, abs=1e-6)
    numbers = released(classes=["2", "1", "0"], **bare).specification
    assert numbers.cosine(released(**bare).specification) == pytest.approx(1.0, abs=1e-6)


def test_a_mean_says_what_the_inputs_are_whatever_their_labels(tmp_path):
    held = public_subspace(
        network(), RNG.normal(size=(200, 6)), np.arange(200) % 3, objective="mean", size=4,
        tasks=20, records=30,
    )  # fmt: skip
    options = {"subspace": held, "objective": "mean"}
    bare = {"method": "compact", "epsilon": None, **options}
    one = specify(LABELS, DATA, network(), classes=NAMES, **bare).specification
    other = specify(LABELS[::-1].copy(), DATA, network(), classes=["x", "y", "z"], **bare)
    assert one.cosine(other.specification) == pytest.approx(1.0, abs=1e-6)
    # (1/n) Σ clip(D^T (W(z − z̄) − c)), record by record
    features = load_backbone(network()).embedded(DATA)
    rows = [held.placed(features[[row]])[0] for row in range(COUNT)]
    short = [row * min(1.0, held.clip / np.linalg.norm(row)) for row in rows]
    np.testing.assert_allclose(one.factors["output"].ravel(), np.mean(short, axis=0), atol=1e-6)
    # one Gaussian mechanism, as where labels are described
    mine, theirs = released(**options), released()
    assert [held.to_dict() for held in mine.guarantees] == [
        held.to_dict() for held in theirs.guarantees
    ]
    assert mine.specification.space.output == "mean"
    assert "mean of features" in other.notes[0]
    told = other.to_dict()
    told["notes"] = told["form"]["notes"] = list(released(method="compact", epsilon=None).notes)
    with pytest.raises(ValueError, match="notes: expected what follows"):
        SpecificationRelease.from_dict(told)
    again = SpecificationRelease.from_dict(json.loads(json.dumps(mine.to_dict())))
    assert again.specification.revision == mine.specification.revision
    held.save(tmp_path / "held.safetensors")
    assert load_subspace(tmp_path / "held.safetensors").digest == held.digest
    with pytest.raises(ValueError, match="layers: expected none beside objective 'mean'"):
        public_subspace(network(), DATA, LABELS, objective="mean", layers=["0"])
    overflowing = torch.nn.Linear(6, 5)
    torch.nn.init.constant_(overflowing.weight, 100.0)
    with pytest.raises(ValueError, match="data: expected finite features, not so in record 1"):
        load_backbone(overflowing).embedded(np.stack([DATA[0], np.full(6, 1e38)]))


SPELLED = {
    "list": LABELS.tolist(),
    "floats": LABELS.astype(float),
    "words": LABELS.astype(str),
    "shares": np.eye(CLASSES)[LABELS],
    "tensor": torch.from_numpy(LABELS),
}


@pytest.mark.parametrize("spelled", SPELLED)
def test_labels_of_any_spelling_describe_the_same(spelled):
    options = {"method": "compact", "epsilon": None}
    found = specify(SPELLED[spelled], DATA, network(), **{**OPTIONS, **options})
    assert found.specification.cosine(released(**options).specification) > 1 - 1e-6


def test_a_release_is_read_back_and_judged(tmp_path):
    release = released(title="ants")
    place = tmp_path / "ants.safetensors"
    release.save(place)
    assert read_specification(place).to_bytes() == release.specification.to_bytes()
    text = json.loads((tmp_path / "ants.json").read_text())
    again = SpecificationRelease.from_dict(text)
    assert isinstance(again, SpecificationRelease)
    assert again.to_dict() == release.to_dict()
    success = release.guarantees[0].success
    assert check_release(release, max_success=success + 1e-6).passed
    assert not check_release(release, max_success=success - 1e-3).passed


def test_what_has_no_noise_promises_nothing():
    release = released(method="compact", epsilon=None)
    assert release.guarantees == release.specification.guarantees == ()
    assert release.form.publishable == ()
    assert "may be published" in release.notes[0]
    assert SpecificationRelease.from_dict(release.to_dict()).to_dict() == release.to_dict()
    assert not check_release(release, max_success=0.99).passed


FORGED = {
    "mu": lambda held: held["mu"] / 2,
    "delta": lambda _: 1e-9,
    "targets": lambda _: "independent",
    "reproducible": lambda _: True,
    "seed": lambda _: 3,
    "notes": lambda _: ["All is well."],
    "guarantees": lambda _: [],
    "specification": lambda held: held["specification"][:-8] + "AAAAAAA=",
    "records": lambda _: 0,
    "classes": lambda _: 1,
}


@pytest.mark.parametrize("field", FORGED)
def test_a_description_that_was_altered_is_refused(field):
    text = released().to_dict()
    told = FORGED[field](text)
    text[field] = told
    if field in text["form"]:
        text["form"][field] = told
    with pytest.raises(ValueError, match=r"description|beside a seed"):
        SpecificationRelease.from_dict(text)


def test_a_ledger_counts_it_before_it_is_drawn(tmp_path):
    book = Ledger(tmp_path / "book.db")
    specify(LABELS, DATA, network(), ledger=book, secret="people", **OPTIONS)
    held = prepared()
    spent = book.spent("people").gaussian["replace one record"]
    assert spent == pytest.approx(held.guarantees[1].mu, rel=1e-9)


def test_other_spaces_are_not_compared():
    one = released(method="compact", epsilon=None).specification
    other = specify(
        LABELS, DATA, network(1), classes=CLASSES, method="compact", subspace=None
    ).specification
    with pytest.raises(ValueError, match="another backbone, layers, shapes, factor, subspace"):
        one.cosine(other)
    factor = specify(
        LABELS, DATA, network(1), classes=CLASSES, method="compact", subspace=None, factor=1
    ).specification
    with pytest.raises(ValueError, match=r"another factor$"):
        factor.cosine(other)


SMALL = {"classes": CLASSES, "subspace": None}
ONE = specify(LABELS, DATA, network(), method="compact", **SMALL).specification
TWO = specify(LABELS, 2.0 * DATA**2, network(), method="compact", **SMALL).specification
SIX = specify(LABELS, -DATA, network(), method="compact", **SMALL).specification
CALLS = {
    prepare_specification: (
        [LABELS, DATA, network()],
        {**SMALL, "epsilon": 1.0, "clip": 1.0, "delta": 1e-5, "kind": "task", "method": "dp",
         "objective": "labels", "targets": "labels"},
    ),
    public_subspace: (
        [network(), DATA, LABELS],
        {"size": 3, "tasks": 8, "records": 10, "vary": lambda data, _: data},
    ),
    full_specification: ([LABELS, DATA, network()], {"classes": CLASSES}),
    identify: ([ONE, {"one": ONE}], {}),
    cosine_agreement: ([[ONE, TWO, SIX], [ONE, TWO, SIX]], {}),
    load_backbone: ([network()], {"length": 8}),
}  # fmt: skip


@pytest.mark.parametrize("function", CALLS, ids=lambda function: function.__name__)
def test_nothing_but_value_errors(function):
    check(function, *CALLS[function])


@pytest.mark.parametrize("path", [None, "", "no-such-file", 3])
def test_no_file_is_refused(path):
    for read in (read_specification, load_subspace):
        with pytest.raises(ValueError, match="path: "):
            read(path)


def test_outputs_of_a_model_are_not_labels():
    rng = np.random.default_rng(0)
    images, outputs = rng.uniform(size=(12, 28, 28)), rng.dirichlet([1.0, 1.0], size=12)
    with pytest.raises(ValueError, match="targets: expected 'independent' or 'given-model'"):
        specify(outputs, images, classes=2, epsilon=1.0)
    told = specify(outputs, images, classes=2, epsilon=1.0, targets="given-model")
    assert any("held fixed" in line for line in told.form.all_assumptions)
    one_hot = np.eye(2)[np.arange(12) % 2]
    assert specify(one_hot, images, classes=2, epsilon=1.0).targets == "labels"
