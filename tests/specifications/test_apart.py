"""One record's row is its own: networks that see a record in several rows, and that mix records."""

from dataclasses import replace

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from tacit.specifications import (  # noqa: E402
    ClassScatter,
    Description,
    FeatureMean,
    LabelCodes,
    PublicTasks,
    ReplacedRecord,
    SharedFactors,
    load_backbone,
    prepare_specification,
    public_subspace,
)
from tacit.specifications.coordinates import (  # noqa: E402
    GradientFrame,
    check_apart,
    coordinates,
)
from tacit.specifications.mechanism import describe_mean  # noqa: E402

WINDOWS, WIDTH = 4, 3


class Shaped(torch.nn.Module):
    """A linear layer between a rearrangement of the records and its inverse."""

    def __init__(self, before, after):
        super().__init__()
        torch.manual_seed(0)
        self.linear = torch.nn.Linear(WIDTH, 5)
        self.before, self.after = before, after

    def forward(self, held):
        return self.after(self.linear(self.before(held)).tanh(), len(held))


def windows(held):
    return held.reshape(-1, WIDTH)


def joined(held, count):
    return held.reshape(count, -1)


def windowed():
    return Shaped(windows, joined)


def steps_first():
    # five steps, as many as records are tried
    return Shaped(
        lambda held: held.reshape(len(held), -1, WIDTH).transpose(0, 1),
        lambda held, _: held.transpose(0, 1).flatten(1),
    )


def mixed():
    return Shaped(lambda held: (held - held.mean(dim=0)).reshape(len(held), -1, WIDTH), joined)


PROMISE, TWO = ReplacedRecord(epsilon=1.0), Description(classes=2)
CUT, FACTORS = LabelCodes(clip=1e-4), SharedFactors(rank=2)


def asked(network, data, objective=CUT, space=FACTORS):
    return prepare_specification(
        np.arange(len(data)) % 2, data, PROMISE, objective, about=TWO, backbone=network, space=space
    )


def test_windows_of_a_record_are_one_row_that_is_clipped_once():
    rng = np.random.default_rng(0)
    data, network = rng.normal(size=(6, WINDOWS * WIDTH)), windowed()
    directions = torch.randn(6, WINDOWS * 5)
    found = coordinates(
        load_backbone(network), data, directions, GradientFrame(("linear",), 2, "gaussian:0")
    )
    assert found.shape == (6, 10)
    moved = []
    for _ in range(20):
        other = data.copy()
        other[2] = 10.0 ** rng.uniform(-2, 2) * rng.normal(size=WINDOWS * WIDTH)
        means = [describe_mean(held.subject, held.asked, 0.0, None)
                 for held in (asked(network, data), asked(network, other))]  # fmt: skip
        moved.append(np.linalg.norm(means[0] - means[1]) * 6 / 1e-4)
    assert max(moved) <= 2.0 * (1 + 1e-12)


@pytest.mark.parametrize(
    ("network", "steps"),
    [(mixed, 4), (steps_first, 4), (steps_first, 5), (steps_first, 10)],
)
def test_records_that_are_not_apart_are_refused(network, steps):
    data = np.random.default_rng(1).normal(size=(6, steps * WIDTH))
    with pytest.raises(ValueError, match=r"backbone: expected one whose|layers: expected layers"):
        asked(network(), data)


def test_equal_records_hide_no_mixing():
    with pytest.raises(ValueError, match="depend on that record alone"):
        asked(mixed(), np.ones((6, WINDOWS * WIDTH)))


@pytest.mark.parametrize("objective", [ClassScatter(), FeatureMean()])
def test_features_that_mix_where_no_layer_sees_it_are_refused(objective):
    plain, mixing = windowed(), windowed()
    mixing.after = lambda held, count: joined(held, count) + held.detach().mean()
    data = np.random.default_rng(4).normal(size=(40, WINDOWS * WIDTH))
    labels = np.arange(40) % 2

    def described(network):
        held = public_subspace(
            plain,
            data,
            labels,
            objective=objective.word,
            size=3,
            tasks=PublicTasks(count=8, records=10),
        )
        held = replace(held, backbone=load_backbone(network).digest)
        return asked(network, data, objective, held)

    assert described(plain).guarantees
    with pytest.raises(ValueError, match="depend on that record alone"):
        described(mixing)


def test_a_layer_that_does_not_run_as_a_module_is_named():
    class Attending(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.attention = torch.nn.MultiheadAttention(WIDTH, 1, batch_first=True)

        def forward(self, held):
            rows = held.reshape(len(held), -1, WIDTH)
            return self.attention(rows, rows, rows)[0].flatten(1)

    with pytest.raises(ValueError, match=r"layers: expected layers that run .*got attention\.out"):
        asked(Attending(), np.ones((6, WINDOWS * WIDTH)))


def test_a_text_is_read_alike_whatever_is_beside_it():
    texts = ["def one return value", "sum of a list", "the end"] * 8
    other = ["a longer text than all others " * 8, *texts[1:]]
    backbone = load_backbone("tacit/small")
    frame = GradientFrame(backbone.layers, 2, "gaussian:0")
    directions = torch.randn(24, backbone.embedded(texts[:1]).shape[1])
    left, right = (coordinates(backbone, held, directions, frame)[1:] for held in (texts, other))
    assert np.array_equal(left, right)
    assert torch.equal(backbone.embedded(texts)[1:], backbone.embedded(other)[1:])


def scaled_by_all(record_scale):
    """The usual line of a reader of pictures: divide where a number looks like a byte."""

    class Scaling(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.line = torch.nn.Linear(WIDTH * WINDOWS, 4)

        def forward(self, held):
            return self.line(held / record_scale if held.max() > 1 else held)

    torch.manual_seed(0)
    return Scaling()


def test_mixing_that_only_large_numbers_show_is_refused():
    with pytest.raises(ValueError, match="depend on that record alone"):
        asked(scaled_by_all(255.0), np.random.default_rng(2).uniform(size=(6, WINDOWS * WIDTH)))


@pytest.mark.parametrize("kind", ["integers", "a list of two types"])
def test_no_picture_decides_what_the_numbers_of_others_mean(kind):
    rng = np.random.default_rng(3)
    pictures = (rng.uniform(size=(40, 28, 28)) < 0.3).astype(np.int64)
    labels = np.arange(40) % 2
    other = pictures.copy()
    other[0, 0, 0] = 2
    if kind != "integers":
        pictures = list(pictures.astype(np.uint8))
        other = [pictures[0].astype(np.int64), *pictures[1:]]
    sides = [prepare_specification(labels, held, PROMISE, about=TWO) for held in (pictures, other)]
    moved = np.linalg.norm(sides[0].known - sides[1].known)
    assert moved <= sides[0].guarantees[1].mu * sides[0].expected[0].error * (1 + 1e-9)


@pytest.mark.parametrize(
    ("names", "labels", "odd"),
    [
        (["True", "False"], [True, False] * 10, 0),
        (["1.0", "0", "1", "0.0"], [1.0, 0.0] * 10, "1"),
    ],
)
def test_no_label_decides_what_others_say(names, labels, odd):
    data = np.random.default_rng(4).uniform(size=(20, 28, 28))
    sides = [
        prepare_specification(held, data, PROMISE, about=Description(classes=names))
        for held in (labels, [odd, *labels[1:]])
    ]
    assert torch.equal(sides[0].subject.shares[1:], sides[1].subject.shares[1:])


def test_outputs_that_round_to_certainty_are_outputs():
    data = np.random.default_rng(5).uniform(size=(4, 28, 28))
    sure = np.array([[1.0, 1e-30], [1e-30, 1.0]] * 2)
    with pytest.raises(ValueError, match="targets: expected 'independent' or 'given-model'"):
        prepare_specification(sure, data, PROMISE, about=TWO)
    assert prepare_specification(np.eye(2)[[0, 1, 0, 1]], data, PROMISE, about=TWO)


def test_the_callers_network_is_left_as_it_is():
    network = torch.nn.Sequential(torch.nn.Linear(WIDTH, 4), torch.nn.Dropout())
    asked_of = load_backbone(network)
    assert network.training
    assert all(part.requires_grad for part in network.parameters())
    assert asked_of.module is not network


def test_a_long_text_is_read_as_far_as_it_counts():
    backbone = load_backbone("tacit/small")
    text = "the sum of a list returns the value of each key " * 4000
    tokens, _ = backbone.prepare([text, "the end"])
    short, _ = backbone.prepare([text[:2000], "the end"])
    assert torch.equal(tokens, short)
    with pytest.raises(ValueError, match="data: expected text that UTF-8 holds, not so in 1"):
        backbone.prepare(["good", "\ud800"])


def test_a_built_in_backbone_is_tried_once_and_again_once_it_is_another():
    backbone = load_backbone("tacit/vision")
    parts = (torch.zeros(1, 3, 20, 20),)
    passes = []
    counted = replace(
        backbone, features=lambda *batch: passes.append(1) or backbone.features(*batch)
    )
    check_apart(counted, parts, None)
    once = len(passes)
    assert once > 1
    check_apart(counted, parts, None)
    assert len(passes) == once
    # other shapes, another frame
    check_apart(counted, (torch.zeros(1, 3, 24, 20),), None)
    frame = GradientFrame(backbone.layers[:1], 2, "gaussian:0")
    check_apart(counted, parts, frame)
    assert len(passes) > 3 * once
    mixing = backbone.module.register_forward_hook(lambda module, given, held: held - held.mean(0))
    try:
        with pytest.raises(ValueError, match="one record would change"):
            check_apart(backbone, parts, None)
    finally:
        mixing.remove()
    first = next(backbone.module.parameters())
    tried, kept = len(passes), first.detach().clone()
    first.data[0, 0] += 1.0
    try:
        check_apart(counted, parts, None)
        assert len(passes) > tried
    finally:
        first.data.copy_(kept)
