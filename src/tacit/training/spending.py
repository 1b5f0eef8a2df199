"""What a ledger counts of a training run: the whole budget, before its first round is drawn."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tacit._ground.reprs import shown
from tacit.guarantees import GaussianDP
from tacit.releases.prepared import Book, Reserved, check_same_release
from tacit.training.account import Budgets
from tacit.training.folder import RunFolder

ASSUMPTIONS = (
    "the noise of the run is given: its covariance depends on the data, so this is no differential "
    "privacy",
)
# The same for every reference and run, so that what a source spends adds up.
ADJACENCY = "the input and a safe reference, with the noise of the run either way"


def counted(mu: float) -> GaussianDP:
    """Return what a ledger counts of a run at distance μ from a reference."""
    return GaussianDP(
        mu=mu,
        adjacency=ADJACENCY,
        evidence="theorem",
        assumptions=ASSUMPTIONS,
        source="dsi, Theorem 3.4",
    )


# What a release is called in the ledger when its record is there.
COMMITTED = "committed"
# Of what is published, which names the model.
DIGESTS = ("digest",)


class Purse:
    """Reserves once, whatever happens to the run afterwards.

    Args:
        ledger: what is spent from; None for nothing.
        secret: the name in the ledger, or one for each reference.
        names: of the references.
        budgets: of the run.
        reproducible: whether a seed fixes the noise.
        no_budget: reserve though a name has no budget and others have one.

    Raises:
        ValueError: a ledger without a secret, a secret without a ledger, or one that is missing.
    """

    def __init__(
        self,
        ledger: Book | None,
        secret: str | Mapping[str, str] | None,
        names: Sequence[str],
        budgets: Budgets,
        *,
        reproducible: bool,
        no_budget: bool = False,
    ) -> None:
        if (ledger is None) != (secret is None):
            raise ValueError("ledger, secret: expected both or none")
        if ledger is not None and not hasattr(ledger, "reserve"):
            raise ValueError(f"ledger: expected a tacit.Ledger, got {type(ledger).__name__}")
        self._ledger, self._reproducible, self._no_budget = ledger, reproducible, no_budget
        self._wanted = [] if secret is None else _wanted(secret, names, budgets)
        self._reservations: list[Reserved] = []
        self._done, self._closed = ledger is None, False

    def declared(self) -> Any:
        """Return where is spent from and under which names, for a run that is taken up again."""
        if self._ledger is None:
            return None
        place = str(getattr(self._ledger, "location", ""))
        return [place, *(secret for secret, _, _ in self._wanted)]

    @property
    def entries(self) -> list[Reserved]:
        """What is reserved."""
        return list(self._reservations)

    def check_open(self) -> None:
        """Refuse another round of a run that was released.

        Raises:
            ValueError: the ledger has closed a reservation of the run.
        """
        if self._closed:
            raise ValueError(
                "checkpoint: expected a run that was not released yet, got one whose reservation "
                "the ledger has closed; a reservation is worth one release"
            )

    def taken_up(self, folder: RunFolder) -> None:
        """Go on with what an earlier process of the same run reserved.

        Args:
            folder: of the run.

        Raises:
            ValueError: the ledger has no such release.
        """
        self._done = True
        if self._ledger is not None:
            self._reservations = folder.reserved(
                self._ledger, [secret for secret, _, _ in self._wanted]
            )
            self._closed = any(held.status == COMMITTED for held in self._reservations)

    def reserve(self) -> None:
        """Reserve everything, the first time; all secrets or an error that names the first."""
        if self._done or self._ledger is None:
            return
        try:
            for secret, reference, mu in self._wanted:
                held = self._ledger.reserve(
                    secret,
                    counted(mu),
                    f"a training run beside {reference}",
                    reproducible=self._reproducible,
                    no_budget=self._no_budget,
                )
                self._reservations.append(held)
        except BaseException:
            for held in self._reservations:
                held.cancel()
            self._reservations = []
            raise
        for held in self._reservations:
            held.mark_drawn()
        self._done = True

    def commit(self, record: dict[str, Any]) -> None:
        """Store what was released beside the cost; what is stored already is the same release.

        Raises:
            ValueError: the ledger has closed a reservation with another release.
        """
        closed = [held for held in self._reservations if held.status == COMMITTED]
        for held in closed:
            check_same_release(held, record, DIGESTS)
        for held in self._reservations:
            if held not in closed:
                held.commit(record)
        # a run that goes on within its budget publishes every round of one trajectory
        self._reservations = []


def _wanted(
    secret: str | Mapping[str, str], names: Sequence[str], budgets: Budgets
) -> list[tuple[str, str, float]]:
    mu = budgets.mu.tolist()
    if not isinstance(secret, Mapping):
        worst = max(range(len(names)), key=mu.__getitem__)
        called = names[0] if len(names) == 1 else f"any of {len(names)} references"
        return [(secret, called, mu[worst])]
    missing = [name for name in names if name not in secret]
    if missing:
        raise ValueError(f"secret: expected a name for each reference, got none for {missing[0]!r}")
    if len(secret) > len(names):
        raise ValueError(f"secret: expected {len(names)} references, got {shown(dict(secret))}")
    return [(secret[name], name, distance) for name, distance in zip(names, mu, strict=True)]
