"""Local steps beside the naive computation: every way, every optimiser, all corners."""

import copy
import math

import numpy as np
import pytest
import torch

from tacit.training import LocalSteps, local_differences

from .problems import OPTIMIZERS, naive, problem

LEAVE_ONE_OUT = ~np.eye(8, dtype=bool)
WAYS = ["vmap", "processes", "loop"]


def found_by(parts, membership, optimizer="momentum", **options):
    factory = OPTIMIZERS.get(optimizer, optimizer)
    named = {"steps": 3, "optimizer": factory, **options}
    return local_differences(*parts, membership, LocalSteps(**named))


def assert_close(found, exact, scale=1e-10):
    assert found.shape == exact.shape
    assert np.abs(found - exact).max() <= scale * np.abs(exact).max()


@pytest.mark.parametrize("way", ["vmap", "loop"])
@pytest.mark.parametrize("groups", [1, 3])
@pytest.mark.parametrize("optimizer", OPTIMIZERS)
@pytest.mark.parametrize("kind", ["cnn", "transformer"])
def test_every_way_gives_the_naive_differences(kind, optimizer, groups, way):
    parts = problem(kind)
    found = found_by(parts, LEAVE_ONE_OUT, optimizer, groups=groups, way=way)
    real, differences = naive(*parts, LEAVE_ONE_OUT, 3, OPTIMIZERS[optimizer], groups)
    assert found.way == way
    assert_close(found.parameters.numpy(), real)
    # Adam divides by the root of a squared gradient, which may be all rounding
    assert_close(found.differences, differences, 1e-7 if "adam" in optimizer else 1e-9)
    assert found.runs == 8
    assert np.abs(found.differences).max(axis=1).min() > 0.0


def test_processes_give_the_bits_of_the_loop():
    parts = problem("cnn")
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        loop = found_by(parts, LEAVE_ONE_OUT, way="loop")
        processes = found_by(parts, LEAVE_ONE_OUT, way="processes")
    finally:
        torch.set_num_threads(threads)
    assert processes.way == "processes"
    assert np.array_equal(loop.differences, processes.differences)


@pytest.mark.parametrize("way", ["vmap", "loop"])
def test_float32_stays_near_float64(way):
    exact = found_by(problem("cnn"), LEAVE_ONE_OUT, "sgd", way="loop")
    model, loss, inputs, targets = problem("cnn")
    parts = (model.float(), loss, inputs.float(), targets)
    found = found_by(parts, LEAVE_ONE_OUT, "sgd", way=way)
    assert found.differences.dtype == np.float64
    assert_close(found.differences, exact.differences, 1e-4)


@pytest.mark.parametrize("way", ["vmap", "loop"])
@pytest.mark.parametrize("groups", [1, 4])
def test_arbitrary_subsets_nothing_and_everything(way, groups):
    source = np.random.default_rng(0)
    membership = source.random((6, 8)) < 0.6
    membership[0], membership[1], membership[5] = True, False, membership[4]
    parts = problem("cnn")
    found = found_by(parts, membership, groups=groups, way=way)
    real, differences = naive(*parts, membership, 3, OPTIMIZERS["momentum"], groups)
    assert_close(found.parameters.numpy(), real)
    assert_close(found.differences, differences, 1e-9)
    assert not found.differences[0].any()
    begun = torch.cat([p.detach().reshape(-1) for p in parts[0].parameters()]).numpy()
    assert_close(found.differences[1], begun - real)
    assert np.array_equal(found.differences[4], found.differences[5])
    if groups == 1:
        assert found.runs == 4


@pytest.mark.parametrize("way", ["auto", *WAYS])
def test_references_that_are_all_equal_to_the_batch_cost_nothing(way):
    found = found_by(problem("cnn"), np.ones((5, 8), dtype=bool), way=way)
    assert found.differences.shape == (5, found.parameters.numel())
    assert not found.differences.any()
    assert found.runs == 0


def test_the_way_is_chosen_by_what_the_model_allows():
    assert found_by(problem("transformer"), LEAVE_ONE_OUT).way == "vmap"
    assert found_by(problem("cnn"), LEAVE_ONE_OUT).way == "processes"


class Neighbours(torch.nn.Module):
    """Every example is told the mean of its batch."""

    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.ones(3, dtype=torch.float64))

    def forward(self, inputs):
        return (inputs + 0.01 * inputs.mean(dim=0)) @ self.weight


def test_a_model_that_mixes_examples_is_run_on_the_subsets():
    torch.manual_seed(0)
    inputs, targets = torch.randn(8, 3).double(), torch.randn(8).double()
    parts = (Neighbours(), lambda m, x, y: (m(x) - y).square(), inputs, targets)
    found = found_by(parts, LEAVE_ONE_OUT)
    assert found.way == "processes"
    assert_close(found.differences, naive(*parts, LEAVE_ONE_OUT, 3, OPTIMIZERS["momentum"])[1])


def test_one_example_of_one_group_reruns_its_group_alone():
    membership = np.ones((1, 8), dtype=bool)
    membership[0, 5] = False
    parts = problem("transformer")
    found = found_by(parts, membership, groups=4, way="loop")
    assert found.runs == 1
    assert_close(found.differences, naive(*parts, membership, 3, OPTIMIZERS["momentum"], 4)[1])


def test_batch_normalisation_is_trained_on_the_subsets_and_its_statistics_stay():
    parts = problem("batch norm")
    before = copy.deepcopy(parts[0].state_dict())
    found = found_by(parts, LEAVE_ONE_OUT, "sgd", way="auto")
    assert found.way == "processes"
    real, differences = naive(*parts, LEAVE_ONE_OUT, 3, OPTIMIZERS["sgd"])
    assert_close(found.parameters.numpy(), real)
    assert_close(found.differences, differences, 1e-9)
    for name, value in parts[0].state_dict().items():
        assert torch.equal(value, before[name]), name
    with pytest.raises(ValueError, match="'vmap' can run, but the model mixes examples"):
        found_by(parts, LEAVE_ONE_OUT, way="vmap")


@pytest.mark.parametrize("groups", [1, 2])
def test_dropout_draws_from_the_same_seed_in_every_run(groups):
    parts = problem("dropout")
    torch.manual_seed(7)
    state = torch.get_rng_state()
    found = found_by(parts, LEAVE_ONE_OUT, "sgd", way="loop", groups=groups)
    after = torch.get_rng_state()
    assert not torch.equal(after, state)
    torch.set_rng_state(state)
    again = found_by(parts, LEAVE_ONE_OUT, "sgd", way="processes", groups=groups)
    assert torch.equal(torch.get_rng_state(), after)
    assert_close(again.differences, found.differences)
    following = found_by(parts, LEAVE_ONE_OUT, "sgd", way="loop", groups=groups)
    assert not np.allclose(following.parameters, found.parameters)
    if groups == 1:
        torch.set_rng_state(state)
        real, differences = naive(*parts, LEAVE_ONE_OUT, 3, OPTIMIZERS["sgd"])
        assert_close(found.parameters.numpy(), real)
        assert_close(found.differences, differences, 1e-9)
    assert found_by(parts, LEAVE_ONE_OUT, way="auto").way == "processes"
    with pytest.raises(ValueError, match="the model draws random numbers"):
        found_by(parts, LEAVE_ONE_OUT, way="vmap")


def test_the_model_is_left_alone_and_frozen_parts_stay():
    model, loss, inputs, targets = problem("cnn")
    model[0].weight.requires_grad_(False)
    model[2].weight.grad = torch.ones_like(model[2].weight)
    before = copy.deepcopy(model.state_dict())
    for way in WAYS:
        parts = (model, loss, inputs, targets)
        found = found_by(parts, LEAVE_ONE_OUT, "adam", steps=2, way=way)
        assert "0.weight" not in found.names
        assert found.names == tuple(n for n, p in model.named_parameters() if p.requires_grad)
        assert found.parameters.numel() == sum(
            p.numel() for p in model.parameters() if p.requires_grad
        )
        assert all(torch.equal(v, before[n]) for n, v in model.state_dict().items())
        assert torch.equal(model[2].weight.grad, torch.ones_like(model[2].weight))
        assert model.training
        with pytest.raises(ValueError, match="read-only"):
            found.differences[0, 0] = 1.0


def test_a_factory_that_reads_shapes_is_not_stacked():
    def factory(parameters):
        many = list(parameters)
        decayed = [p for p in many if p.ndim > 1]
        rest = [p for p in many if p.ndim <= 1]
        return torch.optim.SGD([{"params": decayed, "weight_decay": 0.5}, {"params": rest}], lr=0.1)

    parts = problem("cnn")
    with pytest.raises(ValueError, match="settings depend on the parameters' shapes"):
        found_by(parts, LEAVE_ONE_OUT, factory, steps=2, way="vmap")
    found = found_by(parts, LEAVE_ONE_OUT, factory, steps=2)
    assert found.way == "processes"
    assert_close(found.differences, naive(*parts, LEAVE_ONE_OUT, 2, factory)[1], 1e-9)


def test_any_optimiser_may_be_used_that_calls_for_its_loss():
    def factory(parameters):
        return torch.optim.LBFGS(parameters, lr=0.5, max_iter=2)

    parts = problem("cnn")
    found = found_by(parts, LEAVE_ONE_OUT, factory, steps=2, way="auto")
    assert found.way == "processes"
    assert np.abs(found.differences).max() > 0.0
    with pytest.raises(ValueError, match="LBFGS is no optimizer of torch that works entry by"):
        found_by(parts, LEAVE_ONE_OUT, factory, steps=2, way="vmap")


def test_nested_inputs_are_taken_apart():
    model, loss, images, labels = problem("cnn")

    def nested(own, inputs, targets):
        return loss(own, inputs["pair"][0] * inputs["scale"], targets)

    inputs = {"pair": (images, labels), "scale": torch.tensor(2.0, dtype=torch.float64)}
    for way in ("vmap", "loop"):
        found = found_by((model, nested, inputs, labels), LEAVE_ONE_OUT, "sgd", way=way)
        exact = naive(model, loss, 2.0 * images, labels, LEAVE_ONE_OUT, 3, OPTIMIZERS["sgd"])
        assert_close(found.differences, exact[1], 1e-9)


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"membership": LEAVE_ONE_OUT[:, :7]}, r"membership: expected shape \(references, 8\)"),
        ({"membership": LEAVE_ONE_OUT[:0]}, "membership: expected shape"),
        ({"membership": LEAVE_ONE_OUT.astype(float)}, "membership: expected True or False"),
        ({"steps": 0}, r"steps: expected an integer in \[1, ∞\)"),
        ({"groups": 9}, "groups: expected at most one for each of 8"),
        ({"way": "fast"}, "way: expected one of"),
        ({"optimizer": lambda p: None}, "optimizer: expected a function that makes"),
        ({"optimizer": lambda p: torch.optim.SGD(p, lr=0.0)}, "expected steps that change"),
        ({"optimizer": lambda p: torch.optim.SGD(p, lr=1e308)}, "finite"),
        ({"loss": lambda m, x, y: m(x).sum()}, "loss: expected one loss per example"),
        (
            {"loss": lambda m, x, y: torch.zeros(len(y))},
            "loss: expected losses that depend on the model",
        ),
        ({"loss": lambda m, x, y: m(x)[:, 0] * math.nan}, "loss: expected finite losses"),
    ],
)
def test_bad_arguments_are_named_and_nothing_changes(changed, message):
    model, loss, inputs, targets = problem("cnn")
    before = copy.deepcopy(model.state_dict())
    given = {"membership": LEAVE_ONE_OUT, "steps": 2, "optimizer": OPTIMIZERS["sgd"], **changed}
    parts = (model, given.pop("loss", loss), inputs, targets, given.pop("membership"))
    with pytest.raises(ValueError, match=message):
        local_differences(*parts, LocalSteps(**given))
    assert all(torch.equal(v, before[n]) for n, v in model.state_dict().items())
