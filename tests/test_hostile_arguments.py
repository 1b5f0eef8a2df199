"""Whatever comes as an argument, a public function takes it or raises a ValueError."""

import numpy as np
import pytest

from tacit import (
    Draw,
    Effort,
    Rows,
    Table,
    conversions,
    covariance,
    design,
    divergences,
    information,
    linalg,
    privatize,
)
from tests.arguments import check

EYE = np.eye(3)
BOUNDED = np.random.default_rng(0).uniform(-0.1, 0.1, (50, 3))
CALLS = {
    design.isotropic: ([EYE, 1.0], {}),
    design.ball: ([EYE, 1.0], {}),
    design.power: ([np.ones(3), 1.0, 1.0], {}),
    design.complement: ([EYE, 1, 1.0], {}),
    design.generalized_eigen: ([EYE, EYE, 1.0, 2], {}),
    design.average: ([EYE, EYE, 1.0], {"ridge": 0.1, "floor": 0.1}),
    design.worst_case: ([EYE, 1.0], {"cost": EYE, "gram": EYE, "rtol": 1e-6, "warm_start": None}),
    design.gaussian_information: ([EYE, 1.0], {"cost": EYE, "method": "exact"}),
    design.confident_information: ([BOUNDED, 1.0], {"confidence": 0.9, "radius": 1.0}),
    conversions.success_from_information: ([0.1, 0.5], {}),
    conversions.information_from_success: ([0.6, 0.5], {}),
    conversions.success_from_dp: ([1.0, 0.1], {"prior": 0.5}),
    conversions.epsilon_from_success: ([0.8, 0.1], {}),
    conversions.advantage_from_dp: ([1.0, 0.1], {}),
    conversions.epsilon_from_renyi: ([[2.0, 3.0], [0.1, 0.2], 1e-5], {}),
    conversions.fano_information: ([0.9, 4], {}),
    conversions.fano_success: ([0.1, 4], {}),
    divergences.shift_divergence: (["kl", 1.0], {}),
    divergences.shift_distance: (["kl", 1.0], {}),
    divergences.renyi_gaussians: ([np.zeros(3), EYE, np.zeros(3), EYE, 2.0], {}),
    divergences.kl_gaussians: ([np.zeros(3), EYE, np.zeros(3), EYE], {}),
    covariance.Isotropic: ([1.0, 3], {}),
    covariance.Diagonal: ([np.ones(3)], {}),
    covariance.LowRank: ([EYE, EYE], {"floor": 0.0}),
    covariance.Dense: ([EYE], {}),
    covariance.Factored: ([EYE, EYE], {}),
    linalg.sqrt_psd: ([EYE], {}),
    linalg.inverse_sqrt_psd: ([EYE], {"rtol": 1e-9}),
    linalg.generalized_eigh: ([EYE, EYE], {}),
    linalg.bures_fidelity: ([EYE, EYE], {}),
    linalg.row_space: ([EYE], {}),
    information.channel_leakage: ([EYE], {"secret": "it"}),
    information.code_leakage: ([3], {"secret": "it"}),
    information.response_leakage: ([4, 1.0], {"near": 2, "secret": "it"}),
    information.clipped_information: ([3], {"radius": 1.0, "noise_std": 1.0, "secret": "it"}),
    information.gaussian_leakage: ([3], {"radius": 1.0, "noise_std": 1.0, "secret": "it"}),
    information.mixture: (
        [BOUNDED, covariance.Isotropic(1.0, 3)],
        {"weights": np.full(50, 0.02), "samples": 200, "confidence": 0.9, "rng": 1},
    ),
    design.true_information: (
        [[[-1.0], [1.0]], 0.6],
        {"family": "scale", "cost": 1.0, "confidence": 0.9, "rng": 1},
    ),
    covariance.ScaleMixture: ([covariance.Isotropic(1.0, 3), [1.0, 2.0], [0.5, 0.5]], {}),
    privatize: (
        [
            "mean",
            np.random.default_rng(0).normal(size=(30, 2)),
            Draw(nats=0.1),
            Effort(simulations=20, trials=10, workers=1),
        ],
        {"cost": None, "rng": 1, "columns": ["a", "b"], "target": None},
    ),
    Draw: ([], {"nats": 0.1, "rate": 0.5, "method": "auto", "confidence": 0.9}),
    Rows: ([], {"success": 0.6, "rate": 0.5, "method": "auto", "confidence": 0.9, "levels": None}),
    Table: ([], {"epsilon": 1.0, "delta": 1e-6, "adjacency": "replace", "levels": None}),
    Effort: ([], {"simulations": 20, "trials": 10, "workers": 1, "progress": False}),
}


@pytest.mark.parametrize("function", CALLS, ids=lambda function: function.__name__)
def test_nothing_but_value_errors(function):
    check(function, *CALLS[function])
