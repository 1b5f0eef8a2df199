"""Packages whose names are imported when they are first asked for."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import lazy_loader

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


def install_with(extra: str) -> str:
    """Return how Tacit is installed with an extra: on the index ``tacit`` is another package."""
    return f"pip install 'tacit-privacy[{extra}]'"


def attach(
    package: str, path: str
) -> tuple[Callable[[str], Any], Callable[[], list[str]], list[str]]:
    """Return ``__getattr__``, ``__dir__`` and ``__all__`` from the stub beside a package.

    Args:
        package: its ``__name__``.
        path: its ``__file__``; the stub says where each public name lives.
    """
    get, _, every = lazy_loader.attach_stub(package, path)
    public = sorted(every)

    def lookup(name: str) -> Any:
        try:
            return get(name)
        except ModuleNotFoundError as error:
            missing = (error.name or "").partition(".")[0]
            if missing not in EXTRAS:
                raise
            raise ImportError(
                f"{package}.{name} needs {missing}: {install_with(EXTRAS[missing])}"
            ) from None

    return lookup, lambda: list(public), list(public)
