"""``tacit hidden fit``, ``encode`` and ``decode``: codes in the place of stored vectors."""

from __future__ import annotations

import json as json_text
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.text import Text

from tacit._ground.checks import integer
from tacit.cli.console import command_line, line
from tacit.cli.hidden.embeddings import (
    different_texts,
    divided,
    embedded,
    origin_of_encoder,
    use_of,
)
from tacit.cli.hidden.inputs import llm_extra
from tacit.cli.hidden.quotients import released_quotients
from tacit.cli.hidden.reading import Reader
from tacit.cli.hidden.recorded import content_digest
from tacit.cli.options import Force, Json, grouped
from tacit.cli.output import JsonOutput, check_distinct, json_output, new_file
from tacit.cli.publishing import KEPT_OUTPUT, Destination, Paying, tell_prepared

if TYPE_CHECKING:
    from tacit.hidden_states.codebooks.codecs import Codec
    from tacit.hidden_states.codebooks.vectors import Blocks
    from tacit.hidden_states.origin import Origin

Column = Annotated[
    str | None, typer.Option(help="Tensor or column of the file, where it has several.")
]
Book = Annotated[str, typer.Option("--codebook", help="Codebook that codebook or fit wrote.")]
KINDS = ".safetensors, .parquet or .npy file"


def fit(
    out: Annotated[str, typer.Option(help="Safetensors file to write.")],
    vectors: Annotated[
        str | None, typer.Argument(help=f"Public vectors: a {KINDS}; or --encoder.")
    ] = None,
    encoder: Annotated[
        str | None,
        typer.Option(help="Encoder such as BERT, a folder or a name, that reads --public-texts."),
    ] = None,
    public_texts: Annotated[
        str | None,
        typer.Option(
            help="Public texts to fit on: .txt (one a line), .jsonl, .csv, .tsv, .parquet, or a "
            "folder of .txt."
        ),
    ] = None,
    pooling: Annotated[
        str | None,
        typer.Option(help="mean, cls or last; what the encoder's folder says, else the mean."),
    ] = None,
    codewords: Annotated[int, typer.Option(help="C, cells of a part at most.")] = 256,
    parts: Annotated[int, typer.Option(help="m, parts that a vector is cut into.")] = 1,
    least_cell: Annotated[
        int, typer.Option(help="Vectors that a codeword is the average of at least.")
    ] = 20,
    calibration: Annotated[
        int, typer.Option(help="Vectors to fit on at most, drawn at random.")
    ] = (100_000),
    seed: Annotated[int, typer.Option(help="Fixes what is drawn and fitted.")] = 0,
    column: Column = None,
    json: Json = None,
    force: Force = False,
) -> None:
    """Fit a codebook, or a product of them, on public vectors or the embeddings of public texts.

    A fifth of them at most are held out, and searched among to measure what decoded codes are
    good for.
    """
    output = json_output(json, force)
    integer("--calibration", calibration, minimum=1)
    integer("--seed", seed, minimum=0)
    place = new_file("--out", out, force)
    source = _public_source(vectors, encoder, public_texts, pooling)
    check_distinct({source: Path(vectors or public_texts or "").resolve(), "--out": place,
                    "--json": output.path})  # fmt: skip
    with llm_extra():
        from tacit.hidden_states import Codebook, ProductCodebook
        from tacit.hidden_states.codebooks.vectors import open_vectors
    if vectors is not None:
        public, held = _drawn(open_vectors("VECTORS", vectors, column=column), calibration, seed)
        origin = None
    else:
        public, held, origin = _embedded_public(
            str(encoder), str(public_texts), pooling, column, calibration, seed
        )
    integer("--parts", parts, minimum=1)
    book: Codec = (
        Codebook.fit(public, size=codewords, least_cell=least_cell, rng=seed)
        if parts == 1
        else ProductCodebook.fit(
            public, parts=parts, size=codewords, least_cell=least_cell, rng=seed
        )
    )
    book = replace(book, origin=origin)
    use = use_of(book, held)
    book.save(out)
    bound = book.leakage()
    output.write(
        {
            "out": out,
            "digest": book.digest,
            "sizes": list(book.sizes),
            "calibration": book.calibration,
            "least_cell": book.least_cell,
            "guarantee": bound.to_dict(),
            "origin": None if origin is None else origin.to_dict(),
            "use": None if use is None else asdict(use),
        }
    )
    console = output.console
    console.print(Text(bound.describe(), "bold"))
    line(console, "codebook", f"{book.words}, in {out}")
    if min(book.sizes) < codewords:
        kept = f"{min(book.sizes):,}" + (f" to {max(book.sizes):,}" if parts > 1 else "")
        line(console, "cells", f"{kept} of the {codewords:,} asked for: those of fewer than "
             f"{least_cell} vectors were removed")  # fmt: skip
    if use is not None:
        found, ranks = use.recall, use.rank_correlation
        line(console, "use", f"recall at {use.neighbours} {found.value:.0%} [{found.low:.0%}, "
             f"{found.high:.0%}], rank correlation {ranks.value:.2f} [{ranks.low:.2f}, "
             f"{ranks.high:.2f}], among {use.stored:,} held-out vectors")  # fmt: skip
    line(console, "calibration", f"{book.calibration:,} vectors, which are public from here on")
    output.tell()


@grouped
def encode(
    codebook: Book,
    out: Annotated[str, typer.Option(help=f"Codes to write: a {KINDS}.")],
    states: Annotated[
        str | None, typer.Argument(help=f"Vectors to encode: a {KINDS}; or --prompts.")
    ] = None,
    releases: Annotated[
        int, typer.Option(help="T, rows of the file about one prompt at most.")
    ] = 1,
    epsilon: Annotated[
        float | None,
        typer.Option(
            help="ε of randomised response over a code, all its parts together; none if left out."
        ),
    ] = None,
    near: Annotated[
        int,
        typer.Option(
            help="Cells most like the true one, in every part, that --epsilon reports for it."
        ),
    ] = 1,
    column: Column = None,
    *,
    outlet: Paying,
    reader: Reader,
) -> None:
    """Write one code for every vector or prompt, with what is certified of them in the file."""
    prompts = reader.prompts
    if (states is None) == (prompts is None):
        raise ValueError("--prompts: expected a file of states or of prompts, exactly one of them")
    if outlet.ledger is not None and outlet.secret is None:
        raise ValueError("--secret: expected the name of the secret beside --ledger, got none")
    from tacit.ledger.notions import MAXIMAL_LEAKAGE

    reader.check()
    source = str(states if prompts is None else prompts)
    place = _new_store(out, outlet.force)
    destination = Destination.checked(outlet, source, None, spends=MAXIMAL_LEAKAGE)
    check_distinct(
        {
            "STATES" if prompts is None else "--prompts": Path(source).resolve(),
            "--codebook": Path(codebook).resolve(),
            "--out": place,
            "--json": destination.json.path,
        }
    )
    with llm_extra():
        from tacit.hidden_states.codebooks.encoding import prepare_codes
        from tacit.hidden_states.codebooks.vectors import open_vectors
    book = read_codec(codebook)
    if prompts is None:
        rows: Any = open_vectors("STATES", source, column=column)
        _check_origin(book, rows, reader.layer, source)
    else:
        with llm_extra():
            rows = reader.rows(book, column)
    prepared = prepare_codes(book, rows, out=place, releases=releases, epsilon=epsilon, near=near)
    if outlet.dry_run:
        tell_prepared(prepared, destination.json)
        line(destination.json.console, "keep", KEPT_OUTPUT)
        return
    from tacit.releases import Provenance

    destination = destination.opened()
    released = destination.draw(prepared)
    destination.store(
        released,
        Provenance.capture(
            command_line(),
            secret=destination.secret,
            ledger=None if destination.ledger is None else destination.ledger.location,
        ),
    )
    console = destination.json.console
    for number, held in enumerate(released.guarantees):
        console.print(Text(held.describe(), "bold" if number == 0 else ""))
    line(console, "released", f"{released.rows:,} codes, one a row, in {out}: {released.method}")
    line(console, "codebook", f"SHA-256 {released.codebook[:12]}…, which decode asks for")
    destination.tell()


def decode(
    codes: Annotated[
        str, typer.Argument(help="File of codes that encode wrote, or release of quotient.")
    ],
    out: Annotated[str, typer.Option(help=f"Vectors to write: a {KINDS}.")],
    codebook: Annotated[
        str | None, typer.Option(help="Codebook that codebook or fit wrote; or --fitted.")
    ] = None,
    fitted: Annotated[
        str | None, typer.Option(help="Quotient that quotient wrote, for a release of quotients.")
    ] = None,
    json: Json = None,
    force: Force = False,
) -> None:
    """Write the vector that stands for every code: post-processing, so the guarantee stays.

    For a quotient that is ln p of every next token, as its decoder reads it.
    """
    if (codebook is None) == (fitted is None):
        raise ValueError("--codebook: expected this or --fitted, exactly one of them")
    output = json_output(json, force)
    place = _new_store(out, force)
    if fitted is not None:
        _decode_quotients(codes, fitted, place, output)
        return
    assert codebook is not None
    check_distinct(
        {
            "CODES": Path(codes).resolve(),
            "--codebook": Path(codebook).resolve(),
            "--out": place,
            "--json": output.path,
        }
    )
    with llm_extra():
        from tacit.hidden_states.codebooks.encoding import decode_codes
    book = read_codec(codebook)
    released = decode_codes(book, codes, place, argument="CODES")
    output.write({**released.to_dict(), "out": out})
    console = output.console
    console.print(Text(released.guarantees[0].describe(), "bold"))
    line(console, "decoded", f"{released.rows:,} vectors of {book.width} numbers in {out}")
    output.tell()


def _decode_quotients(codes: str, fitted: str, place: Path, output: JsonOutput) -> None:
    import numpy as np

    from tacit.hidden_states.codebooks.stores import write_rows

    released, held = released_quotients(codes, fitted, "CODES")
    assert released.quotients is not None
    rows = held.distributions(released.quotients).numpy()
    described = released.to_dict()
    write_rows(
        "--out",
        place,
        "distributions",
        [rows],
        dtype=np.dtype("<f4"),
        shape=(len(rows), rows.shape[1]),
        certificate=lambda digest: {**described, "tensor": "distributions", "decoded": digest},
    )
    output.write({**described, "out": str(place)})
    output.console.print(Text(released.guarantees[0].describe(), "bold"))
    line(output.console, "decoded", f"{len(rows):,} rows of ln p of {rows.shape[1]:,} next tokens "
         f"in {place}")  # fmt: skip
    output.tell()


def read_codec(path: str) -> Codec:
    """Return the codebook of a file, or the product of codebooks."""
    with llm_extra():
        from tacit.hidden_states.codebooks.codecs import load_codec
    try:
        return load_codec(path)
    except ValueError as error:
        raise ValueError(f"--codebook: {str(error).removeprefix('path: ')}") from None


def _new_store(out: str, force: bool) -> Path:
    """Return where a file of rows goes, and refuse what its ending or the side file forbids."""
    with llm_extra():
        from tacit.hidden_states.codebooks.stores import check_suffix
    from tacit.releases.stores import side_file

    place = new_file("--out", out, force)
    assert place is not None
    if check_suffix("--out", place).suffix.lower() == ".npy":
        new_file("--out", str(side_file(place)), force)
    return place


def _public_source(
    vectors: str | None, encoder: str | None, texts: str | None, pooling: str | None
) -> str:
    """Return what names the public file; refuse vectors beside texts, and neither."""
    if vectors is not None:
        for flag, given in (
            ("--encoder", encoder), ("--public-texts", texts), ("--pooling", pooling)
        ):  # fmt: skip
            if given is not None:
                raise ValueError(f"{flag}: expected it without a file of vectors, got both")
        return "VECTORS"
    for flag, given in (("--encoder", encoder), ("--public-texts", texts)):
        if given is None:
            raise ValueError(f"{flag}: expected a file of vectors, or --encoder and --public-texts")
    if not Path(str(texts)).exists():
        raise ValueError(f"--public-texts: no such file or folder: {texts}")
    return "--public-texts"


def _embedded_public(
    encoder: str, texts: str, pooling: str | None, column: str | None, count: int, seed: int
) -> tuple[Any, Any, Origin]:
    """Return the embeddings of texts to fit on and of those held out, and where they come from."""
    from tacit.models import load_encoder

    found = different_texts(texts, column)
    fitted, held = (found.select(part.tolist()) for part in divided(len(found), count, seed))
    reads = load_encoder(encoder, pooling=pooling)
    origin = origin_of_encoder(reads, fitted, content_digest(texts, "--public-texts"))
    aside = embedded(reads, held) if len(held) else None
    rows = embedded(reads, fitted)
    return rows, rows[:0] if aside is None else aside, origin


def _drawn(source: Blocks, count: int, seed: int) -> tuple[Any, Any]:
    """Return rows of a file to fit on and rows held out, chosen uniformly, in order."""
    import numpy as np

    from tacit.hidden_states.codebooks.encoding import finite_blocks

    chosen = divided(source.count, count, seed)
    kept = np.zeros((2, source.count), dtype=bool)
    for part, places in zip(kept, chosen, strict=True):
        part[places] = True
    parts: tuple[list[Any], list[Any]] = ([], [])
    start = 0
    for rows in finite_blocks(source):
        for held, mask in zip(parts, kept, strict=True):
            held.append(rows[mask[start : start + len(rows)]])
        start += len(rows)
    fitted, aside = (np.concatenate(held) for held in parts)
    return fitted, aside


def _check_origin(book: Codec, rows: Blocks, layer: int | None, path: str) -> None:
    """Refuse states that say they are of another model or layer than the codebook's."""
    from tacit.hidden_states.origin import origin_from

    if book.origin is None:
        if layer is not None:
            raise ValueError(f"--layer: the codebook was made with none, got {layer}")
        return
    if layer is not None and layer != book.origin.layer:
        raise ValueError(f"--layer: the codebook was made with {book.origin.layer}, got {layer}")
    text = rows.metadata.get("origin")
    if text is None and "tacit" in rows.metadata:
        text = rows.metadata["tacit"]
    try:
        told = None if text is None else json_text.loads(text)
        if told is not None and "origin" not in rows.metadata:
            told = told.get("origin")
        found = origin_from(told)
    except (AttributeError, ValueError):
        raise ValueError(f"STATES: {path} names no origin that can be read") from None
    if found is None:
        return
    if not book.origin.is_served_as(found):
        raise ValueError(
            f"--codebook: it is of layer {book.origin.layer} of {book.origin.model}, and the "
            f"states in {path} are of layer {found.layer} of {found.model}"
        )
