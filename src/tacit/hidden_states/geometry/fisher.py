"""Fisher information of the last state: how much a small change of it moves the prediction."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike
from torch import Tensor, nn

from tacit._ground.checks import Array, RandomSource, generator
from tacit._ground.frozen import frozen
from tacit.hidden_states.geometry.methods import FISHER, FisherFit
from tacit.models.continuation import Continuation, batch_rows
from tacit.models.language import TOKENS_PER_BATCH, LanguageModel
from tacit.models.next_states import single_tokens

JACOBIAN_ENTRIES = 2**25


@dataclass(frozen=True, eq=False)
class FisherInformation:
    """``F = (1/n) Σ_x E_y[∇_h log p(y|h) ∇_h log p(y|h)ᵀ]`` at one layer, over n prompts.

    Attributes:
        matrix: F, (d, d), or its diagonal (d,), in nats per squared unit of the state.
        halves: the same from every other prompt, twice: they share none.
        states: the clean states at which it was measured, (n, d).
        label_source: where the labels y came from.
        terms: gradients summed: the rank of F is no larger.
        tail: mean probability of the tokens that ``"top-k"`` put into one class, else 0.
    """

    matrix: Array
    halves: tuple[Array, Array]
    states: Array
    label_source: str
    terms: int
    tail: float

    @property
    def full(self) -> bool:
        """Whether F is a matrix, not its diagonal alone."""
        return self.matrix.ndim == 2

    @property
    def dense(self) -> Array:
        """F as a (d, d) array."""
        return self.matrix if self.full else np.diag(self.matrix)


def fisher_information(
    model: LanguageModel,
    layer: int,
    prefixes: ArrayLike,
    how: FisherFit = FISHER,
    *,
    run: Continuation | None = None,
    rng: RandomSource = None,
) -> FisherInformation:
    """Measure the Fisher information of the last position's state through the upper layers.

    ``½ ΔᵀFΔ`` is the mean KL divergence, to second order, that a change Δ of the state causes
    with the earlier positions clean. Per batch of prompts there is one clean forward pass, one
    pass of the last position through the upper layers, and B backward passes of that position:

    - ``"true"``, B = 1: y is the token that follows in the text. What training called the Fisher
      (the empirical Fisher); it is F only where the model predicts the text perfectly.
    - ``"model-sampled"``, B = ``draws``: y drawn from the model's prediction; F without bias.
    - ``"model-exact"``, B = d: ``F = Jᵀ(diag p − p pᵀ)J`` of the logits' Jacobian J, and V d²
      products more a prompt; F without any error of sampling y.
    - ``"top-k"``, B = k + 1: the ``top`` likeliest tokens, all others one class. Coarser classes
      tell less: never above F, and F itself when ``top`` = V − 1.

    Args:
        model: the language model.
        layer: 1 … L, or 0 for the embeddings.
        prefixes: tokens, (n, T), n >= 2.
        how: where the labels come from, and what of F is kept.
        run: these prompts run before, ``model.continuation(prefixes, layer)``; run now when None.
        rng: source of the drawn labels.

    Returns:
        F in float64, summed as it streams.

    Raises:
        ValueError: an argument outside the model, or an unknown choice.

    Example:
        >>> from transformers import GPT2Config, GPT2LMHeadModel
        >>> sizes = {"vocab_size": 50, "n_embd": 16, "n_layer": 2, "n_head": 2, "n_positions": 8}
        >>> model = LanguageModel(GPT2LMHeadModel(GPT2Config(**sizes)))
        >>> found = fisher_information(model, 1, torch.arange(24).reshape(4, 6), rng=0)
        >>> found.matrix.shape, found.terms
        ((16, 16), 4)

    Source: hidden-state, Eq. 1 and App. B.2.
    """
    tokens, level = several_prompts(model, prefixes), model.check_layer(layer)
    kind, times = how.label_source, how.draws
    kept = min(how.top, model.vocabulary - 1)
    followers = _followers(how.next_tokens, kind, model, len(tokens))
    source = torch.Generator().manual_seed(int(generator(rng).integers(2**63)))
    streams: dict[str, Callable[[Continuation, Tensor, slice], Iterator[Tensor]]] = {
        "true": lambda run, leaves, rows: _of_labels(run, leaves, followers[rows, None]),
        "model-sampled": lambda run, leaves, _: _of_draws(run, leaves, times, source),
        "model-exact": _exact,
        "top-k": lambda run, leaves, _: _of_classes(run, leaves, kept),
    }
    size = batch_rows(how.batch_size, max(1, TOKENS_PER_BATCH // tokens.shape[1]))
    if kind == "model-exact":
        size = max(1, min(size, JACOBIAN_ENTRIES // model.width**2))
    if run is not None and (len(run), run.layer) != (len(tokens), level):
        raise ValueError(
            f"run: expected {len(tokens)} prompts at layer {level}, got {len(run)} at {run.layer}"
        )
    sums = _HalfSums(model.width, not how.diagonal)
    states: list[Array] = []
    for start in range(0, len(tokens), size):
        rows = slice(start, start + size)
        upper = model.continuation(tokens[rows], level) if run is None else run.select(rows)
        leaves = upper.clean_states.clone().requires_grad_()
        with torch.enable_grad():
            for part in streams[kind](upper, leaves, rows):
                sums.add(part, start)
        states.append(upper.clean_states.double().cpu().numpy())
    exact_terms = {"true": 1, "model-sampled": times, "top-k": kept + 1}
    return FisherInformation(
        matrix=frozen(sums.mean(len(tokens))),
        halves=sums.halves(len(tokens)),
        states=frozen(np.concatenate(states)),
        label_source=kind,
        terms=len(tokens) * exact_terms.get(kind, model.vocabulary),
        tail=_tail(model, tokens, kept) if kind == "top-k" else 0.0,
    )


def several_prompts(model: LanguageModel, prefixes: Any) -> Tensor:
    """Return tokens (n, T) of at least two prompts."""
    tokens = model.check_tokens(prefixes)
    if len(tokens) < 2:
        raise ValueError(f"prefixes: expected at least 2 prompts, got {len(tokens)}")
    return tokens


class _HalfSums:
    """Sums of gᵀg, or of g², over even and over odd prompts, in float64."""

    def __init__(self, width: int, full: bool) -> None:
        self._full = full
        shape = (width, width) if full else (width,)
        self._sums = [np.zeros(shape), np.zeros(shape)]

    def add(self, gradients: Tensor, start: int) -> None:
        """Add the gradients (b, d), or second moments (b, d, d), of prompts from ``start`` on."""
        found = gradients.detach().double().cpu().numpy()
        for half in (0, 1):
            part = found[(start + half) % 2 :: 2]
            if part.ndim == 3:
                moment = part.sum(axis=0)
                self._sums[half] += moment if self._full else np.diagonal(moment)
            elif self._full:
                self._sums[half] += part.T @ part
            else:
                self._sums[half] += (part**2).sum(axis=0)

    def mean(self, count: int) -> Array:
        """Return the mean over all prompts, exactly symmetric."""
        return _symmetric((self._sums[0] + self._sums[1]) / count)

    def halves(self, count: int) -> tuple[Array, Array]:
        """Return the mean over each half."""
        first, second = self._sums
        return (
            frozen(_symmetric(first / ((count + 1) // 2))),
            frozen(_symmetric(second / (count // 2))),
        )


def _symmetric(values: Array) -> Array:
    return values if values.ndim == 1 else (values + values.T) / 2


def _followers(next_tokens: Any, kind: str, model: LanguageModel, count: int) -> Tensor:
    if kind != "true":
        if next_tokens is not None:
            raise ValueError(f"next_tokens: expected None with label_source={kind!r}, got some")
        return torch.empty(0)
    if next_tokens is None:
        raise ValueError(
            f"next_tokens: expected the {count} tokens that follow the prompts, for "
            "label_source='true'"
        )
    return single_tokens(model, "next_tokens", next_tokens, count=count)


def _gradient(values: Tensor, leaves: Tensor) -> Tensor:
    """Per-prompt gradients in one pass: prompts share no leaf, so the sum separates."""
    return torch.autograd.grad(values.sum(), leaves, retain_graph=True)[0]


def _of_labels(run: Continuation, leaves: Tensor, labels: Tensor) -> Iterator[Tensor]:
    likelihoods = run.logits(leaves).log_softmax(dim=-1).gather(1, labels.to(leaves.device))
    for column in likelihoods.T:
        yield _gradient(column, leaves)


def _of_draws(
    run: Continuation, leaves: Tensor, draws: int, source: torch.Generator
) -> Iterator[Tensor]:
    logs = run.logits(leaves).log_softmax(dim=-1)
    chances = logs.detach().cpu().double().exp()
    labels = torch.multinomial(chances, draws, replacement=True, generator=source)
    for column in logs.gather(1, labels.to(logs.device)).T:
        yield _gradient(column / draws**0.5, leaves)


def _of_classes(run: Continuation, leaves: Tensor, top: int) -> Iterator[Tensor]:
    logits = run.logits(leaves)
    logs = logits.log_softmax(dim=-1)
    index = logs.topk(top, dim=-1).indices
    # the tail as its own log-sum-exp: −Σ p_j ∇log p_j would lose it where it is small
    others = logits.scatter(1, index, float("-inf")).logsumexp(dim=-1, keepdim=True)
    classes = torch.cat([logs.gather(1, index), others - logits.logsumexp(-1, keepdim=True)], 1)
    roots = (0.5 * classes.detach()).exp()
    for column, root in zip(classes.T, roots.T, strict=True):
        yield _gradient(column, leaves) * root[:, None]


def _exact(run: Continuation, leaves: Tensor, _: slice) -> Iterator[Tensor]:
    """Jᵀ(diag p − p pᵀ)J with J = D W J_f: f what the head is given, W its weights.

    D is the slope of what the network makes of each of the head's outputs, such as a cap.
    """
    with _seen_at(run.anatomy.head) as seen:
        logits = run.logits(leaves, batch_size=len(run))
    ((final, raw),) = seen
    columns = range(final.shape[-1])
    jacobian = torch.stack([_gradient(final[..., i], leaves) for i in columns], dim=1)
    (caps,) = torch.autograd.grad(logits.sum(), raw, retain_graph=True)
    head: Any = run.anatomy.head
    weights, slopes = _double(head.weight.detach()), _double(caps[:, -1])
    chances = _double(logits.detach()).softmax(dim=-1)
    moments = []
    for row, cap, slope in zip(chances, slopes, _double(jacobian), strict=True):
        capped = cap[:, None] * weights
        centred = (capped - row @ capped) * row.sqrt()[:, None]
        moments.append(slope.T @ (centred.T @ centred) @ slope)
    yield torch.stack(moments)


def _double(values: Tensor) -> Tensor:
    return (values.cpu() if values.device.type == "mps" else values).double()


@contextmanager
def _seen_at(module: nn.Module) -> Iterator[list[tuple[Tensor, Tensor]]]:
    """Keep what a module is given and what it returns."""
    seen: list[tuple[Tensor, Tensor]] = []
    handle = module.register_forward_hook(
        lambda _, arguments, output: seen.append((arguments[0], output))
    )
    try:
        yield seen
    finally:
        handle.remove()


def _tail(model: LanguageModel, tokens: Tensor, top: int) -> float:
    chances = model.logits(tokens).double().softmax(dim=-1)
    return float(1.0 - chances.topk(top, dim=-1).values.sum(dim=-1).mean())
