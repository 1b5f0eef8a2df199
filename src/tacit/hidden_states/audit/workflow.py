"""Audit one layer: measure it, sweep releases of it, and recommend one with its guarantee."""

from __future__ import annotations

import os
from collections.abc import Sequence

import numpy as np

from tacit._ground.checks import RandomSource, generator, integer
from tacit.guarantees import InformationBound, RenyiDP, SuccessBound
from tacit.hidden_states.audit.findings import Audit
from tacit.hidden_states.audit.laboratory import Laboratory, Sizes
from tacit.hidden_states.audit.noise_points import DEFAULT_READINGS
from tacit.hidden_states.audit.points import CODEBOOK, Point
from tacit.hidden_states.audit.recommendation import Wish, recommend
from tacit.hidden_states.audit.sweep import Announce, Bench, design_at, sweep
from tacit.models.language import LanguageModel
from tacit.models.texts.prefixes import Prefixes

MECHANISMS = (
    "isotropic",
    "inverse-fisher-diagonal",
    "mahalanobis-optimal",
    "codebook-euclidean",
    "codebook-behaviour",
    "argmax",
)
BUDGETS = (1.0, 4.0, 16.0)
CODEWORDS = (64, 256, 1024)


def audit_layer(
    model: LanguageModel,
    layer: int,
    *,
    prefixes: Prefixes,
    wish: Wish | None = None,
    mechanisms: Sequence[str] = MECHANISMS,
    budgets: Sequence[float] = BUDGETS,
    codewords: Sequence[int] = CODEWORDS,
    attackers: Sequence[str] = ("euclidean", "mahalanobis"),
    readings: Sequence[str] = DEFAULT_READINGS,
    sizes: Sizes | None = None,
    out: str | os.PathLike[str] | None = None,
    rng: RandomSource = None,
    progress: Announce | None = None,
) -> Audit:
    """Measure one layer, sweep releases of its last state, and recommend one.

    Args:
        model: the language model.
        layer: 1 … L.
        prefixes: bank (the secrets), calibration (public).
        wish: what the recommended release has to keep to.
        mechanisms: as for ``sweep``.
        budgets: K > 0 in nats.
        codewords: C >= 2.
        attackers: as for ``sweep``.
        readings: as for ``sweep``.
        sizes: how much is measured.
        out: JSON lines of the points, to resume from.
        rng: source of every draw.
        progress: called with a label, points done and points in all.

    Returns:
        The audit.

    Raises:
        ValueError: a bad argument, as for ``sweep``.

    Source: hidden-state, Sec. 3–6.
    """
    wished = Wish() if wish is None else wish
    kept = (Sizes() if sizes is None else sizes).within(prefixes)
    seed = rng if isinstance(rng, int) else int(generator(rng).integers(2**53))
    integer("rng", seed, minimum=0)
    bench = Bench(model, prefixes, kept, seed)
    points = sweep(
        model,
        [layer],
        mechanisms,
        budgets,
        attackers,
        prefixes=prefixes,
        codewords=codewords,
        readings=readings,
        sizes=kept,
        out=out,
        rng=seed,
        progress=progress,
        bench=bench,
    )
    found = recommend(points, wished)
    laboratory = bench.at(layer)
    spread = np.linalg.eigvalsh(laboratory.geometry.spread)[::-1]
    return Audit(
        model=model.name,
        layer=layer,
        layers=model.layers,
        width=model.width,
        length=int(prefixes.bank.shape[1]),
        calibration=len(prefixes.calibration),
        points=points,
        recommendation=found,
        guarantees=() if found.point is None else _guarantees(laboratory, bench, found.point),
        fisher_spectrum=tuple(laboratory.geometry.spectrum.tolist()),
        spread_spectrum=tuple(np.maximum(spread, 0.0).tolist()),
        notes=laboratory.geometry.notes,
        seed=seed,
    )


def _guarantees(
    laboratory: Laboratory, bench: Bench, point: Point
) -> tuple[SuccessBound | InformationBound | RenyiDP, ...]:
    if point.family == CODEBOOK:
        certificate = bench.certificate(laboratory, point)
        return certificate.success, certificate.information
    design = design_at(
        laboratory, point.mechanism, kl_budget=point.kl_budget, epsilon=point.target_epsilon
    )
    return (laboratory.renyi(design.covariance),)
