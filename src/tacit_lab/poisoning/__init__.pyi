"""What one malicious source can make a model do, and how little of it is left beside references."""

from .aggregation import robust_aggregate as robust_aggregate
from .network import pretrain as pretrain
from .network import small_network as small_network
from .sources import LabelledImages as LabelledImages
from .sources import Trigger as Trigger
from .sources import blended as blended
from .sources import low_frequency as low_frequency
from .workflow import PoisonedImages as PoisonedImages
from .workflow import PoisoningComparison as PoisoningComparison
from .workflow import RobustAggregation as RobustAggregation
from .workflow import prepare_poisoning as prepare_poisoning
