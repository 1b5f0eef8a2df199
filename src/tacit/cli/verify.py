"""``tacit verify``: have stored files checked by the checker that shares no code with Tacit."""

from __future__ import annotations

import json as json_text
import math
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from tacit.cli.console import harmless, in_one_line
from tacit.cli.options import Force, Json
from tacit.cli.output import json_output
from tacit.documents import dumps, loads

# Exit statuses of the checker, and bytes of a file that it reads.
HELD, WORSE, REFUSED, MOST_BYTES = 0, 1, 2, 32 << 20
# The fields of an account; what papers publish and what others would need are no claims.
ACCOUNT = {
    "mechanism", "settings", "parameter", "guarantee", "advantage", "success", "prior",
    "infinite_mass", "published", "others", "statement", "proof",
}  # fmt: skip
# What two machines lose otherwise of a number.
ROUNDING = 1e-6


def verify(
    files: Annotated[
        list[str],
        typer.Argument(
            help="Releases and accounts that --json wrote, pages, or files of rows that --out "
            "wrote."
        ),
    ],
    data: Annotated[
        str | None,
        typer.Option(help="The holder's file of data, which the files name by its digest."),
    ] = None,
    json: Json = None,
    force: Force = False,
) -> None:
    """Check what stored files claim: exit status 0 all hold, 1 false or not shown, 2 refused.

    Runs `python -m tacit_check FILE…` in a process of its own, which uses no code of Tacit. The
    rest of each file is then compared with what was checked.
    """
    files = list(dict.fromkeys(files))
    read = {f"FILE {place}": path for place, path in enumerate(files, 1)}
    output = json_output(json, force, {"--data": data, **read})
    from tacit.releases.loading import PAGES

    options = [*([] if json is None else ["--json"]), *([] if data is None else ["--data", data])]
    with tempfile.TemporaryDirectory() as folder:
        # read once: of a pipe nothing is left, and what is checked and what is compared are one
        held = {path: _as_json(path, Path(folder) / f"{k}.json") for k, path in enumerate(files)}
        # a file of a name that starts with a dash is a file
        # a folder of files from elsewhere is no place of modules
        command = [sys.executable, "-P", "-m", "tacit_check", *options, "--", *held.values()]
        done = subprocess.run(command, stdout=subprocess.PIPE)
        if done.returncode not in (HELD, WORSE, REFUSED):
            raise ValueError(f"FILE: the checker ended before it said what it found of {files[0]}")
        other = {path: beside(one, path) for path, one in held.items()}
    named = {one: path for path, one in held.items()}
    told = done.stdout.decode("utf-8", "replace")
    if json is not None:
        # the checker prints one object a line
        lines = [json_text.loads(line) for line in told.splitlines()]
        for line in lines:
            line["file"] = named.get(line["file"], line["file"])
            line["beside"] = other.get(line["file"], "")
            line["holds"] = line["holds"] and not line["beside"]
        output.write(lines)
        output.tell()
    else:
        for one, path in named.items():
            name = in_one_line(path)
            told = told.replace(f"{one}: ", f"{name}: ")
            if other[path]:
                # nobody stops reading at a line that is about the proof alone
                told = told.replace(f"{name}: holds\n", f"{name}: only the proof in it holds\n")
        told += "".join(
            f"{in_one_line(path)}: the JSON in the page was checked, and not what its words say\n"
            for path in files
            if Path(path).suffix.lower() in PAGES
        )
        for path, sentence in other.items():
            if sentence:
                name = in_one_line(path)
                nothing = f"{name}: refused: " in told
                what = "nothing of it" if nothing else "the rest of the file disagrees with what"
                told += f"{name}: {what} was checked: {in_one_line(sentence)}\n"
        # names of files and of what is in them are told, and not obeyed by the terminal
        typer.echo(harmless(told), nl=False)
    raise typer.Exit(max(done.returncode, WORSE if any(other.values()) else HELD))


def _as_json(path: str, place: Path) -> str:
    """Write the JSON that a page or a file of rows holds, or the bytes of any other file.

    Returns:
        Where it stands, or the path of what cannot be read: the checker says so.

    Raises:
        ValueError: a page or a file of rows holds no release, or rows that it does not describe.
    """
    from tacit.releases.loading import PAGES, read_release
    from tacit.releases.stores import is_store

    given = Path(path)
    if given.suffix.lower() in PAGES or is_store(given):
        place.write_text(dumps(read_release(path)), encoding="utf-8")
        return str(place)
    try:
        with given.open("rb") as stream:
            # a byte more than the checker reads, so that it refuses what is longer
            content = stream.read(MOST_BYTES + 1)
    except (OSError, ValueError):
        return path
    place.write_bytes(content)
    return str(place)


def beside(path: str, given: str = "") -> str:
    """Return how a file differs from its proof, in what it says beside it; nothing where not.

    Args:
        path: of its JSON.
        given: of the file itself, whose rows are held against what it says where it has some.
    """
    from tacit.releases.stores import is_store

    try:
        content = loads(Path(path).read_bytes(), name="FILE", source="it")
    except OSError:
        # refused by the checker, too
        return ""
    except ValueError as error:
        return str(error)
    if not isinstance(content, Mapping) or "proof" not in content:
        return ""
    # by its format first: a release with another answer in it is a release
    if content.get("format") == "tacit.release":
        from tacit.releases import load

        try:
            load(given if is_store(Path(given)) else content)
        except ValueError as error:
            return str(error)
        return ""
    if "guarantee" in content:
        return _of_account(content)
    return "" if set(content) == {"proof"} else "it is neither a release nor an account of Tacit"


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
        pairs = _account_of(content, stated)
        other = next((name for name, held, made in pairs if not _same(held, made)), "")
        if strange := set(content) - ACCOUNT:
            return f"{len(strange)} of its fields are those of no account"
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        return f"no account of Tacit ({type(error).__name__})"
    return f"its settings give another {other!r}" if other else ""


def _same(held: Any, made: Any) -> bool:
    if isinstance(made, float) and isinstance(held, float):
        return math.isclose(held, made, rel_tol=ROUNDING, abs_tol=ROUNDING**2)
    return bool(held == made)


def _account_of(content: Mapping[str, Any], stated: Any) -> Iterator[tuple[str, Any, Any]]:
    """Yield what an account says beside what its settings make of it; what takes time last."""
    from dataclasses import fields

    from tacit.cli.account.mechanisms import MECHANISMS, Accounted
    from tacit.releases.proof import relation

    kind, asked = MECHANISMS[content["mechanism"]], dict(content["settings"])
    names = {field.name for field in fields(kind)}  # type: ignore[arg-type]
    asked["one_order"] = not asked.get("both_orders", True)
    mechanism = kind(**{name: one for name, one in asked.items() if name in names})
    parameter = content["parameter"]["value"]
    profile = mechanism.profile(parameter)
    found = Accounted(mechanism, parameter, profile, stated.epsilon, stated.delta)
    proof, told, given = content["proof"], content["guarantee"], [*profile.assumptions]
    # before anything is composed: it is what the checker has composed
    yield "mechanism", proof["mechanism"], profile.mechanism
    yield "adjacency", proof["adjacency"], relation(profile.adjacency)
    yield "given", proof.get("given", []), given
    yield "parameter", content["parameter"]["name"], mechanism.parameter
    yield "settings", content["settings"], mechanism.settings()
    # what is called computed may always be
    evidence = told["evidence"] if told["evidence"] == "numerical" else profile.evidence
    words = [told[name] for name in ("assumptions", "adjacency", "source", "evidence")]
    yield "guarantee", words, [given, profile.adjacency, profile.source, evidence]
    yield "statement", content["statement"], mechanism.statement(found)
    yield "advantage", content["advantage"], profile.advantage()
    yield "infinite_mass", content["infinite_mass"], profile.infinite_mass
