"""Quotients with their noise that may leave the building; PyTorch is not needed to read them."""

from __future__ import annotations

import hashlib
import math
import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Self

import numpy as np
import numpy.typing as npt
from safetensors.numpy import save as to_safetensors

from tacit._ground.checks import Array, boolean, integer
from tacit._ground.files import check_writable, write_bytes_atomic
from tacit._ground.frozen import read_only
from tacit._ground.reprs import short_repr
from tacit.documents import check_known, dumps
from tacit.guarantees import guarantee_from_dict
from tacit.guarantees.base import Guarantee
from tacit.hidden_states.codebooks.certificates import PROMPT
from tacit.hidden_states.noise.storage import FROM_SYSTEM, REPRODUCIBLE
from tacit.hidden_states.origin import pairs_from
from tacit.hidden_states.quotient.ball import Ball
from tacit.hidden_states.quotient.stored_rows import read_rows
from tacit.releases.form import Form, Release

FORMAT = "tacit.quotients"
FORMAT_VERSION = 1
QUOTIENTS = "quotients"
# by how much the same bound may differ when it is worked out on another machine
ROUNDING = 1e-12
NO_DIGEST_OF_STATES = (
    "no digest of the states or prompts is stored: it would tell about them beside the quotients"
)


@short_repr
@read_only
@dataclass(frozen=True, kw_only=True, eq=False)
class QuotientRelease(Release):
    """Noisy quotients and everything that may be said about them; nothing clean inside.

    Attributes:
        quotients: what to publish, (n, k) float64; None where only the description was read.
        rows: n.
        ball: k, R and σ.
        releases: T, rows about one prompt at most.
        guarantees: of the T rows about one prompt.
        digest: SHA-256 of the rows, little-endian float64 in order.
        quotient: SHA-256 of the encoder, which whoever reads them asks for.
        origin: (what, digest) of the model and the public prompts of the encoder.
        reproducible: whether a seed fixed the noise, which voids the guarantees.
        seed: the integer seed, when one was given.
        created: time of the draw, ISO 8601, UTC.
    """

    quotients: npt.NDArray[np.float64] | None = field(repr=False)
    rows: int
    ball: Ball
    releases: int
    guarantees: tuple[Guarantee, ...]
    digest: str
    quotient: str
    origin: tuple[tuple[str, str], ...]
    reproducible: bool
    seed: int | None
    created: str

    FORMAT = FORMAT

    @property
    def form(self) -> Form:
        """The release as report, gate, ledger and commands read it."""
        one = "one row a prompt" if self.releases == 1 else f"up to {self.releases} rows a prompt"
        ball = self.ball
        return Form(
            kind="hidden-quotients",
            title=f"{self.rows:,} quotients of {ball.dimension:,} numbers, with noise",
            secret=PROMPT,
            method=(
                f"clipped to length {ball.radius:.6g}, noise of deviation {ball.noise_std:.6g} in "
                "every number"
            ),
            guarantees=self.guarantees,
            digests=((QUOTIENTS, self.digest), ("quotient", self.quotient), *self.origin),
            notes=(
                f"{one}: what T rows about one prompt tell adds up to T times the nats of one, and "
                "their factors multiply",
                NO_DIGEST_OF_STATES,
            ),
            publishable=("guarantees", "digest", "quotient", "reproducible", "created"),
            reproducible=self.reproducible,
            seed=self.seed,
            created=self.created,
        )

    def to_dict(self) -> dict[str, Any]:
        """Return what stands in the file beside the rows."""
        return {
            "format": FORMAT,
            "version": FORMAT_VERSION,
            "rows": self.rows,
            "ball": asdict(self.ball),
            "releases": self.releases,
            "tensor": QUOTIENTS,
            "digest": self.digest,
            "quotient": self.quotient,
            "guarantees": [held.to_dict() for held in self.guarantees],
            "origin": [list(pair) for pair in self.origin],
            "reproducible": self.reproducible,
            "seed": self.seed,
            "created": self.created,
            "form": self.form.to_dict(),
        }

    @classmethod
    def from_dict(cls, content: Mapping[str, Any], quotients: Array | None = None) -> Self:
        """Return what ``to_dict`` described, its guarantees worked out again.

        Raises:
            ValueError: it is no release of quotients, a field is missing or malformed, or the
                guarantees say less than the ball gives.
        """
        if content.get("format") != FORMAT or content.get("version") != FORMAT_VERSION:
            raise ValueError(
                f"quotients: expected format {FORMAT!r} of version {FORMAT_VERSION}, got "
                f"{content.get('format')!r} of version {content.get('version')!r}"
            )
        try:
            found = cls(
                quotients=quotients,
                rows=integer("quotients.rows", content["rows"], minimum=1),
                ball=Ball(**content["ball"]),
                releases=integer("quotients.releases", content["releases"], minimum=1),
                guarantees=tuple(guarantee_from_dict(held) for held in content["guarantees"]),
                digest=str(content["digest"]),
                quotient=str(content["quotient"]),
                origin=pairs_from("quotients.origin", content["origin"]),
                reproducible=boolean("quotients.reproducible", content["reproducible"]),
                seed=content["seed"],
                created=str(content["created"]),
            )
        except (KeyError, TypeError) as error:
            raise ValueError(f"quotients: a field is missing or malformed: {error!r}") from None
        found._check()
        check_known("quotients", content, found.to_dict(), beside=("provenance",))
        return found

    def _check(self) -> None:
        expected = guaranteed(self.ball, self.releases, reproducible=self.reproducible)
        if [type(held) for held in self.guarantees] != [type(held) for held in expected]:
            raise ValueError("quotients: expected the guarantees of a ball, got others")
        for held, right in zip(self.guarantees, expected, strict=True):
            given, least = _nats(held), _nats(right)
            alike = math.isclose(given, least, rel_tol=ROUNDING, abs_tol=ROUNDING)
            if not alike or _words(held) != _words(right):
                raise ValueError(
                    "quotients: a guarantee says something else than its ball and T give"
                )
        if self.quotients is not None and self.quotients.shape != (self.rows, self.ball.dimension):
            raise ValueError("quotients: the file contradicts itself about its rows")

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the rows and what is certified of them as safetensors, whole or not at all.

        Raises:
            ValueError: it cannot be written, or there are no rows.
        """
        if self.quotients is None:
            raise ValueError("quotients: expected rows to write, got a description alone")
        target = check_writable("path", path)
        metadata = {"tacit": dumps(self.to_dict(), ascii_only=True)}
        write_bytes_atomic("path", target, to_safetensors({QUOTIENTS: self.quotients}, metadata))

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Self:
        """Read what ``save`` wrote, its rows held against their digest.

        Raises:
            ValueError: no such file, or no release of quotients.
        """
        content, rows = read_rows(path, QUOTIENTS, FORMAT)
        found = cls.from_dict(content, rows)
        if digest_of_rows(rows) != found.digest:
            raise ValueError("path: the rows are not those that were certified (SHA-256)")
        return found


def guaranteed(ball: Ball, releases: int, *, reproducible: bool) -> tuple[Guarantee, ...]:
    """Return the theorems of the ball with where the noise comes from."""
    drawn = REPRODUCIBLE if reproducible else FROM_SYSTEM
    return tuple(
        replace(held, assumptions=(*held.assumptions, drawn))
        for held in ball.guarantees(releases=releases)
    )


def digest_of_rows(rows: Array) -> str:
    """Return the SHA-256 of rows, little-endian float64 in order."""
    return hashlib.sha256(np.ascontiguousarray(rows, dtype="<f8").tobytes()).hexdigest()


def _words(held: Guarantee) -> dict[str, Any]:
    """Return what of a guarantee does not differ by rounding."""
    return {k: v for k, v in held.to_dict().items() if k not in ("nats", "factor")}


def _nats(held: Any) -> float:
    found: float = held.nats
    return found
