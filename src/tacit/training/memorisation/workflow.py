"""Fine-tune a language model beside safe references, with canaries that say what it keeps."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from tacit._ground.checks import Array, boolean, choice, integer, positive
from tacit.accounting import gaussian_shift
from tacit.attacks import coins
from tacit.compute.progress import progress_bar
from tacit.models import LanguageModel
from tacit.releases.form import Attack
from tacit.training.indistinguishable import Indistinguishable
from tacit.training.measured import Measured, attempted
from tacit.training.memorisation.canaries import MOST, Canaries
from tacit.training.memorisation.language import Loss, losses, sequence_loss
from tacit.training.memorisation.measurements import (
    Flags,
    Memorisation,
    Plan,
    audit_note,
    guessed,
)
from tacit.training.memorisation.schedule import CanarySchedule
from tacit.training.memorisation.secrets import CanarySeed
from tacit.training.prepared import PreparedTraining, prepare_training
from tacit.training.references import References
from tacit.training.release import TrainingRelease

Optimizer = Callable[[Iterable[torch.nn.Parameter]], torch.optim.Optimizer]
# Of the draws that measure: they say nothing of coins or noise.
MEASURING = 0


@dataclass(frozen=True, kw_only=True, eq=False)
class Task:
    """What is trained on, in which order, and with which canaries.

    Attributes:
        canaries: in and out.
        inside: (m,) the coins.
        learned: (n, L) sequences.
        unseen: (u, L) sequences.
        schedule: which examples every round has.
        inputs: of all examples, texts first.
        targets: of them.
        groups: the reference of each.
        present: whether each is learned from.
    """

    canaries: Canaries
    inside: Flags
    learned: torch.Tensor
    unseen: torch.Tensor
    schedule: CanarySchedule
    inputs: torch.Tensor
    targets: torch.Tensor
    groups: Any
    present: Flags

    @staticmethod
    def of(
        canaries: Canaries,
        inside: Flags,
        learned: torch.Tensor,
        unseen: torch.Tensor,
        schedule: CanarySchedule,
        *,
        texts: bool,
    ) -> Task:
        """Put the copies of the canaries behind the texts.

        Args:
            canaries: m of them.
            inside: (m,) the coins.
            learned: (n, L).
            unseen: (u, L).
            schedule: of n texts and m canaries.
            texts: whether every text is a reference of its own.
        """
        inputs, targets = canaries.sequences(learned.shape[1])
        groups = schedule.groups(texts=texts)
        present = torch.ones(len(groups), dtype=torch.bool).numpy()
        copied = torch.arange(len(canaries)).repeat_interleave(schedule.copies)
        present[schedule.texts :] = inside[copied.numpy()]
        return Task(
            canaries=canaries, inside=inside, learned=learned, unseen=unseen, schedule=schedule,
            inputs=torch.cat([learned, inputs[copied]]),
            targets=torch.cat([learned, targets[copied]]),
            groups=groups, present=present,
        )  # fmt: skip

    def losses(self, network: torch.nn.Module) -> Array:
        """Return the mean loss of each canary."""
        return losses(network, *self.canaries.sequences(self.learned.shape[1]))

    def step(self, run: Indistinguishable, number: int) -> None:
        """Run one round."""
        examples = self.schedule.examples(number)
        chosen = torch.from_numpy(examples)
        run.step(
            (self.inputs[chosen], self.targets[chosen]), self.groups[examples],
            inside=self.present[examples],
        )  # fmt: skip


def prepare_memorisation(
    model: LanguageModel,
    learned: torch.Tensor,
    unseen: torch.Tensor,
    *,
    optimizer: Optimizer,
    epsilon: float,
    delta: float,
    canaries: int = 32,
    copies: int = 1,
    digits: int = 6,
    least: int = 4,
    following: int = 5,
    samples: int = 128,
    passes: int = 1,
    batch: int = 32,
    reduction: str = "mean",
    protect: str = "all",
    order: int = 0,
    gram: str = "exact",
    noise: str = "optimal",
    attack: bool = True,
    checkpoint: str | os.PathLike[str] | None = None,
    notes: Sequence[str] = (),
    rng: int | None = None,
    progress: bool = False,
) -> PreparedTraining:
    """Certify fine-tuning in which no canary and no sequence of L tokens moves the model beyond ε.

    Fair coins decide which canaries are learned from; the noise covers them all. Exposure is
    measured on those in, and on those out under the law that the certificate compares with, so
    that ``P(exposed | in) <= Φ(Φ⁻¹(P(exposed | out)) + μ)`` is told beside it.

    Args:
        model: a language model with a tokenizer, its parameters in float32; trained in place in
            evaluation mode, in which dropout does not act. Frozen parameters stay as they are; one
            that is frozen throughout, as ``models.load`` gives it, is trained whole.
        learned: (n, L) tokens to learn from.
        unseen: (u, L) tokens that nothing is learned from, known to everybody.
        optimizer: makes the optimiser of a list of parameters.
        epsilon: ε > 0 beside each reference.
        delta: δ in (0, 1).
        canaries: m, from 2 to 400, all copies of one a single reference.
        copies: v of each canary, in one round of every pass.
        digits: d of each secret.
        least: digits that must come out right for a canary to be exposed.
        following: tokens at the end of a sequence that must come out greedily after the others for
            it to be memorised exactly.
        samples: N, secrets drawn for each canary from the model and as many uniform ones.
        passes: over the data.
        batch: B, examples in a round.
        reduction: ``"mean"`` or ``"sum"`` of the losses of a sequence's tokens.
        protect: ``"all"``: every text is a reference too; or ``"canaries"``.
        order: seed of the shuffles; it must not depend on the data.
        gram: what the noise is shaped by, as in `Indistinguishable`.
        noise: ``"optimal"`` or ``"isotropic"``.
        attack: whether to guess the coins and audit the run.
        checkpoint: folder that survives a crash.
        notes: what a reader should know beside.
        rng: a seed voids the guarantee.
        progress: whether to show the rounds' progress.

    Returns:
        The prepared run; ``draw()`` trains, measures and returns the `TrainingRelease`.

    Raises:
        ValueError: an argument is outside its range, or the tokenizer has no token for each digit.

    Example:
        >>> from transformers import GPT2Config, GPT2LMHeadModel
        >>> class Letters:
        ...     def __call__(self, text, **options):
        ...         return {"input_ids": [ord(letter) for letter in text]}
        >>> sizes = {"vocab_size": 128, "n_embd": 8, "n_layer": 1, "n_head": 1, "n_positions": 48}
        >>> model = LanguageModel(GPT2LMHeadModel(GPT2Config(**sizes)), Letters())
        >>> texts = torch.randint(128, (12, 48))
        >>> prepared = prepare_memorisation(
        ...     model, texts[:8], texts[8:], epsilon=4.0, delta=1e-5, canaries=4, batch=6,
        ...     optimizer=lambda parameters: torch.optim.Adam(parameters, lr=1e-3),
        ... )
        >>> len(prepared.draw().references)
        12

    Source: dsi, Sec. 5.1 and Theorem 3.4.
    """
    if not isinstance(model, LanguageModel):
        raise ValueError(f"model: expected a LanguageModel, got {type(model).__name__}")
    if not callable(optimizer):
        raise ValueError(f"optimizer: expected a function, got {type(optimizer).__name__}")
    texts = choice("protect", protect, ("all", "canaries")) == "all"
    schedule = _schedule(learned, unseen, canaries, copies, batch, passes, order, model)
    length = learned.shape[1]
    plan = Plan(
        copies=copies,
        least=integer("least", least, minimum=1, maximum=integer("digits", digits, minimum=1)),
        samples=integer("samples", samples, minimum=2),
        following=integer("following", following, minimum=1, maximum=length - 1),
        prompt=length - following,
    )
    positive("epsilon", epsilon)
    settings = [_digest(learned), schedule, digits, protect, reduction]
    seed = CanarySeed(checkpoint, hashlib.sha256(repr(settings).encode()).hexdigest(), rng)
    drawn = Canaries.drawn(canaries, model.encode, digits=digits, rng=seed.source(0))
    task = Task.of(drawn, coins(canaries, seed.source(1)), learned, unseen, schedule, texts=texts)
    network, guessing = model.network, boolean("attack", attack)
    before = task.losses(network) if guessing else None
    loss: Loss = sequence_loss(reduction)
    names = [f"canary {i}" for i in range(canaries)]
    names += [f"sequence {i}" for i in range(len(learned))] if texts else []

    def fit(run: Indistinguishable) -> TrainingRelease:
        seed.keep(begun=run.charges > 0)
        with progress_bar(schedule.rounds, "training", shown=progress) as advance:
            advance(run.charges)
            for number in range(run.charges, schedule.rounds):
                task.step(run, number)
                advance(1)
        return _released(run, task, plan, before, tuple(notes))

    network.eval()
    if not any(parameter.requires_grad for parameter in network.parameters()):
        network.requires_grad_(True)
    return prepare_training(
        network, optimizer(_learning(network)), References.leave_out(names),
        loss=loss, fit=fit, rounds=schedule.rounds, participations=schedule.passes,
        epsilon=epsilon, delta=delta, gram=gram, noise=noise, checkpoint=checkpoint, rng=rng,
        description=f"a language model trained on {len(learned):,} sequences and "
        f"{canaries} canaries of {copies} copies",
        about=[learned, unseen, schedule, digits, protect, reduction],
    )  # fmt: skip


def _released(
    run: Indistinguishable, task: Task, plan: Plan, before: Array | None, beside: tuple[str, ...]
) -> TrainingRelease:
    found = attempted(lambda: _measured(run, task, plan, before))
    return run.release(
        f"a language model fine-tuned on {len(task.learned):,} sequences",
        attacks=found.attacks,
        use=found.use,
        notes=(*found.notes, *_notes(task), *beside),
    )


def _measured(run: Indistinguishable, task: Task, plan: Plan, before: Array | None) -> Measured:
    found = Memorisation.of(
        run.model, task.canaries, task.learned, task.unseen, plan, rng=MEASURING
    )
    mu, delta = float(run.budgets.mu.max()), run.delta
    attacks: list[Attack] = []
    told = found.notes(task.inside, mu)
    if before is not None and delta is not None:
        audit, attacks = guessed(before - task.losses(run.model), task.inside, delta)
        told.append(audit_note(audit, mu, gaussian_shift(mu).epsilon(delta), delta))
    return Measured(attacks=tuple(attacks), use=tuple(found.uses(task.inside)), notes=tuple(told))


def _notes(task: Task) -> list[str]:
    count, inside = len(task.canaries), int(task.inside.sum())
    return [
        f"{count} canaries of {task.schedule.copies} copies each were put among the sequences; "
        f"fair coins left {count - inside} of them out, and the noise covers those as if they were "
        "in. All copies of a canary are in one round of every pass and one reference together.",
        f"A reference leaves out one sequence of {task.learned.shape[1]} tokens. A document cut "
        "into k of them is k references: without all of it the distance is at most k times as "
        "large.",
        "What was measured of canaries, coins and sequences may not be published: it comes from "
        "the data without noise.",
    ]


def _schedule(
    learned: Any,
    unseen: Any,
    canaries: int,
    copies: int,
    batch: int,
    passes: int,
    order: int,
    model: LanguageModel,
) -> CanarySchedule:
    for name, rows in (("learned", learned), ("unseen", unseen)):
        if not isinstance(rows, torch.Tensor) or rows.ndim != 2 or rows.dtype != torch.int64:
            raise ValueError(f"{name}: expected int64 tokens of shape (n, L)")
        model.check_tokens(rows, name=name)
        if bool((rows < 0).any()):
            raise ValueError(f"{name}: expected sequences without padding")
    if learned.shape[1] != unseen.shape[1] or len(unseen) < 2:
        raise ValueError(
            f"unseen: expected at least 2 sequences of {learned.shape[1]} tokens, got "
            f"{tuple(unseen.shape)}"
        )
    size = integer("batch", batch, minimum=1)
    if len(learned) < size:
        raise ValueError(
            f"learned: expected at least the {size} sequences of a batch, got {len(learned)}"
        )
    return CanarySchedule(
        texts=len(learned),
        canaries=integer("canaries", canaries, minimum=2, maximum=MOST),
        copies=integer("copies", copies, minimum=1),
        batch=size,
        passes=integer("passes", passes, minimum=1),
        order=integer("order", order, minimum=0),
    )


def _learning(network: torch.nn.Module) -> list[torch.nn.Parameter]:
    return [parameter for parameter in network.parameters() if parameter.requires_grad]


def _digest(rows: torch.Tensor) -> str:
    return hashlib.sha256(rows.numpy().tobytes()).hexdigest()
