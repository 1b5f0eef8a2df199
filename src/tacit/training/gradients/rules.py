"""The functions that have a rule for the per-example gradients of their parameters."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from tacit.training.gradients.attention import self_attention
from tacit.training.gradients.entries import elementwise
from tacit.training.gradients.norms import batch_norm, group_norm, layer_norm, rms_norm
from tacit.training.gradients.products import (
    KERNEL_DIMENSIONS,
    addmm,
    convolution,
    embedding,
    linear,
    matmul,
)
from tacit.training.gradients.recorder import Rule

RULES: dict[Any, Rule] = {
    functional.linear: linear,
    torch.matmul: matmul,
    Tensor.matmul: matmul,
    torch.addmm: addmm,
    functional.embedding: embedding,
    functional.multi_head_attention_forward: self_attention,
    functional.group_norm: group_norm,
    functional.layer_norm: layer_norm,
    functional.rms_norm: rms_norm,
    functional.batch_norm: batch_norm,
    **dict.fromkeys(KERNEL_DIMENSIONS, convolution),
    **dict.fromkeys((torch.add, Tensor.add), elementwise(torch.add)),
    **dict.fromkeys((torch.sub, Tensor.sub), elementwise(torch.sub)),
    **dict.fromkeys((torch.mul, Tensor.mul), elementwise(torch.mul)),
    **dict.fromkeys((torch.div, Tensor.div, torch.true_divide), elementwise(torch.div)),
}
