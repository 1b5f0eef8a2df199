"""Codes as a release: what is promised of them, how it is worked out again, and their file."""

from __future__ import annotations

import hashlib
import math
from dataclasses import field, replace
from typing import Annotated, Any, ClassVar

import numpy as np
import numpy.typing as npt

from tacit._ground.checks import integer
from tacit._ground.frozen import array_value
from tacit.codec import APART
from tacit.guarantees import MaximalLeakage
from tacit.guarantees.base import Guarantee
from tacit.hidden_states.codebooks.certificates import (
    PROMPT,
    SECRET,
    code_type,
    codes_leakage,
    information,
)
from tacit.hidden_states.codebooks.methods import REPORTED, PromptCodes
from tacit.hidden_states.codebooks.response import (
    LEAKAGE_FORMULA,
    local_privacy,
    reported_assumptions,
    reported_leakage,
)
from tacit.hidden_states.origin import check_digests
from tacit.releases import Kind, Release
from tacit.releases.promises import ROW
from tacit.releases.recompute import LOGARITHM, check_stated
from tacit.releases.stores import Layout, RowDetails, check_rows
from tacit.releases.vectors import VectorBlocks, Vectors

KIND = "hidden-codes"
CODEBOOK = "codebook"
NO_DIGEST_OF_STATES = (
    "no digest of the states or prompts is stored: it would tell about them beside the {}"
)


def guarantees_of(sizes: tuple[int, ...], promise: PromptCodes) -> tuple[Guarantee, ...]:
    """Return the theorems about T codes of one prompt, that for every prior first.

    Args:
        sizes: cells of every part of a code.
        promise: T, and ε where codes are randomised.
    """
    times, epsilon = promise.releases, promise.epsilon
    if epsilon is None:
        # ln Π_j C_j per code
        told = codes_leakage(math.prod(sizes), times), information(sizes, times)
        return tuple(worded_as(one, promise) for one in told)
    leakage = MaximalLeakage(
        # T reports of one prompt multiply their factors
        nats=reported_leakage(sizes, epsilon, near=promise.near) * times,
        secret=PROMPT,
        releases=times,
        evidence="theorem",
        assumptions=reported_assumptions(times),
        source=LEAKAGE_FORMULA,
    )
    found = leakage, information(sizes, times, leakage), local_privacy(epsilon, times)
    return tuple(worded_as(one, promise) for one in found)


def worded_as(held: Guarantee, promise: PromptCodes) -> Guarantee:
    """Return a guarantee about prompts as one about what the promise calls them."""
    if promise.unit is None:
        return held
    words = {
        name: promise.worded(getattr(held, name))
        for name in ("secret", "adjacency")
        if hasattr(held, name)
    }
    if words.get("secret") == promise.worded(SECRET):
        words["secret"] = secret_of(promise)
    # every kind of guarantee has assumptions, and those with a secret or neighbours name them so
    changed: Any = {**words, "assumptions": tuple(map(promise.worded, held.assumptions))}
    return replace(held, **changed)


def secret_of(promise: PromptCodes) -> str:
    """Return what is hidden: what a row was made of."""
    return "what a row holds" if promise.unit == ROW else promise.worded(SECRET)


@array_value(kw_only=True)
class CodeRows(RowDetails):
    """Codes that were released, one for every row.

    Attributes:
        rows: n.
        sizes: cells of every part of a code, m of them.
        promise: what they tell about one prompt at most.
        codes: (n, m); None where they stand in a file alone.
    """

    tensor: ClassVar[str] = "codes"
    decoder: ClassVar[str] = "the codebook"

    rows: int
    sizes: tuple[int, ...]
    promise: PromptCodes
    codes: Annotated[npt.NDArray[np.uint32] | None, APART] = field(default=None)

    def __post_init__(self) -> None:
        integer("rows", self.rows, minimum=1)
        if not self.sizes:
            raise ValueError("sizes: expected the cells of one part or more, got none")
        for size in self.sizes:
            integer("sizes", size, minimum=1, maximum=None)

    @property
    def layout(self) -> Layout:
        return Layout(self.tensor, (self.rows, len(self.sizes)), code_type(self.sizes))

    def check(self, rows: Vectors) -> None:
        """Refuse codes that are none of those counted."""
        if (rows >= np.array(self.sizes)).any():
            raise ValueError("its codes are not of the cells it certifies")

    def check_decoded(self, rows: VectorBlocks) -> None:
        """Refuse more vectors than there are codes: Π_j C_j at most."""
        super().check_decoded(rows)
        most, seen = math.prod(self.sizes), set[bytes]()
        if most >= self.rows:
            return
        for part in rows.blocks():
            seen |= {hashlib.blake2b(row.tobytes(), digest_size=16).digest() for row in part}
            if len(seen) > most:
                raise ValueError(f"its rows are more vectors than its {most:,} codes stand for")


def title_of(details: CodeRows, method: str) -> str:
    """Return what was released."""
    return f"{details.rows:,} codes, {method}"


def notes_of(promise: PromptCodes) -> tuple[str, ...]:
    """Return what a reader of codes should know."""
    times = promise.releases
    unit = {None: "prompt", ROW: "record"}.get(promise.unit, promise.unit)
    one = "one code per row" if times == 1 else f"up to {times} rows a {unit}"
    return (
        f"{one}: what T rows or releases about one {unit} tell adds up to T times the nats of one "
        "code, and their factors multiply. Rows about one person count likewise, however they are "
        "worded",
        NO_DIGEST_OF_STATES.format("codes"),
    )


def recompute(release: Release[CodeRows]) -> str:
    """Hold a release of codes against the number of codes there are, and against ε.

    Raises:
        ValueError: guarantees, words or digests that these do not give.
    """
    details = release.details
    promise = details.promise
    # the words of the code come first, then those of the promise
    code = release.method.partition(REPORTED)[0]
    if release.method != promise.words(code):
        raise ValueError("the method names another ε of randomised response than the promise")
    told = release.title, release.secret, release.notes
    if told != (title_of(details, release.method), secret_of(promise), notes_of(promise)):
        raise ValueError("its details give another title, secret or notes")
    # reports are drawn in steps of 2⁻⁵³, which shows in T small nats: hence the absolute part
    slack = LOGARITHM * promise.releases
    check_stated(release, guarantees_of(details.sizes, promise), slack=slack)
    check_digests(release, (CodeRows.tensor, CODEBOOK))
    return ""


CODES = Kind(
    name=KIND,
    details=CodeRows,
    recompute=recompute,
    rows=check_rows,
    proof="tacit.hidden_states.codebooks.proof:proof",
    record="what one row of the file was made of: a prompt, a text or a vector",
)
