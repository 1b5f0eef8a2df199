"""No guarantee type without a soundness case."""

import importlib
import inspect
import pkgutil
import re
from dataclasses import fields, is_dataclass
from pathlib import Path

import pytest

import tacit.guarantees
from tacit.guarantees import Guarantee, InformationBound

from .registry import BOUNDS, CASES, bounds, certifies

# What a guarantee, or a measured interval, is written down as.
RECORDS = {"Point"}
CLAIM = re.compile(r"(.*_)?(bounds?|low|high|published)")

for path in Path(__file__).parent.glob("test_*.py"):
    if path.stem != Path(__file__).stem:
        importlib.import_module(f"{__package__}.{path.stem}")


def every_kind(kind):
    for child in kind.__subclasses__():
        yield child
        yield from every_kind(child)


KINDS = [kind for kind in every_kind(Guarantee) if kind.__module__.startswith("tacit.")]


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_every_guarantee_type_has_a_soundness_case(kind):
    assert CASES[kind], f"mark a test in tests/soundness with @certifies({kind.__name__})"


def test_the_public_types_are_among_those_checked():
    public = [getattr(tacit.guarantees, name) for name in tacit.guarantees.__all__]
    types = {value for value in public if inspect.isclass(value) and issubclass(value, Guarantee)}
    assert types - {Guarantee} == set(KINDS)


def test_every_bound_on_hidden_states_has_a_soundness_case():
    pytest.importorskip("torch")
    pytest.importorskip("transformers")
    import tacit.hidden_states as package
    from tacit.attacks import sequential as attacks

    claimed = set()
    rooms = ((package.__path__, package.__name__), (attacks.__path__, attacks.__name__))
    names = [
        found.name for path, prefix in rooms for found in pkgutil.walk_packages(path, f"{prefix}.")
    ]
    for place in names:
        module = importlib.import_module(place)
        for name, owner in inspect.getmembers(module, inspect.isclass):
            if owner.__module__ == module.__name__ and is_dataclass(owner) and name not in RECORDS:
                claimed |= {
                    f"{module.__name__}.{name}.{field.name}"
                    for field in fields(owner)
                    if CLAIM.fullmatch(field.name)
                }
    assert claimed
    assert claimed <= set(BOUNDS)


def test_only_tests_of_guarantee_types_register():
    with pytest.raises(TypeError, match="guarantee types"):
        certifies(int)
    with pytest.raises(ValueError, match="expected a test"):
        certifies(InformationBound)(every_kind)
    with pytest.raises(ValueError, match="expected fields"):
        bounds(InformationBound, "tightness")
    with pytest.raises(ValueError, match="expected a test"):
        bounds(InformationBound, "nats")(every_kind)
