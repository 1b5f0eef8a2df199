"""The Gaussianity gap from below by the Donsker-Varadhan objective of a critic."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
from numpy.typing import ArrayLike
from scipy.optimize import minimize
from scipy.special import logsumexp

from tacit._ground.checks import Array, RandomSource, choice, generator, in_interval, integer
from tacit._ground.threads import one_thread
from tacit.covariance import Covariance
from tacit.information.concentration import mean_lower_bound, mean_upper_bound
from tacit.information.gaps.gap import Gap, NoisySecret, noisy_secret
from tacit.information.simulated import MOST_VALUES

WORK = 500_000_000
FEWEST_SAMPLES, MOST_SAMPLES = 20_000, 1_000_000
LEAST_SAMPLES = 100
TRAINING_SHARES = {"likelihood": 0.1, "kernel": 0.4}
FLOORS = (1.0, 2.0, 4.0, 6.0, 8.0, 10.0, 12.0)
CENTRES, MOST_FITTED, RIDGE = 100, 5_000, 1e-3
LIMITS = (1.0, 2.0, 4.0, 6.0)
CRITICS = ("likelihood", "kernel")
SINGULAR = "nothing: the noise leaves a direction bare"


def gap_donsker_varadhan(
    outputs: ArrayLike,
    covariance: Covariance,
    *,
    weights: ArrayLike | None = None,
    critic: str = "likelihood",
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
    chosen = choice("critic", critic, CRITICS)
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
        count = min(MOST_SAMPLES, max(FEWEST_SAMPLES, WORK // len(release.secret.points)))
    training = int(TRAINING_SHARES[chosen] * count)
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
    """Return ``LCB(E max(r, −a)) − ln(1 + e^−a)``.

    E_Q e^r = 1, and the clip adds e^−a times a probability at most.
    """
    pilot = release.log_ratio(release.secret.draw(training, source)[1])
    log_level = -math.log1p(-level)

    def promised(floor: float) -> float:
        values = np.maximum(pilot, -floor)
        width = math.sqrt(2.0 * log_level / count) * float(values.std())
        return float(values.mean()) - width - math.log1p(math.exp(-floor))

    floor = max(FLOORS, key=promised)
    ratios = release.log_ratio(release.secret.draw(count, source)[1])
    lowest = mean_lower_bound(
        np.maximum(pilot, -floor), np.maximum(ratios, -floor), level, floor=-floor
    )
    return lowest - math.log1p(math.exp(-floor))


def _kernel(
    release: NoisySecret, training: int, count: int, level: float, source: np.random.Generator
) -> float:
    """Return ``LCB(E_P f) − ln UCB(E_Q e^f)`` for the critic fitted to the training draws."""
    features = _features(release, source)
    half = 1.0 - 0.5 * (1.0 - level)

    def draws(n: int) -> tuple[Array, Array]:
        return release.secret.draw(n, source)[1], release.gaussian_draws(n, source)

    first, second = (features(noisy) for noisy in draws(training))
    fitted = min(training, MOST_FITTED)
    slopes = _slopes(first[:fitted], second[:fitted])
    released, gaussian = first @ slopes, second @ slopes

    def promised(limit: float) -> float:
        above = float(np.exp(np.clip(gaussian, -limit, limit)).mean())
        loss = -2.0 * math.exp(limit) * math.log1p(-half) / count
        return float(np.clip(released, -limit, limit).mean()) - math.log(above) - loss

    limit = max(LIMITS, key=promised)
    judged = [np.clip(features(noisy) @ slopes, -limit, limit) for noisy in draws(count)]
    mean = mean_lower_bound(np.clip(released, -limit, limit), judged[0], half, floor=-limit)
    pilot = np.exp(np.clip(gaussian, -limit, limit))
    ceiling = math.exp(limit) * (1.0 + 1e-12)
    return mean - math.log(mean_upper_bound(pilot, np.exp(judged[1]), half, ceiling=ceiling))


def _features(release: NoisySecret, source: np.random.Generator) -> Callable[[Array], Array]:
    """Return ``exp(−‖y − z_j‖²/(2h²))`` around outputs z_j drawn at random, h² = d and 4d."""
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
        distances = (noisy**2).sum(axis=1)[:, None] - 2.0 * noisy @ centres.T + squares
        scaled = -0.5 * np.maximum(distances, 0.0) / points.shape[1]
        values: Array = np.concatenate([np.exp(scaled), np.exp(0.25 * scaled)], axis=1)
        return values

    return features


def _slopes(first: Array, second: Array) -> Array:
    """Return the slopes that maximise the (concave) objective, ridged, on the training draws."""
    target = first.mean(axis=0)

    def loss(slopes: Array) -> tuple[float, Array]:
        exponents = second @ slopes
        total = float(logsumexp(exponents))
        tilted = np.exp(exponents - total) @ second
        value = total - math.log(len(second)) - float(target @ slopes)
        gradient: Array = tilted - target + 2.0 * RIDGE * slopes
        return value + RIDGE * float(slopes @ slopes), gradient

    start = np.zeros(len(target))
    with one_thread():
        found = minimize(loss, start, jac=True, method="L-BFGS-B", options={"maxiter": 60})
    return np.asarray(found.x, dtype=np.float64)
