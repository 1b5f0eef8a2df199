"""Releases held against a checker that shares no code with what certified them."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tacit._ground.proof import Node
from tacit.documents import dumps
from tacit.releases.proof import PROOF, ReleaseProof, proof_of

HOLDS, FALSE, NOT_SHOWN, NOTHING = "holds", "false", "not shown", "not checkable"
# What is said of a file without the proof that its details give.
REMOVED = "its file holds no proof, though one follows from what it says"
# What takes more than a few seconds is checked where somebody asks, in a process apart.
LATER = "not checked yet"
# Products of so many numbers take a second, as do the splits of a sketch in so many dimensions.
MOST_WORK, MOST_SPLITS = 10_000_000, 4
# A checker in a process of its own takes its own limit and starts in less than the rest.
SECONDS = 90.0


@dataclass(frozen=True, kw_only=True)
class CheckerVerdict:
    """What the checker found.

    Attributes:
        word: "holds", "false", "not shown", "not checkable" or "refused".
        version: of the checker.
        lines: a sentence for every claim.
    """

    word: str
    version: str
    lines: tuple[str, ...] = ()

    @property
    def sentence(self) -> str:
        """What a page says of it."""
        if self.word in (NOTHING, LATER):
            return f"{self.word} by tacit_check {self.version}"
        return f"checked by tacit_check {self.version}: {self.word}"


def verify(release: Any) -> CheckerVerdict:
    """Return what the checker finds of a release, worked out in this process.

    Args:
        release: whose proof is checked.

    Example:
        >>> from tacit import Effort, Table, privatize
        >>> promise = Table(success=0.6, bounds=[(0.0, 1.0)])
        >>> verify(privatize("mean", [[0.2], [0.7]], promise, Effort(trials=0))).word
        'holds'
    """
    return verify_proof(proof_of(release))


def verify_proof(proof: ReleaseProof | None) -> CheckerVerdict:
    """Return what the checker finds of a proof that was made here, worked out in this process."""
    from tacit_check import VERSION
    from tacit_check.balls import RefusedFileError
    from tacit_check.claims import check
    from tacit_check.reading import parse

    if proof is None:
        return CheckerVerdict(word=NOTHING, version=VERSION)
    if _takes_long(proof.mechanism, proof.adjacency):
        return CheckerVerdict(word=LATER, version=VERSION)
    try:
        found = check(parse(dumps({PROOF: proof.to_dict()}).encode()))
    except RefusedFileError as error:
        return CheckerVerdict(word="refused", version=VERSION, lines=(str(error),))
    lines = tuple(f"{one.verdict}: {one.claim}" for one in found.verdicts)
    return CheckerVerdict(word=found.word, version=VERSION, lines=lines)


def verify_stated(proof: Mapping[str, Any] | None) -> CheckerVerdict:
    """Return what the checker finds of a proof from elsewhere, in a process that limits itself.

    Args:
        proof: as it stands in a file; None where there is none.
    """
    from tacit_check import VERSION

    if proof is None:
        return CheckerVerdict(word=NOTHING, version=VERSION)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "release.json"
        path.write_text(dumps({PROOF: dict(proof)}), encoding="utf-8")
        # a folder of files from elsewhere is no place of modules
        command = [sys.executable, "-P", "-m", "tacit_check", "--json", "--", str(path)]
        try:
            done = subprocess.run(command, capture_output=True, timeout=SECONDS, check=False)
            answer = json.loads(done.stdout)
        except (subprocess.TimeoutExpired, ValueError):
            return CheckerVerdict(word="refused", version=VERSION, lines=("needs too much time",))
    verdicts = answer["verdicts"]
    lines = tuple(f"{one['verdict']}: {one['claim']}" for one in verdicts) or (answer["why"],)
    return CheckerVerdict(word=answer["word"], version=answer["checker"], lines=lines)


def refuse_false(release: Any) -> None:
    """Refuse to let a release leave of which the checker proves a claim to be false.

    Raises:
        ArithmeticError: it does: an error of this library.
    """
    refuse_false_proof(proof_of(release))


def refuse_false_proof(proof: ReleaseProof | None) -> None:
    """Refuse to let out a proof of which the checker proves a claim to be false.

    Raises:
        ArithmeticError: as `refuse_false`.
    """
    found = verify_proof(proof)
    if found.word == FALSE:
        wrong = next(line for line in found.lines if line.startswith(FALSE))
        raise ArithmeticError(
            f"tacit_check {found.version} proves a claim to be wrong ({wrong}): nothing is "
            "released; this is an error of Tacit, please report it"
        )


def _takes_long(node: Node, adjacency: str, *, alone: bool = True) -> bool:
    """Whether a node, or one in it, needs many integrals, lattices or distances."""
    if node["kind"] in ("projection", "groups"):
        # one integral of one release, hundreds of several
        return not alone
    if node["kind"] == "random-allocation":
        # a lattice that is fine enough where there is little noise takes five seconds
        return 2.0 * float(node["sensitivity"]) ** 2 >= float(node["noise"]) ** 2
    if node["kind"] == "sketch":
        both = float(node["lowest"]) < 1.0 < float(node["highest"])
        return alone and both and int(node["dim"]) > MOST_SPLITS
    if node["kind"] == "boxes":
        rows = node["covariance"]
        moves = sum(len(part.get("listed", (part,))) for part in node["parts"])
        if adjacency == "replace":
            moves *= moves
        # zᵀ Σ⁻¹ z of each; of a diagonal one its numbers alone
        return moves * len(rows) * len(rows[0]) > MOST_WORK
    inner = [part["of"] for part in node.get("parts", ())]
    inner += [node["of"]] if "of" in node else []
    return any(_takes_long(one, adjacency, alone=False) for one in inner)
