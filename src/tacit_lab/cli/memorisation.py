"""``tacit training memorisation``: fine-tune a language model and measure what it keeps."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

import typer

from tacit.cli.completion import offered
from tacit.cli.console import line
from tacit.cli.options import grouped
from tacit.cli.publishing import Destination, Source, kept_beside, publish, tell_release
from tacit.cli.training.flags import Passes, TrainingFlags, saving, tell_model
from tacit.training.rounds import OneStep

if TYPE_CHECKING:
    import torch

    from tacit.models import LanguageModel

PASSES, BATCH = 1, 32
# Adam moves every parameter by about its rate; plain gradient descent by the gradient's share.
RATES = {"adam": 3e-4, "sgd": 0.1}
INSTALLED = "docstrings of this installation that tacit/small did not learn"


@dataclass(frozen=True, kw_only=True)
class SequenceFlags:
    """What is learned, and the canaries in it."""

    panel: ClassVar[str] = "Sequences"

    canaries: Annotated[int, typer.Option(help="Canaries; fair coins leave half of them out.")] = 32
    copies: Annotated[int, typer.Option(help="Copies of each canary.")] = 1
    length: Annotated[int, typer.Option(help="Tokens of a sequence.")] = 32
    sequences: Annotated[
        int, typer.Option(help="Largest number of sequences that are learned from.")
    ] = 512
    protect: Annotated[
        str,
        typer.Option(
            help="all makes every sequence a reference too; canaries protects canaries alone."
        ),
    ] = "all"
    samples: Annotated[
        int,
        typer.Option(
            help="Number of secrets drawn for each canary. As many uniformly random ones are "
            "drawn beside them."
        ),
    ] = 32


@grouped
def memorisation(
    texts: Annotated[
        str | None,
        typer.Argument(
            metavar="TEXTS",
            help=".txt or .txt.gz file, or a folder of them; the docstrings of this installation "
            "that tacit/small did not learn when left out.",
            show_default=False,
        ),
    ] = None,
    *,
    model: Annotated[
        str, typer.Option(help="Folder, name or tacit/small: a causal language model.")
    ] = "tacit/small",
    what: SequenceFlags,
    optimizer: Annotated[
        str, typer.Option(autocompletion=offered("adam", "sgd"), help="adam or sgd.")
    ] = "adam",
    reduction: Annotated[
        str,
        typer.Option(
            autocompletion=offered("mean", "sum"),
            help="mean or sum of the losses of a sequence's tokens.",
        ),
    ] = "mean",
    method: OneStep,
    run: Passes,
    flags: TrainingFlags,
) -> None:
    """Fine-tune a language model so that no canary and no sequence of L tokens moves it beyond ε.

    Canaries are texts with a secret of six digits. How far the secrets come out is measured on
    canaries that were learned from and on canaries that a coin left out, beside what the
    certificate allows.

    One pass where --epochs is left out.
    """
    from tacit._ground.checks import choice
    from tacit.ledger.notions import GAUSSIAN_DP
    from tacit.models.small.storage import check_new_folder, save_model
    from tacit.training import TrainingRecipe
    from tacit_lab.memorisation import MemorisationPlan, Sequences, prepare_memorisation

    # which optimizer, and its rate
    way = choice("--optimizer", optimizer, ("adam", "sgd"))
    rate = RATES[way] if flags.rate is None else flags.rate
    saved = None if flags.save is None else check_new_folder("--out", flags.save)
    loaded, learned, unseen, digest = _read(model, texts, what.length, what.sequences)

    def prepare() -> Any:
        import torch

        made: Any = torch.optim.Adam if way == "adam" else torch.optim.SGD
        plan = MemorisationPlan(
            canaries=what.canaries, copies=what.copies, samples=what.samples, audit=flags.attack
        )
        prepared = prepare_memorisation(
            TrainingRecipe(model=loaded, optimizer=lambda parameters: made(parameters, lr=rate)),
            Sequences(
                learned=learned,
                unseen=unseen,
                batch=BATCH if flags.batch is None else flags.batch,
                reduction=reduction,  # type: ignore[arg-type]
                protect=what.protect,  # type: ignore[arg-type]
            ),
            flags.promise,
            run.lasting(passes=PASSES),
            plan=plan,
            method=method,
            rng=flags.seed,
        )
        trained = {"trained": f"a language model fine-tuned on {len(learned):,} sequences"}
        return saving(
            prepared,
            saved,
            lambda place: save_model(place, loaded.network, loaded.tokenizer, trained),
        )

    def tell(destination: Destination, release: Any) -> None:
        line(
            destination.json.console, "data", f"{len(learned):,} sequences of {what.length} tokens"
        )
        tell_release(destination, release, kept_beside(release, flags.save))
        tell_model(destination, saved)

    name = INSTALLED if texts is None else Path(texts).name
    source = Source(path=texts, name=name, fingerprint=digest, rows=len(learned))
    publish(prepare, flags, source, spends=GAUSSIAN_DP, others=flags.written(run), tell=tell)


def _read(
    name: str, texts: str | None, length: int, count: int
) -> tuple[LanguageModel, torch.Tensor, torch.Tensor, str]:
    """Return the model, what it learns from, unseen sequences, and the digest of the text."""
    from tacit._ground.checks import integer
    from tacit.models import docstring_corpus, load, read_text
    from tacit.models.texts.corpus import digest, hold_out
    from tacit_lab.memorisation.exposure import cut

    integer("--length", length, minimum=2)
    integer("--sequences", count, minimum=1)
    # a text that the small model has not learned
    text = hold_out(docstring_corpus())[1] if texts is None else read_text(texts, name="--texts")
    if not text.strip():
        raise ValueError("TEXTS: expected a text, got none")
    loaded = load(name)
    if length > loaded.context:
        raise ValueError(
            f"--length: expected at most the {loaded.context} tokens of the model, got {length}"
        )
    # sequences of L tokens, a tenth of them unseen
    learned, unseen = cut(loaded.stream(text), length, count=count)
    return loaded, learned, unseen, digest(text)
