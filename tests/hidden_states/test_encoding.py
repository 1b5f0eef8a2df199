"""Files of codes: read and written in blocks, certified, decoded, and refused where they differ."""

import json
import math
import resource
import subprocess
import sys
from dataclasses import replace
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest

torch = pytest.importorskip("torch")
from safetensors import safe_open  # noqa: E402
from safetensors.numpy import load_file, save_file  # noqa: E402

from tacit.design import isotropic  # noqa: E402
from tacit.gate import Policy, check_release  # noqa: E402
from tacit.guarantees import SuccessBound, guarantee_from_dict  # noqa: E402
from tacit.hidden_states import (  # noqa: E402
    Codebook,
    CodebookFit,
    Differences,
    ProductCodebook,
    ProductFit,
    PromptCodes,
    decode_codes,
    prepare_codes,
    prepare_states,
)
from tacit.hidden_states.codebooks.encoding import finite_blocks  # noqa: E402
from tacit.hidden_states.codebooks.proof import proof  # noqa: E402
from tacit.hidden_states.codebooks.release import guarantees_of  # noqa: E402
from tacit.hidden_states.codebooks.response import share  # noqa: E402
from tacit.ledger import Ledger  # noqa: E402
from tacit.releases import load, open_vectors, vectors  # noqa: E402
from tacit.releases.stores import Layout, write_rows  # noqa: E402
from tests.forks import forked  # noqa: E402

ROWS = np.random.default_rng(0).normal(size=(1000, 8)).astype(np.float32)


@pytest.fixture(autouse=True)
def short_blocks(monkeypatch):
    """Blocks of 32 rows, so that every file has many and a last one that is not full."""
    monkeypatch.setattr(vectors, "ENTRIES_TOGETHER", 256)


@pytest.fixture(scope="module")
def plain():
    return Codebook.fit(ROWS, CodebookFit(size=16), rng=0, progress=False)


@pytest.fixture(scope="module")
def product():
    return ProductCodebook.fit(ROWS, ProductFit(parts=4, size=20), rng=0, progress=False)


def stored(folder, kind, rows=ROWS):
    """Write rows as a file of some kind and return its path."""
    if kind == "npy":
        np.save(folder / "rows.npy", rows)
    elif kind == "safetensors":
        save_file({"states": rows, "labels": np.arange(3)}, folder / "rows.safetensors")
    else:
        import pyarrow as arrow
        from pyarrow import parquet

        lists = arrow.FixedSizeListArray.from_arrays(arrow.array(rows.ravel()), rows.shape[1])
        table = arrow.table({"id": np.arange(len(rows)), "vector": lists})
        parquet.write_table(table, folder / "rows.parquet", row_group_size=150)
    return folder / f"rows.{kind}"


KINDS = ("npy", "safetensors", "parquet")


@pytest.mark.parametrize("out", KINDS)
@pytest.mark.parametrize("kind", KINDS)
def test_codes_go_from_any_file_to_any_file_and_back(kind, out, plain, product, tmp_path):
    path = stored(tmp_path, kind)
    for name, book in (("plain", plain), ("product", product)):
        source = open_vectors("states", path)
        assert (source.count, source.width) == (1000, 8)
        place = tmp_path / f"{name}.{out}"
        released = prepare_codes(book, source, out=place).draw()
        expected = book.assign(ROWS).reshape(1000, -1)
        read = open_vectors("codes", place, integers=True)
        assert (np.concatenate(list(read.blocks())) == expected).all()
        back = tmp_path / f"{name}-back.{out}"
        assert decode_codes(book, place, back) == released
        decoded = np.concatenate(list(open_vectors("back", back).blocks()))
        assert (decoded == book.decode(book.assign(ROWS)).numpy()).all()
    names = {entry.name for entry in tmp_path.iterdir()}
    assert not [name for name in names if name.endswith(".tmp")]


def test_the_certificate_stands_in_the_file(product, tmp_path):
    place = tmp_path / "codes.safetensors"
    prepare_codes(product, ROWS, PromptCodes(releases=3), out=place).draw()
    with safe_open(str(place), "np") as file:
        assert list(file.keys()) == ["codes"]
        content = json.loads(file.metadata()["tacit"])["release"]
    assert load_file(place)["codes"].dtype == np.uint8
    leaked, held = (guarantee_from_dict(entry) for entry in content["guarantees"])
    assert (leaked.factor, leaked.releases) == (math.prod(product.sizes) ** 3, 3)
    exact = 3 * sum(math.log(size) for size in product.sizes)
    assert exact <= held.nats <= exact * (1 + 1e-13)
    assert ["codebook", product.digest] in content["digests"]
    assert any("3 codes are released about each prompt" in line for line in held.assumptions)
    assert load(str(place)).guarantees == (leaked, held)


def test_the_store_says_nothing_of_the_states_but_their_codes(plain, tmp_path):
    """Two tables of states with the same codes give the same file, but for the time."""
    codes = plain.assign(ROWS)
    moved = plain.decode(codes).numpy()
    assert (plain.assign(moved) == codes).all()
    made = []
    for name, rows in (("one", ROWS), ("two", moved)):
        np.save(tmp_path / f"{name}-rows.npy", rows)
        place = tmp_path / f"{name}.safetensors"
        prepared = prepare_codes(
            plain, open_vectors("states", tmp_path / f"{name}-rows.npy"), out=place
        )
        created = prepared.draw().created.encode()
        made.append(place.read_bytes().replace(created, b"T"))
    assert made[0] == made[1]


@pytest.mark.parametrize("dtype", ["<f2", "<f4", "<f8", ">f4"])
def test_all_floating_point_types_are_read(dtype, plain, tmp_path):
    np.save(tmp_path / "rows.npy", ROWS.astype(dtype))
    read = np.concatenate(list(open_vectors("states", tmp_path / "rows.npy").blocks()))
    assert (read == ROWS.astype(dtype)).all()


def test_bfloat16_is_read_exactly(tmp_path):
    from safetensors.torch import save_file as save_tensors

    rows = torch.from_numpy(ROWS).bfloat16()
    save_tensors({"states": rows}, tmp_path / "rows.safetensors")
    read = np.concatenate(list(open_vectors("states", tmp_path / "rows.safetensors").blocks()))
    assert (read == rows.float().numpy()).all()


def test_parquet_columns_of_numbers_are_vectors(plain, tmp_path):
    import pyarrow as arrow
    from pyarrow import parquet

    columns = {f"x{place}": ROWS[:, place] for place in range(8)}
    parquet.write_table(arrow.table(columns), tmp_path / "wide.parquet")
    found = prepare_codes(plain, open_vectors("states", tmp_path / "wide.parquet")).draw()
    assert (found.details.codes[:, 0] == plain.assign(ROWS)).all()
    ragged = arrow.table({"v": [[1.0, 2.0], [3.0]]})
    parquet.write_table(ragged, tmp_path / "ragged.parquet")
    with pytest.raises(ValueError, match="2 numbers in every row"):
        list(open_vectors("states", tmp_path / "ragged.parquet").blocks())
    missing = arrow.table({"v": [[1.0, 2.0], None]})
    parquet.write_table(missing, tmp_path / "missing.parquet")
    with pytest.raises(ValueError, match="missing"):
        list(open_vectors("states", tmp_path / "missing.parquet").blocks())


BAD_VALUES = {"nan": np.nan, "inf": np.inf, "beyond float32": 1e39}


@pytest.mark.parametrize("value", BAD_VALUES.values(), ids=BAD_VALUES)
def test_what_is_no_number_has_a_code_and_changes_no_other(value, plain, tmp_path):
    rows = ROWS.astype(np.float64)
    clean = prepare_codes(plain, rows).draw().details.codes[:, 0]
    rows[777, 3] = value
    np.save(tmp_path / "rows.npy", rows)
    source = open_vectors("states", tmp_path / "rows.npy")
    codes = prepare_codes(plain, source).draw().details.codes[:, 0]
    assert (np.delete(codes, 777) == np.delete(clean, 777)).all()
    with pytest.raises(ValueError, match=r"in row 777 \(counted from 0\)"):
        list(finite_blocks(source))


def test_files_that_are_not_vectors_are_refused(plain, tmp_path):
    def write(name, content):
        (tmp_path / name).write_bytes(content)
        return tmp_path / name

    np.save(tmp_path / "flat.npy", np.ones(4))
    np.save(tmp_path / "integers.npy", np.ones((4, 8), dtype=int))
    np.save(tmp_path / "columns.npy", np.asfortranarray(ROWS))
    np.save(tmp_path / "objects.npy", np.array([["a", None]], dtype=object))
    np.save(tmp_path / "empty.npy", np.ones((0, 8)))
    save_file({"a": ROWS, "b": ROWS}, tmp_path / "two.safetensors")
    whole = stored(tmp_path, "npy").read_bytes()
    good = stored(tmp_path, "safetensors").read_bytes()
    for path, words in (
        (tmp_path / "none.npy", "no such file"),
        (write("x.csv", b"1,2"), "ending"),
        (tmp_path / "flat.npy", "shape"),
        (tmp_path / "integers.npy", "floating-point"),
        (tmp_path / "columns.npy", "Fortran"),
        (tmp_path / "objects.npy", "numbers"),
        (tmp_path / "empty.npy", "at least one row"),
        (tmp_path / "two.safetensors", "--column"),
        (write("cut.npy", whole[:-9]), "cut off"),
        (write("cut.safetensors", good[:-9]), "cut off"),
        (write("bad.safetensors", b"\x00" * 40), "not a safetensors"),
        (write("huge.safetensors", b"\xff" * 40), "not a safetensors"),
        (write("bad.npy", b"nothing"), "not a .npy"),
    ):
        with pytest.raises(ValueError, match=words):
            open_vectors("states", path)
    assert open_vectors("states", tmp_path / "two.safetensors", column="b").count == 1000
    np.save(tmp_path / "narrow.npy", ROWS[:, :5])
    with pytest.raises(ValueError, match="8 columns"):
        prepare_codes(plain, open_vectors("states", tmp_path / "narrow.npy"))


def test_a_npy_head_of_gigabytes_is_refused(tmp_path):
    (tmp_path / "head.npy").write_bytes(b"\x93NUMPY\x02\x00" + b"\xff" * 4 + b"{}")

    def read():
        # less than what the head says that it is long
        held = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_AS, (held + 2**30, held + 2**30))
        with pytest.raises(ValueError, match=r"not a \.npy"):
            open_vectors("states", tmp_path / "head.npy")

    done = forked(read)
    assert done.returncode == 0, done.stderr


def test_a_bad_parquet_file_is_refused(tmp_path):
    (tmp_path / "bad.parquet").write_bytes(b"nothing of the kind")
    with pytest.raises(ValueError, match="not a Parquet"):
        open_vectors("states", tmp_path / "bad.parquet")


def test_decoding_refuses_another_codebook_and_other_codes(plain, product, tmp_path):
    place, back = tmp_path / "codes.safetensors", tmp_path / "back.npy"
    prepare_codes(plain, ROWS, out=place).draw()
    other = replace(plain, codewords=plain.codewords + 1e-6)
    for book in (other, product):
        with pytest.raises(ValueError, match=r"--codebook: .* made with another one"):
            decode_codes(book, place, back)
    content = bytearray(place.read_bytes())
    content[-1] ^= 1
    place.write_bytes(bytes(content))
    with pytest.raises(ValueError, match="not those that were certified"):
        decode_codes(plain, place, back)
    with pytest.raises(ValueError, match="not those that were certified"):
        load(str(place))
    save_file({"codes": np.zeros((3, 1), np.uint8)}, place)
    with pytest.raises(ValueError, match=r"codes: .* holds no release"):
        decode_codes(plain, place, back)
    np.save(tmp_path / "bare.npy", np.zeros((3, 1), np.uint8))
    with pytest.raises(ValueError, match=r"codes: expected the certificate .* got none"):
        decode_codes(plain, tmp_path / "bare.npy", back)
    assert not back.exists()


def edited(content, entry, **change):
    """A release with one guarantee changed, or one added where there is none so far."""
    held = [dict(part) for part in content["guarantees"]]
    if entry == len(held):
        held.append({})
    held[entry] |= change
    return {**content, "guarantees": held}


def test_an_edited_certificate_contradicts_itself(plain, tmp_path):
    place = tmp_path / "codes.npy"
    prepare_codes(plain, ROWS, out=place).draw()
    side = tmp_path / "codes.npy.json"
    content = json.loads(side.read_text())
    told = content["release"]["guarantees"]
    assert load(place).guarantees[0].nats == told[0]["nats"]
    for entry, change in (
        (1, {"nats": told[1]["nats"] / 10}),
        (0, {"nats": math.log(2), "factor": 2.0}),
        (0, {"releases": 2}),
    ):
        release = edited(content["release"], entry, **change)
        side.write_text(json.dumps({**content, "release": release}))
        for read in (load, lambda path: decode_codes(plain, path, tmp_path / "back.npy")):
            with pytest.raises(ValueError, match=r"contradicts itself: .* of the guarantee"):
                read(place)


def test_the_gate_holds_the_codes_against_the_cells_certified(plain, product, tmp_path):
    place, back = tmp_path / "codes.safetensors", tmp_path / "back.safetensors"
    for book, cells in ((plain, (4,)), (product, (4,) * 4), (product, (4,))):
        prepare_codes(book, ROWS, out=place).draw()
        limits = Policy(max_factor=math.prod(book.sizes))
        assert check_release(place, limits).passed
        decode_codes(book, place, back)
        assert check_release(back, limits).passed
        with safe_open(place, "np") as file:
            content, codes = json.loads(file.metadata()["tacit"]), file.get_tensor("codes")
        release = content["release"]
        release["details"]["sizes"] = list(cells)
        release["guarantees"] = [held.to_dict() for held in guarantees_of(cells, PromptCodes())]
        save_file({"codes": codes}, place, {"tacit": json.dumps(content)})
        with pytest.raises(ValueError, match=r"not of the cells|not the codes that it certifies"):
            check_release(place, limits)


def rewritten(place, name, rows, **more):
    """Write other rows in the place of those of a store, its certificate as it was."""
    if place.suffix == ".npy":
        np.save(place, rows)
    elif place.suffix == ".safetensors":
        with safe_open(place, "np") as file:
            save_file({name: rows, **more}, place, file.metadata())
    else:
        import pyarrow
        from pyarrow import parquet

        about = parquet.ParquetFile(place).metadata.metadata
        lists = rows[:, 0] if rows.shape[1] == 1 else list(rows)
        table = pyarrow.table({name: lists, **more}).replace_schema_metadata(
            {b"tacit": about[b"tacit"]}
        )
        parquet.write_table(table, place)


@pytest.mark.parametrize("kind", KINDS)
def test_the_gate_holds_the_rows_of_every_store_against_their_digest(
    kind, plain, product, tmp_path
):
    place, back = tmp_path / f"codes.{kind}", tmp_path / f"back.{kind}"
    for book in (plain, product):
        size = math.prod(book.sizes)
        released = prepare_codes(book, ROWS, out=place).draw()
        decode_codes(book, place, back)
        for path in (place, back):
            assert load(path) == released
            assert check_release(path, Policy(max_factor=size)).passed
            assert not check_release(path, Policy(max_factor=size - 1)).passed
        codes = book.assign(ROWS).reshape(1000, -1).astype(np.uint8)
        rewritten(place, "codes", codes)
        assert check_release(place, Policy(max_factor=size)).passed
        other = codes.copy()
        other[-1] = (other[-1] + 1) % np.array(book.sizes)
        decoded = book.decode(book.assign(ROWS)).numpy()
        for path, name, rows in (
            (place, "codes", other),
            (place, "codes", codes[:-1]),
            (place, "codes", np.concatenate([codes, codes[:1]])),
            (back, "states", decoded + np.float32(1e-3)),
        ):
            rewritten(path, name, rows)
            with pytest.raises(ValueError, match="not those that were certified"):
                check_release(path, Policy(max_factor=size))
        rewritten(place, "codes", codes.view(np.int8))
        with pytest.raises(ValueError, match=r"the codes that it certifies|holds no release"):
            check_release(place, Policy(max_factor=size))
        if kind != "npy":
            rewritten(place, "codes", codes, secrets=np.arange(1000))
            with pytest.raises(ValueError, match="beside the rows"):
                check_release(place, Policy(max_factor=size))


def test_rows_of_another_release_are_not_those_that_were_released(plain, tmp_path):
    """The digest that stands with the rows is one of those that the release names."""
    place, other = tmp_path / "codes.npy", tmp_path / "other.npy"
    prepare_codes(plain, ROWS, out=place).draw()
    prepare_codes(plain, ROWS[::-1].copy(), out=other).draw()
    side, theirs = place.with_name("codes.npy.json"), other.with_name("other.npy.json")
    rows = json.loads(theirs.read_text())["rows"]
    side.write_text(json.dumps({**json.loads(side.read_text()), "rows": rows}))
    place.write_bytes(other.read_bytes())
    with pytest.raises(ValueError, match="not those that were released"):
        load(place)


def test_guarantees_of_codes_are_those_that_their_number_and_epsilon_give(plain):
    exact = prepare_codes(plain, ROWS).draw().to_dict()
    reported = prepare_codes(plain, ROWS, PromptCodes(epsilon=2.0)).draw().to_dict()
    private = reported["guarantees"][2]
    success = SuccessBound(
        success=0.02, prior=0.01, task="x", law="y", evidence="theorem", assumptions=(), source="z"
    ).to_dict()

    def promised(**change):
        details = exact["details"]
        promise = {**details["promise"], **change}
        return {**exact, "details": {**details, "promise": promise}}

    for content, sentence in (
        (edited(exact, 2, **success), "guarantees have other types"),
        (edited(exact, 2, **private), "guarantees have other types"),
        (edited(exact, 0, secret="the weather"), "another 'secret'"),
        (edited(exact, 0, assumptions=[]), "assumptions were removed"),
        (edited(exact, 0, evidence="numerical"), "another 'evidence'"),
        (edited(reported, 2, epsilon=0.1), "another 'epsilon'"),
        (edited(reported, 2, delta=0.1), "another 'delta'"),
        (edited(reported, 2, adjacency="nothing"), "another 'adjacency'"),
        (promised(near=2), "near: expected 1"),
        (promised(releases=2), "another title, secret or notes"),
        (promised(epsilon=2.0), "another ε of randomised response"),
        ({**exact, "details": {**exact["details"], "sizes": []}}, "the cells of one part"),
        ({**exact, "digests": [["model"]]}, "digests"),
        ({**exact, "digests": [*exact["digests"], ["prompts", "0" * 64]]}, "digests: expected"),
        ({name: part for name, part in exact.items() if name != "format"}, "format"),
    ):
        with pytest.raises(ValueError, match=sentence):
            check_release(content, Policy(max_factor=10**6))
    words = {"method": plain.words + ", reported by randomised response at ε = 0.5"}
    with pytest.raises(ValueError, match="another ε of randomised response"):
        load({**reported, **words})


@pytest.mark.parametrize("epsilon", [1e-12, 1e-6, 1e-3, 0.1234565, 30.0, 699.0])
def test_every_randomised_store_is_read_back(epsilon, plain, product):
    for book in (plain, product):
        for near, times in ((1, 1), (2, 3), (1, 1000)):
            promise = PromptCodes(epsilon=epsilon, near=near, releases=times)
            released = prepare_codes(book, ROWS[:2], promise).draw()
            assert load(released.to_dict()).guarantees == released.guarantees


def test_a_file_holds_nothing_that_no_digest_covers(plain, tmp_path):
    place = tmp_path / "codes.safetensors"
    prepare_codes(plain, ROWS, out=place).draw()
    content = place.read_bytes()
    place.write_bytes(content + b"a prompt")
    with pytest.raises(ValueError, match="holds no release"):
        load(place)
    size = int.from_bytes(content[:8], "little")
    header = json.loads(content[8 : 8 + size])
    header["__metadata__"]["prompts"] = "a prompt"
    text = json.dumps(header).encode()
    place.write_bytes(len(text).to_bytes(8, "little") + text + content[8 + size :])
    with pytest.raises(ValueError, match="beside the rows"):
        load(place)
    shifted = [place + 8 for place in header["codes"]["data_offsets"]]
    header["codes"]["data_offsets"] = shifted
    text = json.dumps(header).encode()
    place.write_bytes(len(text).to_bytes(8, "little") + text + b"a prompt" + content[8 + size :])
    with pytest.raises(ValueError, match="holds no release"):
        load(place)


def test_a_column_that_is_not_there_is_a_sentence(plain, tmp_path):
    arrow = pytest.importorskip("pyarrow")
    from pyarrow import parquet

    place = tmp_path / "codes.parquet"
    prepare_codes(plain, ROWS, out=place).draw()
    metadata = parquet.read_metadata(place).metadata
    table = arrow.table({"others": np.arange(3)})
    parquet.write_table(table.replace_schema_metadata({b"tacit": metadata[b"tacit"]}), place)
    with pytest.raises(ValueError, match="beside the rows"):
        load(place)


def test_codes_are_not_passed_off_as_decoded_vectors(plain, tmp_path):
    place, side = tmp_path / "codes.npy", tmp_path / "codes.npy.json"
    prepare_codes(plain, ROWS, out=place).draw()
    content = json.loads(side.read_text())
    side.write_text(json.dumps({**content, "decoded": True}))
    with pytest.raises(ValueError, match="expected floating-point numbers"):
        check_release(place, Policy(max_factor=16))


def test_decoded_vectors_are_claimed_and_no_more_of_them_than_codes(plain, tmp_path):
    codes, back = tmp_path / "codes.npy", tmp_path / "back.npy"
    released, asked = prepare_codes(plain, ROWS, out=codes).draw(), Policy(max_factor=16)
    decode_codes(plain, codes, back)
    told = [check_release(path, asked).checks[0].sentence for path in (codes, back)]
    assert ["the codebook that its rows were decoded with" in one for one in told] == [False, True]
    # the rows themselves are no vectors of so few codes, and nothing decodes noisy states
    noisy = prepare_states(ROWS, isotropic(np.ones(8), 4.0), Differences(listed=np.eye(8))).draw()
    for release, why in (
        (released, f"more vectors than its {plain.sizes[0]} codes stand for"),
        (noisy, "nothing decodes its states"),
    ):
        layout = Layout("states", ROWS.shape, ROWS.dtype, decoded=True)
        write_rows("out", back, [ROWS], layout, lambda _, held=release: held)
        with pytest.raises(ValueError, match=why):
            load(back)


def test_a_store_without_its_certificate_is_a_sentence(plain, tmp_path):
    place = tmp_path / "codes.npy"
    prepare_codes(plain, ROWS, out=place).draw()
    side = tmp_path / "codes.npy.json"
    whole = json.loads(side.read_text())
    for content in ("[]", "{", '{"rows": 3}', '{"format": "tacit.codes", "digest": "x"}',
                    json.dumps({**whole, "version": 2}), json.dumps({**whole, "rows": 3}),
                    json.dumps({**whole, "more": 1}), json.dumps({**whole, "parts": {"a": "b"}}),
                    json.dumps({**whole, "release": {}})):  # fmt: skip
        side.write_text(content)
        with pytest.raises(ValueError, match=r"^release[.a-z]*: .*(no release|expected|certified)"):
            load(place)
    side.unlink()
    with pytest.raises(ValueError, match=r"certificate of .* in codes\.npy\.json, got none"):
        load(place)
    np.savez(tmp_path / "many.npz", ROWS)
    (tmp_path / "many.npz").rename(tmp_path / "many.npy")
    (tmp_path / "many.npy.json").write_text("{}")
    with pytest.raises(ValueError, match="holds no release"):
        load(tmp_path / "many.npy")
    with pytest.raises(ValueError, match="no such file"):
        load(tmp_path / "none.npy")
    import pyarrow as arrow
    from pyarrow import parquet

    parquet.write_table(arrow.table({"codes": [1, 2]}), tmp_path / "own.parquet")
    (tmp_path / "none.parquet").write_bytes(b"PAR1")
    for name in ("own.parquet", "none.parquet"):
        with pytest.raises(ValueError, match="holds no release"):
            load(tmp_path / name)


def test_randomised_codes_are_drawn_afresh_and_say_their_epsilon(plain, tmp_path):
    prepared = prepare_codes(plain, ROWS, PromptCodes(epsilon=1.0, near=3, releases=2))
    leaked, information, private = prepared.guarantees
    assert 1.0 < leaked.factor < math.exp(2.0)
    assert private.epsilon == pytest.approx(2.0)
    # I <= the maximal leakage, which is less than ε; of every law of the code no more is told
    assert leaked.nats == pytest.approx(information.nats, rel=1e-12)
    assert information.nats < 2.0
    law = plain.randomised(1.0, near=3).table()
    for prior in np.random.default_rng(0).dirichlet(np.ones(len(law)), size=20):
        told = prior @ (law * np.log(law / (prior @ law))).sum(axis=1)
        assert 2 * told <= information.nats
    one = prepared.draw()
    two = prepare_codes(plain, ROWS, PromptCodes(epsilon=1.0, near=3, releases=2)).draw()
    true = plain.assign(ROWS)
    assert (one.details.codes != two.details.codes).mean() > 0.5
    near = plain.randomised(1.0, near=3)
    inside = (near.neighbours[true] == one.details.codes).any(1)
    share = near.inside
    assert abs(inside.mean() - share) < 5 * math.sqrt(share * (1 - share) / 1000)
    with pytest.raises(ValueError, match="drawn already"):
        prepared.draw()


def test_parts_of_a_product_are_randomised_and_the_file_says_so(product, tmp_path):
    place = tmp_path / "codes.npy"
    prepared = prepare_codes(product, ROWS, PromptCodes(epsilon=3.0, near=2, releases=2), out=place)
    leaked, information, private = prepared.guarantees
    assert leaked.releases == 2
    assert private.epsilon == pytest.approx(6.0)
    assert leaked.nats <= 6.0
    assert information.nats == pytest.approx(leaked.nats, rel=1e-12)
    assert any(line.startswith("2 reports") for line in leaked.assumptions)
    released = prepared.draw()
    assert load(place).guarantees == released.guarantees
    content = released.to_dict()
    for near in (1, 3):
        details = {**content["details"], "promise": {**content["details"]["promise"], "near": near}}
        with pytest.raises(ValueError, match="another 'nats' of the guarantee MaximalLeakage"):
            load({**content, "details": details})
    # a part of one cell takes no share of ε
    single = ProductCodebook((product.parts[0], product.parts[1][:1]), 1000, 20)
    alone = ProductCodebook((product.parts[0],), 1000, 20)
    two, whole = (book.randomised(1.0).leakage().nats for book in (single, alone))
    assert two == whole
    reports = single.randomised(1.0).release(np.array([[3, 0], [1, 0]]))
    assert reports[:, 1].tolist() == [0, 0]


def test_the_ledger_counts_the_codes_before_the_file_is_written(plain, tmp_path):
    ledger = Ledger(tmp_path / "ledger.db")
    ledger.set_budget("prompts", mi_budget=5.0)
    spend = {"ledger": ledger, "secret": "prompts"}
    place = tmp_path / "codes.safetensors"
    released = prepare_codes(plain, ROWS, out=place).draw(**spend)
    assert ledger.spent("prompts").nats == pytest.approx(released.guarantees[0].nats)
    place.unlink()
    with pytest.raises(ValueError, match="budget"):
        prepare_codes(plain, ROWS, out=place).draw(**spend)
    assert not place.exists()


def test_a_full_disk_is_refused_before_codes_are_paid_for(plain, tmp_path):
    resource = pytest.importorskip("resource", reason="needs limits of POSIX")
    ledger, before = Ledger(tmp_path / "ledger.db"), resource.getrlimit(resource.RLIMIT_FSIZE)
    for name in ("codes.npy", "codes.parquet"):
        prepared = prepare_codes(plain, ROWS, out=tmp_path / name)
        resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, before[1]))
        try:
            with pytest.raises(ValueError, match=r"^--out: cannot write .* bytes in "):
                prepared.draw(ledger=ledger, secret="prompts")
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, before)
        assert not ledger.secrets()
    prepared.draw(ledger=ledger, secret="prompts")
    assert ledger.spent("prompts").releases == 1
    assert [one.name for one in tmp_path.iterdir() if "ledger" not in one.name] == ["codes.parquet"]


def test_bad_arguments_are_refused(plain, product, tmp_path):
    one = Codebook.fit(ROWS, CodebookFit(size=1), rng=0, progress=False)
    cells = ProductCodebook.fit(ROWS, ProductFit(parts=2, size=1), rng=0, progress=False)
    for name, call in (
        ("releases", lambda: prepare_codes(plain, ROWS, PromptCodes(releases=0))),
        ("epsilon", lambda: prepare_codes(plain, ROWS, PromptCodes(epsilon=-1.0))),
        ("epsilon", lambda: prepare_codes(product, ROWS, PromptCodes(epsilon=0.0))),
        ("epsilon", lambda: prepare_codes(one, ROWS, PromptCodes(epsilon=1.0))),
        ("epsilon", lambda: prepare_codes(cells, ROWS, PromptCodes(epsilon=1.0))),
        (
            "near",
            lambda: prepare_codes(product, ROWS, PromptCodes(epsilon=1.0, near=min(product.sizes))),
        ),
        ("near", lambda: prepare_codes(plain, ROWS, PromptCodes(near=2))),
        ("out", lambda: prepare_codes(plain, ROWS, out=tmp_path / "codes.csv")),
        ("out", lambda: prepare_codes(plain, ROWS, out=tmp_path / "no" / "codes.npy")),
        ("states", lambda: prepare_codes(plain, ROWS[:, :3])),
    ):
        with pytest.raises(ValueError, match=name):
            call()
    assert list(tmp_path.iterdir()) == []


MEMORY = """
import resource, sys
from tacit.hidden_states import ProductCodebook, prepare_codes
from tacit.releases import open_vectors
import numpy as np
book = ProductCodebook.load(sys.argv[1])
source = open_vectors("states", sys.argv[2])
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
prepare_codes(book, source, out=sys.argv[3]).draw()
print((resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) * 1024)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="the peak of memory is in kB on Linux alone")
def test_a_file_larger_than_the_memory_it_takes_is_encoded(tmp_path):
    """A file of 300 MB, with a hole where the rows are, in less than a third of its size."""
    rows, width = 100_000, 768
    source = np.random.default_rng(0).normal(size=(100, width)).astype(np.float32)
    book = ProductCodebook.fit(source, ProductFit(parts=1, size=4), rng=0, progress=False)
    book.save(tmp_path / "book.safetensors")
    path = tmp_path / "rows.npy"
    with path.open("wb") as stream:
        header = {"descr": "<f4", "fortran_order": False, "shape": (rows, width)}
        np.lib.format.write_array_header_1_0(stream, header)
        stream.truncate(stream.tell() + rows * width * 4)
    out = tmp_path / "codes.safetensors"
    done = subprocess.run(
        [sys.executable, "-c", MEMORY, tmp_path / "book.safetensors", path, out],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert int(done.stdout.split()[-1]) < rows * width * 4 / 3
    codes = load_file(out)["codes"]
    assert codes.shape == (rows, 1)
    assert (codes == book.assign(np.zeros((1, width), np.float32))[0]).all()
    assert Path(out).stat().st_size < 1.1 * rows


@pytest.mark.parametrize("epsilon", [None, 2.0])
def test_what_a_row_was_made_of_is_named_in_every_sentence(tmp_path, epsilon):
    rows = np.random.default_rng(1).standard_normal((200, 4), dtype=np.float32)
    codec = Codebook.fit(rows, CodebookFit(size=8), rng=0)
    promise = PromptCodes(unit="customer", epsilon=epsilon)
    release = prepare_codes(codec, rows, promise, out=tmp_path / "codes.npy").draw()
    assert all("prompt" not in one.describe() for one in release.guarantees)
    assert not any("prompt" in word for one in release.guarantees for word in one.assumptions)
    assert release.secret == "the customer of a row"
    # the file is worked out again with its word
    assert load(tmp_path / "codes.npy").guarantees == release.guarantees
    with pytest.raises(ValueError, match="unit: expected a word"):
        PromptCodes(unit="<b>")


def test_the_proof_of_reports_gives_a_part_of_one_cell_no_share():
    parts = (torch.zeros(1, 1), torch.arange(4.0)[:, None], torch.arange(4.0)[:, None])
    book = ProductCodebook(parts, calibration=9, least_cell=1)
    prepared = prepare_codes(book, np.zeros((2, 3), np.float32), PromptCodes(epsilon=3.0))
    found = proof(prepared.draw())
    assert found is not None
    reported = {"kind": "response", "categories": "4", "epsilon": "1.5"}
    assert found.mechanism == {
        "kind": "composition",
        "parts": [{"count": "2", "of": reported}],
    }


@pytest.mark.parametrize("epsilon", [0.07, 0.2, 3.999])
def test_shares_of_an_epsilon_add_up_in_the_decimals_of_a_file_too(epsilon, tmp_path):
    for count in range(1, 60):
        each = share(epsilon, [4] * count)
        assert Fraction(each) * count <= Fraction(epsilon)
        assert Fraction(repr(each)) * count <= Fraction(repr(epsilon))
        assert each >= epsilon / count * (1 - 2**-50)
    rows = ROWS[:60, :6]
    thirds = ProductCodebook.fit(rows, ProductFit(parts=3, size=4), rng=0, progress=False)
    # which the checker holds against what the file says before it is released
    prepare_codes(thirds, rows, PromptCodes(epsilon=epsilon), out=tmp_path / "codes.npy").draw()
