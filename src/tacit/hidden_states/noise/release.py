"""Noisy states as a release: what is kept of them, how it is worked out again, and their file."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import field, replace
from typing import Annotated, Any, ClassVar, Self

import numpy as np
import numpy.typing as npt

from tacit._ground.checks import Array, integer
from tacit._ground.frozen import array_value
from tacit.codec import APART, HOLDER, MISSING
from tacit.covariance import Covariance, covariance_from_dict, described_fields
from tacit.guarantees import RenyiDP
from tacit.hidden_states.origin import Origin, check_digests
from tacit.releases import Kind, Release
from tacit.releases.recompute import FROM_SYSTEM, check_assumed, only
from tacit.releases.stores import Layout, RowDetails, check_rows
from tacit.releases.vectors import Vectors

KIND = "hidden-states"
# of a tensor that describes Σ
PART = "covariance."
CHOSEN_BEFORE = "covariance and listed differences were chosen without the released states"
ONE_STATE = "it covers one state; the orders' bounds of several states of one prompt add up"
ASSUMPTIONS = (CHOSEN_BEFORE, ONE_STATE, FROM_SYSTEM)
UNCHECKED = "the differences that ε is about are not in the file"
BARE = "it holds no noise and claims a finite ε"
# Rényi divergences of one Gaussian shift are linear in the order; what nine digits may lose
LINEAR = 1e-6


@array_value(kw_only=True)
class StateRows(RowDetails):
    """Noisy states and the noise in them; no clean state inside.

    Attributes:
        rows: n.
        width: d.
        noise: what describes Σ beside its arrays, as ``Covariance.to_dict`` names it.
        cost: K = ½ tr(FΣ) that Σ was designed to cost, nats; NaN where nobody said.
        gap: certified relative duality gap of the design; NaN where its method has none.
        origin: model, layer and prompts by digest, for whoever measures the release.
        utility: a ``PredictionChange``: what the noise did to the prediction; in memory alone.
        states: what to publish, (n, d) of float32; None where only the certificate was read.
        covariance: Σ; likewise.
    """

    tensor: ClassVar[str] = "states"

    rows: int
    width: int
    noise: Mapping[str, str | int | float | bool | None]
    cost: Annotated[float, MISSING]
    gap: Annotated[float, MISSING]
    origin: Annotated[Origin | None, HOLDER] = None
    utility: Annotated[Any, APART] = field(default=None, repr=False)
    states: Annotated[npt.NDArray[np.float32] | None, APART] = None
    covariance: Annotated[Covariance | None, APART] = None

    def __post_init__(self) -> None:
        integer("rows", self.rows, minimum=1)
        integer("width", self.width, minimum=1)
        try:
            known = described_fields(self.noise.get("type"))
        except ValueError as error:
            raise ValueError(f"noise.{error}") from None
        for name, value in self.noise.items():
            if name != "type" and (name not in known or isinstance(value, str)):
                raise ValueError("noise: expected the numbers that describe Σ, got other values")
            if isinstance(value, int):
                integer(f"noise.{name}", int(value))

    @property
    def layout(self) -> Layout:
        return Layout(self.tensor, (self.rows, self.width), np.dtype("<f4"))

    def beside(self) -> Mapping[str, Array]:
        """Return the arrays of Σ."""
        return {} if self.covariance is None else arrays_of(self.covariance)[1]

    def check_beside(self, parts: Mapping[str, Array], release: Release[Any]) -> None:
        """Refuse tensors that describe no Σ of d numbers, or none of which a finite ε is true.

        Raises:
            ValueError: they do.
        """
        covariance = self._covariance(parts)
        held = only(release, RenyiDP)
        if held is not None and covariance.rank == 0 and min(held.epsilons) < math.inf:
            raise ValueError(BARE)

    def filled(self, rows: Vectors, parts: Mapping[str, Array]) -> Self:
        return replace(self, states=rows, covariance=self._covariance(parts))

    def _covariance(self, parts: Mapping[str, Array]) -> Covariance:
        if any(not name.startswith(PART) for name in parts):
            raise ValueError("expected the states and their Σ, got other tensors")
        arrays = {name.removeprefix(PART): part for name, part in parts.items()}
        found = covariance_from_dict({**self.noise, **arrays})
        if found.dim != self.width:
            raise ValueError(f"its noise is of {found.dim} numbers, its states of {self.width}")
        return found


def arrays_of(covariance: Covariance) -> tuple[dict[str, Any], dict[str, Array]]:
    """Return what describes Σ in a word or a number, and its arrays by the names of tensors."""
    described = covariance.to_dict()
    arrays = {
        PART + name: np.asarray(value, dtype=np.float64)
        for name, value in described.items()
        if isinstance(value, list)
    }
    return {k: v for k, v in described.items() if PART + k not in arrays}, arrays


def title_of(details: StateRows) -> str:
    """Return what was released."""
    return f"{details.rows:,} noisy states of width {details.width:,}"


def recompute(release: Release[StateRows]) -> str:
    """Hold a release of states against what its file says of the noise.

    Raises:
        ValueError: a title or digests of something else, ε that no Gaussian noise has, or an
            assumption that is missing.
    """
    details = release.details
    if release.title != title_of(details):
        raise ValueError("its details give another 'title'")
    check_digests(release, (StateRows.tensor,))
    if details.origin is not None and release.digests[1:] != details.origin.public.digests:
        raise ValueError("its digests differ from those that its origin gives")
    held = only(release, RenyiDP)
    # states are released by one Gaussian shift, which has one bound
    if len(release.guarantees) != (0 if held is None else 1):
        raise ValueError("expected a Rényi bound of states, or none, got other values")
    if held is None:
        return ""
    check_assumed(release, ASSUMPTIONS)
    # D_α(N(m, Σ) ‖ N(0, Σ)) = α/2 mᵀΣ⁻¹m: ε(α)/α is one number
    told = [
        nats / order
        for order, nats in zip(held.orders, held.epsilons, strict=True)
        if math.isfinite(nats)
    ]
    if told and max(told) > min(told) * (1.0 + LINEAR):
        raise ValueError("no Gaussian noise has these ε")
    # of Σ = 0 every difference is told whole
    if told and details.noise.get("variance", 1.0) == 0.0:
        raise ValueError(BARE)
    return UNCHECKED


STATES = Kind(
    name=KIND,
    details=StateRows,
    recompute=recompute,
    rows=check_rows,
    proof="tacit.hidden_states.noise.proof:proof",
    record="one prompt, which is one row of the file",
)
