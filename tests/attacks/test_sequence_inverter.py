"""The learned inverter of all positions, on a small model that tells its tokens."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from tacit.attacks import (
    CodeChannel,
    InverterFit,
    LearningSchedule,
    NetworkShape,
    SequenceInverter,
    StateInverter,
    StateRelease,
    attack_inversion,
)
from tacit.attacks.inversion.learned.released import trajectories_of
from tacit.models import LanguageModel
from tests.attacks.tiny import VOCABULARY, WIDTH, tiny_model

LENGTH = 4
# What is asked of a fit; the rest is of the texts.
FIT = ("minutes", "steps", "shape", "schedule", "checkpoint", "size", "kind", "shortest")
CHANCE = 1.0 / VOCABULARY


@pytest.fixture(scope="module")
def model() -> LanguageModel:
    return tiny_model()


@pytest.fixture(scope="module")
def stream() -> torch.Tensor:
    return torch.randint(VOCABULARY, (8000,), generator=torch.Generator().manual_seed(1))


@pytest.fixture(scope="module")
def secret() -> torch.Tensor:
    return torch.randint(VOCABULARY, (60, LENGTH), generator=torch.Generator().manual_seed(2))


@pytest.fixture(scope="module")
def public(stream):
    return stream[:40].reshape(-1, LENGTH)


def trained(model, stream, **given):
    shape = NetworkShape(kind=given.pop("kind", "forward"), layers=1, width=32, memory=4)
    told = {name: given.pop(name) for name in ("batch", "precision") if name in given}
    how = {name: given.pop(name) for name in FIT if name in given}
    schedule = LearningSchedule(**{"batch": 64, **told})
    fit = InverterFit(**{"steps": 60, "shape": shape, "schedule": schedule, **how})
    return SequenceInverter.train(
        model, 1, stream, fit, **{"length": LENGTH, "progress": False, **given}
    )


@pytest.fixture(scope="module")
def inverter(model, stream):
    return trained(model, stream)


def clean_of(model, prompts):
    return model.states(prompts, 1, positions="all").double().numpy()


def released_by(model, release, prompts, rng=3):
    states, behaviours = trajectories_of(model, 1, prompts, release.channel.predicts)
    drawn = release.draw(states.flatten(0, 1), behaviours, rng=rng)
    return drawn.reshape(*prompts.shape, *drawn.shape[1:])


@pytest.mark.parametrize("kind", ["forward", "right-to-left", "at-once"])
def test_every_kind_reads_states_that_tell_their_tokens(model, stream, secret, public, kind):
    found = attack_inversion(
        trained(model, stream, kind=kind, steps=150), clean_of(model, secret), secret, public,
        known="report", rng=0,
    )  # fmt: skip
    assert found.recovery.exact.value > 0.9
    spread = 4.0 * np.sqrt(CHANCE * (1.0 - CHANCE) / secret.numel())
    assert abs(found.baselines["permuted"].token_accuracy.value - CHANCE) < spread
    assert "all positions" in found.attacker


def test_all_positions_tell_more_than_the_last(model, stream, secret, public, inverter):
    last = StateInverter.train(
        model, 1, stream,
        InverterFit(steps=60, shape=NetworkShape(layers=1, width=32, memory=4),
                    schedule=LearningSchedule(batch=64)),
        length=LENGTH, progress=False,
    )  # fmt: skip
    whole = clean_of(model, secret)
    tokens = [inverter.invert(whole), last.invert(whole[:, -1])]
    shares = [(found == secret.numpy()).mean() for found in tokens]
    assert shares[0] > shares[1] + 0.2


@pytest.mark.parametrize("kind", ["forward", "right-to-left"])
def test_decoding_with_a_cache_is_what_the_whole_pass_says(model, stream, secret, kind):
    found = trained(model, stream, kind=kind, steps=5)
    rows = found.read(clean_of(model, secret))
    heard = rows if kind == "forward" else rows.flip(1)
    decoded = found.network.decode(heard)
    assert (found.network(heard, decoded).argmax(dim=-1) == decoded).all()
    tokens = decoded if kind == "forward" else decoded.flip(1)
    np.testing.assert_array_equal(found.invert(clean_of(model, secret)), tokens)


def test_noise_that_swamps_every_position_leaves_chance(model, stream, secret, public):
    release = StateRelease(np.full(WIDTH, 1e6))
    found = trained(model, stream, release=release, steps=10)
    drawn = released_by(model, release, secret)
    share = (found.invert(drawn) == secret.numpy()).mean()
    assert abs(share - CHANCE) < 4.0 * np.sqrt(CHANCE * (1.0 - CHANCE) / secret.numel())


def test_whoever_learns_from_releases_reads_more_of_them(model, stream, secret, inverter):
    release = StateRelease(np.full(WIDTH, 0.3 * float(model.states(secret, 1).var())))
    drawn = released_by(model, release, secret)
    aware = trained(model, stream, release=release)
    shares = [
        (one.invert(drawn) == secret.numpy()).mean()
        for one in (aware, inverter.attacking(release))
    ]  # fmt: skip
    assert shares[0] > shares[1]
    assert inverter.attacking(release).knows
    assert not aware.knows


def test_the_distance_is_twice_the_negative_log_likelihood_of_all_positions(
    model, secret, public, inverter
):
    values = np.linspace(0.5, 2.0, WIDTH)
    release = StateRelease(values)
    drawn = released_by(model, release, secret[:5])
    found = inverter.attacking(release).distances(drawn, public)
    bank = clean_of(model, public)
    direct = ((drawn[:, None] - bank[None]) ** 2 / values).sum(axis=(2, 3))
    # each position's likelihood is known up to a constant of its release
    np.testing.assert_allclose(found - found[:, :1], direct - direct[:, :1], rtol=1e-5, atol=1e-5)
    nearest = inverter.attacking(release).nearest(drawn, public)
    np.testing.assert_array_equal(nearest, public.numpy()[direct.argmin(axis=1)])


def token_means(model, stream):
    prompts = stream.view(-1, LENGTH)
    states, tokens = clean_of(model, prompts).reshape(-1, WIDTH), stream.numpy()
    return np.stack([states[tokens == token].mean(axis=0) for token in range(VOCABULARY)])


@pytest.mark.parametrize("predicts", [False, True])
def test_codes_of_every_position_are_read(model, stream, secret, public, predicts):
    centres = token_means(model, stream)

    def assign(states, behaviours):
        assert (behaviours is not None) == predicts
        rows = np.asarray(states, dtype=np.float64)
        if predicts:
            assert behaviours.count == len(rows)
        return ((rows[:, None] - centres) ** 2).sum(axis=2).argmin(axis=1)

    release = StateRelease(CodeChannel(assign, predicts=predicts), centres)
    found = trained(model, stream, release=release)
    drawn = released_by(model, release, secret)
    assert drawn.shape == secret.shape
    result = attack_inversion(found, drawn, secret, public, known="report", rng=0)
    assert result.recovery.token_accuracy.value > 0.5
    assert "zeroed" not in result.baselines


@pytest.mark.parametrize("kind", [SequenceInverter, StateInverter])
def test_what_is_learnt_in_half_precision_is_read_in_single(model, stream, kind):
    # fewer codes than dimensions: whitening amplifies whatever rounding it has
    centres = token_means(model, stream)[:6]
    release = StateRelease(
        CodeChannel(
            lambda rows, _: torch.cdist(rows.double(), torch.from_numpy(centres)).argmin(1)
        ),
        centres,
    )
    fit = InverterFit(
        shape=NetworkShape(kind="at-once", layers=1, width=32), steps=60,
        schedule=LearningSchedule(batch=64, precision="bfloat16"),
    )  # fmt: skip
    found = kind.train(model, 1, stream, fit, length=LENGTH, release=release, progress=False)
    unseen = stream[-160:].unfold(0, LENGTH, 1)
    everywhere = kind is SequenceInverter
    states = model.states(unseen, 1, positions="all" if everywhere else "last")
    drawn = release.draw(states.flatten(0, -2)).reshape(states.shape[:-1])
    rows, tokens = found.read(drawn), unseen.flip(1)
    logits = found.network(rows.flip(1) if everywhere else rows, tokens)
    loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1), tokens.flatten())
    assert abs(float(loss) - found.loss) < 0.1


def test_predictions_of_all_positions_are_those_of_their_stems(model, secret):
    _, behaviours = trajectories_of(model, 1, secret, True)
    for step in range(LENGTH):
        stems = model.logits(secret[:, : step + 1]).softmax(dim=-1)
        rows = np.arange(len(secret)) * LENGTH + step
        found = torch.stack([behaviours.probabilities(slice(row, row + 1))[0] for row in rows])
        torch.testing.assert_close(found, stems, rtol=1e-4, atol=1e-6)


def test_an_interrupted_training_goes_on_from_its_own_checkpoint(model, stream, secret, tmp_path):
    path = tmp_path / "sequence"
    whole = trained(model, stream, steps=12)
    trained(model, stream, steps=12, checkpoint=path)
    again = trained(model, stream, steps=12, checkpoint=path)
    assert again.steps == whole.steps
    assert again.loss == pytest.approx(whole.loss, rel=1e-6)
    with pytest.raises(ValueError, match=r"checkpoint: .* another releases"):
        trained(model, stream, steps=12, checkpoint=path, release=StateRelease(np.ones(WIDTH)))
    with pytest.raises(ValueError, match="checkpoint"):
        StateInverter.train(
            model, 1, stream,
            InverterFit(steps=12, checkpoint=str(path), schedule=LearningSchedule(batch=64),
                        shape=NetworkShape(kind="forward", layers=1, width=32, memory=4)),
            length=LENGTH, progress=False,
        )  # fmt: skip


def test_a_shorter_trajectory_is_read_by_who_learnt_from_such(model, stream, secret):
    found = trained(model, stream, shortest=2)
    short = clean_of(model, secret[:, :3])
    share = (found.invert(short) == secret[:, :3].numpy()).mean()
    assert share > 0.9


@pytest.mark.parametrize(
    "fixed", [[[1, 2]], np.full((60, LENGTH), VOCABULARY), np.full((60, LENGTH), 0.5)]
)
def test_given_tokens_of_another_shape_or_vocabulary_are_refused(model, secret, inverter, fixed):
    with pytest.raises(ValueError, match="fixed: expected"):
        inverter.sample(clean_of(model, secret), fixed=fixed)


@pytest.mark.parametrize(
    "released",
    [
        np.zeros((5, WIDTH)),
        np.zeros((5, LENGTH + 1, WIDTH)),
        np.zeros((5, 0, WIDTH)),
        np.full((5, LENGTH, WIDTH), np.nan),
        [[1.0], [2.0, 3.0]],
        np.zeros((5, LENGTH), dtype=int),
    ],
)
def test_what_are_no_releases_of_all_positions_is_refused(inverter, released):
    with pytest.raises(ValueError, match="released: expected"):
        inverter.invert(released)
