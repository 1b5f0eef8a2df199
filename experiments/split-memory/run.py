"""Split memory beside GPTs: loss, geometry, M*, the memory taken out, and the middle."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from tacit import Run
from tacit.models import (
    JacobianPenalty,
    LanguageModel,
    MarginDepletion,
    ModelSettings,
    docstring_corpus,
    load,
    read_text,
    train,
)
from tacit_lab.studies.architectures import measure
from tacit_lab.studies.hidden.results import write_result
from tacit_lab.studies.places import RESULTS

MODELS = Path(__file__).resolve().parents[2] / "build"


@dataclass(frozen=True)
class Scale:
    """How large the models and what is measured are."""

    gpt_width: int
    split_width: int
    trunk: int
    layers: int
    probes: tuple[int, ...]
    context: int
    vocabulary: int
    batch: int
    steps: int
    calibration: int
    bank: int
    queries: int
    characters: int | None


SCALES = {
    "fast": Scale(32, 48, 16, 2, (1,), 16, 300, 8, 20, 300, 300, 100, 400_000),
    "small": Scale(128, 176, 32, 4, (1, 2, 3), 32, 1024, 32, 400, 2000, 2000, 500, 4_000_000),
    "two-cores": Scale(336, 448, 64, 6, (2, 3, 4), 64, 4096, 32, 2000, 4000, 4000, 1000, None),
    "gpu": Scale(768, 1024, 128, 12, (4, 6, 8), 256, 8192, 32, 20_000, 8000, 8000, 2000, None),
}
BUDGETS = (0.5, 1.0, 3.0)
DEPLETION = 0.3


@dataclass(frozen=True)
class Arm:
    """A model of the study."""

    name: str
    architecture: str
    seed: int = 0
    jacobian: float = 0.0
    depletion: float = 0.0
    trunk_alone: bool = False

    @property
    def key(self) -> str:
        """Name and seed."""
        return f"{self.name}-{self.seed}"


ARMS = (
    Arm("split-memory", "split-memory"),
    Arm("gpt", "gpt"),
    Arm("trunk-only-gpt", "gpt", trunk_alone=True),
    Arm("split-memory", "split-memory", 1),
    Arm("split-memory", "split-memory", 2),
    Arm("split-memory-jacobian", "split-memory", jacobian=1e-3),
    Arm("split-memory-depletion", "split-memory", depletion=DEPLETION),
    Arm("trunk-only-gpt", "gpt", 1, trunk_alone=True),
    Arm("trunk-only-gpt", "gpt", 2, trunk_alone=True),
    Arm("split-memory-jacobian", "split-memory", 1, jacobian=1e-3),
    Arm("split-memory-jacobian", "split-memory", 2, jacobian=1e-3),
    Arm("gpt", "gpt", 1),
    Arm("gpt", "gpt", 2),
    Arm("gpt-depletion", "gpt", depletion=DEPLETION),
)


def main() -> int:
    """Train and measure every model, each stored as soon as it is measured."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--fast", action="store_true", help="a smoke test, which publishes nothing")
    parser.add_argument("--scale", choices=sorted(SCALES), default="small")
    parser.add_argument(
        "--steps", type=int, default=None, help="of training, the scale's unless told"
    )
    parser.add_argument("--text", type=Path, default=None, help="a .txt, .txt.gz or folder")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--out", type=Path, default=RESULTS, help="folder of the results")
    given = parser.parse_args()
    name = "fast" if given.fast else given.scale
    scale = SCALES[name]
    steps = given.steps or scale.steps
    text = docstring_corpus() if given.text is None else read_text(given.text)
    text = text[: scale.characters]
    suffix = "" if name == "small" else f"-{name}"
    path = given.out / f"split-memory{suffix}.json"
    about = {
        "experiment": "split-memory", "scale": {**asdict(scale), "steps": steps},
        "text": "docstrings" if given.text is None else given.text.name,
        "characters": len(text), "budgets": list(BUDGETS), "depletion": DEPLETION,
    }  # fmt: skip
    about = json.loads(json.dumps(about))
    kept = _kept(path, about)
    rows: list[dict[str, Any]] = []
    for row in measured(text, scale, steps, kept, given.device, path.stem):
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
    text: str,
    scale: Scale,
    steps: int,
    kept: dict[str, dict[str, Any]],
    device: str,
    folder: str,
) -> Iterator[dict[str, Any]]:
    """Yield a row a model, the smoke test's of the first three alone."""
    for arm in ARMS if steps > 50 else (*ARMS[:4], ARMS[6]):
        if arm.key in kept:
            yield kept[arm.key]
            continue
        model = trained(arm, text, scale, steps, device, folder)
        yield {**asdict(arm), "key": arm.key, **facts(model, arm, text, scale)}


def trained(
    arm: Arm, text: str, scale: Scale, steps: int, device: str, folder: str
) -> LanguageModel:
    """Train a model, or load what an interrupted run has trained."""
    place = MODELS / folder / f"{arm.key}-{steps}"
    if place.is_dir():
        return load(place, device=device)
    split = arm.architecture == "split-memory"
    penalties: list[Any] = []
    if arm.jacobian:
        penalties.append(JacobianPenalty(scale.probes, arm.jacobian, first=scale.trunk))
    if arm.depletion:
        penalties.append(MarginDepletion(scale.probes, arm.depletion, rank=scale.trunk))
    width = scale.split_width if split else scale.trunk if arm.trunk_alone else scale.gpt_width
    return train(
        text,
        Run(steps=steps, checkpoint=place.with_suffix(".checkpoint")),
        ModelSettings(
            width=width,
            layers=scale.layers,
            heads=4,
            context=scale.context,
            vocabulary=scale.vocabulary,
            batch=scale.batch,
            seed=arm.seed,
            architecture=arm.architecture,
            trunk_width=scale.trunk if split else None,
        ),
        penalties=penalties,
        out=place,
        device=device,
    )


def facts(model: LanguageModel, arm: Arm, text: str, scale: Scale) -> dict[str, Any]:
    """Return everything measured of a model."""
    prompts = measure.draw_prompts(
        model, text, length=scale.context, calibration=scale.calibration, bank=scale.bank,
        held_out=min(500, scale.calibration),
    )  # fmt: skip
    trunk = scale.trunk if arm.architecture == "split-memory" else None
    base = measure.loss(model, prompts.held_out)
    layers = []
    for layer in scale.probes:
        found = measure.measured_geometry(
            model, layer, prompts.calibration[: scale.queries * 2, :-1], scale.trunk
        )
        row = {"layer": layer, **measure.geometry_row(found, trunk)}
        if trunk is not None:
            row["ablated_loss"] = measure.ablated_loss(model, layer, prompts, trunk)
        if layer == scale.probes[len(scale.probes) // 2]:
            row["middle"] = measure.middle(model, layer, prompts, found, BUDGETS, scale.queries)
        layers.append(row)
    gates = [float(block.gate) for block in model.anatomy.blocks] if trunk is not None else None
    return {
        "parameters": sum(part.numel() for part in model.network.parameters()),
        "tokens": model.recipe["tokens_read"],
        "seconds": model.recipe["seconds"],
        "loss": base,
        "gates": gates,
        "layers": layers,
    }


def _line(row: dict[str, Any]) -> str:
    mid = row["layers"][len(row["layers"]) // 2]
    extra = ""
    if "trunk_share" in mid:
        extra = f", C_u {mid['trunk_share']:.4f}, v → mean {mid['ablated_loss'] - row['loss']:+.4f}"
    best = [entry for entry in mid["middle"] if entry["budget"] == 1.0]
    inside = "; ".join(
        f"{entry['design']} {entry['reading']} agreement {entry['agreement']:.2f} "
        f"NLL {entry['nll']:.2f} attack {entry['attack']:.2f}"
        for entry in best
    )
    return (
        f"{row['key']}: {row['parameters']:,} parameters, loss {row['loss']:.3f}, layer "
        f"{mid['layer']}: M* {mid['least_signal']:.1f}, G_Mah {mid['gain_unit']:.2f}/"
        f"{mid['gain_raw']:.2f}, E_k {mid['energy']:.3f}{extra}; {inside}"
    )


if __name__ == "__main__":
    sys.exit(main())
