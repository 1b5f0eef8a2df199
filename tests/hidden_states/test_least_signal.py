"""M* against a search over noise, in other coordinates, and where F or S is singular."""

import numpy as np
import pytest
from scipy import optimize

pytest.importorskip("torch")
pytest.importorskip("transformers")

from tacit.hidden_states import least_signal
from tacit.hidden_states.geometry.estimation import _summary
from tacit.hidden_states.geometry.fisher import FisherInformation

WIDTH = 6


def gradients_and_states(seed, gradients=400):
    source = np.random.default_rng(seed)
    mixing = source.standard_normal((2, WIDTH, WIDTH))
    slopes = source.standard_normal((gradients, WIDTH)) @ mixing[0]
    return slopes, source.standard_normal((300, WIDTH)) @ mixing[1]


def geometry(slopes, states, scale="raw"):
    """The summary of F = mean of g gᵀ and of the states' differences."""
    fisher = slopes.T @ slopes / len(slopes)
    measured = FisherInformation(fisher, (fisher, fisher), states, "model-exact", len(slopes), 0.0)
    spread = 2 * np.cov(states, rowvar=False)
    return _summary(measured, 1, spread, scale, np.eye(WIDTH) / WIDTH, 2, 1e-4, equal_pairs=0)


@pytest.mark.parametrize("seed", range(3))
def test_no_noise_of_one_nat_leaves_less(seed):
    slopes, states = gradients_and_states(seed)
    found = geometry(slopes, states)
    fisher, spread = found.fisher, found.spread

    def signal(entries):
        root = entries.reshape(WIDTH, WIDTH)
        noise = root @ root.T
        noise *= 2.0 / np.vdot(fisher, noise)
        return np.trace(np.linalg.solve(noise, spread))

    start = np.linalg.cholesky(np.linalg.inv(fisher)).ravel()
    reached = optimize.minimize(signal, start, method="BFGS", options={"maxiter": 2000}).fun
    assert reached == pytest.approx(found.least_signal, rel=1e-3)
    assert reached >= found.least_signal * (1 - 1e-9)


@pytest.mark.parametrize("scale", ["raw", "unit"])
@pytest.mark.parametrize("seed", range(3))
def test_it_survives_a_change_of_coordinates_and_the_gain_does_not(seed, scale):
    """h → Ah sends gradients to A⁻ᵀg, as one coordinate written a thousand times larger does."""
    slopes, states = gradients_and_states(seed)
    change = np.eye(WIDTH) + 0.3 * np.random.default_rng(seed + 50).standard_normal((WIDTH, WIDTH))
    change[:, 0] *= 1000.0
    before = geometry(slopes, states, scale)
    after = geometry(slopes @ np.linalg.inv(change), states @ change.T, scale)
    assert after.least_signal == pytest.approx(before.least_signal, rel=1e-4)
    assert after.least_signal_ridged == pytest.approx(before.least_signal_ridged, rel=1e-4)
    assert after.mahalanobis_gain > 3 * before.mahalanobis_gain


def test_it_is_what_the_gain_relates_to_isotropic_noise():
    found = geometry(*gradients_and_states(4))
    isotropic = np.trace(found.fisher) * np.trace(found.spread) / 2
    assert isotropic / found.least_signal == pytest.approx(found.mahalanobis_gain, rel=0.02)


def test_singular_matrices_are_the_limit_from_above():
    fisher, spread = np.diag([4.0, 1.0, 0.0]), np.diag([1.0, 0.0, 9.0])
    found = least_signal(fisher, spread, ridge=0.0)
    # the second is where no prompts differ, the third where noise is free
    assert 2.0 <= found.value <= 2.0 * (1 + 1e-5)
    assert found.ridged == found.value
    for size in (1e-3, 1e-6):
        above = least_signal(fisher + size * np.eye(3), spread).value
        assert above >= found.value
    assert above == pytest.approx(found.value, rel=1e-2)
    # C + λ tr C/d on the two directions in which prompts differ: (√4.04 + √0.04)²/2
    priced = least_signal(fisher, spread, ridge=0.03).ridged
    assert priced == pytest.approx((np.sqrt(4.04) + np.sqrt(0.04)) ** 2 / 2, rel=1e-5)


def test_few_gradients_make_it_too_small_and_the_notes_say_so():
    slopes, states = gradients_and_states(5)
    whole, few = geometry(slopes, states), geometry(slopes[:3], states)
    assert few.least_signal < few.least_signal_ridged
    assert any("least_signal may be too small" in note for note in few.notes)
    assert not any("least_signal" in note for note in whole.notes)


def test_it_never_rounds_down():
    """Rotated matrices of known product of eigenvalues, graded over twelve decades."""
    for seed in range(20):
        source = np.random.default_rng(seed)
        rotation = np.linalg.qr(source.standard_normal((WIDTH, WIDTH)))[0]
        prices, distances = 10.0 ** source.uniform(-12, 0, (2, WIDTH))
        exact = np.sqrt(prices * distances).sum() ** 2 / 2
        found = least_signal(
            (rotation * prices) @ rotation.T, (rotation * distances) @ rotation.T, ridge=0.0
        )
        assert found.value >= exact * (1 - 1e-15)


@pytest.mark.parametrize("size", [1e-200, 1e200])
def test_scales_far_from_one(size):
    found = least_signal(size * np.eye(2), np.eye(2) / size)
    assert found.value == pytest.approx(2.0, rel=1e-6)
    assert least_signal(np.zeros((2, 2)), np.eye(2)).value == 0.0


@pytest.mark.parametrize(
    ("fisher", "spread", "ridge", "name"),
    [
        ([[1.0, 2.0], [0.0, 1.0]], np.eye(2), 0.0, "fisher"),
        (-np.eye(2), np.eye(2), 0.0, "fisher"),
        (np.eye(2), np.eye(3), 0.0, "spread"),
        (np.eye(2), [[np.nan, 0.0], [0.0, 1.0]], 0.0, "spread"),
        ([1.0, -1.0], np.eye(2), 0.0, "fisher"),
        (np.eye(2), np.eye(2), -1.0, "ridge"),
        (1e-200 * np.eye(2), 1e-200 * np.eye(2), 0.0, "fisher: expected numbers whose product"),
        (1e200 * np.eye(2), 1e200 * np.eye(2), 0.0, "fisher: expected numbers whose product"),
    ],
)
def test_bad_input_is_named(fisher, spread, ridge, name):
    with pytest.raises(ValueError, match=name):
        least_signal(fisher, spread, ridge=ridge)
