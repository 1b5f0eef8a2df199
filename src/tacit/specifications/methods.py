"""What is asked of a specification, as values: the promise, what is described, and how."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Annotated, Any, ClassVar, Literal, TypeAlias

import numpy as np

from tacit._ground.checks import integer
from tacit._ground.reprs import shown
from tacit._ground.values import Flag, Positive, Spelled, Within, value
from tacit.specifications.schedule import DELTA, MOST_EPSILON, StepSchedule

Size: TypeAlias = Annotated[int, Within(1, 1 << 31, "[)")]
Targets: TypeAlias = Literal["labels", "independent", "given-model"]
MOST_CLASSES = 10_000
# so that float32 holds what is published
MOST_CLIP = 1e30
# Below it no double precision tells what is left.
LEAST_DELTA = 1e-300
# Columns of compact factors, whose every number is released, and of those that span a subspace.
RANK, SUBSPACE_RANK = 8, 2


def class_names(classes: Any) -> tuple[str, ...]:
    """Return the names of the classes; of a number K the names "0" … "K − 1".

    Raises:
        ValueError: fewer than two, or a name twice.
    """
    if isinstance(classes, int | np.integer) and not isinstance(classes, bool):
        count = integer("classes", classes, minimum=2, maximum=MOST_CLASSES)
        return tuple(str(number) for number in range(count))
    if isinstance(classes, str) or not isinstance(classes, Sequence | np.ndarray):
        raise ValueError(f"classes: expected a number or names of classes, got {shown(classes)}")
    names = tuple(str(name) for name in classes)
    if len(names) < 2 or len(set(names)) < len(names):
        raise ValueError("classes: expected at least two names, each once")
    return names


def classes_of(text: str) -> int | list[str]:
    """Return classes as they are spelled in one flag: their number, or their names by commas."""
    return int(text) if text.isdigit() else [name.strip() for name in text.split(",")]


def layers_of(text: str) -> list[str]:
    """Return names of layers as they are spelled in one flag."""
    return [name.strip() for name in text.split(",")]


@value
class ReplacedRecord:
    """Which of any two records stands in a place is hidden, its label too: differential privacy.

    Args:
        epsilon: ε for replacing one record.
        delta: δ.

    Example:
        >>> ReplacedRecord(epsilon=1.0)
        ReplacedRecord(epsilon=1.0)
    """

    epsilon: Annotated[float, Within(0, MOST_EPSILON, "(]")]
    delta: Annotated[float, Within(LEAST_DELTA, 1, "[)")] = DELTA


@value
class Description:
    """What is described: what a model can do, or what a task asks for.

    Args:
        kind: What a model can do, or what a user asks for.
        classes: Number of classes, or their names with commas. They are public, so the labels never
            decide them; without noise they may be left to the labels.
        targets: What the labels are. A model's outputs are independent where the model was not
            trained on these records, and given-model where it was. There one record may change
            every target, and the guarantee is for an attacker who knows the model already.
        title: What is described, for the page; kind and backbone when left out.

    Example:
        >>> Description(classes=["cat", "dog"], kind="task").classes
        ('cat', 'dog')
    """

    kind: Literal["model", "task"] = "model"
    classes: Annotated[Any, Spelled("K|NAME,NAME", classes_of)] = None
    targets: Annotated[Targets, Flag("--label-source")] = "labels"
    title: str | None = None

    def _together(self) -> None:
        if self.classes is not None:
            object.__setattr__(self, "classes", class_names(self.classes))
        if self.title == "":
            raise ValueError("title: expected words, got ''")


@value
class LabelCodes:
    """Every class is pulled to the code of its name, so that all must call classes alike.

    Args:
        clip: Length that a record's part is cut to (C), chosen without looking at the records; the
            subspace's when left out.
        steps: T, noisy steps, each of which moves the network; their mean is released.
        sampling_rate: q, chance of every record to be in a step.
        step_size: Length of a step, as a share of the layers' norm.

    Example:
        >>> LabelCodes(steps=4).schedule.single
        False
    """

    word: ClassVar[str] = "labels"
    panel: ClassVar[str] = "Objective"

    clip: Annotated[float | None, Within(0, MOST_CLIP, "(]")] = None
    steps: Size = 1
    sampling_rate: Annotated[float, Within(0, 1, "(]")] = 1.0
    step_size: Positive = 0.05

    @property
    def schedule(self) -> StepSchedule:
        """Its steps."""
        return StepSchedule(
            steps=self.steps, sampling_rate=self.sampling_rate, step_size=self.step_size
        )


@value
class ClassScatter:
    """Classes are pulled apart, whatever they are called and in whatever order.

    Args:
        clip: Length that a record's part is cut to (C), chosen without looking at the records; the
            subspace's when left out.

    Example:
        >>> ClassScatter().schedule.single
        True
    """

    word: ClassVar[str] = "scatter"

    clip: Annotated[float | None, Within(0, MOST_CLIP, "(]")] = None

    @property
    def schedule(self) -> StepSchedule:
        """One step with every record in it: the network does not move."""
        return StepSchedule()


@value
class FeatureMean:
    """What the inputs are, whatever their labels: the mean of whitened features.

    Args:
        clip: Length that a record's part is cut to (C), chosen without looking at the records; the
            subspace's when left out.

    Example:
        >>> FeatureMean().schedule.single
        True
    """

    word: ClassVar[str] = "mean"

    clip: Annotated[float | None, Within(0, MOST_CLIP, "(]")] = None

    @property
    def schedule(self) -> StepSchedule:
        """One step with every record in it: there is no network to move."""
        return StepSchedule()


Objective: TypeAlias = LabelCodes | ClassScatter | FeatureMean
OBJECTIVES: dict[str, type[Objective]] = {
    kind.word: kind for kind in (LabelCodes, ClassScatter, FeatureMean)
}


@value
class SharedFactors:
    """Gradients of layers times one Gaussian matrix A that everyone shares, drawn from a seed.

    Args:
        rank: r, columns of the compact factors.
        layers: Names of layers, with commas; those of the backbone when left out.
        seed: Public seed of A.

    Example:
        >>> SharedFactors(rank=2)
        SharedFactors(rank=2)
    """

    panel: ClassVar[str] = "Shared network"

    rank: Size = RANK
    layers: Annotated[
        tuple[str, ...] | None, Spelled("NAME,NAME", layers_of), Flag("--target-modules")
    ] = None
    seed: Annotated[int, Within(0, ends="[)")] = 0

    def _together(self) -> None:
        if self.layers is not None and not isinstance(self.layers, tuple):
            raise ValueError(f"layers: expected a list of names, got {shown(self.layers)}")


@value
class PublicTasks:
    """Tasks that are drawn from public data: two to five classes with a balanced draw of records.

    Args:
        count: How many.
        records: Of each.
        vary: A function of records and a generator, such as one that inverts pictures.

    Example:
        >>> PublicTasks(count=20)
        PublicTasks(count=20)
    """

    count: Annotated[int, Within(2, 1 << 31, "[)")] = 120
    records: Annotated[int, Within(2, 1 << 31, "[)")] = 100
    vary: Callable[[Any, np.random.Generator], Any] | None = None

    def _together(self) -> None:
        if self.vary is not None and not callable(self.vary):
            raise ValueError(f"vary: expected a function of records, got {shown(self.vary)}")
