"""A language model as bytes, for processes and machines that measure with it."""

from __future__ import annotations

import io
import pickle
from collections.abc import Mapping
from typing import Any

import cloudpickle
import torch
from torch import nn

CAPTURING = "transformers.utils.output_capturing"
INSTALLED = "_output_capturing_hooks_installed"
HOOKS = ("_forward_hooks", "_forward_hooks_with_kwargs", "_forward_hooks_always_called")


class _Pickler(cloudpickle.Pickler):  # type: ignore[misc]
    """Leaves out what ``transformers`` hangs on modules to answer ``output_hidden_states``.

    Those hooks hold a context variable, which no pickle takes; they are hung on again when the copy
    is first asked. A hook of anyone else is a part of the model, and kept.
    """

    def reducer_override(self, thing: Any) -> Any:
        if isinstance(thing, nn.Module) and (
            vars(thing)["_forward_hooks"] or INSTALLED in vars(thing)
        ):
            return object.__new__, (type(thing),), _without_capturing(thing)
        return super().reducer_override(thing)


def _without_capturing(module: nn.Module) -> dict[str, Any]:
    state = dict(vars(module))
    hooks = module._forward_hooks
    dropped = {key for key, hook in hooks.items() if getattr(hook, "__module__", "") == CAPTURING}
    for name in HOOKS:
        state[name] = type(state[name])(
            (key, value) for key, value in state[name].items() if key not in dropped
        )
    state.pop(INSTALLED, None)
    return state


def packed(content: Mapping[str, Any]) -> bytes:
    """Return attributes that hold a network as bytes, its weights included."""
    stream = io.BytesIO()
    _Pickler(stream, protocol=pickle.HIGHEST_PROTOCOL).dump(dict(content))
    return stream.getvalue()


def unpacked(content: bytes) -> dict[str, Any]:
    """Return the attributes that ``packed`` was given.

    A pickle runs code: the bytes are those of a bench that this process or the one that started it
    packed, never a file's.
    """
    found: dict[str, Any] = pickle.loads(content)
    network = found["network"]
    # making one, of no weights, tells transformers in this process what the class can record
    with torch.device("meta"):
        type(network)(network.config)
    return found
