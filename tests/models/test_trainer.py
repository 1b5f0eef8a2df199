"""One trainer: both architectures, penalties, a start, and a training that goes on."""

import dataclasses

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")

from tacit import Run  # noqa: E402
from tacit.models import (  # noqa: E402
    JacobianPenalty,
    MarginDepletion,
    ModelSettings,
    load,
    train,
)
from tacit.models.small import optimisation  # noqa: E402
from tacit.models.small import training as small  # noqa: E402
from tacit.models.small.training import _network  # noqa: E402
from tacit.runs.folder import STATE, RunFolder  # noqa: E402

TEXT = "".join(
    f"{name} counts {number} stars, and {other} watches.\n"
    for name in ("Ada", "Blaise", "Carl")
    for other in ("Dora", "Emil", "Fritz")
    for number in range(40)
)
TINY = {"width": 16, "layers": 2, "heads": 2, "context": 8, "vocabulary": 270, "batch": 4}
SPLIT = {**TINY, "architecture": "split-memory", "trunk_width": 4}
PENALTIES = (JacobianPenalty((1,), 1e-2, first=4, rows=2), MarginDepletion((1,), 0.1, rank=4))


def run(steps, checkpoint=None):
    return Run(steps=steps, precision="float32", checkpoint=checkpoint, progress=False)


def trained(steps, sizes, *, text=TEXT, checkpoint=None, **others):
    return train(text, run(steps, checkpoint), ModelSettings(**sizes), **others)


def weights(model):
    return model.network.state_dict()


def same(first, second):
    return all(torch.equal(part, weights(second)[name]) for name, part in weights(first).items())


def test_a_split_memory_model_is_trained_written_and_loaded(tmp_path):
    model = trained(3, SPLIT, out=tmp_path / "model", penalties=PENALTIES)
    again = load(tmp_path / "model")
    assert again.network.config.trunk_width == 4
    assert same(model, again)
    assert [each["name"] for each in again.recipe["penalties"]] == ["jacobian", "margin-depletion"]
    assert again.recipe["settings"]["architecture"] == "split-memory"


def test_it_learns():
    sizes = {**SPLIT, "width": 32, "trunk_width": 16, "batch": 16}
    model, untrained = trained(80, sizes), trained(1, sizes)
    score, before = (m.recipe["held_out_perplexity"] for m in (model, untrained))
    assert score < before / 5


@pytest.mark.parametrize("settings", [TINY, SPLIT], ids=["gpt", "split-memory"])
def test_an_interrupted_training_goes_on_with_the_same_steps(tmp_path, monkeypatch, settings):
    penalties = PENALTIES if settings is SPLIT else PENALTIES[1:]
    whole = trained(6, settings, penalties=penalties)
    done, ordinary, fit = [], optimisation._step, small.fit
    monkeypatch.setattr(small, "fit", lambda *given, **named: fit(*given, **named, every=0.0))

    def stopping(*arguments):
        if len(done) == 4:
            raise KeyboardInterrupt
        done.append(1)
        return ordinary(*arguments)

    kept = tmp_path / "run"
    monkeypatch.setattr(optimisation, "_step", stopping)
    with pytest.raises(KeyboardInterrupt):
        trained(6, settings, penalties=penalties, checkpoint=kept)
    assert (kept / STATE).is_file()
    monkeypatch.setattr(optimisation, "_step", ordinary)
    steps = []
    monkeypatch.setattr(
        optimisation, "_step", lambda *given: (steps.append(1), ordinary(*given))[1]
    )
    resumed = trained(6, settings, penalties=penalties, checkpoint=kept)
    assert len(steps) == 2
    assert same(whole, resumed)
    assert not kept.exists()


@pytest.mark.parametrize(
    ("change", "words"),
    [({"seed": 1}, "settings"), ({"penalties": PENALTIES[1:]}, "penalties"),
     ({"text": TEXT + "More.\n"}, "text")],
)  # fmt: skip
def test_a_checkpoint_of_another_training_is_refused(tmp_path, monkeypatch, change, words):
    kept = tmp_path / "run"
    monkeypatch.setattr(RunFolder, "remove", lambda _: None)
    trained(1, SPLIT, checkpoint=kept)
    before = (kept / STATE).read_bytes()
    seed = {"seed": change.pop("seed")} if "seed" in change else {}
    with pytest.raises(ValueError, match=f"checkpoint: the folder holds .* another {words}"):
        trained(1, {**SPLIT, **seed}, checkpoint=kept, **change)
    assert (kept / STATE).read_bytes() == before


def test_a_folder_that_is_no_checkpoint_is_refused_and_kept(tmp_path):
    kept = tmp_path / "notes"
    kept.mkdir()
    (kept / STATE).write_text("mine", "utf-8")
    with pytest.raises(ValueError, match=r"checkpoint: declared\.json is missing"):
        trained(1, TINY, checkpoint=kept)
    assert (kept / STATE).read_text("utf-8") == "mine"


def test_what_else_is_in_a_folder_stays_when_a_training_is_done(tmp_path):
    (tmp_path / "notes.txt").write_text("mine", "utf-8")
    trained(1, TINY, checkpoint=tmp_path)
    assert [place.name for place in tmp_path.iterdir()] == ["notes.txt"]


def test_a_training_goes_on_from_a_model_and_leaves_it_alone():
    first = trained(5, SPLIT)
    before = {name: part.clone() for name, part in weights(first).items()}
    further = trained(5, TINY, start=first)
    assert further.network.config.trunk_width == 4
    assert all(torch.equal(part, weights(first)[name]) for name, part in before.items())
    assert not same(first, further)
    assert "width" not in further.recipe["settings"]
    assert further.recipe["start"] != first.recipe["start"] is None
    assert not any(part.requires_grad for part in first.network.parameters())
    with pytest.raises(ValueError, match="context: expected at most the 8 of start, got 9"):
        trained(1, {**TINY, "context": 9}, start=first)


def test_penalties_lower_what_they_penalise():
    trunk = {**SPLIT, "width": 24, "trunk_width": 8, "batch": 16}
    shares = {}
    for weight in (0.0, 3.0):
        model = trained(25, trunk, penalties=[MarginDepletion((1,), weight, 4)])
        tokens = model.stream(TEXT)[:800].view(100, 8)
        states = model.states(tokens, 1, positions="all")
        differences = (states - states.roll(1, dims=0)).flatten(0, 1)
        second = differences.T @ differences
        shares[weight] = float(second[:8, :8].trace() / second.trace())
    assert shares[3.0] < shares[0.0] / 2


def test_presets_have_the_stated_sizes():
    budgets = {"two-cores": Run(minutes=30.0), "gpu": Run(steps=20_000)}
    for architecture in ("gpt", "split-memory"):
        for name, size in (("two-cores", 10e6), ("gpu", 90e6)):
            asked = ModelSettings(preset=name, architecture=architecture)
            with torch.device("meta"):
                network = _network(asked, asked.sizes()["vocabulary"])
            count = sum(part.numel() for part in network.parameters())
            assert 0.9 * size < count < 1.1 * size, (architecture, name, count)
            assert asked.run(Run()) == budgets[name]
            assert asked.run(Run(steps=7)) == Run(steps=7)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"architecture": "rnn"}, "architecture: expected one of"),
        ({"trunk_width": 16}, "trunk_width: expected an integer below the width 16, got 16"),
        ({"trunk_width": 5}, "trunk_width: expected a multiple of heads=2, got 5"),
        ({"trunk_width": 4, "architecture": "gpt"}, "trunk_width: expected None for a GPT"),
        ({"penalties": [MarginDepletion((3,), 1.0, 2)]}, "penalties: expected layers 1 … 2, got 3"),
        ({"penalties": ["jacobian"]}, "penalties: expected values such as JacobianPenalty"),
        ({"start": 3}, "start: expected a language model"),
    ],
)
def test_bad_settings_get_a_sentence(change, words):
    others = {name: change.pop(name) for name in ("penalties", "start") if name in change}
    with pytest.raises(ValueError, match=words):
        trained(1, {**SPLIT, **change}, **others)


@pytest.mark.parametrize(
    ("run", "words"),
    [
        (3, "run: expected a tacit.Run, got int"),
        (Run(steps=1, patience=2), "patience: expected None for a run of this kind"),
        (Run(passes=1), "passes: expected None for a run of this kind"),
    ],
)
def test_a_run_that_would_not_be_read_is_refused(run, words):
    with pytest.raises(ValueError, match=words):
        train(TEXT, run, ModelSettings(**TINY))


def test_settings_are_frozen():
    with pytest.raises(dataclasses.FrozenInstanceError):
        ModelSettings().width = 3
