"""Points of Qdrant's client: read, and none takes more time or memory than its bytes."""

import pickle
import sqlite3
import struct

import numpy as np
import pytest

pytest.importorskip("torch")

from tacit.stores.audit.opened import StoredTables
from tacit.stores.audit.qdrant import read_qdrant

ONE = b"G" + struct.pack(">d", 1.0)
ROW = b"](" + 3 * ONE + b"e"


def text(word):
    held = word.encode()
    return b"X" + struct.pack("<I", len(held)) + held


def mapping(**held):
    return b"}(" + b"".join(text(name) + value for name, value in held.items()) + b"u"


def point(vector=b"N", payload=b"N"):
    """A point as it is pickled: a class, its state, and what it is made of."""
    state = mapping(__dict__=mapping(id=b"K\x01", vector=vector, payload=payload))
    return b"\x80\x04cqdrant_client\nPointStruct\n)\x81" + state + b"b."


def folder(path, *points):
    place = path / "collection" / "notes"
    place.mkdir(parents=True)
    (path / "meta.json").write_text("{}")
    with sqlite3.connect(place / "storage.sqlite") as connection:
        connection.execute("CREATE TABLE points (id TEXT, point BLOB)")
        connection.executemany("INSERT INTO points VALUES ('', ?)", [(one,) for one in points])
    connection.close()
    return path


def doubled(held, pair, times):
    """What holds two of what holds two of …: as much as there are ways through it."""
    for number in range(times):
        kept = bytes([number])
        held += b"q" + kept + pair.replace(b"?", b"h" + kept)
    return held


def alike(times):
    """Two keys that are equal: sets of two sets of two sets of …, none of them in both."""
    made, kept = b"", 0
    pairs = [(b"K\x01K\x02", b"K\x01K\x03")] * 2
    for _ in range(times):
        for side, (one, other) in enumerate(pairs):
            for held in (one, other):
                made += b"(" + held + b"\x91q" + bytes([kept]) + b"0"
                kept += 1
            first, second = b"h" + bytes([kept - 2]), b"h" + bytes([kept - 1])
            pairs[side] = (first + second, first + second + b"K\x01")
    return b"}" + made + b"(" + pairs[0][0][:2] + b"N" + pairs[1][0][:2] + b"Nu"


def of_one_place(number):
    """A whole number as a key, and what stands there: multiples of 2⁶¹ − 1 have one hash."""
    return b"\x8a\x0a" + (number * (2**61 - 1)).to_bytes(10, "little") + b"N"


def test_vectors_names_and_persons_are_read(tmp_path):
    named = mapping(a=ROW, b=b"](" + 2 * (b"K\x02") + b"K\x03e")
    points = [point(ROW, mapping(who=text("ann"))), point(named, mapping(who=text("bob")))]
    found = read_qdrant(folder(tmp_path, *points), "who")
    assert found.vectors.tolist() == [[1, 1, 1], [1, 1, 1], [2, 2, 3]]
    assert (found.most, found.clear) == (1, ("notes.id", "notes.who"))


@pytest.mark.parametrize(
    "content",
    [
        point(doubled(ROW, b"0](??e", 40)),
        point(b"]q\x01h\x01a"),
        point(b"]" * 30_000 + 29_999 * b"a", mapping(a=b"K\x01"))[:-1],
        point(b"](\x8b" + struct.pack("<i", 200) + 200 * b"\x7f" + b"e"),
        point(payload=b"K\x07"),
        # as many zeros, or places to remember, as a number says
        point(b"\x96" + struct.pack("<Q", 1 << 34)),
        "text",
    ],
)
def test_a_made_up_point_is_one_refusal(tmp_path, content):
    with pytest.raises(ValueError, match="holds a point that cannot be read"):
        read_qdrant(folder(tmp_path, content))


@pytest.mark.parametrize(
    "content",
    [
        # 34 GB of places to remember
        point(b"Nr\xff\xff\xff\x7f"),
        # a key that would be hashed 2⁶⁰ times
        point(payload=b"}" + doubled(b")", b"?\x86", 60) + b"Ns"),
        # keys that would be compared 2⁶⁰ times
        point(payload=alike(60)),
        # 2¹⁸ whole numbers of one place in a table
        point(payload=b"}(" + b"".join(map(of_one_place, range(1 << 18))) + b"u"),
        point(payload=b"(" + b"".join(map(of_one_place, range(1 << 8))) + b"d"),
        point(b"]" * 30_000 + 29_999 * b"a"),
        point(payload=b"}(K\x01NK\x02N" + text("a") + b"Nu"),
    ],
)
def test_a_strange_point_takes_no_more_than_its_bytes(tmp_path, content):
    found = read_qdrant(folder(tmp_path, content))
    assert found.vectors is None
    assert "notes.id" in found.clear


@pytest.mark.parametrize(
    "made",
    [
        "CREATE VIEW points AS WITH RECURSIVE n(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM n) "
        "SELECT zeroblob(1000000) AS point FROM n",
        "CREATE TABLE points (id, point AS (zeroblob(900000000))); INSERT INTO points VALUES (1)",
    ],
)
def test_what_a_database_computes_is_no_point(tmp_path, made):
    place = tmp_path / "collection" / "notes"
    place.mkdir(parents=True)
    with sqlite3.connect(place / "storage.sqlite") as connection:
        connection.executescript(made)
    connection.close()
    with pytest.raises(ValueError, match="is not a collection of Qdrant"):
        read_qdrant(tmp_path)


def test_columns_are_those_that_a_table_of_words_shows_and_cells_need_be_no_text(tmp_path):
    path = tmp_path / "words.sqlite"
    with sqlite3.connect(path) as connection:
        connection.execute("CREATE VIRTUAL TABLE words USING fts5(word)")
        connection.execute("INSERT INTO words VALUES ('ann')")
        connection.execute("CREATE TABLE other (cell TEXT)")
        connection.execute("INSERT INTO other VALUES (CAST(x'ff41' AS TEXT))")
    connection.close()
    there = StoredTables(path)
    assert there.read("words") == (["word"], [("ann",)])
    assert there.read("other") == (["cell"], [("\ufffdA",)])


@pytest.mark.parametrize(
    "made", ["SELECT 'computed' AS x, 1 AS rowid", "SELECT w AS x, rowid FROM t"]
)
def test_a_table_of_words_that_is_of_a_view_is_none_that_is_here(tmp_path, made):
    path = tmp_path / "words.sqlite"
    with sqlite3.connect(path) as connection:
        connection.executescript(
            f"CREATE TABLE t (w); INSERT INTO t VALUES ('a'); CREATE VIEW v AS {made};"
            "CREATE VIRTUAL TABLE words USING fts5 (x, content='v')"
        )
    connection.close()
    with pytest.raises(sqlite3.OperationalError):
        StoredTables(path).read("words")
    assert StoredTables(path).read("t") == (["w"], [("a",)])


def test_a_column_that_a_table_of_words_computes_is_no_longer_than_its_file(tmp_path):
    path = tmp_path / "words.sqlite"
    with sqlite3.connect(path) as connection:
        connection.executescript(
            "CREATE TABLE t (id INTEGER PRIMARY KEY, x AS (zeroblob(1 << 24)));"
            "INSERT INTO t (id) VALUES (1);"
            "CREATE VIRTUAL TABLE words USING fts5 (x, content='t', content_rowid='id')"
        )
    connection.close()
    with pytest.raises(sqlite3.DataError, match="too big"):
        StoredTables(path).read("words")


def test_a_page_that_is_named_often_is_read_as_often_as_a_file_may_be(tmp_path):
    path = tmp_path / "pages.sqlite"
    with sqlite3.connect(path) as connection:
        connection.execute("PRAGMA page_size = 512")
        connection.execute("CREATE TABLE points (id INTEGER PRIMARY KEY, point BLOB)")
        connection.executemany("INSERT INTO points (point) VALUES (?)", 3000 * [(b"x" * 100,)])
    connection.close()
    content = bytearray(path.read_bytes())

    def naming(page, child):
        """A page whose every cell names one child: pages are counted from 1."""
        count = struct.unpack_from(">H", page, 3)[0]
        for at in (8, *struct.unpack_from(f">{count}H", page, 12)):
            struct.pack_into(">I", page, at, child)
        return page

    # the root is page 2; six pages below it name the next one 59 times, and the last is of rows
    below = struct.unpack_from(">I", content, 512 + 8)[0]
    inner, levels = content[512 * (below - 1) : 512 * below], range(10, 16)
    content[512:1024] = naming(content[512:1024], levels[0])
    for number in levels:
        page = naming(bytearray(inner), number + 1)
        content[512 * (number - 1) : 512 * number] = page
    path.write_bytes(content)
    with pytest.raises(sqlite3.DatabaseError, match="more rows than its file holds"):
        StoredTables(path).read("points")


def test_nothing_of_a_point_is_run(tmp_path):
    class Evil:
        def __reduce__(self):
            return (open, (str(tmp_path / "made"), "w"))

    read_qdrant(folder(tmp_path / "q", pickle.dumps(Evil())))
    assert not (tmp_path / "made").exists()


def test_points_as_the_client_pickles_them(tmp_path):
    client = pytest.importorskip("qdrant_client")
    point = client.models.PointStruct(id=1, vector=[0.5, 2.0], payload={"who": "ann", "tags": [1]})
    found = read_qdrant(folder(tmp_path, pickle.dumps(point)), "who")
    assert np.array_equal(found.vectors, [[0.5, 2.0]])
    assert found.clear == ("notes.id", "notes.tags", "notes.who")
