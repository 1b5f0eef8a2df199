"""``tacit hidden fit``, ``encode`` and ``decode``: codes in the place of stored vectors."""

from __future__ import annotations

import json as json_text
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.text import Text

from tacit import codec
from tacit._ground.checks import integer
from tacit.cli.console import line, tell_guarantee
from tacit.cli.hidden.embeddings import (
    different_texts,
    divided,
    embedded,
    origin_of_encoder,
    use_of,
)
from tacit.cli.hidden.inputs import content_digest, llm_extra
from tacit.cli.hidden.quotients import released_quotients
from tacit.cli.hidden.reading import ReaderFlags
from tacit.cli.options import grouped
from tacit.cli.output import JsonOutput, check_distinct, json_output, new_file
from tacit.cli.publishing import Destination, Outlet, Paying, Source, content_fingerprint, publish
from tacit.hidden_states.codebooks.methods import PromptCodes, VectorFit
from tacit.releases.promises import ROW
from tacit.text import number_up

if TYPE_CHECKING:
    from tacit.hidden_states.codebooks.codec import Codec
    from tacit.hidden_states.origin import Origin
    from tacit.releases import Release
    from tacit.releases.vectors import VectorBlocks

Column = Annotated[
    str | None, typer.Option(help="Tensor or column of the file, where it has several.")
]
Book = Annotated[str, typer.Option("--codebook", help="Codebook that codebook or fit wrote.")]
BITS_DIGITS = 4
# parts whose cells are listed
MOST_LISTED = 16
KINDS = ".safetensors, .parquet or .npy file"


@dataclass(frozen=True)
class PublicFlags:
    """Public vectors, or public texts and the encoder that reads them."""

    vectors: Annotated[
        str | None, typer.Argument(help=f"Public vectors: a {KINDS}; or --encoder.")
    ] = None
    encoder: Annotated[
        str | None,
        typer.Option(help="Encoder such as BERT, a folder or a name, that reads --public-texts."),
    ] = None
    public_texts: Annotated[
        str | None,
        typer.Option(
            help="Public texts to fit on: .txt (one a line), .jsonl, .csv, .tsv, .parquet, or a "
            "folder of .txt."
        ),
    ] = None
    pooling: Annotated[
        str | None,
        typer.Option(help="mean, cls or last; what the encoder's folder says, else the mean."),
    ] = None
    column: Column = None
    calibration: Annotated[
        int,
        typer.Option(
            help="Largest number of vectors to fit on (calibration set), drawn at random; fewer "
            "take less time."
        ),
    ] = 100_000
    seed: Annotated[int, typer.Option(help="Fixes what is drawn and fitted.")] = 0

    def __post_init__(self) -> None:
        integer("--calibration", self.calibration, minimum=1)
        integer("--seed", self.seed, minimum=0)

    def place(self) -> tuple[str, Path]:
        """Return what names the public file; refuse vectors beside texts, and neither."""
        texts = {"--encoder": self.encoder, "--public-texts": self.public_texts}
        if self.vectors is not None:
            for flag, given in {**texts, "--pooling": self.pooling}.items():
                if given is not None:
                    raise ValueError(f"{flag}: expected it without a file of vectors, got both")
            return "VECTORS", Path(self.vectors).resolve()
        for flag, given in texts.items():
            if given is None:
                raise ValueError(
                    f"{flag}: expected a file of vectors, or --encoder and --public-texts"
                )
        if not Path(str(self.public_texts)).exists():
            raise ValueError(f"--public-texts: no such file or folder: {self.public_texts}")
        return "--public-texts", Path(str(self.public_texts)).resolve()

    def read(self) -> tuple[Any, Any, Origin | None]:
        """Return rows to fit on and rows held out, in order, and where they come from."""
        if self.vectors is not None:
            from tacit.releases import open_vectors

            source = open_vectors("VECTORS", self.vectors, column=self.column)
            return *_drawn(source, self.calibration, self.seed), None
        from tacit.models import load_encoder

        texts = str(self.public_texts)
        found = different_texts(texts, self.column)
        parts = divided(len(found), self.calibration, self.seed)
        fitted, held = (found.select(part.tolist()) for part in parts)
        reads = load_encoder(str(self.encoder), pooling=self.pooling)
        origin = origin_of_encoder(reads, fitted, content_digest(texts, "--public-texts"))
        rows = embedded(reads, fitted)
        return rows, embedded(reads, held) if len(held) else rows[:0], origin


@grouped
def fit(
    out: Annotated[str, typer.Option(help="Safetensors file to write.")],
    *,
    public: PublicFlags,
    how: VectorFit,
    outlet: Outlet,
) -> None:
    """Fit a codebook on public vectors or the embeddings of public texts.

    The codebook codes whole vectors, --parts of them side by side, or --stages that are summed.

    A fifth of them at most are held out, and searched among to measure what decoded codes are
    good for.
    """
    output = json_output(outlet.json, outlet.force)
    place = new_file("--out", out, outlet.force)
    named, path = public.place()
    check_distinct({named: path, "--out": place, "--json": output.path})
    with llm_extra():
        from tacit.hidden_states import fit_vectors
    rows, held, origin = public.read()
    book: Codec = fit_vectors(rows, how, rng=public.seed)
    book = replace(book, origin=origin)  # type: ignore[type-var]
    use, about = use_of(book, held), PromptCodes(unit=ROW if origin is None else None)
    with llm_extra():
        from tacit.hidden_states.codebooks.release import worded_as
    bound = worded_as(book.leakage(), about)
    book.save(out)
    output.write(
        {
            "out": out,
            "digest": book.digest,
            "sizes": list(book.sizes),
            "asked_bits": how.asked_bits,
            "kept_bits": book.kept_bits,
            "calibration": book.calibration,
            "least_cell": book.least_cell,
            "guarantee": bound.to_dict(),
            "origin": None if origin is None else codec.write(type(origin), origin),
            "use": None if use is None else asdict(use),
        }
    )
    console = output.console
    tell_guarantee(console, bound)
    line(console, "codebook", f"{book.words}, in {out}")
    line(console, "bits", f"{number_up(book.kept_bits, BITS_DIGITS)} kept of the "
         f"{number_up(how.asked_bits, BITS_DIGITS)} asked for")  # fmt: skip
    if min(book.sizes) < how.size:
        line(console, "cells", f"{_cells_in_words(book.sizes, how.size)} asked for: those of fewer "
             f"than {how.least_cell} vectors were removed")  # fmt: skip
    if use is not None:
        found, ranks = use.recall, use.rank_correlation
        line(console, "use", f"recall at {use.neighbours} {found.value:.0%} [{found.low:.0%}, "
             f"{found.high:.0%}], rank correlation {ranks.value:.2f} [{ranks.low:.2f}, "
             f"{ranks.high:.2f}], among {use.stored:,} held-out vectors")  # fmt: skip
    line(console, "calibration", f"{book.calibration:,} vectors, which are public from here on")
    output.tell()


def _cells_in_words(sizes: tuple[int, ...], asked: int) -> str:
    """Return the cells that are left of those of every part."""
    if len(sizes) > MOST_LISTED:
        return f"{min(sizes):,} to {max(sizes):,} of the {asked:,} of each part"
    kept = " · ".join(f"{size:,}" for size in sizes)
    return (
        f"{kept} of the {len(sizes)} × {asked:,}" if len(sizes) > 1 else f"{kept} of the {asked:,}"
    )


@grouped
def encode(
    codebook: Book,
    out: Annotated[str, typer.Option(help=f"Codes to write: a {KINDS}.")],
    states: Annotated[
        str | None, typer.Argument(help=f"Vectors to encode: a {KINDS}; or --prompts.")
    ] = None,
    column: Column = None,
    *,
    promise: PromptCodes,
    outlet: Paying,
    reader: ReaderFlags,
) -> None:
    """Write one code for every vector or prompt, with what is certified about them in the file."""
    prompts = reader.prompts
    if (states is None) == (prompts is None):
        raise ValueError("--prompts: expected a file of states or of prompts, exactly one of them")
    if outlet.ledger is not None and outlet.secret is None:
        raise ValueError("--secret: expected the name of the secret beside --ledger, got none")
    from tacit.ledger.notions import MAXIMAL_LEAKAGE

    reader.check()
    source, named = str(prompts or states), "STATES" if prompts is None else "--prompts"
    place = _new_store(out, outlet.force)
    check_distinct(
        {
            named: Path(source).resolve(),
            "--codebook": Path(codebook).resolve(),
            "--out": place,
            "--json": json_output(outlet.json, outlet.force).path,
        }
    )
    with llm_extra():
        from tacit.hidden_states import prepare_codes
        from tacit.releases import open_vectors
    book = read_codec(codebook)
    rows: Any = None
    if prompts is None:
        rows = open_vectors("STATES", source, column=column)
        _check_origin(book, rows, reader.layer, source)

    if prompts is None and book.origin is None and promise.unit is None:
        # no model here has made these vectors of prompts
        promise = replace(promise, unit=ROW)

    def prepare() -> Any:
        with llm_extra():
            read = rows if prompts is None else reader.rows(book, column)
        return prepare_codes(book, read, promise, out=place)

    def tell(destination: Destination, release: Release[Any]) -> None:
        console = destination.json.console
        first, *others = release.guarantees
        tell_guarantee(console, first)
        for held in others:
            console.print(Text(held.describe()))
        if promise.unit == ROW:
            line(console, "one record", "a row; --unit names what it was made of, such as text")
        count, made = release.details.rows, dict(release.digests)["codebook"]
        line(console, "released", f"{count:,} codes, one a row, in {out}: {release.method}")
        line(console, "codebook", f"SHA-256 {made[:12]}…, which decode asks for")
        destination.tell(f"this output is the holder's: what may be published is {out}")

    publish(
        prepare,
        outlet,
        Source(path=None, name=source, fingerprint=content_fingerprint(source)),
        spends=MAXIMAL_LEAKAGE,
        others={named: source, "--codebook": codebook, "--out": str(place)},
        tell=tell,
    )


@grouped
def decode(
    codes: Annotated[
        str, typer.Argument(help="File of codes that encode wrote, or release of quotient.")
    ],
    out: Annotated[str, typer.Option(help=f"Vectors to write: a {KINDS}.")],
    codebook: Annotated[
        str | None,
        typer.Option(
            help="File of a codebook that `tacit hidden codebook` or `fit` "
            "wrote; for quotients give --fitted."
        ),
    ] = None,
    fitted: Annotated[
        str | None,
        typer.Option(help="File of `tacit hidden quotient --out`, for a release of quotients."),
    ] = None,
    *,
    outlet: Outlet,
) -> None:
    """Write the vector that stands for every code: post-processing, so the guarantee stays.

    For a quotient that vector holds the log probability of every next token, as its decoder reads
    them.
    """
    if (codebook is None) == (fitted is None):
        raise ValueError("--codebook: expected this or --fitted, exactly one of them")
    output = json_output(outlet.json, outlet.force)
    place = _new_store(out, outlet.force)
    if fitted is not None:
        _decode_quotients(codes, fitted, place, output)
        return
    check_distinct(
        {
            "CODES": Path(codes).resolve(),
            "--codebook": Path(str(codebook)).resolve(),
            "--out": place,
            "--json": output.path,
        }
    )
    with llm_extra():
        from tacit.hidden_states import decode_codes
    book = read_codec(str(codebook))
    released = decode_codes(book, codes, place, argument="CODES")
    count = f"{released.details.rows:,} vectors of {book.width} numbers"
    _tell_decoded(output, released, f"{count} in {out}")


def _decode_quotients(codes: str, fitted: str, place: Path, output: JsonOutput) -> None:
    import numpy as np

    from tacit.releases.stores import Layout, write_rows

    released, held = released_quotients(codes, fitted, "CODES")
    assert released.details.quotients is not None
    rows = held.distributions(released.details.quotients).numpy()
    layout = Layout("distributions", rows.shape, np.dtype("<f4"), decoded=True)
    write_rows("--out", place, [rows], layout, lambda _: released)
    told = f"{len(rows):,} rows of ln p of {rows.shape[1]:,} next tokens in {place}"
    _tell_decoded(output, released, told)


def _tell_decoded(output: JsonOutput, released: Release[Any], told: str) -> None:
    output.write(released.to_dict())
    tell_guarantee(output.console, released.guarantees[0])
    line(output.console, "decoded", told)
    output.tell()


def read_codec(path: str) -> Codec:
    """Return the codebook of a file, whatever kind of code it is."""
    with llm_extra():
        from tacit.hidden_states import load_codec
    try:
        return load_codec(path)
    except ValueError as error:
        raise ValueError(f"--codebook: {str(error).removeprefix('path: ')}") from None


def _new_store(out: str, force: bool) -> Path:
    """Return where a file of rows goes, and refuse what its ending or the side file forbids."""
    from tacit.releases.stores import side_file
    from tacit.releases.vectors import check_suffix

    place = new_file("--out", out, force)
    assert place is not None
    if check_suffix("--out", place).suffix.lower() == ".npy":
        new_file("--out", str(side_file(place)), force)
    return place


def _drawn(source: VectorBlocks, count: int, seed: int) -> tuple[Any, Any]:
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


def _check_origin(book: Codec, rows: VectorBlocks, layer: int | None, path: str) -> None:
    """Refuse states that say they are of another model or layer than the codebook's."""
    if book.origin is None:
        if layer is not None:
            raise ValueError(f"--layer: the codebook was made with none, got {layer}")
        return
    if layer is not None and layer != book.origin.layer:
        raise ValueError(f"--layer: the codebook was made with {book.origin.layer}, got {layer}")
    found = _origin_in(rows.metadata, path)
    if found is not None and not book.origin.is_served_as(found):
        raise ValueError(
            f"--codebook: it is of layer {book.origin.layer} of {book.origin.model}, and the "
            f"states in {path} are of layer {found.layer} of {found.model}"
        )


def _origin_in(metadata: dict[str, str], path: str) -> Origin | None:
    """Return where the states of a file come from, if it says so: clean ones, or a release."""
    from tacit.hidden_states.origin import Origin

    try:
        if "origin" in metadata:
            told = json_text.loads(metadata["origin"])
        elif "tacit" in metadata:
            told = json_text.loads(metadata["tacit"])["release"]["details"].get("origin")
        else:
            return None
        found: Origin | None = codec.read(Origin | None, told, "origin")
        return found
    except (AttributeError, KeyError, TypeError, ValueError):
        raise ValueError(f"STATES: {path} names no origin that can be read") from None
