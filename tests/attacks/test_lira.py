"""Shadow models that release a mean, where the exact likelihood ratio is known."""

import numpy as np
import pytest
from scipy import stats

from tacit.attacks import likelihood_ratio, lira, roc
from tacit.covariance import Isotropic


def gaussian_scores(models, examples, seed, *, shift=1.5, spread=0.7, queries=None):
    """Scores μ_n + 1[m saw n]·shift + N(0, spread²), one μ_n per example (and query)."""
    source = np.random.default_rng(seed)
    shape = (examples,) if queries is None else (examples, queries)
    centre = source.normal(scale=3.0, size=shape)
    saw = source.random((models, examples)) < 0.5
    marks = saw if queries is None else saw[:, :, None]
    scores = centre + shift * marks + spread * source.standard_normal((models, *shape))
    return scores, saw, centre


def test_online_approaches_the_exact_likelihood_ratio():
    """300 shadow models: each fitted Gaussian is near the true one, and so is the AUC."""
    shift, spread, examples = 1.5, 0.7, 3000
    scores, saw, centre = gaussian_scores(301, examples, 0)
    fitted = lira(scores[0], scores[1:], saw[1:])
    exact = (shift * (scores[0] - centre) - shift**2 / 2) / spread**2
    # Means err by σ/√150 and log variances by √(2/150); the ratio by a few of their sums.
    assert np.median(np.abs(fitted - exact)) < 0.5
    assert np.corrcoef(fitted, exact)[0, 1] > 0.97
    bound = stats.norm.cdf(shift / spread / np.sqrt(2))
    found = roc(fitted, saw[0], rng=0)
    error = np.sqrt(bound * (1 - bound) / (examples / 2))
    assert bound - 0.01 - 4 * error < found.auc < bound + 4 * error


def test_global_variance_is_the_exact_ratio_in_the_limit():
    """All deviations are pooled, so only the means are still estimated."""
    scores, saw, centre = gaussian_scores(401, 1000, 1)
    fitted = lira(scores[0], scores[1:], saw[1:], variance="global")
    exact = (1.5 * (scores[0] - centre) - 1.5**2 / 2) / 0.7**2
    own = lira(scores[0], scores[1:], saw[1:])
    assert np.median(np.abs(fitted - exact)) < np.median(np.abs(own - exact))


def test_global_variance_is_stronger_with_few_shadow_models():
    scores, saw, _ = gaussian_scores(9, 4000, 2)
    enough = (saw[1:].sum(axis=0) >= 2) & (saw[1:].sum(axis=0) <= 6)
    aucs = {
        variance: roc(
            lira(scores[0, enough], scores[1:, enough], saw[1:, enough], variance=variance),
            saw[0, enough],
            rng=0,
        ).auc
        for variance in ("per-example", "global")
    }
    assert aucs["global"] > aucs["per-example"] + 0.02


def test_offline_is_the_one_sided_test():
    """z = (t − μ_out)/σ_out orders as 1 − P(N(μ_out, σ_out²) > t) of the formula does."""
    scores, saw, _ = gaussian_scores(65, 500, 3)
    fitted = lira(scores[0], scores[1:], saw[1:], variant="offline")
    out = [scores[1:, n][~saw[1:, n]] for n in range(500)]
    published = [
        stats.norm.cdf(t, s.mean(), s.std(ddof=1)) for t, s in zip(scores[0], out, strict=True)
    ]
    assert np.allclose(stats.norm.cdf(fitted), published, rtol=1e-9, atol=1e-12)


def test_offline_uses_models_that_did_not_see_the_example_only():
    scores, saw, _ = gaussian_scores(33, 200, 4)
    changed = np.where(saw[1:], 1e3, scores[1:])
    for variance in ("per-example", "global"):
        before = lira(scores[0], scores[1:], saw[1:], variant="offline", variance=variance)
        after = lira(scores[0], changed, saw[1:], variant="offline", variance=variance)
        # Units are taken from the largest score, which rounds differently.
        assert np.allclose(before, after, rtol=1e-9)


def test_offline_queries_are_standard_normal_for_non_members():
    scores, saw, _ = gaussian_scores(2001, 400, 5, queries=4)
    fitted = lira(scores[0], scores[1:], saw[1:], variant="offline")
    outside = fitted[~saw[0]]
    assert abs(outside.mean()) < 5 / np.sqrt(outside.size)
    assert abs(outside.std() - 1) < 5 / np.sqrt(2 * outside.size)
    member_mean = np.sqrt(4) * 1.5 / 0.7
    assert abs(fitted[saw[0]].mean() - member_mean) < 5 / np.sqrt(saw[0].sum())


@pytest.mark.parametrize("variant", ["online", "offline"])
def test_more_queries_are_a_stronger_attack(variant):
    scores, saw, _ = gaussian_scores(129, 3000, 6, shift=0.6, queries=5)
    one = roc(lira(scores[0, :, 0], scores[1:, :, 0], saw[1:], variant=variant), saw[0], rng=0)
    five = roc(lira(scores[0], scores[1:], saw[1:], variant=variant), saw[0], rng=0)
    assert five.auc_interval[0] > one.auc_interval[1]


@pytest.mark.parametrize("variant", ["online", "offline"])
@pytest.mark.parametrize("variance", ["per-example", "global"])
def test_units_order_and_the_number_of_a_query_change_nothing(variant, variance):
    scores, saw, _ = gaussian_scores(17, 60, 7, queries=3)
    saw[1:5], saw[5:9] = True, False
    options = {"variant": variant, "variance": variance}
    fitted = lira(scores[0], scores[1:], saw[1:], **options)
    examples = np.random.default_rng(7).permutation(60)
    models = np.random.default_rng(8).permutation(16)
    again = lira(
        1e150 * scores[0][examples][:, ::-1],
        1e150 * scores[1:][models][:, examples][:, :, ::-1],
        saw[1:][models][:, examples].astype(int),
        **options,
    )
    assert np.allclose(again, fitted[examples], rtol=1e-7, atol=1e-9)


def test_a_released_mean_is_attacked_as_well_as_by_its_exact_ratio():
    """A noisy mean of half of 20 rows: LiRA from shadow releases against the declared mixture."""
    source = np.random.default_rng(9)
    rows, noise, models = source.normal(size=20), 0.02, 4001
    rows[0] = 4.0
    saw = np.argsort(source.random((models, 20)), axis=1) < 10
    clean = saw @ rows / 10
    released = clean + noise * source.standard_normal(models)
    train, test = slice(0, 3000), slice(3000, None)
    shadows, first = released[train, None], saw[train, :1]
    fitted = [lira(released[m : m + 1], shadows, first)[0] for m in range(3000, models)]
    exact = likelihood_ratio(
        released[test, None],
        clean[train][saw[train, 0]][:, None],
        clean[train][~saw[train, 0]][:, None],
        Isotropic(noise**2, 1),
    )
    auc = {name: roc(s, saw[test, 0], rng=0).auc for name, s in [("fit", fitted), ("lr", exact)]}
    # The law of the mean is nearly Gaussian, so the two nearly agree.
    assert abs(auc["fit"] - auc["lr"]) < 0.02
    assert auc["fit"] > 0.7


def test_an_example_that_never_varies_takes_the_pooled_variance():
    scores, saw, _ = gaussian_scores(41, 30, 10)
    scores[1:, 4] = np.where(saw[1:, 4], 2.0, 1.0)
    fitted = lira(scores[0], scores[1:], saw[1:])
    assert np.isfinite(fitted).all()

    def pooled(chosen):
        """Within-example squares over degrees of freedom; example 4 adds freedom only."""
        groups = [scores[1:, n][chosen[:, n]] for n in range(30)]
        squares = sum(((group - group.mean()) ** 2).sum() for group in groups)
        return squares / sum(group.size - 1 for group in groups)

    variance_in, variance_out = pooled(saw[1:]), pooled(~saw[1:])
    target = scores[0, 4]
    expected = stats.norm.logpdf(target, 2.0, np.sqrt(variance_in)) - stats.norm.logpdf(
        target, 1.0, np.sqrt(variance_out)
    )
    assert fitted[4] == pytest.approx(expected, rel=1e-9)


def test_too_few_shadow_models_are_named():
    scores = np.random.default_rng(11).normal(size=(5, 3))
    saw = np.ones((4, 3), dtype=bool)
    saw[:2] = False
    assert lira(scores[0], scores[1:], saw).shape == (3,)
    saw[1, 2] = True
    with pytest.raises(ValueError, match="at least 2 shadow models with every example out, got 1"):
        lira(scores[0], scores[1:], saw)
    assert lira(scores[0], scores[1:], saw, variance="global").shape == (3,)
    saw[0, 2] = True
    with pytest.raises(ValueError, match="at least 1 shadow models with every example out, got 0"):
        lira(scores[0], scores[1:], saw, variance="global")
    with pytest.raises(ValueError, match="example 2"):
        lira(scores[0], scores[1:], ~saw, variance="global")
    offline = lira(scores[0], scores[1:], ~saw, variant="offline")
    assert offline.shape == (3,)


def test_scores_that_never_vary_cannot_be_fitted():
    saw = np.array([[True], [True], [False], [False]])
    with pytest.raises(ValueError, match="the same ones for every example"):
        lira([0.1], [[0.3], [0.3], [0.1], [0.2]], saw)
    with pytest.raises(ValueError, match="an example out"):
        lira([0.1], [[0.3], [0.2], [0.1], [0.1]], saw, variant="offline")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"target_scores": [np.nan, 0.0]}, "target_scores: expected finite"),
        ({"target_scores": [0.0]}, "shadow_scores: expected shape"),
        ({"shadow_scores": np.zeros((4, 3))}, "shadow_scores: expected shape"),
        ({"shadow_memberships": np.zeros((4, 3))}, "shadow_memberships: expected shape"),
        ({"shadow_memberships": np.full((4, 2), 0.5)}, "shadow_memberships: expected truth"),
        ({"variant": "both"}, "variant: expected one of"),
        ({"variance": "none"}, "variance: expected one of"),
    ],
)
def test_bad_input(change, message):
    arguments = {
        "target_scores": [0.0, 1.0],
        "shadow_scores": np.random.default_rng(0).normal(size=(4, 2)),
        "shadow_memberships": [[0, 1], [0, 1], [1, 0], [1, 0]],
        **change,
    }
    with pytest.raises(ValueError, match=message):
        lira(
            arguments.pop("target_scores"),
            arguments.pop("shadow_scores"),
            arguments.pop("shadow_memberships"),
            **arguments,
        )
