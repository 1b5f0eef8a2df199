"""One promise beside the others, and all of them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from tacit import codec
from tacit._ground.checks import Array
from tacit._ground.frozen import array_value
from tacit._ground.reprs import short_repr
from tacit.documents import Envelope
from tacit.guarantees.base import Evidence
from tacit.releases.provenance import KEPT
from tacit.releases.release import Attack

ENVELOPE = Envelope("tacit.statistic.comparison", 2)


@array_value(kw_only=True)
class PromiseResult:
    """What one promise hides, what its noise costs, and what attackers reach.

    Attributes:
        name: the promise, such as ``"rows matched"``.
        promise: ``"rows"``, ``"draw"`` or ``"table"``.
        hides: what is protected, and from whom.
        success: largest success that is certified; infinite evidence is none.
        evidence: ``"theorem"``, ``"numerical"`` or ``"statistical"``.
        errors: (d,) standard deviations of the noise in the numbers; as those of ``sampling``,
            of counts and sums of the whole table where half of the rows are used.
        sampling: (d,) their standard deviations over pools and draws from them.
        clipping: (d,) how far the numbers of the rows within the declared bounds are from those of
            the rows as they are; 0 where nothing is clipped.
        unit: (d,) sampling errors of the numbers of the whole table, of ``noise`` and ``total``
            and the same for all promises.
        rows: how many rows the numbers are computed from, or persons where these are hidden.
        attacks: measured on simulated releases.
    """

    name: str
    promise: str
    hides: str
    success: float
    evidence: Evidence
    errors: Array = field(repr=False)
    sampling: Array = field(repr=False)
    clipping: Array = field(repr=False)
    unit: Array = field(repr=False)
    rows: int
    attacks: tuple[Attack, ...] = field(repr=False, default=())

    @property
    def noise(self) -> float:
        """Root mean square of the noise, in units of the whole table's sampling error."""
        return self._mean_size(self.errors)

    @property
    def total(self) -> float:
        """Root mean square of the totals, in the same units."""
        return self._mean_size(self.totals)

    @property
    def clipped(self) -> float:
        """Root mean square of what clipping adds, in the same units."""
        return self._mean_size(self.clipping)

    @property
    def totals(self) -> Array:
        """Noise, sampling error and clipping together, (d,): roots of sums of squares."""
        return np.hypot(np.hypot(self.errors, self.sampling), self.clipping)

    def _mean_size(self, errors: Array) -> float:
        live = self.unit > 0.0
        if not live.any():
            return 0.0
        return float(np.sqrt(np.mean(np.square(errors[live] / self.unit[live]))))

    def to_dict(self) -> dict[str, Any]:
        """Return a JSON-able description."""
        content: dict[str, Any] = codec.write(PromiseResult, self)
        return {**content, "noise": self.noise, "total": self.total}


@short_repr
@dataclass(frozen=True, eq=False, kw_only=True)
class Comparison:
    """The promises side by side, for the holder of the table: nothing was released.

    Attributes:
        query: what would be computed.
        names: d labels.
        success: asked of every promise.
        results: one for each promise.
        notes: which promises are missing and why.
        unit: what is hidden, such as a row or a person.
    """

    query: str
    names: tuple[str, ...]
    success: float
    results: tuple[PromiseResult, ...]
    notes: tuple[str, ...] = ()
    unit: str = "row"

    def to_dict(self) -> dict[str, Any]:
        """Return a description for strict JSON."""
        return ENVELOPE.closed(
            {
                "audience": KEPT.format("comparison"),
                "query": self.query,
                "names": list(self.names),
                "success": self.success,
                "unit": self.unit,
                "results": [result.to_dict() for result in self.results],
                "notes": list(self.notes),
            }
        )
