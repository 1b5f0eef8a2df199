"""Attackers of the audit who know more or ask less: values, shared by readings, and weighed."""

import json
from dataclasses import replace

import numpy as np
import pytest

pytest.importorskip("torch")
pytest.importorskip("transformers")

from tacit import codec
from tacit.hidden_states import (
    Point,
    Sizes,
    SweepRequest,
    SweepRun,
    Wish,
    audit_layer,
    recommend,
    sweep,
)
from tacit.hidden_states.audit.catalogue import mechanism_of
from tacit.hidden_states.audit.guessers import (
    GUESSERS,
    USUAL_GUESSERS,
    Column,
    Digit,
    KnownPrefix,
    KnownRest,
    KnownToken,
    Name,
    TokenGuesser,
    Topic,
    read_guesser,
)
from tacit.hidden_states.audit.page.tables import guess_table
from tacit.hidden_states.audit.points import GuessPoint
from tacit.measured import Interval
from tacit.models import Prefixes
from tacit.releases import Release
from tacit.report import render_report
from tacit.text import percent, significant
from tests.hidden_states.networks import random_model, small_network

SIZES = Sizes(
    geometry=100, pairs=50, prompts=120, generated=0, queries=100, held_out=40, trained=100
)
WORDS = {
    "known-prefix": KnownPrefix(),
    "known-prefix(50,64)": KnownPrefix(prompts=50),
    "known-prefix(9,8)": KnownPrefix(9, 8),
    "known-rest": KnownRest(),
    "known-rest(9,8,-3)": KnownRest(9, 8, -3),
    "known-token": KnownToken(0),
    "known-token(-1)": KnownToken(-1),
    "token": TokenGuesser(-1),
    "token(-2)": TokenGuesser(-2),
    "topic": Topic(),
    "topic(3)": Topic(3),
    "digit": Digit(),
    "proper-name": Name(),
}
MOOD = np.arange(300) % 2


@pytest.fixture(scope="module")
def asked():
    stream = np.random.default_rng(1).integers(40, size=6000)
    prefixes = Prefixes.draw(stream, bank=300, calibration=300, held_out=10, length=6, rng=0)
    return small_network(vocabulary=40, width=16), prefixes


@pytest.fixture(scope="module")
def found(asked):
    model, prefixes = asked
    return audit_layer(
        model, 1, Wish(max_attack=0.2, min_agreement=0.05, max_gain=None),
        SweepRequest(
            mechanisms=["isotropic", "codebook-behaviour", "argmax"], kl_budgets=(1.0,),
            codewords=(16,),
            guessers=[
                KnownPrefix(60, 40), KnownRest(30, 40, -3), KnownToken(0), TokenGuesser(-1),
                Topic(4), Column("mood", MOOD, MOOD),
            ],
        ),
        prefixes=prefixes, sizes=SIZES, rng=2,
    )  # fmt: skip


@pytest.mark.parametrize("word", WORDS)
def test_a_word_names_a_value(word):
    assert read_guesser(word) == WORDS[word]
    assert read_guesser(WORDS[word]) is WORDS[word]
    assert read_guesser(WORDS[word].name) == WORDS[word]


def test_words_of_nothing_are_refused():
    for bad in ("oracle", "known-prefix(1,2)", "known-prefix(x)", None):
        with pytest.raises(ValueError, match=r"^guessers: "):
            read_guesser(bad)
    assert {type(value) for value in USUAL_GUESSERS} == set(GUESSERS)


def test_every_release_and_the_clean_state_stand_beside_each_other(found):
    titles = [(guess.task, guess.knows) for guess in found.details.clean]
    assert len(titles) == 9
    assert titles[1][0] == "the last but two token"
    for point in found.details.points:
        assert [(g.task, g.knows) for g in point.guesses] == titles
    prefix = found.details.clean[0]
    assert prefix.weighed
    assert prefix.success.value == prefix.covered == 1.0
    for point in found.details.points:
        if point.bound is not None:
            assert point.guesses[0].success.value < 1.0
            assert point.guesses[0].prior == prefix.prior


def test_readings_of_one_release_share_their_attacks(found):
    by_draw = {}
    for point in found.details.points:
        by_draw.setdefault(point.draw, set()).add(point.guesses)
    assert len(by_draw) < len(found.details.points)
    assert all(len(guesses) == 1 for guesses in by_draw.values())


def test_agreement_stands_beside_that_of_the_best_constant(found, asked):
    model, prefixes = asked
    public, held = (model.logits(part).argmax(dim=1) for part in (prefixes.calibration,
                                                                  prefixes.held_out))  # fmt: skip
    share = float((held == public.mode().values).double().mean())
    told = [note for note in found.remarks if note.startswith("A guess without the state")]
    assert len(told) == 1
    assert f"for {percent(share)} of" in told[0]


def test_a_known_first_token_is_counted_over_the_whole_bank(found, asked):
    first = np.unique(asked[1].bank[:, 0].numpy())
    for point in found.details.points:
        guess = next(g for g in point.guesses if g.name == "known-token")
        assert not guess.weighed
        if point.bound is not None:
            assert guess.prior.value == pytest.approx(len(first) / 300)
            # the number of cells multiplies whatever is known besides
            assert guess.success.value <= point.rank * guess.prior.value
            assert guess.success.low == guess.success.high


def test_an_audit_comes_back_from_json(found):
    text = json.dumps(found.to_dict(), allow_nan=False)
    again, here = Release.from_dict(json.loads(text)).details, found.details
    assert again.clean == here.clean
    assert [point.guesses for point in again.points] == [point.guesses for point in here.points]
    content = json.loads(text)
    content["details"]["points"][0]["guesses"][0]["gain"].update(value=2.0, low=2.0, high=2.0)
    with pytest.raises(ValueError, match=r"points\[0\]\.guesses\[0\]\.gain"):
        Release.from_dict(content)
    for name, value in (("queries", 0), ("weighed", 1), ("task", 3), ("covered", 2.0)):
        bad = {**codec.write(GuessPoint, here.clean[0]), name: value}
        with pytest.raises(ValueError, match=rf"guess\.{name}"):
            codec.read(GuessPoint, bad, "guess")
    with pytest.raises(ValueError, match="guess"):
        codec.read(GuessPoint, {}, "guess")


def test_a_stored_sweep_resumes_with_its_guesses(asked, tmp_path):
    model, prefixes = asked

    def swept(*guessers):
        return sweep(
            model, [1], SweepRequest(mechanisms=["argmax"], guessers=guessers),
            prefixes=prefixes, sizes=SIZES, run=SweepRun(out=tmp_path / "points.jsonl"), rng=2,
        )  # fmt: skip

    first, again = (swept("known-prefix(10,8)", Column("mood", MOOD, MOOD)) for _ in range(2))
    assert again == first
    assert len(first[0].guesses) == 3
    assert len(swept(Column("mood", 1 - MOOD, MOOD))[0].guesses) == 2
    plain = swept()
    assert plain[0].guesses == ()
    assert codec.read(Point, codec.write(Point, plain[0]), "point") == plain[0]
    with pytest.raises(ValueError, match=r"^bank: expected 300 labels of mood"):
        swept(Column("mood", [1], MOOD))


def gaining(point, gain, *, weighed=True):
    share = Interval(value=gain, low=gain - 0.1, high=gain + 0.1)
    guess = replace(point.guesses[0], gain=share, weighed=weighed)
    return replace(point, guesses=(guess,))


def test_a_release_that_gives_much_to_who_knows_the_prefix_is_not_recommended(found):
    book = next(p for p in found.details.points if p.bound is not None and p.protocol == "A")
    wish = Wish(max_attack=1.0, min_agreement=0.0, max_gain=0.5)
    assert recommend([gaining(book, 0.3)], wish).point is not None
    much = recommend([gaining(book, 0.45)], wish)
    assert much.point is None
    assert "55.0%" in much.reasons[0]
    # the bound and the KL of the other do not help it
    better = replace(gaining(book, 0.3), kl=replace(book.kl, high=book.kl.high + 1))
    assert recommend([gaining(book, 0.45), better], wish).point is better
    assert recommend([gaining(book, 0.45)], replace(wish, max_gain=None)).point is not None
    # whose success falls with the size of the bank is shown and not weighed
    assert recommend([gaining(book, 0.45, weighed=False)], wish).point is not None
    unknown = recommend([replace(book, guesses=())], wish)
    assert "not known" in " ".join(unknown.reasons)
    assert "all earlier tokens" in " ".join(recommend([gaining(book, 0.3)], wish).reasons)
    for bad in (0.0, 1.5, float("nan")):
        with pytest.raises(ValueError, match="max_gain"):
            Wish(max_gain=bad)


def test_the_page_has_the_table_with_its_controls(found):
    details = found.details
    table = guess_table(details)
    assert table is not None
    assert len(table.rows) == len(details.clean)
    assert table.heads[:3] == ("attacker", "without the release", "the clean state")
    assert all(len(row) == len(table.heads) for row in table.rows)
    assert any("the likeliest next token" in head for head in table.heads)
    kl = significant(details.recommendation.point.kl.value)
    assert table.heads[table.chosen].endswith(f"KL {kl}")
    page = render_report(found)
    assert "Attackers who know more, or ask less" in page
    plain = tuple(replace(point, guesses=()) for point in details.points)
    none = replace(details, clean=(), points=plain)
    assert guess_table(none) is None
    assert "who know more, or ask less" not in render_report(replace(found, details=none))


@pytest.mark.parametrize("family", ["gpt2", "llama", "phi", "phi3"])
def test_no_family_is_recommended_a_control_and_blind_guesses_are_the_best(family):
    model = random_model(family)
    # one token ends most prompts, the fourth from the end is a field of six values
    source = np.random.default_rng(3)
    rows = source.integers(61, size=(800, 6))
    rows[:, -1] = source.choice([7, 9, 30], p=[0.7, 0.2, 0.1], size=800)
    rows[:, -4] = source.integers(10, 16, size=800)
    rows = pytest.importorskip("torch").as_tensor(np.unique(rows, axis=0)[source.permutation(700)])
    prefixes = Prefixes(rows[:300], rows[300:600], rows[600:])
    sizes = replace(SIZES, prompts=100, generated=10, trained=200)
    found = audit_layer(
        model, 2, Wish(max_attack=0.5, min_agreement=0.0, max_gain=None),
        SweepRequest(codewords=(4, 64), kl_budgets=(1.0,)), prefixes=prefixes, sizes=sizes, rng=1,
    ).details  # fmt: skip
    chosen = found.recommendation.point
    assert chosen is not None
    assert not mechanism_of(chosen).control
    last, field = found.clean[:2]
    assert (last.task, field.task) == ("the last token", "the last but three token")
    common = float((prefixes.bank[:100, -1] == 7).double().mean())
    for point in found.points:
        assert point.guesses[0].prior.value >= common
        assert point.guesses[1].covered == 1.0
    assert last.success.value > 0.95
    assert field.success.value > 0.95
