"""What was released of each position of a layer, and how far a candidate's state is from it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from scipy import stats
from torch import Tensor

from tacit._ground.checks import Array, array, non_negative
from tacit.attacks.exact.channels import STATE_ROUNDING, UNEXPLAINED, CodeChannel
from tacit.attacks.inversion.probe import Reports, TokenProbe
from tacit.attacks.last_token.candidates import LastTokenCandidates, predicted
from tacit.covariance import Covariance, Dense
from tacit.models.behaviours import Behaviours
from tacit.models.language import LanguageModel

# chance that the true token's state is taken for too far from its release
LOST = 1e-6


class View(ABC):
    """One layer's releases of n prompts of T positions.

    Attributes:
        layer: the layer.
        floor: variance added to Σ for the rounding of states.
    """

    layer: int
    floor: float

    @property
    @abstractmethod
    def shape(self) -> tuple[int, int]:
        """(n, T)."""

    @abstractmethod
    def held(self, states: Tensor, prefix: Tensor, ids: Tensor) -> Any:
        """Return what decides a release of each candidate after a prefix, with a row for each."""

    @abstractmethod
    def distances(self, row: int, step: int, held: Any) -> Array:
        """Return ``−2 ln P(release | v) >= 0`` of what is held of each candidate, (m,)."""

    @abstractmethod
    def bank_distances(self, step: int, states: Tensor, stems: Tensor) -> Array:
        """Return ``−2 ln P(release | prompt)`` at one position, (n, m), of stems (m, step + 1)."""

    @abstractmethod
    def read(self) -> tuple[Array, Array]:
        """Return states (n, T, d) that a probe reads, and the covariance around the true ones."""


@dataclass(frozen=True, eq=False)
class NoisyStates(View):
    """States with Gaussian noise, Σ + floor I whitened: ``Σ⁻¹ = W Wᵀ``."""

    layer: int
    released: Array
    whitener: Array
    covariance: Array
    floor: float

    @property
    def shape(self) -> tuple[int, int]:
        return self.released.shape[0], self.released.shape[1]

    def whitened(self, states: Tensor) -> Array:
        """Return states in units of the noise."""
        found: Array = states.double().cpu().numpy() @ self.whitener
        return found

    def held(self, states: Tensor, prefix: Tensor, ids: Tensor) -> Array:
        """As ``View``: whitened states."""
        return self.whitened(states)

    def distances(self, row: int, step: int, held: Array) -> Array:
        """As ``View``: squared Mahalanobis distances."""
        target = self.released[row, step] @ self.whitener
        found: Array = ((held - target) ** 2).sum(axis=1)
        return found

    def bank_distances(self, step: int, states: Tensor, stems: Tensor) -> Array:
        own, rows = self.whitened(states), self.released[:, step] @ self.whitener
        centre = own.mean(axis=0)
        own, rows = own - centre, rows - centre
        found: Array = (rows**2).sum(axis=1)[:, None] + (own**2).sum(axis=1) - 2.0 * rows @ own.T
        return found

    def read(self) -> tuple[Array, Array]:
        return self.released, self.covariance


@dataclass(frozen=True, eq=False)
class ReportedCodes(View):
    """A code of every position, as it is or through a table of probabilities."""

    layer: int
    released: Any
    channel: CodeChannel
    model: LanguageModel
    reports: Reports | None
    floor: float = 0.0

    @property
    def shape(self) -> tuple[int, int]:
        return self.released.shape[0], self.released.shape[1]

    def held(self, states: Tensor, prefix: Tensor, ids: Tensor) -> Any:
        """As ``View``: codes."""
        if not self.channel.predicts:
            return self.channel.held(states, None)
        listed = LastTokenCandidates(prefix, ids, np.zeros((1, len(ids))), -1)
        parts = predicted(self.model, self.layer, [listed], states)
        return np.concatenate([self.channel.held(part.states, part.behaviours) for part in parts])

    def distances(self, row: int, step: int, held: Any) -> Array:
        code = self.released[row : row + 1, step]
        found: Array = -2.0 * self.channel.log_likelihood(code, held)[0]
        return found

    def bank_distances(self, step: int, states: Tensor, stems: Tensor) -> Array:
        behaviours = None
        if self.channel.predicts:
            behaviours = Behaviours(self.model.logits(stems).log_softmax(dim=-1))
        held = self.channel.held(states, behaviours)
        found: Array = -2.0 * self.channel.log_likelihood(self.released[:, step], held)
        return found

    def read(self) -> tuple[Array, Array]:
        assert self.reports is not None
        return self.reports.mean(self.released), self.reports.spread


def far(views: Sequence[View], width: int) -> float:
    """Return what the true token's distances exceed once in 10⁶ times.

    ``χ²_D`` at 1 − 10⁻⁶ for the states of D numbers in all; a code that a candidate's state does
    not have is too far.
    """
    noisy = sum(isinstance(view, NoisyStates) for view in views)
    bound = float(stats.chi2.isf(LOST, noisy * width)) if noisy else 0.0
    return bound - UNEXPLAINED if noisy < len(views) else bound


def as_views(
    model: LanguageModel,
    layer: Any,
    released: Any,
    covariance: Any,
    floor: float | None,
    probe: TokenProbe | None,
) -> list[View]:
    """Check what was released of one layer or several, and whiten it."""
    many = isinstance(layer, Sequence) and not isinstance(layer, str)
    layers = [model.check_layer(each) for each in (layer if many else [layer])]
    if many and not isinstance(released, (Sequence, np.ndarray, Tensor)):
        raise ValueError(
            f"released: expected an array for each layer, got {type(released).__name__}"
        )
    parts = list(released) if many else [released]
    noises = list(covariance) if many and isinstance(covariance, Sequence) else [covariance]
    if not layers or len(parts) != len(layers) or len(noises) != len(layers):
        raise ValueError(
            f"released: expected states and a covariance for each of {len(layers)} layers, got "
            f"{len(parts)} and {len(noises)}"
        )
    _check_probe(model, layers, noises, probe)
    views: list[View] = []
    for place, (each, part, noise) in enumerate(zip(layers, parts, noises, strict=True)):
        if isinstance(noise, CodeChannel):
            reports = None if probe is None else probe.reports[place]
            views.append(_codes(model, each, part, noise, reports))
        else:
            views.append(_states(model.width, each, part, noise, floor))
    shapes = {view.shape for view in views}
    if len(shapes) > 1:
        raise ValueError(f"released: expected one shape in all layers, got {sorted(shapes)}")
    return views


def _check_probe(
    model: LanguageModel, layers: list[int], noises: list[Any], probe: TokenProbe | None
) -> None:
    if probe is None:
        return
    if not isinstance(probe, TokenProbe):
        raise ValueError(f"probe: expected a TokenProbe, got {type(probe).__name__}")
    shape = (model.vocabulary, model.width * len(layers))
    if probe.layers != tuple(layers) or probe.means.shape != shape:
        raise ValueError(
            f"probe: expected one of layers {layers} of this model, got one of "
            f"{list(probe.layers)} with means of shape {probe.means.shape}"
        )
    for noise, reports in zip(noises, probe.reports, strict=True):
        if isinstance(noise, CodeChannel) and (reports is None or reports.channel is not noise):
            raise ValueError(
                "probe: expected a probe that was fitted with the channel of the codes"
            )


def _states(width: int, layer: int, released: Any, noise: Any, floor: float | None) -> View:
    found = array("released", released, ndim=(2, 3))
    states = found if found.ndim == 3 else found[None]
    sigma = noise if isinstance(noise, Covariance) else Dense(noise)
    if states.shape[2] != width or sigma.dim != width:
        raise ValueError(
            f"released: expected states and noise of {width} numbers, got {states.shape[2]} and "
            f"{sigma.dim}"
        )
    if floor is None:
        added = (STATE_ROUNDING * float(np.abs(states).max())) ** 2
    else:
        added = non_negative("floor", floor)
    if added == 0.0 and sigma.rank < width:
        raise ValueError(
            f"floor: expected a number > 0 for noise of rank {sigma.rank} in {width} dimensions"
        )
    dense = sigma.to_dense()
    values, vectors = np.linalg.eigh(dense)
    whitener = vectors / np.sqrt(np.maximum(values, 0.0) + added)
    return NoisyStates(layer, states, whitener, dense + added * np.eye(width), added)


def _codes(
    model: LanguageModel, layer: int, released: Any, channel: CodeChannel, reports: Reports | None
) -> View:
    found = np.asarray(released.cpu() if isinstance(released, Tensor) else released)
    if found.ndim not in (1, 2):
        raise ValueError(f"released: expected codes (T,) or (n, T), got shape {found.shape}")
    rows = found if found.ndim == 2 else found[None]
    flat = channel.checked("released", rows.reshape(-1), released=True)
    if channel.assign is None:
        raise ValueError("covariance: expected a channel that assigns codes to states")
    if channel.predicts and layer == 0:
        raise ValueError("layer: expected 1 or more where codes read predictions, got 0")
    return ReportedCodes(layer, flat.reshape(rows.shape), channel, model, reports)


def side_by_side(views: Sequence[View]) -> tuple[Array, Array]:
    """Return what a probe reads of all views, (n, T, D), and its block-diagonal covariance."""
    parts = [view.read() for view in views]
    width = sum(len(spread) for _, spread in parts)
    joint, at = np.zeros((width, width)), 0
    for _, spread in parts:
        end = at + len(spread)
        joint[at:end, at:end], at = spread, end
    return np.concatenate([states for states, _ in parts], axis=2), joint


def everything(model: LanguageModel) -> Tensor:
    """Return all tokens of a model."""
    return torch.arange(model.vocabulary)
