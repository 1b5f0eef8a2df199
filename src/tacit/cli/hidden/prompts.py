"""The prompts that a command is about: the user's own, whole, or windows of texts."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from tacit.cli.console import consoles, line
from tacit.text import percent_up

if TYPE_CHECKING:
    from torch import Tensor

    from tacit.cli.hidden.inputs import Source
    from tacit.models import LanguageModel, Prefixes, PromptTexts

# Tokens that an audit generates after a prompt, less the one that is predicted anyway.
FOLLOWING = 7
SEQUENCE = 8


def windows(
    source: Source,
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

    text = docstring_corpus() if source.texts is None else read_text(source.texts)
    stream, aside = model.stream(text), max(1, held_out)
    shared = {"length": source.length, "rng": source.seed}
    if source.public_texts is None:
        if source.texts is not None:
            note("prompts to fit on are cut from --texts too, and what is released may hold what "
                 "was fitted on: give others with --public-texts")  # fmt: skip
        return Prefixes.draw(stream, bank=bank, calibration=calibration, held_out=aside, **shared)
    public = sample_prefixes(
        model.stream(read_text(source.public_texts)), count=calibration, **shared
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
    source: Source,
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


def some_prompts(source: Source, model: LanguageModel, count: int) -> Tensor:
    """Return the first of the user's prompts, or windows of the texts, for a measurement alone."""
    import torch

    from tacit.models import Prefixes, docstring_corpus, read_prompts, read_text
    from tacit.models.texts.prefixes import distinct_prompts

    if source.prompts is None:
        text = docstring_corpus() if source.texts is None else read_text(source.texts)
        sets = Prefixes.draw(
            model.stream(text), bank=1, calibration=count, held_out=1, length=source.length,
            rng=source.seed,
        )  # fmt: skip
        return sets.calibration
    own = read_prompts(source.prompts, column=source.column, name="--prompts")
    tokens = served(source, model, own, model.context - FOLLOWING)
    return torch.from_numpy(distinct_prompts(tokens.numpy())[:count])


def encoded_prompts(source: Source, model: LanguageModel) -> Tensor:
    """Return a prompt for every line of the user's file, in order, as the model is served it."""
    from tacit.models import read_prompts

    assert source.prompts is not None
    own = read_prompts(source.prompts, column=source.column, name="--prompts", every=True)
    return served(source, model, own, model.context)


def public_prompts(source: Source, count: int) -> PromptTexts:
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
    source: Source, model: LanguageModel, found: PromptTexts, room: int, *, public: bool = False
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
             "hold them")  # fmt: skip


def note(sentence: str) -> None:
    """Say something beside the result, on standard error."""
    line(consoles(True), "note", sentence)
