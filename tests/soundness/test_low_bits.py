"""What every workflow publishes stands on a grid that its noise alone sets: no low bit is left.

The attack: who knows two candidates asks of a published number whether its low bits are those that
a float sum with the larger one loses. Of a plain sum that names the candidate (the control); of a
number on the grid, which is coarser than what either sum rounds to, it names nothing.
"""

from __future__ import annotations

import base64
from typing import Any

import numpy as np
import pytest

from tacit import Draw, Effort, Rows, Table
from tacit.adapters import VectorProjection
from tacit.classifiers import privatize_logits
from tacit.covariance import publication
from tacit.specifications import specification_from_bytes
from tacit.statistics import privatize
from tests.releases.files import BOUNDS, QUICK, ROWS, quotients, specification, states


@pytest.fixture
def passed(monkeypatch: pytest.MonkeyPatch) -> list[tuple[np.ndarray, np.ndarray, np.ndarray]]:
    """What goes through the rounding: the values, the grid, and what came out."""
    found: list[tuple[np.ndarray, np.ndarray, np.ndarray]] = []
    usual = publication.rounded_sum

    def watched(value: Any, noise: Any, grid: Any) -> Any:
        released = usual(value, noise, grid)
        found.append((np.array(value), np.broadcast_to(grid, value.shape), np.array(released)))
        return released

    monkeypatch.setattr(publication, "rounded_sum", watched)
    return found


def of_specification() -> Any:
    held = specification().to_dict()["details"]["specification"]["file"]
    made = specification_from_bytes(base64.b64decode(held))
    return np.concatenate([factor.ravel() for factor in made.factors.values()])


def of_vector() -> Any:
    return VectorProjection(rank=3, alignment=0.9).draw(ROWS[:, 0])


PUBLISHED = {
    "specification": of_specification,
    "states": lambda: states().details.states,
    "quotients": lambda: quotients().details.quotients,
    "logits": lambda: (
        privatize_logits(ROWS, range(len(ROWS)), Draw(nats=1.0), QUICK).details.logits
    ),
    "vector": of_vector,
    "the draw": lambda: (
        privatize("mean", ROWS, Draw(success=0.6), Effort(simulations=60, trials=0)).values
    ),
}


def float_of(values: Any) -> np.ndarray:
    return np.asarray(values).ravel()


@pytest.mark.parametrize("name", PUBLISHED)
def test_every_published_number_came_out_of_the_rounding(name: str, passed: list[Any]) -> None:
    found = float_of(PUBLISHED[name]())
    assert passed
    out = np.concatenate([float_of(one) for _, _, one in passed]).astype(found.dtype)
    assert np.isin(found, out).all()
    for value, grid, released in passed:
        noisy = grid > 0.0
        assert noisy.all()
        # whole steps of a grid that is a power of two, and whose size no value has a part in
        steps = released / grid
        assert np.array_equal(steps, np.round(steps))
        assert np.array_equal(np.frexp(grid)[0], np.full(grid.shape, 0.5))
        assert value.shape == released.shape


@pytest.mark.parametrize(
    ("query", "protect"),
    [("mean", "rows"), ("std", "rows"), ("mean", "table"), ("std", "table"),
     ("count by x0:-1,0,1", "table")],
)  # fmt: skip
def test_noised_sums_are_on_the_grid_whatever_is_made_of_them(
    query: str, protect: str, passed: list[Any]
) -> None:
    promise = Table(success=0.6, bounds=BOUNDS) if protect == "table" else Rows(success=0.6)
    privatize(query, ROWS, promise, QUICK)
    assert passed
    for _, grid, released in passed:
        steps = released[grid > 0.0] / grid[grid > 0.0]
        assert np.array_equal(steps, np.round(steps))


@pytest.mark.parametrize("kind", ["plain", "rounded"])
def test_the_attack_names_the_candidate_of_a_plain_sum_alone(kind: str) -> None:
    source, right, trials = np.random.default_rng(0), 0, 400
    # a small noise beside two values of other sizes: most doubles are no sum of the larger one
    candidates = (1.0 / 3.0, 1000.0 / 3.0)
    for _ in range(trials):
        truth = int(source.integers(2))
        noise = 1e-3 * source.normal()
        value = candidates[truth] - (candidates[truth] - 1.0 / 3.0)
        shift = candidates[truth]
        if kind == "plain":
            point = (shift + noise) - shift + value
        else:
            point = float(publication.publish_sum(np.array([value]), np.array([noise]), 1e-3)[0])
        multiple = point * 2.0**50
        guess = int(multiple != round(multiple)) ^ 1
        right += guess == truth
    share = right / trials
    assert share > 0.9 if kind == "plain" else abs(share - 0.5) < 0.1
