"""Learned inverters as values that attacks take, and the one of single states."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from typing import Any, ClassVar, Self

import numpy as np
import torch
from torch import Tensor

from tacit._ground.checks import Array, choice, integer
from tacit._ground.reprs import short_repr
from tacit.attacks.inversion.inverters import PROMPTS_TOGETHER, Inverter
from tacit.attacks.inversion.learned.networks import NAMES, AtOnce, MemoryDecoder
from tacit.attacks.inversion.learned.presets import FIT, KINDS, InverterFit
from tacit.attacks.inversion.learned.released import StateRelease, states_of
from tacit.attacks.inversion.learned.training import Lesson, in_order, learn
from tacit.models.language import LanguageModel
from tacit.models.next_states import as_tokens
from tacit.models.texts.prefixes import Tokens

HELD_OUT_SHARE = 0.02
RELEASES_TOGETHER = 1024


@dataclass(frozen=True, eq=False)
class LearnedInverter(Inverter):
    """A network that has learnt on public text to read prompts from their releases.

    Attributes:
        everywhere: whether it reads a release of every position, or of the last alone.
        of: what it reads, in a few words.
        usual: kind of network that it learns unless told.
        model: the language model.
        layer: 1 … L.
        release: how the states that it attacks are released.
        network: what was learnt.
        trained_on: the release that it learnt from: the same for a mechanism-aware attacker.
        steps: taken in training.
        loss: of held-out public windows, nats a token.
        history: (spent, loss) of every evaluation.
    """

    everywhere: ClassVar[bool] = False
    of: ClassVar[str]
    usual: ClassVar[str]

    model: LanguageModel
    layer: int
    release: StateRelease
    network: MemoryDecoder | AtOnce
    trained_on: StateRelease
    steps: int
    loss: float
    history: tuple[tuple[float, float], ...]

    @classmethod
    def train(
        cls,
        model: LanguageModel,
        layer: int,
        stream: Any,
        how: InverterFit = FIT,
        *,
        length: int,
        release: StateRelease | None = None,
        seed: int = 0,
        progress: bool | None = None,
    ) -> Self:
        """Learn to read prompts from public text: every step draws fresh windows and releases.

        The loss is the mean of ``−ln P(token | release, tokens decoded before)``. A fiftieth of the
        stream, its end, is set aside for early stopping.

        Args:
            model: the public model, on the device where all is computed.
            layer: 1 … L.
            stream: public tokens, (S,), in which no secret may stand.
            how: which network, how long it learns and where its state is kept.
            length: T, tokens to read.
            release: how states are released, which is applied to every training state; None for
                states as they are.
            seed: of the start and the windows; with ``steps`` it fixes the result on one machine.
            progress: whether a bar is shown; None for when stderr is a terminal.

        Raises:
            ValueError: a bad setting, a text too short, or a checkpoint of another training.

        Example:
            >>> from transformers import GPT2Config, GPT2LMHeadModel
            >>> from tacit.attacks import InverterFit, LearningSchedule, NetworkShape
            >>> sizes = {"vocab_size": 20, "n_embd": 16, "n_layer": 2, "n_head": 2,
            ...          "n_positions": 8}
            >>> model = LanguageModel(GPT2LMHeadModel(GPT2Config(**sizes)))
            >>> stream = torch.randint(20, (2000,), generator=torch.Generator().manual_seed(0))
            >>> how = InverterFit(shape=NetworkShape(layers=1, width=16), steps=2,
            ...                   schedule=LearningSchedule(batch=8))
            >>> inverter = StateInverter.train(model, 1, stream, how, length=2, progress=False)
            >>> inverter.invert(model.states([[7, 3]], 1)).shape
            (1, 2)
        """
        held = StateRelease() if release is None else release
        if not isinstance(held, StateRelease):
            raise ValueError(f"release: expected a StateRelease, got {type(held).__name__}")
        built, plan = how.planned(cls.usual)
        lesson = cls._lesson(model, layer, stream, how, length, held, seed)
        network, state = learn(lesson, built, plan, how.checkpoint, progress)
        history = tuple((float(spent), float(loss)) for spent, loss in state.history)
        return cls(
            model, lesson.layer, held, network, held, state.steps, float(state.best), history
        )

    @classmethod
    def _lesson(
        cls,
        model: LanguageModel,
        layer: int,
        stream: Any,
        how: InverterFit,
        length: int,
        release: StateRelease,
        seed: int,
    ) -> Lesson:
        """Return what is learnt from, checked: windows of the stream but for its end."""
        level, size = model.check_layer(layer), integer("length", length, minimum=1)
        tokens = as_tokens("stream", stream, ndim=1)
        least = size
        if how.shortest is not None:
            least = integer("shortest", how.shortest, minimum=1, maximum=size)
        kind = choice("kind", how.planned(cls.usual)[0].kind, KINDS)
        forward = kind == "forward" and not cls.everywhere
        if forward and least < size:
            raise ValueError(
                "shortest: expected none for the forward decoder, which starts at a token T from "
                f"the end, got {least}"
            )
        aside = int(len(tokens) * HELD_OUT_SHARE)
        if aside < 2 * size:
            raise ValueError(
                f"stream: expected at least {int(2 * size / HELD_OUT_SHARE):,} tokens, got "
                f"{len(tokens):,}"
            )
        model.check_tokens(tokens[: model.context][None], name="stream")
        if int(tokens.min()) < 0 or int(tokens.max()) >= model.vocabulary:
            raise ValueError(
                f"stream: expected tokens from 0 to {model.vocabulary - 1}, got other values"
            )
        if size > model.context:
            raise ValueError(f"length: expected at most {model.context}, got {size}")
        return Lesson(
            model, level, release, tokens[:-aside], tokens[-aside:], size, least,
            integer("seed", seed, minimum=0), cls.everywhere,
        )  # fmt: skip

    def attacking(self, release: StateRelease) -> Self:
        """Return the same network given releases of another law than it learnt from."""
        return type(self)(
            self.model, self.layer, release, self.network, self.trained_on, self.steps, self.loss,
            self.history,
        )  # fmt: skip

    @property
    def name(self) -> str:  # type: ignore[override]
        """Which network, and what it learnt from."""
        return NAMES[self.network.shape.kind].format(self.of)

    @property
    def knows(self) -> str:  # type: ignore[override]
        """What it is told besides the releases and how they were drawn."""
        return "" if self.trained_on is self.release else "clean states in training, not releases"

    @property
    def length(self) -> int:
        """T, the most tokens that it reads."""
        return self.network.length

    def invert(self, released: Any) -> Tokens:
        """As ``Inverter``: the likeliest token at every step."""
        return self.sample(released)

    def sample(
        self, released: Any, *, fixed: Any = None, source: torch.Generator | None = None
    ) -> Tokens:
        """Return prompts decoded from releases, (n, T): the likeliest tokens, or drawn ones.

        Args:
            released: of n prompts.
            fixed: (n, T), tokens that are given, −1 where they are to be decoded.
            source: of the draws; None takes the likeliest token every step.
        """
        rows = self.read(released).to(self.model.device)
        shape = self.network.shape
        length = rows.shape[1] if self.everywhere else self.length
        given = None if fixed is None else self._given(fixed, (len(rows), length))
        parts = []
        for start in range(0, len(rows), RELEASES_TOGETHER):
            part = slice(start, start + RELEASES_TOGETHER)
            known = None if given is None else in_order(shape, given[part]).to(rows.device)
            heard = in_order(shape, rows[part]) if self.everywhere else rows[part]
            parts.append(in_order(shape, self.network.decode(heard, known, source)).cpu())
        tokens: Tokens = torch.cat(parts).numpy()
        return tokens

    def _given(self, fixed: Any, shape: tuple[int, int]) -> Tensor:
        """Return tokens that are given, or say what is wrong with them."""
        given = as_tokens("fixed", fixed, ndim=2)
        if tuple(given.shape) != shape:
            raise ValueError(f"fixed: expected shape {shape}, got {tuple(given.shape)}")
        most = self.model.vocabulary - 1
        if given.is_floating_point():
            raise ValueError(f"fixed: expected integers, got {given.dtype}")
        if int(given.min()) < -1 or int(given.max()) > most:
            raise ValueError(f"fixed: expected tokens up to {most}, or −1, got another")
        return given

    @abstractmethod
    def read(self, released: Any) -> Tensor:
        """Return what the network reads of releases, (n, d) or (n, T, d) in float32."""

    @abstractmethod
    def checked(self, released: Any) -> Any:
        """Return releases, or say what is wrong with them."""

    def _of_width(self, released: Any) -> Any:
        """Return releases of as many numbers as the network reads; codes have none."""
        width = len(self.network.whitening.mean)
        if not self.release.codes and released.shape[-1] != width:
            raise ValueError(
                f"released: expected releases of {width} numbers, got {released.shape[-1]}"
            )
        return released

    def count(self, released: Any) -> int:
        return len(self.checked(released))

    def select(self, released: Any, rows: Any) -> Any:
        return self.checked(released)[rows]

    def emptied(self, released: Any) -> Any:
        """As ``Inverter``: zeros in the place of states; codes have none."""
        return None if self.release.codes else np.zeros_like(self.checked(released)[:1])

    def nearest(self, released: Any, bank: Any) -> Tokens:
        """As ``Inverter``: the largest likelihood under the law of the release."""
        given = self.checked(released)
        tokens = self.model.check_tokens(bank)
        best = np.full(len(given), np.inf)
        found = np.zeros((len(given), tokens.shape[1]), dtype=np.int64)
        for part in torch.split(tokens, PROMPTS_TOGETHER):
            totals = self.distances(given, part)
            place = totals.argmin(axis=1)
            nearer = totals[np.arange(len(best)), place] < best
            best[nearer] = totals[nearer, place[nearer]]
            found[nearer] = part.cpu().numpy()[place[nearer]]
        return found

    @abstractmethod
    def distances(self, released: Any, prompts: Tensor) -> Array:
        """Return ``−2 ln P(release | prompt)`` up to a constant of each row, (n, m)."""


@short_repr
@dataclass(frozen=True, eq=False)
class StateInverter(LearnedInverter):
    """Reads the last T tokens of a prompt from the release of its last state alone.

    Attributes:
        model: the language model.
        layer: 1 … L.
        release: how the states that it attacks are released.
        network: what was learnt.
        trained_on: the release that it learnt from: the same for a mechanism-aware attacker.
        steps: taken in training.
        loss: of held-out public windows, nats a token.
        history: (spent, loss) of every evaluation.
    """

    of: ClassVar[str] = "one state"
    usual: ClassVar[str] = "right-to-left"

    def checked(self, released: Any) -> Any:
        return self._of_width(self.release.checked(released))

    def read(self, released: Any) -> Tensor:
        return self.release.vectors_of(self.checked(released))

    def distances(self, released: Any, prompts: Tensor) -> Array:
        return self.release.distances(released, self.candidates(prompts))

    def candidates(self, prompts: Tensor) -> Any:
        """Return what is held of prompts, which decides how likely a release of each is."""
        channel = self.release.channel
        states, behaviours = states_of(self.model, self.layer, prompts, channel.predicts)
        return channel.held(states.double().cpu() if not channel.predicts else states, behaviours)
