"""Training beside references: what is published is no farther from them than certified."""

from math import erf

import numpy as np
import pytest
import torch

from tacit.attacks import audit_one_run, coins
from tacit.guarantees import GaussianDP, Indistinguishability, SuccessBound
from tacit.training import Beside, References, bounded_probability
from tacit_lab.poisoning import RobustAggregation, blended, robust_aggregate
from tacit_lab.poisoning.sources import Sources
from tacit_lab.poisoning.workflow import PoisonedTraining
from tests.lab.poisoning.problems import SHAPE, descent, images, linear
from tests.training.runs import flat, gradients, made, run_of, task

from .registry import bounds, certifies

REFERENCES, SQUARED = 5, 0.7
QUICK, DRAWS = 800, 10_000
# of the largest of five squared distances, each χ² of the estimated covariance
SIGMAS = 5.0


def published(count, gram, halved=1.0, seed=0):
    """Updates of a model of 19 parameters, drawn ``count`` times from the same start."""
    model, inputs, targets = task(seed)
    groups = np.arange(10) % REFERENCES
    rows = gradients(model, inputs, targets)
    differences = np.array([rows[groups == g].sum(axis=0) for g in range(REFERENCES)]) / 10
    run = run_of(model, REFERENCES, rounds=count, mu=np.sqrt(SQUARED * count), gram=gram)
    start, found = flat(model), []
    for _ in range(count):
        run.step((inputs, targets), groups)
        found.append((start - flat(model) - rows.mean(axis=0)) * halved)
        torch.nn.utils.vector_to_parameters(torch.from_numpy(start.copy()), model.parameters())
    return np.array(found), differences


def farthest(noise, differences):
    """Largest squared distance z'Σ̂⁻¹z over the references, Σ̂ from what was published."""
    basis = np.linalg.qr(differences.T)[0]
    spread = np.atleast_2d(np.cov(noise @ basis, rowvar=False))
    moved = differences @ basis
    return float(np.einsum("ij,ij->i", moved, np.linalg.solve(spread, moved.T).T).max())


@certifies(Indistinguishability, SuccessBound)
@pytest.mark.parametrize("gram", ["exact", "forward", "none"])
@pytest.mark.parametrize("count", [QUICK, pytest.param(DRAWS, marks=pytest.mark.thorough)])
def test_the_noise_published_keeps_every_reference_within_its_distance(count, gram):
    noise, differences = published(count, gram)
    # of z'Σ̂⁻¹z, whose law is SQUARED·N/χ²: relative deviation √(2/N)
    slack = SIGMAS * np.sqrt(2.0 / count)
    assert farthest(noise, differences) <= SQUARED * (1.0 + slack)
    # and half of it is found out
    assert farthest(0.5 * noise, differences) > SQUARED * (1.0 + slack)


@certifies(Indistinguishability, SuccessBound)
@pytest.mark.parametrize("noise", ["optimal", "isotropic"])
@pytest.mark.parametrize("count", [QUICK, pytest.param(DRAWS, marks=pytest.mark.thorough)])
def test_the_noise_of_a_robust_aggregate_keeps_every_source_within_its_distance(noise, count):
    model, _, _ = task(0)
    start = flat(model)
    sources = np.random.default_rng(3).normal(size=(REFERENCES, start.size)) + 0.5
    sources[0] *= -4.0
    gradient, differences = robust_aggregate(sources, angle=70.0)
    options = {"rounds": count, "mu": np.sqrt(SQUARED * count), "noise": noise}
    run, found = run_of(model, REFERENCES, **options), []
    for _ in range(count):
        run.update(gradient, differences)
        found.append(start - flat(model) - gradient)
        torch.nn.utils.vector_to_parameters(torch.from_numpy(start.copy()), model.parameters())
    slack = SIGMAS * np.sqrt(2.0 / count)
    assert farthest(np.array(found), differences) <= SQUARED * (1.0 + slack)
    assert farthest(0.5 * np.array(found), differences) > SQUARED * (1.0 + slack)


@bounds(bounded_probability)
@pytest.mark.parametrize("mu", [0.1, 1.0, 4.0])
def test_no_event_is_likelier_under_the_shift_than_the_bound_on_attack_success(mu):
    """Unions of intervals of the line, their probabilities by the error function."""
    source = np.random.default_rng(0)
    for _ in range(300):
        ends = np.sort(source.normal(0.5 * mu, 2.0 + mu, size=6))
        reference, real = (
            sum(
                0.5 * (erf((b - at) / 2**0.5) - erf((a - at) / 2**0.5))
                for a, b in ends.reshape(3, 2)
            )
            for at in (0.0, mu)
        )
        assert real <= bounded_probability(reference, mu) + 1e-12
    # and the half line reaches it
    cut = 0.3
    tails = [0.5 * (1.0 - erf((cut - at) / 2**0.5)) for at in (0.0, mu)]
    assert tails[1] == pytest.approx(bounded_probability(tails[0], mu), rel=1e-9)


@pytest.mark.thorough
@certifies(SuccessBound)
@pytest.mark.parametrize(("noise", "refuted"), [(1.0, False), (0.5, True)])
def test_who_knows_both_trainings_hardly_tells_whether_the_source_was_there(noise, refuted):
    """Adaptive rounds on poisoned sources, of U and of a reference, told apart by a projection."""
    mu, runs = 1.5, 160
    sources = Sources(data=images(), count=4, batch=16, trigger=blended(SHAPE), target=1)
    plan = PoisonedTraining(
        model=linear(), optimizer=descent(), rounds=3, sources=sources,
        method=RobustAggregation(angle=60.0),
        promise=Beside(references=References.leave_out(sources.names), mu=mu / noise),
    )  # fmt: skip
    direction = flat(plan.without_noise()) - flat(plan.without_noise(left_out=0))
    real, reference = (
        np.array([flat(plan.with_noise(left_out=left_out, seed=2 * i + side)) for i in range(runs)])
        @ direction
        for left_out, side in ((None, 0), (0, 1))
    )
    # three deviations of either share
    error = 3 * 0.5 / runs**0.5
    excess = [
        (real > cut).mean() - bounded_probability(min(1.0, (reference > cut).mean() + error), mu)
        for cut in np.sort(reference)[::8]
    ]
    assert (max(excess) > error) == refuted


@pytest.mark.thorough
@certifies(SuccessBound)
def test_rounds_that_build_on_each_other_stay_within_the_success_certified():
    """The best test of one reference: its likelihood ratio, summed over adaptive rounds."""
    told, rounds, trials = [], 4, 250
    for number in range(trials):
        model, inputs, targets = task(1)
        groups = np.arange(10) % REFERENCES
        run = run_of(model, REFERENCES, rounds=rounds, mu=1.5, rng=number)
        statistic = 0.0
        for _ in range(rounds):
            before, rows = flat(model), gradients(model, inputs, targets)
            run.step((inputs, targets), groups)
            noise = before - flat(model) - rows.mean(axis=0)
            differences = np.array([rows[groups == g].sum(axis=0) for g in range(5)]) / 10
            statistic += _ratio(noise, differences, 1.5**2 / rounds)
        told.append(statistic)
        bound = run.release().headline.success
    # guess U where the ratio is above half: right with probability Φ(μ/2) at most
    right = np.mean(np.array(told) < 0.5 * 1.5**2)
    error = np.sqrt(bound * (1 - bound) / trials)
    assert right <= bound + 5 * error
    assert right >= bound - 5 * error


def _ratio(noise, differences, squared):
    """⟨Σ⁻¹z, e⟩ of reference 0, Σ the least noise, designed here by its dual."""
    from tacit.design import worst_case

    covariance = worst_case(differences, np.full(5, squared), rtol=1e-9).covariance
    basis = np.linalg.qr(differences.T)[0]
    inner = basis.T @ covariance.to_dense() @ basis
    moved = differences[0] @ basis
    return float(moved @ np.linalg.lstsq(inner, basis.T @ noise)[0])


@pytest.mark.parametrize("seed", range(4))
def test_the_audit_of_one_run_refutes_half_of_the_noise_and_not_the_whole(seed):
    """A thousand canaries, orthogonal in gradient space; whoever scores them knows the noise."""
    count = 1_000
    rows = np.linalg.qr(np.random.default_rng(seed).normal(size=(count, count)))[0]
    canaries = torch.from_numpy(rows)
    inside = coins(count, seed)
    model = torch.nn.Linear(count, 1, bias=False).double()
    run = made(
        model, torch.optim.SGD(model.parameters(), lr=1.0), References.leave_out(count),
        loss=lambda module, inputs, _: module(inputs)[:, 0], mu=1.0, rounds=1, gram="none",
        rng=seed,
    )  # fmt: skip
    before = model.weight.detach().clone()
    run.step((canaries, canaries), range(count), inside=inside)
    update = (before - model.weight.detach()).numpy()[0]
    learned = rows[inside].sum(axis=0) / count
    bound = GaussianDP(
        mu=1.0, adjacency="one canary", evidence="theorem", assumptions=(), source="-"
    )
    for noise, level, refuted in ((1.0, 1 - 1e-6, False), (0.5, 0.95, True)):
        scores = rows @ (learned + noise * (update - learned))
        audit = audit_one_run(scores, inside, top=150, bottom=150, delta=1e-5, confidence=level)
        assert audit.refuted(bound) == refuted
