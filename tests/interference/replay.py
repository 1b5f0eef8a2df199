"""Two runs on two secrets with one outcome, and everything else that came out of them."""

from __future__ import annotations

import copy
import datetime
import difflib
import hashlib
import json
import logging
import os
import random
import re
import shutil
import sys
import threading
import warnings
from collections import Counter
from collections.abc import Callable, Collection, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest

from tacit._ground import outlet
from tacit.cli import run as run_command

# What a text of the holder's says of itself.
KEEP = re.compile(r"keep this|the holder", re.IGNORECASE)
# Databases have no text of their own.
WITHOUT_TEXT = (".sqlite", ".sqlite-wal", ".sqlite-shm", ".db", ".lock")
MOMENT = datetime.datetime(2026, 1, 2, 3, 4, 5, tzinfo=datetime.UTC)
TIMES = re.compile(
    r"\b\d{4}-\d\d-\d\d([T ]\d\d:\d\d:\d\d(\.\d+)?(\+00:00|Z)?)?\b|\b\d+(\.\d+)? ?(s|ms|min)\b"
)

Files = Mapping[str, str | bytes]


class FrozenTime(datetime.datetime):
    """The moment at which every run takes place."""

    @classmethod
    def now(cls, tz: datetime.tzinfo | None = None) -> Any:
        return MOMENT if tz is None else MOMENT.astimezone(tz)


class Entropy:
    """The operating system's randomness as a stream of its own for every place that asks."""

    def __init__(self) -> None:
        self.asked, self.lock = Counter[str](), threading.Lock()

    def __call__(self, size: int) -> bytes:
        place = self._place()
        with self.lock:
            self.asked[place] += 1
            name = f"{place} {self.asked[place]}"
        return hashlib.shake_256(name.encode()).digest(size)

    @staticmethod
    def _place() -> str:
        """Return the nearest functions of tacit that asked; others' where there is none."""
        frame, found = sys._getframe(2), []
        while frame is not None and len(found) < 2:
            if f"{os.sep}tacit{os.sep}" in frame.f_code.co_filename:
                found.append(frame.f_code.co_qualname)
            frame = frame.f_back  # type: ignore[assignment]
        return " < ".join(found)


@dataclass
class Door:
    """What passes out: recorded in one run, or given back from the record of another."""

    recorded: list[Any] | None = None
    passed: list[Any] = field(default_factory=list)
    faults: list[str] = field(default_factory=list)

    def __call__(self, values: Any) -> Any:
        place = len(self.passed)
        if self.recorded is None:
            self.passed.append(_copied(values))
            return values
        if place >= len(self.recorded):
            self.passed.append(values)
            self.faults.append(f"release {place}: the first run released only {place}")
            return values
        earlier = self.recorded[place]
        self.passed.append(earlier)
        if _shape(earlier) != _shape(values):
            self.faults.append(f"release {place}: {_shape(earlier)} before, {_shape(values)} now")
        return _copied(earlier)


def _copied(values: Any) -> Any:
    return values.detach().clone() if hasattr(values, "detach") else copy.deepcopy(values)


def _shape(values: Any) -> str:
    if hasattr(values, "shape"):
        return f"{type(values).__name__} {tuple(values.shape)} {values.dtype}"
    if isinstance(values, (list, tuple)):
        return f"{type(values).__name__} of {len(values)}"
    return type(values).__name__


@dataclass(frozen=True)
class Seen:
    """What one run let others see."""

    code: int | str
    out: str
    err: str
    warned: tuple[str, ...]
    logged: tuple[str, ...]
    returned: str
    files: Mapping[str, bytes]
    modes: Mapping[str, int]
    passed: list[Any]
    faults: tuple[str, ...]


@dataclass(frozen=True)
class Pair:
    """What two runs on two secrets let others see, with one outcome."""

    first: Seen
    second: Seen

    def assert_equal(
        self,
        *,
        holder: Collection[str] = (),
        holder_terminal: bool = False,
        released: bool = True,
    ) -> None:
        """Fail where anything public differs, or something of the holder's does not say so.

        Args:
            holder: files, by their path in the folder, that are for the holder of the secret.
            holder_terminal: whether what is printed is.
            released: whether the runs are expected to release something.
        """
        first, second = self.first, self.second
        assert not second.faults, second.faults
        assert len(first.passed) == len(second.passed), "the number of releases differs"
        assert bool(first.passed) == released, f"{len(first.passed)} releases; {first.err}"
        assert first.code == second.code, f"exit {first.code} and {second.code}: {second.err}"
        _same("warnings", "\n".join(first.warned), "\n".join(second.warned))
        _same("logs", "\n".join(first.logged), "\n".join(second.logged))
        _same("what is returned", first.returned, second.returned)
        if not holder_terminal:
            _same("standard output", first.out, second.out)
            _same("standard error", first.err, second.err)
        elif first.code == 0:
            _says_so("the terminal", first.out + first.err)
        else:
            # a refusal is seen by whoever waits for the release
            _same("standard error", first.err, second.err)
        assert sorted(first.files) == sorted(second.files), "other files are left"
        assert first.modes == second.modes
        for name, content in first.files.items():
            if name not in holder:
                _same(name, _text(content), _text(second.files[name]))
                assert _masked(content) == _masked(second.files[name]), f"{name} differs"
            elif not name.endswith(WITHOUT_TEXT):
                _says_so(name, _text(content))
        missing = set(holder) - set(first.files)
        assert first.code != 0 or not missing, f"not written: {sorted(missing)}"


def _same(what: str, first: str, second: str) -> None:
    if first == second:
        return
    lines = difflib.unified_diff(_lines(first), _lines(second), "one", "other", lineterm="", n=0)
    raise AssertionError(f"{what} differs:\n" + "\n".join(list(lines)[:40])[:6000])


def _lines(text: str) -> list[str]:
    return [part for line in text.splitlines() for part in re.findall(r".{1,300}", line)]


def _says_so(what: str, text: str) -> None:
    assert KEEP.search(text), f"{what} is the holder's, and does not say so"


def _text(content: bytes) -> str:
    return TIMES.sub("TIME", content.decode("utf-8", "backslashreplace"))


def _masked(content: bytes) -> bytes:
    return re.sub(TIMES.pattern.encode(), b"TIME", content)


class Interference:
    """Runs something twice; the fixture of the same name."""

    def __init__(
        self, folder: Path, capsys: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
    ) -> None:
        self.folder, self.capsys, self.caplog = folder / "run", capsys, caplog

    # First runs of commands: many secrets are held against the same one.
    _firsts: ClassVar[dict[tuple[str, ...], Seen]] = {}
    MOST_FIRSTS: ClassVar[int] = 8

    def commands(
        self,
        arguments: list[Any] | list[list[Any]],
        first: Files,
        second: Files,
        common: Files | None = None,
        prepare: Callable[[], object] | None = None,
    ) -> Pair:
        """Run one command, or several in turn, beside the files of each secret.

        Args:
            arguments: of the command, or a list of such lists; the last exit code counts.
            first: name and content of the secret files in the first run.
            second: the same in the second.
            common: files that both find there, which are public.
            prepare: called in the folder before each run, for what is not a plain file.
        """
        rows = arguments if arguments and isinstance(arguments[0], list) else [arguments]

        def run() -> int:
            code = 0
            for row in rows:
                code = run_command([str(one) for one in row])
                if code:
                    break
            return code

        both = dict(common or {})

        def begin() -> Seen:
            if prepare is not None:
                return self._seen(run, {**both, **first}, prepare)
            key = (str(self.folder), repr(arguments), repr(sorted({**both, **first}.items())))
            if key not in self._firsts:
                while len(self._firsts) >= self.MOST_FIRSTS:
                    del self._firsts[next(iter(self._firsts))]
                self._firsts[key] = self._seen(run, {**both, **first}, prepare)
            return self._firsts[key]

        return self._pair(begin, lambda door: self._seen(run, {**both, **second}, prepare, door))

    def pair_of(self, first: list[Any], there: Files, second: list[Any], here: Files) -> Pair:
        """Run a command twice whose arguments are the secret, each beside its files."""

        def run(arguments: list[Any]) -> Callable[[], int]:
            return lambda: run_command([str(one) for one in arguments])

        return self._pair(
            lambda: self._seen(run(first), there, None),
            lambda door: self._seen(run(second), here, None, door),
        )

    def calls(self, function: Callable[[Any], Any], first: Any, second: Any) -> Pair:
        """Call a function with each secret; what it returns, as JSON, is public."""
        return self._pair(
            lambda: self._seen(lambda: function(first), {}, None),
            lambda door: self._seen(lambda: function(second), {}, None, door),
        )

    @staticmethod
    def _pair(first: Callable[[], Seen], second: Callable[[Door], Seen]) -> Pair:
        one = first()
        return Pair(one, second(Door(recorded=one.passed)))

    def _seen(
        self,
        run: Callable[[], Any],
        files: Files,
        prepare: Callable[[], object] | None,
        door: Door | None = None,
    ) -> Seen:
        shutil.rmtree(self.folder, ignore_errors=True)
        self.folder.mkdir(parents=True)
        inputs = {
            name: content.encode() if isinstance(content, str) else content
            for name, content in files.items()
        }
        for name, content in inputs.items():
            place = self.folder / name
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_bytes(content)
        door = door or Door()
        self.capsys.readouterr()
        self.caplog.clear()
        with _world(self.folder, door) as told:
            if prepare is not None:
                prepare()
            brought = {str(one.relative_to(self.folder)) for one in self.folder.rglob("*")}
            code: int | str = 0
            returned = None
            try:
                returned = run()
            except Exception as error:
                code = f"{type(error).__name__}: {error}"
            if isinstance(returned, int) and not isinstance(returned, bool):
                code, returned = returned, None
        out, err = self.capsys.readouterr()
        left = {
            str(one.relative_to(self.folder)): one
            for one in sorted(self.folder.rglob("*"))
            if one.is_file()
        }
        for name, content in inputs.items():
            assert left[name].read_bytes() == content, f"the input {name} was written over"
        kept = {name: one for name, one in left.items() if name not in brought}
        return Seen(
            code=code,
            out=TIMES.sub("TIME", out),
            err=TIMES.sub("TIME", err),
            warned=tuple(told),
            logged=tuple(record.getMessage() for record in self.caplog.records),
            returned=json.dumps(returned, indent=1, sort_keys=False, default=_plain),
            files={name: one.read_bytes() for name, one in kept.items()},
            modes={name: one.stat().st_mode for name, one in kept.items()},
            passed=door.passed,
            faults=tuple(door.faults),
        )


def _plain(value: Any) -> Any:
    if isinstance(value, np.ndarray):
        return value.tolist()
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, bytes):
        return value.hex()
    return str(value)


@contextmanager
def _world(folder: Path, door: Door) -> Any:
    """Everything that a run may see but the secret: folder, moment, randomness, and the door."""
    entropy, told, before = Entropy(), list[str](), Path.cwd()
    with pytest.MonkeyPatch.context() as patch, warnings.catch_warnings():
        warnings.simplefilter("always")
        usual = warnings.showwarning
        patch.setattr(outlet, "let_out", door)
        patch.setattr(os, "urandom", entropy)
        patch.setattr(random, "_urandom", entropy)
        for module in list(sys.modules.values()):
            name = getattr(module, "__name__", "")
            if name.startswith("tacit.") and getattr(module, "datetime", None) is datetime.datetime:
                patch.setattr(module, "datetime", FrozenTime)
        patch.setattr(sys, "argv", ["tacit"])
        del usual

        def show(message: Warning | str, category: type[Warning], *_: Any, **__: Any) -> None:
            told.append(f"{category.__name__}: {message}")

        patch.setattr(warnings, "showwarning", show)
        logging.getLogger("tacit").setLevel(logging.DEBUG)
        os.chdir(folder)
        try:
            yield told
        finally:
            os.chdir(before)
