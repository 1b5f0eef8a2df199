"""Decoders π(x | y) of the follower: torch modules in float64.

Each returns the gain ``ln π(x | y) − ln q(x)`` over a fixed law q of the secret. Its mean is
``H_q − W(Q, π)``, with far less variance than the cross-entropy W alone.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod

import torch
from torch import Tensor, nn

HIDDEN = 48
COMPONENTS = 8
FLOW_LAYERS = 3
FLOW_BUMPS = 4
LARGEST_LOGARITHM = 2.5
BLUR = 0.25
EXTRA_FEATURES = 8


class SecretDecoder(nn.Module, ABC):
    """A conditional law of the secret given the noisy output."""

    @abstractmethod
    def gain(self, noisy: Tensor, rows: Tensor) -> Tensor:
        """Return ``ln π(x_i | y_i) − ln q(x_i)``, (m,), for y (m, r) and the row numbers of x."""


class GaussianDecoder(SecretDecoder):
    """``N(A y + f(y), (Pᵀ E(y)² P)⁻¹)``, from linear regression on; q is N(0, I)."""

    def __init__(self, secrets: Tensor, points: Tensor, noise: Tensor) -> None:
        super().__init__()
        count, size = secrets.shape
        total = torch.eye(points.shape[1], dtype=points.dtype) + noise
        cross = secrets.T @ points / count
        slope = torch.linalg.solve(total, cross.T).T
        residual = torch.eye(size, dtype=points.dtype) - slope @ cross.T
        values, vectors = torch.linalg.eigh((residual + residual.T) / 2)
        root = vectors * values.clamp(min=1e-6).rsqrt() @ vectors.T
        # A triangular root of the same precision.
        precision = torch.linalg.cholesky(root @ root).T
        self.register_buffer("secrets", secrets)
        self.register_buffer("scale", total.diagonal().sqrt())
        self.slope = nn.Parameter(slope)
        self.precision = nn.Parameter(precision)
        self.net = perceptron(points.shape[1], 2 * size)

    def gain(self, noisy: Tensor, rows: Tensor) -> Tensor:
        """Return ``ln N(x; …) − ln N(x; 0, I)``: the constants cancel."""
        secrets = _buffer(self, "secrets")[rows]
        size = secrets.shape[1]
        correction = self.net(noisy / _buffer(self, "scale"))
        mean = noisy @ self.slope.T + correction[:, :size]
        log_scale = correction[:, size:].clamp(-8.0, 8.0)
        upper = self.precision.triu()
        scaled = log_scale.exp() * ((secrets - mean) @ upper.T)
        log_volume = upper.diagonal().abs().log().sum() + log_scale.sum(dim=1)
        gain: Tensor = log_volume - 0.5 * (scaled**2).sum(dim=1) + 0.5 * (secrets**2).sum(dim=1)
        return gain


class MixtureDensityDecoder(SecretDecoder):
    """``Σ_k w_k(y) N(μ_k(y), diag σ_k(y)²)``; q is N(0, I).

    Source: Bishop (1994), "Mixture density networks".
    """

    def __init__(
        self, secrets: Tensor, points: Tensor, noise: Tensor, source: torch.Generator
    ) -> None:
        super().__init__()
        self.size = secrets.shape[1]
        total = torch.eye(points.shape[1], dtype=points.dtype) + noise
        self.register_buffer("secrets", secrets)
        self.register_buffer("scale", total.diagonal().sqrt())
        start = torch.zeros(COMPONENTS, 1 + 2 * self.size, dtype=points.dtype)
        chosen = torch.randint(len(secrets), (COMPONENTS,), generator=source)
        start[:, 1 : 1 + self.size] = secrets[chosen]
        self.start = nn.Parameter(start)
        self.net = perceptron(points.shape[1], start.numel())

    def gain(self, noisy: Tensor, rows: Tensor) -> Tensor:
        """Return the log mixture density less ``ln N(x; 0, I)``."""
        secrets = _buffer(self, "secrets")[rows]
        outcome = self.net(noisy / _buffer(self, "scale"))
        outcome = outcome.view(len(noisy), COMPONENTS, -1) + self.start
        weights = torch.log_softmax(outcome[..., 0], dim=1)
        means = outcome[..., 1 : 1 + self.size]
        log_scale = outcome[..., 1 + self.size :].clamp(-8.0, 8.0)
        scaled = (secrets[:, None, :] - means) * (-log_scale).exp()
        parts = weights - log_scale.sum(dim=2) - 0.5 * (scaled**2).sum(dim=2)
        return torch.logsumexp(parts, dim=1) + 0.5 * (secrets**2).sum(dim=1)


class FlowDecoder(SecretDecoder):
    """A conditional flow: coupling layers ``x ↦ e^s (x + Σ a tanh(b x + c)) + t``, a b >= 0.

    s, t, a, b, c are networks of y and of the coordinates that the layer leaves alone. The sum of
    monotone steps is there so that one coordinate, too, gets a law that is not Gaussian.

    Source: Dinh, Sohl-Dickstein and Bengio (2017), "Density estimation using Real NVP", with a
    monotone residual step.
    """

    def __init__(
        self, secrets: Tensor, points: Tensor, noise: Tensor, source: torch.Generator
    ) -> None:
        super().__init__()
        size = secrets.shape[1]
        self.source = source
        # A kernel's width: without it a flow learns its rows by heart and is lost between them.
        self.blur = BLUR * len(secrets) ** (-1.0 / (size + 4))
        total = torch.eye(points.shape[1], dtype=points.dtype) + noise
        places = torch.arange(size)
        layers = range(FLOW_LAYERS)
        kept = [(places + layer) % 2 == 1 if size > 1 else places < 0 for layer in layers]
        self.register_buffer("secrets", secrets)
        self.register_buffer("scale", total.diagonal().sqrt())
        self.register_buffer("kept", torch.stack(kept).to(points.dtype))
        self.size = size
        inputs, outcomes = points.shape[1] + size, size * (2 + 3 * FLOW_BUMPS)
        self.nets = nn.ModuleList(perceptron(inputs, outcomes) for _ in range(FLOW_LAYERS))
        centres = torch.linspace(-2.0, 2.0, FLOW_BUMPS, dtype=points.dtype)
        self.centres = nn.Parameter(centres.expand(FLOW_LAYERS, size, -1).clone())

    def gain(self, noisy: Tensor, rows: Tensor) -> Tensor:
        """Return the log volume and density of the moved value less ``ln N(x; 0, I)``."""
        secrets = _buffer(self, "secrets")[rows]
        if self.training:
            normals = torch.randn(secrets.shape, generator=self.source, dtype=secrets.dtype)
            secrets = secrets + self.blur * normals
        context = noisy / _buffer(self, "scale")
        value, log_volume = secrets, torch.zeros(len(noisy), dtype=noisy.dtype)
        for net, kept, centres in zip(self.nets, _buffer(self, "kept"), self.centres, strict=True):
            outcome = net(torch.cat([context, value * kept], dim=1))
            outcome = outcome.view(len(noisy), self.size, -1)
            log_scale, shift = _bounded(outcome[..., 0]), outcome[..., 1]
            height, slope, place = outcome[..., 2:].chunk(3, dim=2)
            height, slope = _bounded(height - 3.0).exp(), _bounded(slope).exp()
            steps = torch.tanh(slope * (value[..., None] - centres) + place)
            moved = value + (height * steps).sum(dim=2)
            stretch = 1.0 + (height * slope * (1.0 - steps**2)).sum(dim=2)
            value = kept * value + (1.0 - kept) * (log_scale.exp() * moved + shift)
            log_volume = log_volume + ((1.0 - kept) * (log_scale + stretch.log())).sum(dim=1)
        return log_volume - 0.5 * (value**2).sum(dim=1) + 0.5 * (secrets**2).sum(dim=1)


class CategoricalDecoder(SecretDecoder):
    """A softmax over prototypes: the score of row j is ``−½‖A(y − z_j)‖² + g(y)·e_j + c_j``.

    With A = Σ^-½ and e = c = 0 it is the exact posterior under Gaussian noise. Scores of rows of
    the same value of the secret add up; q is the prior of that value.
    """

    def __init__(
        self, points: Tensor, groups: Tensor, noise: Tensor, source: torch.Generator
    ) -> None:
        super().__init__()
        count, rank = points.shape
        lower = torch.linalg.cholesky(noise)
        total = torch.eye(rank, dtype=points.dtype) + noise
        whitener = torch.linalg.solve_triangular(
            lower, torch.eye(rank, dtype=points.dtype), upper=False
        )
        self.register_buffer("points", points)
        self.register_buffer("groups", groups)
        self.register_buffer("scale", total.diagonal().sqrt())
        self.one_each = bool((groups == torch.arange(count)).all())
        self.values = int(groups.max()) + 1
        frequencies = torch.bincount(groups, minlength=self.values).to(points.dtype) / count
        self.register_buffer("log_prior", frequencies.log())
        self.whitener = nn.Parameter(whitener)
        # Zero scores at the start: g is zero, and e is not, so that g can move.
        features = torch.randn(count, EXTRA_FEATURES, generator=source, dtype=points.dtype)
        self.features = nn.Parameter(features)
        self.bias = nn.Parameter(torch.zeros(count, dtype=points.dtype))
        self.net = perceptron(rank, EXTRA_FEATURES)

    def gain(self, noisy: Tensor, rows: Tensor) -> Tensor:
        """Return the log posterior of the value less its log prior."""
        groups = _buffer(self, "groups")
        centres = _buffer(self, "points") @ self.whitener.T
        extra = self.net(noisy / _buffer(self, "scale"))
        # Terms of y alone cancel in the softmax.
        scores = noisy @ (self.whitener.T @ centres.T) + extra @ self.features.T
        scores = scores + (self.bias - 0.5 * (centres**2).sum(dim=1))
        posterior = torch.log_softmax(scores, dim=1)
        wanted = groups[rows]
        log_prior = _buffer(self, "log_prior")[wanted]
        if self.one_each:
            return posterior.gather(1, rows[:, None])[:, 0] - log_prior
        same = groups[None, :] == wanted[:, None]
        return torch.logsumexp(posterior.masked_fill(~same, -math.inf), dim=1) - log_prior


def perceptron(inputs: int, outcomes: int) -> nn.Sequential:
    """Return a network with two hidden layers whose output starts at zero."""
    last = nn.Linear(HIDDEN, outcomes, dtype=torch.float64)
    nn.init.zeros_(last.weight)
    nn.init.zeros_(last.bias)
    return nn.Sequential(
        nn.Linear(inputs, HIDDEN, dtype=torch.float64),
        nn.SiLU(),
        nn.Linear(HIDDEN, HIDDEN, dtype=torch.float64),
        nn.SiLU(),
        last,
    )


def _bounded(value: Tensor) -> Tensor:
    return LARGEST_LOGARITHM * torch.tanh(value / LARGEST_LOGARITHM)


def seed_weights(module: nn.Module, source: torch.Generator) -> None:
    """Draw the hidden weights again from ``source``: torch's own come from its global state."""
    for layer in module.modules():
        if isinstance(layer, nn.Linear) and layer.weight.any():
            bound = 1.0 / math.sqrt(layer.in_features)
            nn.init.uniform_(layer.weight, -bound, bound, generator=source)
            nn.init.uniform_(layer.bias, -bound, bound, generator=source)


def _buffer(module: nn.Module, name: str) -> Tensor:
    return module.get_buffer(name)
