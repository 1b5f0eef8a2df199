"""Sources with budgets: what is trained, certified, measured and refused."""

import copy

import numpy as np
import pytest
import torch
from scipy import stats

from tacit import Ledger, Run
from tacit.training import (
    Beside,
    Indistinguishable,
    References,
    Retraining,
    SourcedExamples,
    TrainingRecipe,
    prepare_contribution,
)
from tacit.training.retraining import best_threshold, mean_of
from tacit.training.sourced_examples import EpochSchedule

SOURCES = ("Ada", "Bob", "Cem")


def loss(model, inputs, classes):
    return torch.nn.functional.cross_entropy(model(inputs), classes, reduction="none")


def optimizer(parameters):
    return torch.optim.SGD(parameters, lr=0.5, momentum=0.9)


def task(flipped=None):
    """Two classes by one direction, three sources; one of them may have its labels turned."""
    torch.manual_seed(0)
    inputs = torch.randn(120, 4, dtype=torch.float64)
    classes = (inputs[:, 0] > 0).long()
    sources = [SOURCES[i % 3] for i in range(90)]
    data = classes[:90].clone()
    if flipped is not None:
        theirs = torch.tensor([name == flipped for name in sources])
        data = torch.where(theirs, 1 - data, data)
    return torch.nn.Linear(4, 2).double(), (inputs[:90], data), sources, (inputs[90:], classes[90:])


def asked(model, data, sources, held_out, **options):
    """A prepared training from flat settings; nothing is trained again where nothing is said."""

    def some(*names):
        return {name: options.pop(name) for name in names if name in options}

    options = {
        "loss": loss, "optimizer": optimizer, "epsilon": 4.0, "delta": 1e-5, "influence": 0,
        "attacked": 0, "passes": 1, **options,
    }  # fmt: skip
    return prepare_contribution(
        TrainingRecipe(model=model, **some("optimizer", "loss")),
        SourcedExamples(data=data, sources=sources, held_out=held_out, **some("batch")),
        Beside(**some("epsilon", "delta")),
        Run(progress=False, **some("passes", "checkpoint")),
        retraining=Retraining(**some("influence", "attacked")),
        **options,
    )


def prepared(flipped=None, **options):
    model, data, sources, held_out = task(flipped)
    held_out = options.pop("held_out", held_out)
    return model, asked(model, data, sources, held_out, batch=30, **options)


def test_every_example_comes_once_a_pass_in_an_order_of_its_own():
    schedule = EpochSchedule(count=11, batch=4, passes=2, order=3)
    turns = [np.concatenate([schedule.examples(t * 3 + i) for i in range(3)]) for t in range(2)]
    assert schedule.rounds == 6
    assert all(sorted(turn.tolist()) == list(range(11)) for turn in turns)
    assert turns[0].tolist() != turns[1].tolist()
    groups = np.array([0] * 10 + [1])
    assert schedule.participations(groups) == 6
    assert schedule.participations(-groups) == 2 * 3


def test_the_budget_of_each_source_is_its_own_and_told_before():
    budgets = {"Ada": 4.0, "Bob": 1.0, "Cem": 2.0}
    model, found = prepared(epsilon=budgets)
    before = copy.deepcopy(model.state_dict())
    told = found.guarantees
    assert all(torch.equal(before[name], value) for name, value in model.state_dict().items())
    release = found.draw()
    assert release.guarantees == told
    assert release.details.references == ("without Ada", "without Bob", "without Cem")
    alone = prepared(epsilon=1.0)[1].guarantees[0].success
    assert alone < release.guarantees[0].success
    assert release.details.squared[1] < release.details.squared[2] < release.details.squared[0]
    with pytest.raises(ValueError, match="drawn already"):
        found.draw()


def test_noise_and_batches_are_those_of_the_loop_by_hand():
    model, found = prepared(rng=5, passes=2)
    hand = copy.deepcopy(model)
    found.draw()
    inputs, classes = task()[1]
    groups = np.arange(90) % 3
    schedule = EpochSchedule(count=90, batch=30, passes=2, order=0)
    beside = Beside(references=References.leave_out(SOURCES), epsilon=4.0, delta=1e-5)
    run = Indistinguishable(
        hand, optimizer(hand.parameters()), beside, loss=loss, run=Run(steps=6), rng=5
    )
    for number in range(6):
        chosen = schedule.examples(number)
        run.step((inputs[chosen], classes[chosen]), groups[chosen])
    for one, other in zip(model.parameters(), hand.parameters(), strict=True):
        assert torch.equal(one, other)


def test_what_was_checked_is_what_is_trained_on():
    """Examples that change after `prepare` are not those of the certificate."""
    found = []
    for changed in (False, True):
        model, data, sources, held_out = task()
        prepared_run = asked(model, data, sources, held_out, batch=30, rng=5)
        if changed:
            data[0].fill_(3.0)
            data[1].fill_(0)
            sources.reverse()
        prepared_run.draw()
        found.append(model.weight.detach().clone())
    assert torch.equal(*found)


def test_a_source_that_lies_has_negative_influence_and_less_with_noise():
    _, found = prepared("Bob", influence=3, passes=4, epsilon=1.0)
    use = {one.name: one.measured for one in found.draw().use}
    plain = use["influence of Bob without noise"]
    assert plain.high < 0.0
    assert use["influence of Ada without noise"].low > 0.0
    assert "held-out accuracy" in use


def test_influence_without_noise_is_that_of_two_trainings():
    _, found = prepared(influence=2)
    use = {one.name: one.measured.value for one in found.draw().use}
    model, (inputs, classes), _, held_out = task()
    scores = []
    for left_out in (None, 2):
        one = copy.deepcopy(model)
        steps = optimizer(one.parameters())
        for number in range(3):
            chosen = EpochSchedule(count=90, batch=30, passes=1, order=0).examples(number)
            weights = torch.from_numpy((chosen % 3 != (-1 if left_out is None else left_out)) / 30)
            steps.zero_grad()
            (loss(one, inputs[chosen], classes[chosen]) * weights).sum().backward()
            steps.step()
        scores.append(-float(loss(one, *held_out).mean().detach()))
    expected = scores[0] - scores[1]
    assert use["influence of Cem without noise"] == pytest.approx(expected, rel=1e-9)


def test_the_attack_is_no_better_than_the_certificate():
    _, found = prepared(attacked=8, epsilon=1.0)
    release = found.draw()
    (attack,) = release.attacks
    assert attack.trials == 8
    assert attack.task == release.guarantees[0].task
    assert attack.success.low <= release.guarantees[0].success


def test_an_attack_on_a_run_without_noise_to_speak_of_wins():
    _, found = prepared("Bob", attacked=12, epsilon=1e4)
    release = found.draw()
    assert release.attacks[0].success.value > 0.8


def test_a_refusal_of_the_ledger_leaves_the_run_to_be_drawn(tmp_path):
    book = Ledger(tmp_path / "book.db")
    book.set_budget("sources", mu=0.1)
    _, found = prepared()
    with pytest.raises(ValueError, match="budget"):
        found.draw(ledger=book, secret="sources")
    assert found.draw().details.rounds == 3


def test_a_run_goes_on_from_its_checkpoint(tmp_path):
    book = Ledger(tmp_path / "book.db")
    _, whole = prepared(checkpoint=tmp_path / "run")
    torn = whole.run.begin(ledger=book, secret="s")
    inputs, classes = task()[1]
    chosen = EpochSchedule(count=90, batch=30, passes=1, order=0).examples(0)
    torn.step((inputs[chosen], classes[chosen]), chosen % 3)
    release = prepared(checkpoint=tmp_path / "run")[1].draw(ledger=book, secret="s")
    assert release.details.rounds == 3
    assert max(book.spent("s").gaussian.values()) == pytest.approx(
        float(np.sqrt(release.details.squared.max())), rel=1e-9
    )


def test_the_interval_of_a_mean_is_students():
    values = np.array([1.0, 2.0, 4.0])
    found = mean_of(values)
    expected = stats.t.interval(0.95, 2, loc=7 / 3, scale=stats.sem(values))
    assert (found.low, found.high) == pytest.approx(expected)


def test_the_best_threshold_parts_two_samples_either_way():
    low, high = np.array([1.0, 2.0]), np.array([3.0, 4.0])
    assert best_threshold(low, high) == (2.5, True)
    assert best_threshold(high, low) == (2.5, False)


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"epsilon": {"Ada": 1.0, "Bob": 1.0}}, "epsilon: expected every source, got none for 1"),
        ({"epsilon": {"Zoe": 1.0}}, "epsilon: expected every source, got none for"),
        ({"epsilon": -1.0}, "epsilon"),
        ({"delta": 1.0}, "delta"),
        ({"passes": 0}, "passes: expected"),
        ({"batch": 0}, "batch: expected"),
        ({"influence": 1}, "influence: expected"),
        ({"attacked": 5}, "attacked: expected 0, or an even number"),
        ({"optimizer": None}, "optimizer: expected a function"),
        ({"held_out": (torch.randn(3, 4), torch.zeros(2))}, "held_out: expected a target"),
        (
            {"held_out": (torch.full((2, 4), float("nan")), torch.zeros(2))},
            "held_out: expected fin",
        ),
    ],
)
def test_bad_arguments_are_named(options, sentence):
    model, data, sources, held_out = task()
    with pytest.raises(ValueError, match=sentence):
        asked(model, data, sources, **{"held_out": held_out, **options})


def test_sources_must_be_two_and_one_an_example():
    model, data, sources, held_out = task()
    for names, sentence in ((["Ada"] * 90, "at least 2"), (sources[:-1], "expected 90 names")):
        with pytest.raises(ValueError, match=f"sources: .*{sentence}"):
            asked(model, data, names, held_out)


def test_what_cannot_be_measured_is_refused_before_anything_is_spent(tmp_path):
    book = Ledger(tmp_path / "book.db")
    inputs, classes = task()[3]
    for held_out in ((inputs, classes + 5), (inputs[:, :3], classes), (inputs[:1], classes[:1])):
        with pytest.raises(ValueError, match="held_out: expected"):
            prepared(held_out=held_out)
    assert book.spent("s").releases == 0


def test_sources_that_differ_in_a_trailing_zero_are_two():
    model, data, _, held_out = task()
    found = asked(model, data, ["A", "A\0"] * 45, held_out)
    assert len(found.draw().details.references) == 2


def test_the_loosest_of_many_sources_is_always_told():
    model, data, _, held_out = task()
    names = [f"s{i % 25:02}" for i in range(90)]
    budgets = {name: 8.0 if name == "s24" else 0.1 for name in names}
    found = asked(model, data, names, held_out, epsilon=budgets).draw()
    (said,) = [note for note in found.remarks if "share of right answers" in note]
    assert said.split("(2Φ(μ/2) − 1): ")[1].startswith("s24 ")
    assert "5 more, at most" in said


@pytest.mark.parametrize("epsilon", [None, "a", {"Ada": "x", "Bob": 1, "Cem": 1}])
def test_an_epsilon_that_is_no_number_is_named(epsilon):
    with pytest.raises(ValueError, match="epsilon"):
        prepared(epsilon=epsilon)
