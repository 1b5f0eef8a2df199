"""What Tacit stands on: packages, their files, random bits, floats, engines and a folder."""

from __future__ import annotations

import base64
import hashlib
import math
import os
import sys
from collections.abc import Iterator
from importlib.metadata import Distribution, PackageNotFoundError, distribution, version
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from tacit.cli.doctor.finding import Finding
from tacit.documents import loads

if TYPE_CHECKING:
    from tacit._ground.checks import Array

DISTRIBUTION = "tacit-privacy"
# every check of random draws cries wolf at most this often
FALSE_ALARM = 1e-9
WORDS, NORMALS, INTEGERS = 1 << 13, 1 << 16, 1 << 13
VARIANCE = 4


def packages() -> Iterator[Finding]:
    """Yield whether every package that is needed is there in a version that will do."""
    from packaging.requirements import Requirement

    found, wrong = [], []
    for line in distribution(DISTRIBUTION).requires or ():
        need = Requirement(line)
        if need.marker is not None and not need.marker.evaluate({"extra": ""}):
            continue
        try:
            there = version(need.name)
        except PackageNotFoundError:
            wrong.append(f"{need} is missing")
            continue
        found.append(f"{need.name} {there}")
        if not need.specifier.contains(there, prereleases=True):
            wrong.append(f"{need} is needed, {there} is installed")
    python = ".".join(map(str, sys.version_info[:3]))
    told = f"tacit {version(DISTRIBUTION)}, Python {python}, {', '.join(found)}"
    sentence = f"{'; '.join(wrong)}: install {DISTRIBUTION} anew" if wrong else told
    yield Finding("packages", not wrong, sentence)


def files() -> Iterator[Finding]:
    """Yield whether the installed files are those that were installed."""
    installed = distribution(DISTRIBUTION)
    origin = loads(installed.read_text("direct_url.json") or "{}")
    if origin.get("dir_info", {}).get("editable"):
        told = "installed from a clone that can be edited: there is no record to hold files against"
        yield Finding("files", True, told)
        return
    count, altered = _altered(installed)
    if not count:
        yield Finding(
            "files", False, "the installation has no record of its files: install it anew"
        )
        return
    wrong = [
        f"{_some(names)} {what}"
        for names, what in (
            (altered, "changed since the installation"),
            (_added(installed), "came beside what was installed"),
            (_open_to_all(installed), "can be changed by every user"),
        )
        if names
    ]
    sentence = f"{'; '.join(wrong)}: install it anew" if wrong else None
    yield Finding("files", not wrong, sentence or f"all {count} are as they were installed")


def _some(names: list[str]) -> str:
    return names[0] + (f" and {len(names) - 1} more" if len(names) > 1 else "")


def _added(installed: Distribution) -> list[str]:
    """Return what stands in the packages and not on record, but for bytecode."""
    record = {str(one) for one in installed.files or ()}
    roots = {Path(name).parts[0] for name in record if name.endswith("__init__.py")}
    base = Path(str(installed.locate_file("")))
    there = (path for root in sorted(roots) for path in sorted((base / root).rglob("*")))
    return [
        name for path in there
        if path.is_file() and "__pycache__" not in path.parts
        and (name := path.relative_to(base).as_posix()) not in record
    ]  # fmt: skip


def _open_to_all(installed: Distribution) -> list[str]:
    """Return the files on record, and the folders above them, that every user may write to."""
    names = [str(one) for one in installed.files or ()]
    # whoever may write to a folder may put another file, or another folder, in the place of one
    folders = sorted({folder.as_posix() for name in names for folder in Path(name).parents})
    places = {name: Path(str(installed.locate_file(name))) for name in (*names, *folders)}
    return [
        path.resolve().as_posix() if name.startswith(".") else name
        for name, path in places.items()
        if path.exists() and path.stat().st_mode & 0o002
    ]


def _altered(installed: Distribution) -> tuple[int, list[str]]:
    """Return how many files have a digest on record, and which of them differ from it."""
    count, altered = 0, []
    for one in installed.files or ():
        if one.hash is None or one.hash.mode != "sha256":
            continue
        count += 1
        try:
            content = Path(str(one.locate())).read_bytes()
        except OSError:
            altered.append(str(one))
            continue
        digest = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()
        if digest != one.hash.value:
            altered.append(str(one))
    return count, altered


def entropy() -> Iterator[Finding]:
    """Yield whether the operating system's random bits differ, are fair, and become fair noise."""
    try:
        words = np.frombuffer(os.urandom(8 * WORDS), dtype="<u8")
    except (OSError, NotImplementedError) as error:
        told = f"the operating system gives no random bits ({type(error).__name__}): draw nothing"
        yield Finding("entropy", False, told)
        return
    # 2¹³ words of 64 bits repeat one with probability 2⁻³⁹
    repeats = WORDS - len(np.unique(words))
    bits, ones = 64 * WORDS, int(np.unpackbits(words.view(np.uint8)).sum())
    # Hoeffding: the share of ones is that far from 1/2 with probability at most FALSE_ALARM
    fair = abs(ones / bits - 0.5) <= _margin(bits)
    if repeats or not fair:
        what = f"{repeats:,} of {WORDS:,} words repeat" if repeats else "the bits are not fair"
        told = f"the operating system's random bits are none ({what}): draw nothing on this machine"
        yield Finding("entropy", False, told)
        return
    yield Finding("entropy", True, f"{WORDS:,} words of the operating system are distinct and fair")
    yield from _draws()


def _draws() -> Iterator[Finding]:
    from tacit._ground.random import released_normal
    from tacit.design.grid import SystemBits, discrete_gaussian

    normals = np.sort(released_normal((NORMALS,)))
    law = np.array([0.5 * math.erfc(-value / math.sqrt(2.0)) for value in normals.tolist()])
    ends = np.arange(NORMALS + 1) / NORMALS
    apart = max(np.abs(law - ends[1:]).max(), np.abs(law - ends[:-1]).max())
    yield _drawn("normal noise", float(apart), NORMALS)

    source = SystemBits()
    drawn = np.array([discrete_gaussian(VARIANCE, source) for _ in range(INTEGERS)])
    # all but e^−200 of the law lies on −40 … 40
    support = np.arange(-40, 41)
    weights = np.exp(-(support**2) / (2.0 * VARIANCE))
    counted = np.searchsorted(np.sort(drawn), support, side="right") / INTEGERS
    apart = np.abs(np.cumsum(weights / weights.sum()) - counted).max()
    yield _drawn("discrete Gaussian noise", float(apart), INTEGERS)


def _drawn(name: str, apart: float, count: int) -> Finding:
    # Dvoretzky, Kiefer, Wolfowitz and Massart: the same margin for the largest gap of the two laws
    well = apart <= _margin(count)
    told = f"{count:,} draws of {name} follow their law"
    wrong = f"{count:,} draws of {name} do not follow their law: draw nothing on this machine"
    return Finding("draws", well, told if well else wrong)


def _margin(count: int) -> float:
    """Return √(ln(2/α) / 2n)."""
    return math.sqrt(math.log(2.0 / FALSE_ALARM) / (2.0 * count))


def floats() -> Iterator[Finding]:
    """Yield whether float64 rounds to nearest, keeps denormals, and multiplies integers exactly."""
    one, unit = np.float64(1.0), np.finfo(np.float64).eps
    # ties go to the even neighbour: 1 + u/2 is 1, 1 + 3u/2 is 1 + 2u
    nearest = one + unit / 2 == 1.0 and one + 1.5 * unit == 1.0 + 2.0 * unit
    least = np.full(64, np.finfo(np.float64).tiny)
    kept = bool((least / 4.0 > 0.0).all())
    # integers below 2²⁰: sums of 200 products stay below 2⁵³, in whatever order they are added
    matrix: Array = np.arange(40_000, dtype=np.float64).reshape(200, 200) % 1_048_573
    whole = matrix.astype(np.int64)
    exact = bool((matrix @ matrix == (whole @ whole)).all())
    wrong = [
        word
        for well, word in (
            (nearest, "does not round to nearest"),
            (kept, "flushes denormals to zero"),
            (exact, "multiplies matrices of integers wrongly"),
        )
        if not well
    ]
    told = "round to nearest, keep denormals, and multiply integers exactly"
    advice = "a library loaded here sets the processor so; no bound holds there"
    yield Finding("floats", not wrong, f"float64 {'; '.join(wrong)}: {advice}" if wrong else told)


def engines() -> Iterator[Finding]:
    """Yield whether tables are summed, and a ledger is kept, by what is installed."""
    import duckdb
    import sqlalchemy

    with duckdb.connect(":memory:") as connection:
        totals = connection.sql("SELECT sum(i * i)::BIGINT FROM range(100001) AS r(i)").fetchall()
    well = totals == [(333_338_333_350_000,)]
    yield Finding(
        "engines", well, f"DuckDB {duckdb.__version__} sums {'' if well else 'in'}exactly"
    )
    engine = sqlalchemy.create_engine("sqlite://")
    with engine.connect() as opened:
        kept = str(opened.exec_driver_sql("SELECT sqlite_version()").scalar())
    engine.dispose()
    # upserts, which the ledger writes, are as old as this
    well = tuple(map(int, kept.split("."))) >= (3, 24)
    yield Finding("engines", well, f"SQLite {kept}" + ("" if well else ": 3.24 or later is needed"))
    yield _torch()


def _torch() -> Finding:
    try:
        there = version("torch")
    except PackageNotFoundError:
        return Finding(
            "engines", True, "torch is not installed: training and language models need it"
        )
    import torch

    matrix = torch.arange(4096, dtype=torch.float64).reshape(64, 64)
    well = bool((matrix @ matrix == (matrix.long() @ matrix.long())).all())
    return Finding("engines", well, f"torch {there} multiplies {'' if well else 'in'}exactly")


def folder(path: Path) -> Iterator[Finding]:
    """Yield whether a ledger can be kept in a folder, and whether others could change it."""
    from tacit._ground.files import held, write_bytes_atomic

    trial = path / f".tacit-doctor-{os.getpid()}"
    try:
        write_bytes_atomic("folder", trial, b"trial", mode=0o600)
        with held(trial):
            mode = trial.stat().st_mode & 0o777
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        yield Finding("folder", False, f"no file can be kept in {path} ({reason})")
        return
    finally:
        for left in (trial, trial.with_name(f".{trial.name}.lock")):
            left.unlink(missing_ok=True)
    kept = path.stat().st_mode
    if mode & 0o077 or (kept & 0o002 and not kept & 0o1000):
        told = f"others can read or replace what is kept in {path}: keep no ledger there"
        yield Finding("folder", False, told)
        return
    told = f"files in {path} can be written, locked and replaced at once, and kept from others"
    yield Finding("folder", True, told)
