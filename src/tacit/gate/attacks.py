"""Attacks in files of their own, matched with the release that they are on by its digest."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from tacit._ground.checks import in_interval, integer
from tacit._ground.files import spelled
from tacit._ground.reprs import shown
from tacit.attacks.intervals import least_upper_end
from tacit.documents import MALFORMED, read
from tacit.hidden_states.codebooks.certificates import naming
from tacit.measured import Interval
from tacit.releases import Attack, Form
from tacit.releases.stores import is_store

# what the JSON of ``tacit hidden attack`` has and no release has
FIELDS = {"released", "origin", "top1", "top1_interval", "metric", "queries", "bank"}
DIGEST = "released states"
# by how much an end may differ when it is worked out on another machine
ROUNDING = 1e-9


@dataclass(frozen=True, kw_only=True)
class StoredAttack:
    """An attack on released states.

    Attributes:
        released: SHA-256 of the states.
        attack: what it reached.
    """

    released: str
    attack: Attack

    def is_on(self, form: Form) -> bool:
        """Whether a release has the states that were attacked."""
        return (DIGEST, self.released) in form.digests

    def refusal(self) -> str:
        """Say that no release given is the one attacked."""
        return (
            f"release: an attack on states of SHA-256 {self.released[:12]}…, which no release "
            "given beside it has"
        )


def read_attack(path: Any) -> StoredAttack | None:
    """Return the attack in a file of JSON; None where the file holds something else.

    Raises:
        ValueError: it cannot be read, or a field of an attack is malformed.
    """
    if is_store(Path(spelled("release", path))):
        return None
    content = read("release", path)
    if not isinstance(content, Mapping) or not set(content) >= FIELDS or "form" in content:
        return None
    try:
        low, high = content["top1_interval"]
        bank = integer("bank", content["bank"], minimum=2)
        found = Attack(
            name=_text("metric", content["metric"]),
            task=naming(bank),
            success=Interval(
                in_interval("top1", content["top1"], 0.0, 1.0),
                in_interval("top1_interval", low, 0.0, 1.0),
                in_interval("top1_interval", high, 0.0, 1.0),
                in_interval("confidence", content["confidence"], 0.0, 1.0),
            ),
            prior=1.0 / bank,
            trials=integer("queries", content["queries"], minimum=1),
        )
        level = found.success.confidence
        assert level is not None
        least = least_upper_end(found.success.value, found.trials, level)
        if found.success.high < least * (1.0 - ROUNDING):
            raise ValueError(
                f"top1_interval: {found.trials} queries give an upper end of {least:.6g} at least, "
                f"got {found.success.high:.6g}"
            )
        return StoredAttack(released=_text("released", content["released"]), attack=found)
    except (ValueError, *MALFORMED) as error:
        raise ValueError(f"release: a field of an attack is malformed: {error}") from None


def _text(name: str, given: Any) -> str:
    if not isinstance(given, str) or not given:
        raise ValueError(f"{name}: expected text, got {shown(given)}")
    return given


def attacked(form: Form, attacks: Sequence[StoredAttack]) -> Form:
    """Return a release with the attacks that were run on it beside its own."""
    own = tuple(held.attack for held in attacks if held.is_on(form))
    return replace(form, attacks=(*form.attacks, *own)) if own else form
