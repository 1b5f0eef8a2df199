"""Files of tensors: the same bytes for the same content, written by whatever process."""

import ast
from pathlib import Path

import numpy as np
from safetensors import safe_open
from safetensors.numpy import load, save

import tacit
from tacit._ground.headers import in_order

SOURCE = Path(tacit.__file__).parents[1]
# Files that have one key of metadata, or none.
ONE_KEY = {
    "tacit/adapters/saving.py",
    "tacit/stores/backends/folder.py",
    "tacit_lab/cli/images.py",
    "tacit_lab/studies/specifications/learnwares.py",
    "tacit/specifications/seeds/models.py",
    "tacit/specifications/subspace.py",
}


def test_metadata_are_in_order_and_nothing_else_is_changed(tmp_path):
    tensors = {"b": np.arange(7, dtype=np.float32), "a": np.ones((2, 3)), "c": np.zeros(0, np.int8)}
    metadata = {f"key {place}": f"café {place} {{" for place in range(12)}
    plain = {save(tensors, dict(sorted(metadata.items(), reverse=bool(n % 2)))) for n in range(9)}
    assert len(plain) > 1
    (content,) = {in_order(one) for one in plain}
    found = load(content)
    assert all(np.array_equal(found[name], held) for name, held in tensors.items())
    path = tmp_path / "file.safetensors"
    path.write_bytes(content)
    with safe_open(path, "numpy") as file:
        assert file.metadata() == metadata
    assert in_order(content) == content
    assert int.from_bytes(content[:8], "little") % 8 == 0


def test_every_file_of_several_keys_is_in_order():
    writers = set()
    for path in SOURCE.glob("tacit*/**/*.py"):
        text = path.read_text(encoding="utf-8")
        imports = [
            node
            for node in ast.walk(ast.parse(text))
            if isinstance(node, ast.ImportFrom)
            and str(node.module).startswith("safetensors")
            and any(one.name in ("save", "save_file") for one in node.names)
        ]
        if imports and "in_order(" not in text:
            writers.add(path.relative_to(SOURCE).as_posix())
    assert writers == ONE_KEY
