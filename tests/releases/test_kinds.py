"""Kinds of release: one that another distribution brings, and every one of ours."""

from __future__ import annotations

import copy
import json
import os
import re
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from html import unescape
from pathlib import Path
from typing import Any

import pytest

from tacit import codec
from tacit.documents import dumps, loads
from tacit.gate import Policy, check_release
from tacit.guarantees import InformationBound, MaximalLeakage, SuccessBound
from tacit.releases import Provenance, load
from tacit.releases.kinds import known_kinds
from tacit.report import write_certificate, write_report
from tests.releases.files import MAKERS, real

pytest.importorskip("torch")
pytest.importorskip("transformers")

ROOT = Path(__file__).parents[2]
SECRET = "the prompts in clear"
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
    # as a build writes them
    named = points[1].replace("project.entry-points.", "").replace('"', "")
    info = "tacit_word_counts-0.1.dist-info"
    files = {
        "word_counts.py": module[1],
        f"{info}/METADATA": "Metadata-Version: 2.1\nName: tacit-word-counts\nVersion: 0.1\n",
        f"{info}/WHEEL": "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        f"{info}/entry_points.txt": named,
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
    assert "holds" in elsewhere.tacit("gate", "counts.json", "--max-success", "0.63")
    content["guarantees"][1]["epsilon"] = 0.1
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


def test_its_command_reads_pays_seeds_and_refuses_as_every_command_does(elsewhere):
    (elsewhere.folder / "survey.txt").write_text("yes no yes perhaps yes")
    asked = ("words", "survey.txt", "--declared", "yes,no", "--epsilon", "0.4")
    assert "Release the counts of declared words." in elsewhere.tacit("--help")
    told = elsewhere.tacit(*asked, "--json", "own.json", "--report", "own.html")
    assert "ε = 0.3334" in told
    assert "holds" in elsewhere.tacit("gate", "own.json", "--max-success", "0.6")
    assert "counts of 2 words" in (elsewhere.folder / "own.html").read_text()
    # the counts are whole, and so is the noise
    values = json.loads((elsewhere.folder / "own.json").read_text())["numbers"]["values"]
    assert all(value == int(value) for value in values)
    first, again = (
        elsewhere.tacit(*asked, "--insecure-seed", "1", "--json", "-") for _ in range(2)
    )
    assert (
        json.loads(first[: first.rindex("}") + 1])["numbers"]
        == (json.loads(again[: again.rindex("}") + 1])["numbers"])
    )
    assert "No guarantee: " in first
    assert "--epsilon" in elsewhere.tacit(*asked[:-2], code_is=2)


def test_a_kind_that_is_not_installed_is_a_sentence(elsewhere, tmp_path):
    stored = tmp_path / "counts.json"
    stored.write_text(elsewhere.python(DRAW))
    alone = Elsewhere(tmp_path, tmp_path / "nothing")
    refused = alone.tacit("show", "counts.json", code_is=2)
    assert refused == "tacit: release.kind: expected one that is installed, got 'word-counts'\n"


# What is measured on secrets and for their holder alone: nothing of it is published.
KEPT = {"audit"}
PUBLISHED = [name for name in MAKERS if name not in KEPT]
FILES = [(name, False) for name in MAKERS] + [(name, True) for name in PUBLISHED]


def stored(name: str, *, public: bool) -> dict[str, Any]:
    """A release as it is read from a file: the holder's, or the public part of it."""
    return loads(dumps(load(real(name)).published())) if public else real(name)


def parts(content: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[tuple[Any, ...], Any]]:
    """Every part of a file with its path; of a list the first and the last."""
    yield path, content
    if isinstance(content, dict):
        for name, value in content.items():
            yield from parts(value, (*path, name))
    elif isinstance(content, list):
        for place in sorted({0, len(content) - 1} if content else ()):
            yield from parts(content[place], (*path, place))


def at(content: Any, path: tuple[Any, ...]) -> Any:
    for name in path:
        content = content[name]
    return content


def spelled(path: tuple[Any, ...]) -> str:
    """A path as a refusal says it."""
    return "release" + "".join(
        f"[{name}]" if isinstance(name, int) else f".{name}" for name in path
    )


def test_every_kind_has_a_sample():
    # those two certify nothing and publish nothing; their own tests write them
    others = {"hidden-features", "hidden-inversion"}
    assert {real(name)["kind"] for name in MAKERS} == set(known_kinds()) - others


@pytest.mark.parametrize(("name", "public"), FILES)
def test_what_is_stored_is_what_is_read(name, public, tmp_path):
    content = stored(name, public=public)
    read = load(content)
    assert loads(dumps(read.to_dict())) == content
    write_report(read, tmp_path / "page.html")
    if name in KEPT:
        return
    write_certificate(read, tmp_path / "certificate.html")
    assert read.title in unescape((tmp_path / "certificate.html").read_text(encoding="utf-8"))
    assert loads(dumps(load(read.published()).published())) == stored(name, public=True)


@pytest.mark.parametrize("name", sorted(KEPT))
def test_what_is_the_holders_alone_is_not_published(name, tmp_path):
    read = load(real(name))
    assert read.published() == {"withheld": read.withheld}
    with pytest.raises(ValueError, match=re.escape(read.withheld)):
        write_certificate(read, tmp_path / "certificate.html")
    assert not list(tmp_path.iterdir())


# By which threshold a guarantee is judged, and what it holds.
THRESHOLDS = {
    SuccessBound: ("max_success", lambda held: held.success),
    MaximalLeakage: ("max_factor", lambda held: held.factor),
    InformationBound: ("max_information", lambda held: held.nats),
}


@pytest.mark.parametrize("name", PUBLISHED)
def test_the_public_file_passes_the_gate_as_its_holders_does(name):
    public = stored(name, public=True)
    limits: dict[str, float] = {}
    for held in load(public).guarantees:
        if type(held) in THRESHOLDS:
            threshold, value = THRESHOLDS[type(held)]
            limits[threshold] = max(value(held), limits.get(threshold, 0.0))
    if not limits:
        # a bound of Rényi divergences is not judged: nor is it passed
        (check,) = check_release(public, Policy(max_success=1.0)).checks
        assert not check.holds
        assert "the release has none" in check.sentence
    for threshold, value in limits.items():
        for content in (public, real(name)):
            assert check_release(content, Policy(**{threshold: value})).passed, threshold
            below = check_release(content, Policy(**{threshold: value * (1 - 1e-9)}))
            assert not below.passed, threshold


TOLD = codec.write(
    Provenance,
    Provenance(command="tacit …", data_columns=("a",), data_categories={"a": ("x", "y")}),
)


@pytest.mark.parametrize(("name", "public"), FILES)
def test_a_field_that_a_kind_has_not_is_refused_at_every_depth(name, public):
    content = stored(name, public=public)
    if not public:
        content["provenance"] = loads(dumps(TOLD))
        load(content)
    for path, part in parts(content):
        for value in (SECRET, [SECRET], {"of": SECRET}) if isinstance(part, dict) else ():
            changed = copy.deepcopy(content)
            at(changed, path)["smuggled"] = value
            with pytest.raises(ValueError, match=": ") as refused:
                load(changed)
            assert str(refused.value).startswith("release"), path
            assert SECRET not in str(refused.value), path


@pytest.mark.parametrize(("name", "public"), FILES)
def test_a_part_of_another_kind_is_refused_by_its_path(name, public):
    content = stored(name, public=public)
    for path, part in parts(content):
        others = ({"of": SECRET}, SECRET, [[SECRET]], 10**400)
        for value in others if path and part is not None else ():
            changed = copy.deepcopy(content)
            at(changed, path[:-1])[path[-1]] = value
            if type(value) is type(part) and not isinstance(part, dict):
                # another text or count may be as good as the one that stood there
                continue
            if path[-2:] == ("promise", "pairs") and isinstance(value, int):
                # a column by its place
                continue
            with pytest.raises(ValueError, match=": ") as refused:
                load(changed)
            assert str(refused.value).startswith(("release: ", spelled(path[:1]))), path


@pytest.mark.parametrize("name", MAKERS)
def test_a_better_guarantee_than_the_details_give_is_refused(name):
    content = real(name)
    # beyond what another machine computes
    for place, guarantee in enumerate(content["guarantees"]):
        for field, value in guarantee.items():
            if isinstance(value, float) and value > 0.0:
                changed = copy.deepcopy(content)
                changed["guarantees"][place][field] = value * (1 - 1e-5)
                with pytest.raises(ValueError, match=": "):
                    load(changed)


@pytest.mark.parametrize("name", ["codes", "quotients", "states"])
@pytest.mark.parametrize(
    "pair",
    [
        ["prompts", SECRET], ["length", "34"], ["model", SECRET], ["layer", SECRET], ["layer", 1],
        ["texts", "0" * 64], ["bank", "0" * 64], ["model", "0" * 64], ["model"], "model", None,
    ],
    ids=str,
)  # fmt: skip
def test_an_origin_is_of_public_parts_alone(name, pair):
    content = stored(name, public=True)
    assert {what for what, _ in content["digests"]} >= {"model", "served", "layer", "calibration"}
    content["digests"].append(pair)
    with pytest.raises(ValueError, match=": ") as refused:
        load(content)
    assert SECRET not in str(refused.value)


READ = """
import sys
from tacit.releases import load
print(load(sys.argv[1]).kind)
"""


@pytest.mark.parametrize(
    "name",
    [
        name
        if name in ("draw", "rows", "table", "people")
        else pytest.param(name, marks=pytest.mark.thorough)
        for name in MAKERS
    ],
)
def test_a_process_that_imported_nothing_else_reads_the_file(name: str, tmp_path: Path) -> None:
    path = tmp_path / "stored.json"
    path.write_text(dumps(real(name)))
    read = subprocess.run(
        [sys.executable, "-c", READ, str(path)], capture_output=True, text=True, check=False
    )
    assert read.returncode == 0, read.stderr
    assert read.stdout.strip() == real(name)["kind"]
