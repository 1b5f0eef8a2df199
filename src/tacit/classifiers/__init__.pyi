"""Release a classifier's logits for inputs that are secrets drawn from a declared pool."""

from .release import ClassifierAttack as ClassifierAttack
from .release import ClassifierRelease as ClassifierRelease
from .workflow import privatize_logits as privatize_logits
