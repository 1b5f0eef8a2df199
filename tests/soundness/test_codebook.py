"""Codes of a finite bank: no attacker, enumerated, does better than the theorem says."""

import itertools
import math

import numpy as np
import pytest

pytest.importorskip("torch")

from tacit.guarantees import InformationBound, MaximalLeakage, SuccessBound
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
        coder = StateCoder(Codebook.fit(states, size=3, least_cell=1, rng=0), 1)
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
