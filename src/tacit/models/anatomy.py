"""Where a causal language model keeps its decoder blocks and its head: found by watching it run."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from tacit._ground.reprs import short_repr
from tacit.models.padding import inputs_of

PROBE = 5
# What a network raises that cannot be run on tokens alone.
FAILURES = (AttributeError, IndexError, KeyError, NotImplementedError, RuntimeError, TypeError,
            ValueError)  # fmt: skip


@short_repr
@dataclass(frozen=True, eq=False)
class Anatomy:
    """The parts of a causal language model: ``logits = tail(block_L(… block_1(embeddings)))``.

    The residual stream after layer l is what block l returns, and for l = 0 what block 1 is given.
    The tail is all that comes after: a final norm in most families, the head, and what some do with
    its logits. It is never taken apart: the network's own forward pass runs, with blocks skipped.

    Attributes:
        network: the ``transformers`` model.
        blocks: the L decoder blocks.
        head: the linear map whose outputs have one entry a token.
        norm: the norm that is given the last block's output, or None where none is.
        width: d.
        vocabulary: V.
        embedded: tokens that have an embedding.
        stream: type of the residual stream as it was seen.
        returned: entries of the tuple that a block returns, 0 for a bare tensor.
        accepted: names of the arguments of the network's forward pass.
    """

    network: Any
    blocks: tuple[nn.Module, ...]
    head: nn.Module
    norm: nn.Module | None
    width: int
    vocabulary: int
    embedded: int
    stream: torch.dtype
    returned: int
    accepted: frozenset[str]

    @property
    def layers(self) -> int:
        """Number of decoder blocks."""
        return len(self.blocks)

    @property
    def dtype(self) -> torch.dtype:
        """Type of the residual stream."""
        held: torch.dtype = self.network.dtype
        return torch.promote_types(self.stream, held)

    def inputs(self, tokens: Tensor) -> dict[str, Tensor]:
        """Return the arguments for prompts (n, T), padding masked and positions right."""
        return inputs_of(tokens, self.accepted)

    def forward(self, inputs: Mapping[str, Tensor], cache: Any = None) -> Tensor:
        """Run the network and return the logits of the last position, (n, V), never in half."""
        options: dict[str, Any] = {"use_cache": cache is not None}
        if cache is not None:
            options[cache_argument(self.accepted)] = cache
        if "logits_to_keep" in self.accepted:
            options["logits_to_keep"] = 1
        return whole(self.network(**inputs, **options).logits[:, -1])

    def read_out(self, states: Tensor) -> Tensor:
        """Predict from states after the last block, (n, d), by the tail alone: (n, V)."""
        tokens = torch.zeros(len(states), 1, dtype=torch.int64, device=states.device)
        with entered(self, self.layers, states):
            return self.forward(self.inputs(tokens))


def cache_argument(accepted: Collection[str]) -> str:
    """Return the name under which a forward pass takes its cache: transformers 5.24 renamed it."""
    from transformers.modeling_outputs import CausalLMOutputWithPast

    for name in ("cache", "past_key_values"):
        if name in accepted:
            return name
    # A forward pass that hands its keywords on takes the name of the library's own networks.
    return "cache" if "cache" in CausalLMOutputWithPast.__dataclass_fields__ else "past_key_values"


def dissect(network: Any, name: str) -> Anatomy:
    """Find the decoder blocks, the final norm and the head of a causal language model.

    The blocks are the members of the one outermost ``ModuleList`` that run in order, each once,
    each on what the one before returned; the head is the network's output embedding, seen to run.

    Raises:
        ValueError: nothing of the kind is there.
    """
    kind = type(network).__name__
    is_model = isinstance(network, nn.Module) and hasattr(network, "get_output_embeddings")
    head = network.get_output_embeddings() if is_model else None
    if not isinstance(head, nn.Module):
        raise ValueError(
            f"name_or_path: expected a causal language model of transformers with an output head, "
            f"got {name!r}, a {kind}"
        )
    embedded = int(network.get_input_embeddings().weight.shape[0])
    device = next(network.parameters()).device
    tokens = (torch.arange(PROBE, device=device) * 7 % embedded)[None]
    trace = _Trace(network)
    try:
        with torch.no_grad(), trace.watching():
            logits = network(input_ids=tokens, use_cache=False).logits
    except FAILURES as error:
        raise ValueError(
            f"name_or_path: {name!r}, a {kind}, does not predict from tokens alone ({error})"
        ) from None
    blocks = trace.blocks(name, kind)
    found = trace.outputs[blocks[-1]]
    after = [module for module, given in trace.order if given is _tensor(found)]
    norms = [module for module in after if all(held.ndim == 1 for held in module.parameters())]
    if head not in trace.outputs or logits.shape[-1] != _tensor(trace.outputs[head]).shape[-1]:
        raise ValueError(f"name_or_path: the head of {name!r}, a {kind}, does not make its logits")
    states = _tensor(found)
    return Anatomy(
        network=network,
        blocks=blocks,
        head=head,
        norm=norms[0] if norms else None,
        width=int(states.shape[-1]),
        vocabulary=int(logits.shape[-1]),
        embedded=embedded,
        stream=states.dtype,
        returned=len(found) if isinstance(found, tuple) else 0,
        accepted=frozenset(inspect.signature(network.forward).parameters),
    )


class _Trace:
    """What every module was given and returned in one forward pass."""

    def __init__(self, network: nn.Module) -> None:
        self.network = network
        self.order: list[tuple[nn.Module, Tensor]] = []
        self.outputs: dict[nn.Module, Any] = {}

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Keep the first tensor each module is given, and its output, in the order of calls."""

        def note(module: nn.Module, positional: Any, named: dict[str, Any]) -> None:
            given = _given(positional, named)
            if given is not None:
                self.order.append((module, given))

        def keep(module: nn.Module, _: Any, output: Any) -> None:
            self.outputs[module] = output

        with ExitStack() as stack:
            for module in self.network.modules():
                for handle in (
                    module.register_forward_pre_hook(note, with_kwargs=True),
                    module.register_forward_hook(keep),
                ):
                    stack.callback(handle.remove)
            yield

    def blocks(self, name: str, kind: str) -> tuple[nn.Module, ...]:
        """Return the members of the one outermost list that form a chain."""
        chains = [
            chain
            for part in self.network.modules()
            if isinstance(part, nn.ModuleList) and (chain := self._chain(part))
        ]
        outer = [chain for chain in chains if not any(chain[0] in _below(c) for c in chains)]
        if len(outer) != 1:
            raise ValueError(
                f"name_or_path: expected a causal language model with one stack of decoder blocks, "
                f"got {name!r}, a {kind} with {len(outer)} of them"
            )
        return outer[0]

    def _chain(self, part: nn.ModuleList) -> tuple[nn.Module, ...]:
        """Return the members called in order, each on the output of the one before, or ()."""
        members = {module: place for place, module in enumerate(part)}
        calls = [(module, given) for module, given in self.order if module in members]
        places = [members[module] for module, _ in calls]
        if not calls or places != list(range(len(calls))):
            return ()
        chain = tuple(module for module, _ in calls)
        states = [given for _, given in calls]
        if any(given.ndim != 3 or not given.is_floating_point() for given in states):
            return ()
        returned = [_tensor(self.outputs[module]) for module in chain]
        same = all(
            after is before or (after.shape == before.shape and torch.equal(after, before))
            for before, after in zip(returned, states[1:], strict=False)
        )
        return chain if same and returned[-1].shape == states[0].shape else ()


def _below(chain: Iterable[nn.Module]) -> set[nn.Module]:
    """Return the modules inside the members of a chain, the members themselves aside."""
    return {below for block in chain for below in block.modules() if below is not block}


def _given(positional: tuple[Any, ...], named: Mapping[str, Any]) -> Tensor | None:
    first = positional[0] if positional else named.get("hidden_states")
    return first if isinstance(first, Tensor) else None


def _tensor(output: Any) -> Tensor:
    found = output[0] if isinstance(output, tuple) else output
    return found if isinstance(found, Tensor) else torch.empty(0)


def whole(values: Tensor) -> Tensor:
    """Return numbers in float32, or in float64 where they come so: half precision measures nothing.

    What is rounded to half precision is unchanged by it.
    """
    return values if values.dtype == torch.float64 else values.float()


class ReachedError(Exception):
    """Ends a forward pass once what was wanted of it is known."""


@contextmanager
def watched(
    anatomy: Anatomy, layers: Iterable[int], see: Callable[[int, Tensor], None]
) -> Iterator[None]:
    """Call ``see(l, states)`` with the residual stream after each of ``layers`` as it is made."""

    def before(_: nn.Module, positional: Any, named: dict[str, Any]) -> None:
        given = _given(positional, named)
        assert given is not None
        see(0, given)

    def after(layer: int) -> Any:
        return lambda _, __, output: see(layer, _tensor(output))

    with ExitStack() as stack:
        for layer in set(layers):
            handle = (
                anatomy.blocks[layer - 1].register_forward_hook(after(layer))
                if layer
                else anatomy.blocks[0].register_forward_pre_hook(before, with_kwargs=True)
            )
            stack.callback(handle.remove)
        yield


@contextmanager
def rewritten(anatomy: Anatomy, layer: int, changed: Callable[[Tensor], Tensor]) -> Iterator[None]:
    """Let every pass's residual stream after ``layer``, (n, t, d), be a function of what it is."""

    def before(_: nn.Module, positional: Any, named: dict[str, Any]) -> Any:
        if positional:
            return (changed(positional[0]), *positional[1:]), named
        return positional, {**named, "hidden_states": changed(named["hidden_states"])}

    def after(_: nn.Module, __: Any, output: Any) -> Any:
        return (changed(output[0]), *output[1:]) if isinstance(output, tuple) else changed(output)

    handle = (
        anatomy.blocks[layer - 1].register_forward_hook(after)
        if layer
        else anatomy.blocks[0].register_forward_pre_hook(before, with_kwargs=True)
    )
    try:
        yield
    finally:
        handle.remove()


@contextmanager
def replaced(anatomy: Anatomy, layer: int, states: Tensor) -> Iterator[None]:
    """Let the last position's residual stream after ``layer`` be ``states`` (n, d)."""

    def changed(hidden: Tensor) -> Tensor:
        found = hidden.clone()
        found[:, -1] = states.to(hidden.dtype)
        return found

    with rewritten(anatomy, layer, changed):
        yield


@contextmanager
def entered(anatomy: Anatomy, layer: int, states: Tensor) -> Iterator[None]:
    """Let the network's forward pass of one position enter after ``layer`` with ``states`` (n, d).

    The blocks up to ``layer`` are skipped; positions, masks and the tail are the network's own.
    """
    hidden = states[:, None].to(anatomy.dtype)
    if layer == 0:
        with replaced(anatomy, 0, hidden[:, 0]):
            yield
        return
    output = (hidden, *(None,) * (anatomy.returned - 1)) if anatomy.returned else hidden
    skipped = anatomy.blocks[:layer]
    own = [vars(block).get("forward") for block in skipped]
    try:
        for block in skipped:
            vars(block)["forward"] = lambda *_, **__: output
        yield
    finally:
        for block, forward in zip(skipped, own, strict=True):
            if forward is None:
                vars(block).pop("forward", None)
            else:
                vars(block)["forward"] = forward


def states_after(anatomy: Anatomy, layer: int, tokens: Tensor) -> Tensor:
    """Run the embeddings and the first ``layer`` blocks; return their output (n, T, d)."""
    found: list[Tensor] = []

    def stop(_: int, states: Tensor) -> None:
        found.append(states)
        raise ReachedError

    try:
        with watched(anatomy, [layer], stop):
            anatomy.forward(anatomy.inputs(tokens))
    except ReachedError:
        return whole(found[0])
    raise AssertionError("the forward pass ended without passing its layers")


def last_states(
    anatomy: Anatomy, layers: Iterable[int], tokens: Tensor
) -> tuple[dict[int, Tensor], Tensor]:
    """Run the model once; return the last position's state after each layer, and its logits."""
    found: dict[int, Tensor] = {}

    def keep(layer: int, states: Tensor) -> None:
        found[layer] = whole(states[:, -1])

    with watched(anatomy, layers, keep):
        logits = anatomy.forward(anatomy.inputs(tokens))
    return found, logits
