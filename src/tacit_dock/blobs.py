"""Contents by their SHA-256 in a folder: on the disk, whole, before a record names them."""

from __future__ import annotations

import hashlib
import os
import re
import secrets
import shutil
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from tacit._ground.files import absolute
from tacit_dock.errors import RefusedError
from tacit_dock.private import keep_private, open_private
from tacit_dock.reserve import FullError, told_of_disk

NAME = re.compile(r"[0-9a-f]{64}")
# In the folders that are swept, what a dock put there: uploads, trials and trash.
OWN = re.compile(r"[0-9a-f]{32}(\.trial)?|[0-9a-f]{64}")
PREFIX = "sha256:"
# An upload that is older has no server any more.
STALE_SECONDS = 6 * 3600
# How long a content without a record can be taken back.
TRASH_SECONDS = 14 * 24 * 3600


class Blobs:
    """A folder of contents, each under its digest."""

    def __init__(self, folder: str | os.PathLike[str]) -> None:
        root = absolute("folder", folder)
        self.folder, self.incoming = root / "blobs", root / "incoming"
        self.trash = root / "trash"
        try:
            root.mkdir(parents=True, exist_ok=True, mode=0o700)
            for made in (self.folder, self.incoming):
                made.mkdir(exist_ok=True, mode=0o700)
                # those of before were open
                keep_private(made)
            trial = self.incoming / f"{secrets.token_hex(16)}.trial"
            trial.touch(exist_ok=False)
            trial.unlink()
        except OSError as error:
            raise ValueError(f"folder: cannot write in {root} ({error.strerror})") from None

    @property
    def free(self) -> int:
        """Bytes free on the disk."""
        with told_of_disk():
            return shutil.disk_usage(self.folder).free

    def check_room(self, least: int) -> None:
        """Refuse to take more while there is little room.

        Raises:
            FullError: fewer bytes than ``least`` are free.
        """
        if self.free < least:
            raise FullError

    def upload(self, name: str, limit: int) -> Upload:
        """Return where a content is written as it arrives, refused from ``limit`` bytes on."""
        return Upload(self, name, limit)

    def path(self, digest: str) -> Path:
        """Return where the content of a digest is."""
        name = digest.removeprefix(PREFIX)
        if not NAME.fullmatch(name):
            raise ValueError("digest: expected sha256: and 64 hexadecimal digits")
        return self.folder / name[:2] / name

    def read(self, digest: str) -> bytes:
        """Return a content, checked against its digest.

        Raises:
            OSError: it is not there or damaged.
        """
        content = self.path(digest).read_bytes()
        if PREFIX + hashlib.sha256(content).hexdigest() != digest:
            raise OSError(f"the content of {digest} is damaged")
        return content

    def remove(self, digest: str) -> None:
        """Remove a content that no record names."""
        self.path(digest).unlink(missing_ok=True)

    def throw_away(self, digest: str) -> None:
        """Put a content that no record names into the trash, from which it can be taken back."""
        path = self.path(digest)
        self.trash.mkdir(exist_ok=True, mode=0o700)
        with suppress(FileNotFoundError):
            os.replace(path, self.trash / path.name)
            os.utime(self.trash / path.name)

    def digests(self) -> Iterator[str]:
        """Yield the digest of every content."""
        for folder in self.folder.iterdir():
            if folder.is_dir():
                yield from (PREFIX + n for n in os.listdir(folder) if NAME.fullmatch(n))

    def sweep(self) -> int:
        """Remove uploads that ended with their server, and old trash; return how many."""
        removed, now = 0, time.time()
        for folder, seconds in ((self.incoming, STALE_SECONDS), (self.trash, TRASH_SECONDS)):
            for path in folder.iterdir() if folder.is_dir() else ():
                if not OWN.fullmatch(path.name):
                    continue
                with suppress(FileNotFoundError):
                    age = now - path.stat().st_mtime
                    ended = folder == self.incoming and age > 1.0 and _is_nobodys(path)
                    if age > seconds or ended:
                        path.unlink()
                        removed += 1
        return removed


class Upload:
    """A content as it arrives: hashed, counted, in a file of no meaning until it is kept."""

    def __init__(self, blobs: Blobs, name: str, limit: int) -> None:
        self._blobs, self.name, self._limit = blobs, name, limit
        self.size, self._hash = 0, hashlib.sha256()
        self.path = blobs.incoming / secrets.token_hex(16)
        with told_of_disk():
            self._stream = open(self.path, "xb", 0, opener=open_private)  # noqa: SIM115
        # held until the server is done with it, or dead
        _lock(self._stream.fileno())
        self._synced = False

    def __enter__(self) -> Upload:
        return self

    def __exit__(self, *_: object) -> None:
        self.discard()

    @property
    def digest(self) -> str:
        """SHA-256 of what has arrived."""
        return PREFIX + self._hash.hexdigest()

    def write(self, chunk: bytes) -> None:
        """Take the next bytes.

        Raises:
            RefusedError: they are more than the limit (413), or the disk is full (507).
        """
        self.size += len(chunk)
        if self.size > self._limit:
            raise RefusedError(413, f"{self.name}: expected at most {self._limit} bytes, got more")
        self._hash.update(chunk)
        view = memoryview(chunk)
        with told_of_disk():
            while view:
                view = view[self._stream.write(view) :]

    def content(self) -> bytes:
        """Return all that has arrived."""
        return self.path.read_bytes()

    def sync(self) -> None:
        """Have the bytes on the disk before anything names them."""
        with told_of_disk():
            os.fsync(self._stream.fileno())
        self._synced = True

    def keep(self) -> None:
        """Give the content its name; the caller holds the write transaction that will name it."""
        if not self._synced:
            self.sync()
        target = self._blobs.path(self.digest)
        with told_of_disk():
            if not target.parent.is_dir():
                target.parent.mkdir(exist_ok=True, mode=0o700)
                _sync_folder(target.parent.parent)
            # a content that is there already is the same, or damaged and thereby mended
            os.replace(self.path, target)
            _sync_folder(target.parent)
        self._stream.close()

    def discard(self) -> None:
        """Forget what was not kept."""
        self._stream.close()
        self.path.unlink(missing_ok=True)


def _lock(descriptor: int) -> bool:
    """Lock a file for this process; return whether nobody else had."""
    try:
        import fcntl

        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except (ImportError, OSError):
        # a system or a disk without such locks: uploads are then told by their age
        return False
    return True


def _is_nobodys(path: Path) -> bool:
    """Whether no process holds an upload any more."""
    descriptor = os.open(path, os.O_RDWR)
    try:
        return _lock(descriptor)
    finally:
        os.close(descriptor)


def _sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
