"""The checker shares no code with what it checks, and is small."""

import ast
import io
import json
import subprocess
import sys
import tokenize
from pathlib import Path

FOLDER = Path(__file__).parents[2] / "src" / "tacit_check"
FILES = sorted(FOLDER.glob("**/*.py"))
# Lines of code, without blank lines, comments and docstrings.
MOST_LINES = 1500


def test_it_imports_the_standard_library_flint_and_itself():
    known = {*sys.stdlib_module_names, "flint", "tacit_check"}
    for path in FILES:
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            names = [one.name for one in node.names] if isinstance(node, ast.Import) else []
            if isinstance(node, ast.ImportFrom):
                assert node.level == 0, path
                names = [str(node.module)]
            assert {name.partition(".")[0] for name in names} <= known, path


def test_nothing_else_is_loaded_when_it_runs():
    script = "import sys, tacit_check.command, tacit_check.claims; print(*sys.modules)"
    told = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    ).stdout.split()
    assert "tacit_check.claims" in told
    assert not {"tacit", "numpy", "scipy", "tacit_dock", "tacit_lab"} & set(told)


def code_lines(path: Path) -> int:
    text = path.read_text("utf-8")
    lines = set()
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        skipped = (tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT)
        if token.type not in (*skipped, tokenize.DEDENT, tokenize.ENDMARKER):
            lines.update(range(token.start[0], token.end[0] + 1))
    for node in ast.walk(ast.parse(text)):
        docstring = isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
        if docstring and isinstance(node.value.value, str):
            lines -= set(range(node.lineno, node.end_lineno + 1))
    return len(lines)


def test_it_is_small_enough_to_be_read():
    assert sum(map(code_lines, FILES)) <= MOST_LINES


def test_it_runs_as_one_file_and_as_a_command_of_tacit(tmp_path):
    root = FOLDER.parents[1]
    app, file = tmp_path / "tacit_check.pyz", tmp_path / "a.json"
    claim = {"kind": "gaussian-dp", "mu": "0.5"}
    node = {"kind": "gaussian", "sensitivity": "1", "noise": "2"}
    proof = {"format": "tacit-proof", "version": 1, "adjacency": "inputs"}
    file.write_text(json.dumps({"proof": {**proof, "mechanism": node, "claims": [claim]}}))
    subprocess.run([sys.executable, root / ".ci" / "check-app", app], check=True, cwd=tmp_path)
    for command in ([app], ["-m", "tacit_check"], ["-m", "tacit", "verify"]):
        told = subprocess.run(
            [sys.executable, *map(str, command), str(file)],
            capture_output=True,
            text=True,
            cwd=tmp_path,
        )
        assert told.returncode == 0, told.stderr
        assert "holds: μ <= 0.5" in told.stdout
