"""Features of one layer measured: what prediction needs of them, and what they tell of a prompt."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor

from tacit._ground.checks import Array, RandomSource, generator, integer
from tacit.attacks.retrieval.attack import retrieve
from tacit.hidden_states.features import codes
from tacit.hidden_states.features.edits import surface_edits
from tacit.hidden_states.features.methods import SCORING, Scoring
from tacit.hidden_states.features.replacing import (
    conditions,
    kept_features,
    measure_replaced,
    replaced_states,
)
from tacit.hidden_states.features.scored import BACKBONE
from tacit.hidden_states.features.scores import score_features
from tacit.hidden_states.features.sites import check_site, read_site
from tacit.hidden_states.features.study import (
    CODES,
    CONFIDENCE,
    STATE,
    TRAINED,
    ComparedMargins,
    EditFlips,
    FeatureStudy,
    FibreOverlaps,
    StateNaming,
    study_release,
)
from tacit.hidden_states.features.transcoder import Transcoder
from tacit.hidden_states.origin import digest_of, tokens_digest
from tacit.models.language import LanguageModel
from tacit.models.padding import unpadded
from tacit.releases import Release

# Nats between prompts of one prediction, how many are compared, and pairs of them.
FIBRE, NEAR_AMONG, PAIRS = 0.05, 2000, 500
# Other last tokens, tried of so many prompts.
CANDIDATES, STEPS = 32, 100


@torch.no_grad()
def measure_features(
    model: LanguageModel,
    layer: int,
    transcoder: Transcoder,
    prompts: ArrayLike,
    public: ArrayLike,
    scoring: Scoring = SCORING,
    *,
    edited: int = 50,
    rng: RandomSource = None,
) -> Release[FeatureStudy]:
    """Score the features on public prompts, and measure on others what the classes are good for.

    ``s_f = E[KL(p ‖ p without a_f W_dec[f])]``; above τ a feature is backbone, below it scaffold.
    All is read at the last position; the earlier ones stay as they are.

    Args:
        model: the language model.
        layer: 1 … L.
        transcoder: features of that layer.
        prompts: the bank, tokens (N, T), N >= 4, −1 where padded.
        public: prompts that scores are measured on, (m, T'); none of the bank.
        scoring: τ, and how many prompts a feature is taken out of.
        edited: prompts of the bank that are edited, and whose last token is.
        rng: source of every choice.

    Returns:
        The study, which certifies nothing and publishes nothing. Nothing in it is of a single
        prompt of the bank.

    Raises:
        ValueError: a bad argument, a public prompt that is of the bank, features that do not fit
            the layer, or so large that the prediction leaves single precision.

    Example:
        >>> from transformers import GPT2Config, GPT2LMHeadModel
        >>> from tacit.hidden_states import TranscoderFit, train_transcoder
        >>> sizes = {"vocab_size": 50, "n_embd": 16, "n_layer": 2, "n_head": 2, "n_positions": 8}
        >>> model = LanguageModel(GPT2LMHeadModel(GPT2Config(**sizes)))
        >>> rows = torch.randint(50, (60, 6), generator=torch.Generator().manual_seed(0))
        >>> how = TranscoderFit(features=32, top_k=8, steps=50)
        >>> coder = train_transcoder(model, 1, rows[20:], how)
        >>> found = measure_features(model, 1, coder, rows[:20], rows[20:], rng=0)
        >>> found.details.bank, found.details.scores.summary()["exactly_zero"], found.guarantees
        (20, 0, ())

    Source: hidden-state, App. M to P.
    """
    level = check_site(model, layer, transcoder)
    tokens = model.check_tokens(prompts, name="prompts")
    if len(tokens) < 4:
        raise ValueError(f"prompts: expected at least four, got {len(tokens)}")
    learnt = model.check_tokens(public, name="public")
    integer("edited", edited, minimum=2)
    _check_apart(tokens, learnt)
    source = generator(rng)
    coder = transcoder.to(model.device)
    scores = score_features(model, level, coder, learnt, scoring, rng=source)
    site = read_site(model, level, tokens, coder.reads)
    active = coder.encode(site.inputs)
    held = conditions(active, scores, source)
    states = replaced_states(coder, site, held)
    replaced = measure_replaced(model, level, tokens, site, states, kept_features(held))
    rows, backbone = active.double().cpu().numpy(), scores.classes == BACKBONE
    on = rows > 0
    some = tokens[:edited]
    told, shares = _edited(model, level, coder, some, backbone, source)
    details = FeatureStudy(
        model=model.name,
        layer=level,
        reads=coder.reads,
        scores=scores,
        bank=len(tokens),
        share=float(((on & backbone).sum(axis=1) / np.maximum(on.sum(axis=1), 1)).mean()),
        margins=_margins(model, level, coder, some, rows, site.states, source),
        replaced=replaced,
        edits=told,
        kruskal=codes.kruskal(shares),
        fibres=_fibres(model, tokens, rows, backbone, source),
        named={
            name: codes.name_prompts((held[chosen] > 0).double().cpu().numpy(), CONFIDENCE)
            for name, chosen in zip(CODES, ("full", "backbone", "scaffold", "random"), strict=True)
        },
        state=_state(site.states, states[STATE], CONFIDENCE),
        trained={name: told for name, told in coder.trained.items() if name in TRAINED},
    )
    return study_release(
        details,
        (
            ("model", digest_of(model.network.state_dict())),
            ("layer", str(level)),
            ("features", digest_of({"W_enc": coder.encoder, "W_dec": coder.decoder})),
            ("public prompts", tokens_digest(learnt)),
        ),
    )


def _check_apart(tokens: Tensor, learnt: Tensor) -> None:
    """Refuse public prompts of the bank: a class learnt on a prompt would be measured on it."""
    bank = {tuple(row.tolist()) for row in unpadded(tokens)}
    shared = sum(tuple(row.tolist()) in bank for row in unpadded(learnt))
    if shared:
        raise ValueError(
            f"public: expected prompts outside the bank, got {shared} of {len(learnt)} that are "
            "in it"
        )


def _edited(
    model: LanguageModel, layer: int, coder: Transcoder, prompts: Tensor,
    backbone: NDArray[np.bool_], source: np.random.Generator,
) -> tuple[dict[str, EditFlips], dict[str, Array]]:  # fmt: skip
    def rows(tokens: Tensor) -> Array:
        found = coder.encode(read_site(model, layer, tokens, coder.reads).inputs)
        array: Array = found.double().cpu().numpy()
        return array

    pairs = surface_edits(model, prompts, rng=source)
    return codes.flips({k: (rows(one), rows(two)) for k, (one, two) in pairs.items()}, backbone)


def _margins(
    model: LanguageModel, layer: int, coder: Transcoder, some: Tensor, rows: Array, states: Tensor,
    source: np.random.Generator,
) -> dict[str, ComparedMargins]:  # fmt: skip
    near = (
        codes.nearest_others(rows, support=True),
        codes.nearest_others(states.double().cpu().numpy(), support=False),
        codes.nearest_others(rows, support=False),
    )
    drawn = source.choice(model.vocabulary, min(CANDIDATES, model.vocabulary), replace=False)
    others = torch.from_numpy(drawn).to(some.device)
    step = codes.step_margins(model, layer, coder, some[:STEPS], others)
    return {"nearest": codes.compare_margins(*near), "step": codes.compare_margins(*step)}


def _fibres(
    model: LanguageModel, tokens: Tensor, rows: Array, backbone: NDArray[np.bool_],
    source: np.random.Generator,
) -> FibreOverlaps:  # fmt: skip
    """Return overlaps of prompts within ``FIBRE`` nats of each other, and of others at random."""
    logs = model.logits(tokens[:NEAR_AMONG]).double().log_softmax(dim=1)
    # KL(p_i ‖ p_j) = Σ p_i ln p_i − Σ p_i ln p_j, of all pairs at once
    own = (logs.exp() * logs).sum(dim=1)
    apart = (own[:, None] - logs.exp() @ logs.T).cpu().numpy()
    apart[np.tril_indices(len(apart))] = np.inf
    close = np.argwhere(apart < FIBRE)
    order = source.permutation(len(close))[:PAIRS]
    first = source.integers(len(apart), size=PAIRS)
    second = (first + source.integers(1, len(apart), size=PAIRS)) % len(apart)
    return FibreOverlaps(
        kl=FIBRE,
        close=codes.overlaps(rows, backbone, close[order]),
        random=codes.overlaps(rows, backbone, np.stack([first, second], axis=1)),
    )


def _state(clean: Tensor, removed: Tensor, confidence: float) -> StateNaming:
    """Return the shares named by who knows the map and by who holds clean states, with ends."""
    bank, released = clean.double().cpu().numpy(), removed.double().cpu().numpy()
    truth = np.arange(len(bank))
    told = retrieve(released, released, truth, confidence=confidence)
    blind = retrieve(bank, released, truth, confidence=confidence)
    return StateNaming(
        told=(told.top1, *told.top1_interval), blind=(blind.top1, *blind.top1_interval)
    )
