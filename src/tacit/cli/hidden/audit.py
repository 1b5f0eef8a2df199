"""``tacit audit model``: measure a layer, sweep releases of it, write one report."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
import typer
from rich.text import Text

from tacit.cli.console import line
from tacit.cli.hidden.inputs import FOLLOWING, CountFlags, Layer, PromptFlags, note, served
from tacit.cli.hidden.recorded import origin_of
from tacit.cli.options import Only, grouped
from tacit.cli.output import refuse_inputs
from tacit.cli.publishing import Destination, Paged, Source
from tacit.cli.store import store
from tacit.compute import progress_reports
from tacit.hidden_states.audit.request import SweepRequest, SweepRun, Wish

if TYPE_CHECKING:
    from torch import Tensor

    from tacit.cli.hidden.inputs import PromptFlags
    from tacit.hidden_states.audit.guessers import Column
    from tacit.models import LanguageModel, Prefixes
    from tacit.releases import Release


OWN, PUBLIC = "--attributes", "--public-attributes"


@dataclass(frozen=True)
class AttributeFlags:
    """What is guessed of the prompts beside their tokens."""

    attributes: Annotated[
        str | None,
        typer.Option(help="CSV with a row for each of --prompts. Attackers guess its columns."),
    ] = None
    public_attributes: Annotated[
        str | None,
        typer.Option(help="CSV with a row for each of --public-texts, which attackers learn from."),
    ] = None

    @property
    def paths(self) -> dict[str, str | None]:
        """The files that are read, by flag."""
        return {OWN: self.attributes, PUBLIC: self.public_attributes}

    def check(self, source: PromptFlags) -> None:
        """Refuse attributes without the prompts that they are about."""
        for flag, path in self.paths.items():
            if path is not None and not Path(path).is_file():
                raise ValueError(f"{flag}: no such file: {path}")
        if self.attributes is not None and source.prompts is None:
            raise ValueError(f"{OWN}: expected it beside --prompts, whose rows it is about")
        if self.public_attributes is not None:
            if self.attributes is None:
                raise ValueError(f"{PUBLIC}: expected it beside {OWN}, got it alone")
            if source.public_texts is None:
                raise ValueError(f"{PUBLIC}: expected it beside --public-texts, got none")

    def read(
        self, source: PromptFlags, model: LanguageModel, prefixes: Prefixes
    ) -> tuple[Column, ...]:
        """Return an attacker for every column: exact over the bank, learnt where public rows are.

        Args:
            source: the flags that chose the prompts.
            model: what made tokens of them.
            prefixes: the prompts that were taken.
        """
        from tacit.hidden_states.audit.guessers import Column

        if self.attributes is None:
            return ()
        assert source.prompts is not None
        bank = _table(OWN, self.attributes, source.prompts, source, model, prefixes.bank)
        known: dict[str, Any] = {}
        if self.public_attributes is None:
            note(f"attributes are read off the bank alone: to learn them from other prompts, give "
                 f"{PUBLIC} beside --public-texts")  # fmt: skip
        else:
            others, path = str(source.public_texts), self.public_attributes
            known = _table(PUBLIC, path, others, source, model, prefixes.calibration)
            if missing := [name for name in bank if name not in known]:
                raise ValueError(
                    f"{PUBLIC}: expected the columns of {OWN}, got none {missing[0]!r}"
                )
        return tuple(
            Column(about=name, bank=labels, calibration=known.get(name))
            for name, labels in bank.items()
        )


def _table(
    flag: str, path: str, prompts: str, source: PromptFlags, model: LanguageModel, taken: Tensor
) -> dict[str, Any]:
    """Return the labels of the prompts that were taken, by column."""
    from tacit.attacks import read_labels
    from tacit.models import read_prompts
    from tacit.models.padding import unpadded
    from tacit.models.texts.prompts import USUAL_COLUMNS

    column = None if Path(prompts).is_dir() else source.column
    texts = read_prompts(prompts, column=column, name="--prompts")
    labels = read_labels(path, name=flag)
    if Path(path).resolve() == Path(prompts).resolve():
        own = column or next((name for name in USUAL_COLUMNS if name in labels), None)
        labels = {name: held for name, held in labels.items() if name != own}
    if not labels:
        raise ValueError(f"{flag}: expected columns beside that of the prompts, got none")
    rows = len(next(iter(labels.values())))
    if rows != len(texts):
        raise ValueError(f"{flag}: expected a row for each of {len(texts):,} prompts, got {rows:,}")
    tokens = unpadded(served(source, model, texts, model.context - FOLLOWING, public=True))
    first: dict[tuple[int, ...], int] = {}
    for row, prompt in enumerate(tokens):
        first.setdefault(tuple(prompt.tolist()), row)
    places = np.array([first[tuple(prompt.tolist())] for prompt in unpadded(taken)])
    return {name: held[places] for name, held in labels.items()}


app = typer.Typer(
    help="Audit what a model would store: measure it, attack it, recommend what to keep.",
    no_args_is_help=True,
)


app.command("store")(store)


@app.callback()
def _group() -> None:
    pass


@app.command("model")
@grouped
def model_layer(
    layer: Layer,
    points: Annotated[
        str | None, typer.Option(help="JSON lines of the points, to resume from.")
    ] = None,
    explain: Annotated[
        bool,
        typer.Option("--explain", help="Print what the page folds away: all that was measured."),
    ] = False,
    *,
    counts: CountFlags,
    wish: Wish,
    request: Annotated[SweepRequest, Only("kl_budgets", "codewords")],
    attributes: AttributeFlags,
    outlet: Paged,
    source: PromptFlags,
) -> None:
    """Audit one layer of a language model: which release of its last state to store, and why."""
    from tacit._ground.files import check_writable

    others = {"--texts": source.texts, "--points": points, **attributes.paths}
    read = Source(path=None, name=source.data_name)
    destination = Destination.checked(outlet, read, others=others)
    if points is not None:
        refuse_inputs("--points", check_writable("--points", points))
    attributes.check(source)
    model, prefixes = source.prepare(layer, **counts.asked)
    from tacit.hidden_states import audit_layer
    from tacit.hidden_states.audit.guessers import USUAL_GUESSERS

    guessers = (*USUAL_GUESSERS, *attributes.read(source, model, prefixes))
    with progress_reports("preparing") as progress:
        audit = audit_layer(
            model,
            layer,
            wish,
            replace(request, guessers=guessers),
            prefixes=prefixes,
            sizes=counts.sizes,
            run=SweepRun(out=points, progress=progress),
            rng=source.seed,
        )
    # a digest of prompts tells which they are to whoever can guess them
    origin = origin_of(source, model, layer, prefixes, **counts.asked).public
    destination = replace(destination, source=replace(read, rows=len(prefixes.bank)))
    audit = destination.stated(replace(audit, digests=origin.digests))
    destination.store(audit)
    if explain:
        _explain(destination, audit)
    _tell(destination, audit)


def _explain(destination: Destination, audit: Release[Any]) -> None:
    """Print the tables that the page folds away, a line a row."""
    from tacit.hidden_states.audit.page.tables import LEFT, REACHED, guess_table, point_groups

    console, guessed = destination.json.console, guess_table(audit.details)
    for group in point_groups(audit.details):
        line(console, "measured", group.title)
        for row in group.rows:
            cells = zip((*REACHED, *LEFT), row.cells, strict=True)
            told = ", ".join(f"{head} {cell}" for head, cell in cells if cell != "–")
            mark = " (recommended)" if row.chosen else ""
            line(console, "", f"{row.name}{mark}: {told}")
    if guessed is not None:
        for name, *rates in guessed.rows:
            cells = zip(guessed.heads[1:], rates, strict=True)
            line(console, "attacker", f"{name}: {', '.join(f'{h} {c}' for h, c in cells)}")


def _tell(destination: Destination, audit: Release[Any]) -> None:
    """Print the verdict, why, and what is guaranteed of the release recommended."""
    from tacit.hidden_states.audit.page.words import audit_verdict, use_of

    console, found = destination.json.console, audit.details.recommendation
    conclusion = audit_verdict(audit)
    style = "bold" if conclusion.kind != "none" else "bold red"
    console.print(Text(conclusion.sentence, style))
    # where nothing is recommended, the verdict has the first reason
    said = 1 if found.point is None else 0
    for reason in found.reasons[said:]:
        line(console, "because", reason)
    if found.point is not None:
        line(console, "use", use_of(found.point))
    for guarantee in audit.guarantees:
        line(console, "guarantee", guarantee.describe())
    if destination.report is not None:
        line(console, "report", str(destination.report))
    line(console, "keep", audit.withheld)
    destination.json.tell()
