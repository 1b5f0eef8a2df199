"""The beam search of the decoder: candidates from a shortlist, and all tokens where it fails."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from tacit._ground.checks import Array
from tacit.attacks.sequential.margin_law import StepLaw, step_law
from tacit.attacks.sequential.views import View, everything, far
from tacit.models.language import LanguageModel
from tacit.models.next_states import next_states
from tacit.models.texts.prefixes import Tokens

Places = npt.NDArray[np.int64]
# the likeliest candidates, run first where all tokens are tried; then as many as before again
TRIED = 256


@dataclass(frozen=True)
class Prefix:
    """A decoded prefix.

    Attributes:
        total: its distance with the prior's price.
        distance: its distance alone.
        tokens: the prefix.
    """

    total: float
    distance: float
    tokens: list[int]


@dataclass(eq=False)
class PrefixReader:
    """Distances of every candidate after a prefix.

    Attributes:
        model: the language model.
        views: what was released.
        shortlist: candidates a step from the model's prediction, and as many from the probe; None
            for all tokens.
        likely: the probe's shortlist of every position, (n, T, k), or None.
        fallback: tokens tried where the shortlist fails, the model's likeliest; None for all.
        weigh: whether tokens are weighed by the model's prediction.
        batch_size: candidates run at a time.
        first: what is held of all tokens as first ones, for each view.
    """

    model: LanguageModel
    views: list[View]
    shortlist: int | None
    likely: Any
    fallback: int | None
    weigh: bool
    batch_size: int | None
    first: list[Any] | None = field(default=None, init=False)

    def decode(self, row: int, beam: int) -> Prefix:
        """Keep the ``beam`` best prefixes at every step; the distance is without the prior."""
        kept = [Prefix(0.0, 0.0, [])]
        bound = far(self.views, self.model.width)
        for step in range(self.length):
            grown, nearest = self._step(row, step, kept, beam, self.shortlist is None)
            # the true token's state is not as far as this: it was not on the shortlist
            if self.likely is not None and step and nearest > bound:
                grown, _ = self._step(row, step, kept, beam, True)
            kept = sorted(grown, key=lambda entry: entry.total)[:beam]
        return kept[0]

    def _step(
        self, row: int, step: int, kept: list[Prefix], beam: int, whole: bool
    ) -> tuple[list[Prefix], float]:
        """Grow every prefix by its best tokens; return them and the least distance of the step."""
        grown, nearest = [], np.inf
        for held in kept:
            ids, prices = self.candidates(row, step, held.tokens, whole)
            order, found = self._found(row, step, held.tokens, ids, prices, beam)
            totals = held.total + found + prices[order]
            nearest = min(nearest, float(found.min()))
            for i in np.lexsort((ids[order], totals))[:beam]:
                distance, token = held.distance + float(found[i]), int(ids[order[i]])
                grown.append(Prefix(float(totals[i]), distance, [*held.tokens, token]))
        return grown, nearest

    def _found(
        self, row: int, step: int, prefix: list[int], ids: Tensor, prices: Array, beam: int
    ) -> tuple[Places, Array]:
        """Return places of candidates and their distances, of enough of them for the best."""
        everyone = np.arange(len(ids))
        if len(ids) <= TRIED or not prices.any():
            return everyone, self.distances(row, step, prefix, ids)
        order, found, start = np.argsort(prices, kind="stable"), np.empty(0), 0
        # a distance is not negative: those that are left cost their price at least
        while start < len(order):
            if start >= beam:
                totals = np.partition(found + prices[order[:start]], beam - 1)
                if totals[beam - 1] < prices[order[start]]:
                    break
            end = min(len(order), max(TRIED, 2 * start))
            more = self.distances(row, step, prefix, ids[order[start:end]])
            found, start = np.concatenate([found, more]), end
        return order[:start], found

    def candidates(
        self, row: int, step: int, prefix: list[int], whole: bool
    ) -> tuple[Tensor, Array]:
        """Return candidate tokens and −2 log prior of each."""
        chosen = everything(self.model)
        most = self.fallback if whole else self.shortlist
        if not prefix or (most is None and not self.weigh):
            return chosen, np.zeros(len(chosen))
        logs = self.model.logits([prefix])[0].double().log_softmax(dim=-1).cpu()
        if most is not None:
            chosen = logs.topk(min(most, len(logs))).indices
            if self.likely is not None:
                both = np.union1d(chosen.numpy(), self.likely[row, step])
                chosen = torch.from_numpy(both.astype(np.int64))
        prices = -2.0 * logs[chosen].numpy() if self.weigh else np.zeros(len(chosen))
        return chosen, prices

    def states(self, prefix: list[int], ids: Tensor) -> list[Tensor]:
        """Return the candidates' states, (m, d) for each view."""
        layers = [view.layer for view in self.views]
        past = torch.tensor(prefix, dtype=torch.int64)
        parts = list(next_states(self.model, past, ids, layers, batch_size=self.batch_size))
        return [torch.cat(column) for column in zip(*parts, strict=True)]

    def distances(self, row: int, step: int, prefix: list[int], ids: Tensor) -> Array:
        """Return the distance of every candidate to what was released."""
        held = self.held(prefix, ids)
        parts = [
            view.distances(row, step, each) for view, each in zip(self.views, held, strict=True)
        ]
        total: Array = np.sum(parts, axis=0)
        return total

    def held(self, prefix: list[int], ids: Tensor) -> list[Any]:
        """Return what decides releases of the candidates; that of first tokens is kept."""
        if not prefix and self.first is not None:
            return self.first
        past = torch.tensor(prefix, dtype=torch.int64)
        found = [
            view.held(states, past, ids)
            for view, states in zip(self.views, self.states(prefix, ids), strict=True)
        ]
        if not prefix:
            self.first = found
        return found

    def law(self, prompt: Tokens, draws: int, source: np.random.Generator) -> list[StepLaw]:
        """What each step's margins say, given that the steps before were right."""
        laws = []
        for step, token in enumerate(prompt):
            rows = np.hstack(
                self.held([int(each) for each in prompt[:step]], everything(self.model))
            )
            differences = np.delete(rows, int(token), axis=0) - rows[int(token)]
            laws.append(step_law(differences, draws, source))
        return laws

    @property
    def length(self) -> int:
        """Positions of a trajectory."""
        return self.views[0].shape[1]
