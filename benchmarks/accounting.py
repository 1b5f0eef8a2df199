"""Time and tightness of accountants on the sampled Gaussian, beside what is true.

``python -m benchmarks.accounting``. ε at δ after T steps of noise σ on Poisson samples at rate q,
one record added or removed. The truth is extrapolated from `dp_accounting`'s distributions on
lattices of 2e-5 and 1e-5, whose error falls with the square of the step; its uncertainty is their
distance. Seconds are the best of three, in one process; ratios are the peer's over ours.
Random allocation stands beside the bracket of `PLD_accounting`, one run each.
"""

from __future__ import annotations

import argparse
import importlib
import json
import time
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path

from rich.console import Console

from tacit.accounting import calibrate, gaussian_shift, random_allocation, subsampled_gaussian

SETTINGS = (
    (1024 / 50_000, 2.2192, 1000, 1e-4),
    (0.01, 1.0, 1000, 1e-5),
    (0.001, 0.6, 10_000, 1e-6),
    (0.05, 4.0, 5000, 1e-9),
    (0.2, 8.0, 200, 1e-5),
    (1.0, 20.0, 100, 1e-6),
)
ALLOCATIONS = (  # σ, steps, participations, epochs
    (3.0, 100, 1, 1),
    (1.0, 50, 1, 10),
    (2.0, 1000, 10, 1),
    (0.5, 1000, 1, 1),
    (1.0, 1000, 1, 1),
)
ALLOCATION_DELTA = 1e-6
# (q, σ, steps) of every stage.
SCHEDULES = {
    "100 distinct steps": [(0.01, 1.0 + 0.01 * k, 1) for k in range(100)],
    "12 stages of DP-SGD": [(0.01, 1.0 + 0.05 * k, 100) for k in range(12)],
    "20 Gaussians": [(1.0, 5.0 + k, 1) for k in range(20)],
}
SCHEDULE_DELTA, MOST_FINE = 1e-5, 50
TRUTH_STEP = 1e-5
FLOAT_ROUNDING = 1e-8
AS_TIGHT = 1e-4
Accountant = Callable[[float, float, int, float], float]


def ours(rate: float, noise: float, steps: int, delta: float) -> float:
    return subsampled_gaussian(rate, noise, steps).epsilon(delta)


def dp_accounting_pld(rate: float, noise: float, steps: int, delta: float) -> float:
    return _pld(rate, noise, steps, delta, 1e-4)


def _pld(rate: float, noise: float, steps: int, delta: float, step: float) -> float:
    from dp_accounting.pld import privacy_loss_distribution

    single = privacy_loss_distribution.from_gaussian_mechanism(
        noise, sampling_prob=rate, value_discretization_interval=step
    )
    return float(single.self_compose(steps).get_epsilon_for_delta(delta))


def truth(rate: float, noise: float, steps: int, delta: float) -> tuple[float, float]:
    """Return the ε at step 0 and its uncertainty; exact where nothing is sampled."""
    if rate == 1.0:
        return gaussian_shift(steps**0.5 / noise).epsilon(delta), 0.0
    coarse, fine = (_pld(rate, noise, steps, delta, k * TRUTH_STEP) for k in (2, 1))
    return fine - (coarse - fine) / 3, abs(coarse - fine)


def dp_accounting_rdp(rate: float, noise: float, steps: int, delta: float) -> float:
    from dp_accounting import GaussianDpEvent, PoissonSampledDpEvent
    from dp_accounting.rdp import RdpAccountant

    accountant = RdpAccountant()
    accountant.compose(PoissonSampledDpEvent(rate, GaussianDpEvent(noise)), steps)
    return float(accountant.get_epsilon(delta))


def opacus_prv(rate: float, noise: float, steps: int, delta: float) -> float:
    from opacus.accountants import PRVAccountant

    return _opacus(PRVAccountant(), rate, noise, steps, delta)


def opacus_rdp(rate: float, noise: float, steps: int, delta: float) -> float:
    from opacus.accountants import RDPAccountant

    return _opacus(RDPAccountant(), rate, noise, steps, delta)


def _opacus(accountant: object, rate: float, noise: float, steps: int, delta: float) -> float:
    accountant.history = [(noise, rate, steps)]  # type: ignore[attr-defined]
    return float(accountant.get_epsilon(delta=delta))  # type: ignore[attr-defined]


def autodp_rdp(rate: float, noise: float, steps: int, delta: float) -> float:
    from autodp.mechanism_zoo import GaussianMechanism
    from autodp.transformer_zoo import AmplificationBySampling, Composition

    sampled = AmplificationBySampling(PoissonSampling=True)(GaussianMechanism(sigma=noise), rate)
    return float(Composition()([sampled], [steps]).get_approxDP(delta))


PEERS: dict[str, tuple[str, Accountant]] = {
    "PLD (dp_accounting)": ("dp_accounting", dp_accounting_pld),
    "PRV (Opacus)": ("opacus", opacus_prv),
    "RDP (dp_accounting)": ("dp_accounting", dp_accounting_rdp),
    "RDP (Opacus)": ("opacus", opacus_rdp),
    "RDP (autodp)": ("autodp", autodp_rdp),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--settings", type=int, default=len(SETTINGS), help="how many to run")
    parser.add_argument("--json", type=Path, help="also write the rows here")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    console = Console(width=120)
    peers = {name: peer for name, peer in PEERS.items() if _available(peer[0], name, console)}
    rows = []
    for setting in SETTINGS[: options.settings]:
        rows += compare(setting, peers, console)
    summary(rows, console)
    rows += calibrations(console)
    rows += allocations(console)
    rows += schedules(console)
    if options.json:
        options.json.write_text(json.dumps(rows, indent=1) + "\n", encoding="utf-8")


def compare(
    setting: tuple[float, float, int, float],
    peers: dict[str, tuple[str, Accountant]],
    console: Console,
) -> list[dict[str, object]]:
    """Time every accountant on one setting and print its excess over the truth."""
    rate, noise, steps, delta = setting
    exact, doubt = truth(rate, noise, steps, delta)
    console.print(
        f"\nq = {rate:.4g}, σ = {noise:g}, T = {steps}, δ = {delta:g}: "
        f"ε = {exact:.8g} ± {doubt:.1g}",
        highlight=False,
    )
    mine, own = timed(ours, setting)
    rows = [row("Tacit", setting, mine, own, own, (exact, doubt))]
    for name, (_, accountant) in peers.items():
        try:
            epsilon, seconds = timed(accountant, setting)
        except (ValueError, RuntimeError, OverflowError, MemoryError, IndexError) as error:
            reason = str(error).splitlines()[0][:70] if str(error) else type(error).__name__
            console.print(f"  {name:22} failed: {reason}", highlight=False)
            continue
        rows.append(row(name, setting, epsilon, seconds, own, (exact, doubt)))
    for entry in rows:
        console.print(
            f"  {entry['name']:22} ε {entry['epsilon']:<12.8g} excess {entry['excess']:+9.2e}  "
            f"{entry['seconds']:8.3f} s  ×{entry['ratio']:<8.2f}{entry['verdict']}",
            highlight=False,
        )
    return rows


def row(
    name: str,
    setting: tuple[float, float, int, float],
    epsilon: float,
    seconds: float,
    own: float,
    true: tuple[float, float],
) -> dict[str, object]:
    exact, doubt = true
    excess = epsilon / exact - 1
    below = epsilon < exact * (1 - FLOAT_ROUNDING) - doubt
    verdict = "below the truth" if below else "" if excess <= AS_TIGHT else "loose"
    return {
        "name": name,
        "setting": setting,
        "epsilon": epsilon,
        "seconds": seconds,
        "ratio": seconds / own,
        "excess": excess,
        "verdict": verdict,
    }


def summary(rows: list[dict[str, object]], console: Console) -> None:
    """Say who was never below the truth, and how fast those as tight as ours were."""
    console.print()
    for name in dict.fromkeys(str(entry["name"]) for entry in rows):
        own = [entry for entry in rows if entry["name"] == name]
        ratios = [float(entry["ratio"]) for entry in own]  # type: ignore[arg-type]
        below = sum(entry["verdict"] == "below the truth" for entry in own)
        loose = sum(entry["verdict"] == "loose" for entry in own)
        console.print(
            f"{name:22} {len(own)} settings, {below} below the truth, {loose} loose by "
            f"> {AS_TIGHT:g}; time over ours {min(ratios):.2f} to {max(ratios):.2f}",
            highlight=False,
        )


def calibrations(console: Console) -> list[dict[str, object]]:
    """Time the whole search for a noise multiplier."""
    rows: list[dict[str, object]] = []
    for epsilon in (0.2, 1.0, 4.0):
        start = time.perf_counter()
        noise = calibrate(
            lambda s: subsampled_gaussian(1024 / 50_000, s, 1000),
            epsilon=epsilon, delta=1e-4, bracket=(0.3, 100.0),
        )  # fmt: skip
        seconds = time.perf_counter() - start
        rows.append({"name": "calibrate", "epsilon": epsilon, "noise": noise, "seconds": seconds})
        console.print(f"calibrate to ε = {epsilon}: σ = {noise:.6g} in {seconds:.2f} s")
    return rows


def allocations(console: Console) -> list[dict[str, object]]:
    """Print ε of random allocation, the peer's bracket, and both as ratios to ours."""
    known = _available("PLD_accounting", "allocation peer", console)
    rows: list[dict[str, object]] = []
    for noise, steps, times, epochs in ALLOCATIONS:
        start = time.perf_counter()
        profile = random_allocation(noise, steps=steps, participations=times, epochs=epochs)
        epsilon = profile.epsilon(ALLOCATION_DELTA)
        seconds = time.perf_counter() - start
        line = f"allocation σ = {noise:g}, {times} of {steps}, {epochs} epochs: ε = {epsilon:.6g}"
        entry: dict[str, object] = {"name": "allocation", "epsilon": epsilon, "seconds": seconds}
        if known:
            from PLD_accounting import gaussian_allocation_epsilon_range

            start = time.perf_counter()
            high, low = gaussian_allocation_epsilon_range(
                delta=ALLOCATION_DELTA,
                sigma=noise,
                num_steps=steps,
                num_selected=times,
                num_epochs=epochs,
            )
            ratio = (time.perf_counter() - start) / seconds
            line += f", peer {low:.6g} to {high:.6g} (×{high / epsilon:.4f}), time ×{ratio:.1f}"
            entry |= {"peer": (low, high), "ratio": ratio}
        rows.append(entry)
        console.print(f"{line}, {seconds:.2f} s", highlight=False)
    return rows


def schedules(console: Console) -> list[dict[str, object]]:
    """Compose mechanisms that differ: CPU seconds beside dp_accounting's default lattice."""
    rows: list[dict[str, object]] = []
    for name, stages in SCHEDULES.items():
        start = time.process_time()
        whole = subsampled_gaussian(*stages[0])
        for stage in stages[1:]:
            whole = whole.compose(subsampled_gaussian(*stage))
        epsilon = whole.epsilon(SCHEDULE_DELTA)
        seconds = time.process_time() - start
        line = f"{name}: ε {epsilon:.7f}, {seconds:.2f} CPU s"
        entry: dict[str, object] = {"schedule": name, "epsilon": epsilon, "seconds": seconds}
        for step in (1e-4, 1e-5) if len(stages) < MOST_FINE else (1e-4,):
            start = time.process_time()
            found = composed(stages, step)
            ratio = (time.process_time() - start) / seconds
            line += f"; dp_accounting {step:g}: {found:.7f}, time ×{ratio:.1f}"
            entry[f"peer {step:g}"] = (found, ratio)
        rows.append(entry)
        console.print(line, highlight=False)
    return rows


def composed(stages: Sequence[tuple[float, float, int]], step: float) -> float:
    from dp_accounting.pld.privacy_loss_distribution import from_gaussian_mechanism

    whole = None
    for rate, noise, steps in stages:
        one = from_gaussian_mechanism(
            noise, sampling_prob=rate, value_discretization_interval=step
        ).self_compose(steps)
        whole = one if whole is None else whole.compose(one)
    assert whole is not None
    return float(whole.get_epsilon_for_delta(SCHEDULE_DELTA))


def timed(accountant: Accountant, setting: tuple[float, float, int, float]) -> tuple[float, float]:
    """Return the answer and the best time of three."""
    best, epsilon = float("inf"), float("nan")
    for _ in range(3):
        start = time.perf_counter()
        epsilon = accountant(*setting)
        best = min(best, time.perf_counter() - start)
    return epsilon, best


def _available(module: str, name: str, console: Console) -> bool:
    try:
        importlib.import_module(module)
    except ImportError as error:
        console.print(f"skipped {name}: {error}")
        return False
    return True


if __name__ == "__main__":
    main()
