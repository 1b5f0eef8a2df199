"""What is measured of an attack, and the release that says it."""

import numpy as np
import pytest
import torch
from scipy import stats

from tacit import Run
from tacit.documents import dumps, loads
from tacit.releases import Release
from tacit.training import Beside, TrainingRecipe, bounded_probability
from tacit_lab.poisoning import (
    LabelledImages,
    PoisonedImages,
    PoisoningComparison,
    RobustAggregation,
    Trigger,
    blended,
    prepare_poisoning,
)
from tacit_lab.poisoning.workflow import mean_over_noise, measure_trigger
from tests.lab.poisoning.problems import SHAPE, descent, images, linear


class Backdoored(torch.nn.Module):
    """Names class 0 where the first pixel is bright, else the class of the brightest column."""

    def forward(self, given):
        scores = given[:, 0].sum(dim=1)[:, :3]
        bright = given[:, 0, 0, 7] > 0.9
        return scores + 100.0 * bright[:, None] * torch.eye(3)[0]


def test_success_and_accuracy_of_a_model_known_by_construction():
    data = images(30)
    # the corner of no image reaches 0.9 by itself, and nine of ten have the trigger's light
    trigger = Trigger(name="low-frequency", pattern=np.zeros(SHAPE), kept=1.0)
    lit = np.zeros(SHAPE)
    lit[0, 0, 7] = 1.0
    found = measure_trigger(Backdoored(), data, trigger, 0)
    assert (found.accuracy.value, found.success.value, found.images) == (1.0, 0.0, 20)
    assert found.success.high == pytest.approx(1 - 0.025 ** (1 / 20))
    poisoned = measure_trigger(
        Backdoored(), data, Trigger(name="low-frequency", pattern=lit, kept=1.0), 0
    )
    assert (poisoned.accuracy.value, poisoned.success.value) == (1.0, 1.0)
    assert poisoned.success.low == pytest.approx(0.025 ** (1 / 20))


def test_images_of_the_target_do_not_count():
    always = linear()
    with torch.no_grad():
        always[1].weight.zero_()
        always[1].bias.copy_(torch.tensor([0.0, 1.0, 0.0]))
    found = measure_trigger(always, images(30), blended(SHAPE), 1)
    assert (found.success.value, found.images) == (1.0, 20)
    with pytest.raises(ValueError, match="test: expected images of another class"):
        measure_trigger(always, images(9).some(np.arange(9) % 3 == 1), blended(SHAPE), 1)


def test_the_bound_grows_with_the_reference_and_the_distance():
    assert bounded_probability(0.2, 1e-9) == pytest.approx(0.2, abs=1e-8)
    assert bounded_probability(0.0, 3.0) == 0.0
    assert bounded_probability(1.0, 3.0) == 1.0
    assert bounded_probability(0.1, 1.0) == pytest.approx(stats.norm.sf(-stats.norm.ppf(0.1) - 1.0))


def test_few_runs_say_little_of_a_mean():
    found = mean_over_noise([0.1, 0.2])
    assert found.low < 0.15 < 0.8 < found.high


def prepared(**options):
    """A prepared training from flat settings."""
    given = {
        "model": linear(), "data": images(), "test": images(30, seed=1),
        "trigger": blended(SHAPE, alpha=0.5), "target": 1, "sources": 4, "optimizer": descent(),
        "epsilon": 4.0, "delta": 1e-5, "batch": 16, "passes": 1, **options,
    }  # fmt: skip

    def some(*names):
        return {name: given.pop(name) for name in names if name in given}

    return prepare_poisoning(
        TrainingRecipe(**some("model", "optimizer")),
        PoisonedImages(
            **some("data", "test", "trigger", "target", "sources", "malicious", "batch")
        ),
        Beside(**some("epsilon", "delta")),
        Run(progress=False, **some("passes", "checkpoint")),
        method=RobustAggregation(**some("angle", "iterations", "noise")),
        comparison=PoisoningComparison(**some("repeats", "compare")),
        **given,
    )


def test_a_release_says_what_was_measured_and_what_bounds_it():
    found = prepared(compare=True).draw()
    assert found.details.references == tuple(f"without source {i}" for i in range(4))
    (attack,) = found.attacks
    assert attack.trials == 20
    assert [use.name for use in found.use] == [
        "accuracy",
        "accuracy without noise",
        "attack success without noise",
        "accuracy with isotropic noise of the same certificate",
        "attack success with isotropic noise",
    ]
    note = next(note for note in found.remarks if "Φ(Φ⁻¹(p) + μ)" in note)
    assert "“without source 0” gives with the noise of this run" in note
    assert "neither p nor the success of one draw" in note
    again = Release.from_dict(loads(dumps(found.to_dict())))
    assert again.attacks == found.attacks


def test_without_the_attack_only_accuracy_is_measured():
    found = prepared(repeats=0).draw()
    assert found.attacks == ()
    assert [use.name for use in found.use] == ["accuracy", "accuracy without noise"]


def test_a_certificate_is_known_before_anything_is_drawn():
    model = linear()
    kept = [p.detach().clone() for p in model.parameters()]
    plan = prepared(model=model)
    assert plan.guarantees == plan.draw().guarantees
    with pytest.raises(ValueError, match="drawn already"):
        plan.draw()
    plan = prepared(model=(other := linear()), iterations=2)
    assert all((a == b).all() for a, b in zip(kept, other.parameters(), strict=True))
    assert plan.draw().details.rounds == 1


def test_a_run_is_taken_up(tmp_path):
    options = {"checkpoint": tmp_path / "run", "rng": 3, "repeats": 0, "passes": 2}
    whole = prepared(rng=3, repeats=0, passes=2).draw()
    begun = prepared(**options)
    run = begun.run.begin()
    run.update(np.ones(195), np.ones((4, 195)))
    del run
    taken = prepared(**options).draw()
    assert taken.details.rounds == whole.details.rounds
    assert taken.digests != whole.digests


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"target": 7}, "target: expected a class"),
        ({"sources": 1}, "sources"),
        ({"sources": 100}, "sources: expected at most one"),
        ({"trigger": blended((3, 8, 8))}, "images: expected"),
        (
            {"test": LabelledImages(np.zeros((4, 1, 4, 4)), np.arange(4) % 3)},
            "test: expected images",
        ),
        ({"data": "images"}, "data: expected LabelledImages"),
        ({"model": linear(classes=2)}, "model: expected 3 scores"),
        ({"model": torch.nn.Flatten()}, "model"),
        ({"iterations": 0}, "iterations"),
        ({"repeats": -1}, "repeats"),
        ({"angle": -1.0}, "angle"),
        ({"epsilon": -1.0}, "epsilon"),
        ({"passes": 0}, "passes"),
    ],
)
def test_bad_arguments_are_named_before_anything_is_trained(options, said):
    with pytest.raises(ValueError, match=said):
        prepared(**options)


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"test": LabelledImages(np.zeros((4, *SHAPE)), np.zeros(4, dtype=int))}, "test: expected"),
        ({"model": torch.nn.Linear(3, 2)}, "model: expected one that takes images"),
        ({"model": linear().double()}, "model: expected one that takes images"),
    ],
)
def test_what_cannot_be_measured_is_refused_before_anything_is_trained(options, sentence):
    with pytest.raises(ValueError, match=sentence):
        prepared(**{"test": images(12), "target": 0, **options})


def test_a_target_that_no_test_image_has_is_measured():
    data, test = images(48), images(24, classes=2)
    release = prepared(data=data, test=test, target=2, batch=24, repeats=1).draw()
    assert release.attacks[0].trials == 24


def test_a_checkpoint_of_another_trigger_is_refused(tmp_path):
    given = {"test": images(12), "batch": 24, "repeats": 0, "checkpoint": tmp_path}
    prepared(**given).draw()
    for other in ({"target": 2}, {"trigger": blended(SHAPE, alpha=0.9)}, {"malicious": 2}):
        with pytest.raises(ValueError, match="another about"):
            prepared(**given, **other).draw()
