"""A language model taken apart: loaded, read, replaced and continued at any layer."""

from .behaviours import Behaviours as Behaviours
from .continuation import Continuation as Continuation
from .encoders import Encoder as Encoder
from .encoders import encode as encode
from .encoders import load_encoder as load_encoder
from .language import LanguageModel as LanguageModel
from .loading import load as load
from .padding import pad as pad
from .penalties.anchors import Anchor as Anchor
from .penalties.depletion import MarginDepletion as MarginDepletion
from .penalties.jacobian import JacobianPenalty as JacobianPenalty
from .penalties.margins import MarginPenalty as MarginPenalty
from .penalties.step import Penalty as Penalty
from .penalties.step import Step as Step
from .small.settings import ModelSettings as ModelSettings
from .small.training import train as train
from .split_memory.configuration import SplitMemoryConfig as SplitMemoryConfig
from .split_memory.network import SplitMemoryForCausalLM as SplitMemoryForCausalLM
from .texts.corpus import docstring_corpus as docstring_corpus
from .texts.corpus import read_text as read_text
from .texts.prefixes import Prefixes as Prefixes
from .texts.prefixes import sample_prefixes as sample_prefixes
from .texts.prefixes import shared_sequences as shared_sequences
from .texts.prefixes import split as split
from .texts.prompts import PromptTexts as PromptTexts
from .texts.prompts import read_prompts as read_prompts
