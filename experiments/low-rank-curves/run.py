"""The curves of lora-privacy, Figures 1 and 2: exact laws beside the paper's theorems."""

from __future__ import annotations

import argparse
import math
import sys
from typing import Any

from rich.console import Console
from scipy.optimize import brentq

from tacit.accounting import gaussian, noisy_projection, vector_projection
from tacit.accounting.published import lora_theorem_1, lora_theorem_5
from tacit_lab.studies.pac.state import write
from tacit_lab.studies.places import RESULTS

FIRST: dict[str, Any] = {
    "dim": 400, "delta": 0.01, "alignments": [0.99, 0.999, 0.9999],
    "ranks": [1, 2, 4, 8, 16, 32, 64, 128, 256, 400],
}  # fmt: skip
SECOND: dict[str, Any] = {
    "dim": 2000, "delta": 1e-5, "ranks": [8, 16, 64, 256],
    "noises": [0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0],
}  # fmt: skip
LARGEST = 1e6


def main() -> int:
    """Compute every point, write the JSON, print the ranges."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--fast", action="store_true", help="smoke test: nothing is stored")
    asked = parser.parse_args()
    first, second = FIRST, SECOND
    if asked.fast:
        first = {**first, "alignments": [0.999], "ranks": [16]}
        second = {**second, "noises": [0.5], "ranks": [16]}
    result = {
        "first": {**first, "rows": [
            {"alignment": alignment, **by_rank(first, alignment, rank)}
            for alignment in first["alignments"] for rank in first["ranks"]
        ]},
        "second": {**second, "rows": [by_noise(second, noise) for noise in second["noises"]]},
    }  # fmt: skip
    Console().print(result["second"]["rows"][0])
    if not asked.fast:
        write(RESULTS / "low-rank-curves.json", result)
    return 0


def by_rank(asked: dict[str, Any], alignment: float, rank: int) -> dict[str, Any]:
    """Return ε of a vector's projection without noise, exactly and by Theorem 1."""
    given = {"dim": asked["dim"], "rank": rank, "alignment": alignment}
    profile = vector_projection(**given)
    claim = lora_theorem_1(**given, delta=asked["delta"])
    told = (profile.epsilon(asked["delta"]), claim.epsilon)
    exact, printed = (value if math.isfinite(value) else None for value in told)
    return {"rank": rank, "exact": exact, "theorem": printed, "never": profile.infinite_mass}


def by_noise(asked: dict[str, Any], noise: float) -> dict[str, Any]:
    """Return ε of a noisy projection of every rank, exactly and by Theorem 5, and without it."""
    plain = gaussian(sensitivity=1.0, noise_std=noise).epsilon(asked["delta"])
    ranks = []
    for rank in asked["ranks"]:
        given = {"dim": asked["dim"], "rank": rank, "sensitivity": 1.0, "noise_std": noise}
        told = brentq(
            lambda e, given=given: math.log(
                max(lora_theorem_5(**given, epsilon=math.exp(e)).delta, 1e-300) / asked["delta"]
            ),
            math.log(1e-6), math.log(LARGEST), xtol=1e-6,
        )  # fmt: skip
        every, one = (
            noisy_projection(**given, difference_rank=asked_rank).epsilon(asked["delta"])
            for asked_rank in (None, 1)
        )
        ranks.append({"rank": rank, "exact": one, "every": every, "theorem": math.exp(told)})
    return {"noise": noise, "gaussian": plain, "ranks": ranks}


if __name__ == "__main__":
    sys.exit(main())
