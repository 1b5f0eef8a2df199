"""A release whatever workflow made it, how it is stored, and what every release does alike."""

from .contradiction import ContradictionError as ContradictionError
from .kinds import Kind as Kind
from .loading import load as load
from .loading import load_rows as load_rows
from .numbers import Number as Number
from .numbers import Numbers as Numbers
from .prepared import Expected as Expected
from .prepared import Prepared as Prepared
from .promises import Draw as Draw
from .promises import Effort as Effort
from .promises import Rows as Rows
from .promises import Table as Table
from .provenance import Provenance as Provenance
from .release import Attack as Attack
from .release import Release as Release
from .release import Use as Use
from .stores import save_rows as save_rows
from .vectors import open_vectors as open_vectors
