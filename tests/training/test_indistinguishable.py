"""Rounds of training: what they change, what they cost, what they refuse."""

import json

import numpy as np
import pytest
import torch

from tacit.accounting import gaussian_shift
from tacit.ledger import Ledger
from tacit.releases import Release, load
from tacit.releases.kinds import kind_named
from tacit.training import LocalSteps, References, ReferenceSpentError, local_differences

from .runs import flat, gradients, made, run_of, squares, task


@pytest.mark.parametrize("gram", ["exact", "forward", "none"])
def test_the_update_is_the_mean_gradient_and_noise_in_the_span_of_the_differences(gram):
    model, inputs, targets = task()
    rows = gradients(model, inputs, targets)
    groups = np.arange(10) % 5
    before = flat(model)
    run_of(model, gram=gram).step((inputs, targets), groups)
    noise = before - flat(model) - rows.mean(axis=0)
    differences = np.array([rows[groups == g].sum(axis=0) for g in range(5)]) / 10
    rest = noise - np.linalg.lstsq(differences.T, noise, rcond=None)[0] @ differences
    assert np.linalg.norm(noise) > 0.0
    assert np.linalg.norm(rest) < 1e-10 * np.linalg.norm(noise)


def test_without_references_in_a_batch_the_step_is_an_ordinary_one():
    model, inputs, targets = task()
    mean = gradients(model, inputs, targets).mean(axis=0)
    before, run = flat(model), run_of(model)
    run.step((inputs, targets), np.full(10, -1))
    assert np.allclose(before - flat(model), mean, rtol=1e-12, atol=1e-14)
    assert (run.left() == run.left().max()).all()


def test_what_a_coin_left_out_is_covered_and_not_learned():
    model, inputs, targets = task()
    rows = gradients(model, inputs, targets)
    inside = np.arange(10) % 2 == 0
    start, total = flat(model), np.zeros_like(flat(model))
    run = run_of(model, count=10, rounds=400, mu=400.0, rng=1)
    for _ in range(400):
        run.step((inputs, targets), range(10), inside=inside)
        total += start - flat(model)
        torch.nn.utils.vector_to_parameters(torch.from_numpy(start.copy()), model.parameters())
    learned = rows[inside].sum(axis=0) / 10
    # sd of the mean of 400 draws of noise with z'Σ⁻¹z <= 400, along each difference
    off = total / 400 - learned
    whole = np.linalg.norm(rows, axis=1).max() / 10
    assert np.linalg.norm(off) < 6 * np.sqrt(10) * whole / np.sqrt(400 * 400)
    with pytest.raises(ReferenceSpentError):
        run.step((inputs, targets), range(10), inside=inside)


def test_it_stops_before_a_reference_overruns_and_draws_nothing():
    model, inputs, targets = task()
    run = run_of(model, rounds=9, participations=2)
    groups = np.array([0, 0, 1, 1, 2, 2, 3, 3, -1, -1])
    run.step((inputs, targets), groups)
    run.step((inputs, targets), groups)
    before = flat(model)
    with pytest.raises(ReferenceSpentError, match=r"'without example 0'.*2 rounds"):
        run.step((inputs, targets), groups)
    assert (flat(model) == before).all()
    run.step((inputs[8:], targets[8:]), np.array([4, 4]))
    assert run.rounds == 3
    assert run.left()[:4].max() < 1e-12
    assert run.left()[4] == pytest.approx(0.5)


def test_any_outcome_is_replaced_by_itself_and_noise():
    model, _, _ = task()
    start = flat(model)
    moves = np.eye(5, start.size)
    run = made(model, None, References.subsets(list("abcde")), loss=squares, mu=2.0, rounds=3)
    run.replace(lambda r: start + (0.0 if r is None else moves[r]))
    noise = flat(model) - start
    assert np.abs(noise[5:]).max() < 1e-12
    assert np.abs(noise[:5]).min() > 0.0
    with pytest.raises(ValueError, match=r"outcome\(2\)"):
        run.replace(lambda r: start * (np.nan if r == 2 else 1.0))
    assert run.rounds == 1


def test_the_certificate_is_the_whole_budget_of_each_reference():
    model, inputs, targets = task()
    run = run_of(model, mu=None, epsilon=[1.0, 2.0, 2.0, 4.0, 0.5], delta=1e-5)
    run.step((inputs, targets), np.arange(10) % 5)
    release = run.release("a toy")
    divergence = release.guarantees[2]
    assert divergence.divergence[1] == pytest.approx(4.0, rel=1e-6)
    assert max(divergence.bounds) <= 1e-5 * (1 + 1e-6)
    for squared, epsilon in zip(release.details.squared, [1.0, 2.0, 2.0, 4.0, 0.5], strict=True):
        assert gaussian_shift(np.sqrt(squared)).epsilon(1e-5) == pytest.approx(epsilon, rel=1e-6)
    assert "privacy" in kind_named(release.kind).caution
    stored = json.loads(json.dumps(release.to_dict()))
    assert Release.from_dict(stored) == release == load(stored)
    public = release.public()
    assert (public.details.taken, public.details.energy, public.remarks) == (None, None, ())
    assert load(public.to_dict()).guarantees == release.guarantees


def test_a_ledger_has_the_whole_run_before_its_first_round(tmp_path):
    ledger = Ledger(tmp_path / "ledger.db")
    names = [f"without example {i}" for i in range(5)]
    for place, name in enumerate(names):
        ledger.set_budget(name, mu=1.5 if place else 0.5)
    model, inputs, targets = task()
    run = run_of(model, ledger=ledger, secret={name: name for name in names})
    before = flat(model)
    with pytest.raises(ValueError, match="without example 0"):
        run.step((inputs, targets), np.arange(10) % 5)
    assert (flat(model) == before).all()
    assert run.rounds == 0
    ledger.set_budget(names[0], mu=1.5)
    run.step((inputs, targets), np.arange(10) % 5)
    run.release()
    assert {ledger.spent(name).open for name in names} == {0}


class Buffered(torch.nn.Module):
    """Counts its examples in a buffer."""

    def __init__(self):
        super().__init__()
        self.inner = torch.nn.Linear(4, 3).double()
        self.register_buffer("seen", torch.zeros(()))

    def forward(self, inputs):
        self.seen += inputs.sum()
        return self.inner(inputs)


def refused(model, said, *, targets=None, **options):
    _, inputs, given = task()
    run = run_of(model, **options)
    before = flat(model)
    with pytest.raises(ValueError, match=said):
        run.step((inputs, given if targets is None else targets), np.arange(10) % 5)
    assert run.rounds == 0
    assert (run.left() == run.left().max()).all()
    assert (flat(model) == before).all()


def test_a_buffer_that_the_forward_pass_writes_is_refused():
    refused(Buffered(), "seen")


@pytest.mark.parametrize("gram", ["exact", "forward", "none"])
def test_nothing_is_spent_on_losses_that_are_not_finite(gram):
    model, _, targets = task()
    targets[3, 1] = torch.nan
    refused(model, "loss", targets=targets, gram=gram)


@pytest.mark.parametrize("gram", ["exact", "forward", "none"])
def test_nothing_is_spent_on_a_gradient_that_is_not_finite(gram):
    model, inputs, targets = task()

    def roots(module, x, y):
        found = squares(module, x, y)
        return torch.sqrt(found - found.detach())

    run = made(
        model, torch.optim.SGD(model.parameters(), lr=1.0), References.leave_out(5),
        loss=roots, mu=1.0, rounds=3, gram=gram,
    )  # fmt: skip
    before = flat(model)
    with pytest.raises(ValueError, match="finite"):
        run.step((inputs, targets), np.arange(10) % 5)
    assert (flat(model) == before).all()
    assert (run.left() == 1.0).all() or run.left().min() > 0.999999
    assert all(p.grad is None for p in model.parameters())


def test_a_parameter_without_a_gradient_is_named():
    model, _, _ = task()
    model.register_parameter("idle", torch.nn.Parameter(torch.zeros(2, dtype=torch.float64)))
    refused(model, "idle")


def test_batch_normalisation_is_refused_by_name():
    model = torch.nn.Sequential(torch.nn.Linear(4, 3), torch.nn.BatchNorm1d(3)).double()
    refused(model, "BatchNorm1d")


def test_frozen_foreign_and_forgotten_parameters_of_the_optimiser_are_named():
    model, _, _ = task()
    other = torch.nn.Linear(2, 2)

    def of(parameters):
        return made(
            model, torch.optim.SGD(parameters, lr=1.0), References.leave_out(2),
            loss=squares, mu=1.0, rounds=1,
        )  # fmt: skip

    with pytest.raises(ValueError, match="another's"):
        of([*model.parameters(), *other.parameters()])
    with pytest.raises(ValueError, match=r"'2\.bias'"):
        of(list(model.parameters())[:-1])
    model[2].bias.requires_grad_(False)
    with pytest.raises(ValueError, match=r"frozen '2\.bias'"):
        of(model.parameters())


@pytest.mark.parametrize(
    "options",
    [
        {"mu": None}, {"mu": 1.0, "epsilon": 1.0, "delta": 1e-5}, {"mu": None, "epsilon": 1.0},
        {"mu": 0.0}, {"mu": [1.0, 2.0]}, {"mu": float("nan")}, {"gram": "some"}, {"rounds": 0},
        {"participations": 0}, {"rng": -1}, {"ledger": object(), "secret": "a"}, {"secret": "a"},
    ],
)  # fmt: skip
def test_bad_arguments_are_refused(options):
    with pytest.raises(ValueError, match=r"mu|gram|steps|participations|rng|ledger"):
        run_of(task()[0], **options)


@pytest.mark.parametrize("groups", [1, 5])
def test_local_steps_are_those_of_the_optimiser_and_noise_in_the_span(groups):
    model, inputs, targets = task()
    start, names = flat(model), np.arange(10) % 5
    local = LocalSteps(
        steps=3, optimizer=lambda p: torch.optim.SGD(p, lr=0.1), groups=groups, way="loop"
    )
    kept = names != np.arange(5)[:, None]
    found = local_differences(model, squares, inputs, targets, kept, local)
    run = made(model, None, References.leave_out(5), loss=squares, mu=2.0, rounds=3, local=local)
    run.step((inputs, targets), names)
    noise = flat(model) - np.asarray(found.parameters, dtype=float)
    rest = noise - np.linalg.lstsq(found.differences.T, noise, rcond=None)[0] @ found.differences
    assert np.linalg.norm(noise) > 0.0
    # what is left is the rounding to the grid, 2⁻²⁰ of deviations that the differences set
    assert np.linalg.norm(rest) < 2.0**-20 * np.linalg.norm(found.differences)
    assert not np.allclose(found.parameters, start)
    assert run.release().method == "3 local steps"


def test_isotropic_noise_covers_a_group_whose_gradients_cancel():
    model = torch.nn.Linear(3, 1, bias=False)
    inputs = torch.full((8, 3), 1e-3)
    inputs[0] = 1e4 * torch.tensor([1.0, 0.7, 0.3])
    inputs[1] = -inputs[0] + torch.tensor([0.0, 0.1, 0.2])
    groups = np.array([0, 0, 1, 2, 3, 4, 5, 6])
    start, found, draws = flat(model), [], 400
    run = made(
        model, torch.optim.SGD(model.parameters(), lr=1.0), References.leave_out(7),
        loss=lambda module, x, _: module(x)[:, 0], mu=np.sqrt(draws), rounds=draws,
        noise="isotropic", rng=1,
    )  # fmt: skip
    for _ in range(draws):
        run.step((inputs, inputs), groups)
        found.append(flat(model) - start)
        torch.nn.utils.vector_to_parameters(torch.from_numpy(start.copy()), model.parameters())
    moved = (inputs[0].double() + inputs[1].double()).numpy() / 8
    assert moved @ np.linalg.solve(np.cov(np.array(found).T), moved) <= 1.3


class Written(torch.nn.Module):
    """Writes what it sees into a parameter, in one of three ways."""

    def __init__(self, way):
        super().__init__()
        self.way = way
        self.embedding = torch.nn.Embedding(10, 4, max_norm=0.5)
        self.embedding.weight.requires_grad_(False)
        self.seen = torch.nn.Parameter(torch.zeros(4), requires_grad=False)
        self.inner = torch.nn.Linear(4, 3)

    def forward(self, inputs):
        if self.way == "data":
            self.inner.bias.data.copy_(inputs.mean() * torch.ones(3))
        if self.way == "frozen":
            self.seen.data += inputs.sum()
        if self.way == "norm":
            return self.inner(self.embedding(inputs[:, 0].long().abs() % 10) + inputs)
        return self.inner(inputs)


@pytest.mark.parametrize("gram", ["exact", "none"])
@pytest.mark.parametrize("way", ["data", "frozen", "norm"])
def test_what_the_forward_pass_writes_is_refused_and_put_back(way, gram):
    _, inputs, targets = task()
    torch.manual_seed(0)
    model = Written(way)
    before = {name: value.clone() for name, value in model.state_dict().items()}
    run = made(
        model,
        torch.optim.SGD([p for p in model.parameters() if p.requires_grad], lr=1.0),
        References.leave_out(5), loss=squares, mu=1.0, rounds=3, gram=gram,
    )  # fmt: skip
    with pytest.raises(ValueError, match=r"changed|max_norm|off|buffer"):
        run.step((inputs.float(), targets.float()), np.arange(10) % 5)
    assert all(torch.equal(before[name], value) for name, value in model.state_dict().items())


def test_half_precision_is_refused():
    with pytest.raises(ValueError, match="bfloat16"):
        run_of(task()[0].to(torch.bfloat16))


def test_a_gradient_left_over_is_not_applied():
    model, inputs, targets = task()
    run = run_of(model)
    squares(model, inputs, targets).sum().backward()
    model[0].requires_grad_(False)
    before = flat(model)
    with pytest.raises(ValueError, match="frozen"):
        run.step((inputs, targets), np.arange(10) % 5)
    assert (flat(model) == before).all()


@pytest.mark.parametrize("rate", [0.0, 0.2])
def test_weights_that_share_a_batch_are_found_beside_dropout(rate):
    model, inputs, targets = task()
    model.append(torch.nn.Dropout(rate))
    weights = torch.linspace(0.1, 3.0, 10, dtype=torch.float64)

    def shared(module, x, y):
        return squares(module, x, y[:, :3]) * y[:, 3] / y[:, 3].sum()

    run = made(
        model, torch.optim.SGD(model.parameters(), lr=1.0), References.leave_out(5),
        loss=shared, mu=1.0, rounds=3,
    )  # fmt: skip
    with pytest.raises(ValueError, match=r"share"):
        run.step((inputs, torch.cat([targets, weights[:, None]], dim=1)), np.arange(10) % 5)


def test_self_attention_with_dropout_is_trained():
    torch.manual_seed(0)
    layer = torch.nn.TransformerEncoderLayer(8, 2, 16, dropout=0.1, batch_first=True)
    inputs = torch.randn(6, 5, 8)
    run = made(
        layer, torch.optim.SGD(layer.parameters(), lr=0.1), References.leave_out(6),
        loss=lambda module, x, y: (module(x) - y).square().mean(dim=(1, 2)), mu=1.0, rounds=2,
    )  # fmt: skip
    assert run.step((inputs, inputs), range(6)).number == 1
    assert layer.training


def test_statistics_that_an_outcome_leaves_are_refused():
    model = torch.nn.Sequential(torch.nn.Linear(4, 3), torch.nn.BatchNorm1d(3))
    run = made(model, None, References.leave_out(2), loss=squares, mu=1.0, rounds=2)

    def trained(_):
        model(torch.randn(6, 4))
        return {name: p.detach().clone() for name, p in model.named_parameters()}

    with pytest.raises(ValueError, match="running_mean"):
        run.replace(trained)
    assert (model[1].running_mean == 0).all()


def test_a_refused_ledger_gives_back_what_it_reserved(tmp_path):
    ledger = Ledger(tmp_path / "ledger.db")
    names = [f"without example {i}" for i in range(5)]
    for place, name in enumerate(names):
        ledger.set_budget(name, mu=0.5 if place == 3 else 1.5)
    model, inputs, targets = task()
    run = run_of(model, ledger=ledger, secret={name: name for name in names})
    for _ in range(3):
        with pytest.raises(ValueError, match="without example 3"):
            run.step((inputs, targets), np.arange(10) % 5)
    ledger.set_budget(names[3], mu=1.5)
    run.step((inputs, targets), np.arange(10) % 5)
    run.release()


@pytest.mark.parametrize("given", [{"y": None}, (None,), None])
def test_targets_are_whatever_the_loss_reads(given):
    model, inputs, targets = task()
    targeted = {"y": targets} if isinstance(given, dict) else (targets,) if given else None

    def loss(module, x, y):
        return squares(module, x, targets if y is None else y["y"] if "y" in y else y[0])

    run = made(
        model, torch.optim.SGD(model.parameters(), lr=0.1), References.leave_out(5),
        loss=loss if targeted is not None else lambda m, x, _: m(x).square().sum(dim=1),
        mu=1.0, rounds=3,
    )  # fmt: skip
    assert run.step((inputs, targeted), torch.arange(10) % 5).number == 1


@pytest.mark.parametrize("membership", [3, None, [[0, 1], [2]], "abc", {}])
def test_membership_of_another_kind_is_named(membership):
    model, inputs, targets = task()
    with pytest.raises(ValueError, match="membership"):
        run_of(model).step((inputs, targets), membership)


def test_a_learning_rate_of_zero_is_refused():
    model, inputs, targets = task()
    run = run_of(model)
    run.optimizer.param_groups[0]["lr"] = 0.0
    with pytest.raises(ValueError, match="learning rate"):
        run.step((inputs, targets), np.arange(10) % 5)
    assert run.left().min() > 0.999999
