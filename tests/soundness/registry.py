"""Which soundness cases stand behind which guarantee type.

Mark a test in this folder with ``@certifies(InformationBound)`` (or several types) when it
compares values of that type with the truth from an oracle that shares no code with them. A
guarantee type without a case fails `test_registry.py`. A number that is called a bound without
being a guarantee, such as a margin after rounding, is entered with ``@bounds(Owner, "field")``.
"""

from collections import defaultdict
from collections.abc import Callable
from dataclasses import fields
from typing import Any, TypeVar

from tacit.guarantees import Guarantee

Test = TypeVar("Test", bound=Callable[..., None])

CASES: dict[type[Guarantee], list[str]] = defaultdict(list)
BOUNDS: dict[str, list[str]] = defaultdict(list)


def certifies(*kinds: type[Guarantee]) -> Callable[[Test], Test]:
    """Enter a test as a soundness case of the guarantee types given."""
    for kind in kinds:
        if not (isinstance(kind, type) and issubclass(kind, Guarantee)):
            raise TypeError(f"certifies: expected guarantee types, got {kind!r}")

    def register(test: Test) -> Test:
        name = _name_of("certifies", test)
        for kind in kinds:
            CASES[kind].append(name)
        return test

    return register


def bounds(owner: Any, *names: str) -> Callable[[Test], Test]:
    """Enter a test as a soundness case of a function's result, or of fields of a dataclass."""
    known = {field.name for field in fields(owner)} if names else set()
    if set(names) - known:
        raise ValueError(f"bounds: expected fields of {owner.__name__}, got {names}")
    home = f"{owner.__module__}.{owner.__name__}"

    def register(test: Test) -> Test:
        for claim in [f"{home}.{name}" for name in names] or [home]:
            BOUNDS[claim].append(_name_of("bounds", test))
        return test

    return register


def _name_of(decorator: str, test: Callable[..., None]) -> str:
    if not test.__name__.startswith("test_"):
        raise ValueError(f"{decorator}: expected a test, got {test.__name__}")
    return f"{test.__module__}.{test.__name__}"
