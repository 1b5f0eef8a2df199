"""What the commands on hidden states share: a model and its prompts, as flags and as read."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer

from tacit._ground.checks import integer
from tacit._ground.files import read_bytes
from tacit._ground.memory import keep_freed_memory
from tacit.cli.completion import offered
from tacit.cli.console import consoles, line
from tacit.cli.publishing import Source, content_fingerprint
from tacit.text import percent_up

if TYPE_CHECKING:
    from torch import Tensor

    from tacit.hidden_states import Sizes
    from tacit.models import LanguageModel, Prefixes, PromptTexts

Number = TypeVar("Number", int, float)

# Tokens that an audit generates after a prompt, less the one that is predicted anyway.
FOLLOWING = 7
SEQUENCE = 8
# Prompts that a command continues at most: eight passes each.
GENERATED = 300

Layer = Annotated[int, typer.Option(help="Layer whose last state is released, counted from 1.")]
Bank = Annotated[int, typer.Option(help="Prompts an attacker chooses among.")]
Calibration = Annotated[
    int,
    typer.Option(
        help="Public prompts to fit on (calibration set), none of those in the bank (candidate "
        "set). How many are enough depends on what a command fits, so each has its own default."
    ),
]
Measured = Annotated[int, typer.Option(help="Prompts on which use and attacks are measured.")]


@dataclass(frozen=True, kw_only=True)
class LayerFlags:
    """A layer, the prompts that are secret there, and public ones to fit on."""

    layer: Layer
    bank: Bank = 1000
    calibration: Calibration = 5000

    @property
    def asked(self) -> dict[str, int]:
        """How many of each set, as ``PromptFlags.prepare`` takes them."""
        return {"bank": self.bank, "calibration": self.calibration}


@dataclass(frozen=True)
class CountFlags:
    """How many prompts are taken of each kind."""

    bank: Bank = 5000
    calibration: Calibration = 20_000
    measured: Measured = 1000

    @property
    def asked(self) -> dict[str, int]:
        """How many of each set, as ``PromptFlags.prepare`` takes them."""
        return {
            "bank": self.bank, "calibration": self.calibration, "held_out": self.measured,
        }  # fmt: skip

    @property
    def sizes(self) -> Sizes:
        """How much is measured on so many prompts."""
        from tacit.hidden_states import Sizes

        measured = self.measured
        return Sizes(prompts=measured, queries=measured, generated=min(measured, GENERATED))


@dataclass(frozen=True)
class PromptFlags:
    """A model, and the prompts it is given: whole ones, or windows cut from texts."""

    model: Annotated[
        str, typer.Option(help="tacit/small, a Hugging Face name, or a folder with a model.")
    ] = "tacit/small"
    dtype: Annotated[
        str,
        typer.Option(
            autocompletion=offered("float32", "bfloat16", "stored"),
            help="float32, bfloat16, or stored, as the checkpoint is.",
        ),
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
        typer.Option(help="Column of the prompts; that named prompt or text when left out."),
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
    seed: Annotated[
        int,
        typer.Option(help="Seed of the prompts and draws of a measurement."),
    ] = 0

    @property
    def data_name(self) -> str:
        """Where the secrets come from."""
        return self.prompts or self.texts or "docstrings of this installation"

    def read_as(self) -> Source:
        """Return what the provenance of a release says of the prompts, for their holder."""
        place = self.prompts or self.texts
        self._check({})
        read = None if place is None else content_fingerprint(place)
        return Source(path=None, name=self.data_name, fingerprint=read)

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
            raise ValueError("--prompts: expected either --prompts or --texts, got both")
        if self.prompts is None:
            unused = {"--column": self.column, "--chat-template": self.chat_template or None,
                      "--longest": self.longest}  # fmt: skip
            for flag, unread in unused.items():
                if unread is not None:
                    raise ValueError(f"{flag}: needs --prompts")


def listed(flag: str, text: str, kind: Callable[[str], Number]) -> list[Number]:
    """Return the numbers between commas."""
    try:
        return [kind(word) for word in text.split(",") if word.strip()]
    except ValueError:
        raise ValueError(f"{flag}: expected numbers separated by commas, got {text!r}") from None


@contextmanager
def llm_extra() -> Iterator[None]:
    """Turn a missing extra into the sentence that names it."""
    try:
        yield
    except ImportError as error:
        raise ValueError(str(error)) from None


def windows(
    source: PromptFlags,
    model: LanguageModel,
    bank: int,
    calibration: int,
    held_out: int,
    released: bool = False,
) -> Prefixes:
    """Cut windows from texts, those to fit on from public ones where some are given.

    Those to fit on are the same whatever the others are. What is only attacked is no window of
    theirs; what is released is cut without a look at them.
    """
    from tacit.models import Prefixes, docstring_corpus, read_text, sample_prefixes

    text = docstring_corpus() if source.texts is None else read_text(source.texts, name="--texts")
    stream, aside = model.stream(text), max(1, held_out)
    shared = {"length": source.length, "rng": source.seed}
    if source.public_texts is None:
        if source.texts is not None:
            note("prompts to fit on are cut from --texts too, and what is released may hold what "
                 "was fitted on: give others with --public-texts")  # fmt: skip
        return Prefixes.draw(stream, bank=bank, calibration=calibration, held_out=aside, **shared)
    public = sample_prefixes(
        model.stream(read_text(source.public_texts, name="--public-texts")),
        count=calibration,
        **shared,
    )
    own = sample_prefixes(
        stream, count=bank + aside, exclude=None if released else public, **shared
    )
    tell_overlap(own[:bank], public)
    if (
        source.texts is not None
        and Path(source.texts).resolve() == Path(source.public_texts).resolve()
    ):
        note("--public-texts: the same texts as --texts, which are not public then")
    return Prefixes(own[:bank], public, own[bank:])


def whole_prompts(
    source: PromptFlags,
    model: LanguageModel,
    bank: int,
    calibration: int,
    held_out: int,
    released: bool = False,
) -> Prefixes:
    """Take the user's prompts as the model is served them, and public ones to fit on.

    What is released is one prompt for every line of the file, in its order.
    """
    from tacit.models import Prefixes, read_prompts

    assert source.prompts is not None
    own = read_prompts(source.prompts, column=source.column, name="--prompts", every=released)
    public = public_prompts(source, calibration)
    room = model.context - FOLLOWING
    tokens = served(source, model, own, room)
    others = served(source, model, public, room, public=True)
    counts = {"bank": bank, "calibration": calibration}
    if released:
        sets = Prefixes.released(tokens, others, **counts, rng=source.seed)
    else:
        sets = Prefixes.of_prompts(tokens, others, **counts, held_out=held_out, rng=source.seed)
        distinct = len(sets.bank) + len(sets.held_out)
        if distinct < len(own) and distinct < bank:
            note(f"{len(own) - distinct:,} of {len(own):,} prompts repeat others or are public, "
                 "and are not attacked again")  # fmt: skip
    # special tokens and a template are everywhere: what is compared is the texts alone
    bare = [model.prompts(each.texts, bare=True, every=True) for each in (own, public)]
    tell_overlap(*bare)
    return sets


def some_prompts(source: PromptFlags, model: LanguageModel, count: int) -> Tensor:
    """Return the first of the user's prompts, or windows of the texts, for a measurement alone."""
    import torch

    from tacit.models import Prefixes, docstring_corpus, read_prompts, read_text
    from tacit.models.texts.prefixes import distinct_prompts

    if source.prompts is None:
        text = (
            docstring_corpus() if source.texts is None else read_text(source.texts, name="--texts")
        )
        sets = Prefixes.draw(
            model.stream(text), bank=1, calibration=count, held_out=1, length=source.length,
            rng=source.seed,
        )  # fmt: skip
        return sets.calibration
    own = read_prompts(source.prompts, column=source.column, name="--prompts")
    tokens = served(source, model, own, model.context - FOLLOWING)
    return torch.from_numpy(distinct_prompts(tokens.numpy())[:count])


def encoded_prompts(source: PromptFlags, model: LanguageModel) -> Tensor:
    """Return a prompt for every line of the user's file, in order, as the model is served it."""
    from tacit.models import read_prompts

    assert source.prompts is not None
    own = read_prompts(source.prompts, column=source.column, name="--prompts", every=True)
    return served(source, model, own, model.context)


def public_prompts(source: PromptFlags, count: int) -> PromptTexts:
    """Return public prompts: of a file, of the lines of texts, or lines of docstrings."""
    from tacit.models import docstring_corpus, read_prompts
    from tacit.models.texts.prompts import lines_of

    path = source.public_texts
    if path is not None:
        column = None if Path(path).is_dir() else source.column
        return read_prompts(path, column=column, name="--public-texts")
    note("fitted on lines of docstrings of this installation: public texts that are like yours, "
         "given with --public-texts, keep more of the prediction")  # fmt: skip
    return spread(lines_of(docstring_corpus()), 2 * count)


def spread(texts: PromptTexts, count: int) -> PromptTexts:
    """Return about ``count`` of many texts, evenly spaced."""
    step = max(1, len(texts) // count)
    return texts.select(range(0, len(texts), step))


def served(
    source: PromptFlags,
    model: LanguageModel,
    found: PromptTexts,
    room: int,
    *,
    public: bool = False,
) -> Tensor:
    """Return every prompt as tokens; those of too many are cut after the first so many."""
    from tacit.models.padding import pad

    limit = room if source.longest is None else min(room, source.longest)
    if limit < 1:
        raise ValueError(f"--model: expected room for a prompt and {FOLLOWING} tokens, got none")
    tokens = model.tokenised(found.texts, chat_template=source.chat_template, every=True)
    cut = sum(len(ids) > limit for ids in tokens)
    if cut and not public:
        note(f"{cut:,} of {len(found):,} prompts have more than {limit:,} tokens, and are cut "
             "there")  # fmt: skip
    blank = sum(not text.strip() for text in found.texts)
    if blank:
        note(f"{blank:,} of {len(found):,} lines hold no text, and count as the empty prompt")
    return pad([ids[:limit] for ids in tokens])


def tell_overlap(bank: Tensor, public: Tensor) -> None:
    """Warn of secrets that stand in what is called public."""
    from tacit.models import shared_sequences

    share, prompts = shared_sequences(bank, public, length=SEQUENCE)
    if share > 0:
        note(f"{percent_up(share)} of the sequences of {SEQUENCE} tokens in your prompts stand in "
             f"the public texts too, in {percent_up(prompts)} of the prompts: what is fitted may "
             "repeat them")  # fmt: skip


def note(sentence: str) -> None:
    """Say something beside the result, on standard error."""
    line(consoles(True), "note", sentence)


def content_digest(path: Any, name: str = "path") -> str:
    """Return the SHA-256 of a text, of all in a folder, or of the docstrings of Python here."""
    from tacit.models import docstring_corpus, read_text
    from tacit.models.texts.corpus import digest

    if path is None:
        return digest(docstring_corpus())
    if Path(path).is_dir() or str(path).endswith((".txt", ".txt.gz")):
        return digest(read_text(path))
    return hashlib.sha256(read_bytes(name, path)).hexdigest()
