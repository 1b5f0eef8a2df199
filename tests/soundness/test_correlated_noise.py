"""Noise that is tied together across steps: its sensitivity and its law, against enumeration."""

import itertools
import json

import numpy as np
import pytest
import torch
from scipy import stats

from tacit.accounting import subsampled_gaussian
from tacit.design import Banded, Buffered, Participation, PrefixSums, StepFactor, least_error
from tacit.design.streams.factor import CorrelatedNoise
from tacit.gradients import CorrelatedDPSGD, GivenNoise
from tacit.gradients.steps import Schedule
from tacit.guarantees import ApproximateDP
from tacit.training import CyclicPoisson, FixedOrder
from tacit.training.sampling import SampledSteps
from tacit_check.command import found as verdict
from tests.soundness.registry import certifies
from tests.training.loops import begun, losses, network, records, trained

REPLACED = GivenNoise(multiplier=1.0, delta=1e-3, adjacency="replace")
FACTORS = [
    StepFactor(bands=(1.0,)),
    StepFactor(bands=(0.8, 0.6)),
    # a later coefficient above an earlier one: within reach of each other this is no worst case
    StepFactor(bands=(0.5, 0.1, 0.9)),
    StepFactor(bands=(0.9,), shares=(0.3, 0.1), decays=(0.5, 0.9)),
    StepFactor(bands=(0.9, 0.2), shares=(0.3,), decays=(0.7,)),
]


def whole(factor, steps):
    """C itself, written out."""
    found = np.zeros((steps, steps))
    for row, column in itertools.product(range(steps), repeat=2):
        behind = row - column
        if behind >= 0:
            found[row, column] = factor.bands[behind] if behind < len(factor.bands) else 0.0
            if behind > 0:
                for weight, decay in zip(factor.shares, factor.decays, strict=True):
                    found[row, column] += weight * decay ** (behind - 1)
    return found


def farthest(matrix, pattern):
    """max ‖C G‖ over gradients of norm 1 at some steps: over signs, which no direction exceeds."""
    return max(
        np.linalg.norm(matrix[:, pattern] @ np.array(signs))
        for signs in itertools.product((1.0, -1.0), repeat=len(pattern))
    )


@pytest.mark.parametrize("factor", FACTORS)
@pytest.mark.parametrize(("apart", "times"), [(7, 1), (2, 4), (3, 3), (4, 2), (1, 7)])
def test_no_participation_moves_the_sums_farther_than_is_told(factor, apart, times):
    steps = 7
    matrix = whole(factor, steps)
    told = factor.sensitivity(steps, apart=apart, times=times)
    # the same step of every epoch, whichever it is
    exact = [list(range(first, steps, apart))[:times] for first in range(apart)]
    found = max(farthest(matrix, pattern) for pattern in exact if pattern)
    assert found <= told
    assert told <= found * (1 + 1e-6)
    if factor.reach is not None and factor.reach > apart:
        return
    # at least so far apart: every pattern there is
    for count in range(1, times + 1):
        for pattern in itertools.combinations(range(steps), count):
            if all(b - a >= apart for a, b in itertools.pairwise(pattern)):
                assert farthest(matrix, list(pattern)) <= told


@pytest.mark.parametrize("factor", FACTORS)
def test_what_is_drawn_has_the_covariance_that_is_certified(factor):
    steps = 9
    noise, drawn = CorrelatedNoise(factor), np.eye(steps)
    # every z_t a unit of its own: what is told is C⁻¹ itself, and C C⁻¹ = I
    told = np.array([noise.next(row) for row in drawn])
    assert np.allclose(whole(factor, steps) @ told, np.eye(steps), atol=1e-12)
    assert len(noise.before) <= len(factor.bands) - 1
    assert len(noise.buffers) == len(factor.shares)


def loop_noise(steps, **options):
    """What a loop adds to its sums in every step, over s C: there are no gradients."""
    torch.manual_seed(1)
    model = network()
    private, optimizer = begun(model, rate=1.0, promise=REPLACED, **options)
    found = []
    for _ in private.epochs:
        for inputs, targets in private.loader:
            before = [one.detach().clone() for one in model.parameters()]
            private.backward(losses(model, inputs, targets) * 0.0)
            optimizer.step()
            # lr = 1, 8 records expected
            moved = [
                (a - b).double().flatten() * 8
                for a, b in zip(before, model.parameters(), strict=True)
            ]
            found.append(torch.cat(moved).detach().numpy())
    private.close()
    assert len(found) == steps
    return np.array(found), private._details.factor


@pytest.mark.parametrize("noise", [Banded(bands=3), Buffered(buffers=2)])
def test_the_noise_of_a_loop_is_white_once_c_is_put_back(noise):
    found, factor = loop_noise(
        6, method=CorrelatedDPSGD(noise=noise), sampling=FixedOrder(shuffled=False), epochs=2,
        seed=None,
    )  # fmt: skip
    white = whole(factor, 6) @ found
    count = white.shape[1]
    covariance = white @ white.T / count
    # standard errors √(2/n) and 1/√n
    assert np.abs(np.diagonal(covariance) - 1.0).max() < 5 * (2 / count) ** 0.5
    assert np.abs(covariance - np.diag(np.diagonal(covariance))).max() < 5 / count**0.5
    # a control: as it is told it is not white, but takes back what was told one step before
    assert np.diagonal(np.corrcoef(found), 1).mean() < -2 / count**0.5


@certifies(ApproximateDP)
def test_cyclic_samples_tell_no_more_than_is_certified():
    """δ of y = C G + Z over coins and classes, by Monte Carlo with the whole density of y."""
    factor = Banded(bands=2).factor(Participation(4, 2, 2))
    matrix, noise, rate = whole(factor, 4), 0.8, 0.3
    schedule = Schedule(sampling_rate=rate, steps=4, dims=(1,))
    profile = CyclicPoisson(classes=2).profile(noise, SampledSteps(schedule, 1, None, factor))
    # one more record, whose gradients are 1 wherever it is drawn: a mixture over class and coins
    shifts, weights = [], []
    for start, first, second in itertools.product((0, 1), repeat=3):
        gradient = np.zeros(4)
        gradient[start], gradient[start + 2] = first, second
        shifts.append(matrix @ gradient)
        drawn = 2 * rate
        weights.append(0.5 * np.prod([drawn if one else 1 - drawn for one in (first, second)]))
    source = np.random.default_rng(5)
    size = 60_000
    zero = source.standard_normal((size, 4)) * noise
    moved = zero + np.array(shifts)[source.choice(8, size=size, p=weights)]

    def ratio(outcomes):
        """ln of the mixture's density over that of no record."""
        exponents = [
            np.log(weight) + (outcomes @ shift - shift @ shift / 2.0) / noise**2
            for weight, shift in zip(weights, shifts, strict=True)
        ]
        return np.logaddexp.reduce(exponents, axis=0)

    for epsilon in (0.5, 1.5):
        # E_P (1 − e^{ε − ratio})₊ both ways
        there = np.maximum(1.0 - np.exp(epsilon - ratio(moved)), 0.0)
        back = np.maximum(1.0 - np.exp(epsilon + ratio(zero)), 0.0)
        for found in (there, back):
            error = found.std() / size**0.5
            assert found.mean() - 4 * error <= profile.delta(epsilon)
        # a control: noise a quarter smaller is found out
        less = subsampled_gaussian(2 * rate, noise * 1.33, 2)
        assert there.mean() - 4 * there.std() / size**0.5 > less.delta(epsilon)


@certifies(ApproximateDP)
def test_a_record_in_every_epoch_is_told_apart_no_better_than_is_certified(tmp_path):
    """The best test of y = C G + Z against y' at the same steps: a Gaussian shift, exactly."""
    release, _ = trained(
        method=CorrelatedDPSGD(noise=Banded(bands=2)), sampling=FixedOrder(shuffled=False),
        epochs=3, promise=REPLACED, seed=None,
    )  # fmt: skip
    details = release.details
    matrix = whole(details.factor, 9)
    # ±1 at step 1 of each epoch of three: neighbours are 2 apart
    shift = np.linalg.norm(2.0 * matrix[:, [1, 4, 7]].sum(axis=1)) / details.noise_multiplier
    held = next(one for one in release.guarantees if isinstance(one, ApproximateDP))
    # and the checker, which knows the Gaussian and not the factor, proves the claim
    path = tmp_path / "release.json"
    path.write_text(json.dumps(release.to_dict()), encoding="utf-8")
    assert verdict(str(path))["word"] == "holds"
    exact = stats.norm.cdf(shift / 2 - held.epsilon / shift) - np.exp(
        held.epsilon
    ) * stats.norm.cdf(-shift / 2 - held.epsilon / shift)
    assert exact <= held.delta


def test_no_factor_of_steps_has_less_error_than_the_optimum():
    steps = 60
    for workload in (PrefixSums(), PrefixSums(momentum=0.9, decay="cosine")):
        best = least_error(workload, steps)
        least = best.cost * (1.0 - best.gap) / steps
        keywords = {"momentum": workload.momentum, "decay": workload.decay}
        matrix = workload.matrix(steps)
        for noise in (Banded(bands=60, **keywords), Buffered(buffers=3, **keywords)):
            factor = noise.factor(Participation(steps, steps))
            inverse = np.linalg.inv(whole(factor, steps))
            energy = (np.linalg.norm(matrix @ inverse) * factor.sensitivity(steps)) ** 2 / steps
            assert least * (1 - 1e-9) <= energy <= least * 1.15
            assert factor.variance(workload, steps) == pytest.approx(
                np.linalg.norm(matrix @ inverse) ** 2 / steps
            )
        # independent noise does far worse
        assert np.linalg.norm(matrix) ** 2 / steps > 4.0 * least


def test_noise_goes_on_after_a_crash_as_if_there_had_been_none(tmp_path):
    common = {
        "method": CorrelatedDPSGD(noise=Buffered(buffers=2)), "epochs": 2, "promise": REPLACED,
        "sampling": FixedOrder(shuffled=False),
    }  # fmt: skip
    _, straight = trained(**common)
    common |= {"checkpoint": tmp_path / "loop", "every": 1}
    private, optimizer = begun(model := network(), **common)
    for number, (inputs, targets) in enumerate(private.loader):
        private.backward(losses(model, inputs, targets))
        optimizer.step()
        if number == 1:
            break
    private.close()
    _, taken_up = trained(**common)
    for name, one in straight.items():
        assert torch.allclose(one, taken_up[name], atol=1e-6)


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({}, "whose account is proven for these, got Poisson"),
        ({"sampling": FixedOrder(), "promise": REPLACED, "epochs": 2}, "shuffled=False"),
        ({"sampling": CyclicPoisson(classes=2)}, "at most 2 bands"),
        ({"sampling": CyclicPoisson(classes=4)}, "classes: expected at most 3"),
    ],
)
def test_what_has_no_account_is_refused(options, sentence):
    with pytest.raises(ValueError, match=sentence):
        begun(network(), method=CorrelatedDPSGD(noise=Banded(bands=3)), **options)
    if "classes: " not in sentence and "bands" not in sentence:
        return
    with pytest.raises(ValueError, match="endless bands"):
        begun(
            network(), method=CorrelatedDPSGD(noise=Buffered()), sampling=CyclicPoisson(classes=3)
        )


def test_classes_are_drawn_once_and_each_step_draws_from_its_own():
    private, _ = begun(
        network(), records(24), seed=None, batch=4, epochs=2, sampling=CyclicPoisson(classes=3),
        method=CorrelatedDPSGD(noise=Banded(bands=3)),
    )  # fmt: skip
    private.close()
    owners, found = private.loader.coins.classes(24, 3), set()
    for step in list(range(12)) * 4:
        for piece in private.loader._pieces(range(step, step + 1)):
            if piece.counted:
                assert {int(owners[place]) for place in piece.records} == {step % 3}
                found |= set(piece.records)
    # 3 q = 1/2 in 4 steps of 4 draws each: hardly any record is never drawn
    assert len(found) >= 20
