"""Whose states or embeddings of prompts are encoded: the codebook's own, as flags."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tacit._ground.checks import integer
from tacit.cli.hidden.embeddings import (
    digest_of_encoder,
    embedded,
    served_digest_of_encoder,
)
from tacit.cli.hidden.inputs import PromptFlags, encoded_prompts

if TYPE_CHECKING:
    from tacit.hidden_states.codebooks.codec import Codec
    from tacit.hidden_states.origin import Origin

SAME = "The codebook's when left out; any other is refused."
OF_MODELS = ("model", "layer", "dtype", "chat_template", "longest")
OF_ENCODERS = ("encoder", "pooling")


@dataclass(frozen=True)
class ReaderFlags:
    """Prompts, and what reads them: a language model up to a layer, or an encoder."""

    prompts: Annotated[
        str | None,
        typer.Option(
            help="Prompts to encode: .txt (one a line), .jsonl, .csv, .tsv, .parquet, or a folder "
            "of .txt."
        ),
    ] = None
    model: Annotated[str | None, typer.Option(help=f"Model that reads the prompts. {SAME}")] = None
    layer: Annotated[int | None, typer.Option(help=f"Layer of the states. {SAME}")] = None
    dtype: Annotated[str | None, typer.Option(help=f"float32, bfloat16, or stored. {SAME}")] = None
    chat_template: Annotated[
        bool | None,
        typer.Option(
            "--chat-template/--no-chat-template", help=f"Whether prompts are chats. {SAME}"
        ),
    ] = None
    longest: Annotated[int | None, typer.Option(help="Cut prompts after so many tokens.")] = None
    encoder: Annotated[
        str | None, typer.Option(help=f"Encoder such as BERT that reads the prompts. {SAME}")
    ] = None
    pooling: Annotated[str | None, typer.Option(help=f"mean, cls or last. {SAME}")] = None

    def check(self) -> None:
        """Refuse flags that need prompts, or that do not go together."""
        given = [name for name in (*OF_MODELS, *OF_ENCODERS) if getattr(self, name) is not None]
        if self.prompts is None:
            for name in given:
                if name != "layer":
                    raise ValueError(f"{_flag(name)}: expected it beside --prompts, got states")
            return
        if not Path(self.prompts).exists():
            raise ValueError(f"--prompts: no such file or folder: {self.prompts}")
        if self.longest is not None:
            integer("--longest", self.longest, minimum=1)

    def rows(self, book: Codec, column: str | None) -> Any:
        """Return the codes or the embeddings of the prompts, in their order."""
        from tacit.hidden_states import Codebook

        origin = book.origin
        pooled = origin is not None and "pooling" in (origin.flags or {})
        if pooled or (origin is None and self.encoder is not None):
            self._refuse(OF_MODELS, "the codes are of an encoder's embeddings")
            return self._embeddings(origin, column)
        if not isinstance(book, Codebook):
            raise ValueError(
                "--prompts: expected a codebook of a model's layer, or --encoder beside one of "
                "vectors, got neither"
            )
        self._refuse(OF_ENCODERS, "the codebook is of a model's layer")
        return self._codes(book, column)

    def _refuse(self, names: tuple[str, ...], why: str) -> None:
        for name in names:
            if getattr(self, name) is not None:
                raise ValueError(f"{_flag(name)}: {why}, got {getattr(self, name)}")

    def _codes(self, book: Any, column: str | None) -> Any:
        from tacit.hidden_states.codebooks.encoding import KnownCodes, codes_of_prompts
        from tacit.hidden_states.origin import digest_of, served_digest
        from tacit.models import load

        made: Origin | None = book.origin
        if made is None and (self.model is None or self.layer is None):
            raise ValueError("--model: the codebook names no model; give --model and --layer")
        layer = self._same("layer", None if made is None else made.layer, self.layer)
        source = PromptFlags(
            model=str(made.model if made is not None and self.model is None else self.model),
            dtype=self._recorded(made, "dtype", "float32"),
            prompts=self.prompts,
            column=column,
            chat_template=self._recorded(made, "chat_template", False),
            longest=self._recorded(made, "longest", None),
        )
        found = load(source.model, dtype=source.dtype)
        integer("--layer", layer, minimum=1, maximum=found.layers)
        if made is not None:
            here = replace(
                made,
                model_digest=digest_of(found.network.state_dict()),
                served_digest=served_digest(found.network, found.tokenizer),
            )
            made.check(here, "the codebook")
        return KnownCodes(codes_of_prompts(book, found, layer, encoded_prompts(source, found)))

    def _embeddings(self, made: Origin | None, column: str | None) -> Any:
        from tacit.models import load_encoder, read_prompts

        texts = read_prompts(str(self.prompts), column=column, name="--prompts", every=True)
        scaled = None if made is None else (made.flags or {}).get("normalise")
        name = self.encoder if made is None or self.encoder is not None else made.model
        encoder = load_encoder(
            str(name),
            pooling=self._recorded(made, "pooling", None),
            normalise=scaled if isinstance(scaled, bool) else None,
        )
        if made is not None and not made.is_served_as(
            replace(
                made,
                model_digest=digest_of_encoder(encoder),
                served_digest=served_digest_of_encoder(encoder),
            )
        ):
            raise ValueError(
                f"--encoder: the codebook was made with another one or its tokenizer was, SHA-256 "
                f"{made.model_digest[:12]}…, not {encoder.name}"
            )
        return embedded(encoder, texts)

    def _recorded(self, made: Origin | None, name: str, default: Any) -> Any:
        held = None if made is None else (made.flags or {}).get(name)
        found = self._same(name, held, getattr(self, name))
        return default if found is None else found

    @staticmethod
    def _same(name: str, recorded: Any, given: Any) -> Any:
        if None not in (recorded, given) and recorded != given:
            raise ValueError(f"{_flag(name)}: the codebook was made with {recorded}, got {given}")
        return recorded if given is None else given


def _flag(name: str) -> str:
    return "--" + name.replace("_", "-")
