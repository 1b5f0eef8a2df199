"""Noise power and time under the true information of a finite secret, beside the plain ways.

``python -m benchmarks.information``. First table: noise power of every rule relative to
`true_information` with a full covariance, all certified for the same β. Second: seconds of
`information.mixture` and `true_information` beside a direct evaluation of the same likelihood and a
gradient descent on a Cholesky factor, in one process; ratios are the peer's over ours.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import math
import time
import warnings
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import TypeVar

import numpy as np
from rich.console import Console
from scipy.spatial.distance import cdist
from scipy.special import logsumexp

from tacit._ground.checks import Array
from tacit.covariance import Covariance
from tacit.design import Design, gaussian_information, true_information
from tacit.information import mixture
from tacit.statistics.draws.candidates import draw_family, subset_rate

Answer = TypeVar("Answer")

SEED = 20_260
LOG_DET_RULES = ("linear", "exact", "diagonal")
FAMILIES = ("full", "diagonal", "scale", "mixture")
HEADINGS = {
    "linear": "Auto-PAC, linear",
    "exact": "Auto-PAC, exact",
    "diagonal": "Efficient-PAC",
    "true full": "full",
    "true diagonal": "diagonal",
    "true scale": "scale",
    "true mixture": "mixture",
}
MIXTURE_SECONDS, DESIGN_SECONDS = 20.0, 60.0


def clusters(count: int = 200) -> Array:
    """Two tight clusters in the plane."""
    rng = np.random.default_rng(SEED)
    signs = np.repeat([-1.0, 1.0], count // 2)
    points: Array = np.outer(signs, [3.0, 1.0]) + 0.3 * rng.normal(size=(count, 2))
    return points


def heavy_tails(count: int = 500) -> Array:
    """Student-t outputs, three degrees of freedom, in five dimensions."""
    points: Array = np.random.default_rng(SEED).standard_t(3, size=(count, 5))
    return points


def lattice(side: int = 3) -> Array:
    """The points of a cube, equally spaced on axes of different length."""
    axes = [np.arange(side) * scale for scale in (1.0, 2.0, 4.0)]
    points: Array = np.stack(np.meshgrid(*axes), axis=-1).reshape(-1, 3)
    return points


def iris_means(candidates: int = 1_000) -> Array:
    """Means of the declared halves of Iris, columns in [0, 1]."""
    from sklearn.datasets import load_iris

    rows = np.asarray(load_iris().data)
    rows = (rows - rows.min(axis=0)) / (rows.max(axis=0) - rows.min(axis=0))
    rate = subset_rate(len(rows), 0.5, candidates)
    family = draw_family(len(rows), rate, candidates, np.random.default_rng(SEED))
    inside = family.memberships(0, candidates).astype(np.float64)
    points: Array = inside @ rows / inside.sum(axis=1, keepdims=True)
    return points


def digit_logits(count: int = 1_000) -> Array:
    """Logits of a small network on digits that it was not trained on."""
    from sklearn.datasets import load_digits
    from sklearn.neural_network import MLPClassifier

    images, labels = load_digits(return_X_y=True)
    images = images / 16.0
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        network = MLPClassifier((64,), max_iter=300, random_state=0)
        network.fit(images[count:], labels[count:])
    hidden = np.maximum(images[:count] @ network.coefs_[0] + network.intercepts_[0], 0.0)
    points: Array = hidden @ network.coefs_[1] + network.intercepts_[1]
    return points


CASES = {
    "two clusters": (clusters, (2.0, 1.0, 0.5, 0.25)),
    "digit logits": (digit_logits, (4.0, 1.0)),
    "Iris means": (iris_means, (2.0, 0.5)),
    "heavy tails": (heavy_tails, (2.0, 0.5)),
    "lattice": (lattice, (2.0, 0.5)),
}


def designs(
    points: Array, beta: float, families: Iterable[str] = FAMILIES
) -> Iterator[tuple[str, Design]]:
    """Yield every rule's design for one secret, all certified for β."""
    spread = np.cov(points.T, bias=True)
    for method in LOG_DET_RULES:
        yield method, gaussian_information(spread, beta, method=method)
    for family in families:
        yield f"true {family}", true_information(points, beta, family=family, rng=SEED)


def powers(name: str, beta: float) -> dict[str, object]:
    """Return the noise power of every rule and what it certifies."""
    points = CASES[name][0]()
    found = dict(designs(points, beta))
    return {
        "case": name,
        "beta": beta,
        "secrets": len(points),
        "dimension": points.shape[1],
        "power": {rule: design.cost for rule, design in found.items()},
        "certified": {rule: design.information for rule, design in found.items()},
    }


def direct_mixture(points: Array, noise: Covariance, draws: int, rng: np.random.Generator) -> float:
    """Return ``I = E ln p(y | x)/p̄(y)`` from all distances at once, in blocks that fit memory."""
    factor = np.linalg.cholesky(noise.to_dense())
    white = np.linalg.solve(factor, points.T).T
    total = 0.0
    block = max(1, 20_000_000 // len(points))
    for start in range(0, draws, block):
        size = min(block, draws - start)
        chosen = rng.integers(len(points), size=size)
        error = rng.normal(size=(size, points.shape[1]))
        exponents = -0.5 * cdist(white[chosen] + error, white, "sqeuclidean")
        average = logsumexp(exponents, axis=1) - math.log(len(points))
        total += float((-0.5 * (error**2).sum(axis=1) - average).sum())
    return total / draws


def cholesky_descent(points: Array, beta: float, steps: int, draws: int) -> tuple[float, float]:
    """Minimise ln tr Σ + 50 ((I − β)/β)² over a Cholesky factor by Adam; return power and I."""
    import torch

    torch.manual_seed(SEED)
    outputs = torch.from_numpy(points - points.mean(axis=0))
    spread = np.cov(points.T, bias=True)
    start = gaussian_information(spread, beta).covariance.to_dense()
    factor = torch.from_numpy(np.linalg.cholesky(start)).requires_grad_()
    optimiser = torch.optim.Adam([factor], lr=0.02 * float(np.sqrt(np.trace(start) / len(start))))
    power = leak = math.nan
    for _ in range(steps):
        optimiser.zero_grad()
        lower = factor.tril()
        chosen = torch.randint(len(outputs), (draws,))
        error = torch.randn(draws, outputs.shape[1], dtype=outputs.dtype)
        white = torch.linalg.solve_triangular(lower, outputs.T, upper=False).T
        squares = torch.cdist(white[chosen] + error, white).square()
        average = torch.logsumexp(-0.5 * squares, dim=1) - math.log(len(outputs))
        information = (-0.5 * error.square().sum(dim=1) - average).mean()
        cost = lower.square().sum()
        torch.autograd.backward(cost.log() + 50.0 * ((information - beta) / beta).square())
        optimiser.step()
        power, leak = float(cost.detach()), float(information.detach())
    return power, leak


def time_mixture(count: int, draws: int) -> dict[str, object]:
    """Time a bound on N outputs in ten dimensions beside the direct evaluation."""
    rng = np.random.default_rng(SEED)
    points = (
        rng.normal(size=(count, 10)) + 3.0 * rng.normal(size=(20, 10))[rng.integers(20, size=count)]
    )
    noise = gaussian_information(np.cov(points.T, bias=True), 2.0).covariance
    bound, seconds = timed(lambda: mixture(points, noise, samples=draws, rng=SEED))
    value, peer = timed(lambda: direct_mixture(points, noise, draws, rng))
    return {
        "what": f"mixture, N = {count:,}, d = 10, {draws:,} draws",
        "seconds": seconds,
        "limit": MIXTURE_SECONDS,
        "peer": "cdist and logsumexp",
        "peer_seconds": peer,
        "ratio": peer / seconds,
        "ours": [bound.lower, bound.upper],
        "theirs": value,
    }


def time_design(count: int, steps: int, draws: int) -> dict[str, object]:
    """Time a full design on N outputs in ten dimensions beside gradient descent."""
    rng = np.random.default_rng(SEED)
    points = 0.5 * rng.normal(size=(count, 10))
    points += 3.0 * rng.normal(size=(10, 10))[rng.integers(10, size=count)]
    design, seconds = timed(lambda: true_information(points, 1.0, rng=SEED))
    row: dict[str, object] = {
        "what": f"true_information, full, N = {count:,}, d = 10, β = 1",
        "seconds": seconds,
        "limit": DESIGN_SECONDS,
        "ours": design.cost,
    }
    if importlib.util.find_spec("torch") is None:
        return row
    (power, leak), peer = timed(lambda: cholesky_descent(points, 1.0, steps, draws))
    return row | {
        "peer": f"Adam on a Cholesky factor, {steps} steps of {draws:,} draws, not certified",
        "peer_seconds": peer,
        "ratio": peer / seconds,
        "theirs": power,
        "their_information": leak,
    }


def timed(run: Callable[[], Answer]) -> tuple[Answer, float]:
    """Return the answer and the seconds it took."""
    start = time.perf_counter()
    result = run()
    return result, time.perf_counter() - start


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cases", default=",".join(CASES))
    parser.add_argument("--small", action="store_true", help="time small sizes only")
    parser.add_argument("--json", type=Path, help="also write the rows here")
    options = parser.parse_args()
    names = [text.strip() for text in options.cases.split(",") if text.strip()]
    if unknown := [name for name in names if name not in CASES]:
        parser.error(f"--cases: expected some of {', '.join(CASES)}, got {', '.join(unknown)}")
    console = Console(width=160)
    rows = []
    console.print(f"{'noise power over ours':22}{'β':>6}" + "".join(
        f"{heading:>18}" for heading in HEADINGS.values()
    ))  # fmt: skip
    for name in names:
        for beta in CASES[name][1]:
            row = powers(name, beta)
            power = row["power"]
            assert isinstance(power, dict)
            shares = "".join(f"{power[rule] / power['true full']:18.3f}" for rule in HEADINGS)
            console.print(f"{name:22}{beta:>6g}{shares}", highlight=False)
            rows.append(row)
    for row in timings(small=options.small):
        console.print(
            f"{row['what']}: {row['seconds']:.1f} s (limit {row['limit']:g}); "
            f"{row.get('peer', 'no peer')}: {row.get('peer_seconds', math.nan):.1f} s, "
            f"×{row.get('ratio', math.nan):.2f}; ours {row['ours']}, "
            f"theirs {row.get('theirs')}",
            highlight=False,
        )
        rows.append(row)
    if options.json:
        options.json.write_text(json.dumps(rows, indent=1) + "\n", encoding="utf-8")


def timings(*, small: bool) -> Iterator[dict[str, object]]:
    """Yield the timed rows, largest last."""
    yield time_mixture(*((1_000, 2_000) if small else (10_000, 20_000)))
    yield time_design(*((200, 20, 500) if small else (1_000, 600, 2_000)))


if __name__ == "__main__":
    main()
