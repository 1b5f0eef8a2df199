"""Release a statistic or a classifier's logits: design the noise, certify, attack, draw."""

from tacit.statistics.classifier import classifier
from tacit.statistics.classifier_release import ClassifierAttack, ClassifierRelease
from tacit.statistics.contradiction import ContradictionError
from tacit.statistics.queries import Query, built_in_queries, resolve_query
from tacit.statistics.release import StatisticDiagnostics, StatisticRelease
from tacit.statistics.stackelberg import stackelberg
from tacit.statistics.workflow import privatize

__all__ = [
    "ClassifierAttack",
    "ClassifierRelease",
    "ContradictionError",
    "Query",
    "StatisticDiagnostics",
    "StatisticRelease",
    "built_in_queries",
    "classifier",
    "privatize",
    "resolve_query",
    "stackelberg",
]
