"""A submission, read and held against every rule before a record is made of it."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import asdict, dataclass

import numpy as np

from tacit.documents import dumps
from tacit.specifications import Specification, specification_from_bytes
from tacit_dock.blobs import Upload
from tacit_dock.cards import Card, read_card
from tacit_dock.claims import Decision, decide
from tacit_dock.errors import RefusedError
from tacit_dock.settings import DockSettings
from tacit_dock.texts import check_texts
from tacit_dock.weights import LENGTH, check_format, check_weights

REQUIRED = ("specification", "card")
FILES = (*REQUIRED, "model", "release")
# texts beside the files: the SHA-256 that the sender computed
DIGESTS = ("specification_digest", "model_digest")
LONGEST_HEADER, MOST_LAYERS = 1 << 20, 1000
# All spaces are told in one answer, and the classes of every learnware of a list.
LONGEST_SPACE, LONGEST_CLASSES = 32 << 10, 64 << 10


@dataclass(frozen=True)
class Submission:
    """A submission that was read and decided about.

    Attributes:
        specification: of the model.
        card: what the developer says.
        decision: what becomes of it.
        uploads: its files, not kept yet.
        body: one digest of all files, equal for equal submissions.
    """

    specification: Specification
    card: Card
    decision: Decision
    uploads: Mapping[str, Upload]
    body: str

    @property
    def direction(self) -> str:
        """SHA-256 of the space and of the unit vector to 12 bits: equal for copies.

        Nothing that is written around the factors is in it, and not their length.
        """
        steps = np.rint(self.specification.vector.astype(float) * 4096.0).astype("<i2")
        content = self.specification.space.digest.encode() + steps.tobytes()
        return "sha256:" + hashlib.sha256(content).hexdigest()

    @property
    def size(self) -> int:
        """Bytes of all files."""
        return sum(held.size for held in self.uploads.values())


def limits_of(settings: DockSettings) -> dict[str, int]:
    """Return how many bytes each part of a submission may have."""
    return {
        "specification": settings.max_specification,
        "card": settings.max_card,
        "model": settings.max_model,
        "release": settings.max_release,
        **dict.fromkeys(DIGESTS, 200),
    }


def body_digest(uploads: Mapping[str, Upload]) -> str:
    """Return one digest of all files and their names."""
    lines = [f"{name} {uploads[name].digest}" for name in FILES if name in uploads]
    return "sha256:" + hashlib.sha256("\n".join(lines).encode()).hexdigest()


def examine(
    uploads: Mapping[str, Upload], digests: Mapping[str, str], settings: DockSettings
) -> Submission:
    """Return a submission whose every part is as it must be; no part of it is run.

    Args:
        uploads: the files that arrived, by name.
        digests: what the sender says that they are, by name of the file.
        settings: of the dock.

    Raises:
        RefusedError: with the status that says why.
    """
    for name in REQUIRED:
        if name not in uploads:
            raise RefusedError(422, f"{name}: expected a file in the form, got none")
    for name, told in digests.items():
        if name not in uploads or told not in (uploads[name].digest, uploads[name].digest[7:]):
            raise RefusedError(422, f"{name}: what arrived does not have the digest that was told")
    specification = read_submitted(uploads["specification"].content())
    if specification.kind != "model":
        raise RefusedError(
            422, "specification: expected one of a model, got one of a task, which is searched with"
        )
    if not specification.vector.any():
        raise RefusedError(422, "specification: expected one that is not zero: it has no direction")
    card = read_card(uploads["card"].content())
    if "model" in uploads:
        check_weights(uploads["model"].path)
    release = uploads["release"].content() if "release" in uploads else None
    decision = decide(specification, release, settings.policy)
    return Submission(specification, card, decision, uploads, body_digest(uploads))


def read_submitted(content: bytes) -> Specification:
    """Return the specification of bytes from elsewhere.

    Raises:
        RefusedError: they are another format (415), or truncated, malformed or not as their
            manifest says (422).
    """
    check_format("specification", content[:16])
    # what is read costs what its head is long
    if int.from_bytes(content[:LENGTH], "little") > LONGEST_HEADER:
        raise RefusedError(422, f"specification: expected a head of at most {LONGEST_HEADER} bytes")
    try:
        found = specification_from_bytes(content, name="specification")
    except (ValueError, MemoryError, RecursionError) as error:
        text = str(error) or "specification: it cannot be read"
        raise RefusedError(422, text) from None
    if len(found.space.layers) > MOST_LAYERS:
        raise RefusedError(422, f"specification: expected at most {MOST_LAYERS} layers")
    if len(dumps(asdict(found.space), ascii_only=True)) > LONGEST_SPACE:
        raise RefusedError(
            422, f"specification: expected a space that is told in {LONGEST_SPACE} bytes"
        )
    if len(dumps(list(found.classes), ascii_only=True)) > LONGEST_CLASSES:
        raise RefusedError(
            422, f"specification: expected classes that are told in {LONGEST_CLASSES} bytes"
        )
    check_texts("specification", found.manifest())
    return found
