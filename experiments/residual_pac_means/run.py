"""Noise power for the means of Iris and Rice, beside Tables 5 and 6 of the residual-PAC paper."""

from __future__ import annotations

import argparse
import csv
import json
import math
import os
import sys
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table
from sklearn.datasets import load_iris

from tacit.design.information import gaussian_information
from tacit.statistics import privatize

RESULTS = Path(__file__).resolve().parents[1] / "results" / "residual_pac_means.json"
BUDGETS = (0.5, 0.25, 0.125, 0.0625, 0.0312, 0.0156, 0.0078)
METHODS = ("exact", "linear", "diagonal")
CANDIDATES = 2000
SEED = 20_260

# Tables 5b and 6b, columns Auto-PAC and Efficient-PAC: average of ‖B‖² over 35 trials.
PUBLISHED = {
    "iris": {
        "auto": (0.0865, 0.0909, 0.1073, 0.0991, 0.1087, 0.1147, 0.1161),
        "efficient": (0.0256, 0.0261, 0.0321, 0.0283, 0.0400, 0.0379, 0.0381),
    },
    "rice": {
        "auto": (0.1168, 0.1291, 0.1417, 0.1348, 0.1589, 0.2287, 0.2136),
        "efficient": (0.0112, 0.0117, 0.0165, 0.0115, 0.0225, 0.0475, 0.0907),
    },
}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rice", type=Path, default=None, help="rice.csv; default: $TACIT_DATA")
    parser.add_argument("--output", type=Path, default=RESULTS)
    arguments = parser.parse_args()
    # Numbers cut off at the width of a pipe would be lost.
    console = Console(width=None if sys.stdout.isatty() else 132)
    results = {"iris": study("iris", load_iris().data)}
    rice = find_rice(arguments.rice)
    if rice is None:
        console.print("Rice is skipped: give its file with --rice or its folder as TACIT_DATA.")
    else:
        results["rice"] = study("rice", read_rice(rice))
    for dataset, rows in results.items():
        show(console, dataset, rows)
    arguments.output.parent.mkdir(parents=True, exist_ok=True)
    text = json.dumps({"seed": SEED, "candidates": CANDIDATES, "tables": results}, indent=1)
    arguments.output.write_text(text + "\n", encoding="utf-8")
    console.print(f"written to {arguments.output}")
    return 0


def find_rice(path: Path | None) -> Path | None:
    """Return the file given, or rice.csv in TACIT_DATA or in shared/data beside the checkout."""
    if path is not None:
        return path
    beside = Path(__file__).resolve().parents[3] / "shared" / "data"
    found = Path(os.environ.get("TACIT_DATA") or beside) / "rice.csv"
    return found if found.is_file() else None


def read_rice(path: Path) -> np.ndarray:
    """Return the seven numeric columns."""
    with path.open(newline="", encoding="utf-8") as file:
        records = list(csv.reader(file))[1:]
    return np.array([[float(cell) for cell in record[:7]] for record in records])


def scalings(rows: np.ndarray) -> dict[str, np.ndarray]:
    """Return the table in the scalings that the paper could mean; it names none."""
    low, high = rows.min(axis=0), rows.max(axis=0)
    return {
        "as it is": rows,
        "[0, 1]": (rows - low) / (high - low),
        "unit variance": (rows - rows.mean(axis=0)) / rows.std(axis=0),
    }


def study(dataset: str, rows: np.ndarray) -> list[dict[str, Any]]:
    """Return a record per scaling and budget."""
    records = []
    for scaling, scaled in scalings(rows).items():
        for index, beta in enumerate(BUDGETS):
            designs = {m: release(scaled, beta, m).design for m in METHODS}
            records.append(
                {
                    "scaling": scaling,
                    "beta": beta,
                    **{m: design.cost for m, design in designs.items()},
                    "certified": {m: design.information for m, design in designs.items()},
                    **published(dataset, index, scaled),
                    **attacked(scaled, beta, scaling),
                }
            )
    return records


def release(rows: np.ndarray, beta: float, method: str, attack: bool = False) -> Any:
    """Design for the mean of half of the rows; seeded, so this is a study and not a release."""
    return privatize(
        "mean",
        rows,
        mi_budget=beta,
        method=method,
        simulations=CANDIDATES,
        rng=SEED,
        workers=1,
        attack=attack,
    )


def published(dataset: str, index: int, rows: np.ndarray) -> dict[str, float]:
    """Return the published powers, and the least information that so much noise can certify."""
    outputs = np.cov(rows, rowvar=False) / len(rows)
    record = {}
    for column in ("auto", "efficient"):
        power = PUBLISHED[dataset][column][index]
        record[f"published_{column}"] = power
        record[f"published_{column}_certifies"] = least_information(outputs, power)
    return record


def least_information(outputs: np.ndarray, power: float) -> float:
    """Return the least ½ logdet(I + S Σ⁻¹) with tr Σ = power, by bisection in ln β."""
    low, high = math.log(1e-9), math.log(50.0)
    for _ in range(60):
        middle = (low + high) / 2.0
        above = gaussian_information(outputs, math.exp(middle)).cost > power
        low, high = (middle, high) if above else (low, middle)
    return math.exp(high)


def attacked(rows: np.ndarray, beta: float, scaling: str) -> dict[str, Any]:
    """Return the certified success and the measured one, once per dataset and budget."""
    if scaling != "[0, 1]":
        return {}
    result = release(rows, beta, "exact", attack=True)
    return {
        "success_bound": result.membership.success,
        "attack": result.attack.success,
        "attack_interval": list(result.attack.interval),
    }


def show(console: Console, dataset: str, records: list[dict[str, Any]]) -> None:
    """Print a table per scaling."""
    for scaling in dict.fromkeys(record["scaling"] for record in records):
        table = Table(title=f"{dataset}, {scaling}: noise power E‖B‖²", title_justify="left")
        for heading in (
            "β",
            "exact",
            "Auto-PAC",
            "Efficient-PAC",
            "published Auto",
            "certifies",
            "published Eff.",
            "certifies",
            "success ≤",
            "attack",
        ):
            table.add_column(heading, justify="right")
        for r in (record for record in records if record["scaling"] == scaling):
            table.add_row(
                f"{r['beta']:g}",
                *(f"{r[m]:.4g}" for m in METHODS),
                f"{r['published_auto']:.4g}",
                f"{r['published_auto_certifies']:.3g}",
                f"{r['published_efficient']:.4g}",
                f"{r['published_efficient_certifies']:.3g}",
                f"{r['success_bound']:.3f}" if "attack" in r else "",
                f"{r['attack']:.3f}" if "attack" in r else "",
            )
        console.print(table)


if __name__ == "__main__":
    sys.exit(main())
