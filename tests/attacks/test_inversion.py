"""Inverters of trajectories: the probe by brute force, codes, fallback, and what is counted."""

import itertools
import json

import numpy as np
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")

from scipy import stats  # noqa: E402

from tacit.attacks import (  # noqa: E402
    CodeChannel,
    Inversion,
    Recovery,
    TokenProbe,
    TokenSearch,
    TrajectoryInverter,
    attack_inversion,
    sequential_decoder,
)
from tacit.attacks.sequential import search  # noqa: E402
from tacit.covariance import Isotropic  # noqa: E402
from tacit.hidden_states import Codebook, CodebookFit, inversion_attacks  # noqa: E402
from tests.arguments import asked  # noqa: E402
from tests.hidden_states.networks import small_network  # noqa: E402

WIDTH, VOCABULARY, LAYER = 16, 40, 1


@pytest.fixture(scope="module")
def model():
    return small_network("llama", vocabulary=VOCABULARY, width=WIDTH, context=8)


@pytest.fixture(scope="module")
def prompts():
    rows = torch.randint(VOCABULARY, (460, 5), generator=torch.Generator().manual_seed(1))
    return rows.unique(dim=0)[torch.randperm(450, generator=torch.Generator().manual_seed(2))]


@pytest.fixture(scope="module")
def public(prompts):
    return prompts[:400]


@pytest.fixture(scope="module")
def secret(prompts):
    return prompts[400:420]


@pytest.fixture(scope="module")
def probe(model, public):
    return TokenProbe.fit(model, LAYER, public)


def clean_states(model, tokens, layer=LAYER):
    return model.states(tokens, layer, positions="all").double().numpy()


class TestRecovery:
    def test_counts_from_the_end_with_shorter_prompts(self):
        truth = [[-1, -1, 5], [1, 2, 3], [4, 5, 6], [-1, 8, 9]]
        guess = [[7, 7, 5], [1, 0, 3], [4, 5, 6], [0, 8, 1]]
        found = Recovery.of(guess, truth)
        assert [one.value for one in found.by_position] == [3 / 4, 2 / 3, 1.0]
        assert [one.value for one in found.suffixes] == [3 / 4, 1 / 3, 1 / 2]
        assert found.exact.value == 2 / 4
        assert found.token_accuracy.value == pytest.approx((1 + 2 / 3 + 1 + 1 / 2) / 4)

    def test_the_intervals_are_exact_ones(self):
        truth = np.arange(300).reshape(100, 3)
        guess = truth.copy()
        guess[30:, 0] = 0
        found = Recovery.of(guess, truth, 0.9)
        assert found.exact.value == 0.3
        assert found.exact.low == pytest.approx(stats.beta.ppf(0.05, 30, 71))
        assert found.exact.high == pytest.approx(stats.beta.ppf(0.95, 31, 70))
        assert found.by_position[0].high == found.suffixes[1].high == 1.0
        assert found.token_accuracy.low < 0.3 + 0.7 * 2 / 3 < found.token_accuracy.high
        assert all(one.confidence == 0.9 for one in found.suffixes)

    def test_one_prompt_says_next_to_nothing(self):
        found = Recovery.of([[1, 2]], [[1, 3]])
        assert found.token_accuracy.low < 0.001
        assert found.token_accuracy.high > 0.999
        assert found.exact.value == 0.0
        assert found.exact.high > 0.9

    @pytest.mark.parametrize(
        ("guesses", "truth", "name"),
        [
            ([[1, 2]], [[1, 2, 3]], "guesses"),
            ([[1.5, 2]], [[1, 2]], "guesses"),
            ([[1, 2]], [[1, -1]], "truth"),
            ([[1, 2, 3]], [[1, -1, 2]], "truth"),
            ([[1, 2]], [[-1, -1]], "truth"),
            ("x", [[1, 2]], "guesses"),
        ],
    )
    def test_refusals(self, guesses, truth, name):
        with pytest.raises(ValueError, match=rf"^{name}"):
            Recovery.of(guesses, truth)


class TestProbe:
    def test_the_means_solve_the_regression(self, model, public):
        ridge, pull = 0.3, 2.5
        found = TokenProbe.fit(model, LAYER, public, ridge=ridge, shrinkage=pull)
        states = clean_states(model, public)[:, 1:].reshape(-1, WIDTH)
        tokens = public[:, 1:].reshape(-1).numpy()
        table = model.network.get_input_embeddings().weight.double().numpy()
        penalty = np.sqrt(ridge * (table**2).mean()) * np.eye(WIDTH, WIDTH + 1)
        rows = np.vstack([np.hstack([table[tokens], np.ones((len(tokens), 1))]), penalty])
        targets = np.vstack([states, np.zeros((WIDTH, WIDTH))])
        weights = np.linalg.lstsq(rows, targets, rcond=None)[0]
        line = np.hstack([table, np.ones((VOCABULARY, 1))]) @ weights
        for token in range(VOCABULARY):
            own = states[tokens == token]
            expected = line[token] + (own - line[token]).sum(axis=0) / (len(own) + pull)
            np.testing.assert_allclose(found.means[token], expected, rtol=1e-7, atol=1e-9)
        rest = states - found.means[tokens]
        np.testing.assert_allclose(
            found.residual,
            rest.T @ rest / len(rest),
            rtol=1e-4,
            atol=1e-6 * np.trace(rest.T @ rest),
        )
        assert found.positions == 400 * 4

    def test_scores_are_log_densities(self, model, probe, secret):
        noise = Isotropic(0.5, WIDTH)
        states = clean_states(model, secret)[0]
        scores = probe.scores(states, noise.to_dense())
        law = probe.residual + noise.to_dense()
        densities = np.array(
            [
                [stats.multivariate_normal(mean, law).logpdf(state) for mean in probe.means]
                for state in states
            ]
        )
        joint = densities + probe.log_prior
        gaps = scores - scores[:, :1] - (joint - joint[:, :1])
        np.testing.assert_allclose(gaps, 0.0, atol=1e-6)
        best = probe.shortlist(states, noise.to_dense(), 3)
        np.testing.assert_array_equal(best[:, 0], joint.argmax(axis=1))

    def test_a_token_never_seen_stands_on_the_line(self, model, public):
        without = public[(public != 7).all(dim=1)]
        found = TokenProbe.fit(model, LAYER, without)
        state = clean_states(model, torch.tensor([[3, 7]]))[:, 1]
        ranks = found.shortlist(state, 1e-6 * np.eye(WIDTH), VOCABULARY)[0].tolist()
        assert np.isfinite(found.means[7]).all()
        assert ranks.index(7) < VOCABULARY // 2

    @pytest.mark.parametrize(
        ("change", "name"),
        [
            ({"prompts": [[1], [2]]}, "prompts"),
            ({"prompts": [[-1, 2]]}, "prompts"),
            ({"prompts": [[1, 999]]}, "prompts"),
            ({"layer": 7}, "layer"),
            ({"layer": []}, "prompts"),
            ({"layer": "x"}, "layer"),
            ({"ridge": 0.0}, "ridge"),
            ({"shrinkage": -1.0}, "shrinkage"),
            ({"channel": 3}, "channel"),
            ({"channel": [None, None]}, "channel"),
        ],
    )
    def test_refusals(self, model, public, change, name):
        arguments = {"layer": LAYER, "prompts": public, **change}
        with pytest.raises(ValueError, match=rf"^{name}"):
            TokenProbe.fit(model, **arguments)

    @pytest.mark.parametrize(
        ("states", "covariance", "size", "name"),
        [
            (np.ones((2, 3)), np.eye(WIDTH), 1, "states"),
            (np.ones((2, WIDTH)), np.eye(3), 1, "covariance"),
            (np.ones((2, WIDTH)), -1e6 * np.eye(WIDTH), 1, "covariance"),
            (np.ones((2, WIDTH)), np.eye(WIDTH), 0, "size"),
        ],
    )
    def test_refusals_of_states(self, probe, states, covariance, size, name):
        with pytest.raises(ValueError, match=rf"^{name}"):
            probe.shortlist(states, covariance, size)

    def test_one_public_position_is_enough_to_run(self, model, secret):
        found = TokenProbe.fit(model, LAYER, [[1, 2]])
        state = clean_states(model, secret)[0]
        assert found.shortlist(state, np.zeros((WIDTH, WIDTH)), 3).shape == (5, 3)


class TestDecoderWithProbe:
    def test_a_short_shortlist_loses_nothing_of_clean_states(self, model, probe, secret):
        found = sequential_decoder(
            model,
            LAYER,
            clean_states(model, secret),
            1e-9 * np.eye(WIDTH),
            TokenSearch(shortlist=4, margins=False),
            truth=secret,
            probe=probe,
        )
        assert found.exact == 1.0
        assert found.predicted is None
        assert found.margins is None

    def test_what_is_on_no_shortlist_is_found_by_trying_all(
        self, model, public, secret, monkeypatch
    ):
        """A probe of other tokens' means never lists the truth; the distance gives it away."""
        honest = TokenProbe.fit(model, LAYER, public)
        order = np.argsort(honest.means[:, 0])
        astray = TokenProbe(
            honest.layers, honest.means[np.roll(order, 9)], honest.residual, honest.log_prior,
            honest.positions, honest.reports,
        )  # fmt: skip
        noise = 1e-9 * np.eye(WIDTH)
        arguments = {"truth": secret, "probe": astray}
        clean = clean_states(model, secret)
        how = TokenSearch(shortlist=1, margins=False)
        assert sequential_decoder(model, LAYER, clean, noise, how, **arguments).exact == 1.0
        monkeypatch.setattr(search, "far", lambda *_: np.inf)
        assert sequential_decoder(model, LAYER, clean, noise, how, **arguments).exact < 0.3

    def test_a_fallback_of_some_tokens_finds_them_and_no_others(self, model, public, secret):
        """The truth is found where it is among the likeliest by the network itself."""
        honest = TokenProbe.fit(model, LAYER, public)
        astray = TokenProbe(
            honest.layers, honest.means[np.roll(np.argsort(honest.means[:, 0]), 9)],
            honest.residual, honest.log_prior, honest.positions, honest.reports,
        )  # fmt: skip
        noise = 1e-9 * np.eye(WIDTH)
        found = sequential_decoder(
            model,
            LAYER,
            clean_states(model, secret),
            noise,
            TokenSearch(shortlist=1, fallback=12, margins=False),
            probe=astray,
        )
        lost = 0
        for row, tokens in zip(secret, found.tokens, strict=True):
            for step in range(1, len(row)):
                if not np.array_equal(tokens[:step], row[:step].numpy()):
                    break
                logits = model.network(row[None, :step]).logits[0, -1]
                place = int((logits > logits[row[step]]).sum())
                if place < 12:
                    assert tokens[step] == row[step]
                lost += place >= 12 and tokens[step] != row[step]
        assert lost > 5

    def test_the_whole_vocabulary_on_both_lists_is_the_plain_decoder(self, model, probe, secret):
        noise = Isotropic(0.4, WIDTH)
        released = clean_states(model, secret) + noise.sample(100, 5).reshape(20, 5, WIDTH)
        arguments = {"beam": 2, "token_law": "model"}
        plain = sequential_decoder(model, LAYER, released, noise, TokenSearch(**arguments))
        listed = sequential_decoder(
            model,
            LAYER,
            released,
            noise,
            TokenSearch(shortlist=VOCABULARY, **arguments),
            probe=probe,
        )
        np.testing.assert_array_equal(plain.tokens, listed.tokens)
        np.testing.assert_allclose(plain.scores, listed.scores, rtol=1e-9)

    def test_two_layers_say_more_than_one(self, model, public, secret):
        noise = Isotropic(3.0, WIDTH)
        parts = [
            clean_states(model, secret, layer) + noise.sample(100, layer).reshape(20, 5, WIDTH)
            for layer in (1, 2)
        ]
        both = sequential_decoder(
            model,
            [1, 2],
            parts,
            [noise, noise],
            TokenSearch(margins=False),
            truth=secret,
            probe=TokenProbe.fit(model, [1, 2], public),
        )
        single = [
            sequential_decoder(
                model,
                layer,
                part,
                noise,
                TokenSearch(margins=False),
                truth=secret,
                probe=TokenProbe.fit(model, layer, public),
            )
            for layer, part in zip((1, 2), parts, strict=True)
        ]
        assert both.recovered > max(one.recovered for one in single)

    @pytest.mark.parametrize(
        ("change", "name"),
        [
            ({"probe": 3}, "probe"),
            ({"layer": 2}, "probe"),
            ({"shortlist": 0}, "shortlist"),
            ({"shortlist": 4, "fallback": 3}, "fallback"),
            ({"probe": None, "fallback": 3}, "fallback"),
            ({"margins": "yes"}, "margins"),
            ({"covariance": CodeChannel(), "released": [[1, 2]]}, "probe"),
        ],
    )
    def test_refusals(self, model, probe, change, name):
        arguments = {
            "layer": LAYER, "released": np.ones((2, WIDTH)), "covariance": np.eye(WIDTH),
            "probe": probe, **change,
        }  # fmt: skip
        with pytest.raises(ValueError, match=rf"^{name}"):
            asked(sequential_decoder, TokenSearch)(model, **arguments)


def channel_of(book, table=None):
    def assign(states, behaviours):
        return book.assign(states, behaviours=behaviours)

    return CodeChannel(assign, table=table, predicts=book.centres is None)


@pytest.fixture(scope="module")
def books(model, public):
    states = model.states(public, LAYER)
    logits = model.logits(public)
    return (
        Codebook.fit(states, CodebookFit(size=16, least_cell=1), rng=0),
        Codebook.fit(
            states, CodebookFit(size=12, metric="behaviour", least_cell=1), behaviours=logits, rng=0
        ),
    )


def codes_of(model, channel, tokens):
    columns = []
    for length in range(1, tokens.shape[1] + 1):
        stem = tokens[:, :length]
        behaviours = model.logits(stem).log_softmax(-1) if channel.predicts else None
        columns.append(channel.held(model.states(stem, LAYER), behaviours))
    return np.stack(columns, axis=1)


class TestCodes:
    @pytest.mark.parametrize("kind", [0, 1])
    def test_decoded_prompts_have_the_codes(self, model, books, public, secret, kind):
        channel = channel_of(books[kind])
        codes = codes_of(model, channel, secret[:8])
        found = sequential_decoder(
            model,
            LAYER,
            codes,
            channel,
            TokenSearch(token_law="model", beam=6),
            truth=secret[:8],
            probe=TokenProbe.fit(model, LAYER, public, channel=channel),
        )
        assert found.predicted is None
        explained = found.scores == 0.0
        assert explained.mean() > 0.6
        again = codes_of(model, channel, torch.from_numpy(found.tokens[explained].copy()))
        np.testing.assert_array_equal(again, codes[explained])

    def test_a_wide_beam_names_the_likeliest_prompt_of_its_codes(self, books):
        """Every prompt of three tokens, scored whole by the model."""
        model = small_network("llama", vocabulary=9, width=WIDTH, context=8)
        every = torch.tensor(list(itertools.product(range(9), repeat=3)))
        book = Codebook.fit(model.states(every, LAYER), CodebookFit(size=5, least_cell=1), rng=0)
        channel = channel_of(book)
        codes = codes_of(model, channel, every)
        logs = model.network(every).logits.double().log_softmax(-1)[:, :-1]
        prior = logs.gather(2, every[:, 1:, None]).sum(dim=(1, 2)).numpy()
        probe = TokenProbe.fit(model, LAYER, every, channel=channel)
        for row in (3, 200, 611):
            found = sequential_decoder(
                model,
                LAYER,
                codes[row],
                channel,
                TokenSearch(beam=81, token_law="model"),
                probe=probe,
            )
            same = (codes == codes[row]).all(axis=1)
            best = every[np.where(same, prior, -np.inf).argmax()]
            assert found.tokens[0].tolist() == best.tolist()

    @pytest.mark.parametrize("beam", [1, 3])
    @pytest.mark.parametrize("kind", [0, 1])
    def test_candidates_that_are_not_run_could_not_win(
        self, model, books, public, secret, monkeypatch, kind, beam
    ):
        channel = channel_of(books[kind])
        codes = codes_of(model, channel, secret[:7])
        probe = TokenProbe.fit(model, LAYER, public, channel=channel)
        run = []
        whole = search.PrefixReader.states

        def counted(self, prefix, ids):
            run.append(len(ids))
            return whole(self, prefix, ids)

        monkeypatch.setattr(search.PrefixReader, "states", counted)
        found = []
        for first in (VOCABULARY, 3):
            monkeypatch.setattr(search, "TRIED", first)
            run.clear()
            attack = sequential_decoder(
                model,
                LAYER,
                codes,
                channel,
                TokenSearch(shortlist=1, beam=beam, token_law="model"),
                probe=probe,
            )
            found.append((attack.tokens, attack.scores, sum(run)))
        np.testing.assert_array_equal(found[0][0], found[1][0])
        np.testing.assert_array_equal(found[0][1], found[1][1])
        assert found[1][2] < found[0][2]

    def test_first_tokens_are_run_once(self, model, books, public, secret, monkeypatch):
        channel = channel_of(books[1])
        codes = codes_of(model, channel, secret)[:, :1]
        calls = []
        monkeypatch.setattr(
            search, "next_states",
            lambda *given, whole=search.next_states, **more: (
                calls.append(1) or whole(*given, **more)
            ),
        )  # fmt: skip
        found = sequential_decoder(model, LAYER, codes, channel)
        assert len(calls) == 1
        first = codes_of(model, channel, torch.arange(VOCABULARY)[:, None])[:, 0]
        assert found.tokens[:, 0].tolist() == [
            int((first == code).argmax()) for code in codes[:, 0]
        ]

    def test_randomised_reports_are_weighed(self, model, books, public, secret):
        size = int(books[0].size)
        table = np.full((size, size), 0.02 / (size - 1))
        np.fill_diagonal(table, 0.98)
        channel = channel_of(books[0], table)
        codes = codes_of(model, channel_of(books[0]), secret)
        reports = channel.draw(codes.reshape(-1), 3).reshape(codes.shape)
        found = sequential_decoder(
            model,
            LAYER,
            reports,
            channel,
            TokenSearch(token_law="model", beam=2),
            truth=secret,
            probe=TokenProbe.fit(model, LAYER, public, channel=channel, rng=0),
        )
        assert 1 / VOCABULARY < found.recovered < 1.0
        assert (found.scores > 0.0).all()

    @pytest.mark.parametrize(
        ("released", "name"),
        [([[0.5, 1.0]], "released"), ([[[1]]], "released"), ([[-1, 2]], "released")],
    )
    def test_refusals(self, model, books, released, name):
        with pytest.raises(ValueError, match=rf"^{name}"):
            sequential_decoder(model, LAYER, released, channel_of(books[0]))
        with pytest.raises(ValueError, match=r"^covariance"):
            sequential_decoder(model, LAYER, [[1, 2]], CodeChannel())


class TestAttack:
    def test_beside_its_baselines(self, model, probe, public, secret):
        noise = Isotropic(0.02, WIDTH)
        released = clean_states(model, secret) + noise.sample(100, 5).reshape(20, 5, WIDTH)
        inverter = TrajectoryInverter(model, LAYER, noise, probe, token_law="uniform")
        found = attack_inversion(inverter, released, secret, public, rng=0)
        assert set(found.baselines) == {"permuted", "zeroed", "majority", "nearest"}
        assert found.recovery.exact.low > max(one.exact.high for one in found.baselines.values())
        assert (found.queries, found.known, found.removed) == (20, 0, True)
        assert "20 prompts" in found.describe()
        assert "Inversion(" in repr(found)
        json.dumps(found.to_dict(), allow_nan=False)
        exact, last = inversion_attacks(found)
        assert exact.success == found.recovery.exact
        assert last.success == found.recovery.by_position[0]
        # the nearest public prompt was found by the release: it is no guess without it
        blind = [one for name, one in found.baselines.items() if name != "nearest"]
        assert last.prior == max(one.by_position[0].value for one in blind)
        assert found.baselines["nearest"].by_position[0].value > last.prior
        with pytest.raises(ValueError, match=r"^found"):
            inversion_attacks(3)

    def test_no_prompt_is_read_from_its_own_release_when_permuted(
        self, model, probe, secret, public
    ):
        inverter = TrajectoryInverter(model, LAYER, 1e-9 * np.eye(WIDTH), probe)
        clean = clean_states(model, secret)
        for seed in range(5):
            found = attack_inversion(
                inverter, clean, secret, public, baselines=["permuted"], rng=seed
            )
            assert found.baselines["permuted"].exact.value == 0.0
            assert found.recovery.exact.value == 1.0

    def test_prompts_of_the_bank_are_left_out_or_reported(self, model, probe, secret, public):
        mixed = torch.cat([public[:5], secret])
        inverter = TrajectoryInverter(model, LAYER, 1e-9 * np.eye(WIDTH), probe)
        clean = clean_states(model, mixed)
        options = {"baselines": ["nearest"], "rng": 0}
        kept = attack_inversion(inverter, clean, mixed, public, known="report", **options)
        assert (kept.known, kept.queries, kept.removed) == (5, 25, False)
        assert kept.baselines["nearest"].exact.value == 5 / 25
        left = attack_inversion(inverter, clean, mixed, public, **options)
        assert (left.known, left.queries, left.removed) == (5, 20, True)
        assert left.baselines["nearest"].exact.value == 0.0
        np.testing.assert_array_equal(left.truth, secret.numpy())
        with pytest.raises(ValueError, match=r"^truth: expected at least 2"):
            attack_inversion(inverter, clean[:5], public[:5], public)

    def test_the_nearest_public_prompt_by_brute_force(self, model, probe, secret, public):
        noise = Isotropic(2.0, WIDTH)
        released = clean_states(model, secret) + noise.sample(100, 5).reshape(20, 5, WIDTH)
        bank = clean_states(model, public)
        squares = ((released[:, None] - bank[None]) ** 2).sum(axis=(2, 3))
        inverter = TrajectoryInverter(model, LAYER, noise, probe)
        np.testing.assert_array_equal(
            inverter.nearest(released, public), public.numpy()[squares.argmin(axis=1)]
        )

    def test_half_precision_is_read_too(self, model, probe, secret, public):
        inverter = TrajectoryInverter(model, LAYER, 1e-9 * np.eye(WIDTH), probe)
        half = model.states(secret, LAYER, positions="all").bfloat16()
        found = attack_inversion(inverter, half, secret, public, rng=0)
        assert found.recovery.token_accuracy.value > 0.9

    def test_codes_and_several_layers(self, model, books, public, secret):
        channel = channel_of(books[0])
        noise = Isotropic(0.5, WIDTH)
        codes = codes_of(model, channel, secret)
        states = clean_states(model, secret, 2) + noise.sample(100, 5).reshape(20, 5, WIDTH)
        probe = TokenProbe.fit(model, [LAYER, 2], public, channel=[channel, None])
        both = TrajectoryInverter(model, [LAYER, 2], [channel, noise], probe)
        found = attack_inversion(both, [codes, states], secret, public, rng=0)
        assert "zeroed" not in found.baselines
        alone = TrajectoryInverter(
            model, LAYER, channel, TokenProbe.fit(model, LAYER, public, channel=channel)
        )
        blind = attack_inversion(alone, codes, secret, public, rng=0)
        assert found.recovery.token_accuracy.value > blind.recovery.token_accuracy.value

    @pytest.mark.parametrize(
        ("change", "name"),
        [
            ({"inverter": 3}, "inverter"),
            ({"truth": [[1, 2, 3, 4, 5]]}, "truth"),
            ({"public": [[1, 2]]}, "public"),
            ({"known": "hide"}, "known"),
            ({"baselines": ["none"]}, "baselines"),
            ({"confidence": 1.0}, "confidence"),
            ({"rng": "x"}, "rng"),
        ],
    )
    def test_refusals(self, model, probe, public, secret, change, name):
        arguments = {
            "inverter": TrajectoryInverter(model, LAYER, np.eye(WIDTH), probe),
            "released": clean_states(model, secret), "truth": secret, "public": public, **change,
        }  # fmt: skip
        with pytest.raises(ValueError, match=rf"^{name}"):
            attack_inversion(**arguments)


def test_an_inversion_is_a_value(secret):
    rows = secret.numpy().copy()
    found = Inversion(
        attacker="a", knows="the length", recovery=Recovery.of(rows, rows), baselines={},
        queries=20, known=2, removed=False, seconds=0.1, tokens=rows, truth=rows,
    )  # fmt: skip
    assert "told the length" in found.describe()
    assert "2 prompts stand among the attacker's own and are counted" in found.describe()
    assert found.successes()[0][2] is None
    with pytest.raises(ValueError, match="read-only"):
        found.tokens[0, 0] = 1
