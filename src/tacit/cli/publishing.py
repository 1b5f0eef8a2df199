"""What every command that publishes does: check where it goes, reserve, draw, store, tell."""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from tacit._ground.checks import integer
from tacit.cli.console import command_line, line, tell_title
from tacit.cli.options import (
    Attacked,
    Certificate,
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
    from tacit.releases import Prepared, Release
    from tacit.statistics import DataTable

KEPT_OUTPUT = "this output is the holder's: what may be published is the certificate"
KEPT_DRY = "this output is the holder's: nothing was drawn, so there is nothing to publish"

# More numbers than these of one error are told in one line.
MOST_ALIKE = 12


@dataclass(frozen=True, kw_only=True)
class Outlet:
    """The flags of where a result goes."""

    panel: ClassVar[str] = "Output"

    json: Json = None
    force: Force = False


@dataclass(frozen=True, kw_only=True)
class Paged(Outlet):
    """The same as an outlet, and that of a page."""

    report: Report = None


@dataclass(frozen=True, kw_only=True)
class Charged(Outlet):
    """The flags of an outlet, and those of what pays for releases."""

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
class Paying(Charged, Paged):
    """The same, and that of a page."""


@dataclass(frozen=True, kw_only=True)
class Telling(Paged):
    """The same, and that of what draws random numbers."""

    seed: Seed = None

    def __post_init__(self) -> None:
        if self.seed is not None:
            integer("--insecure-seed", self.seed, minimum=0)


@dataclass(frozen=True, kw_only=True)
class Drawing(Telling, Paying):
    """The flags of a release that is drawn, paid for, and has a page and a certificate."""

    certificate: Certificate = None

    def __post_init__(self) -> None:
        Telling.__post_init__(self)
        Paying.__post_init__(self)


@dataclass(frozen=True, kw_only=True)
class Attacking(Drawing):
    """The same, and whether it is attacked."""

    attack: Attacked = True


def content_fingerprint(path: str) -> str:
    """Return the SHA-256 of the bytes of a file that is read, or of those of a folder in order."""
    place, found = Path(path), hashlib.sha256()
    parts = sorted(part for part in place.rglob("*") if part.is_file()) if place.is_dir() else []
    for part in parts or [place]:
        with part.open("rb") as stream:
            found.update(hashlib.file_digest(stream, "sha256").digest())
    return found.hexdigest()


@dataclass(frozen=True, kw_only=True)
class Source:
    """What a release is computed from, as the ledger and its provenance name it.

    Attributes:
        path: the file that is read; None for none, ``-`` for standard input.
        name: of the data.
        fingerprint: their digest, which names the secret where ``--secret`` does not.
        file_digest: that of the whole file, by which earlier versions named it.
        rows: how many records there are.
        columns: their columns.
        categories: the levels that codes stand for.
        observed: those of them whose levels were read and not declared.
        notes: what was said when it was read.
    """

    path: str | None
    name: str
    fingerprint: str | None = None
    file_digest: str | None = None
    rows: int | None = None
    columns: tuple[str, ...] = ()
    categories: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    observed: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()

    @staticmethod
    def of(table: DataTable, path: str | None) -> Source:
        """Return a table that was read from a path."""
        kinds = table.categories.items()
        return Source(
            path=path,
            name=table.label,
            fingerprint=table.fingerprint,
            file_digest=table.file_digest,
            rows=len(table),
            columns=table.columns,
            categories={name: kind.levels for name, kind in kinds},
            observed=tuple(name for name, kind in kinds if not kind.declared),
            notes=table.notes,
        )


@dataclass(frozen=True)
class Destination:
    """Where a release goes; every path is checked before the draw."""

    source: Source
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
        source: Source,
        *,
        spends: str = "",
        others: Mapping[str, str | None] | None = None,
    ) -> Destination:
        """Refuse now what could not be written, or paid for, after the work.

        Args:
            flags: what was asked for.
            source: what is read.
            spends: what a ledger will count the release as, a notion of ``tacit.ledger.notions``;
                empty for what no ledger pays for.
            others: files and folders that the command writes beside, by flag.
        """
        report = flags.report if isinstance(flags, Paged) else None
        seed = flags.seed if isinstance(flags, Telling) else None
        certificate = flags.certificate if isinstance(flags, Drawing) else None
        location = flags.ledger if isinstance(flags, Charged) else None
        if certificate is not None and seed is not None:
            raise ValueError(
                "--certificate: expected no --insecure-seed beside it, as a seeded release "
                "guarantees nothing"
            )
        for flag, place in (others or {}).items():
            if place == "-":
                raise ValueError(f"{flag}: expected a path, got -, which is for --json alone")
        check_distinct(
            {
                "DATA": None if source.path == "-" else absolute_path(source.path),
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
        here = Destination(source, page, public, output, location, None, None, False)
        if location is None or not isinstance(flags, Charged):
            return here
        from tacit._ground.files import check_writable
        from tacit.ledger import Ledger
        from tacit.ledger.store import MissingLedgerError

        path = ledger_file(location)
        if path is not None:
            check_writable("--ledger", path)
        try:
            book = Ledger(location, create=False)
        except MissingLedgerError:
            # A ledger is made when there is something to write into it.
            name = _named_secret(flags, source)
            return replace(here, secret=name, no_budget=flags.no_budget)
        name = _checked_secret(book, flags, source, spends, seeded=seed is not None)
        return replace(here, ledger=book, secret=name, no_budget=flags.no_budget)

    def opened(self) -> Destination:
        """Return the same with its ledger made, where there was none yet."""
        if self.location is None or self.ledger is not None:
            return self
        from tacit.ledger import Ledger

        return replace(self, ledger=Ledger(self.location))

    def draw(self, prepared: Prepared[Any], untold: Collection[str] = ()) -> Release[Any]:
        """Reserve, draw and commit; the release says where it comes from.

        Args:
            prepared: what is drawn.
            untold: flags whose values are the secret.
        """
        if self.ledger is None:
            release = prepared.draw()
        else:
            release = prepared.draw(
                ledger=self.ledger, secret=self.secret, no_budget=self.no_budget
            )
        return self.stated(release, untold)

    def stated(self, release: Release[Any], untold: Collection[str] = ()) -> Release[Any]:
        """Return a release that says how it was made, from what."""
        from tacit.releases import Provenance
        from tacit.releases.stores import RowDetails

        details = release.details
        provenance = Provenance(
            command=command_line(untold),
            data_name=self.source.name,
            data_fingerprint=self.source.fingerprint,
            data_rows=details.layout.shape[0]
            if isinstance(details, RowDetails)
            else self.source.rows,
            data_columns=self.source.columns,
            data_categories=self.source.categories,
            data_observed=self.source.observed,
            data_notes=self.source.notes,
            secret=self.secret,
            ledger=None if self.ledger is None else self.ledger.location,
        )
        return replace(release, provenance=provenance)

    def store(self, release: Release[Any]) -> None:
        """Write what the ledger has by now: if a file cannot be written, nothing is lost."""
        with self.paid():
            self.json.write(release.to_dict())
            if self.report is not None:
                from tacit.report import write_report

                write_report(release, self.report)
            if self.certificate is not None:
                from tacit.report import write_certificate

                write_certificate(release, self.certificate)

    @contextmanager
    def paid(self) -> Iterator[None]:
        """Say where the record of what was paid for stands, if a file of it is not written."""
        try:
            yield
        except (ValueError, OSError, KeyboardInterrupt) as error:
            if self.ledger is None or self.secret is None:
                raise
            told = (
                "the release was drawn and paid for, and its record stands in the "
                f"ledger: tacit ledger show --ledger {self.ledger.location} --json -"
            )
            if isinstance(error, KeyboardInterrupt):
                # who asks again pays again; the parser makes an exit code of what is raised
                print(f"tacit: {told}", file=sys.stderr)
                raise
            raise ValueError(f"{error}; {told}") from None

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


def publish(
    prepare: Callable[[], Prepared[Any]],
    flags: Paying,
    source: Source,
    *,
    spends: str,
    others: Mapping[str, str | None] | None = None,
    untold: Collection[str] = (),
    store: Callable[[Release[Any]], None] | None = None,
    tell: Callable[[Destination, Release[Any]], None] | None = None,
) -> None:
    """Check where a release goes and whether it can be paid, draw it, store it and tell of it.

    Args:
        prepare: returns the release that is to be drawn; called once all else can be done.
        flags: what was asked for.
        source: what is read.
        spends: what a ledger will count it as.
        others: files and folders that are written beside, by flag.
        untold: flags whose values are the secret, and stand nowhere.
        store: writes what the command writes beside JSON and pages, before these.
        tell: prints what came of it; ``tell_release`` when left out.
    """
    destination = Destination.checked(flags, source, spends=spends, others=others)
    prepared = prepare()
    if flags.dry_run:
        tell_prepared(prepared, destination.json)
        line(destination.json.console, "keep", KEPT_DRY)
        return
    destination = destination.opened()
    release = destination.draw(prepared, untold)
    if store is not None:
        with destination.paid():
            store(release)
    destination.store(release)
    (tell or tell_release)(destination, release)


def kept_beside(release: Release[Any], published: str | None) -> str:
    """Say that the output is the holder's, and which file of the release is not."""
    if release.reproducible or release.withheld or not release.guarantees:
        return "this output and the files written are the holder's: none of it may be published"
    if published is None:
        return "this output is the holder's: nothing was saved that may be published"
    return f"this output is the holder's: what may be published is {published}"


def tell_release(destination: Destination, release: Release[Any], kept: str | None = None) -> None:
    """Print the verdict, ten lines, which files were written and what is the holder's."""
    from tacit.pages.words import lines, verdict

    console = destination.json.console
    tell_title(console, verdict(release))
    for label, text in lines(release):
        line(console, label, text)
    destination.tell(kept or kept_beside(release, "the certificate"))


NO_ROW = (
    "no row can be read in every column used (words are read by --category or --levels, numbers "
    "with a decimal comma by --decimal ,)"
)


def tell_table(console: Console, table: DataTable) -> None:
    """Say what was read, what its codes mean, and what has to be said beside it."""
    columns = len(table.columns)
    size = f"{len(table):,} rows × {columns} column{'' if columns == 1 else 's'}"
    line(console, "data", f"{size}, {table.fingerprint[:23]}…")
    if table.dropped and not len(table):
        # said to the holder alone: a refusal would tell that one row more can be read
        line(console, "warning", f"{NO_ROW}: every number released is noise alone")
    for name, category in table.categories.items():
        codes = ", ".join(f"{code} = {level}" for code, level in enumerate(category.levels))
        line(console, "codes", f"{name}: {codes}")
    for note in table.notes:
        line(console, "note", note)


def tell_prepared(prepared: Prepared[Any], output: JsonOutput) -> None:
    """Say what a release would be: its guarantee and the error of every number."""
    from tacit.releases.showing import HALF
    from tacit.text import significant_up

    console = output.console
    void = "void: " if prepared.reproducible else ""
    for guarantee in prepared.guarantees:
        line(console, "guarantee", void + guarantee.describe())
    halves = {expected.half_width for expected in prepared.expected}
    if len(halves) == 1 and len(prepared.expected) > MOST_ALIKE:
        told = f"± {significant_up(halves.pop())} in each of {len(prepared.expected)} numbers"
        line(console, "error", f"{told} ({HALF})")
    else:
        for place, expected in enumerate(prepared.expected, 1):
            said = f" ({HALF})" if place == len(prepared.expected) else ""
            told = f"{expected.name} ± {significant_up(expected.half_width)}{said}"
            line(console, "error", told)
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


def _named_secret(flags: Charged, source: Source) -> str:
    """Return the secret's name: the flag's, or the fingerprint of what is read."""
    name = source.fingerprint if flags.secret is None else flags.secret
    if name is None:
        raise ValueError("--secret: expected the name of the secret in the ledger, got none")
    return name


def _checked_secret(
    book: Ledger, flags: Charged, source: Source, spends: str, *, seeded: bool
) -> str:
    """Return the secret's name; refuse now what the reservation would after the work."""
    from tacit.cli.ledger import name_of_rows
    from tacit.ledger.filters import uncounted

    secret = _named_secret(flags, source)
    if flags.secret is None:
        secret = name_of_rows(book, secret, source.file_digest)
    budget, left = book.budget(secret), book.remaining(secret)
    if budget is None or left is None:
        if not flags.no_budget:
            book.check_budgeted(secret)
        return secret
    if seeded:
        raise ValueError(
            f"--insecure-seed: a seeded release guarantees nothing, and secret {secret!r} has a "
            f"budget of {budget}; nothing was drawn"
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
    from tacit.report.ledger import spending_words

    left = book.remaining(secret)
    words = f"{book.location}: spent {spending_words(book.spent(secret))}"
    return words if left is None else f"{words}, {left} left"
