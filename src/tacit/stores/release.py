"""What a sealed store tells whoever holds its files, as a release that a gate reads."""

from __future__ import annotations

import math
from dataclasses import dataclass

from tacit._ground.checks import integer
from tacit._ground.checks import text as checked_text
from tacit._ground.numbers import EPS
from tacit.guarantees import InformationBound
from tacit.guarantees.base import Guarantee
from tacit.information import code_leakage
from tacit.releases import Kind, Release
from tacit.releases.recompute import check_stated
from tacit.stores.settings import StoreSettings

KIND, CODEBOOK = "sealed-store", "codebook"
SECRET = "a document, and the person whom it is about"
SEALED = (
    "AES-256-GCM, HMAC-SHA-256 and HKDF-SHA-256 hide what they seal from whoever has not the key, "
    "and 2^32 nonces at most are drawn under one key"
)
FITTED_APART = "the codebook was fitted on data independent of the documents"
SOURCE = "I(X; code, length) <= H(code, length) <= ln of the values there are"
# What is told beside codes and lengths, for each of which no bound is stated.
TOLD = (
    "the host sees how many documents there are, when something is written, and which documents "
    "came with one write: their version",
    "who can write the files can remove documents and put an older state back, which a holder of "
    "the key does not notice. A document, code or length that was changed or moved is refused",
)
FETCHED = (
    "the host sees which documents a search fetches: a function of the query and the codes, so "
    "that it tells about the query what the codes near it tell, and nothing more of a document; "
)
# a document's finer code stands under seal, and the choice among documents shows it
FETCHED_BY_FINE = (
    "where finer codes are sealed it is a function of these, and documents that are fetched "
    "together are near each other; "
)
FOLLOWED = "whether a search follows another is told too"


@dataclass(frozen=True, kw_only=True)
class SealedRows:
    """What a certificate of a sealed store is about.

    Attributes:
        documents: n.
        sizes: cells of every part of a code.
        settings: what was declared.
        backend: where it is kept, in words.
        left: what is kept there of deleted documents, in words.
    """

    documents: int
    sizes: tuple[int, ...]
    settings: StoreSettings
    backend: str
    left: str

    def __post_init__(self) -> None:
        integer("documents", self.documents, minimum=0)
        if not self.sizes:
            raise ValueError("sizes: expected the cells of one part or more, got none")
        for size in self.sizes:
            integer("sizes", size, minimum=1, maximum=None)
        for name in ("backend", "left"):
            checked_text(name, getattr(self, name))

    @property
    def values(self) -> int:
        """What a document's code and length are one of: ``Π_j C_j`` times the buckets."""
        return math.prod(self.sizes) * len(self.settings.buckets)

    @property
    def bits(self) -> float:
        """Their bits, rounded up."""
        return math.log2(self.values) * (1.0 + 4.0 * EPS)


def guarantees_of(details: SealedRows) -> tuple[Guarantee, ...]:
    """Return what is stated of a person, and of a document where that is less; rounded up."""
    times = details.settings.rows_per_person
    found: list[Guarantee] = []
    for count, secret in ((times, "a person"), (1, "a document"))[times == 1 :]:
        # the codes and lengths of T documents are one of (C B)^T values
        found.append(code_leakage(details.values, secret=secret).repeated(count))
        many = "one document" if count == 1 else f"{count} documents at most"
        found.append(
            InformationBound(
                # T ln(C B): a logarithm and a product lose less than eight units
                nats=count * math.log(details.values) * (1.0 + 8.0 * EPS),
                secret=secret,
                evidence="theorem",
                assumptions=(f"{many} of the store, ever, and nothing else, is about it",),
                source=SOURCE,
            )
        )
    return tuple(found)


def release_of(details: SealedRows, codebook: str) -> Release[SealedRows]:
    """Return the certificate of a store.

    Args:
        details: what it is about.
        codebook: SHA-256 of the codebook.
    """
    sizes = len(details.settings.buckets)
    return Release(
        kind=KIND,
        title=f"{details.documents:,} documents, sealed but for their codes",
        secret=SECRET,
        method=(
            f"a code of {math.log2(math.prod(details.sizes)):.4g} bits and one of {sizes} padded "
            "lengths in the clear; vector, text and id sealed"
        ),
        guarantees=guarantees_of(details),
        details=details,
        reproducible=False,
        digests=((CODEBOOK, codebook),),
        assumptions=(SEALED, FITTED_APART),
        notes=(
            *TOLD,
            _fetched(details),
            f"what {details.backend} keeps of deleted documents: {details.left}",
        ),
    )


def _fetched(details: SealedRows) -> str:
    """Return what a host sees of searches."""
    by_fine = FETCHED_BY_FINE if details.settings.fetched_by == "fine" else ""
    return FETCHED + by_fine + FOLLOWED


def recompute(release: Release[SealedRows]) -> str:
    """Hold a certificate of a store against what its details give.

    Raises:
        ValueError: guarantees, words or digests that these do not give.
    """
    names = [name for name, _ in release.digests]
    if names != [CODEBOOK]:
        raise ValueError("its digests are not that of the codebook alone")
    right = release_of(release.details, dict(release.digests)[CODEBOOK])
    for name in ("title", "secret", "method", "notes"):
        if getattr(release, name) != getattr(right, name):
            raise ValueError(f"its details give another {name}")
    if set(right.assumptions) - set(release.assumptions):
        raise ValueError("assumptions were removed or changed")
    check_stated(release, right.guarantees)
    return ""


STORES = Kind(
    name=KIND,
    details=SealedRows,
    recompute=recompute,
    proof="tacit.stores.proof:proof",
    record="one person, with as many documents as the store allows",
)
