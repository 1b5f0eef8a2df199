"""Thresholds as values: given by name, or read from a file that a team keeps beside its code."""

from __future__ import annotations

import os
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any

from tacit._ground.checks import as_float, in_interval, integer, positive
from tacit._ground.files import read_bytes

SHARES = ("max_success", "max_attack", "max_inversion", "min_agreement")
MIN_CONFIDENCE = 0.99


@dataclass(frozen=True, kw_only=True)
class Policy:
    """What a release has to keep to.

    Attributes:
        max_factor: largest factor >= 1 by which releases may multiply any attacker's chance.
        max_nats: the same in nats, >= 0: its logarithm.
        max_success: largest success allowed, in (0, 1], under the law that the bound names.
        candidates: N >= 2: judge ``max_success`` at naming one of N equally likely secrets, by the
            factor; None for the game and the law of the stored bound.
        max_information: largest information allowed, in nats, > 0.
        max_attack: largest measured success allowed, in (0, 1].
        max_inversion: largest share of tokens that an inverter may read back, in (0, 1].
        min_agreement: least agreement allowed, in (0, 1]; where it was measured.
        max_kl: largest mean KL allowed, in nats, > 0; where it was measured.
        min_confidence: least confidence, in [0, 1), of every statistical guarantee judged.
        releases: T >= 1, releases about one secret in all.

    Raises:
        ValueError: a threshold is out of range.
    """

    max_factor: float | None = None
    max_nats: float | None = None
    max_success: float | None = None
    candidates: int | None = None
    max_information: float | None = None
    max_attack: float | None = None
    max_inversion: float | None = None
    min_agreement: float | None = None
    max_kl: float | None = None
    min_confidence: float = MIN_CONFIDENCE
    releases: int = 1

    def __post_init__(self) -> None:
        for name in SHARES:
            self._checked(name, lambda name, value: in_interval(name, value, 0, 1, open_low=True))
        for name in ("max_information", "max_kl"):
            self._checked(name, positive)
        self._checked("max_factor", _factor)
        self._checked("max_nats", lambda name, value: _factor(name, value, 0.0))
        self._checked("candidates", lambda name, value: integer(name, value, minimum=2))
        in_interval("min_confidence", self.min_confidence, 0, 1, open_high=True)
        integer("releases", self.releases, minimum=1)
        if self.candidates is not None and self.max_success is None:
            raise ValueError("candidates: expected max_success beside it, got none")

    def _checked(self, name: str, check: Any) -> None:
        if getattr(self, name) is not None:
            object.__setattr__(self, name, check(name, getattr(self, name)))

    @property
    def asked(self) -> dict[str, float]:
        """The thresholds set, by name, in the order in which they are judged."""
        return {name: getattr(self, name) for name in THRESHOLDS if getattr(self, name) is not None}

    def required(self) -> Policy:
        """Return the policy when it sets a threshold at all.

        Raises:
            ValueError: it sets none.
        """
        if not self.asked:
            listed = f"{', '.join(THRESHOLDS[:-1])} or {THRESHOLDS[-1]}"
            raise ValueError(f"max_factor: expected at least one threshold ({listed}), got none")
        return self


THRESHOLDS = tuple(
    each.name
    for each in fields(Policy)
    if each.name not in ("candidates", "min_confidence", "releases")
)


@dataclass(frozen=True)
class PolicyFile:
    """Thresholds for every release, and others for releases of some kinds.

    Attributes:
        every: thresholds by name, for every release.
        kinds: by the kind of a release, thresholds that replace or add to those.
    """

    every: Mapping[str, Any] = field(default_factory=dict)
    kinds: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)

    def given(self, thresholds: Mapping[str, Any]) -> PolicyFile:
        """Return the policy with thresholds for every release added.

        Raises:
            ValueError: the file sets one of them too, so that one would win unsaid.
        """
        for name in thresholds:
            if name in self.every or any(name in table for table in self.kinds.values()):
                raise ValueError(f"{name}: expected it in the policy or beside it, got both")
        return PolicyFile({**self.every, **thresholds}, self.kinds)

    def of(self, kind: str) -> Policy:
        """Return what a release of this kind has to keep to.

        Raises:
            ValueError: there is no threshold for it, or one is out of range.
        """
        policy = Policy(**{**self.every, **self.kinds.get(kind, {})})
        if not policy.asked and self.kinds:
            listed = ", ".join(self.kinds)
            raise ValueError(
                f"policy: expected a threshold for a release of kind {kind!r}, got them "
                f"for {listed}"
            )
        return policy.required()


def read_policy(path: str | os.PathLike[str]) -> PolicyFile:
    """Read thresholds from a TOML file: names as in `Policy`, tables named by kinds of releases.

    Args:
        path: the file.

    Returns:
        The thresholds, each checked.

    Raises:
        ValueError: the file cannot be read, is not TOML, or holds what is no threshold.

    Example:
        >>> import os, tempfile
        >>> path = os.path.join(tempfile.mkdtemp(), "policy.toml")
        >>> with open(path, "w") as file:
        ...     _ = file.write('max_attack = 0.6\\n[hidden-audit]\\nmax_factor = 1024\\n')
        >>> read_policy(path).of("hidden-audit").asked
        {'max_factor': 1024.0, 'max_attack': 0.6}
    """
    try:
        content = tomllib.loads(read_bytes("policy", path).decode("utf-8"))
    except (UnicodeDecodeError, tomllib.TOMLDecodeError, RecursionError) as error:
        raise ValueError(f"policy: {os.fspath(path)} is not TOML ({error})") from None
    kinds = {name: table for name, table in content.items() if isinstance(table, dict)}
    every = {name: value for name, value in content.items() if name not in kinds}
    for table in (every, *kinds.values()):
        _check_names(table)
    if not every and not any(kinds.values()):
        raise ValueError(f"policy: expected thresholds in {os.fspath(path)}, got none")
    found = PolicyFile(every, kinds)
    for table in (every, *({**every, **table} for table in kinds.values())):
        Policy(**table)
    return found


def _check_names(table: Mapping[str, Any]) -> None:
    known = [each.name for each in fields(Policy)]
    for name in table:
        if name not in known:
            raise ValueError(f"policy: expected one of {', '.join(known)}, got {name!r}")


def _factor(name: str, value: Any, least: float = 1.0) -> float:
    number = as_float(name, value)
    if not least <= number < float("inf"):
        raise ValueError(f"{name}: expected a finite number >= {least:g}, got {number!r}")
    return number
