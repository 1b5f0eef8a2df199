"""The best possible membership attacker on real data stays below what is certified."""

import pytest

from tacit.attacks.membership.declared import BAYES
from tacit.conversions import success_from_information
from tacit.statistics import privatize


@pytest.mark.parametrize("budget", [0.5, 0.25, 0.125, 0.0625, 0.0312, 0.0156, 0.0078])
def test_no_budget_is_exceeded_on_iris(budget):
    datasets = pytest.importorskip("sklearn.datasets")
    release = privatize(
        "mean",
        datasets.load_iris().data,
        Draw(nats=budget, method="exact"),
        Effort(simulations=1000, trials=2000, workers=1),
        rng=1,
    )
    assert BAYES in dict(release.attack.compared)
    assert release.membership.success <= success_from_information(budget, 0.5)
    assert release.attack.interval[1] <= release.membership.success
    assert release.attack.worst_interval[0] <= release.membership.success
