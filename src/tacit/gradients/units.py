"""Modules that gradients of parameters are taken at, and the ones further out."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from torch import nn

from tacit.gradients.calibration import in_parts
from tacit.gradients.layers import LayerRule, rule_of


@dataclass(eq=False)
class Unit:
    """A module that some parameters' gradients are taken at.

    Attributes:
        path: of the module, empty for the model itself.
        module: the module.
        names: of its parameters, by what they are called in it.
        rule: how they are found; None for running the module again for each example.
        rows: which of the tensors that it is given have a row for each example, once known.
        tried: whether its gradients were held against those of single examples.
    """

    path: str
    module: nn.Module
    names: dict[str, str]
    rule: LayerRule | None
    rows: tuple[bool, ...] | None = None
    tried: bool = False


def units_of(model: nn.Module, parameters: Mapping[str, nn.Parameter]) -> Iterator[Unit]:
    """Yield every module that has a trained parameter of its own, or shares it."""
    names = {id(one): name for name, one in parameters.items()}
    for path, module in model.named_modules():
        own = {
            local: names[id(one)]
            for local, one in module._parameters.items()
            if one is not None and id(one) in names
        }
        if own:
            yield Unit(path, module, own, rule_of(module))


def places_of(units: Sequence[Unit], name: str) -> list[tuple[str, bool]]:
    """Return where a parameter's gradients are taken: paths, and whether modules are run again."""
    return [(one.path, one.rule is None) for one in units if name in one.names.values()]


def taken_higher(
    units: Sequence[Unit],
    modules: Mapping[str, nn.Module],
    parameters: Mapping[str, nn.Parameter],
    name: str,
) -> list[Unit] | None:
    """Return the units where a parameter is taken one module further out; None if there is none.

    At the module itself where a rule failed, at what holds it where that was run again. What stands
    in a list is called as the others there are: of experts, to which tokens go, all are taken at
    what holds the list, those that no example went to yet among them.

    Args:
        units: as they are.
        modules: of the model, by path.
        parameters: what is trained, by name.
        name: of the parameter.
    """
    if in_parts(parameters[name]):
        return None
    owners = [one for one in units if name in one.names.values()]
    paths, beside = [one.path for one in owners], ""
    if len(paths) == 1 and owners[0].rule is not None:
        path = paths[0]
    else:
        path = _common(paths) if len(paths) > 1 else _parent(paths[0])
        if paths == [""]:
            return None
        # a list of modules is never called
        while path and not _is_called(modules[path]):
            path, beside = _parent(path), path
    moved = {name} | (_held_in(beside, path, units, parameters) if beside else set())
    left = [
        replace(one, names={inner: held for inner, held in one.names.items() if held not in moved})
        if moved & set(one.names.values())
        else one
        for one in units
    ]
    kept = [one for one in left if one.names]
    outer = next((one for one in kept if one.path == path and one.rule is None), None)
    made = Unit(path, modules[path], {}, None) if outer is None else replace(outer)
    called = {
        id(value): inner for inner, value in modules[path].named_parameters(remove_duplicate=False)
    }
    made.names = made.names | {called[id(parameters[one])]: one for one in sorted(moved)}
    return [*(one for one in kept if one is not outer), made]


def _held_in(
    beside: str, path: str, units: Sequence[Unit], parameters: Mapping[str, nn.Parameter]
) -> set[str]:
    """Return what is trained in a list of modules and nowhere outside of what holds it."""

    def within(one: Unit, place: str) -> bool:
        return not place or one.path == place or one.path.startswith(f"{place}.")

    inside = {held for one in units if within(one, beside) for held in one.names.values()}
    outside = {held for one in units if not within(one, path) for held in one.names.values()}
    return {one for one in inside - outside if not in_parts(parameters[one])}


def _common(paths: Sequence[str]) -> str:
    """Return the path of the innermost module that holds all of some modules."""
    split = [path.split(".")[:-1] for path in paths]
    same = itertools.takewhile(lambda parts: len(set(parts)) == 1, zip(*split, strict=False))
    return ".".join(parts[0] for parts in same)


def _is_called(module: nn.Module) -> bool:
    """Whether a module has a forward pass, which lists of modules have not."""
    return type(module).forward is not nn.Module.forward


def _parent(path: str) -> str:
    return path.rpartition(".")[0]
