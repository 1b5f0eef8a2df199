"""The best possible membership attacker on real data stays below what is certified."""

import numpy as np
import pytest

from tacit import Draw, Effort, prepare
from tacit.attacks.membership.declared import BAYES
from tacit.conversions import success_from_information


@pytest.mark.parametrize("budget", [0.5, 0.25, 0.125, 0.0625, 0.0312, 0.0156, 0.0078])
def test_no_budget_is_exceeded_on_iris(budget):
    datasets = pytest.importorskip("sklearn.datasets")
    prepared = prepare(
        "mean",
        datasets.load_iris().data,
        Draw(nats=budget, method="exact"),
        Effort(simulations=1000, trials=0, workers=1),
        rng=1,
    )
    attack = prepared.plan.attack(2000, np.random.default_rng(1))
    certified = prepared.planned.membership.success
    assert BAYES in dict(attack.compared)
    assert certified <= success_from_information(budget, 0.5)
    assert attack.interval[1] <= certified
    assert attack.worst_interval[0] <= certified
