"""``tacit audit store``: what a thief of a vector store's files gets."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.text import Text

from tacit.cli.console import line
from tacit.cli.hidden.inputs import llm_extra
from tacit.cli.options import Force, Json, grouped
from tacit.cli.output import json_output

HOLDERS = "this output is the holder's: it says what the store's files tell"

EXPLAINED = (
    "bits: of b bits about a document, anyone's chance of guessing anything about it right grows "
    "at most 2^b times, whatever they know besides",
    "a fault: the files hold more than codes, such as exact vectors, live or deleted; the remedy "
    "below it removes it",
    "in the clear: columns beside the vectors are read as they stand, and no bound covers them",
    "not looked at: memory, backups elsewhere, and who may ask the store while it runs",
)


@grouped
def store(
    path: Annotated[
        str,
        typer.Argument(
            help="File or folder of FAISS, SQLite, LanceDB, Chroma, Qdrant's client, a sealed "
            "store or files of vectors (.npy, .npz, .safetensors, .parquet); or a postgresql:// "
            "URL."
        ),
    ],
    codebook: Annotated[
        str | None, typer.Option(help="Codebook whose codewords the live vectors should be.")
    ] = None,
    vectors: Annotated[
        str | None,
        typer.Option(
            help="Exact vectors that should not be in the store: a file (.npy, .npz, .safetensors, "
            ".parquet) or a folder of these."
        ),
    ] = None,
    by: Annotated[
        str | None,
        typer.Option(
            "--person", help="Column that says whose a row is, to count the rows of each person."
        ),
    ] = None,
    explain: Annotated[
        bool, typer.Option("--explain", help="Say what each line means, and what is not looked at.")
    ] = False,
    json: Json = None,
    force: Force = False,
) -> None:
    """Look at every byte of a store as a thief of its files would: live, deleted, in old versions.

    Exit 1 when exact vectors or other faults are found, 0 when none are, 2 where rows could not be
    read and no --vectors were sought.
    """
    output = json_output(json, force, {"--codebook": codebook, "--vectors": vectors})
    from tacit.stores import audit_store
    from tacit.stores.audit.readers import read_vectors

    book = rows = None
    if codebook is not None:
        with llm_extra():
            from tacit.hidden_states import load_codec
        try:
            book = load_codec(codebook)
        except ValueError as error:
            raise ValueError(f"--codebook: {str(error).removeprefix('path: ')}") from None
    if vectors is not None:
        rows = read_vectors("--vectors", Path(vectors))
    found = audit_store(path, codec=book, vectors=rows, by=by)
    output.write(found.to_dict())
    console = output.console
    console.print(Text(found.verdict, "bold red" if found.faults else "bold"))
    line(console, "store", f"{found.kind}, {_counted(found.rows)}")
    if found.on_codebook is not None and found.rows:
        line(console, "codebook", f"{found.on_codebook:,} of {found.rows:,} live vectors are its")
    for number, fault in enumerate(found.faults):
        line(console, "fault", fault.what)
        # one remedy of several faults alike is told once, after the last
        after = found.faults[number + 1 :]
        if not after or after[0].remedy != fault.remedy:
            line(console, "remedy", fault.remedy)
    if found.clear:
        line(console, "in the clear", ", ".join(found.clear))
    if vectors is None:
        line(console, "not sought", "exact vectors left in the files: --vectors says which")
    for assumption in found.assumptions:
        line(console, "if", assumption)
    for words in EXPLAINED if explain else ():
        line(console, "meaning", words)
    line(console, "keep", HOLDERS)
    output.tell()
    if found.faults:
        raise typer.Exit(1)
    if found.rows is None and vectors is None:
        # nothing was looked at: no script takes it for clean
        raise typer.Exit(2)


def _counted(rows: int | None) -> str:
    return "whose rows were not read" if rows is None else f"{rows:,} row{'s' * (rows != 1)}"
