"""What a language model keeps of its texts: canaries with secrets, exposure, a bound on it."""

from .canaries import Canaries as Canaries
from .exposure import Exposures as Exposures
from .exposure import exact_memorisation as exact_memorisation
from .exposure import exposures as exposures
from .workflow import MemorisationPlan as MemorisationPlan
from .workflow import Sequences as Sequences
from .workflow import prepare_memorisation as prepare_memorisation
