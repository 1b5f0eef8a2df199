"""The noise drawn is the noise certified; what is saved is what may be known."""

import json
import math
from dataclasses import replace

import numpy as np
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")

from safetensors import safe_open  # noqa: E402
from safetensors.numpy import save_file  # noqa: E402
from scipy import stats  # noqa: E402

from tacit.covariance import Isotropic, ScaleMixture  # noqa: E402
from tacit.design import isotropic  # noqa: E402
from tacit.divergences import renyi_gaussians  # noqa: E402
from tacit.hidden_states import (  # noqa: E402
    Consumer,
    Differences,
    GeometryFit,
    adjacency_differences,
    designs_at_budget,
    measure_geometry,
    release,
)
from tacit.pages.words import verdict  # noqa: E402
from tacit.releases import load, load_rows, save_rows  # noqa: E402
from tacit.releases.loading import read_checked  # noqa: E402
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
        model,
        LAYER,
        prompts,
        GeometryFit(label_source="model-exact", rank=RANK, difference_scale="raw"),
        rng=0,
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
    noise = release(clean, design, rng=5).details.states.astype(np.float64) - clean
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
    assert not np.array_equal(first.details.states, second.details.states)
    assert not first.reproducible
    seeded = [release(clean, designs["isotropic"], rng=9) for _ in range(2)]
    np.testing.assert_array_equal(seeded[0].details.states, seeded[1].details.states)
    assert seeded[0].reproducible
    assert seeded[0].seed == 9


def test_guarantee_bounds_the_divergence_of_every_listed_pair(designs, differences):
    for name in ("isotropic", "inverse-fisher", "mahalanobis-optimal", "worst-case"):
        design = designs[name]
        bound = release(np.zeros((1, 12)), design, Differences(listed=differences)).guarantees[0]
        dense = design.covariance.to_dense()
        for order, epsilon in zip(bound.orders, bound.epsilons, strict=True):
            truth = max(renyi_gaussians(z, dense, np.zeros(12), dense, order) for z in differences)
            assert epsilon >= truth * (1 - 1e-9)
            assert epsilon == pytest.approx(truth, rel=1e-6)


@pytest.mark.parametrize("name", sorted(SINGULAR))
def test_singular_designs_have_no_guarantee(designs, differences, name):
    """hidden-state, Prop. 9: along a bare direction the divergence is infinite."""
    bound = release(np.zeros((1, 12)), designs[name], Differences(listed=differences)).guarantees[0]
    assert all(math.isinf(epsilon) for epsilon in bound.epsilons)
    assert math.isinf(bound.approximate(1e-5).epsilon)


def test_void_and_assumptions_are_said(designs, differences):
    fresh = release(np.zeros((1, 12)), designs["isotropic"], Differences(listed=differences))
    seeded = release(
        np.zeros((1, 12)), designs["isotropic"], Differences(listed=differences), rng=1
    )
    assert (fresh.reproducible, seeded.reproducible) == (False, True)
    assert fresh.guarantees == seeded.guarantees
    assert "the randomness is the operating system's" in fresh.all_assumptions
    assert verdict(seeded).kind == "void"
    assert release(np.zeros((1, 12)), designs["isotropic"]).guarantees == ()


def test_measured_divergence_beside_the_prediction(model, prompts, measured):
    """Small noise: the quadratic prediction holds. Large noise: the KL stops growing with it."""
    tokens = prompts.repeat(40, 1)
    run = model.continuation(tokens, LAYER)
    found = {}
    for budget in (1e-3, 30.0):
        design = isotropic(measured.fisher, budget)
        noisy = release(
            run.clean_states,
            design,
            consumer=Consumer(continuation=run, fisher=measured.fisher),
            rng=0,
        )
        found[budget] = noisy.details.utility
        assert noisy.details.utility.predicted == pytest.approx(budget)
    small, large = found[1e-3], found[30.0]
    assert abs(small.kl - 1e-3) < 5 * small.kl_error + 0.02e-3
    assert small.kl_error < 0.05e-3
    assert large.ratio < 0.5
    assert small.agreement > 0.9 > 0.5 > large.agreement


def test_save_and_load(designs, differences, model, prompts, tmp_path):
    run = model.continuation(prompts, LAYER)
    for i, (name, design) in enumerate(designs.items()):
        noisy = release(
            run.clean_states,
            design,
            Differences(listed=differences),
            consumer=Consumer(continuation=run),
            rng=3,
        )
        path = tmp_path / f"{i}.safetensors"
        save_rows(noisy, path)
        back = load_rows(path)
        assert back == noisy, name
        assert (back.reproducible, back.seed) == (True, 3)
        assert back.use[0].name == "agreement"
        held = back.details
        np.testing.assert_array_equal(held.states, noisy.details.states)
        assert held.states.dtype == np.float32
        assert held.covariance == design.covariance
        assert held.cost == pytest.approx(BUDGET, rel=1e-12)
        assert held.utility is None
        save_rows(noisy.public(), path)
        with safe_open(path, framework="np") as file:
            names = set(file.keys())
            metadata = json.loads(file.metadata()["tacit"])
        assert {n for n in names if not n.startswith("covariance.")} == {"states"}
        # what was measured with the clean states stays with their holder
        told = metadata["release"]
        assert told["use"] == told["attacks"] == []
        assert told["provenance"] is told["details"]["origin"] is None
        assert load(path).guarantees == noisy.guarantees
    # nothing clean
    clean = run.clean_states.numpy()
    assert not any((held.states == row).all(axis=1).any() for row in clean)
    assert not list(tmp_path.glob(".*.tmp"))


def test_half_written_is_never_there(designs, tmp_path):
    noisy = release(np.zeros((1, 12)), designs["isotropic"])
    with pytest.raises(ValueError, match="path"):
        save_rows(noisy, tmp_path / "missing" / "x.safetensors")
    assert not (tmp_path / "missing").exists()
    other = tmp_path / "other.safetensors"
    other.write_bytes(b"not a tensor")
    for path in (other, tmp_path / "none"):
        with pytest.raises(ValueError, match="release: "):
            load_rows(path)
    with pytest.raises(ValueError, match="rows to write"):
        save_rows(load(noisy.to_dict()), tmp_path / "bare.safetensors")
    whole = tmp_path / "whole.safetensors"
    save_rows(noisy, whole)
    cut = tmp_path / "cut.safetensors"
    cut.write_bytes(whole.read_bytes()[:-8])
    with pytest.raises(ValueError, match="holds no release"):
        load_rows(cut)


def test_what_a_file_says_of_its_noise_is_held_against_it(designs, differences, tmp_path):
    """Σ, its arrays and ε are in the file: each is refused where another contradicts it."""
    place = tmp_path / "states.safetensors"
    noisy = release(np.zeros((2, 12)), designs["worst-case"], Differences(listed=differences))
    save_rows(noisy, place)
    with safe_open(place, framework="np") as file:
        metadata = json.loads(file.metadata()["tacit"])
        tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    assert read_checked(place).unchecked == "the differences that ε is about are not in the file"
    array = min(set(tensors) - {"states"})
    told = metadata["release"]
    (guarantee,) = told["guarantees"]
    epsilons = [1e-3, *guarantee["epsilons"][1:]]
    none = {"type": "isotropic", "variance": 0.0, "dim": 12}

    def rewritten(changed=None, more=None, **release):
        content = json.dumps({**metadata, **(more or {}), "release": {**told, **release}})
        save_file({**tensors, **(changed or {})}, place, {"tacit": content})

    for change, message in (
        ({"changed": {array: tensors[array] + 1e-9}}, "not the one that was certified"),
        ({"changed": {"clean": tensors["states"]}}, "beside the rows"),
        ({"more": {"parts": {}}}, "beside the rows"),
        ({"changed": {"states": tensors["states"] + 1}}, "not those that were certified"),
        ({"guarantees": [{**guarantee, "epsilons": epsilons}]}, "no Gaussian noise has these"),
        ({"guarantees": [{**guarantee, "assumptions": []}]}, "assumptions were removed"),
        ({"guarantees": [guarantee, guarantee]}, "two guarantees"),
        ({"title": "two states"}, "title"),
        ({"details": {**told["details"], "rows": 3}}, "title"),
        ({"details": {**told["details"], "noise": none}}, "claims a finite ε|fields do not fit"),
        ({"details": {**told["details"], "noise": {}}}, "type"),
        ({"digests": [["bank", "0" * 64]]}, "digests"),
    ):
        rewritten(**change)
        with pytest.raises(ValueError, match=message):
            load(place)
    bare = release(np.zeros((2, 12)), designs["isotropic"], Differences(listed=differences))
    stored = bare.to_dict()
    with pytest.raises(ValueError, match="no noise and claims a finite ε"):
        load({**stored, "details": {**stored["details"], "noise": none}})


@pytest.mark.parametrize(
    ("change", "name"),
    [
        ({"states": [[1.0]]}, "states"),
        ({"states": [[float("nan")] * 12]}, "states"),
        ({"states": "x"}, "states"),
        ({"design": None}, "design"),
        ({"promise": Differences(listed=[[1.0]])}, "differences"),
        ({"promise": Differences(listed=[[float("inf")] * 12])}, "differences"),
        ({"promise": Differences(listed=np.ones((1, 12)), orders=[0.5])}, "orders"),
        ({"promise": np.ones((1, 12))}, "promise"),
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
    from tacit.hidden_states import prepare_states

    prepared = prepare_states([[1.0, 2.0]], isotropic([1.0, 1.0], 4.0))
    book = Ledger(tmp_path / "ledger.db")
    with pytest.raises(ValueError, match="ledger: expected a release with a guarantee"):
        prepared.draw(ledger=book, secret="prompts")
    assert book.entries("prompts") == ()
