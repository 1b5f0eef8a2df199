"""Exposure under training: no event is likelier with a canary than its bound from without."""

import numpy as np
import pytest
import torch

from tacit.attacks.intervals import proportion_interval
from tacit.training import References, bounded_probability
from tests.training.runs import made

from .registry import bounds

ROUNDS, SHIFT, COPIES = 800, 1.5, 2
# of each of two intervals
CONFIDENCE = 0.999


def falls():
    """Return by how much the canary's loss fell in rounds from one start, and its coins."""
    torch.manual_seed(0)
    model = torch.nn.Linear(3, 1, bias=False).double()
    inputs, targets = torch.randn(6, 3).double(), torch.randn(6).double()
    inputs[-1], targets[-1] = inputs[-2], targets[-2]  # both copies of the canary
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    run = made(
        model, optimizer, References.leave_out(["canary"]), rounds=ROUNDS, rng=1,
        mu=SHIFT * ROUNDS**0.5, loss=lambda model, x, y: (model(x)[:, 0] - y).square(),
    )  # fmt: skip
    start = model.weight.detach().clone()
    coins = np.random.default_rng(2).random(ROUNDS) < 0.5
    groups, found = np.array([-1] * 4 + [0, 0]), np.empty(ROUNDS)
    for place, coin in enumerate(coins):
        with torch.no_grad():
            model.weight.copy_(start)
        run.step((inputs, targets), groups, inside=np.array([True] * 4 + [coin] * COPIES))
        residual = float((model(inputs[-1:])[0, 0] - targets[-1]).detach())
        found[place] = -abs(residual)
    return found, coins


@pytest.mark.thorough
@bounds(bounded_probability)
def test_a_canary_comes_out_no_more_often_than_its_bound_allows():
    found, coins = falls()
    # an event of one in ten where the canary is out
    exposed = found > np.quantile(found[~coins], 0.9)
    learned, left_out = (
        proportion_interval(int(exposed[side].sum()), int(side.sum()), CONFIDENCE)
        for side in (coins, ~coins)
    )
    assert learned[0] <= bounded_probability(left_out[1], SHIFT)
    # a third of the shift is found out: the canary does come out more often
    assert learned[0] > bounded_probability(left_out[1], SHIFT / 3)
