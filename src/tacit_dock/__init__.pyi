"""Keep learnwares, and find one by the specification of a task."""

from .cards import Card as Card
from .cards import read_card as read_card
from .client import DockClient as DockClient
from .client import Fetched as Fetched
from .connection import DockError as DockError
from .errors import RefusedError as RefusedError
from .errors import UnavailableError as UnavailableError
from .moving import move_records as move_records
from .records import Filters as Filters
from .records import Learnware as Learnware
from .records import LearnwarePage as LearnwarePage
from .records import Revision as Revision
from .serving import create_application as create_application
from .serving import listen as listen
from .serving import serve as serve
from .settings import AdmissionPolicy as AdmissionPolicy
from .settings import DockSettings as DockSettings
from .store import DockStore as DockStore
from .submissions import Submission as Submission
from .submissions import examine as examine
from .tokens import Token as Token
