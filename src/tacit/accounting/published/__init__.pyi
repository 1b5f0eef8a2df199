"""The papers' own bounds, as printed, to compare with; refused where they are unsound."""

from .claims import Claim as Claim
from .claims import classical_gaussian_std as classical_gaussian_std
from .dsi import dsi_corollary_c_1 as dsi_corollary_c_1
from .dsi import dsi_lemma_3_5 as dsi_lemma_3_5
from .dsi import dsi_theorem_3_4 as dsi_theorem_3_4
from .lora import captured_share as captured_share
from .lora import lora_theorem_1 as lora_theorem_1
from .lora import lora_theorem_3 as lora_theorem_3
from .lora import lora_theorem_4 as lora_theorem_4
from .lora import lora_theorem_5 as lora_theorem_5
from .lora import lora_theorem_5_multiplier as lora_theorem_5_multiplier
from .lora import lora_theorem_5_steps as lora_theorem_5_steps
from .pave import pave_risk as pave_risk
from .pave import pave_theorem_3_5 as pave_theorem_3_5
from .pave import pave_theorem_3_9 as pave_theorem_3_9
