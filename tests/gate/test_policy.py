"""The gate of many releases: factors, T releases, confidence, policy files, JUnit and SARIF."""

from __future__ import annotations

import copy
import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest

pytest.importorskip("torch")

from tacit import Draw, Effort, __version__, privatize
from tacit.cli import run
from tacit.covariance import covariance_from_dict
from tacit.gate import Policy, check_release, check_releases, junit_xml, read_policy, sarif_log
from tacit.gate.policy import THRESHOLDS
from tacit.gate.reports import RULES
from tests.audits import found

LEVELS = {"none", "note", "warning", "error"}


@pytest.fixture(scope="module")
def audit(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("audit") / "audit.json"
    path.write_text(json.dumps(found().to_dict(), allow_nan=False), encoding="utf-8")
    return path


@pytest.fixture(scope="module")
def unsure() -> dict[str, Any]:
    """A release whose guarantee rests on samples, at the confidence asked for."""
    rows = np.concatenate([np.random.default_rng(8).normal(size=(60, 2)), [[90.0, 0.0]]])
    release = privatize(
        "mean", rows, Draw(nats=0.6, confidence=0.5), Effort(simulations=200, trials=0, workers=1)
    )
    return release.to_dict()


@pytest.fixture(scope="module")
def statistic(tmp_path_factory: pytest.TempPathFactory) -> Path:
    pool = np.random.default_rng(2).normal(size=(41, 2))
    release = privatize(
        "mean", pool, Draw(success=0.6), Effort(simulations=100, trials=200, workers=1)
    )
    path = tmp_path_factory.mktemp("statistic") / "mean.json"
    path.write_text(json.dumps(release.to_dict(), allow_nan=False), encoding="utf-8")
    return path


def test_the_factor_is_judged_for_every_prior_and_multiplies(audit: Path) -> None:
    assert check_release(audit, Policy(max_factor=3)).passed
    assert not check_release(audit, Policy(max_factor=math.nextafter(3, 0))).passed
    assert check_release(audit, Policy(max_nats=1.0987)).passed
    assert not check_release(audit, Policy(max_nats=math.log(3))).passed
    # 0 nats is a limit that every release crosses, and not one that was left out
    assert not check_release(audit, Policy(max_factor=3, max_nats=0)).passed
    twice = check_release(audit, Policy(max_factor=8, releases=2))
    assert not twice.passed
    assert twice.checks[0].found == 9.0
    assert "2 releases about a secret" in twice.checks[0].sentence
    assert check_release(audit, Policy(max_factor=9, max_nats=2.2, releases=2)).passed
    many = check_release(audit, Policy(max_factor=1e300, releases=1000))
    assert not many.passed
    assert (
        json.loads(json.dumps(many.to_dict(), allow_nan=False))["checks"][0]["found"] == "infinity"
    )


def test_a_percentage_names_its_n_and_its_law(audit: Path) -> None:
    (check,) = check_release(audit, Policy(max_success=0.06)).checks
    assert "which of 60 candidates it is" in check.sentence
    assert "all equally likely" in check.sentence
    assert "one release about a secret; a theorem" in check.sentence
    (other,) = check_release(audit, Policy(max_success=0.06, candidates=10)).checks
    assert other.found == pytest.approx(0.3)
    assert not other.holds
    assert "which of 10 secrets it is, all equally likely" in other.sentence
    (twice,) = check_release(audit, Policy(max_success=0.14, releases=2)).checks
    assert twice.found == pytest.approx(9 / 60)
    (nats,) = check_release(audit, Policy(max_information=2.0, releases=2)).checks
    assert nats.found is not None
    assert nats.found >= 2 * math.log(3)
    attacked = check_release(audit, Policy(max_attack=0.5, releases=2))
    assert "no attack was run on 2 releases" in attacked.checks[0].sentence


def test_what_does_not_multiply_passes_nothing_of_several_releases(statistic: Path) -> None:
    for limits in ({"max_success": 1.0}, {"max_information": 9.0}, {"max_factor": 9.0}):
        result = check_release(statistic, Policy(**limits, releases=2))
        assert not result.passed
        assert "nothing in the release is proved of 2 releases" in result.checks[0].sentence
    assert not check_release(statistic, Policy(max_factor=1e9)).passed
    assert not check_release(statistic, Policy(max_success=1.0, candidates=9)).passed


def test_the_worst_of_what_was_measured_is_judged_at_its_bad_end(statistic: Path) -> None:
    content = json.loads(statistic.read_text(encoding="utf-8"))
    good, bad = (
        {"name": "agreement", "unit": "share", "better": better,
         "measured": {"value": share, "low": share, "high": share, "confidence": None}}
        for better, share in (("higher", 0.95), ("lower", 0.2))
    )  # fmt: skip
    for use, passed in (([good], True), ([bad], False), ([good, bad], False)):
        # a file may call a low agreement good
        result = check_release({**content, "use": use}, Policy(min_agreement=0.9))
        assert result.passed is passed


def test_what_is_unsure_does_not_pass(unsure: dict[str, Any]) -> None:
    if unsure["guarantees"][1]["confidence"] is None:
        pytest.fail("the release was to rest on samples")
    result = check_release(unsure, Policy(max_success=0.99))
    assert not result.passed
    assert [check.name for check in result.checks] == ["max_success", "min_confidence"]
    assert "confidence 50%" in result.checks[0].sentence
    assert check_release(unsure, Policy(max_success=0.99, min_confidence=0.5)).passed
    assert not check_release(unsure, Policy(max_success=0.99, min_confidence=0.51)).passed


def test_details_of_a_statistic_are_computed_again(statistic: Path) -> None:
    whole = json.loads(statistic.read_text())
    limits = Policy(max_success=0.99)
    assert check_release(whole, Policy(max_success=0.6)).passed

    def less_noise(content: dict[str, Any]) -> None:
        covariance = content["details"]["design"]["covariance"]
        for name, value in covariance.items():
            if isinstance(value, list):
                covariance[name] = (np.asarray(value) * 1e-3).tolist()

    def less_noise_everywhere(content: dict[str, Any]) -> None:
        seen, numbers = content["details"], content["numbers"]
        before = np.square(numbers["errors"]).sum()
        less_noise(content)
        covariance = covariance_from_dict(seen["design"]["covariance"])
        numbers["errors"] = np.sqrt(covariance.diagonal()).tolist()
        seen["noise_power"] = float(np.square(numbers["errors"]).sum())
        principal = np.asarray(seen["principal_noise_variance"])
        seen["principal_noise_variance"] = (principal * seen["noise_power"] / before).tolist()

    def bare(content: dict[str, Any]) -> None:
        content["guarantees"][1]["assumptions"] = []

    def seeded(content: dict[str, Any]) -> None:
        content["seed"] = 3

    def cheaper(content: dict[str, Any]) -> None:
        content["guarantees"][1]["nats"] *= 0.5

    changes = [
        less_noise, less_noise_everywhere, bare, seeded, cheaper,
        lambda content: content["numbers"].update(values=[0.0]),
        lambda content: content["details"]["design"].update(information=9.0),
    ]  # fmt: skip
    for change in changes:
        content = copy.deepcopy(whole)
        change(content)
        with pytest.raises(ValueError, match=r"contradicts itself|seed|numbers"):
            check_release(content, limits)


def test_an_attack_above_the_bound_or_the_factor_does_not_pass() -> None:
    release, limits = found(), Policy(max_factor=3)
    (attack,) = release.attacks
    for task in (attack.task, "another game"):
        better = replace(
            attack, task=task, success=replace(attack.success, value=0.5, low=0.4, high=0.6)
        )
        result = check_release(replace(release, attacks=(better,)), limits)
        assert not result.passed
        assert result.checks[-1].name == "contradiction"
    below = replace(
        attack, task="another game", success=replace(attack.success, value=0.045, low=0.04)
    )
    assert check_release(replace(release, attacks=(below,)), limits).passed


POLICY = """
max_attack = 0.9

[statistic-draw]
max_success = 0.6

[hidden-audit]
max_factor = 3
min_agreement = 0.6
"""


def test_one_policy_judges_each_by_its_kind(
    audit: Path, statistic: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    policy = tmp_path / "policy.toml"
    policy.write_text(POLICY, encoding="utf-8")
    asked = ["gate", "--policy", str(policy), str(audit), str(statistic)]
    assert run(asked) == 0
    printed = capsys.readouterr().out.splitlines()
    assert [line.split(":")[0] for line in printed if line[:7] in ("passed:", "crossed")] == [
        "passed",
        "passed",
    ]
    assert run([*asked, "--max-kl", "0.1"]) == 2, "a statistic has no KL to judge"
    policy.write_text(POLICY.replace("0.6\n\n", "0.55\n\n"), encoding="utf-8")
    capsys.readouterr()
    assert run(asked) == 1
    assert "crossed: " in capsys.readouterr().out
    lost = str(tmp_path / "lost.json")
    assert run([*asked, lost, "--json", "-"]) == 2
    content = json.loads(capsys.readouterr().out)
    assert [entry["code"] for entry in content["releases"]] == [0, 1, 2]
    assert content["passed"] is False
    assert run([*asked, "--max-factor", "9"]) == 2, "given twice"
    assert "--max-factor: expected it in the policy or beside it" in capsys.readouterr().err
    # what the policy says would win unsaid
    policy.write_text("max_success = 0.7\nmin_confidence = 0.5\n", encoding="utf-8")
    assert run([*asked, "--min-confidence", "0.99"]) == 2, "given twice, once with its default"
    assert "--min-confidence: expected it in the policy" in capsys.readouterr().err
    policy.write_text("max_success = 0.7\n", encoding="utf-8")
    assert run([*asked, "--min-confidence", "0.9"]) == 2, "looser than what the policy leaves out"
    assert "--min-confidence: expected at least 0.99" in capsys.readouterr().err
    assert run([*asked, "--min-confidence", "0.999"]) == 0


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "expected thresholds in"),
        ("[statistic-draw]", "expected thresholds in"),
        ("max_factor = ", "is not TOML"),
        ("max_leak = 3", "expected one of verified, max_factor"),
        ("[statistic-draw]\nmax_leak = 3", "expected one of verified, max_factor"),
        ("[statistic]\nmax_success = 0.6", "policy: expected one of"),
        ("max_factor = 0.5", "max_factor: expected a number in"),
        ("max_factor = inf", "max_factor: expected a number in"),
        ("max_success = 2", "max_success: expected a number in"),
        ("max_success = '5%'", "max_success: expected a number"),
        ("min_confidence = 1", "min_confidence"),
        ("max_nats = nan", "max_nats: expected a number"),
        ("max_success = 0.1\ncandidates = 1", r"candidates: expected an integer in \[2"),
        ("max_factor = 9\ncandidates = 5", "candidates: expected max_success beside it"),
        ("releases = 0\nmax_factor = 9", r"releases: expected an integer in \[1"),
    ],
)
def test_a_policy_that_says_nothing_right_is_refused(
    text: str, message: str, tmp_path: Path
) -> None:
    path = tmp_path / "policy.toml"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(ValueError, match=message):
        read_policy(path)


def test_a_kind_without_a_threshold_is_refused(audit: Path, tmp_path: Path) -> None:
    path = tmp_path / "policy.toml"
    path.write_text("[statistic-draw]\nmax_success = 0.6\n", encoding="utf-8")
    (verdict,) = check_releases([str(audit)], read_policy(path))
    assert verdict.code == 2
    assert "a release of kind 'hidden-audit'" in verdict.refusal
    with pytest.raises(ValueError, match="at least one threshold"):
        Policy(min_confidence=0.9).required()


def test_junit_and_sarif_say_what_the_verdicts_say(
    audit: Path, statistic: Path, tmp_path: Path
) -> None:
    junit, sarif, odd = tmp_path / "gate.xml", tmp_path / "gate.sarif", tmp_path / "b\x01 & <.json"
    odd.write_text("{}", encoding="utf-8")
    asked = ["gate", str(audit), str(statistic), str(odd), "--max-attack", "0.5"]
    assert run([*asked, "--junit", str(junit), "--sarif", str(sarif)]) == 2
    assert run([*asked, "--junit", str(junit)]) == 2, "not replaced unless forced"
    root = ElementTree.fromstring(junit.read_bytes())
    assert root.tag == "testsuites"
    suites = list(root)
    assert [suite.tag for suite in suites] == ["testsuite"] * 3
    check_junit(root)
    for holder in (root, *suites):
        cases = list(holder.iter("testcase"))
        assert int(holder.attrib["tests"]) == len(cases)
        for name, tag in (("failures", "failure"), ("errors", "error")):
            assert int(holder.attrib[name]) == sum(len(case.findall(tag)) for case in cases)
    assert [int(suite.attrib["errors"]) for suite in suites] == [0, 0, 1]
    check_sarif(json.loads(sarif.read_text(encoding="utf-8")))
    log = json.loads(sarif.read_text(encoding="utf-8"))
    found_at = [
        result["locations"][0]["physicalLocation"]["artifactLocation"]["uri"]
        for result in log["runs"][0]["results"]
    ]
    assert found_at[-1] == odd.as_uri()
    relative = check_releases(["a b.json"], read_policy(_policy(tmp_path)))
    assert '"uri": "a%20b.json"' in json.dumps(sarif_log(relative))
    assert set(THRESHOLDS) < set(RULES)


# attributes that the schema of Jenkins allows, those it requires first
JUNIT = {
    "testsuites": ((), ("name", "time", "tests", "failures", "errors", "disabled")),
    "testsuite": (
        ("name", "tests"),
        ("failures", "errors", "time", "disabled", "skipped", "timestamp", "hostname", "package"),
    ),
    "testcase": (("name", "classname"), ("assertions", "time", "status")),
    "failure": ((), ("type", "message")),
    "error": ((), ("type", "message")),
    "system-out": ((), ()),
}
JUNIT_INSIDE = {
    "testsuites": {"testsuite"},
    "testsuite": {"testcase"},
    "testcase": {"failure", "error", "system-out"},
}


def check_junit(root: ElementTree.Element) -> None:
    """What the schema of Jenkins, jenkins-junit.xsd, requires of what is written here."""
    for element in root.iter():
        required, allowed = JUNIT[element.tag]
        assert set(required) <= set(element.attrib) <= {*required, *allowed}
        assert {child.tag for child in element} <= JUNIT_INSIDE.get(element.tag, set())
        for name in {"tests", "failures", "errors", "skipped"} & set(element.attrib):
            assert int(element.attrib[name]) >= 0


# the schema allows no property that it does not name
SARIF = {
    "log": {"$schema", "version", "runs"},
    "run": {"tool", "columnKind", "results"},
    "tool": {"driver"},
    "driver": {"name", "version", "rules"},
    "rule": {"id", "shortDescription"},
    "result": {"ruleId", "ruleIndex", "level", "message", "locations"},
    "location": {"physicalLocation"},
    "physicalLocation": {"artifactLocation", "region"},
}


def check_sarif(log: dict[str, Any]) -> None:
    """What SARIF 2.1.0 requires of what is written here (sections 3.13, 3.14, 3.19, 3.27)."""
    assert set(log) == SARIF["log"]
    assert log["version"] == "2.1.0"
    assert log["$schema"].endswith("sarif-2.1.0.json")
    (run_,) = log["runs"]
    assert set(run_) == SARIF["run"]
    assert run_["columnKind"] in ("utf16CodeUnits", "unicodeCodePoints")
    assert (set(run_["tool"]), set(run_["tool"]["driver"])) == (SARIF["tool"], SARIF["driver"])
    assert all(set(rule) == SARIF["rule"] for rule in run_["tool"]["driver"]["rules"])
    driver = run_["tool"]["driver"]
    assert driver["name"] == "tacit"
    assert driver["version"] == __version__
    rules = [rule["id"] for rule in driver["rules"]]
    assert len(rules) == len(set(rules))
    assert all(rule["shortDescription"]["text"] for rule in driver["rules"])
    assert run_["results"]
    for result in run_["results"]:
        assert set(result) == SARIF["result"]
        assert all(set(each) == SARIF["location"] for each in result["locations"])
        assert rules[result["ruleIndex"]] == result["ruleId"]
        assert result["level"] in LEVELS
        assert result["message"]["text"]
        place = result["locations"][0]["physicalLocation"]
        assert set(place) == SARIF["physicalLocation"]
        assert (set(place["artifactLocation"]), set(place["region"])) == ({"uri"}, {"startLine"})
        assert place["region"]["startLine"] >= 1
        assert " " not in place["artifactLocation"]["uri"]


def test_junit_holds_what_xml_cannot(tmp_path: Path) -> None:
    (verdict,) = check_releases(["\x00\ud800.json"], read_policy(_policy(tmp_path)))
    assert verdict.code == 2
    ElementTree.fromstring(junit_xml([verdict]).encode())


def _policy(folder: Path) -> Path:
    path = folder / "some.toml"
    path.write_text("max_factor = 9\n", encoding="utf-8")
    return path
