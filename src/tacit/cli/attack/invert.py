"""``tacit attack invert``: put an inverter to released states, and measure what it reads back."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tacit._ground.checks import integer
from tacit._ground.files import absolute
from tacit._ground.values import field_kinds
from tacit.attacks.inversion.learned.presets import InverterFit
from tacit.cli.console import line, tell_title
from tacit.cli.hidden.codec import read_codec
from tacit.cli.hidden.inputs import Layer, PromptFlags, llm_extra, note
from tacit.cli.options import Only, flag_of, grouped
from tacit.cli.output import refuse_inputs
from tacit.cli.publishing import Destination, Paged, Source
from tacit.hidden_states.attack_methods import (
    CLEAN,
    InversionPrompts,
    LayerInverter,
    StateMechanism,
)

if TYPE_CHECKING:
    from torch import Tensor

    from tacit.hidden_states.inversions import InversionEvidence
    from tacit.models import LanguageModel
    from tacit.releases import Release

# One in so many parts of the user's own texts is held out: they are shorter than a corpus.
OWN_HELD_OUT_EVERY = 5


@dataclass(frozen=True, kw_only=True)
class AttackedLayer:
    """The layer whose released states are attacked, and how many prompts."""

    layer: Layer
    measured: Annotated[int, typer.Option(help="Prompts attacked.")] = 200
    calibration: Annotated[
        int, typer.Option(help="Public prompts that a release is fitted on.")
    ] = 5000

    def __post_init__(self) -> None:
        integer("--measured", self.measured, minimum=2)
        integer("--calibration", self.calibration, minimum=1)


@grouped
def invert(
    codebook: Annotated[
        str | None,
        typer.Option(
            help="File of tacit hidden codebook or fit: attack the codes it makes, in the place of "
            "--mechanism."
        ),
    ] = None,
    *,
    attacked: AttackedLayer,
    released: Annotated[
        StateMechanism,
        Only("mechanism", "kl_budget", "codewords", "known_pairs", "positions"),
    ],
    inverter: Annotated[LayerInverter, Only("kind", "verify", "clean_trained")],
    fit: Annotated[InverterFit, Only("size", "minutes", "steps", "checkpoint")],
    outlet: Paged,
    source: PromptFlags,
) -> None:
    """Read prompts back from the released states of one layer by a network, and measure how
    well."""
    read = Source(path=None, name=source.data_name)
    destination = Destination.checked(outlet, read, others={"--texts": source.texts})
    if fit.checkpoint is not None:
        refuse_inputs("--checkpoint", absolute("--checkpoint", fit.checkpoint))
    inverter = _together(released, inverter, fit)
    if codebook is not None and released.mechanism != CLEAN:
        raise ValueError(
            f"--codebook: expected no --mechanism beside it, got {released.mechanism!r}"
        )
    most = attacked.calibration if "codes" in released.mechanism else None
    integer("--codewords", released.codewords, maximum=most)
    if released.known_pairs is not None:
        integer("--known-pairs", released.known_pairs, maximum=attacked.calibration)
    if codebook is None:
        _check_word(released.mechanism)
    else:
        released = replace(released, mechanism=read_codec(codebook))
    model, prefixes = source.prepare(
        attacked.layer, bank=attacked.measured, calibration=attacked.calibration
    )
    prompts = _divided(source, model, prefixes.bank, prefixes.calibration)
    if released.everywhere and bool((prompts.secret < 0).any()):
        raise ValueError(
            "--positions: expected prompts of one length where all positions are attacked, got "
            "several lengths; "
            "last takes them together, or give those of each length in a file of their own"
        )
    from tacit.hidden_states.inverting import invert_layer

    evidence = invert_layer(model, attacked.layer, prompts, released, inverter, seed=source.seed)
    destination = replace(destination, source=replace(read, rows=evidence.details.queries))
    evidence = destination.stated(evidence)
    destination.store(evidence)
    _tell(destination, evidence, prompts)


def _tell(
    destination: Destination, evidence: Release[InversionEvidence], prompts: InversionPrompts
) -> None:
    from tacit.pages.words import verdict

    console, details = destination.json.console, evidence.details
    training, suffixes = details.training, details.recovery.suffixes
    tell_title(console, verdict(evidence))
    spent = "" if training.steps is None else f", {training.steps:,} steps"
    line(console, "attacker", f"{details.attacker}{spent}")
    line(console, "release", f"{evidence.title}, KL {details.measured_kl:.3g} nats")
    line(console, "learnt from", str(prompts.texts))
    known = f": {training.known:,} stand word for word in what the attacker holds"
    line(
        console,
        "attacked",
        f"{details.queries:,} of {len(prompts.secret):,} prompts{known if training.known else ''}",
    )
    ends = (f"{suffixes[count - 1].value:.1%}" for count in (2, 4) if count <= len(suffixes))
    line(console, "last 2, 4", ", ".join(ends))
    destination.tell(evidence.withheld)


def _check_word(mechanism: str) -> None:
    """Refuse a word whose numbers, where it has some, are out of range: before a model is loaded.

    Raises:
        ValueError: they are.
    """
    with llm_extra():
        from tacit.hidden_states.defences.values import read_defence
    try:
        read_defence(mechanism)
    except ValueError as error:
        raise ValueError(f"--mechanism: {error}") from None


def _together(released: StateMechanism, inverter: LayerInverter, fit: InverterFit) -> LayerInverter:
    """Return the inverter with its training, or say which flags make no sense beside each other.

    Raises:
        ValueError: some do not.
    """
    try:
        inverter.check(released)
        whole = replace(inverter, fit=fit)
    except ValueError as error:
        name, _, rest = str(error).partition(":")
        kinds = {**field_kinds(LayerInverter), **field_kinds(InverterFit)}
        flag = flag_of(name, kinds[name][1] if name in kinds else ())
        raise ValueError(f"{flag}:{rest}") from None
    return whole


def _divided(
    source: PromptFlags, model: LanguageModel, bank: Tensor, calibration: Tensor
) -> InversionPrompts:
    """Return secrets, public prompts, the stream that is learnt from, and where it comes from."""
    from tacit.models import docstring_corpus, read_text, sample_prefixes
    from tacit.models.texts.corpus import hold_out

    if source.prompts is not None:
        width = max(bank.shape[1], calibration.shape[1])
        bank, calibration = (_widened(part, width) for part in (bank, calibration))
    if source.public_texts is not None:
        texts = f"the public texts {source.public_texts}"
        stream = model.stream(_public_text(source))
        return InversionPrompts(secret=bank, public=calibration, stream=stream, texts=texts)
    if source.prompts is not None:
        note("the inverter learns from docstrings: texts that are like yours, given with "
             "--public-texts, make a stronger attacker")  # fmt: skip
        stream = model.stream(docstring_corpus())
        return InversionPrompts(secret=bank, public=calibration, stream=stream, texts="docstrings")
    own = source.texts is not None
    text = read_text(str(source.texts), name="--texts") if own else docstring_corpus()
    learned, unseen = hold_out(text, **({"every": OWN_HELD_OUT_EVERY} if own else {}))
    stream = model.stream(learned)
    shared = {"length": source.length, "rng": source.seed}
    public = sample_prefixes(stream, count=len(calibration), **shared)
    note("prompts attacked are cut from text that the inverter does not learn from")
    secret = sample_prefixes(model.stream(unseen), count=len(bank), exclude=public, **shared)
    rest = "the rest of the texts" if own else "docstrings"
    return InversionPrompts(secret=secret, public=public, stream=stream, texts=rest)


def _widened(tokens: Tensor, width: int) -> Tensor:
    """Return prompts with columns that pad all of them, so that they compare with longer ones."""
    from torch.nn.functional import pad

    from tacit.models.padding import PADDING

    return pad(tokens, (width - tokens.shape[1], 0), value=PADDING)


def _public_text(source: PromptFlags) -> str:
    """Return the public texts as one, from prompts in a file or from text."""
    from tacit.models import read_prompts, read_text

    path = str(source.public_texts)
    if source.prompts is None:
        return read_text(path, name="--public-texts")
    column = None if Path(path).is_dir() else source.column
    return "\n".join(read_prompts(path, column=column, name="--public-texts").texts)
