"""States read, replaced and continued agree with plain forward passes of every known family."""

import pytest

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

from tacit.models import load  # noqa: E402
from tests.hidden_states.networks import (  # noqa: E402
    CONFIGURATIONS,
    LAYERS,
    VOCABULARY,
    WIDTH,
    random_model,
)


@pytest.fixture(scope="module", params=sorted(CONFIGURATIONS))
def model(request):
    return random_model(request.param)


@pytest.fixture
def tokens():
    return torch.randint(VOCABULARY, (5, 12), generator=torch.Generator().manual_seed(3))


def decoder_layers(model):
    body = model.network.base_model
    return body.h if hasattr(body, "h") else body.layers


def hooked_logits(model, tokens, layer, states):
    """The obvious way: replace the output of the decoder layer in a plain forward pass."""

    def replace(_, arguments, output):
        changed = output.clone()
        changed[:, -1] = states
        return changed

    handle = decoder_layers(model)[layer - 1].register_forward_hook(replace)
    try:
        return model.network(tokens).logits[:, -1]
    finally:
        handle.remove()


def hooks(model):
    return sum(
        len(part._forward_hooks) + len(part._forward_pre_hooks) for part in model.network.modules()
    )


@pytest.mark.parametrize("layer", range(1, LAYERS + 1))
def test_continuation_equals_the_hooked_forward(model, tokens, layer):
    states = torch.randn(len(tokens), WIDTH, generator=torch.Generator().manual_seed(layer))
    before = hooks(model)
    continued = model.continuation(tokens, layer, batch_size=2)
    expected = hooked_logits(model, tokens, layer, states)
    scale = float(expected.abs().max())
    torch.testing.assert_close(continued.logits(states), expected, rtol=0, atol=3e-6 * scale)
    clean = model.network(tokens).logits[:, -1]
    assert float((expected - clean).abs().max()) > 0.05 * scale
    assert hooks(model) == before


@pytest.mark.parametrize("layer", range(LAYERS + 1))
def test_the_clean_state_gives_clean_logits(model, tokens, layer):
    continued = model.continuation(tokens, layer)
    clean = model.network(tokens).logits[:, -1]
    close = {"rtol": 0, "atol": 3e-6 * float(clean.abs().max())}
    torch.testing.assert_close(model.logits(tokens, batch_size=3), clean, **close)
    torch.testing.assert_close(continued.clean_logits, clean, **close)
    torch.testing.assert_close(continued.logits(continued.clean_states), clean, **close)
    states = model.states(tokens, layer)
    torch.testing.assert_close(continued.clean_states, states, rtol=0, atol=1e-4)
    torch.testing.assert_close(continued.logits(states), clean, **close)


@pytest.mark.parametrize("family", ["gpt2", "mistral", "qwen2"])
@pytest.mark.parametrize("length", [1, 2, 6])
def test_short_prompts_and_explicit_masks(family, length):
    model = random_model(family, attention="eager")
    tokens = torch.arange(3 * length).reshape(3, length)
    states = torch.randn(3, WIDTH, generator=torch.Generator().manual_seed(1))
    for layer in (1, LAYERS):
        expected = hooked_logits(model, tokens, layer, states)
        found = model.continuation(tokens, layer).logits(states)
        torch.testing.assert_close(found, expected, rtol=0, atol=1e-5 * float(expected.abs().max()))


def test_states_are_the_residual_stream(model, tokens):
    with torch.no_grad():
        reference = model.network.base_model(tokens, output_hidden_states=True).hidden_states
    for layer in range(LAYERS):
        states = model.states(tokens, layer, positions="all", batch_size=2)
        torch.testing.assert_close(states, reference[layer], rtol=1e-5, atol=1e-5)
        torch.testing.assert_close(model.states(tokens, layer), states[:, -1])
    # transformers lists the last layer's output after the final norm; here it comes before.
    norm = [m for n, m in model.network.base_model.named_children() if "norm" in n or n == "ln_f"]
    with torch.no_grad():
        last = norm[0](model.states(tokens, LAYERS, positions="all"))
    torch.testing.assert_close(last, reference[LAYERS], rtol=1e-5, atol=1e-4)


def test_gradients_agree_with_finite_differences(model, tokens):
    continued = model.continuation(tokens[:2], 1)
    states = continued.clean_states.double().float().requires_grad_()
    direction = torch.randn(2, WIDTH, generator=torch.Generator().manual_seed(5))
    score = continued.logits(states).logsumexp(dim=-1).sum()
    (gradient,) = torch.autograd.grad(score, states)
    step = 1e-2

    def moved(sign):
        with torch.no_grad():
            return continued.logits(states + sign * step * direction).double().logsumexp(-1).sum()

    numerical = float(moved(1) - moved(-1)) / (2 * step)
    assert float((gradient * direction).sum()) == pytest.approx(numerical, rel=2e-2, abs=2e-3)
    assert all(parameter.grad is None for parameter in model.network.parameters())


def test_one_prompts_state_changes_its_own_logits_only(model, tokens):
    continued = model.continuation(tokens, 2)
    states = continued.clean_states.clone()
    states[1] += torch.randn(WIDTH, generator=torch.Generator().manual_seed(6))
    moved = (continued.logits(states) - continued.logits(continued.clean_states)).abs().amax(dim=1)
    assert moved[1] > 0.01
    assert moved[[0, 2, 3, 4]].max() < 1e-5


def test_select(model, tokens):
    continued = model.continuation(tokens, 2)
    states = torch.randn(3, WIDTH, generator=torch.Generator().manual_seed(2))
    rows = [4, 0, 4]
    expected = model.continuation(tokens[rows], 2).logits(states)
    for index in (rows, torch.tensor(rows)):
        torch.testing.assert_close(
            continued.select(index).logits(states, batch_size=2), expected, rtol=1e-4, atol=1e-4
        )
    mask = torch.tensor([True, False, False, True, False])
    assert torch.equal(continued.select(mask).clean_states, continued.clean_states[mask])
    assert torch.equal(continued.select(slice(1, 3)).clean_logits, continued.clean_logits[1:3])
    assert len(continued.select(slice(None, None, -1))) == 5
    assert continued.select([0]).nbytes * 5 == continued.nbytes
    for bad in ([5], [-1], [], [0.5], [[0]], slice(3, 3), mask[:2]):
        with pytest.raises(ValueError, match="index: expected"):
            continued.select(bad)


def greedy(model, tokens, layer, states, steps):
    """Generation without a cache: every step is a full forward with the state replaced."""
    place = tokens.shape[1] - 1

    def replace(_, arguments, output):
        changed = output.clone()
        changed[:, place] = states
        return changed

    handle = decoder_layers(model)[layer - 1].register_forward_hook(replace)
    try:
        for _ in range(steps):
            following = model.network(tokens).logits[:, -1].argmax(dim=-1)
            tokens = torch.cat([tokens, following[:, None]], dim=1)
    finally:
        handle.remove()
    return tokens[:, place + 1 :]


def test_generation_keeps_the_replaced_state(model, tokens):
    states = 3 * torch.randn(len(tokens), WIDTH, generator=torch.Generator().manual_seed(4))
    before = hooks(model)
    found = model.generate(tokens, 2, states, steps=6, batch_size=3)
    assert torch.equal(found, greedy(model, tokens, 2, states, 6))
    clean = model.generate(tokens, 2, None, steps=6)
    assert torch.equal(clean, model.generate(tokens, 2, model.states(tokens, 2), steps=6))
    assert not torch.equal(found, clean)
    assert hooks(model) == before


def test_an_error_inside_leaves_no_hook(model, tokens):
    def fail(*_):
        raise RuntimeError("interrupted")

    before = hooks(model)
    handle = decoder_layers(model)[1].register_forward_pre_hook(fail)
    for call in (
        lambda: model.states(tokens, 2),
        lambda: model.continuation(tokens[:, :1], 1),
        lambda: model.generate(tokens, 1, torch.zeros(5, WIDTH)),
    ):
        with pytest.raises(RuntimeError, match="interrupted"):
            call()
    handle.remove()
    assert hooks(model) == before


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda m, t: m.states(t, 4), "layer: expected an integer <= 3, got 4"),
        (lambda m, t: m.states(t, -1), "layer: expected an integer >= 0, got -1"),
        (lambda m, t: m.states(t, 1.0), "layer: expected an integer, got 1.0"),
        (lambda m, t: m.states(t, 1, positions="first"), "positions: expected one of 'last'"),
        (lambda m, t: m.states(t, 1, batch_size=0), "batch_size: expected an integer >= 1"),
        (lambda m, t: m.states(t[0], 1), r"tokens: .* of shape \(12,\)"),
        (lambda m, t: m.states(t[:0], 1), r"tokens: .* of shape \(0, 12\)"),
        (lambda m, t: m.states(t.float(), 1), "tokens: expected integers .* got torch.float32"),
        (lambda m, t: m.states("text", 1), "tokens: expected integers"),
        (lambda m, t: m.states([[1, 2], [3]], 1), "tokens: expected integers"),
        (lambda m, t: m.states(t + 50, 1), r"tokens: expected integers in 0 … 60, .* got 5\d"),
        (lambda m, t: m.logits(t - 61), "tokens: expected integers in 0 … 60, .* got -61"),
        (lambda m, t: m.logits(t.repeat(1, 3)), "at most 24 positions, got 36"),
        (lambda m, t: m.generate(t, 1, None, 14), "at most 24 positions, got 12 and 13 more"),
        (lambda m, t: m.generate(t, 1, None, 0), "steps: expected an integer >= 1"),
        (lambda m, t: m.generate(t, 1, torch.zeros(5, 31)), r"states: expected shape \(5, 32\)"),
        (
            lambda m, t: m.continuation(t, 1).logits(torch.full((5, WIDTH), float("nan"))),
            "states: expected finite numbers, got NaN or infinity in row 0",
        ),
        (
            lambda m, t: m.continuation(t, 1).logits(torch.zeros(5, WIDTH, dtype=torch.int64)),
            "states: expected a tensor of floating-point numbers, got torch.int64",
        ),
        (lambda m, t: m.continuation(t, 1).logits("x"), "floating-point numbers, got str"),
        (lambda m, t: m.encode("hello"), "tokenizer: LlamaForCausalLM was given without one"),
        (lambda m, t: m.encode(""), "text: expected a text that is not empty"),
    ],
)
def test_bad_input_gets_a_sentence(call, words, tokens):
    with pytest.raises(ValueError, match=words):
        call(random_model("llama"), tokens)


@pytest.mark.parametrize(
    ("file", "content"),
    [
        ("config.json", b"{}"),
        ("config.json", b"not json"),
        ("model.safetensors", b"cut"),
        ("tokenizer.json", b"{"),
    ],
)
def test_a_damaged_folder_is_named(file, content, tmp_path):
    from tacit import Run
    from tacit.models import ModelSettings, train

    folder = tmp_path / "model"
    sizes = ModelSettings(width=16, layers=1, heads=2, context=8, vocabulary=270, batch=4)
    train("To be, or not to be. " * 200, Run(steps=1, precision="float32"), sizes, out=folder)
    load(folder)
    (folder / file).write_bytes(content)
    with pytest.raises(ValueError, match=r"name_or_path: cannot load '.*model'"):
        load(folder)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"name_or_path": ""}, "name_or_path: expected a name, a folder or"),
        ({"name_or_path": 3}, "name_or_path: expected a name, a folder or"),
        ({"name_or_path": "./no/such/folder"}, "name_or_path: cannot load './no/such/folder'"),
        ({"name_or_path": "tacit/small", "device": "abacus"}, "device: expected one"),
    ],
)
def test_what_cannot_be_loaded_is_said(arguments, words):
    with pytest.raises(ValueError, match=words):
        load(**arguments)
