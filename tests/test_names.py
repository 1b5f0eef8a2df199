"""Arguments of public functions: one name for one thing, one default for one kind of statement."""

import ast
import functools
import importlib
import inspect
import re
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import pytest

import tacit

ROOT = Path(tacit.__file__).parents[1]
PACKAGES = sorted(
    ".".join(stub.parent.relative_to(ROOT).parts) for stub in ROOT.glob("tacit*/**/__init__.pyi")
)
# What is measured, and what is bounded from draws; what is published is promised more.
MEASURED, BOUNDED, PROMISED = 0.95, 0.99, 0.999
CONFIDENCE = {
    "tacit": PROMISED,
    "tacit.attacks": MEASURED,
    "tacit.design": BOUNDED,
    "tacit.hidden_states": MEASURED,
    "tacit.information": BOUNDED,
    "tacit.releases": PROMISED,
    "tacit.specifications": MEASURED,
    "tacit_lab.canary_game": MEASURED,
    "tacit_lab.stackelberg": BOUNDED,
}
# Words for a choice, a number, or arrays: what a name may be annotated with, everywhere.
CHOICES = {"str"}
ARRAYS = {"ArrayLike", "ArrayLike | None", "Array", "Array | Sequence[float]"}
KINDS = {
    "reading": CHOICES,
    "prior": {"float", "float | None"},
    # a share by the name of its range, where a value checks itself
    "confidence": {"float", "float | None", "Share"},
    "noise_std": {"float"},
    "noise_multiplier": {"float"},
    "weights": ARRAYS | {"dict[str, float]"},
    "fisher": ARRAYS | {"Any"},
    # a network of transformers takes tensors of tokens
    "labels": ARRAYS | {"Mapping[str, Any] | None", "npt.NDArray[np.int64]", "Tensor | None"},
    "differences": ARRAYS
    | {"ArrayLike | Iterable[ArrayLike] | Callable[[], Iterator[ArrayLike]] | None"},
    "references": {"tuple[str, ...]", "Sequence[str] | None", "References", "References | None"},
}
# Squared distances, which nothing but a design or a divergence between references takes.
SQUARED = {"tacit", "tacit.accounting.published", "tacit.design", "tacit.training"}


def signatures() -> Iterator[tuple[str, str, inspect.Signature]]:
    for package in PACKAGES:
        module = importlib.import_module(package)
        for name in module.__all__:
            value = getattr(module, name)
            found = [(name, value)]
            if inspect.isclass(value):
                methods = inspect.getmembers(value, inspect.isroutine)
                found += [(f"{name}.{key}", method) for key, method in methods if key[0] != "_"]
            for label, part in found:
                if not callable(part):
                    continue
                try:
                    yield package, label, inspect.signature(part)
                except ValueError:
                    continue


SIGNATURES = list(signatures())


def test_the_whole_public_surface_is_read():
    labels = {f"{package}.{label}" for package, label, _ in SIGNATURES}
    assert {"tacit.design.worst_case", "tacit.hidden_states.Codebook.certify"} <= labels


@pytest.mark.parametrize("name", sorted(KINDS))
def test_a_name_is_of_one_kind(name):
    found = {
        # a value says the range beside the number
        f"{package}.{label}": re.sub(
            r"^Annotated\[(\w+), Within\(.*\)\]$", r"\1", str(signature.parameters[name].annotation)
        )
        for package, label, signature in SIGNATURES
        if name in signature.parameters
    }
    assert found
    assert {where: kind for where, kind in found.items() if kind not in KINDS[name]} == {}


def test_budgets_are_squared_distances():
    found = {package for package, _, signature in SIGNATURES if "budgets" in signature.parameters}
    assert found == SQUARED


def test_a_statement_is_sure_by_its_confidence():
    spent = {
        label for _, label, signature in SIGNATURES
        if {"failure", "failure_probability"} & set(signature.parameters)
    }  # fmt: skip
    # a ledger adds up the probabilities that guarantees fail
    assert spent == {"Charge", "Spending"}


def test_a_kind_of_statement_has_one_default_confidence():
    found = {}
    for package, label, signature in SIGNATURES:
        default = getattr(signature.parameters.get("confidence"), "default", None)
        if isinstance(default, float):
            found.setdefault(".".join(package.split(".")[:2]), {})[label] = default
    assert {package: set(defaults.values()) for package, defaults in found.items()} == {
        package: {value} for package, value in CONFIDENCE.items()
    }


@functools.cache
def classes() -> dict[str, list[tuple[str, ast.ClassDef]]]:
    """Every class of the source by its name, with where it stands."""
    found = defaultdict(list)
    for path in sorted(ROOT.glob("tacit*/**/*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ClassDef):
                found[node.name].append((str(path.relative_to(ROOT)), node))
    return found


def test_a_class_name_means_one_thing():
    places = {name: [where for where, _ in found] for name, found in classes().items()}
    assert {name: where for name, where in places.items() if len(where) > 1} == {}


def says(name: str, method: str) -> bool:
    """Whether a class says what its method does, or one that it derives from does."""
    for _, node in classes().get(name, ()):
        if any(
            isinstance(one, ast.FunctionDef | ast.AsyncFunctionDef)
            and one.name == method
            and ast.get_docstring(one)
            for one in node.body
        ):
            return True
        bases = (base.value if isinstance(base, ast.Subscript) else base for base in node.bases)
        return any(says(ast.unparse(base).rpartition(".")[2], method) for base in bases)
    return False


def test_a_public_method_is_described_where_it_is_declared_first():
    silent = [
        f"{where}: {name}.{one.name}"
        for name, found in classes().items()
        for where, node in found
        for one in node.body
        if isinstance(one, ast.FunctionDef | ast.AsyncFunctionDef)
        and not name.startswith("_")
        and not one.name.startswith("_")
        # a class inside a function is seen by nobody else
        and not node.col_offset
        and not says(name, one.name)
        # what only types overloads is described at the last of them
        and not any("overload" in ast.unparse(part) for part in one.decorator_list)
    ]
    assert silent == []
