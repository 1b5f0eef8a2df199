"""Train an inverter against one release of a layer's last state, and measure what it reads."""

from __future__ import annotations

import os
from datetime import UTC, datetime
from typing import Any

import torch
from torch import Tensor

from tacit._ground.checks import choice, integer
from tacit.attacks.exact.channels import CodeChannel
from tacit.attacks.inversion.attack import attack_inversion
from tacit.attacks.inversion.learned.inverter import StateInverter
from tacit.attacks.inversion.learned.presets import preset
from tacit.attacks.inversion.learned.released import StateRelease, states_of
from tacit.attacks.inversion.learned.verification import VerifiedInverter
from tacit.hidden_states.codebooks.codebook import Codebook
from tacit.hidden_states.defences.release import StoredRelease
from tacit.hidden_states.defences.values import DEFENCES, Rotation, read_defence
from tacit.hidden_states.geometry.estimation import measure_geometry
from tacit.hidden_states.inversions import InversionEvidence
from tacit.hidden_states.noise.designs import designs_at_budget
from tacit.hidden_states.origin import digest_of, tokens_digest
from tacit.models.language import LanguageModel
from tacit.models.next_states import as_tokens
from tacit.models.texts.prefixes import standing_in

CLEAN, CODES = "clean", ("codes", "behaviour-codes")
MEASURED_TOGETHER = 64


def state_release(
    model: LanguageModel,
    layer: int,
    public: Any,
    mechanism: str,
    *,
    kl_budget: float = 1.0,
    codewords: int = 1024,
    decision_cost: float = 0.0,
    known_pairs: int | None = None,
    rng: int = 0,
) -> StateRelease:
    """Return how a mechanism releases a state, fitted on public prompts.

    Args:
        model: the language model.
        layer: 1 … L.
        public: prompts, (m, T).
        mechanism: ``"clean"``, ``"codes"``, ``"behaviour-codes"``, a defence without proof such as
            ``"pca(64)"``, or a Gaussian design of ``designs_at_budget``.
        kl_budget: K = ½ tr(FΣ) that noise may cost, nats.
        codewords: C, at most m.
        decision_cost: λ of behaviour codes.
        known_pairs: public prompts whose rotated states the attacker of a secret rotation knows;
            as many as a state has numbers when None.
        rng: seed of the fit, and of a secret rotation.

    Raises:
        ValueError: no such mechanism, or a bad number.
    """
    tokens = model.check_tokens(public, name="public")
    if mechanism == CLEAN:
        return StateRelease()
    if mechanism in CODES:
        guarding = mechanism == CODES[1]
        states, behaviours = states_of(model, layer, tokens, guarding)
        size = integer("codewords", codewords, minimum=2, maximum=len(tokens))
        more: dict[str, Any] = (
            {"metric": "behaviour", "behaviours": behaviours, "decision_cost": decision_cost}
            if guarding
            else {}
        )
        book = Codebook.fit(states, size=size, rng=rng, progress=False, **more)
        channel = CodeChannel(
            lambda rows, told: book.assign(rows.float(), behaviours=told if guarding else None),
            predicts=guarding,
        )
        return StateRelease(channel, book.codewords.cpu().double())
    if (defence := read_defence(mechanism)) is not None:
        rows = model.states(tokens, layer).double().cpu().numpy()
        pairs = min(rows.shape) if known_pairs is None else known_pairs
        return StoredRelease(defence.learn(rows, rng), rows, pairs)
    designs = designs_at_budget(measure_geometry(model, layer, tokens, rng=rng), kl_budget)
    defences = (word for kind in DEFENCES for word in kind.spelling())
    choice("mechanism", mechanism, (CLEAN, *CODES, *designs, *defences))
    return StateRelease(designs[mechanism].covariance)


def invert_layer(
    model: LanguageModel,
    layer: int,
    secret: Any,
    public: Any,
    stream: Any,
    *,
    mechanism: str = CLEAN,
    kl_budget: float = 1.0,
    codewords: int = 1024,
    kind: str = "right-to-left",
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
    """Train an inverter of single states against a release, and measure what it reads back.

    Args:
        model: the language model.
        layer: 1 … L.
        secret: prompts whose states are released, (n, T), padded with −1 on the left; those that
            stand in the stream are left out, for nothing is to be learnt from them.
        public: prompts that the mechanism is fitted on and the attacker holds, (m, T).
        stream: public tokens that the inverter learns from, (S,).
        mechanism: as for ``state_release``.
        kl_budget: likewise.
        codewords: likewise.
        known_pairs: likewise.
        kind: ``"right-to-left"``, ``"at-once"`` or ``"forward"``.
        size: ``"two-cores"`` or ``"gpu"``.
        aware: whether it learns from releases; else from clean states.
        verify: whether guesses are run through the model and the best is kept.
        checkpoint: as for ``StateInverter.train``.
        seed: of prompts, draws and training.
        texts: what the stream is, in words for page and gate.
        progress: whether a bar is shown.
        schedule: as for ``StateInverter.train``, such as ``minutes`` or ``steps``.

    Raises:
        ValueError: as ``state_release``, ``StateInverter.train`` and ``attack_inversion``, or fewer
            than two prompts do not stand in the stream.
    """
    tokens = model.check_tokens(secret, name="secret")
    learnt = standing_in(tokens.cpu().numpy(), as_tokens("stream", stream).cpu().numpy())
    if (~learnt).sum() < 2:
        raise ValueError(
            "secret: expected at least 2 prompts that do not stand in the public stream, got "
            f"{int((~learnt).sum())} of {len(learnt)}"
        )
    tokens = tokens[torch.from_numpy(~learnt).to(tokens.device)]
    held = model.check_tokens(public, name="public")
    preset(size, kind=kind, **schedule)
    release = state_release(
        model, layer, held, mechanism,
        kl_budget=kl_budget, codewords=codewords, known_pairs=known_pairs, rng=seed,
    )  # fmt: skip
    shortest = int((tokens >= 0).sum(dim=1).min())
    inverter = StateInverter.train(
        model, layer, stream, length=tokens.shape[1], release=release if aware else None,
        size=size, kind=kind, shortest=None if kind == "forward" else shortest,
        checkpoint=checkpoint, seed=seed, progress=progress, **schedule,
    ).attacking(release)  # fmt: skip
    states, behaviours = states_of(model, layer, tokens, release.channel.predicts)
    if isinstance(release, StoredRelease):
        drawn, read = release.seen(states), release.rebuilt(states)
    else:
        drawn = release.draw(states, behaviours, rng=seed)
        read = release.vectors_of(drawn)
    same = held.shape[1] == tokens.shape[1]
    names = ("permuted", "zeroed", "majority", *(("nearest",) if same else ()))
    attacker = VerifiedInverter(inverter, bank=held if same else None) if verify else inverter
    found = attack_inversion(attacker, drawn, tokens, held, baselines=names, rng=seed)
    return InversionEvidence(
        attacker=found.attacker,
        knows=found.knows,
        mechanism=_told(mechanism, release),
        release=_fixed(release, kl_budget),
        model=model.name,
        layer=layer,
        length=tokens.shape[1],
        recovery=found.recovery,
        baselines=found.baselines,
        queries=found.queries,
        measured_kl=0.0
        if mechanism == CLEAN
        else _kl(model, layer, tokens, read),
        training={"kind": kind, "size": size, "aware": aware, "steps": inverter.steps,
                  "loss": inverter.loss, "known": found.known + int(learnt.sum()), "seed": seed,
                  "verified": verify, **({} if texts is None else {"texts": texts})},
        digests=(
            ("model", digest_of(model.network.state_dict())),
            ("layer", str(layer)),
            ("public prompts", tokens_digest(held)),
            ("prompts attacked", tokens_digest(tokens)),
        ),
        created=datetime.now(UTC).isoformat(timespec="seconds"),
    )  # fmt: skip


def _fixed(release: StateRelease, kl_budget: float) -> dict[str, Any]:
    """Return what fixes a release beside its mechanism: its size, and a digest of its numbers."""
    if release.vectors is not None:
        words = digest_of({"codewords": torch.from_numpy(release.vectors)})
        return {"C": len(release.vectors), "codewords": words}
    if release.covariance is None:
        return {}
    dense = torch.from_numpy(release.covariance.to_dense())
    return {"K": kl_budget, "covariance": digest_of({"covariance": dense})}


def _told(mechanism: str, release: StateRelease) -> str:
    """Return the mechanism, and what its attacker knows where there is a choice."""
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
