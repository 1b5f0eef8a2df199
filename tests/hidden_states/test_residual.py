"""Residual codes: what a search finds, what is kept of what was asked, files, FAISS, bad input."""

import dataclasses
import itertools
import math

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from tacit.hidden_states import (  # noqa: E402
    Codebook,
    CodebookFit,
    ProductCodebook,
    ProductFit,
    ResidualCodebook,
    ResidualFit,
    VectorFit,
    VectorQuantizer,
    calibration_membership,
    faiss_index,
    fit_vectors,
    load_codec,
    prepare_codes,
    quantize_embeddings,
)
from tacit.hidden_states.codebooks.beam import Stages, nearest_sums  # noqa: E402
from tacit.releases import open_vectors  # noqa: E402

SPREAD = np.linspace(1.0, 0.1, 12).astype(np.float32)
ROWS = np.random.default_rng(0).normal(size=(2400, 12)).astype(np.float32) * SPREAD + 5.0


def error(book, rows=ROWS):
    return float(((rows - book.decode(book.encode(rows)).double().numpy()) ** 2).sum())


@pytest.fixture(scope="module")
def book():
    return ResidualCodebook.fit(ROWS, ResidualFit(stages=3, size=40), rng=0, progress=False)


@pytest.fixture(scope="module")
def narrow():
    """Vectors of 300 numbers that lie near 6 directions, so that those alone are coded."""
    source = np.random.default_rng(1)
    rows = source.normal(size=(2000, 6)) @ source.normal(size=(6, 300))
    rows = (rows + 1e-3 * source.normal(size=rows.shape)).astype(np.float32)
    how = ResidualFit(stages=2, size=16)
    return rows, ResidualCodebook.fit(rows, how, rng=0, progress=False)


@pytest.mark.parametrize("sizes", [(3, 4, 2), (1, 5, 1), (7,), (2, 2, 2, 2)])
def test_a_wide_search_finds_the_nearest_of_all_sums(sizes):
    """Every sum formed in float64 and compared: a beam of all of them misses none."""
    source = np.random.default_rng(len(sizes))
    tables = tuple(source.normal(size=(size, 5)).astype(np.float32) for size in sizes)
    rows = source.normal(size=(300, 5)).astype(np.float32)
    every = list(itertools.product(*(range(size) for size in sizes)))
    sums = np.array(
        [sum(t[c].astype(float) for t, c in zip(tables, code, strict=True)) for code in every]
    )
    distance = ((rows[:, None].astype(float) - sums) ** 2).sum(2)
    found = nearest_sums(rows, Stages(tables), math.prod(sizes))
    places = [every.index(tuple(code)) for code in found.tolist()]
    assert distance[np.arange(300), places] == pytest.approx(distance.min(1), abs=1e-5)
    # a beam of one takes the best of each stage on what is left
    left, greedy = rows.astype(float), nearest_sums(rows, Stages(tables), 1)
    for stage, table in enumerate(tables):
        gap = ((left[:, None] - table) ** 2).sum(2)
        own = gap[np.arange(300), greedy[:, stage]]
        assert own == pytest.approx(gap.min(1), abs=1e-5)
        left -= table[greedy[:, stage]]


def test_stages_and_wider_searches_come_nearer(book):
    errors = [error(dataclasses.replace(book, beam=beam)) for beam in (1, 4, 32)]
    assert errors[2] < errors[1] < errors[0]
    fewer = dataclasses.replace(book, stages=book.stages[:2])
    assert error(book) < 0.8 * error(fewer)
    product = ProductCodebook.fit(ROWS, ProductFit(parts=3, size=40), rng=0, progress=False)
    assert book.size <= 40**3
    assert error(book) < error(product)
    assert (book.decode(book.encode(ROWS)).numpy().mean(0) - 5.0 < 0.1).all()


@pytest.mark.parametrize("least", [1, 20, 90])
def test_every_codeword_is_a_mean_over_enough_vectors(least, monkeypatch):
    """Cells of the fit, caught as they are averaged: counted and averaged again in float64."""
    from tacit.hidden_states.codebooks import residual

    last = []
    means = residual._means
    monkeypatch.setattr(residual, "_means", lambda *given: last.append(given) or means(*given))
    owners = np.repeat(np.arange(600), 4)
    source = np.random.default_rng(0)
    # rows of one vector lie near each other: many rows are few vectors
    rows = (ROWS[owners] + 0.1 * source.normal(size=(2400, 12))).astype(np.float32)
    found = residual.fit_codewords(rows, owners, 50, least, source)
    given, cells, _ = last[-1]
    assert given is rows
    assert set(cells.tolist()) == set(range(len(found)))
    for cell, codeword in enumerate(found):
        inside = cells == cell
        assert len(set(owners[inside].tolist())) >= least
        assert codeword == pytest.approx(rows[inside].astype(float).mean(0), abs=1e-5)
    assert len(found) > (4 if least == 90 else 20)


def test_more_codewords_than_vectors_allow_are_removed():
    few = ResidualCodebook.fit(ROWS, ResidualFit(stages=2, size=1000), rng=0, progress=False)
    assert few.sizes[0] <= 2400 // 20
    assert few.asked == 1000
    assert few.kept_bits < 2 * math.log2(1000)
    alone = ResidualFit(stages=2, size=9, least_cell=2400)
    assert ResidualCodebook.fit(ROWS, alone, rng=0, progress=False).sizes[0] == 1


def test_bits_asked_and_bits_kept_are_both_said(book):
    exact = sum(math.log2(size) for size in book.sizes)
    assert exact * (1 - 1e-15) <= book.kept_bits <= exact * (1 + 1e-14)
    assert book.leakage().nats == pytest.approx(exact * math.log(2), rel=1e-12)
    eight = dataclasses.replace(book, stages=tuple(torch.randn(8, 12) for _ in range(3)))
    assert eight.kept_bits == 9.0
    asked = dataclasses.replace(
        eight,
        stages=tuple(torch.randn(size, 12) for size in (256, 80, 70, 60)),
        asked=256,
    )
    # log2(256 · 80 · 70 · 60) = 26.357…, rounded up
    assert "26.36 bits of the 32 asked for" in asked.words
    assert "256, 80, 70, 60" not in repr(asked)


def test_directions_that_bits_cannot_reach_are_left_out(narrow):
    rows, book = narrow
    assert book.basis is not None
    assert 6 <= book.basis.shape[0] < 20
    basis = book.basis.double().numpy()
    assert basis @ basis.T == pytest.approx(np.eye(len(basis)), abs=1e-5)
    assert book.width == 300
    # the search of coordinates is the search of vectors
    sums = [table.double().numpy() for table in book.centroids]
    every = (sums[0][:, None] + sums[1][None]).reshape(-1, 300)
    distance = ((rows[:200, None].astype(float) - every) ** 2).sum(2)
    own = ((rows[:200] - book.decode(book.encode(rows[:200])).numpy()) ** 2).sum(1)
    assert np.mean(own <= distance.min(1) * (1 + 1e-3)) > 0.9
    decoded = book.decode([[1, 2]]).numpy()[0]
    assert decoded == pytest.approx(sums[0][1] + sums[1][2], abs=1e-4)


@pytest.mark.parametrize("unit", [1e-30, 1e-12, 1.0, 1e12, 1e30])
def test_codes_do_not_depend_on_the_unit(unit):
    how = ResidualFit(stages=2, size=12)
    plain = ResidualCodebook.fit(ROWS, how, rng=0, progress=False)
    rows = ROWS * np.float32(unit)
    book = ResidualCodebook.fit(rows, how, rng=0, progress=False)
    # the same cells but for vectors between two of them, which rounding decides
    assert error(book, rows.astype(float)) / unit**2 == pytest.approx(error(plain), rel=0.05)


def test_a_code_is_one_vector_however_many_are_decoded_at_once():
    # 192 directions of 512, of which a product of one row has other last bits than one of many
    source = np.random.default_rng(0)
    book = ResidualCodebook(
        stages=tuple(torch.from_numpy(source.normal(size=(4, 192)).astype("f4")) for _ in "ab"),
        mean=torch.from_numpy(source.normal(size=(1, 512)).astype("f4")),
        basis=torch.from_numpy(np.linalg.qr(source.normal(size=(512, 192)))[0].T.astype("f4")),
        beam=1, asked=4, calibration=9, least_cell=1,
    )  # fmt: skip
    codes = np.array(list(itertools.product(range(4), repeat=2)))
    whole = book.decode(codes).numpy()
    for together in (1, 3, 15):
        parts = [book.decode(codes[at : at + together]).numpy() for at in range(0, 16, together)]
        assert np.concatenate(parts).tobytes() == whole.tobytes()
    # what stands for a code, in float64
    sums = sum(table.double()[codes[:, at]] for at, table in enumerate(book.stages))
    exact = (sums @ book.basis.double() + book.mean.double()).numpy()
    assert np.abs(whole - exact).max() < 1e-6 * np.abs(exact).max()


def test_a_far_mean_costs_nothing():
    rows = ROWS - 5.0
    how = ResidualFit(stages=3, size=40)
    near = ResidualCodebook.fit(rows, how, rng=0, progress=False)
    far = ResidualCodebook.fit(rows + np.float32(1000.0), how, rng=0, progress=False)
    assert error(far, rows + np.float32(1000.0)) == pytest.approx(error(near, rows), rel=0.05)


def test_it_survives_the_disk(book, narrow, tmp_path):
    for one in (book, narrow[1]):
        again = load_codec(one.save(tmp_path / "book.safetensors"))
        assert isinstance(again, ResidualCodebook)
        assert (again.digest, again.beam, again.asked) == (one.digest, one.beam, one.asked)
        rows = np.random.default_rng(2).normal(size=(50, one.width)).astype(np.float32)
        assert (again.encode(rows) == one.encode(rows)).all()
    moved = dataclasses.replace(book, stages=(book.stages[0] + 1e-6, *book.stages[1:]))
    assert moved.digest != book.digest
    assert dataclasses.replace(book, beam=5).digest != book.digest
    assert dataclasses.replace(book, calibration=3).digest == book.digest
    with pytest.raises(ValueError, match="path"):
        ProductCodebook.load(tmp_path / "book.safetensors")


def test_blocks_of_a_file_have_the_codes_of_the_whole(book, tmp_path, monkeypatch):
    from tacit.hidden_states.codebooks import residual
    from tacit.releases import vectors

    monkeypatch.setattr(residual, "ROWS_TOGETHER", 700)
    monkeypatch.setattr(vectors, "NUMBERS_TOGETHER", 12 * 500, raising=False)
    np.save(tmp_path / "own.npy", ROWS)
    release = prepare_codes(book, open_vectors("states", tmp_path / "own.npy")).draw()
    assert (release.details.codes == book.encode(ROWS)).mean() > 0.9999
    assert release.details.sizes == book.sizes
    assert "bits" in release.method


def test_every_row_has_a_code_whatever_stands_in_it(book):
    rows = ROWS[:9].astype(np.float64)
    for place, value in enumerate((np.nan, np.inf, -np.inf, 1e300, 1e-300, -1e38, 0.0)):
        rows[place] = value
    codes = prepare_codes(book, rows).draw().details.codes
    assert (codes < np.array(book.sizes)).all()
    assert (codes[7:] == book.encode(ROWS[7:9])).all()


@pytest.mark.parametrize(
    ("rows", "sizes"),
    [
        (np.ones((50, 3)), (1, 1)),
        (np.repeat([[0.0, 1.0], [1.0, 0.0]], 30, axis=0), (2, 1)),
        (np.ones((1, 4)), (1, 1)),
        (np.zeros((5, 1)), (1, 1)),
    ],
)
def test_rows_that_are_alike_have_few_codewords(rows, sizes):
    how = ResidualFit(stages=2, size=min(2, len(rows)), least_cell=min(20, len(rows)))
    book = ResidualCodebook.fit(rows, how, rng=0, progress=False)
    assert book.sizes == sizes
    assert book.decode(book.encode(rows)).numpy() == pytest.approx(rows, abs=1e-6)


def test_no_stage_makes_the_error_larger():
    """Vectors of nine values: what a far sum leaves of them is of no use to a near one."""
    values = np.random.default_rng(5).normal(size=(9, 6))
    rows = values[np.random.default_rng(6).integers(9, size=900)]
    book = ResidualCodebook.fit(rows, ResidualFit(stages=6, size=5), rng=0, progress=False)
    fewer = [dataclasses.replace(book, stages=book.stages[:count]) for count in range(1, 7)]
    errors = [error(one, rows) for one in fewer]
    assert all(after <= before * (1 + 1e-5) for before, after in itertools.pairwise(errors))
    assert errors[-1] < 0.1 * errors[0]


def test_a_single_column_is_coded():
    rows = np.random.default_rng(3).normal(size=(800, 1))
    book = ResidualCodebook.fit(rows, ResidualFit(stages=3, size=6), rng=0, progress=False)
    assert error(book, rows) < 0.01 * float((rows**2).sum())


def test_faiss_reads_codewords_and_codes(book, narrow):
    faiss = pytest.importorskip("faiss")
    for rows, one in ((ROWS, book), narrow):
        codes = one.encode(rows)
        index = faiss_index(one, codes)
        scale = float(np.abs(rows).max())
        held = index.reconstruct_n(0, len(rows))
        assert np.allclose(held, one.decode(codes).numpy(), rtol=0.0, atol=1e-5 * scale)
        stored = faiss.deserialize_index(faiss.serialize_index(index))
        distance, found = stored.search(rows[:20], 1)
        exact = ((rows[:20, None].astype(float) - held.astype(float)) ** 2).sum(2)
        assert distance[:, 0] == pytest.approx(exact.min(1), rel=1e-3, abs=1e-3)
        assert exact[np.arange(20), found[:, 0]] == pytest.approx(exact.min(1), rel=1e-3, abs=1e-3)


def test_the_file_hardly_knows_its_calibration_vectors():
    rows = np.random.default_rng(4).normal(size=(2000, 8)).astype(np.float32)
    book = ResidualCodebook.fit(rows[:1000], ResidualFit(stages=2), rng=0, progress=False)
    found = calibration_membership(book, rows[:1000], rows[1000:], rng=0)
    assert found.exact == found.fresh_exact == 0
    assert found.roc.auc < 0.75


def test_one_function_fits_all_kinds():
    kinds = {
        VectorFit(size=8): Codebook,
        VectorFit(size=8, parts=3): ProductCodebook,
        VectorFit(size=8, stages=3): ResidualCodebook,
    }
    for how, kind in kinds.items():
        book = fit_vectors(ROWS, how, rng=1, progress=False)
        assert type(book) is kind
        coder = VectorQuantizer(8, parts=how.parts, stages=how.stages, random_state=1).fit(ROWS)
        assert coder.codebook_.digest == book.digest
        again = VectorQuantizer.from_codebook(book)
        assert (again.parts, again.stages) == (how.parts, how.stages)
        assert (again.transform(ROWS) == book.encode(ROWS)).all()
    plain = Codebook.fit(ROWS, CodebookFit(size=8), rng=1, progress=False)
    assert fit_vectors(ROWS, VectorFit(size=8), rng=1, progress=False).digest == plain.digest
    codes = quantize_embeddings(ROWS[:9], "RQ2x4", calibration_embeddings=ROWS[9:], rng=0)
    assert codes.shape == (9, 2)
    assert codes.max() < 16


def test_bad_input_is_refused(book):
    fit = ResidualCodebook.fit
    for name, call in (
        ("stages", lambda: ResidualFit(stages=0)),
        ("beam", lambda: ResidualFit(stages=2, beam=0)),
        ("beam", lambda: ResidualFit(stages=2, beam=257)),
        ("stages", lambda: VectorFit(parts=2, stages=2)),
        ("size", lambda: fit(ROWS[:30], ResidualFit(stages=2, size=31))),
        ("states", lambda: fit(ROWS[:9], ResidualFit(stages=3, size=4))),
        ("states", lambda: fit(ROWS * np.nan, ResidualFit(stages=3, size=4))),
        ("states", lambda: fit(ROWS[:, 0], ResidualFit(stages=3, size=4))),
        ("states", lambda: fit([["a"]], ResidualFit(stages=3, size=4))),
        (
            "states: .*differences",
            lambda: fit(np.float32([[3e38], *[[-3e38]] * 50]), ResidualFit(stages=2, size=4)),
        ),
        ("states", lambda: book.encode(ROWS[:, :5])),
        ("codes", lambda: book.decode([[0, 0]])),
        ("codes", lambda: book.decode([[0, 0, max(book.sizes)]])),
        ("codes", lambda: book.certify([[-1, 0, 0]])),
        ("near", lambda: book.randomised(1.0, near=40)),
        ("epsilon", lambda: book.randomised(0.0)),
        ("stage 0", lambda: dataclasses.replace(book, asked=3)),
        ("stage 1", lambda: dataclasses.replace(book, stages=(book.stages[0], torch.ones(2, 5)))),
        ("stages", lambda: dataclasses.replace(book, stages=())),
        ("mean", lambda: dataclasses.replace(book, mean=torch.full((1, 12), np.nan))),
        ("stage 0", lambda: dataclasses.replace(book, basis=torch.ones(3, 12))),
    ):
        with pytest.raises(ValueError, match=name):
            call()
