"""The rule of self-attention, which is two linear layers and no more parameters."""

from __future__ import annotations

import inspect
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from tacit.training.gradients.products import linear
from tacit.training.gradients.recorder import Recorder


def self_attention(recorder: Recorder, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Self-attention with one joint projection: its two projections are linear layers."""
    call = inspect.signature(functional.multi_head_attention_forward).bind(*args, **kwargs)
    given = call.arguments
    values, width = given["query"], given["embed_dim_to_check"]
    if (
        given["key"] is not values
        or given["value"] is not values
        or given.get("use_separate_proj_weight", False)
        or given["bias_k"] is not None
        or values.ndim != 3
        or values.shape[1] != recorder.batch
        or not recorder.is_of_examples(values)
        or recorder.key(values) is not None
    ):
        return NotImplemented

    def project(states: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        rows = states.transpose(0, 1)
        recorder.start_from(rows)
        found: Tensor = linear(recorder, (rows, weight, bias), {})
        return found.transpose(0, 1)

    joint = project(values, given["in_proj_weight"], given["in_proj_bias"])
    # a product with the identity is exact
    same = torch.eye(width, dtype=values.dtype, device=values.device)
    given |= dict(zip(("query", "key", "value"), joint.chunk(3, dim=-1), strict=True))
    given |= dict.fromkeys(("q_proj_weight", "k_proj_weight", "v_proj_weight"), same)
    last = given["out_proj_weight"], given["out_proj_bias"]
    given |= {"out_proj_weight": same, "out_proj_bias": None, "use_separate_proj_weight": True}
    given |= {"in_proj_weight": None, "in_proj_bias": None}
    mixed, weights = functional.multi_head_attention_forward(**given)
    return project(mixed, *last), weights
