"""A SELECT that can be answered: what it asks of persons, and where their rows come from."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from tacit.statistics.engines.caps import CapStatement
from tacit.statistics.engines.dialects import Dialect
from tacit.statistics.engines.expressions import Ends
from tacit.statistics.engines.statement import RowSource
from tacit.statistics.queries.counts import GroupBy
from tacit.statistics.queries.statistic import Statistic


@dataclass(frozen=True)
class Asked:
    """One number of the list: what it is called, and what it is of the rows of a group.

    Attributes:
        name: its alias, or how it was written.
        statistic: of the columns that hold its numbers.
        text: as it was written.
    """

    name: str
    statistic: Statistic
    text: str


@dataclass(frozen=True)
class Key:
    """A column by which rows are grouped.

    Attributes:
        name: of the column.
        text: it, as it is compared.
        literals: the declared levels, as it is compared with them.
        levels: the same as they were declared.
        sought: whether nobody declared them, and they are found; ``literals`` holds what stands for
            one of them then.
        found: whether they were: of a person's rows those in any group are read then, found or not.
    """

    name: str
    text: str = field(repr=False)
    literals: tuple[str, ...] = field(repr=False)
    levels: tuple[str | float, ...]
    sought: bool = False
    found: bool = False


@dataclass(frozen=True)
class Selection:
    """A SELECT that was read.

    Attributes:
        asked: its numbers, each in every group.
        keys: what it groups by.
        numbers: the columns that numbers are computed of: text and bounds, by name; a column whose
            bounds are None only says whether a row counts.
        persons: the person of a row, as a text of the statement.
        origin: what stands behind FROM.
        condition: what stands behind WHERE; empty for none.
        tables: names of the tables that are read.
        unit: the column of the persons.
        caps: of the rows and groups of a person; None for none.
    """

    asked: tuple[Asked, ...]
    keys: tuple[Key, ...]
    numbers: Mapping[str, tuple[str, Ends | None]] = field(repr=False)
    persons: str = field(repr=False)
    origin: str = field(repr=False)
    condition: str = field(repr=False)
    tables: tuple[str, ...]
    unit: str
    caps: CapStatement | None = None

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns of what is read, those of numbers before those of groups."""
        return (*self.numbers, *(key.name for key in self.keys))

    def rows(self) -> RowSource:
        """Return what an engine reads."""
        first = len(self.numbers)
        held = [f"{text} AS x{place}" for place, (text, _) in enumerate(self.numbers.values())]
        held += [f"{key.text} AS k{first + place}" for place, key in enumerate(self.keys)]
        text = f"SELECT {', '.join([f'{self.persons} AS p', *held])} FROM {self.origin}"
        if self.condition:
            text += f" WHERE {self.condition}"
        if self.caps is not None:
            # in the order of names, whatever that of a file or a statement is
            numbers = sorted((name, f"x{place}") for place, name in enumerate(self.numbers))
            keys = {
                f"k{first + place}": f"k{first + place} IS NOT NULL"
                if key.sought or key.found
                else f"k{first + place} IN ({', '.join(key.literals)})"
                for place, key in sorted(enumerate(self.keys), key=lambda pair: pair[1].name)
            }
            text = self.caps.text(text, [column for _, column in numbers], keys)
        coded = [{float(code): one for code, one in enumerate(key.literals)} for key in self.keys]
        return RowSource(text, {first + place: held for place, held in enumerate(coded)})

    @property
    def sought(self) -> Key | None:
        """What it groups by whose values nobody declared; None for none."""
        return next((key for key in self.keys if key.sought), None)

    def with_keys(self, levels: Sequence[str | float], dialect: Dialect) -> Selection:
        """Return the same by values that were found."""
        written = tuple(dialect.literal(one) for one in levels)
        keys = tuple(
            replace(key, literals=written, levels=tuple(levels), sought=False, found=True)
            if key.sought
            else key
            for key in self.keys
        )
        return replace(self, keys=keys)

    def statistics(self) -> tuple[Statistic, ...]:
        """Return what is asked, in every group."""
        grouped = []
        for one in self.asked:
            statistic = one.statistic
            for key in self.keys:
                statistic = GroupBy(statistic, key.name)
            grouped.append(statistic)
        return tuple(grouped)
