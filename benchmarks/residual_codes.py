"""Search by residual codes beside FAISS on five sets of real vectors, and the speed of both.

    python -m benchmarks.residual_codes --data FOLDER [--sets news words] [--stages 2 4] [--speed]

FOLDER holds ``ag_news_train_part.csv.gz``, ``mnist.npz``, ``cifar10.npz`` and ``text/*.txt.gz``.
Every method is fitted on the same public vectors; ten nearest of held-out queries are looked for
among decoded vectors of a store that nothing was fitted on. Bits are those that a code can tell:
ours after small cells were removed, the peers' the next larger number that they can be given.
Prints one JSON object.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

import faiss
import numpy as np
import torch
from scipy import optimize, special

from benchmarks.vector_sets import SETS, VectorSet
from tacit.hidden_states import (
    ProductCodebook,
    ProductFit,
    ResidualCodebook,
    ResidualFit,
    faiss_index,
)

NEIGHBOURS, BEAM, CODEWORDS = 10, 4, 256
# rounds of OPQ, which takes minutes with its own 50
OPQ_ROUNDS = 12
# directions in which noise is added; the best of them counts
NOISED = (16, 32, 64, 128)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", required=True)
    parser.add_argument("--sets", nargs="*", default=list(SETS), choices=list(SETS))
    parser.add_argument("--stages", nargs="*", type=int, default=[4, 2])
    parser.add_argument("--speed", action="store_true", help="time 10⁵ rows of 768 numbers too")
    parser.add_argument("--threads", type=int, default=1)
    given = parser.parse_args()
    torch.set_num_threads(given.threads)
    faiss.omp_set_num_threads(given.threads)
    found: dict[str, Any] = {}
    for name in given.sets:
        rows = SETS[name](given.data)
        found[name] = []
        for stages in given.stages:
            found[name].append(searched(rows, stages))
            print(json.dumps({name: found[name][-1]}), file=sys.stderr, flush=True)
    if given.speed:
        found["speed"] = speeds()
    print(json.dumps(found, indent=2))


def searched(rows: VectorSet, stages: int) -> dict[str, Any]:
    """Return the recall of every method at the bits that residual codes of some stages keep."""
    how = ResidualFit(stages=stages, size=CODEWORDS, beam=BEAM)
    start = time.process_time()
    book = ResidualCodebook.fit(rows.public, how, rng=0, progress=False)
    fitted = time.process_time() - start
    bits = math.ceil(book.kept_bits)
    near = rows.nearest(NEIGHBOURS)
    ours = recall(rows, near, book.decode(book.encode(rows.store)).numpy())
    start = time.process_time()
    peers = {name: recall(rows, near, decoded) for name, decoded in decodings(rows, bits, stages)}
    product = ProductCodebook.fit(
        padded(rows.public, stages), ProductFit(parts=stages), rng=0, progress=False
    )
    codes = product.encode(padded(rows.store, stages))
    peers["our product code"] = recall(
        rows, near, product.decode(codes).numpy()[:, : rows.store.shape[1]]
    )
    signs = signed(rows, bits)
    peers["signs, rotated"] = share(near, signs)
    peers["Gaussian noise"] = max(recall(*noised(rows, bits, width)) for width in NOISED)
    return {
        "asked": f"{stages} × {CODEWORDS}",
        "kept": list(book.sizes),
        "bits": round(book.kept_bits, 2),
        "bits of the peers": bits,
        "bits of our product code": round(product.kept_bits, 2),
        "fit, CPU s": round(fitted, 1),
        "recall at 10": {"residual": ours, **peers},
        "ratio to FAISS RQ": round(ours / peers["FAISS RQ"], 3),
    }


def decodings(rows: VectorSet, bits: int, stages: int) -> Iterator[tuple[str, Any]]:
    """Yield what FAISS's quantisers of so many bits make of the store."""
    width = rows.public.shape[1]
    each = faiss.UInt64Vector()
    for place in range(stages):
        # the bits in equal parts, the first stages one more
        each.push_back(bits // stages + (place < bits % stages))
    residual = faiss.ResidualQuantizer(width, each)
    residual.max_beam_size = BEAM
    residual.train(rows.public)
    yield "FAISS RQ", residual.decode(residual.compute_codes(rows.store))
    parts = -(-bits // 8)
    wide = padded(rows.public, parts)
    product = faiss.ProductQuantizer(wide.shape[1], parts, 8)
    product.train(wide)
    codes = product.compute_codes(padded(rows.store, parts))
    yield "FAISS PQ", product.decode(codes)[:, :width]
    rotation = faiss.OPQMatrix(width, parts, width // parts * parts)
    rotation.niter = OPQ_ROUNDS
    rotated = faiss.IndexPreTransform(
        rotation, faiss.IndexPQ(width // parts * parts, parts, 8, faiss.METRIC_L2)
    )
    rotated.train(rows.public)
    yield "FAISS OPQ", rotated.sa_decode(rotated.sa_encode(rows.store))


def padded(rows: Any, parts: int) -> Any:
    """Return rows with zeros to a width that the parts divide."""
    return np.pad(rows, ((0, 0), (0, -rows.shape[1] % parts)))


def signed(rows: VectorSet, bits: int) -> Any:
    """Return the ten best of the store by signs of rotated principal directions, queries exact."""
    turned = faiss.ITQTransform(rows.public.shape[1], min(bits, rows.public.shape[1]), True)
    turned.train(rows.public)
    scores = turned.apply(rows.queries) @ np.sign(turned.apply(rows.store)).T
    return np.argsort(-scores, axis=1)[:, :NEIGHBOURS]


def noised(rows: VectorSet, bits: int, width: int) -> tuple[VectorSet, Any, Any]:
    """Return vectors on the unit sphere of the principal directions, noised to leak b bits."""
    mean = rows.public.mean(0)
    kept = np.linalg.svd(rows.public[:5000] - mean, full_matrices=False)[2][:width]
    parts = [(part - mean) @ kept.T for part in (rows.public, rows.store, rows.queries)]
    sphere = VectorSet(*(part / np.linalg.norm(part, axis=1, keepdims=True) for part in parts))
    deviation = sphere_deviation(bits * math.log(2), len(kept))
    noise = deviation * np.random.default_rng(0).normal(size=sphere.store.shape)
    return sphere, rows.nearest(NEIGHBOURS), (sphere.store + noise).astype(np.float32)


def sphere_deviation(nats: float, width: int) -> float:
    """Return σ at which Gaussian noise on the unit sphere has so many nats of maximal leakage."""
    # ln ∫ max_x φ(y − x) dy = ln of the surface of the sphere times ∫ r^(d−1) e^{−(r−1)²/2σ²} dr
    surface = math.log(2.0) + 0.5 * width * math.log(math.pi) - special.gammaln(0.5 * width)

    def leakage(deviation: float) -> float:
        radius = np.linspace(1e-6, 2.0 + 8.0 * deviation * math.sqrt(width), 200_001)
        inside = (width - 1) * np.log(radius) - 0.5 * ((radius - 1.0) / deviation) ** 2
        step = math.log(radius[1] - radius[0])
        scale = 0.5 * width * math.log(2.0 * math.pi * deviation**2)
        return float(surface + special.logsumexp(inside) + step - scale)

    found = optimize.brentq(lambda s: leakage(math.exp(s)) - nats, -6.0, 4.0)
    return math.exp(found)


def recall(rows: VectorSet, near: Any, decoded: Any) -> float:
    """Return the share of the ten nearest that are found among decoded vectors."""
    # wide rows of noise are searched where they were noised
    decoded = np.ascontiguousarray(decoded, dtype=np.float32)
    found = faiss.knn(np.ascontiguousarray(rows.queries, np.float32), decoded, NEIGHBOURS)[1]
    return share(near, found)


def share(near: Any, found: Any) -> float:
    """Return the mean share of the rows of one table that stand in the other."""
    kept = [len(set(a) & set(b)) for a, b in zip(near.tolist(), found.tolist(), strict=True)]
    return round(float(np.mean(kept)) / NEIGHBOURS, 3)


def speeds(count: int = 100_000, width: int = 768, stages: int = 8) -> dict[str, float]:
    """Return CPU seconds of a fit and of encoding, and of FAISS with the same codewords."""
    source = np.random.default_rng(0)
    # directions of falling variance, as embeddings have
    turned = np.linalg.qr(source.normal(size=(width, width)))[0] * np.arange(1, width + 1) ** -0.5
    rows = source.standard_normal(size=(count, width), dtype=np.float32) @ turned.T.astype("f4")
    how = ResidualFit(stages=stages, size=CODEWORDS, beam=BEAM)
    books: list[ResidualCodebook] = []
    taken = {
        "fit": cpu(lambda: books.append(ResidualCodebook.fit(rows, how, rng=0, progress=False)))
    }
    # what is the same for every call is worked out before
    first = books[0].encode(rows[:1000])
    taken["encode"] = cpu(lambda: books[0].encode(rows))
    # the index owns the quantiser
    fewer, index = rows[: count // 10], faiss_index(books[0], first)
    peer = index.rq
    peer.max_beam_size = BEAM
    taken["encode a tenth, FAISS"] = cpu(lambda: peer.compute_codes(fewer))
    taken["encode a tenth"] = cpu(lambda: books[0].encode(fewer))
    taken["encode, ratio to FAISS"] = round(
        taken["encode a tenth"] / taken["encode a tenth, FAISS"], 3
    )
    return taken


def cpu(run: Callable[[], object]) -> float:
    start = time.process_time()
    run()
    return round(time.process_time() - start, 2)


if __name__ == "__main__":
    main()
