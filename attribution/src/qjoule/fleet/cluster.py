# SPDX-License-Identifier: Apache-2.0
"""Workers of Dask (distributed): a cluster that exists, or processes of our own.

Our own scheduler and workers listen on this host alone and speak TLS with a key that only they
have. Without that, any local user could have them run code with our rights.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from tempfile import TemporaryDirectory
from typing import Any

import qjoule
from qjoule.errors import QjouleError
from qjoule.freed_memory import keep_freed_memory

MISSING = "the engine dask is not installed: pip install 'qjoule[fleet]'"
#: How often a task is tried again after an error, and how many workers may die in it.
RETRIES, DEATHS = 2, 5
_CONNECT_S = 15
#: Of a cluster of our own. Pages in HTTP, which have no password, say only that a process lives. A
#: machine may be so busy that a process does not answer for minutes; if it ended, its connection is
#: closed at once.
_OWN = {
    "distributed.scheduler.allowed-failures": DEATHS,
    "distributed.scheduler.http.routes": ["distributed.http.health"],
    "distributed.worker.http.routes": ["distributed.http.health"],
    "distributed.comm.timeouts.connect": "120s",
    "distributed.comm.timeouts.tcp": "900s",
}


class _Task:
    """A task of Dask. `result` says in one line why it failed."""

    def __init__(self, future: Any) -> None:
        self.future = future

    def result(self) -> Any:
        from distributed import CancelledError, KilledWorker  # noqa: PLC0415 (optional)

        try:
            return self.future.result()
        except KilledWorker as error:
            raise QjouleError(
                f"{error.allowed_failures + 1} workers died in one task, the last was "
                f"{error.last_worker.address}: see its log; does it have enough memory?"
            ) from error
        except CancelledError as error:
            raise QjouleError("the Dask scheduler was lost: is it still running?") from error
        except OSError as error:
            raise QjouleError(f"a worker cannot read a trace: {error}") from error


class DaskWorkers:
    """Gives tasks to a cluster's workers: see `qjoule.fleet.attribution`."""

    def __init__(self, client: Any) -> None:
        self.client = client  #: distributed.Client

    @property
    def count(self) -> int:
        return max(len(self.client.nthreads()), 1)

    def submit(self, function: Callable[..., Any], *given: object, soon: bool = False) -> _Task:
        args = [one.future if isinstance(one, _Task) else one for one in given]
        future = self.client.submit(
            function, *args, pure=False, retries=RETRIES, priority=10 if soon else 0
        )
        return _Task(future)


@contextmanager
def dask_workers(scheduler: str | None, workers: int) -> Iterator[DaskWorkers]:
    """The workers of the cluster at `scheduler`; without an address, `workers` processes of our own
    until the end.

    Raises `QjouleError` without Dask, without that cluster, or if its workers have another qjoule.
    """
    try:
        import dask  # noqa: PLC0415 (optional, and slow to import)
        from distributed import Client, LocalCluster  # noqa: PLC0415
    except ImportError as error:
        raise QjouleError(MISSING) from error
    logging.getLogger("distributed").setLevel(logging.CRITICAL)
    if scheduler is None:
        with (
            # The scheduler leaves files of its own there, and a worker that dies all that it has.
            TemporaryDirectory(prefix="qjoule-workers-") as directory,
            dask.config.set(_OWN | {"temporary-directory": directory}),
            LocalCluster(  # type: ignore[no-untyped-call]
                n_workers=workers,
                threads_per_worker=1,
                host="127.0.0.1",
                dashboard_address="127.0.0.1:0",
                security=True,
                silence_logs=logging.CRITICAL,
            ) as cluster,
            Client(cluster) as client,  # type: ignore[no-untyped-call]
        ):
            client.run(keep_freed_memory)
            yield DaskWorkers(client)
        return
    try:
        client = Client(scheduler, timeout=_CONNECT_S)  # type: ignore[no-untyped-call]
    except (OSError, ValueError) as error:
        raise QjouleError(f"no Dask scheduler answers at {scheduler}") from error
    with client:
        _check(client, scheduler)
        yield DaskWorkers(client)


def version() -> str:
    """A task: which qjoule a worker has."""
    return qjoule.__version__


def _check(client: Any, scheduler: str) -> None:
    found = client.run(version, on_error="return")
    if not found:
        raise QjouleError(f"the Dask cluster at {scheduler} has no workers")
    for worker, other in found.items():
        if isinstance(other, Exception):
            raise QjouleError(f"the worker {worker} cannot run qjoule: install it there")
        if other != qjoule.__version__:
            raise QjouleError(
                f"the worker {worker} has qjoule {other}, and this is {qjoule.__version__}: "
                "install the same version"
            )
