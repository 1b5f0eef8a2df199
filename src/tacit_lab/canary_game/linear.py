"""Linear heads trained with a canary and without it, and what every update says of it."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from numpy.typing import ArrayLike
from scipy import special
from torch import Tensor

from tacit._ground.checks import (
    Array,
    RandomSource,
    generator,
    in_interval,
    integer,
    matrix,
    non_negative,
    positive,
    vector,
)
from tacit._ground.frozen import array_value
from tacit.adapters.heads import HeadSteps
from tacit.gradients.clipping import ClippedMethod
from tacit.gradients.steps import Method

# Entries of the largest array of the heads that are trained together.
ENTRIES = 2**24


def update_log_ratio(
    method: Method,
    published: Tensor,
    others: Tensor,
    canary: Tensor,
    projection: Tensor | None,
    std: float,
    *,
    sampling_rate: float = 1.0,
) -> Tensor:
    """Return how much likelier an update is with the canary than without it, in nats.

    With U what `Method.step` returned, m(V) what it returns of V without noise, A public and
    Σ the covariance of the noise, ``l = ⟨U − m(V_others), m(G)⟩_Σ⁻¹ − ½ ‖m(G)‖²_Σ⁻¹``, and for a
    canary that is in the sample with probability q: ``ln(1 − q + q e^l)``. Its sum over the steps
    is the likelihood ratio of all of them: no attacker who sees the run does better.

    Args:
        method: of the step; one that adds noise.
        published: U, (…, out, in) or (…, out, rank): what ``method.step`` returned.
        others: sum of what the step took of the other records' gradients (clipped where it clips).
        canary: what it would take of the canary's, of the same shape.
        projection: A, (…, rank, in); None where it is not used.
        std: standard deviation of the noise, as in ``method.step``.
        sampling_rate: q in (0, 1].

    Returns:
        (…) in float64.

    Raises:
        ValueError: a bad argument, or a method without noise.

    Example:
        >>> import torch
        >>> from tacit.adapters import DPSGD
        >>> zero, canary = torch.zeros(1, 2, 3), torch.ones(1, 2, 3)
        >>> update_log_ratio(DPSGD(), canary, zero, canary, None, 1.0)
        tensor([3.], dtype=torch.float64)

    Source: Neyman and Pearson (1933); lora-privacy, Eq. M2 for the noise.
    """
    if method.noise_kind == "none":
        raise ValueError(f"method: expected one that adds noise, got {method.name}")
    scale = positive("std", std)
    rate = in_interval("sampling_rate", sampling_rate, 0.0, 1.0, open_low=True)
    # in float64: ratios add up over all steps
    exact = None if projection is None else projection.double()
    clean = partial(method.step, projection=exact, std=0.0, normal=_zeros)
    # m(G): by how much the canary moves what is published
    moved = clean(canary.double())
    # U − m(V_others): noise, and the canary if it was in
    residual = published.double() - clean(others.double())
    if method.noise_kind == "projected" and exact is not None:
        seen, moved = _whiten(residual, moved, exact, full=method.full)
    else:
        seen = residual
    # ⟨U − m(V), m(G)⟩ − ½‖m(G)‖², in the metric of the noise
    ratio = ((seen - 0.5 * moved) * moved).sum(dim=(-2, -1)) / scale**2
    if rate == 1.0:
        return ratio
    # ln(1 − q + q e^l)
    absent = torch.full_like(ratio, math.log1p(-rate))
    return torch.logaddexp(absent, ratio + math.log(rate))


def _zeros(shape: tuple[int, ...]) -> Tensor:
    return torch.zeros(shape, dtype=torch.float64)


def _whiten(
    residual: Tensor, moved: Tensor, projection: Tensor, *, full: bool
) -> tuple[Tensor, Tensor]:
    """Return both as noise z with independent N(0, 1) entries would give them.

    With ``AAᵀ = LLᵀ`` the noise ``E Aᵀ`` is ``z Lᵀ``, and ``E AᵀA`` times Aᵀ is ``z Lᵀ L Lᵀ``.
    Where A has more rows than columns, z is E itself.
    """
    # both in one solve
    both = torch.cat([residual, moved], dim=-2)
    if projection.shape[-2] > projection.shape[-1]:
        # rank above width: E is seen whole
        noise = projection.mT @ projection if full else projection.mT
        both = both @ torch.linalg.pinv(noise)
    else:
        # A Aᵀ = L Lᵀ
        root = torch.linalg.cholesky(projection @ projection.mT)
        if full:
            both = _over(_over(both @ projection.mT, root.mT, upper=True), root, upper=False)
        both = _over(both, root.mT, upper=True)
    rows = residual.shape[-2]
    return both[..., :rows, :], both[..., rows:, :]


def _over(left: Tensor, triangle: Tensor, *, upper: bool) -> Tensor:
    """Return ``left triangle⁻¹``."""
    solution: Tensor = torch.linalg.solve_triangular(triangle, left, upper=upper, left=False)
    return solution


@array_value(kw_only=True)
class PlayedHeads:
    """Linear heads, every other one trained with the canary.

    Attributes:
        memberships: (M,) whether a head was.
        losses: (M,) in nats, of the canary.
        log_ratios: (M,) sums of `update_log_ratio` over the steps; None without noise.
        weights: (M, classes, d), as trained.
    """

    memberships: npt.NDArray[np.bool_]
    losses: Array = field(repr=False)
    log_ratios: Array | None = field(repr=False)
    weights: Array = field(repr=False)

    def logits(self, features: ArrayLike) -> Array:
        """Return (M, Z, classes) of records with features (Z, d)."""
        outputs: Array = matrix("features", features) @ self.weights.transpose(0, 2, 1)
        return outputs

    def losses_of(self, features: ArrayLike, labels: ArrayLike) -> Array:
        """Return the losses (M, Z) in nats of records with features (Z, d) and labels (Z,)."""
        rows = matrix("features", features)
        return _losses(self.weights, rows, _labels(labels, len(rows), self.weights.shape[1]))

    def accuracy(self, features: ArrayLike, labels: ArrayLike) -> Array:
        """Return (M,) shares of records with features (Z, d) and labels (Z,) classed right."""
        guesses = self.logits(features).argmax(axis=-1)
        shares: Array = (guesses == np.asarray(labels)).mean(axis=1)
        return shares


def play_linear_heads(
    features: ArrayLike,
    labels: ArrayLike,
    canary: tuple[ArrayLike, int],
    method: Method,
    steps: HeadSteps,
    *,
    classes: int,
    models: int,
    rng: RandomSource = None,
) -> PlayedHeads:
    """Train linear heads on all records at every step, every other one with the canary too.

    ``W ← W − η U``, U what the method publishes of ``Σ_i c_i (softmax(W x_i) − y_i) x_iᵀ``, from
    W = 0. Every head has its own noise and its own A, anew at every step for a method that has
    a fresh one.

    Args:
        features: (n, d) of the records that all heads are trained on.
        labels: (n,) their classes.
        canary: its features, (d,), and its class.
        method: of every step.
        steps: T of them on all records, with one noise multiplier and one η, of a sum over the
            records.
        classes: number of classes.
        models: M >= 2, even; the odd ones see the canary.
        rng: seed or generator of A and the noise; the operating system's when None.

    Returns:
        What the heads show of the canary.

    Raises:
        ValueError: a bad argument.

    Example:
        >>> from tacit.adapters import DPSGD
        >>> source = np.random.default_rng(0)
        >>> heads = play_linear_heads(
        ...     source.normal(size=(20, 3)), np.arange(20) % 2, ([0.0, 0.0, 9.0], 1), DPSGD(),
        ...     HeadSteps(steps=5, rates=0.1, noise_multipliers=0.2), classes=2, models=40, rng=1,
        ... )
        >>> np.median(heads.losses[1::2]) < np.median(heads.losses[::2])
        np.True_

    Source: lora-privacy, Appendix F.1.
    """
    if steps.sampling_rate != 1.0 or steps.projection is not None:
        raise ValueError(
            "steps: expected steps on all records with an A of each head, got other values"
        )
    rows, point = matrix("features", features), vector("canary", canary[0])
    count, width = rows.shape
    if point.size != width:
        raise ValueError(f"canary: expected {width} values, as each record has, got {point.size}")
    outputs = integer("classes", classes, minimum=2)
    truth = np.append(
        _labels(labels, count, outputs),
        integer("canary", canary[1], minimum=0, maximum=outputs - 1),
    )
    # half with the canary, every other one
    heads = integer("models", models, minimum=2)
    if heads % 2:
        raise ValueError(f"models: expected an even number, half with the canary, got {heads}")
    source = torch.Generator().manual_seed(int(generator(rng).integers(2**63)))
    run = _Run(
        # the canary is the last row
        inputs=torch.from_numpy(np.vstack([rows, point])).float(),
        targets=torch.nn.functional.one_hot(torch.from_numpy(truth), outputs).float(),
        method=method,
        std=non_negative("noise_multipliers", steps.noise_multipliers) * method.noise_scale,
        rate=positive("rates", steps.rates),
        source=source,
    )
    memberships = np.arange(heads) % 2 == 1
    rank = getattr(method, "rank", 1)
    # as many heads side by side as memory has room for
    together = max(2, ENTRIES // max(count * outputs, width * rank))
    parts = [
        run.train(torch.from_numpy(part), steps.steps)
        for part in np.array_split(memberships, -(-heads // together))
    ]
    weights, ratios = (np.concatenate(pieces) for pieces in zip(*parts, strict=True))
    return PlayedHeads(
        memberships=memberships,
        losses=_losses(weights, point[None], truth[-1:])[:, 0],
        log_ratios=ratios if run.noisy else None,
        weights=weights,
    )


@dataclass(frozen=True, kw_only=True, eq=False)
class _Run:
    """What all heads share; the canary is the last row."""

    inputs: Tensor
    targets: Tensor
    method: Method
    std: float
    rate: float
    source: torch.Generator

    @property
    def noisy(self) -> bool:
        return self.std > 0.0 and self.method.noise_kind != "none"

    def train(self, inside: Tensor, steps: int) -> tuple[Array, Array]:
        """Return weights (m, classes, d) and log-ratios (m,) of heads trained side by side."""
        width = self.inputs.shape[1]
        weights = torch.zeros(len(inside), self.targets.shape[1], width)
        present = inside[:, None, None].to(weights)
        ratios = torch.zeros(len(inside), dtype=torch.float64)
        projection = None
        for _ in range(steps):
            if projection is None or self.method.fresh:
                projection = self._projection(len(inside))
            # what this step published, and its parts by record
            published, others, canary = self._step(weights, present, projection)
            if self.noisy:
                ratios += update_log_ratio(
                    self.method, published, others, canary, projection, self.std
                )
            low = None if self.method.full else projection
            weights -= self.rate * (published if low is None else published @ low)
        return weights.double().numpy(), ratios.numpy()

    def _step(
        self, weights: Tensor, present: Tensor, projection: Tensor | None
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Return what is published, the sum over the other records, and the canary's part."""
        # softmax(W x) − y
        errors = (self.inputs @ weights.mT).softmax(dim=-1) - self.targets
        inputs = self.inputs
        if projection is not None and not self.method.full:
            inputs = inputs @ projection.mT
        if isinstance(self.method, ClippedMethod):
            # ‖g xᵀ‖² = ‖g‖²‖x‖²
            squares = errors.square().sum(dim=-1) * inputs.square().sum(dim=-1)
            errors = errors * self.method.factors({"head": squares})["head"][..., None].to(errors)
        others = errors[:, :-1].mT @ inputs[..., :-1, :]
        canary = errors[:, -1, :, None] * inputs[..., -1:, :]
        # the canary in every other head
        total = others + present * canary
        return self.method.step(total, projection, self.std, self._normal), others, canary

    def _projection(self, heads: int) -> Tensor | None:
        rank = getattr(self.method, "rank", None)
        if rank is None:
            return None
        drawn: Tensor = self._normal((heads, int(rank), self.inputs.shape[1])) / float(rank) ** 0.5
        return drawn

    def _normal(self, shape: tuple[int, ...]) -> Tensor:
        return torch.randn(shape, generator=self.source)


def _losses(weights: Array, rows: Array, labels: npt.NDArray[np.int64]) -> Array:
    logits = rows @ weights.transpose(0, 2, 1)
    of_label = np.take_along_axis(logits, labels[None, :, None], axis=2)[:, :, 0]
    losses: Array = special.logsumexp(logits, axis=2) - of_label
    return np.maximum(losses, 0.0)


def _labels(labels: Any, count: int, classes: int) -> npt.NDArray[np.int64]:
    found = np.asarray(labels)
    if found.shape != (count,) or found.dtype.kind not in "iu":
        raise ValueError(
            f"labels: expected {count} whole numbers, one per record, got other values"
        )
    if found.size and (found.min() < 0 or found.max() >= classes):
        raise ValueError(
            f"labels: expected classes 0 to {classes - 1}, got {found.min()} to {found.max()}"
        )
    return found.astype(np.int64)
