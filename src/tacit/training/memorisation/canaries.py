"""Texts with a secret of random digits, put among what a language model learns from."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch

from tacit._ground.checks import RandomSource, generator, integer

Integers = npt.NDArray[np.int64]
Encode = Callable[[str], Sequence[int]]
# Of targets that no loss is taken of.
IGNORED = -100
SIDES = 10
SUBJECTS = (
    "wizard", "baker", "captain", "gardener", "painter", "farmer", "singer", "doctor", "miller",
    "teacher", "hunter", "sailor", "tailor", "butcher", "carpenter", "driver", "jeweller", "judge",
    "knight", "lawyer", "mason", "nurse", "pilot", "poet", "porter", "priest", "queen", "shepherd",
    "smith", "soldier", "waiter", "writer", "actor", "barber", "clerk", "dancer", "fisher", "guard",
    "king", "widow",
)  # fmt: skip
THINGS = (
    "secret code", "door code", "phone number", "locker number", "bank code", "garage code",
    "garden code", "ticket number", "house number", "order number",
)  # fmt: skip
MOST = len(SUBJECTS) * len(THINGS)


@dataclass(frozen=True, eq=False)
class Canaries:
    """Prompts and the secret digits behind each of them, as tokens.

    Made by `Canaries.drawn`.

    Attributes:
        prompts: m prompts, tokens each.
        secrets: (m, d) digits 0 … 9.
        symbols: (10,) the token of each digit.

    Example:
        >>> canaries = Canaries.drawn(3, lambda text: [ord(c) for c in text], rng=0)
        >>> len(canaries), bytes(canaries.prompts[0]).decode(), canaries.secrets.shape
        (3, "the wizard's secret code is ", (3, 6))
    """

    prompts: tuple[tuple[int, ...], ...]
    secrets: Integers
    symbols: Integers

    def __len__(self) -> int:
        """Return m."""
        return len(self.prompts)

    def __repr__(self) -> str:
        """Return how many there are and of how many digits, and no secret."""
        return f"Canaries({len(self)}, digits={self.secrets.shape[1]})"

    @staticmethod
    def drawn(count: int, encode: Encode, *, digits: int = 6, rng: RandomSource = None) -> Canaries:
        """Return canaries such as "the wizard's secret code is 572869", each of its own subject.

        Args:
            count: m, from 1 to 400.
            encode: the tokens of a text, without special ones, such as `LanguageModel.encode`.
            digits: d of each secret, independent and uniform.
            rng: seed or generator of the secrets; the operating system's when None.

        Raises:
            ValueError: an argument is outside its range, or digits are no tokens of their own.
        """
        total = integer("count", count, minimum=1, maximum=MOST)
        width = integer("digits", digits, minimum=1, maximum=9)
        # every subject comes once before a thing comes again
        kinds = [(who, what) for what in THINGS for who in SUBJECTS][:total]
        return Canaries(
            prompts=tuple(tuple(encode(f"the {who}'s {what} is ")) for who, what in kinds),
            secrets=generator(rng).integers(SIDES, size=(total, width)),
            symbols=digit_tokens(encode),
        )

    def sequences(self, length: int) -> tuple[torch.Tensor, torch.Tensor]:
        """Return inputs and targets of the canaries, each (m, length), padded behind the secret.

        Args:
            length: tokens of each.

        Raises:
            ValueError: a canary is longer.
        """
        rows = [
            [*prompt, *self.symbols[secret].tolist()]
            for prompt, secret in zip(self.prompts, self.secrets, strict=True)
        ]
        longest = max(map(len, rows))
        if length < longest:
            raise ValueError(
                f"length: expected at least the {longest} tokens of a canary, got {length}"
            )
        inputs = torch.zeros(len(rows), length, dtype=torch.int64)
        targets = torch.full((len(rows), length), IGNORED, dtype=torch.int64)
        for place, row in enumerate(rows):
            inputs[place, : len(row)] = torch.tensor(row)
            targets[place, : len(row)] = torch.tensor(row)
        return inputs, targets


def digit_tokens(encode: Encode) -> Integers:
    """Return the token of each digit, (10,).

    Where a tokenizer begins every text with a mark of its own, what stands behind it counts.

    Args:
        encode: the tokens of a text, without special ones.

    Raises:
        ValueError: a digit is no token of its own.
    """
    found = [list(encode(str(digit))) for digit in range(SIDES)]
    begun = {tuple(tokens[:-1]) for tokens in found}
    last = [tokens[-1] if tokens else -1 for tokens in found]
    if len(begun) != 1 or len(next(iter(begun))) > 1 or len(set(last)) != SIDES:
        raise ValueError("model: expected a tokenizer with a token for each digit, got another")
    return np.asarray(last, dtype=np.int64)
