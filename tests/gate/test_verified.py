"""The gate asks for a proof: by flag and by policy, of the file as it stands."""

from __future__ import annotations

import json

import pytest

from tacit import Effort, Table, accounting, privatize
from tacit.cli import run
from tacit.gate import Policy, check_release
from tacit.releases import verification
from tacit.releases.release import Release

from ..releases.files import real

ROWS = [[float(n % 7)] for n in range(40)]


@pytest.fixture
def path(tmp_path):
    made = tmp_path / "mean.json"
    promise = Table(success=0.6, bounds=[(0.0, 7.0)])
    made.write_text(json.dumps(privatize("mean", ROWS, promise, Effort(trials=0)).to_dict()))
    return made


def test_a_release_whose_claims_are_proved_passes(path, tmp_path, capsys):
    assert run(["gate", str(path), "--verify"]) == 0
    assert "checked by tacit_check" in capsys.readouterr().out
    policy = tmp_path / "policy.toml"
    policy.write_text("verified = true\n")
    assert run(["gate", "--policy", str(policy), str(path)]) == 0
    result = check_release(str(path), Policy(verified=True))
    assert [(one.name, one.holds) for one in result.checks] == [("verified", True)]


def test_a_release_without_a_proof_does_not_pass(path, capsys):
    content = json.loads(path.read_text())
    del content["proof"]
    path.write_text(json.dumps(content))
    assert run(["gate", str(path), "--verify"]) == 1
    assert "not checkable by tacit_check 1.0; its file holds no proof" in capsys.readouterr().out
    # and so does what shows it: the proof that its details give is another's word
    assert run(["show", str(path)]) == 0
    told = " ".join(capsys.readouterr().out.split())
    assert "checked by tacit_check 1.0: holds; its file holds no proof" in told
    assert not check_release(real("quotients"), Policy(verified=True)).passed


def test_what_is_proved_false_is_not_drawn(monkeypatch):
    promise = Table(success=0.6, bounds=[(0.0, 7.0)])

    def smaller(release):
        found = proof_of(release)
        (success, mu) = found.claims
        return type(found)(
            mechanism=found.mechanism,
            claims=(success, {**mu, "mu": "0.4"}),
            adjacency=found.adjacency,
        )

    proof_of = verification.proof_of
    monkeypatch.setattr(verification, "proof_of", smaller)
    with pytest.raises(ArithmeticError, match="proves a claim to be wrong"):
        privatize("mean", ROWS, promise, Effort(trials=0))


@pytest.mark.parametrize(
    ("profile", "later"),
    [
        (accounting.noisy_projection(dim=50, rank=4, sensitivity=1, noise_std=1), False),
        (accounting.noisy_projection(dim=50, rank=4, sensitivity=1, noise_std=1) * 9, True),
        (accounting.random_allocation(2.0, steps=50, epochs=3), False),
        (accounting.random_allocation(1.0, steps=50), True),
        (accounting.sketch(rank=3, dim=2, gamma=0.1), False),
        (accounting.sketch(rank=3, dim=5, gamma=0.1), True),
        (accounting.vector_projection(dim=50, rank=4, alignment=0.9), False),
    ],
)
def test_what_takes_long_is_checked_on_demand_alone(profile, later):
    assert verification._takes_long(profile.mechanism, "add-remove") == later


def test_show_and_certificate_say_what_the_checker_found(path, capsys):
    from tacit.report import render_certificate

    assert run(["show", str(path)]) == 0
    assert "checked by tacit_check 1.0: holds" in capsys.readouterr().out
    page = render_certificate(str(path))
    assert "hecked by tacit_check 1.0: holds" in page
    assert Release.from_dict(json.loads(path.read_text())).kind == "statistic-table"
