"""SR-PAC as published, run as an estimate, with the checks that tell whether to believe it."""

from __future__ import annotations

import math
from collections.abc import Mapping
from types import ModuleType
from typing import Annotated, Any, Literal

import numpy as np
from numpy.typing import ArrayLike
from scipy import linalg as scipy_linalg

from tacit._ground.checks import (
    Array,
    RandomSource,
    choice,
    generator,
    in_interval,
    integer,
    matrix,
    non_negative,
    positive,
)
from tacit._ground.lazy import install_with
from tacit._ground.values import Count, NonNegative, Positive, Within, value
from tacit.compute import progress_bar
from tacit.design import gaussian_information
from tacit_lab.stackelberg.checks import CheckedSecret, run_checks
from tacit_lab.stackelberg.estimate import StackelbergEstimate, StackelbergHistory
from tacit_lab.stackelberg.frame import (
    Groups,
    RowFrame,
    cost_matrix,
    label_vectors,
    value_groups,
)


@value
class StackelbergRules:
    """How leader and follower play.

    Args:
        decoder: ``"gaussian"``, ``"mixture-density"``, ``"flow"`` (densities of the secrets) or
            ``"categorical"`` (over their distinct values); None for Gaussian with secrets and
            categorical without.
        entropy: H(X) in nats: differential, in the units of the secrets, for a density. None takes
            the exact one of a categorical secret, and otherwise the cross-entropy of the decoder
            family without Y, which makes the estimate a difference of two upper bounds.
        noise: ``"gaussian"`` (full covariance), ``"mixture"`` (of three Gaussians) or
            ``"elliptical"`` (generalised Gaussian, tails and covariance).
        penalty: ``"budget-tracking"``, ``s (W − β̂)²`` with β̂ = H(X) − β, or ``"pac-adjusted"``,
            ``s (β̂ + ε − W)₊²``. (As printed, the latter has W and β̂ + ε exchanged, and no noise at
            all is then optimal.)
        margin: ε in nats of the PAC-adjusted penalty, such as ``decoder_margin`` returns; below β.
        penalty_weight: s > 0, relative: the excess over the budget is measured in budgets, and
            the logarithm of the cost is minimised.
        steps: The leader's; the follower takes as many and some more.
        period: Steps of each between turns, T_φ of the paper.
        batch: Draws per step; None fits memory and time.
    """

    decoder: Literal["gaussian", "mixture-density", "flow", "categorical"] | None = None
    entropy: float | None = None
    noise: Literal["gaussian", "mixture", "elliptical"] = "gaussian"
    penalty: Literal["budget-tracking", "pac-adjusted"] = "budget-tracking"
    margin: NonNegative | None = None
    penalty_weight: Positive = 50.0
    steps: Annotated[int, Within(10, ends="[)")] = 600
    period: Count = 10
    batch: Annotated[int, Within(2, ends="[)")] | None = None

    def _together(self) -> None:
        if self.penalty == "budget-tracking" and self.margin is not None:
            raise ValueError(f"margin: expected None with {self.penalty!r}, got {self.margin!r}")
        if self.penalty == "pac-adjusted" and self.margin is None:
            raise ValueError("margin: expected ε in nats with 'pac-adjusted', got None")


@value
class StackelbergChecks:
    """How well what was found is checked.

    Args:
        labels: From names to (N,) integers: what Fano's inequality is applied to.
        samples: Draws for each check.
        confidence: With which the bounds of all checks hold together.
    """

    labels: Mapping[str, Any] | None = None
    samples: Annotated[int, Within(1000, ends="[)")] = 20_000
    confidence: Annotated[float, Within(0.5, 1)] = 0.99


DECODERS = ("gaussian", "mixture-density", "flow", "categorical")
# what is played and checked when nothing is said
RULES, CHECKS = StackelbergRules(), StackelbergChecks()
# a secret with so many rows a value, or more, is a finite one
ROWS_PER_VALUE = 2
FEWEST_SAMPLES = 10


def estimate_stackelberg(
    outputs: ArrayLike,
    secrets: ArrayLike | None = None,
    *,
    mi_budget: float,
    cost: ArrayLike | None = None,
    rules: StackelbergRules = RULES,
    checks: StackelbergChecks = CHECKS,
    rng: RandomSource = None,
    progress: bool | None = None,
) -> StackelbergEstimate:
    """Find noise by the game of SR-PAC, and check what it lets through. **Not a guarantee.**

    The follower trains a decoder π to minimise ``W(Q, π) = E[−ln π(X | M(X) + B)]``; the leader
    moves the noise law Q to minimise ``tr(F Cov B)`` subject to ``W(Q, π) = H(X) − β``. Because
    ``W >= H(X | Y)``, this holds only a *lower* bound on I(X; Y) at β: a weak decoder meets any
    budget with too little noise. Hence the checks, which see the noise and the outputs alone:
    Fano's inequality for a classifier of each label, and for a finite secret its exact posterior.

    Needs PyTorch, of the extra ``torch``. Computes in float64 on one thread.

    Args:
        outputs: (N, d), output of the deterministic query for N equally likely secrets, or for N
            draws of the secret: a density is then learned on half of them and measured on the
            other, and few rows make a weak decoder. Directions in which no two differ get no noise.
        secrets: (N, p) or (N,), what the decoder predicts: features of the secret. None for the
            row number itself, a finite secret.
        mi_budget: β > 0 in nats.
        cost: F, what noise costs: None (squared error), a scalar, a diagonal (d,) or (d, d).
        rules: how the game is played: the decoder, the noise, what is known of H(X), the steps.
        checks: what is checked of the result, and how well.
        rng: seeds the search and the checks. Noise is drawn later, by ``estimate.noise.sample``.
        progress: False never shows a bar; None and True do, on a terminal.

    Returns:
        A ``StackelbergEstimate``; read its ``verdict`` first.

    Raises:
        ValueError: a bad argument; nothing has been computed then.
        ImportError: PyTorch is not installed.

    Example:
        >>> outputs = [[-1.0], [-0.9], [0.9], [1.0]]
        >>> estimate = estimate_stackelberg(
        ...     outputs, mi_budget=0.5, rules=StackelbergRules(steps=30), rng=0
        ... )
        >>> estimate.contradicted
        False
        >>> estimate.noise.second_moment.shape
        (1, 1)

    Source: residual-pac, Alg. 2 and Alg. 6.
    """
    points = matrix("outputs", outputs)
    budget = positive("mi_budget", mi_budget)
    values, groups = value_groups(secrets, len(points))
    named = label_vectors(checks.labels, len(points))
    family = _decoder_family(rules.decoder, values)
    if rules.margin is not None:
        in_interval("margin", rules.margin, 0.0, budget, open_high=True)
    target = budget - (rules.margin or 0.0)
    source = generator(rng)
    frame = RowFrame.of("outputs", points)
    weights = frame.cost(cost_matrix(cost, points.shape[1]))
    categorical = family == "categorical"
    secret = None if categorical else _secret_frame(values)
    taught, asked = _roles(len(points), categorical, source)
    reference = _entropy(groups) if secret is None else _reference_entropy(secret, asked)
    known, known_source = _known_entropy(reference, rules.entropy, family)
    if categorical and budget >= known:
        raise ValueError(
            f"mi_budget: expected less than the entropy of the secret, {known:.6g} nats, "
            f"got {budget:.6g}: no noise is needed for it"
        )
    start = gaussian_information(np.eye(len(weights)), budget, cost=weights).covariance.to_dense()
    torch_game = _torch_game()
    game = torch_game.StackelbergGame(
        points=frame.coordinates,
        secrets=None if secret is None else secret.coordinates,
        groups=groups if categorical else None,
        cost=weights,
        start=scipy_linalg.cholesky(start, lower=True),
        lift=frame.lift,
        target=target,
        offset=0.0,
        taught=taught,
        asked=asked,
        one_sided=rules.penalty == "pac-adjusted",
    )
    played = torch_game.Rules(
        decoder=family,
        noise=rules.noise,
        steps=rules.steps,
        period=rules.period,
        penalty_weight=rules.penalty_weight,
        batch=rules.batch,
    )
    seed = int(source.integers(2**63))
    learns = family in ("mixture-density", "flow")
    blind = reference - (torch_game.blind_information(game, played, seed) if learns else 0.0)
    known = blind if math.isnan(known) else known
    if known - blind >= target:
        raise ValueError(
            f"entropy: expected less than {blind + target:.6g} nats, got {known:.6g}: a {family} "
            "decoder that sees no output already does better on these rows than the budget allows, "
            "so no noise meets it"
        )
    game = torch_game.with_offset(game, known - reference)
    with progress_bar(rules.steps, "leader and follower", shown=progress is not False) as advance:
        outcome = torch_game.play(game, played, seed, advance)
    finite = secrets is None or categorical or _few(groups)
    subject = CheckedSecret(points=frame.coordinates, groups=groups if finite else None)
    return StackelbergEstimate(
        noise=outcome.noise,
        cost=float((weights * outcome.noise.coordinate_covariance).sum()),
        mi_budget=budget,
        estimated_information=outcome.information,
        standard_error=outcome.standard_error,
        cross_entropy=known - outcome.information,
        entropy=known,
        entropy_source=known_source,
        decoder=family,
        penalty=rules.penalty,
        history=StackelbergHistory(cost=outcome.costs, estimated_information=outcome.informations),
        checks=run_checks(outcome.noise, subject, named, checks.samples, checks.confidence, source),
        confidence=checks.confidence,
    )


def decoder_margin(
    *, rademacher: float, bound: float, samples: int, confidence: float = 0.99
) -> float:
    """Return ``ε = 4 R_m(G) + 2 B √(2 ln(1/δ)/m)``, by which a trained decoder may mislead.

    With probability ``confidence`` = 1 − 2δ the smallest cross-entropy *within the decoder family*
    is within ε of the trained one's. It says nothing about decoders outside the family.

    Args:
        rademacher: R_m(G), Rademacher complexity in nats of the losses of the family.
        bound: B > 0, nats: every loss −ln π(x | y) lies in [0, B].
        samples: m, draws that the decoder was trained on.
        confidence: 1 − 2δ in (0, 1).

    Returns:
        ε in nats.

    Raises:
        ValueError: an argument out of range.

    Example:
        >>> round(decoder_margin(rademacher=0.01, bound=5.0, samples=1_000_000, confidence=0.99), 4)
        0.0726

    Source: residual-pac, Lemma 1 and Cor. 4.
    """
    complexity = non_negative("rademacher", rademacher)
    largest = positive("bound", bound)
    count = integer("samples", samples, minimum=1)
    level = in_interval("confidence", confidence, 0.0, 1.0, open_low=True, open_high=True)
    chance = (1.0 - level) / 2.0
    return 4.0 * complexity + 2.0 * largest * math.sqrt(-2.0 * math.log(chance) / count)


def _torch_game() -> ModuleType:
    try:
        from tacit_lab.stackelberg import game
    except ImportError as error:
        raise ImportError(f"stackelberg needs PyTorch: {install_with('torch')}") from error
    return game


def _decoder_family(decoder: str | None, secrets: Array | None) -> str:
    if decoder is None:
        return "categorical" if secrets is None else "gaussian"
    choice("decoder", decoder, DECODERS)
    if secrets is None and decoder != "categorical":
        raise ValueError(
            f"secrets: expected what the {decoder} decoder predicts, (N, p), got None; "
            "secrets=outputs lets it predict the output"
        )
    return decoder


def _secret_frame(values: Array | None) -> RowFrame:
    assert values is not None
    frame = RowFrame.of("secrets", values)
    rank, size = frame.lift.shape
    if rank < size:
        raise ValueError(
            f"secrets: expected columns that vary in {size} directions, got {rank}: in fewer there "
            "is no density"
        )
    return frame


def _few(groups: Groups) -> bool:
    """Whether the distinct values are so few that the secret is a finite one."""
    return bool(ROWS_PER_VALUE * (int(groups.max()) + 1) <= len(groups))


def _roles(count: int, finite: bool, source: np.random.Generator) -> tuple[Groups, Groups]:
    """Return the rows to learn from and those to measure on: apart, unless they are the secret."""
    everyone = np.arange(count, dtype=np.int64)
    if finite:
        return everyone, everyone
    if count < FEWEST_SAMPLES:
        raise ValueError(f"outputs: expected at least {FEWEST_SAMPLES} rows, got {count}")
    order = source.permutation(everyone)
    return order[: count // 2], order[count // 2 :]


def _known_entropy(reference: float, given: float | None, family: str) -> tuple[float, str]:
    """Return H(X) and where it is from; nan where it is to be learned."""
    if given is not None:
        return float(given), "given"
    if family == "categorical":
        return reference, "exact"
    if family == "gaussian":
        return reference, "Gaussian of the same covariance, an upper bound"
    return math.nan, "cross-entropy of the decoder family without Y, an upper bound"


def _entropy(groups: Groups) -> float:
    share = np.bincount(groups) / len(groups)
    return float(-(share @ np.log(share)))


def _reference_entropy(secret: RowFrame, asked: Groups) -> float:
    """Return H_q, the cross-entropy of the rows asked under ``q = N(mean, T Tᵀ)``, T the lift."""
    squares = float((secret.coordinates[asked] ** 2).sum(axis=1).mean())
    constant = 0.5 * len(secret.lift) * math.log(2.0 * math.pi)
    return constant + 0.5 * squares + secret.log_volume
