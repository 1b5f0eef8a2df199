"""The papers' bounds against their formulas evaluated apart, and why some are refused."""

import math
import re

import numpy as np
import pytest
from dp_accounting.pld.privacy_loss_distribution import from_gaussian_mechanism
from mpmath import mp, mpf
from scipy import stats

from tacit.accounting import ProjectedSteps, gaussian, published, vector_projection
from tacit.divergences import renyi_gaussians, shift_divergence

RATE, STEPS = 1024 / 50_000, 1000


def student_quantile(tail, freedom):
    """t with P(T > t) = tail, from the regularised incomplete beta function at 30 digits."""
    mp.dps = 30

    def upper(x):
        half = mpf(freedom) / 2
        return mp.betainc(half, mpf(1) / 2, 0, freedom / (freedom + x * x), regularized=True) / 2

    start = mpf(float(stats.t.isf(float(tail), freedom)))
    return mp.findroot(lambda x: upper(x) - mpf(tail), start)


def chi2_quantile(tail, freedom):
    mp.dps = 30
    start = mpf(float(stats.chi2.isf(float(tail), freedom)))
    half = mpf(freedom) / 2
    return mp.findroot(
        lambda x: mp.gammainc(half, x / 2, mp.inf, regularized=True) - mpf(tail), start
    )


def theorem_1(dim, rank, alignment, delta):
    """ε as printed, with E Φ(−ρ√x/√(1−ρ²)) by quadrature over the χ² density."""
    mp.dps = 30
    rho = mpf(alignment)
    ratio = rho / mp.sqrt(1 - rho**2)
    density = lambda x: x ** (mpf(rank) / 2 - 1) * mp.exp(-x / 2)  # noqa: E731
    mass = mpf(2) ** (mpf(rank) / 2) * mp.gamma(mpf(rank) / 2)
    points = [0, mpf("1e-6"), mpf("1e-4"), mpf("1e-2"), 1, 10, 60]
    infinite = mp.quad(lambda x: density(x) * mp.ncdf(-ratio * mp.sqrt(x)), points) / mass
    tail = (mpf(delta) - infinite) / 3
    spread = mp.sqrt((1 - rho**2) / rank) * student_quantile(tail, rank)
    radius = chi2_quantile(tail, dim + rank - 1)
    first = mpf(dim - rank + 1) / 2 * mp.log(rho + spread)
    return first + (1 - rho + spread) * radius / (2 * (rho - spread))


@pytest.mark.parametrize(
    ("alignment", "delta", "rank", "shown"),
    [
        (0.999, 0.01, 4, 53.5),
        (0.999, 0.01, 16, 15.6),
        (0.999, 0.01, 64, 7.12),
        (0.999, 0.01, 256, 3.78),
        (0.9999, 1e-5, 16, 11.0),
        (0.9999, 1e-5, 64, 4.15),
        (0.9999, 1e-5, 256, 2.02),
    ],
)
def test_theorem_1_at_its_reference_values(alignment, delta, rank, shown):
    claim = published.lora_theorem_1(dim=400, rank=rank, alignment=alignment, delta=delta)
    assert float(f"{claim.epsilon:.3g}") == shown
    assert claim.epsilon == pytest.approx(float(theorem_1(400, rank, alignment, delta)), rel=1e-9)


@pytest.mark.parametrize("rank", [4, 64, 256])
def test_theorem_1_is_above_the_exact_profile(rank):
    claim = published.lora_theorem_1(dim=400, rank=rank, alignment=0.999, delta=0.01)
    assert claim.epsilon > 3 / 2 * vector_projection(dim=400, rank=rank, alignment=0.999).epsilon(
        0.01
    )


def test_theorem_1_is_refused_where_it_is_unsound():
    with pytest.raises(ValueError, match=r"rank: expected at most dimension \+ 1 = 11.*got 50"):
        published.lora_theorem_1(dim=10, rank=50, alignment=0.99, delta=0.01)
    claimed = theorem_1(10, 50, 0.99, 0.01)  # what it would have said
    assert float(claimed) == pytest.approx(2.41506, abs=5e-6)
    assert vector_projection(dim=10, rank=50, alignment=0.99).delta(
        float(claimed)
    ) == pytest.approx(0.011899, abs=5e-7)
    assert published.lora_theorem_1(dim=10, rank=11, alignment=0.99, delta=0.01).epsilon > 0


def test_theorem_1_says_nothing_where_its_condition_fails():
    assert published.lora_theorem_1(dim=400, rank=4, alignment=0.5, delta=1e-5).epsilon == math.inf
    assert (
        published.lora_theorem_1(dim=400, rank=4, alignment=0.999, delta=1e-7).epsilon == math.inf
    )  # below P∞
    assert published.lora_theorem_1(dim=400, rank=4, alignment=1.0, delta=1e-7).epsilon == 0.0


def test_theorem_3_composes_columns():
    claim = published.lora_theorem_3(3, 0.5, 1e-6)
    assert claim.epsilon == 1.5
    assert claim.delta == pytest.approx(3e-6 * math.e, rel=1e-14)
    assert published.lora_theorem_3(1, 0.5, 1e-6).delta == 1e-6
    assert published.lora_theorem_3(4, math.inf, 0.0).delta == 0.0


def theorem_4(span=60, **changes):
    arguments = {
        "sensitivity": 0.01,
        "noise_std": 1.0,
        "deltas": (1e-3, 2e-3, 3e-3),
    }
    return published.lora_theorem_4(
        dim=400, rank=64, span=span, residual_alignment=0.9999, **arguments | changes
    )


def test_theorem_4_adds_its_terms():
    claim = theorem_4()
    spread = math.sqrt(2 * math.log(2 / 2e-3))
    gain = (20 + math.sqrt(60) + spread) * (math.sqrt(60) + spread) / 64
    aligned = gain * 0.01 * math.sqrt(2 * math.log(1250))
    ratio = math.sqrt((1 - 0.9999**2) / 4) * float(student_quantile(1e-3, 4))
    residual = (340 - 4 + 1) / 2 * math.log(0.9999 + ratio)
    residual += float(chi2_quantile(1e-3, 340 + 4 - 1)) / 2 * (1 / (0.9999 - ratio) - 1)
    assert claim.epsilon == pytest.approx(aligned + residual, rel=1e-9)
    infinite = float(stats.t.cdf(-0.9999 * 2 / math.sqrt(1 - 0.9999**2), 4))
    assert claim.delta == pytest.approx(6e-3 + infinite, rel=1e-9)
    assert theorem_4(sensitivity=0.0).epsilon == pytest.approx(residual, rel=1e-9)


def test_theorem_4_is_refused_where_its_spectral_lemma_fails():
    """‖M∥ u‖ of drawn projections, u in the span, beside the bound that Lemma 14 prints."""
    with pytest.raises(ValueError, match="Theorem 4 is unsound there") as refusal:
        theorem_4(span=4)
    shown = float(re.search(r"with probability (\S+) for", str(refusal.value)).group(1))
    rng, draws = np.random.default_rng(2), 400
    spread = math.sqrt(2 * math.log(2 / 2e-3))
    gain = (20 + 2 + spread) * (2 + spread) / 64
    larger = 0
    for _ in range(draws):
        factor = rng.normal(size=(400, 64)) / 8
        rows = np.linalg.qr(factor[:4].T)[0]  # row space of UᵀZ, U the first four coordinates
        image = factor @ (rows @ (rows.T @ factor[0]))
        larger += float(np.linalg.norm(image)) > gain
    error = math.sqrt(shown * (1 - shown) / draws)
    assert abs(larger / draws - shown) < 5 * error + 0.005
    assert larger / draws > 2e-3 + 5 * error


def test_theorem_4_is_refused_where_its_parts_are_unsound():
    with pytest.raises(ValueError, match="classical Gaussian calibration"):
        theorem_4(noise_std=0.01)
    with pytest.raises(ValueError, match="rank: expected an integer >= 65"):
        theorem_4(span=64)
    small = {"sensitivity": 0.01, "noise_std": 9.0, "deltas": (1e-3, 1e-3, 1e-3)}
    with pytest.raises(ValueError, match="rank - span: expected at most dimension"):
        published.lora_theorem_4(dim=10, rank=50, span=2, residual_alignment=0.99, **small)


def theorem_5(dim, rank, scale, epsilon, count, share):
    mp.dps = 30
    mean = mpf(share) * mpf(scale)
    root = mp.sqrt(mean)
    tails = mp.ncdf((mean / 2 - epsilon) / root) + mp.ncdf(-(epsilon + mean / 2) / root)
    missed = 1 - mp.betainc(mpf(rank) / 2, mpf(dim - rank) / 2, 0, share, regularized=True)
    return tails + count * missed


@pytest.mark.parametrize(("dim", "rank", "count"), [(20, 4, 3), (2000, 16, 1), (2000, 256, 10)])
def test_theorem_5_at_a_share_and_at_the_best(dim, rank, count):
    chosen = {"sensitivity": 2.0, "noise_std": 0.5, "epsilon": 1.5, "difference_rank": count}
    best = published.lora_theorem_5(dim=dim, rank=rank, **chosen).delta
    tried = []
    for share in np.linspace(0.2, 4.5, 40) * rank / dim:
        exact = float(theorem_5(dim, rank, 16, mpf(1.5), count, float(share)))
        claim = published.lora_theorem_5(dim=dim, rank=rank, **chosen, captured=float(share))
        assert claim.delta == pytest.approx(exact, rel=1e-8)
        tried.append(exact)
    assert best <= min(tried) * (1 + 1e-8)
    assert best >= 0.5 * min(tried)


def test_theorem_5_without_a_difference_is_the_failure_alone():
    assert published.lora_theorem_5(
        dim=20, rank=4, sensitivity=0.0, noise_std=1.0, epsilon=1.0
    ).delta == pytest.approx(0.0, abs=1e-15)


PUBLISHED = {
    8: {0.2: 1.4238, 0.4: 0.77757, 1.0: 0.36259, 2.0: 0.22036, 4.0: 0.15050},
    16: {0.2: 1.6319, 0.4: 0.89117, 1.0: 0.41556, 2.0: 0.25255, 4.0: 0.17249},
    64: {0.2: 2.3712, 0.4: 1.2949, 1.0: 0.60384, 2.0: 0.36698, 4.0: 0.25064},
    256: {0.2: 3.8724, 0.4: 2.1147, 1.0: 0.98612, 2.0: 0.59930, 4.0: 0.40931},
}


@pytest.mark.thorough
@pytest.mark.parametrize("epsilon", [0.2, 1.0, 4.0])
def test_theorem_5_over_steps_at_its_reference_multipliers(epsilon):
    """One Gaussian calibration serves every rank; the table's own is good to a few 1e-4."""
    chosen = {"epsilon": epsilon, "delta": 1e-4}
    work = ProjectedSteps(dim=2000, rank=8, steps=STEPS, sampling_rate=RATE)
    lowest = published.lora_theorem_5_multiplier(work, **chosen)
    share = published.captured_share(dim=2000, rank=8, delta=1e-8)
    for rank, row in PUBLISHED.items():
        scale = math.sqrt(published.captured_share(dim=2000, rank=rank, delta=1e-8) / share)
        assert lowest * scale == pytest.approx(row[epsilon], rel=3e-4)


def test_theorem_5_over_steps_splits_delta():
    """At the plain multiplier's own target, tested by another accountant's convolution."""
    work = ProjectedSteps(dim=2000, rank=16, steps=STEPS, sampling_rate=RATE)
    claim = published.lora_theorem_5_steps(work, 0.41556, delta=1e-4)
    gain = math.sqrt(float(stats.beta.isf(1e-8, 8, 992)))
    plain = from_gaussian_mechanism(
        0.41556 / gain, sampling_prob=RATE, value_discretization_interval=1e-4
    ).self_compose(STEPS)
    assert claim.epsilon == pytest.approx(plain.get_epsilon_for_delta(0.9e-4), rel=1e-4)


@pytest.mark.thorough
def test_theorem_5_over_steps_reads_back_its_own_calibration():
    work = ProjectedSteps(dim=2000, rank=64, steps=20, sampling_rate=0.1)
    noise = published.lora_theorem_5_multiplier(work, epsilon=1.0, delta=1e-5)
    claim = published.lora_theorem_5_steps(work, noise, delta=1e-5)
    assert claim.epsilon == pytest.approx(1.0, rel=1e-5)
    smaller = published.lora_theorem_5_steps(work, 0.97 * noise, delta=1e-5)
    assert smaller.epsilon > 1.02


@pytest.mark.parametrize(
    ("rank", "dim", "gamma", "shown"),
    [(8, 8, 0.01, 11.52), (16, 64, 0.05, 12.79), (4, 4, 0.3, 12.27)],
)
def test_pave_theorem_3_5_at_its_reference_values(rank, dim, gamma, shown):
    """Order 2 of the Rényi divergence at half the ratios at each end is below the claim."""
    claim = published.pave_theorem_3_5(rank=rank, dim=dim, gamma=gamma, delta=1e-5)
    assert round(claim.epsilon, 2) == shown
    ratio = 1 + gamma * np.where(np.arange(dim) % 2, 1.0, -1.0)
    mean = np.zeros(dim)
    order_2 = rank * renyi_gaussians(mean, np.diag(ratio), mean, np.eye(dim), 2.0)
    assert claim.epsilon - math.log(1e5) == pytest.approx(order_2, rel=1e-9)


@pytest.mark.parametrize("gamma", [1e-9, 1e-3, 0.3, 0.9])
@pytest.mark.parametrize("delta", [1e-9, 1e-5, 0.1, 0.5, 0.999])
def test_the_published_pave_risk_is_never_below_one(gamma, delta):
    claim = published.pave_theorem_3_5(rank=1, dim=1, gamma=gamma, delta=delta)
    assert claim.epsilon >= math.log(1 / delta)
    assert published.pave_risk(claim.epsilon, delta) >= 1.0


def test_pave_theorem_3_5_is_refused_in_one_order():
    with pytest.raises(ValueError, match="both_orders: expected True"):
        published.pave_theorem_3_5(rank=1, dim=1, gamma=0.5, delta=1e-5, both_orders=False)
    zero, one = np.zeros(1), np.eye(1)
    # the ratio 1/2 is within [1/2, 3/2]; its inverse is 2, where order 2 diverges
    assert renyi_gaussians(zero, one / 2, zero, one, 2.0) <= 0.1439
    assert renyi_gaussians(zero, one, zero, one / 2, 2.0) == math.inf


def test_pave_theorem_3_9_without_sampling_is_the_best_order():
    claim = published.pave_theorem_3_9(20.0, steps=30, layers=4, delta=1e-6)
    total = 2 * 30 * 4 / 400
    orders = 1 + np.geomspace(1e-4, 1e6, 400_001)
    best = float((total * orders + math.log(1e6) / (orders - 1)).min())
    assert claim.epsilon == pytest.approx(best, rel=1e-8)
    assert claim.epsilon >= (gaussian(2.0, 20.0) * 120).epsilon(1e-6)


def test_pave_theorem_3_9_with_sampling():
    full = published.pave_theorem_3_9(20.0, steps=30, delta=1e-6)
    almost = published.pave_theorem_3_9(20.0, steps=30, delta=1e-6, sampling_rate=1 - 1e-9)
    assert almost.epsilon == pytest.approx(full.epsilon, rel=1e-3)
    tenth = published.pave_theorem_3_9(20.0, steps=30, delta=1e-6, sampling_rate=0.1)
    assert tenth.epsilon < full.epsilon


@pytest.mark.parametrize("layers", [2, 256])
def test_pave_theorem_3_9_of_several_layers_on_samples_is_refused(layers):
    """What one record of norm C in every layer attains: the Gaussian of all layers on one batch."""
    with pytest.raises(ValueError, match=r"^layers: expected 1 beside sampling_rate 0.001"):
        published.pave_theorem_3_9(1.0, steps=3, layers=layers, delta=1e-6, sampling_rate=1e-3)


def test_pave_risk_of_extremes():
    assert published.pave_risk(0.0, 0.0) == 0.0
    assert published.pave_risk(math.inf, 0.0) == math.inf
    assert published.pave_risk(800.0, 0.5) == math.inf
    assert published.pave_risk(1.0, 0.25) == pytest.approx(math.e - 0.75, rel=1e-15)


def test_dsi_composition_of_gaussian_rounds():
    """Both claims are attained by independent shifts, whose squared distances add."""
    squared, order = [0.3, 0.05, 1.1], 2.5
    rounds = [math.exp(order * (order - 1) * g / 2) for g in squared]
    whole = math.exp(order * (order - 1) * sum(squared) / 2)
    assert published.dsi_theorem_3_4(rounds) == pytest.approx(whole, rel=1e-14)
    assert published.dsi_corollary_c_1([g / 2 for g in squared]) == pytest.approx(
        shift_divergence("kl", math.sqrt(sum(squared))), rel=1e-14
    )


def test_dsi_lemma_3_5_and_its_missing_condition():
    claim = published.dsi_lemma_3_5("tv", [1.0, 4.0], [0.75, 0.25])
    exact = math.erf(math.sqrt((0.75**2 + 0.25**2) * 5.0 / 8))
    assert claim == pytest.approx(exact, rel=1e-12)
    # ‖0.75 z_1 + 0.25 z_2‖ with parallel z, the worst that the budgets allow
    assert claim >= shift_divergence("tv", 0.75 + 0.25 * 2)
    with pytest.raises(ValueError, match="weights: expected a sum of 1 over the group"):
        published.dsi_lemma_3_5("kl", [0.0], [0.5])


def test_the_classical_gaussian_is_sound_up_to_one_and_refused_above():
    for epsilon in (0.05, 0.5, 1.0):
        for delta in (1e-9, 1e-5, 0.05):
            std = published.classical_gaussian_std(1.0, epsilon, delta)
            assert gaussian(1.0, std).delta(epsilon) <= delta
    with pytest.raises(ValueError, match="epsilon: expected at most 1") as refusal:
        published.classical_gaussian_std(1.0, 10.0, 1e-5)
    shown = float(re.search(r"true delta is (\S+)$", str(refusal.value)).group(1))
    claimed = math.sqrt(2 * math.log(1.25e5)) / 10
    assert gaussian(1.0, claimed).delta(10.0) == pytest.approx(shown, rel=5e-3)
    assert shown > 1e-5


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (
            lambda: published.lora_theorem_1(dim=1, rank=1, alignment=0.9, delta=0.1),
            "dim: expected an integer >= 2",
        ),
        (
            lambda: published.lora_theorem_1(dim=9, rank=1, alignment=0.0, delta=0.1),
            "alignment: expected a number",
        ),
        (
            lambda: published.lora_theorem_1(dim=9, rank=1, alignment=0.9, delta=0.0),
            "delta: expected a number",
        ),
        (lambda: published.lora_theorem_3(0, 0.1, 0.1), "columns: expected an integer >= 1"),
        (lambda: published.lora_theorem_3(1, math.nan, 0.1), "epsilon_one: expected a number"),
        (
            lambda: published.lora_theorem_5(dim=9, rank=9, sensitivity=1, noise_std=1, epsilon=1),
            "rank: expected an integer <= 8, got 9",
        ),
        (
            lambda: published.lora_theorem_5(dim=9, rank=2, sensitivity=1, noise_std=0, epsilon=1),
            "noise_std: expected a finite number > 0",
        ),
        (
            lambda: published.lora_theorem_5_steps(
                ProjectedSteps(dim=9, rank=2, sampling_rate=0.1), 0.0, delta=0.1
            ),
            "noise_multiplier: expected a finite number > 0",
        ),
        (
            lambda: published.captured_share(dim=9, rank=2, delta=0.0),
            "delta: expected a number",
        ),
        (
            lambda: published.pave_theorem_3_5(rank=1, dim=1, gamma=1.0, delta=0.1),
            "gamma: expected a number",
        ),
        (
            lambda: published.pave_theorem_3_5(rank=0, dim=1, gamma=0.1, delta=0.1),
            "rank: expected an integer",
        ),
        (lambda: published.pave_theorem_3_9(0.0, steps=1, delta=0.1), "noise_multiplier: expected"),
        (
            lambda: published.pave_theorem_3_9(1.0, steps=1, delta=0.1, sampling_rate=0.0),
            "sampling_rate: expected a number",
        ),
        (lambda: published.pave_risk(-1.0, 0.1), "epsilon: expected a finite number >= 0"),
        (lambda: published.dsi_theorem_3_4([0.5]), "divergences: expected at least 1"),
        (lambda: published.dsi_theorem_3_4([]), "divergences: expected at least one entry"),
        (lambda: published.dsi_corollary_c_1([-0.5]), "divergences: expected numbers >= 0"),
        (lambda: published.dsi_lemma_3_5("kl", [1.0], [0.5, 0.5]), "weights: expected 1 entries"),
        (lambda: published.dsi_lemma_3_5("kl", [-1.0], [1.0]), "budgets: expected numbers >= 0"),
        (lambda: published.classical_gaussian_std(1.0, 0.5, 1.0), "delta: expected a number"),
    ],
)
def test_bad_input_gets_a_sentence(call, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        call()
