"""Which layers of a model are adapted: those of a peft model, or chosen ones of any module."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.nn import functional

from tacit._ground.checks import RandomSource, integer
from tacit._ground.random import released_normal
from tacit._ground.reprs import shown
from tacit.adapters.settings import AdaptedLayers
from tacit.gradients.batches import refuse_without_numbers
from tacit.gradients.steps import Method

# What peft calls the one adapter that is trained.
DEFAULT = "default"
# Starts of A that are random; the others are made of weights or of data.
RANDOM_STARTS = (True, False, "gaussian", "orthogonal")


@dataclass(frozen=True, eq=False, kw_only=True)
class AdapterLayer:
    """One layer W + s B A: its weight, and the factors of what is added to it.

    Attributes:
        name: of the module in the model without adapters.
        base: the module that holds W, an ``nn.Linear`` or GPT-2's ``Conv1D``.
        matrix_a: A, (rank, in); None where W itself is trained.
        matrix_b: the module that maps rank to out; None where W itself is trained.
        scaling: s.
    """

    name: str
    base: nn.Module
    matrix_a: Tensor | None
    matrix_b: nn.Linear | None
    scaling: float

    @property
    def transposed(self) -> bool:
        """Whether W is stored as (in, out)."""
        return not isinstance(self.base, nn.Linear)

    @property
    def width(self) -> int:
        """Size of the input."""
        return int(self.weight.shape[0 if self.transposed else 1])

    @property
    def weight(self) -> nn.Parameter:
        """W as it is stored."""
        found: Any = self.base.weight
        return cast(nn.Parameter, found)

    @property
    def trained(self) -> nn.Parameter:
        """The parameter that training moves."""
        return self.weight if self.matrix_b is None else cast(nn.Parameter, self.matrix_b.weight)

    @property
    def watched(self) -> nn.Module:
        """The module whose per-example gradients are asked for."""
        return self.base if self.matrix_b is None else self.matrix_b


class Attached:
    """B A added to the output of chosen layers by hooks; the module and its names stay.

    Args:
        layers: with their factors.
    """

    def __init__(self, layers: Sequence[AdapterLayer]) -> None:
        self._layers = [layer for layer in layers if layer.matrix_b is not None]
        self._handles: list[Any] = []

    def on(self) -> None:
        """Add the factors' outputs from now on.

        Raises:
            ValueError: a layer still has the adapter of an earlier run.
        """
        if not self._handles:
            for layer in self._layers:
                # two adapters on one layer would add up
                _check_bare(layer)
            self._handles = [
                layer.base.register_forward_hook(_Adding(layer)) for layer in self._layers
            ]

    def off(self) -> None:
        """Leave the model as it was given."""
        for handle in self._handles:
            handle.remove()
        self._handles = []


def adapted_layers(
    chosen: AdaptedLayers, method: Method, seed: int | None
) -> tuple[nn.Module, list[AdapterLayer], Attached]:
    """Return the model to train, its layers, and their hooks.

    Args:
        chosen: layers of a module, or a peft model, which has layers and A of its own.
        method: whose rank it is, and whether W itself is trained.
        seed: of A.

    Raises:
        ValueError: the model, a layer or a projection does not fit the others.
    """
    model = chosen.model
    if not isinstance(model, nn.Module):
        raise ValueError(f"model: expected an nn.Module, got {type(model).__name__}")
    refuse_without_numbers(model)
    if isinstance(model, (nn.DataParallel, nn.parallel.DistributedDataParallel)):
        raise ValueError(f"model: expected the module itself, got a {type(model).__name__}")
    # a step of a half-precision weight would round the noise away
    if method.full and any(p.dtype != torch.float32 for p in model.parameters()):
        raise ValueError(
            f"model: expected float32 weights for {method.name}, which moves them, got other values"
        )
    targets, given = chosen.targets, chosen.projections
    if not hasattr(model, "peft_config"):
        if given is not None and not isinstance(given, Mapping):
            raise ValueError(
                f"projections: expected A of layers by name, got {type(given).__name__}"
            )
        # a plain module: fresh factors, added by hooks
        layers = plain_layers(model, targets, method, projections=dict(given or {}), rng=seed)
        return model, layers, Attached(layers)
    if given is not None or targets != "all":
        raise ValueError(
            "targets, projections: expected none beside a peft model, which has its own"
        )
    layers = peft_layers(model)
    if method.full:
        # B A of the given adapter would be lost with it
        if any(bool(layer.trained.any()) for layer in layers):
            raise ValueError(
                f"model: expected B of zeros for {method.name}, which trains W, got another; merge "
                "the adapter first"
            )
        # W is trained: the adapter comes off
        names, plain = [layer.name for layer in layers], model.unload()  # type: ignore[operator]
        layers = plain_layers(plain, names, method)
        return plain, layers, Attached(layers)
    # the certificate is of the rank that the method says
    ranks = {int(layer.matrix_a.shape[0]) for layer in layers if layer.matrix_a is not None}
    rank: int = method.rank  # type: ignore[attr-defined]
    if ranks != {rank}:
        raise ValueError(
            f"method: expected the rank of the model's A, {shown(sorted(ranks))}, got {rank}"
        )
    return model, layers, Attached([])


def peft_layers(model: Any) -> list[AdapterLayer]:
    """Return the layers of a peft LoRA model, A frozen and everything else but B.

    Args:
        model: a ``peft.PeftModel`` with one adapter.

    Raises:
        ValueError: something beside B would be trained, or A was made of data.
    """
    from peft.tuners.lora import Linear, LoraLayer

    configuration = _check_configuration(model)
    name = model.active_adapter
    found: list[AdapterLayer] = []
    for place, module in model.named_modules():
        if isinstance(module, LoraLayer) and not isinstance(module, Linear):
            # an embedding, a convolution, weights of four bits: its factors would stay as they are
            raise ValueError(
                f"model: expected LoRA of linear layers, got {type(module).__name__} in {place}, "
                "which would not be trained; leave it out of target_modules, or train in a loop of "
                "your own by tacit.training.make_private"
            )
        # LoRA layers of the one active adapter
        if not isinstance(module, Linear) or name not in module.lora_A:
            continue
        factor_a, factor_b = module.lora_A[name], module.lora_B[name]
        # a bias of B would be trained without being watched
        if not isinstance(factor_b, nn.Linear) or factor_b.bias is not None:
            raise ValueError(
                f"model: expected LoRA of linear layers, got another kind of layer in {place}"
            )
        short = place.removeprefix("base_model.model.")
        found.append(
            AdapterLayer(
                name=short,
                base=module.get_base_layer(),
                matrix_a=factor_a.weight,
                matrix_b=factor_b,
                scaling=float(module.scaling[name]),
            )
        )
    if not found:
        raise ValueError(
            f"model: expected LoRA layers of the adapter {name!r}, got none on linear layers "
            f"(targets: {shown(configuration.target_modules)})"
        )
    # a weight with two owners has gradients that are not its layer's
    _check_untied(model, {layer.name: layer.base for layer in found})
    freeze(model, found)
    return found


def plain_layers(
    model: nn.Module,
    targets: str | Sequence[str],
    method: Method,
    *,
    projections: dict[str, Tensor] | None = None,
    rng: int | None = None,
) -> list[AdapterLayer]:
    """Return layers of any module with fresh factors, A random and public, B zero.

    Args:
        model: whose other parameters are frozen.
        targets: names of its linear layers, or endings of names; ``"all"`` for every one.
        method: whose rank it is.
        projections: A of layers by name, (rank, in), instead of random ones: public, not of the
            data.
        rng: seed of A.

    Raises:
        ValueError: a target that does not exist, is no linear layer, or shares its weight.
    """
    modules = target_layers(model, targets)
    if not modules:
        raise ValueError(
            "targets: expected layers with weights of their own, got none in the model"
        )
    _check_untied(model, modules)
    rank = getattr(method, "rank", None)
    _check_rank(method, modules)
    given = projections or {}
    if set(given) - set(modules):
        raise ValueError(
            f"projections: expected layers that are adapted, got {shown(sorted(given))}"
        )
    found = []
    for place, (name, base) in enumerate(modules.items()):
        layer = AdapterLayer(name=name, base=base, matrix_a=None, matrix_b=None, scaling=1.0)
        if not method.full and rank is not None:
            # each layer an A of its own
            source = None if rng is None else rng + place
            layer = _with_factors(layer, rank, given.get(name), source)
        elif given:
            raise ValueError(f"projections: expected none for {method.name}, which keeps no A")
        found.append(layer)
    freeze(model, found)
    return found


def target_layers(model: nn.Module, targets: str | Sequence[str]) -> dict[str, nn.Module]:
    """Return the linear layers of the names or endings given, in the model's order.

    Raises:
        ValueError: a target names no module, or one that is no linear layer.
    """
    if _is_linear(model):
        raise ValueError(
            "model: expected a module with named layers, got a linear layer itself; put it into an "
            "nn.Sequential"
        )
    # Linear and Conv1D, in the model's order
    linear = {name: module for name, module in model.named_modules() if _is_linear(module)}
    if not linear:
        raise ValueError(f"model: expected linear layers, got none in {type(model).__name__}")
    if targets is None or not isinstance(targets, (str, Sequence)):
        raise ValueError(f"targets: expected names of linear layers or 'all', got {shown(targets)}")
    if targets == "all":
        # the head over tokens is as wide as the vocabulary: it is named where it is wanted
        head = _token_head(model)
        left = {*_tied(model, linear), *_read_elsewhere(model)}
        return {n: one for n, one in linear.items() if n not in left and one is not head}
    wanted = [targets] if isinstance(targets, str) else list(targets)
    if not wanted:
        raise ValueError("targets: expected names of linear layers, got none")
    for target in wanted:
        # say whether the name is unknown or of something else
        if not any(_names(name, target) for name in linear):
            others = [name for name, _ in model.named_modules() if _names(name, target)]
            what = "which is no linear layer" if others else "which the model does not have"
            known = sorted({name.rsplit(".", 1)[-1] for name in linear})
            raise ValueError(f"targets: expected some of {shown(known)}, got {target!r}, {what}")
        held = [name for name in _read_elsewhere(model) if _names(name, target)]
        if held:
            raise ValueError(
                f"targets: expected layers that are called, got {held[0]!r}, whose weight "
                "nn.MultiheadAttention reads itself; leave it out, or write the attention with "
                "layers of its own"
            )
    return {
        name: module
        for name, module in linear.items()
        if any(_names(name, target) for target in wanted)
    }


def _read_elsewhere(model: nn.Module) -> list[str]:
    """Return linear layers that are never called: attention of torch reads their weights."""
    attention = [n for n, one in model.named_modules() if isinstance(one, nn.MultiheadAttention)]
    return [f"{name}.out_proj" if name else "out_proj" for name in attention]


def _check_rank(method: Method, modules: Mapping[str, nn.Module]) -> None:
    """Refuse an A with more rows than the widest layer has inputs: it shows nothing more."""
    rank = getattr(method, "rank", None)
    sizes: list[Any] = [one.weight for one in modules.values()]
    widest = max(max(one.shape) for one in sizes)
    if rank is not None and rank > widest:
        raise ValueError(
            f"rank: expected at most {widest}, the widest layer that is adapted, got {rank}; "
            "DPSGD moves the weights themselves"
        )


def freeze(model: nn.Module, layers: Sequence[AdapterLayer]) -> None:
    """Let nothing but the trained factors have a gradient."""
    model.requires_grad_(False)
    for layer in layers:
        layer.trained.requires_grad_(True)


def check_frozen(model: nn.Module, layers: Sequence[AdapterLayer]) -> None:
    """Refuse an A, or another parameter, that somebody made trainable again.

    Raises:
        ValueError: names the layer or the parameter.
    """
    for layer in layers:
        held = layer.matrix_a
        if held is not None and held.requires_grad:
            raise ValueError(f"model: expected A frozen, got a trainable one in {layer.name}")
    # by identity, whatever a parameter is called
    trained = {id(layer.trained) for layer in layers}
    for name, parameter in model.named_parameters():
        if parameter.requires_grad and id(parameter) not in trained:
            raise ValueError(f"model: expected {name} frozen, got it trainable")


def random_projection(rank: int, width: int, rng: RandomSource = None) -> Tensor:
    """Draw A, (rank, in), with independent N(0, 1/r) entries."""
    integer("rank", rank, minimum=1)
    drawn = released_normal((rank, width), rng)
    # E AᵀA = I: what A shows of a gradient has its length in the mean
    return torch.from_numpy(drawn / rank**0.5).float()


def _with_factors(
    layer: AdapterLayer, rank: int, given: Tensor | None, rng: int | None
) -> AdapterLayer:
    if given is None:
        # random and public
        start = random_projection(rank, layer.width, rng)
    else:
        try:
            start = torch.as_tensor(given).detach().to(torch.float32, copy=True)
        except (TypeError, ValueError, RuntimeError):
            raise ValueError(
                f"projections: expected an array for {layer.name}, got {type(given).__name__}"
            ) from None
        # given: of public data, as the caller says
        if start.shape != (rank, layer.width) or not bool(torch.isfinite(start).all()):
            raise ValueError(
                f"projections: expected finite numbers of shape {(rank, layer.width)} for "
                f"{layer.name}, got {tuple(start.shape)}"
            )
    device = layer.weight.device
    out = layer.weight.shape[1 if layer.transposed else 0]
    factor = nn.Linear(rank, int(out), bias=False, device=device)
    # B = 0: the model starts as it is
    nn.init.zeros_(factor.weight)
    return AdapterLayer(
        name=layer.name,
        base=layer.base,
        matrix_a=start.to(device),
        matrix_b=factor,
        scaling=1.0,
    )


def _check_bare(layer: AdapterLayer) -> None:
    if any(isinstance(one, _Adding) for one in layer.base._forward_hooks.values()):
        raise ValueError(
            "model: expected one as it was loaded, got the adapter of an earlier run on "
            f"{layer.name}"
        )


class _Adding:
    """A forward hook that adds s B A x to a layer's output."""

    def __init__(self, layer: AdapterLayer) -> None:
        self._layer = layer

    def __call__(self, module: nn.Module, inputs: tuple[Tensor, ...], output: Tensor) -> Tensor:
        factor_a, factor_b = self._layer.matrix_a, self._layer.matrix_b
        assert factor_a is not None
        assert factor_b is not None
        # A x
        low = functional.linear(inputs[0].to(factor_a.dtype), factor_a)
        added: Tensor = factor_b(low)
        # rounded once, after the sum, as peft does
        return (output + self._layer.scaling * added).to(output.dtype)


def _check_configuration(model: Any) -> Any:
    from peft import LoraConfig

    # one adapter: what another does would be in no certificate
    names = list(model.peft_config)
    active = model.active_adapters if hasattr(model, "active_adapters") else [model.active_adapter]
    if len(names) != 1 or list(active) != names:
        raise ValueError(f"model: expected one adapter, got {shown(names)}")
    found = model.peft_config[names[0]]
    if not isinstance(found, LoraConfig):
        raise ValueError(f"model: expected LoRA, got {type(found).__name__}")
    if found.init_lora_weights not in RANDOM_STARTS:
        raise ValueError(
            f"model: expected a random A, got {found.init_lora_weights!r}, which makes it of "
            "weights or data that nothing here accounts for"
        )
    # whatever else peft would train or keep
    extras = {
        "modules_to_save": bool(found.modules_to_save),
        "bias": found.bias != "none",
        "use_dora": found.use_dora,
        "trainable_token_indices": bool(getattr(found, "trainable_token_indices", None)),
        "lora_bias": bool(getattr(found, "lora_bias", False)),
        "target_parameters": bool(getattr(found, "target_parameters", None)),
    }
    extra = [name for name, given in extras.items() if given]
    if extra:
        raise ValueError(f"model: expected only B to be trained, got {', '.join(extra)}")
    return found


def _tied(model: nn.Module, modules: Mapping[str, nn.Module]) -> dict[str, str]:
    """Return the layers whose weight another module has too, and that module's name."""
    owners: dict[int, list[tuple[str, nn.Module]]] = {}
    for name, module in model.named_modules():
        # who has which parameter
        for parameter in module.parameters(recurse=False):
            owners.setdefault(id(parameter), []).append((name, module))
    found = {}
    for name, module in modules.items():
        others = [place for place, owner in owners[id(module.weight)] if owner is not module]
        if others:
            found[name] = others[0]
    return found


def _check_untied(model: nn.Module, modules: Mapping[str, nn.Module]) -> None:
    for name, other in _tied(model, modules).items():
        raise ValueError(
            f"targets: expected layers with weights of their own, got {name}, tied to {other}"
        )


def _token_head(model: Any) -> nn.Module | None:
    """Return the layer that maps states to tokens, where a ``transformers`` model has one."""
    asked = getattr(model, "get_output_embeddings", None)
    found = None if asked is None else asked()
    return found if isinstance(found, nn.Module) else None


def _is_linear(module: nn.Module) -> bool:
    kind = isinstance(module, nn.Linear) or type(module).__name__ == "Conv1D"
    # a weight that is made of other parameters, as by weight_norm, is none of the layer
    return kind and "weight" in module._parameters


def _names(name: str, target: str) -> bool:
    return name == target or name.endswith(f".{target}")
