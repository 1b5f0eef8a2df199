"""Release a classifier's logits for inputs that are secrets drawn from a declared pool."""

from .release import Logits as Logits
from .workflow import PreparedLogits as PreparedLogits
from .workflow import prepare_logits as prepare_logits
from .workflow import privatize_logits as privatize_logits
