"""A function of numbers says to which side its result lies, and a constant says what it covers."""

import ast
import math
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[1] / "src" / "tacit"
ROOMS = (
    "accounting/numerics",
    "accounting/curves",
    "accounting/mechanisms",
    "design/listed",
    "information",
    "divergences",
    "covariance",
)
FILES = sorted(path for room in ROOMS for path in (SOURCE / room).rglob("*.py"))
# What a result of numbers is: alone, in a tuple, or as a function of numbers.
NUMBERS = {"float", "Array", "Curve", "LossMasses", "NumberOrArray"}
# The words of CONTRIBUTING.md for where a result lies beside what it stands for.
SIDE = re.compile(
    r"rounded up|rounded down|\bat most\b|\bat least\b|\bupper\b|\blower\b|outwards"
    r"|\bexact(ly)?\b|to rounding|choice only|confidence bound",
    re.IGNORECASE,
)
NAMED = re.compile(r"(^|_)(up|down|upper|lower|most|least|bound|bounds|ceiling|floor|choice)(_|$)")


def functions(node: ast.AST) -> Iterator[ast.FunctionDef]:
    """Functions and methods; those within a function are steps of it, which its lines explain."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.FunctionDef):
            if not any(getattr(mark, "id", "") == "overload" for mark in child.decorator_list):
                yield child
        else:
            yield from functions(child)


def parsed(path: Path) -> ast.Module:
    return ast.parse(path.read_text())


def returns_numbers(function: ast.FunctionDef) -> bool:
    """Whether the annotation of the result holds numbers, not only whether or how many."""
    if function.returns is None:
        return False
    names = {node.id for node in ast.walk(function.returns) if isinstance(node, ast.Name)}
    return bool(names & NUMBERS)


def inherited(room: str) -> set[str]:
    """Methods that every class of a package has, and of which the base class says the side."""
    return {
        function.name
        for path in (SOURCE / room).rglob("*.py")
        for function in functions(parsed(path))
        if any(getattr(mark, "id", "") == "abstractmethod" for mark in function.decorator_list)
        and says_its_side(function)
    }


def says_its_side(function: ast.FunctionDef) -> bool:
    first = (ast.get_docstring(function) or "").partition("\n")[0]
    return bool(SIDE.search(first) or NAMED.search(function.name))


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(SOURCE)))
def test_a_number_says_its_side(path):
    # what a method without a docstring returns is what its base class says
    known = inherited(path.parent.relative_to(SOURCE).as_posix())
    silent = [
        f"{function.name}:{function.lineno}"
        for function in functions(parsed(path))
        if returns_numbers(function)
        and not says_its_side(function)
        and not (ast.get_docstring(function) is None and function.name in known)
    ]
    assert not silent, silent


def constants(path: Path) -> Iterator[tuple[str, bool]]:
    """Constants of numbers at the top of a file, and whether a comment stands over their group."""
    lines = path.read_text().splitlines()
    for node in parsed(path).body:
        if not isinstance(node, ast.Assign) or not any(
            isinstance(part, ast.Constant) and isinstance(part.value, (int, float))
            for part in ast.walk(node.value)
        ):
            continue
        above = node.lineno - 2
        while above >= 0 and re.match(r"[A-Z][A-Z0-9_, ]* = ", lines[above]):
            above -= 1
        described = "  # " in lines[node.lineno - 1] or lines[above].startswith("#")
        yield ast.unparse(node.targets[0]), described


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(SOURCE)))
def test_a_constant_has_a_word_of_why(path):
    bare = [name for name, described in constants(path) if not described]
    assert not bare, bare


def small(node: ast.AST) -> bool:
    """Whether this is a number that only a tolerance or a limit can be."""
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mult):
        factors = (node.left, node.right)
        return isinstance(node.left, ast.Constant) and any(
            getattr(factor, "id", "") == "EPS" for factor in factors
        )
    return (
        isinstance(node, ast.Constant)
        and isinstance(node.value, float)
        and (0.0 < abs(node.value) < 1e-3 or 1e5 < abs(node.value) < math.inf)
    )


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(SOURCE)))
def test_a_tolerance_has_a_name(path):
    nameless = [
        f"{function.name}: {ast.unparse(node)}"
        for function in functions(parsed(path))
        for statement in function.body
        for node in ast.walk(statement)
        if small(node)
    ]
    assert not nameless, nameless
