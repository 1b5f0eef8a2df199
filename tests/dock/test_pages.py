"""The pages say what is true, and obey nothing that a card says."""

from __future__ import annotations

import re

import pytest

from tacit_dock import AdmissionPolicy, DockSettings
from tacit_dock.examples import Example, keep_example
from tacit_dock.pages.reading import SHOWN
from tacit_dock.pages.rendering import markdown
from tacit_dock.promised import claim
from tests.accessible import faults
from tests.dock.learnwares import SPACE, card, dock, files, specification

LARGEST = 300_000
HTML = {"Accept": "text/html"}
HOSTILE = b"""---
title: '"><script>alert(1)</script>'
modality: image
tags: [mnist]
more: {a: "</code><img src=x onerror=alert(1)>"}
'<b onclick=x>': '<svg onload=alert(1)>'
---
# <script>alert(1)</script>

[a](javascript:alert(1)) [b](data:text/html,x) [c](vbscript:x) <javascript:alert(1)>

![p](https://elsewhere.example/p.png) <iframe src=//elsewhere.example></iframe> <style>*{}</style>
"""
ELEMENTS = re.compile(r"<(script|img|iframe|svg|style|object|form)\b[^>]*>", re.I)
OURS = {'<script src="/static/page.js" defer>'}


def submitted(dock, seed=1, **more):
    return dock.submit({**files(specification(seed)), **more}).json()["id"]


def text_of(dock, path, status=200):
    answer = dock.client.get(path, headers=HTML)
    assert answer.status_code == status, answer.text
    assert answer.headers["content-type"] == "text/html; charset=utf-8"
    policy = answer.headers["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy
    return answer.text


def test_a_hostile_card_is_text(dock):
    identifier = submitted(dock, card=HOSTILE)
    paths = ("/", f"/learnwares/{identifier}", f"/learnwares/{identifier}/withdraw")
    for path in paths:
        text = text_of(dock, path)
        found = {match[0] for match in ELEMENTS.finditer(text)}
        assert {one for one in found if not one.startswith("<form")} <= OURS, found
        assert not re.search(r"<[^>]*\son\w+=", text)
        assert not re.search(r"""(href|src)=["']?(javascript|data:text|vbscript)""", text, re.I)
        assert " style=" not in text


@pytest.mark.parametrize(
    "given",
    ["<b>x</b>", "[x](javascript:y)", "![x](//e/x)", "<!-- x -->", "[x]: javascript:y\n[x]"],
)
def test_markdown_makes_no_element_of_its_own(given):
    found = set(re.findall(r"<(\w+)", markdown(given)))
    assert found <= {"p", "a"}
    assert 'href="javascript' not in markdown(given)


def test_a_claim_is_never_told_smaller_than_it_is():
    for epsilon in (0.99995, 1.00001, 1.9321, 9.9999, 123456.7, 1e-7):
        told = claim({"type": "SuccessBound", "epsilon": epsilon, "delta": 1e-5, "advantage": 0.1})
        shown = float(re.match(r"ε ≤ (\S+) ", told)[1])
        assert epsilon <= shown <= epsilon * 1.0011


def test_every_page_is_read_aloud_and_walked_by_the_keyboard(dock):
    assert faults(text_of(dock, "/")) == []
    one = submitted(dock)
    for path in ("/", "/search", "/submit", f"/learnwares/{one}", f"/learnwares/{one}/withdraw"):
        assert faults(text_of(dock, path)) == [], path
    assert faults(text_of(dock, "/nowhere", 404)) == []


def test_pages_are_light_whatever_cards_hold(dock):
    tags = ", ".join(f"{tag:02}{98 * 'é'}" for tag in range(64))
    head = f'---\ntitle: t\nmodality: image\nmore: "{9_000 * "&"}"\ntags: [{tags}]\n---\n'
    listed = []
    for seed, part in enumerate((b"[a](b)", b"&")):
        one = submitted(dock, seed, card=head.encode() + part * (35_000 // len(part)))
        assert 100_000 < len(text_of(dock, f"/learnwares/{one}").encode()) <= LARGEST
        listed.append(len(text_of(dock, "/").encode()))
    # the first has the filters, and every further one its entry
    assert listed[0] + (SHOWN - 1) * (listed[1] - listed[0]) <= LARGEST
    for path in ("/search", "/submit"):
        assert len(text_of(dock, path).encode()) <= LARGEST


def test_browsing_and_filters(dock):
    assert "This dock is empty" in text_of(dock, "/")
    assert "tacit dock seed" in text_of(dock, "/")
    one = submitted(dock, 1, card=card("Digits", ("mnist",)))
    two = submitted(dock, 2, card=card("News", ("agnews",), "text"))
    assert one in text_of(dock, "/?tag=mnist")
    assert two not in text_of(dock, "/?tag=mnist")
    assert two in text_of(dock, "/?modality=text&tag=&guarantee=any&developer=me")
    assert "Nothing here has all of that" in text_of(dock, "/?guarantee=none")


def test_pages_follow_one_another(dock):
    made = {submitted(dock, seed) for seed in range(30)}
    first = text_of(dock, "/?modality=image")
    older = re.search(r'rel="next" href="([^"]+)"', first)[1].replace("&amp;", "&")
    assert "modality=image" in older
    seen = set(re.findall(r'/learnwares/(\w{32})"', first + text_of(dock, older)))
    assert seen == made


def test_an_example_task_is_searched_with_at_one_click(dock):
    one = submitted(dock, 1)
    near, far = specification(1, "task", noise=0.1), specification(7, "task")
    keep_example(dock.store, Example("near", "A <near> task", near.to_bytes()))
    keep_example(dock.store, Example("far", "A far task", far.to_bytes()))
    assert "A &lt;near&gt; task" in text_of(dock, "/search")
    found = text_of(dock, "/search?example=near")
    assert "is the most similar" in found
    assert one in found
    assert f"{near.cosine(specification(1)):.3f}" in found
    assert "claimed" in found
    assert "No good match." in text_of(dock, "/search?example=far")
    text_of(dock, "/search?example=../near", 404)
    with pytest.raises(ValueError, match="name"):
        keep_example(dock.store, Example("../x", "x", b""))


def test_a_task_is_searched_with_by_its_file(dock):
    one = submitted(dock, 1)
    parts = {"specification": specification(1, "task", noise=0.1).to_bytes()}
    found = dock.client.post("/search", files=parts, data={"tag": "mnist"}, headers=HTML)
    assert found.status_code == 200
    assert one in found.text
    other = dock.client.post("/search", files=parts, data={"tag": "other"}, headers=HTML)
    assert one not in other.text
    from dataclasses import replace

    elsewhere = specification(1, "task", space=replace(SPACE, backbone="sha256:1")).to_bytes()
    refusal = dock.client.post("/search", files={"specification": elsewhere}, headers=HTML)
    assert refusal.status_code == 409
    assert "backbone" in refusal.text
    broken = dock.client.post("/search", files={"specification": b"junk"}, headers=HTML)
    assert broken.status_code in (415, 422)
    assert 'role="alert"' in broken.text
    none = dock.client.post("/search", files={"specification": b""}, headers=HTML)
    assert none.status_code == 422


def test_submit_and_withdraw_by_forms(dock):
    key = re.search(r'name="key" value="(\w+)"', text_of(dock, "/submit"))[1]
    data = {"token": dock.tokens["me"], "key": key}
    parts = {**files(specification(1)), "model": b""}

    def send(path, data, parts):
        return dock.client.post(path, data=data, files=parts, headers=HTML, follow_redirects=False)

    assert send("/submit", {**data, "token": "tacit_forged"}, parts).status_code == 401
    first, again = send("/submit", data, parts), send("/submit", data, parts)
    assert (first.status_code, again.status_code) == (303, 303)
    place = first.headers["location"]
    assert again.headers["location"] == place
    there = send("/submit", {**data, "key": "another"}, parts)
    assert there.status_code == 409
    assert place in there.text
    for developer, status in (("other", 403), ("me", 303)):
        form = {"token": (None, dock.tokens[developer]), "reason": (None, "<b>old</b>")}
        answer = dock.client.post(
            f"{place}/withdraw", files=form, headers=HTML, follow_redirects=False
        )
        assert answer.status_code == status
        assert dock.tokens[developer] not in answer.text
    tombstone = text_of(dock, place, 410)
    assert "Withdrawn by me" in tombstone
    assert "&lt;b&gt;old&lt;/b&gt;" in tombstone
    assert specification(1).revision in tombstone
    assert "Digits" not in tombstone


def test_a_browser_is_told_which_methods_are_done(dock):
    for path in ("/", "/search", "/submit", f"/learnwares/{'0' * 32}/withdraw", "/v1/health"):
        answer = dock.client.options(path, headers={"Accept": "text/html"})
        assert (answer.status_code, answer.content) == (204, b"")
        assert "GET" in answer.headers["allow"]


def test_refusals_are_pages_for_browsers_and_problems_for_programs(dock):
    assert "nothing at this path" in text_of(dock, "/nowhere", 404).lower()
    assert "no such learnware" in text_of(dock, "/learnwares/" + "0" * 32, 404)
    plain = dock.client.get("/nowhere")
    assert plain.headers["content-type"] == "application/problem+json"
    machine = dock.client.get("/v1/nowhere", headers=HTML)
    assert machine.headers["content-type"] == "application/problem+json"
    large = {"specification": bytes(9 << 20)}
    assert dock.client.post("/search", files=large, headers=HTML).status_code == 413


def test_too_many_requests_are_told_when_to_come_again(tmp_path):
    with dock(tmp_path / "dock", DockSettings(requests_per_minute=1)) as found:
        text_of(found, "/")
        answer = found.client.get("/", headers=HTML)
        assert answer.status_code == 429
        assert int(answer.headers["retry-after"]) > 0
        assert "Come again in" in answer.text


def test_no_guarantee_and_quarantine_are_told(tmp_path):
    settings = DockSettings(policy=AdmissionPolicy(without="quarantine"))
    with dock(tmp_path / "dock", settings) as found:
        bare = found.submit(files(specification(1, guarantees=()))).json()["id"]
        text = text_of(found, f"/learnwares/{bare}")
        assert "In quarantine" in text
        assert "No guarantee is claimed" in text
        assert bare not in text_of(found, "/")
