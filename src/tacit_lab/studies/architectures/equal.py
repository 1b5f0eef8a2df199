"""The attack on a model's noisy states, at a fixed noise and at an equal measured KL."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from tacit.attacks import Mahalanobis, retrieve
from tacit.covariance import Isotropic
from tacit.hidden_states import Geometry, designs_at_budget
from tacit.models import LanguageModel
from tacit_lab.studies.architectures.measure import DESIGNS, Prompts, use

HALVINGS = 20


class _Bench:
    """The states of a bank, its continuation, and one draw of standard noise."""

    def __init__(self, model: LanguageModel, layer: int, prompts: Prompts, queries: int) -> None:
        bank = prompts.bank[:, :-1]
        self.states = model.states(bank, layer).double().cpu().numpy()
        self.count = min(queries, len(bank))
        self.upper = model.continuation(bank[: self.count], layer)
        self.follows = prompts.bank[: self.count, -1]

    def measured(self, noise: Any) -> dict[str, Any]:
        """Return use and attack of one covariance."""
        truth = np.arange(self.count)
        released = noise.release(self.states[truth], rng=7)
        found = retrieve(self.states, released, truth, metric=Mahalanobis(noise, floor=0.0), rng=8)
        return {**self.used(released), "attack": float(found.top1), "queries": self.count}

    def used(self, released: Any) -> dict[str, float]:
        """Return what is left for the consumer."""
        return use(self.upper, torch.from_numpy(np.asarray(released)).float(), self.follows)

    def kl(self, noise: Any) -> float:
        """Return the measured KL of one covariance."""
        return self.used(noise.release(self.states[: self.count], rng=7))["kl"]


def at_fixed_noise(
    model: LanguageModel, layer: int, prompts: Prompts, variance: float, queries: int
) -> dict[str, Any]:
    """Measure isotropic noise of one variance."""
    bench = _Bench(model, layer, prompts, queries)
    return {"variance": variance, **bench.measured(Isotropic(variance, model.width))}


def at_equal_kl(
    model: LanguageModel, layer: int, prompts: Prompts, geometry: Geometry, kl: float, queries: int
) -> list[dict[str, Any]]:
    """Measure each design at the K whose noise costs ``kl`` nats as measured."""
    bench = _Bench(model, layer, prompts, queries)
    rows = []
    for name in DESIGNS:
        low, high = 1e-3, 1e3
        for _ in range(HALVINGS):
            middle = (low * high) ** 0.5
            noise = designs_at_budget(geometry, kl_budget=middle)[name].covariance
            low, high = (middle, high) if bench.kl(noise) < kl else (low, middle)
        noise = designs_at_budget(geometry, kl_budget=(low * high) ** 0.5)[name].covariance
        rows.append({"design": name, "budget": (low * high) ** 0.5, **bench.measured(noise)})
    return rows
