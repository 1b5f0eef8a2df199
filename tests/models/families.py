"""A tiny checkpoint of every family that causal language models on the hub mostly belong to."""

import torch
import transformers as hub
from tokenizers import Tokenizer, models, pre_tokenizers

WIDTH, VOCABULARY, CONTEXT, LAYERS = 16, 40, 32, 3
ENDS = {"bos_token_id": 0, "eos_token_id": 1, "pad_token_id": 2}
COMMON = {
    **ENDS,
    "vocab_size": VOCABULARY,
    "hidden_size": WIDTH,
    "intermediate_size": 24,
    "num_hidden_layers": LAYERS,
    "num_attention_heads": 2,
    "max_position_embeddings": CONTEXT,
}
GROUPED = {**COMMON, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 4}
# windows shorter than the prompts of the tests
GEMMA = {**GROUPED, "sliding_window": 4, "query_pre_attn_scalar": 4}
EXPERTS = {**GROUPED, "num_experts_per_tok": 2}
OPT = {
    **ENDS,
    "vocab_size": VOCABULARY,
    "hidden_size": WIDTH,
    "ffn_dim": 24,
    "num_hidden_layers": LAYERS,
    "num_attention_heads": 2,
    "max_position_embeddings": CONTEXT,
    "word_embed_proj_dim": WIDTH,
}
GPT = {
    **ENDS,
    "vocab_size": VOCABULARY,
    "n_embd": WIDTH,
    "n_layer": LAYERS,
    "n_head": 2,
    "n_positions": CONTEXT,
}
FALCON = {
    **ENDS,
    "vocab_size": VOCABULARY,
    "hidden_size": WIDTH,
    "num_hidden_layers": LAYERS,
    "num_attention_heads": 2,
    "max_position_embeddings": CONTEXT,
}
CONFIGURATIONS = {
    "bloom": lambda: hub.BloomConfig(
        **ENDS, vocab_size=VOCABULARY, hidden_size=WIDTH, n_layer=LAYERS, n_head=2
    ),
    "falcon": lambda: hub.FalconConfig(**FALCON),
    "falcon-alibi": lambda: hub.FalconConfig(**FALCON, alibi=True, parallel_attn=False),
    "falcon-new": lambda: hub.FalconConfig(
        **FALCON, new_decoder_architecture=True, num_kv_heads=1
    ),
    "gemma2": lambda: hub.Gemma2Config(
        **GEMMA, final_logit_softcapping=2.0, attn_logit_softcapping=3.0
    ),
    "gemma3": lambda: hub.Gemma3TextConfig(**GEMMA, sliding_window_pattern=2),
    "gpt2": lambda: hub.GPT2Config(**GPT),
    "gpt_neo": lambda: hub.GPTNeoConfig(
        **ENDS, vocab_size=VOCABULARY, hidden_size=WIDTH, num_layers=LAYERS, num_heads=2,
        max_position_embeddings=CONTEXT, window_size=4,
        attention_types=[[["global", "local", "global"], 1]],
    ),
    "gpt_neox": lambda: hub.GPTNeoXConfig(**COMMON),
    "gpt_neox-serial": lambda: hub.GPTNeoXConfig(**COMMON, use_parallel_residual=False),
    "gptj": lambda: hub.GPTJConfig(**GPT, rotary_dim=4),
    "llama": lambda: hub.LlamaConfig(**GROUPED),
    "llama-tied": lambda: hub.LlamaConfig(**GROUPED, tie_word_embeddings=True),
    "mistral": lambda: hub.MistralConfig(**GROUPED, sliding_window=4),
    "mixtral": lambda: hub.MixtralConfig(**EXPERTS, num_local_experts=4, sliding_window=4),
    "olmo2": lambda: hub.Olmo2Config(**{k: v for k, v in GROUPED.items() if k != "head_dim"}),
    "opt": lambda: hub.OPTConfig(**OPT),
    "opt-projected": lambda: hub.OPTConfig(**{**OPT, "word_embed_proj_dim": 8}),
    "opt-after": lambda: hub.OPTConfig(
        **{**OPT, "word_embed_proj_dim": 8}, do_layer_norm_before=False
    ),
    "phi": lambda: hub.PhiConfig(**COMMON, partial_rotary_factor=0.5),
    "phi3": lambda: hub.Phi3Config(**COMMON, sliding_window=4),
    "qwen2": lambda: hub.Qwen2Config(
        **GROUPED, use_sliding_window=True, sliding_window=4, max_window_layers=1
    ),
    "qwen2-untied": lambda: hub.Qwen2Config(**GROUPED, tie_word_embeddings=False),
    "qwen3": lambda: hub.Qwen3Config(**GROUPED),
    "qwen3_moe": lambda: hub.Qwen3MoeConfig(
        **EXPERTS, num_experts=4, moe_intermediate_size=16, decoder_sparse_step=2
    ),
    "starcoder2": lambda: hub.Starcoder2Config(
        **{k: v for k, v in GROUPED.items() if k != "head_dim"}, sliding_window=4
    ),
}  # fmt: skip


def words(size=VOCABULARY):
    """A tokenizer of ``size`` words that begins every text with <s>."""
    from tokenizers.processors import TemplateProcessing

    names = ["<s>", "</s>", "<pad>", *(f"w{i}" for i in range(3, size))]
    tokenizer = Tokenizer(models.WordLevel({w: i for i, w in enumerate(names)}, unk_token="w3"))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    tokenizer.post_processor = TemplateProcessing(single="<s> $A", special_tokens=[("<s>", 0)])
    return hub.PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, bos_token="<s>", eos_token="</s>", pad_token="<pad>"
    )


def network(family, scale=4.0):
    """A network of random weights, its layers scaled up until they change the stream."""
    torch.manual_seed(7)
    found = hub.AutoModelForCausalLM.from_config(CONFIGURATIONS[family]())
    with torch.no_grad():
        for parameter in found.parameters():
            if parameter.ndim >= 2:
                parameter.mul_(scale)
    return found


def folder(family, place, dtype=torch.float32):
    """Write a checkpoint as the hub holds it."""
    network(family).to(dtype).save_pretrained(place)
    words().save_pretrained(place)
    return place
