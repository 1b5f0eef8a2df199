"""The best cell of every row: a product in float32, and its largest entry while it is cached.

A row between two cells may be given either where their scores round to the same number, or where
another machine rounds them otherwise. That changes no certificate, which counts codes whatever
makes them.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import torch
from torch import Tensor

from tacit._ground.threads import one_thread
from tacit.hidden_states.codebooks.certificates import Codes
from tacit.models.behaviours import Behaviours

# scores of a thread that stay in its cache, 1 MB
ENTRIES_A_THREAD = 2**18
ROWS_A_THREAD = 512


def nearest_cells(rows: Tensor, centres: Tensor) -> Codes:
    """Return the nearest centre of every row, (n,): the largest ``⟨h, c⟩ − ½ ‖c‖²``.

    A block of rows is one thread's own, so that no product waits for another.
    """
    offset = (0.5 * (centres**2).sum(dim=1)).numpy()
    vectors, turned = rows.numpy(), np.ascontiguousarray(centres.numpy().T)
    codes = np.empty(len(rows), dtype=np.int64)
    step = max(1, ENTRIES_A_THREAD // len(centres))

    def code(start: int) -> None:
        scores = vectors[start : start + step] @ turned
        scores -= offset
        codes[start : start + step] = scores.argmax(axis=1)

    with one_thread(), ThreadPoolExecutor(torch.get_num_threads()) as pool:
        for _ in pool.map(code, range(0, len(rows), step)):
            pass
    return codes


def cheapest_cells(behaviours: Behaviours, table: Tensor, decision_cost: float = 0.0) -> Codes:
    """Return the row q of the table of least ``KL(p ‖ q) + λ·1[argmax p ≠ argmax q]``, (n,).

    That is the one of largest ``Σ p ln q + λ·1[argmax p = argmax q]``, λ the decision cost.
    """
    turned = table.T
    decisions = table.argmax(dim=1)
    tokens = behaviours.argmax() if decision_cost else None

    def scores(part: slice) -> Tensor:
        found = behaviours.probabilities(part) @ turned
        if tokens is not None:
            found += decision_cost * (tokens[part, None] == decisions[None])
        return found

    codes = np.empty(len(behaviours), dtype=np.int64)
    step = max(1, ROWS_A_THREAD * torch.get_num_threads())
    for start in range(0, len(behaviours), step):
        part = slice(start, start + step)
        codes[part] = scores(part).numpy().argmax(axis=1)
    return codes
