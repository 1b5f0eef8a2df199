"""Specifications: the file, what is sent to a dock, and everything beside them."""

import io
import json
from contextlib import contextmanager
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, HTTPServer
from threading import Thread

import numpy as np
import pytest

pytest.importorskip("torch")

from tacit.specifications import Description, ReplacedRecord, save_specification, specify

from .registry import tells_nothing_beside

COUNT = 24


def archive(images, labels):
    buffer = io.BytesIO()
    np.savez(buffer, inputs=images, labels=labels)
    return buffer.getvalue()


def pictures(seed=0):
    rng = np.random.default_rng(seed)
    return rng.integers(0, 256, size=(COUNT, 28, 28)).astype(np.uint8), np.arange(COUNT) % 2


def other(place, picture=None, label=None):
    """The records with one of them replaced."""
    images, labels = pictures()
    images, labels = images.copy(), labels.copy()
    if picture is not None:
        images[place] = picture
    if label is not None:
        labels[place] = label
    return images, labels


REPLACED = {
    "black": other(3, picture=np.zeros((28, 28))),
    "white and another class": other(3, picture=np.full((28, 28), 255), label=0),
    "a copy": other(3, picture=pictures()[0][4]),
    "the last": other(COUNT - 1, label=0),
}
MAKE = ["specification", "make", "a.npz", "--classes", "2", "--out", "m.safetensors"]
HELD = ["--json", "whole.json", "--report", "r.html", "--ledger", "l.sqlite", "--secret", "s"]


@pytest.mark.parametrize("objective", ["labels", "scatter", "mean"])
@pytest.mark.parametrize("name", REPLACED)
@tells_nothing_beside("specification make", "specification")
def test_a_specification_tells_nothing_beside_its_noisy_mean(interference, name, objective):
    flags = [*MAKE, "--epsilon", "2", "--objective", objective, *HELD]
    pair = interference.commands(
        flags, {"a.npz": archive(*pictures())}, {"a.npz": archive(*REPLACED[name])}
    )
    pair.assert_equal(holder={"whole.json", "r.html", "l.sqlite"}, holder_terminal=True)


@tells_nothing_beside("specification make")
def test_several_steps_tell_nothing_beside_their_noisy_sums(interference):
    flags = [*MAKE, "--epsilon", "4", "--steps", "2", "--sampling-rate", ".5"]
    first, second = archive(*pictures()), archive(*REPLACED["black"])
    pair = interference.commands(flags, {"a.npz": first}, {"a.npz": second})
    pair.assert_equal(holder_terminal=True)


@tells_nothing_beside("specification make")
def test_a_dry_run_tells_nothing_of_the_records(interference):
    flags = [*MAKE, "--epsilon", "2", "--dry-run", "--json", "dry.json"]
    for records in REPLACED.values():
        pair = interference.commands(
            flags, {"a.npz": archive(*pictures())}, {"a.npz": archive(*records)}
        )
        pair.assert_equal(released=False)


@tells_nothing_beside("specification show", "specification compare")
def test_what_is_shown_of_a_specification_is_of_the_file(interference):
    flags = [
        [*MAKE, "--epsilon", "2"],
        ["specification", "show", "m.safetensors"],
        ["specification", "compare", "m.safetensors", "m.safetensors"],
    ]
    first, second = archive(*pictures()), archive(*REPLACED["black"])
    pair = interference.commands(flags, {"a.npz": first}, {"a.npz": second})
    pair.assert_equal(holder_terminal=True)


@contextmanager
def listening():
    """A server that keeps what it is sent, and answers as a dock does not."""
    sent = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self):
            length = int(self.headers["Content-Length"])
            sent.append((self.path, self.rfile.read(length)))
            self.send_response(422)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *_):
            pass

    server = HTTPServer(("127.0.0.1", 0), Handler)
    Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}", sent
    finally:
        server.shutdown()
        server.server_close()


@tells_nothing_beside("specification")
def test_what_a_client_sends_names_no_record(interference, tmp_path):
    """The release is given with its provenance, and no digest of the records leaves."""
    from tacit.releases import Provenance
    from tacit_dock import DockClient, DockError

    def sent(records):
        images, labels = records
        promise, about = ReplacedRecord(epsilon=2.0), Description(classes=2)
        release = specify(labels, images, promise, about=about)
        save_specification(release, tmp_path / "m.safetensors")
        whole = Provenance(
            command="tacit specification make",
            data_fingerprint=f"sha256:{images.sum()}",
            data_rows=COUNT,
        )
        content = replace(release, provenance=whole).to_dict()
        (tmp_path / "whole.json").write_text(json.dumps(content))
        (tmp_path / "card.md").write_text("---\ntitle: bars\n---\nBars.\n")
        with listening() as (url, told), DockClient(url, "tacit_" + "a" * 43, tries=1) as dock:
            with pytest.raises(DockError):
                dock.submit(
                    tmp_path / "m.safetensors", tmp_path / "card.md",
                    release=tmp_path / "whole.json", key="k",
                )  # fmt: skip
            ((path, body),) = told
        boundary = body.split(b"\r\n", 1)[0]
        return {"path": path, "parts": [part.hex() for part in body.split(boundary)]}

    interference.calls(sent, pictures(), REPLACED["white and another class"]).assert_equal()
