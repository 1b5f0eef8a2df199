"""What a model is measured at: loss, geometry of a layer, the middle, a memory taken out."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from tacit.attacks import Mahalanobis, retrieve
from tacit.covariance import Covariance
from tacit.hidden_states import (
    Denoiser,
    Geometry,
    GeometryFit,
    designs_at_budget,
    least_signal,
    measure_geometry,
)
from tacit.linalg import bures_fidelity
from tacit.models import LanguageModel, sample_prefixes
from tacit.models.texts.corpus import hold_out

FACTORS = (0.1, 1.0, 10.0)
DESIGNS = ("isotropic", "mahalanobis-optimal")
READINGS = ("raw", "posterior-mean")


@dataclass(frozen=True, eq=False)
class Prompts:
    """Windows of tokens, the last of each what follows: public, secret, and held out for loss."""

    calibration: Tensor
    bank: Tensor
    held_out: Tensor


def draw_prompts(
    model: LanguageModel, text: str, *, length: int, calibration: int, bank: int, held_out: int
) -> Prompts:
    """Draw public windows and a bank from the learned text, held-out ones from what none saw."""
    learned, unseen = hold_out(text)
    seen = sample_prefixes(
        model.stream(learned), count=calibration + bank, length=length + 1, rng=0
    )
    kept = sample_prefixes(model.stream(unseen), count=held_out, length=length + 1, rng=1)
    return Prompts(seen[:calibration], seen[calibration:], kept)


@torch.no_grad()
def loss(model: LanguageModel, windows: Tensor) -> float:
    """Return the mean cross-entropy in nats per token over all positions of windows."""
    total = 0.0
    for part in torch.split(windows.to(model.device), 256):
        logits = model.network(part[:, :-1], use_cache=False).logits.double()
        total += float(
            torch.nn.functional.cross_entropy(
                logits.flatten(0, 1), part[:, 1:].flatten(), reduction="sum"
            )
        )
    return total / (windows.shape[0] * (windows.shape[1] - 1))


def geometry_row(found: Geometry, trunk: int | None) -> dict[str, Any]:
    """Return what the geometry of a layer says, with the trunk's share where there is a trunk."""
    fisher = found.dense_fisher
    row: dict[str, Any] = {
        "width": found.width,
        "rank": found.rank,
        "energy": found.energy,
        "margin_mass": float(_mass(found.basis(), found.spread)),
        "gain_unit": _gain(fisher, found.directions, found.ridge),
        "gain_raw": found.mahalanobis_gain,
        "least_signal": found.least_signal,
        "least_signal_ridged": found.least_signal_ridged,
        "fisher_trace": float(np.trace(fisher)),
        "spread_trace": float(np.trace(found.spread)),
    }
    if trunk is not None:
        row["trunk_share"] = float(np.trace(fisher[:trunk, :trunk]) / np.trace(fisher))
        row["rescaled"] = [rescaled(fisher, found.spread, found.ridge, trunk, f) for f in FACTORS]
    return row


def rescaled(fisher: Any, spread: Any, ridge: float, trunk: int, factor: float) -> dict[str, float]:
    """Return G_Mah and M* after v → a v: F becomes A⁻¹FA⁻¹ and S becomes ASA."""
    scale = np.where(np.arange(len(fisher)) < trunk, 1.0, factor)
    outer = np.outer(scale, scale)
    fisher, spread = fisher / outer, spread * outer
    return {
        "factor": factor,
        "gain_raw": _gain(fisher, spread, ridge),
        "least_signal": least_signal(fisher, spread).value,
    }


def _gain(fisher: Any, spread: Any, ridge: float) -> float:
    """Return G_Mah = 1/fidelity² of F and S with the ridge, at trace 1."""
    moved = [part + ridge * np.trace(part) / len(part) * np.eye(len(part))
             for part in (fisher, spread)]  # fmt: skip
    return float(bures_fidelity(*(part / np.trace(part) for part in moved)) ** -2)


def _mass(basis: Any, spread: Any) -> Any:
    return np.vdot(basis, spread @ basis) / np.trace(spread)


def measured_geometry(model: LanguageModel, layer: int, prompts: Tensor, rank: int) -> Geometry:
    """Return the geometry with raw differences; its ``directions`` are the unit ones."""
    kept = min(rank, model.width // 2)
    return measure_geometry(
        model, layer, prompts, GeometryFit(rank=kept, draws=8, difference_scale="raw"), rng=0
    )


def middle(
    model: LanguageModel,
    layer: int,
    prompts: Prompts,
    geometry: Geometry,
    budgets: tuple[float, ...],
    queries: int,
) -> list[dict[str, Any]]:
    """Return agreement, KL, NLL and attack of noise at K nats, read raw and by Bayes."""
    bank, public = prompts.bank[:, :-1], prompts.calibration[:, :-1]
    states = model.states(bank, layer).double().cpu().numpy()
    known = model.states(public, layer).double().cpu().numpy()
    truth = np.arange(min(queries, len(bank)))
    asked = bank[: len(truth)]
    upper = model.continuation(asked, layer)
    follows = prompts.bank[: len(truth), -1]
    rows = []
    for budget in budgets:
        designs = designs_at_budget(geometry, kl_budget=budget)
        for name in DESIGNS:
            noise: Covariance = designs[name].covariance
            released = noise.release(states[truth], rng=7)
            found = retrieve(states, released, truth, metric=Mahalanobis(noise, floor=0.0), rng=8)
            for reading in READINGS:
                read = torch.from_numpy(np.asarray(released)).float()
                if reading != "raw":
                    read = Denoiser.posterior_mean(known, noise).denoise(read).float()
                rows.append({
                    "design": name, "budget": budget, "reading": reading,
                    "attack": float(found.top1), **use(upper, read, follows),
                })  # fmt: skip
    return rows


@torch.no_grad()
def use(upper: Any, states: Tensor, follows: Tensor) -> dict[str, float]:
    """Return agreement and KL with the clean prediction, and the NLL of what really follows."""
    clean, noisy = (upper.logits(part).double().log_softmax(-1)
                    for part in (upper.clean_states, states))  # fmt: skip

    def nll(logs: Tensor) -> float:
        return float(-logs.gather(1, follows[:, None].to(logs.device)).mean())

    return {
        "agreement": float((clean.argmax(-1) == noisy.argmax(-1)).double().mean()),
        "kl": float((clean.exp() * (clean - noisy)).sum(-1).mean()),
        "nll": nll(noisy),
        "nll_clean": nll(clean),
    }


def ablated_loss(model: LanguageModel, layer: int, prompts: Prompts, trunk: int) -> float:
    """Return the loss with the memory after a layer replaced by its mean over public prompts."""
    states = model.states(prompts.calibration[:, :-1], layer, positions="all")
    with memory_replaced(model, layer, states[..., trunk:].mean(dim=(0, 1))):
        return loss(model, prompts.held_out)


@contextmanager
def memory_replaced(model: LanguageModel, layer: int, memory: Tensor) -> Iterator[None]:
    """Let v after a layer be ``memory`` at every position."""

    def change(_: Any, __: Any, output: Tensor) -> Tensor:
        found = output.clone()
        found[..., -len(memory) :] = memory.to(output)
        return found

    handle = model.anatomy.blocks[layer - 1].register_forward_hook(change)
    try:
        yield
    finally:
        handle.remove()
