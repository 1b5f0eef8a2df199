"""A quick demo: publish the mean and covariance of the iris table at membership success <= 0.55."""

from __future__ import annotations

import argparse
import json
import sys
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
from sklearn.datasets import load_iris

from tacit import Draw, Effort, privatize
from tacit.releases import Provenance, Release
from tacit.report import write_report
from tacit.statistics.draws.release import DrawDetails

SUCCESS = 0.55
QUERY = "mean+covariance"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--folder", type=Path, default=Path("demo"), help="where to write")
    folder: Path = parser.parse_args().folder
    folder.mkdir(parents=True, exist_ok=True)
    start = time.perf_counter()
    columns, rows = iris()
    effort = Effort(simulations=4000)
    release = privatize(QUERY, rows, Draw(success=SUCCESS), effort, columns=columns)
    provenance = Provenance(
        command="experiments/demo/statistic.py",
        data_name="iris (scikit-learn)",
        data_rows=len(rows),
        data_columns=columns,
    )
    release = replace(release, provenance=provenance)
    text = json.dumps(release.to_dict(), allow_nan=False, indent=2)
    (folder / "release.json").write_text(text + "\n", encoding="utf-8")
    page = write_report(release, folder / "report.html")
    print(page)
    print(*summary(release, time.perf_counter() - start), sep="\n")
    return 0


def iris() -> tuple[tuple[str, ...], np.ndarray]:
    """Return the four measurements of 150 flowers, in cm."""
    table = load_iris()
    columns = tuple(name.removesuffix(" (cm)").replace(" ", "_") for name in table.feature_names)
    return columns, table.data


def summary(release: Release[DrawDetails], seconds: float) -> tuple[str, str, str]:
    """Return what was guaranteed, what was measured, and what was released, a line each."""
    attack = release.attack
    assert attack is not None
    assert attack.worst is not None
    half = (attack.success.high - attack.success.low) / 2
    bound = np.ceil(release.membership.success * 1e4) / 1e4
    seen = release.details
    ratio = release.errors / np.sqrt(seen.output_variance)
    return (
        f"An attacker who knows everything but the noise and which of the declared draws, all "
        f"equally likely, was made guesses membership of any one row right at most {bound:.1%} of "
        f"the time ({release.information:.4g} nats).",
        f"The strongest attack we ran got {attack.success.value:.1%} ± {half:.1%} over "
        f"{attack.trials} simulated releases; on the most exposed flower {attack.worst.value:.1%}.",
        f"{len(release.names)} numbers of {seen.subset_rows} of {seen.pool_rows} flowers, noise "
        f"{ratio.min():.0f} to {ratio.max():.0f} times their own spread, in {seconds:.1f} s.",
    )


if __name__ == "__main__":
    sys.exit(main())
