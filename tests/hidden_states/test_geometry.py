"""Fisher information against explicit Jacobians and the KL; summaries against closed forms."""

import math

import numpy as np
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")

from tacit.hidden_states import FisherFit, GeometryFit  # noqa: E402
from tacit.hidden_states.geometry.estimation import _summary, measure_geometry  # noqa: E402
from tacit.hidden_states.geometry.fisher import FisherInformation, fisher_information  # noqa: E402
from tacit.hidden_states.geometry.spread import (  # noqa: E402
    adjacency_differences,
    spread_of_differences,
    spread_of_directions,
)
from tests.arguments import asked  # noqa: E402
from tests.hidden_states.networks import small_network  # noqa: E402

VOCABULARY, WIDTH, LAYER = 23, 12, 1
SEEDS = range(40)


@pytest.fixture(scope="module")
def model():
    return small_network(vocabulary=VOCABULARY, width=WIDTH)


@pytest.fixture(scope="module")
def prompts():
    return torch.randint(VOCABULARY, (9, 6), generator=torch.Generator().manual_seed(1))


def jacobians(model, prompts, layer):
    """Explicit (n, V, d) Jacobian of the logits, and the predictions (n, V), one prompt a time."""
    slopes, chances = [], []
    for prompt in prompts:
        run = model.continuation(prompt[None], layer)

        def logits(state, run=run):
            return run.logits(state[None])[0]

        slopes.append(torch.autograd.functional.jacobian(logits, run.clean_states[0]))
        chances.append(run.clean_logits[0].double().softmax(dim=-1))
    return torch.stack(slopes).double().numpy(), torch.stack(chances).numpy()


def explicit(slopes, chances):
    total = np.zeros((slopes.shape[2],) * 2)
    for jacobian, p in zip(slopes, chances, strict=True):
        total += jacobian.T @ (np.diag(p) - np.outer(p, p)) @ jacobian
    return total / len(slopes)


@pytest.mark.parametrize("family", ["gpt2", "llama"])
@pytest.mark.parametrize("batch_size", [None, 2])
def test_exact_fisher_is_the_explicit_one(family, batch_size, prompts):
    model = small_network(family, vocabulary=VOCABULARY, width=WIDTH)
    truth = explicit(*jacobians(model, prompts, LAYER))
    found = fisher_information(
        model, LAYER, prompts, FisherFit(label_source="model-exact", batch_size=batch_size)
    ).matrix
    scale = np.abs(truth).max()
    np.testing.assert_allclose(found, truth, rtol=0, atol=2e-5 * scale)
    assert np.linalg.eigvalsh(found)[0] > -1e-12 * scale


def test_diagonal_is_the_diagonal(model, prompts):
    for labels in ("model-exact", "model-sampled", "top-k"):
        full = fisher_information(
            model, LAYER, prompts, FisherFit(label_source=labels, top=5), rng=3
        )
        diagonal = fisher_information(
            model, LAYER, prompts, FisherFit(label_source=labels, top=5, diagonal=True), rng=3
        )
        np.testing.assert_allclose(diagonal.matrix, np.diagonal(full.matrix), rtol=1e-12)
        for part, whole in zip(diagonal.halves, full.halves, strict=True):
            np.testing.assert_allclose(part, np.diagonal(whole), rtol=1e-12)


def test_fisher_is_the_second_order_of_the_divergence(model, prompts):
    """KL(p(h) ‖ p(h + t v)) / t² tends to ½ vᵀFv; central differences remove the cubic term."""
    fisher = fisher_information(model, LAYER, prompts, FisherFit(label_source="model-exact")).matrix
    network = model.network.double()
    run = load_double(network, prompts)
    states = run.clean_states
    source = torch.Generator().manual_seed(2)
    for _ in range(4):
        direction = torch.randn(WIDTH, generator=source, dtype=torch.float64)
        direction /= direction.norm()
        step = 1e-3
        value = 0.5 * sum(
            float(divergence(run.clean_logits, run.logits(states + sign * step * direction)).mean())
            for sign in (1, -1)
        )
        expected = 0.5 * direction.numpy() @ fisher @ direction.numpy()
        assert value / step**2 == pytest.approx(expected, rel=1e-3)
    model.network.float()


def load_double(network, prompts):
    from tacit.models.language import LanguageModel

    return LanguageModel(network).continuation(prompts, LAYER)


def divergence(clean, changed):
    logs = clean.log_softmax(-1)
    return (logs.exp() * (logs - changed.log_softmax(-1))).sum(-1)


def test_capped_logits_have_the_fisher_of_what_is_served():
    from tacit.models import load
    from tests.models.families import network

    model = load(network("gemma2"))
    tokens = torch.randint(40, (4, 6), generator=torch.Generator().manual_seed(1))
    run = model.continuation(tokens, LAYER)
    truth = np.zeros((16, 16))
    for row in range(4):
        one = run.select([row])
        slopes = torch.autograd.functional.jacobian(one.logits, one.clean_states)[0]
        slope, chances = slopes[:, 0].double().numpy(), one.clean_logits[0].softmax(0).double()
        p = chances.numpy()
        truth += slope.T @ (np.diag(p) - np.outer(p, p)) @ slope / 4
    assert float(model.logits(tokens).abs().max()) < 2.0
    found = fisher_information(model, LAYER, tokens, FisherFit(label_source="model-exact")).matrix
    np.testing.assert_allclose(found, truth, rtol=0, atol=2e-5 * np.abs(truth).max())


def test_true_labels_are_per_prompt_gradients(model, prompts):
    followers = torch.arange(len(prompts)) + 3
    slopes, chances = jacobians(model, prompts, LAYER)
    rows = np.stack(
        [
            jacobian[y] - p @ jacobian
            for jacobian, p, y in zip(slopes, chances, followers.tolist(), strict=True)
        ]
    )
    found = fisher_information(
        model, LAYER, prompts, FisherFit(label_source="true", next_tokens=followers, batch_size=4)
    )
    truth = rows.T @ rows / len(rows)
    np.testing.assert_allclose(found.matrix, truth, rtol=0, atol=1e-5 * np.abs(truth).max())
    even, odd = rows[::2], rows[1::2]
    for half, part in zip(found.halves, (even, odd), strict=True):
        expected = part.T @ part / len(part)
        np.testing.assert_allclose(half, expected, rtol=0, atol=1e-5 * np.abs(expected).max())


def test_sampled_labels_are_unbiased(model, prompts):
    truth = explicit(*jacobians(model, prompts, LAYER))
    found = [
        fisher_information(model, LAYER, prompts, FisherFit(draws=8), rng=seed).matrix
        for seed in SEEDS
    ]
    values = np.trace(found, axis1=1, axis2=2)
    error = values.std(ddof=1) / math.sqrt(len(SEEDS))
    assert abs(values.mean() - np.trace(truth)) < 5 * error
    assert abs(2 * values.mean() - np.trace(truth)) > 5 * error
    mean = np.mean(found, axis=0)
    assert np.linalg.norm(mean - truth) < 0.25 * np.linalg.norm(truth)


def test_coarse_classes_stay_below_and_reach_the_whole(model, prompts):
    exact = fisher_information(model, LAYER, prompts, FisherFit(label_source="model-exact")).matrix
    scale = np.linalg.eigvalsh(exact)[-1]
    previous = None
    for top in (1, 4, 12, VOCABULARY - 1):
        found = fisher_information(model, LAYER, prompts, FisherFit(label_source="top-k", top=top))
        assert np.linalg.eigvalsh(exact - found.matrix)[0] > -1e-5 * scale
        if previous is not None:
            assert np.trace(found.matrix) > np.trace(previous.matrix)
            assert found.tail < previous.tail
        previous = found
    np.testing.assert_allclose(previous.matrix, exact, rtol=0, atol=1e-5 * scale)


def test_linear_readout_at_the_last_layer(model, prompts):
    """At layer L the state passes the final norm only: F = NᵀWᵀ(diag p − p pᵀ)W N by hand."""
    layer = model.layers
    found = fisher_information(model, layer, prompts, FisherFit(label_source="model-exact")).matrix
    weights = model.network.lm_head.weight.double().numpy()
    norm = model.network.transformer.ln_f
    total = np.zeros((WIDTH, WIDTH))
    for state in model.states(prompts, layer).double().numpy():
        centred = state - state.mean()
        size = math.sqrt((centred**2).mean() + norm.eps)
        unit = centred / size
        slope = np.eye(WIDTH) - 1 / WIDTH - np.outer(unit, unit) / WIDTH
        slope = norm.weight.double().numpy()[:, None] * slope / size
        final = unit * norm.weight.double().numpy() + norm.bias.double().numpy()
        logits = weights @ final
        p = np.exp(logits - logits.max())
        p /= p.sum()
        slope = weights @ slope
        total += slope.T @ (np.diag(p) - np.outer(p, p)) @ slope
    total /= len(prompts)
    np.testing.assert_allclose(found, total, rtol=0, atol=1e-5 * np.abs(total).max())


def test_spread_is_the_mean_over_all_pairs():
    states = np.random.default_rng(0).normal(size=(7, 3)) * [1.0, 2.0, 3.0]
    pairs = [(a - b) for i, a in enumerate(states) for j, b in enumerate(states) if i != j]
    truth = np.mean([np.outer(z, z) for z in pairs], axis=0)
    np.testing.assert_allclose(spread_of_differences(states), truth, rtol=1e-12)
    units = np.array([z / np.linalg.norm(z) for z in pairs])
    truth = units.T @ units / len(units)
    found, equal = spread_of_directions(states, 40_000, rng=1)
    # entries of δ̂δ̂ᵀ lie in [−1, 1]
    assert np.abs(found - truth).max() < 5 / math.sqrt(40_000)
    assert np.trace(found) == pytest.approx(1.0, abs=1e-12)
    assert equal == 0
    _, equal = spread_of_directions([[0.0, 1.0], [0.0, 1.0], [3.0, 1.0]], 300, rng=0)
    assert 50 < equal < 150
    with pytest.raises(ValueError, match="states"):
        spread_of_directions(np.ones((3, 2)), 10, rng=0)


def test_nearest_differences_are_nearest():
    states = np.random.default_rng(3).normal(size=(40, 4))
    found = adjacency_differences(states, 40, kind="nearest", rng=0)
    distances = np.linalg.norm(states[:, None] - states[None], axis=2)
    np.fill_diagonal(distances, np.inf)
    lengths = np.sort(np.linalg.norm(found, axis=1))
    np.testing.assert_allclose(lengths, np.sort(distances.min(axis=1)), rtol=1e-6)
    assert (np.linalg.norm(adjacency_differences(states, 500, rng=0), axis=1) > 0).all()


def planted(fisher, directions, rank, halves=None, states=None):
    measured = FisherInformation(
        matrix=fisher,
        halves=(fisher, fisher) if halves is None else halves,
        states=np.zeros((10_000, len(fisher))) if states is None else states,
        label_source="model-exact",
        terms=10**6,
        tail=0.0,
    )
    return _summary(measured, 1, directions, "unit", directions, rank, 1e-12, equal_pairs=0)


def test_summary_of_a_planted_spectrum():
    fisher = np.diag([8.0, 1.0, 0.5, 0.5])
    directions = np.diag([0.1, 0.2, 0.3, 0.4])
    found = planted(fisher, directions, 1)
    assert found.energy == pytest.approx(0.8)
    assert found.energy_curve == pytest.approx([0.8, 0.9, 0.95, 1.0])
    assert found.coupling == pytest.approx(0.4)
    assert found.isotropy_error == pytest.approx(0.6)
    assert found.projected_trace == pytest.approx(0.1)
    # Prop. 8 by hand: k = 1, d = 4, ‖S − I/4‖² = .05
    assert found.projected_deviation == pytest.approx(math.sqrt(6 / 72 * 0.05))
    # commuting matrices: fidelity Σ √(f_i s_i), generalised eigenvalues s_i/f_i
    fidelity = np.sqrt(np.diagonal(fisher) / 10 * np.diagonal(directions)).sum()
    assert found.fidelity == pytest.approx(fidelity, rel=1e-9)
    assert found.mahalanobis_gain == pytest.approx(fidelity**-2, rel=1e-9)
    assert found.euclidean_gain_top == pytest.approx(0.8 / 0.1, rel=1e-9)
    bound = (math.sqrt(0.8 * 0.1) + math.sqrt(0.2 * 0.9)) ** -2
    assert found.projector_bound == pytest.approx(bound, rel=1e-9)
    assert found.effective_rank in (3, 4)  # E_3 is 0.95 up to rounding
    assert planted(fisher, directions, 2).euclidean_gain == pytest.approx(
        (0.8 + 0.6) / 2 / 0.1, rel=1e-9
    )
    assert found.notes == ()


def test_haar_deviation_by_sampling():
    directions = np.diag([0.5, 0.25, 0.15, 0.1])
    found = planted(np.eye(4), directions, 2)
    source = np.random.default_rng(0)
    traces = []
    for _ in range(4000):
        frame, _ = np.linalg.qr(source.normal(size=(4, 2)))
        traces.append(float(np.vdot(frame, directions @ frame)))
    # relative standard error of a standard deviation is below 1/√(2n) · √(kurtosis)
    assert np.std(traces) == pytest.approx(found.projected_deviation, rel=0.06)


def test_equal_shapes_gain_nothing():
    found = planted(np.diag([3.0, 1.0, 2.0]), np.diag([3.0, 1.0, 2.0]) / 6, 1)
    assert found.mahalanobis_gain == pytest.approx(1.0)
    assert found.euclidean_gain_top == pytest.approx(1.0)


def test_notes_say_when_prompts_are_too_few(model, prompts):
    found = measure_geometry(
        model, LAYER, prompts[:4], GeometryFit(label_source="true", next_tokens=[1, 2, 3, 4]), rng=0
    )
    assert found.fisher_rank <= 4
    text = " ".join(found.notes)
    assert "rank 4 of 12, for it sums 4 gradients" in text
    assert (
        "not a stable subspace"
        in planted(
            np.eye(4), np.eye(4) / 4, 1, halves=(np.diag([1, 0, 0, 0.0]), np.diag([0, 1, 0, 0.0]))
        ).notes[0]
    )
    assert "4 states span 3 of 12" in text
    assert "empirical Fisher" in text


def test_whole_geometry_is_consistent(model, prompts):
    found = measure_geometry(
        model, LAYER, prompts, GeometryFit(label_source="model-exact", rank=3), rng=0
    )
    assert found.mahalanobis_gain >= found.projector_bound >= 1 - 1e-12
    assert found.euclidean_gain_top >= found.euclidean_gain >= 1 - 1e-9
    basis = found.basis()
    assert np.vdot(basis, found.fisher @ basis) / np.trace(found.fisher) == pytest.approx(
        found.energy
    )
    bound = found.rank / found.width * found.isotropy_error
    assert abs(found.projected_trace - found.rank / found.width) <= bound
    diagonal = measure_geometry(
        model, LAYER, prompts, GeometryFit(label_source="model-exact", diagonal=True, rank=3), rng=0
    )
    assert diagonal.fisher.shape == (WIDTH,)
    assert diagonal.energy <= found.energy + 1e-12  # Schur: eigenvalues majorise the diagonal
    raw = measure_geometry(
        model,
        LAYER,
        prompts,
        GeometryFit(label_source="model-exact", difference_scale="raw", rank=3),
        rng=0,
    )
    truth = spread_of_differences(model.states(prompts, LAYER))
    np.testing.assert_allclose(raw.spread, truth, rtol=0, atol=1e-6 * np.abs(truth).max())


@pytest.mark.parametrize(
    ("change", "name"),
    [
        ({"diagonal": "half"}, "diagonal"),
        ({"label_source": "guess"}, "label_source"),
        ({"label_source": "true"}, "next_tokens"),
        ({"next_tokens": [1] * 9}, "next_tokens"),
        ({"label_source": "true", "next_tokens": [1]}, "next_tokens"),
        ({"label_source": "true", "next_tokens": [99] * 9}, "next_tokens"),
        ({"label_source": "true", "next_tokens": "x"}, "next_tokens"),
        ({"label_source": "true", "next_tokens": object()}, "next_tokens"),
        ({"draws": 0}, "draws"),
        ({"top": 0}, "top"),
        ({"rank": 0}, "rank"),
        ({"rank": WIDTH}, "rank"),
        ({"pairs": 0}, "pairs"),
        ({"ridge": 0.0}, "ridge"),
        ({"ridge": float("nan")}, "ridge"),
        ({"difference_scale": "all"}, "difference_scale"),
        ({"batch_size": 0}, "batch_size"),
        ({"rng": -1}, "rng"),
        ({"layer": 9}, "layer"),
        ({"prefixes": [[1, 2]]}, "prefixes"),
        ({"prefixes": "text"}, "tokens"),
    ],
)
def test_refusals(model, prompts, change, name):
    arguments = {"layer": LAYER, "prefixes": prompts, **change}
    with pytest.raises(ValueError, match=f"^{name}"):
        asked(measure_geometry, GeometryFit)(model, **arguments)
