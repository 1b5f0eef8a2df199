"""The hidden-state experiments: comparison at equal KL, the paper's rows, verdicts and tables."""

from __future__ import annotations

import importlib
import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

from tacit import codec  # noqa: E402
from tacit.hidden_states import Bench, Point, Sizes, SweepRequest  # noqa: E402
from tacit.models import Prefixes, load  # noqa: E402

ROOT = Path(__file__).resolve().parents[1]
RESULTS = ROOT / "experiments" / "results"
BANK = 300


@pytest.fixture(scope="module")
def shared() -> Any:
    """Import a module that the experiments share."""
    return lambda name: importlib.import_module(f"tacit_lab.studies.hidden.{name}")


@pytest.fixture(scope="module")
def bench() -> Any:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    torch.manual_seed(5)
    sizes = {"vocab_size": 40, "n_embd": 16, "n_layer": 2, "n_head": 2, "n_positions": 16}
    network = transformers.GPT2LMHeadModel(transformers.GPT2Config(**sizes))
    with torch.no_grad():
        for parameter in network.parameters():
            if parameter.ndim == 2:
                parameter.mul_(8.0)
    stream = np.random.default_rng(1).integers(40, size=6000)
    prefixes = Prefixes.draw(stream, bank=BANK, calibration=300, held_out=150, length=6, rng=0)
    wanted = Sizes(
        geometry=100, pairs=50, prompts=150, generated=0, queries=100, held_out=40, trained=100
    )
    yield Bench(load(network), prefixes, wanted, 3)
    torch.set_num_threads(threads)


@pytest.fixture(scope="module")
def measured(shared: Any, bench: Bench, tmp_path_factory: pytest.TempPathFactory) -> Any:
    """Return the scale, the file of points and the result of both layers of a tiny model."""
    scale = shared("measure").LayerScale(
        bank=BANK, calibration=300, sizes=bench.sizes, budgets=(0.02, 0.5, 8.0),
        coarse=(0.02, 8.0), targets=(0.1,), exponents=(0.5,), epsilons=(16.0,),
        codewords=(16,), books=("codebook-euclidean", "argmax"),
    )  # fmt: skip
    path = tmp_path_factory.mktemp("layers") / "points.jsonl"
    rows, facts = [], []
    for layer in (1, 2):
        facts.append(shared("measure").geometry_facts(bench.at(layer), scale.exponents))
        rows += _measure(shared, scale, bench, layer, path)
    result = {
        "experiment": "hidden-layers", "model": "tiny", "recipe": None, "texts": "random tokens",
        "length": 6, "bank": BANK, "calibration": 300, "prompts": 150, "queries": 100,
        "targets": [0.1], "epsilons": [16.0], "layers": facts, **shared("rows").packed(rows),
    }  # fmt: skip
    return scale, path, json.loads(json.dumps(result, allow_nan=False))


def _measure(shared: Any, scale: Any, bench: Bench, layer: int, path: Path) -> Any:
    return shared("measure").measure_layer(
        layer, scale, bench, out=path,
        progress=lambda label: None,
    )  # fmt: skip


def test_published_rows_say_what_the_paper_prints(shared: Any) -> None:
    published = shared("published")
    assert len(published.rows()) == 1536
    assert published.inside() == published.inside(0.2) == []
    early = published.inside(0.1)
    assert {(row.model, row.sigma) for row in early} == {("gpt2", 5.0)}
    assert sorted((row.layer, row.mechanism) for row in early) == [
        (0, "mahalanobis_opt"),
        (1, "isotropic"),
        (1, "mahalanobis_opt"),
    ]
    diagonal = published.rows("fisher_diag_inv", 5.0)
    assert len(diagonal) == 32
    assert max(row.attack for row in diagonal) <= 0.001
    best = published.best_exponents("signal")
    assert (sum(alpha >= 0.5 for alpha in best), best.count(1.0), len(best)) == (27, 1, 32)


def test_published_rows_refute_what_they_are_printed_for(shared: Any) -> None:
    """α = 1 is nowhere the least attack, and G_Mah leaves the range that is printed for it."""
    published = shared("published")
    assert 1.0 not in published.best_exponents("attack")
    assert published.gains("mahalanobis_gain")[0] < 1.7


def _row(shared: Any, **changes: Any) -> Any:
    row = shared("rows").NoiseRow(
        layer=1, mechanism="isotropic", kind="kl", level=1.0, reading="raw", protocol="A",
        kl=1.0, kl_low=0.9, kl_high=1.1, agreement=0.4, agreement_low=0.3, agreement_high=0.5,
        attacker="euclidean", attack=0.8, attack_low=0.7, attack_high=0.9,
        euclidean=0.8, mahalanobis=0.8, nearest=4.0, random=1.0, bound=None,
    )  # fmt: skip
    return replace(row, **changes)


def _curve(shared: Any, factor: float, **changes: Any) -> list[Any]:
    """Rows whose attack is a function of K/factor alone, linear in its logarithm."""
    rows = []
    for level in (0.25, 0.5, 1.0, 2.0, 4.0, 8.0):
        attack = 0.5 - 0.1 * math.log(level / factor)
        ends = {"attack": attack, "attack_low": attack - 0.02, "attack_high": attack + 0.02}
        rows.append(_row(shared, level=level, kl=0.3 * level**0.7, **ends, **changes))
    return rows


def test_equal_kl_is_exact_where_the_attack_is_linear_in_its_logarithm(shared: Any) -> None:
    equal = shared("equal")
    rows = _curve(shared, 1.0)
    level = 1.3
    found = equal.at_kl(rows[::-1], 0.3 * level**0.7)
    assert found.attack == pytest.approx(0.5 - 0.1 * math.log(level), rel=1e-12)
    assert found.high - found.low == pytest.approx(0.04, rel=1e-9)
    assert equal.at_kl(rows, 5.0) is None
    assert equal.budgets_for(rows, (0.01, 0.3 * level**0.7, 5.0)) == [level]


def test_the_gain_is_the_factor_between_two_budgets(shared: Any) -> None:
    equal = shared("equal")
    base, own = _curve(shared, 3.0), _curve(shared, 1.25)
    assert equal.gain(base, own, 0.5) == pytest.approx(3.0 / 1.25, rel=1e-12)
    assert equal.gain(base, own, 0.5, along="kl") == pytest.approx((3.0 / 1.25) ** 0.7, rel=1e-12)
    assert equal.gain(base, own, 0.95) is None


def test_order_two_inverts_the_published_conversion(shared: Any) -> None:
    measure = shared("measure")
    for epsilon in (1.0, 3.0, 8.0, 16.0):
        signal = measure.order_two(epsilon)
        converted = min(
            0.5 * order * signal + math.log(1e6) / (order - 1)
            for order in (2, 4, 8, 16, 32, 64, 128)
        )
        assert converted == pytest.approx(epsilon, rel=1e-12)


def test_rows_come_back_to_five_digits(shared: Any) -> None:
    rows = shared("rows")
    row = _row(shared, nearest=math.inf, bound=None, kl=0.123456789)
    content = json.loads(json.dumps(rows.packed([row]), allow_nan=False))
    assert rows.unpacked(content) == [replace(row, kl=0.12346)]


def _verdict(shared: Any, rows: list[Any], name: str) -> Any:
    study = shared("study").HiddenStudy(
        {"targets": [0.5], "layers": [{"layer": 1}], **shared("rows").packed(rows)}
    )
    return getattr(shared("verdicts"), name)(study)


def test_a_denoised_release_in_the_middle_leaves_the_claim_to_raw_states(shared: Any) -> None:
    raw = _row(shared)
    read = replace(raw, reading="posterior-mean")
    inside = {"agreement": 0.6, "attack": 0.4}
    words = [
        _verdict(shared, rows, "empty_middle").word
        for rows in (
            [raw, read],
            [raw, replace(read, **inside)],
            [replace(raw, **inside), read],
        )
    ]
    assert words == ["holds", "holds only for raw states", "does not hold"]


def test_the_diagonal_release_wins_only_with_intervals_apart(shared: Any) -> None:
    base = _curve(shared, 3.0)
    words = [
        _verdict(
            shared, base + _curve(shared, factor, mechanism="inverse-fisher-diagonal"),
            "diagonal_wins",
        ).word
        for factor in (1.0, 2.7, 9.0)
    ]  # fmt: skip
    assert words == ["holds", "does not hold", "does not hold"]


def test_predicted_gains_are_mean_signals_over_pairs_of_prompts(shared: Any, bench: Bench) -> None:
    laboratory = bench.at(1)
    facts = shared("measure").geometry_facts(laboratory, (0.5,))
    states = laboratory.calibration[: bench.sizes.geometry].double().numpy()
    pairs = (states[:, None] - states[None]).reshape(-1, states.shape[1])
    signals = {}
    for name in ("isotropic", "inverse-fisher", "mahalanobis-optimal", "power(0.5)"):
        covariance = laboratory.designs.at(name, 1.0).covariance.to_dense()
        factor = np.linalg.cholesky(covariance)
        signals[name] = (np.linalg.solve(factor, pairs.T) ** 2).sum(axis=0).mean()
    for name, signal in signals.items():
        expected = signals["isotropic"] / signal
        # states in float32, read in batches of two sizes
        assert facts["predicted_gain"][name] == pytest.approx(expected, rel=1e-6)
    assert max(facts["predicted_gain"].values()) <= facts["mahalanobis_gain"] * 1.01


def test_a_layer_is_resumed_and_its_budgets_solved_for(
    shared: Any, bench: Bench, measured: Any
) -> None:
    scale, path, result = measured
    before = path.read_bytes()
    again = [row for layer in (1, 2) for row in _measure(shared, scale, bench, layer, path)]
    assert path.read_bytes() == before
    assert shared("rows").packed(again)["rows"] == result["rows"]
    study = shared("study").HiddenStudy(result)
    solved = {row.level for row in study.raw} - set(scale.budgets)
    assert solved
    for facts in result["layers"]:
        nearest = min(study.curve(facts["layer"], "isotropic"), key=lambda r: abs(r.kl - 0.1))
        grid = [r for r in study.curve(facts["layer"], "isotropic") if r.level in scale.budgets]
        assert abs(nearest.kl - 0.1) < min(abs(r.kl - 0.1) for r in grid)


def test_verdicts_tables_and_figure_come_from_a_result(
    shared: Any, measured: Any, tmp_path: Path
) -> None:
    *_, result = measured
    found = shared("verdicts").verdicts(result)
    assert {verdict.word for verdict in found} <= {
        "holds", "does not hold", "holds only for raw states", "holds in part",
    }  # fmt: skip
    lines = shared("layers_page").lines(result)
    for verdict in found:
        assert any(verdict.found in line and verdict.word in line for line in lines)
    widths = [line.count(" | ") for line in lines if line.startswith("| ")]
    assert min(widths) >= 2
    first, second = tmp_path / "layers.svg", tmp_path / "again" / "layers.svg"
    second.parent.mkdir()
    for path in (first, second):
        shared("figure").draw(result, path)
    assert first.read_bytes() == second.read_bytes()


def test_the_section_on_the_empty_middle_has_every_release(shared: Any, bench: Bench) -> None:
    page = shared("middle_page")
    request = SweepRequest(
        mechanisms=["isotropic", "codebook-euclidean"], kl_budgets=[0.05, 2.0], codewords=[8],
        readings=("raw", "wiener"),
    )  # fmt: skip
    points = bench.sweep([1], request)
    result = {
        "model": "tiny", "recipe": None, "texts": "random tokens", "layer": 1, "bank": BANK,
        "calibration": 300, "points": [codec.write(Point, point) for point in points],
        "claims": [{"claim": "any", "found": "0 of 1", "holds": False}],
    }  # fmt: skip
    lines = page.lines(json.loads(json.dumps(result)))
    assert "| any | 0 of 1 | **does not hold** |" in lines
    noise = [line for line in lines if line.startswith("| isotropic |")]
    assert len(noise) == 2
    for line, budget in zip(noise, (0.05, 2.0), strict=True):
        own = [point for point in points if point.kl_budget == budget]
        for point in own:
            assert f"{point.agreement.value:.3f} / {point.kl.value:.2f}" in line
    (book,) = [line for line in lines if line.startswith("| states, Euclidean |")]
    bound = next(point.bound for point in points if point.bound is not None)
    assert float(book.split(" | ")[2]) >= bound


@pytest.mark.parametrize("name", ["hidden-layers", "empty-middle"])
def test_a_published_result_keeps_its_bounds(shared: Any, name: str) -> None:
    path = RESULTS / f"{name}.json"
    if not path.is_file():
        pytest.skip(f"{name} was not run")
    result = json.loads(path.read_text(encoding="utf-8"))
    if name == "hidden-layers":
        assert path.stat().st_size < 500_000
        rows = shared("rows").unpacked(result)
    else:
        points = (codec.read(Point, entry, "point") for entry in result["points"])
        rows = [shared("rows").row(point) for point in points]
    assert rows
    assert all(row.attack <= row.bound * (1 + 1e-4) for row in rows if row.bound is not None)
    assert all(row.kl_low <= row.kl <= row.kl_high for row in rows)


def test_codes_of_trajectories_stand_beside_noise_at_their_kl(shared: Any) -> None:
    """The usual codes of an audit, each with isotropic noise scaled to its measured KL."""
    path = ROOT / "experiments" / "results" / "inversion.json"
    result = json.loads(path.read_text(encoding="utf-8"))
    noise = {row["level_of"]: row for row in result["rows"] if "level_of" in row}
    codes = {row["release"]: row for row in result["rows"] if "size" in row}
    assert noise.keys() == codes.keys() == {"codes", "behaviour codes", "likeliest token"}
    lines = shared("inversion_page").trajectories(result)
    for name, row in codes.items():
        assert noise[name]["measured_kl"] == pytest.approx(row["measured_kl"], rel=5e-3)
        assert noise[name]["queries"] == row["queries"] == result["prompts"]
        told = f"C = {row['size']:,} | {row['measured_kl']:.2f} | 1 |"
        assert sum(told in line for line in lines) == 1
        assert row["baselines"]["permuted"]["token_accuracy"]["value"] < 0.1
