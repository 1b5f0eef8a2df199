"""``tacit account``: what a mechanism guarantees, or the noise that a guarantee needs."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

import typer
from typer.core import TyperGroup

from tacit._ground.checks import in_interval, non_negative, positive
from tacit._ground.lazy import install_with
from tacit.cli.account.mechanisms import DIGITS, MECHANISMS, Accounted, MechanismFlags, Rival
from tacit.cli.console import line, tell_guarantee
from tacit.cli.options import Force, Json, grouped
from tacit.cli.output import JsonOutput, json_output, new_file
from tacit.text import number_up

if TYPE_CHECKING:
    from tacit.accounting import PrivacyProfile
    from tacit.accounting.published import Claim
    from tacit.guarantees import ApproximateDP

# Where ε is read when neither of the two is said, and where δ is said to have got to.
DEFAULT_DELTA, FAR = 1e-5, 1e6
# What matplotlib writes, by the ending of the file.
FORMATS = ("png", "svg", "pdf")


@dataclass(frozen=True)
class OutputFlags:
    """Where ε and δ are read, and where the answer goes."""

    panel: ClassVar[str] = "Output"

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


class MechanismCommands(TyperGroup):
    """A command for every mechanism, made when it is asked for."""

    def list_commands(self, ctx: Any) -> list[str]:
        """Return the words of the mechanisms."""
        return list(MECHANISMS)

    def get_command(self, ctx: Any, name: str) -> Any:
        """Return the command of a mechanism; None where there is none of the word."""
        kind = MECHANISMS.get(name)
        if kind is None:
            return None

        # one function for all: its annotation says which flags it has
        def account(mechanism: MechanismFlags, output: OutputFlags) -> None:
            answer(mechanism, output)

        account.__annotations__ = {"mechanism": kind, "output": OutputFlags}
        alone = typer.Typer(add_completion=False, pretty_exceptions_enable=False)
        first = (kind.__doc__ or "").partition("\n")[0]
        alone.command(name, help=first)(grouped(account))
        command = typer.main.get_command(alone)
        command.name = name
        return command


app = typer.Typer(
    cls=MechanismCommands,
    help="Account for a mechanism: δ(ε), composed and subsampled, exact but for rounding up.\n\n"
    "Given its noise, print ε at --delta (or δ at --epsilon), and the success of any "
    "attacker. Without it, find the least noise for --epsilon and --delta. Published bounds stand "
    "beside ours where there are any.",
    no_args_is_help=True,
)


def answer(mechanism: MechanismFlags, output: OutputFlags) -> None:
    """Account for the mechanism, or calibrate it, and tell."""
    target = getattr(mechanism, "target_epsilon", None)
    if target is not None:
        if output.epsilon is not None:
            raise ValueError("--target-epsilon: expected it or --epsilon, got both")
        delta = DEFAULT_DELTA if output.delta is None else output.delta
        output = replace(output, epsilon=target, delta=delta)
    # all that could refuse is asked before anything is computed
    chosen = json_output(output.json, output.force, {"--plot": output.plot})
    plot = None if output.plot is None else _plot_path(output.plot, output.force)
    given = getattr(mechanism, mechanism.parameter)
    found, rivals = (
        _calibrate(mechanism, output)
        if given is None
        else (_read(mechanism, output, given), list[Rival]())
    )
    # matplotlib is imported for a figure alone
    if plot is not None:
        from tacit.cli.account.figure import write_figure

        write_figure(found, plot)
    _tell(chosen, found, rivals, written=output.json is not None)
    if plot is not None:
        line(chosen.console, "plot", str(plot))
    if output.json is not None:
        chosen.tell()


def _read(mechanism: MechanismFlags, output: OutputFlags, parameter: float) -> Accounted:
    """Return ε at δ, or δ at ε, of a mechanism whose parameter is given."""
    if output.epsilon is not None and output.delta is not None:
        raise ValueError(
            f"{_flag(mechanism.parameter)}: expected it with --epsilon or with --delta, or both of "
            "these without it, got all three"
        )
    # δ at ε is what the curve says
    if output.epsilon is not None:
        epsilon = non_negative("--epsilon", output.epsilon)
        profile = _built(mechanism, parameter)
        delta = profile.delta(epsilon)
        return Accounted(mechanism, parameter, profile, epsilon, delta, at_delta=False)
    # ε at δ is searched for on the curve
    delta = in_interval("--delta", DEFAULT_DELTA if output.delta is None else output.delta, 0, 1)
    profile = _built(mechanism, parameter)
    epsilon = profile.epsilon(delta)
    # a release that gives itself away with probability above δ has no ε
    if math.isinf(epsilon):
        raise ValueError(
            f"--delta: expected one that a finite epsilon reaches, got {delta!r} "
            f"(at epsilon = {FAR:g} it is {profile.delta(FAR):.4g})"
        )
    return Accounted(mechanism, parameter, profile, epsilon, delta)


def _calibrate(mechanism: MechanismFlags, output: OutputFlags) -> tuple[Accounted, list[Rival]]:
    """Return the least private parameter that keeps ε and δ, and what others would have needed."""
    from tacit.accounting import least_noise

    if output.epsilon is None or output.delta is None:
        raise ValueError(
            f"{_flag(mechanism.parameter)}: expected a number, or both --epsilon and --delta to "
            "find it, got none"
        )
    # both were asked for: the parameter is what is searched
    epsilon = positive("--epsilon", output.epsilon)
    delta = in_interval("--delta", output.delta, 0, 1, open_high=True)
    # the same parameter may be asked for twice: composed profiles are dear
    build = cache(lambda parameter: _built(mechanism, parameter))
    search = least_noise(
        lambda s: build(mechanism.of_search(s)),
        epsilon=epsilon,
        delta=delta,
        start=mechanism.guess(epsilon, delta),
    )
    parameter = mechanism.of_search(search)
    profile = build(parameter)
    found = Accounted(mechanism, parameter, profile, profile.epsilon(delta), delta)
    return found, mechanism.rivals(parameter, epsilon, delta)


def _built(mechanism: MechanismFlags, parameter: float) -> PrivacyProfile:
    """Return the profile; a refusal of one of its numbers names the flag."""
    try:
        return mechanism.profile(parameter)
    except ValueError as error:
        name, colon, rest = str(error).partition(":")
        if colon and hasattr(mechanism, name):
            raise ValueError(f"{_flag(name)}:{rest}") from None
        raise


def _flag(name: str) -> str:
    return f"--{name.replace('_', '-')}"


def _tell(chosen: JsonOutput, found: Accounted, rivals: list[Rival], *, written: bool) -> None:
    """Print the answer, and write it where that was asked for."""
    bound, advantage = found.profile.success(), found.profile.advantage()
    claim = found.claim(found.delta)
    if written:
        chosen.write(_content(found, claim, rivals, advantage, bound.success))
    console, profile, mechanism = chosen.console, found.profile, found.mechanism
    tell_guarantee(console, bound, _title(found))
    extreme = "smallest" if mechanism.grows else "largest"
    why = f" (the {extreme} that keeps ε and δ)" if found.calibrated else ""
    line(console, "parameter", f"{found.title}{why}")
    line(console, "guarantee", f"{', '.join(_pair(found))} ({profile.adjacency})")
    # what no ε covers
    if profile.infinite_mass > 0:
        lost = number_up(profile.infinite_mass, DIGITS)
        line(console, "certain", f"with probability {lost} the release gives the record away")
    if isinstance(claim, str):
        line(console, "published", f"refused: {claim}")
    elif claim is not None:
        claimed = number_up(claim.epsilon, DIGITS)
        epsilon = "nothing" if math.isinf(claim.epsilon) else f"ε = {claimed}"
        at = mechanism.parameter.replace("_", "-")
        line(console, "published", f"{epsilon} at this {at} ({claim.source})")
    # what others would have needed, and then what must hold for all of this
    for rival in rivals:
        line(console, rival.label, rival.text)
    for assumption in profile.assumptions:
        line(console, "assumes", assumption)
    statement = mechanism.statement(found)
    if statement is not None:
        line(console, "statement", statement)


def _pair(found: Accounted) -> tuple[str, str]:
    """Return ε and δ, rounded up, what was worked out before what was given."""
    epsilon = f"ε = {number_up(found.epsilon, DIGITS)}"
    delta = f"δ = {number_up(found.delta, DIGITS)}"
    return (epsilon, delta) if found.at_delta else (delta, epsilon)


def _title(found: Accounted) -> str:
    """Return the answer to what was asked: the noise, ε at δ, or δ at ε."""
    from tacit.guarantees.one_line import one_line

    if found.calibrated:
        least = "least" if found.mechanism.grows else "largest"
        return f"{found.title}: the {least} at which {' at '.join(_pair(found))}"
    told = found.profile.guarantee(delta=found.delta)
    return replace(one_line(told), number=" at ".join(_pair(found))).text


def _content(
    found: Accounted,
    claim: Claim | str | None,
    rivals: list[Rival],
    advantage: float,
    success: float,
) -> dict[str, Any]:
    """Return the answer as JSON holds it."""
    from tacit.documents import encoded

    # a claim of a paper is a number to compare with, never a guarantee
    published: dict[str, Any] | None = None
    if isinstance(claim, str):
        published = {"refused": claim}
    elif claim is not None:
        epsilon = encoded(claim.epsilon)
        published = {"epsilon": epsilon, "delta": claim.delta, "source": claim.source}
    mechanism, profile = found.mechanism, found.profile
    asked = {"delta": found.delta} if found.at_delta else {"epsilon": found.epsilon}
    return {
        "mechanism": mechanism.word,
        "settings": mechanism.settings(),
        "parameter": {
            "name": mechanism.parameter,
            "value": found.parameter,
            "calibrated": found.calibrated,
        },
        "guarantee": profile.guarantee(**asked).to_dict(),
        "advantage": advantage,
        "success": success,
        "prior": 0.5,
        "infinite_mass": profile.infinite_mass,
        "published": published,
        "others": {rival.key: rival.value for rival in rivals},
        "statement": mechanism.statement(found),
        **_proof(profile, profile.guarantee(**asked)),
    }


def _proof(profile: PrivacyProfile, stated: ApproximateDP) -> dict[str, Any]:
    """Return what a checker works the guarantee out from; nothing where it has no such node."""
    from tacit.releases.proof import PROOF, ReleaseProof, claims_of, relation
    from tacit.releases.verification import refuse_false_proof

    if profile.mechanism is None:
        return {}
    proof = ReleaseProof(
        mechanism=profile.mechanism,
        claims=claims_of([stated, profile.success()]),
        adjacency=relation(profile.adjacency),
        given=profile.assumptions,
    )
    refuse_false_proof(proof)
    return {PROOF: proof.to_dict()}


def _plot_path(path: str, force: bool) -> Path:
    if Path(path).suffix.lower().removeprefix(".") not in FORMATS:
        raise ValueError(f"--plot: expected a name ending in {', '.join(FORMATS)}, got {path!r}")
    if find_spec("matplotlib") is None:
        raise ValueError(f"--plot: a figure needs matplotlib: {install_with('plot')}")
    target = new_file("--plot", path, force)
    assert target is not None
    return target
