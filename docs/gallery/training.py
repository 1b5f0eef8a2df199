"""
What a training run spends
==========================

DP-SGD adds noise to every step; its guarantee is a whole curve of pairs (ε, δ). All three curves
are upper bounds, for neighbours that differ by adding or removing one record.
"""

# %%
# A record is in a batch with probability 1%, for 300 steps.

import matplotlib.pyplot as plt
import numpy as np

from tacit.accounting import subsampled_gaussian

COLOURS = {0.8: "#0072B2", 1.1: "#009E73", 1.6: "#CC79A7"}
epsilons = np.linspace(0.0, 3.0, 61)

figure, axes = plt.subplots(figsize=(7, 4.2), layout="constrained")
for row, (noise, colour) in enumerate(COLOURS.items()):
    profile = subsampled_gaussian(sampling_rate=0.01, noise_multiplier=noise, steps=300)
    deltas = np.array([profile.delta(epsilon) for epsilon in epsilons])
    shown = deltas > 1e-9
    axes.semilogy(epsilons[shown], deltas[shown], color=colour, linewidth=2)
    spent = profile.epsilon(1e-6)
    axes.plot(spent, 1e-6, "|", color=colour, markersize=14, markeredgewidth=2)
    rounded_up = np.ceil(100 * spent) / 100
    label = f"noise multiplier {noise}: ε = {rounded_up:.2f} at δ = 1e-6"
    place = (0.98, 0.93 - 0.07 * row)
    axes.annotate(label, place, xycoords="axes fraction", color=colour, ha="right")
axes.axhline(1e-6, color="#5D6167", linewidth=0.8)
axes.set(xlabel="ε", ylabel="δ (log axis)", xlim=(0.0, 3.0), ylim=(1e-9, 1.0))
axes.spines[["top", "right"]].set_visible(False)
plt.show()
