"""Covariances read back from their descriptions."""

from __future__ import annotations

from typing import Any

from tacit._ground.reprs import shown
from tacit.covariance.base import Covariance
from tacit.covariance.full import Dense, Diagonal, Isotropic
from tacit.covariance.low_rank import Factored, LowRank


def covariance_from_dict(description: Any) -> Covariance:
    """Return the covariance that ``Covariance.to_dict`` described.

    Raises:
        ValueError: the description is not a mapping with a known ``type`` and its fields.

    Example:
        >>> covariance_from_dict({"type": "isotropic", "variance": 2.0, "dim": 3}).trace()
        6.0
    """
    kinds: dict[str, type[Covariance]] = {
        c.kind: c for c in (Isotropic, Diagonal, LowRank, Dense, Factored)
    }
    found = description.get("type") if isinstance(description, dict) else description
    if not isinstance(description, dict) or not isinstance(found, str) or found not in kinds:
        raise ValueError(f"description: expected a type among {sorted(kinds)}, got {shown(found)}")
    fields = {key: value for key, value in description.items() if key != "type"}
    try:
        return kinds[description["type"]](**fields)
    except TypeError as error:
        raise ValueError(
            f"description: fields do not fit {description['type']!r}: {error}"
        ) from None
