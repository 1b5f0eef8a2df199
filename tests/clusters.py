"""A Dask scheduler and a Ray cluster of two workers each, on free ports of the loopback."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

ROOT = Path(__file__).parents[1]
SECONDS_TO_START = 60.0
# the fork handlers of gRPC now and then kill the server that Ray forks for each client
RAY = {"RAY_USAGE_STATS_ENABLED": "0", "GRPC_ENABLE_FORK_SUPPORT": "0"}


def free_ports(count: int) -> list[int]:
    """Return ports that nothing listens on, of which no two are the same: all are held at once."""
    with ExitStack() as stack:
        probes = [stack.enter_context(socket.socket()) for _ in range(count)]
        for probe in probes:
            probe.bind(("127.0.0.1", 0))
        return [int(probe.getsockname()[1]) for probe in probes]


@contextmanager
def running(*command: str, log: Path) -> Iterator[subprocess.Popen[bytes]]:
    """Run a command and what it starts in a session of their own; all of it ends afterwards."""
    paths = f"{ROOT / 'src'}{os.pathsep}{ROOT}"
    environment = {**os.environ, **RAY, "PYTHONPATH": paths, "OMP_NUM_THREADS": "1"}
    with log.open("ab") as output:
        process = subprocess.Popen(
            command, env=environment, stdout=output, stderr=output, start_new_session=True
        )
    try:
        yield process
    finally:
        process.terminate()
        try:
            process.wait(timeout=15)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        with_group_gone(process.pid)


def with_group_gone(group: int) -> None:
    try:
        os.killpg(group, signal.SIGKILL)
    except ProcessLookupError:
        return


def wait_for(port: int, process: subprocess.Popen[bytes], log: Path) -> None:
    end = time.monotonic() + SECONDS_TO_START
    while time.monotonic() < end and process.poll() is None:
        try:
            socket.create_connection(("127.0.0.1", port), 1.0).close()
            return
        except OSError:
            time.sleep(0.1)
    raise RuntimeError(f"no cluster on port {port}:\n{log.read_text()[-2000:]}")


@contextmanager
def dask_cluster() -> Iterator[str]:
    """Give the address of a scheduler with two workers."""
    (port,) = free_ports(1)
    dask = (sys.executable, "-m", "dask")
    with ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="tacit-dask-"))
        log = Path(folder) / "log"
        scheduler = ("--host", "127.0.0.1", "--port", str(port), "--no-dashboard")
        process = stack.enter_context(running(*dask, "scheduler", *scheduler, log=log))
        wait_for(port, process, log)
        workers = ("--nworkers", "2", "--nthreads", "1", "--no-dashboard")
        there = (f"tcp://127.0.0.1:{port}", "--local-directory", folder)
        stack.enter_context(running(*dask, "worker", *there, *workers, log=log))
        yield f"dask://127.0.0.1:{port}"


@contextmanager
def ray_cluster() -> Iterator[str]:
    """Give the address of a Ray client server in front of two workers."""
    port, head = free_ports(2)
    with ExitStack() as stack:
        folder = stack.enter_context(
            tempfile.TemporaryDirectory(prefix="tacit-ray-", ignore_cleanup_errors=True)
        )
        log = Path(folder) / "log"
        command = (sys.executable, "-m", "ray.scripts.scripts", "start", "--head", "--block")
        options = {
            "num-cpus": "2",
            "port": str(head),
            "ray-client-server-port": str(port),
            "include-dashboard": "false",
            "object-store-memory": "100000000",
            "temp-dir": folder,
        }
        given = [f"--{name}={value}" for name, value in options.items()]
        process = stack.enter_context(running(*command, *given, log=log))
        wait_for(port, process, log)
        yield f"ray://127.0.0.1:{port}"
