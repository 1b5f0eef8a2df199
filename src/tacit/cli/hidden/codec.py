"""``tacit hidden fit``, ``encode`` and ``decode``: codes in the place of stored vectors."""

from __future__ import annotations

import json as json_text
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.text import Text

from tacit._ground.checks import integer
from tacit.cli.console import command_line, line
from tacit.cli.hidden.inputs import llm_extra
from tacit.cli.options import Force, Json, LedgerFile, NoBudget, Secret
from tacit.cli.output import check_distinct, json_output, new_file
from tacit.cli.publishing import Destination, Flags, tell_prepared

if TYPE_CHECKING:
    from tacit.hidden_states.codebooks.codecs import Codec
    from tacit.hidden_states.codebooks.vectors import Blocks

Column = Annotated[
    str | None, typer.Option(help="Tensor or column of the file, where it has several.")
]
Book = Annotated[str, typer.Option("--codebook", help="Codebook that codebook or fit wrote.")]
KINDS = ".safetensors, .parquet or .npy file"


def fit(
    vectors: Annotated[str, typer.Argument(help=f"Public vectors: a {KINDS}.")],
    out: Annotated[str, typer.Option(help="Safetensors file to write.")],
    codewords: Annotated[int, typer.Option(help="C, cells of a part at most.")] = 256,
    parts: Annotated[int, typer.Option(help="m, parts that a vector is cut into.")] = 1,
    least_cell: Annotated[
        int, typer.Option(help="Vectors that a codeword is the average of at least.")
    ] = 20,
    calibration: Annotated[int, typer.Option(help="Vectors to fit on, drawn from the file.")] = (
        100_000
    ),
    seed: Annotated[int, typer.Option(help="Fixes what is drawn and fitted.")] = 0,
    column: Column = None,
    json: Json = None,
    force: Force = False,
) -> None:
    """Fit a codebook, or a product of them, on a file of public vectors such as embeddings."""
    output = json_output(json, force)
    integer("--calibration", calibration, minimum=1)
    integer("--seed", seed, minimum=0)
    place = new_file("--out", out, force)
    check_distinct({"VECTORS": Path(vectors).resolve(), "--out": place, "--json": output.path})
    with llm_extra():
        from tacit.hidden_states import ProductCodebook
        from tacit.hidden_states.codebooks.vectors import open_vectors
    public = _drawn(open_vectors("VECTORS", vectors, column=column), calibration, seed)
    book = ProductCodebook.fit(public, parts=parts, size=codewords, least_cell=least_cell, rng=seed)
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
        }
    )
    console = output.console
    console.print(Text(bound.describe(), "bold"))
    line(console, "codebook", f"{book.words}, in {out}")
    line(console, "calibration", f"{book.calibration:,} vectors, which are public from here on")
    output.tell()


def encode(
    codebook: Book,
    out: Annotated[str, typer.Option(help=f"Codes to write: a {KINDS}.")],
    states: Annotated[
        str | None, typer.Argument(help=f"Vectors to encode: a {KINDS}; or --prompts.")
    ] = None,
    prompts: Annotated[
        str | None,
        typer.Option(help="Text file, or folder of them: a prompt a line."),
    ] = None,
    model: Annotated[
        str | None, typer.Option(help="Model that reads the prompts; the codebook's if left out.")
    ] = None,
    layer: Annotated[
        int | None, typer.Option(help="Layer of the states; the codebook's when left out.")
    ] = None,
    releases: Annotated[
        int, typer.Option(help="T, rows of the file about one prompt at most.")
    ] = 1,
    epsilon: Annotated[
        float | None,
        typer.Option(help="ε of randomised response over the codes; none if left out."),
    ] = None,
    near: Annotated[
        int, typer.Option(help="Codes most like the true one that --epsilon reports for it.")
    ] = 1,
    column: Column = None,
    json: Json = None,
    force: Force = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Print the guarantees; write nothing.")
    ] = False,
    ledger: LedgerFile = None,
    secret: Secret = None,
    no_budget: NoBudget = False,
) -> None:
    """Write one code for every vector or prompt, with what is certified of them in the file."""
    if (states is None) == (prompts is None):
        raise ValueError("--prompts: expected a file of states or of prompts, exactly one of them")
    if ledger is not None and secret is None:
        raise ValueError("--secret: expected the name of the secret beside --ledger, got none")
    source = str(states if prompts is None else prompts)
    place = _new_store(out, force)
    flags = Flags(
        data=source, report=None, json=json, ledger=ledger, secret=secret, reproducible=False,
        no_budget=no_budget, force=force,
    )  # fmt: skip
    destination = Destination.checked(flags, secret or "")
    check_distinct(
        {
            "STATES" if prompts is None else "--prompts": Path(source).resolve(),
            "--codebook": Path(codebook).resolve(),
            "--out": place,
            "--json": destination.json.path,
        }
    )
    with llm_extra():
        from tacit.hidden_states.codebooks.codecs import load_codec
        from tacit.hidden_states.codebooks.encoding import KnownCodes, prepare_codes
        from tacit.hidden_states.codebooks.vectors import open_vectors
    book = load_codec(codebook)
    if prompts is None:
        if model is not None:
            raise ValueError(f"--model: expected it beside --prompts, got {model!r} beside states")
        rows: Any = open_vectors("STATES", source, column=column)
        _check_origin(book, rows, layer, source)
    else:
        rows = KnownCodes(_codes_of_prompts(book, source, model, layer))
    prepared = prepare_codes(book, rows, out=place, releases=releases, epsilon=epsilon, near=near)
    if dry_run:
        tell_prepared(prepared, destination.json)
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
    codes: Annotated[str, typer.Argument(help="File of codes that encode wrote.")],
    codebook: Book,
    out: Annotated[str, typer.Option(help=f"Vectors to write: a {KINDS}.")],
    json: Json = None,
    force: Force = False,
) -> None:
    """Write the vector that stands for every code: post-processing, so the guarantee stays."""
    output = json_output(json, force)
    place = _new_store(out, force)
    check_distinct(
        {
            "CODES": Path(codes).resolve(),
            "--codebook": Path(codebook).resolve(),
            "--out": place,
            "--json": output.path,
        }
    )
    with llm_extra():
        from tacit.hidden_states.codebooks.codecs import load_codec
        from tacit.hidden_states.codebooks.encoding import decode_codes
    book = load_codec(codebook)
    released = decode_codes(book, codes, place, argument="CODES")
    output.write({**released.to_dict(), "out": out})
    console = output.console
    console.print(Text(released.guarantees[0].describe(), "bold"))
    line(console, "decoded", f"{released.rows:,} vectors of {book.width} numbers in {out}")
    output.tell()


def _new_store(out: str, force: bool) -> Path:
    """Return where a file of rows goes, and refuse what its ending or the side file forbids."""
    with llm_extra():
        from tacit.hidden_states.codebooks.stores import check_suffix, side_file
    place = new_file("--out", out, force)
    assert place is not None
    if check_suffix("--out", place).suffix.lower() == ".npy":
        new_file("--out", str(side_file(place)), force)
    return place


def _drawn(source: Blocks, count: int, seed: int) -> Any:
    """Return so many rows of a file, chosen uniformly, in order."""
    import numpy as np

    from tacit.hidden_states.codebooks.encoding import finite_blocks

    kept = np.zeros(source.count, dtype=bool)
    chosen = np.random.default_rng(seed).choice(
        source.count, min(count, source.count), replace=False
    )
    kept[chosen] = True

    def parts() -> Iterator[Any]:
        start = 0
        for part in finite_blocks(source):
            yield part[kept[start : start + len(part)]]
            start += len(part)

    return np.concatenate(list(parts()))


def _check_origin(book: Codec, rows: Blocks, layer: int | None, path: str) -> None:
    """Refuse states that say they are of another model or layer than the codebook's."""
    from tacit.hidden_states.origin import origin_from

    if book.origin is None:
        return
    if layer is not None and layer != book.origin.layer:
        raise ValueError(f"--layer: the codebook was made with {book.origin.layer}, got {layer}")
    text = rows.metadata.get("origin")
    if text is None and "tacit" in rows.metadata:
        text = json_text.dumps(json_text.loads(rows.metadata["tacit"]).get("origin"))
    found = None if text is None else origin_from(json_text.loads(text))
    if found is None:
        return
    if (found.model_digest, found.layer) != (book.origin.model_digest, book.origin.layer):
        raise ValueError(
            f"--codebook: it is of layer {book.origin.layer} of {book.origin.model}, and the "
            f"states in {path} are of layer {found.layer} of {found.model}"
        )


def _codes_of_prompts(book: Codec, path: str, model: str | None, layer: int | None) -> Any:
    """Return the code of every line of a file, (n, m)."""
    from tacit.hidden_states import Codebook
    from tacit.hidden_states.codebooks.serving import codes_of_texts
    from tacit.hidden_states.origin import digest_of
    from tacit.models import load, read_text

    if not isinstance(book, Codebook):
        raise ValueError("--prompts: expected a codebook of a model's layer, got one of vectors")
    made = book.origin
    if made is None and (model is None or layer is None):
        raise ValueError("--model: the codebook names no model; give --model and --layer")
    if made is not None and layer is not None and layer != made.layer:
        raise ValueError(f"--layer: the codebook was made with {made.layer}, got {layer}")
    if not Path(path).exists():
        raise ValueError(f"--prompts: no such file or folder: {path}")
    lines = [text for text in read_text(path).splitlines() if text.strip()]
    if not lines:
        raise ValueError(f"--prompts: expected at least one line, got none in {path}")
    name = made.model if model is None and made is not None else str(model)
    found = load(name)
    if made is not None:
        here = replace(made, model=found.name, model_digest=digest_of(found.network.state_dict()))
        made.check(here, "the codebook")
    level = made.layer if made is not None else integer("--layer", layer, minimum=1)
    return codes_of_texts(book, found, level, lines)
