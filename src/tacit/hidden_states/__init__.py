"""Measure a layer of a language model, release its states, attack them, choose what to keep."""

from __future__ import annotations

import sys
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tacit.hidden_states.audit import audit
    from tacit.hidden_states.codebook import Codebook
    from tacit.hidden_states.codebook_behaviours import Behaviours
    from tacit.hidden_states.continuation import Continuation
    from tacit.hidden_states.corpus import docstring_corpus, read_text
    from tacit.hidden_states.denoiser import Denoiser
    from tacit.hidden_states.designs import designs_at_budget
    from tacit.hidden_states.findings import Audit
    from tacit.hidden_states.fisher import fisher_information
    from tacit.hidden_states.geometry import Geometry, geometry
    from tacit.hidden_states.laboratory import Sizes
    from tacit.hidden_states.margin_law import margin_threshold
    from tacit.hidden_states.margins import Margins, margins
    from tacit.hidden_states.models import LanguageModel, load
    from tacit.hidden_states.points import Point
    from tacit.hidden_states.prefixes import Prefixes, sample_prefixes, split
    from tacit.hidden_states.projections import Projections, projections, transplantation
    from tacit.hidden_states.reading_alone import PosteriorBehaviour
    from tacit.hidden_states.recommend import Recommendation, Wish, recommend
    from tacit.hidden_states.release import HiddenRelease, release
    from tacit.hidden_states.sequential import SequentialAttack, sequential_decoder
    from tacit.hidden_states.small import train
    from tacit.hidden_states.spread import adjacency_differences
    from tacit.hidden_states.sweep import sweep
    from tacit.hidden_states.utility import Utility, utility

__all__ = [
    "Audit",
    "Behaviours",
    "Codebook",
    "Continuation",
    "Denoiser",
    "Geometry",
    "HiddenRelease",
    "LanguageModel",
    "Margins",
    "Point",
    "PosteriorBehaviour",
    "Prefixes",
    "Projections",
    "Recommendation",
    "SequentialAttack",
    "Sizes",
    "Utility",
    "Wish",
    "adjacency_differences",
    "audit",
    "designs_at_budget",
    "docstring_corpus",
    "fisher_information",
    "geometry",
    "load",
    "margin_threshold",
    "margins",
    "projections",
    "read_text",
    "recommend",
    "release",
    "sample_prefixes",
    "sequential_decoder",
    "split",
    "sweep",
    "train",
    "transplantation",
    "utility",
]

_HOMES = {
    "Audit": "findings",
    "Behaviours": "codebook_behaviours",
    "Codebook": "codebook",
    "Continuation": "continuation",
    "Denoiser": "denoiser",
    "Geometry": "geometry",
    "HiddenRelease": "release",
    "LanguageModel": "models",
    "Margins": "margins",
    "Point": "points",
    "PosteriorBehaviour": "reading_alone",
    "Prefixes": "prefixes",
    "Projections": "projections",
    "Recommendation": "recommend",
    "SequentialAttack": "sequential",
    "Sizes": "laboratory",
    "Utility": "utility",
    "Wish": "recommend",
    "adjacency_differences": "spread",
    "audit": "audit",
    "designs_at_budget": "designs",
    "docstring_corpus": "corpus",
    "fisher_information": "fisher",
    "geometry": "geometry",
    "load": "models",
    "margin_threshold": "margin_law",
    "margins": "margins",
    "projections": "projections",
    "read_text": "corpus",
    "recommend": "recommend",
    "release": "release",
    "sample_prefixes": "prefixes",
    "sequential_decoder": "sequential",
    "split": "prefixes",
    "sweep": "sweep",
    "train": "small",
    "transplantation": "projections",
    "utility": "utility",
}
_EXTRA = {"torch", "transformers", "tokenizers"}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        value = getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
    except ModuleNotFoundError as error:
        if error.name is None or error.name.partition(".")[0] not in _EXTRA:
            raise
        raise ImportError(
            f'{__name__}.{name} needs {error.name}: pip install "tacit[llm]"'
        ) from None
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})


class _Package(ModuleType):
    """Importing a submodule does not hide the function of the same name."""

    def __setattr__(self, name: str, value: Any) -> None:
        if not (name in _HOMES and isinstance(value, ModuleType)):
            super().__setattr__(name, value)


sys.modules[__name__].__class__ = _Package
