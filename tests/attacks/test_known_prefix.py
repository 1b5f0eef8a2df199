"""The known-prefix attacker against enumeration of every last token, and its sizes by theory."""

import json

import numpy as np
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")

from scipy import stats  # noqa: E402

from tacit.attacks import CandidateTokens, CodeChannel, GaussianChannel, known_prefix  # noqa: E402
from tacit.attacks.last_token.attack import attack_continued  # noqa: E402
from tacit.attacks.last_token.field import field_position, open_field  # noqa: E402
from tacit.covariance import Dense, Isotropic, LowRank  # noqa: E402
from tacit.hidden_states import Denoiser  # noqa: E402
from tests.hidden_states.networks import small_network  # noqa: E402

WIDTH, VOCABULARY, LAYER, LENGTH = 12, 23, 1, 5


@pytest.fixture(scope="module")
def model():
    return small_network("llama", vocabulary=VOCABULARY, width=WIDTH, context=8)


@pytest.fixture(scope="module")
def prompts():
    return torch.randint(VOCABULARY, (40, LENGTH), generator=torch.Generator().manual_seed(1))


def every_token(model, prompt):
    """States, predictions and log prior of every last token: whole prompts, without a cache."""
    whole = torch.cat(
        [prompt[:-1].expand(VOCABULARY, -1), torch.arange(VOCABULARY)[:, None]], dim=1
    )
    with torch.no_grad():
        before = model.network(prompt[None, :-1]).logits[0, -1].double().log_softmax(-1)
        after = model.network(whole).logits[:, -1].double().log_softmax(-1)
    states = model.states(whole, LAYER).double().numpy()
    return states, after.numpy(), before.numpy()


def spread(scale):
    basis = np.linalg.qr(np.random.default_rng(2).normal(size=(WIDTH, WIDTH)))[0]
    return Dense(basis * np.geomspace(scale, 0.02 * scale, WIDTH) @ basis.T)


def halves(states, behaviours):
    """A code of four: signs of two entries of the state."""
    rows = states.double().numpy()
    return (rows[:, 0] > 0) * 2 + (rows[:, 3] > 0)


EVERY = CandidateTokens(tokens="vocabulary")


def likeliest(states, behaviours):
    return behaviours.argmax()


@pytest.mark.parametrize("law", ["model", "uniform"])
def test_noise_of_any_covariance_by_enumeration(model, prompts, law):
    noise = spread(3.0)
    clean = model.states(prompts, LAYER).double().numpy()
    released = clean + noise.sample(len(clean), 3)
    found = known_prefix(
        model, LAYER, prompts, released, GaussianChannel(noise, floor=0.0),
        candidates=CandidateTokens(tokens="vocabulary", token_law=law),
    )  # fmt: skip
    for row, prompt in enumerate(prompts):
        states, _, before = every_token(model, prompt)
        scores = stats.multivariate_normal(cov=noise.to_dense()).logpdf(released[row] - states)
        scores = scores + (before if law == "model" else 0.0)
        assert found.better[row] == (scores > scores[prompt[-1]]).sum()
        assert found.hits[row] == float(scores.argmax() == prompt[-1])
        blind = before.argmax() == prompt[-1] if law == "model" else 1 / VOCABULARY
        assert found.blind[row] == pytest.approx(float(blind))
    assert found.success > found.prior
    assert found.candidates == VOCABULARY
    assert found.covered == 1.0


@pytest.mark.parametrize(("assign", "predicts"), [(halves, False), (likeliest, True)])
@pytest.mark.parametrize("randomised", [False, True])
def test_codes_by_enumeration(model, prompts, assign, predicts, randomised):
    size = VOCABULARY
    table = np.full((size, size), 0.4 / (size - 1))
    np.fill_diagonal(table, 0.6)
    channel = CodeChannel(assign, table=table if randomised else None, predicts=predicts)
    clean = model.states(prompts, LAYER)
    own = np.asarray(channel.held(clean, _behaviours(model, prompts)))
    released = channel.draw(own, 5)
    assert (released != own).any() == randomised
    found = known_prefix(model, LAYER, prompts, released, channel, candidates=EVERY)
    for row, prompt in enumerate(prompts):
        states, after, before = every_token(model, prompt)
        codes = after.argmax(axis=1) if predicts else halves(torch.from_numpy(states), None)
        chances = table[codes, released[row]] if randomised else codes == released[row]
        posterior = np.exp(before) * chances
        assert found.better[row] == (posterior > posterior[prompt[-1]] * (1 + 1e-6)).sum()


def _behaviours(model, prompts):
    from tacit.models import Behaviours

    return Behaviours(model.logits(prompts))


def drawn_from_the_model(model, count, seed):
    """Prompts whose last token has the law of the prior."""
    source = torch.Generator().manual_seed(seed)
    stems = torch.randint(VOCABULARY, (count, LENGTH - 1), generator=source)
    law = model.logits(stems).double().softmax(-1)
    return torch.cat([stems, torch.multinomial(law, 1, generator=source)], dim=1)


def test_the_success_of_codes_is_the_sum_of_largest_masses(model):
    """P(right) = Σ over codes of the largest prior in the code, when the prior is the law."""
    prompts = drawn_from_the_model(model, 200, 7)
    channel = CodeChannel(halves)
    released = channel.held(model.states(prompts, LAYER), None)
    found = known_prefix(model, LAYER, prompts, released, channel, candidates=EVERY)
    right, blind = [], []
    for prompt in prompts:
        states, _, before = every_token(model, prompt)
        codes = halves(torch.from_numpy(states), None)
        right.append(sum(np.exp(before[codes == code]).max() for code in np.unique(codes)))
        blind.append(np.exp(before).max())
    for measured, expected in ((found.success, right), (found.prior, blind)):
        error = np.sqrt(np.mean(np.multiply(expected, np.subtract(1, expected))) / len(prompts))
        assert abs(measured - np.mean(expected)) < 4 * error
    # the released codes of other prompts do not explain theirs
    shuffled = known_prefix(
        model,
        LAYER,
        prompts,
        np.roll(released, 1),
        channel,
        candidates=EVERY,
    )
    assert shuffled.success < np.mean(right) - 4 * error


def test_noise_by_simulation_and_told_a_wrong_size(model):
    """P(right) is the mean of the largest posterior; who is told a wrong Σ is right less often."""
    prompts = drawn_from_the_model(model, 200, 8)
    noise = Isotropic(0.02, WIDTH)
    clean = model.states(prompts, LAYER).double().numpy()
    released = clean + noise.sample(len(clean), 9)
    found = known_prefix(
        model,
        LAYER,
        prompts,
        released,
        GaussianChannel(noise),
        candidates=EVERY,
    )
    source = np.random.default_rng(10)
    expected = []
    for prompt in prompts:
        states, _, before = every_token(model, prompt)
        tokens = source.choice(VOCABULARY, size=50, p=np.exp(before) / np.exp(before).sum())
        seen = states[tokens] + np.sqrt(0.02) * source.normal(size=(50, WIDTH))
        scores = before - 0.5 * ((seen[:, None] - states) ** 2).sum(axis=2) / 0.02
        expected.append((scores.argmax(axis=1) == tokens).mean())
    mean = np.mean(expected)
    error = np.sqrt(mean * (1 - mean) / len(prompts) * (1 + 1 / 50))
    assert abs(found.success - mean) < 4 * error
    assert found.prior < mean - 4 * error
    wrong = known_prefix(
        model, LAYER, prompts, released, GaussianChannel(noise.scaled(400.0)),
        candidates=EVERY,
    )  # fmt: skip
    assert wrong.success < found.success


def test_bare_directions_hide_nothing_and_clean_states_give_all(model, prompts):
    clean = model.states(prompts, LAYER).double().numpy()
    basis = np.linalg.qr(np.random.default_rng(3).normal(size=(WIDTH, 6)))[0].T
    bare = LowRank(basis, 1e6 * np.eye(6))
    for channel, released in (
        (GaussianChannel(bare), clean + bare.sample(len(clean), 0)),
        (GaussianChannel(), clean),
    ):
        found = known_prefix(
            model,
            LAYER,
            prompts,
            released,
            channel,
            candidates=EVERY,
        )
        assert found.success == 1.0


def test_a_token_outside_the_candidates_counts_as_a_failure(model, prompts):
    clean = model.states(prompts, LAYER)
    found = known_prefix(
        model, LAYER, prompts, clean, GaussianChannel(), candidates=CandidateTokens(count=5)
    )
    assert 0 < found.covered < 1
    assert found.success == pytest.approx(found.covered)
    outside = found.better == 5
    assert outside.mean() == pytest.approx(1 - found.covered)
    assert "among the candidates" in found.describe()
    assert (found.ranks[outside] == 6).all()
    listed = known_prefix(
        model,
        LAYER,
        prompts,
        clean,
        GaussianChannel(),
        candidates=CandidateTokens(tokens=[int(prompts[0, -1]), 1, 1]),
    )
    assert listed.hits[0] == 1.0
    assert listed.candidates == 2


def test_prompts_of_several_lengths_are_attacked_as_each_alone(model, prompts):
    ragged = [row[: 2 + place % 4] for place, row in enumerate(prompts[:12])]
    clean = torch.cat([model.states(row[None], LAYER) for row in ragged])
    channel = GaussianChannel(Isotropic(2.0, WIDTH))
    released = channel.draw(clean.double().numpy(), 1)
    whole = known_prefix(
        model, LAYER, ragged, released, channel, candidates=CandidateTokens(count=9)
    )
    for place, row in enumerate(ragged):
        alone = known_prefix(
            model,
            LAYER,
            row[None],
            released[place : place + 1],
            channel,
            candidates=CandidateTokens(count=9),
        )
        assert (alone.better[0], alone.tied[0]) == (whole.better[place], whole.tied[place])


def test_a_denoised_state_is_the_noisy_one_in_other_words():
    """The posterior mean is Σ∇φ, φ strictly convex: Newton's method takes it back."""
    source = np.random.default_rng(0)
    public = source.normal(size=(60, 3))
    noise = Isotropic(1.5, 3)
    noisy = source.normal(size=(20, 3))
    denoised = Denoiser.posterior_mean(public, noise).denoise(noisy).double().numpy()

    def recovered(target):
        guess = target.copy()
        for _ in range(200):
            logs = guess @ public.T / 1.5 - 0.5 * (public**2).sum(axis=1) / 1.5
            weights = np.exp(logs - logs.max())
            weights /= weights.sum()
            mean = weights @ public
            spread = (weights[:, None] * (public - mean)).T @ (public - mean)
            step = 1.5 * np.linalg.solve(spread, target - mean)
            guess = guess + step / max(1.0, 2.0 * np.linalg.norm(step))
        return guess

    np.testing.assert_allclose(np.array([recovered(row) for row in denoised]), noisy, atol=1e-3)
    candidates = source.normal(size=(7, 3))
    channel = GaussianChannel(noise)
    again = np.array([recovered(row) for row in denoised])
    np.testing.assert_allclose(
        channel.log_likelihood(again, candidates), channel.log_likelihood(noisy, candidates),
        atol=1e-2,
    )  # fmt: skip


def test_a_result_is_short_in_words_and_whole_in_json(model, prompts):
    clean = model.states(prompts, LAYER)
    found = known_prefix(
        model,
        LAYER,
        prompts,
        clean,
        GaussianChannel(),
        candidates=CandidateTokens(count=8),
        leakage_factor=4.0,
    )
    assert len(repr(found)) < 120
    content = json.loads(json.dumps(found.to_dict(), allow_nan=False))
    assert content["success"] == found.success
    assert content["leakage_factor"] == 4.0
    assert set(content) >= {"interval", "prior", "gain_interval", "candidates", "covered", "task"}
    assert not {"hits", "better"} & set(content)
    assert found.interval[0] <= found.success <= found.interval[1]
    assert found.gain_interval[0] <= found.gain <= found.gain_interval[1]
    assert "told all earlier tokens" in found.describe()


@pytest.mark.parametrize(
    ("options", "part"),
    [
        ({"layer": 0}, "layer"),
        ({"layer": 9}, "layer"),
        ({"candidates": "all"}, "candidates: expected CandidateTokens"),
        ({"candidates": CandidateTokens(tokens=[99])}, "tokens"),
        ({"candidates": CandidateTokens(tokens=[])}, "tokens"),
        ({"candidates": CandidateTokens(tokens=[1.5])}, "tokens"),
        ({"confidence": 1.0}, "confidence"),
        ({"prompts": [[3]]}, "prompts"),
        ({"released": np.zeros((3, WIDTH))}, "released"),
        ({"released": np.zeros((40, 4)), "channel": GaussianChannel(np.ones(WIDTH))}, "released"),
        ({"released": np.zeros(40), "channel": CodeChannel(halves)}, "released"),
        ({"released": np.zeros(40, dtype=int), "channel": CodeChannel()}, "assign"),
    ],
)
def test_bad_arguments_are_named(model, prompts, options, part):
    given = {
        "layer": LAYER, "prompts": prompts, "released": np.zeros((40, WIDTH)),
        "channel": GaussianChannel(), **options,
    }  # fmt: skip
    with pytest.raises(ValueError, match=rf"^{part}"):
        known_prefix(model, **given)


@pytest.mark.parametrize("field", [{"tokens": "all"}, {"count": 0}, {"token_law": "zipf"}])
def test_candidates_out_of_range_are_named(field):
    with pytest.raises(ValueError, match=rf"^{next(iter(field))}: expected"):
        CandidateTokens(**field)


@pytest.mark.parametrize("covariance", [None, LowRank(np.eye(3)[:1], np.eye(1))])
def test_a_bare_direction_needs_a_floor(covariance):
    with pytest.raises(ValueError, match=r"^floor"):
        GaussianChannel(covariance, floor=0.0)
    with pytest.raises(ValueError, match=r"^floor"):
        GaussianChannel(covariance, floor=-1.0)


def test_the_table_of_randomised_codes_is_that_of_its_reports():
    from tacit.hidden_states.codebooks.response import RandomizedCodes

    response = RandomizedCodes(1.5, np.array([[0, 1], [1, 2], [2, 0], [3, 0]]))
    table = response.table()
    np.testing.assert_allclose(table.sum(axis=1), 1.0)
    channel = CodeChannel(table=table)
    for draw in (response.release, channel.draw):
        reports = draw(np.full(4000, 3), np.random.default_rng(0))
        shares = np.bincount(reports, minlength=4) / 4000
        errors = np.sqrt(table[3] * (1 - table[3]) / 4000)
        assert (np.abs(shares - table[3]) < 5 * errors).all()
        assert (np.abs(shares - table[0]) > 5 * errors).any()


@pytest.mark.parametrize("table", [[[0.5, 0.4]], [[1.5, -0.5]], [[np.nan, 1.0]]])
def test_a_table_that_is_no_distribution_is_refused(table):
    with pytest.raises(ValueError, match=r"^table"):
        CodeChannel(table=table)


def template(count, seed, ends=(3, 5, 11, 17), weights=(0.7, 0.15, 0.1, 0.05)):
    """Prompts of any stem whose last token is one of a few, one of them much the commonest."""
    source = torch.Generator().manual_seed(seed)
    stems = torch.randint(VOCABULARY, (count, LENGTH - 1), generator=source)
    last = torch.multinomial(torch.tensor(weights), count, replacement=True, generator=source)
    return torch.cat([stems, torch.tensor(ends)[last][:, None]], dim=1)


def parts(states, behaviours):
    """A code of thirty-two: signs of five entries of the state."""
    rows = states.double().numpy()
    return ((rows[:, :5] > 0) * 2 ** np.arange(5)).sum(axis=1)


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_last_tokens_of_public_prompts_are_candidates(model, seed):
    prompts, public = template(80, seed), template(200, seed + 100)[:, -1]
    channel = CodeChannel(parts)
    released = channel.held(model.states(prompts, LAYER), None)
    without = known_prefix(
        model, LAYER, prompts, released, channel, candidates=CandidateTokens(count=4)
    )
    found = known_prefix(
        model, LAYER, prompts, released, channel, candidates=CandidateTokens(count=4, public=public)
    )
    assert without.covered < 0.6 < found.covered == 1.0
    assert found.success > without.success + 0.3
    # guessing blind is at least naming the commonest last token every time
    common = (prompts[:, -1] == public.mode().values).double().mean()
    assert found.prior >= common > without.prior
    # at least as often right as encoding the public last tokens again, by model times frequency
    counts = torch.bincount(public, minlength=VOCABULARY).double()
    right = 0
    for row, prompt in enumerate(prompts):
        states, _, before = every_token(model, prompt)
        scores = np.where(
            (parts(torch.from_numpy(states), None) == released[row]) & (counts > 0).numpy(),
            before + np.log(np.maximum(counts.numpy(), 1e-9)), -np.inf,
        )  # fmt: skip
        right += int(scores.argmax() == prompt[-1])
    assert found.success >= right / len(prompts) - 1e-9
    assert "best of 4 laws" in found.attacker
    assert "public prompts" in found.knows


def test_who_knows_the_public_prompts_is_never_told_more_than_one_token_each(model):
    prompts = template(20, 5)
    released = np.zeros(20, dtype=np.int64)
    silent = CodeChannel(lambda states, behaviours: np.zeros(len(states), dtype=np.int64))
    for count in (1, 2, 23):
        found = known_prefix(
            model,
            LAYER,
            prompts,
            released,
            silent,
            candidates=CandidateTokens(count=count, public=template(50, 6)[:, -1]),
        )
        assert found.success == pytest.approx(found.prior)
        assert found.candidates <= 2 * count
    with pytest.raises(ValueError, match="public"):
        known_prefix(
            model, LAYER, prompts, released, silent, candidates=CandidateTokens(public=[VOCABULARY])
        )


def forms(count, seed, field=-4):
    """Prompts of one template with a field in the middle, of five values, and free ends."""
    source = torch.Generator().manual_seed(seed)
    rows = torch.tensor([1, 2, 4, 6, 8, 9]).repeat(count, 1)
    rows[:, field] = torch.tensor([3, 5, 11, 17, 19])[torch.randint(5, (count,), generator=source)]
    rows[:, 0] = torch.randint(VOCABULARY, (count,), generator=source)
    return rows


def test_the_field_of_a_template_is_found_and_attacked_by_enumeration(model):
    prompts, public = forms(40, 1), forms(100, 2)
    assert field_position(public, 8) == -4
    assert field_position(torch.arange(5000).reshape(1000, 5), 8) is None
    field = open_field(model, LAYER, prompts, public, position=-4, count=8)
    channel = CodeChannel(parts)
    released = channel.held(model.states(prompts, LAYER), None)
    found = attack_continued(field.listed, field.rows, released, channel, task="it", knows="all")
    best = []
    for row, prompt in enumerate(prompts):
        whole = prompt.repeat(5, 1)
        whole[:, -4] = torch.tensor([3, 5, 11, 17, 19])
        inside = parts(model.states(whole, LAYER), None) == released[row]
        best.append(inside.sum() == 1)
        assert inside[(whole[:, -4] == prompt[-4]).numpy()].all()
        if best[-1]:
            assert found.better[row] == 0
    assert found.covered == 1.0
    # wherever no other value has the code, the token is named
    assert found.success >= np.mean(best)
    assert found.candidates == 5
    assert found.prior < 0.5


def test_padded_prompts_have_their_field_counted_from_the_end(model):
    prompts = forms(12, 3)
    padded = torch.cat([torch.full((12, 2), -1), prompts], dim=1)
    channel = GaussianChannel()
    outcomes = []
    for rows in (prompts, padded):
        field = open_field(model, LAYER, rows, forms(50, 4), position=-4, count=8)
        released = model.states(rows, LAYER).double().numpy()
        outcomes.append(attack_continued(field.listed, field.rows, released, channel))
    assert outcomes[0].success == outcomes[1].success == 1.0
    np.testing.assert_array_equal(outcomes[0].blind, outcomes[1].blind)
    first = open_field(model, LAYER, prompts, forms(50, 4), position=-6, count=30)
    assert np.allclose(np.exp(first.listed[0].log_priors).sum(axis=1), 1.0)
