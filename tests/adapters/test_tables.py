"""Tables of records as they come: damaged, ambiguous, in another encoding, very wide."""

import csv
import gzip
from types import SimpleNamespace

import pytest

from tacit.adapters import Pretrained, read_records
from tacit.adapters.tables import read_table

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
    with pytest.raises(ValueError, match=r"line 3 of a\.csv"):
        table(tmp_path, "a.csv", b"text,label\n" + wide + b",red\nw1\n")
    assert csv.field_size_limit() == before


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.csv", b"", "expected rows"),
        ("a.csv", b"text,label\n", "expected rows"),
        ("a.csv", b"text\nw1\n", "expected a column 'label' among the 1 of a.csv"),
        ("a.csv", b"text,label\nw1,\n", "text and label in every row"),
        ("a.csv", b"text,label\nw1, w2,red\n", "columns, got 3; a text with a comma"),
        ("a.csv", b"text,label\nw1\n", "columns, got 1"),
        ("a.csv", b'text,label\nw1,red\n"w1,red\nw2,blue\n', "line 3 of a.csv: a quote opens"),
        ("a.csv", b'text,label\n"w1" w2,red\n', "line 2 of a.csv: a quote opens"),
        ("a.csv", b"text,text,label\nw1,w2,red\n", "once, got columns 1 and 2"),
        ("a.csv", b"w1 w2,red\nw3,blue\n", "expected a column 'text' among the 2 of a.csv"),
        ("a.csv", GOOD.replace(b"red", b"r\xe9d"), "expected UTF-8"),
        ("a.csv", GOOD.decode().encode("utf-16"), "expected UTF-8"),
        ("a.csv.gz", GOOD, "no gzip file"),
        ("a.csv.gz", CUT[:-9], "no gzip file"),
        ("a.csv.gz", CUT[:12] + b"x" * 9 + CUT[21:], "no gzip file"),
        ("a.jsonl", b'{"text": "w1"', "line 1 of a.jsonl is no JSON"),
        ("a.jsonl", b'{"text": NaN, "label": "red"}\n', "line 1 .*: expected text in 'text'"),
        ("a.jsonl", b'{"text": "w1", "label": NaN}\n', "line 1 .*: expected text in 'label'"),
        ("a.jsonl", b'{"text": "w1", "label": true}\n', "line 1 .*: expected text in 'label'"),
        ("a.jsonl", b'{"text": ["w1"], "label": "red"}\n', "line 1 .*: expected text in 'text'"),
        ("a.jsonl", b'{"text": "\\ud800", "label": "red"}\n', "expected text in 'text'"),
        ("a.jsonl", b'{"text": "w1", "label": null}\n', "text and label in every row"),
        ("a.jsonl", b"[1, 2]\n", "expected a column 'text'"),
        ("a.jsonl", b'{"w1": "w1", "label": "red"}\n', "line 1 .*: expected a column 'text'"),
        (
            "a.jsonl",
            b'{"text": "w2", "label": "red"}\n{"w1": "w1"}\n',
            "line 2 of a.jsonl: expected a column 'text'",
        ),
        ("a.jsonl", b"[" * 100_000, "line 1 of a.jsonl is no JSON"),
    ],
)
def test_what_cannot_be_read_is_one_sentence(name, content, message, tmp_path):
    with pytest.raises(ValueError, match=message) as told:
        table(tmp_path, name, content)
    assert "\n" not in str(told.value)
    assert "w1" not in str(told.value).replace(str(tmp_path), "")


class Words:
    """A tokenizer that knows every word's length."""

    def __call__(self, text, add_special_tokens):
        return {"input_ids": [len(word) for word in text.split()]}


def model(*names):
    configuration = SimpleNamespace(num_labels=len(names), id2label=dict(enumerate(names)))
    return Pretrained(SimpleNamespace(config=configuration), Words(), "classification", "own")


NAMES = ("LABEL_0", "LABEL_1", "LABEL_2")


def labels(folder, named, *, of=NAMES, classes=None):
    path = folder / "a.csv"
    path.write_text("text,label\n" + "".join(f"w1,{one}\n" for one in named), encoding="utf-8")
    rows, known = read_records(model(*of), str(path), length=4, classes=classes)
    return rows["labels"].tolist(), known


@pytest.mark.parametrize(
    ("named", "of", "classes", "found"),
    [
        (["LABEL_2", "LABEL_0"], NAMES, None, [2, 0]),
        (["2", "1", "LABEL_0"], NAMES, None, [2, 1, 0]),
        (["1", "2"], ("1", "2"), None, [0, 1]),
        (["green", "red"], NAMES, ["red", "green"], [1, 0]),
        (["1", "2", "3"], NAMES, ["1", "2", "3"], [0, 1, 2]),
    ],
)
def test_classes_are_those_of_the_model_or_declared(named, of, classes, found, tmp_path):
    assert labels(tmp_path, named, of=of, classes=classes) == (found, tuple(classes or of))


@pytest.mark.parametrize("other", ["0", "2", "LABEL_2"])
def test_one_record_more_moves_no_other_class(other, tmp_path):
    before, _ = labels(tmp_path, ["1", "2"] * 5)
    after, _ = labels(tmp_path, ["1", "2"] * 5 + [other])
    assert after[:-1] == before


@pytest.mark.parametrize("other", ["3", "x", "01", " 1", "+1", "-1", "label_1", "\u0661"])
def test_a_label_that_is_no_class_is_refused_by_itself(other, tmp_path):
    with pytest.raises(ValueError, match=r"expected one of the classes .* in record 11") as told:
        labels(tmp_path, ["1", "2"] * 5 + [other])
    assert repr(other) not in str(told.value)


@pytest.mark.parametrize(
    ("classes", "message"),
    [
        (["a", "b", "c", "d"], "classes: expected at most the 3 of the model"),
        (["a", "a"], "each once"),
        (["a", ""], "classes"),
        ("abc", "classes"),
        (["0"], "expected one of the classes"),
    ],
)
def test_declared_classes_that_do_not_fit(classes, message, tmp_path):
    with pytest.raises(ValueError, match=message):
        labels(tmp_path, ["1"], classes=classes)
