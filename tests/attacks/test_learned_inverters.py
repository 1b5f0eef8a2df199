"""Learned inverters of a model whose state tells its tokens, and of states that tell nothing."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from tacit.attacks import (
    CodeChannel,
    InverterFit,
    LearningSchedule,
    MappedChannel,
    NetworkShape,
    StateInverter,
    StateRelease,
    VerifiedInverter,
    attack_inversion,
)
from tacit.attacks.inversion.learned.substitution import substitutes
from tacit.models import LanguageModel
from tests.attacks.tiny import VOCABULARY, WIDTH, tiny_model

LENGTH = 3
# What is asked of a fit; the rest is of the texts.
FIT = ("minutes", "steps", "shape", "schedule", "checkpoint", "size", "kind", "shortest")


@pytest.fixture(scope="module")
def model() -> LanguageModel:
    return tiny_model()


@pytest.fixture(scope="module")
def stream() -> torch.Tensor:
    return torch.randint(VOCABULARY, (8000,), generator=torch.Generator().manual_seed(1))


@pytest.fixture(scope="module")
def secret() -> torch.Tensor:
    return torch.randint(VOCABULARY, (40, LENGTH), generator=torch.Generator().manual_seed(2))


@pytest.fixture(scope="module")
def public(stream):
    return stream[:30].reshape(-1, LENGTH)


def trained(model, stream, **given):
    shape = NetworkShape(kind=given.pop("kind", "right-to-left"), layers=1, width=32, memory=4)
    told = {name: given.pop(name) for name in ("batch", "precision") if name in given}
    how = {name: given.pop(name) for name in FIT if name in given}
    schedule = LearningSchedule(**{"batch": 64, **told})
    fit = InverterFit(**{"steps": 100, "shape": shape, "schedule": schedule, **how})
    return StateInverter.train(
        model, 1, stream, fit, **{"length": LENGTH, "progress": False, **given}
    )


@pytest.fixture(scope="module")
def inverter(model, stream):
    return trained(model, stream)


def attack(inverter, released, secret, public):
    return attack_inversion(inverter, released, secret, public, known="report", rng=0)


def test_the_last_token_is_read_and_a_shuffled_release_tells_nothing(
    model, secret, public, inverter
):
    found = attack(inverter, model.states(secret, 1).double().numpy(), secret, public)
    assert found.recovery.by_position[0].value > 0.9
    chance = 1.0 / VOCABULARY
    spread = 4.0 * np.sqrt(chance * (1.0 - chance) / len(secret))
    assert found.baselines["permuted"].by_position[0].value < chance + spread
    blind = found.baselines["majority"].token_accuracy.value
    assert found.recovery.token_accuracy.value > blind + spread


@pytest.mark.parametrize("kind", ["at-once", "forward"])
def test_every_kind_beats_what_needs_no_release(model, stream, secret, public, kind):
    found = trained(model, stream, kind=kind)
    guessed = attack(found, model.states(secret, 1).double().numpy(), secret, public)
    blind = max(guessed.baselines[name].token_accuracy.value for name in ("permuted", "majority"))
    assert guessed.recovery.token_accuracy.value > blind + 4.0 * np.sqrt(0.25 / secret.numel())


def test_what_is_given_stays_and_the_rest_is_decoded(inverter, model, secret):
    fixed = np.full(secret.shape, -1)
    fixed[:, -1] = 5
    states = model.states(secret, 1).double().numpy()
    found = inverter.sample(states, fixed=fixed, source=torch.Generator().manual_seed(0))
    assert (found[:, -1] == 5).all()
    assert found.min() >= 0


@pytest.mark.parametrize("kind", ["right-to-left", "forward"])
def test_decoding_with_a_cache_is_what_the_whole_pass_says(model, stream, secret, kind):
    inverter = trained(model, stream, kind=kind, steps=5)
    vectors = inverter.release.vectors_of(model.states(secret, 1))
    decoded = inverter.network.decode(vectors)
    assert (inverter.network(vectors, decoded).argmax(dim=-1) == decoded).all()


def test_a_state_that_says_nothing_leaves_chance(model, stream, secret, public):
    # noise a thousand times the state
    release = StateRelease(np.full(WIDTH, 1e6))
    found = trained(model, stream, release=release, steps=10)
    guessed = attack(found, release.draw(model.states(secret, 1), rng=3), secret, public)
    chance = 1.0 / VOCABULARY
    spread = 4.0 * np.sqrt(chance * (1.0 - chance) / secret.numel())
    assert abs(guessed.recovery.token_accuracy.value - chance) < spread


def test_verification_is_exact_where_every_prompt_can_be_tried(model, secret, inverter):
    every = torch.cartesian_prod(*[torch.arange(VOCABULARY)] * LENGTH)
    attacker = VerifiedInverter(inverter, bank=every, samples=8, neighbours=2, rounds=1)
    found = attacker.verify(model.states(secret, 1).double().numpy())
    assert found.verified.all()
    assert (found.tokens == secret.numpy()).all()


def test_the_prompts_verified_without_a_bank_are_the_right_ones(model, secret, inverter):
    attacker = VerifiedInverter(inverter, samples=24, rounds=4)
    states = model.states(secret, 1).double().numpy()
    found = attacker.verify(states)
    right = (found.tokens == secret.numpy()).all(axis=1)
    assert (right == found.verified).all()
    assert right.mean() > (inverter.invert(states) == secret.numpy()).all(axis=1).mean()
    # of a state that no prompt has, none is verified
    assert not attacker.verify(states + 0.01).verified.any()


@pytest.mark.parametrize("size", [1e2, pytest.param(1e4, marks=pytest.mark.thorough), 1e6])
def test_a_massive_coordinate_makes_no_wrong_prompt_verified(stream, secret, size):
    model = tiny_model(size)
    inverter = trained(model, stream)
    states = model.states(secret, 1).double().numpy()
    found = VerifiedInverter(inverter, samples=24, rounds=4).verify(states)
    right = (found.tokens == secret.numpy()).all(axis=1)
    assert found.verified.sum() > len(secret) / 4
    np.testing.assert_array_equal(found.tokens[found.verified], secret.numpy()[found.verified])
    assert (found.verified == right).all()


def test_no_coordinate_of_the_truth_is_off_by_more_than_rounding(model, secret):
    release = StateRelease()
    for source, prompts in ((model, secret), (tiny_model(1e3), secret)):
        together = source.states(prompts, 2).double().numpy()
        alone = np.concatenate([source.states(row[None], 2).double().numpy() for row in prompts])
        by_two = source.states(prompts, 2, batch_size=2).double().numpy()
        for again in (alone, by_two):
            assert (np.abs(again - together) <= release.rounding(together)).all()


@pytest.mark.filterwarnings("error")
def test_states_of_zeros_and_of_tiny_numbers_are_searched_without_a_warning(inverter):
    attacker = VerifiedInverter(inverter, samples=4, rounds=1, sweeps=1, substitutes=2)
    for level in (0.0, 1e-44):
        found = attacker.verify(np.full((2, WIDTH), level))
        assert not found.verified.any()
        assert np.isfinite(found.distances).all()


def test_releases_that_the_network_cannot_read_are_refused(inverter, public):
    with pytest.raises(ValueError, match=f"released: expected releases of {WIDTH} numbers"):
        inverter.invert(np.ones((2, WIDTH - 1)))
    with pytest.raises(ValueError, match=f"released: expected releases of {WIDTH} numbers"):
        inverter.nearest(np.ones((2, WIDTH + 1)), public)
    with pytest.raises(ValueError, match=f"released: expected releases of {WIDTH} numbers"):
        VerifiedInverter(inverter).verify(np.ones((2, WIDTH - 1)))
    with pytest.raises(ValueError, match="released: expected numbers up to"):
        inverter.invert(np.full((2, WIDTH), 1e39))
    for seed in (-1, 2**63):
        with pytest.raises(ValueError, match="seed"):
            VerifiedInverter(inverter, seed=seed)


def test_changing_tokens_one_by_one_finds_what_an_untrained_network_misses(model, stream, secret):
    untrained = trained(model, stream, steps=1)
    states = model.states(secret, 1).double().numpy()
    usual = {"samples": 1, "rounds": 0, "substitutes": VOCABULARY}
    before = VerifiedInverter(untrained, sweeps=0, **usual).verify(states)
    after = VerifiedInverter(untrained, sweeps=4, **usual).verify(states)
    assert (after.distances <= before.distances).all()
    assert before.verified.mean() < 0.2 < 0.6 < after.verified.mean()
    np.testing.assert_array_equal(after.tokens[after.verified], secret.numpy()[after.verified])
    kept = before.verified
    np.testing.assert_array_equal(after.tokens[kept], before.tokens[kept])


def test_one_wrong_token_is_set_right_in_one_sweep(model, inverter, secret):
    states = model.states(secret, 1).double().numpy()
    wrong = secret.numpy().copy()
    place = np.arange(len(wrong)) % LENGTH
    rows = np.arange(len(wrong))
    wrong[rows, place] = (wrong[rows, place] + 1) % VOCABULARY
    tried = substitutes(inverter, states, wrong, VOCABULARY)
    assert tried.shape == (len(wrong), LENGTH, VOCABULARY)
    assert (np.sort(tried, axis=2) == np.arange(VOCABULARY)).all()
    # half of the vocabulary, chosen by the gradient and the network, holds the truth mostly
    half = substitutes(inverter, states, wrong, VOCABULARY // 2)
    truth = secret.numpy()[rows, place][:, None]
    assert (half[rows, place] == truth).any(axis=1).mean() > 0.8


@pytest.mark.parametrize("tokens", [1, 2])
def test_short_prompts_are_changed_too(model, stream, tokens):
    reader = trained(model, stream, length=tokens, steps=1)
    prompts = torch.arange(VOCABULARY)[:, None].expand(-1, tokens)
    states = model.states(prompts, 1).double().numpy()
    found = VerifiedInverter(reader, samples=1, rounds=0, substitutes=100).verify(states)
    assert found.verified.mean() > (0.99 if tokens == 1 else 0.5)


def test_under_noise_the_truth_is_verified_with_the_confidence_asked(model, inverter):
    prompts = torch.randint(VOCABULARY, (400, LENGTH), generator=torch.Generator().manual_seed(5))
    release = StateRelease(np.full(WIDTH, 0.01))
    drawn = release.draw(model.states(prompts, 1), rng=0)
    noisy = inverter.attacking(release)
    attacker = VerifiedInverter(noisy, passing=0.9)
    own = release.nearness(drawn, noisy.candidates(prompts)).diagonal()
    share = (own <= attacker.threshold(drawn)).mean()
    assert abs(share - 0.9) < 4.0 * np.sqrt(0.9 * 0.1 / len(prompts))
    assert noisy.knows
    assert not inverter.knows


def test_codes_are_read_by_what_stands_for_them(model, stream, secret):
    words = model.states(torch.arange(VOCABULARY)[:, None].repeat(1, LENGTH), 1).double()
    channel = CodeChannel(lambda rows, _: torch.cdist(rows.double(), words).argmin(dim=1))
    release = StateRelease(channel, words.numpy())
    attacker = trained(model, stream, release=release, steps=20)
    codes = release.draw(model.states(secret, 1))
    found = VerifiedInverter(attacker, samples=16, rounds=3).verify(codes)
    again = release.draw(model.states(torch.tensor(found.tokens), 1))
    assert ((again == codes) == found.verified).all()
    assert found.verified.any()
    assert attacker.emptied(codes) is None


def test_a_function_of_the_state_is_released(model, stream, secret):
    release = StateRelease(MappedChannel(lambda rows: rows[:, :16]))
    attacker = trained(model, stream, release=release, steps=5)
    drawn = release.draw(model.states(secret, 1))
    assert drawn.shape == (40, 16)
    assert attacker.nearest(drawn, secret).tolist() == secret.tolist()


def test_windows_of_several_lengths_are_learnt_from(model, stream, secret):
    attacker = trained(model, stream, shortest=1, steps=5)
    assert attacker.invert(model.states(secret[:, 1:], 1).numpy()).shape == (40, LENGTH)


def test_an_interrupted_training_goes_on_where_it_stopped(model, stream, tmp_path, monkeypatch):
    from tacit.attacks.inversion.learned import training

    options = {"steps": 8, "checkpoint": tmp_path / "learned"}
    whole = trained(model, stream, steps=8)
    monkeypatch.setattr(training, "SECONDS_BETWEEN_STATES", -1.0)
    step, taken = training._step, []

    def interrupted(*given):
        if len(taken) == 5:
            raise KeyboardInterrupt
        taken.append(step(*given))

    monkeypatch.setattr(training, "_step", interrupted)
    with pytest.raises(KeyboardInterrupt):
        trained(model, stream, **options)
    monkeypatch.setattr(training, "_step", step)
    resumed = trained(model, stream, **options)
    assert (resumed.steps, resumed.history) == (8, whole.history)
    for name, value in whole.network.state_dict().items():
        assert torch.equal(value, resumed.network.state_dict()[name])
    with pytest.raises(ValueError, match="checkpoint: the folder holds a run with another sched"):
        trained(model, stream, steps=9, checkpoint=tmp_path / "learned")
    (tmp_path / "learned" / "state.pt").write_bytes(b"not a state")
    # what another machine takes "auto" for
    with monkeypatch.context() as elsewhere:
        elsewhere.setattr(training, "native_precision", lambda *_: "another")
        with pytest.raises(ValueError, match="checkpoint: the folder holds a run with another pre"):
            trained(model, stream, steps=8, checkpoint=tmp_path / "learned")
    with pytest.raises(ValueError, match=r"checkpoint: .* is damaged"):
        trained(model, stream, **options)
    (tmp_path / "other").write_bytes(b"no folder")
    with pytest.raises(ValueError, match="checkpoint: cannot make"):
        trained(model, stream, steps=8, checkpoint=tmp_path / "other")


def test_bad_settings_are_named(model, stream, inverter):
    for given, words in [
        ({"kind": "sideways"}, "kind"),
        ({"length": 9}, "length: expected at most 8, got 9"),
        ({"minutes": 1.0}, "steps: expected this or minutes, got both"),
        ({"kind": "forward", "shortest": 1}, "shortest"),
        ({"release": 3}, "release: expected a StateRelease"),
        ({"shape": 3}, "shape: expected a NetworkShape, got int"),
    ]:
        with pytest.raises(ValueError, match=words):
            trained(model, stream, **given)
    with pytest.raises(ValueError, match="stream: expected at least 300 tokens"):
        trained(model, stream[:100])
    with pytest.raises(ValueError, match="vectors: expected them with codes"):
        StateRelease(CodeChannel(lambda rows, _: rows))
    with pytest.raises(ValueError, match="bank: expected prompts of 3 tokens"):
        VerifiedInverter(inverter, bank=[[1, 2]])
