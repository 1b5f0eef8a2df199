"""Found by words, license, language, task and ε; cards of Hugging Face as they are."""

from __future__ import annotations

import sqlite3
from dataclasses import replace
from pathlib import Path

import pytest

from tacit.specifications import specification_from_bytes
from tacit_dock import AdmissionPolicy, DockClient, DockSettings, DockStore, Filters
from tacit_dock.cards import read_card
from tests.dock.learnwares import SPACE, card, dock, files, is_problem, keep, specification
from tests.dock.running import running

# Of the shape of cards on the hub: no title, a model index, tags with colons and slashes.
HUB = b"""---
language:
- en
- "no"
license: apache-2.0
library_name: transformers
tags:
- image-classification
- vision
- dataset:mnist
- arxiv:1910.01108
pipeline_tag: image-classification
datasets:
- mnist
metrics:
- accuracy
base_model: google/vit-base-patch16-224
widget:
- src: https://example.org/tiger.jpg
  example_title: Tiger
model-index:
- name: vit-mnist
  results:
  - task:
      type: image-classification
      name: Image Classification
    dataset:
      name: mnist
      type: mnist
    metrics:
    - type: accuracy
      value: 0.98
---

# A small vision transformer

Reads Zwiebelschwamm and caf\xc3\xa9 digits.
"""


def titles(dock, **asked):
    answer = dock.client.get("/v1/learnwares", params=asked)
    assert answer.status_code == 200, answer.text
    return [item["title"] for item in answer.json()["items"]]


def test_a_card_of_the_hub_is_taken_as_it_is():
    found = read_card(HUB)
    assert (found.title, found.modality) == ("vit-mnist", "image")
    assert found.tags == ("image-classification", "vision", "dataset:mnist", "arxiv:1910.01108")
    assert set(found.marks) == {
        "license=apache-2.0", "language=en", "language=no", "task=image-classification"
    }  # fmt: skip
    plain = read_card(b"---\nlicense: mit\nlanguage: no\n---\n## Not this\n# The heading #\ntext\n")
    assert (plain.title, plain.marks) == ("The heading", ("license=mit", "language=no"))
    head = b"---\ntitle: Own\npipeline_tag: text-generation\nmodality: image\n---\n"
    own = read_card(head + b"# Other\n")
    assert (own.title, own.modality) == ("Own", "image")


@pytest.mark.parametrize(
    "head",
    ["license: [a, ../x]", "language: {a: b}", "pipeline_tag: 3", "model-index: [{name: [x]}]",
     "license: 'a=b'", "language: [" + ", ".join(f"l{i}" for i in range(65)) + "]"],
)  # fmt: skip
def test_heads_that_are_none(dock, head):
    content = f"---\n{head}\n---\ntext\n".encode()
    is_problem(dock.submit({**files(specification(1)), "card": content}), 422, "card")


def test_signs_that_turn_text_around_are_refused(dock):
    for sign in "\u202e\u202a\u2066\u2069\u2028":
        content = f'---\ntitle: "Digits {sign}gpj.exe"\n---\n'.encode()
        is_problem(dock.submit({**files(specification(1)), "card": content}), 422, "card")


def test_lists_and_searches_are_narrowed(dock):
    dock.submit({**files(specification(1)), "card": HUB})
    dock.submit(files(specification(2), card=card("Gulls", tags=("birds", "vision"))))
    every = ["Gulls", "vit-mnist"]
    for asked, expected in (
        ({"license": "apache-2.0"}, every[1:]), ({"license": "Apache-2.0"}, every[1:]),
        ({"license": "mit"}, []), ({"language": "no"}, every[1:]), ({"language": "n"}, []),
        ({"task": "image-classification"}, every[1:]), ({"tag": "vision"}, every),
        ({"tag": "license=apache-2.0", "modality": "image"}, every[1:]),
        ({"words": "zwiebel"}, every[1:]), ({"words": "CAFE digits"}, every[1:]),
        ({"words": "digits"}, every), ({"words": "gull"}, every[:1]),
        ({"words": "gulls zwiebelschwamm"}, []), ({"words": "schwamm"}, []),
        ({"words": "% _ ' \" *"}, every), ({"words": "tells", "tag": "birds"}, every[:1]),
        ({"words": ""}, every), ({"max_epsilon": "1000"}, every), ({"max_epsilon": "0.001"}, []),
    ):  # fmt: skip
        assert titles(dock, **asked) == expected, asked
        found = dock.search(specification(1, "task"), **asked).json()
        assert sorted(item["title"] for item in found["items"]) == sorted(expected), asked
        assert found["compared"] == len(expected)
        page = dock.client.get("/", params=asked, headers={"Accept": "text/html"})
        assert page.status_code == 200
        assert [title in page.text for title in every] == [title in expected for title in every]
    for bad in ("x", "-1", "nan"):
        is_problem(dock.client.get("/v1/learnwares", params={"max_epsilon": bad}), 422)
    item = dock.client.get("/v1/learnwares", params={"license": "apache-2.0"}).json()["items"][0]
    assert item["languages"] == ["en", "no"]
    assert (item["license"], item["task"]) == ("apache-2.0", "image-classification")
    assert not any("=" in tag for tag in item["tags"])
    facets = dock.store.facets()
    assert facets["license"] == [("apache-2.0", 1)]
    assert facets["language"] == [("en", 1), ("no", 1)]
    assert not any("=" in value for value, _ in facets["tag"])


def test_epsilon_is_that_of_all_revisions(tmp_path):
    settings = DockSettings(policy=AdmissionPolicy(without="accept"))
    with dock(tmp_path, settings) as found:
        place = found.submit(files(specification(1))).headers["location"]
        found.submit(files(specification(9, guarantees=()), card=card("Bare")))
        first = found.client.get(place).json()["guarantee"]["epsilon"]
        assert titles(found, max_epsilon=first) == ["Digits"]
        assert titles(found, max_epsilon=first * 0.999) == []
        headers = found.headers(**{"If-Match": "*"})
        found.client.put(place, files=files(specification(2)), headers=headers)
        both = found.client.get(place).json()["guarantee"]["together"]["epsilon"]
        assert both > first
        assert titles(found, max_epsilon=first) == []
        assert titles(found, max_epsilon=both) == ["Digits"]


def test_what_a_card_said_before_finds_nothing(tmp_path):
    with dock(tmp_path) as found:
        parts = files(specification(1), card=card("Xylophones", tags=("brass",)))
        place = found.submit(parts).headers["location"]
        headers = found.headers(**{"If-Match": "*"})
        parts = files(specification(2), card=card("Oboes", tags=("reed",)))
        found.client.put(place, files=parts, headers=headers)
        assert [titles(found, words=w) for w in ("xylo", "brass", "oboe")] == [[], [], ["Oboes"]]
        found.client.delete(place, headers=found.headers())
        assert titles(found, words="oboe") == []
    # and stands in no file of the dock any more
    for path in Path(tmp_path).rglob("*"):
        if path.is_file():
            content = path.read_bytes().lower()
            assert b"xylophones" not in content, path
            assert b"oboes" not in content, path


@pytest.mark.parametrize("schema", ["2", "3"])
def test_a_database_of_the_schema_before_is_filled_in(tmp_path, schema):
    with DockStore(tmp_path) as store:
        keep(store, {**files(specification(1)), "card": HUB})
    with sqlite3.connect(tmp_path / "dock.sqlite") as raw:
        raw.execute("DROP TABLE dock_words")
        if schema == "2":
            raw.execute("DELETE FROM dock_tags WHERE tag LIKE '%=%'")
            raw.execute("ALTER TABLE dock_revisions DROP COLUMN epsilon")
        else:
            columns = "word TEXT, learnware INTEGER, PRIMARY KEY (word, learnware)"
            raw.execute(f"CREATE TABLE dock_words ({columns})")
            raw.execute("INSERT INTO dock_words VALUES ('zwiebel', 1)")
        raw.execute(f"UPDATE dock_meta SET value = '{schema}' WHERE key = 'schema'")
    raw.close()
    with DockStore(tmp_path) as store:
        for filters in (Filters(words="zwiebel"), Filters(license="apache-2.0"),
                        Filters(max_epsilon=100.0)):  # fmt: skip
            assert [one.title for one in store.learnwares(filters).items] == ["vit-mnist"], filters


def test_the_client_narrows_as_the_dock_does(tmp_path):
    with running(tmp_path) as served:
        keep(served.store, {**files(specification(1)), "card": HUB})
        keep(served.store, files(specification(2), card=card("Gulls")), key="b")
        with DockClient(served.url) as asks:
            narrow = {"for_task": "image-classification", "words": "zwiebel", "max_epsilon": 50.0}
            assert [one["title"] for one in asks.list(**narrow)] == ["vit-mnist"]
            found = asks.search(specification(1, "task"), license="apache-2.0")
            assert [one["title"] for one in found["items"]] == ["vit-mnist"]
            with pytest.raises(ValueError, match="colour"):
                list(asks.list(colour="red"))


def named(seed, kind, classes, output="labels", direction=None):
    space = replace(SPACE, output=output)
    made = specification(seed if direction is None else direction, kind, space=space)
    return replace(made, classes=classes)


def test_classes_are_told_and_names_that_differ_are_said(dock):
    digits = tuple(str(number) for number in range(10))
    dock.submit(files(named(1, "model", digits), card=card("Digits")))
    dock.submit(files(named(2, "model", ("cat", "dog")), card=card("Pets")))
    dock.submit(files(named(3, "model", ()), card=card("Untold")))
    found = dock.search(named(1, "task", ("3", "8"))).json()
    best = found["items"][0]
    assert (best["title"], best["shared"], best["classes"]) == ("Digits", ["3", "8"], [*digits])
    assert (found["classes"], found["notes"]) == (["3", "8"], [])
    assert {item["title"]: item["shared"] for item in found["items"]} == {
        "Digits": ["3", "8"], "Pets": [], "Untold": None
    }  # fmt: skip
    some = dock.search(named(1, "task", ("3", "eight"))).json()
    assert some["notes"] == ["The most similar model has no class of these names: eight."]
    (note,) = dock.search(named(1, "task", ("three", "eight"))).json()["notes"]
    assert "such as 0, 1, 2, 3, 4" in note
    assert dock.search(named(1, "task", ())).json()["notes"] == []
    body = {"specification": ("t", named(1, "task", ("three", "eight")).to_bytes())}
    assert "such as 0, 1, 2, 3, 4" in dock.client.post("/search", files=body).text
    body = {"specification": ("t", named(1, "task", ("3", "x")).to_bytes())}
    assert "1 of your 2 classes as you do: 3" in dock.client.post("/search", files=body).text


def test_names_do_not_matter_where_classes_are_pulled_apart(dock):
    dock.submit(files(named(1, "model", ("a", "b"), output="scatter")))
    found = dock.search(named(1, "task", ("x", "y"), output="scatter")).json()
    assert (found["items"][0]["shared"], found["notes"]) == (None, [])


def test_pictures_of_another_size_are_said(dock):
    sized = {size: replace(specification(1, "task"), inputs=size) for size in ("8 × 8", "28 × 28")}
    dock.submit(files(replace(specification(1), inputs="28 × 28")))
    dock.submit(files(specification(2)))
    found = dock.search(sized["8 × 8"]).json()
    assert [item["inputs"] for item in found["items"]] == ["28 × 28", ""]
    (note,) = found["notes"]
    assert "8 × 8; the most similar model was described with pictures of 28 × 28" in note
    assert dock.search(sized["28 × 28"]).json()["notes"] == []
    assert dock.search(specification(1, "task")).json()["notes"] == []
    body = {"specification": ("t", sized["8 × 8"].to_bytes())}
    assert note in dock.client.post("/search", files=body).text


def test_a_file_without_names_is_read_as_before():
    held = specification(1)
    assert not {"classes", "inputs"} & set(held.manifest())
    with pytest.raises(ValueError, match="inputs: expected at most 100"):
        replace(held, inputs="x" * 101)
    assert specification_from_bytes(replace(held, inputs="8 × 8").to_bytes()).inputs == "8 × 8"
    with pytest.raises(ValueError, match="classes: expected every name once"):
        replace(held, classes=("a", "a"))
    again = specification_from_bytes(replace(held, classes=("b", "a")).to_bytes())
    assert again.classes == ("b", "a")


def test_a_long_heading_is_read_at_once() -> None:
    # an expression that can divide the blanks in several ways would take days
    found = read_card(b"---\ntags: []\n---\n# a" + b" " * 60_000 + b"b\n")
    assert found.title == "a"
