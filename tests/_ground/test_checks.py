"""Arguments of the wrong kind get a sentence that names them and holds none of their numbers."""

from decimal import Decimal
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest

from tacit._ground.checks import array, as_float, choice, integer
from tacit._ground.files import absolute, read_bytes, write_text_atomic

DATA = np.arange(4242.0, 4442.0).reshape(20, 10)


@pytest.mark.parametrize(
    "value",
    [0.5, np.float32(0.5), np.array(0.5), Decimal("0.5"), Fraction(1, 2), np.longdouble(0.5)],
)
def test_numbers_of_every_kind_are_numbers(value):
    assert as_float("success", value) == 0.5


@pytest.mark.parametrize(
    "value",
    [
        None,
        "0.5",
        np.array("0.5"),
        np.str_("0.5"),
        True,
        np.True_,
        0.5j,
        np.complex128(0.5 + 1j),
        [0.5],
        np.array([0.5]),
        [[1], [1, 2]],
        np.ma.masked,
        np.ma.masked_array(0.5, mask=True),
        np.datetime64("2026-01-01"),
        DATA,
        DATA.tolist(),
        10**400,
        object(),
    ],
    ids=lambda value: type(value).__name__,
)
def test_what_is_no_number_is_refused_by_name(value):
    for check in (as_float, integer):
        with pytest.raises(ValueError, match=r"^success: expected an? (number|integer)") as caught:
            check("success", value)
        assert len(str(caught.value)) < 160
        assert "4242" not in str(caught.value)


def test_a_choice_is_shown_in_short():
    with pytest.raises(ValueError, match=r"^method: expected one of 'a', 'b'") as caught:
        choice("method", DATA, ["a", "b"])
    assert "4242" not in str(caught.value)


def test_masked_entries_are_not_read_as_numbers():
    rows = np.ma.masked_array(DATA, mask=DATA > 4400)
    with pytest.raises(ValueError, match=r"^pool: expected numbers in every entry, got 41 masked"):
        array("pool", rows, ndim=2)
    whole = np.ma.masked_array(DATA, mask=False)
    np.testing.assert_array_equal(array("pool", whole, ndim=2), DATA)


def test_a_sparse_tensor_gets_a_sentence():
    torch = pytest.importorskip("torch")
    with pytest.raises(ValueError, match=r"^pool: expected an array of numbers, got can't convert"):
        array("pool", torch.eye(3).to_sparse(), ndim=2)


@pytest.mark.parametrize(
    "path", [None, 3, [], b"x", DATA], ids=["None", "3", "[]", "bytes", "data"]
)
def test_what_is_no_path_is_refused_by_name(path):
    for act in (absolute, read_bytes, lambda name, given: write_text_atomic(name, given, "")):
        with pytest.raises(ValueError, match=r"^report: expected a file path, got"):
            act("report", path)


def test_a_zero_byte_is_in_no_name(tmp_path: Path):
    with pytest.raises(ValueError, match=r"^report: expected a file path, got"):
        read_bytes("report", str(tmp_path / "a\0b"))


def test_a_file_that_is_replaced_stays_closed(tmp_path):
    path = tmp_path / "private.json"
    write_text_atomic("json", path, "old")
    for mode in (0o600, 0o640):
        path.chmod(mode)
        write_text_atomic("json", path, "new")
        assert path.stat().st_mode & 0o777 == mode
