"""Information of a finite secret through Gaussian noise: exact likelihood, bounded both ways."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from tacit._ground.checks import (
    Array,
    RandomSource,
    generator,
    in_interval,
    integer,
    matrix,
)
from tacit._ground.numbers import EPS
from tacit.covariance import Covariance, ScaleMixture
from tacit.covariance.coercion import as_covariance
from tacit.covariance.whitening import whiten
from tacit.information.bounds import (
    InformationBracket,
    bracket_of,
    least,
    lowered_by,
    raised_by,
    whitening_slack,
)
from tacit.information.concentration import (
    MOST_VALUES,
    mean_lower_bound,
    pilot_size,
    promised_width,
)
from tacit.information.distinct import distinct_outputs, entropy
from tacit.information.finite.likelihood import (
    FiniteSecret,
    gaussian_information,
    pairwise_information,
    posterior,
    principal_secret,
    sample_size,
    within_noise,
)
from tacit.information.finite.scale_mixture import ENTROPY, scale_mixture_bound

# Draws that choose which bound is used, at least.
SMALLEST_PILOT = 50
# Which statement an upper bound comes from, as brackets and certificates say it.
LOG_DET = "Gaussian information ½ logdet(I + S Σ⁻¹) (residual-pac, Thm 1)"
PAIRWISE = "pairwise divergences of the mixture (Kolchinsky and Tracey, 2017, Eq. 10)"
LIKELIHOOD = "exact mixture likelihood, lower confidence bound by betting"
# Excess of a clipped quadratic form beyond the clip, relative to the information at most.
TAIL_SHARE = 1e-4
# Numbers of simulated releases that are held at once.
NUMBERS_PER_BLOCK = 4_000_000
# Rounding of an entropy by ln N: units in the last place; and of a bound by all it is made of.
ENTROPY_UNITS, BOUND_UNITS = 16.0, 64.0
# Beside the number of terms of a product: a few units in the last place.
PRODUCT_UNITS = 8
# Tilts of Chernoff's bound, relative to where the moment is infinite, and clips, relative to E q.
TILTS = np.concatenate([np.geomspace(0.02, 0.5, 8), np.linspace(0.6, 0.95, 6)])
CLIPS = np.geomspace(1.5, 400.0, 24)
# Numbers in the outputs beyond which no clip is sought.
MOST_ENTRIES = 20_000_000
# Relative, more than a mean of millions of exponentials rounds.
TAIL_SLACK = 1e-9
# Multiples of the clipped form that a regression may take.
MOST_CONTROL = 2.0


def mixture(
    outputs: ArrayLike,
    covariance: Covariance | ScaleMixture | ArrayLike,
    *,
    weights: ArrayLike | None = None,
    samples: int | None = None,
    confidence: float = 0.99,
    rng: RandomSource = None,
) -> InformationBracket:
    """Bound I(X; Y) for a finite secret X and Y = output of X + N(0, Σ), from both sides.

    With noise whitened to N(0, I), z_x the centred outputs, S their covariance and
    ``ℓ(y) = ln Σ_j p_j exp(y·z_j − ½‖z_j‖²)``, exactly

        ``I = ½ tr S − E ℓ(y) = H(X) − E H(X | Y = y)``.

    The upper bound is the least of ``½ tr S − LCB(E ℓ)`` (where the quadratic part of ℓ, whose
    mean is known, is taken out if that helps), ``H(X) − LCB(E H(X | y))``, and three that need no
    sampling: ``½ logdet(I + S)``, ``H(X)`` and the pairwise bound of ``pairwise_information``.
    Secrets of equal output are one from the start, so that H is the entropy of the outputs. Which
    of the sampled ones is chosen on a pilot, a tenth of the draws, that is not used again.

    Args:
        outputs: (N, d), one per secret, any units; N may be large: outputs stream in blocks.
        covariance: Σ of the noise, same units squared, or a ``ScaleMixture``. Where it leaves a
            direction bare in which outputs differ, nothing below H(X) is certified.
        weights: (N,) prior probabilities, >= 0, that sum to 1; None for equally likely.
        samples: draws in all, >= 100; None for 5·10⁸/N, within 20,000 to 1,000,000.
        confidence: of each of the two bounds, in (0, 1).
        rng: source of the draws.

    Returns:
        ``InformationBracket`` in nats; rounding is on the safe side of both bounds.

    Raises:
        ValueError: a bad argument.

    Example:
        >>> from tacit.covariance import Isotropic
        >>> bound = mixture([[-1.0], [1.0]], Isotropic(1.0, 1), rng=0)
        >>> bound.lower < 0.33683082 < bound.upper < 0.3378
        True

    Source: residual-pac, Definition 4; corrected: the likelihood is that of the mixture, not of a
    decoder or of a Gaussian.
    """
    covariance = as_covariance("covariance", covariance)
    given = matrix("outputs", outputs)
    level = in_interval("confidence", confidence, 0.0, 1.0, open_low=True, open_high=True)
    points, priors = distinct_outputs(given, weights)
    count = _samples(samples, len(points))
    source = generator(rng)
    if not isinstance(covariance, Covariance | ScaleMixture) or covariance.dim != points.shape[1]:
        raise ValueError(
            f"covariance: expected dimension {points.shape[1]}, that of the outputs, "
            f"got {getattr(covariance, 'dim', type(covariance).__name__)}"
        )
    if len(points) == 1:
        return bracket_of(0.0, level, "the same output for every secret")
    if isinstance(covariance, ScaleMixture):
        return scale_mixture_bound(points, priors, covariance, count, level, source)
    return _mixture(points, priors, covariance, count, level, source)


def _mixture(
    points: Array,
    priors: Array,
    covariance: Covariance,
    count: int,
    level: float,
    source: np.random.Generator,
) -> InformationBracket:
    ceiling = entropy(priors)
    nothing = bracket_of(ceiling, level, ENTROPY)
    # where outputs differ in a direction without noise, y tells them apart: H(X) is all that is
    # known
    reached = within_noise(points, covariance)
    if reached is None:
        return nothing
    # in units of the noise: y = z + N(0, I), the factor of the noise off by 1 − ρ at most
    whitened, error = whiten(*reached)
    secret = principal_secret(whitened - whitened[0], priors)
    slack = whitening_slack(secret.points.shape[1], error)
    if math.isinf(slack):
        return nothing
    # the pilot and the rest are independent: what the pilot chooses leaves the bound of the rest
    # true
    pilot_count = pilot_size(count, SMALLEST_PILOT)
    pilot = Draws.of(secret, ceiling, pilot_count, source)
    main = Draws.of(secret, ceiling, count - pilot_count, source)
    statistic = best_statistic(secret, ceiling, pilot, len(main), level)
    upper = raised_by(statistic.upper_bound(pilot, main, level), slack)
    # I <= H(X) whatever was drawn
    lower = min(max(0.0, lowered_by(main.lower_bound(pilot, level), slack)), ceiling)
    # an upper end below the lower, or below 0, is known to be false: no sampled end is kept
    bound = nothing
    if lower <= upper:
        bound = InformationBracket(
            lower=lower,
            estimate=min(max(statistic.estimate(main), lower), upper),
            upper=upper,
            confidence=level,
            samples=count,
            method=LIKELIHOOD,
        )
    # a Gaussian of the same covariance tells most; its bound needs no draws
    bound = least(bound, raised_by(gaussian_information(secret), slack), LOG_DET)
    # N² exponentials: no more than the draws cost
    if len(priors) <= count:
        bound = least(bound, raised_by(pairwise_information(secret), slack), PAIRWISE)
    return least(bound, ceiling, ENTROPY)


def _samples(samples: int | None, outputs: int) -> int:
    if samples is None:
        return sample_size(outputs)
    return integer("samples", samples, minimum=2 * SMALLEST_PILOT, maximum=MOST_VALUES)


@dataclass(frozen=True, eq=False)
class Draws:
    """What n independent releases say about a finite secret.

    Attributes:
        log_sum: (n,) ``ℓ(y) = ln p̄(y)/n(y)``, n the density of N(0, I); rounded down.
        entropy: (n,) ``H(X | Y = y)``, rounded down.
        information: (n,) ``ln N − H(X | Y = y)``, rounded down.
        quadratic: (n,) ``q(y) = ½ Σ_k w_k/(1 + w_k) y_k²``, rounded up.
        half_trace: ½ tr S.
        shortfall: ``ln N − H(X)``, rounded up; 0 for equally likely secrets.
    """

    log_sum: Array
    entropy: Array
    information: Array
    quadratic: Array
    half_trace: float
    shortfall: float

    @staticmethod
    def of(
        secret: FiniteSecret, secret_entropy: float, n: int, source: np.random.Generator
    ) -> Draws:
        """Draw n releases, a block at a time."""
        rows = max(1, NUMBERS_PER_BLOCK // secret.points.shape[1])
        blocks = [_simulate(secret, min(rows, n - at), source) for at in range(0, n, rows)]
        log_sum, entropy, error, quadratic = (
            np.concatenate(column) for column in zip(*blocks, strict=True)
        )
        most = math.log(len(secret.points))
        # ½ tr S = E q(y): a signal-to-noise ratio, in nats
        half_trace = 0.5 * secret.trace
        # a change of every exponent by e changes ln Σ by e, and the entropy by 2e (2 + ln N)
        unsure = 2.0 * error * (2.0 + most)
        return Draws(
            # downwards: by Jensen's inequality ℓ >= −½ tr S, whatever rounding made of it
            log_sum=np.maximum(log_sum - 2.0 * error, -half_trace),
            entropy=np.clip(entropy - unsure, 0.0, None),
            information=np.clip(most - entropy - unsure, 0.0, None),
            quadratic=quadratic,
            half_trace=half_trace,
            # fsum and one logarithm each: what H(X) lacks of ln N, upwards
            shortfall=max(0.0, most - secret_entropy) + ENTROPY_UNITS * EPS * most,
        )

    def __len__(self) -> int:
        """Return n."""
        return self.log_sum.size

    def lower_bound(self, pilot: Draws, confidence: float) -> float:
        """Return the lower confidence bound ``LCB(E (ln N − H(X | y))) − (ln N − H(X))`` on I."""
        # ln N − H(X | y) lies in [0, ln N]: betting needs values >= 0
        bound = mean_lower_bound(pilot.information, self.information, confidence)
        return bound - self.shortfall


def _simulate(
    secret: FiniteSecret, n: int, source: np.random.Generator
) -> tuple[Array, Array, Array, Array]:
    """Return ℓ, H(X | y), the rounding of the exponents and q, rounded up, at n draws."""
    _, noisy = secret.draw(n, source)
    found = posterior(secret, noisy)
    # q = ½ Σ w/(1 + w) y²: what ln of the mixture has in common with a Gaussian of covariance I + S
    shrink = secret.eigenvalues / (1.0 + secret.eigenvalues)
    # a product of r terms, upwards: q is subtracted from what is bounded from below
    raised = 1.0 + (secret.points.shape[1] + PRODUCT_UNITS) * EPS
    return found.log_sum, found.entropy, found.error, 0.5 * (noisy**2) @ shrink * raised


@dataclass(frozen=True)
class ControlledStatistic:
    """``V = α ℓ + (1 − α) H(X | y) − λ min(q, c)``, for which

    ``I = α ½ tr S + (1 − α) H(X) − λ E min(q, c) − E V`` and
    ``½ tr S − excess <= E min(q, c) <= ½ tr S``.
    """

    likelihood: float
    control: float
    tail: QuadraticTail | None
    half_trace: float
    secret_entropy: float

    @property
    def offset(self) -> float:
        """Return what E V is subtracted from, the excess of the tail apart, to rounding."""
        return (self.likelihood - self.control) * self.half_trace + (
            1.0 - self.likelihood
        ) * self.secret_entropy

    @property
    def floor(self) -> float:
        """Return the least value that V can take: ℓ >= −½ tr S, H >= 0 and q <= c."""
        clip = 0.0 if self.tail is None else self.tail.clip
        return -self.likelihood * self.half_trace - self.control * clip

    def values(self, draws: Draws) -> Array:
        """Return V for every draw: at most its true value."""
        combined = self.likelihood * draws.log_sum + (1.0 - self.likelihood) * draws.entropy
        if self.tail is not None and self.control:
            combined = combined - self.control * np.minimum(draws.quadratic, self.tail.clip)
        # betting needs a floor that no value passes, not even by rounding
        floored: Array = np.maximum(combined, self.floor)
        return floored

    def estimate(self, draws: Draws) -> float:
        """Return the information by the mean of V: an estimate, to rounding."""
        return self.offset - float(self.values(draws).mean())

    def upper_bound(self, pilot: Draws, main: Draws, confidence: float) -> float:
        """Return an upper confidence bound on I; only the pilot chose this statistic."""
        # I = offset − E V + what clipping left out: LCB(E V) gives the upper end
        lowest = mean_lower_bound(
            self.values(pilot), self.values(main), confidence, floor=self.floor
        )
        excess = 0.0 if self.tail is None else self.control * self.tail.excess
        # each of the three terms rounds by a few units of itself
        scale = abs(self.half_trace) + self.secret_entropy + abs(lowest)
        return self.offset - lowest + excess + BOUND_UNITS * EPS * scale


def best_statistic(
    secret: FiniteSecret, secret_entropy: float, pilot: Draws, n: int, confidence: float
) -> ControlledStatistic:
    """Return the statistic that promises the least upper bound from n draws, by the pilot."""
    half_trace = pilot.half_trace
    gaussian = 0.5 * float(np.log1p(secret.eigenvalues).sum())
    # the excess is paid in full: a ten-thousandth of what there can be to know
    tail = quadratic_tail(secret, TAIL_SHARE * min(gaussian, secret_entropy))
    # ℓ alone, the posterior entropy alone, ℓ without its quadratic part, and a mix of the three
    choices = [(1.0, 0.0), (0.0, 0.0)]
    if tail is not None:
        clipped = np.minimum(pilot.quadratic, tail.clip)
        choices += [(1.0, 1.0), _regress(pilot.log_sum, pilot.entropy, clipped)]
    candidates = [
        ControlledStatistic(alpha, control, tail if control else None, half_trace, secret_entropy)
        for alpha, control in choices
    ]

    def width(statistic: ControlledStatistic) -> float:
        """All means are the same information, so only how sure they are sets them apart."""
        values = statistic.values(pilot)
        excess = 0.0 if statistic.tail is None else statistic.control * statistic.tail.excess
        return promised_width(values, n, confidence, floor=statistic.floor) + excess

    return min(candidates, key=width)


def _regress(log_sum: Array, entropy: Array, clipped: Array) -> tuple[float, float]:
    """Return (α, λ) of about the least variance of V on the pilot: good for a choice only."""
    difference = log_sum - entropy
    # V − E V = α(ℓ − H) − λ q̄ + H, centred: least squares with H as the target, its sign turned
    columns = np.stack([difference, -clipped], axis=1)
    columns = columns - columns.mean(axis=0)
    target = -(entropy - entropy.mean())
    solution = np.linalg.lstsq(columns, target, rcond=None)[0]
    # α in [0, 1] keeps V above its floor; with α held there λ is chosen again by itself
    alpha = float(np.clip(solution[0], 0.0, 1.0))
    rest = alpha * log_sum + (1.0 - alpha) * entropy
    centred = clipped - clipped.mean()
    spread = float(centred @ centred)
    control = float(centred @ (rest - rest.mean())) / spread if spread > 0.0 else 0.0
    return alpha, float(np.clip(control, 0.0, MOST_CONTROL))


@dataclass(frozen=True)
class QuadraticTail:
    """``q(y) = ½ Σ_k w_k/(1 + w_k) y_k²``, clipped: ``E (q − clip)₊ <= excess``, E q = ½ tr S."""

    clip: float
    excess: float


def quadratic_tail(secret: FiniteSecret, tolerance: float) -> QuadraticTail | None:
    """Return the smallest clip, of a few, whose excess is at most ``tolerance``; None if none is.

    For y = z_j + N(0, I) and a_k = w_k/(1 + w_k), Chernoff: ``(x)₊ <= e^{tx}/(t e)`` and
    ``E_j e^{tq} = Π_k (1 − t a_k)^-½ exp(½ t a_k z_jk²/(1 − t a_k))``; and ``(q − c)₊ <= q``.
    """
    shrink = secret.eigenvalues / (1.0 + secret.eigenvalues)
    if secret.points.size > MOST_ENTRIES or not shrink.any():
        return None
    # t below 1/max a, where the moment is infinite
    tilts = TILTS / float(shrink.max())
    squares = secret.points**2
    rates = tilts[None, :] * shrink[:, None]
    # ln E_j e^{tq} for every point j and tilt t
    exponents = 0.5 * squares @ (rates / (1.0 - rates)) - 0.5 * np.log1p(-rates).sum(axis=0)
    # E_j q, by which the excess is bounded where Chernoff says less
    means = 0.5 * (squares + 1.0) @ shrink
    weights = np.exp(secret.log_weights)
    # ln of e^{−tc} E_j e^{tq}/(t e), the least over the tilts for every point; an overflow is inf,
    # and then the mean counts
    for clip in float(weights @ means) * CLIPS:
        logarithms = exponents - tilts * clip - np.log(tilts) - 1.0
        with np.errstate(over="ignore"):
            bounds = np.minimum(np.exp(logarithms.min(axis=1)), means)
        excess = float(weights @ bounds)
        if excess <= tolerance:
            # upwards, by more than the mean of N exponentials rounds
            return QuadraticTail(float(clip), math.nextafter(excess * (1.0 + TAIL_SLACK), math.inf))
    return None
