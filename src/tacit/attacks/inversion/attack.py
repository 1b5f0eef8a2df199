"""An inverter on the releases of prompts that it does not know, beside what needs no release."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

import numpy as np

from tacit._ground.checks import RandomSource, choice, generator, in_interval
from tacit.attacks.inversion.inverters import Inverter
from tacit.attacks.inversion.result import Inversion, Recovery
from tacit.models.padding import PADDING
from tacit.models.texts.prefixes import Tokens, padded_integers

BASELINES = ("permuted", "zeroed", "majority", "nearest")


def attack_inversion(
    inverter: Inverter,
    released: Any,
    truth: Any,
    public: Any,
    *,
    known: str = "remove",
    baselines: Sequence[str] = BASELINES,
    confidence: float = 0.95,
    rng: RandomSource = None,
) -> Inversion:
    """Read prompts back from their releases, and count what is right.

    Beside the inverter stand guesses that the release of the prompt does not enter, and one that it
    does: *permuted*, the same inverter given another prompt's release; *zeroed*, given a release of
    zeros; *majority*, the commonest public token at each position from the end; *nearest*, the
    public prompt that explains the release best.

    Args:
        inverter: the attacker.
        released: what it is given of each of n prompts, n >= 2.
        truth: the prompts, (n, T), −1 where padded.
        public: prompts that the attacker holds or learnt from, (m, T'); "nearest" wants T' = T.
        known: ``"remove"`` leaves prompts out that are among the public ones, for whoever names
            those has not inverted anything; ``"report"`` counts them.
        baselines: which of the four to measure.
        confidence: coverage of each interval alone, in (0, 1).
        rng: source of the permutation.

    Returns:
        What was right: a measurement, never a guarantee.

    Raises:
        ValueError: fewer than two prompts are left, or shapes that do not fit.

    Example:
        >>> import torch
        >>> from transformers import GPT2Config, GPT2LMHeadModel
        >>> from tacit.attacks.inversion.inverters import TrajectoryInverter
        >>> from tacit.attacks.inversion.probe import TokenProbe
        >>> from tacit.models.language import LanguageModel
        >>> sizes = {"vocab_size": 50, "n_embd": 16, "n_layer": 2, "n_head": 2, "n_positions": 8}
        >>> model = LanguageModel(GPT2LMHeadModel(GPT2Config(**sizes)))
        >>> prompts = torch.randint(50, (204, 3), generator=torch.Generator().manual_seed(0))
        >>> public, secret = prompts[:200], prompts[200:]
        >>> probe = TokenProbe.fit(model, 1, public)
        >>> inverter = TrajectoryInverter(model, 1, 1e-8 * np.eye(16), probe)
        >>> clean = model.states(secret, 1, positions="all")
        >>> found = attack_inversion(inverter, clean, secret, public, rng=0)
        >>> found.recovery.exact.value, found.baselines["nearest"].exact.value
        (1.0, 0.0)
    """
    if not isinstance(inverter, Inverter):
        raise ValueError(f"inverter: expected an Inverter, got {type(inverter).__name__}")
    secret, others = padded_integers("truth", truth), padded_integers("public", public)
    level = in_interval("confidence", confidence, 0.0, 1.0, open_low=True, open_high=True)
    removed = choice("known", known, ("remove", "report")) == "remove"
    if isinstance(baselines, str) or not isinstance(baselines, Sequence):
        raise ValueError(f"baselines: expected some of {', '.join(BASELINES)}, got another value")
    wanted = [choice("baselines", name, BASELINES) for name in baselines]
    count = inverter.count(released)
    if count != len(secret):
        raise ValueError(
            f"truth: expected {count} prompts, one for each release, got {len(secret)}"
        )
    if "nearest" in wanted and others.shape[1] != secret.shape[1]:
        raise ValueError(
            f"public: expected prompts of {secret.shape[1]} tokens, got {others.shape[1]}"
        )
    held = _among(secret, others)
    rows = np.flatnonzero(~held) if removed else np.arange(count)
    if len(rows) < 2:
        raise ValueError(f"truth: expected at least 2 prompts that are not public, got {len(rows)}")
    given, secret = inverter.select(released, rows), secret[rows]
    start = time.perf_counter()
    tokens = inverter.invert(given)
    seconds = (time.perf_counter() - start) / len(rows)
    measured = {
        name: _baseline(name, inverter, given, tokens, others, generator(rng)) for name in wanted
    }
    return Inversion(
        attacker=inverter.name,
        knows=inverter.knows,
        recovery=Recovery.of(tokens, secret, level),
        baselines={
            name: Recovery.of(found, secret, level)
            for name, found in measured.items()
            if found is not None
        },
        queries=len(rows),
        known=int(held.sum()),
        removed=removed,
        seconds=seconds,
        tokens=tokens,
        truth=secret,
    )


def _baseline(
    name: str,
    inverter: Inverter,
    released: Any,
    tokens: Tokens,
    public: Tokens,
    source: np.random.Generator,
) -> Tokens | None:
    """Return other guesses of the prompts, (n, T), or None where there are none."""
    if name == "permuted":
        others: Tokens = tokens[_derangement(len(tokens), source)]
        return others
    if name == "zeroed":
        return _zeroed(inverter, released, len(tokens))
    if name == "majority":
        return np.repeat(_majority(public, tokens.shape[1])[None], len(tokens), axis=0)
    return inverter.nearest(released, public)


def _zeroed(inverter: Inverter, released: Any, count: int) -> Tokens | None:
    blank = inverter.emptied(released)
    return None if blank is None else np.repeat(inverter.invert(blank), count, axis=0)


def _derangement(count: int, source: np.random.Generator) -> Any:
    """A random cycle: no prompt is read from its own release."""
    order = source.permutation(count)
    found = np.empty(count, dtype=np.int64)
    found[order] = np.roll(order, 1)
    return found


def _majority(public: Tokens, length: int) -> Tokens:
    """The commonest token at each position from the end, (length,)."""
    found = np.zeros(length, dtype=np.int64)
    for place in range(1, length + 1):
        column = public[:, -place] if place <= public.shape[1] else public.reshape(-1)
        real = column[column != PADDING]
        real = real if len(real) else public[public != PADDING]
        found[-place] = np.bincount(real).argmax()
    return found


def _among(prompts: Tokens, public: Tokens) -> Any:
    """Whether each prompt, without its padding, is one of the public ones."""
    known = {tuple(row[row != PADDING].tolist()) for row in public}
    return np.array([tuple(row[row != PADDING].tolist()) in known for row in prompts])
