"""Attackers who guess a part of the prompt, or know one: values, each with a word."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from typing import TYPE_CHECKING, Any

import numpy as np

from tacit._ground.checks import integer
from tacit.attacks.attribution.attack import Labelled, attributes
from tacit.attacks.attribution.labels import Topics, label_digits, label_names, label_tokens
from tacit.attacks.exact.channels import Channel, GaussianChannel
from tacit.attacks.exact.posterior import BankQuestion, bank_posterior
from tacit.attacks.exact.result import GuessAttack
from tacit.hidden_states.audit.points import GuessPoint
from tacit.hidden_states.spelling import SpelledValue, read_one
from tacit.models.padding import PADDING, prompt_lengths

if TYPE_CHECKING:
    from tacit.hidden_states.audit.laboratory import Laboratory

# Of every interval, each alone.
CONFIDENCE = 0.95
# prompts attacked where the release of a prompt is drawn at random; all of them where it is not
DRAWN = 300


@dataclass(frozen=True, eq=False)
class Observed:
    """What an attacker knows of a release besides the layer: how it was drawn, and its draws.

    Attributes:
        channel: how a release is drawn.
        held: what the channel holds of every prompt of the bank, (N, d) or (N,).
        released: releases of the first prompts of the bank, (n, d) or (n,).
        public: releases of the calibration prompts, which the attacker draws itself.
    """

    channel: Channel
    held: Any
    released: Any
    public: Any


def clean_state(laboratory: Laboratory) -> Observed:
    """Return what is seen of states that are stored as they are: the control."""
    states = laboratory.bank.double().cpu().numpy()
    public = laboratory.calibration.double().cpu().numpy()
    return Observed(GaussianChannel(), states, states, public)


@dataclass(frozen=True)
class Guesser(SpelledValue, ABC):
    """One attacker who guesses something else than a prompt's place in the whole bank."""

    @abstractmethod
    def attacks(self, laboratory: Laboratory, seen: Observed) -> Iterator[tuple[GuessAttack, bool]]:
        """Yield each attack, and whether its success does not depend on the bank."""

    def guess(self, laboratory: Laboratory, seen: Observed) -> tuple[GuessPoint, ...]:
        """Return what it reaches against one release."""
        return tuple(
            GuessPoint.of(self.name, attack, weighed=weighed)
            for attack, weighed in self.attacks(laboratory, seen)
        )


@dataclass(frozen=True)
class KnownPrefix(Guesser):
    """Knows all earlier tokens and runs the model on candidates for the last one.

    Attributes:
        prompts: of the bank, attacked.
        candidates: the model's likeliest tokens after the earlier ones, and as many of the last
            tokens of public prompts, the commonest.
    """

    prompts: int = 100
    candidates: int = 64

    word = "known-prefix"

    def __post_init__(self) -> None:
        integer("prompts", self.prompts, minimum=2)
        integer("candidates", self.candidates, minimum=2)

    def attacks(self, laboratory: Laboratory, seen: Observed) -> Iterator[tuple[GuessAttack, bool]]:
        from tacit.attacks.last_token.attack import attack_continued

        # a prompt of one token has no earlier ones
        lengths = prompt_lengths(laboratory.prefixes.bank[: laboratory.sizes.queries])
        chosen = (lengths > 1).nonzero()[: self.prompts, 0].numpy()
        if len(chosen) < 2:
            return
        listed, rows = laboratory.continued(chosen, self.candidates, seen.channel.predicts)
        yield (
            attack_continued(
                listed, rows, seen.released[chosen], seen.channel, confidence=CONFIDENCE
            ),
            True,
        )


@dataclass(frozen=True)
class KnownRest(Guesser):
    """Knows every token but one, such as a field of a template, and runs the model on candidates.

    Attributes:
        prompts: of the bank, attacked.
        candidates: the commonest tokens of public prompts at that position.
        position: negative, from the end; 0 for where public prompts differ most in a token that as
            few values fill. Where there is none, nothing is attacked.
    """

    prompts: int = 50
    candidates: int = 32
    position: int = 0

    word = "known-rest"

    def __post_init__(self) -> None:
        integer("prompts", self.prompts, minimum=2)
        integer("candidates", self.candidates, minimum=2)
        integer("position", self.position, minimum=None, maximum=0)

    def attacks(self, laboratory: Laboratory, seen: Observed) -> Iterator[tuple[GuessAttack, bool]]:
        from tacit.attacks.last_token.attack import attack_continued
        from tacit.attacks.last_token.field import field_position, open_field

        public = laboratory.prefixes.calibration
        place = self.position or field_position(public, self.candidates)
        if place is None or -place > public.shape[1]:
            return
        lengths = prompt_lengths(laboratory.prefixes.bank[: laboratory.sizes.queries])
        chosen = (lengths >= -place).nonzero()[: self.prompts, 0].numpy()
        if len(chosen) < 2:
            return
        field = laboratory.kept(
            self.name,
            lambda: open_field(
                laboratory.model, laboratory.layer, laboratory.prefixes.bank[chosen], public,
                position=place, count=self.candidates,
            ),
        )  # fmt: skip
        yield (
            attack_continued(
                field.listed, field.rows, seen.released[chosen], seen.channel,
                confidence=CONFIDENCE, task=f"the {_place(place)} token",
                knows="all other tokens",
            ),
            True,
        )  # fmt: skip


@dataclass(frozen=True)
class KnownToken(Guesser):
    """Knows one token of the prompt and names the prompt among those of the bank that have it.

    Attributes:
        position: of the token, 0 for the first, −1 for the last.
    """

    position: int = 0

    word = "known-token"

    def attacks(self, laboratory: Laboratory, seen: Observed) -> Iterator[tuple[GuessAttack, bool]]:
        bank = laboratory.prefixes.bank
        if not -bank.shape[1] <= self.position < bank.shape[1]:
            return
        tokens = label_tokens(bank, position=self.position, absent=PADDING)
        count = _attacked(laboratory, seen)
        yield (
            bank_posterior(
                seen.held, seen.released[:count], np.arange(count), seen.channel,
                asked=BankQuestion(
                    known=tokens, names=("the prompt", f"its {_place(self.position)} token")
                ),
                confidence=CONFIDENCE,
            ),
            False,
        )  # fmt: skip


@dataclass(frozen=True)
class AttributeGuesser(Guesser):
    """Guesses an attribute: learnt on calibration prompts, and exactly over the bank."""

    @property
    @abstractmethod
    def title(self) -> str:
        """What is guessed."""

    @abstractmethod
    def labels(self, laboratory: Laboratory) -> tuple[Any, Any] | None:
        """Return the labels of the bank and of the calibration prompts; None where unknown.

        The latter alone may be unknown: nothing is learnt then.
        """

    def attacks(self, laboratory: Laboratory, seen: Observed) -> Iterator[tuple[GuessAttack, bool]]:
        found = laboratory.kept(self.name, lambda: self.labels(laboratory))
        if found is None:
            return
        bank, public = found
        prefixes, count = laboratory.prefixes, _attacked(laboratory, seen)
        if public is not None:
            yield (
                attributes(
                    Labelled(prefixes.bank[:count], seen.released[:count], bank[:count]),
                    Labelled(prefixes.calibration, seen.public, public),
                    name=self.title, confidence=CONFIDENCE, rng=0,
                ),
                True,
            )  # fmt: skip
        yield (
            bank_posterior(
                seen.held, seen.released[:count], np.arange(count), seen.channel,
                asked=BankQuestion(task=bank, names=(self.title, "")), confidence=CONFIDENCE,
            ),
            False,
        )  # fmt: skip


@dataclass(frozen=True)
class TokenGuesser(AttributeGuesser):
    """Guesses the token at a position, negative from the end."""

    position: int = -1

    word = "token"

    @property
    def title(self) -> str:
        return f"the {_place(self.position)} token"

    def labels(self, laboratory: Laboratory) -> tuple[Any, Any] | None:
        sets = laboratory.prefixes.bank, laboratory.prefixes.calibration
        if not -sets[0].shape[1] <= self.position < sets[0].shape[1]:
            return None
        bank, public = (label_tokens(part, position=self.position, absent=PADDING) for part in sets)
        return bank, public


@dataclass(frozen=True)
class Topic(AttributeGuesser):
    """Guesses which of k clusters of calibration prompts, by their tokens, is nearest."""

    clusters: int = 12

    word = "topic"

    @property
    def title(self) -> str:
        return f"the topic, of {self.clusters}"

    def labels(self, laboratory: Laboratory) -> tuple[Any, Any] | None:
        public = laboratory.prefixes.calibration
        if len(public) <= self.clusters:
            return None
        topics = Topics.fit(public, self.clusters, rng=0)
        return topics.label(laboratory.prefixes.bank), topics.label(public)


@dataclass(frozen=True)
class Digit(AttributeGuesser):
    """Guesses whether the prompt holds a digit."""

    word = "digit"

    @property
    def title(self) -> str:
        return "whether it holds a digit"

    def labels(self, laboratory: Laboratory) -> tuple[Any, Any] | None:
        texts = laboratory.texts
        return None if texts is None else (label_digits(texts[0]), label_digits(texts[1]))


@dataclass(frozen=True)
class Name(AttributeGuesser):
    """Guesses whether the prompt holds a capitalised word inside a sentence."""

    word = "proper-name"

    @property
    def title(self) -> str:
        return "whether it holds a name"

    def labels(self, laboratory: Laboratory) -> tuple[Any, Any] | None:
        texts = laboratory.texts
        return None if texts is None else (label_names(texts[0]), label_names(texts[1]))


@dataclass(frozen=True, eq=False)
class Column(AttributeGuesser):
    """Guesses an attribute that the user knows of every prompt, such as a column of a table.

    Attributes:
        about: what it is.
        bank: (N,) labels of the bank.
        calibration: (M,) labels of the calibration prompts; None to learn nothing from them.
    """

    about: str
    bank: Any = field(repr=False)
    calibration: Any = field(repr=False, default=None)

    @property
    def name(self) -> str:
        """Its title and a digest of its labels, for points are kept under it."""
        parts = (self.bank, () if self.calibration is None else self.calibration)
        text = "\n".join(str(label) for part in parts for label in part)
        return f"column-{self.about}-{sha256(text.encode()).hexdigest()[:8]}"

    @property
    def title(self) -> str:
        return self.about

    def labels(self, laboratory: Laboratory) -> tuple[Any, Any] | None:
        """As ``AttributeGuesser``.

        Raises:
            ValueError: another number of labels than of prompts.
        """
        prefixes = laboratory.prefixes
        for name, labels, prompts in (
            ("bank", self.bank, prefixes.bank),
            ("calibration", self.calibration, prefixes.calibration),
        ):
            if labels is not None and np.shape(labels) != (len(prompts),):
                raise ValueError(
                    f"{name}: expected {len(prompts)} labels of {self.about}, got shape "
                    f"{np.shape(labels)}"
                )
        public = None if self.calibration is None else np.asarray(self.calibration)
        return np.asarray(self.bank), public


GUESSERS: tuple[type[Guesser], ...] = (
    KnownPrefix,
    KnownRest,
    KnownToken,
    TokenGuesser,
    Topic,
    Digit,
    Name,
)
USUAL_GUESSERS: tuple[Guesser, ...] = (
    KnownPrefix(),
    KnownRest(),
    KnownToken(0),
    KnownToken(-1),
    TokenGuesser(-1),
    TokenGuesser(-2),
    Topic(),
    Digit(),
    Name(),
)


def read_guesser(guesser: Guesser | str) -> Guesser:
    """Return the attacker that a word names, or the value given.

    Example:
        >>> read_guesser("known-prefix(50,64)")
        KnownPrefix(prompts=50, candidates=64)
    """
    if isinstance(guesser, Guesser):
        return guesser
    return read_one("guessers", guesser, GUESSERS)


def run_guessers(
    laboratory: Laboratory, seen: Observed, guessers: Sequence[Guesser]
) -> tuple[GuessPoint, ...]:
    """Return what each guesser reaches against one release."""
    return tuple(point for guesser in guessers for point in guesser.guess(laboratory, seen))


def _attacked(laboratory: Laboratory, seen: Observed) -> int:
    count = len(seen.held) if seen.channel.deterministic else min(DRAWN, laboratory.sizes.queries)
    return min(count, len(seen.released))


def _place(position: int) -> str:
    """Say which token a position is.

    Example:
        >>> _place(0), _place(2), _place(-1), _place(-2)
        ('first', 'third', 'last', 'last but one')
    """
    words = ("first", "second", "third", "fourth", "fifth")
    ends = ("last", "last but one", "last but two", "last but three")
    if 0 <= position < len(words):
        return words[position]
    if -len(ends) <= position < 0:
        return ends[-position - 1]
    return f"{position + 1:,}th" if position > 0 else f"{-position:,}th from last"
