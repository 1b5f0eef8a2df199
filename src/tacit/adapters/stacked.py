"""Linear heads as stacked parameters: groups of heads take every step together."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from tacit._ground.checks import Array
from tacit.gradients.methods import Clipped, Method

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

    def trained(self, groups: list[npt.NDArray[np.intp]], steps: int) -> tuple[Array, Array]:
        """Return weights (M, classes, d) and mean noise energies (M,).

        Args:
            groups: the heads of each, which share samples and A.
            steps: T.
        """
        heads = len(self.stds)
        weights = np.zeros((heads, self.targets.shape[1], self.inputs.shape[1]))
        energies = np.zeros(heads)
        for own in self._blocks(groups):
            found, unit = self._block(own, steps)
            weights[own] = found.double().numpy()
            energies[own] = (self.stds[own].square() * unit[:, None]).numpy()
        return weights, energies

    def _blocks(self, groups: list[npt.NDArray[np.intp]]) -> list[npt.NDArray[np.intp]]:
        """Return arrays (G, H) of heads, of groups of equal size that fit together in memory."""
        count, width = self.inputs.shape
        rank = getattr(self.method, "rank", None)
        seen = width if rank is None or self.method.full else int(rank)
        spread = 0 if rank is None else int(rank) * width
        held = count * seen if spread and not self.method.full else 1
        picked = 0 if self.rate == 1.0 else int(count * self.rate) * seen
        blocks = []
        for size in sorted({len(own) for own in groups}):
            alike = np.array([own for own in groups if len(own) == size])
            step = max(picked or count * size * self.targets.shape[1], count, spread)
            together = max(1, min(ENTRIES // step, HELD // held))
            blocks += [alike[i : i + together] for i in range(0, len(alike), together)]
        return blocks

    def _block(self, own: npt.NDArray[np.intp], steps: int) -> tuple[Tensor, Tensor]:
        """Return weights (G, H, classes, d) and E‖noise‖² (G,) of a step at std 1."""
        kept = None if self.method.fresh else self._projections(len(own))
        seen = self.inputs if kept is None else self.inputs @ kept.mT
        squares = seen.square().sum(dim=-1, keepdim=True)
        weights = torch.zeros(*own.shape, self.targets.shape[1], seen.shape[-1])
        energy = torch.zeros(len(own), dtype=torch.float64)
        dense = self._dense(own, seen)
        everything = self._everything(own, seen, squares) if self.rate == 1.0 else None
        clips = self.clips[own].float()
        stds, scales = (v[own][..., None, None].float() for v in (self.stds, self.scales))

        def noise(shape: tuple[int, ...]) -> Tensor:
            return stds * self._drawn(shape)

        for _ in range(steps):
            fresh = self._projections(len(own)) if self.method.fresh else None
            batch = everything or self._sampled(own, seen, squares, dense=dense)
            total = self._total(weights, batch, clips)
            spread = None if fresh is None else fresh[:, None]
            published = self.method.step(total, spread, 1.0, noise)
            weights -= scales * published
            energy += self._energy(kept if fresh is None else fresh) / steps
        return weights if kept is None else weights @ _of_groups(kept), energy

    def _total(self, weights: Tensor, batch: Batch, clips: Tensor) -> Tensor:
        """Return Σ_i c_i (softmax(W x_i) − y_i) x_iᵀ, (G, H, classes, w), clipped by its norm."""
        groups, heads, classes, width = weights.shape
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
        errors.sub_(batch.targets)
        factors = batch.present
        if isinstance(self.method, Clipped):
            # ‖g xᵀ‖ = ‖g‖ ‖x‖
            norms = (errors.square().sum(dim=-1) * batch.squares).sqrt()
            factors = factors * (clips[:, None] * MARGIN / norms.clamp(min=TINY)).clamp(max=1.0)
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

    def _sampled(
        self, own: npt.NDArray[np.intp], seen: Tensor, squares: Tensor, *, dense: bool
    ) -> Batch:
        """Return a Poisson sample of each group, padded with records that nobody sees."""
        chosen = self.source.random((len(own), len(self.inputs))) < self.rate
        if dense:
            return self._everything(own, seen, squares, torch.from_numpy(chosen))
        if self.members is not None:
            chosen &= self.members[own].any(dim=1).numpy()
        counts = chosen.sum(axis=1)
        present = np.arange(counts.max()) < counts[:, None]
        places = np.zeros(present.shape, dtype=np.int64)
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
        share = 1.0 if self.members is None else float(self.members[own].float().mean())
        return seen.dim() == 2 and own.shape[1] == 1 < len(own) and self.rate * share >= DENSE

    def _projections(self, groups: int) -> Tensor | None:
        """Return A of each group, (G, rank, d), or of all, (rank, d)."""
        rank = getattr(self.method, "rank", None)
        if self.fixed is not None or rank is None:
            return self.fixed
        drawn: Tensor = self._drawn((groups, int(rank), self.inputs.shape[1])) / int(rank) ** 0.5
        return drawn

    def _energy(self, projections: Tensor | None) -> Tensor:
        """E‖noise‖²_F in W of noise of standard deviation 1, of each group."""
        classes = self.targets.shape[1]
        if self.method.noise == "none":
            return torch.zeros(1, dtype=torch.float64)
        if projections is None:
            return torch.tensor([float(classes * self.inputs.shape[1])], dtype=torch.float64)
        # E‖E AᵀA‖² = out ‖AAᵀ‖², and E‖E A‖² = out ‖A‖²
        shape = projections @ projections.mT if self.method.noise == "projected" else projections
        return classes * shape.double().square().sum(dim=(-2, -1)).reshape(-1)

    def _drawn(self, shape: tuple[int, ...]) -> Tensor:
        return torch.randn(shape, generator=self.normal)


def _of_groups(projections: Tensor) -> Tensor:
    return projections if projections.dim() == 2 else projections[:, None]
