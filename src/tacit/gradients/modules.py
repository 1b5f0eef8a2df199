"""The modules of a model, walked once for as long as none is added, taken or replaced."""

from __future__ import annotations

from collections.abc import Iterator

from torch import Tensor, nn


class KnownModules:
    """What ``named_modules`` yields, and its parameters and buffers, without the walk.

    Args:
        model: whose they are.
    """

    def __init__(self, model: nn.Module) -> None:
        self._model = model
        self._named: list[tuple[str, nn.Module]] = []
        self._below: list[dict[str, nn.Module | None]] = []

    def named(self) -> list[tuple[str, nn.Module]]:
        """Return the modules with their paths, each once."""
        # modules are equal where they are the same
        if not self._named or self._below != [one._modules for _, one in self._named]:
            self._named = list(self._model.named_modules())
            self._below = [dict(one._modules) for _, one in self._named]
        return self._named

    def parameters(self) -> dict[str, nn.Parameter]:
        """Return parameters by name, a shared one by its first."""
        return dict(self._members("_parameters"))

    def buffers(self) -> dict[str, Tensor]:
        """Return buffers by name, a shared one by its first."""
        return dict(self._members("_buffers"))

    def stored_buffers(self) -> set[str]:
        """Return the names of buffers that are in a state dict."""
        return {
            f"{path}.{name}" if path else name
            for path, module in self.named()
            if module._buffers
            for name in module._buffers
            if name not in module._non_persistent_buffers_set
        }

    def _members(self, kind: str) -> Iterator[tuple[str, nn.Parameter]]:
        seen: set[int] = set()
        for path, module in self.named():
            held = getattr(module, kind)
            if not held:
                continue
            for name, one in held.items():
                if one is not None and id(one) not in seen:
                    seen.add(id(one))
                    yield f"{path}.{name}" if path else name, one
