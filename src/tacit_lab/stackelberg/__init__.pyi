"""SR-PAC as published, an estimate of the noise a budget needs, with checks that can refute it."""

from .checks import Check as Check
from .checks import finite_information as finite_information
from .curves import BudgetCurves as BudgetCurves
from .curves import anisotropy as anisotropy
from .curves import budget_curves as budget_curves
from .curves import label_subspace as label_subspace
from .curves import task_share as task_share
from .estimate import StackelbergEstimate as StackelbergEstimate
from .estimate import StackelbergHistory as StackelbergHistory
from .noise import EllipticalNoise as EllipticalNoise
from .noise import FullGaussianNoise as FullGaussianNoise
from .noise import MixtureNoise as MixtureNoise
from .noise import StackelbergNoise as StackelbergNoise
from .workflow import StackelbergChecks as StackelbergChecks
from .workflow import StackelbergRules as StackelbergRules
from .workflow import decoder_margin as decoder_margin
from .workflow import estimate_stackelberg as estimate_stackelberg
