"""``tacit doctor`` says what is broken here, and nothing of what is not."""

import base64
import hashlib
import importlib
import json
import os
import sys
from importlib.metadata import Distribution
from pathlib import Path

import mpmath as mp
import numpy as np
import pytest

from tacit.__main__ import main
from tacit.cli.doctor import checks, oracles
from tests.cli_runner import in_process, refused

mp.mp.dps = 40


@pytest.fixture
def tacit(capsys):
    return in_process(capsys)


def test_a_sound_machine_is_well(tacit, tmp_path):
    outcome = tacit("doctor", "--folder", tmp_path, "--json", "-")
    told = json.loads(outcome.out)
    assert (outcome.code, told["well"]) == (0, True), outcome
    names = [one["check"] for one in told["findings"]]
    asked = ["packages", "files", "entropy", "draws", "floats", "engines", "folder", "bounds"]
    assert list(dict.fromkeys(names)) == [*asked, "checker"]
    # nothing is left behind
    assert not list(tmp_path.iterdir())


def normal(value):
    return mp.ncdf(mp.mpf(value))


def sampled(rate, epsilon):
    """δ of one Poisson-sampled Gaussian step: both directions, by where the densities cross."""
    rate, level = mp.mpf(rate), mp.e ** mp.mpf(epsilon)
    crossing = mp.log((level - 1 + rate) / rate) + mp.mpf(1) / 2
    removed = (1 - rate) * normal(-crossing) + rate * normal(1 - crossing)
    # without the record no output is more than 1/(1 − q) times as likely, which is below e^ε
    assert 1 / (1 - rate) < level
    return removed - level * normal(-crossing)


def answered(epsilon, count, at):
    right = 1 / (1 + mp.e ** -mp.mpf(epsilon))
    total = mp.mpf(0)
    for k in range(count + 1):
        one = right**k * (1 - right) ** (count - k)
        other = right ** (count - k) * (1 - right) ** k
        total += mp.binomial(count, k) * max(one - mp.e ** mp.mpf(at) * other, 0)
    return total


def coin():
    def density(y):
        return (mp.npdf(y - 1) + mp.npdf(y + 1)) / 2

    entropy = mp.quad(lambda y: -density(y) * mp.log(density(y)), [-12, -6, -3, 0, 3, 6, 12])
    return entropy - mp.log(2 * mp.pi * mp.e) / 2


TRUTHS = [
    lambda: normal("-.5") - mp.e * normal("-1.5"),
    lambda: sampled("0.01", "0.5"),
    lambda: answered("0.1", 20, "0.5"),
    lambda: 1 - mp.e ** mp.mpf("-0.25"),
    lambda: normal("0.5"),
    coin,
    # each difference alone asks for its square, and they are orthogonal
    lambda: mp.mpf(25),
]


@pytest.mark.parametrize("place", range(len(TRUTHS)))
def test_stored_truths_are_true(place):
    stored = mp.mpf(oracles.ORACLES[place].truth)
    assert abs(stored / TRUTHS[place]() - 1) < mp.mpf(10) ** -15


def test_every_truth_has_its_oracle():
    assert len(TRUTHS) == len(oracles.ORACLES)


@pytest.mark.parametrize(
    ("found", "well"),
    [
        (0.25, True),
        (np.nextafter(0.25, 0.0), False),
        (0.25 * (1 + 0.9e-9), True),
        (0.25 * (1 + 1.1e-9), False),
        (float("nan"), False),
        (float("inf"), False),
    ],
)
def test_a_bound_is_at_or_just_above_the_truth(found, well):
    assert oracles.Oracle("one", "0.2500000000000000000000000", lambda: found).held() is well


def repeated(count):
    return bytes(count)


def biased(count):
    """Distinct words, of whose bits a third are ones."""
    source = np.random.default_rng(0)
    return np.packbits(source.random(8 * count) < 1 / 3).tobytes()


def absent(count):
    raise NotImplementedError


@pytest.mark.parametrize("source", [repeated, biased, absent])
def test_bad_random_bits_are_found_before_anything_is_drawn(source, monkeypatch, tacit, tmp_path):
    monkeypatch.setattr(os, "urandom", source)
    found = list(checks.entropy())
    assert [one.well for one in found] == [False]
    assert "draw nothing" in found[0].sentence


def test_draws_of_another_law_are_found():
    assert checks._drawn("noise", checks._margin(1000) * 1.01, 1000).well is False
    # a tenth too wide: the largest gap of the two laws is .024
    gap = float(max(abs(normal(x) - normal(x * 1.1)) for x in np.linspace(0, 3, 61)))
    assert gap > checks._margin(checks.NORMALS)


def test_a_folder_in_which_nothing_can_be_kept(tacit, tmp_path):
    [found] = checks.folder(Path("/proc/self"))
    assert not found.well
    assert "no file can be kept" in found.sentence
    open_to_all = tmp_path / "open"
    open_to_all.mkdir()
    open_to_all.chmod(0o777)
    [found] = checks.folder(open_to_all)
    assert not found.well
    assert "others can" in found.sentence
    refused(tacit("doctor", "--folder", tmp_path / "none"), "--folder", "expected a folder")


def installation(folder, content):
    """An installed distribution of one file, with the record that pip writes."""
    information = folder / "tacit_privacy-1.dist-info"
    information.mkdir()
    (information / "METADATA").write_text("Name: tacit-privacy\nVersion: 1\n")
    (folder / "one.py").write_bytes(content)
    digest = base64.urlsafe_b64encode(hashlib.sha256(b"one").digest()).decode().rstrip("=")
    (information / "RECORD").write_text(f"one.py,sha256={digest},3\nRECORD,,\n")
    return Distribution.at(information)


@pytest.mark.parametrize(("content", "altered"), [(b"one", []), (b"two", ["one.py"])])
def test_files_that_changed_since_the_installation_are_named(tmp_path, content, altered):
    assert checks._altered(installation(tmp_path, content)) == (1, altered)


def test_files_that_came_beside_or_that_all_may_change_are_named(tmp_path, monkeypatch):
    (tmp_path / "tacit").mkdir()
    (tmp_path / "tacit" / "__init__.py").write_text("")
    found = installation(tmp_path, b"one")
    record = Path(tmp_path / "tacit_privacy-1.dist-info" / "RECORD")
    record.write_text(record.read_text() + "tacit/__init__.py,,\n")
    monkeypatch.setattr(checks, "distribution", lambda name: found)
    assert [one.well for one in checks.files()] == [True]
    (tmp_path / "tacit" / "__pycache__").mkdir()
    (tmp_path / "tacit" / "__pycache__" / "one.pyc").write_bytes(b"")
    (tmp_path / "tacit" / "two.py").write_text("")
    (tmp_path / "one.py").chmod(0o666)
    [told] = checks.files()
    assert not told.well
    assert told.sentence.startswith("tacit/two.py came beside what was installed; one.py can be")


@pytest.mark.parametrize("open_to_all", ["tacit/cli", "tacit", "."])
def test_a_folder_that_all_may_change_is_as_its_files(tmp_path, monkeypatch, open_to_all):
    (tmp_path / "tacit" / "cli").mkdir(parents=True)
    found = installation(tmp_path, b"one")
    record = Path(tmp_path / "tacit_privacy-1.dist-info" / "RECORD")
    names = ("tacit/__init__.py", "tacit/cli/__init__.py")
    # the folder of all packages has no file of this one
    record.write_text("".join(f"{name},sha256=x,\n" for name in names))
    for name in names:
        (tmp_path / name).write_text("")
    place = tmp_path / open_to_all
    place.chmod(0o777)
    monkeypatch.setattr(checks, "distribution", lambda name: found)
    [told] = checks.files()
    named = str(tmp_path) if open_to_all == "." else open_to_all
    assert f"{named} can be changed by every user" in str(told.sentence)
    monkeypatch.setattr(checks, "_altered", lambda one: (2, []))
    place.chmod(0o755)
    [told] = checks.files()
    assert told.well


def test_no_random_bits_and_no_packages_end_in_a_sentence(monkeypatch, capsys):
    def blocked(count):
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(sys, "meta_path", [*sys.meta_path])
    with monkeypatch.context() as few:
        few.setattr(os, "urandom", blocked)
        with pytest.raises(SystemExit) as ended:
            main()
    assert (ended.value.code, capsys.readouterr().err) == (
        2, "tacit: the operating system gives no random bits (PermissionError): draw nothing\n"
    )  # fmt: skip
    monkeypatch.setitem(sys.modules, "tacit.cli", None)
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 2
    assert "a package that Tacit needs cannot be imported" in capsys.readouterr().err


def test_a_package_too_old_or_missing_is_named(monkeypatch):
    class Old:
        requires = ("numpy>=1000", "no-such-package>=1", "torch>=1; extra == 'torch'")

    monkeypatch.setattr(checks, "distribution", lambda name: Old)
    [found] = checks.packages()
    assert not found.well
    assert "numpy>=1000 is needed" in found.sentence
    assert "no-such-package>=1 is missing" in found.sentence
    assert "torch" not in found.sentence


def test_a_wheel_in_a_folder_named_editable_has_a_record(monkeypatch):
    class Installed(Distribution):
        files = None

        def read_text(self, filename):
            return '{"url": "file:///editable/one.whl", "archive_info": {}}'

        def locate_file(self, path):
            return Path(path)

    monkeypatch.setattr(checks, "distribution", lambda name: Installed())
    (found,) = checks.files()
    assert not found.well


def test_one_broken_finding_is_exit_status_1(tacit, tmp_path, monkeypatch):
    def broken():
        raise MemoryError

    monkeypatch.setattr(checks, "floats", broken)
    monkeypatch.setattr(oracles, "ORACLES", oracles.ORACLES[:1])
    outcome = tacit("doctor", "--folder", tmp_path)
    assert outcome.code == 1
    assert "cannot be checked (MemoryError)" in outcome.out


def test_what_an_extra_brings_is_asked_for_by_its_extra(monkeypatch, capsys, tmp_path):
    room = tmp_path / "needing"
    room.mkdir()
    (room / "__init__.py").write_text(
        "from tacit._ground.lazy import attach\n__getattr__, _ = attach(__name__, __file__)\n"
    )
    (room / "__init__.pyi").write_text("from .inner import name as name\n")
    (room / "inner.py").write_text("import faiss as name\n")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setitem(sys.modules, "faiss", None)
    monkeypatch.setattr(sys, "meta_path", [*sys.meta_path])
    monkeypatch.setattr("tacit.cli.main", lambda: importlib.import_module("needing").name)
    with pytest.raises(SystemExit) as ended:
        main()
    assert (ended.value.code, capsys.readouterr().err) == (
        2, "tacit: needing.name needs faiss: pip install 'tacit-privacy[llm]'\n"
    )  # fmt: skip
