"""Every number that a codebook publishes is an average of enough calibration prompts."""

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from tacit.hidden_states import Codebook, CodebookFit  # noqa: E402
from tacit.hidden_states.codebooks.clustering import (  # noqa: E402
    nearest,
    without_small,
)
from tacit.hidden_states.codebooks.fitting import CalibrationSet, fit_cells  # noqa: E402
from tests.hidden_states.prompts import fitted, prompts  # noqa: E402

LEAST = 20


def test_small_cells_go_to_the_best_that_is_left():
    rows = torch.tensor([[0.0], [0.1], [0.2], [5.0], [5.1], [5.3], [1.9]])
    centres = torch.tensor([[0.1], [5.1], [2.0], [9.0]])
    cells = nearest(rows, centres)[0]
    assert cells.tolist() == [0, 0, 0, 1, 1, 1, 2]

    def closest(part, left):
        return nearest(rows[part], centres[left])[0]

    found, kept = without_small(cells, 4, 2, closest)
    assert kept.tolist() == [0, 1]
    assert found.tolist() == [0, 0, 0, 1, 1, 1, 0]
    everything, last = without_small(cells, 4, 7, closest)
    assert len(last) == 1
    assert everything.tolist() == [0] * 7
    untouched, all_of = without_small(cells, 4, 1, closest)
    assert all_of.tolist() == [0, 1, 2]
    assert (untouched == cells).all()


@pytest.mark.parametrize("metric", ["euclidean", "fisher", "behaviour"])
def test_what_is_published_is_the_mean_of_a_cell_of_at_least_twenty(metric):
    """The means of the cells, in float64 from the cells of the fit, are the codewords."""
    states, _, logits = prompts()
    options = {"fisher": np.ones(12)} if metric == "fisher" else {}
    how = CodebookFit(size=100, metric=metric, least_cell=LEAST, rounds=3)
    public = CalibrationSet.checked(states, how, logits, options.get("fisher"), None)
    found = fit_cells(public, np.random.default_rng(0), [].append)
    counts = np.bincount(found.cells.numpy(), minlength=len(found.codewords))
    assert counts.min() >= LEAST
    assert 10 < len(counts) < 100
    clean = torch.softmax(logits.double(), 1)
    for code in range(len(counts)):
        inside = found.cells == code
        gap = states[inside].double().mean(0) - found.codewords[code].double()
        assert float(gap.abs().max()) < 1e-5
        row = clean[inside].mean(0) - found.table[code].double().exp()
        assert float(row.abs().max()) < 1e-5
        if found.centres is not None:
            assert (found.centres[code] - found.codewords[code]).abs().max() < 1e-4
    book = fitted(states, size=100, metric=metric, behaviours=logits, rounds=3, rng=0, **options)
    assert book.size == len(counts)
    assert book.least_cell == LEAST
    assert (book.codewords == found.codewords).all()


def test_without_a_least_cell_single_states_are_published():
    states, _, logits = prompts()
    rows = {row.tobytes() for row in states.numpy()}

    def copied(book):
        return sum(word.tobytes() in rows for word in book.codewords.numpy())

    assert copied(Codebook.fit(states, CodebookFit(size=300, least_cell=1), rng=0)) > 0
    assert copied(Codebook.fit(states, CodebookFit(size=300), rng=0)) == 0
    medoids = Codebook.fit(states, CodebookFit(size=30, codewords="medoid"), rng=0)
    assert copied(medoids) == medoids.size
    rare = Codebook.fit(states, CodebookFit(metric="argmax"), behaviours=logits, rng=0)
    counts = torch.bincount(logits.argmax(1), minlength=40)
    assert 0 < int((counts < LEAST).sum()) < 40
    overall = states.mean(0)
    for token, count in enumerate(counts.tolist()):
        shared = (rare.codewords[token] - overall).abs().max() < 1e-5
        assert bool(shared) == (count < LEAST)
    assert (rare.table.argmax(1) == torch.arange(40)).all()


def test_codewords_are_trained_through_cells_of_enough_prompts_only():
    states, upper, logits = prompts(600)
    options = {"size": 12, "metric": "behaviour", "behaviours": logits, "rng": 0}
    plain = fitted(states, **options)
    few = upper.select(torch.arange(60))
    trained = fitted(states, codewords="trained", continuation=few, epochs=3, **options)
    cells = plain.assign(behaviours=logits[:60])
    moved = (trained.codewords != plain.codewords).any(1).numpy()
    counts = np.bincount(cells, minlength=plain.size)
    assert not moved[counts < LEAST].any()
    free = fitted(states, codewords="trained", continuation=few, epochs=3, least_cell=1, **options)
    assert free.kind == "trained"


def test_fewer_prompts_than_a_cell_needs_are_refused():
    states, _, _ = prompts(19)
    with pytest.raises(ValueError, match="states: expected at least 20"):
        Codebook.fit(states, CodebookFit(size=2))
    with pytest.raises(ValueError, match="least_cell"):
        Codebook.fit(states, CodebookFit(size=2, least_cell=0))
