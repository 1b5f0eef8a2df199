"""What is asked of a fine-tuning run beside its method, its promise and its length, as values."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

from tacit._ground.files import absolute
from tacit._ground.reprs import shown
from tacit._ground.values import Count, Positive, Within, value
from tacit.gradients.given import GivenNoise as GivenNoise
from tacit.models.small.storage import check_new_folder

# Learning rates where none is asked for.
RATES = {"adam": 0.01, "sgd": 0.5}


@value
class PoissonSteps:
    """Steps of noisy gradient descent on Poisson samples.

    Args:
        batch: Records expected in a step, each drawn by a coin of its own; all when left out.
        sampling_rate: Probability of each record in a step, declared beside the batch without
            looking at the records; the batch over their number when left out, which is then public.
        micro_batch: Largest number of records in one forward pass. Sums are accumulated over the
            passes of a step.
        optimizer: adam or sgd, of the noisy gradients.
        rate: Learning rate; .01 for adam, .5 for sgd.
        momentum: Of sgd.

    Example:
        >>> PoissonSteps(batch=16).sampling(64)
        (16, 0.25, 64)
    """

    panel: ClassVar[str] = "Steps"

    batch: Count | None = None
    sampling_rate: Annotated[float, Within(0, 1, "(]")] | None = None
    micro_batch: Count = 32
    optimizer: Literal["adam", "sgd"] = "adam"
    rate: Positive | None = None
    momentum: Annotated[float, Within(0, 1, "[)")] = 0.0

    def _together(self) -> None:
        if self.sampling_rate is not None and self.batch is None:
            raise ValueError("batch: expected the records expected in a step beside sampling_rate")

    @property
    def learning_rate(self) -> float:
        """The rate asked for, or the optimizer's own."""
        return RATES[self.optimizer] if self.rate is None else self.rate

    def sampling(self, count: int) -> tuple[int, float, int | None]:
        """Return the records expected in a step, q, and n where it is taken as public.

        Args:
            count: n.

        Raises:
            ValueError: more records are expected than there are.
        """
        # all records where no batch is asked for
        size = count if self.batch is None else self.batch
        if self.sampling_rate is not None:
            # declared: n is told by nothing
            return size, self.sampling_rate, None
        if size > count:
            raise ValueError(f"batch: expected at most the {count} records there are, got {size}")
        # q = batch/n tells n
        return size, size / count, count


@value
class AdaptedLayers:
    """A model of which chosen layers get an adapter, and from which A.

    Args:
        model: An ``nn.Module`` or a ``transformers`` model.
        targets: Names of linear layers, or endings of names, or all; a peft model has its own.
        projections: A of layers by name, (rank, in), made of public data; random when left out.
    """

    model: Any
    targets: Any = "all"
    projections: Any = None


@value
class TrainingRecords:
    """Records to learn from, others to measure on, and how a loss comes from them.

    Args:
        data: (inputs, targets), or a mapping with ``input_ids`` and, where there are,
            ``attention_mask`` and ``labels``.
        held_out: The same: records that are not private, to measure the model on.
        task: causal, masked, classification or supervised; read off the model's head when left
            out.
        loss: Of a supervised task, from outputs and targets to one loss for each record.
    """

    data: Any
    held_out: Any = None
    task: str | None = None
    loss: Any = None


@value
class AdapterFolder:
    """Where an adapter is written, in peft's format.

    Args:
        path: A folder that does not exist yet.
        base: Name of the model, for whoever loads the adapter.
        unprotected: Whether to write an adapter that has no guarantee, not to be published.
    """

    path: Any
    base: str | None = None
    unprotected: bool = False

    def check(self, checkpoint: str | os.PathLike[str] | None, *, protected: bool) -> Path:
        """Return the folder, refused now where it could not be written.

        Args:
            checkpoint: of the run.
            protected: whether the adapter has a guarantee.
        """
        if checkpoint is not None and checkpoint == self.path:
            raise ValueError("checkpoint: expected another folder than save, got the same")
        if self.path == "" or not isinstance(self.path, (str, os.PathLike)):
            raise ValueError(f"save: expected a file path, a folder's, got {shown(self.path)}")
        # who wants it writes it knowingly
        if not protected and not self.unprotected:
            raise ValueError(
                "save: expected a method with noise for an adapter that may leave, got LoRA-FA "
                "without noise: A beside a noiseless B tells the gradients (lora-privacy, "
                "Proposition 2); unprotected=True (--unprotected) writes it for yourself"
            )
        place = absolute("save", self.path)
        if checkpoint is not None and place.is_dir():
            # a run that died after its adapter was written is taken up
            return place
        return check_new_folder("save", self.path)
