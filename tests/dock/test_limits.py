"""Too slow, too many, too often: each is told when to come again."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import threading
import time
from dataclasses import replace

import httpx
import pytest

from tacit.compute import available_workers
from tacit.specifications import SpecificationSpace
from tacit_dock import DockSettings, DockStore, RefusedError, create_application
from tacit_dock.api.arriving import Arriving, network_of
from tacit_dock.api.rates import Rates
from tacit_dock.records import Filters
from tacit_dock.search import index as indexing
from tests.dock.learnwares import (
    OCTETS,
    SPACE,
    card,
    files,
    is_problem,
    keep,
    specification,
    weights,
)
from tests.dock.learnwares import dock as started


def asked(store, settings, ask):
    """Return what ``ask`` returns of a client whose bodies arrive as they are made."""

    async def run():
        transport = httpx.ASGITransport(create_application(store, settings))
        async with httpx.AsyncClient(transport=transport, base_url="http://dock") as client:
            return await ask(client)

    return asyncio.run(run())


def test_a_body_that_is_too_slow(store):
    async def slow():
        yield b"x"
        await asyncio.sleep(5)
        yield b"y"

    answer = asked(
        store,
        DockSettings(body_seconds=0.05),
        lambda client: client.post("/v1/search", content=slow(), headers=OCTETS),
    )
    is_problem(answer, 408)


def test_what_comes_beside_too_many_is_told_to_come_again(store, monkeypatch):
    working, finished = threading.Event(), threading.Event()

    def spaces():
        working.set()
        assert finished.wait(30)
        return []

    monkeypatch.setattr(store, "spaces", spaces)

    async def ask(client):
        slow = asyncio.create_task(client.get("/v1/spaces"))
        await asyncio.to_thread(working.wait, 30)
        beside = await client.get("/v1/health")
        finished.set()
        return beside, await slow, await client.get("/v1/health")

    beside, slow, after = asked(store, DockSettings(concurrency=1), ask)
    is_problem(beside, 503)
    assert beside.headers["retry-after"] == "1"
    assert (slow.status_code, after.status_code) == (200, 200)


def test_searches_are_worked_on_one_a_core_and_in_their_order(store):
    begun, under_way, most = [], [], []

    async def run():
        dock = create_application(store).state.dock

        def work(number):
            begun.append(number)
            under_way.append(number)
            most.append(len(under_way))
            time.sleep(0.01)
            under_way.remove(number)
            return number

        return await asyncio.gather(*(dock.compared(lambda n=n: work(n)) for n in range(12)))

    assert asyncio.run(run()) == list(range(12))
    assert max(most) <= available_workers()
    # of those that begin together either may be the first to say so
    assert all(abs(place - number) < available_workers() for place, number in enumerate(begun))


def test_a_body_on_its_way_keeps_nobody_waiting(store):
    async def ask(client):
        arrived, finished = asyncio.Event(), asyncio.Event()

        async def body():
            content = specification(1, "task").to_bytes()
            yield content[:10]
            arrived.set()
            await finished.wait()
            yield content[10:]

        slow = asyncio.create_task(client.post("/v1/search", content=body(), headers=OCTETS))
        await arrived.wait()
        beside = await client.get("/v1/health")
        finished.set()
        return beside, await slow

    beside, slow = asked(store, DockSettings(concurrency=1), ask)
    assert (beside.status_code, slow.status_code) == (200, 200)


@pytest.mark.parametrize("limits", [{"max_arriving_of_one": 2}, {"max_arriving": 2}])
def test_bodies_under_way_are_counted(store, limits):
    async def ask(client):
        finished = asyncio.Event()
        arrived = [asyncio.Event(), asyncio.Event()]

        async def body(sign):
            content = specification(1, "task").to_bytes()
            yield content[:10]
            sign.set()
            await finished.wait()
            yield content[10:]

        slow = [
            asyncio.create_task(client.post("/v1/search", content=body(sign), headers=OCTETS))
            for sign in arrived
        ]
        for sign in arrived:
            await sign.wait()
        content = specification(1, "task").to_bytes()
        third = await client.post("/v1/search", content=content, headers=OCTETS)
        reads = await client.get("/v1/health")
        finished.set()
        ended = await asyncio.gather(*slow)
        again = await client.post("/v1/search", content=content, headers=OCTETS)
        return third, [reads, *ended, again]

    third, others = asked(store, DockSettings(**limits), ask)
    is_problem(third, 503)
    assert third.headers["retry-after"] == "5"
    assert [one.status_code for one in others] == [200] * 4


def test_bytes_under_way_are_counted(store):
    content = specification(1, "task").to_bytes()

    async def ask(client):
        return [await client.post("/v1/search", content=content, headers=OCTETS) for _ in "abc"]

    for most, status in ((2 * len(content), 200), (2 * len(content) - 2, 503)):
        for answer in asked(store, DockSettings(max_arriving_bytes=most), ask):
            assert answer.status_code == status


def test_a_host_that_is_another(store):
    async def ask(client):
        hosts = ("dock", "DOCK:8765", "dock.example", "other", "dock.", "")
        return [await client.get("/v1/spaces", headers={"Host": host}) for host in hosts]

    async def watch(client):
        paths = ("/v1/health", "/v1/ready", "/v1/ready/")
        return [await client.get(path, headers={"Host": "127.0.0.1:8765"}) for path in paths]

    found = asked(store, DockSettings(hosts=("dock", "dock.example")), ask)
    # the health check of a container asks the machine, whatever the dock is called
    seen = asked(store, DockSettings(hosts=("dock",)), watch)
    assert {one.status_code for one in seen} <= {200, 503}
    assert [one.status_code for one in found] == [200, 200, 200, 421, 421, 421]
    is_problem(found[3], 421)
    assert {one.status_code for one in asked(store, DockSettings(), ask)} == {200}


def test_a_bucket_fills_again():
    moment = [0.0]
    rates = Rates(60, lambda: moment[0])
    for _ in range(60):
        rates.take("a")
    with pytest.raises(RefusedError) as caught:
        rates.take("a")
    assert caught.value.retry_after == 1
    rates.take("b")
    moment[0] = 1.0
    rates.take("a")
    with pytest.raises(RefusedError):
        rates.take("a")


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("max_model", 0),
        ("max_card", 1.5),
        ("body_seconds", 0),
        ("index", "best"),
        ("private", 1),
        ("hosts", "dock"),
        ("hosts", ("a b",)),
        ("proxies", ("",)),
        ("header_seconds", 0.0),
    ],
)
def test_settings_that_are_none(name, value):
    with pytest.raises(ValueError, match=name):
        DockSettings(**{name: value})


def test_contents_that_no_record_names_are_collected(tmp_path):
    with DockStore(tmp_path) as store:
        with store.blobs.upload("model", 100) as upload:
            upload.write(b"orphan")
            upload.keep()
            digest = upload.digest
        assert store.blobs.read(digest) == b"orphan"
        assert store.collect() == 1
        assert list(store.blobs.digests()) == []


def test_a_content_that_is_damaged_is_left_out_and_counted(tmp_path):
    with started(tmp_path) as found:
        for seed in (1, 2):
            found.submit(files(specification(seed)))
        broken = found.store.blobs.path(specification(1).revision)
        broken.write_bytes(broken.read_bytes()[:-1] + b"\x00")
    with started(tmp_path) as found:
        assert len(found.search(specification(1, "task")).json()["items"]) == 1
        assert found.client.get("/v1/health").json()["index"]["unreadable"] == 1


def test_uploads_of_a_server_that_is_gone_are_removed_at_once(tmp_path):
    program = (
        "import sys; from tacit_dock import DockStore; "
        "upload = DockStore(sys.argv[1]).blobs.upload('model', 10**6); upload.write(b'x' * 1000); "
        "print('there', flush=True); sys.stdin.readline()"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", program, str(tmp_path)],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert process.stdout.readline() == "there\n"
    (path,) = (tmp_path / "incoming").iterdir()
    os.utime(path, (time.time() - 60,) * 2)
    with DockStore(tmp_path) as store:
        # another server's, which is alive
        assert store.blobs.sweep() == 0
        process.kill()
        process.communicate()
        assert store.blobs.sweep() == 1
        assert list(store.blobs.incoming.iterdir()) == []


def test_a_list_reads_one_content_of_each_however_often_it_was_revised(tmp_path):
    with started(tmp_path, DockSettings(max_revisions=4)) as found:
        made = found.submit(files(specification(0)))
        place, headers = made.headers["location"], found.headers(**{"If-Match": "*"})
        for seed in range(1, 4):
            parts = {**files(specification(seed)), "card": card(f"Number {seed}")}
            assert found.client.put(place, files=parts, headers=headers).status_code == 200
        refused = found.client.put(place, files=files(specification(4)), headers=headers)
        is_problem(refused, 429, "4 revisions")
        assert len(found.client.get(place).json()["history"]) == 4
        (listed,) = found.store.learnwares().items
        assert (listed.title, len(listed.history)) == ("Number 3", 1)
        assert listed.summary() == found.store.learnware(listed.id).summary()
        assert listed.policy == found.store.learnware(listed.id).policy


def test_spaces_that_are_told_have_an_end(tmp_path, monkeypatch):
    monkeypatch.setattr("tacit_dock.reading.MOST_SPACES", 2)
    with started(tmp_path) as found:
        for seed, count in enumerate((1, 2, 2, 3)):
            space = replace(SPACE, factor=f"seed:{count}")
            assert found.submit(files(specification(seed, space=space))).status_code == 201
        told = found.client.get("/v1/spaces").json()["items"]
        assert [held["learnwares"] for held in told] == [2, 1]
        assert "4 models" in found.client.get("/").text
        names = tuple(f"layer {number} {'x' * 60}" for number in range(400))
        wide = replace(SPACE, layers=names, shapes=((1, 1),) * 400)
        is_problem(found.submit(files(specification(9, space=wide))), 422, "a space that is told")
        many = replace(specification(9), classes=tuple(map(str, range(20_000))))
        is_problem(found.submit(files(many)), 422, "classes that are told")


def test_few_numbers_are_compared_exactly(monkeypatch, store):
    monkeypatch.setattr(indexing, "MANY", 3)
    for seed in range(5):
        keep(store, files(specification(seed)), key=f"k{seed}")
    task = specification(1, "task")
    assert indexing.Index(store).search(task, 3, Filters()).exact
    monkeypatch.setattr(indexing, "MANY_NUMBERS", 5 * task.vector.size)
    assert not indexing.Index(store).search(task, 3, Filters()).exact


def test_heads_that_cost_too_much_are_refused(dock):
    many = {f"t{i}": ("U8", (0,), b"") for i in range(20_001)}
    is_problem(dock.submit(files(specification(1), model=weights(many))), 422, "20000 tensors")
    long = (2 << 20).to_bytes(8, "little") + b"{" + bytes(2 << 20)
    is_problem(dock.search(long), 422, "head of at most")
    layers = tuple(f"l{i}" for i in range(1001))
    space = SpecificationSpace(
        backbone="b", layers=layers, shapes=((1, 1),) * 1001, factor="seed:7", subspace="none",
        output="scatter",
    )  # fmt: skip
    is_problem(dock.search(specification(1, "task", space=space)), 422, "1000 layers")


def test_a_network_of_one_subscriber_is_one_address() -> None:
    arriving = Arriving(DockSettings(max_arriving_of_one=1))
    with arriving.body({"type": "http", "client": ("2001:db8::1", 1)}):
        with pytest.raises(RefusedError), arriving.body({"client": ("2001:db8::2", 1)}):
            pass
        with arriving.body({"client": ("2001:db8:0:1::1", 1)}):
            assert arriving.bodies == 2
    assert network_of("::ffff:192.0.2.7") == network_of("192.0.2.7")
