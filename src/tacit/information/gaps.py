"""How far a release is from the Gaussian of its moments, and what that takes off the log-det.

``I = ½ logdet(I + S Σ⁻¹) − D_Z`` with ``D_Z = KL(P_Z ‖ N(μ_Z, Σ_Z))``: a lower bound on the gap D_Z
lowers the Gaussian bound. By transport along directions nothing is sampled; by a critic f,
``D_Z >= E_P f − ln E_Q e^f``, it holds with a confidence.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias, get_args

import numpy as np
from numpy.typing import ArrayLike
from scipy.optimize import minimize
from scipy.special import logsumexp, ndtr, ndtri

from tacit._ground.checks import (
    Array,
    RandomSource,
    choice,
    generator,
    in_interval,
    integer,
    matrix,
    non_negative,
)
from tacit._ground.numbers import EPS
from tacit._ground.threads import one_thread
from tacit.covariance import Covariance
from tacit.covariance.coercion import gaussian_covariance
from tacit.covariance.whitening import whiten
from tacit.information.bounds import (
    LARGEST_CONFIDENCE,
    InformationBracket,
    bracket_of,
    whitening_slack,
)
from tacit.information.concentration import MOST_VALUES, mean_lower_bound, mean_upper_bound
from tacit.information.distinct import distinct_outputs
from tacit.information.finite.likelihood import (
    FiniteSecret,
    gaussian_information,
    posterior,
    principal_secret,
    sample_size,
    within_noise,
)

# How far below the Gaussian bound of a release another's computation of it may be, relatively.
SAME = 1e-9
# Beside the number of terms of a product or a sum: a few units in the last place.
PRODUCT_UNITS = 8
# How many roundings of an exponent a log ratio is lowered by.
RATIO_ERRORS = 4.0
SINGULAR = "nothing: the noise leaves a direction bare"

# Distribution functions that transport may evaluate, at nodes between these, and how many at once.
TRANSPORT_WORK, FEWEST_NODES, MOST_NODES = 60_000_000, 200, 50_000
ENTRIES_PER_BLOCK = 2_000_000
# Standard deviations of the noise beyond the outermost outputs, where the rest is added.
REACH = 9.0
MOST_BASES = 10_000
# Units in the last place of the sums of squares of a basis vector, three roundings per entry, five
# times over; and of a sum over nodes and outputs: F rounds by a few, and φ(Φ⁻¹(F)), whose slope is
# −Φ⁻¹(F), by 38 times as much at most.
BASIS_UNITS, NODE_UNITS = 16.0, 64.0
TRANSPORT = "transport along orthonormal directions, exact quantiles (residual-pac, Theorem 4)"

Critic: TypeAlias = Literal["likelihood", "kernel"]
# Draws asked for at least: of fewer nothing can be said at any confidence in use.
LEAST_SAMPLES = 100
# Share of the draws that chooses the critic and is not used again.
TRAINING_SHARES = {"likelihood": 0.1, "kernel": 0.4}
# −a at which a log ratio is clipped, and the limits of a fitted critic: the best of each is chosen.
FLOORS, LIMITS = (1.0, 2.0, 4.0, 6.0, 8.0, 10.0, 12.0), (1.0, 2.0, 4.0, 6.0)
# Outputs around which a critic has bumps, draws that it is fitted on, and what keeps it small.
CENTRES, MOST_FITTED, RIDGE, FIT_STEPS = 100, 5_000, 1e-3, 60
# Relative, more than an exponential of a limit rounds.
CEILING_SLACK = 1e-12


@dataclass(frozen=True, kw_only=True)
class Gap:
    """A lower bound on ``D_Z = KL(P_Z ‖ N(μ_Z, Σ_Z))``, Z the release, with its own moments.

    Attributes:
        nats: Lower bound >= 0; 0 is always true.
        confidence: In (0, 1]; 1 where nothing was sampled.
        samples: Draws it rests on; 0 where there were none.
        method: The statement it comes from.
        gaussian: ``½ logdet(I + S Σ⁻¹)`` of the same release in nats, rounded up; what ``improve``
            may subtract from.

    Raises:
        ValueError: a field is not what it should be.
    """

    nats: float
    confidence: float
    samples: int
    method: str
    gaussian: float

    def __post_init__(self) -> None:
        non_negative("nats", self.nats)
        non_negative("gaussian", self.gaussian, allow_inf=True)
        in_interval("confidence", self.confidence, 0.0, 1.0, open_low=True)
        integer("samples", self.samples, minimum=0)


def improve(bound: InformationBracket | float, gap: Gap) -> InformationBracket:
    """Subtract the gap from the Gaussian bound: ``I = ½ logdet(I + S Σ⁻¹) − D_Z``, exactly.

    Only the Gaussian bound, of the same release, may be improved: another upper bound may
    already be below ``I + D_Z``.

    Args:
        bound: the Gaussian bound in nats, at least ``gap.gaussian``, as ``log_det_information``
            gives it, or an ``InformationBracket`` whose upper bound is that one.
        gap: of the same outputs and noise.

    Returns:
        ``InformationBracket`` of ``bound − gap``. If both rest on samples, its confidence is
        ``1 − δ − δ'`` (union bound).

    Raises:
        ValueError: the bound is below the Gaussian bound of the release that the gap belongs to,
            or the confidences leave nothing.

    Example:
        >>> from tacit.covariance import Isotropic
        >>> from tacit.information import gap_sliced_wasserstein
        >>> gap = gap_sliced_wasserstein([[-3.0], [3.0]], Isotropic(1.0, 1))
        >>> 0.6931 < improve(gap.gaussian, gap).upper < 1.1 < gap.gaussian
        True

    Source: residual-pac, Corollary 1, Eq. 8.
    """
    if not isinstance(gap, Gap):
        raise ValueError(f"gap: expected a Gap, got {type(gap).__name__}")
    if not isinstance(bound, InformationBracket):
        # a bound that is given counts as sure: whether it is, is for the caller to say
        nats = non_negative("bound", bound, allow_inf=True)
        bound = bracket_of(nats, LARGEST_CONFIDENCE, "given")
    if bound.upper < gap.gaussian * (1.0 - SAME):
        raise ValueError(
            f"bound: expected the Gaussian bound of the gap's release, {gap.gaussian:.6g} nats, "
            f"got {bound.upper:.6g}; a gap may not be subtracted from a tighter bound"
        )
    deterministic = bound.deterministic and gap.confidence == 1.0
    # δ + δ': both statements hold with what is left (union bound)
    doubt = (1.0 - gap.confidence) + (0.0 if bound.deterministic else 1.0 - bound.confidence)
    confidence = min(bound.confidence, math.nextafter(1.0 - doubt, 0.0))
    if confidence <= 0.0:
        raise ValueError(f"gap: expected confidences that leave some, got {1.0 - doubt:.6g}")
    # a given bound may be below the Gaussian one by the tolerance just allowed
    base = max(bound.upper, gap.gaussian)
    # one subtraction, rounded up; I is never below its own lower bound
    upper = max(math.nextafter(base - gap.nats, math.inf), bound.lower)
    return InformationBracket(
        lower=bound.lower,
        estimate=min(max(bound.lower, bound.estimate - gap.nats), upper),
        upper=upper,
        confidence=confidence,
        samples=bound.samples + gap.samples,
        method=f"Gaussian information less a gap (residual-pac, Corollary 1): {gap.method}",
        deterministic=deterministic,
    )


@dataclass(frozen=True, eq=False)
class NoisySecret:
    """A finite secret in its principal axes with what rounding may have done to its gap.

    ``Σ_Z = diag(1 + w)``; the release is ``points[x] + N(0, I)``.
    """

    secret: FiniteSecret
    gaussian: float
    slack: float

    @property
    def variances(self) -> Array:
        """Return (r,) the variances 1 + w of the release, to rounding."""
        return 1.0 + self.secret.eigenvalues

    def log_ratio(self, noisy: Array) -> Array:
        """Return ``r = ln p̄/g`` at (n, r) releases, rounded down."""
        # ln p̄(y)/n(y) less ln g(y)/n(y), n the density of N(0, I): neither density itself, which
        # underflow
        found = posterior(self.secret, noisy)
        shrink = self.secret.eigenvalues / self.variances
        # ln g/n = ½ Σ w/(1 + w) y² − ½ Σ ln(1 + w)
        quadratic = 0.5 * (noisy**2) @ shrink
        half_log = 0.5 * float(np.log1p(self.secret.eigenvalues).sum())
        # downwards by all that the exponents of either may be off by
        ratio: Array = found.log_sum - quadratic + half_log - RATIO_ERRORS * found.error
        return ratio

    def gaussian_draws(self, n: int, source: np.random.Generator) -> Array:
        """Return (n, r) draws of N(0, Σ_Z), to rounding."""
        draws: Array = source.standard_normal((n, len(self.variances))) * np.sqrt(self.variances)
        return draws


def noisy_secret(outputs: Any, covariance: Covariance, weights: Any) -> NoisySecret | None:
    """Return the release in whitened axes; None where noise leaves a difference bare.

    Raises:
        ValueError: a bad argument.
    """
    covariance = gaussian_covariance("covariance", covariance)
    points = matrix("outputs", outputs, columns=covariance.dim)
    points, priors = distinct_outputs(points, weights)
    reached = within_noise(points, covariance)
    if reached is None:
        return None
    whitened, error = whiten(*reached)
    secret = principal_secret(whitened - whitened[0], priors)
    count, size = secret.points.shape
    slack = whitening_slack(size, error)
    if math.isinf(slack):
        return None
    # the information and its Gaussian bound each move by the slack at most; the moments of g are
    # off by (N + d + 8) u tr S
    moments = size * (count + size + PRODUCT_UNITS) * EPS * float(secret.eigenvalues.sum())
    return NoisySecret(secret, gaussian_information(secret) + slack, 2.0 * slack + moments)


def gap_sliced_wasserstein(
    outputs: ArrayLike,
    covariance: Covariance,
    *,
    weights: ArrayLike | None = None,
    bases: int = 4,
    rng: RandomSource = 0,
) -> Gap:
    """Bound ``D_Z = KL(P_Z ‖ N(μ_Z, Σ_Z))`` from below by sliced transport; nothing is sampled.

    In coordinates where Σ_Z = I, for every orthonormal basis v₁ … v_d,

        ``½ Σ_k W₂²(law of v_k·Z, N(0, 1)) <= ½ W₂²(P_Z, N(0, I)) <= D_Z``.

    For a finite secret the law of v·Z is a mixture with distribution function F known exactly, and
    ``W₂² = Var + 1 − 2 ∫ φ(Φ⁻¹(F(x))) dx``. The integral is a sum over nodes at a distance h, off
    by at most ``h²/(4s)``, s the standard deviation of the noise along v, which is taken off.
    Theorem 4 has the mean over directions in place of the sum, and 1/λ_max in place of the
    whitening: at least d times less. A distance between two samples, as published, is positive
    for equal laws and proves nothing.

    Args:
        outputs: (N, d), one per secret.
        covariance: Σ of the noise.
        weights: (N,) prior probabilities; None for equally likely.
        bases: >= 1; the principal axes of the outputs and ``bases − 1`` random ones are tried and
            the best is kept: each of them gives a true bound.
        rng: source of the random bases.

    Returns:
        ``Gap`` in nats, with confidence 1.

    Raises:
        ValueError: a bad argument.

    Example:
        >>> from tacit.covariance import Isotropic
        >>> gap = gap_sliced_wasserstein([[-3.0], [3.0]], Isotropic(1.0, 1))
        >>> 0.0595 < gap.nats < 0.4620  # the gap is 0.4620
        True

    Source: residual-pac, Theorem 4 and Lemma 2 (Talagrand); Bakry and Ledoux, "Lévy-Gromov's
    isoperimetric inequality" (1996) for the Lipschitz constant 1/s of Φ⁻¹(F) behind h²/(4s).
    """
    count = integer("bases", bases, minimum=1, maximum=MOST_BASES)
    source = generator(rng)
    release = noisy_secret(outputs, covariance, weights)
    if release is None:
        return Gap(nats=0.0, confidence=1.0, samples=0, method=SINGULAR, gaussian=math.inf)
    size = len(release.variances)
    # the principal axes, where the outputs spread most, and random rotations of them
    tried = [np.eye(size)]
    if size > 1:
        for _ in range(count - 1):
            tried.append(np.linalg.qr(source.standard_normal((size, size)))[0])
    # the work is shared: nodes for every output, direction and basis
    nodes = TRANSPORT_WORK // (len(release.secret.points) * size * len(tried))
    nodes = min(MOST_NODES, max(FEWEST_NODES, nodes))
    # every basis gives a true bound, so the best one does; the slack is whitening's
    best = max(_basis_gap(release, basis, nodes) for basis in tried)
    return Gap(
        nats=max(0.0, best - release.slack),
        confidence=1.0,
        samples=0,
        method=TRANSPORT,
        gaussian=release.gaussian,
    )


def _basis_gap(release: NoisySecret, basis: Array, nodes: int) -> float:
    """Return ``½ Σ_k W₂²`` over the columns of a basis, rounded down."""
    # in units of the release's deviations: v·x/√(1 + w), noise of variance Σ (v_k²/(1 + w_k))
    scales = np.sqrt(release.variances)
    weights = np.exp(release.secret.log_weights)
    weights = weights / weights.sum()
    # a basis that is orthonormal up to κ changes Σ (v_k·x)² by a factor 1 ± κ
    defect = float(np.abs(basis.T @ basis - np.eye(len(basis))).sum())
    total = 0.0
    for direction in basis.T:
        points = release.secret.points @ (direction / scales)
        noise = math.sqrt(float(((direction / scales) ** 2).sum()))
        total += max(0.0, _squared_distance(points, weights, noise, nodes))
    # ½ Σ_k W₂² <= D_Z (Talagrand); downwards by κ and the rounding of its entries
    return 0.5 * total * (1.0 - defect - BASIS_UNITS * len(basis) * EPS)


def _squared_distance(points: Array, weights: Array, noise: float, nodes: int) -> float:
    """Return a lower bound on W₂² between ``points + N(0, s²)`` and N(0, 1).

    With t = Φ⁻¹(F) and 0 <= t' <= 1/s, the second derivative of φ(t) is
    ``−t'f − t f'``, whose absolute integral is at most 2/s: Σ h φ(t) errs by h²/8 · 2/s.
    """
    low = float(points.min()) - REACH * noise
    high = float(points.max()) + REACH * noise
    grid, step = np.linspace(low, high, nodes, retstep=True)
    # ∫ φ(Φ⁻¹(F(x))) dx: Σ h φ(t_i), F a mixture of N normal distribution functions, a block at a
    # time
    total = 0.0
    rows = max(1, ENTRIES_PER_BLOCK // len(points))
    for start in range(0, nodes, rows):
        places = (grid[start : start + rows, None] - points) / noise
        quantiles = ndtri(np.clip(ndtr(places) @ weights, 0.0, 1.0))
        total += float(np.exp(-0.5 * quantiles**2).sum()) / math.sqrt(2.0 * math.pi)
    spacing = float(step)
    # W₂² = E x² + 1 − 2 ∫ φ(Φ⁻¹(F)); the outputs are centred, up to a mean that rounding left
    mean = float(weights @ points)
    second = float(weights @ points**2) + noise**2
    # beyond the ends φ(t) is at most that of the outermost point: s Φ(−9) on each side; and the sum
    # over nodes errs by h²/(4s)
    missed = 2.0 * noise * float(ndtr(-REACH)) + spacing**2 / (4.0 * noise)
    rounding = NODE_UNITS * EPS * (len(points) + PRODUCT_UNITS) * (high - low + second)
    # the integral upwards, so that the distance errs downwards
    product = spacing * total + missed + rounding
    return second + 1.0 - 2.0 * product - 2.0 * abs(mean)


def gap_donsker_varadhan(
    outputs: ArrayLike,
    covariance: Covariance,
    *,
    weights: ArrayLike | None = None,
    critic: Critic = "likelihood",
    samples: int | None = None,
    confidence: float = 0.99,
    rng: RandomSource = None,
) -> Gap:
    """Bound ``D_Z = KL(P_Z ‖ N(μ_Z, Σ_Z))`` from below for a finite secret in Gaussian noise.

    ``D_Z >= E_P f − ln E_Q e^f`` for every f; f is chosen on training draws and judged on others.

    * ``critic="likelihood"``: ``f = max(ln p̄/g, −a)``, p̄ the density of the release and g that of
      Q. E_Q e^f is at most ``1 + e^−a`` without sampling Q; a is chosen on the training draws.
    * ``critic="kernel"``: f a sum of Gaussian bumps around 100 outputs, fitted to training draws
      of both laws and clipped to a range; ``E_P f`` and ``E_Q e^f`` are bounded at δ/2 each. Its
      cost does not grow with N; it finds less.

    f = 0 is among the choices, so the bound is never below 0.

    Args:
        outputs: (N, d), one per secret.
        covariance: Σ of the noise.
        weights: (N,) prior probabilities; None for equally likely.
        critic: "likelihood" or "kernel".
        samples: draws of the release, training included, >= 100 (as many again of Q for
            "kernel"); None for 5·10⁸/N within 20,000 to 1,000,000.
        confidence: of the bound, in (0, 1).
        rng: source of the draws.

    Returns:
        ``Gap`` in nats.

    Raises:
        ValueError: a bad argument.

    Example:
        >>> from tacit.covariance import Isotropic
        >>> gap = gap_donsker_varadhan([[-3.0], [3.0]], Isotropic(1.0, 1), rng=0)
        >>> 0.44 < gap.nats < 0.4629  # ½ ln 10 less the information of two points at ±3
        True

    Source: residual-pac, Theorem 3 and Definition 8; the deviation Γ is replaced by bets.
    """
    chosen = choice("critic", critic, get_args(Critic))
    level = in_interval("confidence", confidence, 0.0, 1.0, open_low=True, open_high=True)
    count = (
        None
        if samples is None
        else integer("samples", samples, minimum=LEAST_SAMPLES, maximum=MOST_VALUES)
    )
    release = noisy_secret(outputs, covariance, weights)
    source = generator(rng)
    if release is None:
        return Gap(nats=0.0, confidence=1.0, samples=0, method=SINGULAR, gaussian=math.inf)
    if count is None:
        count = sample_size(len(release.secret.points))
    training = int(TRAINING_SHARES[chosen] * count)
    # training draws choose the critic, the others judge it: its bound holds whatever was chosen
    judge = _likelihood if chosen == "likelihood" else _kernel
    nats = judge(release, training, count - training, level, source) - release.slack
    return Gap(
        nats=max(0.0, math.nextafter(nats, -math.inf)),
        confidence=level,
        samples=count,
        method=f"Donsker-Varadhan with a {chosen} critic (residual-pac, Theorem 3)",
        gaussian=release.gaussian,
    )


def _likelihood(
    release: NoisySecret, training: int, count: int, level: float, source: np.random.Generator
) -> float:
    """Return the lower bound ``LCB(E max(r, −a)) − ln(1 + e^−a)``.

    E_Q e^r = 1, and the clip adds e^−a times a probability at most.
    """
    # r = ln p̄/g at training draws: a is chosen by what they promise
    pilot = release.log_ratio(release.secret.draw(training, source)[1])
    log_level = -math.log1p(-level)

    def promise(floor: float) -> float:
        values = np.maximum(pilot, -floor)
        # a sub-Gaussian guess of the width; only the choice depends on it
        width = math.sqrt(2.0 * log_level / count) * float(values.std())
        return float(values.mean()) - width - math.log1p(math.exp(-floor))

    floor = max(FLOORS, key=promise)
    # fresh draws; −a is the floor that betting needs
    ratios = release.log_ratio(release.secret.draw(count, source)[1])
    lowest = mean_lower_bound(
        np.maximum(pilot, -floor), np.maximum(ratios, -floor), level, floor=-floor
    )
    # E_Q e^{max(r, −a)} <= E_Q e^r + e^−a = 1 + e^−a
    return lowest - math.log1p(math.exp(-floor))


def _kernel(
    release: NoisySecret, training: int, count: int, level: float, source: np.random.Generator
) -> float:
    """Return the lower bound ``LCB(E_P f) − ln UCB(E_Q e^f)``, f fitted to training draws."""
    features = _features(release, source)
    # δ/2 for either expectation (union bound)
    half = 1.0 - 0.5 * (1.0 - level)

    def draws(n: int) -> tuple[Array, Array]:
        return release.secret.draw(n, source)[1], release.gaussian_draws(n, source)

    # features at draws of the release and of Q; the critic is f = slopes · features
    first, second = (features(noisy) for noisy in draws(training))
    fitted = min(training, MOST_FITTED)
    slopes = _slopes(first[:fitted], second[:fitted])
    released, gaussian = first @ slopes, second @ slopes

    def promise(limit: float) -> float:
        # what a limit promises: a range of ±limit costs the second bound about e^limit ln(1/δ)/n
        above = float(np.exp(np.clip(gaussian, -limit, limit)).mean())
        loss = -2.0 * math.exp(limit) * math.log1p(-half) / count
        return float(np.clip(released, -limit, limit).mean()) - math.log(above) - loss

    limit = max(LIMITS, key=promise)
    # fresh draws of both laws, f clipped to where both bets have their bounds
    judged = [np.clip(features(noisy) @ slopes, -limit, limit) for noisy in draws(count)]
    mean = mean_lower_bound(np.clip(released, -limit, limit), judged[0], half, floor=-limit)
    # e^f <= e^limit, upwards: a bet needs a ceiling that no value passes
    pilot = np.exp(np.clip(gaussian, -limit, limit))
    ceiling = math.exp(limit) * (1.0 + CEILING_SLACK)
    return mean - math.log(mean_upper_bound(pilot, np.exp(judged[1]), half, ceiling=ceiling))


def _features(release: NoisySecret, source: np.random.Generator) -> Callable[[Array], Array]:
    """Return bumps around outputs z_j drawn at random: good for a choice only.

    ``exp(−‖y − z_j‖²/(2h²))``, h² = d and 4d.
    """
    points = release.secret.points
    chosen = source.choice(
        len(points),
        size=min(CENTRES, len(points)),
        replace=False,
        p=np.exp(release.secret.log_weights) / np.exp(release.secret.log_weights).sum(),
    )
    centres = points[chosen]
    squares = (centres**2).sum(axis=1)

    def features(noisy: Array) -> Array:
        # ‖y − z‖² by one product of matrices; below 0 it is rounding
        distances = (noisy**2).sum(axis=1)[:, None] - 2.0 * noisy @ centres.T + squares
        scaled = -0.5 * np.maximum(distances, 0.0) / points.shape[1]
        values: Array = np.concatenate([np.exp(scaled), np.exp(0.25 * scaled)], axis=1)
        return values

    return features


def _slopes(first: Array, second: Array) -> Array:
    """Return slopes that maximise the ridged objective: good for a choice only.

    ``mean f over P − ln mean e^f over Q − ridge ‖slopes‖²`` is concave in the slopes.
    """
    target = first.mean(axis=0)

    def loss(slopes: Array) -> tuple[float, Array]:
        exponents = second @ slopes
        # ln Σ e^f by log-sum-exp, and its gradient: the features' mean under weights e^f
        total = float(logsumexp(exponents))
        tilted = np.exp(exponents - total) @ second
        value = total - math.log(len(second)) - float(target @ slopes)
        gradient: Array = tilted - target + 2.0 * RIDGE * slopes
        return value + RIDGE * float(slopes @ slopes), gradient

    # from f = 0, whose bound is 0: some steps towards the best, not all
    start = np.zeros(len(target))
    with one_thread():
        found = minimize(loss, start, jac=True, method="L-BFGS-B", options={"maxiter": FIT_STEPS})
    return np.asarray(found.x, dtype=np.float64)
