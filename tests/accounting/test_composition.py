"""Composition against binomial sums, the Gaussian law of addition, and exact product channels."""

import itertools
import math

import numpy as np
import pytest
from mpmath import mp, mpf
from scipy.special import expit
from scipy.stats import binom

from tacit.accounting import (
    gaussian,
    gaussian_shift,
    laplace,
    profile_from_curves,
    randomized_response,
    subsampled_gaussian,
    vector_projection,
)
from tacit.accounting.curves.composition import cap_by_moments, compose
from tacit.accounting.curves.discretisation import ComposedPart, discretise
from tacit.guarantees.adjacency import Adjacency
from tests.accounting.oracles import (
    gaussian_delta,
    hockey_stick,
    product_law,
    responses_delta,
    sampled_law,
)

EPSILONS = (-4.0, -0.5, 0.0, 0.1, 0.5, 1.0, 2.5)


def assert_above(profile, truths, relative=1e-3):
    """Certified values are above the truth, and not far."""
    for epsilon, truth in truths.items():
        found = mpf(profile.delta(epsilon))
        assert truth <= found <= truth * (1 + mpf(relative)) + mpf("1e-14"), epsilon


@pytest.mark.parametrize(("loss", "count"), [(1.0, 1), (1.0, 2), (0.3, 7), (0.0301, 400)])
def test_responses_compose_binomially(loss, count):
    composed = randomized_response(loss) * count
    truths = {e: responses_delta(e, loss, count) for e in np.linspace(0, 0.99 * loss * count, 9)}
    assert_above(composed, truths)


@pytest.mark.thorough
def test_losses_off_the_lattice_are_never_below():
    for loss in np.random.default_rng(0).uniform(0.01, 2.0, 12):
        composed = randomized_response(float(loss)) * 5
        for epsilon in np.linspace(0, 5 * loss, 11):
            assert composed.delta(float(epsilon)) >= responses_delta(epsilon, loss, 5)


@pytest.mark.parametrize(
    ("noise", "count"), [(1.0, 1), (1.0, 4), (20.0, 1000), (100.0, 10_000), (0.5, 30), (1.0, 1000)]
)
def test_gaussian_noise_composes_by_the_root_of_the_count(noise, count):
    composed = gaussian(1.0, noise) * count
    distance = mp.sqrt(count) / mpf(noise)
    exact = gaussian_shift(float(distance))
    for delta in (0.3, 1e-3, 1e-6, 1e-9, 1e-12):
        epsilon = exact.epsilon(delta)
        truth = gaussian_delta(epsilon, distance)
        assert truth <= composed.delta(epsilon) <= truth * (1 + mpf("1e-3"))
        assert gaussian_delta(composed.epsilon(delta), distance) <= delta


def test_hundreds_of_nats_do_not_overflow():
    composed = gaussian(1.0, 0.2) * 40
    truth = gaussian_delta(700.0, mp.sqrt(40) * 5)
    assert truth <= composed.delta(700.0) <= truth * (1 + mpf("1e-3"))


@pytest.mark.thorough
def test_a_small_step_has_a_finer_lattice_and_a_large_range_a_coarser():
    tiny, huge = gaussian(1.0, 1e4) * 10, gaussian(1.0, 0.01) * 10
    assert tiny.composition.bounds[0][0].step < 1e-4 < huge.composition.bounds[0][0].step
    tiny_truth = gaussian_delta(1e-3, mp.sqrt(10) / 10**4)
    assert tiny_truth <= tiny.delta(1e-3) <= tiny_truth * (1 + mpf("1e-3"))
    assert huge.delta(4.0e4) >= gaussian_delta(4.0e4, mp.sqrt(10) * 100)


PRESENT = ("0.5", "0.3", "0.15", "0.05", "0")
ABSENT = ("0.2", "0.3", "0.25", "0.2", "0.05")


def channel_profile(present, absent, **said):
    """The exact curves of a finite channel, as a user would write them."""
    first, second = (np.array([float(p) for p in law]) for law in (present, absent))

    def curve(p, q):
        def delta(epsilon):
            gain = p - np.exp(np.minimum(epsilon, 700.0))[:, None] * q
            value = np.maximum(gain, 0.0).sum(axis=1)
            trivial = -np.expm1(np.minimum(epsilon, 0.0))
            return np.minimum(np.maximum(value, trivial) * (1 + 1e-14) + 1e-16, 1.0)

        return delta

    return profile_from_curves(
        curve(first, second), curve(second, first), name="channel", source="test", assumptions=(),
        infinite_mass=float(max(first[second == 0].sum(), second[first == 0].sum())), **said,
    )  # fmt: skip


@pytest.mark.parametrize("count", [1, 2, 4])
def test_both_directions_of_a_finite_channel(count):
    composed = channel_profile(PRESENT, ABSENT) * count
    first, second = (product_law(*[law] * count) for law in (PRESENT, ABSENT))
    for epsilon in EPSILONS:
        points = np.array([epsilon])
        ahead, back = hockey_stick(first, second, epsilon), hockey_stick(second, first, epsilon)
        for curve, truth in ((composed.forward, ahead), (composed.backward, back)):
            assert truth <= curve(points)[0] <= truth * (1 + mpf("1e-5")) + mpf("1e-12")
        assert composed.delta(epsilon) >= max(ahead, back)
    with mp.workdps(30):
        lost = 1 - mpf("0.95") ** count
        assert lost <= composed.infinite_mass <= lost * (1 + mpf("1e-12"))
    assert composed.epsilon(float(lost) * 0.999) == math.inf


@pytest.mark.parametrize("rate", [0.0, 0.01, 0.3, 1.0])
def test_a_sampled_channel_composes_in_both_directions(rate):
    once = channel_profile(PRESENT, ABSENT, adjacency=Adjacency.ADD_REMOVE.sentence())
    sampled = once.poisson_subsample(rate)
    with_record = sampled_law(PRESENT, ABSENT, rate)
    for count in (1, 3):
        composed = sampled * count
        first, second = product_law(*[with_record] * count), product_law(*[ABSENT] * count)
        for epsilon in EPSILONS:
            points = np.array([epsilon])
            ahead, back = hockey_stick(first, second, epsilon), hockey_stick(second, first, epsilon)
            for curve, truth in ((composed.forward, ahead), (composed.backward, back)):
                assert truth <= curve(points)[0] <= truth * (1 + mpf("1e-5")) + mpf("1e-12")


def test_replacement_covers_every_triple_of_laws():
    with_it, other, without = PRESENT, ("0.2", "0.2", "0.3", "0.25", "0.05"), ABSENT
    pairs = list(itertools.permutations([with_it, other, without], 2))
    first, second = (sampled_law(law, without, 0.2) for law in (with_it, other))

    def worst(epsilon):
        values = [float(max(hockey_stick(p, q, e) for p, q in pairs)) for e in epsilon]
        return np.minimum(np.array(values) * (1 + 1e-14), 1.0)

    profile = profile_from_curves(worst, name="three laws", source="test", assumptions=())
    sampled = profile.poisson_subsample(0.2, neighbours="replace")
    assert sampled.adjacency == "replace one record"
    for epsilon in EPSILONS:
        for p, q in ((first, second), (second, first)):
            assert sampled.delta(epsilon) >= hockey_stick(p, q, epsilon)


@pytest.mark.thorough
def test_different_mechanisms_compose_whatever_the_order():
    parts = [randomized_response(0.7), randomized_response(0.2, 3), randomized_response(1.1)]
    laws = []
    for loss, categories in ((0.7, 2), (0.2, 3), (1.1, 2)):
        truth = mp.exp(loss) / (mp.exp(loss) + categories - 1)
        rest = (1 - truth) / (categories - 1)
        laws.append(([truth, rest, rest][:categories], [rest, truth, rest][:categories]))
    first, second = (product_law(*[law[i] for law in laws]) for i in (0, 1))
    for order in itertools.permutations(parts):
        composed = order[0].compose(order[1]).compose(order[2])
        assert_above(composed, {e: hockey_stick(first, second, e) for e in EPSILONS}, 1e-6)


@pytest.mark.thorough
def test_composing_a_composition():
    halves = (gaussian(1.0, 10.0) * 30).compose(gaussian(1.0, 10.0) * 70)
    again = (gaussian(1.0, 10.0) * 10) * 10
    for profile in (halves, again):
        assert_above(profile, {e: gaussian_delta(e, 1) for e in (0.0, 1.0, 4.0, 7.0)})


@pytest.mark.thorough
def test_laplace_then_gaussian_is_the_integral_over_the_laplace_loss():
    composed = laplace(1.0, 1.0).compose(gaussian(1.0, 1.0))
    with mp.workdps(25):
        for epsilon in (0.0, 1.0, 4.0):
            # loss 1 with probability ½, −1 with e⁻¹/2, and in between 1 − 2x, x ~ e^{−x}/2
            inner = mp.quad(
                lambda x, e=epsilon: mp.exp(-x) / 2 * gaussian_delta(mpf(e) - 1 + 2 * x, 1), [0, 1]
            )
            truth = gaussian_delta(epsilon - 1, 1) / 2 + inner
            truth += mp.exp(-1) / 2 * gaussian_delta(epsilon + 1, 1)
            assert truth <= composed.delta(epsilon) <= truth * (1 + mpf("1e-6"))


@pytest.mark.parametrize("rate", [0.1, 1.0])
def test_a_sample_holds_whichever_input_has_the_record(rate):
    sampled = channel_profile(PRESENT, ABSENT).poisson_subsample(rate)
    assert sampled.adjacency == Adjacency.ADD_REMOVE.sentence()
    for epsilon in EPSILONS:
        for law, other in ((PRESENT, ABSENT), (ABSENT, PRESENT)):
            mixed, alone = sampled_law(law, other, rate), [mpf(one) for one in other]
            assert sampled.delta(epsilon) >= hockey_stick(mixed, alone, epsilon)
            assert sampled.delta(epsilon) >= hockey_stick(alone, mixed, epsilon)


@pytest.mark.parametrize("named", [False, True])
def test_releases_hold_whichever_input_is_first_in_each(named):
    said = {"adjacency": Adjacency.ADD_REMOVE.sentence()} if named else {}
    first, second = ("0.9", "0.1"), ("0.6", "0.4")
    both = channel_profile(first, second, **said).compose(channel_profile(PRESENT, ABSENT))
    # the order of the second channel is not said: it may be that of the first, or the other one
    for law, other in ((PRESENT, ABSENT), (ABSENT, PRESENT)):
        ahead, back = product_law(first, law), product_law(second, other)
        for epsilon in EPSILONS:
            assert both.delta(epsilon) >= hockey_stick(ahead, back, epsilon)
            assert both.delta(epsilon) >= hockey_stick(back, ahead, epsilon)


def test_releases_of_unsaid_order_are_counted_and_not_listed():
    first, second = (
        channel_profile(("0.9", "0.1"), ("0.6", "0.4")),
        channel_profile(PRESENT, ABSENT),
    )
    together = first
    for _ in range(4):
        together = together.compose(second).compose(first)
    # each by its worse order, and the last as it is
    assert [part.count for part in together.parts(1)] == [4, 4, 1]


def test_a_loss_without_an_order_leaves_another_its_own():
    channel, named = channel_profile(PRESENT, ABSENT), Adjacency.REPLACE.sentence()
    alone = channel.compose(randomized_response(0.5))
    assert np.any(alone.forward(np.array([1.0])) != alone.backward(np.array([1.0])))
    # beside neighbours with a name it may be either of them
    flip = profile_from_curves(
        randomized_response(0.5).forward, name="flip", source="test", assumptions=(),
        adjacency=named,
    )  # fmt: skip
    assert channel.compose(flip).symmetric


@pytest.mark.parametrize("step", [1e-3, 0.0317, 0.5])
@pytest.mark.parametrize(
    "profile",
    [gaussian(1.0, 1.0), gaussian(1.0, 0.1), laplace(1.0, 0.7), randomized_response(1.3, 4),
     gaussian(1.0, 0.6).poisson_subsample(0.01), channel_profile(PRESENT, ABSENT)],
    ids=lambda profile: profile.name,
)  # fmt: skip
def test_the_discretised_curve_dominates_between_the_lattice_points_too(profile, step):
    for ahead, back in ((profile.forward, profile.backward), (profile.backward, profile.forward)):
        found = discretise(ahead, back, step, 1e-20)
        assert found.total >= 1
        points = np.linspace(-60, 60, 4001) * min(1.0, profile.epsilon(1e-6) / 20)
        assert np.all(found.curve(points) >= ahead(points) * (1 - 1e-15))


def test_a_noisy_curve_is_made_convex():
    """A quadrature's error of 1e-9 relative must not become mass."""
    exact = gaussian(1.0, 1.0)
    rng = np.random.default_rng(5)

    def noisy(epsilon):
        wobble = 1 + 1e-9 * rng.random(epsilon.shape)
        return np.minimum(exact.forward(epsilon) * wobble + 1e-15, 1.0)

    rough = profile_from_curves(noisy, name="noisy", source="test", assumptions=())
    (masses,) = compose([ComposedPart(rough.forward, rough.backward, 20)])
    assert 1 <= masses.total < 1 + 1e-6
    composed = rough * 20
    assert_above(composed, {e: gaussian_delta(e, mp.sqrt(20)) for e in (0.0, 10.0, 30.0)}, 1e-5)


@pytest.mark.thorough
def test_losses_of_a_thousand_nats_carry_no_mass_below():
    """The lowest points of the curve and those beyond e^700 must not meet."""
    profile = laplace(1.0, 1e-3)
    for step in (0.5, 0.01):
        found = discretise(profile.forward, profile.backward, step, 1e-28)
        assert 1 <= found.total < 1 + 1e-9
        assert found.masses[found.losses < 900].sum() < 1e-15
    assert (profile * 3).epsilon(0.0) >= 3000


def test_many_small_releases_do_not_drift():
    composed = gaussian(1.0, 1000.0) * 1_000_000
    exact = gaussian_shift(1.0)
    for delta in (1e-3, 1e-9):
        assert exact.epsilon(delta) <= composed.epsilon(delta) <= exact.epsilon(delta) * 1.0001


@pytest.mark.parametrize(
    ("noise", "count"),
    [(1e6, 10**7), (1e4, 10**6), (1e8, 10**9), (1e9, 10**4), (1e12, 100), (1e12, 10**6)],
)
def test_tiny_losses_compose_within_a_hundredth(noise, count):
    composed = gaussian(1.0, noise) * count
    distance = mp.sqrt(count) / mpf(noise)
    exact = gaussian_shift(float(distance))
    for share in (0.7, 0.3, 1e-3, 1e-6):
        delta = share * exact.advantage()
        epsilon = composed.epsilon(delta)
        assert gaussian_delta(epsilon, distance) <= delta
        assert epsilon <= exact.epsilon(delta) * 1.01


def test_ten_million_steps_at_one_delta():
    composed, exact = gaussian(1e-6, 1.0) * 10**7, gaussian_shift(math.sqrt(10) * 1e-3)
    assert exact.epsilon(1e-3) <= composed.epsilon(1e-3) <= exact.epsilon(1e-3) * 1.01


def binomial_delta(epsilon, loss, count):
    """`responses_delta` by scipy, for counts that enumeration in mpmath is too slow for."""
    heads = np.arange(count + 1)
    losses = (2 * heads - count) * loss
    gains = np.where(losses > epsilon, -np.expm1(np.minimum(epsilon - losses, 0.0)), 0.0)
    return float(binom.pmf(heads, count, expit(loss)) @ gains)


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("loss", "count"), [(1e-9, 10**5), (1e-6, 10**6), (1e-4, 10**5), (0.003, 10**5), (2.0, 300)]
)
def test_tiny_responses_compose_within_a_hundredth(loss, count):
    composed = randomized_response(loss) * count
    largest = binomial_delta(0.0, loss, count)
    for share in (0.7, 0.1, 1e-3, 1e-6):
        epsilon = composed.epsilon(share * largest)
        assert binomial_delta(epsilon, loss, count) <= share * largest * (1 + 1e-9)
        assert binomial_delta(epsilon / 1.01, loss, count) >= share * largest * (1 - 1e-9)


@pytest.mark.parametrize(("scale", "count"), [(1e4, 10**5), (1e3, 10**6), (1e7, 10**3)])
def test_tiny_laplace_losses_add_like_normal_ones(scale, count):
    """All but a part L of a loss is at ±L: its variance is L² up to that part."""
    composed = laplace(1.0, scale) * count
    normal = gaussian_shift(math.sqrt(count) / scale)
    for share in (0.3, 1e-3):
        delta = share * normal.advantage()
        # skewness is below 1/√n
        slack = 3 / scale + 2 / math.sqrt(count)
        assert composed.epsilon(delta) == pytest.approx(normal.epsilon(delta), rel=slack)


def test_one_large_loss_among_many_tiny_ones():
    both = gaussian(1.0, 1.0).compose(gaussian(1e-6, 1.0) * 10**7)
    assert_above(both, {e: gaussian_delta(e, mp.sqrt(1 + mpf("1e-5"))) for e in (0.0, 1.0, 5.0)})


@pytest.mark.parametrize("factor", [2, 8, 64])
@pytest.mark.parametrize("scale", [1e-9, 1e-3, 0.3])
def test_a_coarser_lattice_lies_above(factor, scale):
    profile = gaussian(scale, 1.0)
    fine = discretise(profile.forward, profile.backward, scale / 50, 1e-28)
    coarse = fine.coarsen(factor)
    assert coarse.step == fine.step * factor
    points = np.linspace(-9, 9, 2001) * scale
    with mp.workdps(30):
        for epsilon in points[::200]:
            truth = mp.fsum(
                mpf(p) * max(1 - mp.exp(mpf(epsilon) - mpf(loss)), 0)
                for p, loss in zip(fine.masses.tolist(), fine.losses.tolist(), strict=True)
            )
            assert coarse.curve(np.array([epsilon]))[0] >= truth
    excess = coarse.curve(points) - fine.curve(points)
    assert excess.max() <= 0.5 * coarse.step


def test_infinite_mass_is_kept():
    leaky = randomized_response(truth_probability=0.0, categories=5)
    composed = leaky * 3
    assert composed.infinite_mass == pytest.approx(1 - 0.75**3, rel=1e-9)
    assert composed.infinite_mass >= 1 - 0.75**3
    assert composed.delta(50.0) >= 1 - 0.75**3
    hopeless = gaussian_shift(math.inf).compose(gaussian(1.0, 1.0))
    assert hopeless.delta(5.0) == 1.0
    nothing = gaussian(0.0, 1.0) * 1000
    assert nothing.epsilon(1e-12) <= 1e-9


def test_renyi_curves_add():
    composed = (gaussian(1.0, 2.0) * 3).compose(laplace(1.0, 1.0))
    single = 3 * gaussian(1.0, 2.0).renyi([2.0]) + laplace(1.0, 1.0).renyi([2.0])
    assert single[0] <= composed.renyi([2.0])[0] <= single[0] * (1 + 1e-12)


def test_bad_arguments_are_named():
    with pytest.raises(ValueError, match=r"^count: expected"):
        gaussian(1.0, 1.0) * 0
    with pytest.raises(ValueError, match=r"^count: expected"):
        gaussian(1.0, 1.0) * 1.5
    with pytest.raises(ValueError, match=r"^other: expected a PrivacyProfile"):
        gaussian(1.0, 1.0).compose(3)
    removed = gaussian(1.0, 1.0).poisson_subsample(0.1, neighbours="add-remove")
    replaced = gaussian(1.0, 1.0).poisson_subsample(0.1, neighbours="replace")
    with pytest.raises(ValueError, match=r"^other: expected adjacency"):
        removed.compose(replaced)


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("rate", "noise", "steps", "delta", "most"),
    [(1e-6, 0.5, 10**6, 1e-6, 0.11)],
)
def test_rare_large_losses_are_not_lost_in_the_lattice(rate, noise, steps, delta, most):
    profile = subsampled_gaussian(rate, noise, steps)
    assert profile.epsilon(delta) < most
    # one step of all is below the composition
    assert profile.delta(0.5) >= subsampled_gaussian(rate, noise, 1).delta(0.5)


def test_very_many_tiny_losses_have_a_finite_bound():
    found, truth = (gaussian(1e-9, 1.0) * 10**12).epsilon(1e-9), gaussian(1e-3, 1.0).epsilon(1e-9)
    assert truth <= found <= 1.1 * truth


@pytest.mark.parametrize("shift", [1e-4, 0.3, 4.0])
def test_chernoffs_bound_is_above_the_gaussian(shift):
    count = 50
    parts = [gaussian(shift, 1.0).parts(count)[0]]
    bound = cap_by_moments(np.ones_like, parts)
    epsilons = shift * np.array([0.0, 1.0, 5.0, 20.0, 40.0])
    truth = gaussian(shift * count**0.5, 1.0).delta(epsilons)
    assert (bound(epsilons) >= truth).all()
    assert (bound(epsilons)[1:] < 1).any() or shift > 1


def projection_losses(dim, rank, alignment, count):
    """Losses of y = ZZᵀv against v' for unit v, v' at an angle, drawn under v; inf where v'ᵀy <= 0.

    ln of the density at y is −(d−r+1)/2 ln vᵀy − r‖y‖²/(2 vᵀy), up to what is the same for v'.
    """
    rng = np.random.default_rng(0)
    first = np.eye(dim)[0]
    second = alignment * first + math.sqrt(1 - alignment**2) * np.eye(dim)[1]
    factor = rng.normal(size=(count, dim, rank)) / math.sqrt(rank)
    released = np.einsum("ndr,nr->nd", factor, factor[:, 0])
    own, other, squares = released @ first, released @ second, (released**2).sum(axis=1)
    positive = np.where(other > 0, other, 1.0)
    losses = (dim - rank + 1) / 2 * np.log(positive / own)
    losses += rank / 2 * squares * (1 / positive - 1 / own)
    return np.where(other > 0, losses, np.inf)


def test_a_few_heavy_losses_do_not_make_the_lattice_of_all_coarse():
    dim, rank, alignment, count = 10, 8, 0.9, 4
    single = vector_projection(dim=dim, rank=rank, alignment=alignment)
    composed = single * count
    # the range of the sum is tens of thousands of nats, and its lattice has a step of .4
    assert composed.composition.bounds[0][0].step > 0.1
    assert composed.epsilon(0.2) < 6.62
    losses = projection_losses(dim, rank, alignment, 400_000).reshape(count, -1).sum(axis=0)
    for epsilon in (0.5, 6.6, 22.5):
        lost = np.where(losses > epsilon, -np.expm1(epsilon - np.maximum(losses, epsilon)), 0.0)
        error = lost.std() / math.sqrt(lost.size)
        assert lost.mean() - 5 * error <= composed.delta(epsilon) <= lost.mean() + 5 * error
    # on one lattice of that range the same point lies .08 further
    coarse = cap_by_moments(composed.composition.bounds[0][0].curve, [*single.parts(count)])
    assert coarse(np.array([6.65]))[0] > 0.2 > composed.delta(6.65)
    again = (single * 2) * 2
    assert again.epsilon(0.2) == pytest.approx(composed.epsilon(0.2), rel=1e-5)
