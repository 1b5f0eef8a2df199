"""Random bytes: the standard's vectors, what keys them, and that nobody draws another's."""

import builtins
import os
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from tacit._ground import bits
from tacit._ground.bits import DIRECT, TOGETHER, fresh_key, key_stream, random_bytes

pytest.importorskip("cryptography")


@pytest.fixture
def without_cipher(monkeypatch):
    """A machine without the library, as an import finds it."""
    usual = builtins.__import__

    def absent(name, *args):
        if name.startswith("cryptography"):
            raise ImportError(name)
        return usual(name, *args)

    monkeypatch.setattr(builtins, "__import__", absent)
    bits.cipher.cache_clear()
    yield
    bits.cipher.cache_clear()


# RFC 8439, appendix A.1, vectors 1 to 4: the key, the block, its first words
@pytest.mark.parametrize(
    ("key", "block", "start"),
    [
        (bytes(32), 0, "76b8e0ada0f13d90405d6ae55386bd28bdd219b8a08ded1aa836efcc8b770dc7"),
        (bytes(32), 1, "9f07e7be5551387a98ba977c732d080dcb0f29a048e3656912c6533e32ee7aed"),
        (bytes(31) + b"\1", 1, "3aeb5224ecf849929b9d828db1ced4dd832025e8018b8160b82284f3c949aa5a"),
        (b"\0\xff".ljust(32, b"\0"), 2, "72d54dfbf12ec44b362692df94137f328fea8da73990265e"),
    ],
)
def test_the_stream_is_the_standards(key, block, start):
    assert key_stream(key, 64 * block + 64)[64 * block :].hex().startswith(start)


@pytest.mark.parametrize("count", [0, 1, DIRECT - 1, DIRECT, TOGETHER, TOGETHER + 1])
def test_as_many_bytes_as_asked_for(count):
    found = random_bytes(count)
    assert len(found) == count
    assert count < 64 or found != random_bytes(count)


def test_every_part_has_a_key_of_its_own(monkeypatch):
    asked = []
    usual = os.urandom
    monkeypatch.setattr(os, "urandom", lambda count: asked.append(usual(count)) or asked[-1])
    found = random_bytes(2 * TOGETHER)
    assert [len(one) for one in asked] == [32, 32]
    assert found == key_stream(asked[0], TOGETHER) + key_stream(asked[1], TOGETHER)


def test_a_source_that_is_stuck_is_refused(monkeypatch):
    monkeypatch.setattr(os, "urandom", bytes)
    with pytest.raises(RuntimeError, match="twice"):
        random_bytes(2 * TOGETHER)


def test_no_key_stays(monkeypatch):
    held = []
    usual = os.urandom
    monkeypatch.setattr(os, "urandom", lambda count: held.append(usual(count)) or held[-1])
    fresh_key()
    assert held[0] not in vars(bits).values()


def test_forks_and_threads_draw_apart():
    random_bytes(DIRECT)
    out, into = os.pipe()
    if os.fork() == 0:
        os.write(into, random_bytes(DIRECT)[:32])
        os._exit(0)
    own = random_bytes(DIRECT)[:32]
    child = os.read(out, 32)
    os.wait()
    with ThreadPoolExecutor(4) as pool:
        drawn = list(pool.map(lambda _: random_bytes(DIRECT)[:32], range(64)))
    assert len({own, child, *drawn}) == 66


def test_without_the_cipher_all_bytes_are_the_operating_systems(without_cipher, monkeypatch):
    monkeypatch.setattr(os, "urandom", bytes)
    assert bits.cipher() is None
    assert random_bytes(TOGETHER) == bytes(TOGETHER)


def test_bits_are_fair():
    ones = int(np.unpackbits(np.frombuffer(random_bytes(2**20), np.uint8)).sum())
    assert abs(ones - 2**22) < 6 * 2**11.5
