"""Inverters as values: what reads prompts back from what was released of them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import ArrayLike

from tacit._ground.checks import Array, plain
from tacit._ground.reprs import short_repr
from tacit.attacks.exact.channels import CodeChannel
from tacit.attacks.inversion.probe import TokenProbe
from tacit.attacks.sequential.decoder import TokenSearch, sequential_decoder
from tacit.attacks.sequential.views import View, as_views
from tacit.covariance import Covariance
from tacit.models.language import LanguageModel
from tacit.models.texts.prefixes import Tokens

PROMPTS_TOGETHER = 256


class Inverter(ABC):
    """An attacker who reads whole prompts back from what was released of each.

    Attributes:
        name: of the attacker, in a few words.
        knows: what it is told besides the releases and how they were drawn.
    """

    name: str
    knows: str = ""

    @abstractmethod
    def count(self, released: Any) -> int:
        """Return the number of prompts that releases are of."""

    @abstractmethod
    def select(self, released: Any, rows: Any) -> Any:
        """Return the releases of some prompts."""

    @abstractmethod
    def invert(self, released: Any) -> Tokens:
        """Return the guessed prompts, (n, T)."""

    @abstractmethod
    def emptied(self, released: Any) -> Any:
        """Return a release that says nothing of its prompt, or None where there is none."""

    @abstractmethod
    def nearest(self, released: Any, bank: Any) -> Tokens:
        """Return the prompt of a bank (m, T) that explains each release best, (n, T)."""


@short_repr
@dataclass(frozen=True, eq=False)
class TrajectoryInverter(Inverter):
    """Reads prompts from the states or codes of all positions, with a closed-form probe.

    ``sequential_decoder`` with tokens weighed by the model's prediction. It learns nothing but the
    probe's means and covariance.

    Args:
        model: the language model.
        layer: 1 … L, or several.
        covariance: as for ``sequential_decoder``, one for each layer.
        probe: a ``TokenProbe`` of the layers.
        beam: prefixes kept.
        shortlist: candidates a step from the model, and as many from the probe.
        token_law: as for ``sequential_decoder``.
        fallback: as for ``sequential_decoder``.

    Example:
        >>> from transformers import GPT2Config, GPT2LMHeadModel
        >>> sizes = {"vocab_size": 50, "n_embd": 16, "n_layer": 2, "n_head": 2, "n_positions": 8}
        >>> model = LanguageModel(GPT2LMHeadModel(GPT2Config(**sizes)))
        >>> public = torch.randint(50, (200, 3), generator=torch.Generator().manual_seed(0))
        >>> probe = TokenProbe.fit(model, 1, public)
        >>> inverter = TrajectoryInverter(model, 1, 1e-8 * np.eye(16), probe)
        >>> clean = model.states([[7, 3, 44]], 1, positions="all")
        >>> inverter.invert(clean.numpy()).tolist()
        [[7, 3, 44]]
    """

    model: LanguageModel
    layer: int | Sequence[int]
    covariance: Covariance | ArrayLike | CodeChannel | Sequence[Any]
    probe: TokenProbe
    beam: int = 1
    shortlist: int | None = None
    token_law: Literal["uniform", "model"] = "model"
    fallback: int | None = None

    name = "training-free decoder of trajectories"

    @property
    def _many(self) -> bool:
        return isinstance(self.layer, Sequence)

    def _parts(self, released: Any) -> list[Any]:
        if self._many and not isinstance(released, (Sequence, np.ndarray, torch.Tensor)):
            found = type(released).__name__
            raise ValueError(f"released: expected an array for each layer, got {found}")
        parts = list(released) if self._many else [released]
        return [np.asarray(plain(part)) for part in parts]

    def count(self, released: Any) -> int:
        return self._views(released)[0].shape[0]

    def select(self, released: Any, rows: Any) -> Any:
        parts = [part[rows] for part in self._parts(released)]
        return parts if self._many else parts[0]

    def invert(self, released: Any) -> Tokens:
        search = TokenSearch(
            beam=self.beam,
            shortlist=self.shortlist,
            token_law=self.token_law,
            fallback=self.fallback,
        )
        found = sequential_decoder(
            self.model, self.layer, released, self.covariance, search, probe=self.probe
        )
        return found.tokens

    def emptied(self, released: Any) -> Any:
        """As ``Inverter``: zeros in the place of the states; codes have none."""
        parts = self._parts(released)
        if any(part.dtype.kind in "iu" for part in parts):
            return None
        blank = [np.zeros_like(part[:1]) for part in parts]
        return blank if self._many else blank[0]

    def nearest(self, released: Any, bank: Any) -> Tokens:
        """As ``Inverter``: the distances of all positions and layers add up."""
        views = self._views(released)
        tokens = self.model.check_tokens(bank)
        best = np.full(views[0].shape[0], np.inf)
        found = np.zeros((len(best), tokens.shape[1]), dtype=np.int64)
        for part in torch.split(tokens, PROMPTS_TOGETHER):
            totals = np.sum([_bank_distances(self.model, view, part) for view in views], axis=0)
            place = totals.argmin(axis=1)
            nearer = totals[np.arange(len(best)), place] < best
            best[nearer] = totals[nearer, place[nearer]]
            found[nearer] = part.cpu().numpy()[place[nearer]]
        return found

    def _views(self, released: Any) -> list[View]:
        return as_views(self.model, self.layer, released, self.covariance, None, self.probe)


def _bank_distances(model: LanguageModel, view: View, prompts: torch.Tensor) -> Array:
    """Squared distances, or −2 ln P of codes, of releases to prompts, (n, m)."""
    states = model.states(prompts, view.layer, positions="all")
    total: Array = np.zeros((view.shape[0], len(prompts)))
    for step in range(view.shape[1]):
        total += view.bank_distances(step, states[:, step], prompts[:, : step + 1])
    return total
