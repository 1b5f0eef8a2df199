"""
What a budget of nats means
===========================

A release that tells at most β nats about which rows were drawn limits how often anyone guesses
right whether one row was among them. The game: each row was drawn with probability one half,
and the guess is *in* or *out*. The line is that theorem; a point is the best attacker on two
outputs one apart under Gaussian noise, simulated.
"""

# %%
# The bound, at every budget up to ln 2, where it says nothing any more.

import matplotlib.pyplot as plt
import numpy as np

from tacit.attacks import bayes
from tacit.conversions import success_from_information
from tacit.covariance import Isotropic
from tacit.information import mixture

BOUND, MEASURED, QUIET = "#0072B2", "#D55E00", "#5D6167"

nats = np.geomspace(1e-3, np.log(2), 60)
bound = [success_from_information(beta, prior=0.5) for beta in nats]

# %%
# The attacker knows both outputs and the noise. The information of each release is its upper
# bound, which is true with confidence 99%.

outputs = np.array([[0.0], [1.0]])
points = []
for deviation in (0.6, 0.9, 1.5, 3.0, 8.0):
    noise = Isotropic(deviation**2, 1)
    attack = bayes(outputs, noise, [True, False], trials=4000, rng=0)
    told = mixture(outputs, noise, samples=20_000, rng=0)
    points.append((told.upper, attack.success, attack.interval))

# %%
# What lies between the points and the line is the price of a promise about every query.

figure, axes = plt.subplots(figsize=(7, 4.2), layout="constrained")
axes.semilogx(nats, bound, color=BOUND, linewidth=2)
axes.axhline(0.5, color=QUIET, linewidth=0.8)
for beta, success, (low, high) in points:
    spread = [[success - low], [high - success]]
    axes.errorbar(beta, success, spread, fmt="o", color=MEASURED, capsize=3)
axes.annotate("guaranteed: at most", (0.012, 0.615), color=BOUND, ha="right")
axes.annotate("attack measured, 95% interval", (0.06, 0.57), color=MEASURED)
axes.annotate("guessing blind", (0.7, 0.485), color=QUIET, ha="right")
axes.set(xlabel="information, nats (log axis)", ylabel="membership guessed right")
axes.set_ylim(0.47, 1.02)
axes.spines[["top", "right"]].set_visible(False)
plt.show()
