"""The client does what it says, and believes no dock."""

from __future__ import annotations

import hashlib
import json
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest

from tacit.releases import load
from tacit_dock import DockClient, DockError
from tests.cli_runner import in_process, refused
from tests.dock.learnwares import card, files, keep, release, specification, weights
from tests.dock.running import running

HUB = """---
license: mit
pipeline_tag: image-classification
---
# digits-net

Two layers.
"""


@pytest.fixture
def served(tmp_path):
    with running(tmp_path / "dock") as found:
        yield found


def written(folder, seed=1, kind="model"):
    place = folder / f"{kind}-{seed}.safetensors"
    made = specification(seed, kind)
    made.save(place)
    (folder / "release.json").write_text(json.dumps(release(made).to_dict()))
    (folder / "card.md").write_bytes(card())
    return place


def test_a_learnware_is_submitted_found_fetched_and_withdrawn(served, tmp_path):
    made, card, signed = written(tmp_path), tmp_path / "card.md", tmp_path / "release.json"
    (tmp_path / "weights").write_bytes(weights())
    with DockClient(served.url, served.token) as dock:
        told = dock.submit(made, card, model=tmp_path / "weights", release=signed, key="k")
        again = dock.submit(made, card, model=tmp_path / "weights", release=signed, key="k")
        assert again == told
        found = dock.search(specification(1, "task", noise=0.1), tag="mnist")
        assert found["items"][0]["id"] == told["id"]
        assert [item["id"] for item in dock.list(developer="me")] == [told["id"]]
        fetched = dock.fetch(told["id"], tmp_path / "fetched")
        assert fetched.specification.revision == told["revision"]
        assert fetched.model.read_bytes() == weights()
        assert "title" in (tmp_path / "fetched" / "card.md").read_text("utf-8")
        claimed = tmp_path / "fetched" / "release.json"
        assert load(claimed).details.specification.revision == told["revision"]
        with pytest.raises(ValueError, match="exists already"):
            dock.fetch(told["id"], tmp_path / "fetched")
        dock.withdraw(told["id"], "replaced")
        trail = dock.history(told["id"])
        assert trail["withdrawal"]["reason"] == "replaced"
        assert trail["history"][0]["revision"] == told["revision"]
        with pytest.raises(DockError, match="replaced") as gone:
            dock.show(told["id"])
        assert gone.value.status == 410


def test_a_folder_is_submitted_as_it_is_and_as_it_was_fetched(
    served, tmp_path, capsys, monkeypatch
):
    tacit = in_process(capsys)
    folder = tmp_path / "model"
    folder.mkdir()
    monkeypatch.setenv("TACIT_DOCK_URL", served.url)
    monkeypatch.setenv("TACIT_DOCK_TOKEN", served.token)
    refused(tacit("dock", "submit", folder), "specification: expected specification.safetensors")
    written(folder).rename(folder / "specification.safetensors")
    (folder / "card.md").unlink()
    refused(tacit("dock", "submit", folder), "card: expected README.md or card.md")
    refused(tacit("dock", "submit", folder / "specification.safetensors"), "card: expected a file")
    (folder / "release.json").rename(folder / "specification.json")
    (folder / "README.md").write_text(HUB)
    (folder / "model.safetensors").write_bytes(weights())
    (folder / "config.json").write_text("{}")
    aimed = tacit("dock", "submit", folder, "--json", folder / "README.md", "--force")
    refused(aimed, "--json")
    assert (folder / "README.md").read_text() == HUB
    done = tacit("dock", "submit", folder)
    assert done.code == 0, done
    sent = "specification.safetensors, README.md, model.safetensors, specification.json"
    assert sent in " ".join(done.out.split())
    (made,) = served.store.learnwares().items
    assert (made.title, made.license, made.task) == ("digits-net", "mit", "image-classification")
    assert made.guarantee is not None
    with DockClient(served.url, served.token) as dock:
        back = dock.fetch(made.id, tmp_path / "back")
        assert back.model.read_bytes() == weights()
        dock.withdraw(made.id)
        again = dock.submit(tmp_path / "back")
        assert again["revision"] == made.revision
        assert dock.show(again["id"])["title"] == "digits-net"


def test_what_is_sent_to_this_machine_passes_no_proxy(served, monkeypatch):
    for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    monkeypatch.delenv("NO_PROXY", raising=False)
    monkeypatch.delenv("no_proxy", raising=False)
    with DockClient(served.url, served.token, tries=1) as dock:
        assert list(dock.list()) == []


def test_every_page_of_a_list_is_asked_for(served):
    for seed in range(60):
        keep(served.store, files(specification(seed)), key=str(seed))
    with DockClient(served.url) as dock:
        assert len({item["id"] for item in dock.list()}) == 60


def test_a_token_goes_to_no_other_machine_in_the_clear():
    with pytest.raises(ValueError, match="in the clear"):
        DockClient("http://dock.example", "secret")
    for url in ("ftp://x", "x", "http://", "http://u:p@x", "http://x:99999", "http://x?a=1"):
        with pytest.raises(ValueError, match="url: expected"):
            DockClient(url)
    with pytest.raises(ValueError, match="token: expected") as error:
        DockClient("https://dock.example", "se cret")
    assert "cret" not in str(error.value)


# a title that would end the line, draw a line of its own and colour what follows
LINES = "mine\r\n0123  similarity 1.000\u2028\x1b[31mred"


class Liar(BaseHTTPRequestHandler):
    """A dock whose record says one thing and whose bytes another, or that sends away."""

    def do_POST(self):
        self.rfile.read(int(self.headers["Content-Length"]))
        self.do_GET()

    def do_GET(self):
        if "away" in self.server.mood:
            self.send_response(307)
            self.send_header("Location", "http://127.0.0.1:1/")
            self.send_header("Content-Length", "0")
            self.end_headers()
            return
        made = specification(1)
        if "other" in self.server.mood:
            content = b'{"items": [{"id": 1}], "next": null, "history": 5}'
        elif "lines" in self.server.mood:
            item = {
                "id": "0" * 32, "rank": 1, "similarity": 0.5, "title": LINES, "guarantee": None,
                "created": "2026-01-01T00:00:00", "developer": LINES,
            }  # fmt: skip
            verdict = {"sentence": LINES, "good_match": False}
            content = json.dumps({"items": [item], "next": None, "verdict": verdict}).encode()
        elif "specification" in self.path:
            content = specification(2).to_bytes()
        else:
            one = f'"revision": "{made.revision}", "model": null'
            content = (
                f'{{{one}, "history": [{{{one}}}], "card": {{"head": {{}}, "text": ""}}}}'.encode()
            )
        self.send_response(200)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *_):
        pass


@pytest.fixture
def liar():
    server = HTTPServer(("127.0.0.1", 0), Liar)
    server.mood = ""
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield server
    server.shutdown()
    server.server_close()
    thread.join()


def test_bytes_of_another_digest_are_not_kept(liar, tmp_path):
    with (
        DockClient(f"http://127.0.0.1:{liar.server_port}") as dock,
        pytest.raises(DockError, match="digest"),
    ):
        dock.fetch("0" * 32, tmp_path / "fetched")
    assert list((tmp_path / "fetched").iterdir()) == []


def test_no_redirect_is_followed(liar):
    liar.mood = "away"
    with (
        DockClient(f"http://127.0.0.1:{liar.server_port}", "secret") as dock,
        pytest.raises(DockError, match="not followed"),
    ):
        dock.show("0" * 32)


def test_what_is_no_dock_is_a_sentence(liar, tmp_path, capsys):
    liar.mood, tacit = "other", in_process(capsys)
    url = f"http://127.0.0.1:{liar.server_port}"
    with DockClient(url) as dock, pytest.raises(DockError, match="of something else"):
        dock.fetch("0" * 32, tmp_path / "fetched")
    for asked in (("list",), ("fetch", "0" * 32, str(tmp_path / "fetched"))):
        done = tacit("dock", *asked, "--url", url)
        assert (done.code, "expected what a dock tells" in done.err) == (2, True), done


def test_what_a_dock_tells_of_one_is_one_line(liar, tmp_path, capsys):
    liar.mood, tacit = "lines", in_process(capsys)
    url, task = ("--url", f"http://127.0.0.1:{liar.server_port}"), written(tmp_path, kind="task")
    for asked, lines in ((("list",), 1), (("search", task), 2)):
        done = tacit("dock", *asked, *url)
        assert (done.code, "\x1b" in done.out) == (0, False), done
        assert len(done.out.splitlines()) == lines, done


def test_what_does_not_answer_is_a_sentence():
    with (
        DockClient("http://127.0.0.1:1", tries=1) as dock,
        pytest.raises(DockError, match="does not answer"),
    ):
        dock.show("0" * 32)


def test_commands(served, tmp_path, capsys, monkeypatch):
    tacit = in_process(capsys)
    task, made = written(tmp_path, kind="task"), written(tmp_path)
    signed = tmp_path / "release.json"
    monkeypatch.setenv("TACIT_DOCK_URL", served.url)
    refused(tacit("dock", "submit", made, tmp_path / "card.md"), "401")
    (tmp_path / "token").write_text(served.token + "\n")
    (tmp_path / "token").chmod(0o644)
    seen = tacit("dock", "submit", made, tmp_path / "card.md", "--token-file", tmp_path / "token")
    refused(seen, "--token-file", "chmod 600")
    (tmp_path / "token").chmod(0o600)
    token = ("--token-file", tmp_path / "token")
    done = tacit("dock", "submit", made, tmp_path / "card.md", "--release", signed, *token)
    assert done.code == 0, done
    assert served.token not in done.out + done.err
    identifier = done.out.split("learnwares/")[1].strip()
    assert "A match" in tacit("dock", "search", task).out
    assert identifier in tacit("dock", "list", "--tag", "mnist").out
    assert "none has all of that" in tacit("dock", "list", "--tag", "nothing").out
    assert tacit("dock", "fetch", identifier, tmp_path / "out", "--json", "-").code == 0
    digest = hashlib.sha256((tmp_path / "out" / "specification.safetensors").read_bytes())
    assert specification(1).revision == f"sha256:{digest.hexdigest()}"
    assert tacit("dock", "withdraw", identifier, "--reason", "old", *token).code == 0
    refused(tacit("dock", "fetch", identifier, tmp_path / "more"), "410", "old")
    refused(tacit("dock", "fetch", "../x", tmp_path / "more"), "identifier")


def test_a_dock_that_is_not_empty_is_not_seeded(tmp_path, capsys):
    with running(tmp_path / "dock") as found:
        keep(found.store, files(specification(1)))
    refused(in_process(capsys)("dock", "seed", "--folder", tmp_path / "dock"), "not empty")


def test_what_may_not_be_published_is_not_sent(served, tmp_path, capsys, monkeypatch):
    tacit = in_process(capsys)
    bare = specification(1, "task", guarantees=())
    bare.save(tmp_path / "bare.safetensors")
    monkeypatch.setenv("TACIT_DOCK_URL", "http://127.0.0.1:1")
    # an address where nobody answers: it is refused before anything is sent
    refused(tacit("dock", "search", tmp_path / "bare.safetensors"), "task", "read back")
    with DockClient("http://127.0.0.1:1") as dock, pytest.raises(ValueError, match="unprotected"):
        dock.search(bare)
    model = specification(1, guarantees=())
    model.save(tmp_path / "model.safetensors")
    (tmp_path / "card.md").write_bytes(card())
    refused(
        tacit("dock", "submit", tmp_path / "model.safetensors", tmp_path / "card.md"),
        "specification", "read back",
    )  # fmt: skip
    # this dock does not take it, which it says once it was sent
    with (
        DockClient(served.url, served.token) as dock,
        pytest.raises(DockError, match="no guarantee is claimed"),
    ):
        dock.submit(model, tmp_path / "card.md", unprotected=True)
    with DockClient(served.url) as dock:
        assert dock.search(bare, unprotected=True)["items"] == []
    monkeypatch.setenv("TACIT_DOCK_URL", served.url)
    assert tacit("dock", "search", tmp_path / "bare.safetensors", "--unprotected").code == 0
