"""One trainer: both architectures, penalties, a start, and a training that goes on."""

import dataclasses

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")

from tacit.models import (  # noqa: E402
    JacobianPenalty,
    MarginDepletion,
    load,
    train,
    training_preset,
)
from tacit.models.small import optimisation  # noqa: E402
from tacit.models.small.checkpoints import Checkpoint  # noqa: E402
from tacit.models.small.settings import Settings  # noqa: E402

TEXT = "".join(
    f"{name} counts {number} stars, and {other} watches.\n"
    for name in ("Ada", "Blaise", "Carl")
    for other in ("Dora", "Emil", "Fritz")
    for number in range(40)
)
TINY = {"width": 16, "layers": 2, "heads": 2, "context": 8, "vocabulary": 270, "batch": 4,
        "precision": "float32", "progress": False}  # fmt: skip
SPLIT = {**TINY, "architecture": "split-memory", "trunk_width": 4}
PENALTIES = (JacobianPenalty((1,), 1e-2, first=4, rows=2), MarginDepletion((1,), 0.1, rank=4))


def weights(model):
    return model.network.state_dict()


def same(first, second):
    return all(torch.equal(part, weights(second)[name]) for name, part in weights(first).items())


def test_a_split_memory_model_is_trained_written_and_loaded(tmp_path):
    model = train(TEXT, steps=3, out=tmp_path / "model", penalties=PENALTIES, **SPLIT)
    again = load(tmp_path / "model")
    assert again.network.config.trunk_width == 4
    assert same(model, again)
    assert [each["name"] for each in again.recipe["penalties"]] == ["jacobian", "margin-depletion"]
    assert again.recipe["settings"]["architecture"] == "split-memory"


def test_it_learns():
    model = train(TEXT, steps=80, **{**SPLIT, "width": 32, "trunk_width": 16, "batch": 16})
    untrained = train(TEXT, steps=1, **{**SPLIT, "width": 32, "trunk_width": 16, "batch": 16})
    score, before = (m.recipe["held_out_perplexity"] for m in (model, untrained))
    assert score < before / 5


@pytest.mark.parametrize("settings", [TINY, SPLIT], ids=["gpt", "split-memory"])
def test_an_interrupted_training_goes_on_with_the_same_steps(tmp_path, monkeypatch, settings):
    penalties = PENALTIES if settings is SPLIT else PENALTIES[1:]
    whole = train(TEXT, steps=6, penalties=penalties, **settings)
    monkeypatch.setattr(Checkpoint, "is_due", lambda _: True)
    done, ordinary = [], optimisation._step

    def stopping(*arguments):
        if len(done) == 4:
            raise KeyboardInterrupt
        done.append(1)
        return ordinary(*arguments)

    kept = tmp_path / "training.checkpoint"
    monkeypatch.setattr(optimisation, "_step", stopping)
    with pytest.raises(KeyboardInterrupt):
        train(TEXT, steps=6, penalties=penalties, checkpoint=kept, **settings)
    assert kept.is_file()
    monkeypatch.setattr(optimisation, "_step", ordinary)
    steps = []
    monkeypatch.setattr(
        optimisation, "_step", lambda *given: (steps.append(1), ordinary(*given))[1]
    )
    resumed = train(TEXT, steps=6, penalties=penalties, checkpoint=kept, **settings)
    assert len(steps) == 2
    assert same(whole, resumed)
    assert not kept.exists()


@pytest.mark.parametrize(
    "change", [{"seed": 1}, {"penalties": PENALTIES[1:]}, {"text": TEXT + "More.\n"}]
)
def test_a_checkpoint_of_another_training_is_refused(tmp_path, monkeypatch, change):
    kept = tmp_path / "training.checkpoint"
    monkeypatch.setattr(Checkpoint, "is_due", lambda _: True)
    monkeypatch.setattr(Checkpoint, "remove", lambda _: None)
    train(TEXT, steps=1, checkpoint=kept, **SPLIT)
    before = kept.read_bytes()
    arguments = {"text": TEXT, "steps": 1, "checkpoint": kept, **SPLIT, **change}
    with pytest.raises(ValueError, match=r"checkpoint: .* is of a training with other settings"):
        train(**arguments)
    assert kept.read_bytes() == before


def test_a_file_that_is_no_checkpoint_is_refused_and_kept(tmp_path):
    kept = tmp_path / "notes.txt"
    kept.write_text("mine", "utf-8")
    with pytest.raises(ValueError, match="checkpoint: cannot read"):
        train(TEXT, steps=1, checkpoint=kept, **TINY)
    assert kept.read_text("utf-8") == "mine"


def test_a_training_goes_on_from_a_model_and_leaves_it_alone():
    first = train(TEXT, steps=5, **SPLIT)
    before = {name: part.clone() for name, part in weights(first).items()}
    further = train(TEXT, steps=5, start=first, **TINY)
    assert further.network.config.trunk_width == 4
    assert all(torch.equal(part, weights(first)[name]) for name, part in before.items())
    assert not same(first, further)
    assert "width" not in further.recipe["settings"]
    assert further.recipe["start"] != first.recipe["start"] is None
    assert not any(part.requires_grad for part in first.network.parameters())
    with pytest.raises(ValueError, match="context: expected at most the 8 of start, got 9"):
        train(TEXT, steps=1, start=first, **{**TINY, "context": 9})


def test_penalties_lower_what_they_penalise():
    trunk = {**SPLIT, "width": 24, "trunk_width": 8, "batch": 16}
    shares = {}
    for weight in (0.0, 3.0):
        model = train(TEXT, steps=25, penalties=[MarginDepletion((1,), weight, 4)], **trunk)
        tokens = model.stream(TEXT)[:800].view(100, 8)
        states = model.states(tokens, 1, positions="all")
        differences = (states - states.roll(1, dims=0)).flatten(0, 1)
        second = differences.T @ differences
        shares[weight] = float(second[:8, :8].trace() / second.trace())
    assert shares[3.0] < shares[0.0] / 2


def test_presets_have_the_stated_sizes():
    from tacit.models.small.training import _network

    for architecture in ("gpt", "split-memory"):
        for name, size in (("two-cores", 10e6), ("gpu", 90e6)):
            settings = Settings(
                **{"minutes": None, **training_preset(name, architecture)}
            ).checked()
            with torch.device("meta"):
                network = _network(settings, settings.vocabulary)
            count = sum(part.numel() for part in network.parameters())
            assert 0.9 * size < count < 1.1 * size, (architecture, name, count)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"architecture": "rnn"}, "architecture: expected one of"),
        ({"trunk_width": 16}, "trunk_width: expected an integer"),
        ({"trunk_width": 5}, "trunk_width: expected a multiple of heads=2, got 5"),
        ({"trunk_width": 4, "architecture": "gpt"}, "trunk_width: expected None for a GPT"),
        ({"penalties": [MarginDepletion((3,), 1.0, 2)]}, "penalties: expected layers 1 … 2, got 3"),
        ({"penalties": ["jacobian"]}, "penalties: expected values such as JacobianPenalty"),
        ({"start": 3}, "start: expected a language model"),
    ],
)
def test_bad_settings_get_a_sentence(change, words):
    with pytest.raises(ValueError, match=words):
        train(TEXT, steps=1, **{**SPLIT, **change})


def test_settings_are_frozen():
    with pytest.raises(dataclasses.FrozenInstanceError):
        Settings().width = 3
