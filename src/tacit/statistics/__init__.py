"""Release a statistic of a table: simulate it, design the noise, certify, attack, draw."""

from tacit.statistics.queries import Query, built_in_queries, resolve_query
from tacit.statistics.release import StatisticDiagnostics, StatisticRelease
from tacit.statistics.workflow import privatize

__all__ = [
    "Query",
    "StatisticDiagnostics",
    "StatisticRelease",
    "built_in_queries",
    "privatize",
    "resolve_query",
]
