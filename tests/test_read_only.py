"""Values that were released or certified say the same tomorrow: nobody writes to their arrays."""

import importlib
import inspect
import re
from dataclasses import FrozenInstanceError, fields, is_dataclass
from pathlib import Path

import numpy as np
import pytest

import tacit
from tacit import Draw, Effort, Rows, Table, covariance, prepare
from tacit._ground.frozen import read_only
from tacit.attacks import bayes, retrieve
from tacit.classifiers import prepare_logits
from tacit.design import discrete, isotropic, worst_case
from tacit.statistics import pairs

ROOT = Path(tacit.__file__).parents[1]
PACKAGES = sorted(
    ".".join(stub.parent.relative_to(ROOT).parts) for stub in ROOT.glob("tacit*/**/__init__.pyi")
)
ARRAYS = re.compile(r"\b(Array|Indices|Codes|NDArray)\b")
RNG = np.random.default_rng(0)
ROWS = RNG.normal(size=(60, 4))


def holders():
    for package in PACKAGES:
        module = importlib.import_module(package)
        for name in getattr(module, "__all__", ()):
            value = getattr(module, name)
            held = fields(value) if inspect.isclass(value) and is_dataclass(value) else ()
            if any(ARRAYS.search(str(field.type)) for field in held):
                yield value


HOLDERS = sorted(set(holders()), key=lambda kind: kind.__qualname__)


def test_holders_of_arrays_are_found():
    names = {kind.__name__ for kind in HOLDERS}
    assert {"Numbers", "Logits", "Design", "DiscreteRelease"} <= names


@pytest.mark.parametrize("kind", HOLDERS, ids=lambda kind: kind.__name__)
def test_every_exported_holder_of_arrays_is_read_only(kind):
    wrapper = read_only(type("Any", (), {})).__init__.__code__
    assert kind.__init__.__code__ is wrapper


def values():
    yield covariance.Dense(ROWS.T @ ROWS)
    yield covariance.Diagonal(np.ones(4))
    yield covariance.LowRank(np.eye(4)[:2], np.eye(2))
    yield covariance.ScaleMixture(covariance.Isotropic(1.0, 2), np.ones(2), np.array([0.5, 0.5]))
    yield isotropic(ROWS.T @ ROWS, 1.0)
    yield worst_case(ROWS, 1.0)
    noise = discrete(worst_case(np.eye(2), 1.0), budgets=1.0)
    yield noise
    yield noise.release([3, 5])
    yield prepare("mean", ROWS, Draw(nats=0.5), Effort(simulations=64, workers=1)).draw()
    yield prepare("mean", ROWS, Rows(success=0.6)).draw()
    yield prepare("mean", ROWS, Table(success=0.6, bounds=[(-5, 5)] * 4)).draw()
    yield pairs.nearest(ROWS)
    logits = prepare_logits(ROWS, range(60), Draw(nats=0.5), Effort(trials=0))
    yield logits
    yield logits.draw()
    yield bayes(ROWS, covariance.Isotropic(9.0, 4), range(60), trials=50, rng=0)
    yield retrieve(ROWS, ROWS + 1.0, range(60))


def hidden():
    torch = pytest.importorskip("torch")
    from tacit.hidden_states import Codebook, CodebookFit, prepare_codes, prepare_states

    yield prepare_states(ROWS, isotropic(np.ones(4), 1.0))
    yield prepare_states(ROWS, isotropic(np.ones(4), 1.0)).draw()
    states = torch.from_numpy(ROWS)
    book = Codebook.fit(states, CodebookFit(size=3, least_cell=1), rng=0, progress=False)
    yield prepare_codes(book, states).draw()


def arrays(value, name=""):
    """Every array that can be reached from a value, with its path."""
    if isinstance(value, np.ndarray):
        yield name, value
    elif isinstance(value, (tuple, list)):
        for place, entry in enumerate(value):
            yield from arrays(entry, f"{name}[{place}]")
    elif is_dataclass(value) and not isinstance(value, type):
        for field in fields(value):
            yield from arrays(getattr(value, field.name), f"{name}.{field.name}")


@pytest.mark.parametrize("source", [values, hidden])
def test_nothing_reached_from_a_value_can_be_written(source):
    found = 0
    for value in source():
        for name, held in arrays(value, type(value).__name__):
            found += 1
            assert not held.flags.writeable, name
            with pytest.raises(ValueError, match="read-only"):
                held[...] = 0
    assert found > 2


def test_what_was_given_is_copied():
    given = ROWS.copy()
    prepared = prepare_logits(given, range(60), Draw(nats=0.5), Effort(trials=0), rng=3)
    given[:] = 7.0
    same = prepare_logits(ROWS, range(60), Draw(nats=0.5), Effort(trials=0), rng=3)
    assert np.array_equal(prepared.draw().details.logits, same.draw().details.logits)
    with pytest.raises(FrozenInstanceError):
        prepared.logits = given
