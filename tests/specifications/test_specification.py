"""A specification's file: read back as it was, compared in one space only, refused when torn."""

import copy
import json
import pickle
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from safetensors.numpy import load

from tacit.guarantees import ApproximateDP
from tacit.specifications import (
    Specification,
    SpecificationSpace,
    read_specification,
    specification_from_bytes,
)

SPACE = SpecificationSpace(
    backbone="sha256:0",
    layers=("fc", "block.1"),
    shapes=((4, 2), (3, 2)),
    factor="seed:7",
    subspace="none",
    output="scatter",
)
PROMISE = ApproximateDP(
    epsilon=1.0,
    delta=1e-5,
    adjacency="replacement",
    evidence="theorem",
    assumptions=(),
    source="example",
)


def factors(seed=0, scale=1.0):
    rng = np.random.default_rng(seed)
    return {
        name: scale * rng.normal(size=shape)
        for name, shape in zip(SPACE.layers, SPACE.shapes, strict=True)
    }


def made(seed=0, scale=1.0, **changes):
    fields = {
        "kind": "model",
        "space": SPACE,
        "factors": factors(seed, scale),
        "method": "dp",
        "guarantees": (PROMISE,),
        "created": "2026-01-01T00:00:00+00:00",
        "notes": ("one", "ζwei"),
        **changes,
    }
    return Specification(**fields)


def test_a_file_is_read_back_as_it_was(tmp_path):
    held = made()
    held.save(tmp_path / "a.safetensors")
    found = read_specification(tmp_path / "a.safetensors")
    assert found.manifest() == held.manifest()
    assert found.revision == held.revision
    assert found.guarantees == (PROMISE,)
    np.testing.assert_array_equal(found.vector, held.vector)
    tensors = load((tmp_path / "a.safetensors").read_bytes())
    np.testing.assert_array_equal(tensors["fc"], held.factors["fc"])


@pytest.mark.parametrize("again", [copy.deepcopy, lambda held: pickle.loads(pickle.dumps(held))])
def test_a_copy_has_the_same_revision(again):
    assert again(made()).revision == made().revision


def test_the_cosine_is_that_of_all_factors_joined():
    one, other = made(0), made(1)
    left, right = (
        np.concatenate([held.factors[name].ravel() for name in SPACE.layers]).astype(float)
        for held in (one, other)
    )
    expected = left @ right / np.linalg.norm(left) / np.linalg.norm(right)
    assert one.cosine(other) == pytest.approx(expected, abs=1e-6)
    assert one.cosine(one) == pytest.approx(1.0, abs=1e-7)


@pytest.mark.parametrize("scale", [1e-30, 1e30, 1e-42])
def test_a_cosine_neither_overflows_nor_vanishes(scale):
    assert made(0, scale).cosine(made(0)) == pytest.approx(1.0, abs=1e-2)


@pytest.mark.parametrize(
    "change",
    [
        {"backbone": "sha256:1"},
        {"factor": "seed:8"},
        {"subspace": "sha256:2"},
        {"output": "labels:1"},
        {"layers": ("fc", "block.2")},
    ],
    ids=lambda change: next(iter(change)),
)
def test_another_space_is_refused_and_named(change):
    space = replace(SPACE, **change)
    held = dict(zip(space.layers, factors().values(), strict=True))
    other = made(space=space, factors=held)
    assert other.space.digest != SPACE.digest
    with pytest.raises(ValueError, match=f"the same space, got another {next(iter(change))}"):
        made().cosine(other)


def test_nothing_has_no_direction():
    zero = made(factors={name: np.zeros(s) for name, s in zip(SPACE.layers, SPACE.shapes)})  # noqa: B905
    assert not zero.vector.any()
    with pytest.raises(ValueError, match="not zero"):
        made().cosine(zero)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"kind": "other"}, "kind"),
        ({"factors": {"fc": np.zeros((4, 2))}}, "factors: expected those of the layers"),
        ({"factors": {**factors(), "fc": np.zeros((4, 3))}}, "expected shape"),
        ({"factors": {**factors(), "fc": np.full((4, 2), np.nan)}}, "finite"),
        ({"factors": {**factors(), "fc": np.full((4, 2), 1e39)}}, "finite"),
        ({"guarantees": ("yes",)}, "guarantees"),
        ({"created": ""}, "created"),
    ],
)
@pytest.mark.filterwarnings("ignore:overflow encountered in cast")
def test_bad_fields_are_named(changes, message):
    with pytest.raises(ValueError, match=message):
        made(**changes)


@given(st.data())
def test_a_torn_or_changed_file_is_refused_or_another_revision(data):
    whole = made().to_bytes()
    place = data.draw(st.integers(0, len(whole) - 1))
    if data.draw(st.booleans()):
        with pytest.raises(ValueError, match="content"):
            specification_from_bytes(whole[:place])
        return
    changed = bytearray(whole)
    changed[place] ^= 1 << data.draw(st.integers(0, 7))
    try:
        found = specification_from_bytes(bytes(changed))
    except ValueError:
        return
    assert found.revision != made().revision
    assert found.to_bytes() == bytes(changed)


def rewritten(change):
    """A file whose header was changed, its length put right."""
    whole = made().to_bytes()
    length = int.from_bytes(whole[:8], "little")
    header = json.loads(whole[8 : 8 + length])
    change(header)
    text = json.dumps(header, separators=(",", ":")).encode()
    return len(text).to_bytes(8, "little") + text + whole[8 + length :]


@pytest.mark.parametrize(
    "change",
    [
        lambda header: header.pop("__metadata__"),
        lambda header: header["__metadata__"].update({"tacit.specification": 3}),
        lambda header: header["__metadata__"].update({"tacit.specification": "{}"}),
        lambda header: header["__metadata__"].update(more="text"),
        lambda header: header["fc"].update(dtype="F16"),
        lambda header: header["fc"].update(data_offsets=[0, 4]),
        lambda header: header["fc"].update(data_offsets=[-4, 28]),
        lambda header: header.update(extra=header["fc"]),
    ],
)
def test_a_header_that_says_something_else_is_refused(change):
    with pytest.raises(ValueError, match="content"):
        specification_from_bytes(rewritten(change))


@pytest.mark.parametrize(
    "content", [b"", b"\x80\x04\x95", b"PK\x03\x04" + bytes(100), b"\xff" * 64, bytes(64)]
)
def test_other_files_are_refused(content):
    with pytest.raises(ValueError, match="safetensors"):
        specification_from_bytes(content)
