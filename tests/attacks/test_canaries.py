"""Canaries: what they look like, how little they overlap, and how they are scored."""

import numpy as np
import pytest

from tacit.attacks import (
    black_box_scores,
    gradient_overlap,
    mislabelled,
    random_images,
    random_tokens,
    roc,
    white_box_scores,
)


def test_random_images_overlap_by_chance_alone():
    images, labels = random_images(60, (3, 16, 16), 10, rng=0)
    assert images.shape == (60, 3, 16, 16)
    assert abs(images.mean()) < 5 / np.sqrt(images.size)
    assert abs(images.std() - 1.0) < 5 / np.sqrt(2 * images.size)
    assert set(labels) <= set(range(10))
    # 1770 cosines of standard deviation d^-½: the largest is below six of them
    rows = images.reshape(60, -1)
    assert gradient_overlap(rows) < 6 / np.sqrt(rows.shape[1])
    assert gradient_overlap(rows + 3.0) > 0.8


def test_overlap_does_not_depend_on_length():
    rows = np.random.default_rng(1).standard_normal((10, 50))
    scale = np.logspace(-200, 200, 10)[:, None]
    assert gradient_overlap(rows * scale) == pytest.approx(gradient_overlap(rows), rel=1e-9)
    assert gradient_overlap([[1.0, 0.0], [2.0, 0.0]]) == 1.0
    assert gradient_overlap([[1.0, 0.0], [-2.0, 0.0]]) == 1.0


def test_wrong_labels_are_uniform_on_the_others():
    true = np.repeat(np.arange(5), 4000)
    wrong = mislabelled(true, 5, rng=0)
    counts = np.zeros((5, 5))
    np.add.at(counts, (true, wrong), 1)
    assert (np.diag(counts) == 0).all()
    others = counts[~np.eye(5, dtype=bool)]
    assert (np.abs(others - 1000) < 5 * np.sqrt(1000)).all()


def test_random_tokens_never_repeat_a_sequence():
    drawn = random_tokens(120, 2, 16, rng=0)
    assert drawn.shape == (120, 2)
    assert drawn.min() >= 0
    assert drawn.max() <= 15
    assert len(np.unique(drawn, axis=0)) == 120
    assert random_tokens(3, 64, 50_000).shape == (3, 64)


def test_white_box_scores_are_sums_of_inner_products():
    source = np.random.default_rng(2)
    gradients, updates = source.standard_normal((3, 7, 11)), source.standard_normal((3, 11))
    naive = [
        sum(float(g[i] @ u) for g, u in zip(gradients, updates, strict=True)) for i in range(7)
    ]
    assert np.allclose(white_box_scores(gradients, updates), naive)
    assert np.allclose(white_box_scores(iter(gradients), iter(updates)), naive)
    assert np.allclose(white_box_scores(gradients[0], updates), gradients[0] @ updates.sum(axis=0))
    halved = white_box_scores(gradients, updates, weight=0.5)
    assert np.allclose(naive - halved, 0.25 * np.square(gradients).sum(axis=(0, 2)))


def test_with_its_weight_the_score_orders_canaries_of_any_length():
    source = np.random.default_rng(3)
    gradients = np.linalg.qr(source.standard_normal((1200, 1000)))[0].T
    gradients *= np.exp(source.standard_normal(1000))[:, None]
    inside = source.random(1000) < 0.5
    updates = [inside @ gradients + source.standard_normal(1200)]
    plain = roc(white_box_scores(gradients, updates), inside, rng=0).auc
    weighted = roc(white_box_scores(gradients, updates, weight=1.0), inside, rng=0).auc
    assert weighted > plain + 0.01
    blind = roc(white_box_scores(gradients, [np.ones(1200)]), inside, rng=0)
    assert blind.auc_interval[0] < 0.5 < blind.auc_interval[1]


def test_black_box_scores_are_losses_that_fell():
    assert black_box_scores([1.0, 3.0]).tolist() == [-1.0, -3.0]
    assert black_box_scores([1.0, 3.0], [1.5, 9.0]).tolist() == [0.5, 6.0]


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: random_images(0, (3,), 10), "count"),
        (lambda: random_images(1, (3, 0), 10), "shape"),
        (lambda: random_images(1, (3,), 1), "classes"),
        (lambda: mislabelled([0.5], 3), "labels: expected a vector of integers"),
        (lambda: mislabelled([], 3), "labels: expected a vector of integers"),
        (lambda: mislabelled([3], 3), "labels: expected integers in 0 … 2"),
        (lambda: random_tokens(9, 2, 4), "count: expected at most half of the 16"),
        (lambda: random_tokens(1, 1, 1), "vocabulary"),
        (lambda: gradient_overlap([[1.0]]), "gradients: expected at least 2"),
        (lambda: gradient_overlap([[1.0], [0.0]]), "gradients: row 1 is zero"),
        (lambda: white_box_scores(np.eye(2), []), "updates: expected at least one"),
        (lambda: white_box_scores(np.eye(2), [[1.0]]), "updates: expected 2 entries"),
        (lambda: white_box_scores([np.eye(2)], np.eye(2)), "as many rounds as updates, got fewer"),
        (lambda: white_box_scores([np.eye(2)] * 3, np.eye(2)), "as updates, got more"),
        (lambda: white_box_scores([np.eye(2), [[1, 2]]], np.eye(2)), "gradients: expected 2 rows"),
        (lambda: black_box_scores([1.0], [1.0, 2.0]), "initial"),
        (lambda: black_box_scores([np.nan]), "final"),
    ],
)
def test_bad_arguments_are_named(call, message):
    with pytest.raises(ValueError, match=message):
        call()
