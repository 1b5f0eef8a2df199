"""LiRA from simulated releases, against the best possible attacker on the same releases."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.special import ndtr

from tacit.attacks import shadow_attack

COUNT, ROWS = 3000, 6


def simulated(effect: float) -> tuple[np.ndarray, np.ndarray]:
    """Row i moves coordinate i alone by ``effect``: the best attacker is right Φ(effect/2)."""
    source = np.random.default_rng(11)
    inside = source.random((COUNT, ROWS)) < 0.5
    return inside * effect + source.normal(size=(COUNT, ROWS)), inside


@pytest.mark.parametrize("effect", [0.5, 1.0, 3.0])
def test_it_reaches_what_is_possible_and_no_more(effect: float) -> None:
    releases, inside = simulated(effect)
    attack = shadow_attack(releases, inside, shadows=1500)
    best = float(ndtr(effect / 2))
    error = np.sqrt(best * (1 - best) / (1500 * ROWS))
    assert abs(attack.success - best) < 5 * error + 0.01
    assert attack.interval[0] <= best


def test_a_rare_row_is_guessed_out_unless_the_release_says_more() -> None:
    # in with q: the best attacker says so where the density ratio exceeds (1 − q)/q
    source, rare, effect = np.random.default_rng(5), 0.1, 2.0
    inside = source.random((COUNT, ROWS)) < rare
    attack = shadow_attack(
        inside * effect + source.normal(size=(COUNT, ROWS)), inside, shadows=1500
    )
    cut = effect / 2 + np.log((1 - rare) / rare) / effect
    best = float(rare * ndtr(effect - cut) + (1 - rare) * ndtr(cut))
    assert attack.prior == pytest.approx(1 - rare, abs=0.01)
    assert abs(attack.success - best) < 0.01
    assert best > attack.prior + 0.01


def test_units_and_constant_numbers_do_not_matter() -> None:
    releases, inside = simulated(1.0)
    scaled = np.column_stack([releases * 10.0 ** np.arange(-9, 9, 3), np.ones(COUNT)])
    one = shadow_attack(releases, inside, shadows=1500)
    other = shadow_attack(scaled, inside, shadows=1500)
    assert other.success == pytest.approx(one.success, abs=1e-3)


def test_bad_input() -> None:
    releases, inside = simulated(1.0)
    with pytest.raises(ValueError, match="shadows"):
        shadow_attack(releases, inside, shadows=COUNT)
    with pytest.raises(ValueError, match="releases"):
        shadow_attack(np.ones((COUNT, 2)), inside, shadows=100)
    with pytest.raises(ValueError, match="inside"):
        shadow_attack(releases, inside[:5], shadows=100)


TABLE = np.random.default_rng(4).normal(size=(40, 3))
INSIDE = np.random.default_rng(5).random((40, 2)) < 0.5


@pytest.mark.parametrize(
    ("releases", "inside", "shadows", "words"),
    [
        (TABLE[:6], INSIDE[:6], 4, "releases: expected at least 8"),
        (TABLE, True, 20, r"inside: expected shape \(40, n\)"),
        (TABLE, INSIDE[:, 0], 20, r"inside: expected shape \(40, n\)"),
        (TABLE, np.zeros((40, 0), dtype=bool), 20, r"inside: expected shape \(40, n\)"),
        (TABLE, np.ones((40, 2), dtype=bool), 20, "inside: expected every row in two of 20"),
        (np.ones((40, 3)), INSIDE, 20, "releases: expected some that differ"),
        (TABLE, INSIDE, 39, "shadows: expected an integer <= 36"),
    ],
)
def test_what_no_attack_can_be_run_on_is_named(releases, inside, shadows, words):
    with pytest.raises(ValueError, match=words):
        shadow_attack(releases, inside, shadows=shadows)


@pytest.mark.parametrize("scale", [1e-300, 1e-200, 1e200, 1e307])
def test_units_do_not_matter(scale):
    assert (
        shadow_attack(scale * TABLE, INSIDE, shadows=20).success
        == shadow_attack(TABLE, INSIDE, shadows=20).success
    )


def test_one_release_that_is_far_from_all_others_is_attacked_too():
    rows = TABLE.copy()
    rows[-1] = 1e300
    assert 0.0 <= shadow_attack(rows, INSIDE, shadows=20).success <= 1.0
