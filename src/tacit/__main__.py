"""The ``tacit`` command and ``python -m tacit``: to be interrupted while it is imported, too."""

import os
import sys
from collections.abc import Sequence
from importlib.abc import Loader
from importlib.machinery import ModuleSpec, PathFinder
from importlib.util import LazyLoader
from types import ModuleType
from typing import Any, NoReturn

from tacit._ground.lazy import ExtraMissingError

# SciPy's array layer takes every name of NumPy, and with them its Fortran compiler's front end and
# its test runner: a tenth of a second that no command uses. They are loaded when one is.
SELDOM = frozenset({"numpy.ctypeslib", "numpy.f2py", "numpy.polynomial", "numpy.testing"})
# Of these the help takes one name each, which no help of ours calls: a parser of Markdown and the
# colours of a trace.
NAMES = {"rich.markdown": "Markdown", "rich.traceback": "Traceback"}


class AtFirstUse(Loader):
    """Loads a module when the one name that most take from it is used, or another is asked for."""

    def __init__(self, real: Loader, name: str) -> None:
        """Keep how the module is loaded, and the name."""
        self.real, self.name = real, name

    def exec_module(self, module: ModuleType) -> None:
        """Give the module its one name; a package that is imported later may take others."""

        def whole(name: str) -> Any:
            # what the import system asks of a module or an annotation of a class is not in it
            if name.startswith("__"):
                raise AttributeError(name)
            if vars(module).pop("__getattr__", None) is not None:
                self.real.exec_module(module)
            return getattr(module, name)

        class AsType(type):
            def __call__(cls, *arguments: Any, **named: Any) -> Any:
                return whole(self.name)(*arguments, **named)

            def __getattr__(cls, name: str) -> Any:
                return getattr(whole(self.name), name)

        # a class, as the real one: it stands in annotations
        vars(module).update({self.name: AsType(self.name, (), {}), "__getattr__": whole})


class Seldom:
    """A finder of the modules that are loaded at their first use and not at their import."""

    @staticmethod
    def find_spec(
        name: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Return where a module of the lists is, its loader waiting; None of any other."""
        if name not in SELDOM and name not in NAMES:
            return None
        spec = PathFinder.find_spec(name, path, target)
        if spec is not None and spec.loader is not None:
            late = NAMES.get(name)
            spec.loader = AtFirstUse(spec.loader, late) if late else LazyLoader(spec.loader)
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
    except ExtraMissingError as error:
        _end(str(error), 2)
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
