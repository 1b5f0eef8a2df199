"""Embeddings of texts by an encoder, on the command line: read, divided, their use measured."""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from tacit.cli.hidden.inputs import note

if TYPE_CHECKING:
    from tacit.hidden_states import EmbeddingUse
    from tacit.hidden_states.codebooks.codec import Codec
    from tacit.hidden_states.origin import Origin
    from tacit.models import Encoder, PromptTexts

Rows = npt.NDArray[np.float32]
Places = npt.NDArray[np.int64]

# Held-out rows at most: the ranks of all pairs of them take seconds.
MEASURED = 1000
# Fewer say nothing of the ten nearest.
FEWEST = 50


def divided(count: int, fitted: int, seed: int) -> tuple[Places, Places]:
    """Return which of ``count`` rows to fit on and which to hold out, a fifth at most, in order.

    Example:
        >>> [len(part) for part in divided(300, 1000, 0)]
        [240, 60]
    """
    aside = min(MEASURED, count // 5)
    aside = aside if aside >= FEWEST else 0
    order = np.random.default_rng(seed).permutation(count)
    return np.sort(order[aside : aside + fitted]), np.sort(order[:aside])


def use_of(book: Codec, held: Rows) -> EmbeddingUse | None:
    """Return how decoded codes of held-out vectors answer searches, None for too few of them."""
    from tacit.hidden_states import measure_embeddings

    if len(held) < FEWEST:
        return None
    decoded = book.decode(book.encode(held)).numpy()
    if not (held.any(axis=1).all() and decoded.any(axis=1).all()):
        return None
    return measure_embeddings(held, decoded)


def different_texts(path: str, column: str | None) -> PromptTexts:
    """Return the public texts of a file, each once."""
    from tacit.models import read_prompts

    found = read_prompts(path, column=column, name="--public-texts")
    return found.select(sorted({text: i for i, text in reversed(list(enumerate(found.texts)))}
                               .values()))  # fmt: skip


def embedded(encoder: Encoder, texts: PromptTexts) -> Rows:
    """Return the embedding of every text, (n, d), and say how many the encoder cuts."""
    cut = sum(length > encoder.context for length in encoder.lengths(texts.texts))
    if cut:
        note(f"{cut:,} of {len(texts):,} texts have more than {encoder.context:,} tokens, and are "
             "cut there, as where the encoder is served")  # fmt: skip
    return encoder.encode(texts.texts).numpy()


def origin_of_encoder(encoder: Encoder, fitted: PromptTexts, digest: str) -> Origin:
    """Return where a codebook of embeddings comes from.

    Args:
        encoder: what made the embeddings.
        fitted: the texts that the codebook was fitted on.
        digest: SHA-256 of the file they were taken from.
    """
    from tacit.hidden_states.origin import Origin

    return Origin(
        model=encoder.name,
        model_digest=digest_of_encoder(encoder),
        layer=int(encoder.network.config.num_hidden_layers),
        calibration_size=len(fitted),
        calibration_digest=hashlib.sha256(json.dumps(fitted.texts).encode()).hexdigest(),
        served_digest=served_digest_of_encoder(encoder),
        flags={"pooling": encoder.pooling, "normalise": encoder.normalise},
        texts={"public_texts": digest},
    )


def digest_of_encoder(encoder: Encoder) -> str:
    """Return the SHA-256 of an encoder's parameters."""
    from tacit.hidden_states.origin import digest_of

    found: Any = encoder.network.state_dict()
    return digest_of(found)


def served_digest_of_encoder(encoder: Encoder) -> str:
    """Return the SHA-256 of what an encoder does to a text beside its parameters."""
    from tacit.hidden_states.origin import served_digest

    served = asdict(encoder.serving)
    return served_digest(encoder.network, encoder.tokenizer, encoder.context, served)
