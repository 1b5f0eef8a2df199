"""Describe what a model can do so that it can be found, and know what the description tells."""

from .backbones.backbone import Backbone as Backbone
from .backbones.loading import load_backbone as load_backbone
from .full import full_specification as full_specification
from .identification import CosineAgreement as CosineAgreement
from .identification import Identification as Identification
from .identification import Match as Match
from .identification import MatchVerdict as MatchVerdict
from .identification import cosine_agreement as cosine_agreement
from .identification import identify as identify
from .identification import judge_match as judge_match
from .release import SpecificationRelease as SpecificationRelease
from .specification import Space as Space
from .specification import Specification as Specification
from .specification import check_comparable as check_comparable
from .specification import read_specification as read_specification
from .specification import specification_from_bytes as specification_from_bytes
from .subspace import PublicSubspace as PublicSubspace
from .subspace import load_subspace as load_subspace
from .subspace import public_subspace as public_subspace
from .workflow import PreparedSpecification as PreparedSpecification
from .workflow import prepare_specification as prepare_specification
from .workflow import specify as specify
