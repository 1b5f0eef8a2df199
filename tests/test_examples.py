"""Every example in the docstrings, the README, the docs and the gallery runs as printed."""

import doctest
import importlib
import re
import runpy
import shlex
from pathlib import Path

import matplotlib
import matplotlib.pyplot
import pytest

from tests.cli_runner import in_process

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src"
PAGES = ["README.md", *sorted(str(page.relative_to(ROOT)) for page in ROOT.glob("docs/**/*.md"))]
PICTURES = sorted(path.name for path in ROOT.glob("docs/gallery/*.py"))
OPTIONAL = {"tacit.accounting.opacus"}


def modules_with_examples():
    for path in sorted(SOURCE.glob("tacit*/**/*.py")):
        parts = path.relative_to(SOURCE).with_suffix("").parts
        name = ".".join(parts).removesuffix(".__init__")
        if name not in OPTIONAL and ">>>" in path.read_text("utf-8"):
            yield name


def run_python(block, names, page):
    if ">>>" in block:
        test = doctest.DocTestParser().get_doctest(block, names, page, page, 0)
        assert doctest.DocTestRunner().run(test, clear_globs=False).failed == 0
        names.update(test.globs)
    else:
        exec(compile(block, page, "exec"), names)


def run_console(block, call):
    """Run each line after ``$ ``; what follows it is its output, ``...`` standing for anything.

    A command that is expected to fail ends in ``; echo $?``, and the code is the last line.
    """
    for example in re.split(r"^\$ ", block, flags=re.M)[1:]:
        command, _, expected = re.sub(r"\\\n\s*", " ", example).partition("\n")
        line, _, asks = command.partition(";")
        program, *arguments = shlex.split(line)
        assert program == "tacit", command
        outcome = call(*arguments)
        got = outcome.out + outcome.err + (f"{outcome.code}\n" if asks else "")
        assert asks or outcome.code == 0, outcome
        flags = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
        assert not expected.strip() or doctest.OutputChecker().check_output(expected, got, flags), (
            got
        )


@pytest.mark.parametrize("name", sorted(modules_with_examples()))
def test_docstring_examples(name):
    try:
        module = importlib.import_module(name)
    except ImportError as error:
        # what others build with is installed with an extra of its own
        if "is not installed: pip install" not in str(error):
            raise
        pytest.skip(str(error))
    outcome = doctest.testmod(module)
    assert outcome.attempted > 0
    assert outcome.failed == 0


@pytest.mark.thorough
@pytest.mark.parametrize("page", PAGES)
def test_page_examples(page, tmp_path, monkeypatch, capsys):
    """Blocks of a page run in order and share their names, in an empty folder."""
    monkeypatch.chdir(tmp_path)
    text = (ROOT / page).read_text("utf-8")
    names = {"__name__": page}
    for language, block in re.findall(r"```(python|console)\n(.*?)```", text, re.S):
        if language == "python":
            run_python(block, names, page)
        else:
            run_console(block, in_process(capsys))


@pytest.mark.parametrize("name", PICTURES)
def test_pictures_are_drawn(name, monkeypatch):
    matplotlib.use("agg")
    shown = []
    monkeypatch.setattr(matplotlib.pyplot, "show", lambda: shown.append(1))
    runpy.run_path(str(ROOT / "docs" / "gallery" / name))
    assert shown == [1]
    matplotlib.pyplot.close("all")
