"""What a certificate is: frozen values with their evidence, assumptions, source and JSON."""

from .base import Evidence as Evidence
from .base import Guarantee as Guarantee
from .differential import ApproximateDP as ApproximateDP
from .differential import GaussianDP as GaussianDP
from .differential import Indistinguishability as Indistinguishability
from .differential import RenyiDP as RenyiDP
from .information import InformationBound as InformationBound
from .information import ResidualPrivacy as ResidualPrivacy
from .information import SuccessBound as SuccessBound
from .information import membership_bound as membership_bound
from .leakage import MaximalLeakage as MaximalLeakage
from .leakage import compose_leakage as compose_leakage
from .reading import guarantee_from_dict as guarantee_from_dict
from .reading import guarantee_from_json as guarantee_from_json
