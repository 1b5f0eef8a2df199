"""What is said beside a release about the table that it was read from."""

from __future__ import annotations


def dropped_words(dropped: int, count: int) -> str:
    """Say how many rows were dropped, and what that does to tables that differ in one row."""
    return (
        f"{dropped:,} of {count:,} rows were dropped for nothing that can be read in a column; a "
        "row's own cells decide it, so where two tables differ in one row, what is left of them "
        "differs in one row added, left out or replaced; how many were dropped is not hidden"
    )


def observed_words(column: str) -> str:
    """Say what levels tell that were read from the table itself."""
    return (
        f"the levels of {column} are those that occur: their list tells that each is in the table, "
        "which no promise hides; declare the levels to tell nothing"
    )
