"""Where batches are computed: processes of this machine, a Dask scheduler or a Ray cluster.

joblib's own backends are not enough away from this machine: Dask's waits forever for a batch that
has lost its workers, and Ray's returns nothing before everything is done.
"""

from __future__ import annotations

import os
import re
import socket
import warnings
from collections.abc import Iterator, Sequence
from concurrent.futures import CancelledError
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from typing import Any, Protocol

import cloudpickle

from tacit._ground.lazy import install_with
from tacit.compute.remote import Failure, Packed, Task, compute_packed, sendable

VARIABLE, SAFE_PATH = "TACIT_ENGINE", "PYTHONSAFEPATH"
LIBRARIES = ("dask", "ray")
EXPECTED = "'local', 'dask://HOST:PORT', 'ray://HOST:PORT', 'dask://local' or 'ray://local'"
ADDRESS = re.compile(r"(dask|ray)://(?:(local)|([\w.-]+|\[[0-9a-fA-F:]+\]):(\d{1,5}))/?")
SECONDS_TO_ANSWER = 10.0
# a batch that has lost this many workers is taken to be what kills them
LOSSES_ALLOWED = 3

Batches = Sequence[Sequence[Any]]


class EngineError(ValueError):
    """An engine that is not there, or that has lost a batch again and again."""


class DisconnectedError(Exception):
    """The connection to an engine broke; batches without a result have to be given out again."""


class Place(Protocol):
    """Somewhere batches are computed."""

    @property
    def workers(self) -> int:
        """How many batches are computed at a time."""

    def results(self, task: Task, batches: Batches) -> Iterator[list[Any]]:
        """Yield the results of every batch once, in order, whatever workers are lost.

        Raises:
            DisconnectedError: the engine itself went; what was yielded stays counted.
        """


@dataclass(frozen=True)
class Engine:
    """An address that was understood; ``package`` is None for this machine's own processes."""

    text: str = "local"
    package: str | None = None
    host: str | None = None
    port: int = 0

    @classmethod
    def parse(cls, engine: str | None) -> Engine:
        """Read the argument, else the environment.

        Raises:
            EngineError: it is no such address.
        """
        name = "engine" if engine is not None else VARIABLE
        text = engine if engine is not None else os.environ.get(VARIABLE) or "local"
        if text == "local":
            return cls()
        found = ADDRESS.fullmatch(text) if isinstance(text, str) else None
        if found is None or (found[4] is not None and not 0 < int(found[4]) < 65536):
            raise EngineError(f"{name}: expected {EXPECTED}, got {text!r}")
        return cls(text.rstrip("/"), found[1], found[3], int(found[4] or 0))

    @property
    def elsewhere(self) -> bool:
        """Whether it is a cluster, and not this machine's own processes."""
        return self.package is not None

    @contextmanager
    def connect(self, workers: int) -> Iterator[Place]:
        """Give the place where batches are computed, released afterwards.

        Raises:
            EngineError: nothing answers at the address, or the library is missing.
        """
        if self.package is None:
            yield _Processes(workers)
            return
        self._check_answer()
        opened = _dask if self.package == "dask" else _ray
        with ExitStack() as stack:
            try:
                place = stack.enter_context(opened(self, workers))
            except ModuleNotFoundError as error:
                raise EngineError(
                    f"engine: {self.text} needs {self.package}: {install_with('cluster')}"
                ) from error
            except (OSError, TimeoutError, RuntimeError) as error:
                raise EngineError(
                    f"engine: expected workers of {self.package} at {self.text}, "
                    f"got {type(error).__name__} on connecting"
                ) from error
            yield place

    def _check_answer(self) -> None:
        """Refuse at once an address where nothing listens; the libraries would wait for long."""
        if self.host is None:
            return
        try:
            socket.create_connection((self.host.strip("[]"), self.port), SECONDS_TO_ANSWER).close()
        except OSError as error:
            raise EngineError(
                f"engine: expected {self.package} at {self.text}, got no answer there "
                f"({error.strerror or error})"
            ) from error


@dataclass(frozen=True)
class _Processes:
    """Processes of this machine, started anew when one of them is killed."""

    workers: int

    def results(self, task: Task, batches: Batches) -> Iterator[list[Any]]:
        import joblib
        from joblib.externals.loky.process_executor import BrokenProcessPool

        done = losses = 0
        while done < len(batches):
            with (
                _grown_workers_replaced(),
                _started_from_what_is_installed(),
                joblib.parallel_config(backend="loky", inner_max_num_threads=1),
            ):
                run = joblib.Parallel(n_jobs=self.workers, return_as="generator")
                try:
                    for result in run(joblib.delayed(_apply)(task, b) for b in batches[done:]):
                        yield result
                        done, losses = done + 1, 0
                except BrokenProcessPool as error:
                    losses += 1
                    if losses > LOSSES_ALLOWED:
                        raise _lost("local") from error


@contextmanager
def _grown_workers_replaced() -> Iterator[None]:
    """Let loky replace a worker whose memory has grown by 300 MB, as by importing PyTorch.

    It warns in the thread that hands out the batches, which an error of the warning would end.
    """
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="A worker stopped while some jobs")
        yield


@contextmanager
def _started_from_what_is_installed() -> Iterator[None]:
    """Have workers start without the modules of the current folder, which may be anybody's files.

    Once they have started they look for modules where this process does.
    """
    before = os.environ.get(SAFE_PATH)
    os.environ[SAFE_PATH] = "1"
    try:
        yield
    finally:
        if before is None:
            os.environ.pop(SAFE_PATH, None)
        else:
            os.environ[SAFE_PATH] = before


def _apply(task: Task, batch: Sequence[Any]) -> list[Any]:
    try:
        return task(batch)
    except Exception as error:
        sent = sendable(error)
        if sent is error:
            raise
        raise sent from None


def _lost(text: str) -> EngineError:
    return EngineError(
        f"engine: {text} lost the workers of one batch {LOSSES_ALLOWED + 1} times; its items may "
        "need more memory than a worker has"
    )


def _gone(text: str, error: Exception) -> EngineError:
    """Say what happened to a batch; what its function raises comes back as a value instead."""
    return EngineError(f"engine: {text} did not return a batch ({type(error).__name__})")


@contextmanager
def _disconnection() -> Iterator[None]:
    try:
        yield
    except ConnectionError as error:
        raise DisconnectedError from error


def _opened(text: str, result: list[Any] | Failure) -> list[Any]:
    """Return the results of a batch, or raise what its function raised.

    A pickle runs code: it comes from the cluster that the user named, whose library has unpickled
    the results by then, so that the address has to be trusted (docs/reference/running.md).
    """
    if not isinstance(result, Failure):
        return result
    if result.sentence is not None:
        raise EngineError(f"engine: {text} {result.sentence}")
    raise cloudpickle.loads(result.error)


@dataclass(frozen=True)
class _Dask:
    engine: Engine
    client: Any
    workers: int

    def results(self, task: Task, batches: Batches) -> Iterator[list[Any]]:
        from distributed import KilledWorker

        # a task of its own, so that the scheduler can give it again to new workers
        packed = self.client.submit(_same, Packed.of(task), pure=False)
        futures = self.client.map(
            compute_packed, [packed] * len(batches), list(batches), pure=False
        )
        try:
            for future in futures:
                try:
                    result = future.result()
                except KilledWorker as error:
                    raise _lost(self.engine.text) from error
                except (CancelledError, OSError) as error:
                    raise DisconnectedError from error
                except Exception as error:
                    raise _gone(self.engine.text, error) from error
                yield _opened(self.engine.text, result)
                future.release()
        finally:
            self.client.cancel([packed, *futures])


def _same(value: Any) -> Any:
    return value


@contextmanager
def _dask(engine: Engine, workers: int) -> Iterator[Place]:
    import dask
    from distributed import Client, LocalCluster

    with ExitStack() as stack:
        settings = {
            "distributed.scheduler.allowed-failures": LOSSES_ALLOWED,
            "distributed.admin.large-graph-warning-threshold": "1TB",
        }
        stack.enter_context(dask.config.set(settings))
        if engine.host is None:
            address: Any = stack.enter_context(
                LocalCluster(n_workers=workers, threads_per_worker=1, dashboard_address=None)
            )
        else:
            address = f"tcp://{engine.host}:{engine.port}"
        client = stack.enter_context(
            Client(address, timeout=SECONDS_TO_ANSWER, set_as_default=False)
        )
        client.wait_for_workers(1, timeout=SECONDS_TO_ANSWER)
        yield _Dask(engine, client, sum(client.ncores().values()))


@dataclass(frozen=True)
class _Ray:
    engine: Engine
    ray: Any
    workers: int

    def results(self, task: Task, batches: Batches) -> Iterator[list[Any]]:
        remote = self.ray.remote(max_retries=LOSSES_ALLOWED, num_cpus=1)(compute_packed)
        references: list[Any] = []
        try:
            with _disconnection():
                packed = self.ray.put(Packed.of(task))
                references += [remote.remote(packed, batch) for batch in batches]
            while references:
                yield _opened(self.engine.text, self._result(references[0]))
                del references[0]
        finally:
            # an engine that went has nothing left to cancel
            with suppress(ConnectionError):
                for reference in references:
                    self.ray.cancel(reference, force=True)

    def _result(self, reference: Any) -> list[Any] | Failure:
        try:
            with _disconnection():
                result: list[Any] | Failure = self.ray.get(reference)
                return result
        except DisconnectedError:
            raise
        except self.ray.exceptions.WorkerCrashedError as error:
            raise _lost(self.engine.text) from error
        except Exception as error:
            raise _gone(self.engine.text, error) from error


@contextmanager
def _ray(engine: Engine, workers: int) -> Iterator[Place]:
    import ray

    # one that the caller has started or joined is used as it is
    if engine.host is None and ray.is_initialized():
        yield _Ray(engine, ray, int(ray.cluster_resources()["CPU"]))
        return
    quiet: dict[str, Any] = {"logging_level": "ERROR", "log_to_driver": False}
    if engine.host is None:
        ray.init(num_cpus=workers, include_dashboard=False, **quiet)
        try:
            yield _Ray(engine, ray, workers)
        finally:
            ray.shutdown()
        return
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Ray Client connection timed out")
        context = ray.init(f"ray://{engine.host}:{engine.port}", allow_multiple=True, **quiet)
    try:
        with context:
            yield _Ray(engine, ray, int(ray.cluster_resources()["CPU"]))
    finally:
        with suppress(ConnectionError):
            context.disconnect()
