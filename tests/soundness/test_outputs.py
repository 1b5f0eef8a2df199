"""What is published bit by bit: zeros, equal outputs, and outputs that need no noise."""

import json
import math

import numpy as np
import pytest
from mpmath import mp, mpf

from tacit import Draw, Effort
from tacit.attacks import bayes, bayes_success, membership_attack
from tacit.classifiers import privatize_logits
from tacit.covariance import Diagonal
from tacit.design import Design
from tacit.guarantees import InformationBound, SuccessBound
from tacit.hidden_states import Differences
from tacit.hidden_states import release as release_states
from tacit.releases import Release
from tacit.statistics import privatize
from tacit.statistics.draws.candidates import draw_family, subset_rate
from tacit.statistics.queries import Columns, bind_query
from tacit.statistics.simulation import simulate

from . import oracles
from .registry import certifies

METHODS = ("auto", "true-information", "exact", "linear", "diagonal")


def table_of(rows=12):
    """Values, and the number of the row in column 1: a query may read off who is there."""
    return np.c_[np.random.default_rng(0).normal(size=rows), np.arange(float(rows))]


def has_first(rows):
    return bool((rows[:, 1] == 0).any())


TELLING = {
    "python floats": lambda rows: 0.0 if has_first(rows) else -0.0,
    "beside another": lambda rows: [7.0, 0.0 if has_first(rows) else -0.0],
    "rounded": lambda rows: np.round(0.1 if has_first(rows) else -0.1),
    "no dimension": lambda rows: np.array(0.0 if has_first(rows) else -0.0),
    "single precision": lambda rows: np.float32(0.0 if has_first(rows) else -0.0),
    "underflow": lambda rows: np.float64(1e-300 if has_first(rows) else -1e-300) * 1e-300,
    "types": lambda rows: 0 if has_first(rows) else -0.0,
    "truth and number": lambda rows: False if has_first(rows) else -0.0,
    "objects": lambda rows: np.array([0.0 if has_first(rows) else -0.0, 1], dtype=object),
    "shapeless": lambda rows: np.float64(-0.0) if has_first(rows) else [0.0],
    "large integers": lambda rows: 2**53 if has_first(rows) else 2**53 + 1,
    "extended precision": lambda rows: np.longdouble(1 if has_first(rows) else 1 + 2.0**-60),
}


@pytest.mark.parametrize("name", TELLING)
def test_nothing_is_told_where_nothing_is_certified(name):
    """Every draw of a release at 0 nats is the same, byte for byte, in memory and in JSON."""
    releases = [
        privatize(TELLING[name], table_of(), Draw(nats=0.1), Effort(simulations=20))
        for _ in range(25)
    ]
    assert {release.information for release in releases} == {0.0}
    assert len({release.values.tobytes() for release in releases}) == 1
    assert len({(r.values.dtype, r.values.shape) for r in releases}) == 1
    assert len({json.dumps(release.to_dict()["numbers"]) for release in releases}) == 1


def test_constant_logits_are_the_same_byte_for_byte():
    zeros = np.where(np.arange(8) % 2, 0.0, -0.0)[:, None]
    release = privatize_logits(np.c_[zeros, zeros + 3.0], np.arange(8), Draw(nats=0.1))
    assert release.information == 0.0
    assert len({row.tobytes() for row in release.details.logits}) == 1


def test_a_state_without_noise_in_a_coordinate_has_one_zero_there():
    """Two states that differ by 0 in the bare coordinate are published alike there."""
    bare = Design(
        covariance=Diagonal([1.0, 0.0]),
        cost=1.0,
        gap=0.0,
        method="test",
        multipliers=np.empty(0),
        iterations=0,
    )
    zeros = np.where(np.arange(80) % 2, 0.0, -0.0)
    noisy = release_states(np.c_[zeros, zeros], bare, Differences(listed=[[1.0, 0.0]]))
    assert noisy.guarantees[0].epsilons[2] == pytest.approx(1.0)
    assert not np.signbit(noisy.details.states[:, 1]).any()


@pytest.mark.parametrize(
    ("query", "message"),
    [
        (lambda rows: "1.5", "expected a number or an array of numbers, got str"),
        (lambda rows: 1j, "got complex"),
        (lambda rows: np.array([1.0, 2j]), "got ndarray"),
        (lambda rows: {"a": 1.0}, "got dict"),
        (lambda rows: np.ma.masked, "got MaskedConstant"),
        (lambda rows: np.ma.array([1.0, 2.0], mask=[False, True]), "got MaskedArray"),
        (lambda rows: np.datetime64("2020-01-01"), "got datetime64"),
        (lambda rows: [[1.0, 2.0]] if has_first(rows) else [[1.0], [2.0]], "got shape"),
        (lambda rows: [np.longdouble("1e400")], "expected finite numbers"),
        (lambda rows: [10**400], "got list"),
    ],
)
def test_what_is_not_an_array_of_numbers_is_refused_in_a_sentence(query, message):
    with pytest.raises(ValueError, match=message):
        privatize(query, table_of(), Draw(nats=0.1), Effort(simulations=20))


def discrete_queries():
    return {
        "is a row in": lambda rows: float((rows[:, 1] == 3).any()),
        "are two rows in": lambda rows: float(np.isin([3, 5], rows[:, 1]).all()),
        "count": lambda rows: int((rows[:, 0] > 0.3).sum()),
        "a pair of counts": lambda rows: [(rows[:, 0] > 0).sum(), (rows[:, 1] < 4).sum()],
        "mean above": lambda rows: rows[:, 0].mean() > 0,
        "largest": lambda rows: rows[:, 0].max(),
    }


def declared(query, table, rate, simulations, seed):
    """The family and outputs of a seeded release, made again step by step."""
    share = subset_rate(len(table), rate, simulations)
    family = draw_family(len(table), share, simulations, np.random.default_rng(seed))
    computed = bind_query(query, Columns(("a", "b"), table))
    outputs = simulate(computed, table, family, workers=1, progress=False)
    return family, outputs


def counted(family, outputs):
    """H of the outputs, and the exact success on the most exposed row, by plain counting."""
    values = [tuple(row) for row in outputs.tolist()]
    count = len(values)
    with mp.workdps(40):
        shares = [mpf(values.count(value)) / count for value in set(values)]
        nats = -mp.fsum(share * mp.log(share) for share in shares)
    inside = family.memberships(0, count)
    best = 0
    for row in inside.T.tolist():
        right = 0
        for value in set(values):
            held = [member for member, v in zip(row, values, strict=True) if v == value]
            right += max(sum(held), len(held) - sum(held))
        best = max(best, right)
    return nats, mpf(best) / count


@certifies(InformationBound, SuccessBound)
@pytest.mark.parametrize("rate", [0.5, 0.3])
@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("name", discrete_queries())
def test_a_budget_above_the_entropy_needs_no_noise(name, method, rate):
    query, table = discrete_queries()[name], table_of()

    def released(nats, trials):
        promise = Draw(nats=nats, method=method, rate=rate)
        return privatize(query, table, promise, Effort(simulations=60, trials=trials), rng=4)

    release = released(3.0, 400)
    family, outputs = declared(query, table, rate, 60, seed=4)
    nats, success = counted(family, outputs)
    assert release.method == "no-noise"
    assert tuple(release.values) in {tuple(row) for row in outputs}
    assert nats <= mpf(release.information) <= nats * (1 + mpf(10) ** -12)
    assert success <= mpf(release.membership.success)
    assert release.membership.success <= max(release.membership.prior, float(success) + 1e-12)
    assert release.guarantees[1].evidence == "numerical"
    assert any("without noise" in text for text in release.guarantees[1].assumptions)
    assert any("no noise" in note for note in release.remarks)
    assert release.attack.success.low <= release.membership.success
    assert release.attack.worst.low <= release.membership.success
    again = Release.from_dict(json.loads(json.dumps(release.to_dict(), allow_nan=False)))
    assert again == release
    # At the entropy itself there is none either; a hair below it there is.
    assert released(release.information, 0).method == "no-noise"
    below = math.nextafter(float(nats) * (1 - 1e-12), 0.0)
    noisy = released(below, 0)
    assert noisy.details.design.rank == len(outputs[0])
    assert noisy.information <= below


@certifies(InformationBound)
@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("success", [0.55, 0.7, 0.8])
def test_a_yes_or_no_is_certified_against_quadrature(success, method):
    query, table = discrete_queries()["are two rows in"], table_of()
    promise, effort = Draw(success=success, method=method), Effort(simulations=400, trials=0)
    release = privatize(query, table, promise, effort, rng=5)
    _, outputs = declared(query, table, 0.5, 400, seed=5)
    share = float(outputs.mean())
    deviation = math.sqrt(release.details.design.covariance.trace())
    exact = oracles.mixture_information([0.0, 1.0], [1.0 - share, share], deviation)
    assert exact <= release.information <= release.details.budget
    assert release.membership.success <= success


def test_the_attacker_of_a_release_without_noise_counts_exactly():
    """Its hits are a binomial of the exact success, and the worst row is found."""
    query, table = discrete_queries()["is a row in"], table_of()
    family, outputs = declared(query, table, 0.5, 60, seed=6)
    inside = family.memberships(0, len(family))
    attack = membership_attack(outputs, inside, None, trials=4000, rng=7)
    _, exact = counted(family, outputs)
    assert exact == 1
    assert (attack.worst_record, attack.worst_success) == (3, 1.0)
    for row in range(inside.shape[1]):
        low, high = bayes_success(outputs, None, inside[:, row])
        values = outputs[:, 0]
        truth = sum(
            max((inside[:, row] & (values == v)).sum(), (~inside[:, row] & (values == v)).sum())
            for v in np.unique(values)
        ) / len(values)
        assert low <= truth <= high <= truth + 1e-9
        measured = bayes(outputs, None, inside[:, row], trials=4000, confidence=0.999999, rng=8)
        assert measured.interval[0] <= truth <= measured.interval[1]


@certifies(InformationBound, SuccessBound)
@pytest.mark.parametrize("method", ["exact", "true-information"])
def test_logits_that_repeat(method):
    """Four kinds of input: at ln 4 nats and above they are published as they are."""
    logits = np.repeat([[0.0, 5.0], [5.0, 0.0], [1.0, 1.0], [-0.0, 5.0]], [5, 10, 20, 5], axis=0)
    labels = np.r_[np.zeros(5), np.ones(10), np.arange(20) % 2, np.zeros(5)].astype(int)
    exact = math.log(40) - sum(n * math.log(n) for n in (10, 10, 20)) / 40
    free = privatize_logits(logits, labels, Draw(nats=1.1, method=method), labels=labels, rng=9)
    assert free.method == "no-noise"
    assert exact <= free.information <= exact * (1 + 1e-12)
    identified, labelled, _ = free.guarantees
    assert identified.success == pytest.approx(3 / 40, rel=1e-12)
    assert labelled.success == pytest.approx(30 / 40, rel=1e-12)
    for attack, bound in zip(free.attacks, (identified, labelled), strict=True):
        assert attack.success.low <= bound.success
    published = free.details.logits
    shown, held = (np.unique(one, axis=0, return_counts=True) for one in (published, logits))
    np.testing.assert_array_equal(shown[0], held[0])
    np.testing.assert_array_equal(shown[1], held[1])
    noisy = privatize_logits(logits, labels, Draw(nats=0.5, method=method), labels=labels, rng=9)
    assert noisy.details.design.rank == 2
    assert noisy.information <= 0.5


@pytest.mark.parametrize(
    ("scale", "offset"), [(1e-300, 0.0), (1e300, 0.0), (5e-324, 0.0), (1e-16, 1.0)]
)
def test_outputs_of_any_size_are_released_or_refused_in_a_sentence(scale, offset):
    def query(rows):
        return offset + scale * (4.0 if has_first(rows) else 1.0)

    table = table_of()
    free = privatize(query, table, Draw(nats=0.7), Effort(simulations=20))
    assert free.information >= mp.log(2)
    json.dumps(free.to_dict(), allow_nan=False)
    assert any("rounding" in note for note in free.remarks) == bool(offset)
    if offset:
        for seed, budget in enumerate((0.1, 0.3, 0.5)):
            noisy = privatize(
                query, table, Draw(nats=budget), Effort(simulations=20, trials=0), rng=seed
            )
            deviation = math.sqrt(noisy.details.design.covariance.trace())
            step = query(table) - query(table[1:])
            exact = oracles.mixture_information([0.0, step], [0.5, 0.5], deviation)
            assert exact <= noisy.information <= budget
    else:
        with pytest.raises(ValueError, match="choose other units"):
            privatize(query, table, Draw(nats=0.3), Effort(simulations=20))


def test_the_order_of_a_sum_tells_subsets_apart_and_is_certified_so():
    """All rows alike: means of 5 and 6 of them differ in the last place, and say which."""
    query = lambda rows: rows[:, 0].mean()  # noqa: E731
    table = np.full((11, 2), 0.1)
    release = privatize(query, table, Draw(nats=1.0), Effort(simulations=40), rng=1)
    _, outputs = declared(query, table, 0.5, 40, seed=1)
    distinct = len(np.unique(outputs))
    assert (release.information > 0.0) == (distinct > 1)
    assert distinct > 1
    assert "round them in the query" in " ".join(release.remarks)
