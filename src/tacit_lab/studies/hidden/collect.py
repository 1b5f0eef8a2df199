"""Write published.json from the result files of the hidden-state paper, where they are at hand."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from tacit_lab.studies.pac.data import MissingDataError, find

OUT = Path(__file__).parent / "published.json"
FOLDER = "hidden_state_results"
SOURCE = "github.com/okezue/tcc-research, commit 4a9865ca7c85, folder artifacts"
LICENCE = "MIT, Copyright (c) 2026 Okezue Bell"


def main() -> int:
    """Write the file, or say what is missing."""
    try:
        content = collected(find(f"{FOLDER}/sigma_diag_validate/summary.json").parents[1])
    except MissingDataError as missing:
        print(f"skipped: {missing}")
        return 0
    OUT.write_text(_lines(content) + "\n", encoding="utf-8")
    print(f"written: {OUT.name}, {OUT.stat().st_size:,} bytes")
    return 0


def collected(folder: Path) -> dict[str, Any]:
    """Return the figures that the page needs: every row of the sweep, without quantisation."""
    sweeps = [_read(path) for path in sorted(folder.glob("mahalanobis/runpod_L_*/*.json"))]
    summary = _read(folder / "sigma_diag_validate" / "summary.json")["summary"]
    exponents = [float(name) for name in summary[0]["worst_curve"]]
    return {
        "paper": "arXiv:2605.24042",
        "source": SOURCE,
        "licence": LICENCE,
        "sigmas": sorted({row["sigma"] for row in sweeps[0]["defense_sweep"] if row["sigma"]}),
        "exponents": exponents,
        "sweep": [_point(content) for content in sweeps],
        "power": [_power(entry, exponents) for entry in summary],
        "matched": [
            [content["model"].split("/")[-1], row["mech"], row["eps_target"], _short(row["kl"]),
             row["best_top1"]]
            for content in map(_read, sorted(folder.glob("matched_eps/*.json")))
            for row in content["rows"]
        ],
        "bottlenecks": [
            [row["t1_agreement"], row["attack_top1"]]
            for row in _read(folder / "quotient_release" / "eval_summary_v2.json")["results"]
        ],
    }  # fmt: skip


def _point(content: dict[str, Any]) -> dict[str, Any]:
    """Return [KL, agreement, best attack] of every mechanism by ascending σ."""
    curves: dict[str, list[tuple[float, list[float]]]] = {}
    for row in content["defense_sweep"]:
        if row["mechanism"].startswith("quant"):
            continue
        numbers = [_short(row["mean_kl"]), row["t1_agree"], row["best_attack_top1"]]
        curves.setdefault(row["mechanism"], []).append((row["sigma"], numbers))
    return {
        "model": content["model"].split("/")[-1],
        "layer": content["layer"],
        "width": content["d"],
        "euclidean_gain": _short(content["G_Euc"]),
        "mahalanobis_gain": _short(content["G_Mah"]),
        "curves": {name: [values for _, values in sorted(rows)] for name, rows in curves.items()},
    }


def _power(entry: dict[str, Any], exponents: list[float]) -> dict[str, Any]:
    """Return mean worst-case signal and mean attack for each exponent."""
    names = [f"{exponent:.2f}" for exponent in exponents]
    return {
        "model": entry["model"].split("/")[-1],
        "layer": entry["layer"],
        "signal": [_short(entry["worst_curve"][name][0]) for name in names],
        "attack": [_short(entry["top1_curve"][name][0]) for name in names],
    }


def _read(path: Path) -> Any:
    return json.loads(path.read_text(encoding="utf-8"))


def _short(value: float) -> float:
    return float(f"{value:.5g}")


def _lines(content: dict[str, Any]) -> str:
    """Return JSON with one entry of each list on a line."""
    parts = []
    for name, value in content.items():
        if isinstance(value, list) and isinstance(value[0], (dict, list)):
            rows = ",\n  ".join(json.dumps(entry, ensure_ascii=False) for entry in value)
            parts.append(f" {json.dumps(name)}: [\n  {rows}\n ]")
        else:
            parts.append(f" {json.dumps(name)}: {json.dumps(value, ensure_ascii=False)}")
    return "{\n" + ",\n".join(parts) + "\n}"


if __name__ == "__main__":
    sys.exit(main())
