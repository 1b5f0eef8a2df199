"""Texts are read as they are, the docstring corpus repeats, prompts are distinct and disjoint."""

import gzip
import subprocess
import sys

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from tacit.models import Prefixes, read_text, sample_prefixes, split  # noqa: E402
from tacit.models.small.storage import cache_folder  # noqa: E402
from tacit.models.texts import corpus  # noqa: E402
from tacit.models.texts.prefixes import standing_in  # noqa: E402


def test_files_and_folders_are_read(tmp_path):
    (tmp_path / "b.txt").write_text("zweite\r\n", encoding="utf-8", newline="")
    (tmp_path / "a.txt.gz").write_bytes(gzip.compress("première\n".encode(), mtime=0))
    (tmp_path / "c.csv").write_text("not read", encoding="utf-8")
    assert read_text(tmp_path / "a.txt.gz") == "première\n"
    assert read_text(tmp_path) == "première\n\n\nzweite\r\n"


def test_unreadable_texts_get_a_sentence(tmp_path):
    (tmp_path / "latin.txt").write_bytes(b"\xe9t\xe9")
    (tmp_path / "cut.txt.gz").write_bytes(gzip.compress(b"long " * 100, mtime=0)[:20])
    (tmp_path / "table.csv").write_text("a,b", encoding="utf-8")
    (tmp_path / "empty").mkdir()
    for name, words in (
        ("latin.txt", "expected UTF-8 in"),
        ("cut.txt.gz", "cannot read"),
        ("table.csv", "expected a .txt or .txt.gz file"),
        ("empty", "expected a .txt or .txt.gz file"),
        ("none", "no such file or folder"),
    ):
        with pytest.raises(ValueError, match=f"text: {words}"):
            read_text(tmp_path / name)
    for bad in ("", None, 3):
        with pytest.raises(ValueError, match="text: expected a file or a folder"):
            read_text(bad)


def test_the_docstring_corpus_repeats_and_has_its_sources(tmp_path, monkeypatch):
    package = tmp_path / "package"
    (package / "tests").mkdir(parents=True)
    (package / "b.py").write_text('"""Second."""\ndef f():\n    """Deep."""\n', encoding="utf-8")
    (package / "a.py").write_text('"""First."""\nclass A:\n    """Second."""\n', encoding="utf-8")
    (package / "broken.py").write_text("def (", encoding="utf-8")
    (package / "tests" / "t.py").write_text('"""Never."""', encoding="utf-8")
    monkeypatch.setattr(corpus, "_folders", lambda: iter([package]))
    text = corpus.collected_docstrings()
    assert text == corpus.collected_docstrings()
    monkeypatch.setenv("TACIT_CACHE", str(tmp_path / "cache"))
    assert corpus.docstring_corpus() == text
    monkeypatch.setattr(corpus, "collected_docstrings", lambda: pytest.fail("it was kept"))
    assert corpus.docstring_corpus() == text
    assert text.endswith("\n\nFirst.\n\nSecond.\n\nDeep.\n")
    assert "Never" not in text
    assert "assert_stmt" not in text.split("\n\n")[0]
    assert corpus.corpus_versions()["numpy"] == np.__version__


def test_every_corpus_package_is_found():
    folders = list(corpus._folders())
    assert len(folders) == 1 + len(corpus.PACKAGES)
    assert all(corpus._sources(folder) for folder in folders)


def test_hold_out_cuts_disjoint_blocks():
    text = "".join(chr(0x4E00 + i) for i in range(1000))
    learned, held_out = corpus.hold_out(text, every=10)
    assert len(held_out) == 100
    assert not set(learned) & set(held_out)
    assert set(learned) | set(held_out) == set(text)
    assert max(map(len, corpus.line_blocks("x" * 50_000))) == 50_000
    long = "word\n" * 20_000
    blocks = list(corpus.line_blocks(long))
    assert "".join(blocks) == long
    assert len(blocks) > 3


def stream():
    return np.random.default_rng(0).integers(0, 7, size=4000)


def test_prefixes_are_distinct_windows_of_the_stream():
    tokens = stream()
    found = sample_prefixes(tokens, count=400, length=4, rng=1)
    assert found.shape == (400, 4)
    assert found.dtype == torch.int64
    rows = {tuple(row) for row in found.tolist()}
    assert len(rows) == 400
    assert rows <= {tuple(row) for row in tokens.reshape(-1, 4).tolist()}
    assert torch.equal(found, sample_prefixes(torch.from_numpy(tokens), count=400, length=4, rng=1))
    assert not torch.equal(found, sample_prefixes(tokens, count=400, length=4, rng=2))


def test_excluded_prefixes_do_not_come_back():
    tokens = stream()
    first = sample_prefixes(tokens, count=300, length=4, rng=1)
    second = sample_prefixes(tokens, count=200, length=4, rng=2, exclude=first)
    third = sample_prefixes(tokens, count=100, length=4, rng=3, exclude=[first, second])
    sets = [{tuple(row) for row in part.tolist()} for part in (first, second, third)]
    assert len(set.union(*sets)) == 600


def test_sets_are_disjoint():
    sets = Prefixes.draw(stream(), bank=200, calibration=150, held_out=100, length=4, rng=0)
    rows = [
        tuple(r) for part in (sets.bank, sets.calibration, sets.held_out) for r in part.tolist()
    ]
    assert len(rows) == len(set(rows)) == 450


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (
            lambda: sample_prefixes(stream(), count=4000, length=4),
            "count: expected at most 814, the distinct",
        ),
        (lambda: sample_prefixes([1, 2], count=1, length=3), "count: expected at most 0"),
        (
            lambda: Prefixes.draw(range(90), bank=8, calibration=2, held_out=1, length=9),
            "bank, calibration, held_out: expected at most 10 together, .* fewer of them, or more",
        ),
        (
            lambda: sample_prefixes([1, 2], count=1, length=2, exclude=[[1, 2]]),
            "outside exclude, got 1",
        ),
        (
            lambda: sample_prefixes([1, 2], count=1, length=2, exclude=[[1, 2, 3]]),
            "exclude: expected 2 columns",
        ),
        (
            lambda: sample_prefixes([1, -2], count=1, length=2),
            "stream: expected integers >= 0, got -2",
        ),
        (
            lambda: sample_prefixes([1.5, 2], count=1, length=2),
            "stream: expected integers of shape",
        ),
        (
            lambda: sample_prefixes([[1, 2]], count=1, length=2),
            "stream: expected integers of shape",
        ),
        (lambda: sample_prefixes(None, count=1, length=2), "stream: expected integers of shape"),
        (lambda: sample_prefixes([1, 2], count=0, length=2), "count: expected an integer >= 1"),
        (lambda: sample_prefixes([1, 2], count=1, length=0), "length: expected an integer >= 1"),
        (lambda: split([[1, 2], [1, 2]], 1, 1), "tokens: expected distinct prompts, got 1 among 2"),
        (lambda: split([[1, 2], [3, 4]], 1, 2), "sizes: expected a sum of at most 2, got 3"),
        (lambda: split([1, 2], 1), "tokens: expected integers of shape"),
    ],
)
def test_bad_prefixes_get_a_sentence(call, words):
    with pytest.raises(ValueError, match=words):
        call()


def test_the_cache_folder_is_the_users(monkeypatch, tmp_path):
    monkeypatch.setenv("TACIT_CACHE", str(tmp_path))
    assert cache_folder() == tmp_path
    monkeypatch.delenv("TACIT_CACHE")
    monkeypatch.setattr(sys, "platform", "linux")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    assert cache_folder() == tmp_path / "xdg" / "tacit"


def test_the_package_is_light_until_it_is_used():
    script = (
        "import sys, tacit.models as h; before = 'torch' in sys.modules; h.read_text; "
        "sys.exit(before or 'torch' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", script], check=False).returncode == 0


def test_a_missing_extra_is_named():
    script = (
        "import sys; sys.modules['torch'] = None\n"
        "import tacit.models as h\n"
        "try:\n    h.load\nexcept ImportError as error:\n    print(error)"
    )
    output = subprocess.run(
        [sys.executable, "-c", script], check=True, capture_output=True, text=True
    ).stdout
    assert "tacit.models.load needs torch: pip install 'tacit-privacy[llm]'" in output


def test_prompts_that_stand_in_a_stream_are_found():
    source = np.random.default_rng(0)
    stream = source.integers(4, size=300)
    prompts = source.integers(4, size=(400, 5))
    prompts[::3, :2] = -1
    text = " " + " ".join(map(str, stream)) + " "
    expected = [f" {' '.join(str(t) for t in row if t >= 0)} " in text for row in prompts]
    found = standing_in(prompts, stream)
    assert found.tolist() == expected
    assert 0 < sum(expected) < len(expected)
    assert not standing_in([[1] * 9], [1] * 8).any()


def test_a_short_text_is_not_shown():
    with pytest.raises(ValueError, match="at least 50 characters, got 14") as caught:
        corpus.hold_out("my pin is 4711")
    assert "4711" not in str(caught.value)
