"""Support codes of prompts: how far apart they are, what flips, what is shared, what names them."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import torch
from numpy.typing import NDArray
from scipy import stats
from torch import Tensor

from tacit._ground.checks import Array
from tacit.attacks.retrieval.attack import retrieve
from tacit.hidden_states.features.sites import read_site
from tacit.hidden_states.features.study import (
    CodeNaming,
    CodeOverlap,
    ComparedMargins,
    EditFlips,
    MarginSpread,
    Pair,
)
from tacit.hidden_states.features.transcoder import Transcoder
from tacit.models.language import LanguageModel

Bits = NDArray[np.bool_]
LEVELS = (0.1, 0.5, 0.9)
ROWS_TOGETHER = 512


def hamming(left: Bits, right: Bits) -> Array:
    """Return the number of features active in one prompt and not in the other, (n, m)."""
    first, second = left.astype(np.float32), right.astype(np.float32)
    both = first @ second.T
    found: Array = (first.sum(axis=1)[:, None] + second.sum(axis=1)[None] - 2 * both).astype(float)
    return found


def nearest_others(rows: Array, *, support: bool) -> Array:
    """Return the distance of every row to the nearest other one: Hamming's, or ℓ2."""
    if not support:
        return _nearest_lengths(rows)
    found = np.empty(len(rows))
    for start in range(0, len(rows), ROWS_TOGETHER):
        part = rows[start : start + ROWS_TOGETHER]
        apart = hamming(part > 0, rows > 0)
        apart[np.arange(len(part)), np.arange(start, start + len(part))] = np.inf
        found[start : start + len(part)] = apart.min(axis=1)
    return found


def _nearest_lengths(rows: Array) -> Array:
    """Return ℓ2 distances to the nearest other row, from differences.

    The square expanded only rules out rows that its rounding cannot make the nearest.
    """
    found = np.empty(len(rows))
    centred = rows - rows.mean(axis=0)
    squares = (centred**2).sum(axis=1)
    rounding = (4 * rows.shape[1] + 16) * float(np.finfo(float).eps)
    for start in range(0, len(rows), ROWS_TOGETHER):
        own = np.arange(start, min(start + ROWS_TOGETHER, len(rows)))
        both = squares[own, None] + squares[None]
        apart = both - 2 * centred[own] @ centred.T
        apart[np.arange(len(own)), own] = np.inf
        near = apart - rounding * both <= (apart + rounding * both).min(axis=1, keepdims=True)
        for row, others in zip(own, near, strict=True):
            found[row] = np.linalg.norm(rows[others] - rows[row], axis=1).min()
    return found


def compare_margins(support: Array, state: Array, amplitude: Array) -> ComparedMargins:
    """Compare three margins of the same prompts in ways that depend on their scales, and not."""
    spearman = None
    # two ranks have a correlation and no test of it
    if len(support) > 2 and len(np.unique(support)) > 1 and len(np.unique(state)) > 1:
        rank = stats.spearmanr(support, state)
        spearman = (float(rank.statistic), float(rank.pvalue))
    ranks = [stats.rankdata(values) for values in (support, state)]
    return ComparedMargins(
        support=_spread(support),
        state=_spread(state),
        amplitude=_spread(amplitude),
        spearman=spearman,
        raw=float((support > state).mean()),
        scored=float((_scored(support) > _scored(state)).mean()),
        ranked=float((ranks[0] > ranks[1]).mean() + 0.5 * (ranks[0] == ranks[1]).mean()),
    )


def _spread(values: Array) -> MarginSpread:
    low, middle, high = (float(one) for one in np.quantile(values, LEVELS))
    return MarginSpread(
        quantiles=(low, middle, high),
        tail=(high - middle) / (middle - low) if middle > low else None,
        ratio=high / middle if middle else None,
    )


def _scored(values: Array) -> Array:
    spread = float(values.std())
    return (values - values.mean()) / spread if spread else np.zeros_like(values)


def step_margins(
    model: LanguageModel, layer: int, coder: Transcoder, prompts: Tensor, candidates: Tensor
) -> tuple[Array, Array, Array]:
    """Return margins to the nearest prompt that differs in its last token alone, (n,) each.

    In features that are active in one and not in the other, in the ℓ2 distance of states, and of
    activations; the true last token is left out of the candidates.
    """
    found: list[list[float]] = [[], [], []]
    for row in prompts:
        tokens = torch.cat([row[-1:], candidates[candidates != row[-1]]])
        tokens = torch.cat([row[:-1].expand(len(tokens), -1), tokens[:, None]], dim=1)
        site = read_site(model, layer, tokens, coder.reads)
        active = coder.encode(site.inputs).double().cpu().numpy()
        states = site.states.double().cpu().numpy()
        found[0].append(float(hamming(active[:1] > 0, active[1:] > 0).min()))
        found[1].append(float(np.linalg.norm(states[1:] - states[0], axis=1).min()))
        found[2].append(float(np.linalg.norm(active[1:] - active[0], axis=1).min()))
    return np.array(found[0]), np.array(found[1]), np.array(found[2])


def flips(
    edits: Mapping[str, tuple[Array, Array]], backbone: Bits
) -> tuple[dict[str, EditFlips], dict[str, Array]]:
    """Count features that are active before an edit or after it and not both, by class.

    The base rate of a pair is the share of scaffold features among all that are active in it: a
    share of flips that equals it says nothing about the classes.

    Args:
        edits: activations before and after, (n, F) each, by kind of edit.
        backbone: (F,).

    Returns:
        Means by kind, and the share of every pair by kind.
    """
    told, shares = {}, {}
    for name, (before, after) in edits.items():
        on, off = before > 0, after > 0
        flipped, either = on ^ off, on | off
        count, base = flipped.sum(axis=1), either.sum(axis=1)
        real = (count > 0) & (base > 0)
        if not real.any():
            continue
        share = (flipped & ~backbone).sum(axis=1)[real] / count[real]
        rate = (either & ~backbone).sum(axis=1)[real] / base[real]
        shares[name] = share
        excess = share - rate
        told[name] = EditFlips(
            pairs=int(real.sum()),
            flips=float(count[real].mean()),
            scaffold=float(share.mean()),
            base=float(rate.mean()),
            excess=float(excess.mean()),
            excess_error=_error(excess),
            # Σ flips over Σ active, of each class by itself
            backbone_flips=_ratio((flipped & backbone)[real], (either & backbone)[real]),
            scaffold_flips=_ratio((flipped & ~backbone)[real], (either & ~backbone)[real]),
        )
    return told, shares


def kruskal(shares: Mapping[str, Array]) -> Pair | None:
    """Return H and p of Kruskal and Wallis' test that kinds of edit have one law of shares."""
    groups = [held for held in shares.values() if len(held) > 1]
    if len(groups) < 2 or len(np.unique(np.concatenate(groups))) < 2:
        return None
    found = stats.kruskal(*groups)
    return float(found.statistic), float(found.pvalue)


def overlaps(active: Array, backbone: Bits, pairs: NDArray[np.int64]) -> CodeOverlap | None:
    """Return the mean share of active features that two prompts have in common, by class."""
    if len(pairs) < 2:
        return None
    on = active > 0

    def shared(chosen: Bits) -> Pair | None:
        # |A ∩ B|/|A ∪ B| of the features chosen, over pairs in which some are active
        left, right = on[pairs[:, 0]] & chosen, on[pairs[:, 1]] & chosen
        either = (left | right).sum(axis=1)
        share = (left & right).sum(axis=1)[either > 0] / either[either > 0]
        return (float(share.mean()), _error(share)) if len(share) > 1 else None

    return CodeOverlap(
        pairs=len(pairs),
        full=shared(np.ones_like(backbone)),
        backbone=shared(backbone),
        scaffold=shared(~backbone),
    )


def name_prompts(codes: Array, confidence: float) -> CodeNaming:
    """Return how often a code names its prompt, by retrieval in a bank of codes.

    A code without noise that no other prompt of the bank has names its prompt always; r prompts
    with one code are named once in r times.
    """
    attack = retrieve(codes, codes, np.arange(len(codes)), confidence=confidence)
    return CodeNaming(
        top1=(attack.top1, *attack.top1_interval), distinct=len(np.unique(codes, axis=0))
    )


def _error(values: Array) -> float:
    return float(values.std(ddof=1) / len(values) ** 0.5) if len(values) > 1 else 0.0


def _ratio(part: Bits, whole: Bits) -> float | None:
    return float(part.sum() / whole.sum()) if whole.any() else None
