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
from tacit.guarantees import ApproximateDP, InformationBound, MaximalLeakage, guarantee_from_dict
from tacit.guarantees.base import Guarantee
from tacit.hidden_states.codebooks.counting import SECRET, information
from tacit.hidden_states.codebooks.randomised_parts import reported_leakage
from tacit.information import code_leakage
from tacit.releases.form import Form, Release

FORMAT = "tacit.codes"
FORMAT_VERSION = 1
CODES = "codes"
# by how much the same bound may differ when it is worked out on another machine
ROUNDING = 1e-12
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
                "of one code, and their factors multiply",
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
    def from_dict(cls, content: Mapping[str, Any], path: Path | None) -> Self:
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
                sizes=tuple(integer("codes.sizes", size, minimum=1) for size in content["sizes"]),
                releases=integer("codes.releases", content["releases"], minimum=1),
                near=integer("codes.near", content["near"], minimum=1),
                guarantees=tuple(guarantee_from_dict(held) for held in content["guarantees"]),
                digest=str(content["digest"]),
                codebook=str(content["codebook"]),
                method=str(content["method"]),
                origin=tuple((str(what), str(digest)) for what, digest in content["origin"]),
                created=str(content["created"]),
            )
        except (KeyError, TypeError) as error:
            raise ValueError(f"codes: a field is missing or malformed: {error!r}") from None
        found._check_guarantees()
        return found

    def _check_guarantees(self) -> None:
        """Refuse guarantees that say less than the number of codes, and ε, give."""
        private = [held for held in self.guarantees if isinstance(held, ApproximateDP)]
        epsilon = private[0].epsilon / self.releases if private else None
        told = information(self.sizes, self.releases, epsilon).nats
        one = (
            code_leakage(math.prod(self.sizes)).nats
            if epsilon is None
            else reported_leakage(self.sizes, epsilon, near=self.near)
        )
        leaked = one * self.releases
        for kind, least in ((MaximalLeakage, leaked), (InformationBound, told)):
            held = [one for one in self.guarantees if isinstance(one, kind)]
            if not held or min(one.nats for one in held) < least * (1.0 - ROUNDING):
                raise ValueError("codes: the guarantee says less than the number of codes gives")
            if isinstance(held[0], MaximalLeakage) and held[0].releases != self.releases:
                raise ValueError(
                    f"codes: expected a factor of {self.releases} releases, got {held[0].releases}"
                )
