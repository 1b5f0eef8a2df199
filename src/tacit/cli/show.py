"""``tacit show``: any stored release in ten lines."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer
from rich.text import Text

from tacit.cli.console import line, tell_title
from tacit.cli.options import Force, Json
from tacit.cli.output import JsonOutput, json_output

if TYPE_CHECKING:
    from tacit.releases.attack_file import AttackFile


def show(
    release: Annotated[
        str,
        typer.Argument(
            help="A release or an attack, as --json or --out wrote it: JSON, or a file of rows."
        ),
    ],
    json: Json = None,
    force: Force = False,
) -> None:
    """Print any stored release in ten lines: what it is, what it guarantees, what attacks got.

    For a file of an attack, print what the attack reached and on which release. A file whose parts
    contradict each other is refused, as by the gate.
    """
    from tacit.pages.words import lines, verdict
    from tacit.releases.attack_file import AttackFile, is_attack
    from tacit.releases.loading import read_checked, read_release
    from tacit.releases.verification import REMOVED, verify

    output = json_output(json, force, {"RELEASE": release})
    content = read_release(release)
    if is_attack(content):
        _tell_attack(output, AttackFile.from_dict(content))
        return
    found = read_checked(release, content=content)
    console = output.console
    tell_title(console, verdict(found.release))
    for label, text in lines(found.release):
        line(console, label, text)
    checked = verify(found.release).sentence
    line(console, "checked", f"{checked}; {REMOVED}" if found.removed else checked)
    if found.unchecked:
        line(console, "claimed", f"not checked: {found.unchecked}")
    output.write(found.release.to_dict())
    output.tell()


def _tell_attack(output: JsonOutput, found: AttackFile) -> None:
    """Print what an attack reached, and how whoever has its release finds it."""
    attack, console = found.attack, output.console
    reached, blind = attack.success, attack.prior
    # what a file says is text and no markup
    console.print(
        Text(
            f"{attack.name}: right about {attack.task} {reached.value:.1%} of the time "
            f"[{reached.low:.1%}, {reached.high:.1%}]."
        )
    )
    line(console, "trials", f"{attack.trials:,}")
    if blind is not None:
        line(console, "blind", f"{blind:.2%} without the release")
    for name, value in found.measured.items():
        line(console, name, f"{value:.4g}")
    line(console, "attacked", f"{found.about} of SHA-256 {found.digest[:12]}…")
    line(console, "note", "an attack is evidence, never a guarantee; a better one may exist")
    output.write(found.to_dict())
    output.tell()
