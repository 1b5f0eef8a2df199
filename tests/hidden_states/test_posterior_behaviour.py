"""The reader of a release alone against direct sums, the exact posterior, and its limits."""

import numpy as np
import pytest
from scipy.stats import multivariate_normal

torch = pytest.importorskip("torch")

from tacit.covariance import Dense, Isotropic, LowRank  # noqa: E402
from tacit.guarantees import ApproximateDP  # noqa: E402
from tacit.hidden_states.noise import posterior  # noqa: E402
from tacit.hidden_states.noise.denoiser import Denoiser  # noqa: E402
from tacit.hidden_states.noise.posterior import PosteriorBehaviour  # noqa: E402
from tacit.models.behaviours import Behaviours  # noqa: E402

CENTRES = np.array([[2.0, 0.0, 0.0], [-2.0, 1.0, 0.0], [0.0, -2.0, 1.0], [1.0, 2.0, -2.0]])
PRIOR = np.array([0.4, 0.3, 0.2, 0.1])


def psd(width, seed):
    root = np.random.default_rng(seed).standard_normal((width, width))
    return root @ root.T / width + 0.2 * np.eye(width)


def softmax(logits):
    weights = np.exp(logits - logits.max(axis=1, keepdims=True))
    return weights / weights.sum(axis=1, keepdims=True)


def direct(rows, states, noise, probabilities):
    """Bayes' rule, one row at a time."""
    inverse = np.linalg.inv(noise)
    mixed = []
    for row in rows:
        gaps = states - row
        mixed.append(softmax(-0.5 * np.einsum("ij,jk,ik->i", gaps, inverse, gaps)[None])[0])
    return np.stack(mixed) @ probabilities


def case(scale, *, count=1500, seed=2):
    source = np.random.default_rng(seed)
    states = source.standard_normal((count, 5)) * 2 + 100
    noise = psd(5, 3) * scale
    logits = torch.from_numpy(3 * source.standard_normal((count, 9))).log_softmax(dim=1).half()
    rows = states[:60] + Dense(noise).sample(60, 4)
    exact = direct(rows, states, noise, softmax(logits.double().numpy()))
    return rows, states, Dense(noise), logits, exact


@pytest.mark.parametrize("scale", [1e-3, 0.05, 1.0, 50.0])
@pytest.mark.parametrize("together", [None, 7])
def test_it_is_the_obvious_sum(scale, together, monkeypatch):
    if together:
        monkeypatch.setattr(posterior, "ROWS_TOGETHER", together)
        monkeypatch.setattr(posterior, "CALIBRATION_TOGETHER", 31 * together)
        monkeypatch.setattr(posterior, "NUMBERS_TOGETHER", 9 * 13 * together)
    rows, states, noise, logits, exact = case(scale)
    whole = PosteriorBehaviour(states, noise, Behaviours(logits), tolerance=0.0)
    found = whole.distributions(rows)
    assert found.dtype == torch.float32
    assert np.abs(found.double().exp().numpy() - exact).max() < 3e-6


@pytest.mark.parametrize("tolerance", [1e-4, 1e-2, 0.5])
def test_what_is_left_out_moves_less_than_the_tolerance(tolerance):
    rows, states, noise, logits, exact = case(1.0)
    reader = PosteriorBehaviour(states, noise, logits, tolerance=tolerance)
    found = reader.distributions(rows).double().exp().numpy()
    distance = 0.5 * np.abs(found - exact).sum(axis=1).max()
    assert distance <= tolerance + 3e-6
    assert tolerance < 0.5 or distance > 1e-3
    assert np.abs(found.sum(axis=1) - 1).max() < 1e-6


def test_where_everything_is_known_it_is_the_posterior_and_no_reader_beats_it():
    source = np.random.default_rng(5)
    upper = source.standard_normal((3, 6))
    behaviours = softmax(CENTRES @ upper)
    covariance = psd(3, 6)
    drawn = source.choice(4, size=20_000, p=PRIOR)
    rows = CENTRES[drawn] + Dense(covariance).sample(len(drawn), 7)
    # public prompts in the proportions of the prior
    public = np.repeat(np.arange(4), (10 * PRIOR).round().astype(int))

    def reader(scale):
        noise = Dense(covariance * scale)
        bayes = PosteriorBehaviour(CENTRES[public], noise, np.log(behaviours[public]))
        return bayes.distributions(rows).double().exp().numpy()

    densities = [multivariate_normal(centre, covariance).pdf(rows) for centre in CENTRES]
    weights = PRIOR * np.stack(densities, axis=1)
    exact = weights / weights.sum(axis=1, keepdims=True) @ behaviours
    found = reader(1.0)
    assert 0.5 * np.abs(found - exact).sum(axis=1).max() < 1e-4

    def loss(read):
        return -(behaviours[drawn] * np.log(read)).sum(axis=1)

    noise = Dense(covariance)
    nearest = ((rows[:, None] - CENTRES) ** 2).sum(axis=2).argmin(axis=1)
    rivals = {
        "the prior": np.broadcast_to(PRIOR @ behaviours, exact.shape),
        "the nearest prompt": behaviours[nearest],
        "the raw state": softmax(rows @ upper),
        "the posterior mean": softmax(
            Denoiser.posterior_mean(CENTRES[public], noise).denoise(rows).double().numpy() @ upper
        ),
        "the Wiener state": softmax(
            Denoiser.wiener(CENTRES[public], noise).denoise(rows).double().numpy() @ upper
        ),
        "too much noise": reader(3.0),
        "too little noise": reader(0.3),
    }
    for name, read in rivals.items():
        worse = loss(read) - loss(found)
        assert worse.mean() > 5 * worse.std() / np.sqrt(len(worse)), name


def test_without_noise_it_is_the_nearest_prompt_and_under_much_their_mean():
    _, states, _, logits, _ = case(1.0, count=300)
    probabilities = softmax(logits.double().numpy())
    rows = states[:40] + 1e-6
    sharp = PosteriorBehaviour(states, Isotropic(1e-8, 5), logits).distributions(rows)
    assert np.abs(sharp.exp().numpy() - probabilities[:40]).max() < 1e-5
    flat = PosteriorBehaviour(states, Isotropic(1e9, 5), logits).distributions(rows)
    assert np.abs(flat.exp().numpy() - probabilities.mean(axis=0)).max() < 1e-5
    far = PosteriorBehaviour(states, Isotropic(1e-8, 5), logits).distributions(rows + 1e6)
    assert bool(torch.isfinite(far).all())


def test_the_guarantee_is_that_of_the_release():
    _, states, noise, logits, _ = case(1.0, count=70)
    reader = PosteriorBehaviour(states, noise, logits)
    bound = ApproximateDP(
        epsilon=1.0, delta=0.1, adjacency="two", evidence="theorem", assumptions=(), source="test"
    )
    assert reader.guarantee(bound) is bound
    assert reader.calibration == 70
    assert "public" in reader.statement
    with pytest.raises(ValueError, match="release"):
        reader.guarantee("safe")


def test_bad_input_is_refused():
    _, states, noise, logits, _ = case(1.0, count=70)
    with pytest.raises(ValueError, match="covariance: expected full rank"):
        PosteriorBehaviour(states, LowRank(np.eye(5)[:2], np.eye(2)), logits)
    with pytest.raises(ValueError, match="covariance"):
        PosteriorBehaviour(states, np.eye(5), logits)
    with pytest.raises(ValueError, match="calibration"):
        PosteriorBehaviour(states[:, :2], noise, logits)
    with pytest.raises(ValueError, match="behaviours: expected 70 rows"):
        PosteriorBehaviour(states, noise, logits[:5])
    for bad in (-0.1, 1.0, np.nan):
        with pytest.raises(ValueError, match="tolerance"):
            PosteriorBehaviour(states, noise, logits, tolerance=bad)
    reader = PosteriorBehaviour(states, noise, logits)
    for bad in (states[:, :2], states * np.nan, "x"):
        with pytest.raises(ValueError, match="noisy"):
            reader.distributions(bad)
