"""Defences without noise against direct computation, as mechanisms and before an inverter."""

from __future__ import annotations

import numpy as np
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")

from tacit.attacks import retrieve  # noqa: E402
from tacit.hidden_states import (  # noqa: E402
    Principal,
    Product,
    RandomProjection,
    Rotation,
    Sizes,
    StoredRelease,
    SweepRequest,
    read_mechanism,
    sweep,
)
from tacit.hidden_states.defences.stored import Rotated  # noqa: E402
from tacit.models import Prefixes  # noqa: E402
from tests.hidden_states.networks import small_network  # noqa: E402

WIDTH = 8
WORDS = {
    "pca(4)": Principal(4),
    "projection(4)": RandomProjection(4),
    "product(4,32)": Product(4, 32),
    "product(2,16)": Product(2, 16),
    "rotation": Rotation(),
}


@pytest.fixture(scope="module")
def states():
    source = np.random.default_rng(0)
    return source.normal(size=(500, WIDTH)) @ source.normal(size=(WIDTH, WIDTH)) + 1.0


@pytest.mark.parametrize("word", WORDS)
def test_a_word_names_a_value(word):
    assert read_mechanism(word) == WORDS[word]
    assert WORDS[word].name == word


def test_components_and_what_is_rebuilt_are_those_of_the_singular_vectors(states):
    stored = Principal(3).learn(states, 0)
    mean = states.mean(axis=0)
    _, _, axes = np.linalg.svd(states - mean, full_matrices=False)
    direct = (states - mean) @ axes[:3].T
    kept = stored.store(states)
    assert kept.shape == (500, 3)
    np.testing.assert_allclose(np.abs(kept), np.abs(direct), atol=1e-5)
    np.testing.assert_allclose(stored.rebuild(kept), mean + direct @ axes[:3], atol=1e-5)


def test_the_attack_on_components_is_the_one_on_projected_states(states):
    stored = Principal(3).learn(states[:250], 0)
    (game,) = stored.games(states[:250], stored.store(states[250:]), ())
    _, _, axes = np.linalg.svd(states[:250] - states[:250].mean(axis=0), full_matrices=False)
    near = states[250:] + 0.3 * np.random.default_rng(1).normal(size=(250, WIDTH))
    found = retrieve(
        game.of_states(near), game.of_releases(stored.store(states[250:])), np.arange(250)
    )
    direct = retrieve(near @ axes[:3].T, states[250:] @ axes[:3].T, np.arange(250))
    assert 0.05 < direct.top1 < 0.95
    assert found.top1 == pytest.approx(direct.top1, abs=1.5 / 250)


def test_all_components_and_as_many_projections_lose_nothing(states):
    for defence in (Principal(WIDTH), RandomProjection(WIDTH), Rotation()):
        stored = defence.learn(states, 3)
        np.testing.assert_allclose(stored.rebuild(stored.store(states)), states, atol=1e-3)


def test_a_product_code_is_the_nearest_centroid_of_each_part(states):
    stored = Product(4, 16).learn(states, 0)
    kept = stored.store(states)
    for part in range(4):
        columns = slice(2 * part, 2 * part + 2)
        centroids = stored.book.parts[part].double().numpy()
        distances = ((states[:, None, columns] - centroids) ** 2).sum(axis=2)
        direct = centroids[distances.argmin(axis=1)]
        np.testing.assert_allclose(kept[:, columns], direct, atol=1e-6)


def test_a_rotation_is_orthogonal_and_another_one_for_another_seed():
    one, other = (Rotated.draw(WIDTH, seed).rotation for seed in (1, 2))
    np.testing.assert_allclose(one @ one.T, np.eye(WIDTH), atol=1e-12)
    assert np.abs(one - other).max() > 0.1


def test_a_rotation_is_drawn_uniformly():
    count, source = 4000, np.random.default_rng(0)
    draws = np.stack([Rotated.draw(3, seed).rotation for seed in range(count)])
    # E[Q] = 0 with entries of variance 1/3; signs as a decomposition leaves them do not have it
    limit = 5.0 / np.sqrt(3 * count)
    assert np.abs(draws.mean(axis=0)).max() < limit
    left = np.linalg.qr(source.normal(size=(count, 3, 3)))[0]
    assert np.abs(left.mean(axis=0)).max() > limit
    squares = np.trace(draws, axis1=1, axis2=2) ** 2
    assert abs(squares.mean() - 1.0) < 5.0 * squares.std() / np.sqrt(count)


@pytest.mark.parametrize("pairs", [0, 3, WIDTH])
def test_what_the_attacker_simulates_is_what_it_sees(states, pairs):
    release = StoredRelease(Rotation().learn(states, 1), states, pairs)
    given = torch.from_numpy(states[300:])
    drawn = release.draw(given)
    assert drawn.shape[1] == (WIDTH if pairs == WIDTH else pairs + 1)
    np.testing.assert_allclose(release.seen(given), drawn, atol=2e-5 * np.abs(drawn).max())
    np.testing.assert_allclose(release.rebuilt(given), given, atol=1e-5)


def test_a_sweep_measures_use_and_every_attacker_and_certifies_nothing(tmp_path):
    model = small_network(vocabulary=30, width=WIDTH)
    stream = np.random.default_rng(4).integers(30, size=2000)
    prefixes = Prefixes.draw(stream, bank=60, calibration=60, held_out=24, length=5, rng=0)
    sizes = Sizes(geometry=40, pairs=20, prompts=24, generated=4, queries=30, held_out=20,
                  trained=40, least_cell=1)  # fmt: skip
    request = SweepRequest(mechanisms=list(WORDS.values()), kl_budgets=[0.5])
    points = sweep(model, [1], request, prefixes=prefixes, sizes=sizes, rng=1)
    found = {point.mechanism: point for point in points}
    assert set(found) == set(WORDS)
    assert all(point.bound is None for point in points)
    turned = found["rotation"]
    assert turned.kl.value < 1e-6
    assert turned.agreement.value == 1.0
    named = {attack.name: attack.top1.value for attack in turned.attacks}
    assert set(named) == {
        "no pair", "8 known pairs", "32 known pairs", "no pair, a public population",
    }  # fmt: skip
    assert named["8 known pairs"] == named["no pair"] == 1.0


@pytest.mark.parametrize("mechanism", ["pca(4)", "product(2,16)", "rotation"])
def test_an_inverter_is_trained_on_what_the_attacker_sees(mechanism):
    from tacit.attacks import InverterFit
    from tacit.hidden_states import InversionPrompts, LayerInverter, StateMechanism, invert_layer

    model = small_network(vocabulary=30, width=WIDTH)
    source = torch.Generator().manual_seed(0)
    public, secret = (torch.randint(30, (rows, 4), generator=source) for rows in (60, 20))
    stream = torch.randint(30, (2000,), generator=source)
    pairs = {"known_pairs": 3} if mechanism == "rotation" else {}
    found = invert_layer(
        model, 1, InversionPrompts(secret=secret, public=public, stream=stream),
        StateMechanism(mechanism=mechanism, **pairs), LayerInverter(fit=InverterFit(steps=2)),
        progress=False,
    ).details  # fmt: skip
    assert found.mechanism == mechanism + (", 3 known pairs" if pairs else "")
    assert (found.measured_kl < 1e-6) == (mechanism == "rotation")


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        (lambda rows: Principal(0), "dimension"),
        (lambda rows: Principal(WIDTH + 1).learn(rows, 0), "dimension"),
        (lambda rows: RandomProjection(WIDTH + 1).learn(rows, 0), "dimension"),
        (lambda rows: RandomProjection(-1), "dimension"),
        (lambda rows: Product(3).learn(rows, 0), "parts: expected a divisor"),
        (lambda rows: Product(0), "parts"),
        (lambda rows: Product(2, 0), "centroids"),
        (lambda rows: read_mechanism("pca"), "pca\\(dimension\\)"),
        (lambda rows: StoredRelease(Rotated.draw(WIDTH, 0), rows, -1), "known_pairs"),
        (lambda rows: StoredRelease(Rotated.draw(WIDTH, 0), rows, len(rows) + 1), "known_pairs"),
    ],
)
def test_what_is_wrong_is_said(states, wrong, said):
    with pytest.raises(ValueError, match=said):
        wrong(states)


def test_fewer_centroids_than_are_named_are_not_attacked():
    states = np.random.default_rng(0).normal(size=(20, 4))
    with pytest.raises(ValueError, match="centroids: expected an integer <= 20, got 256"):
        Product(2).learn(states, 0)
