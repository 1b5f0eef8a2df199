"""What others need for the guarantee that a projection gives."""

from __future__ import annotations

import math
from typing import Any

from tacit.cli.account.answer import Rival, shortened


def projection_rivals(
    settings: dict[str, Any], noise: float, epsilon: float, delta: float
) -> list[Rival]:
    """What the published accounting and DP-SGD without a projection need for the same promise."""
    from tacit.accounting.published import lora_theorem_5_multiplier

    dim, rank = settings["dim"], settings["rank"]
    plain = _plain_noise(settings, epsilon, delta)
    # s² n d ((d + 1)/r + 1) beside σ² n d: E M² = ((d + 1)/r + 1) I
    energy = (noise / plain) ** 2 * ((dim + 1) / rank + 1)
    found = [
        Rival(
            "plain_noise_multiplier",
            "DP-SGD",
            plain,
            f"{shortened(plain)} without a projection; the noise projected here has "
            f"{energy:.2f} times that energy, and the projection adds its own variance",
        )
    ]
    if rank < dim and delta > 0:
        claimed = lora_theorem_5_multiplier(
            dim=dim,
            rank=rank,
            sampling_rate=settings["sampling_rate"],
            steps=settings["steps"],
            epsilon=epsilon,
            delta=delta,
            difference_rank=settings["difference_rank"] or 1,
            neighbours=settings["neighbours"],
        )
        words = f"noise multiplier {shortened(claimed)}, {claimed / noise:.2f} times as much"
        found.insert(0, Rival("published_noise_multiplier", "published", claimed, words))
    return found


def _plain_noise(settings: dict[str, Any], epsilon: float, delta: float) -> float:
    from tacit.accounting import least_noise, subsampled_gaussian

    rate, steps, neighbours = (settings[k] for k in ("sampling_rate", "steps", "neighbours"))
    return least_noise(
        lambda noise: subsampled_gaussian(rate, noise, steps, neighbours),
        epsilon=epsilon,
        delta=delta,
        start=guessed_noise(settings, epsilon, delta),
    )


def guessed_noise(settings: dict[str, Any], epsilon: float, delta: float) -> float:
    """The central limit q √(T (e^{1/σ²} − 1)) of the composed distance, solved for σ."""
    from tacit.divergences import shift_distance

    distance = float(shift_distance(("hockey-stick", epsilon), delta))
    effort = settings["sampling_rate"] * math.sqrt(max(settings["steps"], 1))
    if distance == 0 or effort <= 0:
        return 1.0
    return 1 / math.sqrt(math.log1p((distance / effort) ** 2))
