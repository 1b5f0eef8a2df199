"""What docs/explanation/reproductions.md says in words; every number in it is computed."""

from __future__ import annotations

import math
from typing import Any

from tacit_lab.studies.pac import published

TITLES = {"cifar10": "CIFAR-10", "cifar100": "CIFAR-100", "mnist": "MNIST", "agnews": "AG-News"}
# Where the power of Efficient-PAC is proportional to 1/β.
CONSTANT = ("cifar100", "mnist", "agnews")
# What rounding leaves between the rows of one rule.
SPREAD = 0.02
PRINTED = {"auto": "Auto-PAC", "efficient": "Efficient-PAC", "sr": "SR-PAC"}

OPENING = """## The residual-PAC paper: tables 1 to 6

`src/tacit_lab/studies/pac/published.json` holds Tables 1 to 6 as printed. The data sets are not
shipped: put their folder in `TACIT_DATA` (Iris comes with scikit-learn).

### Rows that cannot be

Fano's inequality turns an accuracy into nats that leak for certain, whatever the noise and
whoever chose it: naming one of C classes wrong with probability e takes

    I(X; Y) >= H(L) − h(e) − e ln(C − 1).

These printed rows leak more than the budget printed beside them. Half a digit is taken off
every accuracy.
"""


def after_impossible() -> str:
    """Say which tables survive, and what the printed entropies are worth."""
    clear = [
        TITLES[d]
        for d in TITLES
        if not any(any(published.impossible(d, c)) for c in published.COLUMNS)
    ]
    limit = published.most_entropy(4)
    ceilings = ", ".join(
        f"{published.TABLES[d]['entropy']:g} against {published.most_entropy(n):.3f} ({TITLES[d]})"
        for d, n in (("mnist", 10), ("cifar10", 10), ("cifar100", 100))
    )
    sound = [
        f"{TITLES[d]}, {PRINTED[c]}"
        for d in TITLES
        for c in ("auto", "efficient")
        if any(published.impossible(d, c))
    ]
    table = published.TABLES["mnist"]
    pairs = zip(table["beta"], table["noise_sr"], strict=True)
    bare = [f"{beta:g}" for beta, noise in pairs if noise == 0.0]
    return f"""Fano's inequality does not refute {" and ".join(clear)}; that is not a certificate.
Nor is it needed for SR-PAC's rows of MNIST at β = {", ".join(bare)}: they print a noise of 0.000.
A release without noise tells which of 10,000 test images was asked,
{math.log(10_000):.2f} nats.

SR-PAC's rows are impossible because a trained decoder holds its budget, and a decoder bounds
information from below (see [SR-PAC as published](stackelberg.md)). The noise of Auto-PAC and
Efficient-PAC is certified; where one of their rows is listed ({"; ".join(sound)}) the printed
accuracy is impossible. Balanced classes cannot reach it under the noise printed beside it.

The printed powers say which rules were run. Auto-PAC's noise has the shape of the outputs'
covariance, Σ/(e^{{2β/d}} − 1), as the paper says of its baselines: tr Σ recovered from its rows of
{published.ENOUGH_DIGITS:g} or more differs by {_spread("auto", TITLES)} at most in each table.
Efficient-PAC's is allocated along the eigenbasis, e_i ∝ √λ_i at ½ Σ λ_i/e_i = β. Power times β
differs by {_spread("efficient", CONSTANT)} at most in CIFAR-100, MNIST and AG-News. In CIFAR-10 it
does not stay, and every row there fits, to 0.1%, the log-det optimum of ten variances.
Both keep their budget; neither is the log-det optimum over all covariances, which needs less.

Where the target and the budget of a row are added, the entropy H(X) that was used appears. The
logits of AG-News have four components. Scaled to unit variances their entropy is at most ½ · 4
ln(2πe) = {limit:.3f} nats; the printed rows use {published.TABLES["agnews"]["entropy"]}. The
others are below their limits: {ceilings}. In Tables 5 and 6 H(X) is 20.8 = 30 ln 2, the entropy
of thirty fair bits. The cross-entropies achieved in Table 6 are {_excess("rice", min):.1f} to
{_excess("rice", max):.1f} nats *above* it: that decoder does worse than one that never sees the
release, and finds no information at all."""


def _spread(column: str, names: Any) -> str:
    ends = [published.fitted(name, column) for name in names]
    return f"{max(high / low - 1.0 for low, high in ends):.1%}"


def _excess(dataset: str, pick: Any) -> float:
    return float(pick(published.TABLES[dataset]["achieved"]) - 30.0 * math.log(2.0))


def logits_story(results: dict[str, Any]) -> str:
    """Return the paragraphs above the tables of a data set."""
    recipe, rows = results["recipe"], results["rows"]
    held = results["entropy_of_secret"]
    mine = [r for r in rows if "ours" in r]
    shares = {r["beta"]: r["ours"]["noise"] / r["exact"]["noise"] for r in mine}
    best = min(shares, key=lambda beta: shares[beta])
    below = [share for beta, share in shares.items() if beta <= 0.25]
    played = [r for r in rows if "sr" in r]
    refuted = [f"{r['beta']:g}" for r in played if r["sr"]["refuted"]]
    free = [r["beta"] for r in rows if "ours" not in r]
    small = "" if not free else (
        f" A budget of {min(free):g} nats or more is no restriction on them: they hold "
        f"{held:.3f} nats in all."
    )  # fmt: skip
    return f"""The network ({recipe["network"]}; {recipe["epochs"]} epochs on
{recipe["train"]:,} training inputs) names {results["test_accuracy"]:.1%} of the test
set. The secret is which of
{results["sizes"]["secrets"]:,} test inputs was asked, all equally likely; without noise
{results["clean_accuracy"]:.1%} of them are named. Their logits have power tr S =
{results["output_power"]:.4g}, and absolute noise powers compare with the paper's only as
ratios, because the scale of logits depends on the training.{small}

* **True information** needs {shares[best]:.3f} of the log-det optimum's noise at β = {best:g}, and
  never more than {max(shares.values()):.3f} of it. For β up to ¼ the share is {min(below):.3f}
  or more: where the budget is small, the log-det optimum has nothing left to save.
* **Noise in the shape of Σ**, as Auto-PAC was printed, takes
  {_shaped(results, rows[0]):.2f} times the log-det optimum at β = {rows[0]["beta"]:g} and
  {_shaped(results, rows[-1]):.2f} times at β = {rows[-1]["beta"]:g}. Both keep β, and the optimum
  spends it where it saves most.
* **Eigen-allocation**, as Efficient-PAC was printed{_exception(results)}, takes
  {_ratio(rows[0], "linear"):.2f} times the log-det optimum at β =
  {rows[0]["beta"]:g} and {_ratio(rows[-1], "linear"):.3f} times at β = {rows[-1]["beta"]:g}.
  The same rule by coordinates (Theorem 6) takes {_ratio(rows[0], "diagonal"):.2f} and
  {_ratio(rows[-1], "diagonal"):.2f} times.
* **SR-PAC**, played here for {results["sizes"]["steps"]} steps with a Gaussian decoder of the
  logits and a nearest-neighbour estimate of H(X), is {_refuted(refuted)}. The Gaussian of the same
  covariance has {results["gaussian_entropy"]:.2f} nats, the estimate of H(X) is
{results["knn_entropy"]:.2f}. A decoder that fits the covariance alone starts
  {results["gaussian_entropy"] - results["knn_entropy"]:.2f} nats behind. Noise that leaks far more
looks private to it. At β = {played[-1]["beta"]:g} it has
  {played[-1]["sr"]["noise"] / played[-1]["exact"]["noise"]:.2f} of the log-det optimum's power and
  lets through {max(played[-1]["sr"]["lower"], played[-1]["sr"]["fano"]):.2f} nats or more. Where
  its own estimate misses β, the game had not settled."""


def _ratio(row: dict[str, Any], method: str) -> float:
    return float(row[method]["noise"] / row["exact"]["noise"])


def _shaped(results: dict[str, Any], row: dict[str, Any]) -> float:
    dimension = published.DIMENSIONS[results["dataset"]]
    power = published.covariance_shaped(results["output_power"], dimension, row["beta"])
    return float(power / row["exact"]["noise"])


def _exception(results: dict[str, Any]) -> str:
    low, high = published.fitted(results["dataset"], "efficient")
    if high / low < 1.0 + SPREAD:
        return ""
    return (
        f" for the other data sets (here its printed power times β runs from {low:.0f} to "
        f"{high:.0f}, where that rule has one number)"
    )


def _refuted(budgets: list[str]) -> str:
    if not budgets:
        return "not refuted at any budget it was played for"
    return f"refuted at β = {', '.join(budgets)}: more leaks for certain than the budget allows"


def means_story(results: dict[str, Any]) -> str:
    """Return the paragraphs above the tables of the means."""
    tables = results["tables"]
    sizes = {name: f"{t['drawn']:,} of {t['pool'][0]:,}" for name, t in tables.items()}
    first, last = ({name: t["rows"][k] for name, t in tables.items()} for k in (0, -1))
    cheaper = [r["exact"]["noise"] / r["dp"]["noise"] for t in tables.values() for r in t["rows"]]
    linear = [
        t["scalings"][s][0]["linear"] / t["scalings"][s][0]["exact"]
        for t in tables.values()
        for s in t["scalings"]
    ]
    growth = ", ".join(
        f"{_growth(name, column):.2g} ({name.capitalize()}, {PRINTED[column]})"
        for name in tables
        for column in published.COLUMNS
    )
    over = sum(_over(r) for t in tables.values() for r in t["rows"])
    spans = ", ".join(
        f"{r['beta']:g} nats certify {r['success_bound']:.2f}"
        for r in (first["iris"], last["iris"])
    )
    share = min(
        r["ours"]["noise"] / r["exact"]["noise"] for t in tables.values() for r in t["rows"]
    )
    return f"""The release is the mean of a random half of the rows ({sizes["iris"]} of Iris,
{sizes["rice"]} of Rice), {results["sizes"]["candidates"]:,} halves declared, columns scaled to
[0, 1].

* **Eigen-allocation** takes {min(linear):.2f} to {max(linear):.2f} times the log-det optimum
  at β = ½, depending on the scaling, and the same noise as β goes to 0. The mean of many
  rows is nearly
  Gaussian: true information needs {share:.3f} of the log-det optimum or more.
* **DP is cheaper here, for another promise.** The Gaussian mechanism on the clipped sum,
  calibrated to the same success against one row's membership, takes {min(cheaper):.0f} to
  {max(cheaper):.0f} times *less* noise than the log-det optimum. (Rows are counted from the
  centre of
  the unit cube and clipped at half its diagonal, which clips none; one row more or less; the
  number drawn is public.) It protects one row where rows are drawn independently, from an
  attacker who knows all the others. β bounds what the release tells about all memberships
  *together*, dependent as they are among the declared halves, and pays for it. DP promises
  nothing there: of which half was drawn, this DP noise lets through up to {_declared(tables)}.
* **The attack** of the Bayes-optimal adversary lies above what is certified, its interval as a
  whole, in {over} cases. Under the log-det optimum, where {spans}, it hardly beats chance: the
  mean of many
  rows tells little about one of them.
* **At the published protocol** (the authors' public code: a pool of 30 rows, a fair coin for each,
  columns standardised by the training part; we take four fifths to train and the first 30 of
  them) both printed rules were run on {tables["iris"]["protocol"]["pools"]} random pools. The
  smallest power of any pool is {_protocol_ratios(tables, "auto")} times the printed one for
  Auto-PAC, {_protocol_ratios(tables, "efficient")} times for Efficient-PAC. What else the trials
  did to the printed numbers we do not know.
* **Growth.** From β = .5 to .0078 noise in the shape of Σ grows {_shape_growth("iris"):.0f} times
  (Iris) and {_shape_growth("rice"):.0f} times (Rice), eigen-allocation 64 times, on any outputs.
  The
  printed powers grow by {growth}.
* **Order.** (Σ√λ_i)² is between tr Σ and d tr Σ, and e^x − 1 is x or more, so at one β
  eigen-allocation takes at least a d-th of the noise in the shape of Σ: a quarter for Iris, a
  seventh for Rice. Printed, it takes {_order("iris")} times less (Iris) and
  {_order("rice")} times less (Rice): Rice's rows
  above 7 are not both rules on the same outputs."""


def _growth(name: str, column: str) -> float:
    powers = published.TABLES[name][f"noise_{column}"]
    return float(powers[-1] / powers[0])


def _over(row: dict[str, Any]) -> int:
    """Count attacks whose interval lies above the certified success as a whole."""
    count = 0
    for method in ("linear", "exact", "diagonal", "ours"):
        for name in ("attack", "worst"):
            count += row[method][f"{name}_interval"][0] > row["success_bound"]
    return count + (row["dp"]["worst_interval"][0] > row["success_bound"])


def _declared(tables: dict[str, Any]) -> str:
    """Say what DP noise leaks of the declared halves, at the smallest budget."""
    parts = []
    for name, table in tables.items():
        row = table["rows"][-1]
        parts.append(
            f"{row['dp']['declared']['certified']:.2f} nats for a budget of {row['beta']:g} "
            f"({name.capitalize()})"
        )
    return ", ".join(parts)


def _order(name: str) -> str:
    table = published.TABLES[name]
    pairs = zip(table["noise_auto"], table["noise_efficient"], strict=True)
    ratios = [auto / efficient for auto, efficient in pairs]
    return f"{min(ratios):.1f} to {max(ratios):.1f}"


def _shape_growth(name: str) -> float:
    budgets, dimension = published.TABLES[name]["beta"], published.DIMENSIONS[name]
    ends = [published.covariance_shaped(1.0, dimension, budgets[k]) for k in (0, -1)]
    return ends[1] / ends[0]


def _protocol_ratios(tables: dict[str, Any], column: str) -> str:
    ratios = [
        found[0] / theirs
        for name, table in tables.items()
        for found, theirs in zip(
            table["protocol"][column], published.TABLES[name][f"noise_{column}"], strict=True
        )
    ]
    return f"{min(ratios):.1f} to {max(ratios):.0f}"
