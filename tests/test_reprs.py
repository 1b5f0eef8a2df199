"""What a value prints as: short, and never the numbers of its arrays."""

import importlib
import inspect
import re
from dataclasses import dataclass, field, fields, is_dataclass
from pathlib import Path

import numpy as np
import pytest

import tacit
from tacit import Draw, Effort, covariance, privatize
from tacit._ground.reprs import short_repr
from tacit.attacks import bayes, retrieve
from tacit.classifiers import privatize_logits
from tacit.design import isotropic, worst_case
from tacit.hidden_states import CodebookFit

ROOT = Path(tacit.__file__).parents[1]
PACKAGES = sorted(
    ".".join(stub.parent.relative_to(ROOT).parts) for stub in ROOT.glob("tacit*/**/__init__.pyi")
)
ARRAYS = re.compile(r"\b(Array|ArrayLike|Tensor|Indices|Codes|NDArray)\b")
ROWS = np.random.default_rng(0).normal(size=(60, 60))
SPREAD = ROWS @ ROWS.T
SHORT = 900


def holders():
    for package in PACKAGES:
        module = importlib.import_module(package)
        for kind in vars(module).get("__all__", ()):
            value = getattr(module, kind)
            if inspect.isclass(value) and is_dataclass(value):
                held = [f.name for f in fields(value) if f.repr and ARRAYS.search(str(f.type))]
                if held:
                    yield value


HOLDERS = sorted(set(holders()), key=lambda kind: kind.__qualname__)


def test_values_with_arrays_are_found():
    assert {"Dense", "Design", "Geometry"} <= {kind.__name__ for kind in HOLDERS}


@pytest.mark.parametrize("kind", HOLDERS, ids=lambda kind: kind.__name__)
def test_a_value_with_arrays_has_a_short_repr(kind):
    assert kind.__repr__ is short_repr(type("Any", (), {})).__repr__


def values():
    yield covariance.Dense(SPREAD)
    yield covariance.Diagonal(np.diagonal(SPREAD))
    yield covariance.LowRank(np.eye(60)[:3], np.eye(3))
    yield isotropic(SPREAD, 1.0)
    yield worst_case(ROWS, 1.0)
    yield privatize("mean", ROWS, Draw(nats=0.5), Effort(simulations=64, workers=1), rng=0)
    yield privatize_logits(ROWS, range(60), Draw(nats=0.5), Effort(trials=0), rng=0)
    yield bayes(ROWS, covariance.Isotropic(9.0, 60), range(60), trials=50, rng=0)
    yield retrieve(ROWS, ROWS + 1.0, range(60))


def test_no_value_prints_its_numbers():
    for value in values():
        shown = repr(value)
        assert "array(" not in shown
        assert len(shown) < SHORT, shown


def test_codebooks_and_geometries_are_short():
    torch = pytest.importorskip("torch")
    from tacit.hidden_states import Codebook

    book = Codebook.fit(torch.from_numpy(ROWS), CodebookFit(size=8, metric="euclidean"), rng=0)
    assert len(repr(book)) < SHORT
    assert "tensor(" not in repr(book)


def test_a_release_of_states_is_short():
    pytest.importorskip("torch")
    from tacit.attacks import CodeChannel, StateRelease

    release = StateRelease(CodeChannel(lambda rows, _: rows), ROWS)
    assert "vectors=<float64 (60, 60)>" in repr(release)
    assert len(repr(release)) < SHORT


def test_a_long_sequence_says_its_length_and_a_short_one_what_it_holds():
    @short_repr
    @dataclass
    class Held:
        rows: np.ndarray
        number: np.float64
        few: tuple[object, ...]
        many: list[int]
        hidden: float = field(default=0.5, repr=False)

    held = Held(ROWS, np.float64(2.5), ("a", ROWS[0]), list(range(9)))
    name = Held.__qualname__
    assert repr(held) == (
        f"{name}(rows=<float64 (60, 60)>, number={np.float64(2.5)!r}, "
        "few=('a', <float64 (60,)>), many=<list of 9>)"
    )
