"""Thresholds as values: given by name, or read from a file that a team keeps beside its code."""

from __future__ import annotations

import os
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Annotated, Any, TypeAlias

from tacit._ground.checks import choice
from tacit._ground.files import read_bytes
from tacit._ground.values import Count, Flag, NonNegative, Positive, Within, value
from tacit.releases.kinds import known_kinds

MIN_CONFIDENCE = 0.99
AtMostOne: TypeAlias = Annotated[float, Within(0, 1, "(]")]


@value
class Policy:
    """What a release has to keep to.

    Args:
        verified: Ask that tacit_check proves every claim, from the file alone.
        max_factor: Largest factor on any attacker's chance, for every prior.
        max_nats: Largest maximal leakage in nats: ln of that factor.
        max_success: Largest success bound under the law (distribution) it names.
        candidates: Number N of equally likely secrets: max_success then limits the chance of naming
            the right one, from the factor.
        max_epsilon: Largest ε of (ε, δ)-differential privacy, read beside delta.
        delta: δ at which max_epsilon is judged; 0 for pure differential privacy.
        max_information: Largest information bound allowed, in nats.
        max_attack: Largest measured attack allowed (upper end of its interval).
        max_inversion: Largest share of tokens read back by an inverter (upper end of its interval).
        min_agreement: Least agreement an audit's release keeps (lower end of its interval).
        max_kl: Largest KL of an audit's release (upper end of its interval), in nats.
        min_confidence: Least confidence of guarantees that rest on samples.
        releases: T: releases about one secret in all.

    Raises:
        ValueError: a threshold is out of range.

    Example:
        >>> Policy(max_success=0.6).asked
        {'max_success': 0.6}
    """

    verified: Annotated[bool, Flag("--verify")] = False
    max_factor: Annotated[float, Within(1, ends="[)")] | None = None
    max_nats: NonNegative | None = None
    max_success: AtMostOne | None = None
    candidates: Annotated[int, Within(2, ends="[)")] | None = None
    max_epsilon: Positive | None = None
    delta: Annotated[float, Within(0, 1, "[)")] = 0.0
    max_information: Positive | None = None
    max_attack: AtMostOne | None = None
    max_inversion: AtMostOne | None = None
    min_agreement: AtMostOne | None = None
    max_kl: Positive | None = None
    min_confidence: Annotated[float, Within(0, 1, "[)")] = MIN_CONFIDENCE
    releases: Count = 1

    def _together(self) -> None:
        if self.candidates is not None and self.max_success is None:
            raise ValueError("candidates: expected max_success beside it, got none")
        if self.delta and self.max_epsilon is None:
            raise ValueError("delta: expected max_epsilon beside it, got none")

    @property
    def asked(self) -> dict[str, float]:
        """The thresholds set, by name, in the order in which they are judged."""
        set_here = {name: getattr(self, name) for name in THRESHOLDS}
        # 0 is a limit, though it equals False
        return {
            name: limit
            for name, limit in set_here.items()
            if limit is not None and limit is not False
        }

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
    if each.name not in ("candidates", "delta", "min_confidence", "releases")
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
            ValueError: the file sets one of them too, so that one would win unsaid, or sets what
                one of them would loosen.
        """
        for name in thresholds:
            if name in self.every or any(name in table for table in self.kinds.values()):
                raise ValueError(f"{name}: expected it in the policy or beside it, got both")
        least = thresholds.get("min_confidence", MIN_CONFIDENCE)
        if least < MIN_CONFIDENCE and (self.every or self.kinds):
            raise ValueError(
                f"min_confidence: expected at least {MIN_CONFIDENCE}, or less in the policy, whose "
                f"thresholds it would loosen, got {least!r} beside it"
            )
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
        ...     _ = file.write('max_attack = 0.7\\n[statistic-rows]\\nmax_success = 0.6\\n')
        >>> read_policy(path).of("statistic-rows").asked
        {'max_success': 0.6, 'max_attack': 0.7}
    """
    try:
        content = tomllib.loads(read_bytes("policy", path).decode("utf-8"))
    except (UnicodeDecodeError, tomllib.TOMLDecodeError, RecursionError) as error:
        raise ValueError(f"policy: {os.fspath(path)} is not TOML ({error})") from None
    kinds = {name: table for name, table in content.items() if isinstance(table, dict)}
    every = {name: value for name, value in content.items() if name not in kinds}
    for name in kinds:
        # thresholds for a kind that no release has would be skipped unsaid
        choice("policy", name, sorted(known_kinds()))
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
