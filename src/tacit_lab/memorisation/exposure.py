"""How much of a secret comes out of a language model, and the losses of its sequences."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from scipy import special

from tacit._ground.checks import Array, RandomSource, choice, generator, integer
from tacit._ground.frozen import array_value
from tacit.gradients.batches import evaluating
from tacit.models.anatomy import cache_argument
from tacit_lab.memorisation.canaries import IGNORED, SIDES, Canaries

Loss = Callable[[torch.nn.Module, torch.Tensor, torch.Tensor], torch.Tensor]
TOKENS_TOGETHER = 8192


@array_value()
class Exposures:
    """What was measured of every canary.

    Attributes:
        recovered: (m,) probability that at least c digits come out right; an unbiased estimate.
        bits: (m,) log2(10^d) − log2(rank) of the secret among all 10^d; rank is estimated.
        nats: (m,) −ln of the likelihood of the secret, exact.
    """

    recovered: Array
    bits: Array
    nats: Array


def exposures(
    network: torch.nn.Module,
    canaries: Canaries,
    *,
    least: int = 4,
    samples: int = 128,
    rng: RandomSource = None,
) -> Exposures:
    """Measure how far each secret comes out behind its prompt.

    Digits follow the model's law q, each in proportion to the likelihoods of the ten digit tokens
    after the prompt and the digits before. Recovery ``P(>= c of d digits are right)`` is a mean
    over N secrets of q, the last digit summed instead of drawn. The rank is
    ``1 + Σ_s 1{q(s) > q(secret)}``, estimated without bias from N secrets of q and N uniform ones,
    each weighted by ``2/(q(s) + 10^−d)``, which no secret of few or of many rivals makes large.
    Bits are the logarithm of an estimate: with few samples they err towards too much exposure, by
    about one bit at 16 bits and N = 256.

    Args:
        network: a causal ``transformers`` model.
        canaries: m of them.
        least: c digits that must be right.
        samples: N for each canary.
        rng: seed or generator of the draws.

    Returns:
        Recovery, exposure in bits and −ln likelihood, (m,) each.

    Raises:
        ValueError: an argument is outside its range.

    Example:
        >>> from transformers import GPT2Config, GPT2LMHeadModel
        >>> sizes = {"vocab_size": 128, "n_embd": 8, "n_layer": 1, "n_head": 1, "n_positions": 48}
        >>> network = GPT2LMHeadModel(GPT2Config(**sizes))
        >>> canaries = Canaries.draw(2, lambda text: [ord(c) for c in text], rng=0)
        >>> found = exposures(network, canaries, least=1, samples=64, rng=0)
        >>> bool((abs(found.recovered - (1 - 0.9**6)) < 0.2).all())
        True

    Source: Carlini et al. (2019), Sec. 4.3; dsi, Sec. 5.1.
    """
    digits = canaries.secrets.shape[1]
    wanted = integer("least", least, minimum=1, maximum=digits)
    count = integer("samples", samples, minimum=2)
    source = generator(rng)
    with measuring(network):
        rows = [
            _one(network, prompt, secret, canaries.symbols, wanted, count, source)
            for prompt, secret in zip(canaries.prompts, canaries.secrets, strict=True)
        ]
    recovered, bits, nats = np.array(rows).T
    return Exposures(recovered=recovered, bits=bits, nats=nats)


def _one(
    network: Any,
    prompt: tuple[int, ...],
    secret: npt.NDArray[np.int64],
    symbols: npt.NDArray[np.int64],
    least: int,
    count: int,
    source: np.random.Generator,
) -> tuple[float, float, float]:
    digits = secret.size
    # the secret itself, N secrets of the model's law and N uniform ones
    drawn = np.empty((1 + 2 * count, digits), dtype=np.int64)
    drawn[0] = secret
    # uniform secrets; those of the model's law are drawn place by place
    drawn[1 + count :] = source.integers(SIDES, size=(count, digits))
    # ln q of every secret so far
    likelihood = np.zeros(len(drawn))
    last = np.zeros((count, SIDES))
    for place, logs in enumerate(_digit_laws(network, prompt, drawn, symbols)):
        # q of the next digit behind each of the drawn ones
        laws = logs[1 : 1 + count]
        # the next digit of every secret that follows q
        drawn[1 : 1 + count, place] = _draw_digit(laws, source)
        likelihood += np.take_along_axis(logs, drawn[:, place, None], axis=1)[:, 0]
        last = laws
    # the last digit is summed instead of drawn: less variance, same mean
    own = drawn[1 : 1 + count]
    # digits that are right before the last
    right = (own[:, :-1] == secret[:-1]).sum(axis=1)
    # chance that the last is right
    finish = np.exp(last[:, secret[-1]])
    # P(>= c right) = P(c before) + P(c − 1 before) q(last right)
    recovered = float(((right >= least) + (right == least - 1) * finish).mean())
    return recovered, _bits(drawn, likelihood, digits), -float(likelihood[0])


def _digit_laws(
    network: Any,
    prompt: tuple[int, ...],
    drawn: npt.NDArray[np.int64],
    symbols: npt.NDArray[np.int64],
) -> Iterator[Array]:
    """Yield ln q of the ten digits for every row, place by place, as its digits are filled in."""
    from transformers import DynamicCache

    # the prompt is read once, and its cache serves every secret
    kept = DynamicCache(config=network.config)
    tokens = torch.from_numpy(symbols)
    given = torch.tensor([prompt])
    name = cache_argument(inspect.signature(network.forward).parameters)
    for place in range(drawn.shape[1]):
        logits = network(input_ids=given, use_cache=True, **{name: kept}).logits[:, -1]
        # ln q among the ten digits alone
        logs = special.log_softmax(logits[:, tokens].double().numpy(), axis=1)
        if place == 0:
            logs = np.repeat(logs, len(drawn), axis=0)
            kept.batch_repeat_interleave(len(drawn))
        yield logs
        given = tokens[torch.from_numpy(drawn[:, place])][:, None]


def _draw_digit(laws: Array, source: np.random.Generator) -> npt.NDArray[np.int64]:
    """Draw one digit of each row's law."""
    # argmax(ln q + Gumbel) is a draw of q
    gumbel = source.gumbel(size=laws.shape)
    return np.asarray((laws + gumbel).argmax(axis=1), dtype=np.int64)


def _bits(drawn: npt.NDArray[np.int64], likelihood: Array, digits: int) -> float:
    """Return log2(10^d) − log2(rank) of the first row by the others."""
    # ln q of the others and of the secret itself
    others, own = likelihood[1:], likelihood[0]
    # the secret itself, drawn again, is no rival, whatever rounding makes of its likelihood
    rivals = (others > own) & (drawn[1:] != drawn[0]).any(axis=1)
    total = float(SIDES**digits)
    # 1/(½ q + ½ 10^−d): the importance weight of a draw of the half-and-half mixture
    weights = 2.0 / (np.exp(others) + 1.0 / total)
    # 1 + Σ_s 1{q(s) > q(secret)}, estimated without bias and at most 10^d
    rank = 1.0 + min(float((rivals * weights).mean()), total - 1.0)
    return math.log2(total) - math.log2(rank)


def exact_memorisation(
    network: torch.nn.Module, sequences: torch.Tensor, *, prompt: int, following: int
) -> npt.NDArray[np.bool_]:
    """Return which sequences' next c tokens come out greedily after their first k.

    They do where each of the c tokens is the likeliest after what stands before it, so one pass
    over the sequences decides it.

    Args:
        network: a causal ``transformers`` model.
        sequences: (n, T) tokens.
        prompt: k tokens that are given, >= 1.
        following: c tokens that must follow, k + c <= T.

    Raises:
        ValueError: an argument is outside its range.

    Example:
        >>> from transformers import GPT2Config, GPT2LMHeadModel
        >>> sizes = {"vocab_size": 50, "n_embd": 8, "n_layer": 1, "n_head": 1, "n_positions": 16}
        >>> network = GPT2LMHeadModel(GPT2Config(**sizes))
        >>> exact_memorisation(network, torch.arange(16)[None], prompt=8, following=5).shape
        (1,)

    Source: Tirumala et al. (2022); dsi, Sec. 5.1.
    """
    if sequences.ndim != 2:
        raise ValueError(f"sequences: expected shape (n, T), got {tuple(sequences.shape)}")
    after = integer("following", following, minimum=1)
    most = sequences.shape[1] - after
    if most < 1:
        raise ValueError(f"following: expected fewer than the {sequences.shape[1]}, got {after}")
    start = integer("prompt", prompt, minimum=1, maximum=most)
    found = []
    with measuring(network):
        for rows in torch.split(sequences, max(1, TOKENS_TOGETHER // sequences.shape[1])):
            logits: Any = network(input_ids=rows[:, : start + after - 1], use_cache=False).logits
            # greedy tokens behind every prefix of the sequence
            likeliest = logits[:, start - 1 :].argmax(dim=-1)
            # all c of them right
            found.append((likeliest == rows[:, start : start + after]).all(dim=1).numpy())
    return np.concatenate(found)


@contextmanager
def measuring(network: torch.nn.Module) -> Iterator[None]:
    """Hold a model in evaluation mode and without gradients."""
    with evaluating(network), torch.no_grad():
        yield


def sequence_loss(reduction: str) -> Loss:
    """Return the loss of a sequence: −ln p of its tokens but the first, nats, mean or sum.

    Args:
        reduction: ``"mean"`` or ``"sum"`` over the tokens of a sequence.

    Raises:
        ValueError: another reduction.
    """
    mean = choice("reduction", reduction, ("mean", "sum")) == "mean"

    def loss(network: Any, inputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        logits = network(input_ids=inputs, use_cache=False).logits[:, :-1]
        following = targets[:, 1:]
        # −ln p of every token but the first, nats
        each = torch.nn.functional.cross_entropy(
            logits.transpose(1, 2), following, ignore_index=IGNORED, reduction="none"
        )
        total = each.sum(dim=1)
        return total / (following != IGNORED).sum(dim=1) if mean else total

    return loss


def losses(network: torch.nn.Module, inputs: torch.Tensor, targets: torch.Tensor) -> Array:
    """Return the mean loss of each sequence, (n,) nats a token."""
    loss, size = sequence_loss("mean"), max(1, TOKENS_TOGETHER // inputs.shape[1])
    with measuring(network):
        found = [
            loss(network, *rows)
            for rows in zip(torch.split(inputs, size), torch.split(targets, size), strict=True)
        ]
    return np.asarray(torch.cat(found).double().numpy())


def cut(
    stream: torch.Tensor, length: int, *, count: int | None = None, order: int = 0
) -> tuple[torch.Tensor, torch.Tensor]:
    """Cut a stream of tokens into sequences, a tenth of them to be unseen.

    Args:
        stream: (S,) tokens.
        length: L of each sequence.
        count: most sequences to learn from; all when left out.
        order: seed that says which; it does not depend on the text.

    Returns:
        (n, L) to learn from and (u, L) unseen.

    Raises:
        ValueError: fewer than two sequences.

    Example:
        >>> learned, unseen = cut(torch.arange(100), 5, count=10)
        >>> tuple(learned.shape), tuple(unseen.shape)
        ((10, 5), (2, 5))
    """
    size = integer("length", length, minimum=2)
    rows = stream[: len(stream) // size * size].reshape(-1, size)
    if len(rows) < 2:
        raise ValueError(f"texts: expected at least 2 sequences of {size} tokens, got {len(rows)}")
    # an order that no text has a part in
    shuffled = rows[torch.from_numpy(np.random.default_rng(order).permutation(len(rows)))]
    # a tenth, one at least
    apart = max(1, len(rows) // 10)
    learned = shuffled[apart:]
    if count is not None:
        learned = learned[: integer("sequences", count, minimum=1)]
    return learned, shuffled[:apart]
