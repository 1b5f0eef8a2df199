"""Codes of many states, certified: prepared, drawn into a file, decoded again."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from numpy.typing import ArrayLike

from tacit._ground import outlet
from tacit._ground.files import check_writable
from tacit._ground.frozen import frozen
from tacit._ground.reprs import short_repr
from tacit.compute import progress_bar
from tacit.hidden_states.codebooks.certificates import Codes
from tacit.hidden_states.codebooks.codebook import Codebook
from tacit.hidden_states.codebooks.codec import Codec
from tacit.hidden_states.codebooks.methods import PromptCodes
from tacit.hidden_states.codebooks.release import (
    CODEBOOK,
    KIND,
    CodeRows,
    guarantees_of,
    notes_of,
    secret_of,
    title_of,
    worded_as,
)
from tacit.hidden_states.codebooks.response import RandomizedCodes, RandomizedParts
from tacit.models.language import LanguageModel
from tacit.models.padding import alike, prompt_lengths
from tacit.releases import Prepared, Release
from tacit.releases.loading import read_checked
from tacit.releases.prepared import check_digest
from tacit.releases.promises import check_promise
from tacit.releases.stores import Layout, check_rows_room, open_store, write_rows
from tacit.releases.vectors import ParquetRows, VectorBlocks, check_suffix, sha256_of
from tacit.releases.verification import refuse_false

STATES = "states"
# times a centre of any size in use it is finite in float32
LARGEST_ENTRY = 1e30
ONE_CODE = PromptCodes()

CodeBlocks = Callable[[], Iterator[Codes]]


@short_repr
@dataclass(frozen=True, eq=False)
class KnownCodes:
    """Codes (n, m) that were assigned with what the model predicts, not with states alone."""

    codes: Codes


def prepare_codes(
    codec: Codec,
    states: ArrayLike | VectorBlocks | KnownCodes,
    promise: PromptCodes = ONE_CODE,
    *,
    out: str | os.PathLike[str] | None = None,
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
        promise: how many rows are about one prompt, and whether codes are randomised.
        out: ``.safetensors``, ``.parquet``, or ``.npy`` with the certificate in ``OUT.json``; None
            keeps the codes in memory.

    Returns:
        The ``PreparedCodes``: the guarantees, and ``draw``.

    Raises:
        ValueError: states of another width, codes outside the codebook, or a file that cannot be
            written.

    Example:
        >>> from tacit.hidden_states import CodebookFit
        >>> rows = np.random.default_rng(0).standard_normal((500, 4), dtype=np.float32)
        >>> book = Codebook.fit(rows, CodebookFit(size=8), rng=0)
        >>> found = prepare_codes(book, rows).draw()
        >>> found.details.codes.shape, found.details.codes.dtype, round(found.leakage.nats, 4)
        ((500, 1), dtype('uint8'), 2.0794)
    """
    check_promise(promise, PromptCodes)
    target = None if out is None else check_suffix("out", check_writable("out", out))
    response: RandomizedCodes | RandomizedParts | None = None
    if promise.epsilon is not None:
        response = codec.randomised(promise.epsilon, near=promise.near)
    guarantees = guarantees_of(codec.sizes, promise)
    if response is not None:
        # the factor of the reports as they are drawn, in steps of 2⁻⁵³
        reported = response.leakage(promise.releases)
        guarantees = (worded_as(reported, promise), *guarantees[1:])
    # of the codebook now; the draw refuses one that has changed since
    digest = codec.digest
    rows, blocks, stored = _blocks(codec, states)
    details = CodeRows(rows=rows, sizes=codec.sizes, promise=promise)
    method = promise.words(codec.words)
    return PreparedCodes(
        guarantees=guarantees,
        spends=guarantees,
        expected=(),
        description=f"{rows:,} codes, {method}",
        reproducible=False,
        codec=codec,
        blocks=blocks,
        response=response,
        out=target,
        stored=stored,
        planned=Release(
            kind=KIND,
            title=title_of(details, method),
            secret=secret_of(promise),
            method=method,
            guarantees=guarantees,
            details=details,
            reproducible=False,
            digests=(
                (CODEBOOK, digest),
                *(() if codec.origin is None else codec.origin.public.digests),
            ),
            notes=notes_of(promise),
        ),
    )


@short_repr
@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class PreparedCodes(Prepared[CodeRows]):
    """Codes that are certified and not yet written.

    Attributes:
        codec: what they are made with.
        blocks: yields the true codes (k, m) in row order, again each time it is called.
        response: randomises every code, or None.
        out: the file; None keeps the codes in memory.
        stored: the file of states, and the SHA-256 of its rows then; None where codes are known.
        planned: the release but for what is drawn.
    """

    codec: Codec = field(repr=False)
    blocks: CodeBlocks = field(repr=False)
    response: RandomizedCodes | RandomizedParts | None
    out: Path | None
    stored: tuple[VectorBlocks, str] | None = field(repr=False)
    planned: Release[CodeRows] = field(repr=False)

    def _check_unchanged(self) -> None:
        check_digest("codec", self.codec.digest, dict(self.planned.digests)[CODEBOOK])
        if self.stored is not None:
            # a file that has changed since the certificate is another store
            source, digest = self.stored
            check_digest("states", sha256_of(source.blocks()), digest)
        if self.out is not None:
            check_rows_room("--out", self.out, self.planned)

    def _drawn(self) -> Release[CodeRows]:
        # before the first row is written
        refuse_false(self.planned)
        details = self.planned.details
        if self.out is None:
            kind = details.layout.dtype
            codes = np.concatenate([part.astype(kind) for part in self._released()])
            return self._named(sha256_of([codes]), replace(details, codes=codes))
        digest = write_rows(
            "--out",
            self.out,
            self._released(),
            details.layout,
            lambda found: self._named(found, details),
        )
        return self._named(digest, details)

    def _named(self, digest: str, details: CodeRows) -> Release[CodeRows]:
        planned = self.planned
        digests = (CodeRows.tensor, digest), *planned.digests
        return replace(planned, digests=digests, details=details)

    def _released(self) -> Iterator[Codes]:
        count = self.planned.details.rows
        with progress_bar(count, "encoding", shown=self.out is not None) as advance:
            for true in self.blocks():
                codes = true
                if self.response is not None:
                    codes = self.response.release(true).reshape(true.shape)
                yield outlet.let_out(_counted(self.codec, codes))
                advance(len(codes))


def _counted(codec: Codec, codes: Codes) -> Codes:
    """Return codes (n, m) when each is one of those that the certificate counts."""
    # the certificate counts Π_j C_j values: one more would not be counted
    sizes = np.array(codec.sizes)
    if codes.ndim != 2 or codes.shape[1] != len(sizes) or codes.dtype.kind not in "iu":
        raise ValueError(
            f"codes: expected integers of shape (n, {len(sizes)}), got {codes.dtype} of shape "
            f"{codes.shape}"
        )
    if (codes < 0).any() or (codes >= sizes).any():
        raise ValueError(
            "codes: expected integers below the number of codes there are, got other values"
        )
    return codes


def _blocks(
    codec: Codec, states: ArrayLike | VectorBlocks | KnownCodes
) -> tuple[int, CodeBlocks, tuple[VectorBlocks, str] | None]:
    """Return how many codes there are, what yields them, and the file that they are read from."""
    if isinstance(states, KnownCodes):
        known = frozen(_counted(codec, states.codes))
        return len(known), lambda: iter([known]), None
    if not isinstance(states, VectorBlocks):
        rows: Any = states.detach().cpu() if isinstance(states, torch.Tensor) else states
        codes = frozen(_counted(codec, codec.encode(readable(np.asarray(rows)))))
        return len(codes), lambda: iter([codes]), None
    # a file that says nothing of the length of its rows has as many numbers as the codebook
    source = states.every(codec.width) if isinstance(states, ParquetRows) else states
    if source.width != codec.width:
        raise ValueError(
            f"states: expected {codec.width} columns, as the codebook has, got {source.width}"
        )
    # a codebook that needs behaviours refuses now, before anything is reserved
    codec.encode(np.zeros((1, codec.width), dtype=np.float32))
    # what cannot be read of the file is found before anything is reserved or drawn
    stored = source, sha256_of(source.blocks())

    def blocks() -> Iterator[Codes]:
        return (codec.encode(readable(part)) for part in source.blocks())

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
    if rows.dtype == np.float32 and (np.abs(rows) <= LARGEST_ENTRY).all():
        # NaN is not below anything: these are rows of numbers as they should be
        return rows
    # what float32 cannot hold would make a distance infinite, and its code another one's
    wide = rows.astype(np.float64)
    return np.clip(np.nan_to_num(wide, nan=0.0), -LARGEST_ENTRY, LARGEST_ENTRY)


def finite_blocks(source: VectorBlocks) -> Iterator[npt.NDArray[np.float32]]:
    """Yield blocks of public rows as float32, refusing what is not finite there."""
    start = 0
    for part in source.blocks():
        with np.errstate(over="ignore"):
            rows = np.ascontiguousarray(part, dtype=np.float32)
        bad = ~np.isfinite(rows).all(axis=1)
        if bad.any():
            raise ValueError(
                "states: expected numbers that are finite in float32, got others in row "
                f"{start + int(bad.argmax())} (counted from 0)"
            )
        start += len(rows)
        yield rows


def codes_of_prompts(
    book: Codebook, model: LanguageModel, layer: int, tokens: torch.Tensor
) -> Codes:
    """Return the code of the last state of every prompt, (n, 1), as the model is served it.

    Prompts of one length are run together, always as many, so that no code depends on another
    prompt.

    Args:
        book: the codebook.
        model: the model that it was fitted on.
        layer: 1 … L.
        tokens: (n, T), −1 before the first token of a shorter prompt, as ``model.prompts`` gives
            them.

    Raises:
        ValueError: tokens or layer outside the model.
    """
    # padding would change the states of a prompt in the last bits, and so would a pass of more or
    # fewer others
    lengths = prompt_lengths(tokens).cpu().numpy()
    codes = np.empty((len(tokens), 1), dtype=np.int64)
    for kept, run in alike(lengths):
        found = _assigned(book, model, layer, tokens[run, -lengths[run[0]] :])
        codes[kept, 0] = found[: len(kept)]
    return codes


def _assigned(book: Codebook, model: LanguageModel, layer: int, tokens: torch.Tensor) -> Codes:
    if book.centres is not None:
        return book.assign(model.states(tokens, layer).cpu())
    parts = [(states[layer], logits) for states, logits in model.passes(tokens, [layer])]
    states, logits = (torch.cat(column).cpu() for column in zip(*parts, strict=True))
    return book.assign(states, behaviours=logits)


def decode_codes(
    codec: Codec,
    codes: str | os.PathLike[str],
    out: str | os.PathLike[str],
    *,
    argument: str = "codes",
) -> Release[CodeRows]:
    """Write the state that stands for every code: post-processing, so the certificate stays.

    Args:
        codec: the codebook the codes were made with.
        codes: the file of codes.
        out: ``.safetensors``, ``.parquet`` or ``.npy`` to write, float32.
        argument: what the file of codes is called in messages.

    Returns:
        The release of the codes.

    Raises:
        ValueError: another codebook, codes that their digest does not fit, or a file that cannot
            be read or written.
    """
    target, place = check_suffix("out", check_writable("out", out)), Path(codes)
    try:
        released = read_checked(check_suffix("release", place)).release
        source = open_store(place)
    except ValueError as error:
        raise ValueError(f"{argument}: {str(error).removeprefix('release: ')}") from None
    if released.kind != KIND or source.certificate.decoded:
        raise ValueError(f"{argument}: expected codes with their certificate, got {place}")
    # codes mean nothing to another codebook
    made = dict(released.digests)[CODEBOOK]
    if made != codec.digest:
        raise ValueError(
            f"--codebook: {place} was made with another one (SHA-256 {made[:12]}…, here "
            f"{codec.digest[:12]}…)"
        )
    shape = (released.details.rows, codec.width)
    write_rows(
        "--out",
        target,
        (codec.decode(part.astype(np.int64)).numpy() for part in source.rows.blocks()),
        Layout(STATES, shape, np.dtype("<f4"), decoded=True),
        lambda _: released,
    )
    return released
