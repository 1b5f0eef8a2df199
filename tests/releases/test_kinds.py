"""Kinds of release: one that another distribution brings, and every one of ours."""

from __future__ import annotations

import copy
import json
import os
import pkgutil
import re
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from tacit.documents import dumps, loads
from tacit.releases import Release, load
from tacit.report import write_certificate, write_report

ROOT = Path(__file__).parents[2]
DRAW = """
import json, sys
from tacit import Ledger
from word_counts import prepare_counts

words = ["yes", "no", "yes", "perhaps", "yes"] * 20
prepared = prepare_counts(words, ["yes", "no", "never"], epsilon=0.5)
book = Ledger("ledger.db")
book.set_budget("survey", epsilon=1.0)
release = prepared.draw(ledger=book, secret="survey")
print(json.dumps(release.to_dict()))
"""


@pytest.fixture(scope="module")
def distribution(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder into which pip has installed the distribution of CONTRIBUTING's example."""
    folder = tmp_path_factory.mktemp("brought")
    text = (ROOT / "CONTRIBUTING.md").read_text()
    part = text[text.index("## Add a kind") :]
    module = re.search(r"```python\n(.*?)```", part, re.DOTALL)
    points = re.search(r"```toml\n(.*?)```", part, re.DOTALL)
    assert module is not None
    assert points is not None
    named = re.search(r"^(\S+) = \"(\S+)\"", points[1], re.MULTILINE)
    assert named is not None
    info = "tacit_word_counts-0.1.dist-info"
    files = {
        "word_counts.py": module[1],
        f"{info}/METADATA": "Metadata-Version: 2.1\nName: tacit-word-counts\nVersion: 0.1\n",
        f"{info}/WHEEL": "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        f"{info}/entry_points.txt": f"[tacit.kinds]\n{named[1]} = {named[2]}\n",
    }
    record = "".join(f"{name},,\n" for name in [*files, f"{info}/RECORD"])
    wheel = folder / "tacit_word_counts-0.1-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        for name, content in {**files, f"{info}/RECORD": record}.items():
            archive.writestr(name, content)
    place = folder / "installed"
    subprocess.run(
        [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-index",
         "--no-compile", "--target", place, wheel],
        check=True,
    )  # fmt: skip
    return place


class Elsewhere:
    """Python and the command in a folder of their own, with the distribution installed."""

    def __init__(self, folder: Path, installed: Path) -> None:
        self.folder, self.installed = folder, installed

    def python(self, code: str, *arguments: str, code_is: int = 0) -> str:
        done = subprocess.run(
            [sys.executable, "-c", code, *arguments],
            cwd=self.folder,
            env={**os.environ, "PYTHONPATH": str(self.installed)},
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == code_is, done.stderr
        return done.stdout + done.stderr

    def tacit(self, *arguments: str, code_is: int = 0) -> str:
        call = "from tacit.__main__ import main; main()"
        return self.python(call, *arguments, code_is=code_is)


@pytest.fixture
def elsewhere(tmp_path: Path, distribution: Path) -> Elsewhere:
    return Elsewhere(tmp_path, distribution)


def test_a_kind_of_another_distribution_has_page_gate_ledger_certificate_and_show(elsewhere):
    stored = elsewhere.folder / "counts.json"
    stored.write_text(elsewhere.python(DRAW))
    shown = elsewhere.tacit("show", "counts.json")
    assert "word-counts" in shown
    assert "yes = " in shown
    assert "ε = 0.5" in shown
    assert "0.5" in elsewhere.tacit("ledger", "show", "--ledger", "ledger.db")
    # its stored file passes where it holds a threshold, and is refused where it contradicts itself
    crossed = elsewhere.tacit("gate", "counts.json", "--max-attack", "0.9", code_is=1)
    assert "no attack was run" in crossed
    content = json.loads(stored.read_text())
    content["guarantees"][0]["epsilon"] = 0.1
    stored.with_name("edited.json").write_text(json.dumps(content))
    refused = elsewhere.tacit("gate", "edited.json", "--max-attack", "0.9", code_is=2)
    assert "the noise gives another ε" in refused
    pages = """
from tacit.report import write_certificate, write_report
write_report("counts.json", "page.html")
write_certificate("counts.json", "certificate.html")
"""
    elsewhere.python(pages)
    for name in ("page.html", "certificate.html"):
        page = (elsewhere.folder / name).read_text()
        assert "counts of 3 words" in page
        assert "never" in page


def test_a_kind_that_is_not_installed_is_a_sentence(elsewhere, tmp_path):
    stored = tmp_path / "counts.json"
    stored.write_text(elsewhere.python(DRAW))
    alone = Elsewhere(tmp_path, tmp_path / "nothing")
    refused = alone.tacit("show", "counts.json", code_is=2)
    assert refused == "tacit: release.kind: expected one that is installed, got 'word-counts'\n"


# A release of every kind, made by its workflow, by who makes it; a room is imported for its own.
SAMPLES = {
    "adapter": "tests.adapters.models:released",
    "specification": "tests.specifications.samples:released",
    "training": "tests.training.runs:released",
}


@cache
def sample(kind: str) -> Release[Any]:
    return pkgutil.resolve_name(SAMPLES[kind])()


def stored(release: Release[Any], *, public: bool) -> dict[str, Any]:
    """A release as it is read from a file: the holder's, or the public part of it."""
    return loads(dumps(release.published() if public else release.to_dict()))


def objects(content: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Every object of a file, by its path; of a list the first and the last."""
    if isinstance(content, dict):
        yield path
        for name, value in content.items():
            yield from objects(value, (*path, name))
    elif isinstance(content, list):
        for place in sorted({0, len(content) - 1} if content else ()):
            yield from objects(content[place], (*path, place))


def at(content: Any, path: tuple[Any, ...]) -> Any:
    for name in path:
        content = content[name]
    return content


@pytest.mark.parametrize("public", [False, True])
@pytest.mark.parametrize("kind", SAMPLES)
def test_what_is_stored_is_what_is_read(kind, public, tmp_path):
    content = stored(sample(kind), public=public)
    read = load(content)
    assert read.kind == kind
    assert stored(read, public=False) == content
    write_report(read, tmp_path / "page.html")
    write_certificate(read, tmp_path / "certificate.html")
    assert read.title in (tmp_path / "certificate.html").read_text(encoding="utf-8")


@pytest.mark.parametrize("public", [False, True])
@pytest.mark.parametrize("kind", SAMPLES)
def test_a_field_that_a_kind_has_not_is_refused_at_every_depth(kind, public):
    content = stored(sample(kind), public=public)
    for path in objects(content):
        for value in ("the records in clear", ["them"], {"of": "them"}):
            changed = copy.deepcopy(content)
            at(changed, path)["smuggled"] = value
            with pytest.raises(ValueError, match=": "):
                load(changed)


@pytest.mark.parametrize("kind", SAMPLES)
def test_a_better_guarantee_than_the_details_give_is_refused(kind):
    content = stored(sample(kind), public=False)
    # beyond what another machine computes
    for place, guarantee in enumerate(content["guarantees"]):
        for name, value in guarantee.items():
            if isinstance(value, float) and value > 0.0:
                changed = copy.deepcopy(content)
                changed["guarantees"][place][name] = value * (1 - 1e-5)
                with pytest.raises(ValueError, match=": "):
                    load(changed)
