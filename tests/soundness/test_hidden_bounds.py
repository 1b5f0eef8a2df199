"""Numbers on hidden states that are called bounds without being guarantees, beside the truth."""

import math

import numpy as np
import pytest
from mpmath import mp, mpf
from scipy import stats

pytest.importorskip("torch")
pytest.importorskip("transformers")

import torch

from tacit.attacks import TokenSearch
from tacit.attacks.sequential.decoder import SequentialAttack, sequential_decoder
from tacit.attacks.sequential.margin_law import StepLaw, margin_threshold, step_law
from tacit.covariance import Isotropic
from tacit.hidden_states.geometry.estimation import Geometry, _summary
from tacit.hidden_states.geometry.fisher import FisherInformation
from tacit.hidden_states.geometry.margins import (
    MarginRounding,
    NextTokens,
    QuantisedMargin,
    measure_margins,
)
from tests.hidden_states.networks import small_network

from . import oracles
from .registry import bounds

WIDTH, VOCABULARY, LAYER = 12, 19, 1


def planted(fisher, spread, rank):
    """The summary of matrices that are given instead of measured."""
    states = np.zeros((10_000, len(fisher)))
    found = FisherInformation(fisher, (fisher, fisher), states, "model-exact", 10**6, 0.0)
    return _summary(found, 1, spread, "raw", spread, rank, 1e-12, equal_pairs=0)


def least_attack(fisher, spread):
    """tr S tr F / (tr (F^½ S F^½)^½)²: what isotropic noise allows over the least there is."""
    first, second = np.linalg.cholesky(fisher), np.linalg.cholesky(spread)
    nuclear = np.linalg.svd(first.T @ second, compute_uv=False).sum()
    return np.trace(spread) * np.trace(fisher) / nuclear**2


@bounds(Geometry, "projector_bound")
@pytest.mark.parametrize("seed", range(40))
def test_the_projector_bound_stays_below_the_gain(seed):
    source = np.random.default_rng(seed)
    width = int(source.integers(2, 9))
    rank = int(source.integers(1, width))
    rotation = np.linalg.qr(source.standard_normal((width, width)))[0]
    fisher = (rotation * 10 ** -source.uniform(0, 4, width)) @ rotation.T
    root = source.standard_normal((width, width)) * 10 ** -source.uniform(0, 2, width)
    spread = root @ root.T + 1e-6 * np.eye(width)
    found = planted(fisher, spread, rank)
    gain = least_attack(fisher, spread)
    assert found.projector_bound <= gain * (1 + 1e-9)
    assert found.mahalanobis_gain == pytest.approx(gain, rel=1e-6)
    # any noise whatever does at least as badly as the least
    noise = root.T @ root + fisher / np.trace(fisher)
    product = np.trace(spread @ np.linalg.inv(noise)) * np.trace(fisher @ noise)
    assert product * gain >= np.trace(spread) * np.trace(fisher) * (1 - 1e-9)


@bounds(Geometry, "projector_bound")
def test_the_projector_bound_is_attained_by_two_levels():
    """Where F and S are constant inside and outside the projector, nothing is lost."""
    fisher, spread = np.diag([5.0, 5.0, 1.0, 1.0, 1.0]), np.diag([1.0, 1.0, 2.0, 2.0, 2.0])
    found, gain = planted(fisher, spread, 2), least_attack(fisher, spread)
    assert gain * (1 - 1e-9) <= found.projector_bound <= gain * (1 + 1e-9)


@pytest.fixture(scope="module")
def model():
    return small_network("llama", vocabulary=VOCABULARY, width=WIDTH)


def rounded(values, reach, bits):
    """Q_b, a coordinate at a time: steps s/(2^(b−1) − 1), clipped at ±s."""
    levels = 2 ** (bits - 1) - 1
    out = np.empty_like(values)
    for place, size in np.ndenumerate(values):
        step = reach[place[-1]] / levels
        out[place] = step * min(max(round(size / step), -levels), levels)
    return out


@bounds(QuantisedMargin, "bounds")
@pytest.mark.parametrize("scale", [0.3, 1.0, 4.0])
def test_rounding_leaves_at_least_the_margin_promised(model, scale):
    """The smaller the calibration states, the more is clipped."""
    source = torch.Generator().manual_seed(0)
    prompts = torch.randint(VOCABULARY, (6, 5), generator=source)
    followers = torch.randint(VOCABULARY, (6,), generator=source)
    basis = np.linalg.qr(np.random.default_rng(1).standard_normal((WIDTH, 4)))[0]
    known = scale * model.states(prompts, LAYER).double().numpy()
    found = measure_margins(
        model,
        LAYER,
        NextTokens(prefixes=prompts, next_tokens=followers),
        basis,
        MarginRounding(calibration=known, bits=(2, 3, 6, 12)),
        rng=0,
    )
    inside = basis @ basis.T
    spaces = {"full": np.eye(WIDTH), "fisher": inside, "complement": np.eye(WIDTH) - inside}
    positive = 0
    for row in found.quantised:
        if row.projection not in spaces:
            continue
        space = spaces[row.projection]
        reach = np.quantile(np.abs(known @ space), 0.995, axis=0)
        for i, follower in enumerate(followers.tolist()):
            longer = torch.cat(
                [prompts[i].expand(VOCABULARY, -1), torch.arange(VOCABULARY)[:, None]], 1
            )
            states = rounded(model.states(longer, LAYER).double().numpy() @ space, reach, row.bits)
            lengths = np.linalg.norm(np.delete(states, follower, axis=0) - states[follower], axis=1)
            # float32 states differ a little from batch to batch
            assert row.bounds[i] <= lengths.min() + 1e-5 * np.abs(states).max()
            positive += row.bounds[i] > 0
    assert positive > 0 or scale < 1


def on_the_line(places):
    """Φ(r/2) − Φ(−l/2) for the nearest wrong tokens at r on the right and l on the left."""
    right = min((place for place in places if place > 0), default=mp.inf)
    left = max((place for place in places if place < 0), default=-mp.inf)
    with mp.workdps(oracles.DIGITS):
        return mp.ncdf(mpf(right) / 2) - mp.ncdf(mpf(left) / 2)


@bounds(StepLaw, "low", "high", "published")
@pytest.mark.parametrize("seed", range(30))
def test_a_step_succeeds_between_its_bounds(seed):
    source = np.random.default_rng(seed)
    lengths = 10 ** source.uniform(-1, 1, int(source.integers(1, 6)))
    signs = source.choice([-1.0, 1.0], len(lengths))
    with mp.workdps(oracles.DIGITS):
        # errors against orthogonal alternatives are independent
        apart = mp.fprod(mp.ncdf(mpf(float(length)) / 2) for length in lengths)
    cases = (
        (np.diag(lengths), apart),
        ((signs * lengths)[:, None], on_the_line(signs * lengths)),
    )
    for differences, true in cases:
        law = step_law(differences, 1, rng=0)
        assert law.published <= law.low + 1e-15
        assert law.low <= true + mpf(10) ** -15
        assert law.high >= true - mpf(10) ** -15


@bounds(SequentialAttack, "predicted_low", "predicted_high", "published")
def test_a_whole_prompt_succeeds_between_its_bounds(model):
    """The exact decoder run on many releases of one prompt, Clopper and Pearson at 1 − 10⁻⁶."""
    prompt, count, failure = torch.tensor([[3, 7]]), 300, 1e-6
    clean = model.states(prompt, LAYER, positions="all").double().numpy()
    gaps = []
    for prefix in ([], [3]):
        rows = torch.tensor([[*prefix, token] for token in range(VOCABULARY)])
        gaps.append(torch.pdist(model.states(rows, LAYER).double()).min().item())
    noise = Isotropic((min(gaps) / 3.0) ** 2, WIDTH)
    released = clean + noise.sample(2 * count, 1).reshape(count, 2, WIDTH)
    truth = prompt.expand(count, -1)
    found = sequential_decoder(
        model, LAYER, released, noise, TokenSearch(draws=1), truth=truth, rng=0
    )
    hits = round(found.exact * count)
    low = stats.beta.ppf(failure, hits, count - hits + 1) if hits else 0.0
    high = stats.beta.ppf(1 - failure, hits + 1, count - hits) if hits < count else 1.0
    assert found.published <= found.predicted_low <= high
    assert found.predicted_high >= low
    assert 0.0 < found.predicted_low < found.predicted_high < 1.0


@bounds(margin_threshold)
@pytest.mark.parametrize("vocabulary", [2, 3, 1000, 50_257])
def test_the_threshold_keeps_the_failure(vocabulary):
    failures = (1e-300, 1e-12, 0.1, 0.5, 0.7, 1 - 1e-6, math.nextafter(1.0, 0.0))
    with mp.workdps(oracles.DIGITS):
        for failure in failures:
            published = mpf(margin_threshold(vocabulary, failure))
            assert (vocabulary - 1) * mp.exp(-(published**2) / 8) <= failure
            tail = mpf(margin_threshold(vocabulary, failure, tail="gaussian"))
            assert (vocabulary - 1) * mp.ncdf(-tail / 2) <= failure
            assert tail <= published
            if tail > 1e-3:
                smaller = tail * (1 - mpf(10) ** -9)
                assert (vocabulary - 1) * mp.ncdf(-smaller / 2) > failure * (1 - mpf(10) ** -12)
