"""Flags of what is computed of a table, for the release and for the comparison."""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass
from typing import Annotated, ClassVar

import typer

from tacit.cli.completion import column, offered


@dataclass(frozen=True, kw_only=True)
class QueryFlags:
    """What is computed, and what noise in it costs."""

    panel: ClassVar[str] = "Statistic"

    query: Annotated[
        str,
        typer.Option(
            autocompletion=offered(
                "count",
                "sum",
                "mean",
                "std",
                "variance",
                "covariance",
                "correlation",
                "second-moments",
                "median",
                "quantiles",
                "least-squares",
                "principal-components",
                "histogram:",
                "two-way:",
                "cumulative:",
                "logistic",
                "kmeans:",
            ),
            help="count, sum, mean, std, variance, covariance, correlation, second-moments, "
            "median, quantiles[:0.25,0.5], least-squares, principal-components[:2], "
            "histogram:COLUMN[:EDGES], two-way:A,B, cumulative:COLUMN:THRESHOLDS, each with ' by "
            "COLUMN' behind it; logistic, kmeans:K; several joined by +; or module:function.",
        ),
    ]
    target: Annotated[
        str | None,
        typer.Option(
            autocompletion=column, help="Column a regression explains; the last when left out."
        ),
    ] = None
    cost: Annotated[
        str | None,
        typer.Option(
            autocompletion=offered("relative", "squared"),
            help="What noise costs: relative (each number in units of its own spread, when left "
            "out) or squared (error).",
        ),
    ] = None


def find_beside(query: str) -> None:
    """Let ``module:function`` be found beside the caller, and nothing for any other query."""
    from tacit.statistics.queries.language import names_import

    # a folder of data is no place of modules: what it holds would run in place of a library
    if names_import(query):
        sys.path.insert(0, os.getcwd())
