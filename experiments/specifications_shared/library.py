"""Specifications as the library makes them, on a backbone trained on the study's public images."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import torch
from safetensors.torch import load_file, save_file

from specifications_shared import corpora, pictures
from specifications_shared.cache import CACHE
from specifications_shared.measures import Floats
from specifications_shared.pictures import Records
from specifications_shared.tasks import text_tasks
from tacit.specifications.engine.backbones import (
    Backbone,
    small_backbone,
    vision_backbone,
    vision_network,
)
from tacit.specifications.engine.factors import factors
from tacit.specifications.engine.mechanism import Public, described as made_by, public

if TYPE_CHECKING:
    from specifications_shared.stages import Way

NAMES = {
    "images": "a network of 124,000 parameters trained on 12,000 public images",
    "untrained": "tacit/vision",
    "texts": "tacit/small, first two blocks",
}
# Public records that scale, clip and whiten, and those that train the backbone.
INNER = ("4", "8", "14")
SHARED, TRAINED, EPOCHS, BATCH, RATE = 300, 6000, 5, 64, 3e-3


def described(
    kind: Any, part: Records, modality: str, way: Way, *, private: bool = True
) -> dict[float, Floats]:
    """Return the vector of a specification for every ε of a way, 0 for none."""
    shared = _shared(modality, way.rank, way.subspace, way.route == "label-free")
    epsilons = way.epsilons if private else (0.0,)
    found = made_by(kind, shared, part.inputs, part.labels, int(part.labels.max()) + 1,
                    [value or None for value in epsilons])  # fmt: skip
    return {
        value: np.asarray(one.vector, dtype=float)
        for value, one in zip(epsilons, found, strict=True)
    }


def features(modality: str, inputs: Any) -> tuple[Floats, Floats]:
    """Return the backbone's features (n, d), and mean inputs of its inner layers (n, d')."""
    shared = backbone(modality)
    modules = dict(shared.module.named_modules())
    seen: list[torch.Tensor] = []

    def hook(_: Any, given: tuple[torch.Tensor, ...], __: Any) -> None:
        held = given[0]
        axes = {4: (2, 3), 3: (1,)}.get(held.ndim)
        seen.append(held.mean(dim=axes) if axes else held)

    inside = shared.layers if modality == "texts" else INNER
    handles = [modules[name].register_forward_hook(hook) for name in inside]
    last, inner = [], []
    try:
        for part in shared.prepare(inputs).split(250):
            seen.clear()
            with torch.no_grad():
                last.append(shared.module(part))
            inner.append(torch.cat(seen, dim=1))
    finally:
        for handle in handles:
            handle.remove()
    both = (torch.cat(parts).double().numpy() for parts in (last, inner))
    return next(both), next(both)


@functools.cache
def public_features(modality: str) -> tuple[Floats, Floats]:
    """Return features of the public records."""
    return features(modality, _public(modality).inputs)


def measured_gamma(part: Records, modality: str, size: int) -> float:
    """Return the largest γ of the last layer over replaced records: measured, no bound.

    H(D) = UᵀF(D) and (1 − γ)Σ' ⪯ Σ ⪯ (1 + γ)Σ' (Eq. 21), for 20 records, each replaced by another.
    """
    shared = _shared(modality, 0, size, False)
    layer = shared.backbone.layers[-1]
    mean, held = _projected(shared, part, layer)
    found = 0.0
    whole = mean @ mean.T
    for row in range(20):
        other = mean + (held[-1 - row] - held[row]) / len(held)
        ratio = np.linalg.eigvals(np.linalg.solve(other @ other.T, whole)).real
        found = max(found, float(np.abs(ratio - 1).max()))
    return found


def _projected(
    shared: Public, part: Records, layer: str
) -> tuple[npt.NDArray[Any], npt.NDArray[Any]]:
    from tacit.specifications.engine.outputs import Aligned

    output = Aligned(int(part.labels.max()) + 1, shared.centre, shared.scale)
    rows = []
    for batch in factors(shared.backbone, part.inputs, torch.from_numpy(part.labels),
                         output.losses, rank=0, seed=0):  # fmt: skip
        rows.append(torch.einsum("mk,nmr->nkr", shared.directions[layer], batch[layer]))
    held = torch.cat(rows).double().numpy()
    return held.mean(axis=0), held


@functools.cache
def _shared(modality: str, rank: int, size: int, label_free: bool) -> Public:
    held = _public(modality)
    return public(backbone(modality), held.inputs, held.labels, rank=rank, subspace=size,
                  label_free=label_free)  # fmt: skip


@functools.cache
def backbone(modality: str) -> Backbone:
    """Return the shared backbone of a modality."""
    if modality == "texts":
        return small_backbone()
    if modality == "untrained":
        return vision_backbone()
    return vision_backbone(_trained(), name="study/vision")


@functools.cache
def _public(modality: str) -> Records:
    rng = np.random.default_rng(0)
    if modality == "texts":
        # developers' pool of a topic that no learnware tells apart: public is what it is taken as
        parts = [corpora.records(task, 40, "private", rng) for task in text_tasks()[-8:]]
        texts: list[str] = sum((list(part.inputs) for part in parts), [])
        return Records(texts, np.concatenate([part.labels for part in parts]))
    held, labels = _public_images()
    rows = rng.permutation(len(held))[:SHARED]
    return Records(held[rows], labels[rows] % 5)


def _public_images() -> tuple[npt.NDArray[np.float32], npt.NDArray[np.int64]]:
    inputs, labels = [], []
    for number, source in enumerate(("mnist", "cifar10")):
        found, classes = pictures.images(source, "public")
        shown = np.broadcast_to(found[:TRAINED], (min(TRAINED, len(found)), 3, 32, 32))
        inputs.append(shown.astype(np.float32) / np.float32(255.0))
        labels.append(classes[:TRAINED] + 10 * number)
    return np.concatenate(inputs), np.concatenate(labels)


def _trained() -> torch.nn.Module:
    """Return the network trained to name public images, turned, mirrored and inverted at random."""
    path = CACHE / f"backbone-{TRAINED}-{EPOCHS}.safetensors"
    network = vision_network()
    if path.is_file():
        network.load_state_dict(load_file(path))
        return network
    torch.manual_seed(0)
    network, head = vision_network(), torch.nn.Linear(128, 20)
    held, classes = _public_images()
    inputs, labels = torch.from_numpy(held), torch.from_numpy(classes)
    trained = [*network.parameters(), *head.parameters()]
    optimiser = torch.optim.AdamW(trained, lr=RATE, weight_decay=0.02)
    steps = EPOCHS * -(-len(inputs) // BATCH)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimiser, max_lr=RATE, total_steps=steps)
    for _ in range(EPOCHS):
        for rows in torch.randperm(len(inputs)).split(BATCH):
            optimiser.zero_grad()
            logits = head(network(_moved(inputs[rows])))
            torch.autograd.backward(torch.nn.functional.cross_entropy(logits, labels[rows]))
            optimiser.step()
            schedule.step()
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_suffix(".partial")
    save_file(network.state_dict(), partial)
    partial.replace(path)
    return network


def _moved(images: torch.Tensor) -> torch.Tensor:
    inverted, turned, mirrored = torch.rand(3).tolist()
    seen = 1 - images if inverted < 0.3 else images
    seen = torch.rot90(seen, int(turned * 10) % 4 if turned < 0.3 else 0, (2, 3))
    return seen.flip(3) if mirrored < 0.5 else seen
