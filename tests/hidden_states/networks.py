"""Small language models with random weights."""

import torch
import transformers

from tacit.models import load

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
    return loaded(network, 6.0)


def small_network(family="gpt2", *, vocabulary=23, width=12, context=16, seed=5):
    """Two layers and two heads."""
    torch.manual_seed(seed)
    ends = {"bos_token_id": 0, "eos_token_id": 0}
    if family == "gpt2":
        config = transformers.GPT2Config(
            vocab_size=vocabulary, n_embd=width, n_layer=2, n_head=2, n_positions=context, **ends
        )
    else:
        config = transformers.LlamaConfig(
            vocab_size=vocabulary,
            hidden_size=width,
            intermediate_size=20,
            num_hidden_layers=2,
            num_attention_heads=2,
            max_position_embeddings=context,
            **ends,
        )
    return loaded(transformers.AutoModelForCausalLM.from_config(config), 8.0)


def loaded(network, scale):
    """At the usual initial scale the layers barely change the residual stream: scale them up."""
    with torch.no_grad():
        for parameter in network.parameters():
            if parameter.ndim == 2:
                parameter.mul_(scale)
    return load(network)
