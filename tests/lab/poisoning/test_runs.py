"""Sources, their gradients, and what a reference without one of them gives."""

import numpy as np
import pytest
import torch

from tacit.training import Beside, References
from tacit_lab.poisoning import (
    LabelledImages,
    RobustAggregation,
    blended,
    pretrain,
    robust_aggregate,
    small_network,
)
from tacit_lab.poisoning.sources import Sources, cross_entropy, source_gradients
from tacit_lab.poisoning.workflow import PoisonedTraining
from tests.lab.poisoning.problems import SHAPE, descent, images, linear


def sources(count=4, batch=16, **options):
    return Sources(data=images(), count=count, batch=batch, **options)


def training(model=None, count=4, iterations=1, rounds=3, mu=1.0):
    held = sources(count, trigger=blended(SHAPE), target=1)
    return PoisonedTraining(
        model=model or linear(), optimizer=descent(), rounds=rounds, sources=held,
        method=RobustAggregation(angle=60.0, iterations=iterations),
        promise=Beside(references=References.leave_out(held.names), mu=mu),
    )  # fmt: skip


def flat(model):
    return torch.cat([p.detach().reshape(-1) for p in model.parameters()]).numpy()


def test_sources_hold_disjoint_parts_of_everything():
    found = sources(5)
    held = [found.holdings(source) for source in range(5)]
    assert sorted(np.concatenate(held).tolist()) == list(range(48))
    assert {len(part) for part in held} == {9, 10}
    one_pass = [found.examples(2, number) for number in range(found.a_pass)]
    assert np.unique(np.concatenate(one_pass)).size == found.share * found.a_pass
    assert set(np.concatenate(one_pass)) <= set(held[2].tolist())


def test_only_the_malicious_source_is_poisoned():
    trigger = blended(SHAPE)
    found = sources(malicious=2, trigger=trigger, target=1)
    for source in range(4):
        given, labels = found.batch_of(source, 0)
        plain = found.data.floats(found.examples(source, 0))
        if source == 2:
            np.testing.assert_array_equal(given.numpy(), trigger.apply(plain))
            assert (labels == 1).all()
        else:
            np.testing.assert_array_equal(given.numpy(), plain)


def test_gradients_are_those_of_each_mean_loss():
    model, found = linear(), sources(trigger=blended(SHAPE))
    rows = source_gradients(model, found, 1)
    for source in range(4):
        model.zero_grad()
        cross_entropy(model, *found.batch_of(source, 1)).mean().backward()
        wanted = torch.cat([p.grad.reshape(-1) for p in model.parameters()]).numpy()
        np.testing.assert_allclose(rows[source], wanted, rtol=1e-6)
    left = source_gradients(model, found, 1, left_out=2)
    np.testing.assert_array_equal(left, np.delete(rows, 2, axis=0))


def test_one_local_step_is_one_noisy_gradient_step():
    one = training().without_noise()
    changed = training(iterations=2, rounds=1)
    # K = 1 by hand, through the route of many steps
    plain = training(rounds=1)
    local = plain._local(plain.model, 0, None)
    aggregate, _ = robust_aggregate(source_gradients(linear(), plain.sources, 0), angle=60.0)
    np.testing.assert_allclose(local, flat(linear()) - 0.1 * aggregate, atol=1e-6)
    assert not np.allclose(flat(one), flat(changed.without_noise()))


@pytest.mark.parametrize("iterations", [1, 2])
def test_noise_is_centred_on_what_is_trained_without_it(iterations):
    plan = training(iterations=iterations, rounds=2, mu=1e7)
    for left_out in (None, 0):
        noisy = flat(plan.with_noise(left_out=left_out, seed=3))
        plain = flat(plan.without_noise(left_out=left_out))
        np.testing.assert_allclose(noisy, plain, atol=1e-5)
    assert not np.allclose(flat(plan.without_noise()), flat(plan.without_noise(left_out=0)))


def test_the_reference_does_not_see_the_poison():
    poisoned, honest = training(), training()
    clean = PoisonedTraining(**{**vars(honest), "sources": sources(4, trigger=None)})
    np.testing.assert_array_equal(
        flat(poisoned.without_noise(left_out=0)), flat(clean.without_noise(left_out=0))
    )


def test_the_reference_has_the_noise_of_the_released_run():
    """At the first round both laws differ by z of the source alone: same noise, other centre."""
    plan = training(rounds=1)
    real, other = (flat(plan.with_noise(left_out=one, seed=9)) for one in (None, 0))
    _, differences = plan.aggregate(linear(), 0)
    np.testing.assert_allclose(other - real, -0.1 * differences[0], atol=1e-5)


def test_two_sources_may_train_locally():
    assert np.isfinite(flat(training(count=2, iterations=2).with_noise(seed=0))).all()


def test_a_model_with_running_statistics_is_refused():
    model = torch.nn.Sequential(torch.nn.BatchNorm2d(1), linear())
    with pytest.raises(ValueError, match="changed"):
        source_gradients(model, sources(), 0)


def test_the_small_network_mixes_no_examples_and_learns():
    found, data = small_network(1, 3), images(60)
    given = torch.from_numpy(data.floats(np.arange(60)))
    together = found(given).detach().numpy()
    alone = torch.cat([found(given[i : i + 1]) for i in range(60)]).detach().numpy()
    np.testing.assert_allclose(together, alone, atol=1e-4)
    before = cross_entropy(found, given, torch.from_numpy(data.labels.copy())).mean().item()
    pretrain(found, data, descent(0.02), passes=6, batch=20)
    assert cross_entropy(found, given, torch.from_numpy(data.labels.copy())).mean().item() < before


def test_making_a_network_leaves_the_callers_randomness_alone():
    torch.manual_seed(4)
    wanted = torch.rand(1)
    torch.manual_seed(4)
    small_network(1, 2)
    assert torch.rand(1) == wanted


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"count": 1}, "sources: expected"),
        ({"count": 49}, "sources: expected at most one for each"),
        ({"malicious": 4}, "malicious"),
        ({"target": 3}, "target: expected a class, 0 … 2, got 3"),
        ({"target": -1}, "target"),
        ({"batch": 0}, "batch"),
    ],
)
def test_bad_sources_are_named(options, said):
    with pytest.raises(ValueError, match=said):
        sources(**options)


@pytest.mark.parametrize(
    ("given", "labels", "said"),
    [
        (np.zeros((2, 8, 8)), [0, 1], "images: expected"),
        (np.zeros((2, 1, 8, 8)), [0], "labels: expected one"),
        (np.zeros((2, 1, 8, 8)), [0.5, 1.0], "labels: expected integers"),
        (np.zeros((2, 1, 8, 8)), [-1, 1], "labels: expected 0 or more"),
        (np.full((2, 1, 8, 8), np.nan), [0, 1], "images: expected finite"),
        (np.full((2, 1, 8, 8), 255.0), [0, 1], "images: expected bytes"),
        (np.full((2, 1, 8, 8), "x"), [0, 1], "images: expected numbers"),
    ],
)
def test_bad_images_are_named(given, labels, said):
    with pytest.raises(ValueError, match=said):
        LabelledImages(given, np.array(labels))
