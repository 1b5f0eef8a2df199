"""Intrinsic privacy of a secret, and what a release leaves of it."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import log_expit, ndtr, rel_entr

from tacit import guarantees
from tacit._ground.checks import Array, as_float, in_interval, integer, matrix, positive, vector
from tacit._ground.numbers import EPS
from tacit.covariance import Covariance
from tacit.covariance.coercion import as_covariance
from tacit.information import InformationBracket
from tacit.information.distinct import probabilities
from tacit.linalg import eigh_psd

# Relative: how far an entropy may lie above the largest there is, and still be that one rounded.
SUM_TOLERANCE = 1e-9
# Units in the last place of 1 + |each term|: two logarithms, a quotient, a product and a sum that
# rounds once are off by eight at most.
ROUNDING_UNITS = 16.0
# Nodes of a mean over a Gaussian coordinate, within so many deviations of its mean: beyond them lie
# 4e-33 of it.
QUADRATURE_POINTS, QUADRATURE_REACH = 10_001, 12.0
# Relative to 1 + |m| + s, of such a mean: values, masses and moments round to 3e-14 of it together,
# and what lies beyond the nodes is 1e-31 of it.
QUADRATURE_SLACK = 1e-12


@dataclass(frozen=True, kw_only=True)
class IntrinsicPrivacy:
    """Intrinsic privacy ``−D(X ‖ R) <= 0`` of a secret X relative to a reference law R, in nats.

    Attributes:
        nats: ``−D(X ‖ R)``, rounded down; 0 where X has the reference law, −inf where R rules out
            what X can be.
        reference: What R is, in words.

    Raises:
        ValueError: ``nats`` above 0, or no words.

    Example:
        >>> IntrinsicPrivacy(nats=-0.5, reference="the uniform law on records").nats
        -0.5

    Source: residual-pac, Sec. 4 (IntP with KL).
    """

    nats: float
    reference: str

    def __post_init__(self) -> None:
        if as_float("nats", self.nats) > 0.0:
            raise ValueError(f"nats: expected -D(X || R) <= 0, got {self.nats!r}")
        if not isinstance(self.reference, str) or not self.reference.strip():
            raise ValueError(f"reference: expected words, got {self.reference!r}")

    def after(
        self,
        information: InformationBracket | guarantees.InformationBound,
        assumptions: Iterable[str] = (),
    ) -> guarantees.ResidualPrivacy:
        """Return what is left after a release that tells at most ``information``.

        ``R = IntP − Δ >= IntP − I(X; Y)``; for a uniform reference on N candidates the right side
        is ``H(X | Y) − ln N``.

        Args:
            information: a measured bound, or a guarantee, on I(X; Y) of the same secret.
            assumptions: what must hold, added to those of a guarantee.

        Returns:
            A ``ResidualPrivacy`` with the evidence of the information bound.

        Raises:
            ValueError: not an information bound, or an empty assumption.

        Example:
            >>> leak = guarantees.InformationBound(
            ...     nats=0.1, secret="the record", evidence="theorem", assumptions=(), source="-"
            ... )
            >>> IntrinsicPrivacy(nats=0.0, reference="the uniform law").after(leak).residual
            -0.1

        Source: residual-pac, Definition 9, Eq. 9 and 11, Corollary 2.
        """
        # only the upper bound of a bracket certifies
        if isinstance(information, InformationBracket):
            information = information.guarantee("the secret")
        if not isinstance(information, guarantees.InformationBound):
            raise ValueError(
                "information: expected an InformationBound or a bracket, got "
                f"{type(information).__name__}"
            )
        if isinstance(assumptions, str) or not isinstance(assumptions, Iterable):
            raise ValueError(f"assumptions: expected a list of sentences, got {assumptions!r}")
        return guarantees.ResidualPrivacy(
            intrinsic=self.nats,
            leaked=information.nats,
            reference=self.reference,
            evidence=information.evidence,
            assumptions=(*information.assumptions, *assumptions),
            source=f"residual-pac, Definition 9; {information.source}",
            confidence=information.confidence,
        )


@dataclass(frozen=True, kw_only=True)
class Decomposition:
    """The exact split ``intrinsic = residual + lost`` for one inference task.

    Attributes:
        intrinsic: −D(X ‖ R) in nats.
        lost: ``Δ = KL(posterior success ‖ prior success)`` in nats, as of two coins.
        residual: what is left of the first, ``intrinsic − lost``: the posterior disadvantage.

    Source: residual-pac, Eq. 9 and 15.
    """

    intrinsic: float
    lost: float
    residual: float


def decompose(intrinsic: IntrinsicPrivacy, prior: float, posterior: float) -> Decomposition:
    """Split intrinsic privacy into what one attack takes and what is left: ``IntP = R + Δ``.

    ``Δ = KL(Bernoulli(posterior) ‖ Bernoulli(prior))``, the posterior advantage of the task.

    Args:
        intrinsic: of the secret.
        prior: success of the best guess without the release, in [0, 1].
        posterior: success with it, in [prior, 1].

    Returns:
        ``Decomposition``; with a measured success it is a measurement, no guarantee.

    Raises:
        ValueError: a success outside its range.

    Example:
        >>> parts = decompose(finite_intrinsic([0.5, 0.5]), 0.5, 0.75)
        >>> parts.lost + parts.residual == parts.intrinsic, round(parts.lost, 6)
        (True, 0.130812)

    Source: residual-pac, Definition 9, Eq. 9; Definition 11, Eq. 14, 15 for membership.
    """
    if not isinstance(intrinsic, IntrinsicPrivacy):
        raise ValueError(f"intrinsic: expected an IntrinsicPrivacy, got {type(intrinsic).__name__}")
    blind = in_interval("prior", prior, 0.0, 1.0)
    seen = in_interval("posterior", posterior, blind, 1.0)
    # KL of two coins, each term with 0 ln 0 = 0; below 0 it is rounding
    lost = float(rel_entr(seen, blind) + rel_entr(1.0 - seen, 1.0 - blind))
    lost = max(0.0, lost)
    return Decomposition(intrinsic=intrinsic.nats, lost=lost, residual=intrinsic.nats - lost)


def finite_intrinsic(weights: ArrayLike, reference: ArrayLike | None = None) -> IntrinsicPrivacy:
    """Intrinsic privacy of a finite secret: ``−Σ p ln(p/r)``, which is ``H(X) − ln N`` for r = 1/N.

    Args:
        weights: (N,) prior probabilities of the secret, >= 0, sum 1.
        reference: (N,) probabilities of R; None for equally likely.

    Returns:
        ``IntrinsicPrivacy``; −inf where R gives 0 to a secret that can occur.

    Raises:
        ValueError: probabilities that are none.

    Example:
        >>> finite_intrinsic([0.25, 0.25, 0.25, 0.25]).nats
        0.0
        >>> round(finite_intrinsic([1.0, 0.0]).nats, 6)  # a secret that is known
        -0.693147

    Source: residual-pac, Sec. 4; Corollary 2 with V = ln N.
    """
    priors = probabilities("weights", weights, None)
    # equal weights tell nothing relative to the uniform law: 0 without rounding
    if reference is None:
        base, words = np.full(priors.size, 1.0 / priors.size), "equally likely candidates"
        same = bool((priors == priors[0]).all())
    else:
        base, words = probabilities("reference", reference, priors.size), "the reference given"
        same = bool((priors == base).all())
    # −D = −Σ p ln(p/r): terms of either sign, so the slack is of their absolute sum
    terms = rel_entr(priors, base)
    total = math.fsum(terms.tolist()) if np.isfinite(terms).all() else math.inf
    slack = ROUNDING_UNITS * EPS * (1.0 + float(np.abs(terms).sum()))
    if same:
        return IntrinsicPrivacy(nats=0.0, reference=words)
    return rounded_down(total, slack, words)


def membership_intrinsic(records: int, weights: ArrayLike | None = None) -> IntrinsicPrivacy:
    """Intrinsic membership privacy of N records: ``H(J) − ln N``, J the record that is used.

    With it ``after`` says: residual membership privacy is at least ``H(J | Y) − ln N``. The
    inclusion of any one record is a function of J, so that the same information bounds it too.

    Args:
        records: N >= 1, size of the universe.
        weights: (N,) probability that each record is the one used; None for 1/N each.

    Returns:
        ``IntrinsicPrivacy`` relative to the uniform law on the records.

    Raises:
        ValueError: a bad argument.

    Example:
        >>> membership_intrinsic(100).nats
        0.0

    Source: residual-pac, Definition 11 and the KL case of App. B.
    """
    count = integer("records", records, minimum=1)
    words = "the uniform law on the records"
    # H(J) = ln N
    if weights is None:
        return IntrinsicPrivacy(nats=0.0, reference=words)
    priors = vector("weights", weights)
    if priors.size != count:
        raise ValueError(f"weights: expected {count} entries, got {priors.size}")
    return IntrinsicPrivacy(nats=finite_intrinsic(priors).nats, reference=words)


def rounded_down(divergence: float, slack: float, words: str) -> IntrinsicPrivacy:
    """Return ``−(D + slack)``, at most −D; a D below 0 is rounding."""
    return IntrinsicPrivacy(nats=-(max(0.0, divergence) + slack), reference=words)


def gaussian_entropy(covariance: Covariance) -> float:
    """Differential entropy ``½ ln((2πe)^d det Σ)`` in nats, to rounding; −inf for a singular Σ.

    Args:
        covariance: Σ.

    Returns:
        Nats.

    Raises:
        ValueError: not a covariance.

    Example:
        >>> from tacit.covariance import Isotropic
        >>> round(gaussian_entropy(Isotropic(1.0, 1)), 6)
        1.418939

    Source: residual-pac, App. D (a).
    """
    covariance = as_covariance("covariance", covariance)
    if not isinstance(covariance, Covariance):
        raise ValueError(f"covariance: expected a Covariance, got {type(covariance).__name__}")
    if covariance.rank < covariance.dim:
        return -math.inf
    # ln det Σ = 2 Σ ln σ_i + ln det C, C the correlation: units cost no digits, and whether
    # variances stand on a diagonal or in a matrix changes nothing
    scales = np.sqrt(covariance.diagonal())
    correlation = covariance.to_dense() / np.outer(scales, scales)
    eigenvalues, _ = eigh_psd("covariance", correlation)
    if eigenvalues[0] <= 0.0:
        return -math.inf
    # a product of eigenvalues would overflow: fsum of their logarithms rounds once
    logarithms = np.concatenate([2.0 * np.log(scales), np.log(eigenvalues)])
    return 0.5 * covariance.dim * math.log(2.0 * math.pi * math.e) + 0.5 * math.fsum(logarithms)


def maximum_entropy_intrinsic(entropy: float, covariance: Covariance) -> IntrinsicPrivacy:
    """Relative to the Gaussian of the secret's own moments: ``h(X) − ½ ln((2πe)^d det Σ)``.

    Args:
        entropy: h(X), differential entropy in nats; −inf for a secret without a density.
        covariance: Σ, the covariance of the secret.

    Returns:
        ``IntrinsicPrivacy``; 0 for a Gaussian secret.

    Raises:
        ValueError: an entropy above that of the Gaussian, which no law of this covariance has.

    Example:
        >>> from tacit.covariance import Isotropic
        >>> uniform = maximum_entropy_intrinsic(0.0, Isotropic(1.0 / 12.0, 1))
        >>> round(uniform.nats, 6)  # −½ ln(2πe/12)
        -0.176485

    Source: residual-pac, App. D (a).
    """
    covariance = as_covariance("covariance", covariance)
    # the largest entropy there is at these second moments
    limit = gaussian_entropy(covariance)
    if math.isinf(limit):
        raise ValueError("covariance: expected one of full rank; no density has a singular one")
    return _from_entropies(_entropy(entropy), limit, "the Gaussian of the same moments")


def uniform_intrinsic(entropy: float, log_volume: float) -> IntrinsicPrivacy:
    """Relative to the uniform law on a bounded set B that holds the secret: ``h(X) − ln vol(B)``.

    Args:
        entropy: h(X), differential entropy in nats.
        log_volume: ln vol(B), in the units of the secret.

    Returns:
        ``IntrinsicPrivacy``; 0 for a secret uniform on B.

    Raises:
        ValueError: an entropy above ln vol(B), which no law on B has.

    Example:
        >>> uniform_intrinsic(0.0, math.log(2.0)).nats > -0.69314718057
        True

    Source: residual-pac, App. D (c).
    """
    volume = as_float("log_volume", log_volume)
    if math.isinf(volume):
        raise ValueError(f"log_volume: expected a finite number, got {volume!r}")
    return _from_entropies(_entropy(entropy), volume, "the uniform law on a bounded set")


def pullback_intrinsic(entropy: float, mean_log_density: float) -> IntrinsicPrivacy:
    """Relative to a pull-back of the uniform law on a cube: ``h(X) + E ln r(X)``.

    ``r(x) = |det J(x)|`` of the map to the cube; ``logistic_log_density`` gives ln r for logistic
    maps, and ``gaussian_logistic_mean`` its mean for Gaussian secrets.

    Args:
        entropy: h(X), differential entropy in nats.
        mean_log_density: E ln r(X), or a lower bound on it.

    Returns:
        ``IntrinsicPrivacy``.

    Raises:
        ValueError: a sum above 0, which no density r allows.

    Example:
        >>> round(pullback_intrinsic(1.418939, gaussian_logistic_mean(0.0, 1.0)).nats, 4)
        -0.1932

    Source: residual-pac, App. D (b), Proposition 8.
    """
    mean = as_float("mean_log_density", mean_log_density)
    if mean == math.inf:
        raise ValueError(f"mean_log_density: expected a number below inf, got {mean!r}")
    words = "the pull-back of the uniform law on a cube"
    return _from_entropies(_entropy(entropy), -mean, words)


def logistic_log_density(points: ArrayLike, location: ArrayLike, scale: ArrayLike) -> Array:
    """``Σ_k ln σ'((x_k − m_k)/s_k) − ln s_k``, the density by logistic maps, to rounding.

    Args:
        points: (n, d) secrets.
        location: (d,) m.
        scale: (d,) s > 0.

    Returns:
        (n,) nats.

    Raises:
        ValueError: a bad shape, or a scale that is not positive.

    Example:
        >>> float(np.exp(logistic_log_density([[0.0]], [0.0], [1.0]))[0])
        0.25

    Source: residual-pac, App. D (b), with the component-wise sigmoid.
    """
    rows = matrix("points", points)
    middle = vector("location", location, size=rows.shape[1])
    width = vector("scale", scale, size=rows.shape[1])
    if width.min() <= 0.0:
        raise ValueError(f"scale: expected numbers > 0, got {width.min():.6g}")
    # σ' = σ(t) σ(−t), each by its own logarithm: neither under- nor overflows at any t
    standard = (rows - middle) / width
    logarithms: Array = (log_expit(standard) + log_expit(-standard) - np.log(width)).sum(axis=1)
    return logarithms


def gaussian_logistic_mean(mean: float, std: float) -> float:
    """``E ln r(X)`` for X ~ N(mean, std²), r the standard logistic density, rounded down.

    Args:
        mean: of X, in units of the scale of the logistic map.
        std: > 0, likewise.

    Returns:
        Nats, rounded down. A mean over d coordinates is the sum of d such terms less Σ ln s_k.

    Raises:
        ValueError: a bad argument.

    Example:
        >>> round(gaussian_logistic_mean(0.0, 1e-9), 6)  # ln ¼
        -1.386294

    Source: residual-pac, App. D (b). ln r is concave: its chords between nodes are below it.
    """
    middle, width = as_float("mean", mean), positive("std", std)
    if math.isinf(middle):
        raise ValueError(f"mean: expected a finite number, got {middle!r}")
    # nodes in units of X's deviation, and more of them where the logistic density bends
    bend = (QUADRATURE_REACH * np.linspace(-1.0, 1.0, QUADRATURE_POINTS) - middle) / width
    even = np.linspace(-QUADRATURE_REACH, QUADRATURE_REACH, QUADRATURE_POINTS)
    nodes = np.unique(np.concatenate([even, bend[np.abs(bend) < QUADRATURE_REACH]]))
    # ln r is concave, so between nodes it lies above its chord: Σ ∫ chord φ is at most the mean
    left, right = nodes[:-1], nodes[1:]
    # ∫ φ over a cell, and ∫ z φ = φ(left) − φ(right)
    mass = ndtr(right) - ndtr(left)
    bell = np.exp(-0.5 * nodes**2) / math.sqrt(2.0 * math.pi)
    moment = bell[:-1] - bell[1:]
    places = middle + width * nodes
    values = log_expit(places) + log_expit(-places)
    slopes = np.diff(values) / (right - left)
    # ∫ (v + slope (z − left)) φ = v · mass + slope (moment − left · mass)
    chords = values[:-1] * mass + slopes * (moment - left * mass)
    # every ln r is below 0, so a factor above 1 rounds down as the slack does
    slack = QUADRATURE_SLACK * (1.0 + abs(middle) + width)
    return float(chords.sum()) * (1.0 + QUADRATURE_SLACK) - slack


def _from_entropies(entropy: float, limit: float, words: str) -> IntrinsicPrivacy:
    """Return ``h(X) − limit``; a sum above 0 is refused beyond rounding."""
    # each entropy rounds by some units of itself
    slack = ROUNDING_UNITS * EPS * (1.0 + abs(limit))
    if math.isinf(entropy):
        return IntrinsicPrivacy(nats=-math.inf, reference=words)
    slack += ROUNDING_UNITS * EPS * abs(entropy)
    # above the largest by more than rounding no law has it: one of the two is not of this secret
    if entropy - limit > SUM_TOLERANCE * (1.0 + abs(limit)):
        raise ValueError(
            f"entropy: expected at most {limit:.6g} nats, the largest this reference allows, "
            f"got {entropy:.6g}"
        )
    return rounded_down(limit - entropy, slack, words)


def _entropy(value: Any) -> float:
    """Return an entropy exactly as given: a number, or −inf for a secret without a density."""
    entropy = as_float("entropy", value)
    if entropy == math.inf:
        raise ValueError("entropy: expected a number below inf, got inf")
    return entropy
