"""What a model is trained on: its records, its outputs, and a loss for each record."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

import torch
from torch import Tensor, nn
from torch.nn import functional

from tacit._ground.checks import choice
from tacit._ground.reprs import shown

Rows: TypeAlias = dict[str, Tensor]
# Of a token that no loss is of.
IGNORED = -100
INPUTS, TARGETS, TOKENS, MASK, LABELS = "inputs", "targets", "input_ids", "attention_mask", "labels"
TASKS = ("causal", "masked", "classification", "supervised")
# A head of this name predicts that.
HEADS = {
    "ForCausalLM": "causal",
    "LMHeadModel": "causal",
    "ForMaskedLM": "masked",
    "ForSequenceClassification": "classification",
}
Loss: TypeAlias = Callable[[Tensor, Tensor], Tensor]


class AdapterTask(ABC):
    """How outputs and losses come from a model and some of its records."""

    name: str

    @abstractmethod
    def outputs(self, model: nn.Module, rows: Rows) -> Tensor:
        """Return the model's outputs, the first dimension the records."""

    @abstractmethod
    def losses(self, outputs: Tensor, rows: Rows) -> Tensor:
        """Return (B,) losses in nats, each of one record."""

    def answers(self, rows: Rows) -> Tensor | None:
        """Return (B,) classes that outputs name, where they do; None elsewhere."""
        found = rows.get(TARGETS, rows.get(LABELS))
        named = found is not None and found.ndim == 1 and not found.is_floating_point()
        return found if named else None

    @abstractmethod
    def check(self, model: nn.Module, rows: Rows) -> None:
        """Refuse records that the model cannot take.

        Raises:
            ValueError: names what is out of range; never a value of a record.
        """


class Language(AdapterTask):
    """Next tokens, or masked ones, of a ``transformers`` model: the mean over a record's tokens.

    Args:
        shifted: whether the output at a position predicts the token after it.
    """

    def __init__(self, *, shifted: bool) -> None:
        self._shifted = shifted
        self.name = "causal" if shifted else "masked"

    def outputs(self, model: nn.Module, rows: Rows) -> Tensor:
        """Return logits, (B, L, V)."""
        logits: Tensor = model(input_ids=rows[TOKENS], attention_mask=rows.get(MASK)).logits
        return logits

    def losses(self, outputs: Tensor, rows: Rows) -> Tensor:
        """Return −ln p of a record's labels, their mean; 0 where it has none."""
        labels = self._labels(rows)
        if self._shifted:
            # the output at t predicts token t + 1
            outputs, labels = outputs[:, :-1], labels[:, 1:]
        each = functional.cross_entropy(
            outputs.float().transpose(1, 2), labels, ignore_index=IGNORED, reduction="none"
        )
        # the mean over a record's own tokens, so that a long record weighs no more
        return each.sum(dim=1) / (labels != IGNORED).sum(dim=1).clamp(min=1)

    def check(self, model: nn.Module, rows: Rows) -> None:
        """Refuse tokens and labels outside the vocabulary, and too many in a row."""
        size = vocabulary(model)
        # an index outside would be an error of the device, or worse
        _check_range("data[input_ids]", rows[TOKENS], size)
        if LABELS in rows:
            labels = rows[LABELS]
            if labels.shape != rows[TOKENS].shape:
                raise ValueError(
                    f"data[labels]: expected a label for each of {tuple(rows[TOKENS].shape)} "
                    f"tokens, got shape {tuple(labels.shape)}"
                )
            _check_range("data[labels]", labels, size, ignored=True)
        # a masked model cannot say by itself what was masked
        elif not self._shifted:
            raise ValueError("data[labels]: expected the masked tokens, got none")
        _check_mask(rows)
        most = getattr(_configuration(model), "max_position_embeddings", None)
        length = rows[TOKENS].shape[1]
        if isinstance(most, int) and length > most:
            raise ValueError(
                f"data[input_ids]: expected at most the {most} tokens of the model, got {length}"
            )

    def _labels(self, rows: Rows) -> Tensor:
        if LABELS in rows:
            return rows[LABELS]
        mask = rows.get(MASK)
        # padding is no token to learn
        return rows[TOKENS] if mask is None else rows[TOKENS].masked_fill(mask == 0, IGNORED)


class Classification(AdapterTask):
    """The class of a text, by a ``transformers`` model with a head for it."""

    name = "classification"

    def outputs(self, model: nn.Module, rows: Rows) -> Tensor:
        """Return logits, (B, C)."""
        logits: Tensor = model(input_ids=rows[TOKENS], attention_mask=rows.get(MASK)).logits
        return logits

    def losses(self, outputs: Tensor, rows: Rows) -> Tensor:
        """Return −ln p of the label."""
        return functional.cross_entropy(outputs.float(), rows[LABELS], reduction="none")

    def check(self, model: nn.Module, rows: Rows) -> None:
        """Refuse tokens outside the vocabulary and labels that are no class."""
        _check_range("data[input_ids]", rows[TOKENS], vocabulary(model))
        _check_mask(rows)
        if LABELS not in rows or rows[LABELS].ndim != 1:
            raise ValueError("data[labels]: expected one class for each text")
        _check_range("data[labels]", rows[LABELS], int(_configuration(model).num_labels))


class Supervised(AdapterTask):
    """Inputs and targets of any module: cross-entropy for classes, squares for numbers.

    Args:
        loss: instead, from outputs and targets to (B,) losses.
    """

    name = "supervised"

    def __init__(self, loss: Loss | None = None) -> None:
        self._loss = loss

    def outputs(self, model: nn.Module, rows: Rows) -> Tensor:
        """Return what the module returns."""
        inputs = rows[INPUTS]
        # inputs in the model's precision
        kind = next(model.parameters()).dtype
        found = model(inputs.to(kind) if inputs.is_floating_point() else inputs)
        if not isinstance(found, Tensor):
            raise ValueError(
                f"model: expected a tensor from inputs, got {type(found).__name__}; give token "
                "ids as a mapping for a transformers model"
            )
        return found

    def losses(self, outputs: Tensor, rows: Rows) -> Tensor:
        """Return the loss of each record."""
        targets = rows[TARGETS]
        if self._loss is not None:
            return self._loss(outputs, targets)
        if targets.is_floating_point():
            # ‖f(x) − y‖² of each record
            targets = targets.reshape(len(targets), -1)
            return (outputs.reshape(targets.shape) - targets).square().sum(dim=1)
        return functional.cross_entropy(outputs.float(), targets, reduction="none")

    def check(self, model: nn.Module, rows: Rows) -> None:
        """Refuse classes that the outputs do not have."""
        targets = rows[TARGETS]
        if targets.is_floating_point() or self._loss is not None:
            return
        device = next(model.parameters()).device
        with torch.no_grad():
            # one record tells how many classes there are
            found = self.outputs(model, select(rows, torch.arange(1), device))
        if found.ndim != 2 or targets.ndim != 1:
            raise ValueError(
                f"data: expected outputs (B, classes) for classes (n,), got {tuple(found.shape)} "
                f"and {tuple(targets.shape)}"
            )
        _check_range("data targets", targets, found.shape[1])


def task_of(model: nn.Module, rows: Rows, task: str | None, loss: Loss | None) -> AdapterTask:
    """Return the task that a model's head and the records say, or the one asked for.

    Args:
        model: whose class tells what its outputs predict.
        rows: the records.
        task: ``"causal"``, ``"masked"``, ``"classification"`` or ``"supervised"``.
        loss: of a supervised task.

    Raises:
        ValueError: it cannot be told, or does not fit the records.
    """
    if task is not None:
        choice("task", task, TASKS)
    # what was asked for, or what records and head say
    kind = task or ("supervised" if TOKENS not in rows else _by_head(model))
    if kind is None:
        raise ValueError(
            f"task: expected one of {', '.join(TASKS)} for a {type(model).__name__}, got None"
        )
    # tokens are of transformers' models, inputs of any other
    if (kind == "supervised") == (TOKENS in rows):
        raise ValueError(
            f"task: expected {'(inputs, targets)' if kind == 'supervised' else 'input_ids'} for "
            f"{kind}, got {shown(sorted(rows))}"
        )
    if loss is not None and not callable(loss):
        raise ValueError(f"loss: expected a function of outputs and targets, got {shown(loss)}")
    if loss is not None and kind != "supervised":
        raise ValueError(f"loss: expected none for {kind}, whose loss is the cross-entropy")
    if kind == "supervised":
        return Supervised(loss)
    return Classification() if kind == "classification" else Language(shifted=kind == "causal")


def records(data: Any) -> Rows:
    """Return records as named tensors of equal first dimension.

    Args:
        data: (inputs, targets), or a mapping with ``input_ids`` and, where there are,
            ``attention_mask`` and ``labels``; arrays or tensors.

    Raises:
        ValueError: something else, such as a DataLoader; no record; unequal lengths; NaN.
    """
    if isinstance(data, torch.utils.data.DataLoader) or hasattr(data, "__next__"):
        raise ValueError(
            f"data: expected the records themselves, got batches of a {type(data).__name__}; the "
            "account holds for Poisson samples, which are drawn here, and for no other sampler"
        )
    if isinstance(data, (tuple, list)) and len(data) == 2:
        data = {INPUTS: data[0], TARGETS: data[1]}
    if not isinstance(data, Mapping):
        raise ValueError(
            "data: expected (inputs, targets) or a mapping with input_ids, got "
            f"{type(data).__name__}"
        )
    # the parts that such records have
    known = {TOKENS, MASK, LABELS} if TOKENS in data else {INPUTS, TARGETS}
    if not known >= set(data) or (TOKENS not in data and set(data) != known):
        raise ValueError(f"data: expected {sorted(known)}, got {shown(sorted(map(str, data)))}")
    rows = {name: _tensor(name, value) for name, value in data.items()}
    # one row of every part is one record
    counts = {name: len(value) for name, value in rows.items()}
    if len(set(counts.values())) != 1 or 0 in counts.values():
        raise ValueError(f"data: expected equally many records in each part, got {shown(counts)}")
    return rows


def check_records(name: str, model: nn.Module, task: AdapterTask, rows: Rows) -> None:
    """Refuse records that a model or its loss cannot take, by one record of them.

    Args:
        name: of the argument.
        model: that takes them.
        task: that it is trained on.
        rows: the records.

    Raises:
        ValueError: names what is out of range, or what the model takes no record of.
    """
    # types and shapes may be told, values never
    shapes = {part: (str(held.dtype), tuple(held.shape[1:])) for part, held in rows.items()}
    try:
        task.check(model, rows)
        with torch.no_grad():
            some = select(rows, torch.arange(1), next(model.parameters()).device)
            task.losses(task.outputs(model, some), some)
    except ValueError:
        raise
    except Exception as error:
        # its words may hold what a record holds
        raise ValueError(
            f"{name}: expected records that the model and its loss take, got {shown(shapes)}, on "
            f"which they raise {type(error).__name__}"
        ) from error


def select(rows: Rows, indices: Tensor, device: torch.device) -> Rows:
    """Return some of the records, on a device."""
    return {name: value[indices].to(device) for name, value in rows.items()}


def vocabulary(model: nn.Module) -> int:
    """Return how many tokens a ``transformers`` model knows."""
    return int(_configuration(model).vocab_size)


def _configuration(model: Any) -> Any:
    found = getattr(model, "config", None)
    if found is None or not hasattr(found, "vocab_size"):
        raise ValueError(
            f"model: expected a transformers model for input_ids, got {type(model).__name__}"
        )
    return found


def _by_head(model: Any) -> str | None:
    base = model.get_base_model() if hasattr(model, "get_base_model") else model
    name = type(base).__name__
    return next((task for ending, task in HEADS.items() if name.endswith(ending)), None)


def _tensor(name: str, value: Any) -> Tensor:
    try:
        found = torch.as_tensor(value).detach()
    except (TypeError, ValueError, RuntimeError):
        raise ValueError(
            f"data[{name}]: expected a tensor or an array, got {type(value).__name__}"
        ) from None
    if found.ndim == 0:
        raise ValueError(f"data[{name}]: expected one entry for each record, got a scalar")
    if found.is_complex():
        raise ValueError(f"data[{name}]: expected real numbers, got complex ones")
    if found.is_floating_point() and name in (TOKENS, LABELS):
        raise ValueError(f"data[{name}]: expected integers, got {str(found.dtype)[6:]}")
    if name in (TOKENS, MASK) and (found.ndim != 2 or not found.shape[1]):
        raise ValueError(
            f"data[{name}]: expected rows of tokens, (n, length), got shape {tuple(found.shape)}"
        )
    if found.is_floating_point() and not bool(torch.isfinite(found).all()):
        raise ValueError(f"data[{name}]: expected finite numbers, got NaN or infinite ones")
    # copied: what was checked, and what is certified, is what is trained on
    if found.is_floating_point() and name != MASK:
        return found.to(torch.get_default_dtype(), copy=True)
    truth = name == INPUTS and found.dtype == torch.bool
    return found.to(torch.bool if truth else torch.long, copy=True)


def _check_range(name: str, values: Tensor, size: int, *, ignored: bool = False) -> None:
    # counted: which they are is nobody's to know
    outside = (values < 0) | (values >= size)
    if ignored:
        outside &= values != IGNORED
    if bool(outside.any()):
        raise ValueError(
            f"{name}: expected integers from 0 to {size - 1}, got {int(outside.sum())} outside"
        )


def _check_mask(rows: Rows) -> None:
    mask = rows.get(MASK)
    if mask is None:
        return
    if mask.shape != rows[TOKENS].shape or not bool(((mask == 0) | (mask == 1)).all()):
        raise ValueError("data[attention_mask]: expected 0 or 1 for each token")
    if not bool(mask.any(dim=1).all()):
        raise ValueError("data[attention_mask]: expected a token in every record, got an empty one")
