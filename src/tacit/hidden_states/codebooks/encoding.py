"""Codes of many states, certified: prepared, drawn into a file, decoded again."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from numpy.typing import ArrayLike
from torch import Tensor

from tacit._ground import outlet
from tacit._ground.checks import integer
from tacit._ground.files import check_writable
from tacit._ground.frozen import frozen
from tacit._ground.reprs import short_repr
from tacit.compute import progress_bar
from tacit.guarantees.base import Guarantee
from tacit.hidden_states.codebooks.certificates import Codes
from tacit.hidden_states.codebooks.codecs import Codec, codes_of_states, sha256_of
from tacit.hidden_states.codebooks.counting import code_type, information
from tacit.hidden_states.codebooks.encoded import CODES, EncodedCodes, reported_words
from tacit.hidden_states.codebooks.product import ProductCodebook
from tacit.hidden_states.codebooks.randomised_parts import RandomizedParts
from tacit.hidden_states.codebooks.response import RandomizedCodes
from tacit.hidden_states.codebooks.stores import check_suffix, read_certificate, write_rows
from tacit.hidden_states.codebooks.vectors import Blocks, ParquetRows, Vectors
from tacit.releases.prepared import Prepared, check_digest

STATES = "states"
# times a centre of any size in use it is finite in float32
LARGEST_ENTRY = 1e30

CodeBlocks = Callable[[], Iterator[Codes]]


@short_repr
@dataclass(frozen=True, kw_only=True, eq=False)
class PreparedCodes(Prepared[EncodedCodes]):
    """Codes that are certified and not yet written.

    Attributes:
        codec: what they are made with.
        blocks: yields the true codes (k, m) in row order, again each time it is called.
        rows: n.
        releases: T, rows about one prompt at most.
        response: randomises every code, or None.
        out: the file; None keeps the codes in memory.
        codebook: SHA-256 of ``codec`` when the guarantees were counted on it.
        stored: the file of states, and the SHA-256 of its rows then; None where codes are known.
    """

    codec: Codec = field(repr=False)
    blocks: CodeBlocks = field(repr=False)
    rows: int
    releases: int
    response: RandomizedCodes | RandomizedParts | None
    out: Path | None
    codebook: str
    stored: tuple[Blocks, str] | None = field(repr=False)

    def _check_unchanged(self) -> None:
        check_digest("codec", self.codec.digest, self.codebook)
        if self.stored is not None:
            source, digest = self.stored
            check_digest("states", sha256_of(source.blocks()), digest)

    def _drawn(self) -> EncodedCodes:
        created = datetime.now(UTC).isoformat(timespec="seconds")
        sizes, kind = self.codec.sizes, code_type(self.codec.sizes)

        def described(digest: str, codes: npt.NDArray[Any] | None = None) -> EncodedCodes:
            origin = self.codec.origin
            return EncodedCodes(
                path=self.out,
                rows=self.rows,
                sizes=sizes,
                releases=self.releases,
                near=1 if self.response is None else self.response.near,
                guarantees=self.guarantees,
                digest=digest,
                codebook=self.codebook,
                method=_words(self.codec, self.response),
                origin=() if origin is None else origin.public.digests,
                created=created,
                codes=codes,
            )

        if self.out is None:
            codes = np.concatenate([part.astype(kind) for part in self._released()])
            return described(sha256_of([codes]), codes)
        digest = write_rows(
            "--out",
            self.out,
            CODES,
            self._released(),
            dtype=kind,
            shape=(self.rows, len(sizes)),
            certificate=lambda found: described(found).to_dict(),
        )
        return described(digest)

    def _reported(self, codes: Codes) -> Codes:
        assert self.response is not None
        return self.response.release(codes).reshape(codes.shape)

    def _released(self) -> Iterator[Codes]:
        with progress_bar(self.rows, "encoding", shown=self.out is not None) as advance:
            for part in self.blocks():
                codes = part if self.response is None else self._reported(part)
                yield outlet.let_out(_counted(self.codec, codes))
                advance(len(part))


def prepare_codes(
    codec: Codec,
    states: ArrayLike | Blocks | KnownCodes,
    *,
    out: str | os.PathLike[str] | None = None,
    releases: int = 1,
    epsilon: float | None = None,
    near: int = 1,
) -> PreparedCodes:
    """Certify the codes of many states before any is written.

    A code is one of ``Π_j C_j`` values whatever the state, so T of them multiply any attacker's
    chance by at most ``(Π_j C_j)^T`` and tell at most ``T Σ_j ln C_j`` nats about their prompt,
    under any law of it; nothing about the states is looked at for that. Every row has its code,
    whatever stands in it: what is not a number counts as 0, and infinity as 10³⁰.
    Distances are taken in float32: a state between two centres may be coded as either, which
    changes no count.

    Args:
        codec: the codebook.
        states: (n, d), or rows of a file as ``open_vectors`` gives them, read in blocks; or codes
            known already, as ``KnownCodes``.
        out: ``.safetensors``, ``.parquet``, or ``.npy`` with the certificate in ``OUT.json``; None
            keeps the codes in memory.
        releases: T, rows about one prompt at most.
        epsilon: ε > 0 of randomised response over the codes, which then draws from the operating
            system; in equal shares over the parts of a product; None for the codes themselves.
        near: k, codes most like the true one, in every part, that are reported with weight e^ε.

    Returns:
        The ``PreparedCodes``: the guarantees, and ``draw``.

    Raises:
        ValueError: states of another width, codes outside the codebook, or a file that cannot be
            written.

    Example:
        >>> from tacit.hidden_states import Codebook
        >>> rows = np.random.default_rng(0).standard_normal((500, 4), dtype=np.float32)
        >>> book = Codebook.fit(rows, size=8, rng=0)
        >>> found = prepare_codes(book, rows).draw()
        >>> found.codes.shape, found.codes.dtype, round(found.guarantees[0].nats, 4)
        ((500, 1), dtype('uint8'), 2.0794)
    """
    times = integer("releases", releases, minimum=1)
    target = None if out is None else check_suffix("out", check_writable("out", out))
    response: RandomizedCodes | RandomizedParts | None = None
    if epsilon is not None:
        response = codec.randomised(epsilon, near=near)
    elif near != 1:
        raise ValueError("near: expected 1 without epsilon, got more")
    digest = codec.digest
    rows, blocks, stored = _blocks(codec, states)
    leakage = codec.leakage(times) if response is None else response.leakage(times)
    guarantees: tuple[Guarantee, ...] = (leakage, information(codec.sizes, times, epsilon))
    if response is not None:
        guarantees += (response.guarantee(times),)
    return PreparedCodes(
        guarantees=guarantees,
        spends=guarantees,
        expected=(),
        description=f"{rows:,} codes, {_words(codec, response)}",
        reproducible=False,
        codec=codec,
        blocks=blocks,
        rows=rows,
        releases=times,
        response=response,
        out=target,
        codebook=digest,
        stored=stored,
    )


def _words(codec: Codec, response: RandomizedCodes | RandomizedParts | None) -> str:
    if response is None:
        return codec.words
    return reported_words(codec.words, response.epsilon)


def _counted(codec: Codec, codes: Codes) -> Codes:
    """Return codes (n, m) when each is one of those that the certificate counts."""
    sizes = np.array(codec.sizes)
    if codes.ndim != 2 or codes.shape[1] != len(sizes) or codes.dtype.kind not in "iu":
        raise ValueError(
            f"codes: expected integers of shape (n, {len(sizes)}), got {codes.dtype} of shape "
            f"{codes.shape}"
        )
    if (codes < 0).any() or (codes >= sizes).any():
        raise ValueError("codes: expected integers below the number of codes there are, got others")
    return codes


@short_repr
@dataclass(frozen=True, eq=False)
class KnownCodes:
    """Codes (n, m) that were assigned with what the model predicts, not with states alone."""

    codes: Codes


def _blocks(
    codec: Codec, states: ArrayLike | Blocks | KnownCodes
) -> tuple[int, CodeBlocks, tuple[Blocks, str] | None]:
    """Return how many codes there are, what yields them, and the file that they are read from."""
    if isinstance(states, KnownCodes):
        known = frozen(_counted(codec, states.codes))
        return len(known), lambda: iter([known]), None
    if not isinstance(states, Blocks):
        rows = readable(np.asarray(states.detach().cpu() if isinstance(states, Tensor) else states))
        codes = frozen(_counted(codec, codes_of_states(codec, rows)))
        return len(codes), lambda: iter([codes]), None
    # a file that says nothing of the length of its rows has as many numbers as the codebook
    source = states.every(codec.width) if isinstance(states, ParquetRows) else states
    if source.width != codec.width:
        raise ValueError(
            f"states: expected {codec.width} columns, as the codebook has, got {source.width}"
        )
    codes_of_states(codec, np.zeros((1, codec.width), dtype=np.float32))
    # what cannot be read of the file is found before anything is reserved or drawn
    stored = source, sha256_of(source.blocks())

    def blocks() -> Iterator[Codes]:
        return (codes_of_states(codec, readable(part)) for part in source.blocks())

    return source.count, blocks, stored


def readable(rows: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Return vectors in which a number that is none is 0, and what float32 cannot hold is cut.

    A refusal would tell that some row holds one, and a row less would tell which.

    Example:
        >>> readable(np.array([[np.nan, -np.inf, 1.0]])).tolist()
        [[0.0, -1e+30, 1.0]]
    """
    if rows.dtype.kind not in "fiu":
        return rows
    wide = rows.astype(np.float64)
    return np.clip(np.nan_to_num(wide, nan=0.0), -LARGEST_ENTRY, LARGEST_ENTRY)


def finite_blocks(source: Blocks) -> Iterator[npt.NDArray[np.float32]]:
    """Yield blocks of public rows as float32, refusing what is not finite there."""
    start = 0
    for part in source.blocks():
        with np.errstate(over="ignore"):
            rows = np.ascontiguousarray(part, dtype=np.float32)
        # one sum is finite only where every entry is, up to an overflow that the second look finds
        with np.errstate(over="ignore", invalid="ignore"):
            total = rows.sum()
        if not np.isfinite(total):
            bad = ~np.isfinite(rows).all(axis=1)
            if bad.any():
                raise ValueError(
                    "states: expected numbers that are finite in float32, got others in row "
                    f"{start + int(bad.argmax())} (counted from 0)"
                )
        start += len(rows)
        yield rows


def decode_codes(
    codec: Codec,
    codes: str | os.PathLike[str],
    out: str | os.PathLike[str],
    *,
    argument: str = "codes",
) -> EncodedCodes:
    """Write the state that stands for every code: post-processing, so the certificate stays.

    Args:
        codec: the codebook the codes were made with.
        codes: the file of codes.
        out: ``.safetensors``, ``.parquet`` or ``.npy`` to write, float32.
        argument: what the file of codes is called in messages.

    Returns:
        What is certified of the codes.

    Raises:
        ValueError: another codebook, codes that their digest does not fit, or a file that cannot
            be read or written.
    """
    target = check_suffix("out", check_writable("out", out))
    source, content = read_certificate(argument, codes)
    released = EncodedCodes.from_dict(content, Path(codes))
    if released.codebook != codec.digest:
        raise ValueError(
            f"--codebook: {os.fspath(codes)} was made with another one (SHA-256 "
            f"{released.codebook[:12]}…, here {codec.digest[:12]}…)"
        )
    if (source.count, source.width) != (released.rows, len(released.sizes)):
        raise ValueError(f"{argument}: the certificate is not that of these codes")
    kind = code_type(codec.sizes)
    if sha256_of(part.astype(kind) for part in source.blocks()) != released.digest:
        raise ValueError(f"{argument}: the codes are not those that were certified (SHA-256)")
    write_rows(
        "--out",
        target,
        STATES,
        (_decoded(codec, part) for part in source.blocks()),
        dtype=np.dtype("<f4"),
        shape=(released.rows, codec.width),
        certificate=lambda digest: {**content, "tensor": STATES, "decoded": digest},
    )
    return released


def _decoded(codec: Codec, part: Vectors) -> Vectors:
    codes = part if isinstance(codec, ProductCodebook) else part[:, 0]
    return codec.decode(codes.astype(np.int64)).numpy()
