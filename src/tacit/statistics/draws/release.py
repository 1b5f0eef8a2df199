"""A release of a draw: what it promises in words, what it keeps, and how it is worked out again."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Annotated, Any

import numpy as np

from tacit._ground.checks import Array, integer, positive
from tacit._ground.frozen import array_value
from tacit._ground.numbers import EPS
from tacit._ground.reprs import shown
from tacit.codec import HOLDER
from tacit.conversions import success_from_information
from tacit.design.base import Design
from tacit.guarantees import InformationBound, SuccessBound
from tacit.releases.kinds import Kind
from tacit.releases.promises import Draw
from tacit.releases.publication import allowed_nats
from tacit.releases.recompute import ROUNDING, only
from tacit.releases.release import Release
from tacit.statistics.details import (
    AGREEMENT,
    FROM_SYSTEM,
    TOGETHER,
    NumbersDetails,
    check_guarantees,
    check_numbers,
    check_spent,
)

KIND = "statistic-draw"
TRUTH = "statistic of the rows that were drawn"
SECRET = "which {}s of the pool were drawn"
TASK = "the membership of any one {} of the pool"
GAUSSIAN_SOURCE = "residual-pac, Thm 1, Eq. 17"
ENTROPY_SOURCE = "I(X; Y) <= H(Y), the entropy of the outputs of the declared candidates"
EXACT_SOURCE = "exact likelihood of the declared candidates; residual-pac, Eq. 17"
POSTERIOR_SOURCE = "residual-pac, Thm 1, under the exact posterior; chain rule (2601.14033)"
ASSUMPTIONS = (
    "the secret is which {unit}s were drawn, uniform over the declared candidates; the attacker "
    "may know the pool, the query, the list of candidates and the law of the noise",
    "that a {unit} is in the pool at all is not hidden",
    "only the released vector is published: the drawn {unit}s, the candidates' outputs and the "
    "diagnostics stay with the holder of the pool",
    "one release; further releases of the same draw add up",
    FROM_SYSTEM,
)
ANSWER_ASSUMPTIONS = (
    "the secret is which {unit}s of the pool were drawn, uniform over the declared candidates; the "
    "attacker may know the pool, the queries, the candidates, the laws of the noise and all "
    "earlier answers, by which queries may be chosen",
    "that a {unit} is in the pool at all is not hidden",
    "the candidates' outputs and what was drawn stay with the holder of the pool",
    TOGETHER,
    FROM_SYSTEM,
)
WITH_NOISE = "the noise is independent of all else, computed in double precision"
WITHOUT_NOISE = "the output is published as it is, without noise, as double-precision numbers"


@array_value(kw_only=True)
class DrawDetails(NumbersDetails):
    """What a release of a draw keeps.

    Attributes:
        promise: as it was asked for.
        pool_rows: N, rows in the pool.
        candidates: K, declared subsets.
        share: (M, L): every row is in exactly M of L candidates.
        budget: the budget asked for, in nats.
        design: the noise; None of an answer in a session; the holder's, as what follows.
        output_mean: (d,) mean of the query's output over the candidates.
        output_variance: (d,) variance of each output.
        principal_output_variance: (d,) eigenvalues of the output covariance, largest first.
        principal_noise_variance: (d,) variance of the noise along the same eigenvectors.
        gaussian_information: ½ logdet(I + S Σ⁻¹) of the same noise, in nats, where the guarantee
            rests on the exact information instead; None otherwise.
        noise_saved: share of the cost of the noise that the Gaussian bound would have asked for
            and the guarantee does not; None otherwise.
    """

    promise: Draw
    pool_rows: int
    candidates: int
    share: tuple[int, int]
    budget: float
    design: Annotated[Design | None, HOLDER] = None
    output_mean: Annotated[Array | None, HOLDER] = None
    output_variance: Annotated[Array | None, HOLDER] = None
    principal_output_variance: Annotated[Array | None, HOLDER] = None
    principal_noise_variance: Annotated[Array | None, HOLDER] = None
    gaussian_information: Annotated[float | None, HOLDER] = None
    noise_saved: Annotated[float | None, HOLDER] = None

    def __post_init__(self) -> None:
        super().__post_init__()
        integer("pool_rows", self.pool_rows, minimum=2)
        integer("candidates", self.candidates, minimum=2)
        positive("budget", self.budget)
        if not 0 < self.share[0] < self.share[1]:
            raise ValueError(f"share: expected M of L, 0 < M < L, got {shown(self.share)}")

    @property
    def rate(self) -> Fraction:
        """M/L, the exact prior probability that a given row is in."""
        return Fraction(*self.share)

    @property
    def prior(self) -> float:
        """Success of guessing blind whether a row is in."""
        return max(float(self.rate), 1.0 - float(self.rate))

    @property
    def subset_rows(self) -> int:
        """Rows in a candidate, in the smaller ones where sizes differ by one."""
        return self.pool_rows * self.rate.numerator // self.rate.denominator

    @property
    def unit(self) -> str:
        """The word for what is drawn."""
        return self.promise.secret_unit

    @property
    def secret(self) -> str:
        """What is hidden, in words."""
        return SECRET.format(self.unit)

    @property
    def law(self) -> str:
        """What an attacker knows beforehand."""
        return f"that one of {self.candidates} equally likely candidates was drawn"


def certify(
    details: DrawDetails,
    nats: float,
    *,
    confidence: float | None = None,
    silent: bool = False,
    most: float = 1.0,
) -> tuple[SuccessBound, InformationBound]:
    """Return what is certified about one row of the pool, and about the draw.

    Args:
        details: of the release, or of an answer: then the success is of all answers of its session.
        nats: most that the release tells.
        confidence: of nats that rest on simulated releases.
        silent: whether there is no noise.
        most: largest success that counting the candidates of equal outputs allows, where there is
            no noise.
    """
    turn = details.session
    source = ENTROPY_SOURCE if silent else GAUSSIAN_SOURCE if confidence is None else EXACT_SOURCE
    unit, sentences = details.unit, ASSUMPTIONS if turn is None else ANSWER_ASSUMPTIONS
    lines = [line.format(unit=unit) for line in sentences]
    if details.promise.person is not None:
        lines.append(
            f"all rows of a {unit} are drawn together, as the column of the {unit}s tells: rows "
            "under two names count as two"
        )
    rest: dict[str, Any] = {
        "evidence": "numerical" if confidence is None else "statistical",
        "assumptions": (*lines, WITHOUT_NOISE if silent else WITH_NOISE),
        "source": source if turn is None else POSTERIOR_SOURCE,
        "confidence": confidence,
    }
    # KL(s ‖ max(q, 1 − q)) = nats (residual-pac, Eq. 17), rounded up; without noise, counting too
    whole = nats if turn is None else turn.budget
    success = details.prior if whole == 0.0 else success_from_information(whole, details.prior)
    if silent:
        success = min(success, max(details.prior, most))
    membership = SuccessBound(
        success=success, prior=details.prior, task=TASK.format(unit), law=details.law, **rest
    )
    return membership, InformationBound(nats=nats, secret=details.secret, **rest)


def recompute(release: Release[DrawDetails]) -> str:
    """Work out again what the details determine of a release of a draw.

    Raises:
        ValueError: a bound beyond what was asked for, or below what the noise was designed for or
            gives, or variances that are not those of the noise.
    """
    details, told = release.details, only(release, InformationBound)
    check_numbers(release, details.secret, TRUTH)
    if told is None:
        raise ValueError("a promise about the draw states the nats that are told of it")
    promise, design = details.promise, details.design
    budget = allowed_nats(promise.nats, promise.success, details.prior)
    if not math.isclose(budget, details.budget, rel_tol=AGREEMENT):
        raise ValueError(f"the promise gives a budget of {budget:.6g} nats")
    designed = 0.0 if design is None or design.information is None else design.information
    check_spent(release, told.nats, budget, designed, "nats")
    if details.session is not None:
        check_guarantees(release, certify(details, told.nats))
        return ""
    silent = not release.errors.any()
    expected = certify(
        details,
        told.nats,
        confidence=told.confidence if design is None else design.confidence,
        silent=silent,
        # how many candidates have equal outputs is not in the file
        most=release.membership.success,
    )
    check_guarantees(release, expected)
    if design is None:
        return "the noise it was designed with is not in the file"
    _check_variances(release, told.nats)
    return ""


def _check_variances(release: Release[DrawDetails], nats: float) -> None:
    """Hold the noise in the file against the errors, and against the nats that it gives at least.

    Raises:
        ValueError: they disagree.
    """
    details = release.details
    design, outputs = details.design, details.output_variance
    along, noise = details.principal_output_variance, details.principal_noise_variance
    mean = details.output_mean
    if design is None or outputs is None or along is None or noise is None or mean is None:
        raise ValueError("the variances of the outputs and of the noise are not in the file")
    if design.covariance.dim != len(release.names):
        raise ValueError(
            "the covariance of the design and the numbers released have different sizes"
        )
    variances = design.covariance.diagonal() if design.rank else np.zeros(len(release.names))
    if not _close(np.sqrt(variances), release.errors):
        raise ValueError("the covariance of the design differs from the noise of the numbers")
    if not _close(variances.sum(), noise.sum()):
        raise ValueError(
            "the noise of the numbers differs from the noise along the principal directions"
        )
    if not _close(outputs.sum(), along.sum()):
        raise ValueError(
            "the variances of the outputs differ from those along the principal directions"
        )
    if design.confidence is not None or not design.rank:
        return
    # the spread is stored about a mean of K terms, whose rounding adds its square
    off = details.candidates * EPS * np.abs(mean)
    with np.errstate(over="ignore"):
        spread = np.maximum(along - (off**2).sum(), 0.0)
    least = _least_information(spread, noise)
    if nats < least * (1.0 - ROUNDING) - ROUNDING:
        raise ValueError(f"this noise gives a bound of {least:.6g} nats or more, not {nats:.6g}")


def _least_information(outputs: Array, noise: Array) -> float:
    """Return ½ Σ ln(1 + s_i/n_i): correlated noise of these variances gives no smaller bound."""
    heard = outputs > ROUNDING * max(float(outputs.max()), 0.0)
    if np.any(noise[heard] <= 0):
        return math.inf
    return 0.5 * float(np.log1p(outputs[heard] / noise[heard]).sum())


def _close(left: Any, right: Any) -> bool:
    return bool(np.allclose(left, right, rtol=AGREEMENT, atol=0.0))


DRAW = Kind(
    name=KIND,
    details=DrawDetails,
    recompute=recompute,
    sections="tacit.statistics.draws.page:sections",
    proof="tacit.releases.proofs:told_information",
    record="one row of the pool: a person with several rows is as many records",
)
