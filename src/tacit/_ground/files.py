"""Files written whole or not at all."""

from __future__ import annotations

import glob
import os
import secrets
import shutil
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO

from tacit._ground.reprs import shown

try:
    import fcntl
except ImportError:
    fcntl = None  # type: ignore[assignment]


def spelled(name: str, path: Any, *, kind: str = "a file path") -> str:
    """Return a path as text; refuse what is none."""
    if not isinstance(path, (str, os.PathLike)) or not isinstance(os.fspath(path), str):
        raise ValueError(f"{name}: expected {kind}, got {shown(path)}")
    return os.fspath(path)


def absolute(name: str, path: str | os.PathLike[str]) -> Path:
    """Return ``path`` resolved; refuse what can be no path on this system."""
    given = spelled(name, path)
    try:
        target = Path(given).expanduser().resolve()
        target.exists()
    except (RuntimeError, OSError, ValueError) as error:
        # a user unknown to the system, a name too long, a loop of links, a zero byte
        reason = getattr(error, "strerror", None) or error
        raise ValueError(f"{name}: expected a file path, got {given!r} ({reason})") from None
    return target


def check_writable(name: str, path: str | os.PathLike[str]) -> Path:
    """Return ``path`` resolved, after a trial file was made and removed beside it."""
    target = _target(name, path)
    trial = _temporary(target)
    try:
        os.close(os.open(trial, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
        trial.unlink(missing_ok=True)
    except OSError as error:
        raise ValueError(f"{name}: cannot write in {target.parent} ({error.strerror})") from None
    return target


def check_room(name: str, folder: Path, size: int) -> None:
    """Refuse a folder, or where it will be made, whose disk has no room for so many bytes."""
    place = next(one for one in (folder, *folder.parents) if one.is_dir())
    if not hasattr(os, "posix_fallocate"):
        if shutil.disk_usage(place).free < size:
            raise ValueError(f"{name}: cannot write {size:,} bytes in {place} (no space left)")
        return
    trial = place / f".{secrets.token_hex(8)}.tmp"
    try:
        descriptor = os.open(trial, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600)
        try:
            os.posix_fallocate(descriptor, 0, size)
        finally:
            os.close(descriptor)
            trial.unlink()
    except OSError as error:
        raise ValueError(
            f"{name}: cannot write {size:,} bytes in {place} ({error.strerror})"
        ) from None


def write_text_atomic(name: str, path: str | os.PathLike[str], text: str) -> Path:
    """Write ``text`` as UTF-8, as `write_bytes_atomic` does."""
    return write_bytes_atomic(name, path, text.encode("utf-8"))


def write_bytes_atomic(
    name: str, path: str | os.PathLike[str], content: bytes, *, mode: int = 0o666
) -> Path:
    """Write ``content``: after a crash the file is the old one or the new one, whole."""
    with atomic_stream(name, path, mode=mode) as stream:
        stream.write(content)
    return _target(name, path)


@contextmanager
def atomic_stream(
    name: str, path: str | os.PathLike[str], *, mode: int = 0o666
) -> Iterator[BinaryIO]:
    """Give a stream whose content gets its name when all of it is written, and never otherwise.

    Args:
        name: what a ValueError calls the file.
        path: of the file.
        mode: permissions of a new file, less those that the process masks; one that is replaced
            stays closed to whom it was closed to.
    """
    target = _target(name, path)
    temporary = _temporary(target)
    try:
        flags = os.O_CREAT | os.O_EXCL | os.O_RDWR
        descriptor = os.open(temporary, flags, mode & _permissions(target))
        with os.fdopen(descriptor, "w+b") as stream:
            yield stream
            stream.flush()
            os.fsync(stream.fileno())
        os.replace(temporary, target)
        _sync_folder(target.parent)
    except OSError as error:
        temporary.unlink(missing_ok=True)
        raise ValueError(f"{name}: cannot write {target} ({error.strerror})") from None
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


@contextmanager
def held(path: Path, *, wait: bool = True) -> Iterator[None]:
    """Hold an advisory lock that stands for a file, in an empty file of its own beside it.

    The kernel frees it when the process dies. The file itself is replaced when it is written, so
    that a lock on it would be lost. A system without such locks gives none: there, one process at
    a time is up to the caller.

    Args:
        path: of the file.
        wait: whether to wait for another process that holds it.

    Raises:
        BlockingIOError: another process holds it, and nobody waits.
    """
    if fcntl is None:
        yield
        return
    descriptor = os.open(path.with_name(f".{path.name}.lock"), os.O_CREAT | os.O_RDWR, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
        yield
    finally:
        # said aloud, because a child forked meanwhile would hold it by its copy of the descriptor
        fcntl.flock(descriptor, fcntl.LOCK_UN)
        os.close(descriptor)


def remove_left_overs(path: Path) -> None:
    """Remove what processes that were killed while they wrote a file left beside it.

    Args:
        path: of the file, which is held, so that nobody else writes it.
    """
    for place in path.parent.glob(f".{glob.escape(path.name)}.{'[0-9a-f]' * 16}.tmp"):
        place.unlink(missing_ok=True)


def read_bytes(name: str, path: str | os.PathLike[str]) -> bytes:
    """Return the bytes of an existing file."""
    given = spelled(name, path)
    try:
        return Path(given).read_bytes()
    except FileNotFoundError:
        raise ValueError(f"{name}: no such file: {given}") from None
    except IsADirectoryError:
        raise ValueError(f"{name}: expected a file, got the folder {given}") from None
    except OSError as error:
        raise ValueError(f"{name}: cannot read {given} ({error.strerror})") from None
    except ValueError as error:
        # a zero byte in the name
        raise ValueError(f"{name}: expected a file path, got {given!r} ({error})") from None


def is_marked_read_only(path: Path) -> bool:
    """Whether the file's mode grants write permission to nobody (root could write all the same)."""
    return not path.stat().st_mode & (stat.S_IWUSR | stat.S_IWGRP | stat.S_IWOTH)


def link_new(name: str, source: Path, target: Path) -> None:
    """Give a whole file the name ``target`` in one step; keep the file that has it already."""
    try:
        os.link(source, target)
        _sync_folder(target.parent)
    except FileExistsError:
        return
    except OSError as error:
        raise ValueError(f"{name}: cannot make {target} ({error.strerror})") from None


def _target(name: str, path: str | os.PathLike[str]) -> Path:
    given = spelled(name, path)
    if not given:
        raise ValueError(f"{name}: expected a file path, got an empty one")
    target = absolute(name, given)
    if not target.parent.exists():
        raise ValueError(f"{name}: no such folder: {target.parent}")
    if not target.parent.is_dir():
        raise ValueError(f"{name}: expected a folder, got the file {target.parent}")
    if target.exists():
        if not target.is_file():
            raise ValueError(f"{name}: expected a file path, got the folder or device {target}")
        if is_marked_read_only(target):
            raise ValueError(f"{name}: {target} is marked read-only")
    return target


def _permissions(target: Path) -> int:
    """Return what may be done with a file that is there; of one that is not, all."""
    try:
        return stat.S_IMODE(target.stat().st_mode)
    except FileNotFoundError:
        return 0o777


def _temporary(target: Path) -> Path:
    return target.with_name(f".{target.name}.{secrets.token_hex(8)}.tmp")


def _sync_folder(folder: Path) -> None:
    if os.name != "posix":
        return
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
