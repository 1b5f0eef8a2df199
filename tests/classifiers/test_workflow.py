import json
import math

import numpy as np
import pytest
from scipy import stats

from tacit import Draw, Effort, load
from tacit.attacks import bayes_success
from tacit.classifiers import prepare_logits, privatize_logits, workflow
from tacit.guarantees import InformationBound
from tacit.ledger import BudgetExceededError, Ledger
from tacit.releases import ContradictionError, Release
from tacit.releases.contradiction import Named

CLASSES = 4
PROMISED = ("nats", "success", "method", "confidence")


def promised(options):
    """Take what a promise and an effort are made of out of a test's options."""
    given = {name: options.pop(name) for name in PROMISED if name in options}
    return Draw(**given), Effort(trials=options.pop("trials", 2000))


def privatized(predict, pool, **options):
    return privatize_logits(predict, pool, *promised(options), **options)


def prepared_of(predict, pool, **options):
    return prepare_logits(predict, pool, *promised(options), **options)


def pool_of(count=400, seed=0, margin=4.0):
    """Images around one of four corners, and a linear model that tells the corners apart."""
    source = np.random.default_rng(seed)
    labels = np.arange(count) % CLASSES
    corners = margin * np.eye(CLASSES)
    return corners[labels] + source.normal(size=(count, CLASSES)), labels


def linear(batch):
    return 2.0 * batch - batch.mean(axis=1, keepdims=True)


@pytest.mark.parametrize("method", ["exact", "linear", "diagonal"])
@pytest.mark.parametrize("budget", [0.05, 1.0, 4.0])
def test_no_attacker_passes_the_bounds(method, budget):
    pool, labels = pool_of()
    release = privatized(linear, pool, nats=budget, labels=labels, method=method, rng=1)
    assert release.guarantees[-1].nats <= budget
    assert release.guarantees[-1].evidence == "numerical"
    assert release.attacks[0].success.low <= release.guarantees[0].success
    assert release.attacks[1].success.low <= release.guarantees[1].success
    assert release.details.fano <= release.guarantees[-1].nats
    assert release.guarantees[0].prior == pytest.approx(1 / 400, rel=1e-12)
    assert release.guarantees[1].prior == pytest.approx(0.25, rel=1e-12)
    assert release.attacks[0].prior == pytest.approx(1 / 400, rel=1e-9)


def test_more_budget_is_more_accurate_and_more_exposed():
    pool, labels = pool_of()
    weak, strong = (
        privatized(linear, pool, nats=budget, labels=labels, rng=2) for budget in (4.0, 0.1)
    )
    assert weak.details.accuracy_clean == strong.details.accuracy_clean > 0.97
    assert weak.use[0].measured.low > strong.use[0].measured.high
    assert weak.attacks[1].success.low > strong.attacks[1].success.high
    assert weak.details.fano > strong.details.fano
    assert weak.details.design.cost < strong.details.design.cost


def test_the_consumer_is_no_better_than_the_best_attacker():
    pool, labels = pool_of()
    release = privatized(linear, pool, nats=1.0, labels=labels, rng=3)
    assert release.use[0].measured.low <= release.attacks[1].success.high


def test_two_inputs_give_the_closed_form():
    """Best success Φ(D/2) at squared distance D² = 4 Δᵀ(4Σ)⁻¹Δ, and I <= ½ ln(1 + D²/4) = β."""
    logits = np.array([[1.0, -1.0], [-2.0, 3.0]])
    budget = 0.2
    release = privatized(logits, [[0], [1]], nats=budget, labels=[0, 1], rng=4)
    difference = logits[1] - logits[0]
    squared = difference @ np.linalg.solve(release.details.design.covariance.to_dense(), difference)
    assert 0.5 * math.log1p(squared / 4) == pytest.approx(budget, rel=1e-6)
    exact = stats.norm.cdf(math.sqrt(squared) / 2)
    assert exact <= release.guarantees[0].success
    reached = release.attacks[0].success
    assert reached.low <= exact <= reached.high
    bracket = bayes_success(logits, release.details.design.covariance, [0, 1], tolerance=1e-4)
    assert bracket[0] <= exact <= bracket[1]


@pytest.fixture
def in_pool_order(monkeypatch):
    """Rows in the order of their inputs, so that a test can hold each against its own."""
    monkeypatch.setattr(workflow, "private_order", lambda count, source: np.arange(count))


def residual_variance_z(release, logits, scale):
    """Largest z-score of the released residuals' variances in units of the certified noise."""
    residual = release.details.logits - logits
    factor = np.linalg.cholesky(scale * release.details.design.covariance.to_dense())
    white = np.linalg.solve(factor, residual.T)
    products = white @ white.T / white.shape[1]
    return np.abs(products - np.eye(len(white))).max() * math.sqrt(white.shape[1] / 2)


def test_the_noise_drawn_is_the_noise_certified(in_pool_order):
    pool, _ = pool_of(20_000)
    release = privatized(linear, pool, nats=0.5, trials=0)
    assert not release.reproducible
    assert residual_variance_z(release, linear(pool), 1.0) < 5
    assert residual_variance_z(release, linear(pool), 1.1) > 5


def test_rows_are_rounded_to_a_power_of_two_grid():
    pool, _ = pool_of()
    release = privatized(linear, pool, nats=0.5, trials=0)
    deviations = np.sqrt(release.details.design.covariance.diagonal())
    grid = np.exp2(np.floor(np.log2(deviations)) - 20)
    assert np.array_equal(np.round(release.details.logits / grid) * grid, release.details.logits)


def test_success_asked_for_is_kept():
    pool, labels = pool_of()
    release = privatized(linear, pool, success=0.05, labels=labels, trials=0)
    assert 0.0499 < release.guarantees[0].success <= 0.05
    assert release.details.mi_budget >= release.guarantees[-1].nats


def test_only_the_inputs_asked_for_are_released(in_pool_order):
    pool, labels = pool_of()
    chosen = [7, 3, 250]
    release = privatized(linear, pool, nats=5.0, inputs=chosen, labels=labels, trials=0)
    noise = np.sqrt(release.details.design.covariance.diagonal())
    assert release.details.logits.shape == (3, CLASSES)
    assert (np.abs(release.details.logits - linear(pool[chosen])) < 8 * noise).all()
    assert release.details.accuracy_clean == 1.0
    assert release.details.fano is None


def test_the_order_of_the_rows_is_random_and_nobodys():
    logits = 1e6 * np.arange(6.0)[:, None] * np.ones((1, 2))
    prepared = prepared_of(logits, range(6), nats=20.0, trials=0)
    orders = {tuple(prepared._drawn().details.logits[:, 0].argsort().tolist()) for _ in range(60)}
    assert len(orders) > 40
    given = prepared_of(logits, range(6), nats=20.0, inputs=[4, 1, 0], trials=0)
    firsts = {float(given._drawn().details.logits[0, 0]) for _ in range(40)}
    assert firsts == {4e6, 1e6, 0.0}


def test_who_sees_a_list_of_two_names_a_row_no_more_often_than_is_said():
    """Of two inputs both are released: the likelier order is right Φ(D/√2) of the time."""
    logits = np.array([[0.0, 1.0], [1.0, 0.0]])
    prepared = prepared_of(logits, range(2), success=0.6, trials=0)
    release = prepared.draw()
    said = next(line for line in release.all_assumptions if "All 2 rows" in line)
    bound = float(said.rpartition("at most ")[2].partition("%")[0]) / 100
    alone = release.guarantees[0].success
    assert release.guarantees[0].task == "the queried input from its row alone"
    precision = np.linalg.inv(release.details.design.covariance.to_dense())
    difference = logits[1] - logits[0]
    exact = stats.norm.cdf(math.sqrt(difference @ precision @ difference / 2))
    assert alone < exact <= bound
    # whoever always says that the first row is the first input is right half of the time
    draws = np.array([prepared._drawn().details.logits for _ in range(4000)])
    in_order = (draws[:, 1] - draws[:, 0]) @ precision @ difference > 0
    assert abs(in_order.mean() - 0.5) < 4 * 0.5 / math.sqrt(4000)


def test_without_attack_the_released_accuracy_gives_fano():
    pool, labels = pool_of()
    release = privatized(linear, pool, nats=3.0, labels=labels, trials=0)
    assert release.attacks == ()
    assert 0.0 < release.details.fano <= release.guarantees[-1].nats


def test_without_labels():
    pool, _ = pool_of()
    release = privatized(linear, pool, nats=0.5, trials=50)
    assert len(release.guarantees) == 2
    assert len(release.attacks) == 1
    assert release.details.accuracy_clean is None
    assert release.details.fano is None
    assert release.use == ()
    assert Release.from_dict(json.loads(json.dumps(release.to_dict()))) == release


def test_a_file_whose_bound_on_the_label_was_taken_out_is_refused():
    pool, labels = pool_of(40)
    content = json.loads(json.dumps(privatized(linear, pool, nats=0.5, labels=labels).to_dict()))
    load(content)
    assert content["guarantees"][1]["task"].startswith("the label")
    del content["guarantees"][1]
    with pytest.raises(ValueError, match="no guarantee is about naming one"):
        load(content)


def test_constant_logits_need_no_noise():
    release = privatized(np.full((5, 2), 1.5), np.arange(5), nats=0.1, labels=[0, 1, 1, 0, 1])
    assert np.array_equal(release.details.logits, np.full((5, 2), 1.5))
    assert release.guarantees[-1].nats == 0.0
    assert release.guarantees[0].success == release.guarantees[0].prior
    assert release.attacks == ()
    assert release.details.fano == 0.0


def test_a_constant_column_is_covered():
    pool, labels = pool_of()
    logits = np.column_stack([linear(pool), np.full(len(pool), 3.0)])
    release = privatized(logits, pool, nats=0.5, labels=labels, rng=5)
    assert release.guarantees[-1].nats <= 0.5
    assert release.details.design.covariance.rank == CLASSES + 1


def test_true_information_is_certified_and_no_costlier():
    pool, labels = pool_of(120, margin=8.0)
    exact = privatized(linear, pool, nats=1.2, labels=labels, rng=6)
    found = privatized(linear, pool, nats=1.2, labels=labels, method="true-information", rng=6)
    assert found.guarantees[-1].nats <= 1.2
    assert found.guarantees[-1].evidence == "statistical"
    assert found.guarantees[-1].confidence == 0.999
    assert found.guarantees[0].confidence == 0.999
    assert found.details.design.cost < 0.9 * exact.details.design.cost
    assert found.attacks[1].success.low <= found.guarantees[1].success
    assert found.details.fano <= found.guarantees[-1].nats


def test_cost_moves_noise_to_cheap_logits():
    pool, _ = pool_of()
    plain = privatized(linear, pool, nats=0.5, trials=0)
    dear = privatized(linear, pool, nats=0.5, trials=0, cost=[100.0, 1.0, 1.0, 1.0])
    assert (
        dear.details.design.covariance.diagonal()[0]
        < 0.5 * plain.details.design.covariance.diagonal()[0]
    )


def test_the_guarantee_comes_before_the_draw(tmp_path):
    pool, _ = pool_of()
    prepared = prepared_of(linear, pool, nats=0.5, trials=0, inputs=[3, 4, 5])
    assert prepared.spends[0].nats >= 3 * prepared.guarantees[-1].nats
    book = Ledger(tmp_path / "ledger.db")
    book.set_budget("pool", mi_budget=1.0)
    with pytest.raises(BudgetExceededError):
        prepared.draw(ledger=book, secret="pool")
    assert book.spent("pool").nats == 0.0
    one = prepared_of(linear, pool, nats=0.5, trials=0, inputs=[3])
    release = one.draw(ledger=book, secret="pool")
    assert release.guarantees == one.guarantees
    assert book.spent("pool").nats == one.guarantees[-1].nats


def test_a_seed_repeats_the_draw_and_voids_the_guarantee():
    pool, labels = pool_of()
    first, second = (
        privatized(linear, pool, nats=0.5, labels=labels, rng=7, trials=50) for _ in "ab"
    )
    assert np.array_equal(first.details.logits, second.details.logits)
    assert first.reproducible
    assert first.seed == 7
    fresh = [privatized(linear, pool, nats=0.5, trials=0) for _ in "ab"]
    assert not np.array_equal(fresh[0].details.logits, fresh[1].details.logits)
    assert not fresh[0].reproducible


def test_what_is_published_names_no_input_and_measures_nothing():
    pool, labels = pool_of()
    release = privatized(linear, pool, nats=0.5, labels=labels, trials=50)
    public = release.public()
    assert np.array_equal(public.details.logits, release.details.logits)
    assert public.attacks == public.use == ()
    for name in ("design", "accuracy_clean", "fano", "output_variance"):
        assert getattr(public.details, name) is None


def test_callable_array_batches_and_single_precision_agree():
    pool, labels = pool_of(2500)
    sizes = []

    def recorded(batch):
        sizes.append(len(batch))
        return linear(batch).astype(np.float32)

    given = privatized(recorded, pool, nats=0.5, labels=labels, rng=9, trials=0)
    logits = linear(pool).astype(np.float32)
    array = privatized(logits, pool, nats=0.5, labels=labels, rng=9, trials=0)
    assert np.array_equal(given.details.logits, array.details.logits)
    assert given.details.logits.dtype == np.float64
    assert sum(sizes) == 2500
    assert max(sizes) <= 1024


def test_a_torch_module_is_run_in_evaluation_mode_and_left_as_it_was():
    torch = pytest.importorskip("torch")
    pool, labels = pool_of()
    module = torch.nn.Sequential(
        torch.nn.Linear(CLASSES, CLASSES), torch.nn.Dropout(0.5), torch.nn.BatchNorm1d(CLASSES)
    )
    module[2].eval()
    module[0].train()
    before = [part.training for part in module.modules()]
    options = {"nats": 0.5, "labels": labels, "rng": 10, "trials": 0}
    release = privatized(module, pool, **options)
    assert [part.training for part in module.modules()] == before
    assert all(parameter.grad is None for parameter in module.parameters())
    module.eval()
    with torch.no_grad():
        logits = module(torch.as_tensor(pool, dtype=torch.float32)).numpy()
    assert np.array_equal(
        release.details.logits, privatized(logits, pool, **options).details.logits
    )


def test_text_inputs_are_a_pool_too():
    texts = ["a", "bb", "ccc", "dddd"]

    def lengths(batch):
        return np.array([[len(text), -len(text)] for text in batch])

    release = privatized(lengths, texts, nats=0.5, labels=[0, 0, 1, 1], trials=50)
    assert release.details.pool_size == 4


def information_bound(nats):
    return InformationBound(
        nats=nats, secret="x", evidence="theorem", assumptions=(), source="example"
    )


def test_an_accuracy_that_refutes_the_bound_raises():
    """87% of four equally likely classes cannot come with 0.02 nats: Fano needs 0.85."""
    named = Named("the label", 8700, 10_000, 4, math.log(4.0))
    with pytest.raises(ContradictionError, match="the label was named right 8700 times in 10000"):
        named.information(information_bound(0.02), 0.99)
    assert 0.8 < named.information(information_bound(0.9), 0.99) < 0.857
    assert (
        Named("the label", 2500, 10_000, 4, math.log(4.0)).information(information_bound(0.0), 0.99)
        == 0.0
    )


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"predict": [[0.0, np.nan], [1.0, 2.0], [1.0, 1.0]]}, "predict: expected finite"),
        ({"predict": [[0.0, 1.0]]}, "predict: expected one row of logits for each of the 3"),
        ({"predict": [1.0, 2.0, 3.0]}, "predict: expected a 2-dimensional array"),
        ({"predict": lambda batch: batch[:1]}, "predict: expected logits of shape"),
        ({"predict": [[0.0, 1e300], [1.0, 2.0], [1.0, 1.0]]}, "predict: expected logits that"),
        ({"predict": "model.pt"}, "predict: expected"),
        ({"pool": [[1.0]]}, "pool: expected at least 2 inputs"),
        ({"pool": [[1.0], [1.0, 2.0], [3.0]]}, "pool: expected an array"),
        ({"pool": None}, "pool: expected"),
        ({"nats": None}, "nats: expected exactly one"),
        ({"success": 0.5}, "nats: expected exactly one"),
        ({"nats": None, "success": 0.3}, "success: expected"),
        ({"nats": -1.0}, "nats"),
        ({"inputs": [0, 0]}, "inputs: expected no input twice"),
        ({"inputs": [3]}, "inputs: expected indices 0 to 2"),
        ({"inputs": [-1]}, "inputs: expected indices"),
        ({"inputs": [True, False, True]}, "inputs: expected indices 0 to 2 of the pool, got true"),
        ({"inputs": [0.5]}, "inputs: expected whole numbers"),
        ({"inputs": []}, "inputs"),
        ({"labels": [0, 1]}, "labels: expected 3 class numbers"),
        ({"labels": [0, 1, 2]}, "labels: expected 3 class numbers from 0 to 1"),
        ({"labels": [1, 1, 1]}, "labels: expected at least two labels"),
        ({"method": "best"}, "method: expected one of"),
        ({"cost": [0.0, 1.0]}, "cost"),
        ({"confidence": 1.0}, "confidence"),
        ({"trials": 1}, "trials"),
        ({"rng": "seed"}, "rng"),
    ],
)
def test_bad_input_draws_nothing(change, message):
    arguments = {
        "predict": [[0.0, 1.0], [1.0, 2.0], [1.0, 1.0]],
        "pool": [[0.0], [1.0], [2.0]],
        "nats": 0.5,
        **change,
    }
    with pytest.raises(ValueError, match=message):
        privatized(arguments.pop("predict"), arguments.pop("pool"), **arguments)


def test_the_model_is_not_run_for_a_request_that_fails():
    calls = []
    for change in ({"inputs": [5]}, {"nats": 0.0}, {"nats": None, "success": 0.1}):
        with pytest.raises(ValueError, match=next(reversed(change))):
            privatized(calls.append, [[1.0], [2.0]], **{"nats": 1.0, **change})
    assert calls == []
