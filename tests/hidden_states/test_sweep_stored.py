"""A small sweep of every mechanism, held against the file it once wrote, number by number."""

import json
from pathlib import Path

import numpy as np
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")

from tacit.hidden_states import Sizes, SweepRequest, SweepRun, sweep  # noqa: E402
from tacit.hidden_states.noise import denoiser  # noqa: E402
from tacit.models.texts.prefixes import Prefixes  # noqa: E402
from tests.hidden_states.networks import small_network  # noqa: E402

STORED = Path(__file__).parent / "stored_sweep.jsonl"
NOISE = (
    "isotropic", "inverse-fisher", "inverse-fisher-diagonal", "mahalanobis-optimal",
    "mahalanobis-bare", "complement", "fisher-complement", "worst-case", "power(0.5)",
    "generalized-eigen(2)",
)  # fmt: skip
CODES = (
    "codebook-euclidean", "codebook-fisher", "codebook-behaviour", "codebook-decision", "argmax",
)  # fmt: skip
SIZES = Sizes(
    geometry=40, pairs=20, prompts=24, generated=6, queries=30, held_out=20, trained=40,
    least_cell=1,
)  # fmt: skip
ALL = ("raw", "posterior-mean", "wiener", "trained", "posterior-behaviour")


def swept(out, progress=None):
    model = small_network(vocabulary=30, width=8)
    stream = np.random.default_rng(4).integers(30, size=2000)
    prefixes = Prefixes.draw(stream, bank=60, calibration=60, held_out=24, length=5, rng=0)
    run = SweepRun(out=out, progress=progress)
    every = SweepRequest(
        mechanisms=[*NOISE, *CODES], kl_budgets=[0.5], codewords=(6,), readings=("raw",)
    )
    equal = SweepRequest(
        mechanisms=["isotropic", "mahalanobis-optimal"], kl_budgets=[], epsilons=[4.0],
        readings=ALL, attackers=("euclidean", "complement", "weighted", "mahalanobis"),
    )  # fmt: skip
    shared = {"prefixes": prefixes, "sizes": SIZES, "run": run, "rng": 11}
    return (*sweep(model, [1], every, **shared), *sweep(model, [2], equal, **shared))


def lines(path):
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def close(found, stored, loose=False):
    """Words and integers alike; numbers to what another processor's products may change."""
    if isinstance(stored, dict):
        if loose and is_interval(stored) and stored["low"] < stored["high"]:
            return found["low"] <= stored["high"] and stored["low"] <= found["high"]
        return set(found) == set(stored) and all(
            close(found[name], stored[name], loose) for name in stored
        )
    if isinstance(stored, list):
        return len(found) == len(stored) and all(
            close(one, other, loose) for one, other in zip(found, stored, strict=True)
        )
    if isinstance(stored, float):
        return found == pytest.approx(stored, rel=0.05 if loose else 1e-4, abs=1e-7)
    return found == stored and type(found) is type(stored)


def is_interval(value):
    """Whether this is a mean with its ends."""
    return set(value) == {"value", "low", "high", "confidence"}


def interval(value, low, high):
    return {"value": value, "low": low, "high": high, "confidence": None}


def test_every_mechanism_measures_what_it_measured_before(tmp_path, monkeypatch):
    # a denoiser that has learnt a tenth as long shows as well that nothing has changed
    monkeypatch.setattr(denoiser, "LEAST_PASSES", 150)
    monkeypatch.setattr(denoiser, "LEAST_STEPS", 150)
    swept(tmp_path / "points.jsonl")
    found, stored = lines(tmp_path / "points.jsonl"), lines(STORED)
    # keys digest the model, whose configuration has more fields in another version
    assert len({point.pop("key") for point in found}) == len(stored)
    exact = 0
    for now, before in zip(found, stored, strict=True):
        before.pop("key")
        # rounding moves a prompt between cells, and turns directions of almost equal eigenvalues
        loose = before["mechanism"].startswith(("codebook-", "fisher-complement"))
        assert close({**now, "seconds": 0.0}, before, loose), (now, before)
        exact += not loose
    assert exact > len(stored) / 2


def test_a_mean_outside_the_stored_interval_is_another():
    here, near = interval(0.5, 0.4, 0.6), interval(0.58, 0.5, 0.7)
    assert close(here, near, loose=True)
    assert not close(here, near)
    assert not close(here, interval(0.8, 0.7, 0.9), loose=True)
    assert not close(1.0, 1.1, loose=True)


def test_points_of_the_same_model_alone_are_resumed(tmp_path):
    path = tmp_path / "points.jsonl"
    model = small_network(vocabulary=30, width=8)
    stream = np.random.default_rng(4).integers(30, size=2000)
    prefixes = Prefixes.draw(stream, bank=20, calibration=20, held_out=4, length=5, rng=0)
    request = SweepRequest(mechanisms=["isotropic"], kl_budgets=[0.5], readings=("raw",))
    asked = {
        "request": request, "prefixes": prefixes, "sizes": SIZES, "run": SweepRun(out=path),
        "rng": 11,
    }  # fmt: skip
    first = sweep(model, [1], **asked)
    written = path.read_bytes()
    again = sweep(small_network(vocabulary=30, width=8), [1], **asked)
    assert path.read_bytes() == written
    assert again == first
    with torch.no_grad():
        next(iter(model.network.parameters())).mul_(1.5)
    sweep(model, [1], **asked)
    assert len(lines(path)) == 2 * len(first)
    assert path.read_bytes().startswith(written)
    model.network.config.layer_norm_epsilon *= 2
    sweep(model, [1], **asked)
    assert len(lines(path)) == 3 * len(first)
