"""One record's row is its own: networks that see a record in several rows, and that mix records."""

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from tacit.specifications import load_backbone, prepare_specification  # noqa: E402
from tacit.specifications.coordinates import Frame, coordinates  # noqa: E402
from tacit.specifications.measured import described  # noqa: E402

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


def asked(network, data, **changes):
    options = {"classes": 2, "epsilon": 1.0, "subspace": None, "clip": 1e-4, "rank": 2}
    return prepare_specification(np.arange(len(data)) % 2, data, network, **{**options, **changes})


def test_windows_of_a_record_are_one_row_that_is_clipped_once():
    rng = np.random.default_rng(0)
    data, network = rng.normal(size=(6, WINDOWS * WIDTH)), windowed()
    directions = torch.randn(6, WINDOWS * 5)
    found = coordinates(
        load_backbone(network), data, directions, Frame(("linear",), 2, "gaussian:0")
    )
    assert found.shape == (6, 10)
    moved = []
    for _ in range(20):
        other = data.copy()
        other[2] = 10.0 ** rng.uniform(-2, 2) * rng.normal(size=WINDOWS * WIDTH)
        means = [described(held.subject, held.asked, 0.0, None)
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


def test_texts_that_are_padded_by_one_of_them_stay_within_the_rounding_that_is_counted():
    texts = ["def one return value", "sum of a list", "the end"] * 8
    other = ["a longer text than all others " * 8, *texts[1:]]
    backbone = load_backbone("tacit/small")
    frame = Frame(backbone.layers, 2, "gaussian:0")
    directions = torch.randn(24, backbone.embedded(texts[:1]).shape[1])
    left, right = (coordinates(backbone, held, directions, frame)[1:] for held in (texts, other))
    longest = np.linalg.norm(left, axis=1)
    assert (np.linalg.norm(left - right, axis=1) <= 4e-6 * longest).all()
    told, plain = (
        prepare_specification([0, 1] * 12, given, classes=2, epsilon=1.0, backbone=held)
        for given, held in ((texts, backbone), (np.zeros((24, 28, 28)), "tacit/vision"))
    )
    shares = [held.expected[0].error / (2 * held.asked.clip / 24 * held.multiplier)
              for held in (told, plain)]  # fmt: skip
    assert shares[0] == pytest.approx(1 + 24 * 4e-6, rel=1e-8)
    assert shares[1] == pytest.approx(1 + 1e-9, rel=1e-10)
