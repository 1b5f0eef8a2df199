"""Regularisers that should move margins out of the prediction's way, judged at equal KL."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from tacit import Run
from tacit.models import (
    Anchor,
    LanguageModel,
    MarginDepletion,
    MarginPenalty,
    ModelSettings,
    Step,
    docstring_corpus,
    load,
    read_text,
    train,
)
from tacit_lab.studies.architectures import measure
from tacit_lab.studies.architectures.equal import at_equal_kl, at_fixed_noise
from tacit_lab.studies.hidden.results import write_result
from tacit_lab.studies.places import RESULTS

MODELS = Path(__file__).resolve().parents[2] / "build"
# of the published study: μ, and the factor of its internal anchor
PREDICTION_WEIGHT, PUBLISHED_ANCHOR = 0.1, 1e-2
PROPER_ANCHOR, GAUGE = 1.0, 1.0


@dataclass(frozen=True)
class Scale:
    """How large the model, its training and what is measured are."""

    width: int
    layers: int
    layer: int
    rank: int
    context: int
    vocabulary: int
    batch: int
    steps: int
    further: int
    prompts: int
    queries: int
    characters: int | None


SCALES = {
    "fast": Scale(32, 2, 1, 8, 16, 300, 8, 20, 5, 200, 100, 400_000),
    "small": Scale(128, 4, 2, 32, 32, 1024, 16, 400, 80, 2000, 500, 4_000_000),
    "two-cores": Scale(336, 6, 3, 64, 64, 4096, 32, 2000, 500, 4000, 1000, None),
    "gpu": Scale(768, 12, 6, 128, 256, 8192, 32, 20_000, 5000, 8000, 2000, None),
}
# penalty at the start in nats, for every objective alike
STRENGTHS = (1.0, 0.1)
OBJECTIVES = ("hinge", "anisotropic", "ratio", "anchor", "gauge-fixed", "margin-depletion")
TARGET_KL = 0.3


def main() -> int:
    """Measure the model, then what each further training makes of it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--fast", action="store_true", help="a smoke test, which publishes nothing")
    parser.add_argument("--scale", choices=sorted(SCALES), default="small")
    parser.add_argument("--text", type=Path, default=None, help="a .txt, .txt.gz or folder")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--out", type=Path, default=RESULTS, help="folder of the results")
    given = parser.parse_args()
    scale = SCALES["fast" if given.fast else given.scale]
    text = docstring_corpus() if given.text is None else read_text(given.text)
    text = text[: scale.characters]
    path = given.out / f"regularisers{'-fast' if given.fast else ''}.json"
    about = {
        "experiment": "regularisers", "scale": asdict(scale), "characters": len(text),
        "text": "docstrings" if given.text is None else given.text.name, "kl": TARGET_KL,
        "prediction_weight": PREDICTION_WEIGHT, "anchor": PROPER_ANCHOR, "gauge": GAUGE,
    }  # fmt: skip
    kept = _kept(path, about)
    rows: list[dict[str, Any]] = []
    for row in measured(text, scale, kept, given.device, path.stem):
        rows.append(row)
        done = {entry["key"] for entry in rows}
        later = [entry for key, entry in kept.items() if key not in done]
        path.parent.mkdir(parents=True, exist_ok=True)
        write_result(path, {**about, "rows": rows + later}, "rows")
        print(_line(row), flush=True)
    return 0


def _kept(path: Path, about: dict[str, Any]) -> dict[str, dict[str, Any]]:
    if not path.is_file():
        return {}
    content = json.loads(path.read_text("utf-8"))
    rows = content.pop("rows")
    return {row["key"]: row for row in rows} if content == about else {}


def measured(
    text: str, scale: Scale, kept: dict[str, dict[str, Any]], device: str, folder: str
) -> Iterator[dict[str, Any]]:
    """Yield a row for the start, for λ = 0, and for each objective at each strength."""
    base = _trained(text, scale, device, MODELS / folder / "start", scale.steps, None, [])
    prompts = measure.draw_prompts(
        base, text, length=scale.context, calibration=scale.prompts, bank=scale.prompts,
        held_out=min(500, scale.prompts),
    )  # fmt: skip
    unit = measure.measured_geometry(
        base, scale.layer, prompts.calibration[: 2 * scale.queries, :-1], scale.rank
    )
    basis = np.ascontiguousarray(unit.basis())
    inside, outside = margins(base, scale, basis, prompts)
    noise = 2.0 * TARGET_KL / float(np.trace(unit.dense_fisher))

    def row(key: str, model: LanguageModel, **more: Any) -> dict[str, Any]:
        return {"key": key, **more, **facts(model, scale, basis, prompts, noise)}

    yield kept.get("start") or row("start", base, objective="none", strength=None)
    asked = [("control", 0.0), *((name, each) for each in STRENGTHS for name in OBJECTIVES)]
    for name, strength in asked:
        key = f"{name}-{strength:g}"
        if key in kept:
            yield kept[key]
            continue
        added = penalties(name, strength, base, scale, basis, inside, outside)
        place = MODELS / folder / key
        model = _trained(text, scale, device, place, scale.further, base, added)
        yield row(key, model, objective=name, strength=strength)


def _trained(
    text: str,
    scale: Scale,
    device: str,
    place: Path,
    steps: int,
    start: LanguageModel | None,
    added: list[Any],
) -> LanguageModel:
    if place.is_dir():
        return load(place, device=device)
    return train(
        text,
        Run(steps=steps, checkpoint=place.with_suffix(".checkpoint")),
        ModelSettings(
            width=scale.width,
            layers=scale.layers,
            heads=4,
            context=scale.context,
            vocabulary=scale.vocabulary,
            batch=scale.batch,
        ),
        penalties=added,
        start=start,
        out=place,
        device=device,
    )


def penalties(
    name: str,
    strength: float,
    base: LanguageModel,
    scale: Scale,
    basis: Any,
    inside: float,
    outside: float,
) -> list[Any]:
    """Return an objective that is ``strength`` nats at the start, with the anchor on predictions.

    The threshold is half of the margin, or of the ratio, that there is.
    """
    held: list[Any] = [Anchor("prediction", base, PREDICTION_WEIGHT)]
    if name == "control":
        return held
    layer = scale.layer
    if name == "margin-depletion":
        # q_B of the start is of the order of k/d
        return [*held, MarginDepletion((layer,), strength * scale.width / scale.rank, scale.rank)]
    if name == "ratio":
        half = outside / inside / 2.0
        return [*held, MarginPenalty("ratio", layer, strength / half**2, basis, half)]
    half = outside / 2.0
    weight = strength / half**2
    kind = "anisotropic" if name == "anisotropic" else "hinge"
    objective = MarginPenalty(kind, layer, weight, basis, half)
    if name in ("hinge", "anisotropic"):
        return [*held, objective]
    if name == "anchor":
        # ‖h − h₀‖² is E‖h₀‖² times the relative distance
        size = PUBLISHED_ANCHOR * weight * outside**2
        return [*held, objective, Anchor("states", base, size, layer)]
    return [
        *held,
        objective,
        Anchor("states", base, PROPER_ANCHOR, layer),
        Anchor("moment", base, GAUGE, layer),
    ]


def margins(
    model: LanguageModel, scale: Scale, basis: Any, prompts: measure.Prompts
) -> tuple[float, float]:
    """Return the mean soft margins m_B and m_I over held-out windows."""
    windows = prompts.held_out[:100].to(model.device)
    probe = MarginPenalty("hinge", scale.layer, 1.0, basis, 1.0, rows=len(windows))
    like = torch.empty(0, model.vocabulary)
    step = Step(model.anatomy, windows, like, {}, torch.Generator().manual_seed(0))
    with torch.no_grad():
        inside, outside = probe.margins(step)
    return float(inside.mean()), float(outside.mean())


def facts(
    model: LanguageModel, scale: Scale, basis: Any, prompts: measure.Prompts, variance: float
) -> dict[str, Any]:
    """Return loss, margins, geometry, and the attack at fixed noise and at equal KL."""
    found = measure.measured_geometry(
        model, scale.layer, prompts.calibration[: 2 * scale.queries, :-1], scale.rank
    )
    inside, outside = margins(model, scale, basis, prompts)
    return {
        "loss": measure.loss(model, prompts.held_out),
        "margin_inside": inside,
        "margin_outside": outside,
        **measure.geometry_row(found, None),
        "fixed": at_fixed_noise(model, scale.layer, prompts, variance, scale.queries),
        "equal": at_equal_kl(model, scale.layer, prompts, found, TARGET_KL, scale.queries),
    }


def _line(row: dict[str, Any]) -> str:
    equal = ", ".join(f"{entry['design']} {entry['attack']:.3f}" for entry in row["equal"])
    return (
        f"{row['key']}: loss {row['loss']:.3f}, m_B {row['margin_inside']:.2f}, m_I "
        f"{row['margin_outside']:.2f}, tr F {row['fisher_trace']:.3g}, M* "
        f"{row['least_signal']:.1f}, G_Mah {row['gain_raw']:.2f}; attack at fixed noise "
        f"{row['fixed']['attack']:.3f} (KL {row['fixed']['kl']:.2f}), at KL {TARGET_KL}: {equal}"
    )


if __name__ == "__main__":
    sys.exit(main())
