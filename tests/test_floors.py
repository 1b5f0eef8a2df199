"""Imports go downwards only, and importing the package stays light."""

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import tacit

SOURCE = Path(tacit.__file__).parent

# A module imports strictly lower floors or its own package; conversions are the numbers that
# guarantees put types on, and a design of least noise is certified by an information bound.
FLOORS: list[set[str]] = [
    {"_validation", "_rounding"},
    {"_randomness", "_files", "_threads", "compute"},
    {"linalg"},
    {"covariance", "divergences"},
    {"conversions"},
    {"guarantees"},
    {"information", "accounting", "mechanisms"},
    {"design", "residual"},
    {"attacks"},
    {"statistics", "training", "adapters", "specifications", "hidden_states"},
    {"ledger", "report"},
    {"gate"},
    {"cli"},
]
FLOOR_OF = {name: level for level, names in enumerate(FLOORS) for name in names}
MODULES = sorted(
    path.relative_to(SOURCE) for path in SOURCE.rglob("*.py") if path != SOURCE / "__init__.py"
)


def package_of(module: Path) -> str:
    return module.parts[0].removesuffix(".py")


def imported_packages(tree: ast.AST, module: Path) -> Iterator[str]:
    """Top-level packages of tacit that the module imports, wherever the import stands."""
    parents = ("tacit", *module.parts[:-1])
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            base = ".".join(parents[: len(parents) - node.level + 1]) if node.level else ""
            stem = ".".join(part for part in (base, node.module or "") if part)
            names = [f"{stem}.{alias.name}" for alias in node.names]
        else:
            continue
        for name in names:
            parts = name.split(".")
            if parts[0] == "tacit" and len(parts) > 1 and not parts[1].startswith("__"):
                yield parts[1]


def violations(source: str, module: Path) -> list[str]:
    own = package_of(module)
    return [
        f"{own} (floor {FLOOR_OF[own]}) imports {other} (floor {FLOOR_OF[other]})"
        for other in imported_packages(ast.parse(source), module)
        if other != own and FLOOR_OF[other] >= FLOOR_OF[own]
    ]


def test_every_package_has_a_floor():
    homeless = {package_of(module) for module in MODULES} - set(FLOOR_OF)
    assert not homeless, f"give these a floor in {Path(__file__).name}: {sorted(homeless)}"


@pytest.mark.parametrize("module", MODULES, ids=str)
def test_imports_go_down(module):
    assert not violations((SOURCE / module).read_text(encoding="utf-8"), module)


@pytest.mark.parametrize(
    ("source", "module"),
    [
        ("from tacit.design import ball", "linalg.py"),
        ("import tacit.cli", "ledger/store.py"),
        ("from tacit import attacks", "design/ball.py"),
        ("from tacit.design import ball", "information/bounds.py"),
        ("def late():\n    from ..report import page", "statistics/workflow.py"),
    ],
)
def test_an_upward_import_is_found(source, module):
    assert violations(source, Path(module))


@pytest.mark.parametrize(
    ("source", "module"),
    [
        ("from tacit.linalg import sqrt_psd", "design/ball.py"),
        ("from .base import Design", "design/ball.py"),
        ("from tacit import __version__", "compute.py"),
        ("import numpy.linalg", "linalg.py"),
    ],
)
def test_a_downward_import_passes(source, module):
    assert not violations(source, Path(module))


@pytest.mark.parametrize("heavy", ["torch", "matplotlib", "sqlalchemy", "pandas", "sklearn"])
def test_import_stays_light(heavy):
    script = f"import sys, tacit; sys.exit({heavy!r} in sys.modules)"
    assert subprocess.run([sys.executable, "-c", script], check=False).returncode == 0
