"""Random allocation against quadrature, simulation, Poisson sampling and other accountants."""

import itertools
import math

import numpy as np
import pytest
from scipy.special import ndtr

from tacit.accounting import calibrate, gaussian_shift, random_allocation, subsampled_gaussian
from tests.accounting.oracles import allocation_delta

LOSSES = np.array([0.0, 0.05, 0.3, 1.0, 2.5])


@pytest.mark.thorough
@pytest.mark.parametrize("steps", [2, 3])
@pytest.mark.parametrize("noise", [0.4, 1.0, 8.0])
@pytest.mark.parametrize("pair", ["remove", "add", "replace"])
def test_two_and_three_steps_are_nearly_exact_and_never_below(steps, noise, pair):
    relation = "replace" if pair == "replace" else "add-remove"
    profile = random_allocation(noise, steps=steps, neighbours=relation)
    curve = profile.backward if pair == "add" else profile.forward
    truths = np.array([allocation_delta(e, noise, pair, steps) for e in LOSSES])
    found = curve(LOSSES)
    assert (found >= truths * (1 - 1e-6) - 1e-12).all()
    seen = truths > 1e-6
    tight = {"remove": 1e-3, "add": 5e-2, "replace": 2e-2}[pair]
    assert (found[seen] <= truths[seen] * (1 + tight)).all()


def removed_in_two(noise, epsilon, points=20_001):
    """E max((e^{dz − d²/2} + e^{dy − d²/2})/2 − γ, 0): evenly over z, and Φ over y."""
    d, gamma = 1 / noise, math.exp(epsilon)
    z = np.linspace(-10.0, 10.0 + 2 * d, points)
    weights = np.exp(-z * z / 2) / math.sqrt(2 * math.pi) * (z[1] - z[0])
    left = 2 * gamma - np.exp(d * z - d * d / 2)
    start = np.where(left > 0, (np.log(np.maximum(left, 1e-300)) + d * d / 2) / d, -np.inf)
    return float(weights @ (ndtr(d - start) - left * ndtr(-start))) / 2


@pytest.mark.parametrize("noise", [0.3, 0.4, 0.5, 0.7, 1.0, 2.0])
def test_two_steps_with_little_noise_have_no_cliff_at_small_deltas(noise):
    """An added record is less than a removed one far out too, where a lattice holds no ratio."""
    profile = random_allocation(noise, steps=2)
    for epsilon in (2.0, 5.0, 7.0, 7.5, 8.0, 9.0, 10.0, 11.0):
        truth = removed_in_two(noise, epsilon)
        if truth > 1e-12:
            assert truth * (1 - 1e-6) <= profile.delta(epsilon) <= truth * (1 + 2e-3)
            if truth > 1e-6:
                assert profile.delta(epsilon) <= truth * (1 + 2e-4)


@pytest.mark.parametrize("steps", [2, 5, 20])
def test_an_added_record_is_at_most_a_removed_one_far_out(steps):
    for noise in (0.4, 0.5, 0.7):
        profile = random_allocation(noise, steps=steps)
        far = np.linspace(4.0, 15.0, 23)
        assert (profile.backward(far) <= profile.forward(far)).all()


def replaced_in_two(noise, epsilon, points=4001):
    """δ where one of two steps is drawn, by the even rule over the first and Φ over the second."""
    d = 1 / noise
    z = np.linspace(-9.0 - d, 9.0 + d, points)
    weights = np.exp(-z * z / 2) / math.sqrt(2 * math.pi) * (z[1] - z[0])
    first = np.exp(d * z - d * d / 2) - np.exp(epsilon - d * z - d * d / 2)
    # e^{dy − d²/2} − e^{ε − dy − d²/2} >= −first from y = asinh(−first e^{(d² − ε)/2}/2)/d + ε/(2d)
    start = np.arcsinh(-first * np.exp((d * d - epsilon) / 2) / 2) / d + epsilon / (2 * d)
    above = ndtr(d - start) - np.exp(epsilon) * ndtr(-d - start) + first * ndtr(-start)
    return float(weights @ np.maximum(above, 0.0)) / 2


@pytest.mark.parametrize("noise", [0.4, 0.55, 0.7, 0.769, 0.77, 0.9, 1.2, 2.0])
def test_a_replacement_in_two_steps_is_nearly_exact_and_never_below(noise):
    profile = random_allocation(noise, steps=2, neighbours="replace")
    for delta in (1e-2, 1e-4, 1e-6, 1e-9):
        epsilon = profile.epsilon(delta)
        assert replaced_in_two(noise, epsilon) <= delta * (1 + 1e-6)
        assert replaced_in_two(noise, epsilon * 0.99) >= delta


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("noise", "epsilon"),
    [(0.4, 11.3), (0.4, 18.0), (0.7, 5.0), (0.78, 6.0), (1.2, 3.0), (2.0, 1.5)],
)
def test_a_replacement_in_three_steps_is_nearly_exact(noise, epsilon):
    found = float(random_allocation(noise, steps=3, neighbours="replace").forward(epsilon))
    truth = allocation_delta(epsilon, noise, "replace", 3)
    assert truth * (1 - 1e-6) - 1e-12 <= found <= truth * 1.06


@pytest.mark.parametrize("steps", [5, 40])
def test_the_account_of_a_replacement_has_no_cliff(steps):
    """Where the way of computing changes, at noises of 1/1.1 and 1/0.75, ε does not jump."""
    for noise in (1 / 1.1, 1 / 0.75):
        near = [
            random_allocation(noise * (1 + e), steps=steps, neighbours="replace").epsilon(1e-6)
            for e in (-1e-3, 1e-3)
        ]
        assert near[0] == pytest.approx(near[1], rel=0.02)


def drawn_ratios(rng, noise, steps, draws, sign=1):
    """Σ_i exp(±x_i/σ − …)/t where the record is in the first step, in units of the noise."""
    d = 1 / noise
    x = rng.standard_normal((draws, steps))
    x[:, 0] += d
    return [np.exp(s * d * x - d * d / 2).mean(axis=1) for s in (sign, -sign)]


@pytest.mark.thorough
@pytest.mark.parametrize(("noise", "steps"), [(0.7, 20), (1.0, 50), (2.0, 200)])
def test_drawn_steps_have_the_hockey_stick_of_the_account(noise, steps):
    rng, draws = np.random.default_rng(5), 40_000
    removed = random_allocation(noise, steps=steps)
    replaced = random_allocation(noise, steps=steps, neighbours="replace")
    ahead, back = drawn_ratios(rng, noise, steps, draws)
    for epsilon in (0.0, 0.1, 0.5):
        for profile, ratio in ((removed.forward, ahead), (replaced.forward, ahead / back)):
            gains = np.maximum(1 - math.exp(epsilon) / ratio, 0)
            mean, error = gains.mean(), gains.std() / math.sqrt(draws)
            found = float(profile(np.array([epsilon]))[0])
            assert mean - 5 * error <= found
            assert found <= mean + 5 * error + 0.02 * mean + 2e-3


def test_a_simulation_tells_the_account_of_twice_as_many_steps():
    rng, draws = np.random.default_rng(6), 40_000
    ratio = drawn_ratios(rng, 1.0, 20, draws)[0]
    gains = np.maximum(1 - math.exp(0.3) / ratio, 0)
    wrong = random_allocation(1.0, steps=40).forward(np.array([0.3]))[0]
    assert gains.mean() - 5 * gains.std() / math.sqrt(draws) > wrong


def test_directions_chosen_as_the_run_goes_tell_no_more():
    """Step i's vector has a length that depends on the outputs before it."""
    rng, draws, steps, noise = np.random.default_rng(7), 60_000, 8, 0.8
    profile = random_allocation(noise, steps=steps)
    moment = rng.integers(steps, size=draws)
    logs, past = np.zeros((draws, steps)), np.zeros(draws)
    for i in range(steps):
        length = np.where(past > 0, 1.0, 0.4) * np.where(past > 2, -1.0, 1.0)
        output = noise * rng.standard_normal(draws) + np.where(moment == i, length, 0.0)
        logs[:, i] = (output * length - length**2 / 2) / noise**2
        past += output
    ratio = np.exp(logs).mean(axis=1)
    for epsilon in (0.0, 0.3, 1.0):
        gains = np.maximum(1 - math.exp(epsilon) / ratio, 0)
        assert gains.mean() - 5 * gains.std() / math.sqrt(draws) <= profile.delta(epsilon)
        assert gains.mean() > profile.delta(epsilon) / 10


@pytest.mark.thorough
@pytest.mark.parametrize(("steps", "times"), [(4, 2), (5, 2), (5, 3)])
def test_several_participations_are_at_most_as_many_epochs(steps, times):
    """Every set of k steps is as likely as any other, against the blocks of the account."""
    rng, draws, noise = np.random.default_rng(8), 100_000, 1.2
    profile = random_allocation(noise, steps=steps, participations=times)
    sets = list(itertools.combinations(range(steps), times))
    x = rng.standard_normal((draws, steps))
    x[:, :times] += 1 / noise
    scores = np.array([x[:, list(chosen)].sum(axis=1) for chosen in sets]) / noise
    ratio = np.exp(scores - times / (2 * noise**2)).mean(axis=0)
    for epsilon in (0.0, 0.5, 1.5):
        gains = np.maximum(1 - math.exp(epsilon) / ratio, 0)
        assert gains.mean() - 5 * gains.std() / math.sqrt(draws) <= profile.delta(epsilon)
        assert profile.delta(epsilon) < gaussian_shift(math.sqrt(times) / noise).delta(epsilon)


@pytest.mark.thorough
@pytest.mark.parametrize(("noise", "steps", "epochs"), [(2.0, 1000, 1), (1.0, 300, 5)])
def test_it_is_close_to_poisson_sampling_at_the_same_rate(noise, steps, epochs):
    found = random_allocation(noise, steps=steps, epochs=epochs).epsilon(1e-6)
    poisson = subsampled_gaussian(1 / steps, noise, steps * epochs).epsilon(1e-6)
    assert 0.85 * poisson < found < poisson


def test_it_lies_between_the_bounds_of_another_accountant():
    """PLD_accounting 2.0 brackets ε at δ = 1e-6 (lower, upper)."""
    brackets = {
        (3.0, 100, 1, 1): (0.12407598, 0.12981782),
        (1.0, 50, 1, 10): (2.86402532, 2.95086379),
    }
    for (noise, steps, times, epochs), (low, high) in brackets.items():
        profile = random_allocation(noise, steps=steps, participations=times, epochs=epochs)
        assert low <= profile.epsilon(1e-6) <= high


def test_taking_part_in_every_step_is_no_sampling():
    plain = random_allocation(3.0, steps=4, participations=4, epochs=5)
    assert plain.delta(1.0) == pytest.approx(gaussian_shift(math.sqrt(20) / 3).delta(1.0))
    replaced = random_allocation(3.0, steps=1, neighbours="replace")
    assert replaced.delta(1.0) == pytest.approx(gaussian_shift(2 / 3).delta(1.0))
    assert replaced.adjacency == "replace one record"


@pytest.mark.thorough
@pytest.mark.parametrize("relation", ["add-remove", "replace"])
def test_far_corners_are_never_below_nothing_nor_above_a_known_step(relation):
    reach = 2 if relation == "replace" else 1
    for noise, steps in [
        (1e-3, 10),
        (0.06, 7),
        (0.08, 1000),
        (1e4, 3),
        (1e8, 1000),
        (2.0, 200_000),
    ]:
        profile = random_allocation(noise, steps=steps, neighbours=relation)
        known = gaussian_shift(reach / noise)
        losses = np.array([0.0, 1e-3, 0.5, 3.0, 40.0])
        assert (profile.delta(losses) <= known.delta(losses) * (1 + 1e-9) + 1e-300).all()
        assert (np.diff(profile.delta(losses)) <= 1e-20).all()
        # an attacker who looks at one step only sees a sample at rate 1/t
        sampled = subsampled_gaussian(1 / steps, noise, 1, relation)
        assert (profile.delta(losses) >= sampled.delta(losses) * (1 - 1e-9) - 1e-300).all()
        assert profile.delta(math.inf) == pytest.approx(0.0, abs=1e-300)
        assert profile.delta(-math.inf) == 1.0


def test_it_calibrates_and_falls_with_the_noise():
    def build(noise):
        return random_allocation(noise, steps=20)

    noise = calibrate(build, epsilon=1.0, delta=1e-5, bracket=(0.8, 3.0))
    assert 0.999 < build(noise).epsilon(1e-5) <= 1.0
    assert build(2 * noise).epsilon(1e-5) < 0.6


@pytest.mark.parametrize(
    ("changes", "name"),
    [({"noise_multiplier": 0.0}, "noise_multiplier"), ({"steps": 0}, "steps"),
     ({"participations": 11}, "participations"), ({"participations": 0}, "participations"),
     ({"epochs": 1.5}, "epochs"), ({"neighbours": "zero-out"}, "neighbours"),
     ({"noise_multiplier": math.nan}, "noise_multiplier")],
)  # fmt: skip
def test_bad_arguments_are_named(changes, name):
    arguments = {"noise_multiplier": 1.0, "steps": 10, **changes}
    with pytest.raises(ValueError, match=f"^{name}: expected"):
        random_allocation(arguments.pop("noise_multiplier"), **arguments)


@pytest.mark.thorough
def test_shuffled_batches_are_not_covered():
    """Two records in two batches of one, the other contributing d: N((d, d)) against a mixture."""
    distance, epsilon = 1.0, 1.0
    nodes, weights = np.polynomial.legendre.leggauss(400)
    z, w = 10 * nodes, 10 * weights * np.exp(-50 * nodes**2) / math.sqrt(2 * math.pi)
    ratio = np.exp(-2 * distance * z - 2 * distance**2)
    gains = np.maximum(1 - math.exp(epsilon) * (ratio[:, None] + ratio) / 2, 0)
    shuffled = float(w @ gains @ w)
    assert shuffled == pytest.approx(0.3803, abs=5e-4)
    independent = random_allocation(1 / distance, steps=2, neighbours="replace").delta(epsilon)
    assert independent == pytest.approx(0.2862, rel=0.05)
    assert independent < shuffled


@pytest.mark.thorough
@pytest.mark.parametrize(("noise", "steps"), [(0.1, 10**6)])
@pytest.mark.parametrize("neighbours", ["add-remove"])
def test_more_steps_than_floats_hold_are_accounted_as_fewer(noise, steps, neighbours):
    many = random_allocation(noise, steps=steps, neighbours=neighbours)
    few = random_allocation(noise, steps=100, neighbours=neighbours)
    assert 0 < many.delta(0.0) <= few.delta(0.0) * (1 + 1e-9)


@pytest.mark.parametrize("steps", [10**8 + 1, 10**12, 10**15])
def test_more_steps_than_the_lattice_resolves_are_refused(steps):
    with pytest.raises(ValueError, match="steps: expected an integer <= 100000000, got"):
        random_allocation(1.0, steps=steps)
