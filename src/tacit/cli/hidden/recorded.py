"""Flags that a file answers where they are left out, and that it refuses where they differ."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tacit.cli.hidden.inputs import PromptFlags, content_digest

if TYPE_CHECKING:
    from tacit.hidden_states.origin import Origin
    from tacit.models import LanguageModel, Prefixes

SAME = "The value that the released file names; another value is refused."
SIZES = ("bank", "calibration", "held_out")
# compared by what is in them, so that a copy of it does as well
PATHS = ("model", "texts", "prompts", "public_texts")


@dataclass(frozen=True)
class RecordedFlags:
    """What made a file, for whoever says it again."""

    layer: Annotated[int | None, typer.Option(help=SAME)] = None
    model: Annotated[str | None, typer.Option(help=SAME)] = None
    dtype: Annotated[str | None, typer.Option(help=SAME)] = None
    prompts: Annotated[str | None, typer.Option(help=SAME)] = None
    column: Annotated[str | None, typer.Option(help=SAME)] = None
    chat_template: Annotated[
        bool | None, typer.Option("--chat-template/--no-chat-template", help=SAME)
    ] = None
    longest: Annotated[int | None, typer.Option(help=SAME)] = None
    texts: Annotated[str | None, typer.Option(help=SAME)] = None
    public_texts: Annotated[str | None, typer.Option(help=SAME)] = None
    length: Annotated[int | None, typer.Option(help=SAME)] = None
    bank: Annotated[int | None, typer.Option(help=SAME)] = None
    calibration: Annotated[int | None, typer.Option(help=SAME)] = None
    held_out: Annotated[int | None, typer.Option(help=SAME)] = None
    seed: Annotated[int | None, typer.Option(help=SAME)] = None

    def prepare(self, origin: Origin, path: str) -> tuple[LanguageModel, Prefixes, Origin]:
        """Load what a file was made with; refuse a flag, a model or texts that are not that.

        Raises:
            ValueError: the first thing that differs; the sentence names its flag.
        """
        name = Path(path).name
        if origin.flags is None or origin.bank_digest is None:
            raise ValueError(f"{name}: it does not say which prompts it was made with")
        made: dict[str, Any] = {**origin.flags, "layer": origin.layer}
        for flag, given in asdict(self).items():
            recorded = made.get(flag)
            if given is None:
                continue
            if flag in PATHS and recorded is not None:
                made[flag] = given
            elif given != recorded:
                held = "without it" if recorded is None else f"with {recorded}"
                spelled = flag.replace("_", "-")
                raise ValueError(f"--{spelled}: {name} was made {held}, got {given}")
        sizes = {size: made.pop(size) for size in SIZES if size in made}
        layer = made.pop("layer")
        try:
            source = PromptFlags(**made)
            sizes.pop("held_out", None)
            model, prefixes = source.released(layer, **sizes)
        except TypeError as error:
            raise ValueError(
                f"{name}: this version has other flags than the file ({error})"
            ) from None
        here = origin_of(source, model, layer, prefixes, **sizes)
        origin.check(here, name)
        return model, prefixes, here


def origin_of(
    source: PromptFlags, model: LanguageModel, layer: int, prefixes: Prefixes, **sizes: int
) -> Origin:
    """Return where the states of a command's prompts come from.

    Args:
        source: the flags that chose the model and the prompts.
        model: what they loaded.
        layer: 1 … L.
        prefixes: the prompts they gave.
        sizes: how many prompts of each kind were asked for.
    """
    from tacit.hidden_states.origin import Origin

    flags = asdict(source)
    given = {name: flags[name] for name in PATHS[1:] if flags.get(name) is not None}
    texts = {name: content_digest(place) for name, place in given.items()}
    if not texts:
        texts["docstrings"] = content_digest(None)
    return Origin.of(model, layer, prefixes, flags={**flags, **sizes}, texts=texts)
