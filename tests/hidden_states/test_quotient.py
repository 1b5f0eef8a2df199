"""Quotients: learnt with their noise, read in two ways, stored, released, swept by name."""

import math
from dataclasses import replace

import numpy as np
import pytest
import torch

from tacit import Ledger
from tacit.gate import Policy, check_release
from tacit.guarantees import Guarantee
from tacit.hidden_states import (
    Ball,
    InformationEstimate,
    PredictiveQuotient,
    Quotient,
    Recipe,
    Sizes,
    SweepRequest,
    estimate_log_det,
    estimate_rate,
    prepare_quotients,
    read_mechanism,
    sweep,
)
from tacit.hidden_states.quotient.training import batch_gain, batch_information
from tacit.hidden_states.quotient.use import measure_use
from tacit.models import Prefixes
from tacit.pages import verdict
from tacit.releases import load, load_rows, save_rows

from .networks import small_network

BALL = Ball.at(3, nats=5.0)


def public_prompts(count=1500, width=10, vocabulary=12, seed=0):
    states = torch.randn(count, width, generator=torch.Generator().manual_seed(seed))
    # three directions decide the prediction, seven say nothing of it
    head = torch.randn(3, vocabulary, generator=torch.Generator().manual_seed(99))
    return states, 2.5 * states[:, :3] @ head


def divergence(logits, predicted):
    clean = logits.double().log_softmax(1)
    return float((clean.exp() * (clean - predicted.double())).sum(1).mean())


@pytest.fixture(scope="module")
def fitted():
    states, logits = public_prompts()
    return PredictiveQuotient.fit(
        states, logits, BALL, Recipe(hidden=64, epochs=20), rng=0, progress=False
    )


def released_kl(quotient, states, logits):
    noisy = prepare_quotients(quotient, states, rng=5).draw().details.quotients
    return divergence(logits, quotient.distributions(noisy))


def test_it_predicts_better_than_the_mean(fitted):
    states, logits = public_prompts(seed=1, count=800)
    mean = logits.softmax(1).mean(dim=0, keepdim=True).log().expand_as(logits)
    assert released_kl(fitted, states, logits) < 0.75 * divergence(logits, mean)


def test_training_with_the_release_noise_beats_noise_at_the_release_alone():
    (public, known), (states, logits) = public_prompts(), public_prompts(seed=1, count=800)
    reached = []
    for noisy in (True, False):
        held = PredictiveQuotient.fit(
            public,
            known,
            Ball.at(3, nats=1.0),
            Recipe(hidden=32, epochs=20, noisy=noisy),
            rng=0,
            progress=False,
        )
        reached.append(released_kl(held, states, logits))
    assert reached[0] < 0.8 * reached[1]


def test_the_posterior_reader_is_bayes_rule_over_public_prompts(fitted):
    public, known = public_prompts()
    reader = fitted.posterior(public, known)
    noisy = np.array([[0.3, -1.0, 2.0], [4.0, 4.0, 4.0]])
    squares = ((noisy[:, None] - fitted.encode(public)) ** 2).sum(axis=2)
    weights = torch.from_numpy(-squares / (2 * BALL.noise_std**2)).softmax(dim=1)
    exact = weights @ known.double().softmax(dim=1)
    assert torch.allclose(reader.distributions(noisy).exp().double(), exact, atol=2e-4)


def test_the_same_seed_makes_the_same_quotient_and_a_file_brings_it_back(tmp_path, fitted):
    states, logits = public_prompts()
    again = PredictiveQuotient.fit(
        states, logits, BALL, Recipe(hidden=64, epochs=20), rng=0, progress=False
    )
    assert again.digest == fitted.digest
    fitted.save(tmp_path / "q.safetensors")
    back = PredictiveQuotient.load(tmp_path / "q.safetensors")
    assert back.digest == fitted.digest
    assert (back.ball, back.recipe, back.reads) == (fitted.ball, fitted.recipe, "states")
    assert np.array_equal(back.encode(states), fitted.encode(states))


@pytest.mark.parametrize("depth", [0, 1, 4])
@pytest.mark.parametrize("reads", ["states", "behaviours"])
def test_encoders_of_any_depth_read_states_or_behaviours(tmp_path, depth, reads):
    states, logits = public_prompts(200)
    held = PredictiveQuotient.fit(
        states if reads == "states" else None,
        logits,
        BALL,
        Recipe(reads=reads, depth=depth, hidden=8, epochs=1),
        rng=0,
        progress=False,
    )
    assert held.encode(states, behaviours=logits).shape == (200, 3)
    held.save(tmp_path / "q.safetensors")
    assert PredictiveQuotient.load(tmp_path / "q.safetensors").digest == held.digest
    with pytest.raises(ValueError, match=f"{reads}: expected the {reads} that the encoder reads"):
        held.encode(**{"behaviours" if reads == "states" else "states": logits})


def test_penalty_and_adversary_spend_less_than_is_certified():
    states, logits = public_prompts()
    told = []
    for options in ({}, {"penalty": 0.5}, {"adversary": 0.5}):
        recipe = Recipe(hidden=32, epochs=8, **options)
        held = PredictiveQuotient.fit(states, logits, BALL, recipe, rng=0, progress=False)
        told.append(held.estimate(states).nats)
        assert held.certify() == BALL.guarantees()
    assert told[1] < 0.9 * told[0]
    assert told[2] < 0.9 * told[0]


def test_the_gain_within_a_batch_is_that_of_bayes_attacker():
    source = np.random.default_rng(0)
    clean = torch.from_numpy(source.normal(size=(6, 2)) * 3)
    seen = clean + torch.from_numpy(source.normal(size=(6, 2)))
    densities = np.exp(-((seen[:, None] - clean) ** 2).sum(2).numpy() / 2)
    posterior = densities / densities.sum(axis=1, keepdims=True)
    exact = math.log(6) + np.log(np.diag(posterior)).mean()
    assert float(batch_gain(clean, seen, 1.0)) == pytest.approx(exact, rel=1e-9)
    spread = np.cov(clean.T.numpy(), bias=True) / 4
    exact = 0.5 * np.linalg.slogdet(np.eye(2) + spread)[1]
    assert float(batch_information(clean.float(), 2.0)) == pytest.approx(exact, rel=1e-5)


def test_estimates_are_no_guarantees(tmp_path):
    rows = np.random.default_rng(0).normal(size=(500, 3)) * [3.0, 1.0, 0.1]
    found = estimate_log_det(rows, noise_std=0.5)
    exact = 0.5 * np.linalg.slogdet(np.eye(3) + np.cov(rows.T) / 0.25)[1]
    assert found.nats == pytest.approx(exact, rel=1e-12)
    assert not isinstance(found, Guarantee)
    assert not issubclass(InformationEstimate, Guarantee)
    assert "estimate" in found.describe()
    with pytest.raises(ValueError, match="guarantee"):
        Ledger(tmp_path / "ledger.db").reserve("s", found, "a release")


def test_the_rate_is_of_the_deviations_it_is_given():
    means = np.array([[1.0, 0.0], [0.0, -2.0]])
    exact = np.mean([0.5 * (m @ m + 2 * s**2 - 2) - 2 * np.log(s) for m, s in
                     zip(means, (0.5, 0.5), strict=True)])  # fmt: skip
    found = estimate_rate(means, 0.5)
    assert found.nats == pytest.approx(exact)
    assert "μ + σ η" in found.warning
    with pytest.raises(ValueError, match="deviations: expected numbers > 0"):
        estimate_rate(means, 0.0)


def test_a_release_is_drawn_once_and_its_file_agrees_with_itself(tmp_path, fitted):
    states, _ = public_prompts(40)
    book = Ledger(tmp_path / "ledger.db")
    prepared = prepare_quotients(fitted, states)
    released = prepared.draw(ledger=book, secret="prompts", no_budget=True)
    with pytest.raises(ValueError, match="drawn already"):
        prepared.draw()
    assert not released.reproducible
    other = prepare_quotients(fitted, states).draw()
    assert not np.array_equal(released.details.quotients, other.details.quotients)
    for kind in ("safetensors", "npy", "parquet"):
        place = tmp_path / f"z.{kind}"
        save_rows(released, place)
        back = load_rows(place)
        assert np.array_equal(back.details.quotients, released.details.quotients)
        assert load(place) == back == released
        assert check_release(place, Policy(max_nats=released.guarantees[0].nats)).passed
        assert not check_release(place, Policy(max_nats=1.0)).passed
    assert dict(back.digests)["quotient"] == fitted.digest


def test_a_seed_voids_the_guarantees(fitted):
    states, _ = public_prompts(5)
    first, second = (prepare_quotients(fitted, states, rng=3).draw() for _ in range(2))
    assert np.array_equal(first.details.quotients, second.details.quotients)
    assert first.reproducible
    assert first.seed == 3
    assert verdict(first).kind == "void"


@pytest.mark.parametrize(
    "changed",
    [
        {"details": {"ball": {"dimension": 3, "radius": 1e-3, "noise_std": 1.0}}},
        {"details": {"ball": {"dimension": 3, "radius": float("nan"), "noise_std": 1.0}}},
        {"details": {"ball": {"dimension": 3, "radius": BALL.radius * (1 - 1e-6)}}},
        {"details": {"releases": 2}},
        {"details": {"rows": 7}},
        {"seed": 3},
        {"guarantees": []},
        {"version": 1},
        {"method": "noise"},
        {"secret": "the weather"},
        {"notes": []},
        {"digests": []},
    ],
)
def test_an_edited_release_is_refused(fitted, changed):
    states, _ = public_prompts(5)
    released = prepare_quotients(fitted, states).draw()
    content = released.to_dict()
    assert load(content) == released
    details = {**content["details"], **changed.get("details", {})}
    with pytest.raises(ValueError, match=r"^release"):
        load({**content, **changed, "details": details})


def written_and_read(release, path):
    save_rows(release, path)
    return load_rows(path)


def test_rows_of_another_release_are_refused(tmp_path, fitted):
    states, _ = public_prompts(5)
    released = prepare_quotients(fitted, states).draw()
    other = replace(released.details, quotients=np.array(released.details.quotients) + 1.0)
    save_rows(replace(released, details=other), tmp_path / "z.safetensors")
    with pytest.raises(ValueError, match="SHA-256"):
        load_rows(tmp_path / "z.safetensors")
    for wrong in (other.quotients[:3], other.quotients * np.nan):
        edited = replace(released.details, quotients=wrong)
        held = replace(released, details=edited)
        with pytest.raises(ValueError, match=r"rows: expected 5|not those that were released"):
            written_and_read(held, tmp_path / "w.safetensors")


def test_names_are_read_back_in_one_spelling_each():
    for word in Quotient.spelling():
        name = word.replace("dimension,nats", "4,6.93")
        assert read_mechanism(name).name == name
    assert Quotient.read("quotient-quiet-leakage(4,6.93)") is None
    assert Quotient.read("quotient-other(4,6.93)") is None
    for bad in ("quotient(0,1)", "quotient(4,-1)", "quotient-quiet(4,1,2,0,0.5)"):
        with pytest.raises(ValueError, match="mechanisms: "):
            read_mechanism(bad)


@pytest.mark.parametrize("releases", [1, 2])
def test_it_is_swept_like_any_other_and_stays_below_its_bound(releases):
    model = small_network(vocabulary=30)
    stream = np.random.default_rng(0).integers(30, size=5000)
    prefixes = Prefixes.draw(stream, bank=200, calibration=200, held_out=60, length=6, rng=0)
    request = SweepRequest(
        mechanisms=[
            Quotient(2, 2.0, epochs=2),
            Quotient(2, 2.0, epochs=2, behaviour=True, leakage=True),
        ],
        kl_budgets=[], attackers=[], guessers=["known-prefix(10,8)", "token"],
    )  # fmt: skip
    points = sweep(
        model, [1], request, prefixes=prefixes, releases=releases,
        sizes=Sizes(geometry=60, pairs=50, prompts=60, generated=0, queries=100), rng=0,
    )  # fmt: skip
    assert [point.reading for point in points[:3]] == [
        "posterior-mean", "decoder", "posterior-behaviour",
    ]  # fmt: skip
    for point in points:
        assert point.bound is not None
        assert point.information is not None
        attack = point.best_attack.top1
        assert attack.low <= point.bound
        assert {guess.name for guess in point.guesses} == {"known-prefix(10,8)", "token"}
        held = read_mechanism(point.mechanism)
        expected = held.ball.guarantees(candidates=200, releases=releases)
        assert held.contradiction(point, expected, releases) is None
        assert held.contradiction(point, expected, releases + 1) is not None
        assert point.bound == expected[1].success


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"ball": None}, "ball"),
        ({"depth": -1}, "depth"),
        ({"hidden": 0}, "hidden"),
        ({"penalty": -0.1}, "penalty"),
        ({"adversary": float("nan")}, "adversary"),
        ({"adversary": 0.1, "noisy": False}, "adversary"),
        ({"epochs": 0}, "epochs"),
        ({"reads": "tokens"}, "reads"),
        ({"states": torch.full((30, 4), torch.nan)}, "states"),
        ({"states": torch.zeros(29, 4)}, "behaviours"),
        ({"states": None}, "states"),
        ({"behaviours": torch.zeros(5, 3)}, "behaviours"),
    ],
)
def test_bad_arguments_are_named(options, named):
    given = {"states": torch.zeros(30, 4), "behaviours": torch.zeros(30, 3), "ball": BALL}
    data = {**given, **{name: one for name, one in options.items() if name in given}}
    how = {"epochs": 1, **{name: one for name, one in options.items() if name not in given}}
    with pytest.raises(ValueError, match=f"^{named}: "):
        PredictiveQuotient.fit(**data, recipe=Recipe(**how))


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"dimension": 0}, "dimension"),
        ({"dimension": 10_000}, "dimension"),
        ({"nats": 0.0}, "nats"),
        ({"nats": 1e9}, "nats"),
        ({"measure": "bits"}, "measure"),
        ({"noise_std": -1.0}, "noise_std"),
    ],
)
def test_a_ball_that_is_none_is_named(options, named):
    with pytest.raises(ValueError, match=f"^{named}: "):
        Ball.at(**{"dimension": 2, "nats": 3.0, **options})


@pytest.mark.parametrize("content", [b"", b"no", b"\x08\0\0\0\0\0\0\0{}      "])
def test_files_that_are_no_quotients_are_refused(tmp_path, content):
    place = tmp_path / "q.safetensors"
    place.write_bytes(content)
    for read in (PredictiveQuotient.load, load_rows):
        with pytest.raises(ValueError, match=r"^(path|release): "):
            read(place)


@pytest.mark.parametrize("radius", [1e-9, 1e30, 1e60])
def test_a_ball_that_float32_does_not_fill_is_refused(radius):
    rows = torch.randn(100, 6, generator=torch.Generator().manual_seed(0))
    ball = Ball(dimension=2, radius=radius, noise_std=radius)
    with pytest.raises(ValueError, match="ball: expected a radius in"):
        PredictiveQuotient.fit(rows, rows[:, :4], ball, Recipe(epochs=1), rng=0)


@pytest.mark.parametrize("noise_std", [1e-55, 1e59])
def test_the_ball_of_a_number_of_nats_is_found_at_any_scale(noise_std):
    found = Ball.at(2, nats=3.0, noise_std=noise_std)
    assert found.radius / noise_std == pytest.approx(Ball.at(2, nats=3.0).radius, rel=1e-12)


def test_an_estimate_out_of_range_is_refused():
    with pytest.raises(ValueError, match="quotients"):
        estimate_log_det([[1e200], [-1e200]], noise_std=1e-200)


def test_use_is_measured_on_other_prompts_beside_a_constant(fitted):
    states, logits = public_prompts(seed=4, count=700)
    learnt = public_prompts()[1]
    found = measure_use(fitted, states, logits, learnt, rng=1)
    law = logits.double().softmax(1)
    mean = learnt.double().softmax(1).mean(dim=0)
    expected = float((law * (law.log() - mean.log())).sum(1).mean())
    assert found.constant_kl.value == pytest.approx(expected, rel=1e-4)
    same = float((law.argmax(1) == mean.argmax()).double().mean())
    assert found.constant_agreement.value == pytest.approx(same)
    fresh = [measure_use(fitted, states, logits, learnt, rng=seed).kl.value for seed in range(2, 8)]
    assert found.kl.low < np.mean(fresh) < found.kl.high
    assert found.kl.high < found.constant_kl.low
    assert found.agreement.value > found.constant_agreement.value
    assert "700 public prompts" in found.describe()
    assert found.to_dict()["kl"]["confidence"] == 0.95
    with pytest.raises(ValueError, match="behaviours: expected at least 2"):
        measure_use(fitted, states[:1], logits[:1], learnt)
