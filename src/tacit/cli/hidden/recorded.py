"""Flags that a file answers where they are left out, and that it refuses where they differ."""

from __future__ import annotations

from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tacit.cli.hidden.inputs import Source

if TYPE_CHECKING:
    from tacit.hidden_states.origin import Origin
    from tacit.models import LanguageModel, Prefixes

SAME = "As the file says when left out; another one is refused."


@dataclass(frozen=True)
class Recorded:
    """What made a file, for whoever says it again."""

    layer: Annotated[int | None, typer.Option(help=SAME)] = None
    model: Annotated[str | None, typer.Option(help=SAME)] = None
    texts: Annotated[str | None, typer.Option(help=SAME)] = None
    length: Annotated[int | None, typer.Option(help=SAME)] = None
    bank: Annotated[int | None, typer.Option(help=SAME)] = None
    calibration: Annotated[int | None, typer.Option(help=SAME)] = None
    seed: Annotated[int | None, typer.Option(help=SAME)] = None

    def prepare(self, origin: Origin, path: str) -> tuple[LanguageModel, Prefixes, Origin]:
        """Load what a file was made with; refuse a flag, a model or texts that are not that.

        Raises:
            ValueError: the first thing that differs; the sentence names its flag.
        """
        name = Path(path).name
        made = {
            "layer": origin.layer,
            "length": origin.length,
            "bank": origin.bank_size,
            "calibration": origin.calibration_size,
            "seed": origin.seed,
        }
        for field in fields(self):
            given = getattr(self, field.name)
            if field.name in made and given is not None and given != made[field.name]:
                raise ValueError(
                    f"--{field.name}: {name} was made with {made[field.name]}, got {given}"
                )
        if origin.bank_size is None or origin.seed is None:
            raise ValueError(f"{name}: it does not say which prompts it was made with")
        source = Source(
            model=origin.model if self.model is None else self.model,
            texts=origin.texts if self.texts is None else self.texts,
            length=origin.length,
            seed=origin.seed,
        )
        model, prefixes = source.prepare(
            origin.layer, bank=origin.bank_size, calibration=origin.calibration_size
        )
        here = origin_of(source, model, origin.layer, prefixes)
        origin.check(here, name)
        return model, prefixes, here


def origin_of(source: Source, model: LanguageModel, layer: int, prefixes: Prefixes) -> Origin:
    """Return where the states of a command's prompts come from."""
    from tacit.hidden_states.origin import Origin
    from tacit.models import docstring_corpus, read_text
    from tacit.models.texts.corpus import digest

    text = docstring_corpus() if source.texts is None else read_text(source.texts)
    return Origin.of(
        model,
        layer,
        prefixes,
        seed=source.seed,
        texts=source.texts,
        texts_digest=digest(text),
    )
