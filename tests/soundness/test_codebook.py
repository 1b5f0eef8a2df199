"""Codes of a finite bank: no attacker, enumerated, does better than the theorem says."""

import itertools
import math

import numpy as np
import pytest

pytest.importorskip("torch")

from tacit.guarantees import InformationBound, MaximalLeakage, SuccessBound
from tacit.hidden_states import CodebookFit
from tacit.hidden_states.codebooks.certificates import certify, compose

from .registry import certifies


def best_guess(joint, prior):
    """Success of the best of all maps from codes to candidates, by trying every one."""
    symbols = sorted(set(joint))
    best = 0.0
    for guesses in itertools.product(range(len(joint)), repeat=len(symbols)):
        named = dict(zip(symbols, guesses, strict=True))
        best = max(best, sum(prior[i] for i, symbol in enumerate(joint) if named[symbol] == i))
    return best


def information(joint, prior):
    """H(X) − H(X | code) from the joint table."""
    total = -sum(p * math.log(p) for p in prior if p > 0)
    for symbol in set(joint):
        inside = [p for c, p in zip(joint, prior, strict=True) if c == symbol and p > 0]
        mass = sum(inside)
        total += sum(p * math.log(p / mass) for p in inside)
    return total


@certifies(SuccessBound, InformationBound, MaximalLeakage)
@pytest.mark.parametrize("seed", range(30))
def test_codes_never_tell_more_than_certified(seed):
    source = np.random.default_rng(seed)
    count, releases = int(source.integers(2, 6)), int(source.integers(1, 3))
    codes = source.integers(0, 3, size=(count, releases))
    prior = None if seed % 2 else source.dirichlet(np.ones(count))
    masses = np.full(count, 1 / count) if prior is None else prior
    joint = [tuple(row) for row in codes.tolist()]
    bound = certify(codes, size=3, weights=prior)
    blind = compose(3, releases, count, weights=prior)
    success, nats = best_guess(joint, masses), information(joint, masses)
    for certificate in (bound, blind):
        assert certificate.success.success >= success - 1e-15
        assert certificate.information.nats >= nats - 1e-15
        # for an attacker whose chance is any prior's, not the one of the law stated
        assert certificate.leakage.factor == 3.0**releases
        for _ in range(5):
            told = source.dirichlet(np.full(count, 0.3))
            assert best_guess(joint, told) <= certificate.leakage.factor * told.max() * (1 + 1e-12)
    # The theorem is attained, so a bound any smaller would be false.
    assert bound.success.success <= success * (1 + 1e-12)
    assert bound.information.nats <= nats + 1e-9


@certifies(SuccessBound, InformationBound, MaximalLeakage)
@pytest.mark.parametrize("kept", ["states", "cache"])
def test_codes_of_all_positions_never_tell_more_than_certified(kept):
    transformers = pytest.importorskip("transformers")
    import torch

    from tacit.hidden_states import CacheCoder, Codebook, StateCoder, measure_generation
    from tacit.models.language import LanguageModel

    torch.manual_seed(0)
    sizes = {"vocab_size": 5, "n_embd": 8, "n_layer": 2, "n_head": 2, "n_positions": 8}
    model = LanguageModel(transformers.GPT2LMHeadModel(transformers.GPT2Config(**sizes)))
    bank = torch.tensor(list(itertools.product(range(5), repeat=2)))
    if kept == "states":
        states = model.states(bank, 1, positions="all").reshape(-1, 8)
        coder = StateCoder(Codebook.fit(states, CodebookFit(size=3, least_cell=1), rng=0), 1)
    else:
        coder = CacheCoder.fit(model, bank, size=2, layers=[1], rng=0)
    found = measure_generation(model, coder, bank, steps=2)
    joint = [tuple(row.ravel().tolist()) for row in found.codes]
    source = np.random.default_rng(1)
    uniform = np.full(25, 1 / 25)
    for prior, held in (
        (uniform, found.certificate),
        *((p, coder.certify(found.codes, weights=p)) for p in source.dirichlet(np.ones(25), 3)),
    ):
        # the best map from sequences of codes to prompts takes the likeliest prompt of each
        best = sum(
            max(p for p, code in zip(prior, joint, strict=True) if code == symbol)
            for symbol in set(joint)
        )
        assert best - 1e-12 <= held.success.success <= best * (1 + 1e-9)
        assert held.information.nats >= information(joint, prior) - 1e-12
        assert best <= held.leakage.factor * prior.max()


def position_codes(model, bank, sizes):
    """A code of every position's state, by a codebook of that position: (N, T)."""
    from tacit.hidden_states import Codebook

    states = model.states(bank, 1, positions="all")
    books = [
        Codebook.fit(states[:, at], CodebookFit(size=size, least_cell=1), rng=at)
        for at, size in enumerate(sizes)
    ]
    return np.stack([book.assign(states[:, at]) for at, book in enumerate(books)], axis=1)


@certifies(SuccessBound, InformationBound, MaximalLeakage)
@pytest.mark.parametrize("sizes", [(2, 3, 4), (1, 2, 7), (5, 5, 5), (3, 1, 1)])
def test_codebooks_of_positions_never_tell_more_than_certified(sizes):
    """All 125 prompts of three tokens, each position with a codebook of its own."""
    transformers = pytest.importorskip("transformers")
    import torch

    from tacit.hidden_states import certify_trajectory
    from tacit.models.language import LanguageModel

    torch.manual_seed(0)
    shape = {"vocab_size": 5, "n_embd": 8, "n_layer": 2, "n_head": 2, "n_positions": 8}
    model = LanguageModel(transformers.GPT2LMHeadModel(transformers.GPT2Config(**shape)))
    bank = torch.tensor(list(itertools.product(range(5), repeat=3)))
    codes = position_codes(model, bank, sizes)
    joint = [tuple(row) for row in codes.tolist()]
    # P(y | x) of the whole release: Σ_y max_x is its maximal leakage
    channel = np.array([[float(code == symbol) for symbol in set(joint)] for code in joint])
    exact = channel.max(axis=0).sum()
    found = certify_trajectory(codes, sizes)
    assert found.leakage.factor == math.prod(sizes)
    assert exact <= min(found.leakage.factor, found.occupied)
    assert found.leakage.releases == found.releases == 3
    # the joint count is attained: a bound any smaller would be false
    assert exact == found.occupied
    assert found.success.success == pytest.approx(exact / 125, rel=1e-12)
    source = np.random.default_rng(2)
    laws = [np.full(125, 1 / 125), *source.dirichlet(np.full(125, 0.2), 3)]
    laws.append(np.arange(1, 126) ** -2.0 / (np.arange(1, 126) ** -2.0).sum())
    for prior in laws:
        best = (prior[:, None] * channel).max(axis=0).sum()
        held = certify_trajectory(codes, sizes, weights=prior)
        assert best - 1e-12 <= held.success.success <= best * (1 + 1e-9)
        assert best <= held.leakage.factor * prior.max() * (1 + 1e-12)
        assert held.information.nats >= information(joint, prior) - 1e-12
        assert held.information.nats <= held.leakage.nats + 1e-9


@certifies(MaximalLeakage)
def test_the_product_of_positions_is_attained():
    """Prompts that reach every sequence of codes leak the whole product: no smaller one holds."""
    from tacit.hidden_states import certify_trajectory

    sizes = (2, 3, 4)
    codes = np.array(list(itertools.product(*(range(size) for size in sizes))))
    found = certify_trajectory(codes, sizes)
    assert len({tuple(row) for row in codes.tolist()}) == found.leakage.factor == found.occupied


def test_weights_near_the_least_float_keep_their_shares():
    for weight in (5e-324, 1e-310, 1e300):
        found = certify([0, 1], 2, weights=[weight, weight])
        assert found.information.nats >= math.log(2)
        assert found.success.success == 1.0


def test_the_entropy_of_many_candidates_under_a_prior_is_rounded_up():
    # equal weights and two cells of one size: H(code) = ln 2 exactly, however the sums round
    for weight in (0.1, 1 / 3):
        found = certify(np.arange(100_000) % 2, 2, weights=np.full(100_000, weight))
        assert math.log(2) <= found.information.nats <= math.log(2) * (1 + 1e-14)
