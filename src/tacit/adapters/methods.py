"""The methods by which adapters are trained, by the names under which they are asked for here."""

from tacit.gradients.methods import DPSGD as DPSGD
from tacit.gradients.methods import DPLoRAFA as DPLoRAFA
from tacit.gradients.methods import LoRAFA as LoRAFA
from tacit.gradients.methods import NoisyProjection as NoisyProjection
from tacit.gradients.steps import Schedule as Schedule
from tacit.gradients.unclipped import WithoutClipping as WithoutClipping
