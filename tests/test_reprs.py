"""What a value prints as: short, and never the numbers of its arrays."""

import importlib
import inspect
import math
import re
from dataclasses import dataclass, field, fields, is_dataclass
from html import escape
from pathlib import Path

import numpy as np
import pytest

import tacit
from tacit import Draw, Effort, Rows, covariance, privatize
from tacit._ground.reprs import short_repr
from tacit.accounting import subsampled_gaussian
from tacit.attacks import bayes, retrieve
from tacit.classifiers import privatize_logits
from tacit.design import isotropic, worst_case
from tacit.hidden_states import CodebookFit
from tacit.releases.showing import ENDS, HALF, said_once
from tacit.statistics import Session, prepare
from tacit.text import (
    beside,
    chance_down,
    chance_up,
    half_width,
    number_down,
    number_up,
    significant_up,
    whole_beside,
)

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
        for kind in getattr(module, "__all__", ()):
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


def test_what_is_prepared_says_in_a_few_lines_what_it_will_release():
    found = prepare("mean", ROWS[:, :2], Rows(success=0.6), columns=["<b>", "y"])
    told, page = repr(found), found._repr_html_()
    assert len(told.splitlines()) <= 6
    for text in (told, page):
        assert "60%: the most often anyone can be right" in text
        assert "not drawn" in text
    assert f"mean[y] ± {significant_up(found.expected[1].half_width, 2)}" in told
    assert "<b>]" not in page
    assert "&lt;b&gt;" in page


def test_guarantees_and_sessions_are_shown_in_a_notebook():
    session = Session(ROWS[:, :2], Rows(success=0.6))
    held = session.ask("mean", share=0.25).guarantees[0]
    page = held._repr_html_()
    assert escape(held.describe()) in page
    assert page.count("<li>") == len(held.assumptions)
    assert "1 answers" not in session._repr_html_()
    assert "1 answer," in repr(session)


def test_profiles_are_shown_in_a_notebook():
    shown = subsampled_gaussian(0.01, 1.1, 10)._repr_html_()
    assert "at δ = 1e-5" in shown
    assert "What must hold (" in shown


@pytest.mark.parametrize(
    ("value", "half", "told"),
    [(786.0, 1.0, "786 ± 1"), (41.0, 0.996, "41.0 ± 1.0"), (0.7458, 0.159, "0.75 ± 0.16")],
)
def test_a_value_ends_at_the_digit_of_its_half_width(value, half, told):
    assert f"{whole_beside(value, half)} ± {half_width(half)}" == told


def test_no_number_is_a_minus_zero():
    assert beside(-0.001, 0.5) == "0.00"
    assert beside(-0.04, 7.0) == "0.0"
    many = subsampled_gaussian(0.01, 1.1, 100)
    assert math.copysign(1.0, many.infinite_mass) == 1.0


def test_brackets_beside_numbers_are_explained_where_they_stand():
    assert said_once(["mean[a] = 1.0 ± 0.2"]) == HALF
    assert said_once(["mean[a] = 1.0 ± 0.2", "count = 0 [0, 3]"]) == HALF + ENDS


@pytest.mark.parametrize("value", [9.9991e-5, 9.99999e-5, 0.99999e-4, 9.9999e-6, 999_999.9])
def test_a_bound_beside_a_power_of_ten_is_written_and_is_no_smaller(value):
    # rounded up it is the next power of ten, which is written out from 1e-4 on
    assert value <= float(number_up(value)) <= value * 1.001
    assert value * 0.999 <= float(number_down(value)) <= value
    assert float(number_down(-value)) <= -value <= float(number_up(-value))


@pytest.mark.parametrize("failure", [1e-3, 4e-7, 1.2341e-6, 3e-17])
def test_what_may_fail_is_never_said_to_be_sure(failure):
    # to the nearest, 1 − 4e-7 is written as 1
    held = min(1.0 - failure, math.nextafter(1.0, 0.0))
    assert float(chance_down(held)) <= held < 1.0
    assert failure <= float(chance_up(failure)) <= failure * 1.01
