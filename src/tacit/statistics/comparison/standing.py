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
        errors: (d,) standard deviations of the noise in the numbers.
        sampling: (d,) their standard deviations over pools and draws from them.
        independent: (d,) those over as many independent rows, the unit of ``noise``.
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
    independent: Array = field(repr=False)
    rows: int
    attacks: tuple[MembershipAttack, ...] = field(repr=False, default=())

    @property
    def noise(self) -> float:
        """Root mean square of the noise, in units of the sampling error of independent rows."""
        live = self.independent > 0.0
        if not live.any():
            return 0.0
        return float(np.sqrt(np.mean(np.square(self.errors[live] / self.independent[live]))))

    @property
    def totals(self) -> Array:
        """Noise and sampling error together, (d,)."""
        return np.hypot(self.errors, self.sampling)

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
            "independent": self.independent.tolist(),
            "rows": self.rows,
            "noise": self.noise,
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
                "query": self.query,
                "names": list(self.names),
                "success": self.success,
                "standings": [standing.to_dict() for standing in self.standings],
                "notes": list(self.notes),
            }
        )
