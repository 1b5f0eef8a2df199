"""Whether examples meet each other in a model: refused by name, and verified by gradients."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import torch
from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm


def refuse_mixing(model: nn.Module) -> None:
    """Raise for a module that is known to make one example's loss depend on another.

    Raises:
        ValueError: a batch norm that uses the statistics of the batch.
    """
    for name, module in model.named_modules():
        if isinstance(module, _BatchNorm) and (module.training or module.running_mean is None):
            raise ValueError(
                f"model: {name or 'the model'}: {type(module).__name__} mixes examples, so that "
                "leaving one out changes the others; use GroupNorm, or eval() and fixed statistics"
            )


@contextmanager
def unchanged_buffers(model: nn.Module) -> Iterator[None]:
    """Refuse a forward pass that writes what it saw into a buffer, which nothing protects.

    Raises:
        ValueError: a buffer was written to or replaced.
    """
    before = {name: (buffer, buffer._version) for name, buffer in model.named_buffers()}
    yield
    after: Mapping[str, torch.Tensor] = dict(model.named_buffers())
    for name, (buffer, version) in before.items():
        if after.get(name) is not buffer or buffer._version != version:
            raise ValueError(
                f"model: the buffer {name} changes in the forward pass, and what it learns of the "
                "examples would be published without noise"
            )
