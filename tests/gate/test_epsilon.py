"""ε at a stated δ: of every guarantee of differential privacy, of one release and of several."""

from __future__ import annotations

from dataclasses import replace

import mpmath
import pytest

from tacit import Table, privatize
from tacit.cli import run
from tacit.gate import Policy, check_release
from tacit.guarantees import ApproximateDP, GaussianDP, RenyiDP

REST = {"adjacency": "replace one record", "evidence": "theorem", "assumptions": (), "source": "-"}
ROWS = [[float(n % 7)] for n in range(40)]


@pytest.fixture(scope="module")
def release():
    return privatize("mean", ROWS, Table(success=0.6, bounds=[(0.0, 7.0)]))


def delta_of(mu, epsilon):
    """δ(ε) of N(μ, 1) against N(0, 1), at 40 digits."""
    with mpmath.workdps(40):
        mu, epsilon = mpmath.mpf(mu), mpmath.mpf(epsilon)
        return mpmath.ncdf(mu / 2 - epsilon / mu) - mpmath.exp(epsilon) * mpmath.ncdf(
            -mu / 2 - epsilon / mu
        )


def found(release, guarantees, delta, releases=1):
    stated = replace(release, guarantees=tuple(guarantees))
    # judged as a value: its words are not the workflow's
    from tacit.gate.judged import Judged

    held = Judged(stated, releases).epsilon(delta)
    return None if held is None else held[0]


@pytest.mark.parametrize("releases", [1, 3])
def test_a_mu_gives_the_epsilon_whose_delta_is_asked(release, releases):
    epsilon = found(release, [GaussianDP(mu=0.5, **REST)], 1e-5, releases)
    exact = delta_of(0.5 * releases**0.5, epsilon)
    assert exact <= 1e-5
    assert exact >= 1e-5 * (1 - 1e-6)
    assert found(release, [GaussianDP(mu=0.5, **REST)], 0.0) is None


def test_epsilon_and_delta_add_up_and_a_larger_delta_says_nothing(release):
    stated = ApproximateDP(epsilon=0.1, delta=1e-6, **REST)
    assert found(release, [stated], 1e-6) == 0.1
    assert found(release, [stated], 9e-7) is None
    assert found(release, [stated], 3e-6, 3) == pytest.approx(0.3)
    assert found(release, [stated], 3e-6, 3) >= 0.3
    assert found(release, [stated], 2.9e-6, 3) is None


def test_the_best_of_several_guarantees_is_judged(release):
    curve = RenyiDP(orders=(2.0, 8.0, 32.0), epsilons=(0.02, 0.08, 0.32), **REST)
    alone = found(release, [curve], 1e-6)
    assert alone == pytest.approx(curve.approximate(1e-6).epsilon)
    both = found(release, [curve, GaussianDP(mu=0.1, **REST)], 1e-6)
    assert both < alone


def test_a_release_is_judged_by_flag_and_by_policy(release, tmp_path, capsys):
    path = tmp_path / "mean.json"
    import json

    path.write_text(json.dumps(release.to_dict()))
    assert run(["gate", str(path), "--max-epsilon", "3", "--delta", "1e-5"]) == 0
    assert run(["gate", str(path), "--max-epsilon", "0.5", "--delta", "1e-5"]) == 1
    assert run(["gate", str(path), "--max-epsilon", "3"]) == 1
    assert "the release has none" in capsys.readouterr().out
    assert run(["gate", str(path), "--max-success", "0.7", "--delta", "1e-5"]) == 2
    assert "--delta: expected" in capsys.readouterr().err
    assert run(["gate", str(path), "--max-epsilon", "3", "--delta", "1"]) == 2
    result = check_release(release, Policy(max_epsilon=3.0, delta=1e-5))
    assert result.checks[0].found == found(release, release.guarantees, 1e-5)
