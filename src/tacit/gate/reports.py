"""Verdicts in the formats that continuous integration reads: JUnit XML and SARIF 2.1.0."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from urllib.parse import quote
from xml.etree import ElementTree

from tacit import __version__
from tacit.gate.several import GateVerdict

SARIF_SCHEMA = "https://json.schemastore.org/sarif-2.1.0.json"
RULES = {
    "verified": "A checker that shares no code with what made the release proves every claim.",
    "max_factor": "The factor on any attacker's chance, for every prior, is within its limit.",
    "max_nats": "The maximal leakage in nats is within its limit.",
    "max_success": "The bound on an attacker's success under its law is within its limit.",
    "max_epsilon": "ε of differential privacy at the δ asked for is within its limit.",
    "max_information": "The bound on the information in nats is within its limit.",
    "max_attack": "The strongest attack that was run stays within its limit.",
    "max_inversion": "The inverters that were run read no larger share of tokens back.",
    "min_agreement": "The release keeps the agreement asked for.",
    "max_kl": "The release changes the prediction within its limit.",
    "min_confidence": "What rests on samples is as sure as asked.",
    "contradiction": "No stored attack does better than a stored guarantee allows.",
    "reproducible": "The randomness does not come from a seed.",
    "refused": "The file is a release that agrees with itself.",
}
# what XML 1.0 cannot hold
UNWRITABLE = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def junit_xml(verdicts: Sequence[GateVerdict]) -> str:
    """Return verdicts as JUnit XML: a suite per release, a case per threshold.

    Args:
        verdicts: what ``check_releases`` returned.

    Returns:
        The document, with its declaration.

    Example:
        >>> found = GateVerdict(release="a.json", result=None, refusal="no such file")
        >>> "<error" in junit_xml([found])
        True
    """
    root = ElementTree.Element("testsuites", {"name": "tacit gate"})
    totals = {"tests": 0, "failures": 0, "errors": 0}
    for verdict in verdicts:
        cases = _cases(verdict)
        counts = {
            "tests": len(cases),
            "failures": sum(kind == "failure" for _, kind, _ in cases),
            "errors": sum(kind == "error" for _, kind, _ in cases),
        }
        totals = {name: totals[name] + count for name, count in counts.items()}
        suite = ElementTree.SubElement(
            root,
            "testsuite",
            {"name": _text(verdict.release), **_counted(counts), "skipped": "0", "time": "0"},
        )
        for name, kind, sentence in cases:
            case = ElementTree.SubElement(
                suite, "testcase", {"classname": _text(verdict.release), "name": name, "time": "0"}
            )
            if kind:
                child = ElementTree.SubElement(
                    case, kind, {"message": _text(sentence), "type": name}
                )
                child.text = _text(sentence)
            else:
                ElementTree.SubElement(case, "system-out").text = _text(sentence)
    root.attrib.update(_counted(totals))
    ElementTree.indent(root)
    body = ElementTree.tostring(root, encoding="unicode")
    return f'<?xml version="1.0" encoding="UTF-8"?>\n{body}\n'


def sarif_log(verdicts: Sequence[GateVerdict]) -> dict[str, Any]:
    """Return what is crossed or refused as a SARIF 2.1.0 log.

    Args:
        verdicts: what ``check_releases`` returned.

    Returns:
        The log as a JSON-able dictionary: one run, one result for each finding, at the first line
        of the release's file.

    Example:
        >>> found = GateVerdict(release="a.json", result=None, refusal="no such file")
        >>> sarif_log([found])["runs"][0]["results"][0]["ruleId"]
        'refused'
    """
    names = list(RULES)
    results = [
        {
            "ruleId": name,
            "ruleIndex": names.index(name),
            "level": "error",
            "message": {"text": sentence},
            "locations": [
                {
                    "physicalLocation": {
                        "artifactLocation": {"uri": _uri(verdict.release)},
                        "region": {"startLine": 1},
                    }
                }
            ],
        }
        for verdict in verdicts
        for name, kind, sentence in _cases(verdict)
        if kind
    ]
    rules = [{"id": name, "shortDescription": {"text": text}} for name, text in RULES.items()]
    driver = {"name": "tacit", "version": __version__, "rules": rules}
    return {
        "$schema": SARIF_SCHEMA,
        "version": "2.1.0",
        "runs": [
            {"tool": {"driver": driver}, "columnKind": "unicodeCodePoints", "results": results}
        ],
    }


def _cases(verdict: GateVerdict) -> list[tuple[str, str, str]]:
    """Return (threshold, "" or "failure" or "error", sentence) for all that was judged."""
    if verdict.result is None:
        return [("refused", "error", verdict.refusal)]
    found = [
        (check.name, "" if check.holds else "failure", check.sentence)
        for check in verdict.result.checks
    ]
    if verdict.result.reproducible:
        found.insert(0, ("reproducible", "failure", verdict.crossed[0]))
    return found


def _counted(counts: dict[str, int]) -> dict[str, str]:
    return {name: str(count) for name, count in counts.items()}


def _text(text: str) -> str:
    return UNWRITABLE.sub("\ufffd", text)


def _uri(path: str) -> str:
    place = Path(path)
    return place.as_uri() if place.is_absolute() else quote(place.as_posix())
