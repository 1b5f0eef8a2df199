"""A trained model's guarantees, what it is good for and what was measured against it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import numpy as np
import numpy.typing as npt

from tacit._ground.checks import Array, integer, non_negative
from tacit._ground.frozen import read_only
from tacit._ground.reprs import short_repr
from tacit.accounting import gaussian_shift
from tacit.conversions import success_from_profile
from tacit.divergences import shift_divergence
from tacit.documents import Envelope
from tacit.guarantees import Indistinguishability, SuccessBound, guarantee_from_dict
from tacit.guarantees.base import Guarantee
from tacit.releases.form import Attack, Form, Release, Use
from tacit.text import number_up
from tacit.training.account import Budgets
from tacit.training.references import References

ENVELOPE = Envelope("tacit.training", 1)
PUBLISHABLE = ("title", "guarantees", "rounds", "participations", "method", "digest", "created")
BESIDE = ("form", "provenance")
# From this many references of one budget on they are named together.
TOGETHER = 1000
ASSUMPTIONS = (
    "each reference takes part in no more rounds than declared",
    "the data of a round and the references' own randomness do not depend on the noise of that "
    "round",
    "nothing computed from the data without the noise is published: no loss, no early stop by it",
    "nobody reads the law of the noise as a secret: it is shaped by the data, and this is no "
    "guarantee of privacy",
)
NOT_PRIVACY = (
    "This is no guarantee of privacy: the noise is shaped by the data, so its covariance tells of "
    "them. It says that the model hardly differs from the references' own."
)
PUBLISHED = (
    "The parameters after every round may be published, and beside them the references' names, how "
    "many rounds there were and in how many a reference takes part: all are declared, or follow "
    "from the numbers of examples, which are taken as known. Losses, energies and gaps of rounds "
    "are measured on the data without noise and may not. Whether the records could be read is not "
    "hidden."
)
# So many references are told one by one.
TOLD = 20
# What whoever is told both laws guesses.
GUESS = "which of the two"
LAW = (
    "that the model came with even odds from the real input or from the reference “{}”, with the "
    "noise of this run either way,"
)


@short_repr
@read_only
@dataclass(frozen=True, eq=False, kw_only=True)
class TrainingRelease(Release):
    """A model trained beside safe references, and everything that may be said about it.

    Attributes:
        title: what the model is.
        references: names of the references, or of groups of equal budget.
        counts: how many references each name stands for.
        squared: (n,) μ² that each name was granted.
        taken: (n,) most rounds in which one of them took part.
        participations: K, by which the budgets were divided.
        rounds: T, rounds that were applied.
        guarantees: what is certified, the headline first.
        delta: δ at which ε is told; None where the budget was given as μ.
        energy: mean E‖noise‖² of a round; None where no Gram matrix was known.
        method: how the differences were found.
        digest: of the state dict.
        attacks: what was measured against it.
        use: what it is good for.
        notes: what a reader should know.
        reproducible: whether a seed fixed the noise, which voids the guarantees.
        seed: the seed, when one was given.
        created: ISO 8601, UTC.
    """

    title: str
    references: tuple[str, ...]
    counts: tuple[int, ...]
    squared: Array
    taken: npt.NDArray[np.int64]
    participations: int
    rounds: int
    guarantees: tuple[Guarantee, ...]
    delta: float | None
    energy: float | None
    method: str
    digest: str
    attacks: tuple[Attack, ...]
    use: tuple[Use, ...]
    notes: tuple[str, ...]
    reproducible: bool
    seed: int | None
    created: str

    FORMAT = ENVELOPE.format

    @property
    def form(self) -> Form:
        """The release as report, gate, ledger and commands read it."""
        return Form(
            kind="training",
            title=self.title,
            secret="which of the references the model came from",
            method=self.method,
            guarantees=self.guarantees,
            attacks=self.attacks,
            use=self.use,
            digests=(("parameters", self.digest),),
            notes=self.notes,
            publishable=PUBLISHABLE,
            reproducible=self.reproducible,
            seed=self.seed,
            created=self.created,
        )

    def to_dict(self) -> dict[str, Any]:
        """Return a description for strict JSON that ``from_dict`` reads back."""
        form = self.form.to_dict()
        return ENVELOPE.closed(
            {
                **vars(self),
                "references": list(self.references),
                "counts": list(self.counts),
                "squared": self.squared.tolist(),
                "taken": self.taken.tolist(),
                **{name: form[name] for name in ("guarantees", "attacks", "use", "notes")},
                "form": form,
            }
        )

    @staticmethod
    def from_dict(description: Any) -> TrainingRelease:
        """Return the release that ``to_dict`` described.

        Raises:
            ValueError: not the description of a training release, or a field is missing.
        """
        return ENVELOPE.opened("description", description, _read)


def released(
    *,
    title: str,
    references: References,
    budgets: Budgets,
    taken: npt.NDArray[np.int64],
    delta: float | None,
    rounds: int,
    way: str,
    energies: Array,
    digest: str,
    attacks: tuple[Attack, ...],
    use: tuple[Use, ...],
    notes: tuple[str, ...],
    seed: int | None,
) -> TrainingRelease:
    """Certify what a run was granted and return its release.

    The whole budget is certified, also of a run that stopped early: when to stop may have been
    decided by what the rounds gave.
    """
    names, counts, squared, most = _together(references, budgets, taken)
    return TrainingRelease(
        title=title,
        references=names,
        counts=counts,
        squared=squared,
        taken=most,
        participations=budgets.participations,
        rounds=rounds,
        guarantees=certified(names, squared, delta),
        delta=delta,
        energy=float(energies.mean()) if energies.size else None,
        method=way,
        digest=digest,
        attacks=attacks,
        use=use,
        notes=(NOT_PRIVACY, PUBLISHED, *_each(names, squared, delta), *notes),
        reproducible=seed is not None,
        seed=seed,
        created=datetime.now(UTC).isoformat(timespec="seconds"),
    )


def promised(
    references: References, budgets: Budgets, delta: float | None
) -> tuple[Guarantee, ...]:
    """Return what a run with these budgets will be certified for, before its first round."""
    none = np.zeros(len(references), dtype=np.int64)
    names, _, squared, _ = _together(references, budgets, none)
    return certified(names, squared, delta)


def certified(names: tuple[str, ...], squared: Array, delta: float | None) -> tuple[Guarantee, ...]:
    """Return the success beside the loosest reference, and the divergences beside every one.

    Args:
        names: of the references.
        squared: (n,) μ² of each.
        delta: δ; None leaves ε out.

    Source: dsi, Theorem 3.4 and Corollary C.1; the Neyman-Pearson lemma.
    """
    distances = np.nextafter(np.sqrt(squared), np.inf)
    loosest = int(np.argmax(distances))
    worst = float(distances[loosest])
    success = SuccessBound(
        success=success_from_profile(lambda e: float(shift_divergence(("hockey-stick", e), worst))),
        prior=0.5,
        task=GUESS,
        law=LAW.format(names[loosest]),
        evidence="theorem",
        assumptions=ASSUMPTIONS,
        source="dsi, Theorem 3.4; the Neyman-Pearson lemma",
    )
    kinds: list[Any] = ["kl"]
    if delta is not None:
        kinds.append(("hockey-stick", gaussian_shift(worst).epsilon(delta)))
    told = [
        Indistinguishability(
            references=names,
            divergence=kind,
            bounds=tuple(shift_divergence(kind, distances).tolist()),
            evidence="theorem",
            assumptions=ASSUMPTIONS,
            source="dsi, Theorem 3.4 and Corollary C.1",
        )
        for kind in kinds
    ]
    return (success, *told)


def _each(names: tuple[str, ...], squared: Array, delta: float | None) -> tuple[str, ...]:
    """Say what is certified beside each reference, where there are few."""
    if not 1 < len(names) <= TOLD:
        return ()
    distances = np.nextafter(np.sqrt(squared), np.inf).tolist()
    if delta is None:
        told = [f"{name} μ = {number_up(one)}" for name, one in zip(names, distances, strict=True)]
        return (f"Beside each reference: {'; '.join(told)}.",)
    told = [
        f"{name} ε = {number_up(gaussian_shift(one).epsilon(delta))}"
        for name, one in zip(names, distances, strict=True)
    ]
    return (f"Beside each reference, at δ = {number_up(delta)}: {'; '.join(told)}.",)


def _together(
    references: References, budgets: Budgets, taken: npt.NDArray[np.int64]
) -> tuple[tuple[str, ...], tuple[int, ...], Array, npt.NDArray[np.int64]]:
    """Return the references, those of equal budget under one name where there are many."""
    if len(references) < TOGETHER:
        return references.names, (1,) * len(references), budgets.squared.copy(), taken
    values, place = np.unique(budgets.squared, return_inverse=True)
    names, counts, most = [], [], []
    for number in range(values.size):
        members = np.flatnonzero(place == number)
        first = references.names[int(members[0])]
        names.append(
            first if members.size == 1 else f"any one of {members.size:,}, such as {first}"
        )
        counts.append(int(members.size))
        most.append(int(taken[members].max()))
    return tuple(names), tuple(counts), values, np.asarray(most, dtype=np.int64)


def _read(description: Mapping[str, Any]) -> TrainingRelease:
    fields = {name: value for name, value in description.items() if name not in BESIDE}
    form = Form.from_dict(description["form"])
    release = TrainingRelease(
        **{
            **fields,
            "references": tuple(map(str, fields["references"])),
            "counts": tuple(int(count) for count in fields["counts"]),
            "squared": np.asarray(fields["squared"], dtype=np.float64),
            "taken": np.asarray(fields["taken"], dtype=np.int64),
            "guarantees": tuple(guarantee_from_dict(held) for held in fields["guarantees"]),
            "attacks": form.attacks,
            "use": form.use,
            "notes": tuple(fields["notes"]),
        }
    )
    _check(release)
    return release


def _check(release: TrainingRelease) -> None:
    """Refuse a description whose certificate is not that of its budgets.

    Raises:
        ValueError: names what contradicts what.
    """
    count = len(release.references)
    if not (len(release.counts) == release.squared.size == release.taken.size == count > 0):
        raise ValueError("description.references: expected one budget and count for each of them")
    if not (np.isfinite(release.squared).all() and (release.squared > 0.0).all()):
        raise ValueError("description.squared: expected μ² > 0 for every reference")
    integer("description.rounds", release.rounds, minimum=1, maximum=None)
    integer("description.participations", release.participations, minimum=1, maximum=None)
    for number in release.counts:
        integer("description.counts", number, minimum=1, maximum=None)
    if release.energy is not None:
        non_negative("description.energy", release.energy)
    if (release.taken < 0).any() or (release.taken > release.participations).any():
        raise ValueError("description.taken: expected from 0 to as many rounds as participations")
    if release.seed is not None and not release.reproducible:
        raise ValueError("description.reproducible: expected true beside a seed, got false")
    if release.guarantees != certified(release.references, release.squared, release.delta):
        raise ValueError("description.guarantees: expected what the budgets certify, got another")
    known = (NOT_PRIVACY, PUBLISHED, *_each(release.references, release.squared, release.delta))
    if release.notes[: len(known)] != known:
        raise ValueError(
            "description.notes: expected what the guarantee is and is not, got other notes"
        )
