"""Linear heads on frozen features, many of them trained side by side as one batched model."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from numpy.typing import ArrayLike
from scipy import special
from torch import Tensor

from tacit._ground.checks import Array, RandomSource, generator, in_interval, integer, matrix
from tacit._ground.frozen import read_only
from tacit._ground.reprs import short_repr
from tacit.gradients.methods import Method, WithoutClipping
from tacit.adapters.stacked import Stack
from tacit.attacks.membership.roc import truth_values

Labels = npt.NDArray[np.int64]


@short_repr
@read_only
@dataclass(frozen=True, kw_only=True, eq=False)
class Heads:
    """Linear heads that were trained side by side.

    Attributes:
        weights: (M, classes, d).
        energies: (M,) mean E‖noise‖²_F of a step's noise in W, of the sum that was published.
    """

    weights: Array = field(repr=False)
    energies: Array = field(repr=False)

    def logits(self, features: ArrayLike) -> Array:
        """Return (M, Z, classes) of records with features (Z, d)."""
        outputs: Array = matrix("features", features) @ self.weights.transpose(0, 2, 1)
        return outputs

    def losses(self, features: ArrayLike, labels: ArrayLike) -> Array:
        """Return the losses (M, Z) in nats of records with features (Z, d) and labels (Z,)."""
        rows = matrix("features", features)
        known = _labels(labels, len(rows), self.weights.shape[1])
        logits = self.logits(rows)
        of_label = np.take_along_axis(logits, known[None, :, None], axis=2)[:, :, 0]
        found: Array = special.logsumexp(logits, axis=2) - of_label
        return np.maximum(found, 0.0)

    def accuracy(self, features: ArrayLike, labels: ArrayLike) -> Array:
        """Return (M,) shares of records with features (Z, d) and labels (Z,) classed right."""
        shares: Array = (self.logits(features).argmax(axis=-1) == np.asarray(labels)).mean(axis=1)
        return shares


def train_heads(
    features: ArrayLike,
    labels: ArrayLike,
    methods: Sequence[Method],
    *,
    classes: int,
    noise_multipliers: ArrayLike,
    rates: ArrayLike,
    steps: int,
    sampling_rate: float = 1.0,
    members: ArrayLike | None = None,
    groups: Sequence[int] | None = None,
    projection: ArrayLike | None = None,
    rng: RandomSource = None,
) -> Heads:
    """Train linear heads from W = 0 on Poisson samples, ``W ← W − η U/(q n)``, all at once.

    U is what the head's method publishes of ``Σ_i c_i (softmax(W x_i) − y_i) x_iᵀ``. As a record's
    gradient has rank one its norm is ‖softmax(W x) − y‖ ‖x‖, or ‖·‖ ‖A x‖, and no per-example
    matrix is made.

    Args:
        features: (n, d) of the records.
        labels: (n,) their classes.
        methods: of each of M heads: one kind and rank, clips may differ.
        classes: number of classes.
        noise_multipliers: (M,) of each head's noise over its ``noise_scale``; 0 for none.
        rates: (M,) η of each head, of a mean over q n records.
        steps: T.
        sampling_rate: q.
        members: (M, n) which records a head may see; all of them when left out.
        groups: (M,) heads of one number share samples and A, and each has noise of its own; each
            head has its own when left out.
        projection: A, (rank, d), of all heads, for a method that keeps one; random when left out.
        rng: seed or generator; the operating system's when None.

    Returns:
        The heads.

    Raises:
        ValueError: a bad argument, methods of several kinds, or `WithoutClipping`.

    Example:
        >>> from tacit.adapters import DPSGD
        >>> source = np.random.default_rng(0)
        >>> rows = source.normal(size=(60, 4))
        >>> heads = train_heads(
        ...     rows, (rows[:, 0] > 0).astype(int), [DPSGD(clip=1.0), DPSGD(clip=0.1)], classes=2,
        ...     noise_multipliers=[1.0, 1.0], rates=[1.0, 5.0], steps=20, sampling_rate=0.5, rng=1,
        ... )
        >>> bool(heads.accuracy(rows, rows[:, 0] > 0).min() > 0.6)
        True

    Source: lora-privacy, Algorithms 1 to 3 and Appendix F.2.
    """
    rows, kinds = matrix("features", features), _checked(methods)
    count, heads, source = len(rows), len(kinds), generator(rng)
    truth = _labels(labels, count, integer("classes", classes, minimum=2))
    multipliers = _each("noise_multipliers", noise_multipliers, heads)
    rate = in_interval("sampling_rate", sampling_rate, 0.0, 1.0, open_low=True)
    scales = torch.tensor([one.noise_scale for one in kinds], dtype=torch.float64)
    stack = Stack(
        inputs=torch.from_numpy(rows).float(),
        targets=torch.nn.functional.one_hot(torch.from_numpy(truth), classes).float(),
        method=kinds[0],
        clips=scales,
        stds=scales * torch.from_numpy(multipliers),
        scales=torch.from_numpy(_each("rates", rates, heads) / (rate * count)),
        members=None
        if members is None
        else torch.from_numpy(truth_values("members", members, (heads, count))),
        rate=rate,
        fixed=_given(projection, kinds[0], rows.shape[1]),
        source=source,
        normal=torch.Generator().manual_seed(int(source.integers(2**63))),
    )
    weights, energies = stack.trained(_groups(groups, heads), integer("steps", steps, minimum=1))
    return Heads(weights=weights, energies=energies)


def _checked(methods: Sequence[Method]) -> list[Method]:
    found = list(methods)
    if not found or not all(isinstance(one, Method) for one in found):
        raise ValueError("methods: expected one for each head")
    kinds = {(type(one), getattr(one, "rank", None)) for one in found}
    if len(kinds) > 1 or isinstance(found[0], WithoutClipping):
        raise ValueError(
            "methods: expected one kind and one rank, with noise at every step or none, got "
            f"{sorted({one.name for one in found})}"
        )
    return found


def _each(name: str, values: Any, count: int) -> Array:
    found = np.broadcast_to(np.asarray(values, dtype=np.float64), (count,)).copy() \
        if np.ndim(values) == 0 else np.asarray(values, dtype=np.float64)  # fmt: skip
    if found.shape != (count,) or not np.isfinite(found).all() or (found < 0.0).any():
        raise ValueError(f"{name}: expected {count} finite numbers >= 0, got others")
    return found


def _groups(groups: Sequence[int] | None, count: int) -> list[npt.NDArray[np.intp]]:
    numbers = np.arange(count) if groups is None else np.asarray(groups)
    if numbers.shape != (count,) or numbers.dtype.kind not in "iu":
        raise ValueError(f"groups: expected {count} whole numbers, got others")
    return [np.flatnonzero(numbers == one) for one in np.unique(numbers)]


def _given(projection: ArrayLike | None, method: Method, width: int) -> Tensor | None:
    if projection is None:
        return None
    rank = getattr(method, "rank", None)
    found = matrix("projection", projection)
    if method.fresh or rank is None or found.shape != (rank, width):
        raise ValueError(
            f"projection: expected shape {(rank, width)} for a method that keeps its A, got "
            f"{found.shape} for {method.name}"
        )
    return torch.from_numpy(found).float()


def _labels(labels: Any, count: int, classes: int) -> Labels:
    found = np.asarray(labels)
    if found.shape != (count,) or found.dtype.kind not in "biu":
        raise ValueError(f"labels: expected {count} whole numbers, one per record, got others")
    if found.size and (found.min() < 0 or found.max() >= classes):
        raise ValueError(
            f"labels: expected classes 0 to {classes - 1}, got {found.min()} to {found.max()}"
        )
    return found.astype(np.int64)
