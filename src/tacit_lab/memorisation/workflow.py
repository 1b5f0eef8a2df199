"""Fine-tune a language model beside safe references, with canaries that say what it keeps."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Annotated, Any, Literal

import numpy as np
import numpy.typing as npt
import torch

from tacit._ground.checks import Array, RandomSource, positive
from tacit._ground.values import Count, Within, value
from tacit.accounting import gaussian_shift
from tacit.attacks import OneRunAudit, audit_one_run, coins
from tacit.attacks.intervals import chernoff_interval
from tacit.measured import Interval
from tacit.models import LanguageModel
from tacit.releases import Attack, Release, Use
from tacit.runs.identity import identity
from tacit.runs.run import Run, check_run
from tacit.text import number_down, number_up, share_nearest, share_up
from tacit.training.account import Beside
from tacit.training.bounded import bounded_probability
from tacit.training.indistinguishable import ONE_STEP, Indistinguishable
from tacit.training.prepared import Measurements, PreparedTraining, attempt, prepare_training
from tacit.training.references import References
from tacit.training.release import GUESS, TrainedModel
from tacit.training.retraining import CONFIDENCE, TrainingRecipe, mean_of, share_of
from tacit.training.rounds import OneStep
from tacit_lab.memorisation.canaries import MOST, Canaries, CanarySchedule, CanarySeed
from tacit_lab.memorisation.exposure import (
    Exposures,
    exact_memorisation,
    exposures,
    losses,
    sequence_loss,
)

Flags = npt.NDArray[np.bool_]
# e^700 is a double, e^710 is none.
LARGEST_NATS = 700.0
# What is guessed where the attacker may pass over the canaries it is unsure of.
SUREST = "the coins of the canaries whose loss fell most and least"
# Of the draws that measure: they say nothing of coins or noise.
MEASURING = 0
# What of a run these rounds read; their number follows from the passes.
READ = ("passes", "checkpoint", "about")
ONE_PASS = Run(passes=1, progress=False)


@value
class Sequences:
    """Sequences of tokens to learn from, and others that nothing is learned from.

    Args:
        learned: (n, L) tokens to learn from.
        unseen: (u, L) tokens that nothing is learned from, known to everybody.
        batch: Examples in a round.
        reduction: mean or sum of the losses of a sequence's tokens.
        protect: all: every sequence is a reference too; or canaries.
        order: Seed of the shuffles; it must not depend on the data.
        remarks: What the holder of the release should know of them.
    """

    learned: Any
    unseen: Any
    batch: Count = 32
    reduction: Literal["mean", "sum"] = "mean"
    protect: Literal["all", "canaries"] = "all"
    order: Annotated[int, Within(0, ends="[)")] = 0
    remarks: tuple[str, ...] = ()


@value
class MemorisationPlan:
    """Canaries that are put among what is learned, and what is measured of them.

    Args:
        canaries: Canaries m; a coin decides which are learned from.
        copies: Copies of a canary, in one round of every pass.
        digits: Digits of a secret.
        least: Digits that must come out right for a canary to be exposed.
        following: Tokens at the end of a sequence that must come out greedily after the others for
            it to be memorised exactly.
        samples: Secrets that are drawn from the model for each canary, and as many uniform ones.
        audit: Whether to guess the coins and audit the run.
    """

    canaries: Annotated[int, Within(2, MOST, "[]")] = 32
    copies: Count = 1
    digits: Annotated[int, Within(1, 9, "[]")] = 6
    least: Count = 4
    following: Count = 5
    samples: Annotated[int, Within(2, ends="[)")] = 128
    audit: bool = True

    def _together(self) -> None:
        if self.least > self.digits:
            raise ValueError(
                f"least: expected at most the {self.digits} digits there are, got {self.least}"
            )


AS_PUBLISHED = MemorisationPlan()


def prepare_memorisation(
    recipe: TrainingRecipe,
    sequences: Sequences,
    promise: Beside,
    run: Run = ONE_PASS,
    *,
    plan: MemorisationPlan = AS_PUBLISHED,
    method: OneStep = ONE_STEP,
    rng: int | None = None,
) -> PreparedTraining:
    """Certify fine-tuning in which no canary and no sequence of L tokens moves the model beyond ε.

    Fair coins decide which canaries are learned from; the noise covers them all. Exposure is
    measured on those in, and on those out under the law that the certificate compares with, so
    that ``P(exposed | in) <= Φ(Φ⁻¹(P(exposed | out)) + μ)`` is told beside it.

    Args:
        recipe: a ``LanguageModel`` with a tokenizer, its parameters in float32, and its optimizer;
            the loss is the sequences'. It is trained in place in evaluation mode, in which dropout
            does not act. Frozen parameters stay as they are; one that is frozen throughout, as
            ``models.load`` gives it, is trained whole.
        sequences: what is learned from, and what is unseen.
        promise: ε > 0 and δ beside each reference; all copies of a canary are one.
        run: passes over the data, and the folder that survives a crash.
        plan: canaries, and what is measured.
        method: what the noise is shaped by.
        rng: a seed voids the guarantee.

    Returns:
        The prepared run; ``draw()`` trains, measures and returns the release.

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
        ...     TrainingRecipe(model=model, optimizer=lambda p: torch.optim.Adam(p, lr=1e-3)),
        ...     Sequences(learned=texts[:8], unseen=texts[8:], batch=6),
        ...     Beside(epsilon=4.0, delta=1e-5), plan=MemorisationPlan(canaries=4),
        ... )
        >>> len(prepared.draw().details.references)
        12

    Source: dsi, Sec. 5.1 and Theorem 3.4.
    """
    model, loss = recipe.model, recipe.loss
    if not isinstance(model, LanguageModel):
        raise ValueError(f"model: expected a LanguageModel, got {type(model).__name__}")
    if loss is not None:
        raise ValueError("loss: expected None, as that of the sequences is taken, got another")
    passes = check_run(run, READ).lasting(passes=1).passes
    # shapes and sizes are checked, and rounds follow
    schedule = _schedule(model, sequences, plan, passes or 1)
    learned, unseen = sequences.learned, sequences.unseen
    if plan.following >= learned.shape[1]:
        raise ValueError(
            f"following: expected fewer than the {learned.shape[1]} tokens of a sequence, got "
            f"{plan.following}"
        )
    positive("epsilon", promise.epsilon)
    settings = (schedule, plan.digits, sequences.protect, sequences.reduction)
    texts = sequences.protect == "all"
    # all copies of a canary are one reference, every sequence is one
    names = [f"canary {i}" for i in range(plan.canaries)]
    names += [f"sequence {i}" for i in range(len(learned))] if texts else []
    # a reference takes part once a pass
    beside = replace(
        promise, references=References.leave_out(names), participations=schedule.passes
    )
    # of a run that goes on, its own
    seed = CanarySeed(run.checkpoint, identity(learned, *settings), rng)
    drawn = Canaries.draw(plan.canaries, model.encode, digits=plan.digits, rng=seed.source(0))
    # fair coins decide which canaries are learned from
    inside = coins(plan.canaries, seed.source(1))
    task = CanaryTask.of(drawn, inside, learned, unseen, schedule, texts=texts)
    network = model.network
    # the fall of a canary's loss is from here
    before = task.losses(network) if plan.audit else None

    def fit(rounds: Indistinguishable) -> Release[TrainedModel]:
        # on the disk before the first round
        seed.keep(begun=rounds.charges > 0)
        for number in rounds.rounds_left():
            task.step(rounds, number)
        found = attempt(lambda: _measure(rounds, task, plan, before))
        return rounds.release(
            f"a language model fine-tuned on {len(learned):,} sequences",
            attacks=found.attacks,
            use=found.use,
            remarks=(*found.remarks, *_remarks(task), *sequences.remarks),
        )

    # no dropout: every example has the same network
    network.eval()
    if not any(parameter.requires_grad for parameter in network.parameters()):
        network.requires_grad_(True)
    trained = [parameter for parameter in network.parameters() if parameter.requires_grad]
    about = (learned, unseen, *settings, run.about)
    rounds = Indistinguishable(
        network,
        recipe.optimizer(trained),
        beside,
        loss=sequence_loss(sequences.reduction),
        method=method,
        run=replace(run, passes=None, steps=schedule.rounds, about=about),
        rng=rng,
    )
    return prepare_training(
        rounds,
        fit,
        description=f"a language model trained on {len(learned):,} sequences and "
        f"{plan.canaries} canaries of {plan.copies} copies",
    )


@dataclass(frozen=True, kw_only=True, eq=False)
class CanaryTask:
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
    ) -> CanaryTask:
        """Put the copies of the canaries behind the texts.

        Args:
            canaries: m of them.
            inside: (m,) the coins.
            learned: (n, L).
            unseen: (u, L).
            schedule: of n texts and m canaries.
            texts: whether every text is a reference of its own.
        """
        # (m, L)
        inputs, targets = canaries.sequences(learned.shape[1])
        groups = schedule.groups(texts=texts)
        present = torch.ones(len(groups), dtype=torch.bool).numpy()
        # v copies behind the texts
        copied = torch.arange(len(canaries)).repeat_interleave(schedule.copies)
        # copies of a canary that a coin left out are in no gradient
        present[schedule.texts :] = inside[copied.numpy()]
        return CanaryTask(
            canaries=canaries,
            inside=inside,
            learned=learned,
            unseen=unseen,
            schedule=schedule,
            inputs=torch.cat([learned, inputs[copied]]),
            targets=torch.cat([learned, targets[copied]]),
            groups=groups,
            present=present,
        )

    def losses(self, network: torch.nn.Module) -> Array:
        """Return the mean loss of each canary."""
        return losses(network, *self.canaries.sequences(self.learned.shape[1]))

    def step(self, run: Indistinguishable, number: int) -> None:
        """Run one round."""
        examples = self.schedule.examples(number)
        chosen = torch.from_numpy(examples)
        run.step(
            (self.inputs[chosen], self.targets[chosen]),
            self.groups[examples],
            inside=self.present[examples],
        )


def _measure(
    run: Indistinguishable, task: CanaryTask, plan: MemorisationPlan, before: Array | None
) -> Measurements:
    # recovery, exposure, perplexity of the released model
    found = Memorisation.of(
        run.model, task.canaries, task.learned, task.unseen, plan, rng=MEASURING
    )
    mu, delta = float(run.budgets.mu.max()), run.delta
    attacks: list[Attack] = []
    remarks = found.remarks(task.inside, mu)
    if before is not None and delta is not None:
        # what the canaries of this one run prove from below
        audit, attacks = coin_guesses(before - task.losses(run.model), task.inside, delta)
        remarks.append(audit_remark(audit, mu, gaussian_shift(mu).epsilon(delta), delta))
    uses = tuple(found.uses(task.inside))
    return Measurements(attacks=tuple(attacks), use=uses, remarks=tuple(remarks))


def _remarks(task: CanaryTask) -> list[str]:
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
    model: LanguageModel, sequences: Sequences, plan: MemorisationPlan, passes: int
) -> CanarySchedule:
    learned, unseen = sequences.learned, sequences.unseen
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
    if len(learned) < sequences.batch:
        raise ValueError(
            f"learned: expected at least the {sequences.batch} sequences of a batch, got "
            f"{len(learned)}"
        )
    return CanarySchedule(
        texts=len(learned),
        canaries=plan.canaries,
        copies=plan.copies,
        batch=sequences.batch,
        passes=passes,
        order=sequences.order,
    )


@dataclass(frozen=True, kw_only=True, eq=False)
class Memorisation:
    """What was measured of one model.

    Attributes:
        plan: what was measured.
        prompt: tokens of a sequence that were given.
        perplexity: of unseen sequences.
        exposures: of every canary.
        learned: which learned sequences come out greedily.
        unseen: which unseen ones do.
    """

    plan: MemorisationPlan
    prompt: int
    perplexity: Interval
    exposures: Exposures
    learned: Flags
    unseen: Flags

    @staticmethod
    def of(
        network: torch.nn.Module,
        canaries: Canaries,
        learned: torch.Tensor,
        unseen: torch.Tensor,
        plan: MemorisationPlan,
        rng: RandomSource = None,
    ) -> Memorisation:
        """Measure a model, training being over.

        Args:
            network: a causal ``transformers`` model.
            canaries: in and out.
            learned: (n, L) sequences that were learned from.
            unseen: (u, L) others.
            plan: what to measure.
            rng: of the digits that are drawn.
        """
        # the tokens before the last c
        prompt = learned.shape[1] - plan.following
        kept = [
            exact_memorisation(network, rows, prompt=prompt, following=plan.following)
            for rows in (learned, unseen)
        ]
        # mean loss of unseen sequences, nats a token
        mean = mean_of(losses(network, unseen, unseen))
        return Memorisation(
            plan=plan,
            prompt=prompt,
            perplexity=Interval(
                value=_exp(mean.value),
                low=_exp(mean.low),
                high=_exp(mean.high),
                confidence=mean.confidence,
            ),
            exposures=exposures(network, canaries, least=plan.least, samples=plan.samples, rng=rng),
            learned=kept[0],
            unseen=kept[1],
        )

    def uses(self, inside: Flags) -> list[Use]:
        """Return perplexity, exposures of the canaries in and out, and exact memorisation.

        Args:
            inside: (m,) which canaries were learned from.
        """
        plan = self.plan
        uses = [_use("perplexity of unseen sequences", "tokens", self.perplexity)]
        for side, chosen in (("learned", inside), ("left out", ~inside)):
            if not chosen.any():
                continue
            name = f"({plan.copies}, {plan.least})-exposure of canaries {side}"
            uses.append(_use(name, "share", mean_share(self.exposures.recovered[chosen])))
            if chosen.sum() < 2:
                continue  # no interval comes from one
            bits = mean_of(self.exposures.bits[chosen])
            uses.append(_use(f"exposure of canaries {side}", "bits", bits))
        for side, flags in (("learned", self.learned), ("unseen", self.unseen)):
            name = f"({self.prompt}, {plan.following})-exact memorisation of {side} sequences"
            uses.append(_use(name, "share", share_of(int(flags.sum()), flags.size)))
        return uses

    def reference(self, inside: Flags) -> Interval | None:
        """Return P0: exposure under the references, with the noise of the run; None if unmeasured.

        Args:
            inside: (m,) which canaries were learned from.
        """
        # canaries that were left out come out by the reference's law
        out = self.exposures.recovered[~inside]
        return mean_share(out) if out.size else None

    def remarks(self, inside: Flags, mu: float) -> list[str]:
        """Say what exposure is, and the bound on it beside what was measured.

        Args:
            inside: (m,) which canaries were learned from.
            mu: μ of a canary.
        """
        plan, reference = self.plan, self.reference(inside)
        remarks = [
            f"A canary of {plan.copies} copies is exposed where at least {plan.least} digits of "
            "its secret come out right when digits are drawn behind its prompt, each in proportion "
            "to the model's likelihoods of the ten. Exposure in bits is log2 of the number of "
            "secrets less log2 of the rank, which is estimated from "
            f"{2 * plan.samples} secrets and errs towards too many bits."
        ]
        if reference is None:
            return [*remarks, "No coin left a canary out, so that P0 was not measured."]
        # the bound is from the upper end, so that P0 is not believed too small
        low, high = reference.value, reference.high
        remarks.append(
            f"Canaries that a coin left out, {int((~inside).sum())} of them, were exposed with "
            f"probability {share_nearest(low)}, at most P0 = {share_up(high)} (upper end at "
            f"{CONFIDENCE:.0%}), with the noise of this run either way. One that was learned from "
            f"is then exposed with probability at most Φ(Φ⁻¹(P0) + {number_up(mu)}) = "
            f"{share_up(bounded_probability(high, mu))}, in the mean over canaries. P0 is a "
            "measurement whose interval takes canaries as independent, though they share a run's "
            "noise. The bound holds with that confidence only as far as they are independent, and "
            "it is no theorem."
        )
        return remarks


def _exp(nats: float) -> float:
    """Return e^x, the largest number where that is more than a float holds."""
    return math.exp(min(nats, LARGEST_NATS))


def mean_share(values: Array) -> Interval:
    """Return the mean of independent values in [0, 1] of different laws, by Chernoff's bound."""
    mean = float(np.clip(values.mean(), 0.0, 1.0))
    # values in [0, 1] of different laws: no variance is assumed
    low, high = chernoff_interval(mean, values.size, CONFIDENCE)
    return Interval(value=mean, low=min(low, mean), high=max(high, mean), confidence=CONFIDENCE)


def coin_guesses(scores: Array, inside: Flags, delta: float) -> tuple[OneRunAudit, list[Attack]]:
    """Guess the coins by how far each canary's loss fell.

    A quarter of the canaries is guessed in and a quarter out, fixed beforehand, for the audit; the
    half of the higher scores in and the others out, for the success in the certified game.

    Args:
        scores: (m,) by how much the loss fell, higher for canaries that look in.
        inside: (m,) the coins.
        delta: δ of the audit's ε.
    """
    count = len(inside)
    # fixed before any score is seen
    quarter, half = max(1, count // 4), count // 2
    # the surest half of the guesses proves most
    audit = audit_one_run(scores, inside, top=quarter, bottom=quarter, delta=delta)
    # all coins: the certified game
    whole = audit_one_run(scores, inside, top=half, bottom=count - half, delta=delta)
    return audit, [
        _attack("fall of a canary's loss", GUESS, whole),
        _attack("fall of a canary's loss, the surest half", SUREST, audit),
    ]


def audit_remark(audit: OneRunAudit, mu: float, epsilon: float, delta: float) -> str:
    """Say what the audit proves from below, beside what is certified."""
    return (
        f"Audit of this one run: {audit.describe()} By the Gaussian curve, ε is at least "
        f"{number_down(audit.gaussian_epsilon_low)}. Certified for a canary: μ = {number_up(mu)} "
        f"and ε = {number_up(epsilon)} at δ = {number_up(delta)}."
    )


def _attack(name: str, task: str, audit: OneRunAudit) -> Attack:
    return Attack(
        name=name,
        task=task,
        success=share_of(audit.right, audit.guesses),
        prior=0.5,
        trials=audit.guesses,
    )


def _use(name: str, unit: str, measured: Interval) -> Use:
    return Use(name=name, unit=unit, better="lower", measured=measured)
