"""Whatever comes as an argument, an attack or a release takes it or raises a ValueError."""

import numpy as np
import pytest

from tacit.attacks import bayes, bayes_success, likelihood_ratio, lira, roc
from tacit.attacks.intervals import chernoff_interval
from tacit.covariance import Isotropic
from tacit.information import fano_information
from tacit.statistics import classifier

from ..test_hostile_arguments import HOSTILE, is_refused

LINE = np.array([[0.0], [1.0], [3.0]])
SCORES = np.random.default_rng(0).normal(size=(9, 5))
SAW = np.arange(40).reshape(8, 5) % 2
# Positional arguments, options, and how many of them a Covariance or a predictor takes.
CALLS = {
    bayes: ([LINE, [0, 1, 1]], {"weights": [1, 2, 1], "trials": 9, "confidence": 0.9, "rng": 0}),
    bayes_success: ([LINE, [0, 1, 1]], {"weights": [1, 2, 1], "tolerance": 1e-3}),
    likelihood_ratio: (
        [LINE, LINE[:2], LINE[2:]],
        {"inside_weights": [1, 2], "outside_weights": [1]},
    ),
    lira: ([SCORES[0], SCORES[1:], SAW], {"variant": "online", "variance": "global"}),
    roc: (
        [np.arange(20.0), np.arange(20) % 2],
        {"confidence": 0.9, "fpr": (0.1,), "rng": 0},
    ),
    chernoff_interval: ([0.5, 10, 0.9], {}),
    fano_information: ([0.9, 4, 1.0], {}),
    classifier: (
        [SCORES, np.arange(9)],
        {
            "mi_budget": 0.5,
            "inputs": [0, 3],
            "labels": np.arange(9) % 5,
            "method": "exact",
            "cost": None,
            "confidence": 0.9,
            "attack_trials": 9,
            "rng": 0,
        },
    ),
}
NOISE = Isotropic(1.0, 1)


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
    call = with_noise(function)
    call(*arguments, **options)
    refused = 0
    for hostile in HOSTILE:
        for place in range(len(arguments)):
            given = list(arguments)
            given[place] = hostile
            refused += is_refused(call, given, options)
        for name in options:
            refused += is_refused(call, arguments, {**options, name: hostile})
    assert refused >= 3 * (len(arguments) + len(options)) - len(options)
