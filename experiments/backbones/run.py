"""Train tacit/vision again, and find the public subspaces of tacit/vision and tacit/small."""

from __future__ import annotations

import argparse
import json
import os
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn

from tacit.models.texts.corpus import docstrings
from tacit.specifications import PublicTasks, SharedFactors
from tacit.specifications.backbones import vision
from tacit.specifications.methods import OBJECTIVES, SUBSPACE_RANK
from tacit.specifications.subspace import half_precision, public_subspace
from tacit_lab.studies.pac import data

PUBLIC, EPOCHS, BATCH, RATE = 10_000, 6, 64, 3e-3
TASKS = 150
STORED = Path(vision.__file__).parent / "stored"
PACKAGES = (
    "torch", "pandas", "sklearn", "transformers", "pyarrow", "polars", "email", "http", "unittest",
    "multiprocessing",
)  # fmt: skip
# What writes into the stream of the last block; the widest layer would double the file.
LAYERS = {"small": ("h.5.attn.c_proj", "h.5.mlp.c_proj")}
DOCSTRINGS, SHORTEST, LONGEST = 300, 60, 300


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=Path("build/backbones"), help="folder")
    parser.add_argument("--only", choices=("weights", "vision", "small"), help="one part alone")
    arguments = parser.parse_args()
    out, only = arguments.out, arguments.only
    out.mkdir(parents=True, exist_ok=True)
    if only in (None, "small"):
        spanned("small", *documented(), None, out)
    if only == "small":
        return
    try:
        images, labels = public()
    except data.MissingDataError as missing:
        print(f"skipped: {missing}")
        return
    if only in (None, "weights"):
        network, head = trained(images, labels)
        with torch.no_grad():
            tested, truth = public("test")
            right = (head(network(tested)).argmax(dim=1) == truth).float().mean()
        store(network, float(right), out)
    if only in (None, "vision"):
        spanned("vision", images.numpy(), labels.numpy(), seen, out)


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


def spanned(name: str, data, labels: np.ndarray, vary, out: Path) -> None:
    """Write the subspaces of all objectives for the backbone that the package holds."""
    for objective in OBJECTIVES:
        found = public_subspace(
            f"tacit/{name}",
            data,
            labels,
            objective=objective,
            factors=SharedFactors(
                rank=SUBSPACE_RANK, layers=None if objective == "mean" else LAYERS.get(name)
            ),
            tasks=PublicTasks(count=TASKS, vary=vary),
        )
        half_precision(found).save(out / f"{name}-{objective}.safetensors")
        print(f"{objective}: {found.size} directions of {len(found.centre)}, clip {found.clip:.3g}")


def documented() -> tuple[list[str], np.ndarray]:
    """Return docstrings of ten packages, and which package each is of."""
    texts: list[str] = []
    labels: list[int] = []
    for number, name in enumerate(PACKAGES):
        folder = Path(find_spec(name).origin).parent
        found: dict[str, None] = {}
        for path in sorted(folder.rglob("*.py")):
            for text in docstrings(path.read_text(encoding="utf-8", errors="replace")):
                words = " ".join(text.split()).replace(name, "package")[:LONGEST]
                if len(words) >= SHORTEST:
                    found[words] = None
            if len(found) >= DOCSTRINGS:
                break
        texts += list(found)[:DOCSTRINGS]
        labels += [number] * min(len(found), DOCSTRINGS)
    return texts, np.array(labels)


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

    weights = {name: held.bfloat16().contiguous() for name, held in network.state_dict().items()}
    save_file(weights, out / vision.WEIGHTS)
    recipe = {
        "command": "python experiments/backbones/run.py",
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
