"""``tacit training memorisation``: fine-tune a language model and measure what it keeps."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from tacit.cli.console import line
from tacit.cli.options import grouped
from tacit.cli.publishing import Destination, tell_prepared, tell_release
from tacit.cli.training.flags import ShapedFlags

if TYPE_CHECKING:
    import torch

    from tacit.models import LanguageModel
    from tacit.training import PreparedTraining

PASSES, BATCH = 1, 32
# Adam moves every parameter by about its rate; plain gradient descent by the gradient's share.
RATES = {"adam": 3e-4, "sgd": 0.1}
INSTALLED = "docstrings of this installation that tacit/small did not learn"


@grouped
def memorisation(
    *,
    texts: Annotated[
        str | None,
        typer.Argument(
            metavar="TEXTS",
            help=".txt or .txt.gz file, or a folder of them; the docstrings of this installation "
            "that tacit/small did not learn when left out.",
            show_default=False,
        ),
    ] = None,
    model: Annotated[
        str, typer.Option(help="Folder, name or tacit/small: a causal language model.")
    ] = "tacit/small",
    canaries: Annotated[
        int, typer.Option(help="Canaries; fair coins leave half of them out.")
    ] = 32,
    copies: Annotated[int, typer.Option(help="Copies of each canary.")] = 1,
    length: Annotated[int, typer.Option(help="Tokens of a sequence.")] = 32,
    sequences: Annotated[int, typer.Option(help="Most sequences that are learned from.")] = 512,
    protect: Annotated[
        str, typer.Option(help="all: every sequence is a reference too; or canaries alone.")
    ] = "all",
    optimizer: Annotated[str, typer.Option(help="adam or sgd.")] = "adam",
    reduction: Annotated[
        str, typer.Option(help="mean or sum of the losses of a sequence's tokens.")
    ] = "mean",
    samples: Annotated[
        int, typer.Option(help="Secrets drawn for each canary, and as many uniform ones.")
    ] = 32,
    flags: ShapedFlags,
) -> None:
    """Fine-tune a language model so that no canary and no sequence of L tokens moves it beyond ε.

    Canaries are texts with a secret of six digits. How far the secrets come out is measured on
    those in and on those that a coin left out, and what the certificate allows is told beside it.
    """
    from tacit._ground.checks import choice
    from tacit.ledger.notions import GAUSSIAN_DP
    from tacit.models.small.storage import check_new_folder, save_model

    way = choice("--optimizer", optimizer, ("adam", "sgd"))
    rate = RATES[way] if flags.rate is None else flags.rate
    destination = Destination.checked(
        flags, texts, None, spends=GAUSSIAN_DP, others=flags.written()
    )
    saved = None if flags.save is None else check_new_folder("--save", flags.save)
    loaded, learned, unseen, digest = _sequences(model, texts, length, sequences)
    prepared: PreparedTraining = _prepared(
        loaded, learned, unseen, flags, way, rate,
        canaries=canaries, copies=copies, protect=protect, reduction=reduction, samples=samples,
    )  # fmt: skip
    if flags.dry_run:
        tell_prepared(prepared, destination.json)
        return
    destination = destination.opened()
    release = destination.draw(prepared)
    if saved is not None:
        save_model(saved, loaded.network, loaded.tokenizer, {"trained": release.title})
    told = destination.provenance_of(texts or INSTALLED, fingerprint=digest, rows=len(learned))
    destination.store(release, told)
    line(destination.json.console, "data", f"{len(learned):,} sequences of {length} tokens")
    tell_release(destination, release, saved)


def _sequences(
    name: str, texts: str | None, length: int, count: int
) -> tuple[LanguageModel, torch.Tensor, torch.Tensor, str]:
    """Return the model, what it learns from, unseen sequences, and the digest of the text."""
    from tacit._ground.checks import integer
    from tacit.models import docstring_corpus, load, read_text
    from tacit.models.texts.corpus import digest, hold_out
    from tacit.training.memorisation.language import cut

    integer("--length", length, minimum=2)
    integer("--sequences", count, minimum=1)
    text = hold_out(docstring_corpus())[1] if texts is None else read_text(texts)
    if not text.strip():
        raise ValueError("TEXTS: expected a text, got none")
    loaded = load(name)
    if length > loaded.context:
        raise ValueError(
            f"--length: expected at most the {loaded.context} tokens of the model, got {length}"
        )
    learned, unseen = cut(loaded.stream(text), length, count=count)
    return loaded, learned, unseen, digest(text)


def _prepared(
    loaded: LanguageModel,
    learned: torch.Tensor,
    unseen: torch.Tensor,
    flags: ShapedFlags,
    way: str,
    rate: float,
    **asked: Any,
) -> PreparedTraining:
    import torch

    from tacit.training import prepare_memorisation

    made: Any = torch.optim.Adam if way == "adam" else torch.optim.SGD
    return prepare_memorisation(
        loaded,
        learned,
        unseen,
        optimizer=lambda parameters: made(parameters, lr=rate),
        epsilon=flags.epsilon,
        delta=flags.delta,
        passes=PASSES if flags.passes is None else flags.passes,
        batch=BATCH if flags.batch is None else flags.batch,
        gram=flags.gram,
        noise=flags.noise,
        attack=flags.attack,
        checkpoint=flags.checkpoint,
        rng=flags.seed,
        progress=True,
        **asked,
    )
