"""Retrieval against the slow, obvious way and closed forms."""

import math
from fractions import Fraction

import numpy as np
import pytest
from scipy.stats import norm

from tacit import attacks
from tacit.attacks import Complement, Euclidean, FaissIndex, Mahalanobis, Weighted
from tacit.attacks.retrieval.attack import zipf
from tacit.covariance import Dense, Diagonal, Factored, Isotropic, LowRank

METRICS = {
    "euclidean": (Euclidean, ()),
    "complement": (Complement, ("basis",)),
    "weighted": (Weighted, ("coordinate_weights",)),
    "mahalanobis": (Mahalanobis, ("covariance", "floor", "held_out", "weights")),
}


def retrieve(bank, queries, truth, *, metric="euclidean", **options):
    """Attack by the metric of a name, with those of the options that it holds."""
    kind, names = METRICS[metric]
    held = {name: options.pop(name) for name in names if name in options}
    return attacks.retrieve(bank, queries, truth, metric=kind(**held), **options)


def problem(count=300, width=6, queries=60, seed=0):
    source = np.random.default_rng(seed)
    bank = source.standard_normal((count, width)) * np.linspace(1, 3, width)
    return bank, source.choice(count, queries, replace=False), source


def spread(width, seed=1):
    root = np.random.default_rng(seed).standard_normal((width, width))
    return root @ root.T / width + 0.1 * np.eye(width)


def slow_ranks(bank, queries, truth, precision, log_prior=None):
    better, tied = [], []
    for row, own in zip(queries, truth, strict=True):
        gaps = bank - row
        score = -0.5 * np.einsum("ij,jk,ik->i", gaps, precision, gaps)
        if log_prior is not None:
            score = score + log_prior
        lead = score - score[own]
        slack = 1e-9 * (1 + np.abs(score[own]))
        better.append(int((lead > slack).sum()))
        tied.append(int((np.abs(lead) <= slack).sum()) - 1)
    return np.array(better), np.array(tied)


DENSE = Dense(spread(6))
BASIS = np.random.default_rng(5).standard_normal((2, 6))
PROJECTOR = np.eye(6) - BASIS.T @ np.linalg.solve(BASIS @ BASIS.T, BASIS)
WEIGHTS = np.array([0.0, 1.0, 2.0, 0.5, 3.0, 1.0])


@pytest.mark.parametrize(
    ("options", "precision"),
    [
        ({"metric": "euclidean"}, np.eye(6)),
        ({"metric": "complement", "basis": BASIS}, PROJECTOR),
        ({"metric": "weighted", "coordinate_weights": WEIGHTS}, np.diag(WEIGHTS)),
        (
            {"metric": "mahalanobis", "covariance": DENSE, "floor": None},
            np.linalg.inv(DENSE.matrix),
        ),
        (
            {"metric": "mahalanobis", "covariance": DENSE, "floor": 0.7},
            np.linalg.inv(DENSE.matrix + 0.7 * np.eye(6)),
        ),
        (
            {"metric": "mahalanobis", "covariance": Diagonal(WEIGHTS + 0.1), "floor": 0.0},
            np.diag(1 / (WEIGHTS + 0.1)),
        ),
        (
            {
                "metric": "mahalanobis",
                "covariance": LowRank(np.eye(6)[:2], np.eye(2), 0.5),
                "floor": None,
            },
            np.diag([1 / 1.5, 1 / 1.5, 2, 2, 2, 2]),
        ),
        (
            {
                "metric": "mahalanobis",
                "covariance": Factored(np.linalg.cholesky(DENSE.matrix).T),
                "floor": None,
            },
            np.linalg.inv(DENSE.matrix),
        ),
    ],
)
@pytest.mark.parametrize("kind", [np.float64, np.float32])
def test_ranks_are_those_of_the_obvious_way(options, precision, kind):
    bank, truth, _ = problem()
    released = bank[truth] + DENSE.sample(len(truth), 2)
    bank, released = bank.astype(kind), released.astype(kind)
    found = retrieve(bank, released, truth, **options)
    better, tied = slow_ranks(bank.astype(float), released.astype(float), truth, precision)
    assert (found.better == better).all()
    assert (found.tied == tied).all()
    assert found.top1 == pytest.approx(float((better == 0).mean()))
    assert found.mrr == pytest.approx(float((1 / (better + 1)).mean()))
    assert better.max() > 0


def test_blocks_and_memory_maps_are_one_bank(tmp_path):
    bank, truth, _ = problem(count=5000)
    released = bank[truth] + 2.0 * DENSE.sample(len(truth), 2)
    whole = retrieve(bank, released, truth, last_tokens=np.arange(5000) % 4)
    np.save(tmp_path / "bank.npy", bank)
    mapped = np.load(tmp_path / "bank.npy", mmap_mode="r")
    parts = [bank[:17], bank[17:3000], bank[3000:]]
    for other in (mapped, parts):
        found = retrieve(other, released, truth, last_tokens=np.arange(5000) % 4)
        assert (found.better == whole.better).all()
        assert found.last_token == whole.last_token


def test_single_precision_never_decides():
    """Candidates whose scores differ by less than float32 resolves, far from the origin."""
    source = np.random.default_rng(3)
    own = source.standard_normal((40, 16)) + 1e4
    bank = np.concatenate([own, own + 1e-6 * source.standard_normal(own.shape), own + 1e-6])
    released = own + 1e-2 * source.standard_normal(own.shape)
    found = retrieve(bank, released, np.arange(40))
    gaps = ((released[:, None].astype(np.longdouble) - bank[None]) ** 2).sum(axis=2)
    better = (gaps < gaps[np.arange(40), np.arange(40)][:, None]).sum(axis=1)
    assert (found.better == better).all()
    single = ((released[:, None].astype(np.float32) - bank[None].astype(np.float32)) ** 2).sum(2)
    assert ((single < single[np.arange(40), np.arange(40)][:, None]).sum(axis=1) != better).any()


def test_scales_that_single_precision_cannot_hold():
    bank, truth, _ = problem()
    noise = Isotropic(1e-44, 6)
    found = retrieve(
        bank, bank[truth] * (1 + 1e-15), truth, metric="mahalanobis", covariance=noise, floor=None
    )
    assert found.top1 == 1.0


def test_ties_count_by_expectation():
    bank = np.repeat(np.random.default_rng(0).standard_normal((25, 4)), 8, axis=0)
    truth = np.arange(0, 200, 3)
    found = retrieve(bank, bank[truth], truth, last_tokens=np.arange(200) % 2)
    assert (found.tied == 7).all()
    assert found.top1 == pytest.approx(1 / 8)
    assert found.top10 == 1.0
    assert found.mrr == pytest.approx(sum(1 / k for k in range(1, 9)) / 8)
    assert found.last_token == pytest.approx(0.5)
    assert found.clean == len(truth)
    assert found.top1_interval[0] < 1 / 8 < found.top1_interval[1]


def test_two_candidates_match_the_closed_form():
    """Two points at distance D under noise σ: success Φ(D / 2σ); a wrong σ is seen."""
    source, count = np.random.default_rng(4), 20_000
    noise = Diagonal([1.0, 9.0])
    bank = np.array([[0.0, 0.0], [1.5, 3.0]])
    truth = source.integers(0, 2, count)
    released = bank[truth] + noise.sample(count, source)
    found = retrieve(bank, released, truth, metric="mahalanobis", covariance=noise, floor=None)
    exact = norm.cdf(0.5 * math.hypot(1.5, 1.0))
    stderr = math.sqrt(exact * (1 - exact) / count)
    assert abs(found.top1 - exact) < 5 * stderr
    wrong = norm.cdf(0.5 * math.hypot(1.5, 1.0) / 1.1)
    assert abs(found.top1 - wrong) > 5 * stderr
    assert found.top1_interval[0] < exact < found.top1_interval[1]


@pytest.mark.parametrize("kind", ["dense", "low rank", "low rank, uneven", "diagonal"])
def test_a_rank_deficient_release_is_found_always(kind):
    """Whatever the noise in its range, one bare direction gives the prompt away (Prop. 9)."""
    bank, truth, source = problem(count=2000, width=12)
    orthonormal = np.linalg.qr(source.standard_normal((12, 12)))[0]
    noise = {
        "dense": Dense(1e6 * orthonormal[:, :11] @ orthonormal[:, :11].T),
        "low rank": LowRank(orthonormal[:, :11].T, 1e6 * np.eye(11)),
        "low rank, uneven": LowRank(orthonormal[:, :11].T, np.diag(np.geomspace(1e-4, 1e6, 11))),
        "diagonal": Diagonal([1e6] * 11 + [0.0]),
    }[kind]
    released = bank[truth] + noise.sample(len(truth), source)
    blind = retrieve(bank, released, truth)
    told = retrieve(bank, released, truth, metric="mahalanobis", covariance=noise, floor=None)
    assert blind.top1 < 0.1
    assert told.top1 == 1.0
    tuned = retrieve(bank, released, truth, metric="mahalanobis", covariance=noise, rng=0)
    assert tuned.floor == 0.0
    assert tuned.top1 == 1.0


def test_candidates_equal_in_the_bare_directions_compete_in_the_others():
    bank, truth, source = problem(count=400, width=5)
    bank[:, 0] = np.arange(400) % 2
    noise = Diagonal([0.0, 1.0, 1.0, 1.0, 1.0])
    released = bank[truth] + noise.sample(len(truth), source)
    found = retrieve(bank, released, truth, metric="mahalanobis", covariance=noise, floor=None)
    gaps = ((released[:, None, 1:] - bank[None, :, 1:]) ** 2).sum(axis=2)
    gaps[released[:, None, 0] != bank[None, :, 0]] = np.inf
    better = (gaps < gaps[np.arange(len(truth)), truth][:, None]).sum(axis=1)
    assert (found.better == better).all()
    with pytest.raises(ValueError, match="directions without noise"):
        retrieve(bank, released + 0.1, truth, metric="mahalanobis", covariance=noise, floor=None)


def test_the_floor_is_tuned_on_other_states():
    """Noise that the attacker was told wrongly small: a floor helps, and is found elsewhere."""
    bank, truth, source = problem(count=2000, width=12, queries=400)
    told = Diagonal([1e-6] * 6 + [1.0] * 6)
    real = Diagonal([0.3] * 6 + [1.0] * 6)
    others = np.setdiff1d(np.arange(2000), truth)[:300]
    held_out = (bank[others] + real.sample(300, source), others)
    released = bank[truth] + real.sample(400, source)
    options = {"metric": "mahalanobis", "covariance": told}
    tuned = retrieve(bank, released, truth, held_out=held_out, **options)
    bare = retrieve(bank, released, truth, floor=None, **options)
    assert tuned.floor > 0
    assert tuned.mrr > bare.mrr + 0.1
    with pytest.raises(ValueError, match="held_out"):
        retrieve(bank, released, truth, held_out=(released, truth), **options)
    with pytest.raises(ValueError, match="held_out"):
        retrieve(bank, released, truth, held_out=(bank[others], others), **options)


def test_a_prior_ranks_by_the_posterior():
    bank, _, source = problem(count=200)
    prior = zipf(200, rng=1)
    truth = source.choice(200, 3000, p=prior)
    noise = Isotropic(40.0, 6)
    released = bank[truth] + noise.sample(3000, source)
    options = {"metric": "mahalanobis", "covariance": noise, "floor": None}
    found = retrieve(bank, released, truth, weights=prior, **options)
    better, tied = slow_ranks(bank, released, truth, np.eye(6) / 40.0, np.log(prior))
    assert (found.better == better).all()
    assert (found.tied == tied).all()
    assert found.top1 > retrieve(bank, released, truth, **options).top1 + 0.05
    assert found.top1_interval[1] > prior.max()


def test_success_among_fewer_candidates_is_the_hypergeometric_expectation():
    bank, truth, source = problem(count=40, queries=12)
    bank[20:] = bank[:20]
    released = bank[truth] + 1.5 * source.standard_normal((12, 6))
    found = retrieve(bank, released, truth)
    for point in found.among([1, 2, 7, 40]):
        exact = np.mean(
            [
                float(exact_share(int(b), int(t), 40, point.size))
                for b, t in zip(found.better, found.tied, strict=True)
            ]
        )
        assert point.success == pytest.approx(exact, rel=1e-10)
        assert point.interval[0] <= point.success <= point.interval[1]
    assert found.among([1])[0].success == 1.0
    assert found.among([40])[0].success == pytest.approx(found.top1)


def exact_share(better, tied, bank, size):
    total = math.comb(bank - 1, size - 1)
    wins = Fraction(0)
    for among in range(tied + 1):
        rest = bank - 1 - better - tied
        ways = math.comb(tied, among) * math.comb(rest, size - 1 - among) if size > among else 0
        wins += Fraction(ways, total * (among + 1))
    return wins


def test_the_last_token_of_the_first_candidate():
    bank, truth, source = problem(count=3000, queries=200)
    released = bank[truth] + 1.0 * source.standard_normal((200, 6))
    tokens = source.integers(0, 7, 3000)
    found = retrieve(bank, released, truth, last_tokens=tokens)
    first = ((released[:, None] - bank[None]) ** 2).sum(axis=2).argmin(axis=1)
    assert found.last_token == pytest.approx(float((tokens[first] == tokens[truth]).mean()))
    assert found.top1 < found.last_token < 1.0


@pytest.mark.parametrize("index", ["flat", "ivf"])
def test_an_index_states_its_recall(index):
    pytest.importorskip("faiss")
    bank, truth, source = problem(count=4000, queries=150)
    noise = Dense(spread(6))
    released = bank[truth] + noise.sample(150, source)
    options = {"metric": "mahalanobis", "covariance": noise, "floor": None}
    exact = retrieve(bank, released, truth, **options)
    found = retrieve(bank, released, truth, index=FaissIndex(kind=index), **options)
    assert found.index == index
    if index == "flat":
        assert found.recall == 1.0
        assert (found.better == exact.better)[exact.better < 100].all()
    else:
        every = retrieve(bank, released, truth, index=FaissIndex(kind=index, probes=63), **options)
        one = retrieve(bank, released, truth, index=FaissIndex(kind=index, probes=1), **options)
        assert one.recall < every.recall == 1.0
        assert abs(found.top1 - exact.top1) <= 1.0 - found.recall + 0.02
    with pytest.raises(ValueError, match="index"):
        found.among([2])


def test_bad_input_is_refused():
    bank, truth, source = problem()
    noise = Isotropic(1.0, 6)
    released = bank[truth] + noise.sample(len(truth), source)
    told = {"metric": "mahalanobis", "covariance": noise}
    holed = bank.copy()
    holed[123, 2] = np.nan
    copied = bank.copy()
    copied[np.setdiff1d(np.arange(300), truth)[0]] = released[3]
    cases = [
        ("bank", lambda: retrieve(holed, released, truth)),
        ("bank", lambda: retrieve([], released, truth)),
        ("bank", lambda: retrieve(np.empty((0, 6)), released, truth)),
        ("bank", lambda: retrieve([bank, bank[:, :3]], released, truth)),
        ("bank", lambda: retrieve(copied, released, truth, **told)),
        ("queries", lambda: retrieve(bank, released[:, :3], truth)),
        ("queries", lambda: retrieve(bank, released * np.nan, truth)),
        ("queries", lambda: retrieve(bank, bank[truth], truth, **told)),
        ("truth", lambda: retrieve(bank, released, truth + 300)),
        ("truth", lambda: retrieve(bank, released, truth[:-1])),
        ("metric", lambda: attacks.retrieve(bank, released, truth, metric="cosine")),
        (
            "covariance",
            lambda: retrieve(
                bank, released, truth, metric="mahalanobis", covariance=Isotropic(1.0, 5)
            ),
        ),
        ("basis", lambda: retrieve(bank, released, truth, metric="complement", basis=np.eye(6))),
        (
            "coordinate_weights",
            lambda: retrieve(bank, released, truth, metric="weighted", coordinate_weights=-WEIGHTS),
        ),
        ("floor", lambda: retrieve(bank, released, truth, floor=-1.0, **told)),
        ("floor", lambda: retrieve(bank, released, truth, floor="best", **told)),
        ("weights", lambda: retrieve(bank, released, truth, weights=np.zeros(300), **told)),
        ("last_tokens", lambda: retrieve(bank, released, truth, last_tokens=[1, 2])),
        ("confidence", lambda: retrieve(bank, released, truth, confidence=1.0)),
        ("index", lambda: retrieve(bank, released, truth, index="flat")),
        ("kind", lambda: FaissIndex(kind="tree")),
        ("probes", lambda: FaissIndex(kind="flat", probes=3)),
    ]
    for name, call in cases:
        with pytest.raises(ValueError, match=name):
            call()
    assert retrieve(bank, bank[truth], truth).clean == len(truth)


def test_a_mahalanobis_metric_needs_a_covariance():
    with pytest.raises(ValueError, match="covariance"):
        Mahalanobis(None)
