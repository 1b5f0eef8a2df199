"""The ``tacit`` command and ``python -m tacit``: to be interrupted while it is imported, too."""

import os
import sys
from collections.abc import Sequence
from importlib.machinery import ModuleSpec, PathFinder
from importlib.util import LazyLoader
from types import ModuleType
from typing import NoReturn

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
        # packages that are imported draw too, and end in a trace of their own where nothing comes
        os.urandom(1)
    except (OSError, NotImplementedError) as error:
        _end(f"the operating system gives no random bits ({type(error).__name__}): draw nothing", 2)
    try:
        from tacit.cli import main as command

        command()
    except KeyboardInterrupt:
        _end("interrupted", 130)
    except ImportError as error:
        said = " ".join(str(error).split())[:300]
        _end(
            f"a package that Tacit needs cannot be imported ({said}): install tacit-privacy anew", 2
        )


def _end(sentence: str, code: int) -> NoReturn:
    print(f"tacit: {sentence}", file=sys.stderr)
    sys.exit(code)


if __name__ == "__main__":
    main()
