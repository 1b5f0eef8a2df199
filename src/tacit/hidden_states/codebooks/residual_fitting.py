"""How residual codes are fitted: k-means of each stage on what the stages before it leave."""

from __future__ import annotations

import math

import numpy as np
import torch

from tacit.hidden_states.codebooks.beam import Beams, Stages, extended, sums
from tacit.hidden_states.codebooks.clustering import FIRST_ROUNDS, FULL_ROUNDS, Advance
from tacit.hidden_states.codebooks.fitting import cells_of_states
from tacit.hidden_states.codebooks.methods import ResidualFit
from tacit.hidden_states.codebooks.subspace import Floats, Subspace, principal_subspace, unit_of

# of rows in a unit near their largest entry: a few units in the last place of float32
ROUNDING = 2.0**-20
# of the progress bar
STEPS_OF_STAGE = 1 + FIRST_ROUNDS + FULL_ROUNDS


def fit_stages(
    rows: Floats, how: ResidualFit, source: np.random.Generator, advance: Advance
) -> tuple[Subspace, tuple[Floats, ...]]:
    """Return the directions that are coded, and the codewords of every stage.

    A codeword is the mean of what is left of at least ``least_cell`` rows, each of them coded by
    the same search as later, so that a stage is fitted to what it will be given.
    """
    mean = rows.mean(axis=0, dtype=np.float64).astype(np.float32)
    unit = unit_of(rows, mean)
    space = principal_subspace(rows, mean, unit, how.stages * math.log2(max(how.size, 2)))
    points = space.coordinates(rows, unit)
    tables: list[Floats] = []
    beams = Beams.empty(len(points))
    for stage in range(how.stages):
        # what the best sum so far leaves of every row
        left = points - sums(tables, beams.codes[:, 0]) if tables else points
        if float(np.abs(left).max()) <= ROUNDING:
            # what rounding left says nothing of a row
            left = np.zeros_like(left)
        found, _ = cells_of_states(
            torch.from_numpy(left), how.size, how.least_cell, source, advance
        )
        tables.append(found.numpy())
        if stage + 1 < how.stages:
            beams = extended(points, Stages(tuple(tables)), stage, beams, how.beam)
    return space, tuple(table * np.float32(unit) for table in tables)
