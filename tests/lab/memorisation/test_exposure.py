"""Exposure, rank and exact memorisation against enumeration; the bound against the best test."""

import itertools

import numpy as np
import pytest
import torch
from scipy import stats

from tacit.training import bounded_probability
from tacit_lab.memorisation import Canaries, exact_memorisation, exposures
from tacit_lab.memorisation.canaries import digit_tokens
from tests.lab.memorisation.letters import ALPHABET, Letters, network, texts


def encode(text):
    return Letters()(text)["input_ids"]


def law(model, prompt, symbols, digits):
    """Return the probability of every secret, by one plain pass over all of them."""
    secrets = np.array(list(itertools.product(range(10), repeat=digits)))
    tokens = torch.tensor([[*prompt, *row] for row in symbols[secrets].tolist()])
    with torch.no_grad():
        logits = model(input_ids=tokens).logits.double()
    rows = logits[:, len(prompt) - 1 : -1][:, :, torch.from_numpy(symbols)].softmax(dim=2).numpy()
    each = np.take_along_axis(rows, secrets[:, :, None], axis=2)[:, :, 0]
    return {tuple(s): float(p) for s, p in zip(secrets.tolist(), each.prod(axis=1), strict=True)}


def recovery(one, own):
    """Return the probability that a digit of two or both are right."""
    return sum(p for s, p in one.items() if s[0] == own[0] or s[1] == own[1])


def rank(one, own):
    return 1 + sum(p > one[own] for p in one.values())


@pytest.mark.parametrize("sharp", [0.3, 1.0])
def test_exposures_are_those_of_enumeration(sharp):
    model = network(sharp=sharp)
    canaries = Canaries.draw(4, encode, digits=2, rng=1)
    laws = [law(model, prompt, canaries.symbols, 2) for prompt in canaries.prompts]
    true = np.array(
        [
            [
                recovery(one, own),
                rank(one, own),
                -np.log(one[own]),
            ]
            for one, own in zip(laws, map(tuple, canaries.secrets.tolist()), strict=True)
        ]
    ).T
    found = exposures(model, canaries, least=1, samples=2000, rng=0)
    np.testing.assert_allclose(found.nats, true[2], rtol=1e-4)
    # means of 2,000 draws in [0, 1]; ranks to a few of a hundred
    np.testing.assert_allclose(found.recovered, true[0], atol=0.05)
    np.testing.assert_allclose(100 / 2.0**found.bits, true[1], atol=6.0)
    assert sum(laws[0].values()) == pytest.approx(1.0)


@pytest.mark.thorough
def test_both_estimates_are_right_in_the_mean_of_few_draws():
    model = network(sharp=1.0)
    canaries = Canaries.draw(1, encode, digits=2, rng=3)
    one = law(model, canaries.prompts[0], canaries.symbols, 2)
    own = tuple(canaries.secrets[0].tolist())
    drawn = [exposures(model, canaries, least=1, samples=4, rng=i) for i in range(200)]
    recovered = np.array([found.recovered[0] for found in drawn])
    ranks = 100 / 2.0 ** np.array([found.bits[0] for found in drawn])
    for values, truth in ((recovered, recovery(one, own)), (ranks, rank(one, own))):
        assert abs(values.mean() - truth) < 5 * values.std() / np.sqrt(len(values))


def test_a_secret_that_was_learned_is_first_and_comes_out():
    model = network(sharp=0.3)
    canaries = Canaries.draw(2, encode, rng=5)
    inputs, targets = canaries.sequences(40)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.02)
    for _ in range(150):
        optimizer.zero_grad()
        logits = model(input_ids=inputs[:1]).logits[:, :-1].transpose(1, 2)
        loss = torch.nn.functional.cross_entropy(logits, targets[:1, 1:], ignore_index=-100)
        torch.autograd.backward(loss)
        optimizer.step()
    found = exposures(model, canaries, least=4, samples=16, rng=0)
    assert found.recovered[0] > 0.9
    assert found.bits[0] == pytest.approx(6 * np.log2(10))
    assert found.nats[0] < 0.5
    assert found.bits[1] < found.bits[0]


def greedy(model, tokens, steps):
    for _ in range(steps):
        with torch.no_grad():
            following = model(input_ids=tokens).logits[:, -1].argmax(dim=1, keepdim=True)
        tokens = torch.cat([tokens, following], dim=1)
    return tokens


def test_exact_memorisation_is_greedy_generation():
    model, rows = network(), texts(6)
    rows[:3, 30:33] = greedy(model, rows[:3, :30], 3)[:, 30:]
    rows[2, 31] = (rows[2, 31] + 1) % len(ALPHABET)
    true = (greedy(model, rows[:, :30], 3)[:, 30:] == rows[:, 30:33]).all(dim=1).numpy()
    assert true[:3].tolist() == [True, True, False]
    found = exact_memorisation(model, rows, prompt=30, following=3)
    assert found.tolist() == true.tolist()


@pytest.mark.parametrize(("prompt", "following"), [(0, 3), (38, 3), (5, 40)])
def test_sequences_too_short_for_prompt_and_rest_are_refused(prompt, following):
    with pytest.raises(ValueError, match=r"prompt: expected|following: expected"):
        exact_memorisation(network(), texts(2), prompt=prompt, following=following)


def test_digits_that_are_no_tokens_are_refused_and_a_mark_before_them_is_not():
    marked = digit_tokens(lambda text: [99, *encode(text)])
    assert marked.tolist() == [ALPHABET.index(str(digit)) for digit in range(10)]
    with pytest.raises(ValueError, match="a token for each digit"):
        digit_tokens(lambda text: [3])
    with pytest.raises(ValueError, match="a token for each digit"):
        digit_tokens(lambda text: [int(text), int(text) + 1])


def test_canaries_differ_in_their_prompts_and_do_not_tell_their_secrets():
    canaries = Canaries.draw(400, encode, rng=0)
    assert len(set(canaries.prompts)) == 400
    assert repr(canaries) == "Canaries(400, digits=6)"
    counts = np.bincount(canaries.secrets.ravel(), minlength=10)
    assert stats.chisquare(counts).pvalue > 1e-6
    with pytest.raises(ValueError, match="count: expected"):
        Canaries.draw(401, encode)
    with pytest.raises(ValueError, match="length: expected at least the"):
        canaries.sequences(12)


@pytest.mark.parametrize(("chance", "mu"), [(1e-6, 1.0), (0.02, 0.3), (0.5, 2.0), (0.999, 4.0)])
def test_the_bound_is_the_power_of_the_best_test_and_no_less(chance, mu):
    # N(0, 1) above its quantile against N(μ, 1) there, by another implementation
    power = stats.norm.sf(stats.norm.isf(chance), loc=mu)
    assert power <= bounded_probability(chance, mu) <= power * (1 + 1e-9)


def test_the_bound_has_no_slack_at_its_ends():
    assert (bounded_probability(0.0, 3.0), bounded_probability(1.0, 3.0)) == (0.0, 1.0)
    assert bounded_probability(0.3, 0.0) >= 0.3
    with pytest.raises(ValueError, match="reference: expected"):
        bounded_probability(1.1, 1.0)
