"""An attack in a file of its own, matched with the release that it is on by its digest."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from tacit import codec
from tacit.documents import Envelope
from tacit.guarantees.base import text
from tacit.releases.recompute import check_interval
from tacit.releases.release import Attack, Release

ENVELOPE = Envelope("tacit.attack", 1)


@dataclass(frozen=True, kw_only=True)
class AttackFile:
    """What an attack on one release reached, and what else was measured.

    Attributes:
        about: what was attacked, as the release's digests name it.
        digest: its SHA-256.
        attack: what it reached.
        measured: further numbers, by name.
    """

    about: str
    digest: str
    attack: Attack
    measured: Mapping[str, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        text("about", self.about)
        text("digest", self.digest)
        check_interval("attack", self.attack)

    def is_on(self, release: Release[Any]) -> bool:
        """Whether a release is the one attacked."""
        return (self.about, self.digest) in release.digests

    def refusal(self) -> str:
        """Say that no release given is the one attacked."""
        return (
            f"release: an attack on {self.about} of SHA-256 {self.digest[:12]}…, which no release "
            "given beside it has"
        )

    def to_dict(self) -> dict[str, Any]:
        """Return what strict JSON holds of it."""
        return ENVELOPE.closed(codec.write(AttackFile, self))

    @staticmethod
    def from_dict(content: Any) -> AttackFile:
        """Return the attack that ``to_dict`` described.

        Raises:
            ValueError: a field is missing, unknown or out of range.
        """
        found: AttackFile = codec.read(AttackFile, ENVELOPE.fields("attack", content), "attack")
        return found


def is_attack(content: Any) -> bool:
    """Whether the content of a file says that it is an attack's."""
    return isinstance(content, Mapping) and content.get("format") == ENVELOPE.format


def attacked(release: Release[Any], attacks: Sequence[AttackFile]) -> Release[Any]:
    """Return a release with the attacks that were run on it beside its own."""
    own = tuple(held.attack for held in attacks if held.is_on(release))
    return replace(release, attacks=(*release.attacks, *own)) if own else release
