"""DP-SGD and the states of new prompts: what retrieval and inversion reach before and after."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from tacit import Run, Table
from tacit.adapters import DPSGD, GivenNoise, PoissonSteps, fit, load_pretrained
from tacit.attacks import TokenProbe, TrajectoryInverter, attack_inversion, retrieve
from tacit.covariance import Isotropic
from tacit.models import LanguageModel, load

DELTA, SEED = 1e-5, 0
# private by name and public in fact: as good as no noise
FREE = 1e5


def trained(
    windows: torch.Tensor, held_out: torch.Tensor, epsilon: float | None, sizes: dict[str, Any]
) -> tuple[LanguageModel, dict[str, Any]]:
    """Return ``tacit/small`` fine-tuned on windows (n, T), and what was certified.

    Args:
        windows: records.
        held_out: to measure the loss on.
        epsilon: of DP-SGD on every linear layer; inf for the control without its noise; None for
            the model as it is.
        sizes: of the study.
    """
    held = load_pretrained("tacit/small")
    if epsilon is None:
        return load(held.network), {"loss": _loss(held.network, held_out)}
    promise: Table | GivenNoise = GivenNoise(multiplier=1 / FREE, delta=DELTA)
    if np.isfinite(epsilon):
        promise = Table(epsilon=epsilon, delta=DELTA)
    release = fit(
        held.network, _records(windows), DPSGD(clip=1.0), promise,
        Run(steps=sizes["steps"], progress=False),
        steps=PoissonSteps(batch=sizes["batch"], rate=sizes["rate"]), rng=SEED,
    )  # fmt: skip
    told = {
        "loss": _loss(held.network, held_out), "multiplier": release.details.noise_multiplier,
    }  # fmt: skip
    return load(held.network), told


def attacked(
    model: LanguageModel, layer: int, bank: torch.Tensor, public: torch.Tensor,
    sizes: dict[str, Any],
) -> dict[str, Any]:  # fmt: skip
    """Return what is reached against noisy states of prompts that no training saw.

    Noise is N(0, r²tr(S)/d I), S the covariance of this model's own states: its attack can fail,
    and a rescaled state gains nothing.
    """
    states = model.states(bank, layer).double().cpu().numpy()
    spread = float(states.var(axis=0).sum()) / states.shape[1]
    source, truth = np.random.default_rng(SEED), np.arange(len(states))
    found: dict[str, Any] = {"spread": spread, "retrieval": {}}
    for ratio in sizes["ratios"]:
        noisy = states + ratio * spread**0.5 * source.standard_normal(states.shape)
        reached = retrieve(states, noisy, truth)
        found["retrieval"][str(ratio)] = [
            round(end, 4) for end in (reached.top1, *reached.top1_interval)
        ]
    few = bank[: sizes["inverted"], : sizes["inverted_length"]]
    clean = model.states(few, layer, positions="all").double().cpu().numpy()
    noise = Isotropic(sizes["inverted_ratio"] ** 2 * spread, states.shape[1])
    drawn = noise.sample(clean.shape[0] * clean.shape[1], SEED).reshape(clean.shape)
    probe = TokenProbe.fit(model, layer, public[:, : sizes["inverted_length"]])
    inverter = TrajectoryInverter(model, layer, noise, probe)
    result = attack_inversion(
        inverter, clean + drawn, few, public[:, : sizes["inverted_length"]],
        baselines=("permuted",), rng=0,
    )  # fmt: skip
    accuracy, blind = result.recovery.token_accuracy, result.baselines["permuted"].token_accuracy
    found["tokens"] = [round(end, 4) for end in (accuracy.value, accuracy.low, accuracy.high)]
    found["permuted"] = round(blind.value, 4)
    return found


def _records(windows: torch.Tensor) -> dict[str, torch.Tensor]:
    return {"input_ids": windows, "attention_mask": torch.ones_like(windows)}


@torch.no_grad()
def _loss(network: Any, windows: torch.Tensor) -> float:
    total = [
        float(network(input_ids=part, labels=part).loss) * len(part)
        for part in torch.split(windows, 100)
    ]
    return sum(total) / len(windows)
