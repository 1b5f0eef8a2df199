"""The audit of one run: canaries in or out by a coin each, and how many coins the adapter tells."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from tacit._ground.checks import Array, boolean, integer
from tacit.adapters.methods import Method
from tacit.adapters.release import AdapterRelease
from tacit.adapters.tasks import (
    INPUTS,
    LABELS,
    MASK,
    TARGETS,
    TOKENS,
    Rows,
    check_records,
    records,
    vocabulary,
)
from tacit.adapters.workflow import prepare_adapter
from tacit.attacks import audit_one_run, coins, random_tokens
from tacit.attacks.intervals import proportion_interval
from tacit.guarantees import ApproximateDP
from tacit.measured import Interval
from tacit.releases.form import Attack
from tacit.text import number_down, number_up

CONFIDENCE = 0.95
# Canaries whose gradients are held in memory together.
TOGETHER = 16
LEAST = 4


def audit_adapter(
    model: nn.Module,
    data: Any,
    method: Method,
    *,
    canaries: Any = 64,
    keep: bool = False,
    rng: int | None = None,
    **settings: Any,
) -> AdapterRelease:
    """Train once with canaries of which coins left half out, and guess the coins.

    The attacker sees the model before and after training, A, and every canary. It scores a canary
    by ``−⟨G_i, ΔW⟩``, its own gradient before training against what the run added; the half of the
    higher scores is guessed in. What it gets bounds ε from below.

    Args:
        model: as `prepare_adapter` takes it.
        data: as `prepare_adapter` takes it.
        method: as `prepare_adapter` takes it.
        canaries: records like those of ``data``, or how many to make: uniform tokens, or Gaussian
            inputs with uniform classes.
        keep: leave the model trained, to measure more on it; it must not be trained on then.
        rng: a seed voids the guarantee of what is trained here, which is not published anyway.
        settings: the other arguments of `prepare_adapter`; nothing is saved.

    Returns:
        The release of the audited run, with the attacks and what they prove; the model is as it
        was, unless kept.

    Raises:
        ValueError: as `prepare_adapter`, or fewer than four canaries.

    Example:
        >>> from tacit.adapters import LoRAFA
        >>> head = torch.nn.Sequential(torch.nn.Linear(32, 4))
        >>> data = torch.randn(20, 32), torch.randint(4, (20,))
        >>> found = audit_adapter(head, data, LoRAFA(rank=16), canaries=32, steps=20)
        >>> found.attacks[0].success.value > 0.6
        True

    Source: Steinke, Nasr and Jagielski (2023), Algorithm 1.
    """
    if "save" in settings or "checkpoint" in settings:
        raise ValueError("save, checkpoint: expected none, an audited adapter has learned canaries")
    rows, kept = records(data), boolean("keep", keep)
    seed = None if rng is None else integer("rng", rng, minimum=0)
    made = _canaries(model, rows, canaries, seed)
    count = len(next(iter(made.values())))
    shapes = [{name: held.shape[1:] for name, held in part.items()} for part in (made, rows)]
    if count < LEAST or shapes[0] != shapes[1]:
        raise ValueError(
            f"canaries: expected at least {LEAST} records of the shapes of the data, got {count}"
        )
    inside = coins(count, seed)
    learned = {
        name: torch.cat([value, made[name][torch.from_numpy(inside)].to(value.dtype)])
        for name, value in rows.items()
    }
    given: Any = learned if TOKENS in learned else (learned[INPUTS], learned[TARGETS])
    prepared = prepare_adapter(model, given, method, rng=seed, **settings)
    scorer = _Scorer(prepared, made)
    try:
        release = prepared.draw()
        scores = scorer.scores()
    except BaseException:
        scorer.restore()
        raise
    if not kept:
        # what learned the canaries, and the records at no cost, stays nowhere
        scorer.restore()
    quarter, half, delta = max(1, count // 4), count // 2, release.delta or 1e-5
    audit = audit_one_run(scores, inside, top=quarter, bottom=quarter, delta=delta)
    whole = audit_one_run(scores, inside, top=half, bottom=count - half, delta=delta)
    told = next(one for one in release.guarantees if isinstance(one, ApproximateDP))
    headline = release.form.headline
    task = "which canaries were in" if headline is None else headline.task
    return replace(
        release,
        title=f"{release.title}, {int(inside.sum())} of {count} canaries among them",
        attacks=(_attack("gradient of a canary against what the run added", task, whole),),
        notes=(
            *release.notes,
            f"Audit of this one run: {audit.describe()} Certified: ε = {number_up(told.epsilon)} "
            f"at δ = {number_up(told.delta)}; proven from below: ε of at least "
            f"{number_down(audit.epsilon_low)} at δ = {number_up(delta)}.",
            "This adapter has learned canaries: it is for the audit and not for use.",
        ),
    )


class _Scorer:
    """Scores canaries by their gradients before training against what training added."""

    def __init__(self, prepared: Any, canaries: Rows) -> None:
        self._run = prepared.session.run
        start = {one.name: one.trained.detach().clone() for one in self._run.layers}
        check_records("canaries", self._run.model, self._run.task, canaries)
        self._attached = prepared.session.attached
        self._attached.on()
        own, self._run.rows = self._run.rows, canaries
        count = len(next(iter(canaries.values())))
        self._start, self._gradients = start, []
        try:
            for part in torch.split(torch.arange(count), TOGETHER):
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

    def scores(self) -> Array:
        """Return (m,): higher for those that look in."""
        changes: Mapping[str, Tensor] = {
            one.name: _oriented(one, one.trained.detach() - self._start[one.name]).cpu()
            for one in self._run.layers
        }
        parts = [
            -sum(
                torch.einsum("bpr,pr->b", value.double(), _matching(changes[name], value).double())
                for name, value in held.items()
            )
            for held in self._gradients
        ]
        return np.asarray(torch.cat(parts).numpy())  # type: ignore[arg-type]


def _oriented(layer: Any, change: Tensor) -> Tensor:
    return change.mT if layer.matrix_b is None and layer.transposed else change


def _matching(change: Tensor, gradient: Tensor) -> Tensor:
    if change.shape != gradient.shape[1:]:
        raise ValueError("method: expected one whose gradients are of what it trains, for an audit")
    return change


def _canaries(model: Any, rows: Rows, given: Any, seed: int | None) -> Rows:
    if not isinstance(given, int):
        return records(given)
    count = integer("canaries", given, minimum=LEAST)
    if TOKENS in rows:
        tokens = rows[TOKENS]
        drawn = torch.from_numpy(random_tokens(count, tokens.shape[1], vocabulary(model), rng=seed))
        made = {TOKENS: drawn}
        if MASK in rows:
            made[MASK] = torch.ones_like(drawn)
        if LABELS in rows:
            made[LABELS] = _labels_like(rows[LABELS], drawn, seed)
        return made
    source = np.random.default_rng(seed)
    inputs, targets = rows[INPUTS], rows[TARGETS]
    scale, middle = inputs.double().std(), inputs.double().mean()
    noise = torch.from_numpy(source.standard_normal((count, *inputs.shape[1:])))
    drawn = (middle + scale * noise).to(inputs.dtype)
    return {INPUTS: drawn, TARGETS: _drawn(targets, count, source)}


def _drawn(targets: Tensor, count: int, source: np.random.Generator) -> Tensor:
    """Return targets at random, among those that are there."""
    return targets[torch.from_numpy(source.integers(len(targets), size=count))]


def _labels_like(labels: Tensor, drawn: Tensor, seed: int | None) -> Tensor:
    source = np.random.default_rng(None if seed is None else seed + 1)
    if labels.ndim == 1:
        return _drawn(labels, len(drawn), source)
    # of a masked model: the canary's tokens at the places of some record
    places = labels[torch.from_numpy(source.integers(len(labels), size=len(drawn)))] != -100
    return drawn.masked_fill(~places, -100)


def _attack(name: str, task: str, audit: Any) -> Attack:
    low, high = proportion_interval(audit.right, audit.guesses, CONFIDENCE)
    return Attack(
        name=name,
        task=task,
        success=Interval(
            value=audit.right / audit.guesses, low=low, high=high, confidence=CONFIDENCE
        ),
        prior=0.5,
        trials=audit.guesses,
    )
