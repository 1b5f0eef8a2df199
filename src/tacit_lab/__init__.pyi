"""What is published as a guarantee and is an estimate, with checks that can refute it."""

from .stackelberg import StackelbergEstimate as StackelbergEstimate
from .stackelberg import estimate_stackelberg as estimate_stackelberg
