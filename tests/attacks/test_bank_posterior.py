"""Side information and attributes over a bank, against sums over all candidates."""

import numpy as np
import pytest

from tacit.attacks import BankQuestion, CodeChannel, GaussianChannel, bank_posterior
from tacit.attacks.exact.posterior import standing
from tacit.attacks.exact.result import GuessAttack
from tacit.covariance import Diagonal
from tacit.hidden_states import CodebookFit

SOURCE = np.random.default_rng(0)
N = 150
STATES = SOURCE.normal(size=(N, 4))
CODES = SOURCE.integers(9, size=N)
FIRST = SOURCE.integers(6, size=N)
MOOD = np.array(["calm", "cross", "gay"])[SOURCE.integers(3, size=N)]
WEIGHTS = SOURCE.random(N) + 0.1
NOISE = Diagonal([0.5, 0.1, 2.0, 0.3])
TABLE = 0.1 * np.full((9, 9), 1 / 9) + 0.9 * np.eye(9)


def test_a_truth_that_is_ruled_out_is_not_guessed():
    never = -np.inf
    scores = np.array([[0.0, never, never], [0.0, 0.0, never], [never] * 3, [-5.0, 0.0, never]])
    hits, better, tied = standing(scores, np.array([1, 1, 0, 0]))
    assert hits.tolist() == [0.0, 0.5, 1 / 3, 0.0]
    assert better.tolist() == [1, 0, 0, 1]
    assert tied.tolist() == [1, 1, 2, 0]


def test_intervals_of_the_best_of_several_guessers_hold_though_it_was_chosen():
    # sixteen guessers of fair coins: no one of them is right more often than half of the time
    source, many = np.random.default_rng(3), 16
    about = {"task": "a coin", "attacker": "luck", "knows": "", "candidates": 2, "covered": 1.0}
    none = np.zeros(60, dtype=np.int64)
    missed = {1: 0, many: 0}
    for _ in range(150):
        hits, blind = source.integers(2, size=(2, 60, many)).astype(np.float64)
        best, least = int(hits.mean(axis=0).argmax()), int(blind.mean(axis=0).argmin())
        for looks in missed:
            found = GuessAttack.of(
                hits=hits[:, best], blind=blind[:, least], better=none, tied=none, confidence=0.9,
                chosen_of=looks, **about,
            )  # fmt: skip
            assert found.confidence == 0.9
            # at what was missed once in ten times at most, each
            missed[looks] += found.interval[0] > 0.5 or found.gain_interval[0] > 0.0
    assert missed[many] <= 0.2 * 150 < missed[1]


def by_hand(likelihood, truth, task, known, weights):
    """Chance of a right guess of every release, a loop over candidates."""
    hits = []
    for place, own in enumerate(truth):
        masses = {}
        for other in range(N):
            if known is None or known[other] == known[own]:
                mass = weights[other] * likelihood(place, other)
                masses[task[other]] = masses.get(task[other], 0.0) + mass
        best = max(masses.values())
        first = [label for label, mass in masses.items() if mass > best * (1 - 1e-9)]
        hits.append((task[own] in first) / len(first))
    return np.array(hits)


@pytest.mark.parametrize("kind", ["codes", "reports", "noise"])
@pytest.mark.parametrize("known", [None, FIRST], ids=["blind", "first"])
@pytest.mark.parametrize("task", [None, MOOD], ids=["prompt", "mood"])
@pytest.mark.parametrize("weights", [None, WEIGHTS], ids=["uniform", "weighed"])
def test_the_posterior_by_a_loop(kind, known, task, weights):
    truth = np.arange(0, N, 2)
    if kind == "noise":
        channel, bank = GaussianChannel(NOISE, floor=0.0), STATES
        released = channel.draw(STATES[truth], 1)
        scale = NOISE.diagonal()

        def likelihood(place, other):
            return np.exp(-0.5 * ((released[place] - STATES[other]) ** 2 / scale).sum())
    else:
        table = TABLE if kind == "reports" else None
        channel, bank = CodeChannel(table=table), CODES
        released = channel.draw(CODES[truth], 2)

        def likelihood(place, other):
            if table is None:
                return float(released[place] == CODES[other])
            return table[CODES[other], released[place]]

    found = bank_posterior(
        bank, released, truth, channel, asked=BankQuestion(task=task, known=known), weights=weights
    )
    labels = np.arange(N) if task is None else task
    mass = np.ones(N) if weights is None else weights
    np.testing.assert_allclose(found.hits, by_hand(likelihood, truth, labels, known, mass))
    np.testing.assert_allclose(
        found.blind, by_hand(lambda *_: 1.0, truth, labels, known, mass), atol=1e-12
    )
    assert found.covered == 1.0


def test_codes_of_the_whole_bank_are_counted_exactly():
    """(cells of the code and what is known)/N, and without the code (values known)/N."""
    found = bank_posterior(
        CODES, CODES, np.arange(N), CodeChannel(), asked=BankQuestion(known=FIRST)
    )
    assert found.success == pytest.approx(len(set(zip(CODES, FIRST, strict=True))) / N)
    assert found.prior == pytest.approx(len(set(FIRST)) / N)
    assert found.interval == (found.success, found.success)
    assert found.success <= found.prior * len(set(CODES))
    alone = bank_posterior(CODES, CODES, np.arange(N), CodeChannel())
    assert alone.success == pytest.approx(len(set(CODES)) / N)
    some = bank_posterior(CODES, CODES[:50], np.arange(50), CodeChannel())
    assert some.interval[0] < some.success < some.interval[1]


def test_a_code_that_is_not_the_candidates_own_is_still_weighed():
    """A release that no candidate explains leaves what is known to decide."""
    wrong = (CODES + 1) % 9
    found = bank_posterior(CODES, wrong, np.arange(N), CodeChannel(), asked=BankQuestion(task=MOOD))
    assert found.success < 0.6
    none = bank_posterior(
        CODES, np.full(N, 77), np.arange(N), CodeChannel(), asked=BankQuestion(task=MOOD)
    )
    np.testing.assert_allclose(none.hits, none.blind)


def test_success_by_simulation_and_told_a_wrong_size():
    truth = np.random.default_rng(3).integers(N, size=4000)
    released = GaussianChannel(NOISE).draw(STATES[truth], 4)
    found = bank_posterior(STATES, released, truth, GaussianChannel(NOISE))
    fresh = np.random.default_rng(5)
    again = fresh.integers(N, size=4000)
    seen = STATES[again] + fresh.normal(size=(4000, 4)) * np.sqrt(NOISE.diagonal())
    distances = (((seen[:, None] - STATES) ** 2) / NOISE.diagonal()).sum(axis=2)
    expected = float((distances.argmin(axis=1) == again).mean())
    assert abs(found.success - expected) < 5 * np.sqrt(2 * expected * (1 - expected) / 4000)
    wrong = bank_posterior(STATES, released, truth, GaussianChannel([2.0, 0.3, 0.1, 0.5]))
    assert wrong.success < found.success - 5 * np.sqrt(0.25 / 4000)


@pytest.mark.parametrize(
    ("options", "part"),
    [
        ({"truth": [0, N]}, "truth"),
        ({"truth": [0]}, "truth"),
        ({"released": CODES[:2].astype(float)}, "released"),
        ({"bank": CODES - 1}, "bank"),
        ({"asked": BankQuestion(known=FIRST[:3])}, "known"),
        ({"asked": BankQuestion(task=np.full(N, np.nan))}, "task"),
        ({"weights": np.zeros(N)}, "weights"),
        ({"asked": "the topic"}, "asked"),
        ({"confidence": 2.0}, "confidence"),
    ],
)
def test_bad_arguments_are_named(options, part):
    given = {
        "bank": CODES, "released": CODES[:2], "truth": [0, 1], "channel": CodeChannel(), **options
    }  # fmt: skip
    with pytest.raises(ValueError, match=rf"^{part}"):
        bank_posterior(**given)


@pytest.mark.parametrize("names", ["x", ()])
def test_names_are_two(names):
    with pytest.raises(ValueError, match=r"^names: expected two"):
        BankQuestion(names=names)


@pytest.mark.parametrize("scale", [1e-320, 1e308])
def test_weights_of_any_size_are_weights(scale):
    codes = np.array([0, 0, 1, 1, 1])
    asked = BankQuestion(task=[0, 1, 0, 1, 1])
    options = {"asked": asked, "weights": np.full(5, scale)}
    told = bank_posterior(codes, codes, np.arange(5), CodeChannel(), **options)
    even = bank_posterior(codes, codes, np.arange(5), CodeChannel(), asked=asked)
    assert (told.success, told.prior) == (even.success, even.prior)
    noise, states = GaussianChannel(np.ones(1)), np.arange(5.0)[:, None]
    assert (
        bank_posterior(states, states, np.arange(5), noise, weights=options["weights"]).success == 1
    )


def test_widths_that_differ_are_refused():
    with pytest.raises(ValueError, match="released: expected"):
        bank_posterior(STATES, np.zeros((2, 3)), [0, 1], GaussianChannel())


@pytest.mark.thorough
def test_the_first_token_and_a_code_of_64_on_the_small_model():
    """Who knows the first token names most of 4,000 prompts by a code that is bounded at 1.6%."""
    torch = pytest.importorskip("torch")
    pytest.importorskip("transformers")
    from tacit.hidden_states import Codebook
    from tacit.models import Behaviours, Prefixes, docstring_corpus, load

    model = load("tacit/small")
    stream = model.stream(docstring_corpus()[:1_200_000])
    sets = Prefixes.draw(stream, bank=4000, calibration=1500, held_out=1, length=8, rng=0)
    bank, public = (
        Behaviours(model.logits(part).log_softmax(dim=-1).to(torch.float16))
        for part in (sets.bank, sets.calibration)
    )
    # cells alone matter here: what stands for each does not
    book = Codebook.fit(
        torch.zeros(1500, 4),
        CodebookFit(size=64, metric="behaviour", decision_cost=4.0, rounds=1, least_cell=1),
        behaviours=public,
        rng=0,
        progress=False,
    )
    codes = book.assign(behaviours=bank)
    told = bank_posterior(
        codes, codes, np.arange(4000), CodeChannel(), leakage_factor=64.0,
        asked=BankQuestion(known=sets.bank[:, 0], names=("the prompt", "its first token")),
    )  # fmt: skip
    assert book.certify(codes).success.success <= 0.016
    assert abs(told.prior - 0.334) < 0.02
    assert abs(told.success - 0.788) < 0.03
    # what survives any side information is the factor
    assert told.success <= 64 * told.prior
    assert told.success > 40 * book.certify(codes).success.success
    assert "told its first token" in told.describe()
