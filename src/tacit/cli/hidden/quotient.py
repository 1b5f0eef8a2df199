"""``tacit hidden quotient``: fit a predictive quotient, certify it, release the bank's."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.text import Text

from tacit._ground.checks import choice, integer
from tacit.cli.console import command_line, line
from tacit.cli.hidden.inputs import Bank, Calibration, Layer, Source
from tacit.cli.hidden.recorded import origin_of
from tacit.cli.options import grouped
from tacit.cli.output import new_file
from tacit.cli.publishing import KEPT_OUTPUT, Destination, Paying, tell_prepared

if TYPE_CHECKING:
    from rich.console import Console

    from tacit.hidden_states import Ball, PreparedQuotients
    from tacit.hidden_states.origin import Origin
    from tacit.hidden_states.quotient.quotient import PredictiveQuotient
    from tacit.hidden_states.quotient.use import QuotientUse
    from tacit.models.passes import Pass

USUAL: dict[str, Any] = {
    "--dimension": 4, "--nats": 6.93, "--measure": "leakage", "--reads": "states", "--depth": 2,
    "--penalty": 0.0, "--adversary": 0.0, "--epochs": 30,
}  # fmt: skip

# Public prompts on which use is measured, at most.
MOST_APART = 1000
OF_THE_BANK = "of the secret prompts, so for the holder alone"


@grouped
def quotient(
    layer: Layer,
    out: Annotated[
        str | None, typer.Option(help="Safetensors file of the quotient to write; or --fitted.")
    ] = None,
    fitted: Annotated[
        str | None, typer.Option(help="Quotient that this command wrote, to release with.")
    ] = None,
    release: Annotated[
        str | None, typer.Option(help="Also write the bank's quotients with noise, to this file.")
    ] = None,
    dimension: Annotated[
        int | None, typer.Option(help="k, numbers in a quotient, 4 when left out.")
    ] = None,
    nats: Annotated[
        float | None, typer.Option(help="What is certified of one release, 6.93 when left out.")
    ] = None,
    measure: Annotated[
        str | None,
        typer.Option(
            help="Of what: leakage, for every prior, as when left out; or information, on average."
        ),
    ] = None,
    reads: Annotated[
        str | None,
        typer.Option(help="What the encoder is given: states, as when left out; or behaviours."),
    ] = None,
    depth: Annotated[
        int | None, typer.Option(help="Hidden layers of encoder and decoder each, 2 when left out.")
    ] = None,
    penalty: Annotated[
        float | None, typer.Option(help="β of estimated information, >= 0; 0 when left out.")
    ] = None,
    adversary: Annotated[
        float | None, typer.Option(help="γ of Bayes' attacker, >= 0; 0 when left out.")
    ] = None,
    epochs: Annotated[
        int | None, typer.Option(help="Passes over the calibration prompts, 30 when left out.")
    ] = None,
    bank: Bank = 1000,
    calibration: Calibration = 5000,
    *,
    outlet: Paying,
    source: Source,
) -> None:
    """Train a few numbers that carry the prediction with their release noise, and certify them.

    The noise of --release is the operating system's. What is certified rests on the ball that a
    quotient is clipped to, whatever the encoder learnt.
    """
    if (out is None) == (fitted is None):
        raise ValueError("--out: expected this or --fitted, exactly one of them")
    if release is None and (outlet.ledger is not None or outlet.dry_run):
        raise ValueError("--release: expected a file beside --ledger or --dry-run, got none")
    from tacit.ledger.notions import MAXIMAL_LEAKAGE

    if outlet.ledger is not None and outlet.secret is None:
        raise ValueError("--secret: expected the name of the secret beside --ledger, got none")
    for flag, path in (("--out", out), ("--release", release)):
        new_file(flag, path, outlet.force)
    files = {"--out": out, "--fitted": fitted, "--release": release}
    destination = Destination.checked(
        outlet, source.texts, None, spends=MAXIMAL_LEAKAGE, others=files
    )
    asked = {"--dimension": dimension, "--nats": nats, "--measure": measure, "--reads": reads,
             "--depth": depth, "--penalty": penalty, "--adversary": adversary,
             "--epochs": epochs}  # fmt: skip
    told = _training(asked, fitted)
    ball = _ball(told["--dimension"], told["--nats"], told["--measure"])
    held = _loaded(fitted)
    counts = {"bank": bank, "calibration": calibration}
    found, prefixes = source.released(layer, **counts)
    from tacit.hidden_states import PredictiveQuotient, prepare_quotients
    from tacit.hidden_states.quotient.use import measure_use
    from tacit.models.passes import Pass

    secret = Pass.of(found, prefixes.bank, [layer])
    public = Pass.of(found, prefixes.calibration, [layer])
    fitting, apart = _divided(public, layer)
    origin = origin_of(source, found, layer, prefixes, **counts)
    if held is None:
        held = PredictiveQuotient.fit(
            fitting.states[layer], fitting.behaviours, ball,
            reads=told["--reads"], depth=told["--depth"], penalty=told["--penalty"],
            adversary=told["--adversary"], epochs=told["--epochs"], rng=source.seed,
        ).named(origin)  # fmt: skip
        held.save(str(out))
    else:
        _check_origin(held, origin, str(fitted))
    prepared = prepare_quotients(held, secret.states[layer], behaviours=secret.behaviours)
    if outlet.dry_run:
        tell_prepared(prepared, destination.json)
        line(destination.json.console, "keep", KEPT_OUTPUT)
        return
    use = measure_use(
        held, apart.states[layer], apart.behaviours, fitting.behaviours, rng=source.seed
    )
    described = _described(held, secret, layer, out or fitted) | {"use": use.to_dict()}
    if release is None:
        destination.json.write(described)
    else:
        destination = destination.opened()
        _publish(prepared, destination, release)
    _tell(destination.json.console, held, described, release, len(prefixes.bank), use)
    destination.tell()


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


def _training(asked: dict[str, Any], fitted: str | None) -> dict[str, Any]:
    """Return what a quotient is fitted with; one that was fitted before takes nothing anew."""
    for flag, value in asked.items():
        if fitted is not None and value is not None:
            raise ValueError(f"{flag}: expected none beside --fitted, which has its own, got one")
    told = {flag: USUAL[flag] if value is None else value for flag, value in asked.items()}
    choice("--reads", told["--reads"], ("states", "behaviours"))
    integer("--depth", told["--depth"], minimum=0)
    integer("--epochs", told["--epochs"], minimum=1)
    return told


def _ball(dimension: int, nats: float, measure: str) -> Ball:
    """Return the ball that the flags ask for."""
    from tacit.hidden_states import Ball

    integer("--dimension", dimension, minimum=1)
    choice("--measure", measure, ("leakage", "information"))
    return Ball.at(dimension, nats=nats, measure=measure)


def _loaded(fitted: str | None) -> PredictiveQuotient | None:
    """Return a quotient that was fitted before."""
    if fitted is None:
        return None
    from tacit.hidden_states import PredictiveQuotient

    try:
        return PredictiveQuotient.load(fitted)
    except ValueError as error:
        raise ValueError(f"--fitted: {str(error).removeprefix('path: ')}") from None


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


def _publish(prepared: PreparedQuotients, destination: Destination, path: str) -> None:
    from tacit.releases import Provenance

    released = destination.draw(prepared)
    released.save(path)
    provenance = Provenance.capture(
        command_line(),
        secret=destination.secret,
        ledger=None if destination.ledger is None else destination.ledger.location,
    )
    destination.store(released, provenance)


def _tell(
    console: Console, held: PredictiveQuotient, described: dict[str, Any], release: str | None,
    bank: int, use: QuotientUse,
) -> None:  # fmt: skip
    leakage, success, information = held.certify(candidates=bank)
    console.print(Text(leakage.describe(), "bold"))
    line(console, "success", success.describe())
    line(console, "information", information.describe())
    estimated = described["estimated"]
    told = f"{estimated['nats']:.3g} nats by {estimated['formula']}, {OF_THE_BANK}"
    line(console, "estimate", f"{told}; {estimated['warning']}")
    line(console, "use", use.describe())
    line(console, "quotient", f"{held.words}, SHA-256 {held.digest[:12]}…, in {described['out']}")
    if release is not None:
        line(console, "released", f"{bank:,} quotients in {release}")
