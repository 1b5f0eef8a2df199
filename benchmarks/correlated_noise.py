"""Error of training's iterates under noise that is tied together across steps, at equal (ε, δ).

One record takes another's place; what is told is the root mean square, over all iterates of SGD at rate 1 and one
coordinate, of what the noise adds up to, in clips. ``--peer PYTHON`` names an interpreter that has jax_privacy: its
factors of the same run stand beside ours, with the same account.
"""  # noqa: E501

from __future__ import annotations

import argparse
import json
import subprocess
import time
from typing import Any

from rich.console import Console

from tacit.accounting import least_noise
from tacit.design import Banded, Buffered, Participation, PrefixSums, StepFactor, least_error
from tacit.design.streams.choosing import AnyStepNoise
from tacit.gradients import Schedule
from tacit.guarantees.adjacency import Adjacency
from tacit.training import CyclicPoisson, FixedOrder, Poisson
from tacit.training.sampling import SampledSteps, StepSampling

ORDER = FixedOrder(shuffled=False)
ALONE = StepFactor(bands=(1.0,))
# What a peer's interpreter is asked: columns of its Toeplitz factors, the error of its dense one.
ASKED = """
import json, sys
import jax
jax.config.update("jax_enable_x64", True)
import jax.numpy as jnp
from jax_privacy.matrix_factorization import buffered_toeplitz, dense, sensitivity, toeplitz
steps, epochs, bands, buffers = map(int, sys.argv[1:])
found = {"banded": toeplitz.optimize_banded_toeplitz(steps, bands).tolist()}
blt = buffered_toeplitz.optimize(
    n=steps, min_sep=steps // epochs, max_participations=epochs, error="mean",
    min_buffers=1, max_buffers=buffers)
found["buffered"] = blt.toeplitz_coefs(steps).tolist()
if steps <= 300:
    C = dense.optimize(steps, epochs=epochs, max_optimizer_steps=1000)
    error = float(jnp.mean(dense.per_query_error(strategy_matrix=C))) ** 0.5
    found["dense"] = error * float(sensitivity.fixed_epoch_sensitivity(C, epochs))
print(json.dumps(found))
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--records", type=int, default=50_000)
    parser.add_argument("--batch", type=int, default=1000)
    parser.add_argument("--epochs", type=int, default=10)
    parser.add_argument("--delta", type=float, default=1e-5)
    parser.add_argument("--peer")
    options = parser.parse_args()
    each = options.records // options.batch
    run = Run(options.batch / options.records, each, options.epochs, options.delta)
    console = Console(width=120)
    steps = each * options.epochs
    console.print(
        f"{steps} steps, {options.epochs} epochs, q = {run.rate:g}, δ = {options.delta:g}"
    )
    console.print(f"{'':44}{'ε = 1':>10}{'ε = 8':>10}{'copies':>8}", highlight=False)
    rows: list[tuple[str, StepSampling, StepFactor | None, int]] = [
        ("independent, Poisson", Poisson(), None, 0), ("independent, fixed order", ORDER, None, 0)
    ]  # fmt: skip
    asked: list[tuple[AnyStepNoise, StepSampling]] = [
        *((Banded(bands=count), CyclicPoisson(classes=count)) for count in (2, 4, 8, 16)),
        *((Banded(bands=count), ORDER) for count in (16, min(64, each))),
        *((Buffered(buffers=count), ORDER) for count in (2, 4)),
    ]
    for noise, sampling in asked:
        start = time.process_time()
        chosen = noise.factor(sampling.participation(run.sampled(None)))
        kept = len(chosen.bands) - 1 + len(chosen.shares)
        law = "fixed order" if sampling is ORDER else "cyclic Poisson"
        spent = time.process_time() - start
        rows.append((f"{noise.word} {kept}, {law} ({spent:.2f} s)", sampling, chosen, kept))
    if options.peer:
        rows += peers(options.peer, steps, options.epochs, console)
    for name, sampling, factor, kept in rows:
        errors = [run.error(sampling, factor, epsilon) for epsilon in (1.0, 8.0)]
        console.print(
            f"{name:44}{errors[0]:10.2f}{errors[1]:10.2f}{kept:8d}", highlight=False
        )  # fmt: skip
    if options.epochs == 1:
        best = least_error(PrefixSums(), steps)
        told = [(best.cost / steps) ** 0.5 * run.deviation(ORDER, ALONE, e) for e in (1.0, 8.0)]
        console.print(f"{'optimum of all factors':44}{told[0]:10.2f}{told[1]:10.2f}{steps - 1:8d}")


def peers(
    python: str, steps: int, epochs: int, console: Console
) -> list[tuple[str, StepSampling, StepFactor | None, int]]:
    """Return jax_privacy's factors of the same run; its dense one is told at once."""
    start = time.perf_counter()
    asked = [python, "-c", ASKED, *map(str, (steps, epochs, 16, 4))]
    found: dict[str, Any] = json.loads(
        subprocess.run(asked, capture_output=True, text=True, check=True).stdout
    )
    console.print(f"jax_privacy answered in {time.perf_counter() - start:.0f} s")
    if "dense" in found:
        console.print(f"jax_privacy dense, error × sensitivity: {found['dense']:.4f}")
    for noise in (Buffered(buffers=4), Banded(bands=16)):
        factor = noise.factor(Participation(steps, steps // epochs, epochs))
        moved = factor.sensitivity(steps, apart=steps // epochs, times=epochs)
        error = factor.variance(PrefixSums(), steps) ** 0.5 * moved
        console.print(f"ours, {noise.word}, error × sensitivity: {error:.4f}")
    return [
        (f"jax_privacy {kind}, fixed order", ORDER, StepFactor(bands=positive(found[kind])), kept)
        for kind, kept in (("banded", 15), ("buffered", 4))
    ]


def positive(column: list[float]) -> tuple[float, ...]:
    """A coefficient that rounding has below 0 is none."""
    return tuple(max(one, 0.0) for one in column)


class Run:
    """One run: q, steps of an epoch, epochs and δ."""

    def __init__(self, rate: float, each: int, epochs: int, delta: float) -> None:
        self.rate, self.each, self.epochs, self.delta = rate, each, epochs, delta

    def sampled(self, factor: StepFactor | None) -> SampledSteps:
        schedule = Schedule(
            sampling_rate=self.rate, steps=self.each * self.epochs, dims=(1,),
            adjacency=Adjacency.REPLACE,
        )  # fmt: skip
        return SampledSteps(schedule, self.epochs, None, factor)

    def deviation(self, sampling: StepSampling, factor: StepFactor | None, epsilon: float) -> float:
        """The noise multiplier of the account."""
        work = self.sampled(factor)
        found: float = least_noise(
            lambda noise: sampling.profile(noise, work), epsilon=epsilon, delta=self.delta
        )
        return found

    def error(self, sampling: StepSampling, factor: StepFactor | None, epsilon: float) -> float:
        steps, held = self.each * self.epochs, factor or ALONE
        left = held.variance(PrefixSums(), steps) ** 0.5
        return float(left * self.deviation(sampling, factor, epsilon))


if __name__ == "__main__":
    main()
