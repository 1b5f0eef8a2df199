"""Noise that is released is added in one place, which rounds the sum."""

import ast
import re
from pathlib import Path

import pytest

import tacit

SOURCE = Path(tacit.__file__).parents[1]
# a study prints tables of what is public
FILES = sorted({*SOURCE.glob("tacit*/**/*.py")} - {*SOURCE.glob("tacit_lab/studies/**/*.py")})
# Sums with noise that are not released as they are, each with what they are.
SUMS = {
    "tacit/gradients/steps.py": "a step of heads that are only simulated",
    "tacit/gradients/publication.py": "the same rounded sum where a device has it",
    "tacit/design/information/search.py": "draws of an estimate",
    "tacit_check/data.py": "covariances",
    "tacit_lab/stackelberg/decoders.py": "covariances",
    "tacit_lab/stackelberg/game.py": "draws of a game",
    "tacit/hidden_states/noise/denoiser.py": "covariances",
    "tacit/hidden_states/quotient/use.py": "draws of public prompts, told as averages",
    "tacit/training/noise.py": "two parts of one noise, published with the value",
}


def terms(tree):
    """Every sum and every in-place addition."""
    for node in ast.walk(tree):
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
            yield node, (node.left, node.right)
        elif isinstance(node, ast.AugAssign) and isinstance(node.op, ast.Add):
            yield node, (node.value,)
        elif (
            isinstance(node, ast.Call)
            and isinstance(node.func, ast.Attribute)
            and node.func.attr in ("add", "add_")
        ):
            yield node, tuple(node.args)


def found(text):
    """Lines of a program that add noise: what a released draw is named, or the draw itself."""
    tree, names = ast.parse(text), set()
    for node in ast.walk(tree):
        if not isinstance(node, ast.Assign) or "released_normal" not in ast.unparse(node.value):
            continue
        if not ast.unparse(node.value).startswith(("publish_sum(", "rounded_sum(")):
            names |= {ast.unparse(one) for one in node.targets}
    lines = []
    for node, parts in terms(tree):
        for part in parts:
            released = "released_normal" in ast.unparse(part) or ast.unparse(part) in names
            if released or re.fullmatch(r"(\w+\.)?noises?", ast.unparse(part)):
                lines.append(node.lineno)
    return sorted(set(lines))


@pytest.mark.parametrize(
    "line",
    [
        "noise = released_normal((3,))\ny = value + 2.0 * released_normal((3,))",
        "drawn = std * released_normal((3,))\ny = value + drawn",
        "parameter.grad += noise",
        "parameter.add_(noise)",
        "y = value + noise",
    ],
)
def test_a_plain_sum_is_seen(line):
    assert found(line)


def test_nothing_else_adds_noise():
    plain = {
        path.relative_to(SOURCE).as_posix()
        for path in FILES
        if found(path.read_text(encoding="utf-8"))
    }
    assert plain <= set(SUMS), f"not through publish_sum: {sorted(plain - set(SUMS))}"
    assert set(SUMS) <= plain, f"no such sum: {sorted(set(SUMS) - plain)}"
