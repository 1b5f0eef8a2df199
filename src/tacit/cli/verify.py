"""``tacit verify``: have stored files checked by the checker that shares no code with Tacit."""

from __future__ import annotations

import json as json_text
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from tacit.cli.options import Force, Json
from tacit.cli.output import json_output

# Exit statuses of the checker.
HELD, WORSE = 0, 1


def verify(
    files: Annotated[
        list[str], typer.Argument(help="Releases and accounts, as --json wrote them.")
    ],
    data: Annotated[
        str | None, typer.Option(help="The holder's file of data that digests name.")
    ] = None,
    json: Json = None,
    force: Force = False,
) -> None:
    """Check what stored files claim: exit status 0 all hold, 1 false or not shown, 2 refused.

    The same as `python -m tacit_check FILE…`, in a process of its own, of which nothing is Tacit's.
    What else a file says is then held against what was checked.
    """
    read = {f"FILE {place}": path for place, path in enumerate(dict.fromkeys(files), 1)}
    output = json_output(json, force, {"--data": data, **read})
    options = [*([] if json is None else ["--json"]), *([] if data is None else ["--data", data])]
    # a file of a name that starts with a dash is a file
    command = [sys.executable, "-m", "tacit_check", *options, "--", *files]
    done = subprocess.run(command, stdout=None if json is None else subprocess.PIPE)
    other = {path: beside(path) for path in files} if done.returncode in (HELD, WORSE) else {}
    if json is not None:
        # the checker prints one object a line
        lines = [json_text.loads(line) for line in (done.stdout or b"").splitlines()]
        output.write([{**line, "beside": other.get(line["file"], "")} for line in lines])
        output.tell()
    for path, sentence in other.items():
        if sentence and json is None:
            typer.echo(f"{path}: what else it says is not what was checked: {sentence}")
    raise typer.Exit(max(done.returncode, WORSE if any(other.values()) else HELD))


def beside(path: str) -> str:
    """Return how a file differs from its proof, in what it says beside it; nothing where not."""
    content = json_text.loads(Path(path).read_bytes())
    # by its format first: a release with another answer in it is a release
    if content.get("format") == "tacit.release":
        from tacit.releases import load

        try:
            load(content)
        except ValueError as error:
            return str(error)
        return ""
    return _of_account(content) if "guarantee" in content else ""


def _of_account(content: Mapping[str, Any]) -> str:
    """Compare an account with its proof: claims first, then what its settings make of it."""
    from tacit._ground.proof import claim_up
    from tacit.guarantees import guarantee_from_dict
    from tacit.releases.proof import claims_of

    try:
        stated = guarantee_from_dict(content["guarantee"])
        success = {"kind": "success", "prior": "0.5"}
        success["success"] = claim_up(float(content["success"]))
        proof = content["proof"]
        if any(one not in proof["claims"] for one in claims_of([stated])):
            return "'guarantee' is another than the claims"
        if success not in proof["claims"] or content["prior"] != 0.5:
            return "'success' is another than the claims"
        told = _account_of(content, stated)
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        return f"no account of Tacit ({type(error).__name__})"
    of_proof = told.pop("proof")
    other = [name for name, one in told.items() if content.get(name) != one]
    other += [name for name, one in of_proof.items() if proof.get(name) != one]
    return f"its settings give another {other[0]!r}" if other else ""


def _account_of(content: Mapping[str, Any], stated: Any) -> dict[str, Any]:
    """Return what the settings of an account make of all that it says."""
    from dataclasses import fields

    from tacit.cli.account.mechanisms import MECHANISMS, Accounted
    from tacit.releases.proof import relation

    kind, given = MECHANISMS[content["mechanism"]], dict(content["settings"])
    names = {field.name for field in fields(kind)}  # type: ignore[arg-type]
    given["one_order"] = not given.get("both_orders", True)
    mechanism = kind(**{name: one for name, one in given.items() if name in names})
    parameter = content["parameter"]["value"]
    profile = mechanism.profile(parameter)
    found = Accounted(mechanism, parameter, profile, stated.epsilon, stated.delta)
    words = {"assumptions": [*profile.assumptions], "adjacency": profile.adjacency}
    return {
        "parameter": {**content["parameter"], "name": mechanism.parameter},
        "settings": mechanism.settings(),
        "guarantee": {**content["guarantee"], **words},
        "advantage": profile.advantage(),
        "infinite_mass": profile.infinite_mass,
        "statement": mechanism.statement(found),
        "proof": {
            "mechanism": profile.mechanism,
            "adjacency": relation(profile.adjacency),
            "given": [*profile.assumptions],
        },
    }
