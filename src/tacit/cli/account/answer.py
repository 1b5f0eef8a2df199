"""What ``tacit account`` computes, says and draws for any mechanism."""

from __future__ import annotations

import io
import math
from collections.abc import Callable
from dataclasses import dataclass, field
from decimal import ROUND_CEILING, ROUND_FLOOR, Decimal
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
import typer
from rich.console import Console
from rich.text import Text

from tacit._ground.checks import in_interval, non_negative, positive
from tacit.cli.console import line
from tacit.cli.options import Force, Json
from tacit.cli.output import json_output, new_file
from tacit.documents import encoded
from tacit.text import number_up, share_up

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from tacit.accounting import PrivacyProfile
    from tacit.accounting.published import Claim
    from tacit.guarantees import ApproximateDP

DEFAULT_DELTA = 1e-5
SHOWN_DIGITS = 5
FORMATS = ("png", "svg", "pdf")
PUBLISHED_COLOUR = "#6E6E6E"
CLAIM_POINTS = 24


@dataclass(frozen=True)
class Rival:
    """The same parameter under another analysis or for another mechanism."""

    key: str
    label: str
    value: float
    text: str


@dataclass(frozen=True)
class Mechanism:
    """A mechanism as it was asked for, with one parameter given or to be found.

    Args:
        name: Its command.
        flag: The flag of the parameter that sets the privacy.
        value: What the flag was given, or None when it is to be found.
        settings: Every other number, for the record.
        build: From the parameter to a profile.
        of_search: From a search variable s > 0, more private as it grows, to the parameter.
        start: From ε and δ to a first guess of the search variable.
        grows: Whether a larger parameter is more private, so that it is rounded up when shown.
        claim: The published bound at a parameter and δ, where there is one.
        rivals: From the parameter found, ε and δ to what others would have needed.
    """

    name: str
    flag: str
    value: float | None
    settings: dict[str, Any]
    build: Callable[[float], PrivacyProfile]
    of_search: Callable[[float], float] = field(default=lambda s: s)
    start: Callable[[float, float], float] = field(default=lambda _epsilon, _delta: 1.0)
    grows: bool = True
    claim: Callable[[float, float], Claim] | None = None
    rivals: Callable[[float, float, float], list[Rival]] | None = None


@dataclass(frozen=True)
class Output:
    """Where the answer goes."""

    epsilon: Annotated[
        float | None, typer.Option(help="ε in nats: a target, or where to read δ.")
    ] = None
    delta: Annotated[float | None, typer.Option(help="δ: a target, or where to read ε (1e-5).")] = (
        None
    )
    json: Json = None
    force: Force = False
    plot: Annotated[str | None, typer.Option(help="Figure of δ(ε) to write: png, svg or pdf.")] = (
        None
    )


def answer(mechanism: Mechanism, output: Output) -> None:
    """Account for the mechanism, or calibrate it, and tell."""
    chosen = json_output(output.json, output.force, {"--plot": output.plot})
    plot = None if output.plot is None else _plot_path(output.plot, output.force)
    parameter, profile, guarantee, rivals = _solve(mechanism, output)
    claim = _claim(mechanism, parameter, guarantee.delta)
    content = _content(mechanism, parameter, profile, guarantee, claim, rivals)
    if plot is not None:
        _write_figure(plot, _figure(mechanism, parameter, profile))
    chosen.write(content)
    _tell(chosen.console, mechanism, parameter, profile, guarantee, claim, rivals)
    if plot is not None:
        line(chosen.console, "plot", str(plot))
    chosen.tell()


def _solve(
    mechanism: Mechanism, output: Output
) -> tuple[float, PrivacyProfile, ApproximateDP, list[Rival]]:
    if mechanism.value is None:
        return _calibrated(mechanism, output)
    if output.epsilon is not None and output.delta is not None:
        raise ValueError(
            f"--{mechanism.flag}: expected it with --epsilon or with --delta, or both of these "
            "without it, got all three"
        )
    if output.epsilon is not None:
        epsilon = non_negative("--epsilon", output.epsilon)
        profile = mechanism.build(mechanism.value)
        return mechanism.value, profile, profile.guarantee(epsilon=epsilon), []
    delta = in_interval("--delta", DEFAULT_DELTA if output.delta is None else output.delta, 0, 1)
    profile = mechanism.build(mechanism.value)
    if math.isinf(profile.epsilon(delta)):
        raise ValueError(
            f"--delta: expected one that a finite epsilon reaches, got {delta!r} "
            f"(at epsilon = 1e6 it is {profile.delta(1e6):.4g})"
        )
    return mechanism.value, profile, profile.guarantee(delta=delta), []


def _calibrated(
    mechanism: Mechanism, output: Output
) -> tuple[float, PrivacyProfile, ApproximateDP, list[Rival]]:
    from tacit.accounting import least_noise

    if output.epsilon is None or output.delta is None:
        raise ValueError(
            f"--{mechanism.flag}: expected a number, or both --epsilon and --delta to find it, "
            "got none"
        )
    epsilon = positive("--epsilon", output.epsilon)
    delta = in_interval("--delta", output.delta, 0, 1, open_high=True)
    build = cache(mechanism.build)
    found = least_noise(
        lambda s: build(mechanism.of_search(s)),
        epsilon=epsilon,
        delta=delta,
        start=mechanism.start(epsilon, delta),
    )
    parameter = mechanism.of_search(found)
    profile = build(parameter)
    rivals = [] if mechanism.rivals is None else mechanism.rivals(parameter, epsilon, delta)
    return parameter, profile, profile.guarantee(delta=delta), rivals


def _claim(mechanism: Mechanism, parameter: float, delta: float) -> Claim | str | None:
    """Return the published bound, or the sentence that refuses it."""
    if mechanism.claim is None or not 0 < delta < 1:
        return None
    try:
        return mechanism.claim(parameter, delta)
    except ValueError as refusal:
        return str(refusal)


def _content(
    mechanism: Mechanism,
    parameter: float,
    profile: PrivacyProfile,
    guarantee: ApproximateDP,
    claim: Claim | str | None,
    rivals: list[Rival],
) -> dict[str, Any]:
    from tacit.conversions import success_from_profile

    published: dict[str, Any] | None = None
    if isinstance(claim, str):
        published = {"refused": claim}
    elif claim is not None:
        epsilon = encoded(claim.epsilon)
        published = {"epsilon": epsilon, "delta": claim.delta, "source": claim.source}
    return {
        "mechanism": mechanism.name,
        "settings": mechanism.settings,
        "parameter": {
            "name": mechanism.flag.replace("-", "_"),
            "value": parameter,
            "calibrated": mechanism.value is None,
        },
        "guarantee": guarantee.to_dict(),
        "advantage": profile.advantage(),
        "success": success_from_profile(profile.delta),
        "prior": 0.5,
        "infinite_mass": profile.infinite_mass,
        "published": published,
        "others": {rival.key: rival.value for rival in rivals},
    }


def _tell(
    console: Console,
    mechanism: Mechanism,
    parameter: float,
    profile: PrivacyProfile,
    guarantee: ApproximateDP,
    claim: Claim | str | None,
    rivals: list[Rival],
) -> None:
    from tacit.conversions import success_from_profile

    success = share_up(success_from_profile(profile.delta))
    verdict = (
        "Told that one of two neighbouring inputs was used, an attacker guesses which at most "
        f"{success} of the time (guessing blind: 50.0%)."
    )
    console.print(Text(verdict, "bold"))
    shown = shortened(parameter, up=mechanism.grows)
    extreme = "smallest" if mechanism.grows else "largest"
    why = f" (the {extreme} that keeps ε and δ)" if mechanism.value is None else ""
    line(console, "parameter", f"{mechanism.flag.replace('-', ' ')} {shown}{why}")
    pair = f"ε = {shortened(guarantee.epsilon)}, δ = {shortened(guarantee.delta)}"
    line(console, "guarantee", f"{pair} ({guarantee.adjacency})")
    line(console, "advantage", f"at most {number_up(profile.advantage())} (total variation)")
    if profile.infinite_mass > 0:
        lost = shortened(profile.infinite_mass)
        line(console, "certain", f"with probability {lost} the release gives it away")
    if isinstance(claim, str):
        line(console, "published", f"refused: {claim}")
    elif claim is not None:
        epsilon = "nothing" if math.isinf(claim.epsilon) else f"ε = {shortened(claim.epsilon)}"
        line(console, "published", f"{epsilon} at this {mechanism.flag} ({claim.source})")
    for rival in rivals:
        line(console, rival.label, rival.text)
    for assumption in guarantee.assumptions:
        line(console, "assumes", assumption)


def shortened(value: float, *, up: bool = True) -> str:
    """Write a number with five significant digits, rounded up or down."""
    if math.isinf(value) or value == 0:
        return "∞" if value > 0 else "0"
    exact = Decimal(repr(value))
    quantum = Decimal(1).scaleb(exact.adjusted() - SHOWN_DIGITS + 1)
    short = exact.quantize(quantum, rounding=ROUND_CEILING if up else ROUND_FLOOR).normalize()
    return f"{short:f}" if 1e-4 <= abs(value) < 1e6 else f"{float(short):.{SHOWN_DIGITS}g}"


def _plot_path(path: str, force: bool) -> Path:
    if Path(path).suffix.lower().removeprefix(".") not in FORMATS:
        raise ValueError(f"--plot: expected a name ending in {', '.join(FORMATS)}, got {path!r}")
    target = new_file("--plot", path, force)
    assert target is not None
    return target


def _figure(mechanism: Mechanism, parameter: float, profile: PrivacyProfile) -> Figure:
    """The profile, solid; the published bound beside it, dashed with hollow points."""
    figure = profile.plot()
    axes = figure.axes[0]
    shown = shortened(parameter, up=mechanism.grows)
    axes.set_title(f"{mechanism.name}, {mechanism.flag.replace('-', ' ')} {shown}", loc="left")
    solid = axes.lines[0]
    right, least = axes.get_xlim()[1], axes.get_ylim()[0]
    _label_line(axes, solid, "this profile", (6, 6))
    claims = _claims(mechanism, parameter, max(least, 1e-12))
    if claims:
        epsilons, deltas = (np.array(values) for values in zip(*claims, strict=True))
        dashed = axes.plot(epsilons, deltas, "o--", color=PUBLISHED_COLOUR, markersize=4)[0]
        dashed.set(markerfacecolor="none", linewidth=1.0)
        _label_line(axes, dashed, "published bound", (6, 6))
        axes.set_xlim(0.0, max(right, min(float(epsilons.max()), 12 * right)))
    return figure


def _claims(mechanism: Mechanism, parameter: float, least: float) -> list[tuple[float, float]]:
    points = []
    for delta in np.geomspace(least, 0.5, CLAIM_POINTS).tolist():
        claim = _claim(mechanism, parameter, delta)
        if claim is not None and not isinstance(claim, str) and math.isfinite(claim.epsilon):
            points.append((claim.epsilon, delta))
    return points


def _label_line(axes: Any, drawn: Any, text: str, offset: tuple[int, int]) -> None:
    x, y = drawn.get_xdata(), drawn.get_ydata()
    middle = len(x) // 2
    axes.annotate(
        text,
        (float(x[middle]), float(y[middle])),
        xytext=offset,
        textcoords="offset points",
        color=drawn.get_color(),
    )


def _write_figure(path: Path, figure: Figure) -> None:
    """Draw in memory, then replace."""
    from tacit._ground.files import write_bytes_atomic

    buffer = io.BytesIO()
    figure.savefig(buffer, format=path.suffix.lower().removeprefix("."), dpi=160)
    write_bytes_atomic("--plot", path, buffer.getvalue())
