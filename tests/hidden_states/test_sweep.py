"""The sweep: what a point says against independent computations, and that it can be resumed."""

import json
import math

import numpy as np
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")

from tacit import codec  # noqa: E402
from tacit.hidden_states import (  # noqa: E402
    Point,
    Setting,
    Sizes,
    SweepRequest,
    SweepRun,
    read_mechanism,
    sweep,
)
from tacit.hidden_states.audit.cell_points import cell_attack, within  # noqa: E402
from tacit.hidden_states.audit.laboratory import Laboratory  # noqa: E402
from tacit.hidden_states.audit.points import PointTable, columns  # noqa: E402
from tacit.hidden_states.codebooks.certificates import certify  # noqa: E402
from tacit.hidden_states.noise.shapes import Designs  # noqa: E402
from tacit.models.passes import Pass  # noqa: E402
from tacit.models.texts.prefixes import Prefixes  # noqa: E402
from tests.hidden_states.networks import small_network  # noqa: E402

VOCABULARY, WIDTH, LAYER = 40, 16, 1
SIZES = Sizes(
    geometry=100, pairs=50, prompts=150, generated=20, queries=100, held_out=40, trained=100
)
MECHANISMS = ["isotropic", "inverse-fisher", "generalized-eigen(1)", "codebook-fisher", "argmax"]
OPTIONS = {"sizes": SIZES, "rng": 3}
ASKED = {"codewords": (8,), "readings": ("raw", "wiener")}


def request(mechanisms, budgets, **more):
    return SweepRequest(**{**ASKED, "mechanisms": mechanisms, "kl_budgets": budgets, **more})


@pytest.fixture(scope="module")
def model():
    return small_network(vocabulary=VOCABULARY, width=WIDTH)


@pytest.fixture(scope="module")
def prefixes():
    stream = np.random.default_rng(1).integers(VOCABULARY, size=6000)
    return Prefixes.draw(stream, bank=300, calibration=300, held_out=150, length=6, rng=0)


@pytest.fixture(scope="module")
def points(model, prefixes):
    return sweep(model, [LAYER], request(MECHANISMS, [0.05, 2.0]), prefixes=prefixes, **OPTIONS)


@pytest.fixture(scope="module")
def laboratory(model, prefixes):
    return Laboratory.prepare(model, LAYER, prefixes, SIZES, seed=3)


def of(points, mechanism, **wanted):
    return [
        point
        for point in points
        if point.mechanism == mechanism
        and all(getattr(point, name) == value for name, value in wanted.items())
    ]


def test_prompts_are_read_at_all_layers_in_one_pass(model, prefixes, monkeypatch):
    whole = Pass.of(model, prefixes.bank, [1, 2, model.layers])
    assert sorted(whole.states) == sorted({1, 2, model.layers})
    for layer, states in whole.states.items():
        assert (states - model.states(prefixes.bank, layer)).abs().max() < 1e-5
    exact = model.logits(prefixes.bank).softmax(dim=1)
    assert (whole.behaviours.probabilities(slice(None)) / exact - 1).abs().max() < 0.02
    runs = []
    plain = type(model).clean_runs
    monkeypatch.setattr(
        type(model), "clean_runs", lambda self, *args: runs.append(args) or plain(self, *args)
    )
    found = sweep(model, [1, 2], request(["argmax"], []), prefixes=prefixes, **OPTIONS)
    # every prompt of the bank and of the calibration once, for both layers
    assert sum(len(tokens) for tokens, _ in runs) == len(prefixes.bank) + len(prefixes.calibration)
    assert {tuple(layers) for _, layers in runs} == {(1, 2)}
    alone = sweep(model, [2], request(["argmax"], []), prefixes=prefixes, **OPTIONS)
    assert [p.kl for p in found if p.layer == 2] == [p.kl for p in alone]


def test_every_mechanism_stands_at_every_budget_and_reading(points):
    # three Gaussians at two budgets read twice, two codebooks under two protocols
    assert len(points) == 3 * 2 * 2 + 2 * 2
    assert {point.protocol for point in points if point.family == "gaussian"} == {"A"}
    assert {point.protocol for point in of(points, "argmax")} == {"A", "B"}


def test_more_noise_costs_more_and_tells_less(points):
    little, much = of(points, "isotropic", reading="raw")
    assert little.kl.high < much.kl.low
    assert little.agreement.low > much.agreement.high
    assert little.best_attack.top1.low > much.best_attack.top1.high
    # ε is linear in Σ⁻¹, and Σ in K
    assert little.epsilon_nearest / much.epsilon_nearest == pytest.approx(2.0 / 0.05)


def test_the_quadratic_prediction_is_the_budget_and_holds_where_it_is_small(points):
    little, much = of(points, "isotropic", reading="raw")
    assert (little.predicted_kl, much.predicted_kl) == pytest.approx((0.05, 2.0))
    assert 0.5 < little.kl.value / 0.05 < 1.5


def test_readings_of_one_release_share_its_attacks(points):
    raw, denoised = of(points, "inverse-fisher", predicted_kl=pytest.approx(2.0))
    assert raw.attacks == denoised.attacks
    assert raw.kl != denoised.kl


def test_noise_read_alone_is_bayes_rule_over_what_the_model_predicts(model, prefixes, laboratory):
    raw, alone = sweep(
        model,
        [LAYER],
        request(["isotropic"], [0.5], readings=("raw", "posterior-behaviour")),
        prefixes=prefixes,
        **OPTIONS,
    )
    assert (raw.protocol, alone.protocol) == ("A", "B")
    assert alone.generated is None
    assert alone.attacks == raw.attacks
    trial = read_mechanism("isotropic").fit(laboratory, Setting(kl_budget=0.5), alone.draw)
    noisy, noise = trial.measured, trial.covariance
    public = model.states(prefixes.calibration, LAYER).double().numpy()
    gaps = ((noisy[:, None] - public[None]) ** 2).sum(axis=2) / noise.diagonal()[0]
    weights = torch.from_numpy(-0.5 * gaps).softmax(dim=1)
    mixed = weights @ model.logits(prefixes.calibration).double().softmax(dim=1)
    clean = model.logits(prefixes.held_out).double().log_softmax(dim=1)
    kl = (clean.exp() * (clean - mixed.log())).sum(dim=1).mean()
    # the model's predictions are stored in half precision
    assert alone.kl.value == pytest.approx(float(kl), rel=0.01)
    same = (clean.argmax(dim=1) == mixed.argmax(dim=1)).double().mean()
    assert alone.agreement.value == pytest.approx(float(same), abs=0.02)


def test_a_reading_belongs_to_one_protocol(points):
    content = codec.write(Point, of(points, "isotropic", reading="raw")[0])
    for reading, protocol in (("raw", "B"), ("posterior-behaviour", "A"), ("table", "A")):
        with pytest.raises(ValueError, match=r"point\.protocol"):
            codec.read(Point, content | {"reading": reading, "protocol": protocol}, "point")


def test_a_singular_design_has_no_epsilon_and_hides_nothing(points):
    for point in of(points, "generalized-eigen(1)", reading="raw"):
        assert point.rank == 1
        assert point.epsilon_nearest == math.inf
        assert point.best_attack.name == "mahalanobis"
        assert point.best_attack.top1.value == 1.0


def test_utility_is_that_of_a_plain_comparison(points, model, prefixes):
    argmax = of(points, "argmax", protocol="B")[0]
    # what codes are read off is stored in half precision, in which likeliest tokens may tie
    apart = model.logits(prefixes.held_out)
    same = apart.log_softmax(dim=-1).half().argmax(dim=-1) == apart.argmax(dim=-1)
    assert argmax.agreement.value == float(same.double().mean()) > 0.98
    assert argmax.top5.low < argmax.top5.value < 1.0
    assert 0.0 < argmax.jensen_shannon.value < argmax.kl.value
    assert argmax.kl_median.low <= argmax.kl_median.value <= argmax.kl_95.value
    logits = model.logits(prefixes.bank)
    assert argmax.rank == len(logits.argmax(dim=-1).unique())
    assert argmax.bound == pytest.approx(argmax.rank / 300, rel=1e-12)


def test_no_attack_on_a_codebook_passes_its_bound(points):
    books = [point for point in points if point.family == "codebook"]
    assert len(books) == 4
    for point in books:
        assert point.best_attack.top1.value <= point.bound
        assert point.leak == point.bound
        assert 0 <= point.information <= math.log(point.codewords) + 1e-12


def test_equal_epsilon_means_equal_epsilon(laboratory):
    for name in ("isotropic", "inverse-fisher", "mahalanobis-optimal", "worst-case", "power(0.5)"):
        design = read_mechanism(name).at(laboratory, Setting(target_epsilon=3.0))
        assert laboratory.epsilon(laboratory.nearest, design.covariance) == pytest.approx(3.0)
    with pytest.raises(ValueError, match="without noise"):
        read_mechanism("generalized-eigen(1)").fit(laboratory, Setting(target_epsilon=3.0), 0)


def test_worst_case_noise_covers_every_difference_it_is_certified_for(laboratory):
    """At one budget the loosest of all differences is no looser than under isotropic noise."""
    source = np.random.default_rng(0)
    nearest = source.standard_normal((300, laboratory.geometry.width))
    nearest[250:] *= np.linspace(1.0, 6.0, 50)[:, None]
    designs = Designs(laboratory.geometry, nearest)
    shaped, plain = (
        designs.at(name, 1.0).covariance.mahalanobis(nearest).max()
        for name in ("worst-case", "isotropic")
    )
    assert shaped < plain


def test_a_design_does_not_depend_on_which_was_computed_before(laboratory):
    alone = Designs(laboratory.geometry, laboratory.nearest)
    after = Designs(laboratory.geometry, laboratory.nearest)
    after.at("generalized-eigen(1)", 1.0)
    left, right = (designs.at("complement(2)", 1.0).covariance for designs in (alone, after))
    assert left == right
    assert left.rank == WIDTH - 2


def test_an_interrupted_sweep_loses_the_point_it_was_at(model, prefixes, points, tmp_path):
    path = tmp_path / "points.jsonl"
    names = ["isotropic", "argmax"]
    asked = {"request": request(names, [0.05, 2.0]), "prefixes": prefixes, **OPTIONS}

    def stop(_, done, __):
        if done == 3:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        sweep(model, [LAYER], run=SweepRun(out=path, progress=stop), **asked)
    assert path.read_text(encoding="utf-8").count("\n") == 3
    with open(path, "a", encoding="utf-8") as stream:
        stream.write('{"key": "cut o')
    kept = path.read_bytes()[:-14]
    whole = sweep(model, [LAYER], run=SweepRun(out=path), **asked)
    assert path.read_bytes().startswith(kept)
    assert path.read_text(encoding="utf-8").count("\n") == 6
    again = [p for p in points if p.mechanism in names]
    for left, right in zip(whole, again, strict=True):
        assert (left.kl, left.attacks, left.agreement) == (right.kl, right.attacks, right.agreement)
    before = path.read_bytes()
    assert sweep(model, [LAYER], run=SweepRun(out=path), **asked) == whole
    assert path.read_bytes() == before


def test_points_come_back_from_json(points):
    for point in points:
        text = json.dumps(codec.write(Point, point), allow_nan=False)
        assert codec.read(Point, json.loads(text), "point") == point


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("bound", 2.0),
        ("kl", {"value": 1.0, "low": 2.0, "high": 3.0, "confidence": None}),
        ("protocol", "C"),
        ("attacks", []),
        ("layer", None),
    ],
)
def test_a_point_that_is_none_is_refused(points, name, value):
    content = codec.write(Point, points[-1]) | {name: value}
    if value is None:
        del content[name]
    with pytest.raises(ValueError, match=rf"^point(\.|: .*){name}"):
        codec.read(Point, content, "point")


def test_a_file_of_something_else_is_refused(tmp_path):
    path = tmp_path / "points.jsonl"
    path.write_text('{"key": "a"}\n', encoding="utf-8")
    with pytest.raises(ValueError, match="line 1"):
        PointTable(path)
    assert path.read_text(encoding="utf-8") == '{"key": "a"}\n'


def test_columns_have_one_entry_per_point_and_attacker(points):
    table = columns(points)
    assert {len(column) for column in table.values()} == {sum(len(p.attacks) for p in points)}
    assert table["attack_top1_low"][0] <= table["attack_top1"][0]


def test_the_exact_attack_is_what_drawing_candidates_measures():
    rng = np.random.default_rng(0)
    cells, endings = rng.integers(7, size=60), rng.integers(4, size=60)
    found = cell_attack(cells, endings)
    sizes = dict(found.candidates)
    assert found.top1.value == len(np.unique(cells)) / 60
    assert sizes[60] == pytest.approx(found.top1.value)
    wins = np.empty(40_000)
    for trial in range(wins.size):
        truth = rng.integers(60)
        others = rng.permutation(np.delete(np.arange(60), truth))[:9]
        wins[trial] = 1.0 / (1 + (cells[others] == cells[truth]).sum())
    assert abs(wins.mean() - sizes[10]) < 5 * wins.std() / np.sqrt(wins.size)
    best = sum(np.bincount(endings[cells == cell]).max() for cell in np.unique(cells))
    assert found.last_token.value == best / 60


def test_an_attack_above_a_theorem_is_an_error():
    cells = np.arange(10) % 3
    certificate = certify(cells, 3)
    assert within(cell_attack(cells, cells), certificate).top1.value <= 0.3
    with pytest.raises(ArithmeticError, match="theorem"):
        within(cell_attack(np.arange(10) % 4, cells), certificate)


@pytest.mark.parametrize(
    ("change", "word"),
    [
        ({"mechanisms": ["gauss"]}, "mechanisms"),
        ({"mechanisms": []}, "mechanisms"),
        ({"mechanisms": ["pca(4)", "pca(4)"]}, "mechanisms: expected each once"),
        ({"kl_budgets": [float("nan")]}, "kl_budgets"),
        ({"kl_budgets": [-1.0]}, "kl_budgets"),
        ({"layers": [3]}, "layers"),
        ({"layers": [0]}, "layers"),
        ({"attackers": ["oracle"]}, "attackers"),
        ({"attackers": []}, "attackers"),
        ({"readings": ["squint"]}, "readings"),
        ({"epsilons": [0.0]}, "epsilons"),
        ({"codewords": [1], "mechanisms": ["codebook-fisher"]}, "codewords"),
    ],
)
def test_what_cannot_be_swept_is_refused_before_anything_is_measured(
    model, prefixes, tmp_path, change, word
):
    path = tmp_path / "points.jsonl"
    options = {"mechanisms": ["isotropic"], "kl_budgets": [1.0], **ASKED, **change}
    layers = options.pop("layers", [1])
    with pytest.raises(ValueError, match=word):
        sweep(
            model, layers, SweepRequest(**options), prefixes=prefixes, run=SweepRun(out=path),
            **OPTIONS,
        )  # fmt: skip
    assert not path.exists()
