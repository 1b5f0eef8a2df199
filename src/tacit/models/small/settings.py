"""What determines a trained model besides its text, and sizes to start from."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tacit._ground.checks import choice, integer, positive
from tacit.models.small.optimisation import Budget

SMALLEST_VOCABULARY = 257
MINUTES = 3.5
ARCHITECTURES = ("gpt", "split-memory")
# about 10 million parameters, and 90 million as published
PRESETS: dict[tuple[str, str], dict[str, Any]] = {
    ("two-cores", "gpt"): {"width": 336, "layers": 6, "heads": 6},
    ("two-cores", "split-memory"): {"width": 448, "trunk_width": 64, "layers": 6},
    ("gpu", "gpt"): {"width": 768, "layers": 12, "heads": 8},
    ("gpu", "split-memory"): {"width": 1024, "trunk_width": 128, "layers": 12},
}
SIZES: dict[str, dict[str, Any]] = {
    "two-cores": {"context": 64, "vocabulary": 4096, "batch": 32, "minutes": 30.0},
    "gpu": {"context": 256, "vocabulary": 8192, "batch": 32, "steps": 20_000},
}


@dataclass(frozen=True)
class Settings:
    """What determines a trained model besides its text."""

    width: int = 256
    layers: int = 6
    heads: int = 4
    context: int = 64
    vocabulary: int = 4096
    batch: int = 32
    minutes: float | None = MINUTES
    steps: int | None = None
    seed: int = 0
    precision: str = "auto"
    architecture: str = "gpt"
    trunk_width: int | None = None

    def checked(self) -> Settings:
        """Return these settings, or raise a ValueError that names the first bad one."""
        for name in ("width", "layers", "heads", "batch"):
            integer(name, getattr(self, name), minimum=1)
        integer("context", self.context, minimum=2)
        integer("vocabulary", self.vocabulary, minimum=SMALLEST_VOCABULARY)
        integer("seed", self.seed, minimum=0)
        self._check_widths()
        if (self.minutes is None) == (self.steps is None):
            raise ValueError(
                f"steps: expected either steps or minutes, got steps={self.steps!r} and "
                f"minutes={self.minutes!r}"
            )
        if self.minutes is not None:
            positive("minutes", self.minutes)
        if self.steps is not None:
            integer("steps", self.steps, minimum=1)
        choice("precision", self.precision, ("auto", "float32", "bfloat16"))
        return self

    def _check_widths(self) -> None:
        if choice("architecture", self.architecture, ARCHITECTURES) == "gpt":
            if self.trunk_width is not None:
                raise ValueError(
                    f"trunk_width: expected None for a GPT, which has no trunk, got "
                    f"{self.trunk_width!r}"
                )
            if self.width % self.heads:
                raise ValueError(
                    f"width: expected a multiple of heads={self.heads}, got {self.width}"
                )
            return
        if self.trunk_width is not None:
            integer("trunk_width", self.trunk_width, minimum=1, maximum=self.width - 1)
        for name, width in zip(("trunk_width", "width less the trunk"), self.split, strict=True):
            if width < 1 or width % self.heads:
                raise ValueError(f"{name}: expected a multiple of heads={self.heads}, got {width}")

    @property
    def split(self) -> tuple[int, int]:
        """Widths of trunk and memory, (r, m); a quarter of the state is trunk unless told."""
        trunk = self.width // 4 if self.trunk_width is None else self.trunk_width
        return trunk, self.width - trunk

    @property
    def budget(self) -> Budget:
        """The budget of the optimisation."""
        return Budget(None if self.minutes is None else 60.0 * self.minutes, self.steps)


def training_preset(name: str, architecture: str = "gpt") -> dict[str, Any]:
    """Return arguments of ``train`` for a machine: sizes, batch and budget.

    Args:
        name: ``"two-cores"``, about 10 million parameters in half an hour, or ``"gpu"``, about
            90 million for the 20,000 steps of the paper.
        architecture: ``"gpt"`` or ``"split-memory"``.

    Returns:
        The arguments; any of them may be replaced.

    Raises:
        ValueError: an unknown name.

    Example:
        >>> training_preset("two-cores", "split-memory")["trunk_width"]
        64

    Source: hidden-state, App. Y (the sizes of the GPU).
    """
    choice("name", name, tuple(SIZES))
    kind = choice("architecture", architecture, ARCHITECTURES)
    return {"architecture": kind, **PRESETS[name, kind], **SIZES[name]}
