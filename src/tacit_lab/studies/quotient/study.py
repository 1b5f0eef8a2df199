"""The rows of the study as releases: one entry each, with its readings, and comparisons of them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

# of the readings of one release, that of least KL under each protocol
PROTOCOLS = ("A", "B")
NAMES = {
    "codebook-euclidean": "codebook of states",
    "codebook-behaviour": "codebook of behaviours",
    "codebook-decision": "codebook, decisions guarded",
    "isotropic": "isotropic noise, denoised",
    "mahalanobis-optimal": "Mahalanobis-optimal noise, denoised",
    "clipped-state": "the clipped state, denoised",
    "quotient": "quotient of the state",
    "quotient-behaviour": "quotient of behaviours",
    "quotient-quiet": "quotient of the state, noise at release only",
    "quotient-behaviour-quiet": "quotient of behaviours, noise at release only",
    "quotient-leakage": "quotient of the state, by its factor",
    "quotient-behaviour-leakage": "quotient of behaviours, by its factor",
}


@dataclass(frozen=True)
class Released:
    """One release: what is certified, attacked, and the better reading under each protocol."""

    mechanism: str
    setting: str
    bound: float | None
    information: float | None
    factor_nats: float | None
    attack: tuple[float, float, float]
    use: dict[str, dict[str, Any]]

    @property
    def kind(self) -> str:
        """Its word, without numbers."""
        return self.mechanism.partition("(")[0]

    @property
    def numbers(self) -> list[float]:
        """Those in brackets."""
        inside = self.mechanism.partition("(")[2].rstrip(")")
        return [float(part) for part in inside.split(",")] if inside else []

    @property
    def group(self) -> str:
        """Releases that differ in their level alone; k and the penalties tell groups apart."""
        held = self.numbers
        return self.kind if len(held) < 2 else f"{self.kind} {held[0]:g} {held[2:]}"

    @property
    def title(self) -> str:
        """What it is in words."""
        held, name = self.numbers, NAMES.get(self.kind, self.kind)
        if len(held) < 2:
            return f"{name}, {self.setting}" if self.setting else name
        weights = [*held[3:5], 0.0, 0.0]
        more = f", β = {weights[0]:g}" if weights[0] else ""
        more += f", γ = {weights[1]:g}" if weights[1] else ""
        return f"{name}, k = {held[0]:g}{more}"

    def agreement(self, protocol: str) -> list[float]:
        """Share of next tokens that stay the same, with its interval."""
        found: list[float] = self.use[protocol]["agreement"]
        return found

    def kl(self, protocol: str) -> list[float]:
        """Mean KL in nats, with its interval."""
        found: list[float] = self.use[protocol]["kl"]
        return found


def releases(rows: Iterable[dict[str, Any]]) -> list[Released]:
    """Return one entry a release, in order; noise read raw is left out."""
    grouped: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for row in rows:
        if row["reading"] != "raw":
            grouped.setdefault((row["mechanism"], row["setting"]), []).append(row)
    return [
        Released(
            mechanism, setting, held[0]["bound"], held[0]["information"], held[0]["factor_nats"],
            tuple(held[0]["attack"]),
            {protocol: min((row for row in held if row["protocol"] == protocol),
                           key=lambda row: row["kl"][0]) for protocol in PROTOCOLS},
        )
        for (mechanism, setting), held in grouped.items()
    ]  # fmt: skip


def certified_at(found: Sequence[Released], nats: float) -> list[Released]:
    """Return what is certified at the level of the comparison, in either sense."""
    near = 0.01
    return [
        release
        for release in found
        if any(
            told is not None and abs(told - nats) < near
            for told in (release.information, release.factor_nats)
        )
    ]


def at_attack(found: Iterable[Released], attack: float, protocol: str) -> dict[str, float] | None:
    """Interpolate linearly between levels of one group; None outside of what was measured."""
    ordered = sorted(found, key=lambda release: release.attack[0])
    for left, right in pairwise(ordered):
        if left.attack[0] <= attack <= right.attack[0] and left.attack[0] < right.attack[0]:
            share = (attack - left.attack[0]) / (right.attack[0] - left.attack[0])
            return {
                name: (1 - share) * getattr(left, name)(protocol)[0]
                + share * getattr(right, name)(protocol)[0]
                for name in ("agreement", "kl")
            }
    return None


def groups(found: Iterable[Released]) -> dict[str, list[Released]]:
    """Return the releases of every group."""
    held: dict[str, list[Released]] = {}
    for release in found:
        held.setdefault(release.group, []).append(release)
    return held
