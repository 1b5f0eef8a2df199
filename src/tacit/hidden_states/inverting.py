"""Put an inverter to what a layer's release leaves of prompts, and measure what it reads."""

from __future__ import annotations

import os
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

import torch
from torch import Tensor

from tacit._ground.checks import choice
from tacit.attacks.exact.channels import CodeChannel
from tacit.attacks.inversion.attack import attack_inversion
from tacit.attacks.inversion.inverters import Inverter, TrajectoryInverter
from tacit.attacks.inversion.learned.inverter import StateInverter
from tacit.attacks.inversion.learned.presets import preset
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
from tacit.hidden_states.attacked import CLEAN, POSITIONS, state_release
from tacit.hidden_states.codebooks.codec import Codec
from tacit.hidden_states.defences.stored import StoredRelease
from tacit.hidden_states.defences.values import Rotation
from tacit.hidden_states.inversions import InversionEvidence
from tacit.hidden_states.origin import digest_of, tokens_digest
from tacit.models.language import LanguageModel
from tacit.models.next_states import as_tokens
from tacit.models.texts.prefixes import standing_in

TRAINING_FREE = "training-free"
MEASURED_TOGETHER = 64
# prefixes that the training-free decoder keeps
BEAM = 3
LEAST_VARIANCE = 1e-9


def invert_layer(
    model: LanguageModel,
    layer: int,
    secret: Any,
    public: Any,
    stream: Any,
    *,
    mechanism: str | Codec = CLEAN,
    positions: str = "last",
    kl_budget: float = 1.0,
    codewords: int = 1024,
    kind: str | None = None,
    size: str = "two-cores",
    known_pairs: int | None = None,
    aware: bool = True,
    verify: bool = False,
    checkpoint: str | os.PathLike[str] | None = None,
    seed: int = 0,
    texts: str | None = None,
    progress: bool | None = None,
    **schedule: Any,
) -> InversionEvidence:
    """Put an inverter to the releases of one layer's states, and measure what it reads back.

    Args:
        model: the language model.
        layer: 1 … L.
        secret: prompts whose states are released, (n, T), padded with −1 on the left; those that
            stand in the stream are left out, for nothing is to be learnt from them.
        public: prompts that the mechanism is fitted on and the attacker holds, (m, T).
        stream: public tokens that a network learns from, (S,).
        mechanism: as for ``state_release``.
        positions: ``"last"``: the last state of a prompt is released alone; ``"all"``: the states
            of all its positions, each by itself, of prompts of one length.
        kl_budget: as for ``state_release``.
        codewords: likewise.
        known_pairs: likewise.
        kind: ``"right-to-left"``, ``"at-once"`` or ``"forward"``; of all positions also
            ``"training-free"``, the decoder that computes the states of candidates; None for the
            usual network.
        size: ``"two-cores"`` or ``"gpu"``.
        aware: whether a network learns from releases; else from clean states.
        verify: whether guesses at one state are run through the model and the best is kept.
        checkpoint: as for ``StateInverter.train``.
        seed: of prompts, draws and training.
        texts: what the stream is, in words for page and gate.
        progress: whether a bar is shown.
        schedule: as for ``StateInverter.train``, such as ``minutes`` or ``steps``.

    Raises:
        ValueError: as ``state_release``, ``StateInverter.train`` and ``attack_inversion``, or fewer
            than two prompts do not stand in the stream.
    """
    everywhere = choice("positions", positions, POSITIONS) == "all"
    _check_kind(kind, everywhere, verify, checkpoint, schedule, aware)
    tokens, learnt = _unseen(model.check_tokens(secret, name="secret"), stream, everywhere)
    held = model.check_tokens(public, name="public")
    inverters = SequenceInverter if everywhere else StateInverter
    named = inverters.usual if kind is None else kind
    if named != TRAINING_FREE:
        preset(size, kind=named, **schedule)
    release = state_release(
        model, layer, held, mechanism, kl_budget=kl_budget, codewords=codewords,
        known_pairs=known_pairs, positions=positions, rng=seed,
    )  # fmt: skip
    same = held.shape[1] == tokens.shape[1]
    attacker, training = _attacker(
        model, layer, tokens, held, stream, release, named, size, aware, checkpoint, seed, progress,
        schedule, everywhere,
    )  # fmt: skip
    if verify and isinstance(attacker, StateInverter):
        attacker = VerifiedInverter(attacker, bank=held if same else None)
        training["verified"] = True
    drawn, read = _drawn(model, layer, tokens, release, everywhere, seed)
    names = ("permuted", "zeroed", "majority", *(("nearest",) if same else ()))
    found = attack_inversion(attacker, drawn, tokens, held, baselines=names, rng=seed)
    return InversionEvidence(
        attacker=found.attacker,
        knows=found.knows,
        mechanism=_told(mechanism, release),
        release={**_fixed(release, kl_budget), **_book(mechanism)},
        model=model.name,
        layer=layer,
        positions=positions,
        length=tokens.shape[1],
        recovery=found.recovery,
        baselines=found.baselines,
        queries=found.queries,
        measured_kl=0.0 if mechanism == CLEAN else _kl(model, layer, tokens, read),
        training={"kind": named, **training, "known": found.known + learnt,
                  "seed": seed, **({} if texts is None else {"texts": texts})},
        digests=(
            ("model", digest_of(model.network.state_dict())),
            ("layer", str(layer)),
            ("public prompts", tokens_digest(held)),
        ),
        created=datetime.now(UTC).isoformat(timespec="seconds"),
    )  # fmt: skip


def _unseen(secret: Tensor, stream: Any, everywhere: bool) -> tuple[Tensor, int]:
    """Return the prompts that do not stand in the stream, and how many do."""
    if everywhere and bool((secret < 0).any()):
        raise ValueError("positions: expected 'last' for prompts of several lengths, got 'all'")
    learnt = standing_in(secret.cpu().numpy(), as_tokens("stream", stream).cpu().numpy())
    if (~learnt).sum() < 2:
        raise ValueError(
            "secret: expected at least 2 prompts that do not stand in the public stream, got "
            f"{int((~learnt).sum())} of {len(learnt)}"
        )
    return secret[torch.from_numpy(~learnt).to(secret.device)], int(learnt.sum())


def _attacker(
    model: LanguageModel,
    layer: int,
    secret: Tensor,
    public: Tensor,
    stream: Any,
    release: StateRelease,
    kind: str,
    size: str,
    aware: bool,
    checkpoint: Any,
    seed: int,
    progress: bool | None,
    schedule: Mapping[str, Any],
    everywhere: bool,
) -> tuple[Inverter, dict[str, Any]]:
    """Return an inverter, and what its training was."""
    if kind == TRAINING_FREE:
        found = training_free(model, layer, public, release, rng=seed)
        return found, {"prompts": len(public), "beam": BEAM}
    shortest = int((secret >= 0).sum(dim=1).min())
    learned = (SequenceInverter if everywhere else StateInverter).train(
        model, layer, stream, length=secret.shape[1], release=release if aware else None,
        size=size, kind=kind, shortest=None if kind == "forward" else shortest,
        checkpoint=checkpoint, seed=seed, progress=progress, **schedule,
    )  # fmt: skip
    facts = {"size": size, "aware": aware, "steps": learned.steps, "loss": learned.loss,
             "verified": False}  # fmt: skip
    return learned.attacking(release), facts


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
    # the floor for the rounding of states is larger
    law = Isotropic(LEAST_VARIANCE, model.width) if noise is None else noise
    return TrajectoryInverter(model, layer, law, TokenProbe.fit(model, layer, public), beam=BEAM)


def _check_kind(
    kind: str | None,
    everywhere: bool,
    verify: bool,
    checkpoint: Any,
    schedule: Mapping[str, Any],
    aware: bool,
) -> None:
    if verify and everywhere:
        raise ValueError("verify: expected it of the last state alone, got all positions")
    if kind != TRAINING_FREE:
        return
    if not everywhere:
        raise ValueError("kind: expected 'training-free' of all positions, got the last alone")
    asked = {"checkpoint": checkpoint is not None, "aware": not aware, **dict.fromkeys(schedule, 1)}
    for name, given in asked.items():
        if given:
            raise ValueError(f"{name}: expected none where nothing is trained, got one")


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


def _fixed(release: StateRelease, kl_budget: float) -> dict[str, Any]:
    """Return what fixes a release beside its mechanism: its size, and a digest of its numbers."""
    if release.vectors is not None:
        words = digest_of({"codewords": torch.from_numpy(release.vectors)})
        return {"C": len(release.vectors), "codewords": words}
    if release.covariance is None:
        return {}
    dense = torch.from_numpy(release.covariance.to_dense())
    return {"K": kl_budget, "covariance": digest_of({"covariance": dense})}


def _book(mechanism: str | Codec) -> dict[str, Any]:
    """Return the digest of a codebook that was given, by which encoded stores name it."""
    return {} if isinstance(mechanism, str) else {"codebook": mechanism.digest}


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
