"""Noisy states that may leave the building, with what is known about them."""

from __future__ import annotations

import hashlib
import math
import os
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any, TypedDict, Unpack

import numpy as np
import numpy.typing as npt
from numpy.typing import ArrayLike

from tacit._ground.checks import Array, RandomSource, is_reproducible, matrix
from tacit._ground.frozen import read_only
from tacit.accounting import renyi_over_adjacency
from tacit.design import Design
from tacit.guarantees import RenyiDP
from tacit.hidden_states.geometry.utility import Utility, measure_utility
from tacit.hidden_states.noise.storage import (
    CLAIMED,
    FORMAT,
    FORMAT_VERSION,
    FROM_SYSTEM,
    REPRODUCIBLE,
    read_states,
    write_states,
)
from tacit.hidden_states.origin import HOLDERS, Origin, digest_of
from tacit.measured import Interval
from tacit.models.continuation import Continuation
from tacit.releases.form import Form, Release, Use
from tacit.releases.prepared import Book, Expected, Prepared, check_digest

ORDERS = (1.25, 1.5, 2.0, 3.0, 4.0, 6.0, 8.0, 16.0, 32.0, 64.0)
CHOSEN_BEFORE = "covariance and listed differences were chosen without the released states"
ONE_STATE = "it covers one state; the orders' bounds of several states of one prompt add up"

LARGEST_STATE = float(np.finfo(np.float32).max)
LARGEST_DEVIATION = LARGEST_STATE / 64.0

States = npt.NDArray[np.float32]


@dataclass(frozen=True, eq=False)
class HiddenRelease(Release):
    """Noisy states and everything that may be said about them; no clean state inside.

    Attributes:
        states: what to publish, (n, d) float32.
        design: the noise.
        guarantee: Rényi bound per state over the listed differences; None when none were given.
        utility: what the noise did to the prediction, for the holder of the clean states: it is
            computed from them and is not saved; None without a model.
        reproducible: whether a seed fixed the noise, which voids the guarantee.
        seed: the integer seed, when one was given.
        created: time of the draw, ISO 8601, UTC.
        origin: model, layer and prompts by digest, for whoever measures the release.
    """

    states: States
    design: Design
    guarantee: RenyiDP | None
    utility: Utility | None
    reproducible: bool
    seed: int | None
    created: str
    origin: Origin | None = None

    FORMAT = FORMAT

    @property
    def digest(self) -> str:
        """SHA-256 of the released states, float32 in row order."""
        return hashlib.sha256(np.ascontiguousarray(self.states).tobytes()).hexdigest()

    @property
    def form(self) -> Form:
        """The release as report, gate, ledger and commands read it."""
        count, width = self.states.shape
        return Form(
            kind="hidden-states",
            title=f"{count:,} noisy states of width {width:,}",
            secret="which of the listed differences separates the state from another",
            method=self.design.method,
            guarantees=() if self.guarantee is None else (self.guarantee,),
            use=() if self.utility is None else _use(self.utility),
            digests=(
                ("released states", self.digest),
                *(() if self.origin is None else self.origin.digests),
            ),
            notes=(
                *self.design.notes,
                *(() if self.guarantee is None else (CLAIMED,)),
                *(() if self.origin is None or self.origin.bank_digest is None else (HOLDERS,)),
            ),
            publishable=("guarantee", "digest", "reproducible", "created"),
            reproducible=self.reproducible,
            seed=self.seed,
            created=self.created,
        )

    def to_dict(self) -> dict[str, Any]:
        """Return a description for strict JSON, without the states themselves."""
        return {
            "format": FORMAT,
            "version": FORMAT_VERSION,
            "shape": list(self.states.shape),
            "digest": self.digest,
            "guarantee": None if self.guarantee is None else self.guarantee.to_dict(),
            "reproducible": self.reproducible,
            "seed": self.seed,
            "created": self.created,
            "origin": None if self.origin is None else self.origin.to_dict(),
            "form": self.form.to_dict(),
        }

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write noisy states, design, guarantee and origin as safetensors, whole or not at all.

        The origin names the bank by its digest, for whoever measures the release; a file that is
        published is written by ``replace(release, origin=None).save(path)``.

        Args:
            path: the file; its folder must exist.

        Raises:
            ValueError: it cannot be written.
        """
        write_states(path, self)

    @staticmethod
    def load(path: str | os.PathLike[str]) -> HiddenRelease:
        """Read what ``save`` wrote; PyTorch is not needed.

        The design comes back without its multipliers and iterations.

        Raises:
            ValueError: no such file, or not a release of hidden states.
        """
        return HiddenRelease(**read_states(path))


class Options(TypedDict, total=False):
    """The options of ``prepare_states``."""

    differences: Any
    orders: Sequence[float]
    fisher: Any
    continuation: Continuation | None
    confidence: float
    origin: Origin | None
    rng: RandomSource


def prepare_states(
    states: ArrayLike,
    design: Design,
    *,
    differences: ArrayLike | None = None,
    orders: Sequence[float] = ORDERS,
    fisher: ArrayLike | None = None,
    continuation: Continuation | None = None,
    confidence: float = 0.95,
    origin: Origin | None = None,
    rng: RandomSource = None,
) -> PreparedStates:
    """Certify noisy states before anything is drawn.

    ``h̃ = h + ξ, ξ ~ N(0, Σ)``, rounded as ``Design.release`` does and then to float32, which is
    post-processing; what float32 cannot hold becomes its largest number.

    Args:
        states: clean states, (n, d), an array or a tensor.
        design: Σ; its noise must be Gaussian.
        differences: adjacency set, (m, d): the guarantee is ``ε(α) = (α/2) max ΔᵀΣ⁻¹Δ`` over it,
            infinite where Σ leaves a difference bare. None for no guarantee.
        orders: Rényi orders α > 1.
        fisher: F, (d, d) or (d,), for the predicted KL ``½ tr(FΣ)``; needs ``continuation``.
        continuation: the clean prompts these are the states of, to measure KL and agreement with
            the earlier positions clean (protocol A).
        confidence: of the intervals of what is measured.
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
    clean = matrix("states", states)
    if not isinstance(design, Design):
        raise ValueError(f"design: expected a Design, got {type(design).__name__}")
    if design.noise is not None:
        raise ValueError(
            "design: expected Gaussian noise, whose guarantee is known here, got a scale mixture"
        )
    if clean.shape[1] != design.covariance.dim:
        raise ValueError(
            f"states: expected {design.covariance.dim} columns, got shape {clean.shape}"
        )
    if fisher is not None and continuation is None:
        raise ValueError("fisher: expected it beside a continuation, got it alone")
    if continuation is not None and tuple(continuation.clean_states.shape) != clean.shape:
        raise ValueError(
            f"continuation: expected the prompts of {clean.shape[0]} states, got "
            f"{len(continuation)}"
        )
    known = is_reproducible(rng)
    guarantee = None
    if differences is not None:
        guarantee = _guarantee(differences, design, orders, reproducible=known)
    predicted = None if fisher is None else 0.5 * design.covariance.weighted_trace(fisher)
    if float(np.sqrt(design.covariance.diagonal().max())) > LARGEST_DEVIATION:
        raise ValueError("design: expected noise that float32 can hold, got larger")
    return PreparedStates(
        guarantees=() if guarantee is None else (guarantee,),
        spends=() if guarantee is None else (guarantee,),
        expected=tuple(
            Expected(name=f"h[{place}]", error=math.sqrt(variance))
            for place, variance in enumerate(design.covariance.diagonal().tolist())
        ),
        description=f"{len(clean):,} noisy states of width {clean.shape[1]}",
        reproducible=known,
        clean=clean,
        design=design,
        continuation=continuation,
        measured_on=None if continuation is None else _digest(continuation),
        predicted=predicted,
        confidence=confidence,
        origin=origin,
        rng=rng,
    )


@read_only
@dataclass(frozen=True, kw_only=True, eq=False)
class PreparedStates(Prepared[HiddenRelease]):
    """States whose noise is certified and not yet drawn; for the holder of the clean states.

    Attributes:
        clean: the clean states, (n, d).
        design: the noise.
        continuation: the clean prompts, where utility is measured.
        measured_on: SHA-256 of these and of their model.
        predicted: ½ tr(FΣ), nats, where F is known.
        confidence: of the intervals of what is measured.
        origin: where the states come from.
        rng: what the draw uses; None for the operating system's generator.
    """

    clean: Array = field(repr=False)
    design: Design = field(repr=False)
    continuation: Continuation | None = field(repr=False)
    measured_on: str | None = field(repr=False)
    predicted: float | None
    confidence: float
    origin: Origin | None = field(repr=False)
    rng: RandomSource = field(repr=False)

    def _check_unchanged(self) -> None:
        if self.continuation is not None and self.measured_on is not None:
            check_digest("continuation", _digest(self.continuation), self.measured_on)

    def _drawn(self) -> HiddenRelease:
        # Saturating, for an error that depends on the value would tell of it.
        doubles = np.clip(
            self.design.release(self.clean, rng=self.rng), -LARGEST_STATE, LARGEST_STATE
        )
        noisy: States = doubles.astype(np.float32)
        noisy.flags.writeable = False
        measured = None
        if self.continuation is not None:
            import torch

            tensor = torch.tensor(noisy, device=self.continuation.clean_states.device)
            measured = measure_utility(
                self.continuation, tensor, predicted=self.predicted, confidence=self.confidence
            )
        held = self.guarantees[0] if self.guarantees else None
        return HiddenRelease(
            states=noisy,
            design=self.design,
            guarantee=held if isinstance(held, RenyiDP) else None,
            utility=measured,
            reproducible=self.reproducible,
            seed=int(self.rng) if isinstance(self.rng, (int, np.integer)) else None,
            created=datetime.now(UTC).isoformat(timespec="seconds"),
            origin=self.origin,
        )


def _digest(continuation: Continuation) -> str:
    """Return the SHA-256 of clean prompts, of what is kept of them, and of their model."""
    parts = {"states": continuation.clean_states, "logits": continuation.clean_logits}
    for name, kept in (("keys", continuation.keys), ("values", continuation.values)):
        parts |= {f"{name}.{place}": part for place, part in enumerate(kept)}
    parts |= {f"last.{name}": part for name, part in continuation.last.items()}
    weights = continuation.anatomy.network.state_dict()
    return digest_of({**parts, **{f"model.{name}": one for name, one in weights.items()}})


def release(
    states: ArrayLike,
    design: Design,
    *,
    ledger: Book | None = None,
    secret: str | None = None,
    no_budget: bool = False,
    **options: Unpack[Options],
) -> HiddenRelease:
    """Add the design's noise to states: ``prepare_states(...).draw(...)`` in one call.

    Args:
        states: as for ``prepare_states``.
        design: as for ``prepare_states``.
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
        >>> noisy = release([[1.0, 2.0]], isotropic([1.0, 1.0], 4.0), differences=[[2.0, 0.0]])
        >>> noisy.states.shape, round(noisy.guarantee.epsilons[2], 9)
        ((1, 2), 1.0)

    Source: hidden-state, Sec. 4, 6 and Eq. 23.
    """
    prepared = prepare_states(states, design, **options)
    return prepared.draw(ledger=ledger, secret=secret, no_budget=no_budget)


def _use(measured: Utility) -> tuple[Use, ...]:
    low, high = measured.agreement_interval
    kept = Interval(value=measured.agreement, low=low, high=high, confidence=measured.confidence)
    return (Use(name="agreement", unit="share", better="higher", measured=kept),)


def _guarantee(
    differences: Any, design: Design, orders: Sequence[float], *, reproducible: bool
) -> RenyiDP:
    bound = renyi_over_adjacency(differences, design.covariance, orders)
    return replace(
        bound,
        assumptions=(
            *bound.assumptions,
            CHOSEN_BEFORE,
            ONE_STATE,
            REPRODUCIBLE if reproducible else FROM_SYSTEM,
        ),
    )
