"""Noise laws as the leader moves them: torch modules with pathwise draws, in coordinates."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod

import torch
from torch import Tensor, nn

from tacit._ground.checks import Array
from tacit_lab.stackelberg.noise import (
    EllipticalNoise,
    FullGaussianNoise,
    MixtureNoise,
    StackelbergNoise,
)

NOISE_COMPONENTS = 3
START_SPREAD = 0.3
LOWEST_SHAPE, HIGHEST_SHAPE = 0.25, 4.0


class Leader(nn.Module, ABC):
    """A noise law in r coordinates, its parameters relative to a starting factor L₀, (r, r)."""

    def __init__(self, start: Tensor) -> None:
        super().__init__()
        self.register_buffer("start", start.clone())

    @property
    def base(self) -> Tensor:
        """L₀, which ``rescale`` multiplies."""
        return self.get_buffer("start")

    def rescale(self, variance_factor: float) -> None:
        """Multiply the covariance by ``variance_factor``, whatever the other parameters."""
        self.base.mul_(variance_factor**0.5)

    @abstractmethod
    def draw(self, half: int, source: torch.Generator) -> tuple[Tensor, Tensor]:
        """Return the weights (K,) of the components and 2·half antithetic draws of each, (K, m, r).

        Components are all drawn and weighted, never chosen: their weights get exact gradients.
        """

    @abstractmethod
    def covariance(self) -> Tensor:
        """Return the covariance of the law, (r, r)."""

    @abstractmethod
    def frozen(self, lift: Array) -> StackelbergNoise:
        """Return the law as a value."""


class GaussianLeader(Leader):
    """L₀ times a lower triangular matrix."""

    def __init__(self, start: Tensor) -> None:
        super().__init__(start)
        self.raw = nn.Parameter(torch.zeros_like(start))

    def factor(self) -> Tensor:
        """Return L, (r, r)."""
        return self.base @ _unit_triangular(self.raw)

    def draw(self, half: int, source: torch.Generator) -> tuple[Tensor, Tensor]:
        normals = _antithetic(half, self.raw.shape[0], source)
        return torch.ones(1, dtype=normals.dtype), (normals @ self.factor().T)[None]

    def covariance(self) -> Tensor:
        factor = self.factor()
        return factor @ factor.T

    def frozen(self, lift: Array) -> StackelbergNoise:
        return FullGaussianNoise(lift=lift, factor=self.factor().detach().numpy())


class MixtureLeader(Leader):
    """K Gaussians whose weighted mean is zero."""

    def __init__(self, start: Tensor, source: torch.Generator) -> None:
        super().__init__(start)
        rank = start.shape[0]
        options = {"generator": source, "dtype": start.dtype}
        self.logits = nn.Parameter(torch.zeros(NOISE_COMPONENTS, dtype=start.dtype))
        self.shifts = nn.Parameter(
            START_SPREAD * torch.randn(NOISE_COMPONENTS, rank, **options)  # type: ignore[call-overload]
        )
        self.raw = nn.Parameter(torch.zeros(NOISE_COMPONENTS, rank, rank, dtype=start.dtype))

    def components(self) -> tuple[Tensor, Tensor, Tensor]:
        """Return weights (K,), means (K, r) and factors (K, r, r)."""
        weights = torch.softmax(self.logits, dim=0)
        means = (self.shifts - weights @ self.shifts) @ self.base.T
        return weights, means, self.base @ _unit_triangular(self.raw)

    def draw(self, half: int, source: torch.Generator) -> tuple[Tensor, Tensor]:
        weights, means, factors = self.components()
        normals = _antithetic(half, means.shape[1], source)
        return weights, means[:, None, :] + normals @ factors.transpose(1, 2)

    def covariance(self) -> Tensor:
        weights, means, factors = self.components()
        within = torch.einsum("k,kij,klj->il", weights, factors, factors)
        return within + torch.einsum("k,ki,kj->ij", weights, means, means)

    def frozen(self, lift: Array) -> StackelbergNoise:
        weights, means, factors = (part.detach().numpy() for part in self.components())
        weights = weights / weights.sum()
        return MixtureNoise(
            lift=lift, weights=weights, means=means - weights @ means, factors=factors
        )


class EllipticalLeader(Leader):
    """A generalised Gaussian whose shape κ moves too; the factor is that of the covariance."""

    def __init__(self, start: Tensor) -> None:
        super().__init__(start)
        self.raw = nn.Parameter(torch.zeros_like(start))
        self.log_shape = nn.Parameter(torch.zeros((), dtype=start.dtype))

    def parameters_now(self) -> tuple[Tensor, Tensor]:
        """Return κ and the factor L of the density."""
        rank = self.raw.shape[0]
        shape = self.log_shape.exp().clamp(LOWEST_SHAPE, HIGHEST_SHAPE)
        radial, power = rank / (2.0 * shape), 1.0 / shape
        # Cov = 2^{1/κ} Γ(a + 1/κ) / (r Γ(a)) L Lᵀ.
        log_ratio = power * math.log(2.0)
        log_ratio = log_ratio + torch.lgamma(radial + power) - torch.lgamma(radial)
        spread = (log_ratio.exp() / rank).sqrt()
        return shape, self.base @ _unit_triangular(self.raw) / spread

    def draw(self, half: int, source: torch.Generator) -> tuple[Tensor, Tensor]:
        shape, factor = self.parameters_now()
        rank = self.raw.shape[0]
        normals = torch.randn(half, rank, generator=source, dtype=factor.dtype)
        directions = normals / normals.norm(dim=1, keepdim=True)
        gammas = torch._standard_gamma((rank / (2.0 * shape)).expand(half), generator=source)
        radii = (2.0 * gammas).clamp(min=1e-30) ** (0.5 / shape)
        drawn = (radii[:, None] * directions) @ factor.T
        return torch.ones(1, dtype=factor.dtype), torch.cat([drawn, -drawn])[None]

    def covariance(self) -> Tensor:
        factor = self.base @ _unit_triangular(self.raw)
        return factor @ factor.T

    def frozen(self, lift: Array) -> StackelbergNoise:
        shape, factor = self.parameters_now()
        return EllipticalNoise(
            lift=lift, factor=factor.detach().numpy(), shape=float(shape.detach())
        )


def make_leader(family: str, start: Tensor, source: torch.Generator) -> Leader:
    """Return the leader of a noise family at covariance about ``L₀ L₀ᵀ``."""
    if family == "mixture":
        return MixtureLeader(start, source)
    return EllipticalLeader(start) if family == "elliptical" else GaussianLeader(start)


def _unit_triangular(raw: Tensor) -> Tensor:
    """Return the lower triangular matrices with diagonal ``exp`` of that of ``raw``."""
    diagonal = raw.diagonal(dim1=-2, dim2=-1).clamp(-20.0, 20.0).exp()
    return raw.tril(-1) + torch.diag_embed(diagonal)


def _antithetic(half: int, rank: int, source: torch.Generator) -> Tensor:
    normals = torch.randn(half, rank, generator=source, dtype=torch.float64)
    return torch.cat([normals, -normals])
