"""The ledger: every release against a secret, and a budget that is never overrun."""

from .ledger import Ledger as Ledger
from .ledger import verify_ledger as verify_ledger
from .notions import Budget as Budget
from .notions import Charge as Charge
from .notions import Spending as Spending
from .notions import charge_of as charge_of
from .records import BudgetChange as BudgetChange
from .records import BudgetExceededError as BudgetExceededError
from .records import Entry as Entry
from .records import IncomparableGuaranteeError as IncomparableGuaranteeError
from .records import NoBudgetError as NoBudgetError
from .reservation import Reservation as Reservation
from .verification import Verification as Verification
