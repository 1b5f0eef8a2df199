"""What every command that publishes does: check where it goes, reserve, draw, store, tell."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from tacit._ground.checks import integer
from tacit.cli.console import command_line, line
from tacit.cli.options import (
    Attacked,
    DryRun,
    Force,
    Json,
    LedgerFile,
    NoBudget,
    Report,
    Secret,
    Seed,
)
from tacit.cli.output import (
    JsonOutput,
    absolute_path,
    check_distinct,
    json_output,
    ledger_file,
    new_file,
)

if TYPE_CHECKING:
    from rich.console import Console

    from tacit.ledger import Budget, Ledger
    from tacit.releases import Prepared, Provenance, Release
    from tacit.statistics import Table

Drawn = TypeVar("Drawn", bound="Release")

KEPT_OUTPUT = "this output is the holder's: what may be published is the certificate"


@dataclass(frozen=True, kw_only=True)
class Outlet:
    """The flags of where a result goes."""

    json: Json = None
    force: Force = False


@dataclass(frozen=True, kw_only=True)
class Paying(Outlet):
    """The same, and those of what pays for a release."""

    dry_run: DryRun = False
    ledger: LedgerFile = None
    secret: Secret = None
    no_budget: NoBudget = False

    def __post_init__(self) -> None:
        for flag, given in (
            ("--secret", self.secret is not None),
            ("--no-budget", self.no_budget),
        ):
            if given and self.ledger is None:
                raise ValueError(f"{flag}: expected --ledger beside it, got none")


@dataclass(frozen=True, kw_only=True)
class Telling(Outlet):
    """The same as an outlet, and those of what draws random numbers and has a page."""

    seed: Seed = None
    report: Report = None

    def __post_init__(self) -> None:
        if self.seed is not None:
            integer("--seed", self.seed, minimum=0)


@dataclass(frozen=True, kw_only=True)
class Drawing(Telling, Paying):
    """The flags of a release that is drawn, paid for, and has a page."""

    def __post_init__(self) -> None:
        Telling.__post_init__(self)
        Paying.__post_init__(self)


@dataclass(frozen=True, kw_only=True)
class Attacking(Drawing):
    """The same, and whether it is attacked."""

    attack: Attacked = True


@dataclass(frozen=True)
class Destination:
    """Where a release goes; every path is checked before the draw."""

    report: Path | None
    certificate: Path | None
    json: JsonOutput
    location: str | None
    ledger: Ledger | None
    secret: str | None
    no_budget: bool

    @staticmethod
    def checked(
        flags: Outlet,
        data: str | None,
        table: Table | None,
        *,
        spends: str,
        certificate: str | None = None,
        others: Mapping[str, str | None] | None = None,
    ) -> Destination:
        """Refuse now what could not be written, or paid for, after the work.

        Without a table whose rows name the secret, ``--secret`` names it.

        Args:
            flags: what was asked for.
            data: the file that is read; - for standard input.
            table: what was read.
            spends: what a ledger will count the release as, a notion of ``tacit.ledger.notions``.
            certificate: the page to publish, where one was asked for.
            others: files and folders that the command writes beside, by flag.
        """
        report, seed = (flags.report, flags.seed) if isinstance(flags, Telling) else (None, None)
        location = flags.ledger if isinstance(flags, Paying) else None
        if certificate is not None and seed is not None:
            raise ValueError(
                "--certificate: expected no --seed beside it, as a seeded release guarantees "
                "nothing"
            )
        for flag, place in (others or {}).items():
            if place == "-":
                raise ValueError(f"{flag}: expected a path, got -, which is for --json alone")
        check_distinct(
            {
                "DATA": None if data == "-" else absolute_path(data),
                "--report": absolute_path(report),
                "--certificate": absolute_path(certificate),
                "--json": None if flags.json == "-" else absolute_path(flags.json),
                "--ledger": None if location is None else ledger_file(location),
                **{flag: absolute_path(path) for flag, path in (others or {}).items()},
            }
        )
        page = new_file("--report", report, flags.force)
        public = new_file("--certificate", certificate, flags.force)
        output = json_output(flags.json, flags.force)
        if location is None or not isinstance(flags, Paying):
            return Destination(page, public, output, None, None, None, False)
        from tacit._ground.files import check_writable
        from tacit.ledger import Ledger

        path = ledger_file(location)
        if path is not None and not check_writable("--ledger", path).exists():
            # A ledger is made when there is something to write into it.
            name = flags.secret if table is None else flags.secret or table.fingerprint
            return Destination(page, public, output, location, None, name, flags.no_budget)
        book = Ledger(location)
        name = _checked_secret(book, flags, table, spends, seeded=seed is not None)
        return Destination(page, public, output, location, book, name, flags.no_budget)

    def opened(self) -> Destination:
        """Return the same with its ledger made, where there was none yet."""
        if self.location is None or self.ledger is not None:
            return self
        from tacit.ledger import Ledger

        return replace(self, ledger=Ledger(self.location))

    def draw(self, prepared: Prepared[Drawn]) -> Drawn:
        """Reserve, draw and commit."""
        if self.ledger is None:
            return prepared.draw()
        return prepared.draw(ledger=self.ledger, secret=self.secret, no_budget=self.no_budget)

    def provenance(self, table: Table, *, untold: Collection[str] = ()) -> Provenance:
        """Return how a release of the table is made; the values of some flags are left out."""
        from tacit.releases import Provenance

        return Provenance.capture(
            command_line(untold),
            data_name=table.label,
            data_fingerprint=table.fingerprint,
            data_rows=len(table),
            data_columns=table.columns,
            data_notes=table.notes,
            data_categories={name: kind.levels for name, kind in table.categories.items()},
            data_observed=tuple(
                name for name, kind in table.categories.items() if not kind.declared
            ),
            secret=self.secret,
            ledger=None if self.ledger is None else self.ledger.location,
        )

    def provenance_of(self, name: str, *, fingerprint: str, rows: int) -> Provenance:
        """Return how a release of records that are no table is made.

        Args:
            name: of the data.
            fingerprint: their digest.
            rows: how many there are.
        """
        from tacit.releases import Provenance

        return Provenance.capture(
            command_line(),
            data_name=name,
            data_fingerprint=fingerprint,
            data_rows=rows,
            secret=self.secret,
            ledger=None if self.ledger is None else self.ledger.location,
        )

    def store(self, release: Release, provenance: Provenance) -> None:
        """Write what the ledger has by now: if a file cannot be written, nothing is lost."""
        self.json.write({**release.to_dict(), "provenance": provenance.to_dict()})
        if self.report is not None:
            from tacit.report import write_report

            write_report(release, self.report, provenance)
        if self.certificate is not None:
            from tacit.report import write_certificate

            write_certificate(release, self.certificate, provenance)

    def tell(self, kept: str = KEPT_OUTPUT) -> None:
        """Say what was spent, which files were written and what of all this is the holder's."""
        console = self.json.console
        if self.ledger is not None and self.secret is not None:
            line(console, "ledger", _account(self.ledger, self.secret))
        if self.report is not None:
            line(console, "report", str(self.report))
        if self.certificate is not None:
            line(console, "certificate", str(self.certificate))
        self.json.tell()
        line(console, "keep", kept)


def tell_release(
    destination: Destination,
    release: Release,
    saved: Path | None = None,
    kept: str = KEPT_OUTPUT,
) -> None:
    """Print the verdict, ten lines, which files were written and what is the holder's."""
    from rich.text import Text

    from tacit.report.words import lines, verdict

    console, conclusion = destination.json.console, verdict(release.form)
    style = "bold" if conclusion.kind == "bounded" else "bold red"
    console.print(Text(conclusion.sentence, style))
    for label, text in lines(release.form):
        line(console, label, text)
    if saved is not None:
        line(console, "model", str(saved))
    destination.tell(kept)


def tell_table(console: Console, table: Table) -> None:
    """Say what was read, what its codes mean, and what has to be said beside it."""
    size = f"{len(table):,} rows × {len(table.columns)} columns"
    line(console, "data", f"{size}, {table.fingerprint[:23]}…")
    for name, category in table.categories.items():
        codes = ", ".join(f"{code} = {level}" for code, level in enumerate(category.levels))
        line(console, "codes", f"{name}: {codes}")
    for note in table.notes:
        line(console, "note", note)


def tell_prepared(prepared: Prepared[Any], output: JsonOutput) -> None:
    """Say what a release would be: its guarantee and the error of every number."""
    from tacit.text import significant

    console = output.console
    for guarantee in prepared.guarantees:
        line(console, "guarantee", guarantee.describe())
    for expected in prepared.expected:
        line(console, "error", f"{expected.name} ± {significant(expected.error)} (one deviation)")
    line(console, "drawn", "nothing: this was a dry run")
    output.write(
        {
            "guarantees": [guarantee.to_dict() for guarantee in prepared.guarantees],
            "expected": [vars(expected) for expected in prepared.expected],
            "description": prepared.description,
            "reproducible": prepared.reproducible,
        }
    )
    output.tell()


def _checked_secret(
    book: Ledger, flags: Paying, table: Table | None, spends: str, *, seeded: bool
) -> str:
    """Return the secret's name; refuse now what the reservation would after the work."""
    from tacit.cli.ledger import name_of_rows
    from tacit.ledger.filters import uncounted

    secret = flags.secret
    if secret is None:
        assert table is not None
        secret = name_of_rows(book, table.fingerprint, table.file_digest)
    budget, left = book.budget(secret), book.remaining(secret)
    if budget is None or left is None:
        if not flags.no_budget:
            book.check_budgeted(secret)
        return secret
    if seeded:
        raise ValueError(
            f"--seed: a seeded release guarantees nothing, and secret {secret!r} has a budget of "
            f"{budget}; nothing was drawn"
        )
    reason = uncounted(budget, {spends})
    if reason is not None:
        raise ValueError(f"guarantee: {reason} (secret {secret!r}); nothing was drawn")
    spent = _spent(spends, left)
    if spent is not None:
        raise ValueError(
            f"budget: secret {secret!r} has a budget of {budget} and no {spent} left of it; "
            "nothing was drawn"
        )
    return secret


def _spent(spends: str, left: Budget) -> str | None:
    """Return the kind of budget that counts such a release and of which nothing is left."""
    from tacit.ledger.notions import GAUSSIAN_DP, INFORMATION, MAXIMAL_LEAKAGE

    kinds = {
        INFORMATION: (("nats", left.nats),),
        MAXIMAL_LEAKAGE: (("nats", left.nats), ("leakage", left.leakage)),
        GAUSSIAN_DP: (("μ", left.mu), ("ε", left.epsilon)),
    }
    return next((name for name, rest in kinds.get(spends, ()) if rest == 0.0), None)


def _account(book: Ledger, secret: str) -> str:
    from tacit.cli.ledger import spending_words

    left = book.remaining(secret)
    words = f"{book.location}: spent {spending_words(book.spent(secret))}"
    return words if left is None else f"{words}, {left} left"
