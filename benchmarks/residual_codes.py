"""Search by residual codes beside FAISS on five sets of real vectors, and the speed of both.

    python -m benchmarks.residual_codes --data FOLDER [--sets digits images] [--stages 2 8]

FOLDER holds ``ag_news_train_part.csv.gz``, ``mnist.npz``, ``cifar10.npz`` and ``text/*.txt.gz``.
Every method is fitted on the same public vectors; ten nearest of held-out queries are looked for
among decoded vectors of a store that nothing was fitted on. Bits are those that a code can tell:
ours after small cells were removed, the peers' the next larger number that they can be given;
RaBitQ's two floats of every vector are beside them. A shortlist is how many of the store hold .95
of the ten nearest. Prints one JSON object.
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
# rounds of OPQ and of LSQ, which take minutes with their own 50 and 25
OPQ_ROUNDS, LSQ_ROUNDS = 12, 4
# stages beyond which LSQ is not tried: its search is minutes of a processor a set
LSQ_STAGES = 4
# what RaBitQ keeps of a vector beside its signs: two floats
RABITQ_BITS = 64
# directions in which noise is added; the best of them counts
NOISED = (16, 32, 64, 128)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", required=True)
    parser.add_argument("--sets", nargs="*", default=list(SETS), choices=list(SETS))
    parser.add_argument("--stages", nargs="*", type=int, default=[2, 4, 8])
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
    """Return how every method searches at the bits that residual codes of some stages keep."""
    how = ResidualFit(stages=stages, size=CODEWORDS, beam=BEAM)
    start = time.process_time()
    book = ResidualCodebook.fit(rows.public, how, rng=0, progress=False)
    fitted = time.process_time() - start
    bits = math.ceil(book.kept_bits)
    near = rows.nearest(NEIGHBOURS)
    product = ProductCodebook.fit(
        padded(rows.public, stages), ProductFit(parts=stages), rng=0, progress=False
    )
    wide = product.decode(product.encode(padded(rows.store, stages))).numpy()
    decoded = {
        "residual": book.decode(book.encode(rows.store)).numpy(),
        "our product code": wide[:, : rows.store.shape[1]],
        **dict(decodings(rows, bits, stages)),
    }
    places = {name: ranks(near, distances(rows.queries, held)) for name, held in decoded.items()}
    places["signs, ITQ"] = ranks(near, signed(rows, bits))
    places["RaBitQ"] = ranks(near, rabitq(rows, bits))
    noise = [ranks(near, noised(rows, bits, width)) for width in NOISED]
    places["Gaussian noise"] = max(noise, key=recall)
    found = {name: [recall(held), shortlist(held)] for name, held in places.items()}
    return {
        "asked": f"{stages} × {CODEWORDS}",
        "kept": list(book.sizes),
        "bits": round(book.kept_bits, 2),
        "bits of the peers": bits,
        "bits of RaBitQ": min(bits, rows.public.shape[1]) + RABITQ_BITS,
        "bits of our product code": round(product.kept_bits, 2),
        "fit, CPU s": round(fitted, 1),
        "recall at 10, shortlist for .95": found,
        "ratio to FAISS RQ": round(found["residual"][0] / found["FAISS RQ"][0], 3),
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
    if stages <= LSQ_STAGES:
        searched = faiss.LocalSearchQuantizer(width, stages, -(-bits // stages))
        searched.train_iters = LSQ_ROUNDS
        searched.train(rows.public)
        yield "FAISS LSQ", searched.decode(searched.compute_codes(rows.store))
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
    """Return distances to the store by signs of rotated principal directions, queries exact."""
    turned = faiss.ITQTransform(rows.public.shape[1], min(bits, rows.public.shape[1]), True)
    turned.train(rows.public)
    return -turned.apply(rows.queries) @ np.sign(turned.apply(rows.store)).T


def rabitq(rows: VectorSet, bits: int) -> Any:
    """Return distances to the store as RaBitQ estimates them from signs and two floats."""
    width = min(bits, rows.public.shape[1])
    turned = faiss.PCAMatrix(rows.public.shape[1], width, 0.0, True)
    index = faiss.IndexPreTransform(turned, faiss.IndexRaBitQ(width))
    index.train(rows.public)
    index.add(rows.store)
    apart, order = index.search(rows.queries, len(rows.store))
    found = np.empty_like(apart)
    np.put_along_axis(found, order, apart, axis=1)
    return found


def noised(rows: VectorSet, bits: int, width: int) -> Any:
    """Return distances on the unit sphere of the principal directions, noised to leak b bits."""
    mean = rows.public.mean(0)
    kept = np.linalg.svd(rows.public[:5000] - mean, full_matrices=False)[2][:width]
    parts = [(part - mean) @ kept.T for part in (rows.store, rows.queries)]
    store, queries = (part / np.linalg.norm(part, axis=1, keepdims=True) for part in parts)
    deviation = sphere_deviation(bits * math.log(2), len(kept))
    noise = deviation * np.random.default_rng(0).normal(size=store.shape)
    return distances(queries, store + noise)


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


def distances(queries: Any, rows: Any) -> Any:
    """Return squared distances (q, n), less the square of the query."""
    return (rows**2).sum(1) - 2.0 * queries @ rows.T


def ranks(near: Any, apart: Any) -> Any:
    """Return the place of each near vector in a search: rows of one distance stand at random."""
    noise = np.random.default_rng(0).permutation(apart.shape[1])
    order = np.lexsort((np.broadcast_to(noise, apart.shape), apart))
    places = np.empty_like(order)
    np.put_along_axis(places, order, np.arange(apart.shape[1])[None], axis=1)
    return np.take_along_axis(places, near, axis=1)


def recall(places: Any) -> float:
    """Return the share of the ten nearest that are among the ten found."""
    return round(float((places < NEIGHBOURS).mean()), 3)


def shortlist(places: Any) -> int:
    """Return how many that are found first hold .95 of the ten nearest."""
    return int(np.sort(places, axis=None)[math.ceil(0.95 * places.size) - 1]) + 1


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
