"""At equal certified information, true information takes no more noise than log-det rules."""

from __future__ import annotations

import numpy as np
import pytest
from benchmarks.information import (
    CASES,
    FAMILIES,
    clusters,
    designs,
    direct_mixture,
    heavy_tails,
    lattice,
)

from tacit.covariance import Dense
from tacit.information import mixture

SMALL = {
    "clusters": clusters(60),
    "heavy tails": heavy_tails(80),
    "lattice": lattice(2),
    "two points": np.array([[-1.0, 0.0], [1.0, 0.0]]),
}


@pytest.mark.thorough
@pytest.mark.parametrize("name", SMALL)
def test_true_information_is_never_above_exact_auto_pac(name: str) -> None:
    families = FAMILIES if name == "lattice" else ("full",)
    found = dict(designs(SMALL[name], 1.0 if name != "two points" else 0.3, families))
    rounding = 1 + 1e-9
    assert all(design.information <= 1.0 for design in found.values())
    for family in set(families) - {"diagonal"}:
        assert found[f"true {family}"].cost <= found["exact"].cost * rounding
    if "diagonal" in families:
        assert found["true diagonal"].cost <= found["diagonal"].cost * rounding
    assert found["exact"].cost <= found["linear"].cost * rounding
    assert found["linear"].cost <= found["diagonal"].cost * rounding


@pytest.mark.thorough
def test_clusters_save_noise_where_the_law_is_far_from_gaussian() -> None:
    found = dict(designs(SMALL["clusters"], 1.5, ["full"]))
    assert found["true full"].cost < 0.9 * found["exact"].cost


def test_the_direct_evaluation_agrees_with_the_bound() -> None:
    points = SMALL["heavy tails"]
    noise = Dense(np.diag([2.0, 1.0, 3.0, 1.0, 2.0]))
    values = [
        direct_mixture(points, noise, 4_000, np.random.default_rng(seed)) for seed in range(8)
    ]
    error = float(np.std(values, ddof=1)) / np.sqrt(len(values))
    bound = mixture(points, noise, samples=50_000, confidence=0.999, rng=1)
    assert bound.lower - 5 * error <= np.mean(values) <= bound.upper + 5 * error


def test_the_cases_are_what_their_names_say() -> None:
    assert set(CASES) == {
        "two clusters", "digit logits", "Iris means", "heavy tails", "lattice",
    }  # fmt: skip
    assert len(np.unique(lattice(3), axis=0)) == 27
