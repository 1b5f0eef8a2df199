"""A text such as "no" is true in Python: True or False is asked for, and nothing else taken."""

import numpy as np
import pytest

from tacit import Draw, Effort, Rows, prepare
from tacit.accounting import published, sketch
from tacit.classifiers import prepare_logits
from tacit.design import ball, complement
from tacit.ledger import Ledger
from tacit.statistics import Session

ROWS = np.random.default_rng(0).normal(size=(40, 3))
FISHER = np.diag([3.0, 2.0, 1.0])
SIZES = {"rank": 2, "dim": 2, "gamma": 0.1}


QUICK = Effort(simulations=64, trials=0)


CALLS = {
    "progress": [
        lambda wrong: Effort(progress=wrong),
    ],
    "no_budget": [
        lambda wrong: prepare("mean", ROWS, Draw(nats=0.5), QUICK).draw(no_budget=wrong),
        lambda wrong: prepare("mean", ROWS, Rows(success=0.6), QUICK).draw(no_budget=wrong),
        lambda wrong: prepare_logits(ROWS, range(40), Draw(nats=0.5), QUICK).draw(no_budget=wrong),
        lambda wrong: Session(ROWS, Rows(success=0.6), no_budget=wrong),
    ],
    "diagonal": [lambda wrong: ball(FISHER, 1.0, diagonal=wrong)],
    "whiten": [lambda wrong: complement(FISHER, 1, 1.0, whiten=wrong)],
    "both_orders": [
        lambda wrong: sketch(**SIZES, both_orders=wrong),
        lambda wrong: published.pave_theorem_3_5(**SIZES, delta=1e-5, both_orders=wrong),
    ],
    "create": [lambda wrong: Ledger(":memory:", create=wrong)],
}
CASES = [(name, call) for name, calls in CALLS.items() for call in calls]


@pytest.mark.parametrize("wrong", ["no", "False", 0, 1, [], np.ones(1, dtype=bool)])
@pytest.mark.parametrize(("name", "call"), CASES, ids=[name for name, _ in CASES])
def test_what_is_neither_true_nor_false_is_refused(name, call, wrong):
    with pytest.raises(ValueError, match=f"^{name}: expected True or False, got "):
        call(wrong)


def test_what_numpy_calls_true_or_false_is_taken():
    assert ball(FISHER, 1.0, diagonal=np.True_).method == "ball-diagonal"
    assert ball(FISHER, 1.0, diagonal=np.False_).method == ball(FISHER, 1.0).method
