"""Product codes: cells of every part, what they decode to, files, and the layout of FAISS."""

import math

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from tacit.hidden_states import (  # noqa: E402
    Codebook,
    CodebookFit,
    ProductCodebook,
    ProductFit,
    VectorQuantizer,
    faiss_index,
    load_codec,
    packed_codes,
    quantize_embeddings,
)

ROWS = np.random.default_rng(0).normal(size=(2400, 12)).astype(np.float32)


@pytest.fixture(scope="module")
def book():
    return ProductCodebook.fit(ROWS, ProductFit(parts=3, size=40), rng=0, progress=False)


def test_every_part_is_coded_by_its_nearest_centroid(book):
    codes = book.assign(ROWS)
    rows = ROWS.astype(np.float64).reshape(len(ROWS), 3, 4)
    for part, centroids in enumerate(book.parts):
        distance = ((rows[:, part, None] - centroids.double().numpy()) ** 2).sum(2)
        chosen = distance[np.arange(len(ROWS)), codes[:, part]]
        assert (chosen <= distance.min(1) + 1e-5).all()
        assert (book.decode(codes)[:, 4 * part : 4 * part + 4] == centroids[codes[:, part]]).all()
    assert book.size == math.prod(book.sizes)
    assert all(size <= 40 for size in book.sizes)
    assert ((ROWS - book.decode(codes).numpy()) ** 2).sum() < 0.5 * (ROWS**2).sum()


def test_a_product_of_one_part_is_the_plain_codebook():
    product = ProductCodebook.fit(ROWS, ProductFit(parts=1, size=30), rng=3, progress=False)
    plain = Codebook.fit(ROWS, CodebookFit(size=30), rng=3, progress=False)
    assert (product.parts[0] == plain.codewords).all()
    assert (product.assign(ROWS)[:, 0] == plain.assign(ROWS)).all()


def test_a_product_survives_the_disk(book, tmp_path):
    again = load_codec(book.save(tmp_path / "book.safetensors"))
    assert isinstance(again, ProductCodebook)
    assert again.digest == book.digest
    assert all((one == two).all() for one, two in zip(again.parts, book.parts, strict=True))
    assert (again.calibration, again.least_cell) == (2400, 20)
    plain = Codebook.fit(ROWS, CodebookFit(size=8), rng=0, progress=False)
    assert load_codec(plain.save(tmp_path / "plain.safetensors")).digest == plain.digest
    with pytest.raises(ValueError, match="path"):
        ProductCodebook.load(tmp_path / "plain.safetensors")
    with pytest.raises(ValueError, match="path"):
        load_codec(tmp_path / "none")


def test_a_digest_is_of_all_that_assigns(book):
    moved = ProductCodebook(
        (book.parts[0] + 1e-6, *book.parts[1:]), book.calibration, book.least_cell
    )
    assert moved.digest != book.digest
    plain = Codebook.fit(ROWS, CodebookFit(size=8), rng=0, progress=False)
    from dataclasses import replace

    assert replace(plain, decision_cost=1.0).digest != plain.digest
    assert replace(plain, codewords=plain.codewords + 1e-6).digest != plain.digest
    assert replace(plain, calibration=3).digest == plain.digest


@pytest.mark.parametrize(("bits", "parts"), [(3, 5), (4, 3), (8, 2), (10, 3), (16, 2)])
def test_packed_codes_are_a_stream_of_bits_lowest_first(bits, parts):
    codes = np.random.default_rng(bits).integers(2**bits, size=(50, parts))
    packed = packed_codes(codes, bits)
    assert packed.shape == (50, -(-parts * bits // 8))
    for row, stored in zip(codes.tolist(), packed.tolist(), strict=True):
        whole = sum(code << (bits * place) for place, code in enumerate(row))
        assert int.from_bytes(bytes(stored), "little") == whole


@pytest.mark.parametrize(("parts", "size"), [(3, 16), (4, 90), (1, 64), (2, 7)])
def test_faiss_reads_centroids_and_codes(parts, size):
    faiss = pytest.importorskip("faiss")
    book = ProductCodebook.fit(ROWS, ProductFit(parts=parts, size=size), rng=0, progress=False)
    codes = book.assign(ROWS)
    index = faiss_index(book, codes)
    assert np.array_equal(index.reconstruct_n(0, len(ROWS)), book.decode(codes).numpy())
    stored = faiss.deserialize_index(faiss.serialize_index(index))
    assert np.array_equal(stored.reconstruct_n(0, 9), book.decode(codes[:9]).numpy())
    # FAISS assigns, packs and searches as the codebook does
    assert (index.sa_encode(ROWS) == packed_codes(codes, book.bits)).all()
    distance, found = stored.search(ROWS[:20], 1)
    decoded = book.decode(codes).numpy().astype(np.float64)
    exact = ((ROWS[:20, None].astype(np.float64) - decoded) ** 2).sum(2)
    assert distance[:, 0] == pytest.approx(exact.min(1), rel=1e-4)
    assert exact[np.arange(20), found[:, 0]] == pytest.approx(exact.min(1), rel=1e-4)


def test_faiss_holds_a_plain_codebook_too():
    pytest.importorskip("faiss")
    plain = Codebook.fit(ROWS, CodebookFit(size=20), rng=0, progress=False)
    codes = plain.assign(ROWS)
    index = faiss_index(plain, codes)
    assert np.array_equal(index.reconstruct_n(0, 50), plain.decode(codes[:50]).numpy())


def test_more_codes_than_an_integer_of_64_bits_are_certified():
    rows = np.random.default_rng(1).normal(size=(200, 24)).astype(np.float32)
    book = ProductCodebook.fit(
        rows, ProductFit(parts=24, size=9, least_cell=5), rng=0, progress=False
    )
    assert book.size > 2**63
    found = book.certify(book.assign(rows))
    assert found.occupied == 200
    assert found.success.success == 1.0
    assert found.information.nats == pytest.approx(math.log(200), rel=1e-12)
    few = book.compose(1, 10)
    assert (few.success.success, few.releases) == (1.0, 1)
    assert few.information.nats == pytest.approx(math.log(10), rel=1e-12)
    exact = sum(math.log(size) for size in book.sizes)
    assert exact * (1 - 1e-15) <= book.information().nats <= exact * (1 + 1e-13)


def test_embeddings_are_quantised_in_one_call(book):
    public, own = ROWS[200:], ROWS[:200]
    codes = quantize_embeddings(own, "PQ4x4", calibration_embeddings=public, rng=0)
    assert (codes.dtype, codes.shape) == (np.uint8, (200, 4))
    assert codes.max() < 16
    coder = VectorQuantizer(16, parts=4, random_state=0).fit(public)
    assert (coder.transform(own) == codes).all()
    assert (quantize_embeddings(own, codebook=book) == book.assign(own)).all()
    wide = quantize_embeddings(own, "PQ1x9", calibration_embeddings=public, rng=0)
    assert wide.shape == (200, 1)
    for options in ({}, {"codebook": book, "calibration_embeddings": public}):
        with pytest.raises(ValueError, match="exactly one"):
            quantize_embeddings(own, **options)
    for word in ("int8", "PQ", "PQ0x8", "PQ4x0", "PQ4x25", 8, None):
        with pytest.raises(ValueError, match="precision"):
            quantize_embeddings(own, word, calibration_embeddings=public)


def test_bad_input_is_refused(book):
    for name, call in (
        ("parts", lambda: ProductCodebook.fit(ROWS, ProductFit(parts=5, size=4))),
        ("parts", lambda: ProductCodebook.fit(ROWS, ProductFit(parts=0, size=4))),
        ("size", lambda: ProductCodebook.fit(ROWS, ProductFit(parts=3, size=0))),
        (
            "least_cell",
            lambda: ProductCodebook.fit(ROWS, ProductFit(parts=3, size=4, least_cell=0)),
        ),
        ("states", lambda: ProductCodebook.fit(ROWS[:9], ProductFit(parts=3, size=4))),
        ("states", lambda: ProductCodebook.fit(ROWS * np.nan, ProductFit(parts=3, size=4))),
        (
            "states: .*distances",
            lambda: ProductCodebook.fit(ROWS * 1e30, ProductFit(parts=3, size=4)),
        ),
        ("states", lambda: book.assign(ROWS[:, :5])),
        ("codes", lambda: book.decode([[0, 0]])),
        ("codes", lambda: book.decode([[0, 0, max(book.sizes)]])),
        ("codes", lambda: book.decode([[-1, 0, 0]])),
        ("codes", lambda: book.certify([[0, 0]])),
        ("candidates", lambda: book.compose(1, 1)),
        ("codes", lambda: packed_codes([[16]], 4)),
    ):
        with pytest.raises(ValueError, match=name):
            call()
