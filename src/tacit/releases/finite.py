"""The least noise for a secret that is one of finitely many, from the outputs it may have."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import numpy as np

from tacit._ground.checks import Array
from tacit.design.base import Design, no_noise
from tacit.design.cost import cost_matrix
from tacit.design.information.exact import NO_NOISE, entropy_sentence, true_information
from tacit.design.information.gaussian import gaussian_information
from tacit.information.distinct import EqualRows, entropy
from tacit.releases.outputs import described_covariance, output_covariance
from tacit.releases.promises import DrawMethod


class OutputWords(NamedTuple):
    """How outputs are called in a refusal, and what is said where they never differ."""

    what: str
    constant: str


@dataclass(frozen=True, kw_only=True)
class OutputNoise:
    """Under which bound on the information the noise is sought, and in which shapes.

    Attributes:
        method: ``"true-information"`` under the exact information, with confidence; others under
            ``½ logdet(I + S Σ⁻¹)``, as in ``gaussian_information``.
        confidence: of the former.
        family: shapes of noise that are tried under the exact information.
    """

    method: DrawMethod
    confidence: float
    family: Literal["full", "scale"] = "full"


@dataclass(frozen=True, eq=False)
class OutputDesign:
    """The noise of the outputs of a finite secret, and what was seen of these.

    Attributes:
        design: the noise; its rank is 0 where the outputs' entropy is within the budget.
        equal: which of the secrets have equal outputs.
        mean: (d,) of the outputs.
        covariance: (d, d) of the outputs, dividing by their number.
        upper: the same, with what double precision may have lost added.
    """

    design: Design
    equal: EqualRows
    mean: Array
    covariance: Array
    upper: Array


def design_outputs(
    outputs: Array,
    nats: float,
    prices: Callable[[Array], Any],
    *,
    how: OutputNoise,
    words: OutputWords,
    source: np.random.Generator,
    progress: bool,
) -> OutputDesign:
    """Choose the least noise under which the outputs tell at most β nats of a uniform secret.

    Args:
        outputs: (K, d), one per secret.
        nats: β > 0.
        prices: F from the variances (d,) of the outputs; None for squared error.
        how: the bound on the information under which noise is sought.
        words: for refusals and notes.
        source: of its simulation.
        progress: whether to show a bar.

    Raises:
        ValueError: prices that are none, or outputs that double precision cannot square.

    Source: residual-pac, Thm 1, Eq. 17 (bound), Prop. 2 (noise).
    """
    size, equal = outputs.shape[1], EqualRows.of(outputs)
    # I(X; Y) <= H(outputs): within the budget, they are published as they are
    held = entropy(equal.weights(None))
    if len(equal) == 1 or held <= nats:
        mean, covariance = described_covariance(outputs)
        cost_matrix(prices(np.diagonal(covariance)), size)
        silent = (
            no_noise(size, 0.0, "constant", words.constant)
            if len(equal) == 1
            else no_noise(size, held, NO_NOISE, entropy_sentence(len(equal), held))
        )
        return OutputDesign(silent, equal, mean, covariance, covariance)
    # equal outputs are one, with the probability that they have together
    shares = None if len(equal) == len(outputs) else equal.weights(None)
    points = outputs[equal.first]
    mean, covariance, slack = output_covariance(points, shares, words.what)
    upper = covariance + slack * np.diag(np.diagonal(covariance))
    cost = prices(np.diagonal(upper))
    if how.method == "true-information":
        design = true_information(
            points,
            nats,
            family=how.family,
            weights=shares,
            cost=cost,
            confidence=how.confidence,
            rng=source,
            progress=progress,
        )
    else:
        shape = "exact" if how.method == "auto" else how.method
        design = gaussian_information(upper, nats, cost=cost, method=shape)
    return OutputDesign(design, equal, mean, covariance, upper)
