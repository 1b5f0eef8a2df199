"""The base of every guarantee: evidence, assumptions, source, and what strict JSON holds of it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, fields
from html import escape
from typing import Any, ClassVar, Literal, TypeAlias

from tacit._ground.checks import choice, in_interval
from tacit._ground.checks import items as items
from tacit._ground.checks import text as text
from tacit._ground.checks import texts as texts
from tacit._ground.reprs import shown
from tacit.codec import leaf
from tacit.documents import dumps, encoded
from tacit.text import share_down

# Of stored guarantees; a file of another is refused.
SCHEMA = 1
EVIDENCE = ("theorem", "numerical", "statistical")

Evidence: TypeAlias = Literal["theorem", "numerical", "statistical"]


@dataclass(frozen=True, kw_only=True)
class Guarantee(ABC):
    """A bound that is true under its assumptions.

    Args:
        evidence: ``"theorem"`` (a closed form), ``"numerical"`` (computed and rounded up) or
            ``"statistical"`` (holds with ``confidence`` over the randomness of its estimation).
        assumptions: What must hold for the bound to be true, one sentence each.
        source: Where the bound comes from, such as ``"residual-pac, Proposition 2"``.
        confidence: Probability in (0, 1) that a statistical bound is true; None for the others.

    Raises:
        ValueError: A field is not what it should be; the message names it.
    """

    evidence: Evidence
    assumptions: tuple[str, ...]
    source: str
    confidence: float | None = None

    number_fields: ClassVar[tuple[str, ...]] = ()
    optional_fields: ClassVar[tuple[str, ...]] = ()

    def __post_init__(self) -> None:
        # what holds with certainty has no confidence, and what was estimated needs one
        choice("evidence", self.evidence, EVIDENCE)
        self._set("assumptions", texts("assumptions", self.assumptions))
        text("source", self.source)
        if self.evidence == "statistical":
            self._set(
                "confidence",
                in_interval("confidence", self.confidence, 0, 1, open_low=True, open_high=True),
            )
        elif self.confidence is not None:
            found = shown(self.confidence)
            raise ValueError(
                f"confidence: expected None with {self.evidence} evidence, got {found}"
            )

    def _set(self, name: str, value: Any) -> None:
        object.__setattr__(self, name, value)

    @abstractmethod
    def _statement(self) -> str:
        """Return the bound as a sentence without its full stop."""

    def describe(self) -> str:
        """Return the bound as one line of plain English, every number rounded against us."""
        # a sentence that may be false says how often
        doubt = ""
        if self.confidence is not None:
            doubt = f" (statistical: true with confidence {share_down(self.confidence)})"
        return f"{self._statement()}{doubt}."

    def _repr_html_(self) -> str:
        # a sentence in sight, what must hold for it folded below; no colour, so dark is as good
        held = "".join(f"<li>{escape(one)}</li>" for one in self.assumptions)
        told = f"What must hold ({len(self.assumptions)})"
        return (
            f"<div><p>{escape(self.describe())}</p><p><small>Evidence: {self.evidence}. Source: "
            f"{escape(self.source)}.</small></p>"
            f"<details><summary>{told}</summary><ul>{held}</ul></details></div>"
        )

    def to_dict(self) -> dict[str, Any]:
        """Return every field and the type's name as values that strict JSON can hold."""
        content = {field.name: encoded(getattr(self, field.name)) for field in fields(self)}
        return {"type": type(self).__name__, "schema": SCHEMA, **content}

    def to_json(self) -> str:
        """Return `to_dict` as strict JSON: infinities are the strings "Infinity", "-Infinity"."""
        return dumps(self.to_dict())


def _read(content: Any) -> Guarantee:
    # the kinds stand above their base
    from tacit.guarantees import guarantee_from_dict

    return guarantee_from_dict(content)


leaf(Guarantee, _read)
