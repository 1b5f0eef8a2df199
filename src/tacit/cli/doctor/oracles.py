"""Bounds worked out here beside their true values, which were computed to 40 digits elsewhere."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from fractions import Fraction

from tacit.cli.doctor.finding import Finding


@dataclass(frozen=True)
class Oracle:
    """A bound whose true value is known.

    Attributes:
        name: what is bounded.
        truth: its true value, rounded to 25 digits.
        certified: works out what Tacit certifies.
        slack: by how much of the truth the bound may lie above it.
    """

    name: str
    truth: str
    certified: Callable[[], float]
    slack: float = 1e-9

    def held(self) -> bool:
        """Return whether certified >= truth, and not by more than the slack, in exact fractions."""
        found = self.certified()
        if not math.isfinite(found):
            return False
        # half a unit of the truth's last digit, which it was rounded by
        unit = Fraction(1, 2 * 10 ** len(self.truth.partition(".")[2]))
        true = Fraction(self.truth)
        return true - unit <= Fraction(found) <= true * (1 + Fraction(self.slack)) + unit


def _gaussian() -> float:
    from tacit.accounting import gaussian

    return float(gaussian(1.0, 1.0).delta(1.0))


def _subsampled() -> float:
    from tacit.accounting import subsampled_gaussian

    return float(subsampled_gaussian(0.01, 1.0, 1).delta(0.5))


def _answers() -> float:
    from tacit.accounting import randomized_response

    return float((randomized_response(0.1) * 20).delta(0.5))


def _laplace() -> float:
    from tacit.accounting import laplace

    return float(laplace(1.0, 1.0).delta(0.5))


def _success() -> float:
    from tacit.accounting import gaussian

    return gaussian(1.0, 1.0).success().success


def _information() -> float:
    from tacit.covariance import Isotropic
    from tacit.information import mixture

    return mixture([[-1.0], [1.0]], Isotropic(1.0, 1), samples=100_000, rng=0).upper


def _noise() -> float:
    from tacit.design import worst_case

    return worst_case([[3.0, 0.0], [0.0, 4.0]], budgets=1.0).cost


ORACLES = (
    Oracle("δ of Gaussian noise", "0.1269367375066439458008296", _gaussian),
    # one step of the numeric account may be looser than a closed form
    Oracle(
        "δ of a Poisson-sampled Gaussian", "0.0000002214519013153061323160954", _subsampled, 1e-4
    ),
    Oracle("δ of twenty randomised answers", "0.03825557384723313047568606", _answers, 1e-6),
    Oracle("δ of Laplace noise", "0.2211992169285951317548297", _laplace),
    Oracle("success against Gaussian noise", "0.6914624612740131036377046", _success),
    # sampled: the seed fixes the draws, and 99% of seeds certify no less than the truth
    Oracle("information of a coin in Gaussian noise", "0.336830820346831612", _information, 0.01),
    Oracle("least noise for two differences", "25.0000000000000000000", _noise, 1e-6),
)


def bounds() -> Iterator[Finding]:
    """Yield what is found of each bound, and of the checker."""
    for oracle in ORACLES:
        try:
            well = oracle.held()
        except Exception as error:  # whatever is broken is the finding
            sentence = f"{oracle.name} cannot be worked out ({type(error).__name__})"
            yield Finding("bounds", False, sentence)
            continue
        truth = f"{float(oracle.truth):.6g}"
        sentence = (
            f"{oracle.name}: certified at or just above the true {truth}"
            if well
            else f"{oracle.name} is not certified at the true {truth}: release nothing with this "
            "installation, and report what `tacit doctor --json -` prints"
        )
        yield Finding("bounds", well, sentence)
    yield checker()


def checker() -> Finding:
    """Return whether the checker holds a true claim, and proves one lowered by 1% false."""
    from tacit.releases.verification import verify_stated

    words = []
    for delta in ("0.1269367375066440", "0.1256"):
        found = verify_stated(
            {
                "format": "tacit-proof",
                "version": 1,
                "adjacency": "inputs",
                "mechanism": {"kind": "gaussian", "sensitivity": "1", "noise": "1"},
                "claims": [{"kind": "approximate-dp", "epsilon": "1", "delta": delta}],
                "given": [],
            }
        )
        words.append(found.word)
    well = words == ["holds", "false"]
    told = "accepts a true claim, and proves false a claim 1% below the truth"
    return Finding("checker", well, told if well else f"says {words[0]} of a true claim")
