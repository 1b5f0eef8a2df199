"""What the commands on hidden states share: a model and its prompts, as flags."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypeVar

import typer

from tacit._ground.checks import integer
from tacit._ground.memory import keep_freed_memory
from tacit.cli.hidden.prompts import some_prompts, whole_prompts, windows

if TYPE_CHECKING:
    from torch import Tensor

    from tacit.hidden_states import Sizes
    from tacit.models import LanguageModel, Prefixes

Number = TypeVar("Number", int, float)

Layer = Annotated[int, typer.Option(help="Layer after which the last state is released, from 1.")]
Bank = Annotated[int, typer.Option(help="Prompts an attacker chooses among.")]
Calibration = Annotated[int, typer.Option(help="Other prompts, to fit designs on.")]
Measured = Annotated[int, typer.Option(help="Prompts on which use and attacks are measured.")]
KlBudgets = Annotated[str, typer.Option(help="K that noise may cost in nats, separated by commas.")]
Codewords = Annotated[str, typer.Option(help="C, separated by commas.")]


@dataclass(frozen=True)
class Source:
    """A model, and the prompts it is given: whole ones, or windows cut from texts."""

    model: Annotated[
        str, typer.Option(help="tacit/small, a Hugging Face name, or a folder with a model.")
    ] = "tacit/small"
    dtype: Annotated[
        str, typer.Option(help="float32, bfloat16, or stored, as the checkpoint is.")
    ] = "float32"
    prompts: Annotated[
        str | None,
        typer.Option(
            help="Your prompts, as they are served: .txt (one a line), .jsonl, .csv, .tsv, "
            ".parquet, or a folder of .txt; instead of --texts."
        ),
    ] = None
    column: Annotated[
        str | None,
        typer.Option(help="Column of the prompts; prompt or text when left out."),
    ] = None
    chat_template: Annotated[
        bool, typer.Option("--chat-template", help="Put every prompt into the chat template.")
    ] = False
    longest: Annotated[int | None, typer.Option(help="Cut prompts after so many tokens.")] = None
    texts: Annotated[
        str | None,
        typer.Option(
            help=".txt or .txt.gz file, or a folder of them, to cut windows from; the docstrings "
            "of this installation when left out."
        ),
    ] = None
    public_texts: Annotated[
        str | None,
        typer.Option(
            help="Public texts to fit on, of the form of --prompts or --texts; the docstrings of "
            "this installation when left out with --prompts."
        ),
    ] = None
    length: Annotated[int, typer.Option(help="Tokens of each window of --texts.")] = 32
    seed: Annotated[int, typer.Option(help="Fixes prompts and draws of a measurement.")] = 0

    @property
    def data_name(self) -> str:
        """Where the secrets come from."""
        return self.prompts or self.texts or "docstrings of this installation"

    def prepare(
        self, *layers: int, bank: int, calibration: int, held_out: int = 0
    ) -> tuple[LanguageModel, Prefixes]:
        """Load the model, and take or cut disjoint sets of prompts.

        Args:
            layers: each to be one of the model's.
            bank: secrets; of whole prompts at most as many as there are.
            calibration: public prompts to fit on; likewise.
            held_out: prompts to measure use on; likewise.
        """
        return self._made(layers, bank, calibration, held_out, released=False)

    def released(self, *layers: int, bank: int, calibration: int) -> tuple[LanguageModel, Prefixes]:
        """Load the model, and take every prompt to release in its order, and public ones.

        How many prompts are taken, and which are fitted on, is the same whatever they hold.

        Args:
            layers: as for ``prepare``.
            bank: prompts to release at most, the first of the file.
            calibration: as for ``prepare``.
        """
        return self._made(layers, bank, calibration, 0, released=True)

    def _made(
        self, layers: Iterable[int], bank: int, calibration: int, held_out: int, released: bool
    ) -> tuple[LanguageModel, Prefixes]:
        self._check({"--bank": bank, "--calibration": calibration})
        with llm_extra():
            found = self._model(layers)
            make = windows if self.prompts is None else whole_prompts
            return found, make(self, found, bank, calibration, held_out, released)

    def sample(self, layer: int, count: int) -> tuple[LanguageModel, Tensor]:
        """Load the model, and take at most ``count`` prompts that nothing is released of."""
        self._check({"--calibration": count})
        with llm_extra():
            found = self._model([layer])
            return found, some_prompts(self, found, count)

    def _model(self, layers: Iterable[int]) -> LanguageModel:
        from tacit.models import load

        keep_freed_memory()
        found = load(self.model, dtype=self.dtype)
        for layer in layers:
            integer("--layer", layer, minimum=1, maximum=found.layers)
        return found

    def _check(self, sizes: Mapping[str, int]) -> None:
        for flag, value in {"--length": self.length, **sizes}.items():
            integer(flag, value, minimum=1)
        if self.longest is not None:
            integer("--longest", self.longest, minimum=1)
        integer("--seed", self.seed, minimum=0)
        given = {"--prompts": self.prompts, "--texts": self.texts}
        for flag, path in {**given, "--public-texts": self.public_texts}.items():
            if path is not None and not Path(path).exists():
                raise ValueError(f"{flag}: no such file or folder: {path}")
        if None not in given.values():
            raise ValueError("--prompts: expected this or --texts, got both")
        if self.prompts is None:
            unused = {"--column": self.column, "--chat-template": self.chat_template or None,
                      "--longest": self.longest}  # fmt: skip
            for flag, unread in unused.items():
                if unread is not None:
                    raise ValueError(f"{flag}: needs --prompts")


def sizes_of(measured: int) -> Sizes:
    """Return how much is measured on so many prompts."""
    from tacit.hidden_states import Sizes

    return Sizes(prompts=measured, queries=measured, generated=min(measured, 300))


def words(text: str) -> list[str]:
    """Return what stands between commas, those in brackets aside."""
    return [word.strip() for word in re.split(r",(?![^()]*\))", text) if word.strip()]


def listed(flag: str, text: str, kind: Callable[[str], Number]) -> list[Number]:
    """Return the numbers between commas."""
    try:
        return [kind(word) for word in words(text)]
    except ValueError:
        raise ValueError(f"{flag}: expected numbers separated by commas, got {text!r}") from None


@contextmanager
def llm_extra() -> Iterator[None]:
    """Turn a missing extra into the sentence that names it."""
    try:
        yield
    except ImportError as error:
        raise ValueError(str(error)) from None
