"""``tacit hidden quotient``: fit a predictive quotient, certify it, release the bank's."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tacit.cli.console import line, tell_guarantee
from tacit.cli.hidden.inputs import LayerFlags, PromptFlags
from tacit.cli.hidden.quotients import read_quotient
from tacit.cli.hidden.recorded import origin_of
from tacit.cli.options import Only, flag_of, grouped
from tacit.cli.output import new_file, was_given
from tacit.cli.publishing import KEPT_DRY, Destination, Paying, tell_prepared
from tacit.hidden_states.quotient.methods import QuotientPromise, Recipe

if TYPE_CHECKING:
    from rich.console import Console

    from tacit.hidden_states.origin import Origin
    from tacit.hidden_states.quotient.quotient import PredictiveQuotient
    from tacit.hidden_states.quotient.use import QuotientUse
    from tacit.models.passes import Pass

FITTED_BY = ("dimension", "nats", "measure", "reads", "depth", "penalty", "adversary", "epochs")
# Public prompts on which use is measured, at most.
MOST_APART = 1000
OF_THE_BANK = "of the secret prompts, so for the holder alone"


@grouped
def quotient(
    out: Annotated[
        str | None, typer.Option(help="Safetensors file of the quotient to write; or --fitted.")
    ] = None,
    fitted: Annotated[
        str | None, typer.Option(help="Quotient that this command wrote, to release with.")
    ] = None,
    release: Annotated[
        str | None,
        typer.Option("--release-out", help="Also write the bank's quotients with noise, here."),
    ] = None,
    *,
    taken: LayerFlags,
    promise: QuotientPromise,
    recipe: Annotated[Recipe, Only("reads", "depth", "penalty", "adversary", "epochs")],
    outlet: Paying,
    source: PromptFlags,
) -> None:
    """Train a few numbers that carry the prediction with their release noise, and certify them.

    The noise of --release-out is the operating system's. What is certified rests on the ball that a
    quotient is clipped to, whatever the encoder learnt.
    """
    if (out is None) == (fitted is None):
        raise ValueError("--out: expected this or --fitted, exactly one of them")
    if release is None and (outlet.ledger is not None or outlet.dry_run):
        raise ValueError("--release-out: expected a file beside --ledger or --dry-run, got none")
    if outlet.ledger is not None and outlet.secret is None:
        raise ValueError("--secret: expected the name of the secret beside --ledger, got none")
    for name in FITTED_BY if fitted is not None else ():
        if was_given(flag_of(name)):
            raise ValueError(
                f"{flag_of(name)}: expected none beside --fitted, which has its own, got one"
            )
    from tacit.ledger.notions import MAXIMAL_LEAKAGE

    for flag, path in (("--out", out), ("--release-out", release)):
        new_file(flag, path, outlet.force)
    files = {"--texts": source.texts, "--out": out, "--fitted": fitted, "--release-out": release}
    destination = Destination.checked(
        outlet, source.read_as(), spends=MAXIMAL_LEAKAGE, others=files
    )
    held = None if fitted is None else read_quotient(fitted)
    layer = taken.layer
    found, prefixes = source.released(layer, **taken.asked)
    from tacit.hidden_states import PredictiveQuotient, prepare_quotients
    from tacit.hidden_states.quotient.use import measure_use
    from tacit.models.passes import Pass
    from tacit.releases import save_rows
    from tacit.releases.stores import check_rows_room

    # what is released of a prompt is a function of that prompt, to the last bit
    secret = Pass.alone(found, prefixes.bank, layer)
    public = Pass.of(found, prefixes.calibration, [layer])
    fitting, apart = _divided(public, layer)
    origin = origin_of(source, found, layer, prefixes, **taken.asked)
    if held is None:
        held = PredictiveQuotient.fit(
            fitting.states[layer], fitting.behaviours, promise.ball, recipe, rng=source.seed
        ).named(origin)
        held.save(str(out))
    else:
        _check_origin(held, origin, str(fitted))
    prepared = prepare_quotients(held, secret.states[layer], behaviours=secret.behaviours)
    console = destination.json.console
    if outlet.dry_run:
        tell_prepared(prepared, destination.json)
        line(console, "keep", KEPT_DRY)
        return
    use = measure_use(
        held, apart.states[layer], apart.behaviours, fitting.behaviours, rng=source.seed
    )
    described = _described(held, secret, layer, out or fitted) | {"use": use.to_dict()}
    if release is None:
        destination.json.write(described)
    else:
        check_rows_room("--release-out", Path(release), prepared.planned)
        destination = destination.opened()
        released = destination.draw(prepared)
        with destination.paid():
            save_rows(released.public(), release)
        destination.store(released)
    _tell(console, held, described, release, len(prefixes.bank), use)
    published = "nothing was released" if release is None else f"what may be published is {release}"
    destination.tell(f"this output is the holder's: {published}")


def _divided(public: Pass, layer: int) -> tuple[Pass, Pass]:
    """Return the public prompts to fit on, and those to measure use on: a tenth, the last ones."""
    import torch

    from tacit.models.passes import Pass

    count = len(public.behaviours)
    first = count - max(2, min(count // 10, MOST_APART))
    parts = torch.arange(first), torch.arange(first, count)
    fitting, apart = (
        Pass({layer: public.states[layer][rows]}, public.behaviours.select(rows)) for rows in parts
    )
    return fitting, apart


def _check_origin(held: PredictiveQuotient, origin: Origin, path: str) -> None:
    """Refuse a quotient of another model or layer: its certificate would hold, and no use of it."""
    known = held.origin
    if known is not None and not known.is_served_as(origin):
        raise ValueError(
            f"--fitted: {path} is of layer {known.layer} of {known.model}, not of what is read here"
        )


def _described(
    held: PredictiveQuotient, secret: Pass, layer: int, path: str | None
) -> dict[str, Any]:
    told = held.estimate(secret.states[layer], behaviours=secret.behaviours)
    leakage, success, information = held.certify(candidates=len(secret.behaviours))
    return {
        "out": path,
        "digest": held.digest,
        "dimension": held.ball.dimension,
        "radius": held.ball.radius,
        "noise_std": held.ball.noise_std,
        "reads": held.reads,
        "leakage": leakage.to_dict(),
        "success": success.to_dict(),
        "information": information.to_dict(),
        "estimated": {
            "nats": told.nats,
            "formula": told.formula,
            "warning": told.warning,
            "note": OF_THE_BANK,
        },
    }


def _tell(
    console: Console, held: PredictiveQuotient, described: dict[str, Any], release: str | None,
    bank: int, use: QuotientUse,
) -> None:  # fmt: skip
    leakage, success, information = held.certify(candidates=bank)
    tell_guarantee(console, leakage)
    line(console, "success", success.describe())
    line(console, "information", information.describe())
    estimated = described["estimated"]
    told = f"{estimated['nats']:.3g} nats by {estimated['formula']}, {OF_THE_BANK}"
    line(console, "estimate", f"{told}; {estimated['warning']}")
    line(console, "use", use.describe())
    line(console, "quotient", f"{held.words}, SHA-256 {held.digest[:12]}…, in {described['out']}")
    if release is not None:
        line(console, "released", f"{bank:,} quotients in {release}")
