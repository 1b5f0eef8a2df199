"""The card of a seeded learnware: a YAML head for the filters, then what a reader should know."""

from __future__ import annotations

import json

from tacit.specifications.seeds.material import Material
from tacit.specifications.seeds.models import WIDTH, WORDS
from tacit.specifications.specification import Specification


def card(material: Material, specification: Specification, accuracy: float) -> str:
    """Return Markdown that begins with YAML between two lines of three dashes.

    Every value of the head is JSON, which is YAML too, so that no name of a class can end it.

    Args:
        material: what the model was trained on.
        specification: of the model's task.
        accuracy: share of a user's records that the model names right.
    """
    head = {
        "name": material.name,
        "title": material.title,
        "task": "classification",
        "modality": material.modality,
        "data": material.source,
        "labels": list(material.names),
        "license": material.licence,
        "records": len(material.labels),
        "accuracy": round(accuracy, 3),
        "tags": [material.modality, material.source, f"{len(material.names)} labels"],
    }
    lines = [f"{key}: {json.dumps(value, ensure_ascii=False)}" for key, value in head.items()]
    told = [f"- {held.describe()}" for held in specification.guarantees]
    promise = "\n".join(told) or "Nothing is certified of this specification."
    return f"""---
{chr(10).join(lines)}
---

# {material.title}

{_reads(material)} Of {len(material.user_labels)} records that neither the model nor its
specification has seen, {100 * accuracy:.0f}% are named right. It is an example that fills an empty
dock, trained in a second on public data ({material.source}: {material.terms}).

## What the specification tells

{promise}

The guarantee is of the specification. The model itself is trained without noise and promises
nothing about the records it was trained on.
"""


def _reads(material: Material) -> str:
    labels = len(material.names)
    if material.modality == "image":
        return (
            "A network from pictures (n, 3, 32, 32) in [0, 1]: the mean of squares of four by "
            f"four, a hidden layer of 32 units with ReLU, {labels} logits in the order of the "
            "labels. Its weights are `2.*` and `4.*`."
        )
    return (
        f"A network from texts: how often each CRC-32 of a lower-case word modulo {WORDS} occurs, "
        f"as a share of the words, a hidden layer of {WIDTH} units with ReLU, {labels} logits in "
        "the order of the labels. Its weights are `0.*` and `2.*`."
    )
