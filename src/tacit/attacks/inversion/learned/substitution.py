"""Which single token to change so that a prompt explains a release better."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from tacit.attacks.exact.channels import CodeChannel, GaussianChannel
from tacit.attacks.inversion.learned.inverter import StateInverter
from tacit.attacks.inversion.learned.released import MappedChannel, StateRelease
from tacit.attacks.inversion.learned.training import in_order
from tacit.models.sensitivity import embedding_gradients
from tacit.models.texts.prefixes import Tokens

# weight of ln P of the network beside gains that are scaled to a deviation of one
PRIOR_WEIGHT = 0.5
ROWS_TOGETHER = 16


def substitutes(inverter: StateInverter, released: Any, tokens: Tokens, count: int) -> Tokens:
    """Return the tokens that are worth trying in each place of each prompt, (n, T, k).

    The score of token v in place t is ``−g_t · E_v / s_t + ½ ln P(v | release, tokens decoded
    before)``: g is the gradient of the distance of the prompt's state from the release by the
    embedded tokens (as greedy coordinate gradient search, Zou et al. 2023), E the embeddings and
    s_t the deviation of the first term over the vocabulary. Where a release has no gradient, the
    network alone decides.

    Args:
        inverter: the learned one.
        released: of n prompts.
        tokens: (n, T), the prompts so far.
        count: k.
    """
    parts = []
    for start in range(0, len(tokens), ROWS_TOGETHER):
        rows = slice(start, start + ROWS_TOGETHER)
        parts.append(_best(inverter, released[rows], torch.from_numpy(tokens[rows]), count))
    found: Tokens = torch.cat(parts).cpu().numpy()
    return found


def _best(inverter: StateInverter, released: Any, tokens: Tensor, count: int) -> Tensor:
    ids = tokens.to(inverter.model.device)
    score = PRIOR_WEIGHT * _expected(inverter, released, ids)
    gains = _gains(inverter, released, ids)
    if gains is not None:
        score = score + gains
    return score.topk(min(count, score.shape[-1]), dim=-1).indices


@torch.no_grad()
def _expected(inverter: StateInverter, released: Any, ids: Tensor) -> Tensor:
    """``ln P(v | release, tokens decoded before)`` by the network, (n, T, V)."""
    rows = inverter.release.vectors_of(released).to(ids.device)
    shape = inverter.network.shape
    logits: Tensor = inverter.network(rows, in_order(shape, ids)).float()
    return in_order(shape, logits.log_softmax(dim=-1))


def _gains(inverter: StateInverter, released: Any, ids: Tensor) -> Tensor | None:
    """Decrease of the distance to first order, at a deviation of one, or None, (n, T, V)."""
    release, model = inverter.release, inverter.model
    target = release.vectors_of(released).to(model.device)
    if isinstance(release.channel, MappedChannel) or target.shape[1] != model.width:
        return None
    weights = _precision(release)
    weighted = None if weights is None else weights.to(target)

    def pull(states: Tensor) -> Tensor:
        rest = states - target
        return rest if weighted is None else rest @ weighted

    gradients = embedding_gradients(model, inverter.layer, ids, pull)
    every = torch.arange(model.anatomy.embedded, device=ids.device)
    with torch.no_grad():
        held = model.network.get_input_embeddings()(every).to(gradients)
    gains: Tensor = -(gradients @ held.T)
    deviation = gains.std(dim=-1, keepdim=True)
    return gains.div_(deviation.clamp(min=torch.finfo(gains.dtype).tiny))


def _precision(release: StateRelease) -> Tensor | None:
    """``Σ⁻¹`` with bare directions at the least noise of the others; None for Euclidean ones."""
    channel = release.channel
    if isinstance(channel, CodeChannel):
        return None
    assert isinstance(channel, GaussianChannel)
    if channel.covariance is None:
        return None
    values, vectors = np.linalg.eigh(channel.covariance.to_dense())
    least = values[values > values.max() * 1e-12].min()
    scaled = vectors / np.maximum(values, least)
    return torch.from_numpy(scaled @ vectors.T * least)
