"""``tacit gate``: an exit code for continuous integration."""

from __future__ import annotations

import json as json_text
from typing import Annotated, Any

import typer
from rich.text import Text

from tacit._ground.values import field_kinds
from tacit.cli.console import in_one_line
from tacit.cli.options import Force, Json, flag_of, grouped
from tacit.cli.output import json_output, new_file, was_given
from tacit.gate.policy import THRESHOLDS, Policy


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
    thresholds: Policy,
) -> None:
    """Exit 0 when every release holds every threshold, 1 when one does not, 2 on bad input."""
    given = {"--policy": policy, "--junit": junit, "--sarif": sarif}
    given |= {f"RELEASE {place}": path for place, path in enumerate(dict.fromkeys(stored), 1)}
    output = json_output(json, force, given)
    reports = new_file("--junit", junit, force), new_file("--sarif", sarif, force)
    from tacit._ground.files import write_text_atomic
    from tacit.gate import PolicyFile, check_releases, junit_xml, read_policy, sarif_log

    # what stands on the line, with its default even: the policy would win unsaid
    kinds = field_kinds(Policy)
    flags = {name: flag_of(name, notes) for name, (_, notes) in kinds.items()}
    given_here = {
        name: getattr(thresholds, name) for name, flag in flags.items() if was_given(flag)
    }
    kept = (PolicyFile() if policy is None else read_policy(policy)).given(given_here)
    if policy is None and not given_here:
        # the flags, not the names that a policy's file has
        listed = ", ".join(flags[name] for name in THRESHOLDS)
        raise ValueError(f"THRESHOLDS: expected --policy or at least one of {listed}, got none")
    if policy is None:
        thresholds.required()
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
            output.console.print(Text(in_one_line(sentence), "green" if good else "bold red"))
    raise typer.Exit(worst)


def _lines(verdict: Any, *, several: bool) -> list[tuple[bool, str]]:
    """Return what is printed of a release: one verdict of several, every threshold of one."""
    if several or verdict.result is None:
        return [(verdict.code == 0, verdict.sentence)]
    found = [(check.holds, check.sentence) for check in verdict.result.checks]
    if verdict.result.reproducible:
        found.insert(0, (False, verdict.crossed[0]))
    return [(good, f"{'holds' if good else 'crossed'}: {sentence}") for good, sentence in found]
