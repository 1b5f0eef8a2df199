"""The papers' own bounds, as printed, to compare with; refused where they are unsound."""

from tacit.accounting.published.claims import Claim, classical_gaussian_std
from tacit.accounting.published.dsi import dsi_corollary_c_1, dsi_lemma_3_5, dsi_theorem_3_4
from tacit.accounting.published.lora import (
    captured_share,
    lora_theorem_1,
    lora_theorem_3,
    lora_theorem_4,
    lora_theorem_5,
)
from tacit.accounting.published.pave import pave_risk, pave_theorem_3_5, pave_theorem_3_9
from tacit.accounting.published.training import lora_theorem_5_multiplier, lora_theorem_5_steps

__all__ = [
    "Claim",
    "captured_share",
    "classical_gaussian_std",
    "dsi_corollary_c_1",
    "dsi_lemma_3_5",
    "dsi_theorem_3_4",
    "lora_theorem_1",
    "lora_theorem_3",
    "lora_theorem_4",
    "lora_theorem_5",
    "lora_theorem_5_multiplier",
    "lora_theorem_5_steps",
    "pave_risk",
    "pave_theorem_3_5",
    "pave_theorem_3_9",
]
