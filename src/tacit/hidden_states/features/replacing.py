"""What is left of the state, of the MLP's output and of the prediction with some features alone."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from tacit.hidden_states.features.scored import BACKBONE, FeatureScores
from tacit.hidden_states.features.scores import PROMPTS_TOGETHER, check_predictions, divergences
from tacit.hidden_states.features.sites import Site, variation
from tacit.hidden_states.features.study import Replacement
from tacit.hidden_states.features.transcoder import Transcoder
from tacit.models.language import LanguageModel

# of the five of App. P.4, the controls, and a feature's part taken out of the state as it is
WORDS = {
    "full": "all active features",
    "support": "which are active, each at its mean",
    "amplitude": "the amplitudes, on the features that fire most often",
    "backbone": "backbone features alone",
    "scaffold": "scaffold features alone",
    "random": "as many active features as backbone, first in one random order, of the same norm",
    "largest": "as many active features as backbone, the largest",
    "none": "none, the decoder's bias",
    "without scaffold": "the model's own output less its scaffold features",
    "without backbone": "the model's own output less its backbone features",
}


def conditions(
    active: Tensor, scores: FeatureScores, rng: np.random.Generator
) -> dict[str, Tensor]:
    """Return activations (n, F) that stand for the whole code, by the words above.

    ``random`` takes the first of a prompt's active features in an order of all features that is
    drawn once: which are taken is a function of which are active, and so names no prompt better.

    Args:
        active: activations of n prompts, (n, F).
        scores: classes and mean activations, measured on other prompts.
        rng: source of the random order.
    """
    kinds = torch.from_numpy(scores.classes.copy()).to(active.device)
    mean = torch.from_numpy(scores.mean.copy()).to(active)
    on = active > 0
    backbone = active * (kinds == BACKBONE)
    scaffold = active * (kinds != BACKBONE)
    many = (backbone > 0).sum(dim=1, keepdim=True)
    # one order for all prompts: a draw of each prompt's own would mark it
    order = torch.from_numpy(rng.permutation(active.shape[1])).to(active.device)
    drawn = _first(active, on * (1 + order), many)
    scale = backbone.norm(dim=1) / drawn.norm(dim=1).clamp_min(1e-12)
    often = np.argsort(-scores.active, kind="stable")
    amplitude = torch.zeros_like(active)
    amplitude[:, torch.from_numpy(often).to(active.device)] = active.sort(
        dim=1, descending=True
    ).values
    return {
        "full": active,
        "support": on * mean,
        "amplitude": amplitude,
        "backbone": backbone,
        "scaffold": scaffold,
        "random": drawn * scale[:, None],
        "largest": _first(active, active, many),
        "none": torch.zeros_like(active),
    }


def _first(active: Tensor, order: Tensor, many: Tensor) -> Tensor:
    """Keep the features of the highest ``order`` in each row, as many as ``many`` says, (n, 1)."""
    place = order.argsort(dim=1, descending=True).argsort(dim=1)
    return active * (place < many)


def replaced_states(coder: Transcoder, site: Site, held: dict[str, Tensor]) -> dict[str, Tensor]:
    """Return the state after the block with each condition in the place of the MLP's output."""
    before = site.states - site.outputs
    found = {name: before + coder.decode(code) for name, code in held.items()}
    found["without scaffold"] = site.states - held["scaffold"] @ coder.decoder
    found["without backbone"] = site.states - held["backbone"] @ coder.decoder
    return found


@torch.no_grad()
def measure_replaced(
    model: LanguageModel, layer: int, tokens: Tensor, site: Site, states: dict[str, Tensor],
    features: dict[str, Tensor],
) -> dict[str, Replacement]:  # fmt: skip
    """Return reconstruction error, KL and agreement of every condition.

    Raises:
        ValueError: what stands for the output takes the prediction beyond single precision.
    """
    for held in states.values():
        check_predictions(torch.isfinite(held).all(dim=1).cpu().numpy())
    own, values = [], {name: ([], []) for name in states}  # type: ignore[var-annotated]
    for start in range(0, len(tokens), PROMPTS_TOGETHER):
        rows = slice(start, start + PROMPTS_TOGETHER)
        onward = model.continuation(tokens[rows], layer)
        own.append(onward.clean_logits)
        for name, held in states.items():
            logits = onward.logits(held[rows])
            values[name][0].append(divergences(onward.clean_logits, logits))
            values[name][1].append(logits.argmax(dim=1) == onward.clean_logits.argmax(dim=1))
    spread = variation(site.outputs)
    found = {}
    for name, (kls, equal) in values.items():
        left = (states[name] - site.states).double().norm(dim=1)
        kl, same = torch.cat(kls).cpu().numpy(), torch.cat(equal).cpu().numpy()
        check_predictions(np.isfinite(kl))
        found[name] = Replacement(
            words=WORDS[name],
            active=float((features[name] > 0).sum(dim=1).double().mean()),
            error=float(left.mean()),
            # Σ‖y − ŷ‖²/Σ‖y − ȳ‖², for ŷ − y is what the state moves by
            unexplained=float(left.square().sum()) / spread if spread else None,
            kl=float(kl.mean()),
            kl_error=float(kl.std(ddof=1) / len(kl) ** 0.5),
            agreed=int(same.sum()),
        )
    return found


def kept_features(held: dict[str, Tensor]) -> dict[str, Tensor]:
    """Return the activations behind every state, those of the two last conditions among them."""
    return {**held, "without scaffold": held["backbone"], "without backbone": held["scaffold"]}
