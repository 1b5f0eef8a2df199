"""A file of codes that was released, as a value."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

import numpy.typing as npt

from tacit._ground.checks import integer
from tacit._ground.frozen import read_only
from tacit._ground.reprs import short_repr
from tacit.documents import check_known
from tacit.guarantees import ApproximateDP, MaximalLeakage, guarantee_from_dict
from tacit.guarantees.base import Guarantee
from tacit.hidden_states.codebooks.certificates import PROMPT, codes_leakage
from tacit.hidden_states.codebooks.counting import SECRET, information
from tacit.hidden_states.codebooks.randomised_parts import reported_leakage
from tacit.hidden_states.codebooks.response import (
    LEAKAGE_FORMULA,
    local_privacy,
    reported_assumptions,
)
from tacit.hidden_states.origin import pairs_from
from tacit.releases.form import Form, Release

FORMAT = "tacit.codes"
FORMAT_VERSION = 1
CODES = "codes"
# by how much the same bound may differ when it is worked out on another machine
ROUNDING = 1e-12
REPORTED = ", reported by randomised response at ε = "
NO_DIGEST_OF_STATES = (
    "no digest of the states or prompts is stored: it would tell about them beside the codes"
)


@short_repr
@read_only
@dataclass(frozen=True, kw_only=True, eq=False)
class EncodedCodes(Release):
    """A file of codes that was released, and what is certified of it.

    Attributes:
        path: the file; None for codes in memory.
        rows: n.
        sizes: cells of every part of a code.
        releases: T, rows of the file about one prompt at most.
        near: k of randomised response over the codes; 1 without.
        guarantees: of the T rows about one prompt.
        digest: SHA-256 of the codes, little-endian in row order.
        codebook: SHA-256 of the codebook.
        method: what a code says.
        origin: (what, digest) of the model and the public prompts of the codebook.
        created: time of the draw, ISO 8601, UTC.
        codes: (n, m), for codes in memory.
    """

    path: Path | None
    rows: int
    sizes: tuple[int, ...]
    releases: int
    near: int
    guarantees: tuple[Guarantee, ...]
    digest: str
    codebook: str
    method: str
    origin: tuple[tuple[str, str], ...]
    created: str
    codes: npt.NDArray[Any] | None = field(default=None, repr=False)

    FORMAT = FORMAT

    @property
    def form(self) -> Form:
        """The release as report, gate, ledger and commands read it."""
        one = "one code per row" if self.releases == 1 else f"up to {self.releases} rows a prompt"
        return Form(
            kind="hidden-codes",
            title=f"{self.rows:,} codes, {self.method}",
            secret=SECRET,
            method=self.method,
            guarantees=self.guarantees,
            digests=((CODES, self.digest), ("codebook", self.codebook), *self.origin),
            notes=(
                f"{one}: what T rows or releases about one prompt tell adds up to T times the nats "
                "of one code, and their factors multiply; rows about one person count likewise, "
                "however they are worded",
                NO_DIGEST_OF_STATES,
            ),
            publishable=("guarantees", "digest", "codebook", "created"),
            reproducible=False,
            created=self.created,
        )

    def to_dict(self) -> dict[str, Any]:
        """Return what stands in the file beside the codes."""
        return {
            "format": FORMAT,
            "version": FORMAT_VERSION,
            "rows": self.rows,
            "sizes": list(self.sizes),
            "releases": self.releases,
            "near": self.near,
            "tensor": CODES,
            "digest": self.digest,
            "codebook": self.codebook,
            "guarantees": [held.to_dict() for held in self.guarantees],
            "method": self.method,
            "origin": [list(pair) for pair in self.origin],
            "created": self.created,
            "form": self.form.to_dict(),
        }

    @classmethod
    def from_dict(cls, content: Mapping[str, Any], path: Path | None = None) -> Self:
        """Return what ``to_dict`` described.

        Raises:
            ValueError: it is no file of codes, or a field is missing or malformed.
        """
        if content.get("format") != FORMAT or content.get("version") != FORMAT_VERSION:
            raise ValueError(
                f"codes: expected format {FORMAT!r} of version {FORMAT_VERSION}, got "
                f"{content.get('format')!r} of version {content.get('version')!r}"
            )
        try:
            found = cls(
                path=path,
                rows=integer("codes.rows", content["rows"], minimum=1),
                sizes=_sizes(content["sizes"]),
                releases=integer("codes.releases", content["releases"], minimum=1),
                near=integer("codes.near", content["near"], minimum=1),
                guarantees=tuple(guarantee_from_dict(held) for held in content["guarantees"]),
                digest=str(content["digest"]),
                codebook=str(content["codebook"]),
                method=str(content["method"]),
                origin=pairs_from("codes.origin", content["origin"]),
                created=str(content["created"]),
            )
        except (KeyError, TypeError) as error:
            raise ValueError(f"codes: a field is missing or malformed: {error!r}") from None
        found._check_guarantees()
        # of a store that was decoded, the digest of its vectors stands beside it
        check_known("codes", content, found.to_dict(), beside=("provenance", "decoded"))
        return found

    def _check_guarantees(self) -> None:
        """Refuse guarantees other than those that the number of codes, and ε, give."""
        private = [held for held in self.guarantees if isinstance(held, ApproximateDP)]
        if not private and self.near != 1:
            raise ValueError(f"codes.near: expected 1 without randomised response, got {self.near}")
        epsilon = private[0].epsilon / self.releases if private else None
        expected = _expected(self.sizes, self.releases, epsilon, self.near)
        if [type(held) for held in self.guarantees] != [type(held) for held in expected]:
            raise ValueError("codes: expected the guarantees of a file of codes, got others")
        for held, right in zip(self.guarantees, expected, strict=True):
            _check_alike(held, right, self.releases)
        told = self.method.partition(REPORTED)[2]
        if not _says(told, epsilon):
            raise ValueError(
                "codes: the method names another ε of randomised response than the guarantees"
            )


def _sizes(content: Any) -> tuple[int, ...]:
    found = tuple(integer("codes.sizes", size, minimum=1) for size in content)
    if not found:
        raise ValueError("codes.sizes: expected the cells of one part or more, got none")
    return found


def reported_words(words: str, epsilon: float) -> str:
    """Say that what these words name is reported by randomised response.

    Example:
        >>> reported_words("a cell", 2.0)
        'a cell, reported by randomised response at ε = 2'
    """
    return f"{words}{REPORTED}{epsilon:g}"


def _says(told: str, epsilon: float | None) -> bool:
    """Whether an ε was written as `reported_words` writes it: six digits, or none for none."""
    if epsilon is None or not told:
        return epsilon is None and not told
    try:
        return math.isclose(float(told), epsilon, rel_tol=1e-5)
    except ValueError:
        return False


def _expected(
    sizes: tuple[int, ...], releases: int, epsilon: float | None, near: int
) -> tuple[Guarantee, ...]:
    told = information(sizes, releases, epsilon)
    if epsilon is None:
        return codes_leakage(math.prod(sizes), releases), told
    leakage = MaximalLeakage(
        nats=reported_leakage(sizes, epsilon, near=near) * releases,
        secret=PROMPT,
        releases=releases,
        evidence="theorem",
        assumptions=reported_assumptions(releases),
        source=LEAKAGE_FORMULA,
    )
    return leakage, told, local_privacy(epsilon, releases)


def _check_alike(held: Any, right: Any, releases: int) -> None:
    """Refuse a guarantee that is of something else, rests on less, or has another number."""
    for name in ("secret", "releases", "adjacency", "delta", "evidence"):
        if getattr(held, name, None) != getattr(right, name, None):
            raise ValueError(
                f"codes: expected {name} {getattr(right, name)!r} of a guarantee of codes, got "
                f"{getattr(held, name)!r}"
            )
    name = "epsilon" if isinstance(right, ApproximateDP) else "nats"
    given, least = getattr(held, name), getattr(right, name)
    # reports are drawn in steps of 2⁻⁵³, which shows in T small nats: hence the absolute part
    lost = ROUNDING * releases
    if not math.isclose(given, least, rel_tol=ROUNDING, abs_tol=lost):
        less = "less" if given < least else "something else"
        raise ValueError(f"codes: the guarantee says {less} than the number of codes gives")
    if missing := sum(line not in held.assumptions for line in right.assumptions):
        raise ValueError(f"codes: {missing} of the assumptions of a guarantee were removed")
