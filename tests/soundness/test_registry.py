"""No guarantee type without a soundness case."""

import importlib
import inspect
from pathlib import Path

import pytest

import tacit.guarantees
from tacit.guarantees import Guarantee, InformationBound

from .registry import CASES, certifies

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


def test_only_tests_of_guarantee_types_register():
    with pytest.raises(TypeError, match="guarantee types"):
        certifies(int)
    with pytest.raises(ValueError, match="expected a test"):
        certifies(InformationBound)(every_kind)
