"""Whatever comes as an argument, an attack or a release takes it or raises a ValueError."""

import numpy as np
import pytest

from tacit import Draw, Effort
from tacit.attacks import (
    BankQuestion,
    CodeChannel,
    Complement,
    Euclidean,
    Labelled,
    Mahalanobis,
    Topics,
    Weighted,
    attributes,
    bank_posterior,
    bayes,
    bayes_success,
    label_digits,
    label_names,
    label_tokens,
    likelihood_ratio,
    lira,
    rmia,
    roc,
)
from tacit.attacks.intervals import chernoff_interval
from tacit.attacks.retrieval.attack import retrieve, zipf
from tacit.classifiers import privatize_logits
from tacit.conversions import fano_information
from tacit.covariance import Diagonal, Isotropic
from tests.arguments import check


def logits_of(predict, pool, *, nats, method, confidence, trials, **options):
    """Release logits; what is asked is a value of each argument."""
    promise = Draw(nats=nats, method=method, confidence=confidence)
    return privatize_logits(predict, pool, promise, Effort(trials=trials), **options)


def attribute_of(prompts, released, labels, **options):
    """Attack prompts that stand nowhere else."""
    other = Labelled(100 + np.arange(27).reshape(9, 3), np.arange(9) % 3, np.arange(9) % 3)
    return attributes(Labelled(prompts, released, labels), other, **options)


LINE = np.array([[0.0], [1.0], [3.0]])
SCORES = np.random.default_rng(0).normal(size=(9, 5))
SAW = np.arange(40).reshape(8, 5) % 2


# Positional arguments, options, and how many of them a Covariance or a predictor takes.
def asked_of_codes(task, known):
    return bank_posterior(
        CODES, CODES[:4], np.arange(4), CodeChannel(), asked=BankQuestion(task=task, known=known)
    )


CALLS = {
    bayes: ([LINE, [0, 1, 1]], {"weights": [1, 2, 1], "trials": 9, "confidence": 0.9, "rng": 0}),
    bayes_success: ([LINE, [0, 1, 1]], {"weights": [1, 2, 1], "tolerance": 1e-3}),
    likelihood_ratio: (
        [LINE, LINE[:2], LINE[2:]],
        {"inside_weights": [1, 2], "outside_weights": [1]},
    ),
    lira: ([SCORES[0], SCORES[1:], SAW], {"variant": "online", "variance": "global"}),
    rmia: (
        [-np.abs(SCORES[0]), -np.abs(SCORES[1:]), SAW],
        {
            "population_scores": -np.arange(3.0),
            "population_shadow_scores": -np.ones((8, 3)),
            "variant": "offline",
            "gamma": 1.5,
            "slope": 0.5,
        },
    ),
    roc: (
        [np.arange(20.0), np.arange(20) % 2],
        {"confidence": 0.9, "fpr": (0.1,), "rng": 0},
    ),
    chernoff_interval: ([0.5, 10, 0.9], {}),
    fano_information: ([0.9, 4, 1.0], {}),
    logits_of: (
        [SCORES, np.arange(9)],
        {
            "nats": 0.5,
            "inputs": [0, 3],
            "labels": np.arange(9) % 5,
            "method": "exact",
            "cost": None,
            "confidence": 0.9,
            "trials": 9,
            "rng": 0,
        },
    ),
}
CODES, TOKENS = np.arange(9) % 3, np.arange(27).reshape(9, 3)
CALLS |= {
    label_tokens: ([TOKENS], {"position": -1}),
    label_digits: ([["a", "b1"]], {}),
    label_names: ([["a", "b1"]], {}),
    Topics.fit: ([TOKENS, 2], {"rng": 0}),
    bank_posterior: (
        [CODES, CODES[:4], np.arange(4), CodeChannel()],
        {"asked": BankQuestion(), "weights": np.ones(9), "leakage_factor": 2.0, "confidence": 0.9},
    ),
    asked_of_codes: ([CODES, CODES], {}),
    attribute_of: ([TOKENS, CODES, CODES], {"learner": None, "confidence": 0.9, "rng": 0}),
}  # fmt: skip
NOISE = Isotropic(1.0, 1)
BANK = np.random.default_rng(1).normal(size=(9, 3))
RELEASED = BANK[:4] + 0.1
RETRIEVALS = {
    Euclidean: ({}, {"last_tokens": np.arange(9) % 2, "index": None, "confidence": 0.9}),
    Complement: ({"basis": np.eye(3)[:1]}, {}),
    Weighted: ({"coordinate_weights": [1.0, 2.0, 0.0]}, {}),
    Mahalanobis: (
        {"covariance": Diagonal([1.0, 2.0, 0.5]), "floor": 0.1, "weights": np.ones(9)},
        {"rng": 0},
    ),
}


def with_noise(function):
    """Put the covariance where the function takes it; a covariance of another type is not tried."""
    place = {bayes: 1, bayes_success: 1, likelihood_ratio: 3}.get(function)
    if place is None:
        return function

    def call(*arguments, **options):
        given = [*arguments[:place], NOISE, *arguments[place:]]
        return function(*given, **options)

    return call


@pytest.mark.parametrize("function", CALLS, ids=lambda function: function.__name__)
def test_nothing_but_value_errors(function):
    arguments, options = CALLS[function]
    check(with_noise(function), arguments, options)


@pytest.mark.parametrize("metric", RETRIEVALS)
def test_retrieval_raises_nothing_but_value_errors(metric):
    held, beside = RETRIEVALS[metric]

    def attack(bank, queries, truth, **options):
        own = {name: options.pop(name) for name in held}
        return retrieve(bank, queries, truth, metric=metric(**own), **options)

    check(attack, [BANK, RELEASED, np.arange(4)], {**held, **beside})


def test_retrieval_tuned_on_hostile_states_raises_nothing_but_value_errors():
    noise = Diagonal([1.0, 2.0, 0.5])

    def tuned(queries, truth, other, own):
        held_out = (other, own)
        return retrieve(BANK, queries, truth, metric=Mahalanobis(noise, held_out=held_out))

    check(tuned, [RELEASED, np.arange(4), RELEASED + 0.1, np.arange(4)], {})


def test_what_an_attack_among_fewer_reached_raises_nothing_but_value_errors():
    found = retrieve(BANK, RELEASED, np.arange(4))
    check(found.among, [[2, 5]], {})
    check(zipf, [9], {"exponent": 1.0, "rng": 0})
