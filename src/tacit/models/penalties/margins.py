"""The published attempts to move the margins of next tokens out of the prediction's way."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from tacit._ground.checks import choice, integer, positive
from tacit._ground.frozen import array_value
from tacit.models.penalties.step import Step, check_layers, check_weight

OBJECTIVES = ("hinge", "anisotropic", "ratio")
# keeps the slope of a distance finite where two states coincide
SMALLEST = 1e-12


@array_value()
class MarginPenalty:
    """λ times an objective of soft-min margins m_B, m_I between next tokens.

    With P_B on given directions and P_I = I − P_B, a margin is the soft minimum over distractors
    of ``‖P (h(x ⊕ y) − h(x ⊕ v))‖`` at the last position of some windows:

    - ``"hinge"``: (m_I − τ)₊²;
    - ``"anisotropic"``: (m_I − τ)₊² − m_B²/4, which has no lower bound;
    - ``"ratio"``: (m_I/m_B − τ)₊².

    Args:
        objective: which.
        layer: where states are read.
        weight: λ.
        basis: the directions of P_B as orthonormal columns, (d, k).
        threshold: τ.
        distractors: tokens v a window.
        rows: windows of the batch.
        temperature: of the soft minimum, relative to the mean distance.

    Raises:
        ValueError: an argument outside its range.

    Example:
        >>> MarginPenalty("ratio", 1, 1e-3, basis=np.eye(8)[:, :2], threshold=1.5).layers
        ()

    Source: hidden-state, App. AA.1.
    """

    objective: str
    layer: int
    weight: float
    basis: npt.NDArray[np.float64]
    threshold: float
    distractors: int = 8
    rows: int = 4
    temperature: float = 0.1

    def __post_init__(self) -> None:
        choice("objective", self.objective, OBJECTIVES)
        check_layers(self.layer)
        check_weight(self.weight)
        positive("threshold", self.threshold)
        positive("temperature", self.temperature)
        integer("distractors", self.distractors, minimum=1)
        integer("rows", self.rows, minimum=1)
        columns = np.asarray(self.basis, dtype=float)
        if columns.ndim != 2 or not np.allclose(columns.T @ columns, np.eye(columns.shape[1])):
            raise ValueError(
                f"basis: expected orthonormal columns (d, k), got shape {columns.shape}"
            )

    @property
    def layers(self) -> tuple[int, ...]:
        """No layer of the step itself: other tokens are run."""
        return ()

    def describe(self) -> dict[str, Any]:
        """Return its name and arguments, the basis by its size."""
        return {"name": f"margins-{self.objective}", "layer": self.layer, "weight": self.weight,
                "rank": int(np.shape(self.basis)[1]), "threshold": self.threshold,
                "distractors": self.distractors, "rows": self.rows}  # fmt: skip

    def measure(self, step: Step) -> Tensor:
        """Return the weighted mean of the objective over the windows."""
        inside, outside = self.margins(step)
        if self.objective == "ratio":
            found = (outside / inside.clamp_min(SMALLEST) - self.threshold).relu().square()
        else:
            found = (outside - self.threshold).relu().square()
            if self.objective == "anisotropic":
                found = found - inside.square() / 4.0
        return self.weight * found.mean()

    def margins(self, step: Step) -> tuple[Tensor, Tensor]:
        """Return the soft margins m_B and m_I of some windows, (rows,) each."""
        if len(self.basis) != step.anatomy.width:
            raise ValueError(
                f"basis: expected columns of {step.anatomy.width} numbers, got {len(self.basis)}"
            )
        tokens = step.windows[: self.rows, :-1]
        count, vocabulary = self.distractors, step.logits.shape[-1]
        shifts = torch.randint(1, vocabulary, (len(tokens), count), generator=step.source)
        others = tokens[:, None].repeat(1, count + 1, 1)
        # shifted by 1 … V − 1: never the true token itself
        others[:, 1:, -1] = (others[:, 1:, -1] + shifts.to(tokens.device)) % vocabulary
        states, _ = step.rerun(others.flatten(0, 1), (self.layer,))
        last = states[self.layer][:, -1].float().view(len(tokens), count + 1, -1)
        differences = last[:, 1:] - last[:, :1]
        basis = torch.tensor(self.basis).to(differences)
        within = differences @ basis @ basis.T
        return self._soft_minimum(within), self._soft_minimum(differences - within)

    def _soft_minimum(self, differences: Tensor) -> Tensor:
        lengths = (differences.square().sum(dim=-1) + SMALLEST).sqrt()
        scale = self.temperature * lengths.detach().mean()
        shares = (-lengths / scale).softmax(dim=-1)
        return (shares * lengths).sum(dim=-1)
