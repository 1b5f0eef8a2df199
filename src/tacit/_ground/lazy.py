"""Packages whose names are imported when they are first asked for."""

from __future__ import annotations

# read by type checkers as true; ``typing`` itself is most of what ``import tacit`` would cost
TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

EXTRAS = {
    "torch": "llm",
    "transformers": "llm",
    "tokenizers": "llm",
    "faiss": "llm",
    "opacus": "opacus",
    "dp_accounting": "exchange",
    "fastapi": "dock",
    "uvicorn": "dock",
    "yaml": "dock",
}


class ExtraMissingError(ImportError):
    """A name needs a package of an extra; the sentence says how it is installed."""


def install_with(extra: str) -> str:
    """Return how Tacit is installed with an extra: on the index ``tacit`` is another package."""
    return f"pip install 'tacit-privacy[{extra}]'"


def attach(package: str, path: str) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """Return ``__getattr__`` and ``__dir__`` from the stub beside a package, read at first use.

    Args:
        package: its ``__name__``.
        path: its ``__file__``; the stub says where each public name lives, and ``__all__``.
    """
    found: list[tuple[Callable[[str], Any], list[str]]] = []

    def stub() -> tuple[Callable[[str], Any], list[str]]:
        if not found:
            import lazy_loader

            get, _, every = lazy_loader.attach(package, *listed(path))
            found.append((get, sorted(every)))
        return found[0]

    def lookup(name: str) -> Any:
        # what the import system asks of every package is in no stub
        if name.startswith("__") and name != "__all__":
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        get, public = stub()
        if name == "__all__":
            return list(public)
        try:
            return get(name)
        except ModuleNotFoundError as error:
            missing = (error.name or "").partition(".")[0]
            if missing not in EXTRAS:
                raise
            raise ExtraMissingError(
                f"{package}.{name} needs {missing}: {install_with(EXTRAS[missing])}"
            ) from None

    return lookup, lambda: list(stub()[1])


def listed(path: str) -> tuple[set[str], dict[str, list[str]]]:
    """Return the modules and, by module, the names that the stub beside a package imports."""
    import ast

    modules, names = set[str](), dict[str, list[str]]()
    # in UTF-8 whatever the locale says
    with open(f"{path.removesuffix('.py')}.pyi", encoding="utf-8") as stub:
        for node in ast.parse(stub.read()).body:
            if isinstance(node, ast.ImportFrom) and node.level == 1:
                found = [one.name for one in node.names]
                if node.module is None:
                    modules.update(found)
                else:
                    names.setdefault(node.module, []).extend(found)
    return modules, names
