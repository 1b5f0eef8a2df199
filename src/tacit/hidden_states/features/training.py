"""Training of a transcoder on what one layer of a model does to public prompts."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from typing import Any

import torch
from numpy.typing import ArrayLike
from torch import Tensor

from tacit._ground.checks import generator, integer
from tacit.compute import progress_reports
from tacit.hidden_states.features.methods import FIT, TranscoderFit
from tacit.hidden_states.features.sites import read_site, site_width, variation
from tacit.hidden_states.features.transcoder import Transcoder
from tacit.models.language import LanguageModel

# Of Adam, and the weight of the loss of dead features.
RATE, AUXILIARY = 2e-3, 1 / 32
# How often held-out rows are looked at, and how often in a row without gain before it ends.
CHECKS, PATIENCE = 12, 3
HELD_OUT_SHARE, LEAST_ROWS, ROWS_TOGETHER = 0.1, 20, 4096
# A feature that no row of so many batches has woken is dead.
SLEEP = 20


def train_transcoder(
    model: LanguageModel,
    layer: int,
    prompts: ArrayLike,
    how: TranscoderFit = FIT,
    *,
    seed: int = 0,
    progress: bool | None = None,
) -> Transcoder:
    """Fit ``min E ‖y − ŷ‖² + λ Σ_f a_f`` on every position of public prompts but the first.

    The best step on held-out rows is kept, and training ends when three checks find none better.
    Features that no longer fire learn the part that the others leave over (an auxiliary loss).

    Args:
        model: the language model; it and the features compute on its device.
        layer: 1 … L.
        prompts: public tokens, (n, T), −1 where padded.
        how: its features, what they read, and how they are trained.
        seed: of the start and of the batches.
        progress: whether progress is shown.

    Returns:
        The features; ``trained`` holds the share of the variance explained on held-out rows, the
        mean number of active features and the share of features that never fire there.

    Raises:
        ValueError: a bad argument, more active features than there are, or fewer than 20 positions.

    Example:
        >>> from transformers import GPT2Config, GPT2LMHeadModel
        >>> sizes = {"vocab_size": 50, "n_embd": 16, "n_layer": 2, "n_head": 2, "n_positions": 8}
        >>> model = LanguageModel(GPT2LMHeadModel(GPT2Config(**sizes)))
        >>> prompts = torch.randint(50, (40, 8), generator=torch.Generator().manual_seed(0))
        >>> from tacit.hidden_states import TranscoderFit
        >>> how = TranscoderFit(features=32, top_k=8, steps=50)
        >>> coder = train_transcoder(model, 1, prompts, how)
        >>> coder.size, coder.trained["active"] <= 8
        (32, True)

    Source: Gao et al. (2024) for the k largest and the auxiliary loss; hidden-state, App. O.
    """
    level = integer("layer", layer, minimum=1, maximum=model.layers)
    plan = how.at_width(model.width)
    site_width(model, level, plan.reads)
    tokens = model.check_tokens(prompts, name="prompts")
    found = read_site(model, level, tokens, plan.reads, every=True)
    if len(found.inputs) < LEAST_ROWS:
        raise ValueError(
            f"prompts: expected at least {LEAST_ROWS} positions that are not the first of a "
            f"prompt, got {len(found.inputs)}"
        )
    rng = torch.Generator().manual_seed(int(generator(seed).integers(2**62)))
    with progress_reports("features", shown=progress is not False) as report:
        steps = plan.steps or 0
        return _fitted(
            found.inputs, found.outputs, plan, rng, lambda done: report("steps", done, steps)
        )


def _fitted(
    inputs: Tensor,
    outputs: Tensor,
    plan: TranscoderFit,
    rng: torch.Generator,
    tell: Callable[[int], None],
) -> Transcoder:
    """Train on rows of unit scale, and return features of the rows as they are."""
    order = torch.randperm(len(inputs), generator=rng).to(inputs.device)
    apart = max(2, int(HELD_OUT_SHARE * len(order)))
    checked, learnt = order[:apart], order[apart:]
    x_mean, x_scale = _scale(inputs[learnt])
    y_mean, y_scale = _scale(outputs[learnt])
    x, y = (inputs - x_mean) / x_scale, (outputs - y_mean) / y_scale
    assert plan.features is not None
    count = plan.features
    start = torch.randn(count, y.shape[1], generator=rng).to(y)
    start = start / start.norm(dim=1, keepdim=True)
    read = torch.randn(count, x.shape[1], generator=rng).to(x)
    read = start.clone() if x.shape == y.shape else read / read.norm(dim=1, keepdim=True)
    weights = [read, torch.zeros(count).to(x), start, torch.zeros(y.shape[1]).to(y)]
    weights, steps = _trained(weights, x, y, learnt, checked, plan, rng, tell)
    encoder, bias, decoder, rest = weights
    # activations in units of the output: its directions have length 1
    coder = Transcoder(
        encoder=encoder * (y_scale / x_scale),
        encoder_bias=(bias - encoder @ (x_mean / x_scale)) * y_scale,
        decoder=decoder,
        decoder_bias=rest * y_scale + y_mean,
        activation="relu" if plan.top_k is None else "topk",
        top_k=plan.top_k,
        reads=plan.reads,
    )
    told = {**quality(coder, inputs[checked], outputs[checked]), "steps": steps,
            "rows": len(learnt)}  # fmt: skip
    coder.trained.update(told)
    return coder


def _trained(
    weights: list[Tensor],
    x: Tensor,
    y: Tensor,
    learnt: Tensor,
    checked: Tensor,
    plan: TranscoderFit,
    rng: torch.Generator,
    tell: Callable[[int], None],
) -> tuple[list[Tensor], int]:
    for weight in weights:
        weight.requires_grad_(True)
    optimizer = torch.optim.Adam(weights, RATE)
    asleep = torch.zeros(len(weights[0]), device=x.device)
    best, least, worse = copy.deepcopy(weights), float("inf"), 0
    assert plan.steps is not None
    every, step = max(1, plan.steps // CHECKS), 0
    for step in range(1, plan.steps + 1):
        chosen = torch.randint(len(learnt), (plan.batch,), generator=rng).to(x.device)
        rows = learnt[chosen]
        with torch.enable_grad():
            loss, fired = _loss(weights, x[rows], y[rows], plan, asleep >= SLEEP)
            optimizer.zero_grad()
            loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        with torch.no_grad():
            weights[2] /= weights[2].norm(dim=1, keepdim=True).clamp_min(1e-12)
        asleep = torch.where(fired, 0.0, asleep + 1.0)
        if step % every == 0 or step == plan.steps:
            with torch.no_grad():
                reached = _held_out(weights, x[checked], y[checked], plan)
            if reached < least:
                best, least, worse = [one.detach().clone() for one in weights], reached, 0
            elif (worse := worse + 1) == PATIENCE:
                break
            tell(step)
    return [one.detach() for one in best], step


def _loss(
    weights: list[Tensor], x: Tensor, y: Tensor, plan: TranscoderFit, dead: Tensor
) -> tuple[Tensor, Tensor]:
    encoder, bias, decoder, rest = weights
    before = torch.relu(x @ encoder.T + bias)
    found = _kept(before, plan.top_k)
    left = y - found @ decoder - rest
    loss = left.square().sum(dim=1).mean() + plan.penalty * found.sum(dim=1).mean()
    many = int(dead.sum())
    if many:
        # dead features explain what is left, by the linear part: a ReLU may hide them
        held = _kept(torch.nn.functional.softplus(x @ encoder[dead].T + bias[dead]),
                     min(many, 2 * (plan.top_k or 32)))  # fmt: skip
        loss = loss + AUXILIARY * (left.detach() - held @ decoder[dead]).square().sum(dim=1).mean()
    return loss, (found > 0).any(dim=0)


def _held_out(weights: list[Tensor], x: Tensor, y: Tensor, plan: TranscoderFit) -> float:
    none = torch.zeros(len(weights[0]), dtype=torch.bool, device=x.device)
    total = sum(
        len(rows) * float(_loss(weights, x[rows], y[rows], plan, none)[0])
        for rows in _blocks(len(x), x.device)
    )
    return total / len(x)


def _kept(found: Tensor, top_k: int | None) -> Tensor:
    if top_k is None or top_k >= found.shape[1]:
        return found
    held = found.topk(top_k, dim=1)
    return torch.zeros_like(found).scatter(1, held.indices, held.values)


def quality(coder: Transcoder, inputs: Tensor, outputs: Tensor) -> dict[str, Any]:
    """Return explained variance, mean active features and share of features that never fire."""
    left = active = 0.0
    fired = torch.zeros(coder.size, dtype=torch.bool, device=inputs.device)
    total = variation(outputs)
    for rows in _blocks(len(inputs), inputs.device):
        held = coder.encode(inputs[rows])
        left += float((outputs[rows] - coder.decode(held)).square().sum())
        active += float((held > 0).sum())
        fired |= (held > 0).any(dim=0)
    return {
        "explained": 1.0 - left / total if total else 0.0,
        "active": active / len(inputs),
        "dead": float((~fired).double().mean()),
    }


def _blocks(count: int, device: torch.device) -> Iterator[Tensor]:
    yield from torch.split(torch.arange(count, device=device), ROWS_TOGETHER)


def _scale(rows: Tensor) -> tuple[Tensor, float]:
    """Return the mean, and the root of the mean squared length about it."""
    mean = rows.mean(dim=0)
    return mean, float((rows - mean).square().sum(dim=1).mean().sqrt().clamp_min(1e-12))
