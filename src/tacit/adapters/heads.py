"""Linear heads on frozen features, many of them trained side by side as one batched model."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any, NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from numpy.typing import ArrayLike
from scipy import special
from torch import Tensor

from tacit._ground.checks import Array, RandomSource, generator, integer, matrix
from tacit._ground.frozen import array_value
from tacit._ground.values import Count, Within, value
from tacit.attacks.membership.roc import truth_values
from tacit.gradients.clipping import ClippedMethod
from tacit.gradients.steps import Method
from tacit.gradients.unclipped import WithoutClipping

Labels = npt.NDArray[np.int64]
# Entries of the largest array of a step of the groups that are trained together, and of A X of all
# their records.
ENTRIES, HELD = 2**21, 2**25
# From this share of the records on, one product of all of them and many heads costs less than
# picking each head's.
DENSE = 0.2
# Keeps a clipped norm below the clip whatever float32 rounds.
MARGIN = 1.0 - 2.0**-18
# In place of the norm of a gradient that is zero.
TINY = 1e-30


@array_value(kw_only=True)
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


@value
class HeadSteps:
    """Steps of heads that are trained side by side.

    Args:
        steps: T.
        rates: Learning rate of all heads, or of each.
        noise_multipliers: Of each head's noise over its method's ``noise_scale``, or of all; 0 for
            none.
        sampling_rate: Probability q of each record in a step.
        projection: A, (rank, d), of all heads, for a method that keeps one; random when left out.
    """

    steps: Count
    rates: Any
    noise_multipliers: Any = 0.0
    sampling_rate: Annotated[float, Within(0, 1, "(]")] = 1.0
    projection: Any = None


def train_heads(
    features: ArrayLike,
    labels: ArrayLike,
    methods: Sequence[Method],
    steps: HeadSteps,
    *,
    classes: int,
    members: ArrayLike | None = None,
    groups: Sequence[int] | None = None,
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
        steps: T of them, with η of a mean over q n records.
        classes: number of classes.
        members: (M, n) which records a head may see; all of them when left out.
        groups: (M,) heads of one number share samples and A, and each has noise of its own; each
            head has its own when left out.
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
        ...     rows, (rows[:, 0] > 0).astype(int), [DPSGD(clip=1.0), DPSGD(clip=0.1)],
        ...     HeadSteps(steps=20, rates=[1.0, 5.0], noise_multipliers=1.0, sampling_rate=0.5),
        ...     classes=2, rng=1,
        ... )
        >>> bool(heads.accuracy(rows, rows[:, 0] > 0).min() > 0.6)
        True

    Source: lora-privacy, Algorithms 1 to 3 and Appendix F.2.
    """
    rows, kinds = matrix("features", features), _check_methods(methods)
    count, heads, source = len(rows), len(kinds), generator(rng)
    truth = _labels(labels, count, integer("classes", classes, minimum=2))
    multipliers = _each("noise_multipliers", steps.noise_multipliers, heads)
    rate = steps.sampling_rate
    # C of every head, by which clipping and noise are measured
    scales = torch.tensor([one.noise_scale for one in kinds], dtype=torch.float64)
    stack = Stack(
        inputs=torch.from_numpy(rows).float(),
        targets=torch.nn.functional.one_hot(torch.from_numpy(truth), classes).float(),
        method=kinds[0],
        clips=scales,
        stds=scales * torch.from_numpy(multipliers),
        scales=torch.from_numpy(_each("rates", steps.rates, heads) / (rate * count)),
        members=None
        if members is None
        else torch.from_numpy(truth_values("members", members, (heads, count))),
        rate=rate,
        fixed=_check_projection(steps.projection, kinds[0], rows.shape[1]),
        source=source,
        normal=torch.Generator().manual_seed(int(source.integers(2**63))),
    )
    weights, energies = stack.train(_groups(groups, heads), steps.steps)
    return Heads(weights=weights, energies=energies)


def _check_methods(methods: Sequence[Method]) -> list[Method]:
    found = list(methods)
    if not found or not all(isinstance(one, Method) for one in found):
        raise ValueError("methods: expected one for each head")
    # one product serves heads of one kind and rank
    kinds = {(type(one), getattr(one, "rank", None)) for one in found}
    if len(kinds) > 1 or isinstance(found[0], WithoutClipping):
        raise ValueError(
            "methods: expected one kind and one rank, with noise at every step or none, got "
            f"{sorted({one.name for one in found})}"
        )
    return found


def _each(name: str, values: Any, count: int) -> Array:
    given = np.asarray(values, dtype=np.float64)
    # a copy: an array of a frozen value may not be written, and torch asks that it may
    found = np.full(count, given) if given.ndim == 0 else given.copy()
    if found.shape != (count,) or not np.isfinite(found).all() or (found < 0.0).any():
        raise ValueError(f"{name}: expected {count} finite numbers >= 0, got other values")
    return found


def _groups(groups: Sequence[int] | None, count: int) -> list[npt.NDArray[np.intp]]:
    numbers = np.arange(count) if groups is None else np.asarray(groups)
    if numbers.shape != (count,) or numbers.dtype.kind not in "iu":
        raise ValueError(f"groups: expected {count} whole numbers, got other values")
    return [np.flatnonzero(numbers == one) for one in np.unique(numbers)]


def _check_projection(projection: ArrayLike | None, method: Method, width: int) -> Tensor | None:
    if projection is None:
        return None
    rank = getattr(method, "rank", None)
    found = matrix("projection", projection)
    if method.fresh or rank is None or found.shape != (rank, width):
        raise ValueError(
            f"projection: expected shape {(rank, width)} for a method that keeps its A, got "
            f"{found.shape} for {method.name}"
        )
    return torch.from_numpy(found.astype(np.float32))


def _labels(labels: Any, count: int, classes: int) -> Labels:
    found = np.asarray(labels)
    if found.shape != (count,) or found.dtype.kind not in "biu":
        raise ValueError(
            f"labels: expected {count} whole numbers, one per record, got other values"
        )
    if found.size and (found.min() < 0 or found.max() >= classes):
        raise ValueError(
            f"labels: expected classes 0 to {classes - 1}, got {found.min()} to {found.max()}"
        )
    return found.astype(np.int64)


class Batch(NamedTuple):
    """The records of one step, (G, k) of them for G groups, or all n for every group.

    Attributes:
        rows: (G, k, w) or (n, w).
        targets: (G, k, 1, classes) or (n, 1, classes), one 1 a record.
        squares: (G, k, 1) or (n, 1) of the rows.
        present: (G, k, H) or what broadcasts to it: 1 where a head sees the record, else 0.
    """

    rows: Tensor
    targets: Tensor
    squares: Tensor
    present: Tensor


@dataclass(frozen=True, kw_only=True, eq=False)
class Stack:
    """Everything that heads trained side by side share.

    Attributes:
        inputs: (n, d).
        targets: (n, classes), one 1 a record.
        method: kind and rank of all heads.
        clips: (M,).
        stds: (M,) of the noise, in the units of the gradients.
        scales: (M,) what multiplies the published sum in a step.
        members: (M, n), or None for all records.
        rate: q.
        fixed: A, (rank, d), of all heads, or None.
        source: of the samples.
        normal: of the noise and of A.
    """

    inputs: Tensor
    targets: Tensor
    method: Method
    clips: Tensor
    stds: Tensor
    scales: Tensor
    members: Tensor | None
    rate: float
    fixed: Tensor | None
    source: np.random.Generator
    normal: torch.Generator

    def train(self, groups: list[npt.NDArray[np.intp]], steps: int) -> tuple[Array, Array]:
        """Return weights (M, classes, d) and mean noise energies (M,).

        Args:
            groups: the heads of each, which share samples and A.
            steps: T.
        """
        # blocks of groups one after the other, each as many as memory has room for
        heads = len(self.stds)
        weights = np.zeros((heads, self.targets.shape[1], self.inputs.shape[1]))
        energies = np.zeros(heads)
        for own in self._blocks(groups):
            found, unit = self._block(own, steps)
            weights[own] = found.double().numpy()
            # E‖noise‖² = (s C)² times that of unit noise
            energies[own] = (self.stds[own].square() * unit[:, None]).numpy()
        return weights, energies

    def _blocks(self, groups: list[npt.NDArray[np.intp]]) -> list[npt.NDArray[np.intp]]:
        """Return arrays (G, H) of heads, of groups of equal size that fit together in memory."""
        count, width = self.inputs.shape
        rank = getattr(self.method, "rank", None)
        # columns that a step works in: d, or r where gradients are of B
        seen = width if rank is None or self.method.full else int(rank)
        spread = 0 if rank is None else int(rank) * width
        # A X of all records is kept where A stays
        held = count * seen if spread and not self.method.full else 1
        picked = 0 if self.rate == 1.0 else int(count * self.rate) * seen
        blocks = []
        for size in sorted({len(own) for own in groups}):
            alike = np.array([own for own in groups if len(own) == size])
            # entries of the largest array of one group's step
            step = max(picked or count * size * self.targets.shape[1], count, spread)
            together = max(1, min(ENTRIES // step, HELD // held))
            blocks += [alike[i : i + together] for i in range(0, len(alike), together)]
        return blocks

    def _block(self, own: npt.NDArray[np.intp], steps: int) -> tuple[Tensor, Tensor]:
        """Return weights (G, H, classes, d) and E‖noise‖² (G,) of a step at std 1."""
        kept = None if self.method.fresh else self._projections(len(own))
        # x, or A x: a gradient of B is g (A x)ᵀ
        seen = self.inputs if kept is None else self.inputs @ kept.mT
        # ‖A x‖² once, as it does not change
        squares = seen.square().sum(dim=-1, keepdim=True)
        weights = torch.zeros(*own.shape, self.targets.shape[1], seen.shape[-1])
        energy = torch.zeros(len(own), dtype=torch.float64)
        dense = self._dense(own, seen)
        # every record in every step: one batch for all steps
        everything = self._everything(own, seen, squares) if self.rate == 1.0 else None
        clips = self.clips[own].float()
        stds, scales = (v[own][..., None, None].float() for v in (self.stds, self.scales))

        def noise(shape: tuple[int, ...]) -> Tensor:
            return stds * self._draw(shape)

        # sample, clip, sum, noise, move
        for _ in range(steps):
            fresh = self._projections(len(own)) if self.method.fresh else None
            batch = everything or self._sample(own, seen, squares, dense=dense)
            total = self._total(weights, batch, clips)
            spread = None if fresh is None else fresh[:, None]
            published = self.method.step(total, spread, 1.0, noise)
            # W ← W − η U/(q n)
            weights -= scales * published
            energy += self._energy(kept if fresh is None else fresh) / steps
        # B of the last step times A is W
        return weights if kept is None else weights @ _of_groups(kept), energy

    def _total(self, weights: Tensor, batch: Batch, clips: Tensor) -> Tensor:
        """Return Σ_i c_i (softmax(W x_i) − y_i) x_iᵀ, (G, H, classes, w), clipped by its norm."""
        groups, heads, classes, width = weights.shape
        # rows that all groups share make one large product
        shared = batch.rows.dim() == 2
        if shared:
            logits = batch.rows @ weights.flatten(0, 2).mT
            errors = (
                logits.reshape(len(batch.rows), groups, heads, classes)
                .softmax(dim=-1)
                .transpose(0, 1)
            )
        else:
            logits = batch.rows @ weights.flatten(1, 2).mT
            errors = logits.reshape(groups, batch.rows.shape[1], heads, classes).softmax(dim=-1)
        # softmax(W x) − y: the gradient of cross-entropy in the logits
        errors.sub_(batch.targets)
        factors = batch.present
        if isinstance(self.method, ClippedMethod):
            # ‖g xᵀ‖ = ‖g‖ ‖x‖
            norms = (errors.square().sum(dim=-1) * batch.squares).sqrt()
            factors = factors * (clips[:, None] * MARGIN / norms.clamp(min=TINY)).clamp(max=1.0)
        # c_i, 0 for records that a head does not see
        errors.mul_(factors[..., None])
        # (n, G H classes) where rows are shared, so that all heads are one product
        flat = errors.transpose(0, 1).flatten(1) if shared else errors.flatten(2)
        total: Tensor = flat.mT @ batch.rows
        return total.reshape(groups, heads, classes, width)

    def _everything(
        self, own: npt.NDArray[np.intp], seen: Tensor, squares: Tensor, chosen: Tensor | None = None
    ) -> Batch:
        """Return all records, of which a step of each group may have chosen some, (G, n)."""
        present = torch.ones(1, 1, 1)
        if chosen is not None:
            present = chosen[..., None].float()
        if self.members is not None:
            present = present * self.members[own].mT
        return Batch(seen, self.targets[:, None], squares, present)

    def _sample(
        self, own: npt.NDArray[np.intp], seen: Tensor, squares: Tensor, *, dense: bool
    ) -> Batch:
        """Return a Poisson sample of each group, padded with records that nobody sees."""
        # (G, n) coins, q each
        chosen = self.source.random((len(own), len(self.inputs))) < self.rate
        if dense:
            return self._everything(own, seen, squares, torch.from_numpy(chosen))
        if self.members is not None:
            chosen &= self.members[own].any(dim=1).numpy()
        # records of each group's sample, padded to the most of any
        counts = chosen.sum(axis=1)
        present = np.arange(counts.max()) < counts[:, None]
        places = np.zeros(present.shape, dtype=np.int64)
        # which records, in order
        places[present] = np.nonzero(chosen)[1]
        records, group = torch.from_numpy(places), torch.arange(len(own))[:, None]
        inside = torch.from_numpy(present)[..., None].float()
        if self.members is not None:
            heads = torch.from_numpy(own)
            inside = inside * self.members[heads[:, None], records[..., None]]
        if seen.dim() == 2:
            return Batch(seen[records], self.targets[records][:, :, None], squares[records], inside)
        return Batch(
            seen[group, records], self.targets[records][:, :, None], squares[group, records], inside
        )

    def _dense(self, own: npt.NDArray[np.intp], seen: Tensor) -> bool:
        """Whether heads with samples of their own mask rows that they share, and pick none."""
        # of what is multiplied, how much is needed
        share = 1.0 if self.members is None else float(self.members[own].float().mean())
        return seen.dim() == 2 and own.shape[1] == 1 < len(own) and self.rate * share >= DENSE

    def _projections(self, groups: int) -> Tensor | None:
        """Return A of each group, (G, rank, d), or of all, (rank, d)."""
        rank = getattr(self.method, "rank", None)
        if self.fixed is not None or rank is None:
            return self.fixed
        drawn: Tensor = self._draw((groups, int(rank), self.inputs.shape[1])) / int(rank) ** 0.5
        return drawn

    def _energy(self, projections: Tensor | None) -> Tensor:
        """E‖noise‖²_F in W of noise of standard deviation 1, of each group."""
        classes = self.targets.shape[1]
        if self.method.noise_kind == "none":
            return torch.zeros(1, dtype=torch.float64)
        if projections is None:
            return torch.tensor([float(classes * self.inputs.shape[1])], dtype=torch.float64)
        # E‖E AᵀA‖² = out ‖AAᵀ‖², and E‖E A‖² = out ‖A‖²
        shape = (
            projections @ projections.mT if self.method.noise_kind == "projected" else projections
        )
        return classes * shape.double().square().sum(dim=(-2, -1)).reshape(-1)

    def _draw(self, shape: tuple[int, ...]) -> Tensor:
        return torch.randn(shape, generator=self.normal)


def _of_groups(projections: Tensor) -> Tensor:
    return projections if projections.dim() == 2 else projections[:, None]
