"""Fine-tune low-rank adapters so that no record can be told from them."""

from .auditing import audit_adapter as audit_adapter
from .gradients.hooks import LinearHooks as LinearHooks
from .gradients.verification import check_gradients as check_gradients
from .methods import DPSGD as DPSGD
from .methods import Clipped as Clipped
from .methods import DPLoRAFA as DPLoRAFA
from .methods import LoRAFA as LoRAFA
from .methods import Method as Method
from .methods import NoisyProjection as NoisyProjection
from .methods import Schedule as Schedule
from .methods import WithoutClipping as WithoutClipping
from .release import AdapterRelease as AdapterRelease
from .saving import read_adapter as read_adapter
from .session import PreparedAdapter as PreparedAdapter
from .texts import Pretrained as Pretrained
from .texts import kept_apart as kept_apart
from .texts import load_pretrained as load_pretrained
from .texts import read_records as read_records
from .workflow import fit as fit
from .workflow import prepare_adapter as prepare_adapter
