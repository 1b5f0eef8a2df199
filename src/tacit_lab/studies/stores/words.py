"""Words of a text, read off the vector that stands for its code in three ways, and their bound."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tacit_lab.studies.stores.encoder import WordMeans, words_of
from tacit_lab.studies.stores.theft import Theft, told

# ridge of the linear reader, and the words that are looked for: the most common stand in any text
RIDGE, COMMON, SOUGHT = 1.0, 50, 1000
# the transformer: pieces of a vector, their width, and passes over the public texts
PIECES, WIDTH, HEADS, PASSES, BATCH, RATE = 8, 64, 4, 8, 128, 2e-3
# the search by re-encoding: texts that are kept after each word, words that are tried, and most
BEAM, TRIED, LONGEST = 4, 40, 12


@dataclass(frozen=True, eq=False)
class Readings:
    """Texts of which words are read: public ones to learn from, and those of the store.

    Attributes:
        texts: of the public and of the store.
        rows: (n, d) of each, the vectors that stand for their codes.
        means: the encoder.
        bits: of a code.
        searched: texts of the store for which words are searched by re-encoding; of none, words
            are read by the linear reader alone.
    """

    texts: tuple[Sequence[str], Sequence[str]]
    rows: tuple[Any, Any]
    means: WordMeans
    bits: float
    searched: int


def recovered(held: Readings) -> tuple[Theft, dict[str, Theft]]:
    """Return the F1 of the words of a linear reader, and of others where texts are searched.

    Beside each stands the most of any reader.
    """
    public, stored = (_bags(texts, held.means) for texts in held.texts)
    linear = _linear(held.rows, public)
    # the linear reader names as many words of every text as there are on average
    count = round(float(public.sum(1).mean()))
    named = np.zeros_like(linear)
    np.put_along_axis(named, np.argpartition(-linear, count, axis=1)[:, :count], 1.0, axis=1)
    blind = best_unseen(stored)

    def theft(true: Any, words: Any) -> Theft:
        return told("words of a text (F1)", words_f1(true, words).tolist(), blind, held.bits)

    found = theft(stored, named)
    if not held.searched:
        return found, {}
    first, chance = slice(held.searched), _transformer(held.rows, public)
    return found, {
        "linear": found,
        "transformer": theft(stored, likeliest(chance)),
        "re-encoding": theft(stored[first], _reencoded(held, linear[first])),
    }


def best_unseen(bags: Any) -> float:
    """Return the best mean F1 of one list of words for all texts: max_a E[2|x ∩ a|/(|x| + |a|)].

    Of a list of s words the mean is Σ_{w in a} E[2·1{w in x}/(|x| + s)], a sum over its words, so
    that the best s are those of the largest terms, and every s is tried: no list has more. A code
    of b bits multiplies the best mean of any gain that is not negative by 2^b at most: Σ_y max_a
    Σ_x p(x) p(y|x) g(x, a) <= Σ_y max_x p(y|x) · max_a E[g(X, a)], for X drawn from these texts.

    Args:
        bags: (n, w) of 0 and 1, which words are in a text.

    Example:
        >>> best_unseen(np.array([[1.0, 1.0, 0.0], [1.0, 0.0, 1.0]]))
        0.8

    Source: Alvim, Chatzikokolakis, Palamidessi and Smith (2012), theorem on gain functions.
    """
    sizes = bags.sum(1).astype(int)
    held = np.unique(sizes)
    # texts with each word, by how many words a text has
    tables = np.stack([bags[sizes == size].sum(0) for size in held])
    best = 0.0
    for s in range(1, bags.shape[1] + 1):
        terms = (2.0 / (held + s)) @ tables
        best = max(best, float(np.sort(terms)[-s:].sum()) / len(bags))
    return best


def likeliest(chance: Any) -> Any:
    """Return the words (n, w) to name where a word is in a text with some probability.

    Of the s likeliest F1 is 2 Σ p/(s + Σ_all p) nearly; the best s is taken for every text.
    """
    order = np.argsort(-chance, axis=1)
    ordered = np.take_along_axis(chance, order, axis=1)
    sizes = np.arange(1, chance.shape[1] + 1)
    value = 2.0 * ordered.cumsum(1) / (sizes + chance.sum(1, keepdims=True))
    named = np.zeros_like(chance)
    np.put_along_axis(named, order, sizes <= 1 + value.argmax(1)[:, None], axis=1)
    return named


def _linear(rows: tuple[Any, Any], bags: Any) -> Any:
    """Return scores of the words of stored texts by a ridge regression from public ones."""
    mean = rows[0].mean(0)
    held = rows[0] - mean
    gram = held.T @ held + RIDGE * np.eye(held.shape[1])
    weights = np.linalg.solve(gram, held.T @ (bags - bags.mean(0)))
    return (rows[1] - mean) @ weights + bags.mean(0)


def _transformer(rows: tuple[Any, Any], bags: Any) -> Any:
    """Return the probability of every word in stored texts by a transformer fitted to public ones.

    A vector is cut into pieces by a linear map, which attend to each other twice.
    """
    import torch
    from torch import nn

    torch.manual_seed(0)
    width, words = rows[0].shape[1], bags.shape[1]
    last = nn.Linear(PIECES * WIDTH, words)
    layer = nn.TransformerEncoderLayer(WIDTH, HEADS, 2 * WIDTH, dropout=0.1, batch_first=True)
    reader = nn.Sequential(
        nn.Linear(width, PIECES * WIDTH), nn.Unflatten(1, (PIECES, WIDTH)),
        nn.TransformerEncoder(layer, 2), nn.Flatten(), last,
    )  # fmt: skip
    with torch.no_grad():
        # what is known without the vector: how often a word is in a public text
        share = torch.from_numpy((bags.sum(0) + 0.5) / (len(bags) + 1.0)).float()
        last.bias.copy_(torch.logit(share))
        last.weight.mul_(0.1)
    mean, scale = rows[0].mean(0), rows[0].std() + 1e-9
    public, stored = (torch.from_numpy((part - mean) / scale).float() for part in rows)
    wanted = torch.from_numpy(bags).float()
    steps = PASSES * -(-len(public) // BATCH)
    descent = torch.optim.Adam(reader.parameters(), RATE)
    falling = torch.optim.lr_scheduler.OneCycleLR(descent, RATE, total_steps=steps)
    for _ in range(PASSES):
        for part in torch.randperm(len(public)).split(BATCH):
            loss = nn.functional.binary_cross_entropy_with_logits(
                reader(public[part]), wanted[part], reduction="sum"
            )
            descent.zero_grad()
            (loss / len(part)).backward()
            descent.step()
            falling.step()
    reader.eval()
    with torch.no_grad():
        return torch.cat([reader(part).sigmoid() for part in stored.split(2048)]).double().numpy()


def _reencoded(held: Readings, scores: Any) -> Any:
    """Return the words whose vector, encoded anew, is nearest to that of a code, by beam search.

    Nothing is asked of the encoder but vectors of texts: those of a few words, of which the best
    are kept and lengthened by one of the words that the linear reader finds likeliest.
    """
    sought = held.means.words[COMMON : COMMON + SOUGHT]
    named = np.zeros((len(scores), len(sought)))
    for row, likely, target in zip(named, np.argsort(-scores), held.rows[1], strict=False):
        beams: list[tuple[float, tuple[int, ...]]] = [(-np.inf, ())]
        for _ in range(LONGEST):
            longer = {tuple(sorted((*one, word))) for _, one in beams
                      for word in likely[:TRIED].tolist() if word not in one}  # fmt: skip
            tried = sorted(longer)
            if not tried:
                break
            near = held.means([" ".join(sought[w] for w in one) for one in tried]) @ target
            best = np.argsort(-near)[:BEAM]
            if near[best[0]] <= beams[0][0]:
                break
            beams = [(float(near[place]), tried[place]) for place in best.tolist()]
        row[list(beams[0][1])] = 1.0
    return named


def _bags(texts: Sequence[str], means: WordMeans) -> Any:
    sought = {word: n for n, word in enumerate(means.words[COMMON : COMMON + SOUGHT])}
    found = np.zeros((len(texts), len(sought)))
    for row, text in zip(found, texts, strict=True):
        row[[sought[word] for word in words_of(text) if word in sought]] = 1.0
    return found


def words_f1(true: Any, named: Any) -> Any:
    """Return 2|x ∩ a|/(|x| + |a|) of the words of texts and those that are named, (n,)."""
    return 2.0 * (true * named).sum(1) / np.maximum(true.sum(1) + named.sum(1), 1.0)
