"""States read, replaced and continued agree with plain forward passes of every known family."""

import pytest

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

from tacit.hidden_states import load  # noqa: E402

WIDTH, VOCABULARY, CONTEXT, LAYERS = 32, 61, 24, 3
COMMON = {
    "vocab_size": VOCABULARY,
    "hidden_size": WIDTH,
    "intermediate_size": 48,
    "num_hidden_layers": LAYERS,
    "num_attention_heads": 4,
    "max_position_embeddings": CONTEXT,
    "bos_token_id": 0,
    "eos_token_id": 0,
    "pad_token_id": None,
}
GROUPED = {**COMMON, "num_key_value_heads": 2}
CONFIGURATIONS = {
    "gpt2": lambda: transformers.GPT2Config(
        vocab_size=VOCABULARY, n_embd=WIDTH, n_layer=LAYERS, n_head=4, n_positions=CONTEXT
    ),
    "llama": lambda: transformers.LlamaConfig(**GROUPED),
    "mistral": lambda: transformers.MistralConfig(**GROUPED, sliding_window=5),
    "qwen2": lambda: transformers.Qwen2Config(
        **GROUPED, use_sliding_window=True, sliding_window=4, max_window_layers=1
    ),
    "qwen3": lambda: transformers.Qwen3Config(**GROUPED, head_dim=8),
    "phi": lambda: transformers.PhiConfig(**GROUPED),
    "phi3": lambda: transformers.Phi3Config(**GROUPED),
}


def random_model(family, attention="sdpa"):
    torch.manual_seed(7)
    config = CONFIGURATIONS[family]()
    network = transformers.AutoModelForCausalLM.from_config(config, attn_implementation=attention)
    # At the usual initial scale the layers barely change the residual stream.
    with torch.no_grad():
        for parameter in network.parameters():
            if parameter.ndim == 2:
                parameter.mul_(6.0)
    return load(network)


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
