"""The budget of a release in nats, however it was asked for."""

from __future__ import annotations

from tacit._ground.checks import in_interval, positive
from tacit.conversions import information_from_success, success_from_information


def allowed_nats(mi_budget: float | None, success: float | None, prior: float) -> float:
    """Return the budget in nats; a success asked for is never exceeded by its conversion back."""
    if (mi_budget is None) == (success is None):
        raise ValueError(
            "mi_budget, success: expected exactly one of the two, got "
            f"mi_budget={mi_budget!r} and success={success!r}"
        )
    if mi_budget is not None:
        return positive("mi_budget", mi_budget)
    asked = in_interval("success", success, prior, 1.0, open_low=True, open_high=True)
    budget = information_from_success(asked, prior)
    while budget > 0.0 and success_from_information(budget, prior) > asked:
        budget *= 1.0 - 1e-12
    return positive("success", budget)
