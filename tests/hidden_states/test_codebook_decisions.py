"""Cells that guard the likeliest token: costs, tables and codewords, against slow twins."""

import itertools

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from scipy.optimize import minimize  # noqa: E402

from tacit.hidden_states import CodebookFit  # noqa: E402
from tacit.hidden_states.codebooks.clustering import (  # noqa: E402
    _closer,
    _raised,
    assign_behaviours,
    cell_behaviours,
    kl_cells,
    likeliest_codes,
)
from tacit.hidden_states.codebooks.codebook import Codebook  # noqa: E402
from tacit.hidden_states.codebooks.training import mean_cost  # noqa: E402
from tacit.models.behaviours import Behaviours  # noqa: E402
from tests.hidden_states.prompts import divergence, prompts  # noqa: E402


def costs(logits, table, weight):
    """KL(p_i ‖ q_c) + λ·1[argmax p_i ≠ argmax q_c] of every pair, in float64."""
    changed = logits.argmax(1)[:, None] != table.argmax(1)[None]
    return divergence(logits, table) + weight * changed


@pytest.mark.parametrize("seed", range(4))
def test_a_raised_token_costs_the_least_divergence(seed):
    source = np.random.default_rng(seed)
    clean = source.dirichlet(np.full(6, 0.7))
    token = int(clean.argsort()[seed % 5])

    def loss(rest):
        shares = np.exp(rest - rest.max())
        return float(np.sum(clean * np.log(clean / (shares / shares.sum()))))

    limits = [
        {"type": "ineq", "fun": lambda x, t=t: x[token] - x[t]} for t in range(6) if t != token
    ]
    start = np.log(clean)
    start[token] = start.max() + 0.1
    best = minimize(loss, start, constraints=limits, method="SLSQP", options={"ftol": 1e-14})
    raised = _raised(torch.from_numpy(clean[None]), torch.tensor([token]))[0].numpy()
    assert raised.argmax() == token
    assert abs(raised.sum() - 1) < 1e-12
    found = float(np.sum(clean * np.log(clean / raised)))
    assert best.fun - 1e-7 <= found <= best.fun + 1e-3


@pytest.mark.parametrize("weight", [0.3, 2.0, 20.0])
def test_no_round_raises_the_cost(weight):
    _, _, logits = prompts()
    known = Behaviours(logits)
    reached = []
    for rounds in range(5):
        cells, table = kl_cells(
            known,
            24,
            np.random.default_rng(0),
            rounds=rounds,
            advance=[].append,
            decision_cost=weight,
        )
        every = costs(logits, table, weight)
        reached.append(float(every[torch.arange(len(cells)), cells].mean()))
        assert (table.exp().sum(1) - 1).abs().max() < 1e-5
    assert all(after <= before + 1e-6 for before, after in itertools.pairwise(reached))
    assert reached[-1] < reached[0]


def test_assignment_is_the_obvious_one():
    _, _, logits = prompts()
    known = Behaviours(logits)
    cells = torch.arange(len(logits)) % 10
    table = cell_behaviours(known, cells, 10, None)
    every = costs(logits, table, 0.7)
    found, least = assign_behaviours(known, table, 0.7)
    assert (every.gather(1, found[:, None])[:, 0] - every.min(1).values).max() < 1e-5
    assert (least - every.min(1).values).abs().max() < 1e-5
    assert (likeliest_codes(known, table, 3, 0.7) == every.argsort(1)[:, :3]).float().mean() > 0.999
    moved = _closer(known, table, cells, 0.7, exactly=False)
    start = every.gather(1, cells[:, None])[:, 0]
    assert (every.gather(1, moved[:, None])[:, 0] <= start + 1e-5).all()
    assert float(every.gather(1, moved[:, None]).mean()) < float(every.min(1).values.mean()) + 0.02


def test_a_cell_decides_as_most_of_it_does_when_that_is_worth_it():
    # Two prompts decide 1 by a little and one decides 0 for certain, so their mean decides 0.
    rows = torch.tensor([[0.45, 0.50, 0.05], [0.45, 0.50, 0.05], [0.98, 0.01, 0.01]])
    known, cells = Behaviours(rows.log()), torch.zeros(3, dtype=torch.int64)
    mean = cell_behaviours(known, cells, 1, None)
    cheap = cell_behaviours(known, cells, 1, None, 0.01)
    dear = cell_behaviours(known, cells, 1, None, 5.0)
    assert mean.argmax() == cheap.argmax() == 0
    assert torch.equal(mean, cheap)
    assert dear.argmax() == 1
    assert (dear.exp()[0] - torch.tensor([0.4825, 0.4825, 0.0350])).abs().max() < 2e-2


def test_guarded_decisions_survive_in_as_many_cells():
    states, upper, logits = prompts(2400)
    public, fresh = torch.arange(2000), torch.arange(2000, 2400)
    agreements, divergences = [], []
    for weight in (0.0, 4.0):
        book = Codebook.fit(
            states[public],
            CodebookFit(
                size=24, metric="behaviour", codewords="trained", epochs=8, decision_cost=weight
            ),
            behaviours=logits[public],
            continuation=upper.select(public),
            rng=0,
        )
        codes = book.assign(behaviours=logits[fresh])
        read = upper.select(fresh).logits(book.decode(codes))
        agreements.append(float((read.argmax(1) == logits[fresh].argmax(1)).float().mean()))
        table = book.distributions(codes)
        divergences.append(float(costs(logits[fresh], table, 0.0).diagonal().mean()))
        alone = float((table.argmax(1) == logits[fresh].argmax(1)).float().mean())
        assert book.certify(codes).occupied <= 24
    assert agreements[1] > agreements[0] + 0.1
    assert alone > 0.8
    assert divergences[1] > divergences[0]


def test_training_and_trial_count_changed_decisions():
    states, upper, logits = prompts(300)
    known, rows = Behaviours(logits), torch.arange(300)
    other = states.flip(0)
    read = upper.logits(other)
    changed = float((read.argmax(1) != logits.argmax(1)).float().mean())
    plain = mean_cost(upper, known, other, rows)
    assert mean_cost(upper, known, other, rows, 3.0) == pytest.approx(plain + 3 * changed, rel=1e-5)
    book = Codebook.fit(
        states, CodebookFit(size=6, metric="behaviour", decision_cost=2.0), behaviours=logits, rng=0
    )
    found = book.assign(behaviours=logits, continuation=upper, tries=6)
    every = []
    for code in range(6):
        moved = upper.logits(book.codewords[code].expand(300, -1))
        clean = torch.softmax(logits, 1)
        nats = (clean * (clean.log() - torch.log_softmax(moved, 1))).sum(1)
        every.append(nats + 2.0 * (moved.argmax(1) != logits.argmax(1)))
    every = torch.stack(every, 1)
    chosen = every.gather(1, torch.from_numpy(found)[:, None])[:, 0]
    assert (chosen - every.min(1).values).max() < 1e-5


def test_the_cost_of_a_decision_is_kept_on_disk(tmp_path):
    states, _, logits = prompts(200)
    book = Codebook.fit(
        states, CodebookFit(size=6, metric="behaviour", decision_cost=2.0), behaviours=logits, rng=0
    )
    read = Codebook.load(book.save(tmp_path / "book.safetensors"))
    assert read.decision_cost == 2.0
    assert (read.assign(behaviours=logits) == book.assign(behaviours=logits)).all()


@pytest.mark.parametrize("cost", [-1.0, float("nan"), float("inf"), "much"])
def test_bad_costs(cost):
    states, _, logits = prompts(50)
    with pytest.raises(ValueError, match="decision_cost: expected"):
        Codebook.fit(
            states,
            CodebookFit(size=4, metric="behaviour", decision_cost=cost),
            behaviours=logits,
            rng=0,
        )


def test_a_metric_of_states_guards_no_decision():
    states, _, logits = prompts(50)
    with pytest.raises(ValueError, match="decision_cost: expected 0 with metric 'euclidean'"):
        Codebook.fit(states, CodebookFit(size=4, decision_cost=1.0), behaviours=logits, rng=0)
