"""What is asked of codes, as values: how a codebook is fitted, and what codes may tell."""

from __future__ import annotations

import math
from typing import Annotated, Literal, TypeAlias

from tacit._ground.values import Count, Flag, NonNegative, Positive, Within, value
from tacit.releases.promises import check_word
from tacit.text import number_up

Passes: TypeAlias = Annotated[int, Within(0, ends="[)")]
Beam: TypeAlias = Annotated[int, Within(1, 256, ends="[]")]
# An average of so many says little of one of them: what a file of centroids tells of the vectors
# it was fitted on was measured, docs/how-to/encode-a-store.md.
LEAST_CELL = 20
# sums that a search of residual codes keeps: more of them gain less than they cost
BEAM = 4
# between what a code says and the ε at which it is reported
# What codes are about where nothing else was said, in every sentence about them.
DEFAULT_UNIT = "prompt"
REPORTED = ", reported by randomised response at ε = "
# of ε in that sentence, rounded up
EPSILON_DIGITS = 6


@value
class CodebookFit:
    """Cells of states that are near, or of prompts after which the model does alike.

    Args:
        size: C, cells at most; with argmax there are as many as tokens, and none is given.
        metric: What makes two prompts near: their states; their states by the Fisher information;
            KL of what the model does next; or the same likeliest token.
        codewords: What stands for a cell: its mean state, the state nearest to that, or one trained
            by KL through the layers above with the cells fixed.
        decision_cost: λ in nats, with behaviour: cells, codewords and assignment minimise
            ``KL(p ‖ q) + λ·1[argmax p ≠ argmax q]``. A large one makes a product code: the
            likeliest token times cells of behaviour, as many of a token as are worth it.
        least_cell: Prompts of a cell at least: a smaller one is removed, its prompts going to the
            next best; with argmax, rarer tokens keep their code and share a codeword.
        rounds: Rounds of assignment by KL.
        epochs: Passes in which codewords are trained.
        joint_rounds: Times that cells are assigned anew by trial and codewords trained again.
        predictor_epochs: Passes in which a network learns to read codes off states; 0 for none.

    Example:
        >>> CodebookFit(size=64, metric="behaviour")
        CodebookFit(size=64, metric='behaviour')
    """

    size: Count | None = None
    metric: Literal["euclidean", "fisher", "behaviour", "argmax"] = "euclidean"
    codewords: Literal["centroid", "medoid", "trained"] = "centroid"
    decision_cost: NonNegative = 0.0
    least_cell: Count = LEAST_CELL
    rounds: Passes = 3
    epochs: Passes = 4
    joint_rounds: Passes = 0
    predictor_epochs: Passes = 0

    def _together(self) -> None:
        if self.decision_cost and self.metric != "behaviour":
            raise ValueError(
                f"decision_cost: expected 0 with metric {self.metric!r}, got {self.decision_cost:g}"
            )
        if self.size is None and self.metric != "argmax":
            raise ValueError(f"size: expected cells with metric {self.metric!r}, got None")


@value
class ProductFit:
    """k-means on every part of a vector: a code of each, and all their pairs for all of them.

    Args:
        parts: m, parts that a vector is cut into.
        size: C, cells of a part at most.
        least_cell: Vectors that a codeword is the average of at least.

    Example:
        >>> ProductFit(parts=16)
        ProductFit(parts=16)
    """

    parts: Count = 1
    size: Annotated[Count, Flag("--codewords")] = 256
    least_cell: Count = LEAST_CELL


@value
class ResidualFit:
    """k-means stage by stage, each on what the stages before it leave: a code is one of each.

    Args:
        stages: m, codewords that are summed to a vector.
        size: C, codewords of a stage at most.
        least_cell: Vectors that a codeword is an average over at least.
        beam: B, sums that a search for the nearest keeps after each stage.

    Example:
        >>> ResidualFit(stages=4)
        ResidualFit(stages=4)
    """

    stages: Count = 1
    size: Annotated[Count, Flag("--codewords")] = 256
    least_cell: Count = LEAST_CELL
    beam: Beam = BEAM


@value
class VectorFit:
    """How vectors are coded: whole, in parts side by side, or in stages that are summed.

    Args:
        size: Largest number of codewords of every part or stage (C).
        parts: Number of parts that a vector is cut into, each coded by itself (m).
        stages: Number of codewords whose sum stands for a vector (m). Each codes what those before
            it left. This takes the fewest bits for a search.
        least_cell: Least number of vectors that a codeword averages. A codeword of fewer is
            removed.
        beam: B, sums that a search for the nearest keeps after each stage.

    Example:
        >>> VectorFit(stages=4)
        VectorFit(stages=4)
    """

    size: Annotated[Count, Flag("--codewords")] = 256
    parts: Count = 1
    stages: Count = 1
    least_cell: Count = LEAST_CELL
    beam: Beam = BEAM

    @property
    def asked_bits(self) -> float:
        """Bits of a code where no codeword is removed, ``m log2 C``, to rounding."""
        return self.parts * self.stages * math.log2(self.size)

    def _together(self) -> None:
        if self.parts > 1 and self.stages > 1:
            raise ValueError(
                f"stages: expected 1 with {self.parts} parts, got {self.stages}: a vector is cut "
                "or summed, not both"
            )


@value
class PromptCodes:
    """What codes tell about one prompt is counted, or bounded by randomised response.

    Args:
        releases: Largest number of rows of the file about one prompt (T).
        epsilon: ε of randomised response over a code, all its parts together, which then draws
            from the operating system; none if left out.
        near: Number of cells near the true one, in every part, that --epsilon may report in its
            place.
        unit: Word for what one row was made of, such as text or customer, for what is certified.
            When left out it is prompt, or row for vectors that no model here has made.

    Example:
        >>> PromptCodes(epsilon=2.0)
        PromptCodes(epsilon=2.0)
    """

    releases: Count = 1
    epsilon: Positive | None = None
    near: Count = 1
    unit: str | None = None

    def _together(self) -> None:
        check_word(self.unit)
        if self.epsilon is None and self.near != 1:
            raise ValueError("near: expected 1 without epsilon, got more")

    def worded(self, text: str) -> str:
        """Return a text about a prompt as one about what a row was made of."""
        return text if self.unit is None else text.replace(DEFAULT_UNIT, self.unit)

    def words(self, code: str) -> str:
        """Say what is released, where ``code`` says what a code is.

        Example:
            >>> PromptCodes(epsilon=2.0).words("a cell")
            'a cell, reported by randomised response at ε = 2'
            >>> PromptCodes(epsilon=1.2345641).words("a cell")[-7:]
            '1.23457'
        """
        return (
            code
            if self.epsilon is None
            else f"{code}{REPORTED}{number_up(self.epsilon, EPSILON_DIGITS)}"
        )
