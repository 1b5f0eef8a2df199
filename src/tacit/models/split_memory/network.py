"""The split-memory transformer as a model of transformers: saved, loaded and generating as any."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional
from transformers import (
    AutoConfig,
    AutoModelForCausalLM,
    DynamicCache,
    GenerationMixin,
    PreTrainedModel,
)
from transformers.modeling_outputs import CausalLMOutputWithPast

from tacit.models.anatomy import cache_argument
from tacit.models.split_memory.configuration import SplitMemoryConfig

INITIAL_DEVIATION = 0.02


class SplitMemoryForCausalLM(PreTrainedModel, GenerationMixin):  # type: ignore[misc]
    """A decoder with states ``h = (u, v)``: a narrow trunk u that predicts, a wide memory v.

        u ← u + A_u(LN(u + γ W_vu v)),  u ← u + M_u(LN(u)),
        v ← v + A_v(LN(v + W_uv u)),    v ← v + M_v(LN(v)),    logits = W LN(u_L),

    with attention A and an MLP M of each branch's own; both read the state before the layer. The
    memory reaches the trunk only through the gate γ, a scalar of each layer that is learned.

    Args:
        config: the sizes.

    Example:
        >>> sizes = {"vocab_size": 50, "trunk_width": 8, "memory_width": 24, "n_layer": 2}
        >>> model = SplitMemoryForCausalLM(SplitMemoryConfig(**sizes))
        >>> model(torch.arange(6)[None]).logits.shape
        torch.Size([1, 6, 50])
        >>> from tacit.models import LanguageModel
        >>> LanguageModel(model.eval())
        LanguageModel('SplitMemoryForCausalLM', layers=2, width=32, vocabulary=50, context=64)

    Source: hidden-state, Sec. 8, Fig. 3, App. Y.
    """

    config_class = SplitMemoryConfig
    base_model_prefix = "transformer"
    _no_split_modules = ("_Block",)

    def __init__(self, config: SplitMemoryConfig) -> None:
        super().__init__(config)
        self.transformer = _Stack(config)
        self.lm_head = nn.Linear(config.trunk_width, config.vocab_size, bias=False)
        self.post_init()

    def get_input_embeddings(self) -> nn.Module:
        """Return the embeddings of tokens, (V, r + m)."""
        return self.transformer.wte

    def set_input_embeddings(self, value: Any) -> None:
        """Replace the embeddings of tokens."""
        self.transformer.wte = value

    def get_output_embeddings(self) -> nn.Module:
        """Return the head W, which reads the trunk alone, (V, r)."""
        return self.lm_head

    def set_output_embeddings(self, new_embeddings: Any) -> None:
        """Replace the head."""
        self.lm_head = new_embeddings

    def _init_weights(self, module: nn.Module) -> None:
        if isinstance(module, (nn.Linear, nn.Embedding)):
            nn.init.normal_(module.weight, std=INITIAL_DEVIATION)
            if isinstance(module, nn.Linear) and module.bias is not None:
                nn.init.zeros_(module.bias)
        elif isinstance(module, nn.LayerNorm):
            nn.init.ones_(module.weight)
            nn.init.zeros_(module.bias)
        elif isinstance(module, _Block):
            nn.init.constant_(module.gate, self.config.gate)

    def forward(
        self,
        input_ids: Tensor | None = None,
        attention_mask: Tensor | None = None,
        position_ids: Tensor | None = None,
        past_key_values: Any = None,
        inputs_embeds: Tensor | None = None,
        labels: Tensor | None = None,
        use_cache: bool | None = None,
        output_hidden_states: bool | None = None,
        logits_to_keep: int | Tensor = 0,
        return_dict: bool | None = None,
        cache: Any = None,
        **_: Any,
    ) -> Any:
        """Predict the next token at every position.

        Args:
            input_ids: tokens, (n, T).
            attention_mask: 0 where padded, (n, past + T).
            position_ids: (n, T); counted from the cache's length when left out.
            past_key_values: ``cache`` under the name it had before transformers 5.24.
            inputs_embeds: states before the first block, in place of tokens, (n, T, d).
            labels: tokens to predict, (n, T), −100 where none; shifted here.
            use_cache: whether a cache is made where none is given.
            output_hidden_states: whether the states are listed, the last after the final norm.
            logits_to_keep: how many positions from the end to predict at, 0 for all; or which.
            return_dict: False for a tuple.
            cache: keys and values of the earlier positions.

        Returns:
            Logits (n, T, V), with cache, states and loss where asked for.
        """
        if (input_ids is None) == (inputs_embeds is None):
            raise ValueError(
                "input_ids: expected either input_ids or inputs_embeds, got both or none"
            )
        cache = past_key_values if cache is None else cache
        if use_cache and cache is None:
            cache = DynamicCache(config=self.config)
        hidden, listed = self.transformer(
            input_ids, attention_mask, position_ids, cache, inputs_embeds
        )
        kept: Any = logits_to_keep
        if not isinstance(logits_to_keep, Tensor):
            kept = slice(-logits_to_keep, None) if logits_to_keep else slice(None)
        logits = self.lm_head(hidden[:, kept, : self.config.trunk_width])
        loss = None
        if labels is not None:
            loss = functional.cross_entropy(
                logits[:, :-1].float().flatten(0, 1), labels[:, 1:].flatten(), ignore_index=-100
            )
        output = CausalLMOutputWithPast(
            loss=loss,
            logits=logits,
            **{cache_argument(CausalLMOutputWithPast.__dataclass_fields__): cache},
            hidden_states=(*listed, hidden) if output_hidden_states else None,
        )
        return output.to_tuple() if return_dict is False else output


class _Stack(nn.Module):
    """Embeddings, blocks and the norm of the trunk."""

    def __init__(self, config: SplitMemoryConfig) -> None:
        super().__init__()
        self.wte = nn.Embedding(config.vocab_size, config.hidden_size)
        self.wpe = nn.Embedding(config.n_positions, config.hidden_size)
        self.h = nn.ModuleList(_Block(config, layer) for layer in range(config.n_layer))
        self.ln_f = _TrunkNorm(config.trunk_width)

    def forward(
        self,
        input_ids: Tensor | None,
        attention_mask: Tensor | None,
        position_ids: Tensor | None,
        cache: Any,
        inputs_embeds: Tensor | None,
    ) -> tuple[Tensor, list[Tensor]]:
        tokens = self.wte(input_ids) if inputs_embeds is None else inputs_embeds
        past = 0 if cache is None else int(cache.get_seq_length())
        length = tokens.shape[1]
        if past + length > len(self.wpe.weight):
            raise ValueError(
                f"input_ids: expected at most {len(self.wpe.weight)} positions, got {past + length}"
            )
        if attention_mask is not None and attention_mask.shape[1:] != (past + length,):
            raise ValueError(
                f"attention_mask: expected shape (n, {past + length}), of a cache that grows, got "
                f"{tuple(attention_mask.shape)}"
            )
        if position_ids is None:
            position_ids = torch.arange(past, past + length, device=tokens.device)[None]
        hidden = tokens + self.wpe(position_ids)
        mask = _mask(attention_mask, past, length, tokens.device)
        listed = []
        for block in self.h:
            listed.append(hidden)
            hidden = block(hidden, mask, cache)
        return self.ln_f(hidden), listed


def _mask(given: Tensor | None, past: int, length: int, device: torch.device) -> Tensor | None:
    """Return who may attend to whom, (n or 1, 1, T, past + T); None where it is plainly causal."""
    if given is None and past == 0:
        return None
    rows = torch.arange(past, past + length, device=device)[:, None]
    columns = torch.arange(past + length, device=device)[None]
    causal = (columns <= rows)[None, None]
    if given is None:
        return causal
    real = given[:, None, None, :].bool()
    # a padded position attends to itself, for a softmax over nothing is undefined
    return (causal & real) | (columns == rows)[None, None]


class _TrunkNorm(nn.Module):
    """Layer norm of the trunk; the memory passes."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.width = width
        self.norm = nn.LayerNorm(width)

    def forward(self, hidden: Tensor) -> Tensor:
        return torch.cat([self.norm(hidden[..., : self.width]), hidden[..., self.width :]], dim=-1)


class _Block(nn.Module):
    """One layer: both branches read the state before it, and each is updated by its own part."""

    def __init__(self, config: SplitMemoryConfig, layer: int) -> None:
        super().__init__()
        self.layer, self.trunk_width = layer, config.trunk_width
        self.from_memory = nn.Linear(config.memory_width, config.trunk_width, bias=False)
        self.from_trunk = nn.Linear(config.trunk_width, config.memory_width, bias=False)
        self.gate = nn.Parameter(torch.tensor(float(config.gate)))
        self.trunk = _Branch(config.trunk_width, config.trunk_heads, config.trunk_inner)
        self.memory = _Branch(config.memory_width, config.memory_heads, config.memory_inner)

    def forward(self, hidden_states: Tensor, mask: Tensor | None, cache: Any) -> Tensor:
        u, v = hidden_states[..., : self.trunk_width], hidden_states[..., self.trunk_width :]
        trunk = self.trunk.norm(u + self.gate * self.from_memory(v))
        memory = self.memory.norm(v + self.from_trunk(u))
        queries, keys, values = (
            torch.cat(pair, dim=-1)
            for pair in zip(self.trunk.asked(trunk), self.memory.asked(memory), strict=True)
        )
        if cache is not None:
            # one entry a layer for both branches, whose heads may differ in width
            keys, values = cache.update(keys[:, None], values[:, None], self.layer)
            keys, values = keys[:, 0], values[:, 0]
        r = self.trunk_width
        parts = [(part[..., :r], part[..., r:]) for part in (queries, keys, values)]
        left, right = zip(*parts, strict=True)
        return torch.cat(
            [self.trunk(u, *left, mask), self.memory(v, *right, mask)],
            dim=-1,
        )


class _Branch(nn.Module):
    """Attention and an MLP of the trunk or of the memory."""

    def __init__(self, width: int, heads: int, inner: int) -> None:
        super().__init__()
        self.heads = heads
        self.norm, self.middle = nn.LayerNorm(width), nn.LayerNorm(width)
        self.attention = nn.Linear(width, 3 * width)
        self.projection = nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, inner), nn.Linear(inner, width)

    def asked(self, normed: Tensor) -> tuple[Tensor, ...]:
        """Return queries, keys and values, (n, T, width) each."""
        return tuple(self.attention(normed).chunk(3, dim=-1))

    def forward(
        self, state: Tensor, queries: Tensor, keys: Tensor, values: Tensor, mask: Tensor | None
    ) -> Tensor:
        mixed = functional.scaled_dot_product_attention(
            self._by_head(queries),
            self._by_head(keys),
            self._by_head(values),
            attn_mask=mask,
            is_causal=mask is None,
        )
        state = state + self.projection(mixed.transpose(1, 2).flatten(2))
        inner = functional.gelu(self.up(self.middle(state)), approximate="tanh")
        updated: Tensor = state + self.down(inner)
        return updated

    def _by_head(self, rows: Tensor) -> Tensor:
        """Return (n, T, width) as (n, heads, T, head width)."""
        return rows.reshape(*rows.shape[:2], self.heads, -1).transpose(1, 2)


AutoConfig.register(SplitMemoryConfig.model_type, SplitMemoryConfig, exist_ok=True)
AutoModelForCausalLM.register(SplitMemoryConfig, SplitMemoryForCausalLM, exist_ok=True)
