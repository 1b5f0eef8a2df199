"""What the gate found: one value per threshold, one per release."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, kw_only=True)
class GateCheck:
    """One threshold: what was found beside what is allowed, and whether it holds."""

    name: str
    found: float | None
    allowed: float
    holds: bool
    sentence: str


@dataclass(frozen=True, kw_only=True)
class GateResult:
    """The outcome of every threshold asked for, and the reason where there is no guarantee."""

    passed: bool
    checks: tuple[GateCheck, ...]
    reproducible: bool

    def to_dict(self) -> dict[str, Any]:
        """Return a JSON-able dictionary; an infinite number is the text "infinity"."""
        return {
            "passed": self.passed,
            "reproducible": self.reproducible,
            "checks": [
                {name: _plain(value) for name, value in vars(check).items()}
                for check in self.checks
            ],
        }


def _plain(value: Any) -> Any:
    return "infinity" if isinstance(value, float) and value == float("inf") else value
