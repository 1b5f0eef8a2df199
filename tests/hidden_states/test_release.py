"""The noise drawn is the noise certified; what is saved is what may be known."""

import json
import math
from dataclasses import replace

import numpy as np
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")

from safetensors import safe_open  # noqa: E402
from scipy import stats  # noqa: E402

from tacit.covariance import Isotropic, ScaleMixture  # noqa: E402
from tacit.design import isotropic  # noqa: E402
from tacit.divergences import renyi_gaussians  # noqa: E402
from tacit.hidden_states.geometry.estimation import measure_geometry  # noqa: E402
from tacit.hidden_states.geometry.spread import adjacency_differences  # noqa: E402
from tacit.hidden_states.noise.designs import designs_at_budget  # noqa: E402
from tacit.hidden_states.noise.release import HiddenRelease, release  # noqa: E402
from tests.hidden_states.networks import small_network  # noqa: E402

LAYER, RANK, BUDGET, VOCABULARY = 1, 4, 0.3, 23
SINGULAR = {
    "complement",
    "fisher-complement",
    "generalized-eigen(1)",
    "generalized-eigen(4)",
}


@pytest.fixture(scope="module")
def model():
    return small_network("llama", vocabulary=VOCABULARY)


@pytest.fixture(scope="module")
def prompts():
    return torch.randint(VOCABULARY, (60, 6), generator=torch.Generator().manual_seed(1))


@pytest.fixture(scope="module")
def measured(model, prompts):
    return measure_geometry(
        model, LAYER, prompts, label_source="model-exact", rank=RANK, difference_scale="raw", rng=0
    )


@pytest.fixture(scope="module")
def differences(model, prompts):
    return adjacency_differences(model.states(prompts, LAYER), 30, rng=0)


@pytest.fixture(scope="module")
def designs(measured, differences):
    return designs_at_budget(measured, BUDGET, differences=differences)


def test_every_design_spends_the_budget(designs, measured):
    assert len(designs) == 11
    for name, design in designs.items():
        dense = design.covariance.to_dense()
        assert 0.5 * np.trace(measured.fisher @ dense) == pytest.approx(BUDGET, rel=1e-9), name
        assert design.cost == pytest.approx(BUDGET, rel=1e-12)
    assert {n for n, d in designs.items() if d.rank < measured.width} == SINGULAR


def test_optimal_designs_are_least_in_their_measure(designs, measured, differences):
    full = {name: d for name, d in designs.items() if name not in SINGULAR}
    average = {n: np.trace(measured.spread @ inverse(d)) for n, d in full.items()}
    assert min(average, key=average.get) == "mahalanobis-bare"
    # G_Mah is isotropic noise's average over the least one, up to the ridge
    gain = average["isotropic"] / average["mahalanobis-bare"]
    assert gain == pytest.approx(measured.mahalanobis_gain, rel=0.05)
    worst = {n: d.covariance.mahalanobis(differences).max() for n, d in full.items()}
    # the floor costs the worst-case design its few per cent
    assert worst["worst-case"] <= 1.05 * min(worst.values())
    ridged = np.linalg.inv(measured.ridged_fisher)
    ball = {n: np.linalg.eigvals(inverse(d) @ ridged).real.max() for n, d in full.items()}
    assert min(ball, key=ball.get) == "inverse-fisher"


def inverse(design):
    return np.linalg.inv(design.covariance.to_dense())


@pytest.mark.parametrize("name", ["isotropic", "mahalanobis-optimal", "worst-case", "complement"])
def test_the_drawn_noise_has_the_certified_covariance(designs, measured, name):
    """Along fixed directions n v̂ar/var is χ²; a wrong scale or a wrong shape fails."""
    design = designs[name]
    count = 4000
    scale = math.sqrt(design.covariance.trace())
    clean = np.full((count, measured.width), 3.0 * scale)
    noise = release(clean, design, rng=5).states.astype(np.float64) - clean
    dense = design.covariance.to_dense()
    directions = np.random.default_rng(0).normal(size=(6, measured.width))
    directions = np.vstack([directions, measured.vectors.T[[0, -1]]])
    variances = np.einsum("kd,de,ke->k", directions, dense, directions)
    found = ((noise @ directions.T) ** 2).sum(axis=0)
    noisy = variances > 1e-9 * dense.max()
    assert name == "complement" or noisy.all()
    level = 1e-4
    low, high = stats.chi2.ppf([level, 1 - level], count)
    assert ((found / variances)[noisy] > low).all()
    assert ((found / variances)[noisy] < high).all()
    assert ((1.2 * found / variances)[noisy] > high).all()
    assert np.sqrt(found[~noisy] / count).max(initial=0.0) < 1e-5 * scale
    shape = noise.T @ noise / count
    assert np.linalg.norm(shape - dense) < 0.1 * np.linalg.norm(dense)


def test_noise_without_a_seed_is_fresh(designs):
    clean = np.zeros((3, 12))
    first, second = (release(clean, designs["isotropic"]) for _ in range(2))
    assert not np.array_equal(first.states, second.states)
    assert not first.reproducible
    seeded = [release(clean, designs["isotropic"], rng=9) for _ in range(2)]
    np.testing.assert_array_equal(seeded[0].states, seeded[1].states)
    assert seeded[0].reproducible
    assert seeded[0].seed == 9


def test_guarantee_bounds_the_divergence_of_every_listed_pair(designs, differences):
    for name in ("isotropic", "inverse-fisher", "mahalanobis-optimal", "worst-case"):
        design = designs[name]
        bound = release(np.zeros((1, 12)), design, differences=differences).guarantee
        dense = design.covariance.to_dense()
        for order, epsilon in zip(bound.orders, bound.epsilons, strict=True):
            truth = max(renyi_gaussians(z, dense, np.zeros(12), dense, order) for z in differences)
            assert epsilon >= truth * (1 - 1e-9)
            assert epsilon == pytest.approx(truth, rel=1e-6)


@pytest.mark.parametrize("name", sorted(SINGULAR))
def test_singular_designs_have_no_guarantee(designs, differences, name):
    """hidden-state, Prop. 9: along a bare direction the divergence is infinite."""
    bound = release(np.zeros((1, 12)), designs[name], differences=differences).guarantee
    assert all(math.isinf(epsilon) for epsilon in bound.epsilons)
    assert math.isinf(bound.approximate(1e-5).epsilon)


def test_void_and_assumptions_are_said(designs, differences):
    fresh = release(np.zeros((1, 12)), designs["isotropic"], differences=differences)
    seeded = release(np.zeros((1, 12)), designs["isotropic"], differences=differences, rng=1)
    assert not any("VOID" in text for text in fresh.guarantee.assumptions)
    assert any("VOID" in text for text in seeded.guarantee.assumptions)
    assert release(np.zeros((1, 12)), designs["isotropic"]).guarantee is None


def test_measured_divergence_beside_the_prediction(model, prompts, measured):
    """Small noise: the quadratic prediction holds. Large noise: the KL stops growing with it."""
    tokens = prompts.repeat(40, 1)
    run = model.continuation(tokens, LAYER)
    found = {}
    for budget in (1e-3, 30.0):
        design = isotropic(measured.fisher, budget)
        noisy = release(run.clean_states, design, fisher=measured.fisher, continuation=run, rng=0)
        found[budget] = noisy.utility
        assert noisy.utility.predicted == pytest.approx(budget)
    small, large = found[1e-3], found[30.0]
    assert abs(small.kl - 1e-3) < 5 * small.kl_error + 0.02e-3
    assert small.kl_error < 0.05e-3
    assert large.ratio < 0.5
    assert small.agreement > 0.9 > 0.5 > large.agreement


def test_save_and_load(designs, differences, model, prompts, tmp_path):
    run = model.continuation(prompts, LAYER)
    for i, (name, design) in enumerate(designs.items()):
        noisy = release(run.clean_states, design, differences=differences, continuation=run, rng=3)
        path = tmp_path / f"{i}.safetensors"
        noisy.save(path)
        back = HiddenRelease.load(path)
        np.testing.assert_array_equal(back.states, noisy.states)
        assert back.states.dtype == np.float32
        assert back.guarantee == noisy.guarantee, name
        assert back.design.covariance == design.covariance
        assert (back.reproducible, back.seed, back.created) == (True, 3, noisy.created)
        assert back.utility is None
        with safe_open(path, framework="np") as file:
            names = set(file.keys())
            metadata = json.loads(file.metadata()["tacit"])
        assert {n for n in names if not n.startswith("covariance.")} == {"states"}
        assert "utility" not in metadata
    # nothing clean
    clean = run.clean_states.numpy()
    assert not any((back.states == row).all(axis=1).any() for row in clean)
    assert not list(tmp_path.glob(".*.tmp"))


def test_half_written_is_never_there(designs, tmp_path):
    noisy = release(np.zeros((1, 12)), designs["isotropic"])
    with pytest.raises(ValueError, match="path"):
        noisy.save(tmp_path / "missing" / "x.safetensors")
    assert not (tmp_path / "missing").exists()
    other = tmp_path / "other.safetensors"
    other.write_bytes(b"not a tensor")
    for path in (other, tmp_path / "none"):
        with pytest.raises(ValueError, match="path"):
            HiddenRelease.load(path)
    whole = tmp_path / "whole.safetensors"
    noisy.save(whole)
    cut = tmp_path / "cut.safetensors"
    cut.write_bytes(whole.read_bytes()[:-8])
    with pytest.raises(ValueError, match="path"):
        HiddenRelease.load(cut)


@pytest.mark.parametrize(
    ("change", "name"),
    [
        ({"states": [[1.0]]}, "states"),
        ({"states": [[float("nan")] * 12]}, "states"),
        ({"states": "x"}, "states"),
        ({"design": None}, "design"),
        ({"differences": [[1.0]]}, "differences"),
        ({"differences": [[float("inf")] * 12]}, "differences"),
        ({"differences": np.ones((1, 12)), "orders": [0.5]}, "orders"),
        ({"fisher": np.eye(12)}, "fisher"),
        ({"rng": "x"}, "rng"),
        ({"rng": -1}, "rng"),
    ],
)
def test_refusals(designs, change, name):
    arguments = {"states": np.zeros((2, 12)), "design": designs["isotropic"], **change}
    with pytest.raises(ValueError, match=rf"^{name}"):
        release(**arguments)


def test_scale_mixtures_and_huge_noise_are_refused():
    base = isotropic([1.0, 1.0], 1.0)
    mixture = ScaleMixture(base.covariance, (0.5, 1.5), (0.5, 0.5))
    with pytest.raises(ValueError, match="Gaussian"):
        release(np.zeros((1, 2)), replace(base, noise=mixture))
    with pytest.raises(ValueError, match="float32"):
        release(np.zeros((9, 2)), replace(base, covariance=Isotropic(1e90, 2)))


@pytest.mark.parametrize(
    ("change", "name"),
    [
        ({"kl_budget": 0.0}, "kl_budget"),
        ({"kl_budget": float("nan")}, "kl_budget"),
        ({"geometry": None}, "geometry"),
        ({"rank": 12}, "rank"),
        ({"exponent": "x"}, "exponent"),
        ({"floor": -1.0}, "floor"),
        ({"differences": np.zeros((2, 12))}, "differences"),
        ({"differences": np.zeros((2, 3))}, "differences"),
    ],
)
def test_design_refusals(measured, change, name):
    arguments = {"geometry": measured, "kl_budget": 1.0, **change}
    with pytest.raises(ValueError, match=rf"^{name}"):
        designs_at_budget(**arguments)


def test_a_release_without_a_guarantee_spends_from_no_ledger(tmp_path):
    from tacit import Ledger
    from tacit.design import isotropic
    from tacit.hidden_states import prepare_states

    prepared = prepare_states([[1.0, 2.0]], isotropic([1.0, 1.0], 4.0))
    book = Ledger(tmp_path / "ledger.db")
    with pytest.raises(ValueError, match="ledger: expected a release with a guarantee"):
        prepared.draw(ledger=book, secret="prompts")
    assert book.entries("prompts") == ()
