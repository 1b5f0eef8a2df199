"""Choose the covariance of the noise: one problem, five measures of leakage."""

from .base import Design as Design
from .cost import ProtectedCost as ProtectedCost
from .grid import DiscreteNoise as DiscreteNoise
from .grid import DiscreteRelease as DiscreteRelease
from .grid import discrete as discrete
from .information.exact import true_information as true_information
from .information.gaussian import confident_information as confident_information
from .information.gaussian import covariance_radius as covariance_radius
from .information.gaussian import gaussian_information as gaussian_information
from .information.gaussian import log_det_information as log_det_information
from .information.streaming import efficient_information as efficient_information
from .kl import average as average
from .kl import ball as ball
from .kl import complement as complement
from .kl import generalized_eigen as generalized_eigen
from .kl import isotropic as isotropic
from .kl import power as power
from .listed.solver import worst_case as worst_case
from .streams.choosing import Banded as Banded
from .streams.choosing import Buffered as Buffered
from .streams.choosing import Participation as Participation
from .streams.choosing import least_error as least_error
from .streams.factor import StepFactor as StepFactor
from .streams.workload import PrefixSums as PrefixSums
