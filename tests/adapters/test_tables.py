"""Tables of records as they come: damaged, ambiguous, in another encoding, very wide."""

import csv
import gzip

import pytest

from tacit.adapters.texts import class_names, read_table

GOOD = b"text,label\nw1 w2,red\nw3,blue\n"
ROWS = [("w1 w2", "red"), ("w3", "blue")]
CUT = gzip.compress(GOOD * 50, mtime=0)


def table(folder, name, content):
    (folder / name).write_bytes(content)
    return read_table(folder / name, ["text", "label"])


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("a.csv", GOOD),
        ("a.csv", b"\xef\xbb\xbf" + GOOD),
        ("a.csv", GOOD.replace(b"\n", b"\r\n")),
        ("a.csv", b'label,"text"\nred,"w1 w2"\n\nblue,w3\n'),
        ("a.csv.gz", gzip.compress(GOOD, mtime=0)),
        ("a.jsonl", b'{"text": "w1 w2", "label": "red"}\n\n{"label": "blue", "text": "w3"}\n'),
    ],
)
def test_every_kind_is_read(name, content, tmp_path):
    assert table(tmp_path, name, content) == ROWS


def test_a_field_may_be_as_long_as_its_file(tmp_path):
    before = csv.field_size_limit()
    wide = b"w1 " * 100_000
    assert len(table(tmp_path, "a.csv", b"text,label\n" + wide + b",red\n")[0][0]) == len(wide)
    assert csv.field_size_limit() == before


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.csv", b"", "expected rows"),
        ("a.csv", b"text,label\n", "expected rows"),
        ("a.csv", b"text\nw1\n", "expected a column 'label'"),
        ("a.csv", b"text,label\nw1,\n", "text and label in every row"),
        ("a.csv", b"text,label\nw1, w2,red\n", "got one with 3; a text with a comma is quoted"),
        ("a.csv", b"text,label\nw1\n", "got one with 1"),
        ("a.csv", b'text,label\n"w1,red\nw2,blue\n', "got one with 1"),
        ("a.csv", b"text,text,label\nw1,w2,red\n", "each column of a.csv once"),
        ("a.csv", GOOD.replace(b"red", b"r\xe9d"), "expected UTF-8"),
        ("a.csv", GOOD.decode().encode("utf-16"), "expected UTF-8"),
        ("a.csv.gz", GOOD, "no gzip file"),
        ("a.csv.gz", CUT[:-9], "no gzip file"),
        ("a.csv.gz", CUT[:12] + b"x" * 9 + CUT[21:], "no gzip file"),
        ("a.jsonl", b'{"text": "w1"', "line 1 of a.jsonl is no JSON"),
        ("a.jsonl", b'{"text": NaN, "label": "red"}\n', "expected text in every row of 'text'"),
        ("a.jsonl", b'{"text": "w1", "label": NaN}\n', "expected text in every row of 'label'"),
        ("a.jsonl", b'{"text": "w1", "label": true}\n', "expected text in every row of 'label'"),
        ("a.jsonl", b'{"text": ["w1"], "label": "red"}\n', "expected text in every row of 'text'"),
        ("a.jsonl", b'{"text": "\\ud800", "label": "red"}\n', "expected text in every row"),
        ("a.jsonl", b'{"text": "w1", "label": null}\n', "text and label in every row"),
        ("a.jsonl", b"[1, 2]\n", "expected a column 'text'"),
        ("a.jsonl", b"[" * 100_000, "cannot read a.jsonl"),
    ],
)
def test_what_cannot_be_read_is_one_sentence(name, content, message, tmp_path):
    with pytest.raises(ValueError, match=message) as told:
        table(tmp_path, name, content)
    assert "\n" not in str(told.value)
    assert "w1" not in str(told.value).replace(str(tmp_path), "")


NAMES = ("LABEL_0", "LABEL_1", "LABEL_2")


@pytest.mark.parametrize(
    ("named", "names"),
    [
        (["LABEL_2", "LABEL_0"], NAMES),
        (["2", "1"], ("0", "1", "2")),
        (["0"], ("0", "1", "2")),
        (["1", "3"], ("1", "2", "3")),
        (["green", "red", "b"], ("b", "red", "green")),
    ],
)
def test_names_of_classes(named, names):
    assert class_names(NAMES, named, 3) == names


@pytest.mark.parametrize("named", [["0", "3"], ["-1", "2"], ["4"], ["0", "7", "1"], list("abcd")])
def test_classes_that_the_model_does_not_have(named):
    with pytest.raises(ValueError, match="classes"):
        class_names(NAMES, named, 3)
