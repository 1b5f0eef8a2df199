"""What attackers reached who know more of a prompt, or ask less of it, than its place in a bank."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any

from tacit._ground.checks import in_interval, integer
from tacit.measured import Interval

if TYPE_CHECKING:
    from tacit.attacks.exact.result import GuessAttack

SHARES = ("success", "prior", "gain")


@dataclass(frozen=True, kw_only=True)
class GuessPoint:
    """One such attack on one release.

    Attributes:
        name: the attacker, which ``read_guesser`` makes a value of.
        task: what it guesses.
        attacker: how.
        knows: what it knows besides the release.
        success: share of right guesses.
        prior: the same without the release.
        gain: success − prior.
        candidates: the most values that a guess chose among.
        covered: share of prompts whose truth was among them; the others count as failures.
        queries: prompts attacked.
        weighed: whether the recommendation weighs it: its success does not depend on the bank.
    """

    name: str
    task: str
    attacker: str
    knows: str
    success: Interval
    prior: Interval
    gain: Interval
    candidates: int
    covered: float
    queries: int
    weighed: bool

    @classmethod
    def of(cls, name: str, attack: GuessAttack, *, weighed: bool) -> GuessPoint:
        """Return what is kept of an attack."""
        ends = {
            "success": attack.interval,
            "prior": attack.prior_interval,
            "gain": attack.gain_interval,
        }
        measured: dict[str, Any] = {
            part: Interval(value=getattr(attack, part), low=low, high=high)
            for part, (low, high) in ends.items()
        }
        copied = ("task", "attacker", "knows", "candidates", "covered", "queries")
        measured |= {part: getattr(attack, part) for part in copied}
        return cls(name=name, weighed=weighed, **measured)

    def to_dict(self) -> dict[str, Any]:
        """Return a JSON-able dictionary."""
        kept = {field.name: getattr(self, field.name) for field in fields(self)}
        return {k: [v.value, v.low, v.high] if k in SHARES else v for k, v in kept.items()}

    @classmethod
    def from_dict(cls, content: Any) -> GuessPoint:
        """Return what ``to_dict`` wrote.

        Raises:
            ValueError: a field is missing, unknown or out of range.
        """
        expected = {field.name for field in fields(cls)}
        if not isinstance(content, Mapping) or set(content) != expected:
            raise ValueError(f"guess: expected an object with {', '.join(sorted(expected))}")
        values = dict(content)
        for part in SHARES:
            try:
                value, low, high = values[part]
                values[part] = Interval(value=value, low=low, high=high)
            except (TypeError, ValueError) as error:
                raise ValueError(f"guess.{part}: expected [value, low, high] ({error})") from None
            in_interval(f"guess.{part}", values[part].value, -1.0, 1.0)
        for part in ("candidates", "queries"):
            integer(f"guess.{part}", values[part], minimum=1)
        in_interval("guess.covered", values["covered"], 0.0, 1.0)
        if not isinstance(values["weighed"], bool):
            raise ValueError("guess.weighed: expected true or false, got another value")
        for part in ("name", "task", "attacker", "knows"):
            if not isinstance(values[part], str):
                raise ValueError(f"guess.{part}: expected text, got another value")
        return cls(**values)
