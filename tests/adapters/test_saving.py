"""The files of an adapter: the same bytes for the same adapter, in every process."""

import os
import subprocess
import sys

import pytest
import torch
from peft import LoraConfig

from tacit.adapters.saving import Factors, read_adapter, write_adapter

NAMES = [f"block.{place}.{part}" for place in range(3) for part in ("query", "key", "value")]


def written(folder):
    """An adapter of nine layers, of two ranks and two scales."""
    source = torch.Generator().manual_seed(0)
    layers = {
        name: (
            torch.randn(1 + place % 2, 4, generator=source),
            torch.randn(3, 1 + place % 2, generator=source),
            1.0 + place % 3,
        )
        for place, name in enumerate(NAMES)
    }
    write_adapter(folder, Factors(layers, transposed=False), "causal", {"ours": 1}, "a/model")
    return {path.name: path.read_bytes() for path in sorted(folder.iterdir())}


def test_peft_reads_its_configuration_and_the_bytes_are_ordered(tmp_path):
    first, second = written(tmp_path / "first"), written(tmp_path / "second")
    assert first == second
    read = LoraConfig.from_pretrained(str(tmp_path / "first"))
    assert read.target_modules == set(NAMES)
    assert read.base_model_name_or_path == "a/model"
    assert read.rank_pattern == dict.fromkeys(NAMES[1::2], 2)
    text = first["adapter_config.json"].decode()
    places = [text.index(f'"{name}"', text.index("target_modules")) for name in sorted(NAMES)]
    assert places == sorted(places)


@pytest.mark.thorough
def test_the_bytes_do_not_depend_on_hashes(tmp_path):
    """Sets of text are ordered by a seed of the process."""
    program = (
        "import pathlib, sys; from tests.adapters.test_saving import written; "
        "written(pathlib.Path(sys.argv[1]))"
    )
    found = []
    for seed in ("1", "2"):
        folder = tmp_path / seed
        environment = {**os.environ, "PYTHONHASHSEED": seed}
        subprocess.run([sys.executable, "-c", program, str(folder)], env=environment, check=True)
        found.append({path.name: path.read_bytes() for path in sorted(folder.iterdir())})
    assert found[0] == found[1]


def test_a_folder_of_an_unknown_user_is_refused_in_a_sentence():
    with pytest.raises(ValueError, match="folder: expected a file path"):
        read_adapter("~nobody.of.this.name/adapter")
