"""The gate on audits of hidden states: thresholds at the bad end of every interval."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch")

from tacit import Draw, Effort, privatize
from tacit._ground.numbers import log_up
from tacit.cli import run
from tacit.gate import Policy, check_release
from tacit.hidden_states import Wish
from tests.audits import found


def test_thresholds_at_the_bad_end_of_every_interval_hold_and_beyond_do_not() -> None:
    audit = found()
    point = audit.details.points[0]
    assert point.bound is not None
    most = Policy(max_success=point.bound, max_attack=0.05, min_agreement=0.6, max_kl=0.6)
    assert check_release(audit, most).passed
    for limits in (
        {"max_success": 0.049},
        {"max_attack": 0.049},
        {"min_agreement": 0.61},
        {"max_kl": 0.59},
        {"max_information": 1.0},
    ):
        result = check_release(audit, Policy(**limits))
        assert not result.passed
        assert [check.name for check in result.checks] == list(limits)


def test_what_can_be_counted_again_is() -> None:
    def edited(change: Any) -> dict[str, Any]:
        content = json.loads(json.dumps(found().to_dict(), allow_nan=False))
        change(content)
        return content

    def everywhere(content: dict[str, Any], place: int, **values: object) -> None:
        content["guarantees"][place].update(values)

    assert check_release(edited(lambda content: None), Policy(max_factor=3)).passed
    for change in (
        lambda content: content["details"]["points"][0].update(bound=0.001),
        lambda content: content["details"]["points"][0].update(codewords=2),
        lambda content: content["details"]["points"][0].update(rank=2),
        lambda content: content["details"]["points"][0].update(information=0.1),
        lambda content: everywhere(content, 0, factor=2.0, nats=log_up(2)),
        lambda content: everywhere(content, 0, releases=2),
        lambda content: everywhere(content, 0, assumptions=[]),
        lambda content: everywhere(content, 1, success=0.04),
        lambda content: everywhere(content, 1, law="that it is a prompt"),
        lambda content: everywhere(content, 1, assumptions=[]),
        lambda content: everywhere(content, 2, nats=0.5),
        lambda content: content["details"]["wish"].update(releases=2),
        lambda content: content.update(title="another layer"),
        lambda content: content.update(attacks=[]),
        lambda content: content.update(use=[]),
        lambda content: content.update(withheld=""),
        lambda content: content["details"]["wish"].update(max_attack=0.01),
    ):
        with pytest.raises(ValueError, match="contradicts itself"):
            check_release(edited(change), Policy(max_success=0.9))
    wrong = edited(lambda content: everywhere(content, 0, factor=1.5))
    with pytest.raises(ValueError, match="expected the logarithm"):
        check_release(wrong, Policy(max_factor=9))


def test_an_audit_that_recommends_nothing_never_passes() -> None:
    result = check_release(found(Wish(max_attack=0.01)), Policy(max_attack=1.0))
    assert not result.passed
    assert result.checks[0].found is None


def test_a_release_without_a_bound_has_no_success_to_compare() -> None:
    audit = found()
    bare = replace(audit, guarantees=())
    assert not check_release(bare, Policy(max_success=1.0)).passed


def test_the_command_says_it_by_its_exit_code(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "audit.json"
    path.write_text(json.dumps(found().to_dict(), allow_nan=False), encoding="utf-8")
    assert run(["gate", str(path), "--max-attack", "0.05", "--max-kl", "0.6"]) == 0
    assert run(["gate", str(path), "--min-agreement", "0.9"]) == 1
    assert "0.6000 < 0.9" in capsys.readouterr().out
    assert run(["gate", str(path), "--max-kl", "nan"]) == 2
    assert run(["gate", str(path)]) == 2


def test_agreement_is_refused_where_it_was_not_measured() -> None:
    pool = [[float(row)] for row in range(20)]
    effort = Effort(simulations=20, trials=0, workers=1)
    release = privatize("mean", pool, Draw(success=0.9), effort)
    with pytest.raises(ValueError, match="min_agreement: expected a release whose agreement"):
        check_release(release, Policy(min_agreement=0.5))
