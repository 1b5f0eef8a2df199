"""Several stored releases judged by one policy: a verdict for each, the worst for all."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from tacit.gate.checks import judge
from tacit.gate.outcome import GateResult
from tacit.gate.policy import PolicyFile
from tacit.releases.attack_file import AttackFile, attacked, is_attack
from tacit.releases.loading import Read, read_checked, read_release


@dataclass(frozen=True, kw_only=True)
class GateVerdict:
    """What became of one release: judged, or refused with a sentence.

    Attributes:
        release: its path.
        result: what was found; None where it could not be judged.
        refusal: why it could not be judged; empty where it was.
    """

    release: str
    result: GateResult | None
    refusal: str = ""

    @property
    def code(self) -> int:
        """Exit code: 0 for passed, 1 for crossed, 2 for refused."""
        return 2 if self.result is None else 0 if self.result.passed else 1

    @property
    def sentence(self) -> str:
        """The verdict in a line: the first of what is crossed, or what holds."""
        if self.result is None:
            return f"refused: {self.release}: {self.refusal}"
        if self.result.passed:
            held = "; ".join(check.sentence for check in self.result.checks)
            return f"passed: {self.release}: {held}"
        return f"crossed: {self.release}: {'; '.join(self.crossed)}"

    @property
    def crossed(self) -> tuple[str, ...]:
        """What speaks against the release, a sentence each."""
        if self.result is None:
            return (self.refusal,)
        seeded = "the release is reproducible (seeded), so it has no guarantee"
        found = [check.sentence for check in self.result.checks if not check.holds]
        return (*((seeded,) if self.result.reproducible else ()), *found)

    def to_dict(self) -> dict[str, Any]:
        """Return a JSON-able dictionary."""
        found = {} if self.result is None else self.result.to_dict()
        refusal = {"refusal": self.refusal} if self.refusal else {}
        return {"release": self.release, "code": self.code, **found, **refusal}


def check_releases(paths: Sequence[str], policy: PolicyFile) -> tuple[GateVerdict, ...]:
    """Judge stored releases, each by what the policy asks of its kind.

    An attack in a file of its own, as ``tacit hidden attack --json`` writes it, is judged with the
    release that has the states it was run on, and refused where none of those given has them.

    Args:
        paths: JSON files, or files of rows with their certificate.
        policy: the thresholds.

    Returns:
        One verdict per release, in order, and one per attack that is refused; a file that is no
        release is refused and the others judged.
    """
    found = [_read(path) for path in paths]
    attacks = [held for held in found if isinstance(held, AttackFile)]
    releases = [held.release for held in found if isinstance(held, Read)]
    verdicts = []
    for path, held in zip(paths, found, strict=True):
        if isinstance(held, Read):
            whole = replace(held, release=attacked(held.release, attacks))
            verdicts.append(_judged(path, whole, policy))
        elif isinstance(held, str):
            verdicts.append(GateVerdict(release=path, result=None, refusal=held))
        elif not any(held.is_on(release) for release in releases):
            verdicts.append(GateVerdict(release=path, result=None, refusal=held.refusal()))
    return tuple(verdicts)


def _read(path: str) -> Read | AttackFile | str:
    """Return the release or the attack in a file, or why it is neither."""
    try:
        content = read_release(path)
        if is_attack(content):
            return AttackFile.from_dict(content)
        return read_checked(path, content=content)
    except ValueError as error:
        return " ".join(str(error).split())


def _judged(path: str, found: Read, policy: PolicyFile) -> GateVerdict:
    try:
        return GateVerdict(release=path, result=judge(found, policy.of(found.release.kind)))
    except ValueError as error:
        return GateVerdict(release=path, result=None, refusal=" ".join(str(error).split()))
