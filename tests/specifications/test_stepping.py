"""Several noisy steps: their account, what is drawn, and the network that moves and comes back."""

import math

import numpy as np
import pytest
from scipy.special import logsumexp
from scipy.stats import norm

torch = pytest.importorskip("torch")

from tacit.accounting import gaussian_shift, subsampled_gaussian  # noqa: E402
from tacit.releases import load  # noqa: E402
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
    specify,
)
from tacit.specifications.mechanism import describe_mean  # noqa: E402
from tacit.specifications.schedule import StepSchedule  # noqa: E402
from tacit.specifications.stepping import change_weights, take_steps  # noqa: E402

CLASSES, DELTA = 3, 1e-5
STILL = 1e-12


def network():
    torch.manual_seed(0)
    return torch.nn.Sequential(torch.nn.Linear(6, 8), torch.nn.Tanh(), torch.nn.Linear(8, 5))


def records(count=12, seed=0):
    rng = np.random.default_rng(seed)
    return rng.normal(size=(count, 6)), np.arange(count) % CLASSES


SUBSPACE = public_subspace(
    network(), *records(200, seed=9), size=6, tasks=PublicTasks(count=20, records=30)
)
ABOUT = Description(classes=CLASSES)


def prepared(data=None, labels=None, epsilon=1.0, space=SUBSPACE, rng=None, **steps):
    held = records() if data is None else (data, labels)
    promise = None if epsilon is None else ReplacedRecord(epsilon=epsilon)
    return prepare_specification(
        held[1], held[0], promise, LabelCodes(**steps), about=ABOUT, backbone=network(),
        space=space, rng=rng,
    )  # fmt: skip


@pytest.mark.parametrize("rate", [1.0, 0.3, 0.02])
@pytest.mark.parametrize("steps", [1, 7])
@pytest.mark.parametrize("epsilon", [0.2, 4.0])
def test_all_steps_together_are_worth_the_epsilon_asked_for(rate, steps, epsilon):
    schedule = StepSchedule(steps=steps, sampling_rate=rate)
    multiplier = schedule.multiplier(epsilon, DELTA)
    told = schedule.profile(1.0 / multiplier)
    assert 0.99 * epsilon < told.epsilon(DELTA) <= epsilon
    if rate == 1.0:
        assert told.epsilon(DELTA) == pytest.approx(
            gaussian_shift(math.sqrt(steps) / multiplier).epsilon(DELTA), rel=1e-9
        )
    else:
        # a record moves the sum by 2C at most: noise over C is 2m
        full = subsampled_gaussian(rate, 2 * multiplier, steps, "replace")
        assert told.epsilon(DELTA) == full.epsilon(DELTA)


def test_one_step_with_every_record_is_the_mean():
    held = prepared()
    clean = describe_mean(held.subject, held.asked, 0.0, None)
    one = take_steps(held.subject, held.asked, StepSchedule(), 0.0, None)
    assert np.allclose(one, clean, rtol=1e-12, atol=0.0)


@pytest.mark.parametrize("rate", [1.0, 0.4])
@pytest.mark.parametrize("space", [SUBSPACE, SharedFactors()])
def test_samples_and_noise_are_those_of_the_account(rate, space):
    held = prepared(steps=3, sampling_rate=rate, step_size=STILL, space=space, clip=0.5)
    clean = describe_mean(held.subject, held.asked, 0.0, None)
    drawn = np.stack([held._draw_numbers() for _ in range(300)])
    error = held.expected[0].error
    multiplier = held.asked.schedule.multiplier(1.0, DELTA)
    assert error == pytest.approx(multiplier * 2 * 0.5 / (rate * 12) / math.sqrt(3), rel=1e-8)
    # a record in no step adds 0, so the sample's own variance is that of coins: (1/q − 1)/n² Σ y²
    options = {"space": space, "clip": 0.5}
    subjects = [prepared(*(part[[row]] for part in records()), **options) for row in range(12)]
    alone = [describe_mean(one.subject, held.asked, 0.0, None) for one in subjects]
    spread = (1 / rate - 1) / 3 * sum(row**2 for row in alone) / 144
    std = np.sqrt(error**2 + spread)
    scores = (drawn - clean) / std
    assert abs(scores.mean()) < 5 / math.sqrt(scores.size)
    assert abs(scores.std() - 1) < 5 / math.sqrt(2 * scores.size)


def test_no_record_moves_a_step_further_than_its_account():
    rng = np.random.default_rng(1)
    held = prepared(steps=2)
    for _ in range(20):
        data, labels = records(12, seed=int(rng.integers(1 << 30)))
        other, named = data.copy(), labels.copy()
        other[3], named[3] = 10.0 ** rng.uniform(-2, 3) * rng.normal(size=6), 1
        changes = {
            name: torch.from_numpy(rng.normal(size=shape)).float()
            for name, shape in (("0", (8, 6)), ("2", (5, 8)))
        }
        sums = []
        for rows, kinds in ((data, labels), (other, named)):
            each = prepared(rows, kinds, steps=2)
            with change_weights(each.subject.backbone, changes):
                sums.append(12 * describe_mean(each.subject, each.asked, 0.0, None))
        assert np.linalg.norm(sums[0] - sums[1]) <= 2 * held.asked.clip * (1 + 1e-9)


@pytest.mark.parametrize("draws", [500, pytest.param(1500, marks=pytest.mark.thorough)])
def test_who_knows_every_other_record_is_right_at_most_as_often_as_certified(draws):
    data, labels = records(6)
    other = data.copy()
    other[0] = -30 * data[0]
    rate = 0.5
    options = {"steps": 1, "sampling_rate": rate, "epsilon": 2.0}
    sides = [prepared(rows, labels, rng=seed, **options) for seed, rows in enumerate((data, other))]
    clip, error = sides[0].asked.clip, sides[0].expected[0].error
    rows = [
        np.stack([
            describe_mean(prepared(part[[row]], labels[[row]]).subject, sides[0].asked, 0.0, None)
            for row in range(6)
        ])
        for part in (data, other)
    ]  # fmt: skip
    assert np.linalg.norm(rows[0][0] - rows[1][0]) > clip
    coins = np.array([[(mask >> row) & 1 for row in range(6)] for mask in range(64)], dtype=float)
    centres = [coins @ held / (rate * 6) for held in rows]

    def likelihood(value, place):
        gaps = ((value[:, None] - centres[place][None]) ** 2).sum(axis=2)
        return logsumexp(-gaps / (2 * error**2), axis=1)

    right = 0.0
    for side, held in enumerate(sides):
        drawn = np.stack([held._draw_numbers() for _ in range(draws)])
        lean = likelihood(drawn, 0) > likelihood(drawn, 1)
        right += float((lean == (side == 0)).mean()) / 2
    limit = sides[0].guarantees[0].success
    assert 0.5 < right <= limit + norm.isf(1e-5) * 0.5 / math.sqrt(2 * draws)
    assert right > 0.5 + 0.5 * (limit - 0.5)


def test_the_network_moves_against_the_step_and_comes_back():
    module = torch.nn.ModuleDict({"conv": torch.nn.Conv2d(2, 3, 2), "line": torch.nn.Linear(5, 4)})
    from transformers.pytorch_utils import Conv1D

    module["turned"] = Conv1D(4, 5)
    held = load_backbone(network())
    object.__setattr__(held, "module", module)
    changes = {"conv": torch.randn(3, 8), "line": torch.randn(4, 5), "turned": torch.randn(4, 5)}
    before = {name: part.clone() for name, part in module.state_dict().items()}
    rows = torch.randn(6, 5)
    with change_weights(held, changes):
        seen = {name: module[name](rows) for name in ("line", "turned")}
        weight = module["conv"].weight.clone()
    added = {name: changes[name].T for name in seen}
    for name, old in (("line", before["line.weight"].T), ("turned", before["turned.weight"])):
        expected = rows @ (old + added[name]) + before[f"{name}.bias"]
        assert torch.allclose(seen[name], expected, atol=1e-5)
    assert torch.equal(weight, before["conv.weight"] + changes["conv"].reshape(3, 2, 2, 2))
    assert all(torch.equal(part, before[name]) for name, part in module.state_dict().items())


def test_later_steps_see_the_moved_network():
    held = prepared(steps=2, step_size=0.5, epsilon=None)
    still = prepared(steps=2, step_size=STILL, epsilon=None)
    assert not np.allclose(held._draw_numbers(), still._draw_numbers(), rtol=0.05)
    again = prepared(steps=2, step_size=0.5, epsilon=None)
    assert np.array_equal(held._draw_numbers(), again._draw_numbers())


@pytest.mark.parametrize("rate", [1.0, 0.25])
def test_a_release_says_its_steps_and_is_read_again(rate):
    data, labels = records()
    release = specify(
        labels, data, ReplacedRecord(epsilon=1.0), LabelCodes(steps=4, sampling_rate=rate),
        about=ABOUT, backbone=network(), space=SUBSPACE,
    )  # fmt: skip
    expected = StepSchedule(steps=4, sampling_rate=rate)
    assert load(release.to_dict()).details.schedule == release.details.schedule == expected
    assert "4 steps" in " ".join(release.notes)
    text = release.to_dict()
    text["details"]["schedule"]["steps"] = 3
    with pytest.raises(ValueError, match="guarantees: expected what the noise certifies"):
        load(text)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"steps": 0}, "steps"),
        ({"steps": 1.5}, "steps"),
        ({"sampling_rate": 0.0}, "sampling_rate"),
        ({"sampling_rate": float("nan")}, "sampling_rate"),
        ({"sampling_rate": 1.01}, "sampling_rate"),
        ({"step_size": -1.0}, "step_size"),
        ({"step_size": float("inf")}, "step_size"),
    ],
)
def test_a_schedule_out_of_range_is_refused(changes, message):
    with pytest.raises(ValueError, match=message):
        LabelCodes(**changes)
    with pytest.raises(ValueError, match=message):
        StepSchedule(**changes)


@pytest.mark.parametrize("objective", [ClassScatter, FeatureMean])
def test_what_moves_no_network_takes_one_step(objective):
    assert objective().schedule.single
    with pytest.raises(TypeError, match="steps"):
        objective(steps=2)


def test_an_interrupted_step_leaves_the_weights_as_they_were():
    held = load_backbone(network())
    before = held.module[0].weight.clone()

    def interrupted():
        with change_weights(held, {"0": torch.ones(8, 6)}):
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert torch.equal(held.module[0].weight, before)


@pytest.mark.parametrize(
    "made",
    [torch.nn.utils.parametrizations.weight_norm, torch.nn.utils.parametrizations.spectral_norm],
)
def test_a_weight_that_is_made_of_others_is_not_moved_in_silence(made):
    def specified(steps):
        module = network()
        made(module[0])
        data, labels = records()
        return prepare_specification(
            labels, data, ReplacedRecord(epsilon=1.0), LabelCodes(steps=steps, clip=1.0),
            about=ABOUT, backbone=module, space=SharedFactors(),
        )  # fmt: skip

    with pytest.raises(ValueError, match=r"backbone: .* steps can move, got 0, whose weight"):
        specified(3)
    # of one step no weight moves
    assert specified(1).asked.schedule.single
