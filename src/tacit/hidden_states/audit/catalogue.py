"""The one place where words become mechanisms; a file that defines another registers it here."""

from __future__ import annotations

from typing import TypeVar

from tacit.hidden_states.audit.cells import (
    Argmax,
    BehaviourCells,
    CodebookMechanism,
    EuclideanCells,
)
from tacit.hidden_states.audit.gaussians import StateNoise
from tacit.hidden_states.audit.mechanisms import Mechanism, Unknown
from tacit.hidden_states.audit.points import Point
from tacit.hidden_states.defences.values import DEFENCES
from tacit.hidden_states.noise.shapes import InverseFisher, IsotropicNoise, MahalanobisOptimal
from tacit.hidden_states.quotient.mechanism import Quotient
from tacit.hidden_states.spelling import read_one

USUAL: tuple[Mechanism, ...] = (
    StateNoise(IsotropicNoise()),
    StateNoise(InverseFisher(diagonal=True)),
    StateNoise(MahalanobisOptimal()),
    CodebookMechanism(EuclideanCells()),
    CodebookMechanism(BehaviourCells()),
    Argmax(),
)
_KINDS: list[type[Mechanism]] = [
    StateNoise,
    CodebookMechanism,
    Argmax,
    Quotient,
    *DEFENCES,
]

Kind = TypeVar("Kind", bound=type[Mechanism])


def register_mechanism(kind: Kind) -> Kind:
    """Make a kind of mechanism known by its words to ``read_mechanism``, stored points and pages.

    Args:
        kind: a frozen dataclass below ``Mechanism``; a decorator of it.

    Raises:
        ValueError: another kind is read from one of its words.
    """
    name = f"{kind.__module__}.{kind.__qualname__}"
    others = [known for known in _KINDS if f"{known.__module__}.{known.__qualname__}" != name]
    taken = {word for known in others for word in known.spelling()} & set(kind.spelling())
    if taken:
        raise ValueError(f"kind: expected words of its own, got {min(taken)!r}, which is taken")
    _KINDS[:] = [*others, kind]
    return kind


def read_mechanism(mechanism: Mechanism | str) -> Mechanism:
    """Return the mechanism that a word names, or the value given.

    Words with numbers are ``power(0.5)``, the exponent α of diag(F)^−α, and
    ``generalized-eigen(1)``, the number of directions.

    Raises:
        ValueError: no mechanism has the word; the sentence lists those there are.

    Example:
        >>> read_mechanism("codebook-decision")
        CodebookMechanism(cells=BehaviourCells(decision_cost=4.0))
    """
    if isinstance(mechanism, Mechanism):
        return mechanism
    return read_one("mechanisms", mechanism, _KINDS)


def mechanism_of(point: Point) -> Mechanism:
    """Return the mechanism of a point, known by name only where nothing defines it here."""
    try:
        return read_mechanism(point.mechanism)
    except ValueError:
        return Unknown(point.mechanism)


def told(point: Point) -> str:
    """Return what is kept at a point, in words: of noise with what it costs, of codes how many."""
    kept = mechanism_of(point).stored(point)
    return kept if point.codewords is not None else f"{kept} ({point.setting})"
