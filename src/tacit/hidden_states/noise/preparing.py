"""Noise on states, certified before anything is drawn."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from tacit._ground.checks import Array, RandomSource, generator, is_reproducible, matrix
from tacit._ground.frozen import read_only
from tacit._ground.values import Share, value
from tacit.accounting import renyi_over_adjacency
from tacit.design import Design
from tacit.guarantees import RenyiDP
from tacit.hidden_states.geometry.utility import PredictionChange, measure_utility
from tacit.hidden_states.noise.release import (
    ASSUMPTIONS,
    KIND,
    StateRows,
    arrays_of,
    title_of,
)
from tacit.hidden_states.origin import HOLDERS, Origin, digest_of
from tacit.measured import Interval
from tacit.models.continuation import Continuation
from tacit.releases import Expected, Prepared, Release, Use
from tacit.releases.prepared import Book, check_digest
from tacit.releases.promises import check_promise
from tacit.releases.vectors import sha256_of

ORDERS = (1.25, 1.5, 2.0, 3.0, 4.0, 6.0, 8.0, 16.0, 32.0, 64.0)
SECRET = "which of the listed differences separates the state from another"
LARGEST_STATE = float(np.finfo(np.float32).max)
# noise that reaches the end of float32 in 64 deviations alone: it is cut there
LARGEST_DEVIATION = LARGEST_STATE / 64.0


@value
class Differences:
    """Which of two states was released, if their difference is listed, is hidden.

    Args:
        listed: Adjacency set, (m, d), chosen without a look at the released states: the guarantee
            is ``ε(α) = (α/2) max ΔᵀΣ⁻¹Δ`` over it, infinite where Σ leaves a difference bare.
        orders: Rényi orders α > 1 at which ε is told.

    Example:
        >>> Differences(listed=[[2.0, 0.0]]).orders[2]
        2.0
    """

    listed: Any
    orders: Any = ORDERS


@value
class Consumer:
    """Who goes on from the noisy states with the earlier positions clean: protocol A, measured.

    Args:
        continuation: The clean prompts that these are the states of, to measure KL and agreement.
        fisher: F, (d, d) or (d,), for the predicted KL ½ tr(FΣ).
        confidence: Of the intervals of what is measured.
    """

    continuation: Continuation
    fisher: Any = None
    confidence: Share = 0.95

    def digest(self) -> str:
        """Return the SHA-256 of clean prompts, of what is kept of them, and of their model."""
        kept = self.continuation
        parts = {"states": kept.clean_states, "logits": kept.clean_logits}
        for name, held in (("keys", kept.keys), ("values", kept.values)):
            parts |= {f"{name}.{place}": part for place, part in enumerate(held)}
        parts |= {f"last.{name}": part for name, part in kept.last.items()}
        weights = kept.anatomy.network.state_dict()
        return digest_of({**parts, **{f"model.{name}": one for name, one in weights.items()}})


def prepare_states(
    states: ArrayLike,
    design: Design,
    promise: Differences | None = None,
    consumer: Consumer | None = None,
    *,
    origin: Origin | None = None,
    rng: RandomSource = None,
) -> PreparedStates:
    """Certify noisy states before anything is drawn.

    ``h̃ = h + ξ, ξ ~ N(0, Σ)``, rounded as ``Design.release`` does and then to float32, which is
    post-processing; what float32 cannot hold becomes its largest number.

    Args:
        states: clean states, (n, d), an array or a tensor.
        design: Σ; its noise must be Gaussian.
        promise: which differences are hidden; None for no guarantee.
        consumer: on whom the use is measured; None for no measurement.
        origin: model, layer and prompts by digest, as ``Origin.of`` gives them.
        rng: None draws from the operating system. A seed or generator makes the release
            reproducible, which voids the guarantee and is recorded.

    Returns:
        The ``PreparedStates``: the guarantee, the error of every coordinate, and ``draw``.

    Raises:
        ValueError: shapes that do not fit, or noise that is not Gaussian.

    Example:
        >>> from tacit.design import isotropic
        >>> prepared = prepare_states([[1.0, 2.0]], isotropic([1.0, 1.0], 4.0))
        >>> [entry.error for entry in prepared.expected], prepared.guarantees
        ([2.0, 2.0], ())

    Source: hidden-state, Sec. 4, 6 and Eq. 23.
    """
    # everything that can fail, so that a draw that was paid for does not
    clean = matrix("states", states)
    _check_design(design, clean.shape[1])
    # a seed that is none is refused here, before a cost is reserved
    known = is_reproducible(rng)
    generator(rng)
    guarantees: tuple[RenyiDP, ...] = ()
    if promise is not None:
        check_promise(promise, Differences)
        # ε(α) = (α/2) max ΔᵀΣ⁻¹Δ over the list, rounded up there
        bound = renyi_over_adjacency(promise.listed, design.covariance, promise.orders)
        guarantees = (replace(bound, assumptions=(*bound.assumptions, *ASSUMPTIONS)),)
    if consumer is not None and tuple(consumer.continuation.clean_states.shape) != clean.shape:
        raise ValueError(
            f"consumer: expected the prompts of {clean.shape[0]} states, got "
            f"{len(consumer.continuation)}"
        )
    # K = ½ tr(FΣ), the KL while it is quadratic in the noise
    fisher = None if consumer is None else consumer.fisher
    predicted = None if fisher is None else 0.5 * design.covariance.weighted_trace(fisher)
    details = StateRows(
        rows=len(clean),
        width=clean.shape[1],
        noise=arrays_of(design.covariance)[0],
        cost=design.cost,
        gap=design.gap,
        origin=origin,
        covariance=design.covariance,
    )
    return PreparedStates(
        guarantees=guarantees,
        spends=guarantees,
        expected=tuple(
            Expected(name=f"h[{place}]", error=math.sqrt(variance))
            for place, variance in enumerate(design.covariance.diagonal().tolist())
        ),
        description=f"{len(clean):,} noisy states of width {clean.shape[1]}",
        reproducible=known,
        clean=clean,
        design=design,
        consumer=consumer,
        measured_on=None if consumer is None else consumer.digest(),
        predicted=predicted,
        rng=rng,
        planned=Release(
            kind=KIND,
            title=title_of(details),
            secret=SECRET,
            method=design.method,
            guarantees=guarantees,
            details=details,
            reproducible=known,
            seed=int(rng) if isinstance(rng, int | np.integer) else None,
            digests=() if origin is None else origin.public.digests,
            notes=design.notes,
            remarks=() if origin is None or origin.bank_digest is None else (HOLDERS,),
        ),
    )


def _check_design(design: Design, width: int) -> None:
    if not isinstance(design, Design):
        raise ValueError(f"design: expected a Design, got {type(design).__name__}")
    if design.noise is not None:
        raise ValueError(
            "design: expected Gaussian noise, whose guarantee is known here, got a scale mixture"
        )
    if width != design.covariance.dim:
        raise ValueError(f"states: expected {design.covariance.dim} columns, got {width}")
    if math.sqrt(design.covariance.diagonal().max()) > LARGEST_DEVIATION:
        raise ValueError("design: expected noise that float32 can hold, got larger")


@read_only
@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class PreparedStates(Prepared[StateRows]):
    """States whose noise is certified and not yet drawn; for the holder of the clean states.

    Attributes:
        clean: the clean states, (n, d).
        design: the noise.
        consumer: on whom the use is measured.
        measured_on: SHA-256 of its prompts and of their model.
        predicted: ½ tr(FΣ), nats, where F is known.
        rng: what the draw uses; None for the operating system's generator.
        planned: the release but for what is drawn.
    """

    clean: Array = field(repr=False)
    design: Design = field(repr=False)
    consumer: Consumer | None = field(repr=False)
    measured_on: str | None = field(repr=False)
    predicted: float | None
    rng: RandomSource = field(repr=False)
    planned: Release[StateRows] = field(repr=False)

    def _check_unchanged(self) -> None:
        if self.consumer is not None and self.measured_on is not None:
            check_digest("consumer", self.consumer.digest(), self.measured_on)

    def _drawn(self) -> Release[StateRows]:
        # saturating, for an error that depends on the value would tell of it
        doubles = np.clip(
            self.design.release(self.clean, rng=self.rng), -LARGEST_STATE, LARGEST_STATE
        )
        # rounding after the noise is post-processing
        noisy = doubles.astype(np.float32)
        measured = None if self.consumer is None else self._measured(self.consumer, noisy)
        planned = self.planned
        return replace(
            planned,
            details=replace(planned.details, states=noisy, utility=measured),
            digests=((StateRows.tensor, sha256_of([noisy])), *planned.digests),
            use=() if measured is None else _use(measured),
        )

    def _measured(self, consumer: Consumer, noisy: Any) -> PredictionChange:
        import torch

        run = consumer.continuation
        # KL and agreement of the continuation from the noisy states against the clean one
        tensor = torch.tensor(noisy, device=run.clean_states.device)
        return measure_utility(
            run, tensor, predicted=self.predicted, confidence=consumer.confidence
        )


def release(
    states: ArrayLike,
    design: Design,
    promise: Differences | None = None,
    *,
    ledger: Book | None = None,
    secret: str | None = None,
    no_budget: bool = False,
    **options: Any,
) -> Release[StateRows]:
    """Add the design's noise to states: ``prepare_states(...).draw(...)`` in one call.

    Args:
        states: as for ``prepare_states``.
        design: as for ``prepare_states``.
        promise: as for ``prepare_states``.
        ledger: what the release spends from, a ``tacit.Ledger``; None for none.
        secret: name of the secret in the ledger.
        no_budget: release though the secret has no budget and others have one.
        options: the other arguments of ``prepare_states``.

    Returns:
        The release. With n states of one prompt, n guarantees add up.

    Raises:
        ValueError: as ``prepare_states``, or a refusal of the ledger; nothing is drawn then.

    Example:
        >>> from tacit.design import isotropic
        >>> noisy = release([[1.0, 2.0]], isotropic([1.0, 1.0], 4.0), Differences(listed=[[2, 0]]))
        >>> noisy.details.states.shape, round(noisy.guarantees[0].epsilons[2], 9)
        ((1, 2), 1.0)

    Source: hidden-state, Sec. 4, 6 and Eq. 23.
    """
    prepared = prepare_states(states, design, promise, **options)
    return prepared.draw(ledger=ledger, secret=secret, no_budget=no_budget)


def _use(measured: PredictionChange) -> tuple[Use, ...]:
    low, high = measured.agreement_interval
    kept = Interval(value=measured.agreement, low=low, high=high, confidence=measured.confidence)
    return (Use(name="agreement", unit="share", better="higher", measured=kept),)
