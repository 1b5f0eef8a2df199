"""Texts with a secret of random digits, the rounds that they are in, and their kept seed."""

from __future__ import annotations

import os
import secrets
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from tacit import documents
from tacit._ground.checks import RandomSource, generator, integer
from tacit._ground.files import absolute, read_bytes, write_text_atomic

Integers = npt.NDArray[np.int64]
Indices = npt.NDArray[np.intp]
Encode = Callable[[str], Sequence[int]]
# Beside a checkpoint: the seed of canaries and coins, of so many bits.
KEPT, BITS = "canaries.json", 128
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

    Made by `Canaries.draw`.

    Attributes:
        prompts: m prompts, tokens each.
        secrets: (m, d) digits 0 … 9.
        symbols: (10,) the token of each digit.

    Example:
        >>> canaries = Canaries.draw(3, lambda text: [ord(c) for c in text], rng=0)
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
    def draw(count: int, encode: Encode, *, digits: int = 6, rng: RandomSource = None) -> Canaries:
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
        # prompt and secret, one token a digit
        rows = [
            [*prompt, *self.symbols[secret].tolist()]
            for prompt, secret in zip(self.prompts, self.secrets, strict=True)
        ]
        longest = max(map(len, rows))
        if length < longest:
            raise ValueError(
                f"length: expected at least the {longest} tokens of a canary, got {length}"
            )
        # padded behind the secret; IGNORED takes no loss of the padding
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
    # the tokens of each digit by itself
    found = [list(encode(str(digit))) for digit in range(SIDES)]
    # a mark that every text begins with is no digit
    begun = {tuple(tokens[:-1]) for tokens in found}
    last = [tokens[-1] if tokens else -1 for tokens in found]
    if len(begun) != 1 or len(next(iter(begun))) > 1 or len(set(last)) != SIDES:
        raise ValueError("model: expected a tokenizer with a token for each digit, got another")
    return np.asarray(last, dtype=np.int64)


@dataclass(frozen=True, kw_only=True)
class CanarySchedule:
    """Passes over n texts and m canaries of v copies each, in batches of one size.

    Examples are counted texts first, then the copies of canary 0, of canary 1, …. A canary takes
    part in one round of a pass, so that nobody's budget is divided by more rounds than passes.

    Attributes:
        texts: n.
        canaries: m.
        copies: v.
        batch: B.
        passes: over the data.
        order: seed of the shuffles, which do not depend on the data.

    Raises:
        ValueError: the copies that meet in a round are more than a batch.

    Example:
        >>> schedule = CanarySchedule(texts=8, canaries=2, copies=3, batch=5, passes=1, order=0)
        >>> [schedule.examples(number).size for number in range(schedule.rounds)]
        [5, 5, 4]
    """

    texts: int
    canaries: int
    copies: int
    batch: int
    passes: int
    order: int

    def __post_init__(self) -> None:
        meeting = self.copies * self._dealt(0)
        if meeting > self.batch:
            raise ValueError(
                f"batch: expected room for the {meeting} copies of canaries that meet in a round, "
                f"got {self.batch}"
            )

    @property
    def a_pass(self) -> int:
        """Rounds of one pass."""
        return -(-(self.texts + self.canaries * self.copies) // self.batch)

    @property
    def rounds(self) -> int:
        """Rounds in all."""
        return self.a_pass * self.passes

    def groups(self, *, texts: bool) -> npt.NDArray[np.int64]:
        """Return the reference of each example: m canaries, then the texts, or −1 for these.

        Args:
            texts: whether every text is a reference of its own.
        """
        # canaries have the first references, texts the others
        own = self.canaries + np.arange(self.texts) if texts else np.full(self.texts, -1)
        return np.concatenate([own, np.repeat(np.arange(self.canaries), self.copies)])

    def examples(self, number: int) -> Indices:
        """Return the examples of a round, counted from 0."""
        turn, place = divmod(number, self.a_pass)
        # by the pass alone, so that a run can be taken up
        source = np.random.default_rng([self.order, turn])
        shuffled, dealt = source.permutation(self.texts), source.permutation(self.canaries)
        # texts in the rounds before: what their canaries left room for
        before = place * self.batch - self.copies * sum(map(self._dealt, range(place)))
        room = self.batch - self.copies * self._dealt(place)
        # canaries dealt in turn, so that no round has two more than another
        theirs = dealt[place :: self.a_pass]
        # all copies of a canary in one round: one participation a pass
        copies = self.texts + (theirs[:, None] * self.copies + np.arange(self.copies)).ravel()
        return np.concatenate([shuffled[before : before + room], copies]).astype(np.intp)

    def _dealt(self, place: int) -> int:
        """Return how many canaries a round of a pass has."""
        return len(range(place, self.canaries, self.a_pass))


class CanarySeed:
    """A seed of the operating system, or the one that a run in a folder began with.

    Args:
        checkpoint: folder of the run; None for none.
        settings: digest of what is trained on; a run that goes on must have the same.
        rng: a seed of the caller's own.

    Raises:
        ValueError: the folder holds a run on other sequences or canaries, or its file is damaged.
    """

    def __init__(
        self, checkpoint: str | os.PathLike[str] | None, settings: str, rng: int | None
    ) -> None:
        self._settings = settings
        self._path = None if checkpoint is None else absolute("checkpoint", checkpoint) / KEPT
        # the seed that the run in the folder began with
        kept = None if self._path is None or not self._path.exists() else self._read(self._path)
        self.fresh = kept is None
        # 128 bits of the operating system where no run has begun and no seed is given
        self._value = (secrets.randbits(BITS) if rng is None else rng) if kept is None else kept

    def source(self, purpose: int) -> np.random.Generator:
        """Return the generator of one purpose: 0 secrets, 1 coins."""
        return np.random.default_rng([self._value, purpose])

    def keep(self, *, begun: bool) -> None:
        """Write the seed before the first round.

        Args:
            begun: whether the run had a round before.

        Raises:
            ValueError: the seed of a run that had begun is gone.
        """
        if self._path is None or not self.fresh:
            return
        # other canaries and coins would be other references than those charged
        if begun:
            raise ValueError(f"checkpoint: {KEPT} is missing in {self._path.parent}")
        content = {"settings": self._settings, "seed": hex(self._value)}
        write_text_atomic("checkpoint", self._path, documents.dumps(content, name="canaries"))
        self.fresh = False

    def _read(self, path: Path) -> int:
        found: Any = documents.loads(read_bytes("checkpoint", path), name="checkpoint")
        try:
            settings, value = found["settings"], int(found["seed"], 16)
        except (KeyError, TypeError, ValueError):
            raise ValueError(f"checkpoint: {KEPT} is damaged") from None
        # the same seed on other texts would draw other canaries
        if settings != self._settings or value < 0:
            raise ValueError("checkpoint: the folder holds a run on other sequences or canaries")
        return value
