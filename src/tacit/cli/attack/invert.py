"""``tacit attack invert``: put an inverter to released states, and measure what it reads back."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.text import Text

from tacit._ground.checks import choice, integer, positive
from tacit._ground.files import absolute
from tacit.cli.console import command_line, line
from tacit.cli.hidden.codec import read_codec
from tacit.cli.hidden.inputs import Layer, PromptFlags, llm_extra, note
from tacit.cli.options import Force, Json, Report, grouped
from tacit.cli.output import json_output, new_file, refuse_inputs

if TYPE_CHECKING:
    from torch import Tensor

    from tacit.models import LanguageModel

# the user's own texts are shorter than a corpus
OWN_HELD_OUT_EVERY = 5
KINDS = ("right-to-left", "at-once", "forward", "training-free")


@grouped
def invert(
    layer: Layer,
    mechanism: Annotated[
        str,
        typer.Option(
            help="What is released: clean, codes, behaviour-codes, a Gaussian design, pca(k), "
            "projection(k), product(m) or rotation."
        ),
    ] = "clean",
    kl_budget: Annotated[
        float, typer.Option(help="K = ½ tr(FΣ) that noise may cost, in nats.")
    ] = 1.0,
    codewords: Annotated[int, typer.Option(help="C of codes.")] = 1024,
    codebook: Annotated[
        str | None,
        typer.Option(
            help="File of tacit hidden codebook or fit: attack the codes it makes, in the place of "
            "--mechanism."
        ),
    ] = None,
    known_pairs: Annotated[
        int | None,
        typer.Option(
            help="Prompts of which the attacker of rotation knows what was stored; as many as a "
            "state has numbers when left out."
        ),
    ] = None,
    positions: Annotated[
        str, typer.Option(help="Whose states are released: last alone, or all, each by itself.")
    ] = "last",
    kind: Annotated[
        str | None,
        typer.Option(
            help="right-to-left (usual of the last state), at-once (every position by itself), "
            "forward (usual of all), or training-free (of all: states of candidates)."
        ),
    ] = None,
    size: Annotated[str, typer.Option(help="Of the network: two-cores or gpu.")] = "two-cores",
    minutes: Annotated[
        float | None, typer.Option(help="Of training; as the size says when left out.")
    ] = None,
    steps: Annotated[int | None, typer.Option(help="Of training, in the place of minutes.")] = None,
    verify: Annotated[
        bool, typer.Option("--verify", help="Run guesses through the model and keep the best.")
    ] = False,
    clean_trained: Annotated[
        bool,
        typer.Option("--clean-trained", help="Learn from clean states, not from releases."),
    ] = False,
    measured: Annotated[int, typer.Option(help="Prompts attacked.")] = 200,
    calibration: Annotated[
        int, typer.Option(help="Public prompts that a release is fitted on.")
    ] = 5000,
    checkpoint: Annotated[
        str | None,
        typer.Option(help="Folder that survives a crash: the same command goes on from it."),
    ] = None,
    report: Report = None,
    json: Json = None,
    force: Force = False,
    *,
    source: PromptFlags,
) -> None:
    """Put an inverter to the released states of one layer, and measure what it reads back."""
    output = json_output(json, force, {"--texts": source.texts, "--report": report})
    page = new_file("--report", report, force)
    if checkpoint is not None:
        refuse_inputs("--checkpoint", absolute("--checkpoint", checkpoint))
    choice("--positions", positions, ("last", "all"))
    if kind is not None:
        choice("--kind", kind, KINDS)
    _check_kind(
        kind,
        positions,
        {
            "--verify": verify,
            "--minutes": minutes,
            "--steps": steps,
            "--checkpoint": checkpoint,
            "--clean-trained": clean_trained,
        },
    )
    choice("--size", size, ("two-cores", "gpu"))
    positive("--kl-budget", kl_budget)
    if codebook is not None and mechanism != "clean":
        raise ValueError(f"--codebook: expected no --mechanism beside it, got {mechanism!r}")
    most = calibration if "codes" in mechanism else None
    integer("--codewords", codewords, minimum=2, maximum=most)
    if known_pairs is not None:
        integer("--known-pairs", known_pairs, minimum=0, maximum=calibration)
        if mechanism != "rotation":
            raise ValueError(f"--known-pairs: expected it beside rotation, got {mechanism!r}")
    integer("--measured", measured, minimum=2)
    integer("--calibration", calibration, minimum=1)
    if minutes is not None and steps is not None:
        raise ValueError("--steps: expected this or --minutes, got both")
    law: Any = _read_word(mechanism) if codebook is None else _read_codebook(codebook)
    found, prefixes = source.prepare(layer, bank=measured, calibration=calibration)
    secret, public, stream, texts = _divided(source, found, prefixes.bank, prefixes.calibration)
    if positions == "all" and bool((secret < 0).any()):
        raise ValueError(
            "--positions: expected prompts of one length in a file beside all, got several; "
            "last takes them together, or give those of each length in a file of their own"
        )
    from tacit.hidden_states.inverting import invert_layer
    from tacit.hidden_states.origin import HOLDERS
    from tacit.releases import Provenance
    from tacit.report import write_report
    from tacit.report.words import verdict

    limits: dict[str, Any] = (
        {} if minutes is None and steps is None else {"minutes": minutes, "steps": steps}
    )
    result = invert_layer(
        found, layer, secret, public, stream,
        mechanism=law, positions=positions, kl_budget=kl_budget, codewords=codewords,
        known_pairs=known_pairs, kind=kind, size=size, aware=not clean_trained, verify=verify,
        checkpoint=checkpoint, seed=source.seed, texts=texts, **limits,
    )  # fmt: skip
    provenance = Provenance.capture(
        command_line(), data_name=source.data_name, data_rows=result.queries
    )
    output.write({**result.to_dict(), "provenance": provenance.to_dict()})
    console = output.console
    console.print(Text(verdict(result.form).sentence, "bold"))
    spent = f", {result.training['steps']:,} steps" if "steps" in result.training else ""
    line(console, "attacker", f"{result.attacker}{spent}")
    line(console, "release", f"{result.form.title}, KL {result.measured_kl:.3g} nats")
    line(console, "learnt from", texts)
    known = result.training["known"]
    line(
        console,
        "attacked",
        f"{result.queries:,} of {len(secret):,} prompts"
        + (f": {known:,} stand word for word in what the attacker holds" if known else ""),
    )
    suffixes = result.recovery.suffixes
    line(console, "last 2, 4", ", ".join(
        f"{suffixes[count - 1].value:.1%}" for count in (2, 4) if count <= len(suffixes)
    ))  # fmt: skip
    if page is not None:
        line(console, "report", str(write_report(result, page, provenance)))
    line(console, "keep", HOLDERS)
    output.tell()


def _read_word(mechanism: str) -> str:
    """Return a word whose numbers, where it has some, are in range: before a model is loaded."""
    with llm_extra():
        from tacit.hidden_states.defences.values import read_defence
    try:
        read_defence(mechanism)
    except ValueError as error:
        raise ValueError(f"--mechanism: {error}") from None
    return mechanism


def _read_codebook(path: str) -> Any:
    """Return the codebook of a file, before a model is loaded."""
    return read_codec(path)


def _check_kind(kind: str | None, positions: str, flags: dict[str, Any]) -> None:
    """Refuse what does not go together, before a model is loaded."""
    if flags["--verify"] and positions == "all":
        raise ValueError("--verify: expected it beside --positions last, got all")
    if kind != "training-free":
        return
    if positions != "all":
        raise ValueError("--kind: expected training-free beside --positions all, got last")
    for flag, value in flags.items():
        if value not in (None, False):
            raise ValueError(f"{flag}: expected none beside --kind training-free, got one")


def _divided(
    source: PromptFlags, model: LanguageModel, bank: Tensor, calibration: Tensor
) -> tuple[Tensor, Tensor, Tensor, str]:
    """Return secrets, public prompts, the stream that is learnt from, and where it comes from."""
    from tacit.models import docstring_corpus, read_text, sample_prefixes
    from tacit.models.texts.corpus import hold_out

    if source.prompts is not None:
        width = max(bank.shape[1], calibration.shape[1])
        bank, calibration = (_widened(part, width) for part in (bank, calibration))
    if source.public_texts is not None:
        texts = f"the public texts {source.public_texts}"
        return bank, calibration, model.stream(_public_text(source)), texts
    if source.prompts is not None:
        note("the inverter learns from docstrings: texts that are like yours, given with "
             "--public-texts, make a stronger attacker")  # fmt: skip
        return bank, calibration, model.stream(docstring_corpus()), "docstrings"
    own = source.texts is not None
    text = read_text(str(source.texts)) if own else docstring_corpus()
    learned, unseen = hold_out(text, **({"every": OWN_HELD_OUT_EVERY} if own else {}))
    stream = model.stream(learned)
    shared = {"length": source.length, "rng": source.seed}
    public = sample_prefixes(stream, count=len(calibration), **shared)
    note("prompts attacked are cut from text that the inverter does not learn from")
    secret = sample_prefixes(model.stream(unseen), count=len(bank), exclude=public, **shared)
    rest = "the rest of the texts" if own else "docstrings"
    return secret, public, stream, rest


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
        return read_text(path)
    column = None if Path(path).is_dir() else source.column
    return "\n".join(read_prompts(path, column=column, name="--public-texts").texts)
