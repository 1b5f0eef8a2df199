"""A PostgreSQL server of its own, in a temporary folder, while the tests that need one run.

``python -m tests.postgres [PYTEST ARGUMENTS]``: one sentence and exit code 2 where there is none.
"""

from __future__ import annotations

import importlib.util
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NoReturn

DEBIAN = Path("/usr/lib/postgresql")
INSTALL = (
    *("apt-get", "install", "-y", "-qq", "--no-install-recommends"),
    *("postgresql", "default-jre-headless"),
)


def programs() -> Path | None:
    """Return the folder of initdb and pg_ctl: of the newest version, else on the path."""
    versions = [path for path in DEBIAN.glob("*/bin") if (path / "initdb").exists()]
    if versions:
        return max(versions, key=lambda path: float(path.parent.name))
    found = shutil.which("initdb")
    return None if found is None else Path(found).resolve().parent


def install() -> None:
    """Install Debian's package where that is possible."""
    if shutil.which("apt-get") is None or os.geteuid() != 0:
        return
    quiet = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    for command in (("apt-get", "update", "-qq"), INSTALL):
        subprocess.run(command, env=quiet, check=False, stdout=subprocess.DEVNULL)


@contextmanager
def server(binaries: Path) -> Iterator[str]:
    """Start a server on a free port of the loopback, and stop it whatever happens."""
    # PostgreSQL refuses to run as root
    user = "postgres" if os.geteuid() == 0 else None
    with tempfile.TemporaryDirectory(prefix="tacit-postgres-") as folder:
        if user is not None:
            shutil.chown(folder, user)
        data = Path(folder) / "data"
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = probe.getsockname()[1]
        options = f"-c listen_addresses=127.0.0.1 -c port={port} -c max_connections=200"
        options += f" -c unix_socket_directories={folder}"

        def call(program: str, *arguments: str) -> None:
            command = [str(binaries / program), "-D", str(data), *arguments]
            done = subprocess.run(
                command, user=user, cwd=folder, capture_output=True, text=True, check=False
            )
            if done.returncode:
                last = (done.stderr or done.stdout).strip().splitlines()[-1:]
                fail(f"{program} failed: {' '.join(last)}")

        call("initdb", "-U", "tacit", "-A", "trust", "-E", "UTF8", "--no-locale")
        call("pg_ctl", "start", "-w", "-l", str(data / "log"), "-o", options)
        try:
            yield f"postgresql://tacit@127.0.0.1:{port}/postgres"
        finally:
            call("pg_ctl", "stop", "-w", "-m", "fast")


def fail(sentence: str) -> NoReturn:
    """Say why the tests cannot run."""
    print(f"test-services: {sentence}", file=sys.stderr)
    raise SystemExit(2)


def main(arguments: list[str]) -> int:
    """Run the tests marked ``postgres`` or ``services``; one that is skipped fails the run."""
    if importlib.util.find_spec("psycopg") is None:
        fail("the driver psycopg is missing; pip install 'tacit-privacy[postgres]'")
    binaries = programs()
    if binaries is None or shutil.which("java") is None:
        # Spark runs on Java
        install()
        binaries = programs()
    if binaries is None:
        fail("no PostgreSQL here, and its Debian package could not be installed")
    # a terminated run stops the server too
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    with server(binaries) as url:
        environment = {**os.environ, "TACIT_TEST_POSTGRES": url, "TACIT_TEST_SERVICES": "1"}
        command = [sys.executable, "-m", "pytest", "-m", "postgres or services", *arguments]
        return subprocess.run(command, env=environment, check=False).returncode


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
