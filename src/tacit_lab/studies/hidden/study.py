"""The rows of a result by what is asked of them."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

from tacit_lab.studies.hidden.equal import Equal, at_kl
from tacit_lab.studies.hidden.measure import DENOISED
from tacit_lab.studies.hidden.rows import NoiseRow, unpacked


@dataclass(frozen=True)
class HiddenStudy:
    """The rows of a result, by what is asked of them."""

    result: dict[str, Any]

    @cached_property
    def rows(self) -> list[NoiseRow]:
        """All rows."""
        return unpacked(self.result)

    @property
    def layers(self) -> list[dict[str, Any]]:
        """What the geometry of each layer says."""
        facts: list[dict[str, Any]] = self.result["layers"]
        return facts

    @cached_property
    def budgeted(self) -> list[NoiseRow]:
        """Noise at a budget K, by whatever reading."""
        return [row for row in self.rows if row.kind == "kl"]

    @property
    def raw(self) -> list[NoiseRow]:
        """Of these, states read as they come."""
        return [row for row in self.budgeted if row.reading == "raw"]

    @property
    def denoised(self) -> list[NoiseRow]:
        """Of these, states that the consumer denoised."""
        return [row for row in self.budgeted if row.reading == DENOISED]

    @property
    def books(self) -> list[NoiseRow]:
        """Codebooks under protocol A."""
        return [row for row in self.rows if row.kind == "codewords" and row.protocol == "A"]

    def curve(self, layer: int, mechanism: str, reading: str = "raw") -> list[NoiseRow]:
        """Rows of one mechanism on one layer."""
        return [
            row
            for row in self.budgeted
            if (row.layer, row.mechanism, row.reading) == (layer, mechanism, reading)
        ]

    def equal(self, layer: int, mechanism: str, kl: float, reading: str = "raw") -> Equal | None:
        """Return what a mechanism gives away where it costs so much KL, measured."""
        return at_kl(self.curve(layer, mechanism, reading), kl)

    def pairs(self, mechanism: str) -> list[tuple[int, float, Equal, Equal]]:
        """Return (layer, KL, the mechanism, isotropic noise) wherever both were measured."""
        found = []
        for facts in self.layers:
            for kl in self.result["targets"]:
                own = self.equal(facts["layer"], mechanism, kl)
                other = self.equal(facts["layer"], "isotropic", kl)
                if own is not None and other is not None:
                    found.append((facts["layer"], kl, own, other))
        return found

    @cached_property
    def family(self) -> dict[float, str]:
        """The diagonal family: exponent α of diag(F)^−α and the mechanism's name."""
        names = {row.mechanism for row in self.raw}
        powers = {float(name[6:-1]): name for name in names if name.startswith("power(")}
        return dict(sorted({0.0: "isotropic", 1.0: "inverse-fisher-diagonal", **powers}.items()))

    def best_signal(self, layer: int) -> float | None:
        """The exponent whose worst nearest pair is least distinguishable, at the same K."""
        levels = [
            {row.level: row.nearest for row in self.curve(layer, name)}
            for name in self.family.values()
        ]
        shared = set.intersection(*(set(level) for level in levels)) if levels else set()
        if not shared:
            return None
        # ε is proportional to 1/K for every design, so that any K shows the same order
        budget = max(shared)
        signals = [level[budget] for level in levels]
        return list(self.family)[min(range(len(signals)), key=lambda i: signals[i] or 0.0)]

    def attacks(self, layer: int, kl: float) -> dict[float, Equal]:
        """Return the attack by exponent at the same measured KL."""
        found = {alpha: self.equal(layer, name, kl) for alpha, name in self.family.items()}
        return {alpha: equal for alpha, equal in found.items() if equal is not None}

    def best_attack(self, layer: int, kl: float) -> float | None:
        """The exponent of the least attack at the same measured KL."""
        found = self.attacks(layer, kl)
        return min(found, key=lambda alpha: found[alpha].attack) if found else None
