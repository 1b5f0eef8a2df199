"""What a published code can tell: theorems that count codes, and the numbers that hold them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any

import numpy as np
import numpy.typing as npt

from tacit._ground.checks import Array, integer, plain, vector
from tacit._ground.numbers import EPS, rounded_up
from tacit.guarantees import InformationBound, MaximalLeakage, SuccessBound, compose_leakage
from tacit.guarantees.base import Guarantee
from tacit.information import code_leakage

Codes = npt.NDArray[np.int64]
# weights above which the sum of many may be no double and below which it has few digits, and the
# powers of two that they are multiplied by
LARGE, SHRINK, SMALL, GROW = 2.0**900, -200, 2.0**-900, 900

PROMPT = "the prompt"
SECRET = "the prompt of a row"
FITTED_APART = "the codebook was fitted on data independent of the secret"
CODE_SOURCE = "I(X; code) <= H(code) <= ln of the codes there are"
LEAKAGE_SOURCE = "I(X; report) <= maximal leakage (Issa, Wagner and Kamath, 2020)"
SOURCE = "the posterior of a deterministic code: Σ over codes of the largest prior in its cell"


@dataclass(frozen=True, kw_only=True)
class CodeCertificate:
    """Three theorems about a release of codes.

    Attributes:
        leakage: what it multiplies any attacker's chance by, for every prompt there can be, every
            prior and all side information: C codes give C, T releases C^T, or ``Π_t C_t``.
        success: no attacker for whom the candidates have the law stated names one right more often.
        information: I(prompt; codes) in nats under that law.
        candidates: N.
        occupied: distinct codes, or sequences of codes, that occur in the bank; None where the
            bank was not looked at.
        releases: T.
    """

    leakage: MaximalLeakage
    success: SuccessBound
    information: InformationBound
    candidates: int
    occupied: int | None
    releases: int

    @property
    def guarantees(self) -> tuple[Guarantee, ...]:
        """All three, that for every prior first."""
        return self.leakage, self.success, self.information


def certify(codes: Any, size: int | Sequence[int], *, weights: Any = None) -> CodeCertificate:
    """Bound what the code of one of N candidates, or its codes in T releases, tells about it.

    For every prompt there can be and every prior the code multiplies the chance of a right guess by
    at most C. For a prompt of the bank ``P(success) <= Σ_cells max_{x in cell} p(x)``, which is
    occupied/N for a uniform prior, and ``I(X; code) = H(code) <= ln occupied``. A cell of T
    releases is a sequence of T codes.

    Args:
        codes: the code of every candidate, (N,), or (N, T) for T releases about the same one.
        size: C, codes there are, or C_t of each of the T releases.
        weights: (N,) probabilities up to a factor; uniform when None.

    Returns:
        The bounds, rounded up.

    Raises:
        ValueError: fewer than two candidates, a code outside 0 … C − 1, or a prior that is not one.

    Example:
        >>> found = certify([0, 0, 1, 1, 1, 2, 2, 2, 2, 2], size=4)
        >>> found.leakage.factor, found.occupied
        (4.0, 3)
        >>> round(found.success.success, 6), round(found.information.nats, 4)
        (0.3, 1.0297)

    Source: Bayes' rule for a deterministic release; the bound is attained.
    """
    # a cell of T releases is a row of T codes
    values = checked_codes("codes", codes, max(size) if isinstance(size, Sequence) else size)
    joint = values if values.ndim == 2 else values[:, None]
    count, releases = joint.shape
    sizes = list(size) if isinstance(size, Sequence) else [size] * releases
    if len(sizes) != releases:
        raise ValueError(f"size: expected one of each of {releases} releases, got {len(sizes)}")
    if (joint >= np.array(sizes, dtype=object)).any():
        raise ValueError("codes: expected integers below the number of codes there are")
    # distinct rows are the cells: what occurs of the C^T there are
    cells = np.unique(joint, axis=0, return_inverse=True)[1].reshape(-1)
    occupied = int(cells.max()) + 1
    largest, masses, chance = _cell_masses(cells, occupied, weights)
    # P(success) ≤ Σ_cells max_{x in cell} p(x), which counting makes exact for a uniform law
    if weights is None:
        success = rounded_up(Fraction(occupied, count))
    else:
        success = min(1.0, _up(math.fsum(largest.tolist())))
    # I(X; code) = H(code) ≤ ln of the cells that occur, both rounded up
    nats = min(_entropy_up(masses), _up(math.log(occupied)) if occupied > 1 else 0.0)
    law = CandidateLaw(count, chance, uniform=weights is None)
    return CodeCertificate(
        leakage=_product(sizes),
        success=law.success(success, releases),
        information=law.information(nats, releases),
        candidates=count,
        occupied=occupied,
        releases=releases,
    )


def compose(size: int, releases: int, candidates: int, *, weights: Any = None) -> CodeCertificate:
    """Bound T releases of codes about one of N candidates without looking at the bank.

    The factor is C^T, ``I <= T ln C`` and ``P(success) <= Σ of the min(N, C^T) largest priors``.

    Args:
        size: C, codes there are.
        releases: T.
        candidates: N.
        weights: (N,) probabilities up to a factor; uniform when None.

    Returns:
        The bounds, rounded up; where C^T >= N they say nothing of N equally likely candidates.

    Raises:
        ValueError: a number below 1, fewer than two candidates, or a prior that is not one.

    Example:
        >>> round(compose(4, 2, 50_000).success.success, 8)
        0.00032

    Source: a function of one of C^T values.
    """
    codes = integer("size", size, minimum=1, maximum=None)
    times = integer("releases", releases, minimum=1)
    count = integer("candidates", candidates, minimum=2)
    # min(N, C^T), without the power where it is above N anyway
    cells = min(count, codes**times) if times * math.log(codes) < 60.0 else count
    if weights is None:
        # min(N, C^T)/N as a fraction: the double next above it
        success, chance = rounded_up(Fraction(cells, count)), 1.0 / count
        whole = math.log(count)
    else:
        masses = checked_prior(weights, count)
        # the likeliest candidates, one in each cell, are the worst that C^T cells allow
        success = min(1.0, _up(math.fsum(np.sort(masses)[::-1][:cells].tolist())))
        chance = float(masses.max())
        whole = _entropy_up(masses)
    # I ≤ T ln C and I ≤ H(X), whichever is less, both rounded up
    nats = min(_up(times * math.log(codes)), _up(whole))
    law = CandidateLaw(count, chance, uniform=weights is None)
    return CodeCertificate(
        leakage=codes_leakage(codes, times),
        success=law.success(success, times),
        information=law.information(nats, times),
        candidates=count,
        occupied=None,
        releases=times,
    )


@dataclass(frozen=True)
class CandidateLaw:
    """How likely each of N candidates is to the attacker, in words and in what is stated of it.

    Attributes:
        candidates: N.
        chance: of the likeliest.
        uniform: whether all are equally likely.
    """

    candidates: int
    chance: float
    uniform: bool = True

    def success(
        self, bound: float, releases: int, assumed: str = "", source: str = SOURCE
    ) -> SuccessBound:
        """State a bound on naming the candidate from what T releases say of it."""
        likely = "all equally likely," if self.uniform else "likely as the stated prior says,"
        return SuccessBound(
            success=max(bound, self.chance),
            prior=self.chance,
            task=naming(self.candidates),
            law=f"that it is one of {self.candidates:,} candidates, {likely}",
            evidence="theorem",
            assumptions=self._assumptions(releases, assumed),
            source=source,
        )

    def information(
        self, nats: float, releases: int, assumed: str = "", source: str = "I(X; code) = H(code)"
    ) -> InformationBound:
        """State a bound on the information about which candidate it is."""
        return InformationBound(
            nats=nats,
            secret=naming(self.candidates),
            evidence="theorem",
            assumptions=self._assumptions(releases, assumed),
            source=source,
        )

    def _assumptions(self, releases: int, assumed: str) -> tuple[str, ...]:
        law = "the uniform law on" if self.uniform else "the stated prior over"
        return (
            f"the candidate is drawn from {law} {self.candidates}, given all else that is known",
            assumed or _released(releases),
            FITTED_APART,
        )


def information(
    sizes: tuple[int, ...], releases: int = 1, leakage: MaximalLeakage | None = None
) -> InformationBound:
    """Return what T codes tell about a prompt at most, whatever its law: ``T Σ_j ln C_j`` nats.

    A code is one of ``Π_j C_j`` values, so that ``I <= H(code) <= ln Π_j C_j``.

    Args:
        sizes: C_j, cells of every part of a code.
        releases: T.
        leakage: of randomised codes, their maximal leakage, which is never more.
    """
    times = integer("releases", releases, minimum=1)
    many = "one code is released" if times == 1 else f"{times} codes are released"
    if leakage is None:
        # I ≤ T ln Π_j C_j; math.log of an integer of any size is off by an ulp at most
        nats = times * math.log(math.prod(sizes)) * (1.0 + 8.0 * EPS)
    else:
        # I ≤ I_∞ = ln Σ_y max_x P(y|x): Sibson's information grows with its order
        nats = leakage.nats
    return InformationBound(
        nats=nats,
        secret=SECRET,
        evidence="theorem",
        assumptions=(
            f"{many} about each prompt: codes of further rows or releases about it add up",
            FITTED_APART,
        ),
        source=CODE_SOURCE if leakage is None else LEAKAGE_SOURCE,
    )


def code_type(sizes: tuple[int, ...]) -> np.dtype[Any]:
    """Return the smallest little-endian unsigned type that holds every code.

    Example:
        >>> code_type((256, 256)), code_type((257,)), code_type((70_000,))
        (dtype('uint8'), dtype('uint16'), dtype('uint32'))
    """
    # codes are 0 … C − 1
    most = max(sizes)
    return np.dtype("u1" if most <= 2**8 else "<u2" if most <= 2**16 else "<u4")


def naming(candidates: int) -> str:
    """Return the game in which one of N candidates is named."""
    return f"which of {candidates} candidates it is"


def codes_leakage(size: int, releases: int = 1) -> MaximalLeakage:
    """Return the maximal leakage of T codes of a codebook of C about any prompt: C^T.

    Every code that some prompt could get counts: the prompt that is served was never seen.
    """
    # Σ_y max_x P(y|x) = C for a deterministic code of C values, and T of them multiply
    one = code_leakage(size, secret=PROMPT).repeated(releases)
    return replace(one, assumptions=(one.assumptions[0], _released(releases), FITTED_APART))


def _product(sizes: Sequence[int]) -> MaximalLeakage:
    """Return the maximal leakage of one code of each of T codebooks: ``Π_t C_t``."""
    if len(set(sizes)) == 1:
        return codes_leakage(sizes[0], len(sizes))
    # factors of releases about one prompt multiply, whatever the joint law
    whole = compose_leakage([code_leakage(size, secret=PROMPT) for size in sizes])
    each = ", ".join(f"{size:,}" for size in sizes)
    values = f"the releases are of {each} values whatever the prompt is, and functions of it"
    return replace(whole, assumptions=(values, _released(len(sizes)), FITTED_APART))


def _released(releases: int) -> str:
    return (
        "one code is released about the prompt, ever"
        if releases == 1
        else f"{releases} codes are released about the prompt, ever"
    )


def _cell_masses(cells: Codes, occupied: int, weights: Any) -> tuple[Array, Array, float]:
    """Largest prior and mass of every cell, and the largest prior of all."""
    # a uniform law is counted, with no sum that could round
    if weights is None:
        sizes = np.bincount(cells, minlength=occupied).astype(np.float64)
        return np.full(occupied, 1.0 / len(cells)), sizes / len(cells), 1.0 / len(cells)
    masses = checked_prior(weights, len(cells))
    # max and sum of the priors of a cell, each prior rounded up before
    largest = np.zeros(occupied)
    np.maximum.at(largest, cells, masses)
    # fsum rounds once for each cell, however many candidates share it
    ends = np.cumsum(np.bincount(cells, minlength=occupied))[:-1]
    groups = np.split(masses[np.argsort(cells, kind="stable")], ends)
    inside = np.array([math.fsum(group.tolist()) for group in groups])
    return largest, inside, float(masses.max())


def checked_codes(name: str, codes: Any, size: int, *, least: int = 2) -> Codes:
    """Return codes (N,) or (N, T) in 0 … ``size`` − 1, of at least so many candidates."""
    count = integer("size", size, minimum=1, maximum=None)
    try:
        found = np.asarray(plain(codes))
    except ValueError:
        raise ValueError(f"{name}: expected integers, got ragged rows") from None
    if found.dtype.kind not in "iu" or found.ndim not in (1, 2) or found.size == 0:
        raise ValueError(
            f"{name}: expected integers of shape (N,) or (N, T), got {found.dtype} of shape "
            f"{found.shape}"
        )
    if len(found) < least:
        raise ValueError(f"{name}: expected at least {least} candidates, got {len(found)}")
    if int(found.min()) < 0 or int(found.max()) >= count:
        raise ValueError(
            f"{name}: expected integers in 0 … {count - 1}, got {found.min()} … {found.max()}"
        )
    return found.astype(np.int64)


def checked_prior(weights: Any, count: int) -> Array:
    """Return N probabilities, each at least what the weights given make it, to the last bit."""
    given = vector("weights", weights, size=count)
    if given.min() < 0:
        raise ValueError(f"weights: expected numbers >= 0, got {given.min():.6g}")
    if np.count_nonzero(given) < 2:
        raise ValueError("weights: expected at least two candidates of positive probability")
    if not SMALL <= given.max() <= LARGE:
        # by a power of two, so that their sum is a double with all its digits
        given = np.ldexp(given, GROW if given.max() < SMALL else SHRINK)
    # divided by a sum rounded down, and raised by what a quotient loses: at least the exact share
    total = math.nextafter(math.fsum(given.tolist()), 0.0)
    masses: Array = given / total * (1.0 + 2.0 * EPS)
    return np.minimum(masses, 1.0 - EPS)


def _up(value: float) -> float:
    """Return a number rounded up by more than a sum and a logarithm lose."""
    return math.nextafter(value * (1.0 + 4.0 * EPS), math.inf)


def _entropy_up(masses: Array) -> float:
    """Return −Σ m ln m, rounded up."""
    # 0 ln 0 = 0
    kept = masses[masses > 0]
    total = math.fsum((-kept * np.log(kept)).tolist())
    # −m ln m moves by (1 + |ln m|) per relative rounding of m.
    slack = 64.0 * EPS * math.fsum((kept * (1.0 + np.abs(np.log(kept)))).tolist())
    return max(0.0, total) + slack
