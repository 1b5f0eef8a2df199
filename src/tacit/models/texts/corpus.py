"""Texts to learn from: files of the user's, or the docstrings that every installation has."""

from __future__ import annotations

import ast
import gzip
import hashlib
import json
import os
import pydoc_data.topics
import sysconfig
import zlib
from collections.abc import Iterator
from importlib.metadata import version
from importlib.util import find_spec
from itertools import islice
from pathlib import Path

from tacit._ground.checks import integer
from tacit._ground.files import write_bytes_atomic
from tacit._ground.unpacking import unpacked
from tacit.models.small.storage import cache_folder, make_parents

# What Tacit with torch requires: every installation that trains has these, and few others.
PACKAGES = ("dp_accounting", "jinja2", "joblib", "matplotlib", "numpy", "rich", "scipy",
            "sqlalchemy", "typer")  # fmt: skip
SKIPPED = {"site-packages", "test", "tests", "__pycache__", "idlelib", "lib2to3"}
HELD_OUT_EVERY = 50
BLOCK_CHARACTERS = 16384
BLOCKS_TOGETHER = 64


def docstring_corpus() -> str:
    """Return the docstrings of the standard library and of the packages that Tacit requires.

    Documented topics of the language come first, then the files in alphabetical order; a docstring
    that occurs twice counts once. The same versions of the same packages give the same text. It is
    about 12 million characters, and kept in the cache because collecting them takes half a minute.

    Example:
        >>> from tacit.models.texts.corpus import docstrings
        >>> docstrings('def f():\\n    "Return nothing, at some length."')
        ['Return nothing, at some length.']
    """
    key = digest(json.dumps(corpus_versions(), sort_keys=True))[:16]
    path = cache_folder() / "texts" / f"docstrings-{key}.txt.gz"
    if path.is_file():
        return read_text(path)
    text = collected_docstrings()
    make_parents("TACIT_CACHE", path)
    write_bytes_atomic("TACIT_CACHE", path, gzip.compress(text.encode("utf-8"), 6, mtime=0))
    return text


def collected_docstrings() -> str:
    """Read the docstrings out of the sources."""
    found = dict.fromkeys(text for _, text in sorted(pydoc_data.topics.topics.items()))
    for folder in _folders():
        for path in _sources(folder):
            found.update(dict.fromkeys(docstrings(_decoded(path))))
    return "\n\n".join(found) + "\n"


def corpus_versions() -> dict[str, str]:
    """Return the versions that determine the docstring corpus."""
    names = (name.replace("_", "-") for name in PACKAGES)
    return {"python": sysconfig.get_python_version(), **{name: version(name) for name in names}}


def docstrings(source: str) -> list[str]:
    """Return the docstrings of a Python source in order, none where it does not parse."""
    try:
        tree = ast.parse(source)
    except (SyntaxError, ValueError):
        return []
    documented = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    found = (ast.get_docstring(node) for node in ast.walk(tree) if isinstance(node, documented))
    return [text for text in found if text]


def _folders() -> Iterator[Path]:
    yield Path(sysconfig.get_paths()["stdlib"])
    for name in PACKAGES:
        found = find_spec(name)
        if found is not None and found.origin is not None:
            yield Path(found.origin).parent


def _sources(folder: Path) -> list[Path]:
    return sorted(
        path
        for path in folder.rglob("*.py")
        if not SKIPPED.intersection(path.relative_to(folder).parts)
    )


def _decoded(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError):
        return ""


def read_text(path: str | os.PathLike[str], *, name: str = "text") -> str:
    """Read a .txt or .txt.gz file in UTF-8, or all of those in a folder in alphabetical order.

    Args:
        path: the file or the folder.
        name: what messages call it.

    Returns:
        The text; the files of a folder are joined by an empty line.

    Raises:
        ValueError: nothing there to read, or not UTF-8.
    """
    if not isinstance(path, (str, os.PathLike)) or not os.fspath(path):
        raise ValueError(f"{name}: expected a file or a folder, got {path!r}")
    place = Path(os.path.expanduser(path))
    if not place.exists():
        raise ValueError(f"{name}: no such file or folder: {place}")
    files = sorted(place.iterdir()) if place.is_dir() else [place]
    readable = [file for file in files if file.name.endswith((".txt", ".txt.gz"))]
    if not readable:
        raise ValueError(
            f"{name}: expected a .txt or .txt.gz file or a folder of them, got {place}"
        )
    return "\n\n".join(_read(file, name) for file in readable)


def _read(file: Path, name: str) -> str:
    try:
        raw = file.read_bytes()
        packed = file.suffix == ".gz"
        return (unpacked(gzip.open, raw, f"{name}: {file}") if packed else raw).decode("utf-8")
    except UnicodeDecodeError as error:
        raise ValueError(f"{name}: expected UTF-8 in {file}, got {error.reason}") from None
    except (OSError, EOFError, zlib.error) as error:
        raise ValueError(f"{name}: cannot read {file} ({error})") from None


def hold_out(text: str, *, every: int = HELD_OUT_EVERY) -> tuple[str, str]:
    """Split a text into what a model learns from and every ``every``-th block, held out.

    Args:
        text: at least ``every`` characters; blocks have 16,384 characters where it is long.
        every: one block of this many is held out.

    Returns:
        The text to learn from and the held-out text.

    Raises:
        ValueError: the text is too short to hold anything out.

    Example:
        >>> learned, held_out = hold_out("ab" * 100, every=50)
        >>> len(learned), len(held_out)
        (196, 4)
    """
    share = integer("every", every, minimum=2)
    if not isinstance(text, str):
        raise ValueError(f"text: expected at least {share} characters, got {type(text).__name__}")
    if len(text) < share:
        raise ValueError(f"text: expected at least {share} characters, got {len(text)}")
    block = min(BLOCK_CHARACTERS, len(text) // share)
    blocks = [text[at : at + block] for at in range(0, len(text), block)]
    held_out = [block for number, block in enumerate(blocks) if number % share == share - 1]
    learned = [block for number, block in enumerate(blocks) if number % share != share - 1]
    return "".join(learned), "".join(held_out)


def line_blocks(text: str) -> Iterator[str]:
    """Cut a text at line ends into blocks of at least 16,384 characters, to be tokenised apart.

    Example:
        >>> ["".join(line_blocks("one\\ntwo")), len(list(line_blocks("word\\n" * 10_000)))]
        ['one\\ntwo', 4]
    """
    start = 0
    while start < len(text):
        end = text.find("\n", start + BLOCK_CHARACTERS) + 1 or len(text)
        yield text[start:end]
        start = end


def block_groups(text: str) -> Iterator[list[str]]:
    """Yield the blocks of lines in lists small enough to tokenise at once."""
    blocks = line_blocks(text)
    while group := list(islice(blocks, BLOCKS_TOGETHER)):
        yield group


def digest(text: str) -> str:
    """Return the SHA-256 of a text in UTF-8, in hexadecimal."""
    return hashlib.sha256(text.encode("utf-8")).hexdigest()
