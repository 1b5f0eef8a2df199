"""A transformers model with a head, and records for it from text files and tables."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from tacit._ground.checks import Array, in_interval, integer, texts
from tacit._ground.reprs import shown
from tacit.adapters.tables import KINDS, read_table
from tacit.adapters.tasks import HEADS, IGNORED, LABELS, MASK, TOKENS, Rows, vocabulary
from tacit.models import read_text
from tacit.models.loading import SMALL, STORED, check_device, is_here, loading, with_weights
from tacit.models.small.storage import quiet

# Share of a record's tokens that a masked model predicts, and the seed of which.
MASKED, MASKING = 0.15, 0


@dataclass(frozen=True, eq=False)
class Pretrained:
    """A model with the head of its checkpoint, and its tokenizer.

    Attributes:
        network: in evaluation mode.
        tokenizer: of the checkpoint.
        task: what the head predicts.
        name: what it was loaded by.
    """

    network: nn.Module
    tokenizer: Any
    task: str
    name: str


def load_pretrained(name: str, *, device: str = "cpu") -> Pretrained:
    """Load a model with the head that its checkpoint was saved with.

    Args:
        name: a folder, a Hugging Face name or ``"tacit/small"``.
        device: where it computes.

    Raises:
        ValueError: no such model, or no head for next tokens, masked tokens or classes.
    """
    import transformers

    place = check_device(device)
    folder = os.fspath(STORED) if name == SMALL else name
    here = is_here(folder)
    with quiet(), loading(folder):
        configuration = transformers.AutoConfig.from_pretrained(
            folder, local_files_only=here, trust_remote_code=False
        )
        kinds = list(configuration.architectures or [])
        # the head's class says what it predicts
        task = next((HEADS[end] for kind in kinds for end in HEADS if kind.endswith(end)), None)
        if task is None:
            raise ValueError(
                "expected a checkpoint with a head for next tokens, masked tokens or classes, got "
                f"{shown(kinds)}"
            )
        made: Any = getattr(transformers, kinds[0])
        network = with_weights(made, folder, dtype=torch.float32, local_files_only=here)
        tokenizer = transformers.AutoTokenizer.from_pretrained(
            folder, local_files_only=here, trust_remote_code=False
        )
    return Pretrained(network.to(place).eval(), tokenizer, task, name)


def read_records(
    model: Pretrained,
    path: str,
    *,
    length: int,
    text: str = "text",
    label: str = "label",
    classes: Sequence[str] | None = None,
) -> tuple[Rows, tuple[str, ...]]:
    """Return the records of a file for a model.

    A text is cut into records of ``length`` tokens each. A table (``.csv``, ``.jsonl``, gzipped
    too) has one record a row, cut off after ``length`` tokens and padded.

    Args:
        model: whose tokenizer and head they are for.
        path: ``.txt``, ``.txt.gz``, a folder of them, or a table.
        length: tokens of a record.
        text: column of a table.
        label: column of the class, for a model that classifies.
        classes: names of classes 0, 1, …; when left out the names that the model has for them, or
            their numbers from 0. No label is read by what the others are.

    Returns:
        The records, and the names of the classes; none where no class is predicted.

    Raises:
        ValueError: a file or column that is not there, no record, a label that is none of the
            classes, or more classes than the model has.
    """
    size = integer("length", length, minimum=2)
    most = getattr(model.network.config, "max_position_embeddings", None)
    if isinstance(most, int) and size > most:
        raise ValueError(f"length: expected at most the {most} tokens of the model, got {size}")
    if not str(path).endswith(KINDS):
        if model.task == "classification":
            raise ValueError(
                f"data: expected a table with a class for each text ({', '.join(KINDS)}), got "
                f"{Path(path).name}"
            )
        # a text: records of L tokens each, what is left over at its end left out
        tokens = _ids(model, read_text(path))
        count = len(tokens) // size
        if not count:
            raise ValueError(f"data: expected at least {size} tokens, got {len(tokens)}")
        rows = {TOKENS: torch.tensor(tokens[: count * size]).reshape(count, size)}
        return _with_labels(model, rows), ()
    table = read_table(Path(path), [text] + ([label] if model.task == "classification" else []))
    # a table: one record a row, cut off after L tokens
    encoded = [_ids(model, row[0])[:size] for row in table]
    rows = _pad(encoded)
    if model.task != "classification":
        return _with_labels(model, rows), ()
    known = _class_names(model, classes)
    # each label by itself: what the other records say moves no class
    numbers = {name: place for names in known for place, name in enumerate(names)}
    strange = next((place for place, row in enumerate(table, 1) if row[1] not in numbers), None)
    if strange is not None:
        raise ValueError(
            f"data[{label}]: expected one of the classes {shown(known[0])}, got another in record "
            f"{strange}; classes (--classes) says what they are called"
        )
    return {**rows, LABELS: torch.tensor([numbers[row[1]] for row in table])}, known[0]


def _class_names(model: Pretrained, declared: Sequence[str] | None) -> list[tuple[str, ...]]:
    """Return what classes 0, 1, … are called; and their numbers, where these are no names."""
    configuration: Any = model.network.config
    count = int(configuration.num_labels)
    if declared is not None:
        names = texts("classes", declared)
        if len(names) > count or len(set(names)) < len(names):
            raise ValueError(
                f"classes: expected at most the {count} of the model, each once, got {shown(names)}"
            )
        return [names]
    # what the checkpoint calls them
    stored = configuration.id2label or {}
    own = tuple(str(stored[key]) for key in sorted(stored, key=int))
    counted = tuple(map(str, range(count)))
    return [own] if set(own) & set(counted) else [own, counted]


def keep_apart(rows: Rows, share: float = 0.1, *, order: int = 0) -> tuple[Rows, Rows]:
    """Return records to learn from, and about a share of them that nothing is learned from.

    A record's side is a function of the record alone, but for the one kept apart where none would
    be, so that one record more or less changes what is learned from by one record, which a
    certificate of the learning needs. How many there are on
    each side then depends on what they say: declare the sampling rate, or do not publish it.

    Args:
        rows: all of them, at least two.
        share: kept apart, in (0, 1); one record at least.
        order: seed that says which.

    Raises:
        ValueError: fewer than two records, none that would be learned from, or a share outside its
            range.
    """
    in_interval("share", share, 0.0, 1.0, open_low=True, open_high=True)
    count = len(rows[TOKENS])
    if count < 2:
        raise ValueError(f"data: expected at least 2 records, got {count}")
    # a hash of each record alone
    places = own_places(rows, order)
    apart = places < share
    # where none is apart the first of the order is: one record ahead of it takes its side
    apart[places.argmin()] = True
    if apart.all():
        # the last of the order instead would be one record more and another less with a neighbour
        raise ValueError(
            f"data: expected records to learn from beside those kept apart, got none of {count}"
        )
    side = torch.from_numpy(apart)
    return (
        {name: value[~side] for name, value in rows.items()},
        {name: value[side] for name, value in rows.items()},
    )


def own_places(rows: Rows, order: int) -> Array:
    """Return (n,) numbers in [0, 1) that look uniform, each of one record alone.

    Args:
        rows: records; padding does not count.
        order: seed of which.
    """
    tokens, labels = rows[TOKENS].numpy(), rows.get(LABELS)
    # padding must not move a record: another longest record would
    seen = np.ones_like(tokens, dtype=bool) if MASK not in rows else rows[MASK].numpy() == 1
    found = np.empty(len(tokens))
    for place, ids in enumerate(tokens):
        # of the tokens and the label, not of where the record stands
        digest = hashlib.sha256(f"{order}:".encode() + ids[seen[place]].tobytes())
        if labels is not None:
            own = labels[place].numpy()
            digest.update((own[seen[place]] if own.ndim else own).tobytes())
        # 48 bits as a number in [0, 1)
        found[place] = int.from_bytes(digest.digest()[:6], "big") / 2**48
    return found


def _ids(model: Pretrained, text: str) -> list[int]:
    # only a classifier reads the marks at both ends
    special = model.task == "classification"
    with quiet():
        found = model.tokenizer(text, add_special_tokens=special)["input_ids"]
    return [int(one) for one in found]


def _pad(encoded: Sequence[list[int]]) -> Rows:
    width = max(1, *map(len, encoded))
    tokens = torch.zeros(len(encoded), width, dtype=torch.long)
    mask = torch.zeros_like(tokens)
    for place, ids in enumerate(encoded):
        tokens[place, : len(ids)] = torch.tensor(ids, dtype=torch.long)
        # an empty text is a record like any other, of one token
        mask[place, : max(len(ids), 1)] = 1
    return {TOKENS: tokens, MASK: mask}


def _with_labels(model: Pretrained, rows: Rows) -> Rows:
    """Mask a share of the tokens for a model that predicts those; a record's by itself alone."""
    if model.task != "masked":
        return rows
    instead = model.tokenizer.mask_token_id
    if instead is None or instead >= vocabulary(model.network):
        raise ValueError("model: expected a tokenizer with a mask token for a masked model")
    tokens: Tensor = rows[TOKENS]
    seen = rows.get(MASK, torch.ones_like(tokens))
    # coins that are a function of the record, so that another record changes no mask
    drawn = np.stack(
        [
            np.random.default_rng([MASKING, int(own * 2**48)]).random(tokens.shape[1])
            for own in own_places(rows, MASKING)
        ]
    )
    chosen = torch.from_numpy(drawn < MASKED) & (seen == 1)
    # a record without a masked token would have no loss
    chosen[:, 0] |= ~chosen.any(dim=1)
    return {
        **rows,
        TOKENS: tokens.masked_fill(chosen, instead),
        LABELS: tokens.masked_fill(~chosen, IGNORED),
    }
