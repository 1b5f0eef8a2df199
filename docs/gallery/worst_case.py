"""
The least noise that hides a list
=================================

Five differences must each stay within a squared distance of one. The least-cost Gaussian is not a
circle: it is narrow where no difference points.
"""

# %%
# Two designs for the same promise: every difference within its budget.

import matplotlib.pyplot as plt
import numpy as np

from tacit.design import worst_case

BOUND, OTHER, INK = "#0072B2", "#5D6167", "#1C1D1F"

differences = np.array([[3.0, 0.8], [2.4, 1.4], [-2.8, -0.2], [0.3, 0.9], [-1.6, -1.2]])
design = worst_case(differences, 1.0)
radius = np.linalg.norm(differences, axis=1).max()

# %%
# An ellipse shows a covariance: a difference that ends inside it is within its budget.

angle = np.linspace(0.0, 2.0 * np.pi, 400)
circle = np.vstack([np.cos(angle), np.sin(angle)])
root = np.linalg.cholesky(design.covariance.to_dense())

figure, axes = plt.subplots(figsize=(7, 4.6), layout="constrained")
axes.plot(*(root @ circle), color=BOUND, linewidth=2)
axes.plot(*(radius * circle), color=OTHER, linewidth=1.2, linestyle="--")
for difference in differences:
    axes.annotate("", difference, (0, 0), arrowprops={"arrowstyle": "->", "color": INK})
axes.annotate(f"worst_case: variance {design.cost:.1f}", (0.0, -2.0), color=BOUND, ha="center")
label = f"the same in every direction: {2 * radius**2:.1f}"
axes.annotate(label, (0.0, 3.3), color=OTHER, ha="center")
axes.set(aspect="equal", ylim=(-3.4, 3.8), xlabel="first output", ylabel="second output")
axes.spines[["top", "right"]].set_visible(False)
plt.show()
