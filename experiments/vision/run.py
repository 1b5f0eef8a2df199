"""Train tacit/vision again, and find the subspaces of tacit/vision's public tasks."""

from __future__ import annotations

import argparse
import json
import os
import sys
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from pac_shared import data
from tacit.specifications.backbones import vision
from tacit.specifications.objectives import OBJECTIVES
from tacit.specifications.subspace import public_subspace, rounded

PUBLIC, EPOCHS, BATCH, RATE = 10_000, 6, 64, 3e-3
TASKS, SIZE = 150, 48
STORED = Path(vision.__file__).parent / "stored"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=STORED)
    parser.add_argument("--subspaces", action="store_true", help="keep the weights that are there")
    arguments = parser.parse_args()
    out = arguments.out
    try:
        images, labels = public()
    except data.MissingDataError as missing:
        print(f"skipped: {missing}")
        return
    if not arguments.subspaces:
        network, head = trained(images, labels)
        with torch.no_grad():
            tested, truth = public("test")
            right = (head(network(tested)).argmax(dim=1) == truth).float().mean()
        store(network, float(right), out)
    spanned(images.numpy(), labels.numpy(), out)


def public(part: str = "train") -> tuple[Tensor, Tensor]:
    """Return the first images of MNIST and CIFAR-10, (n, 3, 32, 32), and classes 0 … 19."""
    pictures, classes = [], []
    for shift, scale, read in ((0.1307, 0.3081, data.mnist), (0.5, 0.5, data.cifar10)):
        held = read()
        count = PUBLIC if part == "train" else 1_000
        chosen = np.clip(getattr(held, part)[:count] * scale + shift, 0.0, 1.0)
        pictures.append(vision.pictures(chosen.astype(np.float32)))
        classes.append(
            torch.from_numpy(getattr(held, f"{part}_labels")[:count]) + 10 * len(classes)
        )
    return torch.cat(pictures), torch.cat(classes)


def trained(images: Tensor, labels: Tensor) -> tuple[nn.Module, nn.Module]:
    """Return the network and its head; pictures are inverted, turned and mirrored at random."""
    torch.manual_seed(0)
    network, head = vision.network(), nn.Linear(vision.FEATURES, 20)
    parameters = [*network.parameters(), *head.parameters()]
    optimiser = torch.optim.AdamW(parameters, lr=RATE, weight_decay=0.02)
    steps = EPOCHS * -(-len(images) // BATCH)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimiser, max_lr=RATE, total_steps=steps)
    for epoch in range(EPOCHS):
        for rows in torch.randperm(len(images)).split(BATCH):
            loss = nn.functional.cross_entropy(head(network(varied(images[rows]))), labels[rows])
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
            schedule.step()
        print(f"epoch {epoch + 1} of {EPOCHS}: loss {loss.item():.3f}")
    return network.eval(), head.eval()


def varied(batch: Tensor) -> Tensor:
    """Return the batch as it is, inverted, turned by a quarter or mirrored."""
    inverted, turned, mirrored = torch.rand(3).tolist()
    if inverted < 0.3:
        batch = 1.0 - batch
    if turned < 0.3:
        batch = torch.rot90(batch, int(torch.randint(0, 4, (1,))), (2, 3))
    return batch.flip(3) if mirrored < 0.5 else batch


def spanned(images: np.ndarray, labels: np.ndarray, out: Path) -> None:
    """Write the subspaces of both objectives, from tasks of the same public images."""
    for objective in OBJECTIVES:
        found = public_subspace(
            "tacit/vision", images, labels, objective=objective, tasks=TASKS, size=SIZE, vary=seen
        )
        rounded(found).save(out / f"vision-{objective}.safetensors")
        print(f"{objective}: {found.size} directions of {len(found.centre)}, clip {found.clip:.3g}")


def seen(images: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Return the images of a task as they are, inverted, turned, mirrored or grey, all alike."""
    way = int(rng.integers(5))
    if way == 1:
        return 1.0 - images
    if way == 2:
        return np.rot90(images, int(rng.integers(1, 4)), axes=(2, 3)).copy()
    if way == 3:
        return images[..., ::-1].copy()
    grey = images.mean(axis=1, keepdims=True)
    return np.repeat(grey, 3, axis=1) if way == 4 else images


def store(network: nn.Module, accuracy: float, out: Path) -> None:
    """Write the weights as bfloat16, with their recipe."""
    from safetensors.torch import save_file

    out.mkdir(parents=True, exist_ok=True)
    weights = {name: held.bfloat16().contiguous() for name, held in network.state_dict().items()}
    save_file(weights, out / vision.WEIGHTS)
    recipe = {
        "command": "python experiments/vision/run.py",
        "data": f"the first {PUBLIC} training images of MNIST and of CIFAR-10, 20 classes",
        "epochs": EPOCHS,
        "batch": BATCH,
        "rate": RATE,
        "parameters": sum(held.numel() for held in weights.values()),
        "accuracy_on_the_first_1000_test_images_of_each": round(accuracy, 4),
        "torch": torch.__version__.split("+")[0],
        "stored": "bfloat16",
    }
    (out / "vision.json").write_text(json.dumps(recipe, indent=2) + os.linesep, encoding="utf-8")
    print(json.dumps(recipe, indent=2))


if __name__ == "__main__":
    main()
