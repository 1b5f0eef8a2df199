"""A specification's release: what is certified of the file, and how it is worked out again."""

from __future__ import annotations

import math
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tacit import codec
from tacit._ground.checks import in_interval, integer, non_negative
from tacit._ground.files import write_text_atomic
from tacit._ground.reprs import short_repr
from tacit.documents import dumps
from tacit.guarantees import ApproximateDP, GaussianDP, SuccessBound
from tacit.guarantees.adjacency import Adjacency
from tacit.guarantees.agreement import agree
from tacit.guarantees.base import Guarantee
from tacit.releases import Kind, Release
from tacit.specifications.methods import Targets
from tacit.specifications.schedule import StepSchedule
from tacit.specifications.specification import Specification

KIND = "specification"
SECRET = "any one record that is described"
# How a specification says that its noise was drawn, and that it has none.
NOISY, BARE_METHOD = "dp", "compact"
# Whoever replaces a record replaces its label too.
ADJACENCY = Adjacency.REPLACE.sentence()
SOURCE = "pave, Algorithm 1 in one step, the joined factor clipped once; Balle and Wang (2018)"
SOURCE_OF_STEPS = "pave, Theorem 3.9, the joined factor clipped once; docs/explanation/sampling.md"
SAMPLED = "every record is in a step by a coin of its own, and nobody learns which records were"
ONE_STEP = StepSchedule()
ASSUMPTIONS = (
    "the backbone, A, the subspace, the clip, the classes, the number of records and every "
    "setting were chosen without looking at the records",
    "the backbone's features of a record depend on that record alone",
    "whether every record could be read, and is of a declared class, is not hidden",
)
# Of what the labels are: nothing where they are the records' own.
OF_TARGETS: dict[Targets, tuple[str, ...]] = {
    "labels": (),
    "independent": ("the model whose outputs are described was not trained on these records",),
    "given-model": (
        "the model whose outputs are described is known to the attacker already, and is held "
        "fixed: what it tells about the records it was trained on is not counted",
    ),
}
PROTECTED = (
    "The specification may be published, with A and with BA: everything made of it is "
    "post-processing."
)
BARE = (
    "This specification has no guarantee: neither it nor BA may be published. It is a mean of "
    "gradients, from which records have been read back."
)
BARE_MEAN = (
    "This specification has no guarantee and may not be published. It is a mean of features of its "
    "records, from which records have been read back."
)
SCATTER_NOTE = (
    "Class means are drawn first, with noise of their own, which is counted. The scatter is then "
    "a sum over records."
)


@short_repr
@dataclass(frozen=True, eq=False, kw_only=True)
class CertifiedSpecification:
    """A specification, and all that its certificate follows from.

    Attributes:
        specification: the file, with its manifest.
        backbone: name of the shared network.
        records: n, how many records were described.
        classes: K, how many classes they are of.
        mu: distance of two neighbours' sums in a step in units of the noise; inf without noise.
        delta: δ at which ε is told.
        targets: what the labels are.
        schedule: of the steps.
    """

    specification: Specification
    backbone: str
    records: int
    classes: int
    mu: float
    delta: float
    targets: Targets
    schedule: StepSchedule

    def __post_init__(self) -> None:
        integer("records", self.records, minimum=1)
        integer("classes", self.classes, minimum=2)
        non_negative("mu", self.mu, allow_inf=True)
        in_interval("delta", self.delta, 0.0, 1.0, open_low=True, open_high=True)

    @property
    def digests(self) -> tuple[tuple[str, str], ...]:
        """What the release is about: the file, the space it is compared in, and the backbone."""
        space = self.specification.space
        return (
            ("specification", self.specification.revision),
            ("space", space.digest),
            ("backbone", space.backbone),
        )


def certified(
    mu: float, delta: float, targets: Targets, schedule: StepSchedule = ONE_STEP
) -> tuple[Guarantee, ...]:
    """Return the success at even odds, μ where there is one, and (ε, δ), all rounded up.

    Args:
        mu: distance of two neighbours' sums in a step, in standard deviations of the noise;
            nothing is certified at infinity.
        delta: δ.
        targets: what the labels are.
        schedule: of the steps; on samples there is no μ.

    Source: pave, Theorem 3.9 for one step; Dong, Roth and Su (2022); Balle and Wang (2018).
    """
    if math.isinf(mu):
        return ()
    # all steps together, as the law of one privacy loss
    profile = schedule.profile(mu)
    success = profile.success()
    rest: dict[str, Any] = {
        "evidence": "theorem" if schedule.full else "numerical",
        "assumptions": (
            *ASSUMPTIONS,
            *(() if schedule.full else (SAMPLED,)),
            *OF_TARGETS[targets],
        ),
        "source": SOURCE if schedule.single else SOURCE_OF_STEPS,
    }
    bound = SuccessBound(
        success=success.success,
        prior=success.prior,
        task=f"which of two neighbouring inputs ({ADJACENCY}) was used",
        law=success.law,
        **rest,
    )
    approximate = ApproximateDP(
        epsilon=profile.epsilon(delta), delta=delta, adjacency=ADJACENCY, **rest
    )
    if not schedule.full:
        return bound, approximate
    # √T μ: the loss of all steps is that of two normal laws so far apart
    shift = GaussianDP(mu=schedule.distance(mu), adjacency=ADJACENCY, **rest)
    return bound, shift, approximate


def bare_note(objective: str) -> str:
    """Return why a specification without noise may not be published."""
    return BARE_MEAN if objective == "mean" else BARE


def notes_of(mu: float, objective: str, schedule: StepSchedule) -> tuple[str, ...]:
    """Return what a reader should know of a specification: nothing else is said in its file.

    Args:
        mu: as of ``certified``.
        objective: of the specification; with noise and ``"scatter"`` class means were drawn first.
        schedule: of the steps.
    """
    if math.isinf(mu):
        first: tuple[str, ...] = (bare_note(objective),)
    else:
        first = (PROTECTED, *((SCATTER_NOTE,) if objective == "scatter" else ()))
    return (*first, *(() if schedule.single else (schedule.sentence,)))


def recompute(release: Release[CertifiedSpecification]) -> str:
    """Hold the release of a specification, and the manifest in its file, against its noise.

    Raises:
        ValueError: names what contradicts what.
    """
    details, made = release.details, release.details.specification
    bare, objective = math.isinf(details.mu), made.space.output
    told = certified(details.mu, details.delta, details.targets, details.schedule)
    if not agree(release.guarantees, told):
        raise ValueError("guarantees: expected what the noise certifies, got other values")
    # a draw that a seed can repeat is certified in no file
    if not agree(made.guarantees, () if release.reproducible else told):
        raise ValueError(
            "specification: expected the guarantees of this release in its manifest, got others"
        )
    method = BARE_METHOD if bare else NOISY
    if not release.method == made.method == method:
        raise ValueError(f"method: expected {method!r} of this noise, got another")
    if not release.notes == made.notes == notes_of(details.mu, objective, details.schedule):
        raise ValueError("notes: expected what follows from the noise, got other values")
    if release.withheld != (bare_note(objective) if bare else ""):
        raise ValueError(
            "withheld: expected the reason why a specification without noise may not be published"
        )
    if release.digests != details.digests:
        raise ValueError("digests: expected those of the specification, got other values")
    if (release.secret, release.assumptions, release.numbers) != (SECRET, (), None):
        raise ValueError("secret: expected any one record, and nothing assumed beside, got another")
    return ""


SPECIFICATION = Kind(
    name=KIND,
    details=CertifiedSpecification,
    recompute=recompute,
    sections="tacit.specifications.page:sections",
    proof="tacit.specifications.proof:proof",
    record="one labelled example of the data that are described",
)


def save_specification(
    release: Release[CertifiedSpecification], path: str | os.PathLike[str]
) -> None:
    """Write the specification to ``path``, and its release beside it as ``….json``.

    What was measured on records and where they come from is left out.

    Args:
        release: of a specification.
        path: of the safetensors file.

    Raises:
        ValueError: one of them cannot be written.

    Example:
        >>> import tempfile
        >>> import numpy as np
        >>> from tacit.specifications import Description, specify
        >>> rng = np.random.default_rng(0)
        >>> images, labels = rng.uniform(size=(40, 28, 28)), np.arange(40) % 2
        >>> release = specify(labels, images, None, about=Description(classes=2))
        >>> place = Path(tempfile.mkdtemp(), "bars.safetensors")
        >>> save_specification(release, place)
        >>> sorted(file.name for file in place.parent.iterdir())
        ['bars.json', 'bars.safetensors']
    """
    place = Path(os.fspath(path))
    beside = place.with_suffix(".json")
    if beside == place:
        raise ValueError("path: expected a name that does not end in .json, got one")
    release.details.specification.save(place)
    # without noise both files are the holder's, and the release says so
    text = dumps(codec.public(release).to_dict(), indent=2) + "\n"
    write_text_atomic("path", beside, text)
