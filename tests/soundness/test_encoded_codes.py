"""Files of codes and products of codebooks: what is certified is at least what is told."""

import itertools
import math
from dataclasses import replace

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from tacit.guarantees import ApproximateDP, InformationBound, MaximalLeakage, SuccessBound  # noqa: E402
from tacit.hidden_states import (  # noqa: E402
    Codebook,
    CodebookFit,
    ProductCodebook,
    ProductFit,
    PromptCodes,
    ResidualCodebook,
    ResidualFit,
    calibration_membership,
    prepare_codes,
)

from .registry import certifies  # noqa: E402

ROWS = np.random.default_rng(0).normal(size=(400, 4)).astype(np.float32)


def mutual_information(joint):
    """I of a joint table, in nats, term by term."""
    rows, columns = joint.sum(1), joint.sum(0)
    return math.fsum(
        p * math.log(p / (rows[i] * columns[j]))
        for i, row in enumerate(joint.tolist())
        for j, p in enumerate(row)
        if p > 0
    )


@certifies(InformationBound, MaximalLeakage)
@pytest.mark.parametrize("releases", [1, 2])
@pytest.mark.parametrize("parts", [1, 2])
def test_a_uniform_choice_of_all_codes_attains_the_nats_of_a_store(parts, releases):
    """The secret names T vectors, one of every cell: their codes tell it whole, and no more."""
    book = ProductCodebook.fit(ROWS, ProductFit(parts=parts, size=3), rng=0, progress=False)
    every = np.array(list(itertools.product(*(range(size) for size in book.sizes))))
    vectors = book.decode(every)
    secrets = list(itertools.product(range(len(vectors)), repeat=releases))
    told = {}
    for place, secret in enumerate(secrets):
        codes = (
            prepare_codes(book, vectors[list(secret)], PromptCodes(releases=releases))
            .draw()
            .details.codes
        )
        told.setdefault(codes.tobytes(), []).append(place)
    joint = np.zeros((len(secrets), len(told)))
    for column, places in enumerate(told.values()):
        joint[places, column] = 1 / len(secrets)
    nats = mutual_information(joint)
    leaked, held = prepare_codes(book, vectors, PromptCodes(releases=releases)).guarantees
    assert isinstance(leaked, MaximalLeakage)
    # the best guess of the secret from the codes is right always, and (1/Π C_j)^T blind
    assert leaked.factor == len(secrets)
    assert nats <= held.nats * (1 + 1e-15)
    assert held.nats <= nats + 1e-12
    assert book.information(releases).nats == held.nats
    assert math.log(len(secrets)) <= held.nats


@certifies(SuccessBound, InformationBound)
@pytest.mark.parametrize("seed", range(8))
def test_products_tell_no_more_of_a_bank_than_certified(seed):
    source = np.random.default_rng(seed)
    book = ProductCodebook.fit(
        ROWS, ProductFit(parts=2, size=4, least_cell=5), rng=seed, progress=False
    )
    bank = source.normal(size=(int(source.integers(3, 12)), 4)).astype(np.float32)
    weights = None if seed % 2 else source.dirichlet(np.ones(len(bank)))
    masses = np.full(len(bank), 1 / len(bank)) if weights is None else weights
    codes = book.assign(bank)
    columns = {code: place for place, code in enumerate(sorted({tuple(c) for c in codes.tolist()}))}
    joint = np.zeros((len(bank), len(columns)))
    for row, code in enumerate(codes.tolist()):
        joint[row, columns[tuple(code)]] = masses[row]
    for certificate in (
        book.certify(codes, weights=weights),
        book.compose(1, len(bank), weights=weights),
    ):
        assert certificate.success.success >= joint.max(0).sum() - 1e-15
        assert certificate.information.nats >= mutual_information(joint) - 1e-15
    exact = book.certify(codes, weights=weights)
    assert exact.success.success <= joint.max(0).sum() * (1 + 1e-12)


@certifies(InformationBound, ApproximateDP, MaximalLeakage)
@pytest.mark.parametrize("epsilon", [0.1, 1.0, 6.0])
@pytest.mark.parametrize("releases", [1, 2])
@pytest.mark.parametrize("parts", [1, 2, "stages"])
def test_randomised_stores_tell_no_more_than_certified(epsilon, releases, parts):
    """The channel of the reports, worked out from its weights, for the worst law of the codes."""
    if parts == "stages":
        parts, how = 2, ResidualFit(stages=2, size=4)
        book = ResidualCodebook.fit(ROWS, how, rng=0, progress=False)
        tables = book.randomised(epsilon, near=2).neighbours
    elif parts == 1:
        book = Codebook.fit(ROWS, CodebookFit(size=6), rng=0, progress=False)
        tables = [book.randomised(epsilon, near=2).neighbours]
    else:
        book = ProductCodebook.fit(ROWS, ProductFit(parts=parts, size=4), rng=0, progress=False)
        tables = book.randomised(epsilon, near=2).neighbours
    prepared = prepare_codes(book, ROWS, PromptCodes(epsilon=epsilon, near=2, releases=releases))
    one = np.ones((1, 1))
    for table in tables:
        weights = np.ones((len(table), len(table)))
        np.put_along_axis(weights, table, math.exp(epsilon / parts), axis=1)
        one = np.kron(one, weights / weights.sum(1, keepdims=True))
    assert one.shape == (book.size, book.size)
    channel = one
    if releases == 2:
        channel = np.einsum("xi,xj->xij", one, one).reshape(book.size, -1)
    leaked, information, private = prepared.guarantees
    factor = channel.max(axis=0).sum()
    assert factor <= leaked.factor * (1 + 1e-14)
    if releases == 1:
        assert leaked.factor <= factor * (1 + 1e-9)
    for law in (np.ones(book.size), np.random.default_rng(1).dirichlet(np.ones(book.size))):
        joint = channel * (law / law.sum())[:, None]
        assert mutual_information(joint) <= information.nats
    losses = np.log(channel[:, None] / channel[None])
    assert losses.max() <= private.epsilon * (1 + 1e-12)
    assert losses.max() >= private.epsilon * (1 - 1e-9)


@certifies(InformationBound, MaximalLeakage)
@pytest.mark.parametrize("least", [1, 20])
def test_sums_of_stages_attain_the_bits_that_are_kept(least):
    """The secret is one of the sums: its code names it, and the bits kept are all that it tells.

    Cells of few vectors are no part of the count: fewer bits are certified than were asked for.
    """
    how = ResidualFit(stages=2, size=30, least_cell=least)
    book = ResidualCodebook.fit(ROWS, how, rng=0, progress=False)
    book = replace(book, beam=max(book.sizes))
    every = np.array(list(itertools.product(*(range(size) for size in book.sizes))))
    vectors = book.decode(every)
    codes = book.encode(vectors)
    told = len({tuple(code) for code in codes.tolist()})
    # a bank of which each vector has its own code is named always
    assert told == len({tuple(code) for code in every.tolist()}) == book.size
    found = book.certify(codes)
    assert found.success.success == 1.0
    assert math.log(told) <= found.leakage.nats <= math.log(told) * (1 + 1e-12)
    assert math.log2(told) <= book.kept_bits <= math.log2(told) * (1 + 1e-12)
    if least > 1:
        assert book.kept_bits < 2 * math.log2(30)
    leaked, held = prepare_codes(book, vectors).guarantees
    assert leaked.factor >= told
    assert held.nats >= math.log(told)


@certifies(SuccessBound, InformationBound)
@pytest.mark.parametrize("seed", range(6))
def test_sums_tell_no_more_of_a_bank_than_certified(seed):
    source = np.random.default_rng(seed)
    how = ResidualFit(stages=3, size=6, least_cell=5)
    book = ResidualCodebook.fit(ROWS, how, rng=seed, progress=False)
    bank = source.normal(size=(int(source.integers(3, 12)), 4)).astype(np.float32)
    weights = None if seed % 2 else source.dirichlet(np.ones(len(bank)))
    masses = np.full(len(bank), 1 / len(bank)) if weights is None else weights
    codes = book.encode(bank)
    columns = {code: place for place, code in enumerate(sorted({tuple(c) for c in codes.tolist()}))}
    joint = np.zeros((len(bank), len(columns)))
    for row, code in enumerate(codes.tolist()):
        joint[row, columns[tuple(code)]] = masses[row]
    for certificate in (
        book.certify(codes, weights=weights),
        book.compose(1, len(bank), weights=weights),
    ):
        assert certificate.success.success >= joint.max(0).sum() - 1e-15
        assert certificate.information.nats >= mutual_information(joint) - 1e-15


def test_reports_of_a_product_have_the_law_of_its_channel():
    """Every report of one code counted: within five standard errors, with a wrong law far off."""
    book = ProductCodebook.fit(ROWS, ProductFit(parts=2, size=3), rng=0, progress=False)
    mechanism = book.randomised(2.0)
    true = np.array([[1, 2]])
    draws = 40_000
    reports = mechanism.release(np.repeat(true, draws, axis=0), rng=0)
    counts = np.zeros(book.sizes)
    np.add.at(counts, tuple(reports.T), 1)
    parts = [np.where(np.arange(3) == code, math.e, 1.0) for code in true[0]]
    law = np.outer(*(part / part.sum() for part in parts))
    errors = np.sqrt(law * (1 - law) / draws)
    assert (np.abs(counts / draws - law) < 5 * errors).all()
    whole = np.where(law == law.max(), math.exp(2.0), 1.0)
    assert (np.abs(counts / draws - whole / whole.sum()) > 5 * errors).any()


def test_the_file_of_a_codebook_hardly_knows_its_calibration_prompts():
    """Evidence, not a guarantee: averages of 20 tell members from others by little, states by all.

    The mean of k rows is nearer to each of them than to a fresh row by the factor (k−1)/(k+1) of
    the squared distance, so that the areas under the curves are in this order.
    """
    rows = np.random.default_rng(1).normal(size=(4000, 16)).astype(np.float32)
    fitted, fresh = rows[:2000], rows[2000:]
    areas, copies = {}, {}
    for least in (1, 20, 100):
        book = Codebook.fit(fitted, CodebookFit(size=1500, least_cell=least), rng=0, progress=False)
        found = calibration_membership(book, fitted, fresh, rng=0)
        areas[least], copies[least] = found.roc, found.exact
        assert found.fresh_exact == 0
    assert copies[1] > 100
    assert copies[20] == copies[100] == 0
    assert areas[1].auc_interval[0] > 0.95
    assert areas[20].auc_interval[1] < 0.75
    assert areas[100].auc < areas[20].auc < areas[1].auc
    alone = calibration_membership(book, fresh[:1000], fresh[1000:], rng=0)
    assert alone.roc.auc_interval[0] < 0.5 < alone.roc.auc_interval[1]
    product = ProductCodebook.fit(fitted, ProductFit(parts=4, size=256), rng=0, progress=False)
    assert calibration_membership(product, fitted, fresh, rng=0).exact == 0
