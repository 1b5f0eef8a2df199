"""The quantiser keeps scikit-learn's conventions, which scikit-learn itself checks."""

import warnings

import numpy as np
import pytest

pytest.importorskip("torch")

from tacit.hidden_states import Codebook, CodebookFit, PromptCodes, VectorQuantizer
from tests.hidden_states.prompts import prompts

ROWS = np.random.default_rng(0).normal(size=(600, 8)).astype(np.float32)


def test_scikit_learn_finds_an_estimator():
    checks = pytest.importorskip("sklearn.utils.estimator_checks")
    with warnings.catch_warnings():
        # it need not inherit from scikit-learn, which need not be installed
        warnings.simplefilter("ignore")
        found = checks.check_estimator(
            VectorQuantizer(4, least_cell=1, random_state=0), on_fail=None, on_skip=None
        )
    failed = {one["check_name"]: one["exception"] for one in found if one["status"] == "failed"}
    assert failed == {}
    assert len(found) > 30


def test_a_clone_has_the_parameters_and_nothing_fitted():
    base = pytest.importorskip("sklearn.base")
    fitted = VectorQuantizer(16, parts=2, random_state=3).fit(ROWS)
    again = base.clone(fitted)
    assert again.get_params() == fitted.get_params()
    with pytest.raises(ValueError, match="not fitted"):
        again.transform(ROWS)
    assert (again.fit(ROWS).transform(ROWS) == fitted.transform(ROWS)).all()
    pipeline = pytest.importorskip("sklearn.pipeline").make_pipeline(again)
    assert (pipeline.fit_transform(ROWS) == fitted.transform(ROWS)).all()


def test_codes_come_back_as_the_vectors_that_stand_for_them():
    coder = VectorQuantizer(12, parts=4, random_state=0).fit(ROWS)
    codes = coder.transform(ROWS)
    assert (coder.inverse_transform(codes) == coder.codebook_.decode(codes).numpy()).all()
    certificate = coder.certify(ROWS)
    distinct = len({tuple(row) for row in codes.tolist()})
    assert certificate.success.success == pytest.approx(distinct / 600, rel=1e-12)
    released = coder.encode(ROWS, PromptCodes(releases=2))
    assert (released.details.codes == codes).all()
    assert released.guarantees[0].nats == pytest.approx(
        2 * np.log([float(size) for size in coder.codebook_.sizes]).sum(), rel=1e-12
    )
    assert repr(coder) == (
        "VectorQuantizer(size=12, parts=4, stages=1, least_cell=20, beam=4, random_state=0)"
    )


def test_a_codebook_of_states_is_a_quantiser_too(tmp_path):
    states, _, logits = prompts()
    book = Codebook.fit(states, CodebookFit(size=8), rng=0)
    coder = VectorQuantizer.from_codebook(book)
    assert (coder.transform(states)[:, 0] == book.assign(states)).all()
    codes = coder.transform(states)
    assert (coder.inverse_transform(codes) == book.decode(codes[:, 0]).numpy()).all()
    path = book.save(tmp_path / "book.safetensors")
    assert (VectorQuantizer.from_codebook(path).transform(states) == codes).all()
    of_behaviour = Codebook.fit(
        states, CodebookFit(size=8, metric="behaviour"), behaviours=logits, rng=0
    )
    with pytest.raises(ValueError, match="give prompts"):
        VectorQuantizer.from_codebook(of_behaviour).transform(states)


@pytest.mark.parametrize(
    ("bad", "words"),
    [
        ([[1.0, np.nan]], "NaN"),
        ([1.0, 2.0], "shape"),
        ([["a", "b"]], "numbers"),
        ([[1e300, 1.0]], "finite"),
        (np.zeros((0, 8)), "0 sample"),
        (np.zeros((3, 5)), "5 features"),
    ],
)
def test_bad_vectors_are_refused(bad, words):
    coder = VectorQuantizer(4, random_state=0).fit(ROWS)
    with pytest.raises(ValueError, match=words):
        coder.transform(bad)
    with pytest.raises(ValueError, match="wrong"):
        coder.set_params(wrong=3)
