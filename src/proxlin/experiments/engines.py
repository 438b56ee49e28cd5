"""Where the cases of a sweep run: processes on this machine, or a Dask cluster.

    outcomes(cases)  yields (case, outcome) once for each, as they finish, in any order

A worker that dies is replaced and its case run again; a case that kills three workers is named.
"""

import importlib
import os
import platform
import signal
import sys
import time
import traceback
from collections import Counter, deque
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing import get_context
from multiprocessing.connection import Connection, wait
from typing import Any, Protocol, runtime_checkable

from .. import __version__
from ..errors import UserError, require
from .base import Case
from .store import content_key

ATTEMPTS = 3  # a worker that dies (out of memory, killed) has its case run again, but not for ever
# One thread a worker: NPROC is the size of XLA's pool, whose threads hand small kernels to each other; the flag keeps
# matrix products on the thread that runs the program.
ONE_THREAD = {"NPROC": "1", "OMP_NUM_THREADS": "1", "XLA_FLAGS": "--xla_cpu_multi_thread_eigen=false"}


@dataclass(frozen=True)
class Outcome:
    """What came back from a worker: the result, or the error; and where and how long."""

    result: dict | None
    error: str | None
    wrong_use: bool
    run: dict


@runtime_checkable
class Engine(Protocol):
    """Where cases run. `outcomes` yields each case once, as it finishes, in any order."""

    def outcomes(self, cases: Sequence[Case]) -> Iterator[tuple[Case, Outcome]]: ...

    def close(self) -> None: ...


def case_key(case: Case) -> str:
    return content_key(task=case.task, settings=dict(case.settings), version=__version__)


def prepare() -> None:
    """Make this process a worker: one XLA thread, which has to be said before JAX is imported, and 64-bit numbers."""
    given, flag = os.environ.get("XLA_FLAGS", ""), ONE_THREAD["XLA_FLAGS"]
    os.environ.update(ONE_THREAD | {"XLA_FLAGS": given if flag in given else f"{given} {flag}".strip()})
    use_64_bits()


def use_64_bits() -> None:
    """Let JAX have 64-bit numbers, whether it is imported already or not; importing it takes a second."""
    os.environ["JAX_ENABLE_X64"] = "1"
    if "jax" in sys.modules:
        sys.modules["jax"].config.update("jax_enable_x64", True)


def execute(task: str, settings: dict) -> Outcome:
    """Run one case here; an error becomes an outcome."""
    start = time.perf_counter()
    result, error, wrong = None, None, False
    try:
        module, name = task.split(":")
        result = getattr(importlib.import_module(module), name)(settings)
    except UserError as raised:
        error, wrong = str(raised), True
    except Exception:
        error = traceback.format_exc()
    return Outcome(result, error, wrong, {"seconds": time.perf_counter() - start, "host": platform.node()})


@dataclass
class _Worker:
    process: Any
    pipe: Connection
    case: Case | None
    groups: set[str]


class Local:
    """Spawned processes on this machine (never forked: JAX has threads)."""

    def __init__(self, workers: int):
        self.count, self.workers = workers, []

    def outcomes(self, cases: Sequence[Case]) -> Iterator[tuple[Case, Outcome]]:
        waiting, deaths = deque(cases), Counter()
        while waiting or any(worker.case is not None for worker in self.workers):
            self._hand_out(waiting)
            for worker in self._heard_from():
                case, worker.case = worker.case, None
                assert case is not None
                try:
                    outcome = worker.pipe.recv()
                except (EOFError, OSError):
                    self._bury(worker)
                    deaths[id(case)] += 1
                    if deaths[id(case)] >= ATTEMPTS:
                        raise UserError(
                            f"a worker died {ATTEMPTS} times on the case {dict(case.settings)}; it may lack memory."
                        ) from None
                    waiting.appendleft(case)
                else:
                    yield case, outcome

    def close(self) -> None:
        for worker in list(self.workers):
            self._bury(worker)

    def _hand_out(self, waiting: deque[Case]) -> None:
        while len(self.workers) < min(self.count, len(waiting) + sum(w.case is not None for w in self.workers)):
            self.workers.append(_start())
        for worker in [worker for worker in self.workers if worker.case is None]:
            if waiting:
                self._send(worker, self._choose(worker, waiting))

    def _choose(self, worker: _Worker, waiting: deque[Case]) -> Case:
        """A case whose group this worker has compiled, else one of a group that no worker has, else the first."""
        others = set().union(*(each.groups for each in self.workers))
        known = next((case for case in waiting if case.group in worker.groups), None)
        fresh = next((case for case in waiting if case.group not in others), None)
        case = known or fresh or waiting[0]
        waiting.remove(case)
        return case

    def _send(self, worker: _Worker, case: Case) -> None:
        worker.case = case
        worker.groups.add(case.group)
        with suppress(OSError):  # it died: `_heard_from` finds its pipe at an end
            worker.pipe.send((case.task, dict(case.settings)))

    def _heard_from(self) -> list[_Worker]:
        ready = wait([worker.pipe for worker in self.workers if worker.case is not None])
        return [worker for worker in self.workers if worker.pipe in ready]

    def _bury(self, worker: _Worker) -> None:
        self.workers.remove(worker)
        worker.pipe.close()
        worker.process.kill()
        worker.process.join()


def _start() -> _Worker:
    context = get_context("spawn")
    here, there = context.Pipe()
    process = context.Process(target=_serve, args=(there,), daemon=True)
    process.start()
    there.close()
    return _Worker(process, here, None, set())


def _serve(pipe: Connection) -> None:
    """A worker: it ends when its parent does, since then the pipe does."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent hears Ctrl-C and decides
    prepare()
    with suppress(EOFError, OSError):
        while True:
            pipe.send(execute(*pipe.recv()))


class Dask:
    """The same cases on a Dask cluster: an existing one, or one of `workers` processes on this machine."""

    def __init__(self, scheduler: str | None, workers: int):
        self.scheduler, self.workers, self.client, self.cluster = scheduler, workers, None, None

    def outcomes(self, cases: Sequence[Case]) -> Iterator[tuple[Case, Outcome]]:
        distributed = require("distributed", "cluster")
        client = self.client or self._connect(distributed)
        futures = {
            client.submit(
                execute, case.task, dict(case.settings), key=f"proxlin-{case_key(case)}", retries=ATTEMPTS, priority=-i
            ): case
            for i, case in enumerate(cases)
        }
        for future in distributed.as_completed(list(futures), loop=client.loop):
            try:
                outcome = future.result()
            except distributed.KilledWorker as error:
                settings = dict(futures[future].settings)
                raise UserError(f"too many Dask workers died on the case {settings}; they may lack memory.") from error
            yield futures[future], outcome

    def close(self) -> None:
        for each in (self.client, self.cluster):
            if each is not None:
                each.close()

    def _connect(self, distributed: Any) -> Any:
        self.cluster = None if self.scheduler else _local_cluster(distributed, self.workers)
        try:
            self.client = distributed.Client(self.scheduler or self.cluster, timeout="30s", set_as_default=False)
        except (OSError, ValueError) as error:
            raise UserError(f"--scheduler {self.scheduler}: no Dask scheduler answers there ({error}).") from error
        self.client.register_plugin(_plugin(distributed))  # prepares the workers there and those that join later
        return self.client


def _local_cluster(distributed: Any, workers: int) -> Any:
    require("dask", "cluster").config.set({"distributed.nanny.pre-spawn-environ": ONE_THREAD})
    return distributed.LocalCluster(
        n_workers=workers, threads_per_worker=1, processes=True, dashboard_address=None, silence_logs=40
    )


def _plugin(distributed: Any) -> Any:
    class Prepare(distributed.WorkerPlugin):
        name = "proxlin"

        def setup(self, worker: Any) -> None:
            prepare()

    return Prepare()


def engine_named(name: str, scheduler: str | None, workers: int) -> Engine:
    return Dask(scheduler, workers) if name == "dask" else Local(workers)


def cores() -> int:
    """The cores that this process may use."""
    return len(os.sched_getaffinity(0)) if platform.system() == "Linux" else os.cpu_count() or 1
