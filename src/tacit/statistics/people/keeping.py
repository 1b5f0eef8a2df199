"""How a promise about people is kept."""

from __future__ import annotations

from dataclasses import replace

from tacit.guarantees import ApproximateDP, GaussianDP
from tacit.guarantees.base import Guarantee
from tacit.statistics.people.found import bounds_needed, prepare_found
from tacit.statistics.people.workflow import prepare as prepare_declared
from tacit.statistics.prepared import PreparedNumbers, StatisticRequest
from tacit.statistics.promises import Keeping
from tacit.statistics.queries.statistic import SumQuery


def prepare(request: StatisticRequest) -> PreparedNumbers:
    """Certify a query about people, by keys and bounds that were declared or will be found.

    Raises:
        ValueError: a query that is not answered so, or rows that cannot be read where they are.
    """
    if request.pool.unknown and isinstance(request.query, SumQuery):
        needed = bounds_needed(request.query)
        request = replace(request, pool=request.pool.seeking_bounds(needed))
    declared = request.pool.sought is None and not request.pool.unknown
    prepared = (prepare_declared if declared else prepare_found)(request)
    if request.pool.elsewhere is not None:
        # an engine that refuses does so before anything is charged
        prepared.read()
    return prepared


def counts(request: StatisticRequest) -> type[Guarantee]:
    """Return the kind of guarantee that a ledger will count."""
    stated = request.promise.pure or request.pool.sought is not None
    return ApproximateDP if stated else GaussianDP


KEEPING = Keeping(
    prepare=prepare,
    counts=counts,
    session="tacit.statistics.people.session:PeopleQuestions",
    looks=False,
    fewest=0,
)
