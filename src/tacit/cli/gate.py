"""``tacit gate``: an exit code for continuous integration."""

from __future__ import annotations

import json as json_text
from dataclasses import dataclass, fields
from typing import Annotated, Any

import typer
from rich.text import Text

from tacit.cli.options import Force, Json, grouped
from tacit.cli.output import json_output, new_file


@dataclass(frozen=True)
class Thresholds:
    """The thresholds of the command line."""

    max_factor: Annotated[
        float | None,
        typer.Option(help="Largest factor on any attacker's chance, for every prior, >= 1."),
    ] = None
    max_nats: Annotated[
        float | None, typer.Option(help="Largest maximal leakage in nats: ln of that factor.")
    ] = None
    max_success: Annotated[
        float | None,
        typer.Option(help="Largest success bound under the law it names, in (0, 1]."),
    ] = None
    candidates: Annotated[
        int | None,
        typer.Option(help="N: judge --max-success at naming one of N equally likely secrets."),
    ] = None
    max_information: Annotated[
        float | None, typer.Option(help="Largest information bound allowed, in nats.")
    ] = None
    max_attack: Annotated[
        float | None,
        typer.Option(
            help="Largest measured attack allowed (upper end of its interval), in (0, 1]."
        ),
    ] = None
    max_inversion: Annotated[
        float | None,
        typer.Option(
            help="Largest share of tokens read back by an inverter (upper end of its interval), "
            "in (0, 1]."
        ),
    ] = None
    min_agreement: Annotated[
        float | None,
        typer.Option(
            help="Least agreement an audit's release keeps (lower end of its interval), in (0, 1]."
        ),
    ] = None
    max_kl: Annotated[
        float | None,
        typer.Option(help="Largest KL of an audit's release (upper end of its interval), in nats."),
    ] = None
    min_confidence: Annotated[
        float | None,
        typer.Option(help="Least confidence of guarantees that rest on samples; 0.99."),
    ] = None
    releases: Annotated[
        int | None, typer.Option(help="T: releases about one secret in all; 1.")
    ] = None

    @property
    def given(self) -> dict[str, Any]:
        """Those that were given."""
        values = {each.name: getattr(self, each.name) for each in fields(self)}
        return {name: value for name, value in values.items() if value is not None}


@grouped
def gate(
    stored: Annotated[
        list[str],
        typer.Argument(
            metavar="release...",
            help="Releases or audits: JSON that --json wrote, or files of rows that --out wrote.",
        ),
    ],
    policy: Annotated[
        str | None, typer.Option(help="TOML file of thresholds, for all releases or by kind.")
    ] = None,
    junit: Annotated[str | None, typer.Option(help="JUnit XML to write.")] = None,
    sarif: Annotated[str | None, typer.Option(help="SARIF 2.1.0 log to write.")] = None,
    json: Json = None,
    force: Force = False,
    *,
    thresholds: Thresholds,
) -> None:
    """Exit 0 when every release holds every threshold, 1 when one does not, 2 on bad input."""
    given = {"--policy": policy, "--junit": junit, "--sarif": sarif}
    given |= {f"RELEASE {place}": path for place, path in enumerate(dict.fromkeys(stored), 1)}
    output = json_output(json, force, given)
    reports = new_file("--junit", junit, force), new_file("--sarif", sarif, force)
    from tacit._ground.files import write_text_atomic
    from tacit.gate import PolicyFile, check_releases, junit_xml, read_policy, sarif_log
    from tacit.gate.policy import Policy

    Policy(**thresholds.given)
    kept = (PolicyFile() if policy is None else read_policy(policy)).given(thresholds.given)
    if policy is None:
        Policy(**thresholds.given).required()
    verdicts = check_releases(stored, kept)
    if len(verdicts) == 1 and verdicts[0].result is None and junit is sarif is None:
        raise ValueError(verdicts[0].refusal)
    if reports[0] is not None:
        write_text_atomic("--junit", reports[0], junit_xml(verdicts))
    if reports[1] is not None:
        log = json_text.dumps(sarif_log(verdicts), ensure_ascii=False, indent=1, allow_nan=False)
        write_text_atomic("--sarif", reports[1], log + "\n")
    worst = max(verdict.code for verdict in verdicts)
    if len(verdicts) == 1 and verdicts[0].result is not None:
        output.write(verdicts[0].result.to_dict())
    else:
        content = [verdict.to_dict() for verdict in verdicts]
        output.write({"passed": worst == 0, "releases": content})
    for verdict in verdicts:
        for good, sentence in _lines(verdict, several=len(verdicts) > 1):
            output.console.print(Text(sentence, "green" if good else "bold red"))
    raise typer.Exit(worst)


def _lines(verdict: Any, *, several: bool) -> list[tuple[bool, str]]:
    """Return what is printed of a release: one verdict of several, every threshold of one."""
    if several or verdict.result is None:
        return [(verdict.code == 0, verdict.sentence)]
    found = [(check.holds, check.sentence) for check in verdict.result.checks]
    if verdict.result.reproducible:
        found.insert(0, (False, verdict.crossed[0]))
    return [(good, f"{'holds' if good else 'crossed'}: {sentence}") for good, sentence in found]
