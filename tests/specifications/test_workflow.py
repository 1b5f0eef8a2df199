"""What describes a model or a task: what is refused, the release, its file and its cost."""

import json
import math
from dataclasses import replace

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from tacit import Ledger, Table  # noqa: E402
from tacit.gate import Policy, check_release  # noqa: E402
from tacit.releases import load  # noqa: E402
from tacit.specifications import (  # noqa: E402
    ClassScatter,
    Description,
    FeatureMean,
    LabelCodes,
    PublicTasks,
    ReplacedRecord,
    SharedFactors,
    cosine_agreement,
    full_specification,
    identify,
    load_backbone,
    load_subspace,
    prepare_specification,
    public_subspace,
    read_specification,
    save_specification,
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
TASKS = PublicTasks(count=20, records=30)
SUBSPACE = public_subspace(
    network(), RNG.normal(size=(200, 6)), np.arange(200) % 3, size=6, tasks=TASKS
)
PROMISE, ABOUT = ReplacedRecord(epsilon=1.0), Description(classes=CLASSES)
NAMED = Description(classes=NAMES)
OPTIONS = {"about": ABOUT, "space": SUBSPACE}


def prepared(labels=LABELS, data=DATA, promise=PROMISE, objective=None, **changes):
    asked = LabelCodes() if objective is None else objective
    return prepare_specification(
        labels, data, promise, asked, backbone=network(), **{**OPTIONS, **changes}
    )


def released(promise=PROMISE, labels=LABELS, **changes):
    return specify(labels, DATA, promise, backbone=network(), **{**OPTIONS, **changes})


def bare(**changes):
    return released(None, **changes).details.specification


@pytest.mark.parametrize(
    ("kind", "changes", "message"),
    [
        (Description, {"kind": "both"}, "kind: "),
        (Description, {"targets": "outputs"}, "targets: "),
        (Description, {"classes": 1}, "classes: "),
        (Description, {"classes": ["a", "a"]}, "classes: .*each once"),
        (Description, {"classes": "ab"}, "classes: "),
        (Description, {"title": ""}, "title: "),
        (Description, {"title": 3}, "title: "),
        (ReplacedRecord, {"epsilon": None}, "epsilon: "),
        (ReplacedRecord, {"epsilon": 0.0}, "epsilon: "),
        (ReplacedRecord, {"epsilon": math.nan}, "epsilon: "),
        (ReplacedRecord, {"epsilon": math.inf}, "epsilon: "),
        (ReplacedRecord, {"epsilon": 1.0, "delta": 0.0}, "delta: "),
        (ReplacedRecord, {"epsilon": 1.0, "delta": 1.0}, "delta: "),
        (LabelCodes, {"clip": 0.0}, "clip: "),
        (ClassScatter, {"clip": math.inf}, "clip: "),
        (FeatureMean, {"clip": math.nan}, "clip: "),
        (SharedFactors, {"rank": 0}, "rank"),
        (SharedFactors, {"seed": -1}, "seed"),
        (SharedFactors, {"layers": "0"}, "layers: "),
        (PublicTasks, {"count": 1}, "count: "),
        (PublicTasks, {"records": 1}, "records: "),
        (PublicTasks, {"vary": 3}, "vary: "),
    ],
)
def test_what_is_asked_checks_itself(kind, changes, message):
    with pytest.raises(ValueError, match=message):
        kind(**changes)


SHARED = {"space": SharedFactors()}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"about": Description()}, "classes: .*public"),
        (
            {"about": Description(classes=2)},
            "expected one of the 2 classes for every record, got another value for record 2",
        ),
        ({"about": "task"}, "about: "),
        ({"promise": Table(epsilon=1.0, delta=1e-5)}, "promise: .*ReplacedRecord"),
        ({"promise": 1.0}, "promise: "),
        ({"objective": "labels"}, "objective: expected one of LabelCodes"),
        ({"objective": LabelCodes(), **SHARED}, "clip: expected a length chosen without looking"),
        ({"space": SharedFactors(layers=["1"])}, "layers: .*'1'"),
        ({"space": SharedFactors(layers=["0", "0"])}, "layers: .*once"),
        ({"space": "public"}, "space: expected SharedFactors or a PublicSubspace"),
        ({"space": None}, "space: "),
        ({"objective": ClassScatter()}, "space: expected a subspace of objective 'scatter'"),
        ({"objective": ClassScatter(), **SHARED}, "space: .*scatter"),
        ({"objective": FeatureMean()}, "space: expected a subspace of objective 'mean'"),
        ({"objective": FeatureMean(), **SHARED}, "space: .*mean"),
        ({"rng": -1}, "rng: "),
    ],
)
def test_bad_options_are_refused_by_name(changes, message):
    with pytest.raises(ValueError, match=message):
        prepared(**changes)


def test_a_subspace_of_another_backbone_is_refused():
    with pytest.raises(ValueError, match="space: expected a subspace of backbone"):
        specify(LABELS, DATA, PROMISE, backbone=network(1), **OPTIONS)


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
        (0 * SHARES, DATA, "model_or_labels: .*above 0 in every record"),
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
        held = prepared(model, about=replace(ABOUT, targets=targets))
        told[targets] = " ".join(held.guarantees[0].assumptions)
    assert "was not trained on these records" in told["independent"]
    assert "known to the attacker already" in told["given-model"]


def test_names_are_aligned_and_their_order_does_not_matter():
    words = np.array(NAMES)[LABELS]
    vectors = [
        bare(labels=words, about=Description(classes=names)) for names in (NAMES, NAMES[::-1])
    ]
    assert vectors[0].cosine(vectors[1]) == pytest.approx(1.0, abs=1e-6)
    assert vectors[0].cosine(bare()) < 0.99
    assert vectors[0].cosine(bare(about=NAMED)) == pytest.approx(1.0, abs=1e-6)
    numbers = bare(about=Description(classes=["2", "1", "0"]))
    assert numbers.cosine(bare()) == pytest.approx(1.0, abs=1e-6)


def test_a_mean_says_what_the_inputs_are_whatever_their_labels(tmp_path):
    held = public_subspace(
        network(), RNG.normal(size=(200, 6)), np.arange(200) % 3, objective="mean", size=4,
        tasks=TASKS,
    )  # fmt: skip
    options = {"space": held, "objective": FeatureMean()}
    one = bare(about=NAMED, **options)
    other = released(
        None, LABELS[::-1].copy(), about=Description(classes=["x", "y", "z"]), **options
    )
    assert one.cosine(other.details.specification) == pytest.approx(1.0, abs=1e-6)
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
    assert mine.details.specification.space.output == "mean"
    assert "mean of features" in other.notes[0] == other.withheld
    told = other.to_dict()
    told["notes"] = list(bare().notes)
    with pytest.raises(ValueError, match="notes: expected what follows"):
        load(told)
    again = load(json.loads(json.dumps(mine.to_dict())))
    assert again.details.specification.revision == mine.details.specification.revision
    held.save(tmp_path / "held.safetensors")
    assert load_subspace(tmp_path / "held.safetensors").digest == held.digest
    with pytest.raises(ValueError, match="layers: expected none beside objective 'mean'"):
        public_subspace(
            network(), DATA, LABELS, objective="mean", factors=SharedFactors(layers=["0"])
        )
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
    assert bare(labels=SPELLED[spelled]).cosine(bare()) > 1 - 1e-6


def test_a_release_is_read_back_and_judged(tmp_path):
    release = released(about=replace(ABOUT, title="ants"))
    place = tmp_path / "ants.safetensors"
    save_specification(release, place)
    specification = release.details.specification
    assert read_specification(place).to_bytes() == specification.to_bytes()
    again = load(tmp_path / "ants.json")
    assert again.to_dict() == release.to_dict()
    assert again.details.specification.revision == specification.revision
    success = release.guarantees[0].success
    assert check_release(release, Policy(max_success=success + 1e-6)).passed
    assert not check_release(release, Policy(max_success=success - 1e-3)).passed
    with pytest.raises(ValueError, match="path: "):
        save_specification(release, tmp_path / "other.json")


def test_what_has_no_noise_promises_nothing(tmp_path):
    release = released(None)
    assert release.guarantees == release.details.specification.guarantees == ()
    assert release.published() == {"withheld": release.withheld}
    assert "may be published" in release.notes[0] == release.withheld
    save_specification(release, tmp_path / "mine.safetensors")
    assert load(tmp_path / "mine.json").to_dict() == release.to_dict()
    assert not check_release(release, Policy(max_success=0.99)).passed


FORGED = {
    "mu": lambda held: held["details"].update(mu=held["details"]["mu"] / 2),
    "delta": lambda held: held["details"].update(delta=1e-9),
    "targets": lambda held: held["details"].update(targets="independent"),
    "records": lambda held: held["details"].update(records=0),
    "classes": lambda held: held["details"].update(classes=1),
    "specification": lambda held: held["details"]["specification"].update(
        file=held["details"]["specification"]["file"][:-8] + "AAAAAAA="
    ),
    "another specification": lambda held: held["details"].update(
        specification=released().to_dict()["details"]["specification"]
    ),
    "reproducible": lambda held: held.update(reproducible=True),
    "seed": lambda held: held.update(seed=3),
    "method": lambda held: held.update(method="compact"),
    "notes": lambda held: held.update(notes=["All is well."]),
    "withheld": lambda held: held.update(withheld="It is mine."),
    "secret": lambda held: held.update(secret="nothing"),
    "assumptions": lambda held: held.update(assumptions=["All is well."]),
    "guarantees": lambda held: held.update(guarantees=[]),
}


@pytest.mark.parametrize("field", FORGED)
def test_a_description_that_was_altered_is_refused(field):
    text = released().to_dict()
    FORGED[field](text)
    with pytest.raises(ValueError, match=r"release\.|contradicts itself"):
        load(text)


def test_the_reason_to_withhold_is_not_taken_away():
    text = released(None).to_dict()
    text["withheld"] = ""
    with pytest.raises(ValueError, match="withheld: expected the reason why"):
        load(text)


def test_a_ledger_counts_it_before_it_is_drawn(tmp_path):
    book = Ledger(tmp_path / "book.db")
    released(ledger=book, secret="people")
    held = prepared()
    spent = book.spent("people").gaussian["replace one record"]
    assert spent == pytest.approx(held.guarantees[1].mu, rel=1e-9)


def test_other_spaces_are_not_compared():
    one = bare()
    other, factor = (
        specify(
            LABELS, DATA, None, about=ABOUT, backbone=network(1), space=SharedFactors(seed=s)
        ).details.specification
        for s in (0, 1)
    )
    with pytest.raises(ValueError, match="another backbone, layers, shapes, factor, subspace"):
        one.cosine(other)
    with pytest.raises(ValueError, match=r"another factor$"):
        factor.cosine(other)


SMALL = {"about": ABOUT, "backbone": network(), "space": SharedFactors()}
ONE, TWO, SIX = (
    specify(LABELS, data, None, **SMALL).details.specification
    for data in (DATA, 2.0 * DATA**2, -DATA)
)
CALLS = {
    prepare_specification: ([LABELS, DATA, PROMISE, LabelCodes(clip=1.0)], SMALL),
    public_subspace: (
        [network(), DATA, LABELS],
        {"size": 3, "objective": "labels", "tasks": PublicTasks(count=8, records=10),
         "factors": SharedFactors(rank=2)},
    ),
    full_specification: ([LABELS, DATA, network()], {"classes": CLASSES}),
    identify: ([ONE, {"one": ONE}], {}),
    cosine_agreement: ([[ONE, TWO, SIX], [ONE, TWO, SIX]], {}),
    load_backbone: ([network()], {"length": 8}),
    ReplacedRecord: ([], {"epsilon": 1.0, "delta": 1e-5}),
    Description: ([], {"kind": "task", "classes": 2, "targets": "labels"}),
    LabelCodes: ([], {"clip": 1.0, "steps": 2, "sampling_rate": 0.5, "step_size": 0.1}),
    SharedFactors: ([], {"rank": 2, "seed": 0}),
    PublicTasks: ([], {"count": 8, "records": 10, "vary": lambda data, _: data}),
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
    two = Description(classes=2)
    with pytest.raises(ValueError, match="targets: expected 'independent' or 'given-model'"):
        specify(outputs, images, PROMISE, about=two)
    told = specify(outputs, images, PROMISE, about=replace(two, targets="given-model"))
    assert any("held fixed" in line for line in told.all_assumptions)
    one_hot = np.eye(2)[np.arange(12) % 2]
    assert specify(one_hot, images, PROMISE, about=two).details.targets == "labels"
