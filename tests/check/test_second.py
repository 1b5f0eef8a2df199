"""A checker in another language, from the format and the vectors alone, gives their verdicts."""

import json
import shutil
import subprocess
from pathlib import Path

import pytest

HERE = Path(__file__).parent
LINES = (HERE / "vectors" / "vectors.jsonl").read_text("utf-8").splitlines()
KINDS = ("gaussian", "laplace", "response")


@pytest.mark.skipif(shutil.which("node") is None, reason="the second checker is JavaScript")
def test_it_agrees_on_all_vectors_of_its_mechanisms():
    vectors = [json.loads(line) for line in LINES]
    chosen = [one for one in vectors if one["proof"]["mechanism"]["kind"] in KINDS]
    assert len(chosen) >= 60
    done = subprocess.run(
        ["node", str(HERE / "second" / "check.mjs")],
        input="\n".join(json.dumps(one) for one in chosen),
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.split("\n")[:-1] == [one["verdict"] for one in chosen]
