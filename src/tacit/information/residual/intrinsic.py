"""Intrinsic privacy of a secret, and what a release leaves of it."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import rel_entr

from tacit import guarantees
from tacit._ground.checks import Array, as_float, in_interval, integer, vector
from tacit._ground.numbers import EPS
from tacit.information import InformationBracket

SUM_TOLERANCE = 1e-9
ROUNDING_UNITS = 16.0


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
    priors = _probabilities("weights", weights, None)
    if reference is None:
        base, words = np.full(priors.size, 1.0 / priors.size), "equally likely candidates"
        same = bool((priors == priors[0]).all())
    else:
        base, words = _probabilities("reference", reference, priors.size), "the reference given"
        same = bool((priors == base).all())
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
    if weights is None:
        return IntrinsicPrivacy(nats=0.0, reference=words)
    priors = vector("weights", weights)
    if priors.size != count:
        raise ValueError(f"weights: expected {count} entries, got {priors.size}")
    return IntrinsicPrivacy(nats=finite_intrinsic(priors).nats, reference=words)


def rounded_down(divergence: float, slack: float, words: str) -> IntrinsicPrivacy:
    """Return ``−(D + slack)``."""
    return IntrinsicPrivacy(nats=-(max(0.0, divergence) + slack), reference=words)


def _probabilities(name: str, value: Any, size: int | None) -> Array:
    found = vector(name, value, size=size)
    if found.min() < 0.0 or abs(float(found.sum()) - 1.0) > SUM_TOLERANCE:
        raise ValueError(
            f"{name}: expected numbers >= 0 that sum to 1, got a smallest of {found.min():.6g} "
            f"and a sum of {float(found.sum()):.12g}"
        )
    normalised: Array = found / found.sum()
    return normalised
