"""What a private loop may move, and what it may not."""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Mapping
from typing import Any

import torch
from torch import Tensor, nn

from tacit.gradients.modules import KnownModules
from tacit.runs.identity import digest_of_tensors
from tacit.training.workers import whole_of


class Still:
    """What may not move: buffers and parameters that are not trained.

    Args:
        model: whose they are.
        trained: parameters that move.

    Attributes:
        model: digest of all of it before training.
        modules: of the model.
    """

    def __init__(self, model: nn.Module, trained: Mapping[str, nn.Parameter]) -> None:
        self.modules, self._trained = KnownModules(model), {id(one) for one in trained.values()}
        self._moved = dict(trained)
        self._buffers, self._passing = self._versions(), self._unstored()
        self.model = digest_of_tensors(
            sorted((name, whole_of(one)) for name, one in self._all(trained=True))
        )
        self._frozen, self._kept = self._digest(), self._unstored_digests()

    def check(self) -> None:
        """Refuse a buffer that was written to: what it learned no noise covers.

        Raises:
            ValueError: there is one; of those that are in no state dict, one of real numbers.
        """
        found = self._versions()
        for name, held in self._buffers.items():
            # the tensor is held, so that no other one lies in its place
            there, version = found.get(name, (None, 0))
            if there is not held[0] or version != held[1]:
                raise ValueError(
                    f"model: the buffer {name} changes in the forward pass, and what it learns of "
                    "the examples would be published without noise"
                )
        now = self._unstored()
        for name, (buffer, version) in self._passing.items():
            # a cache of positions may grow, or be made again as it was
            made, _ = now.get(name, (buffer, version))
            same = (
                made is buffer or made.shape != buffer.shape or torch.equal(made.to(buffer), buffer)
            )
            if buffer._version != version or not same:
                raise ValueError(
                    f"model: the buffer {name} changes in the forward pass, and what it learns of "
                    "the examples would go into the gradients of others in later steps"
                )
        self._passing = now

    def check_trained(self, *, alone: bool) -> None:
        """Refuse a trained parameter that was frozen, or that the model no longer has.

        Args:
            alone: whether one process holds the model: what spreads it puts others in their place.
        """
        held = self.modules.parameters() if alone else self._moved
        for name, one in self._moved.items():
            if held.get(name) is not one or not one.requires_grad:
                raise ValueError(
                    f"model: expected {name} to be trained to the end, got one that was frozen, "
                    "tied or replaced after the loop was made"
                )

    def check_values(self) -> None:
        """Refuse a frozen parameter or a buffer that is another now, whatever wrote there.

        What writes into ``.data`` of a buffer counts no version.
        """
        now = self._unstored_digests()
        for name, (shape, digest) in self._kept.items():
            # a cache of positions may have grown
            if name in now and now[name][0] == shape and now[name][1] != digest:
                raise ValueError(
                    f"model: the buffer {name} changes in the forward pass, and what it learns of "
                    "the examples goes into the gradients of others in later steps"
                )
        if self._digest() != self._frozen:
            raise ValueError(
                "model: expected parameters that are not trained to stay as they were, got other "
                "values, and the account covers no such change"
            )

    def _versions(self) -> dict[str, tuple[Tensor, int]]:
        # buffers that are in no state dict leave with nobody
        stored = self.modules.stored_buffers()
        return {
            name: (one, one._version)
            for name, one in self.modules.buffers().items()
            if name in stored
        }

    def _unstored(self) -> dict[str, tuple[Tensor, int]]:
        """Return the real numbers that are in no state dict, and how often they were written to."""
        stored = self.modules.stored_buffers()
        return {
            name: (one, one._version)
            for name, one in self.modules.buffers().items()
            if name not in stored and one.is_floating_point()
        }

    def _unstored_digests(self) -> dict[str, tuple[Any, str]]:
        """Return type and shape of real numbers that are in no state dict, and their digest."""
        return {
            name: ((one.dtype, one.shape), digest_of_tensors([(name, one)]))
            for name, (one, _) in self._unstored().items()
        }

    def _all(self, *, trained: bool) -> Iterator[tuple[str, Tensor]]:
        stored = self.modules.stored_buffers()
        for name, one in self.modules.parameters().items():
            if trained or id(one) not in self._trained:
                yield name, one
        for name, buffer in self.modules.buffers().items():
            if name in stored:
                yield name, buffer

    def _digest(self) -> str:
        return digest_of_tensors((name, whole_of(one)) for name, one in self._all(trained=False))


def inner(model: Any) -> nn.Module:
    """Return the model inside what compiles it or spreads it over processes."""
    while True:
        if isinstance(model, nn.parallel.DistributedDataParallel):
            model = model.module
        elif hasattr(model, "_orig_mod"):
            model = model._orig_mod
        elif isinstance(model, nn.DataParallel):
            raise ValueError(
                "model: expected DistributedDataParallel for several devices, got DataParallel"
            )
        else:
            found: nn.Module = model
            return found


def inner_optimizer(optimizer: Any) -> torch.optim.Optimizer:
    """Return the optimizer inside what accelerate's ``prepare`` makes of it.

    Raises:
        ValueError: it is none, or one whose step runs a closure.
    """
    while isinstance(getattr(optimizer, "optimizer", None), torch.optim.Optimizer):
        optimizer = optimizer.optimizer
    if not isinstance(optimizer, torch.optim.Optimizer):
        raise ValueError(f"optimizer: expected one of torch.optim, got {type(optimizer).__name__}")
    closure = inspect.signature(optimizer.step).parameters.get("closure")
    if closure is not None and closure.default is inspect.Parameter.empty:
        raise ValueError(
            "optimizer: expected one that takes a step without a closure, which runs the loss "
            f"again, got {type(optimizer).__name__}"
        )
    return optimizer


def refuse_reducing(model: Any) -> None:
    """Leave the sum over processes to the loop, which takes it of clipped gradients."""
    while hasattr(model, "_orig_mod"):
        model = model._orig_mod
    if isinstance(model, nn.parallel.DistributedDataParallel):
        # as in no_sync, for good: no parameter ever has a gradient that could be reduced
        model.require_backward_grad_sync = False


def trained_parameters(
    model: nn.Module, optimizer: torch.optim.Optimizer
) -> dict[str, nn.Parameter]:
    """Return the parameters that the optimizer moves, by name.

    Raises:
        ValueError: one of them is not the model's, or there are none.
    """
    held = {id(one) for group in optimizer.param_groups for one in group["params"]}
    found = {
        name: one for name, one in model.named_parameters() if one.requires_grad and id(one) in held
    }
    known = {id(one) for one in model.parameters()}
    if held - known:
        raise ValueError("optimizer: expected parameters of the model, got others among them")
    if not found:
        raise ValueError("optimizer: expected parameters that require gradients, got none")
    for name, one in found.items():
        # noise and norms are of real entries
        if not one.is_floating_point():
            raise ValueError(
                f"model: expected parameters of real numbers, got {name} of {one.dtype}; keep its "
                "real and imaginary parts, as of torch.view_as_real"
            )
    return found
