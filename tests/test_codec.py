"""Values written and read by their annotations: exactly, strictly, and by the path of a fault."""

import enum
import json
import math
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tacit import codec
from tacit._ground.checks import Array
from tacit.codec import APART, HOLDER, MISSING
from tacit.covariance import Covariance, Diagonal
from tacit.documents import Envelope, dumps, loads
from tacit.guarantees import InformationBound
from tacit.guarantees.base import Guarantee


class Colour(enum.StrEnum):
    RED = "red"
    BLUE = "blue"


@dataclass(frozen=True)
class Small:
    share: float
    word: Literal["a", 1] = "a"

    def __post_init__(self):
        if not 0.0 <= self.share <= 1.0:
            raise ValueError(f"share: expected at most 1, got {self.share!r}")


@dataclass(frozen=True)
class Other:
    share: float


class Shape(ABC):
    @abstractmethod
    def area(self):
        """Return the area."""


@dataclass(frozen=True)
class Square(Shape):
    side: float

    def area(self):
        return self.side**2


@dataclass(frozen=True)
class Disc(Shape):
    radius: float

    def area(self):
        return math.pi * self.radius**2


@dataclass(frozen=True)
class Base(ABC):
    size: int

    @abstractmethod
    def grown(self):
        """Return a larger one."""


@dataclass(frozen=True)
class Child(Base):
    def grown(self):
        return Child(self.size + 1)


@dataclass(frozen=True)
class Twin(Base):
    def grown(self):
        return Twin(self.size + 1)


@dataclass(frozen=True, eq=False)
class Whole:
    number: float
    count: int
    told: bool
    name: str
    colour: Colour
    one: Small
    either: Small | Other | None
    any_base: Base
    held: tuple[Guarantee, ...]
    noise: Covariance
    pair: tuple[int, str]
    named: Mapping[str, tuple[float, ...]]
    numbers: Array
    gaps: Annotated[Array, MISSING]
    codes: npt.NDArray[np.int64]
    raw: bytes
    mixed: float | int | str | tuple[int, ...] | None
    secret: Annotated[tuple[Small, ...], HOLDER] = ()
    inside: "Inside" = field(default_factory=lambda: Inside())


@dataclass(frozen=True)
class Inside:
    public: int = 1
    private: Annotated[float | None, HOLDER] = None


def whole(**changes):
    bound = InformationBound(
        nats=0.5, secret="the rows", evidence="theorem", assumptions=("one",), source="example"
    )
    fields = {
        "number": math.inf,
        "count": 2**70,
        "told": False,
        "name": "Zoë",
        "colour": Colour.BLUE,
        "one": Small(0.25, 1),
        "either": Other(7.0),
        "any_base": Twin(3),
        "held": (bound,),
        "noise": Diagonal([1.0, 2.0]),
        "pair": (1, "b"),
        "named": {"x": (1.0, -math.inf), "y": ()},
        "numbers": np.array([[0.1, -0.0], [5e-324, 1.7976931348623157e308]]),
        "gaps": np.array([np.nan, 1.0]),
        "codes": np.array([2**63 - 1, -(2**63)]),
        "raw": b"\x00\xff",
        "mixed": (1, 2),
        "secret": (Small(0.5),),
        "inside": Inside(2, 3.0),
    }
    return Whole(**{**fields, **changes})


def through(kind, value):
    return codec.read(kind, loads(dumps(codec.write(kind, value))), "whole")


def same(left, right):
    assert type(left) is type(right)
    if isinstance(left, np.ndarray):
        assert left.dtype == right.dtype
        np.testing.assert_array_equal(left, right)
        assert np.array_equal(np.signbit(left), np.signbit(right))
    elif hasattr(left, "__dataclass_fields__") and not isinstance(left, Guarantee):
        for name in left.__dataclass_fields__:
            same(getattr(left, name), getattr(right, name))
    else:
        assert left == right


def test_every_kind_of_field_comes_back_exactly():
    same(whole(), through(Whole, whole()))


@pytest.mark.parametrize("mixed", [1, 1.5, "word", (1, 2), (), None, math.inf])
def test_a_union_of_scalars_keeps_their_type(mixed):
    found = through(Whole, whole(mixed=mixed)).mixed
    assert found == mixed
    assert type(found) is type(mixed)


@given(st.floats(allow_nan=False), st.integers(), st.text(), st.booleans())
def test_scalars_of_any_size(number, count, name, told):
    found = through(Whole, whole(number=number, count=count, name=name, told=told))
    assert (found.number, found.count, found.name, found.told) == (number, count, name, told)
    assert math.copysign(1.0, found.number) == math.copysign(1.0, number)


def edited(place, value):
    content = json.loads(json.dumps(codec.write(Whole, whole())))
    inner = content
    for name in place[:-1]:
        inner = inner[name]
    inner[place[-1]] = value
    return content


HOSTILE = [
    (("number",), None, "whole.number: expected a number, got None"),
    (("number",), True, "whole.number: expected a number, got True"),
    (("number",), "1", "whole.number: expected a number, got '1'"),
    (("number",), 10**400, "whole.number: expected a number within double precision"),
    (("count",), 1.0, "whole.count: expected a whole number, got 1.0"),
    (("count",), True, "whole.count: expected a whole number, got True"),
    (("told",), 1, "whole.told: expected true or false, got 1"),
    (("name",), 3, "whole.name: expected text, got 3"),
    (("colour",), "green", "whole.colour: expected 'red' or 'blue', got 'green'"),
    (("one", "word"), True, "whole.one.word: expected 'a' or 1, got True"),
    (("one", "word"), 1.0, "whole.one.word: expected 'a' or 1, got 1.0"),
    (("one", "share"), 2.0, "whole.one.share: expected at most 1, got 2.0"),
    (("one", "extra"), 2.0, "whole.one: expected the fields of Small, missing or unknown"),
    (("either", "type"), "Whole", "whole.either.type: expected 'Small' or 'Other', got 'Whole'"),
    (("either", "type"), "Small", "whole.either: expected the fields of Small, missing"),
    (("any_base", "type"), "Base", "whole.any_base.type: expected 'Child' or 'Twin', got 'Base'"),
    (("any_base",), 3, "whole.any_base: expected the fields of Child or Twin, got 3"),
    (("held",), "none", "whole.held: expected a list, got text"),
    (("held", 0, "nats"), -1.0, "whole.held[0].nats"),
    (("held", 0, "more"), 1, "whole.held[0].more"),
    (("held", 0), 3, "whole.held[0].guarantee"),
    (("noise", "variances"), "x", "whole.noise"),
    (("noise", "more"), 1, "whole.noise"),
    (("pair",), [1], "whole.pair: expected 2 entries"),
    (("pair", 0), "1", "whole.pair[0]: expected a whole number, got '1'"),
    (("named",), [], "whole.named: expected an object"),
    (("named", "x", 1), None, "whole.named.x[1]: expected a number, got None"),
    (("numbers", 0, 1), None, "whole.numbers[0][1]: expected a number, got None"),
    (("numbers", 0), 1.0, "whole.numbers: expected an array of float64"),
    (("numbers",), 1.0, "whole.numbers: expected a list of numbers, got 1.0"),
    (("codes", 0), 1.0, "whole.codes[0]: expected a whole number, got 1.0"),
    (("codes", 0), 2**63, "whole.codes: expected an array of int64"),
    (("raw",), "zz", "whole.raw: expected bytes as hexadecimal digits, got 'zz'"),
    (("mixed",), {}, "whole.mixed: expected"),
    (("secret", 0), None, "whole.secret[0]: expected the fields of Small, got None"),
]


@pytest.mark.parametrize(("place", "value", "sentence"), HOSTILE)
def test_a_fault_is_a_sentence_with_its_path(place, value, sentence):
    with pytest.raises(ValueError) as fault:  # noqa: PT011
        codec.read(Whole, edited(place, value), "whole")
    assert str(fault.value).startswith(sentence), str(fault.value)


@pytest.mark.parametrize("name", Whole.__dataclass_fields__)
def test_no_field_may_be_left_out(name):
    content = codec.write(Whole, whole())
    del content[name]
    with pytest.raises(ValueError, match=f"missing or unknown, got ..?{name}"):
        codec.read(Whole, content, "whole")


def test_a_missing_number_stands_only_where_one_may():
    with pytest.raises(ValueError, match="NaN"):
        codec.write(Whole, whole(number=math.nan))
    with pytest.raises(ValueError, match="NaN"):
        codec.write(Whole, whole(numbers=np.array([np.nan])))


def test_no_second_kind_is_tried_after_a_refusal():
    content = codec.write(Whole, whole(either=Small(0.5)))
    content["either"]["share"] = 7.0  # Other would take it
    with pytest.raises(ValueError, match=r"whole.either.share: expected at most 1"):
        codec.read(Whole, content, "whole")


def test_what_is_the_holders_is_not_public():
    found = codec.public(whole())
    assert found.secret == ()
    assert found.inside == Inside(2, None)
    assert found.number == math.inf
    assert found.held == whole().held


@dataclass(frozen=True)
class Filed:
    count: int
    rows: Annotated[npt.NDArray[np.float32] | None, APART] = None


def test_a_field_that_stands_apart_is_in_no_json():
    rows = np.ones(2, np.float32)
    told = codec.write(Filed, Filed(2, rows))
    assert told == {"count": 2}
    assert codec.read(Filed, told, "filed").rows is None
    assert codec.read_apart(Filed, told, "filed", {"rows": rows}).rows is rows
    with pytest.raises(ValueError, match="filed: expected the fields of Filed"):
        codec.read(Filed, {**told, "rows": [1.0]}, "filed")
    with pytest.raises(ValueError, match=r"filed\.count"):
        codec.read_apart(Filed, {"count": "2"}, "filed", {"rows": rows})


def test_a_holders_field_needs_a_default():
    @dataclass(frozen=True)
    class Careless:
        secret: Annotated[int, HOLDER]

    Careless.__annotations__["secret"] = Annotated[int, HOLDER]
    with pytest.raises(TypeError, match="secret"):
        codec.public(Careless(1))


def test_an_annotation_that_nobody_knows_is_a_fault_of_the_program():
    @dataclass(frozen=True)
    class Odd:
        thing: Any

    Odd.__annotations__["thing"] = object
    with pytest.raises(TypeError, match="thing"):
        codec.read(Odd, {"thing": 1}, "odd")


def test_the_schema_takes_what_is_written_and_refuses_what_is_not():
    jsonschema = pytest.importorskip("jsonschema_rs")
    validator = jsonschema.validator_for(codec.schema(Whole))
    content = loads(dumps(codec.write(Whole, whole())))
    assert validator.is_valid(content), list(validator.iter_errors(content))[:1]
    for place, value in (
        (("number",), None), (("count",), 1.5), (("colour",), "green"), (("one", "extra"), 1),
        (("either", "type"), "Whole"), (("pair",), [1]), (("named",), []),
    ):  # fmt: skip
        assert not validator.is_valid(edited(place, value)), place


def test_what_is_nested_without_end_is_refused_in_words():
    deep: Any = 1.0
    for _ in range(900):
        deep = [deep]
    for place in ("numbers", "number", "noise", "held"):
        with pytest.raises(ValueError, match=place) as refused:
            codec.read(Whole, edited((place,), deep), "whole")
        assert len(str(refused.value)) < 200
    with pytest.raises(ValueError, match="format"):
        Envelope("tacit.example", 1).fields("example", {"format": deep})
