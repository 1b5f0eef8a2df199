"""Which soundness cases stand behind which guarantee type.

Mark a test in this folder with ``@certifies(InformationBound)`` (or several types) when it
compares values of that type with the truth from an oracle that shares no code with them. A
guarantee type without a case fails `test_registry.py`.
"""

from collections import defaultdict
from collections.abc import Callable
from typing import TypeVar

from tacit.guarantees import Guarantee

Test = TypeVar("Test", bound=Callable[..., None])

CASES: dict[type[Guarantee], list[str]] = defaultdict(list)


def certifies(*kinds: type[Guarantee]) -> Callable[[Test], Test]:
    """Enter a test as a soundness case of the guarantee types given."""
    for kind in kinds:
        if not (isinstance(kind, type) and issubclass(kind, Guarantee)):
            raise TypeError(f"certifies: expected guarantee types, got {kind!r}")

    def register(test: Test) -> Test:
        if not test.__name__.startswith("test_"):
            raise ValueError(f"certifies: expected a test, got {test.__name__}")
        for kind in kinds:
            CASES[kind].append(f"{test.__module__}.{test.__name__}")
        return test

    return register
