"""An upper end that is known to be false is not kept."""

import numpy as np
import pytest

from tacit.covariance import Isotropic, ScaleMixture
from tacit.information import mixture


@pytest.mark.parametrize("scaled", [False, True])
def test_little_information_at_little_confidence_has_ends_in_order(scaled):
    """Sampled upper ends below 0 come up where almost nothing leaks; none is returned."""
    points = np.array([[0.0], [1e-3], [2e-3]])
    noise = ScaleMixture(Isotropic(1.0, 1), [0.5, 2.0], [0.5, 0.5]) if scaled else Isotropic(1.0, 1)
    for seed in range(150):
        bound = mixture(points, noise, samples=100, confidence=0.8, rng=seed)
        assert 0.0 <= bound.lower <= bound.estimate <= bound.upper
        assert bound.upper > 0.0
