"""What a decoder that learns nothing reads back from the states, or codes, of all positions."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import numpy as np
import torch

from hidden_shared.equal import scaled_to
from hidden_shared.results import RESULTS
from tacit._ground.files import write_bytes_atomic
from tacit.attacks import CodeChannel, TokenProbe, TrajectoryInverter, attack_inversion
from tacit.covariance import Isotropic
from tacit.hidden_states import Codebook, designs_at_budget, measure_geometry
from tacit.models import LanguageModel, docstring_corpus, load, sample_prefixes
from tacit.models.texts.corpus import hold_out

LENGTH, CHARACTERS, BUDGETS = 16, 3_000_000, (0.3, 1.0, 3.0)
# other designs than isotropic noise, scaled to its measured KL at this budget
COMPARED, DESIGNS = 1.0, ("mahalanobis-optimal", "inverse-fisher-diagonal", "inverse-fisher")
# covariance that stands for no noise: the floor for the rounding of states is larger
CLEAN = 1e-9


def main() -> int:
    """Write one row a release, each as soon as it is measured, and print it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--fast", action="store_true", help="few prompts, in two minutes")
    parser.add_argument("--model", default="tacit/small", help="a folder or a name")
    parser.add_argument("--layer", type=int, default=3)
    parser.add_argument("--prompts", type=int, default=None, help="200 unless told")
    parser.add_argument("--out", type=Path, default=RESULTS, help="folder of the results")
    given = parser.parse_args()
    count = given.prompts or (20 if given.fast else 200)
    model = load(given.model)
    learned, unseen = hold_out(docstring_corpus())
    public = sample_prefixes(
        model.stream(learned[:CHARACTERS]), count=1500 if given.fast else 6000, length=LENGTH, rng=0
    )
    secret = sample_prefixes(
        model.stream(unseen), count=count, length=LENGTH, rng=1, exclude=public
    )
    path = given.out / f"inversion{'-fast' if given.fast else ''}.json"
    about = {"model": given.model, "layer": given.layer, "length": LENGTH, "prompts": count,
             "public": len(public)}  # fmt: skip
    kept = _kept(path, about)
    rows: list[dict[str, Any]] = []
    for row in measured(model, given.layer, public, secret, kept, fast=given.fast):
        rows.append(row)
        later = kept[len(rows) :]
        content = json.dumps({**about, "rows": rows + later}, indent=1, allow_nan=False)
        path.parent.mkdir(parents=True, exist_ok=True)
        write_bytes_atomic("out", path, f"{content}\n".encode())
        print(_line(row), flush=True)
    return 0


def _kept(path: Path, about: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the rows of an interrupted run of the same size."""
    if not path.is_file():
        return []
    content = json.loads(path.read_text("utf-8"))
    rows: list[dict[str, Any]] = content.pop("rows")
    return rows if content == about else []


def measured(
    model: LanguageModel,
    layer: int,
    public: torch.Tensor,
    secret: torch.Tensor,
    kept: list[dict[str, Any]],
    *,
    fast: bool,
) -> Iterator[dict[str, Any]]:
    """Yield what is read back from clean states, noisy ones and codes; what is kept as it is."""
    held_rows = {(row["release"], row["beam"], row.get("kl_budget")): row for row in kept}
    probe = TokenProbe.fit(model, layer, public)
    clean = model.states(secret, layer, positions="all").double().cpu().numpy()

    def row(
        name: str, released: Any, covariance: Any, held: TokenProbe, beam: int, **more: Any
    ) -> dict[str, Any]:
        if (key := (name, beam, more.get("kl_budget"))) in held_rows:
            return held_rows[key]
        inverter = TrajectoryInverter(model, layer, covariance, held, beam=beam)
        everything = name == "clean" and beam == 1
        names = ("permuted", "zeroed", "majority", "nearest") if everything else ("permuted",)
        found = attack_inversion(inverter, released, secret, public, baselines=names, rng=0)
        return {"release": name, "beam": beam, **more, **found.to_dict()}

    yield row("clean", clean, CLEAN * np.eye(model.width), probe, 1)
    geometry = measure_geometry(model, layer, public[: 200 if fast else 1000], rng=0)
    fisher = geometry.dense_fisher
    upper = model.continuation(secret, layer)
    for budget in BUDGETS[1:2] if fast else BUDGETS:
        variance = 2.0 * budget / float(np.trace(fisher))
        noise = Isotropic(variance, model.width)
        drawn = noise.sample(clean.shape[0] * LENGTH, 3).reshape(clean.shape)
        cost = _kl(upper, torch.from_numpy(clean[:, -1] + drawn[:, -1]).float())
        for beam in (1, 3):
            yield row("isotropic", clean + drawn, noise, probe, beam,
                      kl_budget=budget, variance=variance, measured_kl=cost)  # fmt: skip
        if budget == COMPARED:
            level = cost
    designs = designs_at_budget(geometry, COMPARED)
    for name in DESIGNS[:1] if fast else DESIGNS:
        covariance = designs[name].covariance
        unit = covariance.sample(clean.shape[0] * LENGTH, 3).reshape(clean.shape)

        def cost_of(scale: float, unit: Any = unit) -> float:
            return _kl(upper, torch.from_numpy(clean[:, -1] + np.sqrt(scale) * unit[:, -1]).float())

        scale = scaled_to(cost_of, level)
        noise = scale * covariance.to_dense()
        for beam in (1, 3):
            yield row(name, clean + np.sqrt(scale) * unit, noise, probe, beam,
                      kl_budget=COMPARED, scale=scale, measured_kl=cost_of(scale))  # fmt: skip
    states = model.states(public, layer, positions="all")[:, 1:].reshape(-1, model.width)
    book = Codebook.fit(states, size=64 if fast else 1024, rng=0, progress=False)
    channel = CodeChannel(lambda rows, _: book.assign(rows))
    codes = book.assign(torch.from_numpy(clean).float().reshape(-1, model.width))
    held = TokenProbe.fit(model, layer, public, channel=channel)
    yield row("codes", codes.reshape(len(clean), LENGTH), channel, held, 1, size=book.size)


def _kl(upper: Any, states: torch.Tensor) -> float:
    """Mean KL of the model's prediction from that after noise at the last position."""
    before, after = (upper.logits(each).double().log_softmax(-1)
                     for each in (upper.clean_states, states))  # fmt: skip
    return float((before.exp() * (before - after)).sum(dim=-1).mean())


def _line(row: dict[str, Any]) -> str:
    found = row["recovery"]
    kl = f" K={row['kl_budget']} (KL {row['measured_kl']:.2f})" if "kl_budget" in row else ""
    return (
        f"{row['release']}{kl} beam {row['beam']}: tokens {found['token_accuracy']['value']:.3f}, "
        f"exact {found['exact']['value']:.3f} [{found['exact']['low']:.3f}, "
        f"{found['exact']['high']:.3f}], permuted "
        f"{row['baselines']['permuted']['token_accuracy']['value']:.3f}, "
        f"{1000 * row['seconds']:.0f} ms a prompt"
    )


if __name__ == "__main__":
    sys.exit(main())
