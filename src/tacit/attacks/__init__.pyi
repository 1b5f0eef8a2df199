"""Attacks told everything the defender did: what they reach is evidence, never a guarantee."""

from .membership.bayes import BayesAttack as BayesAttack
from .membership.bayes import bayes as bayes
from .membership.bayes import bayes_success as bayes_success
from .membership.declared import MembershipAttack as MembershipAttack
from .membership.declared import membership_attack as membership_attack
from .membership.groups import group_attack as group_attack
from .membership.groups import swap_attack as swap_attack
from .membership.likelihood import likelihood_ratio as likelihood_ratio
from .membership.lira import lira as lira
from .membership.roc import OperatingPoint as OperatingPoint
from .membership.roc import RocSummary as RocSummary
from .membership.roc import roc as roc
from .retrieval.attack import retrieve as retrieve
from .retrieval.attack import zipf as zipf
from .retrieval.metrics import Complement as Complement
from .retrieval.metrics import Euclidean as Euclidean
from .retrieval.metrics import Mahalanobis as Mahalanobis
from .retrieval.metrics import Weighted as Weighted
from .retrieval.result import RetrievalAttack as RetrievalAttack
from .sequential.decoder import SequentialAttack as SequentialAttack
from .sequential.decoder import sequential_decoder as sequential_decoder
from .sequential.margin_law import margin_threshold as margin_threshold
