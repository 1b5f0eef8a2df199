"""The sequential decoder against exhaustive search, and its predictions against what it reaches."""

import itertools
import math

import numpy as np
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")

from scipy import stats  # noqa: E402

from tacit.attacks import TokenSearch  # noqa: E402
from tacit.attacks.sequential.decoder import sequential_decoder  # noqa: E402
from tacit.attacks.sequential.margin_law import margin_threshold, step_law  # noqa: E402
from tacit.covariance import Isotropic, LowRank  # noqa: E402
from tests.arguments import asked  # noqa: E402
from tests.hidden_states.networks import small_network  # noqa: E402

WIDTH, VOCABULARY, LAYER = 12, 9, 1


@pytest.fixture(scope="module")
def model():
    return small_network("llama", vocabulary=VOCABULARY, width=WIDTH, context=8)


@pytest.fixture(scope="module")
def prompts():
    return torch.randint(VOCABULARY, (120, 4), generator=torch.Generator().manual_seed(1))


def trajectories(model, tokens, covariance, seed, layer=LAYER):
    clean = model.states(tokens, layer, positions="all").double().numpy()
    return clean + covariance.sample(clean.shape[0] * clean.shape[1], seed).reshape(clean.shape)


def shaped(scale):
    basis = np.linalg.qr(np.random.default_rng(2).normal(size=(WIDTH, WIDTH)))[0]
    return LowRank(basis, scale * np.diag(np.geomspace(1.0, 0.05, WIDTH)))


def test_clean_states_name_their_tokens(model, prompts):
    few = prompts[:5]
    clean = model.states(few, LAYER, positions="all")
    found = sequential_decoder(model, LAYER, clean, 1e-9 * np.eye(WIDTH), truth=few)
    np.testing.assert_array_equal(found.tokens, few.numpy())
    assert found.exact == found.recovered == 1.0
    assert found.predicted == pytest.approx(1.0)
    assert found.exact_interval[1] == 1.0
    one = sequential_decoder(model, LAYER, clean[0], 1e-9 * np.eye(WIDTH), truth=few[0])
    np.testing.assert_array_equal(one.tokens, found.tokens[:1])


def test_noise_that_leaves_directions_bare_hides_nothing(model, prompts):
    """hidden-state, Prop. 9: rank-deficient noise, however large, is taken off."""
    few = prompts[:10]
    basis = np.linalg.qr(np.random.default_rng(3).normal(size=(WIDTH, 6)))[0].T
    noise = LowRank(basis, 1e6 * np.eye(6))
    released = trajectories(model, few, noise, 0)
    assert (
        sequential_decoder(model, LAYER, released, noise, TokenSearch(floor=1e-6), truth=few).exact
        == 1.0
    )
    # the same energy in all directions leaves next to nothing
    full = Isotropic(1e6 / 2, WIDTH)
    released = trajectories(model, few, full, 0)
    assert sequential_decoder(model, LAYER, released, full, truth=few).exact < 0.3


def test_predicted_success_is_the_measured_one(model, prompts):
    noise = shaped(0.5)
    released = trajectories(model, prompts, noise, 11)
    found = sequential_decoder(
        model,
        LAYER,
        released,
        noise,
        TokenSearch(draws=100, confidence=0.9999),
        truth=prompts,
        rng=0,
    )
    assert 0.2 < found.exact < 0.9
    error = math.sqrt(found.predicted * (1 - found.predicted) / len(prompts))
    assert abs(found.exact - found.predicted) < 4 * error
    assert found.exact_interval[0] < found.predicted < found.exact_interval[1]
    # noise of another size is told apart
    wrong = sequential_decoder(
        model,
        LAYER,
        released[:40],
        noise.scaled(4.0),
        TokenSearch(draws=100),
        truth=prompts[:40],
        rng=0,
    )
    assert abs(found.exact - wrong.predicted) > 4 * error
    assert found.published <= found.predicted_low <= found.predicted <= found.predicted_high
    assert found.recovered >= found.exact
    assert found.recovered_interval[0] < found.recovered < found.recovered_interval[1]


def exhaustive(model, target, noise, layer=LAYER, prior=False):
    """Every prompt, scored whole."""
    every = torch.tensor(list(itertools.product(range(VOCABULARY), repeat=len(target))))
    states = model.states(every, layer, positions="all").double().numpy()
    distances = noise.mahalanobis((states - target).reshape(-1, WIDTH))
    scores = distances.reshape(len(every), -1).sum(axis=1)
    totals = scores
    if prior:
        logits = model.network(every).logits.double().log_softmax(-1).numpy()
        chosen = np.take_along_axis(logits[:, :-1], every.numpy()[:, 1:, None], axis=2)
        totals = scores - 2 * chosen.sum(axis=(1, 2))
    best = int(totals.argmin())
    return every[best].tolist(), scores[best]


@pytest.mark.parametrize("prior", ["uniform", "model"])
def test_a_wide_beam_is_exhaustive_search(model, prompts, prior):
    noise = shaped(30.0)
    few = prompts[:4, :3]
    released = trajectories(model, few, noise, 4)
    found = sequential_decoder(
        model, LAYER, released, noise, TokenSearch(beam=VOCABULARY**2, token_law=prior, floor=0.0)
    )
    greedy = sequential_decoder(
        model, LAYER, released, noise, TokenSearch(token_law=prior, floor=0.0)
    )
    differ = 0
    for row in range(len(few)):
        tokens, score = exhaustive(model, released[row], noise, prior=prior == "model")
        assert found.tokens[row].tolist() == tokens
        assert found.scores[row] == pytest.approx(score, rel=1e-4)
        differ += greedy.tokens[row].tolist() != tokens
    assert found.exact is None
    if prior == "uniform":
        assert (found.scores <= greedy.scores + 1e-9).all()
    assert differ > 0


def test_views_add_up(model, prompts):
    """Cor. 21: squared margins of independent views are summed at every token."""
    few = prompts[:8]
    noise = shaped(1.0)
    parts = [trajectories(model, few, noise, seed, layer) for seed, layer in ((1, 1), (2, 2))]
    both = sequential_decoder(
        model, [1, 2], parts, [noise, noise], TokenSearch(floor=0.0), truth=few, rng=0
    )
    single = [
        sequential_decoder(model, layer, part, noise, TokenSearch(floor=0.0), truth=few, rng=0)
        for layer, part in zip((1, 2), parts, strict=True)
    ]
    squares = [found.margins**2 for found in single]
    assert (both.margins**2 >= (squares[0] + squares[1]) * (1 - 1e-9)).all()
    twice = sequential_decoder(
        model,
        [1, 1],
        [parts[0], parts[0]],
        [noise, noise],
        TokenSearch(floor=0.0),
        truth=few,
        rng=0,
    )
    np.testing.assert_allclose(twice.margins, math.sqrt(2) * single[0].margins, rtol=1e-5)
    assert both.predicted > max(found.predicted for found in single)


def test_margins_by_brute_force(model, prompts):
    noise = shaped(1.0)
    few = prompts[:3]
    released = trajectories(model, few, noise, 1)
    found = sequential_decoder(
        model, LAYER, released, noise, TokenSearch(floor=0.0), truth=few, rng=0
    )
    for row, step in itertools.product(range(3), range(4)):
        stem = few[row, :step].expand(VOCABULARY, -1)
        longer = torch.cat([stem, torch.arange(VOCABULARY)[:, None]], 1)
        states = model.states(longer, LAYER).double().numpy()
        token = int(few[row, step])
        others = np.delete(states, token, 0) - states[token]
        expected = math.sqrt(noise.mahalanobis(others).min())
        assert found.margins[row, step] == pytest.approx(expected, rel=1e-4)


def test_shortlist_takes_the_likeliest(model, prompts):
    noise = shaped(0.01)
    few = prompts[:20]
    released = trajectories(model, few, noise, 1)
    all_of_them = sequential_decoder(model, LAYER, released, noise, truth=few)
    short = sequential_decoder(model, LAYER, released, noise, TokenSearch(shortlist=2), truth=few)
    assert short.recovered < all_of_them.recovered
    for row in short.tokens:
        for step in range(1, 4):
            logits = model.logits(torch.tensor(row[None, :step].copy()))[0]
            assert row[step] in logits.topk(2).indices


def test_step_law_of_orthogonal_differences():
    """Errors against orthogonal alternatives are independent: success is Π Φ(m_v/2)."""
    lengths = np.array([1.5, 2.0, 3.0, 6.0])
    draws = 40_000
    law = step_law(np.diag(lengths), draws, rng=0)
    truth = float(np.prod(stats.norm.cdf(lengths / 2)))
    error = math.sqrt(truth * (1 - truth) / draws)
    assert abs(law.success - truth) < 4 * error
    wrong = float(np.prod(stats.norm.cdf(1.1 * lengths / 2)))
    assert abs(law.success - wrong) > 4 * error
    assert law.low <= truth <= law.high
    assert law.margin == 1.5
    assert law.high == pytest.approx(stats.norm.cdf(0.75))
    assert law.low == pytest.approx(1 - stats.norm.sf(lengths / 2).sum())
    assert law.published == 0.0
    # two others of the same state: whoever picks one of three is right once in three times
    alike = step_law(np.array([[0.0, 0.0], [0.0, 0.0], [30.0, 0.0]]), 10, rng=0)
    assert alike.low <= alike.success == 1 / 3 <= alike.high
    far = step_law(np.diag([12.0, 14.0]), 10, rng=0)
    assert far.published == pytest.approx(1 - 2 * math.exp(-18.0))


def test_threshold_is_where_the_union_bound_meets_the_failure():
    for vocabulary, failure in ((5, 0.3), (50_257, 1e-3)):
        margin = margin_threshold(vocabulary, failure, tail="gaussian")
        assert (vocabulary - 1) * stats.norm.sf(margin / 2) == pytest.approx(failure)
        published = margin_threshold(vocabulary, failure)
        assert (vocabulary - 1) * math.exp(-(published**2) / 8) == pytest.approx(failure)
        assert margin < published
    assert margin_threshold(2, 0.6, tail="gaussian") == 0.0
    for arguments in ((1, 0.1), (2, 0.0), (2, 1.0), (2.5, 0.1)):
        with pytest.raises(ValueError, match=r"vocabulary|error_rate"):
            margin_threshold(*arguments)


@pytest.mark.parametrize(
    ("change", "name"),
    [
        ({"released": np.ones((2, 3))}, "released"),
        ({"released": np.full((2, WIDTH), np.nan)}, "released"),
        ({"released": np.ones((99, WIDTH))}, "released"),
        ({"covariance": np.eye(3)}, "released"),
        ({"covariance": -np.eye(WIDTH)}, "matrix"),
        ({"truth": [1, 2, 3]}, "truth"),
        ({"truth": [1, 99]}, "tokens"),
        ({"truth": "x"}, "truth"),
        ({"released": object()}, "released"),
        ({"covariance": "x"}, "matrix"),
        ({"beam": 0}, "beam"),
        ({"shortlist": 0}, "shortlist"),
        ({"token_law": "zipf"}, "token_law"),
        ({"floor": -1.0}, "floor"),
        ({"floor": 0.0, "covariance": np.diag([1.0] + [0.0] * (WIDTH - 1))}, "floor"),
        ({"confidence": 0.0}, "confidence"),
        ({"draws": 0}, "draws"),
        ({"layer": 5}, "layer"),
        ({"layer": [1, 2]}, "released"),
        ({"layer": []}, "released"),
        ({"layer": [1, 2], "released": object()}, "released"),
        ({"rng": "x"}, "rng"),
    ],
)
def test_refusals(model, change, name):
    arguments = {
        "layer": LAYER,
        "released": np.ones((2, WIDTH)),
        "covariance": np.eye(WIDTH),
        "truth": [1, 2],
        **change,
    }
    with pytest.raises(ValueError, match=rf"^{name}"):
        asked(sequential_decoder, TokenSearch)(model, **arguments)
