"""What determines a trained model besides its text and its run, and sizes to start from."""

from __future__ import annotations

from dataclasses import fields
from typing import Annotated, Any, ClassVar, Literal, TypeAlias

from tacit._ground.values import Count, Flag, Within, value
from tacit.runs import Run

Architecture: TypeAlias = Literal["gpt", "split-memory"]
Preset: TypeAlias = Literal["two-cores", "gpu"]
# 256 bytes and the mark between texts.
SMALLEST_VOCABULARY = 257
SIZES: dict[str | None, dict[str, Any]] = {
    None: {"width": 256, "layers": 6, "heads": 4, "context": 64, "vocabulary": 4096, "batch": 32},
    # about 10 million parameters
    "two-cores": {"heads": 4, "layers": 6, "context": 64, "vocabulary": 4096, "batch": 32},
    # about 90 million, as published
    "gpu": {"heads": 4, "layers": 12, "context": 256, "vocabulary": 8192, "batch": 32},
}
BY_ARCHITECTURE: dict[tuple[str | None, str], dict[str, Any]] = {
    ("two-cores", "gpt"): {"width": 336, "heads": 6},
    ("two-cores", "split-memory"): {"width": 448, "trunk_width": 64},
    ("gpu", "gpt"): {"width": 768, "heads": 8},
    ("gpu", "split-memory"): {"width": 1024, "trunk_width": 128},
}
BUDGETS: dict[str | None, dict[str, Any]] = {
    None: {"minutes": 3.5},
    "two-cores": {"minutes": 30.0},
    "gpu": {"steps": 20_000},
}


@value
class ModelSettings:
    """What determines a trained model besides its text and its run.

    Args:
        preset: Sizes and length of a training run. two-cores is a model of about 10 million
            parameters, trained for half an hour. gpu is one of about 90 million, trained for the
            20,000 steps of the paper.
        architecture: gpt; or split-memory: states (u, v), logits read from u alone.
        width: Numbers in a state (d), a multiple of the number of heads. The preset's when left
            out.
        trunk_width: Numbers in the part u of a split state (r). A quarter of the width when left
            out.
        layers: Number of decoder layers (L). The preset's when left out.
        heads: Number of attention heads of each layer. The preset's when left out.
        context: Largest number of tokens that the model reads. The preset's when left out.
        vocabulary: Largest number of tokens of the tokenizer (BPE), at least 257. The preset's when
            left out.
        batch: Number of text windows in a training step. The preset's when left out.
        seed: Seed of the initial weights and of the order of the text.

    Example:
        >>> ModelSettings(preset="two-cores", architecture="split-memory").sizes()["trunk_width"]
        64

    Source: hidden-state, App. Y (the sizes of the GPU).
    """

    panel: ClassVar[str] = "Model"

    preset: Preset | None = None
    architecture: Architecture = "gpt"
    width: Count | None = None
    trunk_width: Count | None = None
    layers: Annotated[Count | None, Flag("--depth")] = None
    heads: Count | None = None
    context: Annotated[int, Within(2, ends="[)")] | None = None
    vocabulary: Annotated[int, Within(SMALLEST_VOCABULARY, ends="[)")] | None = None
    batch: Count | None = None
    seed: Annotated[int, Within(0, ends="[)")] = 0

    def _together(self) -> None:
        sizes = self.sizes()
        width, heads, trunk = sizes["width"], sizes["heads"], sizes["trunk_width"]
        if self.architecture == "gpt":
            if trunk is not None:
                raise ValueError(
                    f"trunk_width: expected None for a GPT, which has no trunk, got {trunk!r}"
                )
            if width % heads:
                raise ValueError(f"width: expected a multiple of heads={heads}, got {width}")
            return
        if trunk is not None and trunk >= width:
            raise ValueError(
                f"trunk_width: expected an integer below the width {width}, got {trunk}"
            )
        # heads split trunk and memory each
        parts = zip(("trunk_width", "width less the trunk"), _split(width, trunk), strict=True)
        for name, part in parts:
            if part < 1 or part % heads:
                raise ValueError(f"{name}: expected a multiple of heads={heads}, got {part}")

    def sizes(self) -> dict[str, Any]:
        """Return every field but the preset, each size said."""
        # the preset's sizes, those of the architecture before the common ones
        known = {**SIZES[self.preset], **BY_ARCHITECTURE.get((self.preset, self.architecture), {})}
        given = {field.name: getattr(self, field.name) for field in fields(self)}
        # it is said by its sizes
        del given["preset"]
        return {name: known.get(name) if one is None else one for name, one in given.items()}

    def run(self, run: Run) -> Run:
        """Return how long it trains: as asked for, or as long as the preset says."""
        return run.lasting(**BUDGETS[self.preset])

    @property
    def split(self) -> tuple[int, int]:
        """Widths of trunk and memory, (r, m); a quarter of the state is trunk unless told."""
        sizes = self.sizes()
        return _split(sizes["width"], sizes["trunk_width"])


def _split(width: int, trunk: int | None) -> tuple[int, int]:
    own = width // 4 if trunk is None else trunk
    return own, width - own
