"""``tacit account``: every mechanism, both ways, and what it refuses."""

import json
import math
import sys
from xml.etree import ElementTree

import pytest

from tacit.accounting import (
    ProjectedSteps,
    gaussian,
    laplace,
    projected_plus_noise,
    published,
    randomized_response,
    sketch,
    subsampled_gaussian,
    subsampled_group,
    vector_projection,
)
from tacit.guarantees import ApproximateDP, guarantee_from_dict
from tests.cli_runner import refused

TARGET = ("--epsilon", 1, "--delta", 1e-5)
QUICK = ("noisy-projection", "--dimension", 50, "--rank", 5, "--difference-rank", 1)


def account(tacit, *arguments):
    outcome = tacit("account", *arguments, "--json", "-")
    assert outcome.code == 0, outcome.err
    return json.loads(outcome.out)


def gaussian_delta(distance, epsilon):
    normal = lambda x: math.erfc(-x / math.sqrt(2)) / 2  # noqa: E731
    low, high = distance / 2 - epsilon / distance, -distance / 2 - epsilon / distance
    return normal(low) - math.exp(epsilon) * normal(high)


@pytest.mark.parametrize(
    ("arguments", "profile"),
    [
        (("gaussian", "--noise-std", 2, "--steps", 9), gaussian(3.0, 2.0)),
        (("laplace", "--scale", 2, "--sensitivity", 1), laplace(1.0, 2.0)),
        (
            ("randomized-response", "--truth-probability", 0.7, "--categories", 3),
            randomized_response(None, 3, truth_probability=0.7),
        ),
        (
            (
                *("subsampled-gaussian", "--sampling-rate", 0.1, "--noise-multiplier", 2),
                *("--steps", 10, "--adjacency", "replace"),
            ),
            subsampled_gaussian(0.1, 2.0, 10, "replace"),
        ),
        (
            ("vector-projection", "--dimension", 40, "--rank", 8, "--alignment", 0.99),
            vector_projection(dim=40, rank=8, alignment=0.99),
        ),
        (
            ("sketch", "--dimension", 8, "--rank", 8, "--gamma", 0.01),
            sketch(rank=8, dim=8, gamma=0.01),
        ),
        (
            ("sketch", "--dimension", 2, "--rank", 2, "--gamma", 0.2, "--one-order"),
            sketch(rank=2, dim=2, gamma=0.2, both_orders=False),
        ),
    ],
)
def test_given_noise_the_command_says_what_the_profile_says(tacit, arguments, profile):
    content = account(tacit, *arguments, "--delta", 1e-3)
    guarantee = guarantee_from_dict(content["guarantee"])
    assert isinstance(guarantee, ApproximateDP)
    assert guarantee.epsilon == pytest.approx(profile.epsilon(1e-3), rel=1e-9)
    assert guarantee.delta == 1e-3
    assert content["advantage"] == pytest.approx(profile.advantage(), rel=1e-9)
    assert content["success"] == pytest.approx((1 + profile.advantage()) / 2, rel=1e-9)
    at = account(tacit, *arguments, "--epsilon", 0.5)["guarantee"]
    assert at["epsilon"] == 0.5
    assert at["delta"] == pytest.approx(profile.delta(0.5), rel=1e-9)


@pytest.mark.parametrize(
    ("arguments", "weaker"),
    [
        (("gaussian",), lambda std: 0.99 * std),
        (("laplace",), lambda scale: 0.99 * scale),
        (("randomized-response",), lambda truth: 1.01 * truth),
        (("vector-projection", "--dimension", 40, "--rank", 8), lambda rho: 1 - 1.02 * (1 - rho)),
        (("sketch", "--dimension", 8, "--rank", 8), lambda gamma: 1.01 * gamma),
        (QUICK, lambda noise: 0.99 * noise),
        (
            ("subsampled-gaussian", "--sampling-rate", 0.1, "--steps", 10),
            lambda noise: 0.99 * noise,
        ),
    ],
    ids=lambda value: value[0] if isinstance(value, tuple) else None,
)
def test_given_a_target_the_command_finds_the_parameter(tacit, arguments, weaker):
    """Found on the safe side, and one percent less private is too little."""
    content = account(tacit, *arguments, "--epsilon", 1, "--delta", 1e-4)
    assert content["parameter"]["calibrated"] is True
    assert content["guarantee"]["epsilon"] <= 1.0
    value, flag = content["parameter"]["value"], content["parameter"]["name"].replace("_", "-")
    again = account(tacit, *arguments, f"--{flag}", repr(value), "--delta", 1e-4)
    assert again["guarantee"]["epsilon"] <= 1.0
    assert again["parameter"]["calibrated"] is False
    less = account(tacit, *arguments, f"--{flag}", repr(weaker(value)), "--delta", 1e-4)
    assert less["guarantee"]["epsilon"] > 1.0


def test_nothing_given_away_is_guessing_blind(tacit):
    content = account(tacit, "gaussian", "--noise-std", 1, "--sensitivity", 0)
    assert (content["advantage"], content["success"]) == (0.0, 0.5)
    told = tacit("account", "gaussian", "--noise-std", 1, "--sensitivity", 0).out
    assert "at most 50% of the time" in told


def test_noise_after_a_projection(tacit):
    arguments = ("--dimension", 20, "--rank", 8, "--noise-std", 4.5, "--difference-rank", 1)
    content = account(tacit, "projected-plus-noise", *arguments, "--epsilon", 1)
    exact = projected_plus_noise(
        dim=20, rank=8, sensitivity=1.0, noise_std=4.5, difference_rank=1
    ).delta(1.0)
    assert content["guarantee"]["delta"] == pytest.approx(exact, rel=1e-9)


def test_the_gaussian_is_the_textbook_one(tacit):
    found = account(tacit, "gaussian", "--epsilon", 1, "--delta", 1e-5)["parameter"]["value"]
    reached = gaussian_delta(1 / found, 1.0)
    assert reached <= 1e-5
    assert reached == pytest.approx(1e-5, rel=2e-4)


@pytest.mark.thorough
def test_noisy_projection_stands_beside_the_published_bound_and_dp_sgd(tacit):
    arguments = (*QUICK, "--steps", 20, "--sampling-rate", 0.1, "--epsilon", 1, "--delta", 1e-4)
    outcome = tacit("account", *arguments, "--json", "-")
    content, told = json.loads(outcome.out), outcome.err
    others = content["others"]
    ours = content["parameter"]["value"]
    assert ours < others["published_noise_multiplier"] < others["plain_noise_multiplier"]
    work = ProjectedSteps(dim=50, rank=5, steps=20, sampling_rate=0.1)
    claim = published.lora_theorem_5_steps(work, others["published_noise_multiplier"], delta=1e-4)
    assert claim.epsilon == pytest.approx(1.0, rel=1e-5)
    plain = subsampled_gaussian(0.1, others["plain_noise_multiplier"], 20)
    assert plain.epsilon(1e-4) == pytest.approx(1.0, rel=1e-5)
    assert content["published"]["epsilon"] > 1.0
    for label in ("parameter", "guarantee", "published", "DP-SGD", "assumes"):
        assert f"\n{label}" in told
    # ε was asked for, so the noise comes first
    assert told.startswith("noise multiplier ")


def test_a_projection_as_wide_as_the_space_is_dp_sgd(tacit):
    whole = ("noisy-projection", "--dimension", 4, "--rank", 4, "--epsilon", 1, "--delta", 1e-5)
    content = account(tacit, *whole)
    plain = content["others"]["plain_noise_multiplier"]
    assert content["parameter"]["value"] == pytest.approx(plain, rel=1e-5)
    assert "published_noise_multiplier" not in content["others"]
    assert "refused" in content["published"]


def test_an_unsound_published_bound_is_named_and_not_used(tacit):
    arguments = ("vector-projection", "--dimension", 10, "--rank", 50, "--alignment", 0.99)
    content = account(tacit, *arguments, "--delta", 0.01)
    assert "above which Theorem 1 is unsound" in content["published"]["refused"]
    assert content["guarantee"]["epsilon"] > 2.41506
    told = tacit("account", *arguments, "--delta", 0.01)
    assert "published    refused: rank: expected at most dimension + 1 = 11" in told.out


def test_epochs_cost_less_than_coins_at_the_same_rate(tacit):
    allocated = account(
        tacit, "random-allocation", "--steps", 10, "--epochs", 3, "--noise-multiplier", 2
    )
    coins = account(
        tacit,
        *("subsampled-gaussian", "--sampling-rate", 0.1, "--steps", 30, "--noise-multiplier", 2),
    )
    assert allocated["settings"]["epochs"] == 3
    assert allocated["guarantee"]["epsilon"] < coins["guarantee"]["epsilon"]


def test_composition_costs_more(tacit):
    once = account(tacit, "sketch", "--dimension", 2, "--rank", 2, "--gamma", 0.05)
    thrice = account(tacit, "sketch", "--dimension", 2, "--rank", 2, "--gamma", 0.05, "--steps", 3)
    assert thrice["guarantee"]["epsilon"] > once["guarantee"]["epsilon"]
    assert once["published"]["epsilon"] > math.log(1e5)
    assert thrice["published"] is None


def test_the_tour_names_every_mechanism(tacit):
    tour = tacit("account", "--help").out
    for name in (
        "gaussian",
        "laplace",
        "randomized-response",
        "subsampled-gaussian",
        "random-allocation",
        "vector-projection",
        "noisy-projection",
        "projected-plus-noise",
        "sketch",
    ):
        assert name in tour


@pytest.mark.parametrize(
    "arguments",
    [
        ("gaussian", "--noise-std", 1),
        ("sketch", "--dimension", 4, "--rank", 4, "--gamma", 0.1),
    ],
    ids=lambda arguments: arguments[0],
)
def test_the_figure_shows_the_bound_and_what_was_published(tacit, tmp_path, arguments):
    picture = tmp_path / "out.svg"
    outcome = tacit("account", *arguments, "--plot", picture)
    assert outcome.code == 0
    assert str(picture) in outcome.out
    drawn = picture.read_text()
    assert ElementTree.fromstring(drawn).tag.endswith("svg")
    assert "this profile" in drawn
    assert ("published bound" in drawn) == (arguments[0] == "sketch")
    assert ("stroke-dasharray" in drawn) == (arguments[0] == "sketch")


def test_a_png_is_a_png(tacit, tmp_path):
    picture = tmp_path / "out.png"
    assert tacit("account", "laplace", "--scale", 1, "--plot", picture).code == 0
    assert picture.read_bytes().startswith(b"\x89PNG")
    assert [path.name for path in tmp_path.iterdir()] == ["out.png"]


def test_a_figure_without_matplotlib_is_refused_before_anything_is_computed(
    tacit, tmp_path, monkeypatch
):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    outcome = tacit("account", "laplace", "--scale", 1, "--plot", tmp_path / "out.png")
    assert outcome.code == 2
    assert "--plot" in outcome.err
    assert "tacit-privacy[plot]" in outcome.err


@pytest.mark.parametrize(
    ("arguments", "parts"),
    [
        (("gaussian",), ("--noise-std", "both --epsilon and --delta")),
        (("gaussian", "--epsilon", 1), ("--noise-std", "both --epsilon and --delta")),
        (("gaussian", "--noise-std", 1, "--epsilon", 1, "--delta", 0.1), ("got all three",)),
        (("gaussian", "--noise-std", -1), ("--noise-std", "-1.0")),
        (("gaussian", "--noise-std", "abc"), ("--noise-std", "abc")),
        (("gaussian", "--noise-std", 1, "--steps", 0), ("--steps", "0")),
        (("gaussian", "--noise-std", 1, "--delta", 2), ("--delta", "2.0")),
        (("gaussian", "--noise-std", 1, "--epsilon", -1), ("--epsilon", "-1.0")),
        (("gaussian", "--noise-std", 1, "--epsilon", "nan"), ("--epsilon", "NaN")),
        (("gaussian", "--epsilon", 0, "--delta", 0.1), ("--epsilon", "0.0")),
        (("gaussian", "--epsilon", 1, "--delta", 0), ("--epsilon, --delta", "not enough")),
        (("laplace", "--scale", 1, "--steps", 0), ("--steps", "0")),
        (("randomized-response", "--truth-probability", 2), ("--truth-probability", "2.0")),
        (("randomized-response", "--categories", 1), ("--categories", "1")),
        (("subsampled-gaussian", "--steps", 1), ("--sampling-rate",)),
        (("random-allocation", "--steps", 0, "--noise-multiplier", 1), ("--steps",)),
        (
            ("random-allocation", "--steps", 2, "--participations", 3, "--noise-multiplier", 1),
            ("--participations", "at most 2"),
        ),
        (
            ("subsampled-gaussian", "--sampling-rate", 2, "--steps", 1, "--noise-multiplier", 1),
            ("--sampling-rate", "2.0"),
        ),
        (
            (*QUICK, "--noise-multiplier", 1, "--adjacency", "friends"),
            ("--adjacency", "friends"),
        ),
        (("noisy-projection", "--dimension", 0, "--rank", 1, *TARGET), ("--dimension", "0")),
        (("noisy-projection", "--dimension", 9, "--rank", 0, *TARGET), ("--rank", "0")),
        (
            ("noisy-projection", "--dimension", 9, "--rank", 1, "--steps", -3, *TARGET),
            ("steps", "-3"),
        ),
        (("projected-plus-noise", "--dimension", 1, "--rank", 1, *TARGET), ("--dimension", "1")),
        (("gaussian", "--noise-std", 1e-300), ("--delta", "finite epsilon", "1e-05")),
        (("sketch", "--dimension", 2, "--rank", 2, "--gamma", 1), ("gamma", "1.0")),
        (("vector-projection", "--dimension", 9, "--rank", 0, "--alignment", 0.9), ("rank", "0")),
        (
            (
                "vector-projection",
                "--dimension",
                9,
                "--rank",
                1,
                "--alignment",
                0.5,
                "--delta",
                1e-9,
            ),
            ("delta", "1e-09"),
        ),
        (("gaussian", "--noise-std", 1, "--plot", "/no/such/folder/x.png"), ("--plot",)),
        (("gaussian", "--noise-std", 1, "--plot", "figure.txt"), ("--plot", "png, svg, pdf")),
        (("fancy",), ("fancy",)),
    ],
    ids=lambda value: " ".join(map(str, value)) if isinstance(value, tuple) else None,
)
def test_bad_input_is_one_sentence(tacit, tmp_path, monkeypatch, arguments, parts):
    monkeypatch.chdir(tmp_path)
    refused(tacit("account", *arguments), *parts)
    assert not list(tmp_path.iterdir())


TRAINING = ("dp-sgd", "--examples", 600, "--batch", 60, "--epochs", 3)


def test_a_training_is_asked_for_as_it_was_run(tacit):
    found = json.loads(tacit("account", *TRAINING, "--noise-multiplier", 1, "--json", "-").out)
    assert found["settings"]["steps"] == 30
    profile = subsampled_gaussian(0.1, 1.0, 30)
    assert found["guarantee"]["epsilon"] == profile.guarantee(delta=1e-5).epsilon
    assert "(Poisson sampling, 30 steps)" in found["statement"]
    # a target in the place of the noise
    reached = json.loads(tacit("account", *TRAINING, "--target-epsilon", 2, "--json", "-").out)
    assert reached["parameter"]["calibrated"]
    noise = reached["parameter"]["value"]
    assert subsampled_gaussian(0.1, noise, 30).epsilon(1e-5) <= 2
    assert subsampled_gaussian(0.1, 0.98 * noise, 30).epsilon(1e-5) > 2


def test_shuffled_batches_and_users_are_said_apart(tacit):
    def asked(*more):
        return json.loads(
            tacit("account", *TRAINING, "--noise-multiplier", 2, *more, "--json", "-").out
        )

    shuffled = asked("--sampling", "shuffled")
    # one batch of each of three epochs, without amplification
    exact = gaussian(math.sqrt(3), 2.0).epsilon(1e-5)
    assert shuffled["guarantee"]["epsilon"] == pytest.approx(exact, rel=1e-9)
    assert "no amplification" in shuffled["statement"]
    users = asked("--examples-per-user", 4)
    assert users["guarantee"]["epsilon"] == subsampled_group(0.1, 2.0, 30, 4).epsilon(1e-5)
    assert "one user with up to 4 examples" in users["statement"]


@pytest.mark.parametrize(
    ("wrong", "flag"),
    [
        (("--noise-multiplier", 1, "--target-epsilon", 1), "--target-epsilon"),
        (("--target-epsilon", 1, "--epsilon", 1), "--target-epsilon"),
        (("--noise-multiplier", 1, "--batch", 7000), "--batch"),
        (("--noise-multiplier", 1, "--examples-per-user", 0), "--examples-per-user"),
        (("--noise-multiplier", 1, "--sampling", "shufled"), "--sampling"),
    ],
)
def test_what_makes_no_training_is_refused(tacit, wrong, flag):
    outcome = tacit("account", *TRAINING, *wrong)
    assert outcome.code == 2
    assert flag in outcome.err
