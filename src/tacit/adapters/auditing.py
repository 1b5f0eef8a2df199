"""The audit of one run: canaries in or out by a coin each, and how many coins the adapter tells."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from tacit._ground.checks import Array, integer
from tacit._ground.values import value
from tacit.accounting import PrivacyProfile
from tacit.adapters.release import AUDITED, UNPROTECTED, TrainedAdapter
from tacit.adapters.settings import AdaptedLayers, GivenNoise, TrainingRecords
from tacit.adapters.tasks import (
    INPUTS,
    LABELS,
    MASK,
    TARGETS,
    TOKENS,
    Rows,
    check_records,
    records,
    select,
    vocabulary,
)
from tacit.adapters.workflow import AS_USUAL, prepare_adapter
from tacit.attacks import OneRunAudit, audit_one_run, coins, random_tokens
from tacit.attacks.intervals import proportion_interval
from tacit.gradients.steps import Method
from tacit.guarantees import ApproximateDP
from tacit.measured import Interval
from tacit.releases import Attack, Release, Table
from tacit.runs.run import Run
from tacit.text import number_down, number_up

CONFIDENCE, AUDITED_DELTA = 0.95, 1e-5
# Of a profile that is tested as a whole; more noise that is tried, and how finely.
POINTS = np.concatenate([np.linspace(0.0, 4.0, 33), np.linspace(4.5, 16.0, 24)])
MOST_NOISE, HALVINGS = 32.0, 5
# Canaries whose gradients are held in memory together.
TOGETHER = 16
LEAST = 4


@value
class CanaryAudit:
    """How a run is audited.

    Args:
        canaries: Records like those of the data, or how many to make: uniform tokens, or Gaussian
            inputs with uniform classes. Fair coins leave half out.
        keep: Leave the model trained, to measure more on it; it must not be trained on then.
    """

    canaries: Any = 64
    keep: bool = False


AUDIT = CanaryAudit()


def audit_adapter(
    model: nn.Module | AdaptedLayers,
    data: Any,
    method: Method,
    promise: Table | GivenNoise | None = None,
    run: Run = AS_USUAL,
    *,
    audit: CanaryAudit = AUDIT,
    rng: int | None = None,
    **options: Any,
) -> Release[TrainedAdapter]:
    """Train once with canaries of which coins left half out, and guess the coins.

    The attacker sees the model before and after training, A, and every canary. Two scores: by how
    much the canary's loss fell, and ``−⟨G_i, ΔW⟩``, its gradient before training against what the
    run added. The half of the higher scores is guessed in. The surest eighths, quarters and halves
    of the guesses, fixed beforehand, bound μ and ε from below, for both scores at once with
    confidence 95%. The certified profile is tested as a whole, at this noise and at more: the ε at
    the least noise that is refuted is what the run surely spends if its profile is of that family.

    Args:
        model: as `prepare_adapter` takes it.
        data: as `prepare_adapter` takes it.
        method: as `prepare_adapter` takes it.
        promise: as `prepare_adapter` takes it.
        run: as `prepare_adapter` takes it; nothing is stored.
        audit: the canaries.
        rng: a seed voids the guarantee of what is trained here, which is not published anyway.
        options: the other arguments of `prepare_adapter`; nothing is saved.

    Returns:
        The release of the audited run, with the attacks and what they prove; the model is as it
        was, unless kept.

    Raises:
        ValueError: as `prepare_adapter`, or fewer than four canaries.

    Example:
        >>> from tacit.adapters import LoRAFA
        >>> head = torch.nn.Sequential(torch.nn.Linear(256, 4))
        >>> data = torch.randn(20, 256), torch.randint(4, (20,))
        >>> found = audit_adapter(
        ...     head, data, LoRAFA(rank=128), run=Run(steps=80), audit=CanaryAudit(canaries=48)
        ... )
        >>> max(attack.success.value for attack in found.attacks) > 0.6
        True

    Source: Steinke, Nasr and Jagielski (2023), Algorithm 1.
    """
    if "save" in options or run.checkpoint is not None:
        raise ValueError("save, checkpoint: expected none, an audited adapter has learned canaries")
    given = data if isinstance(data, TrainingRecords) else TrainingRecords(data=data)
    rows, seed = records(given.data), None if rng is None else integer("rng", rng, minimum=0)
    network = model.model if isinstance(model, AdaptedLayers) else model
    # m records that nobody has
    made = _canaries(network, rows, audit.canaries, seed)
    count = len(next(iter(made.values())))
    shapes = [{name: held.shape[1:] for name, held in part.items()} for part in (made, rows)]
    if count < LEAST or shapes[0] != shapes[1]:
        raise ValueError(
            f"canaries: expected at least {LEAST} records of the shapes of the data, got {count}"
        )
    inside = coins(count, seed)
    learned = {
        name: torch.cat([held, made[name][torch.from_numpy(inside)].to(held.dtype)])
        for name, held in rows.items()
    }
    whole: Any = learned if TOKENS in learned else (learned[INPUTS], learned[TARGETS])
    given = replace(given, data=whole)
    # records and the canaries whose coin said in
    prepared = prepare_adapter(model, given, method, promise, run, rng=seed, **options)
    # losses and gradients before training
    scorer = _Scorer(prepared, made)
    try:
        release = prepared.draw()
        scores = scorer.scores()
    except BaseException:
        scorer.restore()
        raise
    if not audit.keep:
        # what learned the canaries, and the records at no cost, stays nowhere
        scorer.restore()
    delta = release.details.delta or AUDITED_DELTA
    # both attackers, all coins and the surest ones
    guesses = {name: _Guesses.of(values, inside, delta) for name, values in scores.items()}
    best = max((one.sure for one in guesses.values()), key=lambda one: one.mu_low)
    certified = next(one for one in release.guarantees if isinstance(one, ApproximateDP))
    task = "which canaries were in" if release.headline is None else release.headline.task
    family = _family_words(release.details, [one.sure for one in guesses.values()], delta)
    return replace(
        release,
        title=f"{release.title}, {int(inside.sum())} of {count} canaries among them",
        withheld=UNPROTECTED if release.withheld else AUDITED,
        attacks=tuple(_attack(name, task, one.whole) for name, one in guesses.items()),
        remarks=(
            *release.remarks,
            f"Audit of this one run: {best.describe()} Certified: ε = "
            f"{number_up(certified.epsilon)} at δ = {number_up(certified.delta)}; proven from "
            f"below: ε of at least {number_down(best.epsilon_low)} at δ = {number_up(delta)}"
            f"{family}. At most ε = "
            f"{number_down(best.most_epsilon)} could be proven by {best.canaries} canaries, if "
            "every guess were right.",
            AUDITED,
        ),
    )


@dataclass(frozen=True)
class _Guesses:
    """Guesses of all coins, and of those that the attacker is surest of."""

    whole: OneRunAudit
    sure: OneRunAudit

    @staticmethod
    def of(scores: Array, inside: Any, delta: float) -> _Guesses:
        """Guess by scores; two of these bounds hold together with confidence 95%."""
        count = len(inside)
        half = count // 2
        # an eighth, a quarter, a half of the guesses: fixed beforehand
        parts = sorted({max(1, count // 8), max(1, count // 4), half})
        # two bounds hold together
        both = 1.0 - (1.0 - CONFIDENCE) / 2

        def audited(top: list[int], bottom: list[int]) -> OneRunAudit:
            return audit_one_run(
                scores, inside, top=top, bottom=bottom, delta=delta, confidence=both
            )

        return _Guesses(audited([half], [count - half]), audited(parts, parts))


def _family_words(details: TrainedAdapter, audits: list[OneRunAudit], delta: float) -> str:
    """Return which ε the run surely spends, by the least noise whose whole profile is refuted."""
    if not details.noise_multiplier:
        return ""
    method = details.method

    def profile(scale: float) -> PrivacyProfile:
        return method.profile(details.noise_multiplier * scale, details.schedule)

    def refuted(scale: float) -> bool:
        held = profile(scale)
        deltas = np.array([held.delta(float(epsilon)) for epsilon in POINTS])
        # the whole profile at once, and not one ε
        return any(audit.refutes(POINTS, deltas) for audit in audits)

    if refuted(1.0):
        return "; THE CERTIFIED PROFILE IS REFUTED"
    # a multiple of the noise that stays, and one that is refuted
    kept, gone = 1.0, MOST_NOISE
    if not refuted(gone):
        return ""
    for _ in range(HALVINGS):
        # bisection on a logarithmic scale
        middle = (kept * gone) ** 0.5
        kept, gone = (kept, middle) if refuted(middle) else (middle, gone)
    least = number_down(profile(gone).epsilon(delta))
    return f", and of at least {least} if its profile is that of {method.name} at some noise"


class _Scorer:
    """Scores canaries by their losses and gradients before training and what training did."""

    def __init__(self, prepared: Any, canaries: Rows) -> None:
        self._run, self._canaries = prepared.run.steps, canaries
        self._parts = torch.split(torch.arange(len(next(iter(canaries.values())))), TOGETHER)
        self._start = {one.name: one.trained.detach().clone() for one in self._run.layers}
        check_records("canaries", self._run.model, self._run.task, canaries)
        self._attached = prepared.run.attached
        self._attached.on()
        self._losses = self._measure()
        own, self._run.rows = self._run.rows, canaries
        self._gradients = []
        try:
            for part in self._parts:
                held = self._run.gradients(part).gradients()
                self._gradients.append({name: value.cpu() for name, value in held.items()})
        except BaseException:
            self._attached.off()
            raise
        finally:
            self._run.rows = own

    def restore(self) -> None:
        """Leave the model as it was before training."""
        self._attached.off()
        with torch.no_grad():
            for layer in self._run.layers:
                layer.trained.copy_(self._start[layer.name])

    def scores(self) -> dict[str, Array]:
        """Return (m,) for each attacker: higher for those that look in."""
        # ΔW, or ΔB
        changes: Mapping[str, Tensor] = {
            one.name: _orient(one, one.trained.detach() - self._start[one.name]).cpu()
            for one in self._run.layers
        }
        along = [
            sum(
                (
                    # ⟨G_i, ΔW⟩ of every layer
                    torch.einsum("bpr,pr->b", value.double(), changes[name].double())
                    for name, value in held.items()
                    if changes[name].shape == value.shape[1:]
                ),
                torch.zeros(1, dtype=torch.float64),
            )
            for held in self._gradients
        ]
        found = {"fall of a canary's loss": self._losses - self._measure()}
        # descent moves against gradients of records that were in
        overlap = -torch.cat(along).numpy()
        if overlap.size == self._losses.size:
            found["gradient of a canary against what the run added"] = overlap
        return found

    def _measure(self) -> Array:
        run, found = self._run, []
        with torch.no_grad():
            for part in self._parts:
                rows = select(self._canaries, part, run.device)
                found.append(run.task.losses(run.task.outputs(run.model, rows), rows))
        return np.asarray(torch.cat(found).double().cpu().numpy())


def _orient(layer: Any, change: Tensor) -> Tensor:
    return change.mT if layer.matrix_b is None and layer.transposed else change


def _canaries(model: Any, rows: Rows, given: Any, seed: int | None) -> Rows:
    if not isinstance(given, int):
        return records(given)
    count = integer("canaries", given, minimum=LEAST)
    if TOKENS in rows:
        tokens = rows[TOKENS]
        # uniform tokens: no model has seen them
        drawn = torch.from_numpy(random_tokens(count, tokens.shape[1], vocabulary(model), rng=seed))
        made = {TOKENS: drawn}
        if MASK in rows:
            made[MASK] = torch.ones_like(drawn)
        if LABELS in rows:
            made[LABELS] = _labels_like(rows[LABELS], drawn, seed)
        return made
    source = np.random.default_rng(seed)
    inputs, targets = rows[INPUTS], rows[TARGETS]
    # Gaussian inputs of the size of the records'
    scale, middle = inputs.double().std(), inputs.double().mean()
    noise = torch.from_numpy(source.standard_normal((count, *inputs.shape[1:])))
    drawn = (middle + scale * noise).to(inputs.dtype)
    return {INPUTS: drawn, TARGETS: _draw_targets(targets, count, source)}


def _draw_targets(targets: Tensor, count: int, source: np.random.Generator) -> Tensor:
    """Return targets at random, among those that are there."""
    return targets[torch.from_numpy(source.integers(len(targets), size=count))]


def _labels_like(labels: Tensor, drawn: Tensor, seed: int | None) -> Tensor:
    source = np.random.default_rng(None if seed is None else seed + 1)
    if labels.ndim == 1:
        return _draw_targets(labels, len(drawn), source)
    # of a masked model: the canary's tokens at the places of some record
    places = labels[torch.from_numpy(source.integers(len(labels), size=len(drawn)))] != -100
    return drawn.masked_fill(~places, -100)


def _attack(name: str, task: str, audit: OneRunAudit) -> Attack:
    # of two scores the better is told first: both intervals hold together
    low, high = proportion_interval(audit.right, audit.guesses, audit.confidence)
    return Attack(
        name=name,
        task=task,
        success=Interval(audit.right / audit.guesses, low, high, confidence=audit.confidence),
        prior=0.5,
        trials=audit.guesses,
    )
