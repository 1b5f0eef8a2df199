"""The ``tacit`` command and ``python -m tacit``: to be interrupted while it is imported, too."""

import sys
from collections.abc import Sequence
from importlib.machinery import ModuleSpec, PathFinder
from importlib.util import LazyLoader
from types import ModuleType

# SciPy's array layer takes every name of NumPy, and with them its Fortran compiler's front end and
# its test runner: a tenth of a second that no command uses. They are loaded when one is.
SELDOM = frozenset({"numpy.ctypeslib", "numpy.f2py", "numpy.polynomial", "numpy.testing"})


class Seldom:
    """A finder of the modules that are loaded at their first use and not at their import."""

    @staticmethod
    def find_spec(
        name: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Return where a module of ``SELDOM`` is, its loader waiting; None of any other."""
        if name not in SELDOM:
            return None
        spec = PathFinder.find_spec(name, path, target)
        if spec is not None and spec.loader is not None:
            spec.loader = LazyLoader(spec.loader)
        return spec


def main() -> None:
    """Run the command line: exit 0 when done, 1 when a gate is crossed, 2 on bad input."""
    sys.meta_path.insert(0, Seldom)
    try:
        from tacit.cli import main as command

        command()
    except KeyboardInterrupt:
        print("tacit: interrupted", file=sys.stderr)
        sys.exit(130)


if __name__ == "__main__":
    main()
