"""A round is checked, charged and applied in one step, whoever else trains."""

import sys
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import torch

from tacit import Run
from tacit.training import Beside, Indistinguishable, References
from tacit.training.account import ReferenceSpentError

THREADS, ROUNDS = 8, 3


def squares(model, inputs, targets):
    return (model(inputs) - targets).square().sum(1)


def spent_by_threads():
    model = torch.nn.Linear(2, 1).double()
    promise = Beside(references=References.leave_out(2), mu=1.0)
    # it begins when the first thread asks for a round
    run = Indistinguishable(model, None, promise, loss=squares, run=Run(steps=ROUNDS))
    size = sum(one.numel() for one in model.parameters())

    def outcome(index):
        return np.full(size, 0.0 if index is None else 1.0 + index)

    def replace(_):
        try:
            run.replace(outcome)
        except ReferenceSpentError:
            return 0
        return 1

    with ThreadPoolExecutor(THREADS) as threads:
        done = sum(threads.map(replace, range(THREADS)))
    return done, run


def test_threads_never_train_more_rounds_than_were_paid():
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        for _ in range(20):
            done, run = spent_by_threads()
            assert done == ROUNDS == run.rounds == run.charges
            assert (run.left() <= 1e-9).all()
    finally:
        sys.setswitchinterval(before)
