"""The reproduced tables: the page is its results, and its claims hold in them."""

from __future__ import annotations

import importlib
import json
import math
import re
from pathlib import Path
from typing import Any

import mpmath
import numpy as np
import pytest
from scipy.optimize import brentq
from scipy.stats import ttest_ind

ROOT = Path(__file__).resolve().parents[1]
RESULTS = sorted((ROOT / "experiments" / "results").glob("pac-*.json"))
# Where nothing is saved the log-det design is returned, for a covariance rounded up by 1e-11.
ROUNDING = 1 + 1e-9
LOGITS = [path for path in RESULTS if path.stem != "pac-means"]


@pytest.fixture
def load() -> Any:
    """Import a module that the experiments share."""
    return lambda name, study="pac": importlib.import_module(f"tacit_lab.studies.{study}.{name}")


def _results(path: Path) -> Any:
    return json.loads(path.read_text(encoding="utf-8"))


def test_every_column_of_a_printed_table_is_as_long(load: Any) -> None:
    for dataset, table in load("published").TABLES.items():
        lengths = {len(column) for column in table.values() if isinstance(column, list)}
        assert len(lengths) == 1, dataset
        assert all(later < earlier for earlier, later in zip(table["beta"], table["beta"][1:]))  # noqa: B905


def test_printed_efficient_pac_noise_is_proportional_to_one_over_beta(load: Any) -> None:
    """A digit lost in the transcription breaks β tr Σ = constant, true of Efficient-PAC's rule."""
    for dataset in ("agnews", "cifar100", "mnist"):
        table = load("published").TABLES[dataset]
        products = np.array(table["beta"]) * np.array(table["noise_efficient"])
        np.testing.assert_allclose(products, products[0], rtol=5e-3)


def test_impossible_rows_agree_with_fano_at_thirty_digits(load: Any) -> None:
    published = load("published")
    found = {}
    for dataset in ("mnist", "cifar10", "cifar100", "agnews"):
        table = published.TABLES[dataset]
        classes = table["classes"]
        entropy = mpmath.log(classes)
        if dataset == "mnist":
            shares = [mpmath.mpf(n) / 10_000 for n in published.MNIST_TEST]
            entropy = -sum(share * mpmath.log(share) for share in shares)
        rows = []
        for beta, accuracy in zip(table["beta"], table["accuracy_sr"], strict=True):
            error = 1 - (mpmath.mpf(str(accuracy)) - mpmath.mpf("0.0005"))
            coin = -error * mpmath.log(error) - (1 - error) * mpmath.log(1 - error)
            if entropy - coin - error * mpmath.log(classes - 1) > beta:
                rows.append(beta)
        found[dataset] = rows
        marked = zip(table["beta"], published.impossible(dataset, "sr"), strict=True)
        assert rows == [beta for beta, wrong in marked if wrong]
    assert found == {
        "mnist": [1.0, 0.5, 0.25],
        "cifar10": [],
        "cifar100": [1.0, 0.5],
        "agnews": [0.5, 0.25, 0.08, 0.06, 0.02],
    }


def test_the_printed_entropy_of_agnews_is_above_its_limit(load: Any) -> None:
    published = load("published")
    limit = 2 * mpmath.log(2 * mpmath.pi * mpmath.e)
    assert published.most_entropy(4) == pytest.approx(float(limit), rel=1e-14)
    assert published.TABLES["agnews"]["entropy"] > published.most_entropy(4)


def test_the_page_is_what_the_results_say(load: Any) -> None:
    page = load("page", "reproductions")
    assert page.PAGE.read_text(encoding="utf-8") == page.text()


def test_theorems_of_low_rank_updates_lie_above_the_exact_laws() -> None:
    result = _results(ROOT / "experiments" / "results" / "low-rank-curves.json")
    for row in result["first"]["rows"]:
        if row["exact"] is None:
            # some release gives the neighbour away, more often than δ
            assert row["never"] > result["first"]["delta"]
            assert row["theorem"] is None
        else:
            assert row["never"] < result["first"]["delta"]
            assert row["theorem"] is None or row["exact"] < row["theorem"]
    for row in result["second"]["rows"]:
        for one in row["ranks"]:
            assert one["exact"] <= one["every"] * (1 + 1e-9) < one["theorem"] < row["gaussian"]


@pytest.mark.parametrize("path", LOGITS, ids=lambda path: path.stem)
def test_certified_logits_keep_their_budgets(path: Path) -> None:
    for row in _results(path)["rows"]:
        for method in ("linear", "exact", "diagonal", "ours"):
            if method not in row:
                continue
            record = row[method]
            assert record["fano"] <= min(row["beta"], record["certified"])
            assert record["lower"] <= row["beta"]
        if "ours" in row:
            assert row["ours"]["noise"] <= row["exact"]["noise"] * ROUNDING
            assert row["ours"]["design_certified"] <= row["beta"]
        assert (
            row["exact"]["noise"] <= row["linear"]["noise"] <= row["diagonal"]["noise"] * ROUNDING
        )


def test_attacks_on_means_stay_below_what_is_certified() -> None:
    path = ROOT / "experiments" / "results" / "pac-means.json"
    for table in _results(path)["tables"].values():
        for row in table["rows"]:
            for method in ("linear", "exact", "diagonal", "ours"):
                assert row[method]["attack_interval"][0] <= row["success_bound"]
                assert row[method]["worst_interval"][0] <= row["success_bound"]
            assert row["dp"]["worst_interval"][0] <= row["success_bound"]
            assert row["dp"]["success_bound"] <= row["success_bound"]
            assert row["ours"]["noise"] <= row["exact"]["noise"] * ROUNDING


def test_no_attacker_passes_what_is_certified_of_low_rank_updates() -> None:
    result = _results(ROOT / "experiments" / "results" / "adapters-canary-game.json")
    noisy = [row for part in ("M1", "M2") for row in result[part] if row["noise"] > 0.0]
    assert noisy
    for row in noisy:
        game = row["game"]
        assert 0.5 < game["bound"] <= game["auc_bound"] <= 1.0
        for found in game["played"].values():
            assert found["balanced_accuracy_interval"][0] <= game["bound"]
            assert found["auc_interval"][0] <= game["auc_bound"]
    for row in result["fitted"]:
        if row["rank"] >= 16:
            assert row["after"][-1]["game"]["played"]["loss of the canary"]["auc"] > 0.99


def test_nearest_neighbour_entropy_of_a_gaussian(load: Any) -> None:
    module = load("logits")
    rng = np.random.default_rng(5)
    scale = np.array([[2.0, 0.0], [1.0, 0.5]])
    exact = math.log(2 * math.pi * math.e) + math.log(abs(np.linalg.det(scale)))
    estimates = [
        module.nearest_neighbour_entropy(rng.normal(size=(2_000, 2)) @ scale.T) for _ in range(20)
    ]
    error = float(np.std(estimates, ddof=1)) / math.sqrt(len(estimates))
    # Its bias at N = 2,000 in the plane is of the order of (k/N)^(2/d) = 0.002 nats.
    assert abs(float(np.mean(estimates)) - exact) < 5 * error + 0.01


def test_missing_data_is_a_sentence(
    load: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("TACIT_DATA", str(tmp_path))
    monkeypatch.setattr(load("networks"), "CACHE", tmp_path / "cache")
    monkeypatch.setattr("sys.argv", ["run.py"])
    assert load("logits").main("mnist") == 0
    said = capsys.readouterr().out
    assert said.startswith("skipped: mnist.npz is not there")
    assert list(tmp_path.iterdir()) == []


def test_a_study_goes_on_where_it_stopped(
    load: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    state = load("state")
    monkeypatch.setattr(state, "CACHE", tmp_path)
    calls: list[int] = []

    def compute(value: int) -> int:
        calls.append(value)
        return value

    first = state.StoredStudy("any", {"seed": 1})
    assert [first.row(str(n), lambda n=n: compute(n)) for n in (1, 2)] == [1, 2]
    again = state.StoredStudy("any", {"seed": 1})
    assert [again.row(str(n), lambda n=n: compute(n)) for n in (1, 2, 3)] == [1, 2, 3]
    assert calls == [1, 2, 3]
    other = state.StoredStudy("any", {"seed": 2})
    assert other.row("1", lambda: compute(7)) == 7


def test_a_fast_run_prints_the_row_of_its_own_budget(load: Any) -> None:
    """Every third budget is run; what is printed for it is not that of the third row."""
    page, table = load("page"), load("published").TABLES["iris"]
    ways = (*page.METHODS, "dp")
    rows = [{"beta": beta} | {way: {"noise": 1.0} for way in ways} for beta in table["beta"][::3]]
    lines = page._powers("iris", {"rows": rows})[2:]
    for line, beta in zip(lines, table["beta"][::3], strict=True):
        theirs = table["noise_auto"][table["beta"].index(beta)]
        assert f"{theirs:.4g}" in [cell.strip() for cell in line.split("|")]


def test_a_claim_about_backdoors_is_not_told_where_the_interval_holds_zero(load: Any) -> None:
    page = load("page", "poisoning")
    assert page.verdict((-0.2, 0.1)) == page.NOT_TOLD
    assert page.verdict((-0.2, -0.1)) == page.HOLDS
    assert page.verdict((0.1, 0.2)) == page.FAILS


def test_the_interval_of_a_difference_is_that_of_two_samples(load: Any) -> None:
    """One cell a side is Student's t of equal variances, and one run alone tells no spread."""
    page = load("page", "poisoning")
    runs = np.array([[0.1, 0.3, 0.2], [0.6, 0.9, 0.75]])
    cells = [
        page.Cell("blended", m, 4.0, {}, {"optimal": [{"success": [one]} for one in found]})
        for m, found in zip((10, 20), runs, strict=True)
    ]
    expected = ttest_ind(runs[1], runs[0]).confidence_interval(0.95)
    found = page.interval(runs[1].mean() - runs[0].mean(), cells, [3, 3])
    np.testing.assert_allclose(found, (expected.low, expected.high))
    single = [page.Cell("blended", 10, 4.0, {}, {"optimal": [{"success": [0.1]}]})]
    assert page.verdict(page.interval(-0.5, single, [1, 1])) == page.NOT_TOLD


def test_printed_rows_that_were_not_run_are_named(load: Any) -> None:
    page = load("page", "poisoning")
    cells = [page.Cell("blended", 10, 4.0, {}, {})]
    assert "14 were not run" in page._not_run(cells)
    assert "blended, m = 80, ε = 8" in page._not_run(cells)
    assert "blended, m = 10, ε = 4" not in page._not_run(cells)


def test_noise_in_the_shape_of_the_covariance_meets_the_log_det_bound(load: Any) -> None:
    published = load("published")
    spread = np.diag([4.0, 1.0, 0.01]) + 0.05
    for beta in (0.01, 0.7, 6.0):
        power = published.covariance_shaped(float(np.trace(spread)), 3, beta)
        noise = spread * power / np.trace(spread)
        nats = 0.5 * np.linalg.slogdet(np.eye(3) + np.linalg.solve(noise, spread))[1]
        assert nats == pytest.approx(beta, rel=1e-9)


def test_printed_auto_pac_noise_has_the_shape_of_the_covariance(load: Any) -> None:
    published = load("published")
    for dataset in ("mnist", "cifar10", "cifar100", "agnews"):
        low, high = published.fitted(dataset, "auto")
        assert high / low < 1.0 + 1e-3, dataset
    low, high = published.fitted("cifar10", "efficient")
    assert high / low > 3.0


def test_printed_efficient_pac_of_cifar10_is_a_log_det_optimum_of_ten_variances(load: Any) -> None:
    """One variance of 51.9, eight of 126.9 and one of 229.3: v/(e(e + v)) is the same for all."""
    table = load("published").TABLES["cifar10"]
    variances = np.array([51.9, *[126.9] * 8, 229.3])

    def noise(scale: float) -> Any:
        return (np.sqrt(variances**2 + 4.0 * scale * variances) - variances) / 2.0

    for beta, printed in zip(table["beta"], table["noise_efficient"], strict=True):
        scale = brentq(lambda c: 0.5 * np.log1p(variances / noise(c)).sum() - beta, 1e-6, 1e9)  # noqa: B023
        assert noise(scale).sum() == pytest.approx(printed, rel=1e-3)


def test_eigen_allocation_takes_a_dth_of_the_other_rule_at_least(load: Any) -> None:
    protocol = load("protocol")
    rows = np.random.default_rng(5).normal(size=(60, 4)) * [1.0, 9.0, 0.1, 2.0]
    for auto, efficient in protocol._pool(rows, [2.0, 0.5, 0.01], [1, 2]):
        assert auto <= 4.0 * efficient * (1.0 + 1e-9)


def test_means_were_run_at_the_published_protocol() -> None:
    tables = _results(RESULTS[[path.stem for path in RESULTS].index("pac-means")])["tables"]
    for table in tables.values():
        for column in ("auto", "efficient"):
            found = np.array(table["protocol"][column])
            assert found.shape == (len(table["rows"]), 3)
            assert (np.diff(found, axis=1) >= 0).all()


def test_every_name_on_the_page_is_an_experiment_and_every_one_is_named() -> None:
    from tacit_lab.studies.reproductions.page import OPENING

    names = set(re.findall(r"[`=]([a-z][a-z0-9_-]+)`", OPENING))
    there = {path.parent.name for path in ROOT.glob("experiments/*/run.py")}
    # the demonstration, and what makes the models that are shipped
    assert there - names == {"backbones", "demo", "small"}
    assert names <= there
