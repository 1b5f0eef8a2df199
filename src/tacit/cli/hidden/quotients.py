"""Quotients that were released: attacked by whoever holds the prompts, read by whoever may."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from tacit.cli.hidden.inputs import FOLLOWING, PromptFlags, llm_extra, served

if TYPE_CHECKING:
    from tacit.attacks.retrieval.attack import RetrievalAttack
    from tacit.cli.hidden.recorded import RecordedFlags
    from tacit.hidden_states import PredictiveQuotient, QuotientRows
    from tacit.releases import Release

SERVED = ("dtype", "chat_template", "longest")


def released_quotients(
    released: str, fitted: str, argument: str
) -> tuple[Release[QuotientRows], PredictiveQuotient]:
    """Return a release of quotients and the quotient that it was made with.

    Raises:
        ValueError: one of the files is something else, or the release is of another quotient.
    """
    with llm_extra():
        from tacit.hidden_states.quotient.release import KIND, QUOTIENT
    found, held = read_rows(argument, released), read_quotient(fitted)
    if found.kind != KIND:
        raise ValueError(f"{argument}: expected released quotients, got {found.kind} in {released}")
    made = dict(found.digests)[QUOTIENT]
    if made != held.digest:
        raise ValueError(
            f"--fitted: {released} was made with another one (SHA-256 {made[:12]}…, here "
            f"{held.digest[:12]}…)"
        )
    return found, held


def read_rows(argument: str, path: str) -> Release[Any]:
    """Return the release in a file of rows, with its rows; a refusal names the argument."""
    from tacit.releases import load_rows

    try:
        return load_rows(path)
    except ValueError as error:
        raise ValueError(f"{argument}: {str(error).removeprefix('release: ')}") from None


def read_quotient(fitted: str) -> PredictiveQuotient:
    """Return a quotient that was fitted before."""
    with llm_extra():
        from tacit.hidden_states import PredictiveQuotient
    try:
        return PredictiveQuotient.load(fitted)
    except ValueError as error:
        raise ValueError(f"--fitted: {str(error).removeprefix('path: ')}") from None


def attacked(
    found: Release[QuotientRows], held: PredictiveQuotient, recorded: RecordedFlags
) -> tuple[RetrievalAttack, str]:
    """Name the prompts behind released quotients: the nearest clean quotient is the likeliest.

    Args:
        found: the release.
        held: its encoder and ball, which the attacker knows.
        recorded: the flags that say which prompts were released.

    Raises:
        ValueError: no prompts, fewer than were released, or another model than the quotient's.
    """
    from tacit.attacks.retrieval.attack import retrieve
    from tacit.hidden_states.origin import digest_of, served_digest
    from tacit.models import load, read_prompts
    from tacit.models.passes import Pass

    origin = held.origin
    if recorded.prompts is None or not Path(recorded.prompts).exists():
        raise ValueError("--prompts: expected the file whose quotients were released")
    if origin is None:
        raise ValueError("--fitted: expected a quotient that names its model, got one without")
    flags = {name: getattr(recorded, name) for name in SERVED}
    told = {name: value for name, value in (origin.flags or {}).items() if name in SERVED}
    for name, value in flags.items():
        if value is not None and value != told.get(name, value):
            raise ValueError(f"--{name.replace('_', '-')}: the quotient was made with "
                             f"{told[name]}, got {value}")  # fmt: skip
    kept = {name: value for name, value in {**flags, **told}.items() if value is not None}
    source = PromptFlags(
        model=recorded.model or origin.model, prompts=recorded.prompts, column=recorded.column,
        **kept,
    )  # fmt: skip
    model = load(source.model, dtype=source.dtype)
    here = replace(
        origin,
        model_digest=digest_of(model.network.state_dict()),
        served_digest=served_digest(model.network, model.tokenizer),
        layer=origin.layer if recorded.layer is None else recorded.layer,
    )
    origin.check(here, "the quotient")
    texts = read_prompts(str(source.prompts), column=source.column, name="--prompts", every=True)
    if len(texts) < found.details.rows:
        raise ValueError(
            f"--prompts: expected the {found.details.rows:,} that were released, got {len(texts):,}"
        )
    tokens = served(source, model, texts, model.context - FOLLOWING)[: found.details.rows]
    # a prompt that repeats is one candidate
    distinct, truth = np.unique(tokens.numpy(), axis=0, return_inverse=True)
    read = Pass.of(model, tokens.new_tensor(distinct), [origin.layer])
    clean = held.encode(read.states[origin.layer], behaviours=read.behaviours)
    rows = found.details.quotients
    assert rows is not None
    result = retrieve(
        clean, rows, truth.reshape(-1), last_tokens=distinct[:, -1], rng=recorded.seed
    )
    return result, f"layer {origin.layer} of {origin.model}, as the quotient says"
