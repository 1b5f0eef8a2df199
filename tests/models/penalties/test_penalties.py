"""Penalties are what their formulas say, and training moves them."""

import numpy as np
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")

from tacit.models import (  # noqa: E402
    Anchor,
    JacobianPenalty,
    LanguageModel,
    MarginDepletion,
    MarginPenalty,
    SplitMemoryConfig,
    SplitMemoryForCausalLM,
    Step,
)
from tacit.models.penalties.depletion import leading, margin_mass  # noqa: E402
from tacit.models.penalties.step import run  # noqa: E402

TRUNK = 4


def model(seed=0, vocabulary=12):
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        network = SplitMemoryForCausalLM(
            SplitMemoryConfig(
                vocab_size=vocabulary, n_positions=8, trunk_width=TRUNK, memory_width=4, n_layer=2,
                trunk_heads=2, memory_heads=2,
            )
        )  # fmt: skip
        with torch.no_grad():
            for part in network.parameters():
                part.add_(0.3 * torch.randn_like(part))
    return LanguageModel(network)


def step_of(held, layers, windows=None, seed=0):
    held.network.requires_grad_(True)
    tokens = (
        windows
        if windows is not None
        else torch.randint(held.vocabulary, (6, 6), generator=torch.Generator().manual_seed(5))
    )
    states, logits = run(held.anatomy, tokens[:, :-1], layers)
    return Step(held.anatomy, tokens, logits, states, torch.Generator().manual_seed(seed))


def test_the_jacobian_is_estimated_without_bias():
    held = model()
    step = step_of(held, ())
    tokens = step.windows[:2, :-1]
    states, logits = run(held.anatomy, tokens, (1,))
    rows = [
        torch.autograd.grad(value, states[1], retain_graph=True)[0][..., TRUNK:].square().sum()
        for value in logits.flatten()
    ]
    exact = float(torch.stack(rows).sum()) / tokens.numel()
    penalty = JacobianPenalty((1,), 1.0, first=TRUNK, rows=2)
    drawn = np.array([float(penalty.measure(step).detach()) for _ in range(120)])
    error = drawn.std(ddof=1) / np.sqrt(len(drawn))
    assert error < 0.2 * exact
    assert abs(drawn.mean() - exact) < 4 * error


def test_the_jacobian_has_a_gradient_and_no_memory_none():
    held = model()
    penalty = JacobianPenalty((1,), 0.5, first=TRUNK, rows=3)
    step = step_of(held, ())
    penalty.measure(step).backward()
    gate = held.anatomy.blocks[1].gate
    assert float(gate.grad.abs()) > 0.0
    with torch.no_grad():
        gate.zero_()
    assert float(penalty.measure(step_of(held, ())).detach()) == 0.0


def test_margin_mass_is_the_share_within_the_basis():
    source = torch.Generator().manual_seed(0)
    states = torch.randn(5, 3, 4, generator=source)
    whole = torch.eye(4)
    assert float(margin_mass(states, whole)) == pytest.approx(1.0)
    parts = [float(margin_mass(states, whole[:, i : i + 1])) for i in range(4)]
    assert sum(parts) == pytest.approx(1.0, rel=1e-5)
    slopes = torch.randn(100, 4, generator=source) * torch.tensor([9.0, 1.0, 1.0, 0.1])
    assert float(leading(slopes, 1)[0].abs()) > 0.95


def test_depletion_is_within_0_and_its_weight_and_moves_the_states():
    held = model()
    penalty = MarginDepletion((1,), 2.0, rank=2)
    step = step_of(held, penalty.layers)
    found = penalty.measure(step)
    assert 0.0 < float(found.detach()) < 2.0
    found.backward()
    assert float(held.network.get_input_embeddings().weight.grad.abs().max()) > 0.0
    everything = MarginDepletion((1,), 2.0, rank=100).measure(step_of(held, (1,)))
    assert float(everything.detach()) == pytest.approx(2.0, rel=1e-5)


@pytest.mark.parametrize("kind", ["prediction", "states", "moment"])
def test_an_anchor_is_zero_at_its_reference_and_positive_elsewhere(kind):
    reference, other = model(0), model(1)
    anchor = Anchor(kind, reference, 1.5, layer=1)
    at_home = anchor.measure(step_of(model(0), anchor.layers))
    assert float(at_home.detach()) == pytest.approx(0.0, abs=1e-5)
    away = anchor.measure(step_of(other, anchor.layers))
    assert float(away.detach()) > 0.01
    twice = Anchor(kind, reference, 3.0, layer=1).measure(step_of(other, anchor.layers))
    assert float(twice.detach()) == pytest.approx(2 * float(away.detach()), rel=1e-5)


def test_the_prediction_anchor_is_blind_to_units_of_the_memory_and_the_moment_is_not():
    reference, other = model(0), model(0)
    body = other.network.transformer
    with torch.no_grad():
        for table in (body.wte, body.wpe):
            table.weight[:, TRUNK:] *= 3.0
        for block in body.h:
            block.from_memory.weight /= 3.0
            block.from_trunk.weight *= 3.0
            for part in (block.memory.projection, block.memory.down):
                part.weight *= 3.0
                part.bias *= 3.0
    blind = Anchor("prediction", reference, 1.0).measure(step_of(other, ()))
    sees = Anchor("moment", reference, 1.0, layer=1).measure(step_of(other, (1,)))
    assert float(blind.detach()) < 1e-4
    assert float(sees.detach()) > 0.1


def test_margins_are_distances_to_the_nearest_distractor():
    held = model()
    basis = np.eye(8)[:, :3]
    penalty = MarginPenalty(
        "hinge", 1, 1.0, basis, threshold=0.1, distractors=40, rows=2, temperature=1e-4
    )
    step = step_of(held, ())
    inside, outside = penalty.margins(step)
    tokens = step.windows[:2, :-1]
    for row, prompt in enumerate(tokens):
        others = [v for v in range(held.vocabulary) if v != int(prompt[-1])]
        candidates = prompt.repeat(len(others), 1)
        candidates[:, -1] = torch.tensor(others)
        differences = held.states(candidates, 1) - held.states(prompt[None], 1)
        assert float(inside[row].detach()) == pytest.approx(
            float(differences[:, :3].norm(dim=1).min()), rel=1e-3
        )
        assert float(outside[row].detach()) == pytest.approx(
            float(differences[:, 3:].norm(dim=1).min()), rel=1e-3
        )


def test_objectives_are_the_published_ones():
    held, basis = model(), np.eye(8)[:, :3]
    values = {}
    for name in ("hinge", "anisotropic", "ratio"):
        penalty = MarginPenalty(name, 1, 2.0, basis, threshold=0.2, rows=6)
        values[name] = float(penalty.measure(step_of(held, ())).detach())
    inside, outside = (part.detach() for part in penalty.margins(step_of(held, ())))
    hinge = (outside - 0.2).relu().square()
    assert values["hinge"] == pytest.approx(2 * float(hinge.mean()), rel=1e-5)
    assert values["anisotropic"] == pytest.approx(
        2 * float((hinge - inside.square() / 4).mean()), rel=1e-5
    )
    ratio = (outside / inside - 0.2).relu().square()
    assert values["ratio"] == pytest.approx(2 * float(ratio.mean()), rel=1e-5)


def test_bad_arguments_get_a_sentence():
    with pytest.raises(ValueError, match="weight: expected a finite number >= 0"):
        JacobianPenalty((1,), -1.0, first=2)
    with pytest.raises(ValueError, match="layers: expected layers 1 … L"):
        MarginDepletion((), 1.0, rank=2)
    with pytest.raises(ValueError, match="layers: expected an integer >= 1"):
        JacobianPenalty((0,), 1.0, first=2)
    with pytest.raises(ValueError, match="kind: expected one of"):
        Anchor("weights", model(), 1.0)
    with pytest.raises(ValueError, match="layer: expected an integer"):
        Anchor("states", model(), 1.0, layer=3)
    with pytest.raises(ValueError, match="basis: expected orthonormal columns"):
        MarginPenalty("hinge", 1, 1.0, np.ones((8, 2)), 1.0)


def test_what_does_not_fit_the_model_gets_a_sentence():
    held = model()
    step = step_of(held, (1,))
    with pytest.raises(ValueError, match="first: expected a coordinate below 8, got 8"):
        JacobianPenalty((1,), 1.0, first=8).measure(step)
    with pytest.raises(ValueError, match="basis: expected columns of 8 numbers, got 6"):
        MarginPenalty("hinge", 1, 1.0, np.eye(6)[:, :2], 1.0).measure(step)
    with pytest.raises(ValueError, match="reference: expected a vocabulary of 12 and states of 8"):
        Anchor("prediction", model(vocabulary=13), 1.0).measure(step)
    with pytest.raises(ValueError, match="batch: expected at least 2 windows"):
        MarginDepletion((1,), 1.0, rank=2).measure(step_of(held, (1,), step.windows[:1]))
