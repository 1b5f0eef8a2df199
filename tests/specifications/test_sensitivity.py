"""What one record can do to a specification, and the noise that is drawn over it."""

import copy
import math

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from tacit.accounting import gaussian  # noqa: E402
from tacit.specifications import (  # noqa: E402
    ClassScatter,
    Description,
    FeatureMean,
    LabelCodes,
    PublicTasks,
    ReplacedRecord,
    SharedFactors,
    mechanism,
    prepare_specification,
    public_subspace,
    specify,
)
from tacit.specifications.mechanism import describe_mean  # noqa: E402
from tacit.specifications.objectives import class_means, scatter_directions  # noqa: E402
from tacit.specifications.subspace import clip_rows  # noqa: E402

CLASSES = 3


def network():
    torch.manual_seed(0)
    return torch.nn.Sequential(torch.nn.Linear(6, 8), torch.nn.Tanh(), torch.nn.Linear(8, 5))


def records(count=12, seed=0):
    rng = np.random.default_rng(seed)
    return rng.normal(size=(count, 6)), np.arange(count) % CLASSES


def subspace(objective):
    data, labels = records(200, seed=9)
    return public_subspace(
        network(),
        data,
        labels,
        objective=objective,
        size=6,
        tasks=PublicTasks(count=20, records=30),
    )


ABOUT, PROMISE = Description(classes=CLASSES), ReplacedRecord(epsilon=1.0)
SUBSPACES = {objective: subspace(objective) for objective in ("labels", "scatter", "mean")}


def prepared(data, labels, objective=None, promise=PROMISE, space=None):
    asked = LabelCodes() if objective is None else objective
    space = SUBSPACES[asked.word] if space is None else space
    return prepare_specification(
        labels, data, promise, asked, about=ABOUT, backbone=network(), space=space
    )


def white_of(subject):
    return SUBSPACES["scatter"].whitened(subject.backbone.embedded(subject.data))


def mean(held):
    return describe_mean(held.subject, held.asked, 0.0, None)


def neighbours(rng):
    """One record replaced by one that is as far away as numbers go, its label too."""
    data, labels = records()
    other, changed = data.copy(), labels.copy()
    row = int(rng.integers(len(data)))
    other[row] = 10.0 ** rng.uniform(-3, 3) * rng.normal(size=6)
    changed[row] = rng.integers(CLASSES)
    return (data, labels), (other, changed)


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"objective": FeatureMean()},
        {"objective": LabelCodes(clip=0.05), "space": SharedFactors(rank=1)},
        {"objective": LabelCodes(clip=0.05), "space": SharedFactors(rank=3)},
    ],
)
def test_one_record_moves_the_mean_by_at_most_two_clips_over_n(changes):
    rng = np.random.default_rng(1)
    moved = []
    for _ in range(30):
        one, other = neighbours(rng)
        left, right = prepared(*one, **changes), prepared(*other, **changes)
        moved.append(float(np.linalg.norm(mean(left) - mean(right))) * 12 / left.asked.clip)
    assert max(moved) <= 2.0 * (1 + 1e-12)
    assert max(moved) > 0.5


def test_a_scatter_given_its_means_moves_by_at_most_two_clips_over_n(monkeypatch):
    rng = np.random.default_rng(2)
    for _ in range(10):
        one, other = neighbours(rng)
        means = rng.normal(size=(CLASSES, 5))
        monkeypatch.setattr(
            mechanism,
            "_apart",
            lambda subject, *_, fixed=means: scatter_directions(
                subject.shares.double().numpy(), fixed, np.eye(5), white_of(subject)
            ),
        )
        left, right = prepared(*one, ClassScatter()), prepared(*other, ClassScatter())
        assert np.linalg.norm(mean(left) - mean(right)) <= 2 * left.asked.clip / 12 * (1 + 1e-12)


def test_class_means_move_by_at_most_two_clips():
    rng = np.random.default_rng(3)
    held = SUBSPACES["scatter"]
    for _ in range(50):
        one = clip_rows(10.0 ** rng.uniform(-3, 3) * rng.normal(size=(1, 5)), held.feature_clip)
        other = clip_rows(10.0 ** rng.uniform(-3, 3) * rng.normal(size=(1, 5)), held.feature_clip)
        shares = rng.dirichlet(np.full(CLASSES, 0.2), size=2)
        gap = np.outer(shares[0], one) - np.outer(shares[1], other)
        assert np.linalg.norm(gap) <= 2 * held.feature_clip * (1 + 1e-12)


@pytest.mark.parametrize("epsilon", [0.1, 1.0, 8.0])
def test_what_is_drawn_has_the_noise_that_is_certified(epsilon):
    data, labels = records()
    held = prepared(data, labels, promise=ReplacedRecord(epsilon=epsilon))
    clean = mean(held)
    drawn = []
    for _ in range(150):
        again = copy.copy(held)
        drawn.append(again._drawn().details.specification.factors["0+2"].ravel() - clean)
    errors = np.concatenate(drawn)
    std = held.expected[0].error
    assert abs(errors.mean()) < 5 * std / len(errors) ** 0.5
    spread = 5 * std / (2 * len(errors)) ** 0.5
    assert abs(errors.std() - std) < spread
    # a scale that is off by a fifth would be seen
    assert abs(errors.std() - 1.2 * std) > spread
    told = gaussian(2 * held.asked.clip / len(data), std)
    assert told.epsilon(held.delta) <= epsilon
    assert held.guarantees[0].success >= told.advantage() / 2 + 0.5 - 1e-9


def test_a_scatter_spends_its_budget_on_both_parts():
    data, labels = records()
    held = prepared(data, labels, ClassScatter())
    mu = held.guarantees[1].mu
    factors = 2 * held.asked.clip / len(data) / held.expected[0].error
    reach = 2 * held.asked.subspace.feature_clip * CLASSES / len(data)
    forward = held.asked.subspace.feature_map.astype(float)
    shares = held.subject.shares.double().numpy()
    clean = class_means(shares, white_of(held.subject))
    apart = -scatter_directions(shares, clean, np.eye(5), white_of(held.subject)).numpy()
    drawn = np.stack(
        [
            -mechanism._apart(held.subject, held.asked, held.multiplier, None).numpy()
            @ np.linalg.inv(forward)
            - apart
            for _ in range(300)
        ]
    )
    # a record of class c has the noise of m_c − m̄, of which centring takes 1/K
    std = drawn[:, :CLASSES].std() / math.sqrt(1 - 1 / CLASSES)
    assert mu**2 == pytest.approx(factors**2 + (reach / std) ** 2, rel=0.05)
    assert mu**2 != pytest.approx(factors**2 + (reach / (1.2 * std)) ** 2, rel=0.05)


def test_a_seed_voids_the_guarantee():
    data, labels = records()
    options = {"about": ABOUT, "backbone": network(), "space": SUBSPACES["labels"]}
    releases = [specify(labels, data, PROMISE, rng=7, **options) for _ in range(2)]
    one, other = (release.details.specification for release in releases)
    assert one.vector.tolist() == other.vector.tolist()
    assert releases[0].reproducible
    assert one.guarantees == ()
