"""Audit one layer: measure it, sweep releases of it, and recommend one with its guarantee."""

from __future__ import annotations

import os
from collections.abc import Sequence

import numpy as np

from tacit._ground.checks import RandomSource, generator, integer
from tacit.hidden_states.audit.attackers import USUAL as USUAL_ATTACKERS
from tacit.hidden_states.audit.attackers import Attacker
from tacit.hidden_states.audit.catalogue import USUAL, read_mechanism
from tacit.hidden_states.audit.findings import Audit
from tacit.hidden_states.audit.guessers import (
    USUAL_GUESSERS,
    Guesser,
    clean_state,
    guessed,
    read_guesser,
)
from tacit.hidden_states.audit.laboratory import Laboratory
from tacit.hidden_states.audit.mechanisms import Mechanism
from tacit.hidden_states.audit.points import DEFAULT_READINGS
from tacit.hidden_states.audit.recommendation import Wish, recommend
from tacit.hidden_states.audit.sizes import Sizes
from tacit.hidden_states.audit.sweep import Announce, Bench, sweep
from tacit.hidden_states.origin import Origin
from tacit.models.language import LanguageModel
from tacit.models.texts.prefixes import Prefixes
from tacit.text import percent

BUDGETS = (1.0, 4.0, 16.0)
CODEWORDS = (64, 256, 1024)


def audit_layer(
    model: LanguageModel,
    layer: int,
    *,
    prefixes: Prefixes,
    wish: Wish | None = None,
    mechanisms: Sequence[Mechanism | str] = USUAL,
    kl_budgets: Sequence[float] = BUDGETS,
    codewords: Sequence[int] = CODEWORDS,
    attackers: Sequence[Attacker | str] = USUAL_ATTACKERS,
    guessers: Sequence[Guesser | str] = USUAL_GUESSERS,
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
        kl_budgets: K > 0 in nats.
        codewords: C >= 2.
        attackers: as for ``sweep``.
        guessers: attackers who know all earlier tokens, know one, or guess an attribute; as for
            ``sweep``. They attack the clean state too, as the control.
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
    times = integer("releases", wished.releases, minimum=1, maximum=int(prefixes.bank.shape[1]))
    values = [read_mechanism(mechanism) for mechanism in mechanisms]
    goes_on = any(value.continues for value in values)
    bench = Bench(model, prefixes, kept, seed, releases=times, continues=goes_on)
    guessing = tuple(read_guesser(guesser) for guesser in guessers)
    points = sweep(
        model,
        [layer],
        values,
        kl_budgets,
        attackers,
        prefixes=prefixes,
        codewords=codewords,
        guessers=guessing,
        readings=readings,
        sizes=kept,
        out=out,
        rng=seed,
        progress=progress,
        bench=bench,
        releases=times,
    )
    found = recommend(points, wished)
    laboratory, chosen = bench.at(layer), found.point
    by_name = {value.name: value for value in values}
    guarantees = () if chosen is None else bench.guarantees(by_name[chosen.mechanism], chosen)
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
        clean=guessed(laboratory, clean_state(laboratory), guessing),
        guarantees=guarantees,
        fisher_spectrum=tuple(laboratory.geometry.spectrum.tolist()),
        spread_spectrum=tuple(np.maximum(spread, 0.0).tolist()),
        notes=(*laboratory.geometry.notes, _constant(laboratory)),
        seed=seed,
        origin=Origin.of(model, layer, prefixes).public,
    )


def _constant(laboratory: Laboratory) -> str:
    """Say how often one token, whatever the prompt, is the model's own: what agreement is beside.

    Which token it is is chosen on public prompts.
    """
    public, measured = laboratory.calibration_behaviours, laboratory.measured_behaviours
    token = int(np.bincount(public.argmax().cpu().numpy()).argmax())
    share = float((measured.argmax() == token).double().mean())
    return (
        f"Told nothing, whoever always says the token that the model predicts most often after "
        f"public prompts agrees with it for {percent(share)} of held-out prompts."
    )
