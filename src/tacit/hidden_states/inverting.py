"""Put an inverter to what a layer's release leaves of prompts, and measure what it reads."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from tacit.attacks.exact.channels import CodeChannel
from tacit.attacks.inversion.attack import attack_inversion
from tacit.attacks.inversion.inverters import Inverter, TrajectoryInverter
from tacit.attacks.inversion.learned.inverter import StateInverter
from tacit.attacks.inversion.learned.released import (
    MappedChannel,
    StateRelease,
    states_of,
    trajectories_of,
)
from tacit.attacks.inversion.learned.sequence import SequenceInverter
from tacit.attacks.inversion.learned.verification import VerifiedInverter
from tacit.attacks.inversion.probe import TokenProbe
from tacit.covariance import Isotropic
from tacit.hidden_states.attack_methods import (
    CLEAN,
    INVERTER,
    TRAINING_FREE,
    InversionPrompts,
    LayerInverter,
    StateMechanism,
)
from tacit.hidden_states.attacked import state_release
from tacit.hidden_states.codebooks.codec import Codec
from tacit.hidden_states.defences.stored import StoredRelease
from tacit.hidden_states.defences.values import Rotation
from tacit.hidden_states.inversions import (
    FixedRelease,
    InversionEvidence,
    InverterTraining,
    inversion_release,
)
from tacit.hidden_states.origin import digest_of, tokens_digest
from tacit.models.language import LanguageModel
from tacit.models.next_states import as_tokens
from tacit.models.texts.prefixes import standing_in
from tacit.releases import Release

CLEAN_STATES = StateMechanism()
MEASURED_TOGETHER = 64
# Prefixes that the training-free decoder keeps
BEAM = 3
# Of a law that stands for no noise: the floor for the rounding of states is larger.
LEAST_VARIANCE = 1e-9


def invert_layer(
    model: LanguageModel,
    layer: int,
    prompts: InversionPrompts,
    released: StateMechanism = CLEAN_STATES,
    inverter: LayerInverter = INVERTER,
    *,
    seed: int = 0,
    progress: bool | None = None,
) -> Release[InversionEvidence]:
    """Put an inverter to the releases of one layer's states, and measure what it reads back.

    Args:
        model: the language model.
        layer: 1 … L.
        prompts: those attacked, and what the attacker may learn from.
        released: what is released of them, as for ``state_release``; of all positions the prompts
            are of one length.
        inverter: the attacker, a network or the decoder that computes the states of candidates.
        seed: of prompts, draws and training.
        progress: whether a bar is shown.

    Raises:
        ValueError: as ``state_release``, ``StateInverter.train`` and ``attack_inversion``, or fewer
            than two prompts do not stand in the stream.
    """
    inverter.check(released)
    everywhere = released.everywhere
    tokens, learnt = _unseen(model.check_tokens(prompts.secret, name="secret"), prompts, everywhere)
    public = model.check_tokens(prompts.public, name="public")
    release = state_release(model, layer, public, released, rng=seed)
    checked = replace(prompts, secret=tokens, public=public)
    attacker, training = _attacker(
        model, layer, checked, release, inverter, everywhere, seed=seed, progress=progress
    )
    same = public.shape[1] == tokens.shape[1]
    if inverter.verify and isinstance(attacker, StateInverter):
        attacker = VerifiedInverter(attacker, bank=public if same else None)
    drawn, read = _drawn(model, layer, tokens, release, everywhere, seed)
    names = ("permuted", "zeroed", "majority", *(("nearest",) if same else ()))
    found = attack_inversion(attacker, drawn, tokens, public, baselines=names, rng=seed)
    clean = released.mechanism == CLEAN
    details = InversionEvidence(
        attacker=found.attacker,
        knows=found.knows,
        mechanism=_told(released.mechanism, release),
        release=_fixed(release, released),
        model=model.name,
        layer=layer,
        positions=released.positions,
        length=tokens.shape[1],
        recovery=found.recovery,
        baselines=found.baselines,
        queries=found.queries,
        measured_kl=0.0 if clean else _kl(model, layer, tokens, read),
        training=replace(training, known=found.known + learnt, seed=seed, texts=prompts.texts),
    )
    return inversion_release(
        details,
        (
            ("model", digest_of(model.network.state_dict())),
            ("layer", str(layer)),
            ("public prompts", tokens_digest(public)),
        ),
    )


def _unseen(secret: Tensor, prompts: InversionPrompts, everywhere: bool) -> tuple[Tensor, int]:
    """Return the prompts that do not stand in the stream, and how many do."""
    if everywhere and bool((secret < 0).any()):
        raise ValueError("positions: expected 'last' for prompts of several lengths, got 'all'")
    learnt = standing_in(secret.cpu().numpy(), as_tokens("stream", prompts.stream).cpu().numpy())
    if (~learnt).sum() < 2:
        raise ValueError(
            "secret: expected at least 2 prompts that do not stand in the public stream, got "
            f"{int((~learnt).sum())} of {len(learnt)}"
        )
    return secret[torch.from_numpy(~learnt).to(secret.device)], int(learnt.sum())


def _attacker(
    model: LanguageModel,
    layer: int,
    prompts: InversionPrompts,
    release: StateRelease,
    inverter: LayerInverter,
    everywhere: bool,
    *,
    seed: int,
    progress: bool | None,
) -> tuple[Inverter, InverterTraining]:
    """Return an inverter, and what its training was."""
    secret, public = prompts.secret, prompts.public
    if inverter.kind == TRAINING_FREE:
        found = training_free(model, layer, public, release, rng=seed)
        return found, InverterTraining(
            kind=TRAINING_FREE, seed=seed, known=0, prompts=len(public), beam=BEAM
        )
    network = SequenceInverter if everywhere else StateInverter
    how = inverter.learning(network.usual)
    # a forward decoder starts T tokens from the end, whatever the shortest prompt is
    if how.kind != "forward" and how.shortest is None:
        how = replace(how, shortest=int((secret >= 0).sum(dim=1).min()))
    learned = network.train(
        model, layer, prompts.stream, how, length=secret.shape[1],
        release=None if inverter.clean_trained else release, seed=seed, progress=progress,
    )  # fmt: skip
    return learned.attacking(release), InverterTraining(
        kind=learned.network.shape.kind,
        seed=seed,
        known=0,
        size=how.size,
        aware=not inverter.clean_trained,
        steps=learned.steps,
        loss=learned.loss,
        verified=inverter.verify,
    )


def training_free(
    model: LanguageModel, layer: int, public: Tensor, release: StateRelease, *, rng: int = 0
) -> TrajectoryInverter:
    """Return the decoder that reads all positions by computing the states of candidates.

    Args:
        model: the language model.
        layer: 1 … L.
        public: prompts that its probe is fitted on, (m, T), T >= 2.
        release: how each position is released.
        rng: seed of randomised reports of public codes.

    Raises:
        ValueError: a release that is a function of the state, which a network has to learn.
    """
    channel = release.channel
    if isinstance(channel, CodeChannel):
        probe = TokenProbe.fit(model, layer, public, channel=channel, rng=rng)
        return TrajectoryInverter(model, layer, channel, probe, beam=BEAM)
    if isinstance(channel, MappedChannel):
        raise ValueError(
            "kind: expected a network against a function of the state, got 'training-free'"
        )
    noise = release.covariance
    law = Isotropic(LEAST_VARIANCE, model.width) if noise is None else noise
    return TrajectoryInverter(model, layer, law, TokenProbe.fit(model, layer, public), beam=BEAM)


def _drawn(
    model: LanguageModel,
    layer: int,
    tokens: Tensor,
    release: StateRelease,
    everywhere: bool,
    seed: int,
) -> tuple[Any, Tensor]:
    """Return what is released of prompts, and what the model reads of each last state."""
    observed = trajectories_of if everywhere else states_of
    states, behaviours = observed(model, layer, tokens, release.channel.predicts)
    rows = states.flatten(0, -2)
    if isinstance(release, StoredRelease):
        drawn, read = release.seen(rows), release.rebuilt(rows)
    else:
        drawn = release.draw(rows, behaviours, rng=seed)
        read = release.vectors_of(drawn)
    if not everywhere:
        return drawn, read
    shape = tokens.shape
    return drawn.reshape(*shape, *drawn.shape[1:]), read.view(*shape, -1)[:, -1]


def _fixed(release: StateRelease, released: StateMechanism) -> FixedRelease:
    """Return what fixes a release beside its mechanism: its size, and a digest of its numbers."""
    book = {} if isinstance(released.mechanism, str) else {"codebook": released.mechanism.digest}
    if release.vectors is not None:
        words = digest_of({"codewords": torch.from_numpy(release.vectors)})
        return FixedRelease(C=len(release.vectors), codewords=words, **book)
    if release.covariance is None:
        return FixedRelease(**book)
    dense = torch.from_numpy(release.covariance.to_dense())
    return FixedRelease(K=released.kl_budget, covariance=digest_of({"covariance": dense}), **book)


def _told(mechanism: str | Codec, release: StateRelease) -> str:
    """Return the mechanism, and what its attacker knows where there is a choice."""
    if not isinstance(mechanism, str):
        parts = len(mechanism.sizes)
        return "codes of a codebook" if parts == 1 else f"codes of a product of {parts} codebooks"
    if isinstance(release, StoredRelease) and mechanism == Rotation.word:
        return f"{mechanism}, {release.game.name}"
    return mechanism


def _kl(model: LanguageModel, layer: int, prompts: Tensor, read: Tensor) -> float:
    """Mean KL of the prediction from that after the release, earlier positions clean."""
    total, rows = 0.0, torch.split(prompts, MEASURED_TOGETHER)
    for part, given in zip(rows, torch.split(read, MEASURED_TOGETHER), strict=True):
        upper = model.continuation(part, layer)
        before, after = (
            upper.logits(each.to(model.device)).double().log_softmax(-1)
            for each in (upper.clean_states, given)
        )
        total += float((before.exp() * (before - after)).sum())
    return max(total / len(prompts), 0.0)
