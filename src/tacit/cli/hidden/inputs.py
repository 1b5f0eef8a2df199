"""What the commands on hidden states share: a model, prompts cut from texts, a progress bar."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypeVar

import typer

from tacit._ground.checks import integer

if TYPE_CHECKING:
    from tacit.hidden_states import Sizes
    from tacit.models import LanguageModel, Prefixes

Number = TypeVar("Number", int, float)

Layer = Annotated[int, typer.Option(help="Layer after which the last state is released, from 1.")]
Bank = Annotated[int, typer.Option(help="Prompts an attacker chooses among.")]
Calibration = Annotated[int, typer.Option(help="Other prompts, to fit designs on.")]
Prompts = Annotated[int, typer.Option(help="Prompts on which use and attacks are measured.")]
KlBudgets = Annotated[str, typer.Option(help="K that noise may cost in nats, separated by commas.")]
Codewords = Annotated[str, typer.Option(help="C, separated by commas.")]


@dataclass(frozen=True)
class Source:
    """A model, and the texts that its prompts are cut from."""

    model: Annotated[
        str, typer.Option(help="tacit/small, a Hugging Face name, or a folder with a model.")
    ] = "tacit/small"
    texts: Annotated[
        str | None,
        typer.Option(
            help=".txt or .txt.gz file, or a folder of them; the docstrings of this installation "
            "when left out."
        ),
    ] = None
    length: Annotated[int, typer.Option(help="Tokens of each prompt.")] = 32
    seed: Annotated[int, typer.Option(help="Fixes prompts and draws of a measurement.")] = 0

    def prepare(self, *layers: int, bank: int, calibration: int) -> tuple[LanguageModel, Prefixes]:
        """Load the model and cut disjoint prompts from the texts."""
        sizes = {"--length": self.length, "--bank": bank, "--calibration": calibration}
        for flag, value in sizes.items():
            integer(flag, value, minimum=1)
        integer("--seed", self.seed, minimum=0)
        if self.texts is not None and not Path(self.texts).exists():
            raise ValueError(f"--texts: no such file or folder: {self.texts}")
        with llm_extra():
            from tacit.models import Prefixes, docstring_corpus, load, read_text

            found = load(self.model)
            for layer in layers:
                integer("--layer", layer, minimum=1, maximum=found.layers)
            text = docstring_corpus() if self.texts is None else read_text(self.texts)
            prefixes = Prefixes.draw(
                found.stream(text),
                bank=bank,
                calibration=calibration,
                held_out=1,
                length=self.length,
                rng=self.seed,
            )
            return found, prefixes


def sizes_of(prompts: int) -> Sizes:
    """Return how much is measured on so many prompts."""
    from tacit.hidden_states import Sizes

    return Sizes(prompts=prompts, queries=prompts, generated=min(prompts, 300))


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
