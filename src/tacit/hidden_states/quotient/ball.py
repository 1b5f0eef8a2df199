"""The ball that a quotient is clipped to, and what noise lets through of it: theorems alone."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from fractions import Fraction

import numpy as np
from numpy.typing import ArrayLike

from tacit._ground.checks import Array, choice, in_interval, integer, matrix, positive
from tacit._ground.numbers import EPS, rounded_up
from tacit.conversions import success_from_information
from tacit.covariance import Isotropic
from tacit.guarantees import InformationBound, MaximalLeakage, SuccessBound
from tacit.guarantees.base import Guarantee
from tacit.hidden_states.codebooks.certificates import PROMPT, naming
from tacit.information import clipped_information, gaussian_leakage

MEASURES = ("information", "leakage")
# within these a square is a float, and so is a ratio of two squares
SMALLEST, LARGEST = 1e-60, 1e60
# more numbers than a state of any model in use has
LARGEST_DIMENSION = 4096
# what is drawn is sqrt(σ²) times a normal, which may be an ulp below σ
DRAWN = 1.0 - 8.0 * EPS
BY_LEAKAGE = "Issa, Wagner and Kamath (2020): I <= maximal leakage = ln C_eff of the ball"
FITTED_APART = "the encoder was fitted on data independent of the secret"


@dataclass(frozen=True, kw_only=True)
class Ball:
    """Vectors of k numbers, no longer than R, released with noise N(0, σ²I).

    Attributes:
        dimension: k >= 1.
        radius: R > 0.
        noise_std: σ > 0, in units of the vectors.

    Raises:
        ValueError: a number out of range.

    Example:
        >>> ball = Ball.at(2, nats=6.93, measure="leakage")
        >>> round(ball.leakage().nats, 2), round(ball.information().nats, 2)
        (6.93, 6.87)

    Source: hidden-state, App. R, with a clip in the place of a population covariance.
    """

    dimension: int
    radius: float
    noise_std: float = 1.0

    def __post_init__(self) -> None:
        integer("dimension", self.dimension, minimum=1, maximum=LARGEST_DIMENSION)
        for name in ("radius", "noise_std"):
            value = positive(name, getattr(self, name))
            in_interval(name, value, SMALLEST, LARGEST)

    @classmethod
    def at(
        cls, dimension: int, *, nats: float, measure: str = "information", noise_std: float = 1.0
    ) -> Ball:
        """Return the largest ball, to nine digits, of which at most so many nats are certified.

        Args:
            dimension: k.
            nats: what is certified of one release, > 0.
            measure: ``"information"``, for I; ``"leakage"``, for ln of the factor on any attacker's
                chance, which is never less.
            noise_std: σ.

        Raises:
            ValueError: a number out of range, or no radius in range that gives it.
        """
        size = integer("dimension", dimension, minimum=1, maximum=LARGEST_DIMENSION)
        target = positive("nats", nats)
        chosen = choice("measure", measure, MEASURES)
        positive("noise_std", noise_std)
        # R/σ alone decides what is told, which grows with it
        low, high = 1e-12, 1e12

        def told(ratio: float) -> float:
            ball = cls(dimension=size, radius=ratio, noise_std=1.0)
            return ball.information().nats if chosen == "information" else ball.leakage().nats

        if not told(low) <= target <= told(high):
            raise ValueError(
                f"nats: expected {told(low):.3g} … {told(high):.3g} for {size} numbers, got "
                f"{target:g}"
            )
        # bisection of ln(R/σ) to nine digits, the lower end kept
        for _ in range(40):
            middle = math.sqrt(low * high)
            low, high = (middle, high) if told(middle) <= target else (low, middle)
        return cls(dimension=size, radius=low * noise_std, noise_std=noise_std)

    @property
    def covariance(self) -> Isotropic:
        """Σ = σ²I of the noise."""
        return Isotropic(self.noise_std**2, self.dimension)

    def clipped(self, vectors: ArrayLike) -> Array:
        """Return rows (n, k) of float64, those longer than R shortened to it and never beyond.

        Raises:
            ValueError: not finite, or not k numbers a row.
        """
        return clip_to_ball(matrix("vectors", vectors, columns=self.dimension), self.radius)

    def information(self, releases: int = 1) -> InformationBound:
        """Return ``I <= T min((k/2) ln(1 + R²/(kσ²)), ln C_eff)`` for every law of the prompt.

        Maximal leakage bounds every information; for one number it is the smaller of the two.
        """
        times = integer("releases", releases, minimum=1)
        # σ rounded down by what the draw may lose: less noise, a larger bound
        one = clipped_information(
            self.dimension, radius=self.radius, noise_std=self.noise_std * DRAWN, secret=PROMPT
        )
        # the bound of one release says so; T of them are counted below
        counted = tuple(line for line in one.assumptions if not line.startswith("one release"))
        leaked = self.leakage().nats
        source = one.source if one.nats <= leaked else BY_LEAKAGE
        return replace(
            one,
            nats=_times(min(one.nats, leaked), times),
            source=source,
            assumptions=(*counted, FITTED_APART, _ever(times)),
        )

    def leakage(self, releases: int = 1) -> MaximalLeakage:
        """Return the factor C_eff^T on any attacker's chance, for every prior.

        ``C_eff = V_k R^k/(2πσ²)^{k/2} + S_k ∫₀^∞ (R + t)^{k−1} e^{−t²/2σ²} dt/(2πσ²)^{k/2}``.
        """
        times = integer("releases", releases, minimum=1)
        one = gaussian_leakage(
            self.dimension, radius=self.radius, noise_std=self.noise_std * DRAWN, secret=PROMPT
        )
        return replace(one, assumptions=(*one.assumptions, FITTED_APART)).repeated(times)

    def success(self, candidates: int, releases: int = 1) -> SuccessBound:
        """Bound naming one of N equally likely prompts: ``min(1, C_eff^T/N)``, or by Fano's I.

        Raises:
            ValueError: fewer than two candidates.
        """
        count = integer("candidates", candidates, minimum=2)
        times = integer("releases", releases, minimum=1)
        # C^T/N in logarithms, where no power overflows, and rounded up
        factor = math.log(count) - self.leakage(times).nats
        counted = 1.0 if factor <= 0.0 else min(1.0, math.exp(-factor) * (1.0 + 64.0 * EPS))
        # by Fano, kl(s ‖ 1/N) ≤ I, whichever is less
        prior = rounded_up(Fraction(1, count))
        informed = float(success_from_information(self.information(times).nats, prior))
        by_factor = counted <= informed
        return SuccessBound(
            success=min(1.0, max(counted if by_factor else informed, prior)),
            prior=1.0 / count,
            task=naming(count),
            law=f"that it is one of {count:,} candidates, all equally likely,",
            evidence="theorem",
            assumptions=(
                f"the candidate is drawn from the uniform law on {count}, given all else that is "
                "known",
                *(self.leakage(times) if by_factor else self.information(times)).assumptions,
            ),
            source="C_eff/N, C_eff the maximal leakage of the ball" if by_factor
            else "Fano's inequality for the information of the ball",
        )  # fmt: skip

    def guarantees(
        self, *, candidates: int | None = None, releases: int = 1
    ) -> tuple[Guarantee, ...]:
        """Return the theorems, that for every prior first; of success where N is given."""
        told = (self.leakage(releases), self.information(releases))
        if candidates is None:
            return told
        return told[0], self.success(candidates, releases), told[1]


def clip_to_ball(rows: Array, radius: float) -> Array:
    """Return rows of float64, the exact length of each at most R; shorter ones as they are."""
    # lengths by the largest entry, so that no square overflows or is lost
    found = np.array(rows, dtype=np.float64)
    largest = np.abs(found).max(axis=1)
    safe = np.where(largest > 0.0, largest, 1.0)
    units = found / safe[:, None]
    lengths = np.sqrt((units * units).sum(axis=1))
    # sums and quotients lose at most so much of a length
    most = radius * (1.0 - (found.shape[1] + 16) * EPS)
    with np.errstate(over="ignore"):
        long = safe * lengths > most
    found[long] = units[long] * (most / lengths[long])[:, None]
    return found


def _times(nats: float, releases: int) -> float:
    """Return T times some nats, rounded up."""
    return nats if releases == 1 else math.nextafter(nats * releases, math.inf)


def _ever(releases: int) -> str:
    if releases == 1:
        return "one release about the prompt, ever"
    return f"{releases} releases about the prompt, ever"
