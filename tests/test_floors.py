"""The plan of the house: imports go down, in no circle, by public names; importing it is light."""

import ast
import importlib
import re
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
    {"_ground"},
    {"compute", "databases", "documents", "linalg", "text"},
    {"codec"},
    {"covariance", "divergences", "measured", "runs"},
    {"conversions"},
    {"guarantees"},
    {"information", "accounting", "models"},
    {"design"},
    {"attacks"},
    {"releases"},
    {"pages"},
    {"gradients"},
    {"classifiers", "hidden_states", "statistics", "training"},
    {"adapters", "stores"},
    {"specifications"},
    {"ledger"},
    {"report"},
    {"gate"},
    {"cli"},
]
FLOOR_OF = {name: level for level, names in enumerate(FLOORS) for name in names}
# The front door and what runs the command are above every floor.
DOORS = {Path("__init__.py"), Path("__main__.py")}
MODULES = sorted(
    path.relative_to(SOURCE)
    for path in SOURCE.rglob("*.py")
    if path.relative_to(SOURCE) not in DOORS
)
PACKAGES = sorted(
    path.relative_to(SOURCE).parent for path in SOURCE.rglob("__init__.py") if path.parent != SOURCE
)
PUBLIC = [
    name.as_posix().replace("/", ".")
    for name in PACKAGES
    if len(name.parts) == 1 and name.parts[0] not in ("_ground", "cli")
]


def package_of(module: Path) -> str:
    return module.parts[0].removesuffix(".py")


def dotted(module: Path) -> str:
    parts = module.with_suffix("").parts
    return ".".join(("tacit", *(parts[:-1] if parts[-1] == "__init__" else parts)))


def type_checking_only(tree: ast.AST) -> set[ast.AST]:
    """Nodes below ``if TYPE_CHECKING``, which no program runs."""
    return {
        below
        for node in ast.walk(tree)
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test)
        for statement in node.body
        for below in ast.walk(statement)
    }


def imports(tree: ast.AST, module: Path, *, types: bool = True) -> Iterator[tuple[str, str]]:
    """Every (module, name) that is imported from tacit, wherever the import stands."""
    skipped = set() if types else type_checking_only(tree)
    parents = ("tacit", *module.parts[:-1])
    for node in ast.walk(tree):
        if node in skipped:
            continue
        if isinstance(node, ast.Import):
            found = [(alias.name, "") for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            base = ".".join(parents[: len(parents) - node.level + 1]) if node.level else ""
            stem = ".".join(part for part in (base, node.module or "") if part)
            found = [(stem, alias.name) for alias in node.names]
        else:
            continue
        yield from ((stem, name) for stem, name in found if stem.split(".")[0] == "tacit")


def imported_packages(tree: ast.AST, module: Path) -> Iterator[str]:
    """Top-level packages of tacit that the module imports."""
    for stem, name in imports(tree, module):
        parts = f"{stem}.{name}".split(".")
        if len(parts) > 1 and parts[1] and not parts[1].startswith("__"):
            yield parts[1]


def read(module: Path) -> str:
    return (SOURCE / module).read_text(encoding="utf-8")


def violations(source: str, module: Path) -> list[str]:
    own = package_of(module)
    return [
        f"{own} (floor {FLOOR_OF[own]}) imports {other} (floor {FLOOR_OF[other]})"
        for other in imported_packages(ast.parse(source), module)
        if other != own and FLOOR_OF[other] >= FLOOR_OF[own]
    ]


def borrowed(source: str, module: Path) -> list[str]:
    """Private modules or names of another package that the module imports."""
    own = package_of(module)
    taken = []
    for stem, name in imports(ast.parse(source), module):
        parts = [*stem.split(".")[1:], *([name] if name else [])]
        if not parts or parts[0] in (own, "_ground") or parts[0].startswith("__"):
            continue
        if any(part.startswith("_") and not part.startswith("__") for part in parts):
            taken.append(f"{stem}.{name}")
    return taken


def graph() -> dict[str, set[str]]:
    """The modules that each module needs to be imported or to run."""
    names = {dotted(module) for module in MODULES}
    edges: dict[str, set[str]] = {}
    for module in MODULES:
        tree = ast.parse(read(module))
        own = dotted(module)
        needed = set()
        for stem, name in imports(tree, module):
            target = f"{stem}.{name}" if f"{stem}.{name}" in names else stem
            needed.add(target)
        edges[own] = {target for target in needed if target in names and target != own}
    return edges


def circles(edges: dict[str, set[str]]) -> list[set[str]]:
    """Strongly connected modules (Tarjan), more than one at a time."""
    order: dict[str, int] = {}
    low: dict[str, int] = {}
    stack: list[str] = []
    found: list[set[str]] = []

    def visit(node: str) -> None:
        order[node] = low[node] = len(order)
        stack.append(node)
        for target in edges.get(node, ()):
            if target not in order:
                visit(target)
                low[node] = min(low[node], low[target])
            elif target in stack:
                low[node] = min(low[node], order[target])
        if low[node] == order[node]:
            group = set(stack[stack.index(node) :])
            del stack[stack.index(node) :]
            if len(group) > 1:
                found.append(group)

    for node in edges:
        if node not in order:
            visit(node)
    return found


def test_every_package_has_a_floor():
    homeless = {package_of(module) for module in MODULES} - set(FLOOR_OF)
    assert not homeless, f"give these a floor in {Path(__file__).name}: {sorted(homeless)}"


def test_imports_go_down():
    found = {str(module): violations(read(module), module) for module in MODULES}
    assert not {module: wrong for module, wrong in found.items() if wrong}


def test_no_private_name_crosses_a_package():
    found = {str(module): borrowed(read(module), module) for module in MODULES}
    assert not {module: wrong for module, wrong in found.items() if wrong}


def test_no_circle_those_of_types_counted():
    assert not circles(graph())


# What reads a release knows it by its fields and its kind alone.
OUTLETS = ("gate", "ledger", "pages", "releases", "report")
WORKFLOWS = re.compile(
    r"\btacit\.(adapters|classifiers|hidden_states|specifications|statistics|training)\b"
)


def test_what_reads_a_release_names_no_workflow():
    named = [str(one) for one in MODULES if one.parts[0] in OUTLETS and WORKFLOWS.search(read(one))]
    assert not named


# Import packages that stand beside the library in the same distribution.
BESIDE = sorted(path.parent for path in SOURCE.parent.glob("tacit_*/__init__.py"))
WITHOUT_BESIDE = f"""
import importlib, sys

class Without:
    def find_spec(self, name, *_):
        if name.partition(".")[0] in {sorted(path.name for path in BESIDE)}:
            raise ModuleNotFoundError(name, name=name)

sys.meta_path.insert(0, Without())
"""


def test_the_library_knows_nothing_of_what_hooks_into_it():
    # the checker stands below: it knows nothing of the library
    others = re.compile(r"^\s*(from|import) tacit_(?!check)\w+", re.MULTILINE)
    assert BESIDE
    assert not [str(module) for module in MODULES if others.search(read(module))]


def test_every_module_of_the_library_is_imported_without_what_stands_beside():
    names = [dotted(module) for module in MODULES]
    script = f"""{WITHOUT_BESIDE}
for name in {names}:
    try:
        importlib.import_module(name)
    except ImportError as error:
        # an extra that is not installed here
        if "pip install" not in str(error):
            raise
"""
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, check=False, text=True
    )
    assert done.returncode == 0, done.stderr[-2000:]


def test_what_stands_beside_takes_no_private_name_but_of_the_ground():
    taken = {
        str(path.relative_to(SOURCE.parent)): wrong
        for package in BESIDE
        for path in package.rglob("*.py")
        if (wrong := borrowed(path.read_text(encoding="utf-8"), Path("beside") / path.name))
    }
    assert not taken


def test_what_stands_beside_does_not_import_each_other():
    for package in BESIDE:
        others = [path.name for path in BESIDE if path != package]
        wrong = re.compile(rf"^\s*(from|import) ({'|'.join(others)})\b", re.MULTILINE)
        for path in package.rglob("*.py"):
            assert not wrong.search(path.read_text(encoding="utf-8")), path


def test_a_circle_is_found():
    edges = {"a": {"b"}, "b": {"c"}, "c": {"b", "d"}, "d": set()}
    assert circles(edges) == [{"b", "c"}]


@pytest.mark.parametrize("name", PUBLIC)
def test_a_public_package_shows_its_names_and_nothing_else(name):
    package = importlib.import_module(f"tacit.{name}")
    assert package.__doc__
    assert sorted(package.__all__) == sorted(set(package.__all__))
    assert dir(package) == sorted(package.__all__)
    for public in package.__all__:
        assert getattr(package, public) is not None


@pytest.mark.parametrize("name", PUBLIC)
def test_no_name_hides_a_module(name):
    modules = {path.stem for path in (SOURCE / name.replace(".", "/")).iterdir()}
    package = importlib.import_module(f"tacit.{name}")
    hidden = {
        public
        for public in package.__all__
        if public in modules and not isinstance(getattr(package, public), type(ast))
    }
    assert not hidden


def test_the_map_of_contributing_is_this_one():
    contributing = SOURCE.parent.parent / "CONTRIBUTING.md"
    if not contributing.is_file():
        pytest.skip("CONTRIBUTING.md is not beside an installed package")
    text = contributing.read_text(encoding="utf-8")
    assert floors_drawn() in text, f"python -m tests.test_floors writes:\n{floors_drawn()}"


def floors_drawn() -> str:
    """The floors from the top, what each package is in its own words, and what hooks in beside."""
    standing = {package_of(module) for module in MODULES}
    lines = []
    for names in reversed(FLOORS):
        for place, name in enumerate(sorted(names & standing)):
            lines.append(f"{'┌' if not place else '│'} {name:<14} {first_line(f'tacit.{name}')}")
    beside = sorted(path.parent.name for path in SOURCE.parent.glob("tacit_*/__init__.py"))
    lines += [f"→ {name:<14} {first_line(name)}" for name in beside]
    return "\n".join(lines)


def first_line(name: str) -> str:
    """What a module or package says of itself, read and not imported."""
    place = SOURCE.parent / name.replace(".", "/")
    path = place / "__init__.py" if place.is_dir() else place.with_suffix(".py")
    said = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or ""
    return said.splitlines()[0]


@pytest.mark.parametrize(
    ("source", "module"),
    [
        ("from tacit.design import ball", "linalg.py"),
        ("import tacit.cli", "ledger/store.py"),
        ("from tacit import attacks", "design/kl.py"),
        ("from tacit.design import ball", "information/bounds.py"),
        ("def late():\n    from ..report import page", "statistics/workflow.py"),
    ],
)
def test_an_upward_import_is_found(source, module):
    assert violations(source, Path(module))


@pytest.mark.parametrize(
    ("source", "module"),
    [
        ("from tacit.linalg import sqrt_psd", "design/kl.py"),
        ("from .base import Design", "design/kl.py"),
        ("from tacit import __version__", "compute.py"),
        ("import numpy.linalg", "linalg.py"),
    ],
)
def test_a_downward_import_passes(source, module):
    assert not violations(source, Path(module))


@pytest.mark.parametrize(
    "source", ["from tacit.linalg import _square", "import tacit.covariance._hidden"]
)
def test_a_borrowed_private_name_is_found(source):
    assert borrowed(source, Path("design/kl.py"))


def test_the_front_door_shows_every_package_of_the_reference():
    page = (SOURCE.parents[1] / "docs" / "reference" / "index.md").read_text(encoding="utf-8")
    packages = set(re.findall(r"^ +tacit\.(\w+)$", page, flags=re.MULTILINE))
    assert "compute" in packages
    script = f"import tacit; [getattr(tacit, name) for name in {sorted(packages)}]"
    assert packages <= set(dir(tacit))
    subprocess.run([sys.executable, "-c", script], check=True)


@pytest.mark.parametrize(
    "heavy",
    [
        "numpy",
        "torch",
        "matplotlib",
        "sqlalchemy",
        "pyarrow",
        "pandas",
        "sklearn",
        "transformers",
        "fastapi",
    ],
)
def test_import_stays_light(heavy):
    script = f"import sys, tacit; dir(tacit); sys.exit({heavy!r} in sys.modules)"
    assert subprocess.run([sys.executable, "-c", script], check=False).returncode == 0


def test_pyarrow_is_imported_by_the_store_that_brings_it_alone():
    folders = [SOURCE, *(SOURCE.parent / path.name for path in BESIDE)]
    users = {
        str(path.relative_to(SOURCE.parent))
        for folder in folders
        for path in folder.rglob("*.py")
        if re.search(r"^\s*(import|from) pyarrow", path.read_text("utf-8"), re.MULTILINE)
    }
    assert users == {"tacit/stores/backends/lance.py"}


WITHOUT = """
import sys

EXTRAS = {
    "torch", "transformers", "tokenizers", "peft", "faiss",
    "fastapi", "uvicorn", "starlette", "pydantic", "python_multipart", "yaml",
}

class Without:
    def find_spec(self, name, *_):
        if name.partition(".")[0] in EXTRAS:
            raise ModuleNotFoundError(name, name=name)

sys.meta_path.insert(0, Without())
"""
NEEDS_TORCH = {"adapters", "gradients", "hidden_states", "models", "training"}
ON_MODELS = {
    "attacks": {
        "Inverter", "MappedChannel", "SequenceInverter", "SequentialAttack", "StateInverter",
        "StateRelease", "TokenProbe", "TrajectoryInverter",
        "TokenSearch", "VerifiedPrompts", "VerifiedInverter",
        "attack_inversion", "known_prefix", "sequential_decoder",
    },
    "specifications": {
        "Backbone", "PreparedSpecification", "PublicSubspace", "full_specification",
        "load_backbone", "load_subspace", "prepare_specification", "public_subspace", "specify",
    },
    "stores": {
        "Backend", "DatabaseBackend", "FaissBackend", "FolderBackend", "LanceBackend",
        "SealedStore", "StoreAudit", "Fault", "audit_store",
        "PrivateEmbeddings",
    },
}  # fmt: skip


def test_what_extras_bring_is_not_needed_elsewhere():
    packages = sorted(set(dir(tacit)) - NEEDS_TORCH - {"__version__"})
    script = f"""{WITHOUT}
import tacit
for package in {packages}:
    found = getattr(tacit, package)
    for name in getattr(found, "__all__", ()):
        try:
            getattr(found, name)
        except ImportError as error:
            assert "needs torch" in str(error)
            print(package, name)
"""
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, check=True, text=True
    )
    missing = {tuple(line.split()) for line in done.stdout.splitlines()}
    assert missing == {(package, name) for package, names in ON_MODELS.items() for name in names}


if __name__ == "__main__":
    print(floors_drawn())


def test_the_list_of_commands_imports_none_of_them():
    script = (
        "import sys; from tacit.cli import run; code = run(['--help']); "
        "sys.exit(code or any(name in sys.modules for name in "
        "('numpy', 'tacit.cli.gate', 'tacit.cli.statistic.commands')))"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    # each with its own text
    assert "Exit 0 when every release holds" in done.stdout
    assert "Release a statistic of a table" in done.stdout
