"""How much of each prompt an inverter read back, beside what is read without the release."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from tacit import codec
from tacit._ground.checks import in_interval
from tacit._ground.frozen import read_only
from tacit.attacks.intervals import proportion_interval, share_interval
from tacit.measured import Interval
from tacit.text import percent

if TYPE_CHECKING:
    from tacit.models.texts.prefixes import Tokens

# what an inverter guesses of each position, and what a limit on inversion is about
ANY_TOKEN = "each token of the prompt"
Right = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class Recovery:
    """What some guesses of prompts got right.

    Attributes:
        token_accuracy: share of tokens, mean over prompts.
        by_position: share of right tokens at each position from the end, the last token first,
            among the prompts that are so long.
        suffixes: share of prompts whose last s tokens are all right, s = 1, 2, …, among those.
        exact: share of prompts that are right as a whole.
    """

    token_accuracy: Interval
    by_position: tuple[Interval, ...]
    suffixes: tuple[Interval, ...]
    exact: Interval

    def __post_init__(self) -> None:
        if not self.by_position or len(self.by_position) != len(self.suffixes):
            raise ValueError(
                "suffixes: expected one for each position, and a position at least, got "
                f"{len(self.suffixes)} for {len(self.by_position)}"
            )
        for name in ("token_accuracy", "by_position", "suffixes", "exact"):
            held = getattr(self, name)
            for one in held if isinstance(held, tuple) else (held,):
                if not 0.0 <= one.low <= one.high <= 1.0:
                    raise ValueError(
                        f"{name}: expected shares between 0 and 1, got {one.low} to {one.high}"
                    )

    @classmethod
    def of(cls, guesses: Any, truth: Any, confidence: float = 0.95) -> Recovery:
        """Compare guesses with the truth, aligned at the end.

        Args:
            guesses: tokens, (n, T); what stands where the truth is padded is not read.
            truth: (n, T), −1 where padded.
            confidence: coverage of each interval alone, in (0, 1).

        Raises:
            ValueError: two shapes, or tokens that are no integers.

        Example:
            >>> found = Recovery.of([[1, 2, 3], [9, 5, 6]], [[1, 2, 3], [4, 5, 6]])
            >>> found.exact.value, [one.value for one in found.by_position]
            (0.5, [1.0, 1.0, 0.5])
        """
        level = in_interval("confidence", confidence, 0.0, 1.0, open_low=True, open_high=True)
        real, right = matches(guesses, truth)
        whole = np.logical_and.accumulate(right, axis=1)
        lengths = real.sum(axis=1)
        shares = (right & real).sum(axis=1) / lengths
        ends = share_interval(shares, level)
        places = range(int(lengths.max()))
        return cls(
            token_accuracy=Interval(float(shares.mean()), *ends, confidence=level),
            by_position=tuple(_share(right[real[:, at], at], level) for at in places),
            suffixes=tuple(_share(whole[real[:, at], at], level) for at in places),
            exact=_share(whole[np.arange(len(whole)), lengths - 1], level),
        )


@read_only
@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class Inversion:
    """What an inverter read back: a measurement, never a guarantee.

    Attributes:
        attacker: the inverter.
        knows: what it was told besides the releases and how they were drawn.
        recovery: what it got right.
        baselines: the same of guesses made without the release of the prompt, by name.
        queries: n, prompts attacked.
        known: prompts given that stand among the attacker's own.
        removed: whether those were left out of everything that is measured.
        seconds: that the inverter took for a prompt.
        tokens: what it guessed, (n, T).
        truth: (n, T), −1 where padded.
    """

    attacker: str
    knows: str
    recovery: Recovery
    baselines: Mapping[str, Recovery]
    queries: int
    known: int
    removed: bool
    seconds: float
    tokens: Tokens = field(repr=False)
    truth: Tokens = field(repr=False)

    def __repr__(self) -> str:
        found = self.recovery
        return (
            f"Inversion({self.attacker!r}: tokens {found.token_accuracy.value:.3f}, last "
            f"{found.by_position[0].value:.3f}, exact {found.exact.value:.3f}, n={self.queries})"
        )

    def successes(self) -> tuple[tuple[str, Interval, float | None], ...]:
        """Return what is guessed, how often right, and the most that a baseline is right.

        Of the whole prompt and of its last token; None where no baseline was measured.
        """
        return successes(self.recovery, self.baselines)[:2]

    def describe(self) -> str:
        """Say in a sentence what was measured, with its law."""
        found = self.recovery
        told = f", told {self.knows}," if self.knows else ""
        aside = "left out" if self.removed else "counted"
        known = f" {self.known:,} prompts stand among the attacker's own and are {aside}."
        return (
            f"Attack: {self.attacker}{told} reads {_with_ends(found.token_accuracy)} of the tokens "
            f"of {self.queries:,} prompts back, the last token in "
            f"{_with_ends(found.by_position[0])} and the whole prompt in "
            f"{_with_ends(found.exact)}.{known if self.known else ''}"
        )

    def to_dict(self) -> dict[str, Any]:
        """Return a JSON-able description, without the prompts."""
        return {
            "attacker": self.attacker,
            "knows": self.knows,
            "recovery": codec.write(Recovery, self.recovery),
            "baselines": {
                name: codec.write(Recovery, held) for name, held in self.baselines.items()
            },
            "queries": self.queries,
            "known": self.known,
            "removed": self.removed,
            "seconds": self.seconds,
        }


def successes(
    recovery: Recovery, baselines: Mapping[str, Recovery]
) -> tuple[tuple[str, Interval, float | None], ...]:
    """Return the same of the whole prompt, of its last token and of each token.

    Args:
        recovery: what the inverter got right.
        baselines: what others did, by name; the nearest public prompt was found by the release, and
            is no guess without it.
    """
    blind = [held for name, held in baselines.items() if name != "nearest"]
    parts = (
        ("the whole prompt", recovery.exact, [held.exact for held in blind]),
        ("the last token", recovery.by_position[0], [held.by_position[0] for held in blind]),
        (ANY_TOKEN, recovery.token_accuracy, [held.token_accuracy for held in blind]),
    )
    return tuple(
        (task, success, max((one.value for one in priors), default=None))
        for task, success, priors in parts
    )


def matches(guesses: Any, truth: Any) -> tuple[Right, Right]:
    """Return which tokens are real and which are right, (n, T), the last token first."""
    # a stored measurement is read without torch, which prompts need
    from tacit.models.padding import PADDING
    from tacit.models.texts.prefixes import padded_integers

    named, secret = padded_integers("guesses", guesses), padded_integers("truth", truth)
    if named.shape != secret.shape:
        raise ValueError(f"guesses: expected shape {secret.shape}, got {named.shape}")
    real = secret != PADDING
    if not real[:, -1].all() or (np.diff(real.astype(np.int8), axis=1) < 0).any():
        raise ValueError(f"truth: expected {PADDING} only in front of prompts that are shorter")
    right = named == secret
    return real[:, ::-1], right[:, ::-1]


def _share(right: Right, level: float) -> Interval:
    low, high = proportion_interval(int(right.sum()), len(right), level)
    return Interval(float(right.mean()), low, high, confidence=level)


def _with_ends(found: Interval) -> str:
    return f"{percent(found.value)} [{percent(found.low)}, {percent(found.high)}]"
