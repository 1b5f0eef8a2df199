"""Labelled images of an .npz, and the model of them, which the caller's own file may make."""

from __future__ import annotations

import hashlib
import importlib.util
import io
import sys
import zipfile
import zlib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from tacit._ground.checks import integer
from tacit._ground.files import atomic_stream, read_bytes
from tacit_lab.poisoning import LabelledImages, pretrain, small_network

if TYPE_CHECKING:
    import torch

# Beyond so many a label is a mistake: every class has its weights.
MOST_CLASSES = 100_000
# Who is public, and which images test the model where the file does not say.
SEED = 0
TEST_SHARE = 0.2
KEYS = "images, labels and is_test; jpeg, offsets, labels and is_test; or x_train to y_test"


@dataclass(frozen=True, kw_only=True)
class ImageProblem:
    """What is learned from, what it is held against, and what learns.

    Attributes:
        model: not trained yet.
        data: of the sources.
        test: of nobody.
        public: what the model learns first, without noise; None for nothing.
        rate: learning rate.
        fingerprint: SHA-256 of the file.
    """

    model: torch.nn.Module
    data: LabelledImages
    test: LabelledImages
    public: LabelledImages | None
    rate: float
    fingerprint: str

    @property
    def shape(self) -> tuple[int, int, int]:
        """Channels, height and width."""
        channels, height, width = self.data.images.shape[1:]
        return channels, height, width

    @property
    def remarks(self) -> tuple[str, ...]:
        """What the holder of a release should know."""
        if self.public is None:
            return ()
        return (
            f"{len(self.public):,} images, drawn without looking at them, belong to no source: the "
            "model learned from them first, without noise, and nothing is certified about them.",
        )

    @property
    def told(self) -> str:
        """What was read, in a line."""
        channels, height, width = self.shape
        return (
            f"{len(self.data):,} images of sources and {len(self.test):,} to test on, {channels} × "
            f"{height} × {width}, {self.data.classes} classes, {self.fingerprint[:23]}…"
        )

    def optimizer(self, parameters: Iterable[torch.nn.Parameter]) -> torch.optim.Optimizer:
        """Return gradient descent with momentum."""
        from torch.optim import SGD

        return SGD(parameters, lr=self.rate, momentum=0.9)

    def pretrain(self) -> None:
        """Train the model on the public images, where there are any."""
        if self.public is not None:
            pretrain(self.model, self.public, self.optimizer, passes=4)

    def save(self, path: Path) -> None:
        """Write the parameters as safetensors."""
        from safetensors.torch import save

        with atomic_stream("--out", path) as stream:
            stream.write(save(self.model.state_dict()))


def problem_of(path: str, model: str | None, *, public: int, rate: float) -> ImageProblem:
    """Read the images, split them and make the model.

    Raises:
        ValueError: the file is not there, is no .npz or has other arrays, or too few images.
    """
    # one read: the digest is of what is learned from
    content = read_bytes("DATA", Path(path))
    learned, test = _split(_arrays(path, content))
    apart = integer("--public-images", public, minimum=0)
    if apart >= len(learned):
        raise ValueError(
            f"--public-images: expected fewer than the {len(learned):,} images there are, "
            f"got {apart:,}"
        )
    # who is public does not depend on the images
    order = np.random.default_rng(SEED).permutation(len(learned))
    data, classes = learned.some(order[apart:]), max(learned.classes, test.classes)
    if classes > MOST_CLASSES:
        raise ValueError(f"labels: expected 0 … {MOST_CLASSES - 1:,}, got {classes - 1:,}")
    return ImageProblem(
        model=_model(model, learned.images.shape[1], classes),
        data=data,
        test=test,
        public=learned.some(order[:apart]) if apart else None,
        rate=rate,
        fingerprint=f"sha256:{hashlib.sha256(content).hexdigest()}",
    )


def _arrays(path: str, content: bytes) -> Mapping[str, npt.NDArray[Any]]:
    try:
        # no pickles: they could run anything
        with np.load(io.BytesIO(content), allow_pickle=False) as held:
            found = {name: held[name] for name in held.files}
    except (
        ValueError,
        OSError,
        zipfile.BadZipFile,
        EOFError,
        TypeError,
        AttributeError,
        MemoryError,
        RuntimeError,
        NotImplementedError,
        zlib.error,
    ):
        found = {"": None}
    if not all(isinstance(one, np.ndarray) for one in found.values()):
        raise ValueError(f"DATA: expected an .npz of plain arrays in {path}")
    return found


def _split(arrays: Mapping[str, npt.NDArray[Any]]) -> tuple[LabelledImages, LabelledImages]:
    """Return what is learned from and what is tested on."""
    if {"x_train", "y_train", "x_test", "y_test"} <= set(arrays):
        return (
            LabelledImages(_channels(arrays["x_train"]), arrays["y_train"]),
            LabelledImages(_channels(arrays["x_test"]), arrays["y_test"]),
        )
    if "labels" not in arrays or not ("images" in arrays or {"jpeg", "offsets"} <= set(arrays)):
        raise ValueError(f"DATA: expected arrays {KEYS}, got {', '.join(sorted(arrays)) or 'none'}")
    labels = arrays["labels"]
    if labels.ndim != 1:
        raise ValueError(f"labels: expected shape (n,), got {labels.shape}")
    images = _channels(arrays["images"]) if "images" in arrays else _decode(arrays, labels)
    whole = LabelledImages(images, labels)
    # which images test, or a fifth of them drawn without looking
    tested = arrays.get("is_test")
    if tested is None:
        source = np.random.default_rng(SEED)
        tested = np.zeros(len(whole), dtype=bool)
        tested[source.permutation(len(whole))[: max(1, round(TEST_SHARE * len(whole)))]] = True
    if tested.dtype != np.bool_ or tested.shape != (len(whole),):
        raise ValueError(
            f"is_test: expected {len(whole)} booleans, got {tested.dtype} {tested.shape}"
        )
    if not 0 < int(tested.sum()) < len(whole):
        raise ValueError("is_test: expected images to learn from and to test on, got one kind")
    return whole.some(~tested), whole.some(tested)


def _channels(images: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Return (n, channels, height, width) of grey images or of those with channels last."""
    if images.ndim == 3:
        # grey images have one channel
        return images[:, None]
    if images.ndim == 4 and images.shape[1] not in (1, 3) and images.shape[3] in (1, 3):
        # channels last, as most files have them
        return np.ascontiguousarray(images.transpose(0, 3, 1, 2))
    return images


def _decode(
    arrays: Mapping[str, npt.NDArray[Any]], labels: npt.NDArray[Any]
) -> npt.NDArray[np.uint8]:
    """Return the images of JPEG files end to end; image i lies between two offsets."""
    try:
        from PIL import Image
    except ImportError:
        raise ValueError("DATA: reading JPEG images needs pillow: pip install pillow") from None
    content, offsets = arrays["jpeg"].tobytes(), arrays["offsets"]
    if offsets.shape != (len(labels) + 1,) or offsets.dtype.kind not in "iu":
        raise ValueError(f"offsets: expected {len(labels) + 1} integers, got {offsets.shape}")
    # image i lies between offsets i and i + 1
    places = offsets.tolist()
    if places[0] < 0 or places[-1] > len(content) or places != sorted(places):
        raise ValueError("offsets: expected places in jpeg, each above the one before")
    try:
        found = [
            np.asarray(Image.open(io.BytesIO(content[start:end])).convert("RGB"))
            for start, end in pairwise(places)
        ]
        stacked = np.stack(found)
    except (OSError, ValueError):
        raise ValueError(
            "jpeg: expected JPEG files of one size, got another kind of file"
        ) from None
    return np.ascontiguousarray(stacked.transpose(0, 3, 1, 2))


def _model(named: str | None, channels: int, classes: int) -> torch.nn.Module:
    if named is None:
        return small_network(channels, classes)
    from torch.nn import Module

    try:
        made = function_of("--network", named)(channels, classes)
    except ValueError:
        raise
    except Exception as error:
        raise ValueError(f"--network: {named} raised {type(error).__name__}") from error
    if not isinstance(made, Module):
        raise ValueError(f"--network: expected a torch.nn.Module, got {type(made).__name__}")
    return made


def function_of(flag: str, named: str) -> Callable[..., Any]:
    """Return a function of a Python file.

    Args:
        flag: what a ValueError calls it.
        named: ``FILE.py:FUNCTION``.

    Raises:
        ValueError: the file or the function is not there, or running the file fails.
    """
    place, _, name = named.rpartition(":")
    if not place.endswith(".py") or not name.isidentifier():
        raise ValueError(f"{flag}: expected FILE.py:FUNCTION, got {named!r}")
    path = Path(place)
    if not path.is_file():
        raise ValueError(f"{flag}: there is no file {place}")
    # by its path, under a name that no other module has
    described = importlib.util.spec_from_file_location(f"_tacit_caller_{path.stem}", path)
    assert described is not None
    assert described.loader is not None
    module = importlib.util.module_from_spec(described)
    # dataclasses look their module up by its name
    sys.modules[described.name] = module
    try:
        described.loader.exec_module(module)
    except (Exception, SystemExit) as error:
        raise ValueError(f"{flag}: running {place} raised {type(error).__name__}") from error
    # what was asked for must be there and callable
    found = getattr(module, name, None)
    if not callable(found):
        raise ValueError(f"{flag}: expected a function {name!r} in {place}, got none")
    function: Callable[..., Any] = found
    return function
