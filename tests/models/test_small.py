"""A small model is trained, scored on text it never saw, written whole and found again."""

import hashlib
import json
import math

import numpy as np
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")

from tacit import Run  # noqa: E402
from tacit.models import LanguageModel, ModelSettings, docstring_corpus, load, train  # noqa: E402
from tacit.models.loading import STORED  # noqa: E402
from tacit.models.small import training as small  # noqa: E402
from tacit.models.small.optimisation import TrainingWindows, fit, perplexity  # noqa: E402
from tacit.models.small.storage import RECIPE, WEIGHTS, save_half  # noqa: E402
from tacit.models.texts.corpus import hold_out  # noqa: E402

TINY = {"width": 32, "layers": 2, "heads": 2, "context": 16, "vocabulary": 300, "batch": 16}


def tiny(text, steps=1, *, seed=0, **others):
    """A model of the sizes above."""
    run = Run(steps=steps, precision="float32", progress=False)
    return train(text, run, ModelSettings(seed=seed, **TINY), **others)


def numbered_text(lines=600):
    """Sentences whose next word is half determined: learnable and not trivial."""
    source = np.random.default_rng(0)
    names, verbs = ["Ada", "Blaise", "Carl", "Émilie"], ["counts", "weighs", "draws"]
    things = ["one stone", "two stars", "three trees"]
    return "".join(
        f"{names[a]} {verbs[b]} {things[b]}, and {names[(a + 1) % 4]} watches.\n"
        for a, b in zip(source.integers(4, size=lines), source.integers(3, size=lines), strict=True)
    )


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    folder = tmp_path_factory.mktemp("models") / "tiny"
    return tiny(numbered_text(), 120, out=folder), folder


def test_training_learns(trained):
    model, _ = trained
    score = model.recipe["held_out_perplexity"]
    untrained = tiny(numbered_text()).recipe["held_out_perplexity"]
    assert untrained > 100
    counts = torch.bincount(model.stream(numbered_text())).double()
    shares = counts[counts > 0] / counts.sum()
    without_context = math.exp(-float((shares * shares.log()).sum()))
    assert score < without_context / 3
    assert model.recipe["steps"] == 120
    assert model.recipe["tokens_read"] == 120 * 16 * 16


def test_a_written_model_is_the_same_model(trained):
    model, folder = trained
    again = load(folder)
    assert isinstance(again, LanguageModel)
    assert again.recipe == model.recipe == json.loads((folder / "recipe.json").read_text("utf-8"))
    text = "Émilie weighs two stars\n"
    assert again.decode(again.encode(text)) == text
    tokens = torch.tensor([model.encode(text)[:8]])
    torch.testing.assert_close(again.logits(tokens), model.logits(tokens), rtol=1e-4, atol=1e-4)
    kept = model.network.state_dict()
    assert all(torch.equal(kept[name], part) for name, part in again.network.state_dict().items())
    assert {file.name for file in folder.iterdir()} >= {"model.safetensors", "tokenizer.json"}
    assert not [file for file in folder.parent.iterdir() if file != folder]
    assert not any(parameter.requires_grad for parameter in again.network.parameters())


def test_streams_hold_the_text(trained):
    model, _ = trained
    text = numbered_text()
    stream = model.stream(text)
    assert stream.dtype == torch.int64
    assert model.decode(stream) == text
    assert len(model.encode(text[:200])) > 10


def test_steps_repeat_and_seeds_differ():
    text = numbered_text(200)

    def weights(seed):
        return tiny(text, 2, seed=seed).network.state_dict()

    first, second, other = weights(1), weights(1), weights(2)
    assert all(torch.equal(first[name], second[name]) for name in first)
    assert not all(torch.equal(first[name], other[name]) for name in first)


def test_training_leaves_the_global_generator_alone():
    torch.manual_seed(3)
    expected = torch.rand(3)
    torch.manual_seed(3)
    tiny(numbered_text(200))
    assert torch.equal(torch.rand(3), expected)


def test_perplexity_is_the_mean_cross_entropy(trained):
    model, _ = trained
    stream = model.stream(numbered_text(40))[:170]
    total = []
    for start in range(0, 170, 17):
        window = stream[start : start + 17]
        for at in range(1, 17):
            chances = model.logits(window[None, :at]).double().softmax(dim=-1)
            total.append(-math.log(float(chances[0, window[at]])))
    expected = math.exp(sum(total) / len(total))
    assert perplexity(model.network, stream, 16) == pytest.approx(expected, rel=1e-5)


@pytest.mark.parametrize("precision", ["auto", "bfloat16"])
def test_a_budget_of_time_ends(precision):
    network = small._network(ModelSettings(**TINY), 300)
    stream = torch.randint(300, (2000,), generator=torch.Generator().manual_seed(0))
    run = Run(minutes=0.2 / 60, precision=precision, progress=False)
    outcome = fit(network, stream, run, TrainingWindows(context=16, batch=16, seed=0))
    assert outcome.steps >= 1
    assert outcome.precision in ("float32", "bfloat16")
    assert all(bool(p.isfinite().all()) for p in network.parameters())
    assert {p.dtype for p in network.parameters()} == {torch.float32}


def test_an_interruption_writes_nothing(tmp_path, monkeypatch):
    def interrupted(*_, **__):
        raise KeyboardInterrupt

    for place in ("fit", "perplexity"):
        monkeypatch.setattr(small, place, interrupted)
        with pytest.raises(KeyboardInterrupt):
            tiny(numbered_text(200), out=tmp_path / "model")
        monkeypatch.undo()
    monkeypatch.setattr("tacit.models.small.storage._move", interrupted)
    with pytest.raises(KeyboardInterrupt):
        tiny(numbered_text(200), out=tmp_path / "model")
    assert not list(tmp_path.iterdir())


def test_the_stored_model_is_the_one_its_recipe_describes():
    recipe = json.loads((STORED / RECIPE).read_text(encoding="utf-8"))
    weights = (STORED / WEIGHTS).read_bytes()
    assert hashlib.sha256(weights).hexdigest() == recipe["weights_sha256"]
    assert len(weights) <= 12_000_000
    assert recipe["held_out_perplexity"] <= 40.0


@pytest.mark.thorough
def test_the_stored_model_predicts_docstrings_it_never_saw():
    model = load("tacit/small")
    assert (model.name, model.layers, model.width) == ("tacit/small", 6, 256)
    unseen = model.stream(hold_out(docstring_corpus())[1])[: small.HELD_OUT_TOKENS]
    score = perplexity(model.network, unseen, model.context)
    # Other versions of the packages have other docstrings, some of which it has seen.
    assert score <= 1.25 * model.recipe["held_out_perplexity"]
    order = torch.randperm(len(unseen), generator=torch.Generator().manual_seed(0))
    shuffled = unseen[order[: len(unseen) // 10]]
    assert perplexity(model.network, shuffled, model.context) > 10 * score


def test_weights_are_stored_in_half(tmp_path):
    model = tiny(numbered_text(200))
    folder = save_half(tmp_path / "half", model.network, model.tokenizer, model.recipe)
    again = load(folder)
    for name, weight in model.network.state_dict().items():
        half = weight.to(torch.bfloat16).float()
        assert torch.equal(again.network.state_dict()[name], half), name
    assert again.recipe["weights_sha256"]


@pytest.mark.parametrize(
    ("text", "others", "words"),
    [
        ("", {}, "text: expected at least 50 characters"),
        ("too short " * 20, {}, "text: expected at least 272 tokens"),
        (7, {}, "text: expected at least 50 characters"),
        (None, {"device": "abacus"}, "device: expected one"),
        (None, {"out": "."}, "out: expected a folder that does not exist yet"),
        (None, {"out": "/dev/null/model"}, "out: cannot make /dev/null"),
    ],
)
def test_bad_arguments_get_a_sentence(text, others, words):
    with pytest.raises(ValueError, match=words):
        tiny(numbered_text(200) if text is None else text, **others)


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: ModelSettings(width=30, heads=4), "width: expected a multiple of heads=4, got 30"),
        (lambda: ModelSettings(layers=0), r"layers: expected an integer in \[1, ∞\), got 0"),
        (lambda: ModelSettings(context=1), r"context: expected an integer in \[2, ∞\), got 1"),
        (lambda: ModelSettings(vocabulary=256), r"vocabulary: expected an integer in \[257"),
        (lambda: ModelSettings(seed=-1), r"seed: expected an integer in \[0, ∞\), got -1"),
        (lambda: Run(steps=0), r"steps: expected an integer in \[1, ∞\), got 0"),
        (lambda: Run(steps=5, minutes=1.0), "steps: expected at most one of steps, passes and min"),
        (lambda: Run(minutes=-1.0), r"minutes: expected a number in \(0, ∞\), got -1"),
        (lambda: Run(precision="float16"), "precision: expected one of"),
    ],
)
def test_bad_settings_get_a_sentence(make, words):
    with pytest.raises(ValueError, match=words):
        make()
