"""A small audit of hidden states with one codebook."""

from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip("torch")

from tacit.hidden_states.audit.cell_points import cell_attack
from tacit.hidden_states.audit.points import Point
from tacit.hidden_states.audit.release import Audit, release_of
from tacit.hidden_states.audit.request import Wish
from tacit.hidden_states.codebooks.certificates import certify
from tacit.measured import Interval
from tacit.releases import Release

CELLS = [i % 3 for i in range(60)]


def found(wish: Wish | None = None) -> Release[Audit]:
    certificate = certify(CELLS, 3)
    point = Point(
        model="m", layer=1, family="codebook", mechanism="codebook-fisher", reading="states",
        protocol="A", kl_budget=None, target_epsilon=None, codewords=3, rank=3, predicted_kl=None,
        kl=Interval(0.5, 0.4, 0.6), agreement=Interval(0.7, 0.6, 0.8), generated=None,
        attacks=(cell_attack(CELLS, CELLS),), bound=certificate.success.success,
        information=certificate.information.nats, epsilon_nearest=None, epsilon_random=None,
        bank=60, prompts=50, seed=0, draw=0, seconds=0.0,
    )  # fmt: skip
    details = Audit(
        model="m", layer=1, layers=2, width=4, length=6, calibration=10, points=(point,),
        wish=wish or Wish(), fisher_spectrum=np.array([2.0, 1.0, 0.5, 0.0]),
        spread_spectrum=np.ones(4), seed=0,
    )  # fmt: skip
    recommended = details.recommendation.point is not None
    return release_of(details, certificate.guarantees if recommended else ())
