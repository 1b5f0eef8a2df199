"""Train so that the model stays indistinguishable from what safe references would give."""

from .gradients.base import PerExample as PerExample
from .gradients.capture import per_example as per_example
from .gradients.noise import carried_over as carried_over
from .gradients.noise import noisy_coefficients as noisy_coefficients
from .gradients.verification import verify_examples as verify_examples
