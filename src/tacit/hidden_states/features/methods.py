"""How features are trained and scored: what is asked, as values that need no network."""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated, ClassVar, Literal

from tacit._ground.values import Count, Flag, NonNegative, Positive, value

# Features as a multiple of the width, steps, rows of a batch.
SIZES = {"two-cores": (4, 600, 1024), "gpu": (16, 20_000, 8192)}


@value
class Scoring:
    """How features are scored, and which score is of which class.

    Args:
        threshold: τ in nats, declared before scores are looked at: a higher score is backbone, a
            lower one scaffold.
        each: Prompts a feature is taken out of at most; None for all.

    Example:
        >>> Scoring(threshold=1e-4).each
        50
    """

    panel: ClassVar[str] = "Features"

    threshold: Positive = 1e-3
    each: Count | None = 50


@value
class TranscoderFit:
    """How a transcoder is trained: k largest features, or an L1 penalty where k is None.

    Args:
        reads: mlp learns, from the MLP's input, what the MLP adds. stream learns the state from
            itself.
        size: Size of the training: its number of features, of steps and of rows in a batch.
        features: Number of features. A multiple of the model's width when left out.
        top_k: Largest number of features that are active at a time (k). None means ReLU with an L1
            penalty.
        penalty: λ of the L1 penalty, in variances of the output, without ``top_k``.
        steps: Steps of training; those of the chosen size when left out.

    Example:
        >>> TranscoderFit(features=16)
        Traceback (most recent call last):
        ValueError: top_k: expected at most the features there are, 16, got 32
    """

    panel: ClassVar[str] = "Features"

    reads: Literal["mlp", "stream"] = "mlp"
    size: Annotated[Literal["two-cores", "gpu"], Flag("--preset")] = "two-cores"
    features: Count | None = None
    top_k: Annotated[Count | None, Flag("--active")] = 32
    penalty: NonNegative = 0.0
    steps: Count | None = None

    def _together(self) -> None:
        if self.top_k is not None and self.penalty:
            raise ValueError("penalty: expected 0 beside top_k, got another")
        if self.features is not None and self.top_k is not None and self.top_k > self.features:
            raise ValueError(
                f"top_k: expected at most the features there are, {self.features}, got {self.top_k}"
            )

    def at_width(self, width: int) -> TranscoderFit:
        """Return the same with the features and steps that the size gives where none are told."""
        multiple, most, _ = SIZES[self.size]
        return replace(self, features=self.features or multiple * width, steps=self.steps or most)

    @property
    def batch(self) -> int:
        """Rows a step."""
        return SIZES[self.size][2]


SCORING, FIT = Scoring(), TranscoderFit()
