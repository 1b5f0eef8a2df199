"""How a mechanism, named by a word or given as a codebook, releases the states of a layer."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from torch import Tensor

from tacit._ground.checks import Array, choice, integer
from tacit.attacks.exact.channels import CodeChannel
from tacit.attacks.inversion.learned.released import (
    MappedChannel,
    StateRelease,
    states_of,
    trajectories_of,
)
from tacit.hidden_states.attack_methods import CLEAN, StateMechanism
from tacit.hidden_states.codebooks.codebook import Codebook
from tacit.hidden_states.codebooks.codec import Codec
from tacit.hidden_states.codebooks.methods import CodebookFit
from tacit.hidden_states.defences.stored import StoredRelease
from tacit.hidden_states.defences.values import DEFENCES, Defence, read_defence
from tacit.hidden_states.geometry.estimation import measure_geometry
from tacit.hidden_states.noise.shapes import designs_at_budget
from tacit.hidden_states.origin import digest_of, served_digest
from tacit.models.behaviours import Behaviours
from tacit.models.language import LanguageModel

CODES = ("codes", "behaviour-codes")
# States that a defence of all positions is fitted on, at most.
MOST_FITTED = 20_000


def state_release(
    model: LanguageModel,
    layer: int,
    public: Any,
    how: StateMechanism,
    *,
    rng: int = 0,
) -> StateRelease:
    """Return how a mechanism releases a state, fitted on public prompts.

    Args:
        model: the language model.
        layer: 1 … L.
        public: prompts, (m, T); codes are no more than they are. Where all positions are released,
            codes and defences are fitted on every position.
        how: the mechanism: ``"clean"``, ``"codes"``, ``"behaviour-codes"``, a defence without proof
            such as ``"pca(64)"``, or a Gaussian design of ``designs_at_budget``; or a codebook that
            codes are made with, as ``load_codec`` reads it.
        rng: seed of the fit, and of a secret rotation.

    Raises:
        ValueError: no such mechanism, or a bad number.
    """
    tokens = model.check_tokens(public, name="public")
    everywhere, mechanism = how.everywhere, how.mechanism
    if isinstance(mechanism, Codec):
        return _by_codebook(model, layer, mechanism)
    if not isinstance(mechanism, str):
        found = type(mechanism).__name__
        raise ValueError(f"mechanism: expected a word or a codebook, got {found}")
    if mechanism == CLEAN:
        return StateRelease()
    if mechanism in CODES:
        guarding = mechanism == CODES[1]
        states, behaviours = _fitted(model, layer, tokens, guarding, everywhere)
        size = integer("codewords", how.codewords, minimum=2, maximum=len(tokens))
        fit = (
            CodebookFit(size=size, metric="behaviour", decision_cost=how.decision_cost)
            if guarding
            else CodebookFit(size=size)
        )
        book = Codebook.fit(states, fit, behaviours=behaviours, rng=rng, progress=False)
        channel = CodeChannel(
            lambda rows, told: book.assign(rows.float(), behaviours=told if guarding else None),
            predicts=guarding,
        )
        return StateRelease(channel, book.codewords.cpu().double())
    if (defence := _defence(mechanism)) is not None:
        rows = _fitted(model, layer, tokens, False, everywhere)[0].double().cpu().numpy()
        pairs = min(rows.shape) if how.known_pairs is None else how.known_pairs
        return StoredRelease(defence.learn(rows, rng), rows, pairs)
    designs = designs_at_budget(measure_geometry(model, layer, tokens, rng=rng), how.kl_budget)
    defences = (word for kind in DEFENCES for word in kind.spelling())
    choice("mechanism", mechanism, (CLEAN, *CODES, *designs, *defences))
    return StateRelease(designs[mechanism].covariance)


def _defence(word: str) -> Defence | None:
    try:
        return read_defence(word)
    except ValueError as error:
        raise ValueError(f"mechanism: {error}") from None


def _by_codebook(model: LanguageModel, layer: int, book: Codec) -> StateRelease:
    """Return codes as prompts are encoded: by behaviours where those decide, or by the state."""
    if book.width != model.width:
        raise ValueError(f"codebook: expected states of {model.width} numbers, got {book.width}")
    made = book.origin
    if made is not None:
        here = replace(
            made,
            model_digest=digest_of(model.network.state_dict()),
            served_digest=served_digest(model.network, model.tokenizer),
            layer=layer,
        )
        if not made.is_served_as(here):
            raise ValueError(
                f"codebook: it is of layer {made.layer} of {made.model}, and what is attacked is "
                f"layer {layer} of {model.name}"
            )
    if not isinstance(book, Codebook):
        return StateRelease(MappedChannel(lambda rows: _stands_for(book, rows)))
    predicts = book.centres is None
    channel = CodeChannel(
        lambda rows, told: book.assign(rows.float(), behaviours=told if predicts else None),
        predicts=predicts,
    )
    return StateRelease(channel, book.codewords.cpu().double())


def _stands_for(book: Codec, states: Array) -> Array:
    """Return the vector that stands for the codes of states, (n, d)."""
    found: Array = book.decode(book.encode(states.astype(np.float32))).double().numpy()
    return found


def _fitted(
    model: LanguageModel, layer: int, tokens: Tensor, predicts: bool, everywhere: bool
) -> tuple[Tensor, Behaviours | None]:
    """Return the states that a release is fitted on, (m, d), and predictions if those count."""
    if not everywhere:
        return states_of(model, layer, tokens, predicts)
    some = tokens[: max(1, MOST_FITTED // tokens.shape[1])]
    states, behaviours = trajectories_of(model, layer, some, predicts)
    return states.flatten(0, 1), behaviours
