"""``tacit dock seed``: learnwares and example tasks for a dock that is empty."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tacit.cli.console import line
from tacit.cli.options import Json
from tacit.cli.output import json_output
from tacit_dock.cli.place import FOLDER, Database, Folder, open_store

if TYPE_CHECKING:
    from tacit.specifications.seeds.workflow import SeedLearnware
    from tacit_dock import DockStore

DEVELOPER = "tacit-seed"
DATA = "TACIT_DATA"


def seed(
    *,
    folder: Folder = FOLDER,
    database: Database = None,
    data: Annotated[
        str | None,
        typer.Option(
            "--data-folder",
            help=f"Folder of mnist.npz, cifar10.npz, ag_news_test.csv.gz; else ${DATA}.",
            show_default=False,
        ),
    ] = None,
    force: Annotated[
        bool, typer.Option("--force", help="Seed a dock that is not empty; replace --json's file.")
    ] = False,
    json: Json = None,
) -> None:
    """Fill an empty dock with learnwares made from the data at hand, and tasks to try."""
    from tacit.compute import progress_bar
    from tacit.specifications.seeds.workflow import example_tasks, seed_learnwares
    from tacit_dock.examples import Example, keep_example

    output = json_output(json, force)
    source = data or _there(os.environ.get(DATA))
    with open_store(folder, database, create=True) as store:
        if store.learnwares(limit=1).items and not force:
            raise ValueError(
                f"--folder: the dock in {folder} is not empty; --force seeds it all the same"
            )
        kept, there, tasks = 0, 0, 0
        with progress_bar(_total(source), "learnwares", shown=True) as told:
            for made in seed_learnwares(source):
                is_new = keep_seed(store, made)
                kept, there = kept + is_new, there + (not is_new)
                told(1)
        for task in example_tasks(source):
            keep_example(store, Example(task.name, task.title, task.specification))
            tasks += 1
    line(output.console, "learnwares", f"{kept} kept" + (f", {there} were there" if there else ""))
    line(output.console, "tasks", f"{tasks} to try on the page")
    line(output.console, "next", f"tacit dock serve --folder {folder}")
    output.write({"learnwares": kept, "there": there, "tasks": tasks})
    output.tell()


def keep_seed(store: DockStore, made: SeedLearnware) -> bool:
    """Keep a learnware; return whether it is new."""
    from tacit_dock import DockSettings, RefusedError, examine

    settings = DockSettings()
    parts = {
        "specification": made.specification,
        "card": made.card.encode(),
        "model": made.model,
        "release": made.release.encode(),
    }
    uploads = {}
    try:
        for name, content in parts.items():
            uploads[name] = store.blobs.upload(name, len(content))
            uploads[name].write(content)
        submission = examine(uploads, {}, settings)
        key = f"seed {made.name}"[:200].replace(" ", "-")
        store.submit(submission, DEVELOPER, f"{key}-{submission.body[-16:]}", settings)
    except RefusedError as error:
        if error.status == 409:
            return False
        raise
    finally:
        for upload in uploads.values():
            upload.discard()
    return True


def _total(folder: str | None) -> int:
    from tacit.specifications.seeds.material import FILES, PLANS

    elsewhere = {name.partition(".")[0].removesuffix("_test").replace("_", "") for name in FILES}
    found = set(PLANS) - elsewhere
    if folder is not None:
        found |= {
            name.partition(".")[0].removesuffix("_test").replace("_", "")
            for name in FILES
            if Path(folder, name).is_file()
        }
    return sum(len(PLANS[name]) for name in found)


def _there(folder: str | None) -> str | None:
    return folder if folder and Path(folder).is_dir() else None
