"""Release a statistic of a table: design the noise, certify, attack, draw."""

from . import pairs as pairs
from . import queries as queries
from .engines.workflow import prepare_sql as prepare_sql
from .people.consistent import consistent_counts as consistent_counts
from .prepared import PreparedNumbers as PreparedNumbers
from .queries.language import built_in_queries as built_in_queries
from .queries.statistic import Query as Query
from .sessions.session import Offer as Offer
from .sessions.session import Session as Session
from .tables.reading import fingerprint as fingerprint
from .tables.reading import read_query as read_query
from .tables.reading import read_table as read_table
from .tables.table import Category as Category
from .tables.table import DataTable as DataTable
from .user_code import QueryError as QueryError
from .workflow import prepare as prepare
from .workflow import privatize as privatize
