"""A prepared release is drawn once, whatever becomes of copies of it."""

import copy
import dataclasses
import pickle
import threading

import cloudpickle
import numpy as np
import pytest

from tacit import Draw, Effort, prepare
from tacit.classifiers import prepare_logits
from tacit.hidden_states import CodebookFit
from tacit.ledger import Ledger

RNG = np.random.default_rng(0)
ROWS, LOGITS = RNG.normal(size=(40, 2)), RNG.normal(size=(60, 3))


def codes():
    torch = pytest.importorskip("torch")
    from tacit.hidden_states import Codebook, prepare_codes

    states = torch.from_numpy(RNG.normal(size=(60, 4)))
    book = Codebook.fit(
        states,
        CodebookFit(size=3, metric="euclidean", codewords="centroid", least_cell=1),
        rng=0,
        progress=False,
    )
    return prepare_codes(book, states)


def states():
    pytest.importorskip("torch")
    from tacit.design import isotropic
    from tacit.hidden_states import prepare_states

    return prepare_states(RNG.normal(size=(20, 3)), isotropic(np.ones(3), 1.0))


WORKFLOWS = {
    "statistic": lambda: prepare(
        lambda rows: rows.mean(axis=0), ROWS, Draw(nats=0.1), Effort(simulations=64)
    ),
    "logits": lambda: prepare_logits(LOGITS, np.zeros((60, 1)), Draw(nats=0.1), Effort(trials=0)),
    "states": states,
    "codes": codes,
}
COPIES = {
    "copy": copy.copy,
    "deepcopy": copy.deepcopy,
    "replace": lambda prepared: dataclasses.replace(prepared, description="the same again"),
    "list": lambda prepared: copy.deepcopy([prepared, 1])[0],
}


@pytest.fixture(params=sorted(WORKFLOWS))
def prepared(request):
    return WORKFLOWS[request.param]()


@pytest.mark.parametrize("copied", sorted(COPIES))
@pytest.mark.parametrize("first", ["copy", "original"])
def test_a_copy_is_drawn_instead_of_the_original_and_not_beside_it(prepared, copied, first):
    pair = [prepared, COPIES[copied](prepared)]
    if first == "copy":
        pair.reverse()
    pair[0].draw()
    for spent in (*pair, copy.deepcopy(pair[1])):
        with pytest.raises(ValueError, match="drawn already"):
            spent.draw()


@pytest.mark.parametrize("dumps", [pickle.dumps, cloudpickle.dumps])
def test_a_prepared_release_is_not_pickled(prepared, dumps):
    for _ in range(2):
        with pytest.raises(TypeError, match="cannot be pickled: it is drawn once"):
            dumps(prepared)
        # the refusal says the same after the draw, and costs nothing before it
        if not prepared._once.drawn:
            prepared.draw()


def test_a_ledger_counts_one_release_of_all_copies(tmp_path):
    prepared = WORKFLOWS["statistic"]()
    ledger = Ledger(tmp_path / "ledger.db")
    copy.deepcopy(prepared).draw(ledger=ledger, secret="clinic")
    with pytest.raises(ValueError, match="drawn already"):
        prepared.draw(ledger=ledger, secret="clinic")
    assert len(ledger.entries("clinic")) == 1


def test_of_many_threads_one_draws():
    prepared, drawn, refused = WORKFLOWS["statistic"](), [], []
    ready = threading.Barrier(8)

    def attempt():
        ready.wait()
        try:
            drawn.append(copy.copy(prepared).draw())
        except ValueError as error:
            refused.append(str(error))

    threads = [threading.Thread(target=attempt) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(drawn) == 1
    assert len(refused) == 7


def test_what_the_ledger_refuses_is_not_spent():
    prepared = WORKFLOWS["statistic"]()

    class Refusing:
        def reserve(self, *_, **__):
            raise ValueError("over the budget")

    with pytest.raises(ValueError, match="over the budget"):
        prepared.draw(ledger=Refusing(), secret="clinic")
    assert prepared.draw().values.shape == (2,)
