"""Release a statistic of a table: design the noise, certify, attack, draw."""

from . import pairs as pairs
from . import sums as sums
from .comparison.compare import compare as compare
from .comparison.standing import Comparison as Comparison
from .comparison.standing import Standing as Standing
from .draws import PreparedStatistic as PreparedStatistic
from .numbers import NumbersRelease as NumbersRelease
from .prepared_numbers import PreparedNumbers as PreparedNumbers
from .queries import Query as Query
from .queries import built_in_queries as built_in_queries
from .queries import resolve_query as resolve_query
from .release import StatisticDiagnostics as StatisticDiagnostics
from .release import StatisticRelease as StatisticRelease
from .sessions.offers import Offer as Offer
from .sessions.session import Session as Session
from .tables.reading import fingerprint as fingerprint
from .tables.reading import read_query as read_query
from .tables.reading import read_table as read_table
from .tables.table import Category as Category
from .tables.table import Table as Table
from .user_code import QueryError as QueryError
from .workflow import prepare as prepare
from .workflow import privatize as privatize
