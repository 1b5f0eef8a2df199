"""What a record's loss is: a shared random output map with aligned labels, or labels in any order."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

# Rows of the shared map g: more labels than a task may have.
MOST_LABELS, SEED = 64, 7


@dataclass(frozen=True, eq=False)
class Aligned:
    """Cross-entropy of g((f(x) − c)/s) with the label's number, or with probabilities (n, K).

    g is the same for everyone: rows N(0, I/d) of a fixed seed, the first K of them for K labels.
    Without the centre, what all inputs have in common outweighs what tells labels apart.

    Attributes:
        labels: K.
        centre: (d,) c, public.
        scale: s, root mean variance of public features.
    """

    labels: int
    centre: Tensor
    scale: float
    name: str = f"aligned/normal/centred/seed {SEED}"

    def losses(self, features: Tensor, targets: Tensor) -> Tensor:
        """Return (n,) losses of features (n, d)."""
        apart = (features - self.centre) / self.scale
        logits = apart @ shared_map(features.shape[1])[: self.labels].T
        return torch.nn.functional.cross_entropy(logits, targets, reduction="none")


@dataclass(frozen=True, eq=False)
class LabelFree:
    """−⟨m_y − m̄, W(f(x) − c)⟩ with the labels' means m of whitened features, in any label order.

    With the data's own means the mean gradient is that of −½ Σ_c ‖m_c − m̄‖² for balanced labels.
    Under privacy the means are released before, with noise.

    Attributes:
        means: (K, d).
        centre: (d,) c, public.
        whitening: (d, d) W, public.
    """

    means: Tensor
    centre: Tensor
    whitening: Tensor
    name: str = "label-free/scatter"

    def losses(self, features: Tensor, targets: Tensor) -> Tensor:
        """Return (n,) losses of features (n, d)."""
        apart = self.means - self.means.mean(dim=0)
        white = (features - self.centre) @ self.whitening
        return -(apart[targets] * white).sum(dim=1)


def shared_map(width: int) -> Tensor:
    """Return g, (64, d), from NumPy's PCG64 and a fixed seed."""
    rng = np.random.Generator(np.random.PCG64(SEED))
    drawn = rng.standard_normal((MOST_LABELS, width)) / width**0.5
    return torch.from_numpy(drawn.astype(np.float32))
