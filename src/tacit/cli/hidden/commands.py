"""``tacit hidden``: the geometry of a layer, releases of its states, attacks on them."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tacit import codec
from tacit._ground.checks import integer, positive
from tacit.cli.completion import offered
from tacit.cli.console import line, tell_guarantee
from tacit.cli.hidden.attack import attack
from tacit.cli.hidden.codec import decode, encode, fit
from tacit.cli.hidden.features import features
from tacit.cli.hidden.inputs import (
    Calibration,
    CountFlags,
    Layer,
    LayerFlags,
    PromptFlags,
    listed,
)
from tacit.cli.hidden.measured import measured_outlets, tell_measured
from tacit.cli.hidden.quotient import quotient
from tacit.cli.hidden.recorded import origin_of
from tacit.cli.hidden.trajectory import trajectory
from tacit.cli.options import grouped
from tacit.cli.output import json_output, new_file
from tacit.cli.publishing import Destination, Outlet, Paged, Paying, publish
from tacit.compute import progress_reports
from tacit.hidden_states.audit.request import SweepRequest
from tacit.text import share_up

if TYPE_CHECKING:
    from tacit.hidden_states import Point
    from tacit.hidden_states.geometry.estimation import Geometry
    from tacit.hidden_states.origin import Origin
    from tacit.releases import Release

app = typer.Typer(
    help="Hidden states of a language model: measure a layer, release it, attack it.",
    no_args_is_help=True,
)

Mechanism = Annotated[str, typer.Option(help="A Gaussian design, such as isotropic.")]
KlBudget = Annotated[float, typer.Option(help="K = ½ tr(FΣ) that the noise may cost, in nats.")]
LeastCell = Annotated[
    int, typer.Option(help="Calibration prompts that a codeword is the average of at least.")
]
Out = Annotated[str, typer.Option(help="Safetensors file to write.")]
COUNTED = "counted in the secret prompts: for the holder alone, and no guarantee"
# Whom a release is for, by protocol.
READERS = {
    "A": "also holds the clean earlier positions (protocol A)",
    "B": "holds the release alone (protocol B)",
}


@app.command()
@grouped
def geometry(
    layer: Layer,
    calibration: Calibration = 2000,
    *,
    outlet: Paged,
    source: PromptFlags,
) -> None:
    """Measure where a layer's last state carries the prediction, and where prompts differ."""
    output, page = measured_outlets(outlet, {"--texts": source.texts})
    found, prompts = source.sample(layer, calibration)
    from tacit.hidden_states.geometry.estimation import measure_geometry as measure
    from tacit.hidden_states.origin import HOLDERS
    from tacit.report import Measurement

    result = measure(found, layer, prompts, rng=source.seed)
    numbers = {
        field.name: value
        for field in dataclasses.fields(result)
        if isinstance(value := getattr(result, field.name), (int, float, str))
    }
    output.write({**numbers, "notes": list(result.notes), "spectrum": result.spectrum.tolist()})
    told = Measurement(
        about=f"layer {layer} of {found.name}",
        title=f"{result.effective_rank} of {result.width} directions of layer {layer} of "
        f"{found.name} hold 95% of the Fisher information.",
        lines=[
            ("energy", f"{result.energy:.1%} in the {result.rank} leading directions"),
            ("coupling", f"{result.coupling:.2f} (1 for a random subspace)"),
            ("gain", f"{result.mahalanobis_gain:.2f} against a Mahalanobis attacker"),
            ("signal", _signal(result)),
            *(("note", note) for note in result.notes),
        ],
        keep=HOLDERS,
    )
    tell_measured(output, page, told)


@app.command()
@grouped
def sweep(
    layers: Annotated[str, typer.Option(help="Layers, separated by commas.")],
    out: Annotated[
        str | None,
        typer.Option("--points", help="JSON lines of the points to write, and to resume from."),
    ] = None,
    workers: Annotated[
        int | None,
        typer.Option(help="Processes with a model each; when left out, only this one."),
    ] = None,
    *,
    counts: CountFlags,
    request: SweepRequest,
    outlet: Paged,
    source: PromptFlags,
) -> None:
    """Measure every mechanism at every budget: what is left of the model, what it gives away."""
    output, page = measured_outlets(outlet, {"--texts": source.texts, "--points": out})
    if workers is not None:
        integer("--workers", workers, minimum=1)
    levels = listed("--layers", layers, int)
    found, prefixes = source.prepare(*levels, **counts.asked)
    from tacit.hidden_states import Point, SweepRun
    from tacit.hidden_states import sweep as measure
    from tacit.hidden_states.origin import HOLDERS
    from tacit.report import Measurement

    with progress_reports("preparing") as progress:
        points = measure(
            found,
            levels,
            request,
            prefixes=prefixes,
            sizes=counts.sizes,
            run=SweepRun(out=out, workers=workers, progress=progress),
            rng=source.seed,
        )
    output.write([codec.write(Point, point) for point in points])
    middle = ", ".join(
        f"{sum(point.in_middle for point in read)} of {len(read)} read by whoever {known}"
        for protocol, known in READERS.items()
        if (read := [point for point in points if point.protocol == protocol])
    )
    told = Measurement(
        about=f"sweep of {found.name}",
        title=f"In the middle that is said to be empty: {middle}.",
        lines=[(f"layer {point.layer}", _point_words(point)) for point in points],
        keep=HOLDERS,
    )
    tell_measured(output, page, told)


def _point_words(point: Point) -> str:
    """Return what was measured at a point: what is kept, what is left of the model, what leaks."""
    from tacit.hidden_states.audit.catalogue import told

    law = f"of {point.bank:,} equally likely prompts"
    bound = "" if point.bound is None else f", at most {share_up(point.bound)} {law} proven"
    return (
        f"{told(point)}, read as {point.reading} ({point.protocol}): agreement "
        f"{point.agreement.value:.1%}, KL {point.kl.value:.2f}, attack "
        f"{point.best_attack.top1.value:.1%}{bound}"
    )


@dataclass(frozen=True, kw_only=True)
class ReleasedLayer(LayerFlags):
    """The layer whose noisy states are released, and the prompts."""

    calibration: Calibration = 2000


@dataclass(frozen=True, kw_only=True)
class StateFiles:
    """The files that states are written to."""

    out: Out
    clean: Annotated[
        str | None, typer.Option(help="Also write the clean states, to this file.")
    ] = None
    publish: Annotated[
        str | None,
        typer.Option(help="Also write the noisy states without the digests of their prompts."),
    ] = None

    @property
    def written(self) -> dict[str, str | None]:
        """Every file by its flag."""
        return {"--out": self.out, "--clean": self.clean, "--publish": self.publish}

    def check_room(self, planned: Release[Any]) -> None:
        """Refuse a disk that is too full for them."""
        from tacit.releases.stores import check_rows_room

        places = {flag: Path(path) for flag, path in self.written.items() if path is not None}
        for flag, place in places.items():
            copies = sum(other.parent == place.parent for other in places.values())
            check_rows_room(flag, place, planned, copies)


@app.command()
@grouped
def release(
    kl_budget: KlBudget = 4.0,
    mechanism: Mechanism = "isotropic",
    *,
    taken: ReleasedLayer,
    files: StateFiles,
    outlet: Paying,
    source: PromptFlags,
) -> None:
    """Write noisy states of the bank (candidate set) with their guarantee.

    The noise is the operating system's. The file names its model and prompts by digest for whoever
    attacks it; --publish does not.
    """
    from tacit.hidden_states.noise.shapes import SHAPES
    from tacit.hidden_states.spelling import read_one
    from tacit.ledger.notions import RENYI_DP

    for flag, path in files.written.items():
        new_file(flag, path, outlet.force)
    positive("--kl-budget", kl_budget)
    shape = read_one("--mechanism", mechanism, SHAPES)
    if outlet.ledger is not None and outlet.secret is None:
        raise ValueError("--secret: expected the name of the secret beside --ledger, got none")
    layer, read = taken.layer, dict[str, Any]()

    def prepare() -> Any:
        found, prefixes = source.released(layer, **taken.asked)
        from tacit.hidden_states import (
            Differences,
            GeometryFit,
            adjacency_differences,
            measure_geometry,
            prepare_states,
        )
        from tacit.hidden_states.noise.shapes import Designs
        from tacit.models.passes import lone_states

        fitted = found.states(prefixes.calibration, layer).double().cpu().numpy()
        listed = adjacency_differences(
            fitted, min(1000, len(fitted)), kind="nearest", rng=source.seed
        )
        measured = measure_geometry(
            found, layer, prefixes.calibration, GeometryFit(difference_scale="raw"), rng=source.seed
        )
        design = Designs(measured, listed).at(shape, kl_budget)
        read["states"] = lone_states(found, layer, prefixes.bank)
        read["origin"] = origin_of(source, found, layer, prefixes, **taken.asked)
        promise = Differences(listed=listed)
        prepared = prepare_states(read["states"], design, promise, origin=read["origin"])
        files.check_room(prepared.planned)
        return prepared

    def tell(destination: Destination, released: Release[Any]) -> None:
        console, details, out = destination.json.console, released.details, files.out
        tell_guarantee(console, released.guarantees[0])
        line(console, "released", f"{details.rows:,} states of {details.width} numbers in {out}")
        line(console, "cost", f"K = {details.cost:g} nats by the quadratic prediction")
        line(console, "keep", f"{out} and this output are the holder's: they name the prompts by "
             "digest; what may be published is what --publish writes")  # fmt: skip

    def store(released: Release[Any]) -> None:
        from tacit.releases import save_rows

        save_rows(released, files.out)
        if files.publish is not None:
            save_rows(released.public(), files.publish)
        if files.clean is not None:
            _write_states(files.clean, read["states"], read["origin"])

    publish(
        prepare,
        outlet,
        source.read_as(),
        spends=RENYI_DP,
        others={"--texts": source.texts, **files.written},
        store=store,
        tell=tell,
    )


app.command("attack")(attack)
app.command("fit")(fit)
app.command("encode")(encode)
app.command("decode")(decode)
app.command("trajectory")(trajectory)
app.command("features")(features)
app.command("quotient")(quotient)


@app.command()
@grouped
def codebook(
    out: Out,
    codewords: Annotated[int, typer.Option(help="C, codewords.")] = 256,
    metric: Annotated[
        str,
        typer.Option(
            autocompletion=offered("euclidean", "fisher", "behaviour", "decision", "argmax"),
            help="euclidean, fisher, behaviour, decision or argmax.",
        ),
    ] = "behaviour",
    least_cell: LeastCell = 20,
    *,
    taken: LayerFlags,
    outlet: Outlet,
    source: PromptFlags,
) -> None:
    """Fit a codebook on public prompts, and say what codes of the bank (candidate set) tell.

    Codebook and guarantees are the same whatever the bank is; what is counted in the bank is for
    its holder.
    """
    output = json_output(outlet.json, outlet.force, {"--texts": source.texts, "--out": out})
    from tacit.hidden_states.audit.cells import read_code

    new_file("--out", out, outlet.force)
    mechanism = read_code("--metric", metric)
    integer("--codewords", codewords, minimum=2, maximum=taken.calibration)
    integer("--bank", taken.bank, minimum=4)
    layer = taken.layer
    found, prefixes = source.released(layer, **taken.asked)
    from tacit.hidden_states.audit.laboratory import Laboratory
    from tacit.hidden_states.audit.request import Sizes
    from tacit.hidden_states.codebooks.membership import calibration_membership
    from tacit.hidden_states.origin import Origin
    from tacit.models import Prefixes
    from tacit.models.passes import Pass

    sizes = Sizes(prompts=2, generated=0, least_cell=least_cell)
    # the laboratory in which a codebook is fitted holds public prompts alone
    public = Prefixes(prefixes.calibration, prefixes.calibration, prefixes.calibration[:2])
    laboratory = Laboratory.prepare(found, layer, public, sizes, seed=source.seed)
    book = dataclasses.replace(
        mechanism.book(laboratory, codewords, source.seed),
        origin=origin_of(source, found, layer, prefixes, **taken.asked),
    )
    secret = Pass.of(found, prefixes.bank, [layer])
    states = secret.states[layer]
    counted = book.certify(book.assign(states, behaviours=secret.behaviours))
    certificate = book.compose(1, len(states))
    told = calibration_membership(book, laboratory.calibration, states, rng=source.seed)
    book.save(out)
    output.write(
        {
            "out": out,
            "codewords": book.size,
            "digest": book.digest,
            "origin": codec.write(Origin | None, book.origin),
            "least_cell": book.least_cell,
            "leakage": certificate.leakage.to_dict(),
            "success": certificate.success.to_dict(),
            "information": certificate.information.to_dict(),
            "counted": {
                "note": COUNTED,
                "occupied": counted.occupied,
                "success": counted.success.success,
                "nats": counted.information.nats,
                "calibration_membership": {
                    "auc": told.roc.auc,
                    "interval": list(told.roc.auc_interval),
                    "confidence": told.roc.confidence,
                    "exact": told.exact,
                },
            },
        }
    )
    console = output.console
    tell_guarantee(console, certificate.leakage)
    line(console, "success", certificate.success.describe())
    line(console, "information", certificate.information.describe())
    fewer = "" if book.size >= codewords else f", of {codewords:,} asked for: smaller cells went"
    line(console, "codebook", f"{book.size:,} codewords in {out}{fewer}")
    low, high = told.roc.auc_interval
    line(
        console,
        "calibration",
        f"{book.calibration:,} prompts, {least_cell} a cell at least: the file tells them from "
        f"fresh ones with an AUC of {told.roc.auc:.2f} [{low:.2f}, {high:.2f}], so fit on public "
        f"texts; {told.exact} states are codewords",
    )
    line(
        console,
        "counted",
        f"{counted.occupied:,} codes occur in the {len(states):,} prompts of the bank, "
        f"{counted.information.nats:.3g} nats of code; {COUNTED}",
    )


def _signal(found: Geometry) -> str:
    free = ""
    if found.fisher_rank < found.width:
        free = f", {found.least_signal_ridged:.3g} where no direction is free to noise"
    return f"M* = {found.least_signal:.3g} is the least tr(S Σ⁻¹) at one nat{free}"


def _write_states(path: str, states: Any, origin: Origin) -> None:
    from json import dumps

    from safetensors.torch import save

    from tacit._ground.files import write_bytes_atomic
    from tacit._ground.headers import in_order
    from tacit.hidden_states.origin import HOLDERS

    about = {"origin": dumps(codec.write(type(origin), origin)), "note": HOLDERS}
    metadata = {"format": "tacit-clean-states-1", **about}
    content = save({"states": states.contiguous()}, metadata)
    write_bytes_atomic("--clean", path, in_order(content))
