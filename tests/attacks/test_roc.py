"""Scores of two unit Gaussians at distance μ: every quantity has a closed form."""

import numpy as np
import pytest
from scipy import stats

from tacit import codec
from tacit.attacks import RocSummary, roc
from tacit.attacks.intervals import chernoff_interval


def shifted(shift, count, seed):
    source = np.random.default_rng(seed)
    saw = np.arange(2 * count) < count
    return source.standard_normal(2 * count) + shift * saw, saw


def truth(shift):
    return {
        "auc": stats.norm.cdf(shift / np.sqrt(2)),
        "accuracy": stats.norm.cdf(shift / 2),
        **{rate: stats.norm.cdf(shift + stats.norm.ppf(rate)) for rate in (0.1, 0.01, 0.001)},
    }


@pytest.mark.parametrize("shift", [0.0, 0.5, 1.5, 3.0])
def test_gaussian_shift_gives_the_closed_forms(shift):
    count = 40_000
    found, exact = roc(*shifted(shift, count, 1), fpr=(0.1, 0.01), rng=0), truth(shift)
    # The variance of a two-sample U-statistic is at most AUC (1 − AUC) / min(n₁, n₀).
    auc_error = np.sqrt(exact["auc"] * (1 - exact["auc"]) / count)
    assert abs(found.auc - exact["auc"]) < 4 * auc_error
    assert abs(found.auc - truth(shift + 0.1)["auc"]) > 4 * auc_error
    accuracy_error = np.sqrt(exact["accuracy"] * (1 - exact["accuracy"]) / count)
    # The estimated threshold loses to the best one at second order only.
    assert abs(found.balanced_accuracy - exact["accuracy"]) < 5 * accuracy_error
    for point in found.operating_points:
        slope = stats.norm.pdf(shift + stats.norm.ppf(point.fpr)) / stats.norm.pdf(
            stats.norm.ppf(point.fpr)
        )
        variance = exact[point.fpr] * (1 - exact[point.fpr]) + slope**2 * point.fpr * (
            1 - point.fpr
        )
        assert abs(point.tpr - exact[point.fpr]) < 4 * np.sqrt(variance / count)
        assert point.interval[0] <= point.tpr <= point.interval[1]


def test_intervals_cover_in_repetition():
    """At 80% each may miss in a fifth of 300 runs; 4.5 standard errors above is no accident."""
    shift, runs = 1.0, 300
    exact, missed = truth(shift), dict.fromkeys(("auc", "accuracy", 0.1, 0.01), 0)
    for seed in range(runs):
        found = roc(*shifted(shift, 150, seed), confidence=0.8, fpr=(0.1, 0.01), rng=seed)
        intervals = {"auc": found.auc_interval}
        intervals |= {point.fpr: point.interval for point in found.operating_points}
        for name, (low, high) in intervals.items():
            missed[name] += not low <= exact[name] <= high
        # The threshold's own accuracy is at most the best one's.
        missed["accuracy"] += found.balanced_accuracy_interval[0] > exact["accuracy"]
    allowed = 0.2 * runs + 4.5 * np.sqrt(0.2 * 0.8 * runs)
    assert all(count <= allowed for count in missed.values()), missed


def tied_truth(shift, rate):
    """AUC and the randomised test's true positive rate for scores rounded to whole numbers."""
    edges = np.arange(-12.5, 13.0)
    inside, outside = (np.diff(stats.norm.cdf(edges - m))[::-1] for m in (shift, 0.0))
    below = 1 - np.cumsum(outside)
    area = (inside * (below + 0.5 * outside)).sum()
    height = np.interp(rate, np.append(0, np.cumsum(outside)), np.append(0, np.cumsum(inside)))
    return area, height


def test_intervals_cover_where_scores_tie():
    shift, runs, rate = 1.0, 300, 0.05
    area, height = tied_truth(shift, rate)
    missed = np.zeros(2)
    for seed in range(runs):
        scores, saw = shifted(shift, 150, seed)
        found = roc(np.round(scores), saw, confidence=0.8, fpr=(rate,), rng=seed)
        low, high = found.operating_points[0].interval
        missed += (
            not found.auc_interval[0] <= area <= found.auc_interval[1],
            not low <= height <= high,
        )
    assert (missed <= 0.2 * runs + 4.5 * np.sqrt(0.2 * 0.8 * runs)).all()
    scores, saw = shifted(shift, 100_000, 1)
    found = roc(np.round(scores), saw, fpr=(rate,), rng=1)
    assert abs(found.auc - area) < 4 * np.sqrt(area * (1 - area) / 100_000)
    # The curve's height errs by the members' and, times its slope (below 3), the others' counts.
    error = np.sqrt((height * (1 - height) + 9 * rate * (1 - rate)) / 100_000)
    assert abs(found.operating_points[0].tpr - height) < 4 * error


def test_intervals_miss_a_wrong_truth():
    found = roc(*shifted(1.0, 20_000, 3), fpr=(0.1, 0.01), rng=3)
    wrong = truth(1.3)
    assert not found.auc_interval[0] <= wrong["auc"] <= found.auc_interval[1]
    assert not (
        found.balanced_accuracy_interval[0]
        <= wrong["accuracy"]
        <= found.balanced_accuracy_interval[1]
    )
    for point in found.operating_points:
        assert not point.interval[0] <= wrong[point.fpr] <= point.interval[1]


def test_accuracy_is_not_measured_where_the_threshold_was_chosen():
    """Pure noise, ten scores: the best threshold in hindsight is far above chance on average."""
    accuracies = [roc(*shifted(0.0, 5, seed), rng=seed).balanced_accuracy for seed in range(600)]
    error = np.std(accuracies) / np.sqrt(len(accuracies))
    assert abs(np.mean(accuracies) - 0.5) < 4 * error

    def hindsight(scores, saw):
        return max(
            (np.mean(scores[saw] >= t) + np.mean(scores[~saw] < t)) / 2 for t in [*scores, np.inf]
        )

    assert np.mean([hindsight(*shifted(0.0, 5, seed)) for seed in range(200)]) > 0.6


def test_ties_count_by_expectation():
    """Constant scores say nothing: AUC ½ and TPR = FPR, whoever comes first."""
    saw = np.arange(400) < 200
    found = roc(np.zeros(400), saw, fpr=(0.25, 0.01), rng=0)
    assert found.auc == 0.5
    assert found.balanced_accuracy == 0.5
    assert [point.tpr for point in found.operating_points] == [0.25, 0.01]
    assert all(point.interval == (0.0, 1.0) for point in found.operating_points)
    # Two values: members 3/4 high, others 1/4 high; the randomised test at FPR ⅛ finds ⅜.
    scores = np.concatenate([np.arange(200) % 4 > 0, np.arange(200) % 4 == 0]).astype(float)
    found = roc(scores, saw, fpr=(0.125,), rng=0)
    assert found.auc == 0.75 * 0.75 + 0.5 * (0.75 * 0.25 + 0.25 * 0.75)
    assert found.operating_points[0].tpr == pytest.approx(0.375, rel=1e-12)
    low, high = found.operating_points[0].interval
    assert low <= 0.375 <= high


def test_perfect_and_reversed_scores():
    saw = np.arange(400) < 200
    perfect = roc(saw.astype(float), saw, fpr=(0.1,), rng=0)
    assert (perfect.auc, perfect.balanced_accuracy) == (1.0, 1.0)
    assert perfect.operating_points[0].tpr == 1.0
    assert perfect.operating_points[0].interval[0] > 0.95
    reversed_scores = roc(-saw.astype(float), saw, fpr=(0.1,), rng=0)
    assert reversed_scores.auc == 0.0
    assert reversed_scores.operating_points[0].tpr == 0.0
    assert reversed_scores.operating_points[0].interval[1] < 0.05


def test_too_few_non_members_leave_the_lower_end_at_zero():
    saw = np.arange(400) < 200
    point = roc(saw.astype(float), saw, fpr=(0.001,), rng=0).operating_points[0]
    assert point.interval[0] == 0.0


def test_order_and_monotone_maps_change_nothing_but_the_split():
    scores, saw = shifted(0.7, 300, 5)
    order = np.random.default_rng(5).permutation(600)
    first, second = roc(scores, saw, rng=1), roc(np.exp(scores[order]), saw[order], rng=1)
    assert first.auc == second.auc
    assert first.auc_interval == second.auc_interval
    assert [p.interval for p in first.operating_points] == [
        p.interval for p in second.operating_points
    ]
    assert roc(scores, saw, rng=1) == first


def test_json_round_trip():
    found = roc(*shifted(1.0, 50, 6), rng=6)
    assert codec.read(RocSummary, codec.write(RocSummary, found), "roc") == found


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"scores": [np.nan] * 10}, "scores: expected finite"),
        ({"scores": [np.inf] * 10}, "scores: expected finite"),
        ({"memberships": [True] * 9}, "memberships: expected shape"),
        ({"memberships": [2] * 10}, "memberships: expected truth values"),
        ({"memberships": ["in"] * 10}, "memberships: expected truth values"),
        ({"memberships": [True] * 7 + [False] * 3}, "at least 4 members"),
        ({"confidence": 1.0}, "confidence"),
        ({"fpr": (0.0,)}, "fpr"),
        ({"fpr": ()}, "fpr"),
        ({"rng": -1}, "rng"),
    ],
)
def test_bad_input(change, message):
    arguments = {"scores": np.arange(10.0), "memberships": np.arange(10) % 2, **change}
    with pytest.raises(ValueError, match=message):
        roc(arguments.pop("scores"), arguments.pop("memberships"), **arguments)


@pytest.mark.parametrize(("mean", "count"), [(0.0, 10), (0.3, 50), (0.97, 400), (1.0, 7)])
def test_chernoff_interval_solves_its_equation(mean, count):
    low, high = chernoff_interval(mean, count, 0.9)
    for end, inner in ((low, low + 1e-9), (high, high - 1e-9)):
        if 0.0 < end < 1.0:
            distance = stats.entropy([mean, 1 - mean], [end, 1 - end])
            inside = stats.entropy([mean, 1 - mean], [inner, 1 - inner])
            assert inside <= np.log(20.0) / count <= distance * (1 + 1e-12)


def test_chernoff_interval_covers_unequal_trials():
    """Trials of probability 0.02 and 0.98 have one mean and no binomial law."""
    source = np.random.default_rng(9)
    rates = np.where(np.arange(100) < 60, 0.02, 0.98)
    means = (source.random((2000, 100)) < rates).mean(axis=1)
    missed = 0
    for mean in means:
        low, high = chernoff_interval(float(mean), 100, 0.9)
        missed += not low <= rates.mean() <= high
    assert missed <= 200
