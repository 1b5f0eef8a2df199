"""Encode states per second by every metric, beside the machine's float32 matrix product.

    python -m benchmarks.encoding [--rows 40000] [--width 768] [--size 1024] [--file]

The limit is the product that an assignment cannot do without: 2 d C operations a state for
distances, 2 d k more where states are mapped by a root, 2 V C where behaviours decide, and 2 d C
over all parts of a product. Prints one JSON object; shares are of the matrix rate measured before
and after each run, the better of the two.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch

from tacit.hidden_states import Codebook, ProductCodebook, prepare_codes
from tacit.models import Behaviours
from tacit.releases import open_vectors


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=40_000)
    parser.add_argument("--width", type=int, default=768)
    parser.add_argument("--size", type=int, default=1024)
    parser.add_argument("--vocabulary", type=int, default=4096)
    parser.add_argument("--parts", type=int, default=96)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--file", action="store_true", help="also a .npy file to a file of codes")
    given = parser.parse_args()
    source = torch.Generator().manual_seed(0)
    rows = torch.randn(given.rows, given.width, generator=source)
    logits = 3 * torch.randn(given.rows // 4, given.vocabulary, generator=source)
    centres = torch.randn(given.size, given.width, generator=source)
    table = (3 * torch.randn(given.size, given.vocabulary, generator=source)).log_softmax(1)
    shared = {"kind": "centroid", "codewords": centres, "predictor": None, "calibration": 1}
    none = {"table": None, "centres": None, "root": None}
    root = torch.randn(given.width, given.width, generator=source)
    euclidean = Codebook(metric="euclidean", **shared, **none | {"centres": centres})
    fisher = Codebook(metric="fisher", **shared, **none | {"centres": centres, "root": root})
    behaviour = Codebook(metric="behaviour", **shared, **none | {"table": table})
    product = ProductCodebook(
        tuple(part[:256].contiguous() for part in torch.tensor_split(centres, given.parts, 1)), 1, 1
    )
    known = Behaviours(logits)
    distances = 2.0 * given.rows * given.width * given.size
    runs: dict[str, tuple[int, float, Callable[[], object]]] = {
        "euclidean": (given.rows, distances, lambda: euclidean.assign(rows)),
        "fisher": (
            given.rows, distances + 2.0 * given.rows * given.width**2, lambda: fisher.assign(rows),
        ),
        "behaviour": (
            len(known), 2.0 * len(known) * given.vocabulary * given.size,
            lambda: behaviour.assign(behaviours=known),
        ),
        f"product of {given.parts} × 256": (
            given.rows, 2.0 * given.rows * given.width * 256, lambda: product.assign(rows),
        ),
    }  # fmt: skip
    with tempfile.TemporaryDirectory() as folder:
        if given.file:
            path = Path(folder) / "rows.npy"
            np.save(path, rows.numpy())
            runs["euclidean, .npy to .safetensors"] = (
                given.rows, distances,
                lambda: prepare_codes(
                    euclidean, open_vectors("rows", path), out=Path(folder) / "codes.safetensors"
                ).draw(),
            )  # fmt: skip
        found = {name: measured(*run, given) for name, run in runs.items()}
    print(json.dumps({"rows": given.rows, "width": given.width, "size": given.size,
                      "threads": torch.get_num_threads(), **found}, indent=2))  # fmt: skip


def measured(
    count: int, work: float, run: Callable[[], object], given: argparse.Namespace
) -> dict[str, float]:
    """Return states per second and the share of the matrix rate, the best of a few rounds."""
    best, share = float("inf"), 0.0
    for _ in range(given.repeats):
        before = matrix_rate(given.width, given.size)
        taken = seconds(run)
        rate = max(before, matrix_rate(given.width, given.size))
        best, share = min(best, taken), max(share, work / (taken * rate))
    return {"states per second": round(count / best), "share of the matrix rate": round(share, 3)}


def matrix_rate(width: int, size: int) -> float:
    """Float32 operations per second of one large product."""
    left, right = torch.ones(8192, width), torch.ones(width, size)
    return 2.0 * 8192 * width * size / min(seconds(lambda: left @ right) for _ in range(3))


def seconds(run: Callable[[], object]) -> float:
    start = time.perf_counter()
    run()
    return time.perf_counter() - start


if __name__ == "__main__":
    main()
