"""The residual-PAC tables of the reproductions page, written from the JSON of the runs."""

from __future__ import annotations

import json
import math
from typing import Any

from tacit_lab.studies.pac import published, words
from tacit_lab.studies.places import RESULTS
from tacit_lab.studies.reproductions.prose import filled, rounded_down, rounded_up

LOGITS = ("mnist", "cifar10", "agnews")
METHODS = ("linear", "exact", "diagonal", "ours")


def sections() -> list[str]:
    """Return the lines of the page from the results that are there."""
    parts = [words.OPENING.rstrip(), "", *impossible_rows()]
    for dataset in LOGITS:
        results = _results(dataset)
        parts += [f"### {words.TITLES[dataset]}", ""]
        if results is None:
            parts += [f"Not run: `make experiments NAME=pac-{dataset}`.", ""]
            continue
        parts += [f"![{words.TITLES[dataset]}](../images/pac-{dataset}.svg)", ""]
        parts += [filled(words.logits_story(results)), "", *logits_table(results), ""]
    means = _results("means")
    parts += ["### Means of Iris and Rice", ""]
    if means is None:
        return [*parts, "Not run: `make experiments NAME=pac-means`.", ""]
    parts += ["![Means](../images/pac-means.svg)", "", filled(words.means_story(means)), ""]
    return [*parts, *means_tables(means)]


def _results(name: str) -> Any:
    path = RESULTS / f"pac-{name}.json"
    return json.loads(path.read_text(encoding="utf-8")) if path.is_file() else None


def impossible_rows() -> list[str]:
    """Return the printed rows whose accuracy takes more nats than their budget."""
    lines = [
        "| table | method | β | accuracy printed | leaks at least, nats |",
        "|---|---|---|---|---|",
    ]
    for dataset, title in words.TITLES.items():
        table = published.TABLES[dataset]
        for column in published.COLUMNS:
            leaks = published.leaked(dataset, column)
            wrong = published.impossible(dataset, column)
            for row, beta in enumerate(table["beta"]):
                if wrong[row]:
                    accuracy = table[f"accuracy_{column}"][row]
                    lines.append(
                        f"| {table['table']}, {title} | {words.PRINTED[column]} | {beta:g} | "
                        f"{accuracy:.1%} | {rounded_down(leaks[row])} |"
                    )
    return [*lines, "", filled(words.after_impossible()), ""]


def logits_table(results: dict[str, Any]) -> list[str]:
    """Return the tables of a data set: our runs, SR-PAC's runs, and the printed rows."""
    return [
        "Run here: noise power / accuracy / certified nats; the last column is what the accuracy "
        "of the release with least noise gives away for certain.",
        "",
        *_designs(results),
        "",
        "SR-PAC run here: its own estimate of what leaks, beside both bounds on what does.",
        "",
        *_played(results["rows"]),
        "",
        f"Printed in Table {published.TABLES[results['dataset']]['table']}: noise power / accuracy "
        "/ nats that the accuracy gives away.",
        "",
        *_printed(results["dataset"]),
    ]


def _designs(results: dict[str, Any]) -> list[str]:
    power, dimension = results["output_power"], published.DIMENSIONS[results["dataset"]]
    lines = [
        "| β | shape of Σ, power | eigen-allocation | log-det optimum | by coordinates "
        "| true information | of log-det | leaks at least |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for row in results["rows"]:
        shaped = published.covariance_shaped(power, dimension, row["beta"])
        cells = [_cell(row[m], row["beta"]) if m in row else "no noise needed" for m in METHODS]
        mine = row.get("ours")
        share = f"{mine['noise'] / row['exact']['noise']:.3f}" if mine else ""
        lost = rounded_down((mine or row["exact"])["fano"])
        lines.append(f"| {row['beta']:g} | {shaped:.4g} | {' | '.join(cells)} | {share} | {lost} |")
    return lines


def _cell(record: dict[str, Any], beta: float) -> str:
    """Return power, accuracy and certified nats: β by the design, on fresh draws often less."""
    nats = min(record.get("design_certified", record["certified"]), beta)
    return f"{record['noise']:.4g} / {record['accuracy']:.1%} / {rounded_up(nats)}"


def _played(rows: list[dict[str, Any]]) -> list[str]:
    lines = [
        "| β | noise | accuracy | its estimate | leaks at least | leaks at most | verdict |",
        "|---|---|---|---|---|---|---|",
    ]
    for row in (r for r in rows if "sr" in r):
        sr = row["sr"]
        least = max(sr["lower"], sr["fano"])
        verdict = "refuted" if sr["refuted"] else "kept" if sr["certified"] <= row["beta"] else "?"
        lines.append(
            f"| {row['beta']:g} | {sr['noise']:.4g} | {sr['accuracy']:.1%} | "
            f"{sr['estimated']:.3g} | {rounded_down(least)} | {rounded_up(sr['certified'])} | "
            f"{verdict} |"
        )
    return lines


def _printed(dataset: str) -> list[str]:
    table = published.TABLES[dataset]
    leaks = {column: published.leaked(dataset, column) for column in published.COLUMNS}
    wrong = [published.impossible(dataset, column) for column in published.COLUMNS]
    lines = ["| β | Auto-PAC | Efficient-PAC | SR-PAC | verdict |", "|---|---|---|---|---|"]
    for row, beta in enumerate(table["beta"]):
        cells = [
            f"{table[f'noise_{c}'][row]:g} / {table[f'accuracy_{c}'][row]:.1%} / "
            f"{rounded_down(leaks[c][row])}"
            for c in published.COLUMNS
        ]
        refuted = [
            words.PRINTED[c] for c, w in zip(published.COLUMNS, wrong, strict=True) if w[row]
        ]
        verdict = f"impossible: {', '.join(refuted)}" if refuted else "not refuted"
        lines.append(f"| {beta:g} | {' | '.join(cells)} | {verdict} |")
    return lines


def means_tables(results: dict[str, Any]) -> list[str]:
    """Return the tables of the means: powers beside the printed ones, then attacks."""
    lines: list[str] = []
    for dataset, table in results["tables"].items():
        lines += [f"{dataset.capitalize()}, Table {published.TABLES[dataset]['table']}b.", ""]
        lines += [*_powers(dataset, table), ""]
        lines += [
            "At the published protocol, least to largest of "
            f"{table['protocol']['pools']} pools, beside what is printed.",
            "",
            *_protocol(dataset, table["protocol"]),
            "",
        ]
        lines += [
            "Success of the strongest attack on membership, with 99% intervals, at prior ½: over "
            "rows, and on the row that suffers most. The attacker of DP knows all other rows. "
            "Printed is the success of LiRA over 35 trials of the published protocol.",
            "",
            *_attacks(dataset, table["rows"]),
            "",
            _printed_success(dataset, table["rows"]),
            "",
        ]
    return lines


def _powers(dataset: str, table: dict[str, Any]) -> list[str]:
    printed = published.TABLES[dataset]
    lines = [
        "| β | eigen-allocation | log-det | by coordinates | true information "
        "| DP, same success | SR-PAC, run here "
        "| printed: Auto | Efficient | SR-PAC | DP |",
        "|" + "---|" * 11,
    ]
    for row in table["rows"]:
        number = printed["beta"].index(row["beta"])
        own = [f"{row[m]['noise']:.3g}" for m in (*METHODS, "dp")]
        own.append(f"{row['sr']['noise']:.3g}" if "sr" in row else "")
        theirs = [f"{printed[f'noise_{c}'][number]:.4g}" for c in (*published.COLUMNS, "dp")]
        lines.append(f"| {row['beta']:g} | {' | '.join(own + theirs)} |")
    return lines


def _protocol(dataset: str, found: dict[str, Any]) -> list[str]:
    printed = published.TABLES[dataset]
    lines = ["| β | Auto-PAC | printed | Efficient-PAC | printed |", "|---|---|---|---|---|"]
    for number, beta in enumerate(printed["beta"]):
        cells = []
        for column in ("auto", "efficient"):
            low, middle, high = found[column][number]
            cells += [f"{middle:.3g} ({low:.3g} to {high:.3g})"]
            cells += [f"{printed[f'noise_{column}'][number]:.4g}"]
        lines.append(f"| {beta:g} | {' | '.join(cells)} |")
    return lines


def _attacks(dataset: str, rows: list[dict[str, Any]]) -> list[str]:
    printed = published.TABLES[dataset]
    lines = [
        "| β | certified | log-det | one row | true information | one row | DP, one row "
        "| printed: Auto | Efficient | SR-PAC | DP |",
        "|" + "---|" * 11,
    ]
    shown = [(m, name) for m in ("exact", "ours") for name in ("attack", "worst")]
    for row in rows:
        cells = []
        for method, name in (*shown, ("dp", "worst")):
            record = row[method]
            low, high = record[f"{name}_interval"]
            cells.append(f"{record[name]:.3f} ({low:.3f} to {high:.3f})")
        number = printed["beta"].index(row["beta"])
        cells += [f"{printed[f'success_{one}'][number]:.4f}" for one in (*published.COLUMNS, "dp")]
        success = math.ceil(row["success_bound"] * 1e4) / 1e4
        lines.append(f"| {row['beta']:g} | {success:.4f} | {' | '.join(cells)} |")
    return lines


def _printed_success(dataset: str, rows: list[dict[str, Any]]) -> str:
    """Return the printed successes that lie above what their budget leaves to anyone."""
    printed = published.TABLES[dataset]
    bounds = {printed["beta"].index(row["beta"]): row["success_bound"] for row in rows}
    above = [
        f"{words.PRINTED[one]} at β = {printed['beta'][number]:g}"
        for one in published.COLUMNS
        for number, bound in sorted(bounds.items())
        if printed[f"success_{one}"][number] > bound
    ]
    if not above:
        return "No printed success lies above what its budget leaves to anyone."
    return (
        f"Above what their budget leaves to anyone lie {', '.join(above)}. That bound "
        "holds for every row, at the noise that keeps the budget; how far 35 trials vary is not "
        "printed."
    )
