"""Audit one layer: measure it, sweep releases of it, and recommend one with its guarantee."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from tacit._ground.checks import RandomSource, integer
from tacit.hidden_states.audit.guessers import (
    USUAL_GUESSERS,
    clean_state,
    read_guesser,
    run_guessers,
)
from tacit.hidden_states.audit.laboratory import Laboratory
from tacit.hidden_states.audit.release import Audit, release_of
from tacit.hidden_states.audit.request import (
    HERE,
    USUAL_REQUEST,
    USUAL_WISH,
    Sizes,
    SweepRequest,
    SweepRun,
    Wish,
)
from tacit.hidden_states.audit.sweep import Bench, draw_seed, read_mechanisms
from tacit.hidden_states.origin import Origin
from tacit.models.language import LanguageModel
from tacit.models.texts.prefixes import Prefixes
from tacit.releases import Release
from tacit.text import percent


def audit_layer(
    model: LanguageModel,
    layer: int,
    wish: Wish = USUAL_WISH,
    request: SweepRequest = USUAL_REQUEST,
    *,
    prefixes: Prefixes,
    sizes: Sizes | None = None,
    run: SweepRun = HERE,
    rng: RandomSource = None,
) -> Release[Audit]:
    """Measure one layer, sweep releases of its last state, and recommend one.

    Args:
        model: the language model.
        layer: 1 … L.
        wish: what the recommended release has to keep to.
        request: mechanisms, at what they are measured, and who attacks them. Its guessers attack
            the clean state too, as the control.
        prefixes: bank (the secrets), calibration (public).
        sizes: how much is measured.
        run: where points are kept, and on how many processes they are measured.
        rng: source of every draw.

    Returns:
        The audit: its points and the recommendation in ``details``, its guarantees those of the
        release recommended.

    Raises:
        ValueError: a bad argument, as for ``sweep``.

    Source: hidden-state, Sec. 3–6.
    """
    seed = integer("rng", rng, minimum=0) if isinstance(rng, int) else draw_seed(rng)
    given = USUAL_GUESSERS if request.guessers is None else request.guessers
    guessers = tuple(read_guesser(guesser) for guesser in given)
    bench = Bench(
        model, prefixes, Sizes() if sizes is None else sizes, seed, releases=wish.releases
    )
    points = bench.sweep([layer], replace(request, guessers=guessers), run)
    laboratory = bench.at(layer)
    # rounding may leave eigenvalues of a positive matrix a little below 0
    spread = np.maximum(np.linalg.eigvalsh(laboratory.geometry.spread)[::-1], 0.0)
    details = Audit(
        model=model.name,
        layer=layer,
        layers=model.layers,
        width=model.width,
        length=int(prefixes.bank.shape[1]),
        calibration=len(prefixes.calibration),
        seed=seed,
        wish=wish,
        points=points,
        clean=run_guessers(laboratory, clean_state(laboratory), guessers),
        fisher_spectrum=laboratory.geometry.spectrum,
        spread_spectrum=spread,
    )
    chosen = details.recommendation.point
    by_name = {value.name: value for value in read_mechanisms(request)}
    return release_of(
        details,
        () if chosen is None else bench.guarantees(by_name[chosen.mechanism], chosen),
        digests=Origin.of(model, layer, prefixes).public.digests,
        remarks=(*laboratory.geometry.notes, _constant(laboratory)),
    )


def _constant(laboratory: Laboratory) -> str:
    """Say how often one token, whatever the prompt, is the model's own: what agreement is beside.

    Which token it is is chosen on public prompts.
    """
    public, measured = laboratory.calibration_behaviours, laboratory.measured_behaviours
    token = int(np.bincount(public.argmax().cpu().numpy()).argmax())
    share = float((measured.argmax() == token).double().mean())
    return (
        "A guess without the state, always the token that the model predicts most often after "
        f"public prompts, agrees with the model for {percent(share)} of held-out prompts."
    )
