"""The Opacus accountant in a real `PrivacyEngine`, and what importing it asks for."""

import importlib
import math
import subprocess
import sys

import pytest

from tacit.accounting import (
    ProjectedSteps,
    gaussian_shift,
    noisy_projection_steps,
    subsampled_gaussian,
)

pytestmark = pytest.mark.services


def test_accounting_does_not_import_opacus_and_says_what_is_missing():
    """In a process where Opacus cannot be found, whether or not it is installed."""
    script = (
        "import sys, tacit.accounting\n"
        "assert 'opacus' not in sys.modules and 'torch' not in sys.modules\n"
        "sys.modules['opacus'] = None\n"
        "try:\n    import tacit.accounting.exchange.opacus\n"
        "except ImportError as error:\n    print(error)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == (
        "tacit.accounting.exchange.opacus needs Opacus: pip install 'tacit-privacy[opacus]'"
    )


@pytest.fixture(scope="module")
def opacus():
    pytest.importorskip("opacus")
    return importlib.import_module("tacit.accounting.exchange.opacus")


def recorded(opacus, *steps, **kind):
    accountant = opacus.TacitAccountant(**kind)
    for noise, rate, count in steps:
        for _ in range(count):
            accountant.step(noise_multiplier=noise, sample_rate=rate)
    return accountant


@pytest.mark.parametrize("neighbours", ["add-remove", "replace"])
def test_it_composes_exactly(opacus, neighbours):
    accountant = recorded(opacus, (1.1, 0.05, 3), (2.0, 0.05, 2), neighbours=neighbours)
    assert accountant.history == [(1.1, 0.05, 3), (2.0, 0.05, 2)]
    assert len(accountant) == 5
    first = subsampled_gaussian(0.05, 1.1, 3, neighbours)
    both = first.compose(subsampled_gaussian(0.05, 2.0, 2, neighbours))
    assert accountant.get_epsilon(1e-5) == both.epsilon(1e-5)
    assert accountant.get_epsilon(1e-5) > first.epsilon(1e-5)


def test_whole_batches_are_one_gaussian(opacus):
    accountant = recorded(opacus, (2.0, 1.0, 9))
    exact = gaussian_shift(1.5).epsilon(1e-6)
    assert exact <= accountant.get_epsilon(delta=1e-6) <= exact * (1 + 1e-9)


def test_it_is_never_looser_than_opacus_and_never_below_the_truth(opacus):
    """PRV's error is at most 0.01 in ε either way."""
    from opacus.accountants import PRVAccountant, RDPAccountant

    ours = recorded(opacus, (1.0, 0.02, 50)).get_epsilon(1e-5)
    theirs, renyi = PRVAccountant(), RDPAccountant()
    theirs.history = renyi.history = [(1.0, 0.02, 50)]
    upper = theirs.get_epsilon(1e-5, eps_error=0.01)
    assert upper - 0.03 <= ours <= upper
    assert ours <= renyi.get_epsilon(1e-5)


def test_the_noisy_projection(opacus):
    kind = {"mechanism": "noisy-projection", "rank": 3, "dim": 30, "difference_rank": 1}
    accountant = recorded(opacus, (0.6, 0.1, 4), **kind)
    work = ProjectedSteps(dim=30, rank=3, steps=4, sampling_rate=0.1, difference_rank=1)
    direct = noisy_projection_steps(work, 0.6)
    assert accountant.get_epsilon(1e-4) == direct.epsilon(1e-4)
    assert direct.epsilon(1e-4) < recorded(opacus, (0.6, 0.1, 4)).get_epsilon(1e-4)


def test_extremes(opacus):
    assert recorded(opacus).get_epsilon(1e-5) == 0.0
    assert recorded(opacus, (0.0, 0.1, 1)).get_epsilon(1e-5) == math.inf
    assert recorded(opacus, (0.0, 0.1, 1)).get_epsilon(1.0) == 0.0
    with pytest.raises(ValueError, match="history: expected at least one step"):
        recorded(opacus).profile()


def trained(opacus, engine, steps=2):
    """Two DP-SGD steps on a tiny model, whatever accountant the engine has."""
    torch = importlib.import_module("torch")
    torch.manual_seed(0)
    model = torch.nn.Linear(3, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    data = torch.utils.data.TensorDataset(torch.randn(40, 3), torch.randint(0, 2, (40,)))
    loader = torch.utils.data.DataLoader(data, batch_size=10)
    model, optimizer, loader = engine.make_private(
        module=model,
        optimizer=optimizer,
        data_loader=loader,
        noise_multiplier=1.3,
        max_grad_norm=1.0,
    )
    before = [p.detach().clone() for p in model.parameters()]
    for _, (inputs, labels) in zip(range(steps), loader, strict=False):
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(model(inputs), labels).backward()
        optimizer.step()
    assert any(not torch.equal(a, b) for a, b in zip(before, model.parameters(), strict=True))
    return model


@pytest.mark.filterwarnings("ignore::UserWarning", "ignore::FutureWarning")
def test_two_steps_of_a_privacy_engine(opacus, tmp_path):
    from opacus import PrivacyEngine

    engine = PrivacyEngine(accountant="tacit")
    assert isinstance(engine.accountant, opacus.TacitAccountant)
    trained(opacus, engine)
    assert len(engine.accountant) == 2
    assert engine.get_epsilon(1e-5) == subsampled_gaussian(0.25, 1.3, 2).epsilon(1e-5)


@pytest.mark.filterwarnings("ignore::UserWarning", "ignore::FutureWarning")
def test_two_steps_of_a_privacy_engine_with_projected_gradients(opacus):
    from opacus import PrivacyEngine

    engine = PrivacyEngine()
    kind = {"mechanism": "noisy-projection", "rank": 1, "dim": 3}
    engine.accountant = opacus.TacitAccountant(**kind)
    trained(opacus, engine)
    work = ProjectedSteps(dim=3, rank=1, steps=2, sampling_rate=0.25)
    direct = noisy_projection_steps(work, 1.3)
    assert engine.get_epsilon(1e-4) == direct.epsilon(1e-4)


def test_checkpoints_keep_what_the_steps_were(opacus):
    kind = {"mechanism": "noisy-projection", "rank": 3, "dim": 30}
    state = recorded(opacus, (0.6, 0.1, 4), **kind).state_dict()
    again = opacus.TacitAccountant(**kind)
    again.load_state_dict(state)
    assert again.history == [(0.6, 0.1, 4)]
    plain = opacus.TacitAccountant()
    with pytest.raises(ValueError, match="state_dict: expected steps of"):
        plain.load_state_dict(state)
    assert plain.history == []
    with pytest.raises(ValueError, match="empty"):
        plain.load_state_dict({})


@pytest.mark.parametrize(
    ("kind", "message"),
    [
        ({"mechanism": "laplace"}, "mechanism: expected one of"),
        ({"neighbours": "all"}, "neighbours: expected one of"),
        ({"rank": 3}, "rank: expected none with mechanism 'gaussian'"),
        ({"mechanism": "noisy-projection", "rank": 3}, "rank, dim: expected both"),
        ({"mechanism": "noisy-projection", "rank": 0, "dim": 9}, "rank: expected an integer >= 1"),
        (
            {"mechanism": "noisy-projection", "rank": 1, "dim": 9, "difference_rank": 0},
            "difference_rank: expected an integer >= 1",
        ),
    ],
)
def test_bad_mechanisms_get_a_sentence(opacus, kind, message):
    with pytest.raises(ValueError, match=message):
        opacus.TacitAccountant(**kind)


@pytest.mark.parametrize(
    ("noise", "rate", "name"), [(-1.0, 0.1, "noise_multiplier"), (1.0, 1.1, "sample_rate")]
)
def test_bad_steps_leave_the_history_alone(opacus, noise, rate, name):
    accountant = recorded(opacus, (1.0, 0.1, 1))
    with pytest.raises(ValueError, match=name):
        accountant.step(noise_multiplier=noise, sample_rate=rate)
    assert accountant.history == [(1.0, 0.1, 1)]
