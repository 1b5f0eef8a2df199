"""Files of prompts: every form gives the same prompts, and no message shows one."""

import gzip
import json

import pytest

pytest.importorskip("torch")
pytest.importorskip("transformers")

from tacit.models import Prefixes, load, pad, read_prompts, shared_sequences
from tacit.models.padding import PADDING

TEXTS = ["what is it?", 'say "no", then\tgo', "a line\u2028of its own", "what is it?"]
CSV = 'id,prompt,text\n1,"what is it?",x\n2,"say ""no"", then\tgo",x\n3,a line\u2028of its own,x\n'
SECRET = "my password is swordfish"


def written(place, name, content):
    path = place / name
    raw = content.encode("utf-8") if isinstance(content, str) else content
    path.write_bytes(gzip.compress(raw, mtime=0) if name.endswith(".gz") else raw)
    return path


@pytest.mark.parametrize("ending", ["", ".gz"])
@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("p.txt", "\n".join(TEXTS) + "\n\n   \n"),
        ("p.txt", "\r\n".join(TEXTS)),
        ("p.jsonl", "\n".join(json.dumps({"id": 1, "prompt": t, "text": "x"}) for t in TEXTS)),
        ("p.ndjson", "\n\n".join(json.dumps(t, ensure_ascii=False) for t in TEXTS)),
        ("p.csv", "\ufeff" + CSV + "4,what is it?,x\n\n"),
        ("p.tsv", "prompt\n" + "\n".join('"' + t.replace('"', '""') + '"' for t in TEXTS)),
    ],
)
def test_every_form_gives_the_same_prompts(tmp_path, name, content, ending):
    found = read_prompts(written(tmp_path, name + ending, content))
    assert list(found.texts) == TEXTS
    assert len(set(found.places)) == 4
    assert repr(found) == "PromptTexts(<4 prompts>)"


def test_a_column_is_the_one_that_was_named(tmp_path):
    path = written(tmp_path, "p.csv", CSV)
    assert read_prompts(path, column="text").texts == ("x", "x", "x")
    assert read_prompts(path, column="id").places[2] == "line 4, column 'id'"
    lines = written(tmp_path, "p.jsonl", '{"text": "a", "prompt": "b"}\n{"text": "c"}\n')
    assert read_prompts(lines).texts == ("b", "c")
    wrapped = written(tmp_path, "w.csv", 'prompt\n"two\nlines"\nlast\n')
    assert read_prompts(wrapped).texts == ("two\nlines", "last")
    assert read_prompts(wrapped).places == ("line 2, column 'prompt'", "line 4, column 'prompt'")


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("p.doc", SECRET, r"expected a file that ends in \.txt, "),
        ("p", SECRET, "expected a file that ends in"),
        ("p.txt", "\n \n", "expected at least one prompt in .*, got none"),
        ("p.txt", b"fine\n\xff" + SECRET.encode(), "line 2: expected UTF-8"),
        ("p.jsonl", '{"prompt": "a"}\n{' + SECRET, "line 2: expected a line of JSON"),
        ("p.jsonl", json.dumps({"a": "x", "b": SECRET}), "line 1: .* 'prompt' or 'text' among 2"),
        ("p.jsonl", '{"prompt": 3}', "line 1, column 'prompt': expected a text, got int"),
        ("p.jsonl", '{"prompt": "a"}\n{"prompt": ""}', "line 2, column 'prompt': .* an empty"),
        ("p.jsonl", json.dumps([SECRET]), "line 1: expected a text, got list"),
        ("p.jsonl", "[" * 100_000, "line 1: expected a line of JSON"),
        ("p.jsonl", f'{{"prompt": "\\ud800 {SECRET}"}}', "line 1, .*: .* half of a surrogate pair"),
        ("p.csv", f"id,prompt\n1,a\n2,{SECRET},x\n", "line 3, .*: expected 2 cells, got 3"),
        ("p.csv", "id,prompt\n1,a\n2,\n", "line 3, column 'prompt': .* an empty text"),
        ("p.csv", f'id,prompt\n1,a\n2,"{SECRET}', "line 3: no CSV"),
        ("p.csv", f"prompt,prompt\na,{SECRET}\n", "one column 'prompt', got several"),
        ("p.csv", f"{SECRET}\n{SECRET}\n", "line 1: expected a column .* among 1, got none"),
        ("p.csv", "", "line 1: expected a column .* among 0, got none"),
        ("p.txt.gz", None, "cannot unpack .*: it is damaged or no gzip"),
    ],
)  # fmt: skip
def test_errors_say_where_and_show_nothing(tmp_path, name, content, message):
    path = written(tmp_path, name, "" if content is None else content)
    if content is None:
        path.write_bytes(b"no gzip " + SECRET.encode())
    with pytest.raises(ValueError, match="--prompts: .*" + message) as told:
        read_prompts(path, name="--prompts")
    assert SECRET not in str(told.value)
    assert "swordfish" not in str(told.value)


def test_a_missing_column_or_file_is_said(tmp_path):
    with pytest.raises(ValueError, match="line 1: expected a column 'q' among 3, got none"):
        read_prompts(written(tmp_path, "p.csv", CSV), column="q")
    with pytest.raises(ValueError, match="line 1: expected an object with 'q', got str"):
        read_prompts(written(tmp_path, "p.jsonl", '"a"'), column="q")
    with pytest.raises(ValueError, match="no such file"):
        read_prompts(tmp_path / "none.txt")
    (tmp_path / "d.txt").mkdir()
    with pytest.raises(ValueError, match=r"expected \.txt or \.txt\.gz files with lines"):
        read_prompts(tmp_path / "d.txt")


def test_parquet_is_read(tmp_path):
    import pyarrow
    from pyarrow import parquet

    path = tmp_path / "p.parquet"
    path.write_bytes(b"PAR1 no table PAR1")
    with pytest.raises(ValueError, match="expected a Parquet file that can be read"):
        read_prompts(path)
    parquet.write_table(pyarrow.table({"id": [1, 2, 3, 4], "prompt": TEXTS}), path)
    assert list(read_prompts(path).texts) == TEXTS
    parquet.write_table(pyarrow.table({"prompt": ["a", None]}), path)
    with pytest.raises(ValueError, match="row 2, column 'prompt': expected a text, got NoneType"):
        read_prompts(path)


def test_whole_prompts_are_divided_once_each():
    own = pad([[i, i + 1][: 1 + i % 2] for i in range(50)] + [[0], [1, 2]])
    public = pad([[i, i, i] for i in range(30)] + [[7, 8], [4]])
    sets = Prefixes.of_prompts(own, public, bank=100, calibration=100, held_out=100, rng=0)
    parts = [
        [tuple(t for t in row if t != PADDING) for row in part.tolist()]
        for part in (sets.bank, sets.calibration, sets.held_out)
    ]
    assert [len(part) for part in parts] == [39, 32, 9]
    assert len(set().union(*parts)) == 80
    # what is public is drawn as it was given, and not attacked
    assert {*parts[1]} == {*((i, i, i) for i in range(30)), (7, 8), (4,)}
    assert {*parts[0], *parts[2]} == {
        tuple(range(i, i + 1 + i % 2)) for i in range(50) if i not in (4, 7)
    }
    kept = Prefixes.of_prompts(own, public, bank=4, calibration=3, held_out=0, rng=0)
    assert kept.bank[:, -1].tolist() == [0, 2, 2, 4]
    assert kept.bank.shape[1] == 2
    assert (len(kept.calibration), len(kept.held_out)) == (3, 0)
    again = Prefixes.of_prompts(own, public, bank=100, calibration=100, held_out=100, rng=0)
    assert (again.bank == sets.bank).all()
    with pytest.raises(ValueError, match="at least 5 different ones"):
        Prefixes.of_prompts(own[:4], public, bank=1, calibration=1, held_out=1)
    with pytest.raises(ValueError, match="prompts: expected some that are not among the public"):
        Prefixes.of_prompts(own[:9], own, bank=1, calibration=1, held_out=1)


@pytest.mark.parametrize("divide", ["of_prompts", "released"])
def test_what_is_fitted_on_is_the_same_whatever_the_secret_prompts_are(divide):
    public = pad([[i, i, i] for i in range(30)] + [[7, 8], [4]])
    more = {"held_out": 3} if divide == "of_prompts" else {}
    draws = []
    for own in (
        [[i, 40] for i in range(20)],
        [[7, 8], *([i, 40] for i in range(19))],
        [[*range(40)], [2, 2, 2], *([i, 40] for i in range(9))],
        [[1, 40]] * 9 + [[i, 41] for i in range(9)],
    ):
        sets = getattr(Prefixes, divide)(pad(own), public, bank=99, calibration=9, rng=5, **more)
        draws.append(sets.calibration.tolist())
    assert all(draw == draws[0] for draw in draws)


def test_every_prompt_is_released_in_its_place():
    own = pad([[3, 4], [1], [3, 4], [5, 6, 7]])
    sets = Prefixes.released(own, own[:2], bank=9, calibration=9, rng=0)
    assert sets.bank.tolist() == own.tolist()
    assert len(Prefixes.released(own, own, bank=2, calibration=9).bank) == 2


@pytest.mark.parametrize(
    ("name", "content", "texts"),
    [
        ("p.txt", "a\n\n  \na\n", ["a", "", "  ", "a"]),
        ("p.txt", b"a\n\xff\xfe\nb", ["a", "\ufffd\ufffd", "b"]),
        ("p.txt", "\n", [""]),
        ("p.jsonl", '"a"\n\nnull\n{"prompt": 3}\n{"other": "x"}\n{oops\n"\\ud800"\n',
         ["a", "", "", "", "", "", "\ufffd"]),
        ("p.csv", "id,prompt\n1,a\n\n2\n3,\n4,b,c\n5,\"d\n", ["a", "", "", "", "b", "d\n"]),
    ],
)  # fmt: skip
def test_every_line_is_a_prompt_whatever_it_holds(tmp_path, name, content, texts):
    path = tmp_path / name
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    assert list(read_prompts(path, every=True).texts) == texts
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "a.txt").write_text("a\n\nb\n")
    assert read_prompts(tmp_path / "folder", every=True).texts == ("a", "", "b")


def test_a_prompt_without_a_token_is_the_one_that_texts_start_with():
    model = load("tacit/small")
    found = model.prompts(["", "a"], every=True)
    assert (found[0] != PADDING).sum() == 1
    with pytest.raises(ValueError, match="texts that are not empty"):
        model.prompts(["", "a"])


def test_shared_sequences_are_counted():
    bank = pad([[1, 2, 3, 4, 5], [6, 7], [8, 9, 10, 11]])
    public = pad([[0, 2, 3, 4, 0], [5, 6, 7], [9, 10]])
    # of 3 tokens: 123 234 345 | 67 | 8910 91011, of which 234 and 67 are public
    assert shared_sequences(bank, public, length=3) == (pytest.approx(2 / 6), pytest.approx(2 / 3))
    assert shared_sequences(bank, bank, length=4) == (1.0, 1.0)
    assert shared_sequences(bank, pad([[12]]), length=8) == (0.0, 0.0)


def test_an_empty_prompt_has_no_tokens_to_pad():
    with pytest.raises(ValueError, match="at least one token in each, got none in prompt 1"):
        pad([[1], []])
    with pytest.raises(ValueError, match="got no prompt"):
        pad([])
