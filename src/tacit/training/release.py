"""A trained model's guarantees, and how they are worked out again from what was granted."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Annotated, Any

import numpy as np
import numpy.typing as npt

from tacit._ground.checks import Array, integer, non_negative
from tacit._ground.frozen import array_value
from tacit._ground.reprs import shown
from tacit.accounting import gaussian_shift
from tacit.codec import HOLDER
from tacit.conversions import success_from_profile
from tacit.divergences import shift_divergence
from tacit.guarantees import Indistinguishability, SuccessBound
from tacit.guarantees.agreement import agree
from tacit.guarantees.base import Guarantee
from tacit.releases import Kind, Release
from tacit.releases.recompute import check_measured
from tacit.text import number_up
from tacit.training.account import Budgets
from tacit.training.references import References

KIND = "training"
SECRET = "which of the references the model came from"
# What the digest of a release of training is of.
PARAMETERS = "parameters"
# From this many references of one budget on they are named together.
TOGETHER = 1000
# How a release says that its rounds were computed.
WAYS = re.compile(
    "one step, (isotropic noise|(exact|forward|none) Gram matrix)|[0-9,]+ local steps|any outcome"
)
# So many references are told one by one.
TOLD = 20
ASSUMPTIONS = (
    "each reference takes part in no more rounds than declared",
    "the data of a round and the references' own randomness do not depend on the noise of that "
    "round",
    "nothing computed from the data without the noise is published: no loss, no early stop by it",
    "the distribution of the noise is taken as known, though the data shape it: this is no "
    "guarantee of privacy",
)
NOT_PRIVACY = (
    "This is no guarantee of privacy: the noise is shaped by the data, so its covariance tells of "
    "them. It says that the model hardly differs from the references' own."
)
PUBLISHED = (
    "The parameters after every round may be published, and beside them the references' names, "
    "how many rounds there were and in how many a reference takes part. All of these are "
    "declared, or follow from the numbers of examples, which are taken as known. Losses, energies "
    "and gaps of rounds "
    "are measured on the data without noise, and may not be published. Whether the records could "
    "be read is not "
    "hidden."
)
# What whoever is told both laws guesses.
GUESS = "which of the two"
LAW = (
    "that the model came with even odds from the real input or from the reference “{}”, with the "
    "noise of this run either way,"
)


@array_value(kw_only=True)
class TrainedModel:
    """What was granted to each reference of a training run, and what of it was used.

    Attributes:
        references: names of the references, or of groups of equal budget.
        counts: how many references each name stands for.
        squared: (n,) μ² that each name was granted.
        participations: K, by which the budgets were divided.
        rounds: T, rounds that were applied.
        delta: δ at which ε is told; None where the budget was given as μ.
        taken: (n,) most rounds in which one of them took part; the holder's, as what follows.
        energy: mean E‖noise‖² of a round; None where no Gram matrix was known.
    """

    references: tuple[str, ...]
    counts: tuple[int, ...]
    squared: Array
    participations: int
    rounds: int
    delta: float | None
    taken: Annotated[npt.NDArray[np.int64] | None, HOLDER] = None
    energy: Annotated[float | None, HOLDER] = None

    def __post_init__(self) -> None:
        count = len(self.references)
        if not len(self.counts) == self.squared.size == count > 0:
            raise ValueError("references: expected one budget and one count for each reference")
        if not (np.isfinite(self.squared).all() and (self.squared > 0.0).all()):
            raise ValueError("squared: expected μ² > 0 for every reference")
        for name in ("rounds", "participations"):
            integer(name, getattr(self, name), minimum=1, maximum=None)
        for number in self.counts:
            integer("counts", number, minimum=1, maximum=None)
        if self.energy is not None:
            non_negative("energy", self.energy)
        taken = self.taken
        if taken is not None and (
            taken.size != count or (taken < 0).any() or (taken > self.participations).any()
        ):
            raise ValueError("taken: expected from 0 to as many rounds as participations, for each")


def recompute(release: Release[TrainedModel]) -> str:
    """Hold a release of training against what its budgets certify.

    Raises:
        ValueError: the guarantees, or what they are and are not, are others.
    """
    check_measured(release.attacks)
    details = release.details
    # worked out again by what worked it out, nothing of the file is believed
    told = certified(details.references, details.squared, details.delta)
    if not agree(release.guarantees, told):
        raise ValueError("guarantees: expected what the budgets certify, got another")
    # what it is not stands first, so that nobody reads it as privacy
    known = notes_of(details.references, details.squared, details.delta)
    if release.notes[: len(known)] != known:
        raise ValueError("notes: expected what the guarantee is and is not, got other notes")
    if release.reproducible != (release.seed is not None):
        raise ValueError("seed: expected one of a run that can be repeated, and of no other")
    if release.secret != SECRET:
        raise ValueError(f"secret: expected {SECRET!r}, got {shown(release.secret)}")
    if WAYS.fullmatch(release.method) is None:
        raise ValueError(f"method: expected how rounds are computed, got {shown(release.method)}")
    return ""


TRAINING = Kind(
    name=KIND,
    details=TrainedModel,
    recompute=recompute,
    proof="tacit.training.proof:proof",
    record="what one of the named references leaves out of the training data",
    caution=NOT_PRIVACY,
)


def details_of(
    references: References,
    budgets: Budgets,
    delta: float | None,
    *,
    taken: npt.NDArray[np.int64],
    rounds: int,
    energies: Sequence[float],
) -> TrainedModel:
    """Return what a run was granted and used, references of one budget together if many.

    The whole budget is told, also of a run that stopped early: when to stop may have been decided
    by what the rounds gave.
    """
    names, counts, squared, most = group_references(references, budgets, taken)
    return TrainedModel(
        references=names,
        counts=counts,
        squared=squared,
        participations=budgets.participations,
        rounds=rounds,
        delta=delta,
        taken=most,
        energy=float(np.mean(energies)) if energies else None,
    )


def certified(names: tuple[str, ...], squared: Array, delta: float | None) -> tuple[Guarantee, ...]:
    """Return the success beside the loosest reference, and the divergences beside every one.

    Args:
        names: of the references.
        squared: (n,) μ² of each.
        delta: δ; None leaves ε out.

    Source: dsi, Theorem 3.4 and Corollary C.1; the Neyman-Pearson lemma.
    """
    # μ rounded up: the square root is to nearest
    distances = np.nextafter(np.sqrt(squared), np.inf)
    # the one that is told apart best bounds all others
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
    # nats, and the δ of one ε, beside every reference
    kinds: list[Any] = ["kl"]
    if delta is not None:
        # the ε of the loosest at δ; beside the others the same ε has a smaller δ
        kinds.append(("hockey-stick", gaussian_shift(worst).epsilon(delta)))
    divergences = [
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
    return (success, *divergences)


def notes_of(names: tuple[str, ...], squared: Array, delta: float | None) -> tuple[str, ...]:
    """Return what the guarantee is and is not, and what it is beside each reference if few."""
    first = (PUBLISHED,)
    if not 1 < len(names) <= TOLD:
        return first
    # rounded up
    distances = np.nextafter(np.sqrt(squared), np.inf).tolist()
    pairs = list(zip(names, distances, strict=True))
    if delta is None:
        each = "; ".join(f"{name} μ = {number_up(one)}" for name, one in pairs)
        return (*first, f"Beside each reference: {each}.")
    each = "; ".join(
        f"{name} ε = {number_up(gaussian_shift(one).epsilon(delta))}" for name, one in pairs
    )
    return (*first, f"Beside each reference, at δ = {number_up(delta)}: {each}.")


def group_references(
    references: References, budgets: Budgets, taken: npt.NDArray[np.int64]
) -> tuple[tuple[str, ...], tuple[int, ...], Array, npt.NDArray[np.int64]]:
    """Return the references, those of equal budget under one name where there are many."""
    if len(references) < TOGETHER:
        return references.names, (1,) * len(references), budgets.squared.copy(), taken
    # references of one budget are told alike, whichever they are
    values, place = np.unique(budgets.squared, return_inverse=True)
    names, counts, most = [], [], []
    for number in range(values.size):
        members = np.flatnonzero(place == number)
        first = references.names[int(members[0])]
        alone = members.size == 1
        names.append(first if alone else f"any one of {members.size:,}, such as {first}")
        counts.append(int(members.size))
        # the most rounds of any one of them, for the holder
        most.append(int(taken[members].max()))
    return tuple(names), tuple(counts), values, np.asarray(most, dtype=np.int64)
