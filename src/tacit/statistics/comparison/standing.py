"""One promise beside the others, and all of them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from tacit._ground.checks import Array
from tacit._ground.frozen import read_only
from tacit._ground.reprs import short_repr
from tacit.attacks import MembershipAttack
from tacit.documents import Envelope
from tacit.releases.provenance import KEPT

ENVELOPE = Envelope("tacit.statistic.comparison", 1)


@short_repr
@read_only
@dataclass(frozen=True, eq=False, kw_only=True)
class Standing:
    """What one promise hides, what its noise costs, and what attackers reach.

    Attributes:
        name: the promise, such as ``"rows matched"``.
        protect: ``"rows"``, ``"draw"`` or ``"table"``.
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
        rows: how many rows the numbers are computed from.
        attacks: measured on simulated releases.
    """

    name: str
    protect: str
    hides: str
    success: float
    evidence: str
    errors: Array = field(repr=False)
    sampling: Array = field(repr=False)
    clipping: Array = field(repr=False)
    unit: Array = field(repr=False)
    rows: int
    attacks: tuple[MembershipAttack, ...] = field(repr=False, default=())

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
        return {
            "name": self.name,
            "protect": self.protect,
            "hides": self.hides,
            "success": self.success,
            "evidence": self.evidence,
            "errors": self.errors.tolist(),
            "sampling": self.sampling.tolist(),
            "clipping": self.clipping.tolist(),
            "unit": self.unit.tolist(),
            "rows": self.rows,
            "noise": self.noise,
            "total": self.total,
            "attacks": [attack.to_dict() for attack in self.attacks],
        }


@short_repr
@dataclass(frozen=True, eq=False, kw_only=True)
class Comparison:
    """The promises side by side, for the holder of the table: nothing was released.

    Attributes:
        query: what would be computed.
        names: d labels.
        success: asked of every promise.
        standings: one for each promise.
        notes: which promises are missing and why.
    """

    query: str
    names: tuple[str, ...]
    success: float
    standings: tuple[Standing, ...]
    notes: tuple[str, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """Return a description for strict JSON."""
        return ENVELOPE.closed(
            {
                "audience": KEPT.format("comparison"),
                "query": self.query,
                "names": list(self.names),
                "success": self.success,
                "standings": [standing.to_dict() for standing in self.standings],
                "notes": list(self.notes),
            }
        )
