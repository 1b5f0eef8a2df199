"""What determines a split-memory transformer besides its weights."""

from __future__ import annotations

from typing import Any

from transformers import PreTrainedConfig

from tacit._ground.checks import integer, non_negative


class SplitMemoryConfig(PreTrainedConfig):  # type: ignore[misc]
    """Sizes of a split-memory transformer: states ``h = (u, v)``, logits read from u alone.

    Args:
        vocab_size: V.
        n_positions: the most tokens it reads.
        trunk_width: r, numbers of u.
        memory_width: m, numbers of v; the state has r + m.
        n_layer: L.
        trunk_heads: attention heads of the trunk, a divisor of r.
        memory_heads: attention heads of the memory, a divisor of m.
        trunk_inner: width of the trunk's MLP, 4 r when left out.
        memory_inner: width of the memory's MLP, 2 m when left out.
        gate: γ at the start, the factor on what the memory gives the trunk.
        more: what every configuration of ``transformers`` takes.

    Raises:
        ValueError: a size outside its range.

    Example:
        >>> SplitMemoryConfig(trunk_width=8, memory_width=24).hidden_size
        32

    Source: hidden-state, Sec. 8, App. Y.
    """

    model_type = "tacit-split-memory"
    keys_to_ignore_at_inference = ("cache", "past_key_values")

    def __init__(
        self,
        vocab_size: int = 4096,
        n_positions: int = 64,
        trunk_width: int = 64,
        memory_width: int = 192,
        n_layer: int = 6,
        trunk_heads: int = 4,
        memory_heads: int = 4,
        trunk_inner: int | None = None,
        memory_inner: int | None = None,
        gate: float = 0.01,
        **more: Any,
    ) -> None:
        self.vocab_size = integer("vocab_size", vocab_size, minimum=1)
        self.n_positions = integer("n_positions", n_positions, minimum=1)
        self.trunk_width = integer("trunk_width", trunk_width, minimum=1)
        self.memory_width = integer("memory_width", memory_width, minimum=1)
        self.n_layer = integer("n_layer", n_layer, minimum=1)
        self.trunk_heads = _heads("trunk_heads", trunk_heads, self.trunk_width)
        self.memory_heads = _heads("memory_heads", memory_heads, self.memory_width)
        self.trunk_inner = _inner("trunk_inner", trunk_inner, 4 * self.trunk_width)
        self.memory_inner = _inner("memory_inner", memory_inner, 2 * self.memory_width)
        self.gate = non_negative("gate", gate)
        # names by which transformers and its caches ask
        self.hidden_size = self.trunk_width + self.memory_width
        self.num_hidden_layers = self.n_layer
        self.num_attention_heads = 1
        self.max_position_embeddings = self.n_positions
        more.setdefault("tie_word_embeddings", False)
        super().__init__(**more)


def _heads(name: str, value: int, width: int) -> int:
    count = integer(name, value, minimum=1)
    if width % count:
        raise ValueError(f"{name}: expected a divisor of the width {width}, got {count}")
    return count


def _inner(name: str, value: int | None, default: int) -> int:
    return default if value is None else integer(name, value, minimum=1)
