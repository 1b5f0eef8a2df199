"""Which tokens a state speaks for: a linear map of embeddings and class means, in closed form."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from tacit._ground.checks import (
    Array,
    RandomSource,
    generator,
    integer,
    matrix,
    positive,
    symmetric,
)
from tacit._ground.frozen import array_value
from tacit.attacks.exact.channels import Channel, CodeChannel
from tacit.models.behaviours import Behaviours
from tacit.models.language import LanguageModel
from tacit.models.next_states import as_tokens
from tacit.models.texts.prefixes import Tokens

PROMPTS_TOGETHER = 256
# logits that are held at a time
LOGITS = 1 << 25
# of the mean squared entry of a state, so that the residual covariance can be inverted
LEAST_VARIANCE = 1e-6


@array_value()
class Reports:
    """What the codes of one layer say of its states.

    Attributes:
        channel: how a code is made and reported.
        means: mean public state of every report, then that of all states, (Y + 1, d).
        spread: covariance of public states around them, (d, d).
    """

    channel: CodeChannel
    means: Array
    spread: Array

    def mean(self, codes: Any) -> Array:
        """Return the mean public state of each report, that of all where it was not seen."""
        found: Array = self.means[np.minimum(codes, len(self.means) - 1)]
        return found


@array_value()
class TokenProbe:
    """Tokens as classes of states: ``h | v ~ N(m_v, R)`` after the layers given, side by side.

    ``m_v = a + W e_v + n_v/(n_v + κ) · (mean of h − a − W e_v over the n_v positions with v)``:
    a ridge regression on the token's embedding e_v, corrected where v was seen often. A noisy state
    z is read by ``ln p(v) − ½ (z − m_v)ᵀ (R + Σ)⁻¹ (z − m_v)``.

    Attributes:
        layers: whose states stand side by side.
        means: m_v, (V, D), D = d times the number of layers.
        residual: R, (D, D).
        log_prior: ln p(v), (V,), from counts of the public prompts.
        positions: public positions it was fitted on; the first of a prompt is not among them.
        reports: what codes say of the states of each layer, None where states are released.
    """

    layers: tuple[int, ...]
    means: Array
    residual: Array
    log_prior: Array
    positions: int
    reports: tuple[Reports | None, ...]

    @classmethod
    def fit(
        cls,
        model: LanguageModel,
        layer: int | Sequence[int],
        prompts: Any,
        *,
        channel: CodeChannel | Sequence[CodeChannel | None] | None = None,
        ridge: float = 1.0,
        shrinkage: float = 4.0,
        rng: RandomSource = None,
    ) -> TokenProbe:
        """Fit on public prompts, in one pass over them and by solving two linear systems.

        Args:
            model: the language model.
            layer: 1 … L, or 0 for the embeddings; or several.
            prompts: public ones of one length, (n, T), T >= 2, none of which is attacked.
            channel: where codes are released, how; one for every layer, None where states are.
            ridge: penalty on W, in units of the mean squared entry of an embedding.
            shrinkage: κ > 0, occurrences at which a token's own mean weighs as much as the map.
            rng: source of randomised reports of the public codes.

        Returns:
            The probe.

        Raises:
            ValueError: a bad argument, or prompts that the model does not read.

        Example:
            >>> from transformers import GPT2Config, GPT2LMHeadModel
            >>> sizes = {"vocab_size": 50, "n_embd": 16, "n_layer": 2, "n_head": 2}
            >>> model = LanguageModel(GPT2LMHeadModel(GPT2Config(**sizes, n_positions=8)))
            >>> public = torch.randint(50, (200, 8), generator=torch.Generator().manual_seed(0))
            >>> probe = TokenProbe.fit(model, 1, public)
            >>> state = model.states([[7, 3, 44]], 1).double().numpy()
            >>> int(probe.shortlist(state, 1e-8 * np.eye(16), 1)[0, 0])
            44

        Source: linear discriminant analysis with a regression prior of the means.
        """
        named = layer if isinstance(layer, Sequence) else [layer]
        layers = tuple(model.check_layer(each) for each in named)
        channels = _channels(channel, len(layers))
        tokens = model.check_tokens(as_tokens("prompts", prompts, ndim=2), name="prompts")
        if tokens.shape[1] < 2 or bool((tokens < 0).any()) or not layers:
            raise ValueError(
                f"prompts: expected whole prompts of at least 2 tokens and a layer, got shape "
                f"{tuple(tokens.shape)} and {len(layers)} layers"
            )
        penalty, pull = positive("ridge", ridge), positive("shrinkage", shrinkage)
        counts = _Counts(model.vocabulary, model.width * len(layers))
        tables = [None if held is None else _Table() for held in channels]
        source = generator(rng)
        for ids, parts, behaviours in _public(model, layers, tokens, channels):
            counts.add(ids, np.hstack(parts))
            for table, held, states in zip(tables, channels, parts, strict=True):
                if table is not None and held is not None:
                    codes = held.held(torch.from_numpy(states), behaviours)
                    table.add(held.draw(codes, source), states)
        means = counts.means(_embeddings(model), penalty, pull)
        return cls(
            layers=layers,
            means=means,
            residual=counts.residual(means),
            log_prior=np.log((counts.seen + 0.5) / (counts.seen + 0.5).sum()),
            positions=int(counts.seen.sum()),
            reports=tuple(
                None if table is None or held is None else table.reports(held)
                for table, held in zip(tables, channels, strict=True)
            ),
        )

    @property
    def width(self) -> int:
        """D, numbers that stand side by side."""
        return int(self.means.shape[1])

    def scores(self, states: Array, covariance: Array) -> Array:
        """Return ``ln p(v) − ½ ‖z − m_v‖²`` by ``(R + Σ)⁻¹``, (n, V).

        Args:
            states: z, (n, D).
            covariance: Σ, (D, D).

        Raises:
            ValueError: another width, or a covariance that is none.
        """
        given = matrix("states", states, columns=self.width)
        try:
            factor = np.linalg.cholesky(
                self.residual + symmetric("covariance", covariance, size=self.width)
            )
        except np.linalg.LinAlgError:
            raise ValueError("covariance: expected no negative variance, got one") from None
        rows = np.linalg.solve(factor, given.T).T
        own = np.linalg.solve(factor, self.means.T).T
        squares = (rows**2).sum(axis=1)[:, None] + (own**2).sum(axis=1) - 2.0 * rows @ own.T
        found: Array = self.log_prior - 0.5 * squares
        return found

    def shortlist(self, states: Array, covariance: Array, size: int) -> Any:
        """Return the ``size`` likeliest tokens of every state, the likeliest first, (n, size)."""
        most = min(integer("size", size, minimum=1), len(self.means))
        order: Any = np.argsort(-self.scores(states, covariance), axis=1, kind="stable")
        return order[:, :most]


class _Counts:
    """Sums over public positions from which means and their residual follow."""

    def __init__(self, vocabulary: int, width: int) -> None:
        self.seen = np.zeros(vocabulary)
        self.sums = np.zeros((vocabulary, width))
        self.squares = np.zeros((width, width))

    def add(self, tokens: Tokens, states: Array) -> None:
        """Count some positions: tokens (m,), states (m, D)."""
        np.add.at(self.seen, tokens, 1.0)
        np.add.at(self.sums, tokens, states)
        self.squares += states.T @ states

    def means(self, embeddings: Array, ridge: float, shrinkage: float) -> Array:
        """Regress sums on embeddings, then move each token towards its own mean."""
        features = np.hstack([embeddings, np.ones((len(embeddings), 1))])
        gram = (features * self.seen[:, None]).T @ features
        penalty = np.full(len(gram), ridge * float((embeddings**2).mean()))
        # the intercept is not shrunk
        penalty[-1] = 0.0
        fitted = features @ np.linalg.solve(gram + np.diag(penalty), features.T @ self.sums)
        found: Array = (self.sums + shrinkage * fitted) / (self.seen + shrinkage)[:, None]
        return found

    def residual(self, means: Array) -> Array:
        """``Σ (h − m_v)(h − m_v)ᵀ / n`` from the sums."""
        cross = self.sums.T @ means
        own = (means * self.seen[:, None]).T @ means
        found: Array = (self.squares - cross - cross.T + own) / self.seen.sum()
        floor = LEAST_VARIANCE * float(np.trace(self.squares)) / (self.seen.sum() * len(found))
        level: Array = 0.5 * (found + found.T) + floor * np.eye(len(found))
        return level


class _Table:
    """Sums over public states by what was reported of them."""

    def __init__(self) -> None:
        self.codes: list[Any] = []
        self.states: list[Array] = []

    def add(self, codes: Any, states: Array) -> None:
        """Count some states (m, d) and their reports (m,)."""
        self.codes.append(codes)
        self.states.append(states.astype(np.float32))

    def reports(self, channel: CodeChannel) -> Reports:
        """Return the mean state of each report, and the covariance around it."""
        codes, states = np.concatenate(self.codes), np.concatenate(self.states).astype(np.float64)
        seen = np.zeros(int(codes.max()) + 1)
        means = np.zeros((len(seen), states.shape[1]))
        np.add.at(seen, codes, 1.0)
        np.add.at(means, codes, states)
        # a report seen once would look certain: each is moved towards the mean of all
        centre = states.mean(axis=0)
        means = (means + centre) / (seen + 1.0)[:, None]
        rest = states - means[codes]
        return Reports(channel, np.vstack([means, centre]), rest.T @ rest / len(rest))


def _channels(channel: Any, count: int) -> list[CodeChannel | None]:
    held = list(channel) if isinstance(channel, Sequence) else [channel] * count
    wrong = [one for one in held if one is not None and not isinstance(one, CodeChannel)]
    if len(held) != count or wrong:
        found = type(wrong[0]).__name__ if wrong else f"{len(held)} of them"
        raise ValueError(f"channel: expected a CodeChannel or None for {count} layers, got {found}")
    return held


def _embeddings(model: LanguageModel) -> Array:
    weight = model.network.get_input_embeddings().weight.detach().double().cpu().numpy()
    rows: Array = np.zeros((model.vocabulary, weight.shape[1]))
    rows[: len(weight)] = weight[: model.vocabulary]
    return rows


def _public(
    model: LanguageModel, layers: Sequence[int], tokens: Tensor, channels: Sequence[Channel | None]
) -> Iterator[tuple[Tokens, list[Array], Behaviours | None]]:
    """Tokens, the states of each layer, and predictions where a code asks for them."""
    if any(one is not None and one.predicts for one in channels):
        together = max(1, LOGITS // (model.vocabulary * tokens.shape[1]))
        for part in torch.split(tokens, min(PROMPTS_TOGETHER, together)):
            top = model.states(part, model.layers, positions="all")[:, 1:].flatten(0, 1)
            with torch.no_grad():
                behaviours = Behaviours(model.anatomy.read_out(top).log_softmax(dim=-1))
            found = [model.states(part, each, positions="all")[:, 1:] for each in layers]
            rows = [states.flatten(0, 1).double().cpu().numpy() for states in found]
            yield part[:, 1:].flatten().cpu().numpy(), rows, behaviours
        return
    for part in torch.split(tokens, PROMPTS_TOGETHER):
        found = [model.states(part, each, positions="all")[:, 1:] for each in layers]
        rows = [states.reshape(-1, model.width).double().cpu().numpy() for states in found]
        yield part[:, 1:].reshape(-1).cpu().numpy(), rows, None
