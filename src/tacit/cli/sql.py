"""From a SELECT about people to released numbers, a certificate and a ledger entry."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

import typer
from rich.text import Text

from tacit.cli.console import line
from tacit.cli.options import grouped
from tacit.cli.output import absolute_path
from tacit.cli.publishing import (
    Destination,
    Drawing,
    Source,
    Telling,
    content_fingerprint,
    publish,
)
from tacit.releases.promises import Table, bounds_of, clip_of, levels_of

if TYPE_CHECKING:
    from tacit.releases import Release
    from tacit.statistics.engines.policy import TablePolicy
    from tacit.statistics.engines.workflow import Answer

PAIRED = "NAME=PATH"
# Of a number that follows from noisy sums: its error before anything is drawn is of these.
NOMINAL = "1,000 rows spread over the bounds and groups"


@dataclass(frozen=True, kw_only=True)
class Tables:
    """What the query reads."""

    panel: ClassVar[str] = "Tables"

    table: Annotated[
        list[str] | None,
        typer.Option(
            metavar=PAIRED, help="A table: CSV, Parquet, JSON or DuckDB. May be repeated."
        ),
    ] = None
    public: Annotated[
        list[str] | None,
        typer.Option("--public-table", help="A table that holds no persons. May be repeated."),
    ] = None
    database: Annotated[
        str | None, typer.Option(help="URL of a PostgreSQL database that has the tables.")
    ] = None
    policy: Annotated[
        str | None,
        typer.Option(
            "--declarations",
            help="TOML that declares tables, person, bounds, keys, budget and ledger.",
        ),
    ] = None


@dataclass(frozen=True, kw_only=True)
class Protection:
    """Whom the answer hides, and how well."""

    panel: ClassVar[str] = "Promise"

    person: Annotated[
        str | None, typer.Option(help="Column that says whose a row is, in every table.")
    ] = None
    unit: Annotated[str | None, typer.Option(help="Word for a person, such as household.")] = None
    epsilon: Annotated[
        float | None, typer.Option(help="ε; without --delta, of discrete Laplace noise.")
    ] = None
    delta: Annotated[float | None, typer.Option(help="δ, with --epsilon.")] = None
    mu: Annotated[float | None, typer.Option(help="μ instead.")] = None
    rho: Annotated[float | None, typer.Option(help="ρ instead.")] = None
    success: Annotated[
        float | None, typer.Option(help="Largest chance of guessing a person instead.")
    ] = None
    bounds: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME=LOW:HIGH,…",
            help="Lowest and highest of columns that are summed; auto finds them for a tenth of "
            "the budget. May be repeated.",
        ),
    ] = None
    keys: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME=VALUE,…",
            help="Values of a column that is grouped by. When left out, those of one column are "
            "found, under --epsilon and --delta. May be repeated.",
        ),
    ] = None
    clip: Annotated[
        str | None,
        typer.Option(
            metavar="C|auto",
            help="Largest amount that one person may move the numbers, counted in rows at the "
            "bounds. When left out it is found from the tables where that is possible, and is "
            "10 elsewhere.",
        ),
    ] = None

    max_rows: Annotated[
        int | None,
        typer.Option(
            help="Largest number of one person's rows that are read. The choice of these rows "
            "depends on that person's rows alone."
        ),
    ] = None
    max_groups: Annotated[
        int | None,
        typer.Option(
            help="Largest number of groups in which one person's rows are read. The choice of "
            "groups depends on that person's rows alone."
        ),
    ] = None

    def promise(self, policy: TablePolicy) -> Table:
        """Return the promise, what was declared in the policy included."""
        own = {name: getattr(self, name) for name in ("success", "mu", "epsilon", "delta", "rho")}
        if all(one is None for one in own.values()):
            own = {**own, **policy.query}
        settings = policy.settings
        declared = settings.get("person")
        if declared is not None and self.person not in (None, declared):
            # whoever is hidden is the policy's to say, as is what pays
            raise ValueError(
                f"--person: expected {declared}, as the policy says, got {self.person}"
            )
        clip = _spelled("clip", clip_of, self.clip) if self.clip else settings.get("clip")
        return Table(
            **own,
            person=self.person or declared,
            unit=self.unit or settings.get("unit"),
            clip=clip,
            max_rows=settings.get("max_rows") if self.max_rows is None else self.max_rows,
            max_groups=settings.get("max_groups") if self.max_groups is None else self.max_groups,
            bounds={**policy.bounds, **_spelled("bounds", bounds_of, self.bounds or ())} or None,
            levels={**policy.keys, **_spelled("keys", levels_of, self.keys or ())} or None,
        )


@dataclass(frozen=True, kw_only=True)
class DrawingByPolicy(Drawing):
    """The flags of a release whose ledger a policy may name."""

    def __post_init__(self) -> None:
        # what pays is checked once the policy was read
        Telling.__post_init__(self)

    def with_policy(self, policy: TablePolicy) -> Drawing:
        """Return where the release goes, with the ledger and the secret of the policy.

        Raises:
            ValueError: another ledger or secret than the policy's, or a secret and no ledger.
        """
        given = {one.name: getattr(self, one.name) for one in fields(self)}
        for name in ("ledger", "secret"):
            said, own = policy.settings.get(name), given[name]
            same = said == own or (name == "ledger" and own and _same_place(said, own))
            if said is not None and own is not None and not same:
                # its budget would be spent a second time
                raise ValueError(f"--{name}: expected {said}, as the policy says, got {own}")
            given[name] = said if own is None else own
        if self.secret is None and given["ledger"] is None:
            given["secret"] = None
        return Drawing(**given)


def _same_place(said: str | None, own: str) -> bool:
    return said is not None and "://" not in own and absolute_path(said) == absolute_path(own)


Explain = Annotated[
    bool,
    typer.Option(
        "--explain",
        help="Print what is clipped and what noise each number gets; read no row, draw nothing.",
    ),
]
Query = Annotated[str, typer.Argument(metavar="SELECT", help="One SELECT.", show_default=False)]


@grouped
def sql(
    query: Query,
    *,
    tables: Tables,
    protected: Protection,
    drawing: DrawingByPolicy,
    explain: Explain = False,
) -> None:
    """Answer a SELECT about people from tables that stay where they are, with designed noise.

    Each person's rows, in all numbers together, are clipped and summed as whole numbers inside the
    engine that holds them; noise is drawn outside. What cannot be answered so is refused by name.
    """
    from tacit.ledger.notions import notion_of
    from tacit.statistics.engines.policy import TablePolicy, read_policy
    from tacit.statistics.engines.workflow import answer
    from tacit.statistics.promises import keeping_of

    policy = TablePolicy() if tables.policy is None else read_policy(tables.policy)
    promise, paying = protected.promise(policy), drawing.with_policy(policy)
    database = _database(tables.database, policy.settings.get("database"))
    given = _places(tables.table or (), tables.database is not None)
    places = {**policy.tables, **given}
    public = tuple(dict.fromkeys((*policy.public, *(tables.public or ()))))
    _check_declared(policy, given, public, at_server=database is not None)
    found = answer(
        query, places, promise, public=public, engine=_engine(database), rng=drawing.seed
    )
    paths = {} if database else places
    if explain:
        _explain(found, paying, paths)
        return
    named = paying.ledger is not None and paying.secret is None
    rows, files = _fingerprints(paths, public) if paths and named else (None, None)
    source = Source(
        path=None,
        name=", ".join(found.selection.tables),
        fingerprint=rows,
        file_digest=files,
        columns=found.selection.columns,
    )
    if paying.ledger is not None and paying.secret is None and source.fingerprint is None:
        raise ValueError("--secret: expected a name for the tables of a database, got none")
    _budget(policy, paying, source)
    publish(
        lambda: found.prepared if paying.dry_run else found.read(),
        paying,
        source,
        spends=notion_of(keeping_of(promise).counts(found.request)),
        others=_read_from(paths),
        tell=lambda destination, release: _tell(destination, release, found),
    )


def _check_declared(
    policy: TablePolicy, given: Mapping[str, str], public: Sequence[str], *, at_server: bool
) -> None:
    """Refuse flags that name another table than the policy, or make one of persons public.

    A table has one name and may be given another: it is known by where it is.

    Raises:
        ValueError: the message has the flag.
    """

    def place(path: str) -> object:
        # of a server the last part, whatever schema and case it is spelled with
        return path.rpartition(".")[2].strip('"').casefold() if at_server else absolute_path(path)

    for name, path in given.items():
        own = policy.tables.get(name, path)
        # of a server what is spelled otherwise may be of another schema
        if path != own if at_server else place(path) != place(own):
            raise ValueError(f"--table: expected {name} as the policy has it, got another")
    of_persons = {
        place(path): name for name, path in policy.tables.items() if name not in policy.public
    }
    for name in public:
        known = name if name in of_persons.values() else of_persons.get(place(given.get(name, "")))
        if known is not None:
            raise ValueError(
                f"--public-table: expected none of persons, as the policy says {known} is"
            )


def _spelled(name: str, read: Any, given: Any) -> Any:
    try:
        return read(given)
    except ValueError as error:
        raise ValueError(f"{name}: {error}") from None


def _places(texts: Sequence[str], there: bool) -> dict[str, str]:
    """Return what tables are, by name: ``visits=visits.parquet``; of a database, ``visits``."""
    found: dict[str, str] = {}
    for text in texts:
        name, given, path = text.partition("=")
        if not name.strip() or (given and not path) or not (given or there):
            raise ValueError(f"--table: expected {PAIRED}, got {text!r}")
        if name.strip() in found:
            raise ValueError(f"--table: the table {name.strip()!r} is named twice")
        found[name.strip()] = path or name.strip()
    return found


def _read_from(paths: Mapping[str, str]) -> dict[str, str]:
    """Return the files of tables by flag, each once: several tables may be of one."""
    files = {str(absolute_path(path)): name for name, path in paths.items()}
    return {f"--table {name}": path for path, name in files.items()}


def _database(given: str | None, declared: str | None) -> str | None:
    # another server's tables would be answered from the budget that is declared for these
    if given is not None and declared is not None and given != declared:
        raise ValueError("--database: expected the one as the policy says, got another")
    return given if declared is None else declared


def _engine(database: str | None) -> Any:
    if database is None:
        return None
    from tacit.statistics.engines.postgres import PostgreSQL

    return PostgreSQL(database)


def _fingerprints(paths: Mapping[str, str], public: Sequence[str]) -> tuple[str, str]:
    """Return the digests, by rows and by bytes, of all tables of persons that were declared.

    Whichever a query reads; one table has the name that it has for `tacit statistic`.
    """
    from tacit.cli.tables import PoolFlags

    private = [path for name, path in paths.items() if name not in public]
    files, rows = sorted(map(content_fingerprint, private)), []
    for path in private:
        try:
            rows.append(PoolFlags().fingerprints(path).rows)
        except ValueError:
            # what the engine alone can read is known by its bytes
            rows.append(f"sha256:{content_fingerprint(path)}")
    by_bytes = "sha256:" + hashlib.sha256("".join(files).encode()).hexdigest()
    if len(rows) == 1:
        return rows[0], by_bytes
    return "sha256:" + hashlib.sha256("".join(sorted(rows)).encode()).hexdigest(), by_bytes


def _budget(policy: TablePolicy, drawing: Drawing, source: Source) -> None:
    """Set the budget of the policy where the ledger has none for these tables yet."""
    if not policy.budget or drawing.ledger is None or drawing.dry_run:
        return
    from tacit.cli.ledger import name_of_rows
    from tacit.ledger import Ledger

    book = Ledger(drawing.ledger)
    name = drawing.secret
    if name is None:
        assert source.fingerprint is not None, "checked before"
        name = name_of_rows(book, source.fingerprint, source.file_digest)
    if name not in book.secrets() or book.budget(name) is None:
        if "secret" not in policy.settings:
            # for every further name, that of a flag or of a table that grew, it would be set anew
            book.check_budgeted(name)
        book.set_budget(name, **policy.budget)


def _explain(found: Answer, drawing: Drawing, paths: Mapping[str, str]) -> None:
    """Print what will be read, clipped and noised."""
    from tacit.cli.output import json_output

    output = json_output(drawing.json, drawing.force, _read_from(paths))
    content = found.explained()
    output.write(content)
    console = output.console
    for label, texts in content.items():
        for text in [texts] if isinstance(texts, str) else texts:
            line(console, label, text)
    for one in found.prepared.expected:
        told = f"{one.name} ± {one.error:.4g} (one deviation, of {NOMINAL})"
        line(console, "error", told)
    line(console, "drawn", "nothing: no row was read")
    output.tell()


def _tell(destination: Destination, release: Release[Any], found: Answer) -> None:
    """Print the verdict, every number with its interval, and the rest in a line each."""
    from tacit.pages.numbers import number_lines, strength_words
    from tacit.pages.words import verdict

    console, conclusion = destination.json.console, verdict(release)
    console.print(Text(conclusion.sentence, "bold" if conclusion.kind == "bounded" else "bold red"))
    for number, outputs in enumerate(number_lines(tuple(release.numbers or ()))):
        line(console, "" if number else "released", outputs)
    void = "void: " if release.reproducible else ""
    line(console, "hides", release.secret)
    line(console, "guarantee", void + strength_words(release.guarantees))
    line(console, "noise", release.method)
    for note in (*release.notes, *release.remarks):
        line(console, "note", note)
    line(console, "engine", found.persons.engine)
    destination.tell()
