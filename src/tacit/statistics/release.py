"""A released statistic with its guarantee, its design and what was measured: no secret inside."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from tacit._ground.checks import Array, integer, non_negative, vector
from tacit._ground.reprs import short_repr, shown
from tacit.attacks import MembershipAttack
from tacit.design.base import Design
from tacit.documents import Envelope
from tacit.guarantees import InformationBound, SuccessBound
from tacit.guarantees.base import text, texts
from tacit.guarantees.reading import guarantee_of
from tacit.measured import Interval
from tacit.releases.form import Attack, Form, Number, Release
from tacit.statistics.spread import two_digits_up

ENVELOPE = Envelope("tacit.statistic", 1)
PUBLISHABLE = (
    "release",
    "names",
    "intervals",
    "query",
    "method",
    "guarantee",
    "membership",
    "reproducible",
    "created",
)


@short_repr
@dataclass(frozen=True, eq=False)
class StatisticDiagnostics:
    """What the simulation saw; for the holder of the pool, not for publication.

    Attributes:
        pool_rows: N, rows in the pool.
        subset_rows: rows in a candidate (in the smaller ones, where sizes differ by one).
        candidates: K, declared subsets.
        mi_budget: the budget asked for, in nats.
        output_mean: (d,) mean of the query's output over the candidates.
        output_variance: (d,) variance of each output.
        noise_variance: (d,) variance of the noise on each output.
        principal_output_variance: (d,) eigenvalues of the output covariance, largest first.
        principal_noise_variance: (d,) variance of the noise along the same eigenvectors.
        notes: what the code did that a reader should know.
        gaussian_information: ½ logdet(I + S Σ⁻¹) of the same noise, in nats, where the guarantee
            rests on the exact information instead; None otherwise.
        noise_saved: share of the cost of the noise that the Gaussian bound would have asked for
            and the guarantee does not; None otherwise.
    """

    pool_rows: int
    subset_rows: int
    candidates: int
    mi_budget: float
    output_mean: Array
    output_variance: Array
    noise_variance: Array
    principal_output_variance: Array
    principal_noise_variance: Array
    notes: tuple[str, ...] = ()
    gaussian_information: float | None = None
    noise_saved: float | None = None

    @property
    def sampling(self) -> Array:
        """Standard deviations over independent draws of as many rows, (d,), rounded up.

        Without replacement the variance over draws of a share q is 1 − q of that, for what is
        near linear in the rows.
        """
        share = self.subset_rows / self.pool_rows if self.pool_rows else 0.0
        spread = np.sqrt(self.output_variance / max(1.0 - share, 1.0 / max(self.pool_rows, 1)))
        return two_digits_up(spread)

    def to_dict(self) -> dict[str, Any]:
        """Return a JSON-able description that ``from_dict`` reads back."""
        return {
            name: value.tolist() if isinstance(value, np.ndarray) else value
            for name, value in {**vars(self), "notes": list(self.notes)}.items()
        }

    @staticmethod
    def from_dict(description: Mapping[str, Any]) -> StatisticDiagnostics:
        """Return the diagnostics that ``to_dict`` described."""
        fields = dict(description)
        for name in ARRAY_FIELDS:
            values = fields[name] = np.asarray(fields[name], dtype=np.float64)
            if values.size:
                vector(f"diagnostics.{name}", values)
            if not name.endswith("mean"):
                non_negative(f"diagnostics.{name}", values.min(initial=0.0))
        fields["notes"] = texts("diagnostics.notes", fields["notes"])
        return StatisticDiagnostics(**fields)


ARRAY_FIELDS = (
    "output_mean",
    "output_variance",
    "noise_variance",
    "principal_output_variance",
    "principal_noise_variance",
)


@short_repr
@dataclass(frozen=True, eq=False)
class StatisticRelease(Release):
    """A noisy statistic and everything that may be said about it.

    Attributes:
        release: (d,) the numbers to publish.
        names: d labels.
        guarantee: bound on the information about which rows were drawn, in nats.
        membership: what it means for guessing whether one row was drawn.
        design: the noise.
        diagnostics: what the simulation saw; for the holder of the pool.
        attack: the strongest membership attack run on simulated releases; None when none was.
        query: what was computed.
        method: how the noise was chosen.
        reproducible: whether a seed fixed the randomness, which voids the guarantee.
        seed: the integer seed, when one was given.
        created: time of the draw, ISO 8601, UTC.
    """

    release: Array
    names: tuple[str, ...]
    guarantee: InformationBound
    membership: SuccessBound
    design: Design
    diagnostics: StatisticDiagnostics
    attack: MembershipAttack | None
    query: str
    method: str
    reproducible: bool
    seed: int | None
    created: str

    FORMAT = ENVELOPE.format

    @property
    def form(self) -> Form:
        """The release as report, gate, ledger and commands read it."""
        errors = np.sqrt(self.diagnostics.noise_variance)
        sampling = self.diagnostics.sampling
        return Form(
            kind="statistic",
            title=self.query,
            secret=self.guarantee.secret,
            method=self.method,
            guarantees=(self.membership, self.guarantee),
            numbers=tuple(
                Number(name=name, value=value, error=error, sampling=spread)
                for name, value, error, spread in zip(
                    self.names,
                    self.release.tolist(),
                    errors.tolist(),
                    sampling.tolist(),
                    strict=True,
                )
            ),
            attacks=() if self.attack is None else (attack_of(self.attack, self.membership.task),),
            notes=self.diagnostics.notes,
            publishable=PUBLISHABLE,
            reproducible=self.reproducible,
            seed=self.seed,
            created=self.created,
        )

    def to_dict(self) -> dict[str, Any]:
        """Return a description for strict JSON that ``from_dict`` reads back."""
        return ENVELOPE.closed(
            {
                "release": self.release.tolist(),
                "names": list(self.names),
                "intervals": [number.intervals() for number in self.form.numbers],
                "guarantee": self.guarantee.to_dict(),
                "membership": self.membership.to_dict(),
                "design": self.design.to_dict(),
                "diagnostics": self.diagnostics.to_dict(),
                "attack": None if self.attack is None else self.attack.to_dict(),
                "query": self.query,
                "method": self.method,
                "reproducible": self.reproducible,
                "seed": self.seed,
                "created": self.created,
                "form": self.form.to_dict(),
            }
        )

    @staticmethod
    def from_dict(description: Any) -> StatisticRelease:
        """Return the release that ``to_dict`` described.

        Raises:
            ValueError: not the description of a statistic release, or a field is missing.
        """
        return ENVELOPE.opened("description", description, _read)


def attack_of(measured: MembershipAttack, task: str) -> Attack:
    """Return a membership attack as the form of a release has it."""

    def interval(value: float, ends: tuple[float, float]) -> Interval:
        low, high = ends
        return Interval(value=value, low=low, high=high, confidence=measured.confidence)

    return Attack(
        name=measured.name,
        task=task,
        success=interval(measured.success, measured.interval),
        worst=interval(measured.worst_success, measured.worst_interval),
        prior=measured.prior,
        trials=measured.trials,
    )


def _read(description: Mapping[str, Any]) -> StatisticRelease:
    attack, names = description["attack"], texts("description.names", description["names"])
    for name in ("query", "method", "created"):
        text(f"description.{name}", description[name])
    if not isinstance(description["reproducible"], bool):
        found = shown(description["reproducible"])
        raise ValueError(f"description.reproducible: expected true or false, got {found}")
    if description["seed"] is not None:
        integer("description.seed", description["seed"], minimum=0, maximum=None)
    return StatisticRelease(
        release=vector("description.release", description["release"], size=len(names)),
        names=names,
        guarantee=guarantee_of(InformationBound, "description.guarantee", description["guarantee"]),
        membership=guarantee_of(SuccessBound, "description.membership", description["membership"]),
        design=Design.from_dict(description["design"]),
        diagnostics=StatisticDiagnostics.from_dict(description["diagnostics"]),
        attack=None if attack is None else MembershipAttack.from_dict(attack),
        query=description["query"],
        method=description["method"],
        reproducible=description["reproducible"],
        seed=description["seed"],
        created=description["created"],
    )
