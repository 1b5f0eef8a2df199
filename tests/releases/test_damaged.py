"""A file that was cut off, or of which bits were turned, is a sentence to whoever reads it."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from tacit import Rows, load
from tacit.hidden_states import (
    Codebook,
    CodebookFit,
    ProductCodebook,
    ProductFit,
    ResidualCodebook,
    ResidualFit,
    Transcoder,
    load_codec,
)
from tacit.releases import load_rows, save_rows
from tacit.specifications import PublicTasks, load_subspace, public_subspace, read_specification
from tacit.statistics import Session
from tests.releases.files import (
    MAKERS,
    ROWS,
    STATES,
    codes,
    quotients,
    real,
    specification,
    states,
)

Reader = Callable[[Path], Any]


def made(folder: Path) -> dict[str, tuple[Path, Reader]]:
    """A small real file of every kind, and what reads it."""
    found: dict[str, tuple[Path, Reader]] = {}
    for name in MAKERS:
        stored = real(name, folder)
        found[name] = folder / f"{name}.json", load
        found[name][0].write_text(json.dumps(stored), encoding="utf-8")
    for name, release in (("states", states()), ("quotients", quotients())):
        for ending in ("safetensors", *(("npy", "parquet") if name == "quotients" else ())):
            save_rows(release, folder / f"{name}.{ending}")
            found[f"{name}, {ending}"] = folder / f"{name}.{ending}", load_rows
    # a damaged .npy is read beside the certificate of the whole one
    side = (folder / "quotients.npy.json").read_text(encoding="utf-8")
    (folder / "damaged.npy.json").write_text(side, encoding="utf-8")
    book = Codebook.fit(STATES, CodebookFit(size=4, least_cell=2), rng=0)
    book.save(folder / "book.safetensors")
    found["codebook"] = folder / "book.safetensors", Codebook.load
    found["codec"] = folder / "book.safetensors", load_codec
    product = ProductCodebook.fit(STATES, ProductFit(parts=2, size=4, least_cell=2), rng=0)
    product.save(folder / "product.safetensors")
    found["product codebook"] = folder / "product.safetensors", ProductCodebook.load
    stages = ResidualCodebook.fit(STATES, ResidualFit(stages=2, size=4, least_cell=2), rng=0)
    stages.save(folder / "stages.safetensors")
    found["residual codebook"] = folder / "stages.safetensors", ResidualCodebook.load
    coder = Transcoder(encoder=torch.randn(3, 4), encoder_bias=torch.zeros(3),
                       decoder=torch.randn(3, 4), decoder_bias=torch.zeros(4))  # fmt: skip
    coder.save(folder / "coder.safetensors")
    found["transcoder"] = folder / "coder.safetensors", Transcoder.load
    codes(folder / "codes.safetensors")
    found["encoded codes, a file"] = folder / "codes.safetensors", load_rows
    specification().details.specification.save(folder / "specification.safetensors")
    found["specification, a file"] = folder / "specification.safetensors", read_specification
    source = np.random.default_rng(0)
    subspace = public_subspace(
        torch.nn.Linear(6, 5), source.normal(size=(200, 6)), np.arange(200) % 3, size=6,
        tasks=PublicTasks(count=20, records=30),
    )  # fmt: skip
    subspace.save(folder / "subspace.safetensors")
    found["subspace"] = folder / "subspace.safetensors", load_subspace
    session = Session(ROWS, Rows(success=0.6), path=folder / "session.json")
    session.ask("mean", share=0.5)
    found["session"] = (
        folder / "session.json",
        lambda path: Session(ROWS, Rows(success=0.6), path=path).ask("mean", share=0.1),
    )
    return found


@pytest.mark.parametrize(
    "said",
    [
        {"shape": [10**30, 4]},
        {"shape": [40, 10**30]},
        {"shape": [40, 10**13]},
        {"data_offsets": [10**30, 10**30 + 640]},
        {"data_offsets": [-(10**30), 640]},
    ],
    ids=str,
)
def test_a_head_that_says_more_than_there_is_is_a_sentence(
    files: dict[str, tuple[Path, Reader]], said: dict[str, list[int]]
) -> None:
    path, read = files["states, safetensors"]
    content = path.read_bytes()
    data = 8 + int.from_bytes(content[:8], "little")
    head = json.loads(content[8:data])
    name = next(key for key in head if key != "__metadata__")
    head[name] |= said
    text = json.dumps(head).encode()
    changed = path.with_name("head.safetensors")
    changed.write_bytes(len(text).to_bytes(8, "little") + text + content[data:])
    with pytest.raises(ValueError, match=r"head\.safetensors"):
        read(changed)


def test_a_head_of_numpy_that_is_no_literal_is_a_sentence(
    files: dict[str, tuple[Path, Reader]],
) -> None:
    path, read = files["quotients, npy"]
    changed = path.with_name("damaged.npy")
    changed.write_bytes(path.read_bytes().replace(b"{'descr'", b",'descr'", 1))
    with pytest.raises(ValueError, match=r"damaged\.npy"):
        read(changed)


def damaged(content: bytes, source: random.Random) -> bytes:
    """Cut a file off, turn one bit or a few of it, or put other bytes in."""
    kind, place = source.random(), source.randrange(len(content))
    if kind < 0.3:
        return content[:place]
    if kind < 0.7:
        # most of the bits that matter stand in the head
        place = source.randrange(min(len(content), 400)) if kind < 0.5 else place
        turned = bytearray(content)
        for _ in range(source.choice([1, 1, 3])):
            turned[(place + source.randrange(4)) % len(content)] ^= 1 << source.randrange(8)
        return bytes(turned)
    strange = source.choice([b"\xff" * 8, b"null", b"NaN", b"1e999", b"[" * 40, b"\x00" * 8, b"-1"])
    return content[:place] + strange + content[place + len(strange) * source.randrange(2) :]


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[Path, Reader]]:
    return made(tmp_path_factory.mktemp("damaged"))


def campaign(files: dict[str, tuple[Path, Reader]], count: int, seed: int) -> None:
    for name, (path, read) in files.items():
        source, content = random.Random(f"{name} {seed}"), path.read_bytes()
        place = path.with_name(f"damaged{path.suffix}")
        for turn in range(count):
            place.write_bytes(damaged(content, source))
            try:
                read(place)
            except ValueError:
                pass
            except Exception as error:
                raise AssertionError(f"{name}, turn {turn} of seed {seed}: {error!r}") from error


def test_a_damaged_file_is_a_sentence(files: dict[str, tuple[Path, Reader]]) -> None:
    for path, read in files.values():
        read(path)
    campaign(files, 25, seed=1)


@pytest.mark.thorough
def test_five_hundred_damaged_files_of_every_kind_are_a_sentence(
    files: dict[str, tuple[Path, Reader]],
) -> None:
    campaign(files, 500, seed=2)
