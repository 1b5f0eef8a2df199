"""What a decoder that learns nothing reads back from the states, or codes, of all positions."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from tacit._ground.files import write_bytes_atomic
from tacit.attacks import CodeChannel, TokenProbe, TrajectoryInverter, attack_inversion
from tacit.covariance import Isotropic
from tacit.hidden_states import Codebook, CodebookFit, designs_at_budget, measure_geometry
from tacit.models import LanguageModel, docstring_corpus, load, sample_prefixes
from tacit.models.behaviours import Behaviours
from tacit.models.texts.corpus import hold_out
from tacit_lab.studies.hidden.equal import scaled_to
from tacit_lab.studies.places import RESULTS

LENGTH, CHARACTERS, BUDGETS = 16, 3_000_000, (0.3, 1.0, 3.0)
# other designs than isotropic noise, scaled to its measured KL at this budget
COMPARED, DESIGNS = 1.0, ("mahalanobis-optimal", "inverse-fisher-diagonal", "inverse-fisher")
# λ of the behaviour codes, and tokens run where no candidate has a code that reads predictions
DECISION_COST, FALLBACK = 4.0, 512
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
    held_rows = {_key(row): row for row in kept}
    probe = TokenProbe.fit(model, layer, public)
    clean = model.states(secret, layer, positions="all").double().cpu().numpy()

    def row(
        name: str, released: Any, covariance: Any, held: TokenProbe, beam: int, **more: Any
    ) -> dict[str, Any]:
        about = {"release": name, "beam": beam, **more}
        if (key := _key(about)) in held_rows:
            return {**about, **held_rows[key]}
        inverter = TrajectoryInverter(
            model, layer, covariance, held, beam=beam, fallback=more.get("fallback")
        )
        everything = name == "clean" and beam == 1
        names = ("permuted", "zeroed", "majority", "nearest") if everything else ("permuted",)
        found = attack_inversion(inverter, released, secret, public, baselines=names, rng=0)
        return {**about, **found.to_dict()}

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
    variance = 2.0 / float(np.trace(fisher))
    unit = Isotropic(variance, model.width).sample(clean.shape[0] * LENGTH, 3).reshape(clean.shape)
    for name, book, channel in _books(model, layer, public, fast=fast):
        codes = _released(model, layer, secret, channel)
        cost = _kl(upper, book.codewords[codes[:, -1]])
        # where candidates are run to the end, three prefixes take three times as many minutes
        beams = (1,) if channel.predicts else (1, 3)
        known = all(_key({"release": name, "beam": beam}) in held_rows for beam in beams)
        # a probe takes minutes, and a kept row none
        held = probe if known else TokenProbe.fit(model, layer, public, channel=channel)
        last = {"fallback": FALLBACK} if channel.predicts else {}
        for beam in beams:
            yield row(name, codes, channel, held, beam, size=book.size, measured_kl=cost, **last)

        def cost_of(scale: float) -> float:
            return _kl(upper, torch.from_numpy(clean[:, -1] + np.sqrt(scale) * unit[:, -1]).float())

        scale = scaled_to(cost_of, cost)
        noise = Isotropic(scale * variance, model.width)
        yield row("isotropic", clean + np.sqrt(scale) * unit, noise, probe, 1, level_of=name,
                  variance=scale * variance, measured_kl=cost_of(scale))  # fmt: skip


def _key(row: dict[str, Any]) -> tuple[Any, ...]:
    """Return what a row is of: releases of one name differ by K, or by whose KL they have."""
    return row["release"], row["beam"], row.get("kl_budget"), row.get("level_of")


def _books(
    model: LanguageModel, layer: int, public: torch.Tensor, *, fast: bool
) -> Iterator[tuple[str, Codebook, CodeChannel]]:
    """Yield the usual codes of the audit, each with how a position's code is made."""
    usual: dict[str, Any] = {"rng": 0, "progress": False}
    size = 64 if fast else 1024
    states = model.states(public, layer, positions="all")[:, 1:].reshape(-1, model.width)
    plain = Codebook.fit(states, CodebookFit(size=size), **usual)
    yield "codes", plain, CodeChannel(lambda rows, _: plain.assign(rows))
    # the same positions, in half precision: float32 would take 1.5 GB
    held, logs = [], []
    for length in range(2, LENGTH + 1):
        rows, told = _observed(model, layer, public[:, :length])
        held.append(rows)
        logs.append(told.half())
    states, shown = torch.cat(held), Behaviours(torch.cat(logs))
    metrics = {
        "behaviour codes": CodebookFit(size=size, metric="behaviour", decision_cost=DECISION_COST),
        "likeliest token": CodebookFit(metric="argmax"),
    }
    for name, how in metrics.items():
        book = Codebook.fit(states, how, behaviours=shown, **usual)

        def assign(_: Any, told: Behaviours | None, book: Codebook = book) -> Any:
            return book.assign(behaviours=told)

        yield name, book, CodeChannel(assign, predicts=True)


def _released(
    model: LanguageModel, layer: int, prompts: torch.Tensor, channel: CodeChannel
) -> npt.NDArray[np.int64]:
    """Return the code of every position, (n, T)."""
    found = []
    for length in range(1, LENGTH + 1):
        states, logs = _observed(model, layer, prompts[:, :length])
        found.append(channel.held(states, Behaviours(logs)))
    return np.stack(found, axis=1)


def _observed(
    model: LanguageModel, layer: int, prompts: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the last states, and the log-probabilities of what follows."""
    parts = list(model.passes(prompts, [layer]))
    states = torch.cat([held[layer] for held, _ in parts])
    return states, torch.cat([logits for _, logits in parts]).log_softmax(dim=-1)


def _kl(upper: Any, states: torch.Tensor) -> float:
    """Mean KL of the model's prediction from that after noise at the last position."""
    before, after = (upper.logits(each).double().log_softmax(-1)
                     for each in (upper.clean_states, states))  # fmt: skip
    return float((before.exp() * (before - after)).sum(dim=-1).mean())


def _line(row: dict[str, Any]) -> str:
    found = row["recovery"]
    kl = f" K={row['kl_budget']}" if "kl_budget" in row else ""
    kl += f" at the KL of {row['level_of']}" if "level_of" in row else ""
    kl += f" (KL {row['measured_kl']:.2f})" if "measured_kl" in row else ""
    return (
        f"{row['release']}{kl} beam {row['beam']}: tokens {found['token_accuracy']['value']:.3f}, "
        f"exact {found['exact']['value']:.3f} [{found['exact']['low']:.3f}, "
        f"{found['exact']['high']:.3f}], permuted "
        f"{row['baselines']['permuted']['token_accuracy']['value']:.3f}, "
        f"{1000 * row['seconds']:.0f} ms a prompt"
    )


if __name__ == "__main__":
    sys.exit(main())
