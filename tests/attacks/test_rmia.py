"""RMIA against its formula pair by pair, and where the best attack is known."""

import numpy as np
import pytest
from scipy import stats

from tacit.attacks import lira, rmia, roc

EXAMPLES, POPULATION, MODELS = 12, 30, 9


def problem(seed=0, *, models=MODELS, examples=EXAMPLES, population=POPULATION):
    """Log-probabilities of examples and of a population under models that saw half of them."""
    source = np.random.default_rng(seed)
    saw = source.random((models + 1, examples)) < 0.5
    saw[1], saw[2] = True, False
    hardness = source.normal(size=examples)
    scores = -np.exp(hardness - saw + 0.3 * source.standard_normal(saw.shape))
    others = -np.exp(source.normal(size=population) + 0.3 * source.normal(size=(models + 1, 1)))
    others = others * np.exp(0.2 * source.standard_normal(others.shape))
    return scores, saw, others


def attacked(scores, saw, others, **options):
    """Model 0 attacked with the help of the rest."""
    return rmia(
        scores[0], scores[1:], saw[1:],
        population_scores=others[0], population_shadow_scores=others[1:], **options,
    )  # fmt: skip


@pytest.mark.parametrize("variant", ["online", "offline"])
@pytest.mark.parametrize(("gamma", "slope"), [(1.0, 0.3), (2.0, 0.0), (0.7, 1.0)])
def test_pair_by_pair(variant, gamma, slope):
    scores, saw, others = problem()
    wins = np.zeros(EXAMPLES)
    for n in range(EXAMPLES):
        inside = [np.exp(scores[m, n]) for m in range(1, MODELS + 1) if saw[m, n]]
        outside = [np.exp(scores[m, n]) for m in range(1, MODELS + 1) if not saw[m, n]]
        usual = 0.5 * (sum(inside) / len(inside) + sum(outside) / len(outside))
        if variant == "offline":
            usual = 0.5 * ((1 + slope) * sum(outside) / len(outside) + 1 - slope)
        for z in range(POPULATION):
            mean = sum(np.exp(others[m, z]) for m in range(1, MODELS + 1)) / MODELS
            pair = np.exp(scores[0, n]) / usual / (np.exp(others[0, z]) / mean)
            wins[n] += pair >= gamma
    found = attacked(scores, saw, others, variant=variant, gamma=gamma, slope=slope)
    np.testing.assert_allclose(found, wins / POPULATION, atol=1e-12)
    assert found.max() > 0.0
    assert found.min() < 1.0


def test_ties_count_for_the_example():
    """At γ = 1 a point equal to the example in everything is dominated by it, as in Eq. 3."""
    scores = np.log(np.full((3, 1), 0.5))
    saw = np.array([[True], [True], [False]])
    assert attacked(scores, saw, scores, gamma=1.0) == 1.0
    assert attacked(scores, saw, scores, gamma=1.0 + 1e-9) == 0.0


def test_offline_uses_models_that_did_not_see_the_example_only():
    scores, saw, others = problem(1)
    changed = scores.copy()
    changed[1:][saw[1:]] = -1e-3
    before, after = (attacked(s, saw, others, variant="offline") for s in (scores, changed))
    np.testing.assert_array_equal(before, after)


def test_what_a_whole_model_gains_is_not_taken_for_membership():
    """Where every model multiplies all probabilities, RMIA is optimal and the score is not.

    ln P = −8 + g_m + s·[saw] + N(0, τ²), g_m of the whole model and uniform on ±c. Given g_m the
    best test has AUC Φ(s/(τ√2)); that of the score alone is near Φ(s/√(2(τ² + c²/3))).
    """
    source = np.random.default_rng(2)
    models, shadows, examples, shift, spread, reach = 225, 200, 100, 0.6, 0.5, 1.5
    whole = source.uniform(-reach, reach, size=(models, 1))
    saw = source.random((models, examples)) < 0.5
    scores = -8.0 + whole + shift * saw + spread * source.standard_normal(saw.shape)
    others = -8.0 + whole + 0.05 * source.standard_normal((models, 100))
    known = slice(0, shadows)
    ratios, shares = [], []
    for target in range(shadows, models):
        ratios.append(lira(scores[target], scores[known], saw[known]))
        # One γ is one threshold on LR(x); their mean is a score with as many levels.
        found = [
            rmia(
                scores[target], scores[known], saw[known], gamma=gamma,
                population_scores=others[target], population_shadow_scores=others[known],
            )
            for gamma in np.exp(np.linspace(-2.0, 2.0, 17))
        ]  # fmt: skip
        shares.append(np.mean(found, axis=0))
    truth = saw[shadows:].ravel()
    pairwise, alone = (roc(np.ravel(values), truth, rng=0).auc for values in (shares, ratios))
    optimum = stats.norm.cdf(shift / (spread * np.sqrt(2.0)))
    error = np.sqrt(optimum * (1 - optimum) / (truth.size / 2))
    # P(x) is a mean over 200 models, whose error is common to all attacked ones.
    assert optimum - 0.02 - 4 * error < pairwise < optimum + 4 * error
    assert alone < pairwise - 0.08


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"variant": "both"}, "variant"),
        ({"gamma": 0.0}, "gamma"),
        ({"slope": 1.5}, "slope"),
        ({"target_scores": np.array([0.5, -1.0])}, "target_scores"),
        ({"shadow_scores": np.full((3, 2), 0.1)}, "shadow_scores"),
        ({"shadow_scores": np.full((3, 3), -1.0)}, "shadow_scores"),
        ({"shadow_memberships": np.ones((3, 2))}, "shadow_memberships"),
        ({"population_scores": np.array([])}, "population_scores"),
        ({"population_scores": np.array([np.nan, -1.0])}, "population_scores"),
        ({"population_shadow_scores": np.full((2, 2), -1.0)}, "population_shadow_scores"),
    ],
)
def test_bad_arguments_are_named(changed, words):
    arguments = {
        "target_scores": np.array([-0.5, -1.0]),
        "shadow_scores": np.full((3, 2), -1.0),
        "shadow_memberships": np.array([[1, 0], [0, 1], [1, 1]]),
        "population_scores": np.array([-1.0, -2.0]),
        "population_shadow_scores": np.full((3, 2), -1.0),
    }
    assert rmia(**arguments).shape == (2,)
    with pytest.raises(ValueError, match=f"^{words}: "):
        rmia(**{**arguments, **changed})


def test_offline_with_slope_one_stays_in_the_log_domain():
    """With a = 1, P(x) is the mean of the shadows that did not see x, however small."""
    shadows = np.array([[-790.0, -1e4], [-812.0, -1e4]])
    out = np.zeros((2, 2), dtype=bool)
    population = np.array([-700.0, -820.0, -9000.0])
    others = np.array([[-705.0, -815.0, -9000.5], [-705.0, -815.0, -9000.5]])
    found = rmia(
        [-780.0, -9999.5], shadows, out, population_scores=population,
        population_shadow_scores=others, variant="offline", slope=1.0, gamma=1.0,
    )  # fmt: skip
    ratios = np.array([-780.0 - (np.logaddexp(-790, -812) - np.log(2)), 0.5])
    expected = [(population - others[0] <= ratio).mean() for ratio in ratios]
    np.testing.assert_array_equal(found, expected)
    # elsewhere the line in a is what it says
    for slope in (0.0, 0.3, 1.0):
        told = rmia(
            np.log([0.5]), np.log([[0.4], [0.2]]), out[:, :1], gamma=1.0, slope=slope,
            population_scores=np.log([0.3, 0.6]), population_shadow_scores=np.log([[0.3, 0.2]] * 2),
            variant="offline",
        )  # fmt: skip
        usual = 0.5 * ((1 + slope) * 0.3 + 1 - slope)
        assert told[0] == np.mean(np.array([1.0, 3.0]) <= 0.5 / usual)
