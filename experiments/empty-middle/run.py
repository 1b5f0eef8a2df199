"""The empty middle: agreement against the strongest attack, for noise and for codebooks."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tacit import Run, codec
from tacit.hidden_states import Bench, Point, Sizes, SweepRequest, SweepRun
from tacit.models import LanguageModel, Prefixes, docstring_corpus, load, read_text, train
from tacit_lab.studies.hidden.guarded import Guarded, GuardedRow, GuardedTable
from tacit_lab.studies.hidden.results import write_result
from tacit_lab.studies.places import RESULTS
from tacit_lab.studies.reproductions.page import render

HERE = Path(__file__).resolve()
IMAGES = HERE.parents[2] / "docs" / "images"
LAYER, LENGTH, SEED = 3, 32, 0
NOISE = ("isotropic", "inverse-fisher", "inverse-fisher-diagonal", "mahalanobis-optimal")
BOOKS = (
    "codebook-euclidean",
    "codebook-fisher",
    "codebook-behaviour",
    "codebook-decision",
    "argmax",
)


@dataclass(frozen=True)
class Scale:
    """How large the experiment is."""

    bank: int
    calibration: int
    sizes: Sizes
    budgets: tuple[float, ...]
    codewords: tuple[int, ...]
    alone: tuple[float, ...]
    guarded: tuple[Guarded, ...]
    noise: tuple[str, ...] = NOISE
    books: tuple[str, ...] = BOOKS


FULL = Scale(
    bank=50_000,
    calibration=100_000,
    sizes=Sizes(
        geometry=2000, pairs=2000, prompts=3000, generated=500, trained=15_000, least_cell=1
    ),
    budgets=(0.5, 1.0, 2.0, 2.5, 3.0, 4.0, 4.5, 5.0, 6.0, 8.0),
    codewords=(256, 1024, 4096),
    alone=(1.0, 2.5),
    guarded=(
        Guarded(256, 16.0),
        Guarded(1024, 1.0),
        Guarded(1024, 4.0, joint_rounds=1),
    ),
)
FAST = Scale(
    bank=1000,
    calibration=2000,
    sizes=Sizes(
        geometry=300, pairs=200, prompts=300, generated=50, queries=300, trained=500, least_cell=1
    ),
    budgets=(1.0, 4.0),
    codewords=(64,),
    alone=(1.0,),
    guarded=(Guarded(64, 4.0, joint_rounds=1),),
    noise=("isotropic", "mahalanobis-optimal"),
    books=("codebook-euclidean", "codebook-decision", "argmax"),
)
# agreement at least, proven success at most: by number of cells
GOALS = {4096: (0.67, 0.085), 1024: (0.60, 0.021), 256: (0.50, 0.006)}
ARGMAX_GOAL = (0.95, 0.05)
DENOISED_GOAL = (0.55, 0.5)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--fast", action="store_true", help="a size that runs in a minute")
    parser.add_argument("--model", help="a model trained before, a folder or a name")
    parser.add_argument("--texts", type=Path, help="texts of model and prompts")
    parser.add_argument("--minutes", type=float, default=20.0, help="training time")
    parser.add_argument("--out", type=Path, default=RESULTS, help="folder of the results")
    arguments = parser.parse_args()
    scale = FAST if arguments.fast else FULL
    name = "empty-middle-fast" if arguments.fast else "empty-middle"
    text, source = texts(arguments.texts, fast=arguments.fast)
    model = model_for(arguments, text)
    prefixes = Prefixes.draw(
        model.stream(text),
        bank=scale.bank,
        calibration=scale.calibration,
        held_out=scale.sizes.prompts,
        length=LENGTH,
        rng=SEED,
    )
    arguments.out.mkdir(parents=True, exist_ok=True)
    points, guarded = measured(model, prefixes, scale, arguments.out / name)
    held = claims(points)
    result = {
        "experiment": name,
        "model": model.name,
        "recipe": model.recipe,
        "texts": source,
        "layer": LAYER,
        "bank": scale.bank,
        "calibration": scale.calibration,
        "claims": held,
        "points": [codec.write(Point, point) for point in points],
        "guarded": [row.to_dict() for row in guarded],
    }
    target = arguments.out / f"{name}.json"
    write_result(target, result, "points")
    published = arguments.out == RESULTS and not arguments.fast
    draw(points, (IMAGES if published else arguments.out) / f"{name}.svg")
    if published:
        render()
    for claim in held:
        print(f"{'holds' if claim['holds'] else 'fails':<6} {claim['claim']}: {claim['found']}")
    print(target)
    return 0


def measured(
    model: LanguageModel, prefixes: Prefixes, scale: Scale, files: Path
) -> tuple[tuple[Point, ...], tuple[GuardedRow, ...]]:
    """Sweep noise and codebooks, then what guarding decisions and trying codewords add."""
    bench = Bench(model, prefixes, scale.sizes, SEED)
    points: tuple[Point, ...] = ()
    for names, budgets, readings in (
        (scale.noise, scale.budgets, ("raw", "posterior-mean", "wiener")),
        (scale.books, (), ("raw",)),
        (scale.noise[:1] + scale.noise[-1:], scale.alone, ("posterior-behaviour",)),
    ):
        request = SweepRequest(
            mechanisms=names, kl_budgets=budgets, codewords=scale.codewords, readings=readings
        )
        run = SweepRun(out=files.with_suffix(".jsonl"), progress=announce)
        points += bench.sweep([LAYER], request, run)
    table = GuardedTable(files.with_name(f"{files.name}-guarded.jsonl"), model.name, SEED)
    return points, tuple(table.row(bench.at(LAYER), wanted) for wanted in scale.guarded)


def announce(label: str, done: int, total: int) -> None:
    """Say what is being measured."""
    print(f"{done}/{total} {label}", flush=True)


def texts(given: Path | None, *, fast: bool) -> tuple[str, str]:
    """Return the texts and what they are: given, the data folder's, or the docstrings here."""
    places = [given] if given else [
        Path(os.environ["TACIT_DATA"]) / "text" if "TACIT_DATA" in os.environ else None,
        HERE.parents[3] / "shared" / "data" / "text",
    ]  # fmt: skip
    for place in places:
        if place is not None and place.exists() and not fast:
            return read_text(place), place.name
    if given:
        return read_text(given), given.name
    corpus = docstring_corpus()
    return (corpus[:2_000_000] if fast else corpus), "docstrings of this installation"


def model_for(arguments: argparse.Namespace, text: str) -> LanguageModel:
    """Load the model given, or the small one, or train one on the texts for so many minutes."""
    if arguments.model:
        return load(arguments.model)
    if arguments.fast:
        return load("tacit/small")
    folder = Path("demo") / "empty-middle-model"
    if (folder / "recipe.json").exists():
        return load(folder)
    return train(text, Run(minutes=arguments.minutes), out=folder)


def claims(points: Sequence[Point]) -> list[dict[str, object]]:
    """Hold the sweep against what is expected of it, a claim each."""
    read = [point for point in points if point.protocol == "A"]
    noise = [point for point in read if point.bound is None]
    raw = [point for point in noise if point.reading == "raw"]
    inside = [point.label for point in raw if point.in_middle]
    best = max(
        (p for p in noise if p.reading != "raw" and p.best_attack.top1.value <= DENOISED_GOAL[1]),
        key=lambda p: p.agreement.value,
        default=None,
    )
    found: list[dict[str, object]] = [
        {
            "claim": "no noisy state read as it comes lies in the middle",
            "found": f"{len(inside)} of {len(raw)}",
            "holds": not inside,
        },
        {
            "claim": f"denoised noise agrees >= {DENOISED_GOAL[0]} at attack <= {DENOISED_GOAL[1]}",
            "found": "none" if best is None else described(best),
            "holds": best is not None and best.agreement.value >= DENOISED_GOAL[0],
        },
        {
            "claim": "the best attack never exceeds a bound",
            "found": f"{len([p for p in points if p.bound is not None])} codebooks",
            "holds": all(
                p.best_attack.top1.value <= p.bound for p in points if p.bound is not None
            ),
        },
    ]
    for size, (agreement, bound) in GOALS.items():
        own = [p for p in read if p.codewords == size and p.mechanism.startswith("codebook")]
        if own:
            found.append(goal(f"C = {size}", own, agreement, bound))
    control = [p for p in points if p.mechanism == "argmax"]
    if control:
        found.append(goal("argmax", control, *ARGMAX_GOAL))
    return found


def goal(name: str, points: list[Point], agreement: float, bound: float) -> dict[str, object]:
    """Return whether the best of some codebooks reaches an agreement under a bound."""
    best = max(points, key=lambda p: p.agreement.value)
    reached = best.agreement.value >= agreement and (best.bound or 1.0) <= bound
    return {
        "claim": f"{name}: agreement >= {agreement} at bound <= {bound}",
        "found": described(best),
        "holds": reached,
    }


def described(point: Point) -> str:
    """Say in a line what a point reached."""
    limit = "" if point.bound is None else f", bound {point.bound:.4f}"
    return (
        f"{point.label}: agreement {point.agreement.value:.3f}, KL {point.kl.value:.2f}, attack "
        f"{point.best_attack.top1.value:.4f}{limit}"
    )


def draw(points: Sequence[Point], path: Path) -> None:
    """Draw attack over agreement: measurements are points, bounds are lines."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(7, 4.6))
    axes.axvspan(0.5, 1.0, ymax=0.5 / 1.02, color="#0072b2", alpha=0.08, lw=0)
    axes.text(0.99, 0.47, "the empty middle", ha="right", va="top", color="#5d6167")
    for point in points:
        if point.protocol != "A":
            continue
        agreement, attack = point.agreement, point.best_attack.top1
        if point.bound is not None:
            axes.hlines(point.bound, agreement.low, agreement.high, color="#0072b2", lw=2.5)
            continue
        face = "white" if point.reading == "raw" else "#d55e00"
        axes.plot(agreement.value, attack.value, "o", ms=5, mfc=face, mec="#d55e00")
        axes.vlines(agreement.value, attack.low, attack.high, color="#d55e00", lw=1)
    axes.set(xlim=(0, 1), ylim=(0, 1.02), xlabel="share of prompts whose next token stays the same")
    axes.set_ylabel("attack names the prompt")
    axes.set_title("hollow: noise as it comes; filled: denoised; lines: bounds of codebooks",
                   fontsize=9)  # fmt: skip
    axes.spines[["top", "right"]].set_visible(False)
    figure.tight_layout()
    figure.savefig(path)
    pyplot.close(figure)


if __name__ == "__main__":
    sys.exit(main())
