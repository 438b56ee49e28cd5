"""Where the cases of a sweep run: processes on this machine, or a Dask cluster.

    outcomes(cases)  yields (case, outcome) once for each, as they finish, in any order

A worker that dies is replaced and its case run again; a case that kills three workers is named. A worker is as good as
dead when it has given no sign of life for `silence` seconds: stopped, swapped out, or cut off.
"""

import importlib
import logging
import math
import os
import platform
import signal
import sys
import threading
import time
import traceback
from collections import Counter, deque
from collections.abc import Hashable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from multiprocessing import get_context, resource_tracker
from multiprocessing.connection import Connection, wait
from typing import Any, Protocol, runtime_checkable

from ... import __version__
from ...errors import UserError, require
from ...files.writing import uninterrupted
from .base import Case
from .store import content_key

ATTEMPTS = 3  # a worker that dies (out of memory, killed) has its case run again, but not for ever
SILENCE = 300.0  # seconds without a sign of life; a worker gives one every BEAT, also while it computes
BEAT = 0.5
NOBODY = "nobody"  # whose silence is the time for which there has been no worker at all
STARTUP = 60.0  # seconds that a process may take until its first sign of life
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


class Watch:
    """Adds up for how long each worker has been silent, in time that this process was awake itself.

    A machine that slept, or a Ctrl-Z of the whole command, is then nobody's silence.
    """

    def __init__(self):
        self.beats: dict[Hashable, float] = {}
        self.silence: dict[Hashable, float] = {}
        self.last = time.monotonic()

    def look(self, beats: Mapping[Hashable, float]) -> dict[Hashable, float]:
        """Return the seconds for which each of these beats has stayed the same."""
        now = time.monotonic()
        passed = min(now - self.last, 4 * BEAT)
        self.last = now
        silence = {}
        for who, beat in beats.items():
            same = self.beats.get(who, math.nan) == beat
            silence[who] = self.silence[who] + passed if same else 0.0
        self.beats = dict(beats)
        self.silence = silence
        return silence


@dataclass
class _Worker:
    process: Any
    pipe: Connection
    beats: Any  # a number in shared memory, which the worker counts up
    case: Case | None
    groups: set[str]


class Local:
    """Spawned processes on this machine (never forked: JAX has threads)."""

    def __init__(self, workers: int, silence: float = SILENCE):
        self.count, self.workers = workers, []
        self.silence = silence
        self.watch = Watch()

    def outcomes(self, cases: Sequence[Case]) -> Iterator[tuple[Case, Outcome]]:
        waiting, deaths = deque(cases), Counter()
        while waiting or any(worker.case is not None for worker in self.workers):
            self._hand_out(waiting)
            lost = self._silent()
            for worker in self._heard_from():
                try:
                    outcome = worker.pipe.recv()
                except (EOFError, OSError):
                    lost.append(worker)
                    continue
                case, worker.case = worker.case, None
                assert case is not None
                yield case, outcome
            for worker in lost:
                if worker.case is None:
                    continue  # it answered after all
                self._bury(worker)
                deaths[id(worker.case)] += 1
                if deaths[id(worker.case)] >= ATTEMPTS:
                    raise UserError(
                        f"a worker died {ATTEMPTS} times on the case {dict(worker.case.settings)}, or was silent for "
                        f"{self.silence:g} s; it may lack memory."
                    )
                waiting.appendleft(worker.case)

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
        ready = wait([worker.pipe for worker in self.workers if worker.case is not None], BEAT)
        return [worker for worker in self.workers if worker.pipe in ready]

    def _silent(self) -> list[_Worker]:
        """The workers that have a case and have given no sign of life for too long."""
        silence = self.watch.look({id(worker): float(worker.beats.value) for worker in self.workers})
        limit = lambda worker: self.silence if worker.beats.value else max(self.silence, STARTUP)
        return [each for each in self.workers if each.case is not None and silence[id(each)] > limit(each)]

    def _bury(self, worker: _Worker) -> None:
        self.workers.remove(worker)
        worker.pipe.close()
        worker.process.kill()
        worker.process.join()


def _start() -> _Worker:
    context = get_context("spawn")
    here, there = context.Pipe()
    beats = context.RawValue("Q", 0)
    process = context.Process(target=_serve, args=(there, beats), daemon=True)
    with uninterrupted(), _without_ctrl_c():  # a worker whose parent ends as it starts leaves a traceback
        process.start()
    there.close()
    return _Worker(process, here, beats, None, set())


@contextmanager
def _without_ctrl_c() -> Iterator[None]:
    """Block Ctrl-C for the threads and processes that are started here; this one hears it afterwards."""
    resource_tracker.ensure_running()  # else it is started on the way, and unblocks the signal
    before = signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _serve(pipe: Connection, beats: Any) -> None:
    """A worker: it ends when its parent does, since then the pipe does."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent hears Ctrl-C and decides
    threading.Thread(target=_beat, args=(beats,), daemon=True).start()
    prepare()
    with suppress(EOFError, OSError):
        while True:
            pipe.send(execute(*pipe.recv()))


def _beat(beats: Any) -> None:
    """Give a sign of life again and again, as long as the process may run."""
    while True:
        beats.value += 1
        time.sleep(BEAT)


class Dask:
    """The same cases on a Dask cluster: an existing one, or one of `workers` processes on this machine."""

    def __init__(self, scheduler: str | None, workers: int, silence: float = SILENCE):
        self.scheduler, self.workers, self.client, self.cluster = scheduler, workers, None, None
        self.silence = silence
        self.watch = Watch()

    def outcomes(self, cases: Sequence[Case]) -> Iterator[tuple[Case, Outcome]]:
        distributed = require("distributed", "cluster")
        client = self.client or self._connect(distributed)
        futures = {
            client.submit(
                execute, case.task, dict(case.settings), key=f"proxlin-{case_key(case)}", retries=ATTEMPTS, priority=-i
            ): case
            for i, case in enumerate(cases)
        }
        # With results: they are fetched in the background, where one that a stopped worker holds keeps nobody waiting.
        completed = distributed.as_completed(list(futures), loop=client.loop, with_results=True, raise_errors=False)
        while futures:
            for future, found in completed.next_batch(block=False):
                case = futures.pop(future)
                yield case, self._outcome(found, future.status, case)
            time.sleep(BEAT / 10)
            if time.monotonic() - self.watch.last > BEAT:
                self._look(client)
                if any(future.cancelled() for future in futures):
                    raise self._gone()

    def close(self) -> None:
        for each in (self.client, self.cluster):
            if each is not None:
                with suppress(OSError, TimeoutError):  # of a scheduler that is gone
                    each.close(timeout=10)

    def _outcome(self, found: Any, status: str, case: Case) -> Outcome:
        """Return what a worker sent back, or raise what became of it."""
        if isinstance(found, Outcome):
            return found
        if status != "error":
            raise self._gone()
        _, error, trace = found
        if isinstance(error, require("distributed", "cluster").KilledWorker):
            raise UserError(
                f"too many Dask workers died on the case {dict(case.settings)}, or were silent for {self.silence:g} s; "
                "they may lack memory."
            ) from error
        raise error.with_traceback(trace)

    def _look(self, client: Any) -> None:
        """Have the scheduler forget the workers that are silent, so that their cases run elsewhere.

        Our own cluster does that by itself, and starts others in their place.
        """
        patience = self.silence if self.scheduler else max(self.silence, STARTUP)
        try:
            workers = client.sync(client.scheduler.identity, n_workers=-1, callback_timeout=self.silence)["workers"]
            beats = {address: float(worker["last_seen"]) for address, worker in workers.items()}
            silence = self.watch.look({**beats, NOBODY: time.monotonic() if workers else 0.0})
            for address in beats if self.scheduler else ():
                if silence[address] > self.silence:
                    forget = {"address": address, "stimulus_id": f"proxlin-silent-{time.time()}"}
                    client.sync(client.scheduler.unregister, **forget, callback_timeout=self.silence)
        except (OSError, TimeoutError) as error:
            raise self._gone() from error
        if silence[NOBODY] > patience:
            raise UserError(
                f"the Dask scheduler{self._where()} has had no worker for {patience:g} s; every finished case is kept: "
                "start workers and give the same command again."
            )

    def _gone(self) -> UserError:
        return UserError(
            f"the Dask scheduler{self._where()} does not answer any more; every finished case is kept: once it runs "
            "again, the same command goes on from there."
        )

    def _where(self) -> str:
        return f" at {self.scheduler}" if self.scheduler else ""

    def _connect(self, distributed: Any) -> Any:
        with _without_ctrl_c():
            self.cluster = None if self.scheduler else _local_cluster(distributed, self.workers, self.silence)
        for name in [each for each in logging.root.manager.loggerDict if each.startswith(("distributed", "tornado"))]:
            logging.getLogger(name).setLevel(logging.CRITICAL)  # a lost connection is a page of it; we say a sentence
        try:
            self.client = distributed.Client(self.scheduler or self.cluster, timeout="30s", set_as_default=False)
        except (OSError, ValueError) as error:
            raise UserError(f"--scheduler {self.scheduler}: no Dask scheduler answers there ({error}).") from error
        self.client.register_plugin(_plugin(distributed))  # prepares the workers there and those that join later
        return self.client


def _local_cluster(distributed: Any, workers: int, silence: float) -> Any:
    settings: dict[str, Any] = {"distributed.nanny.pre-spawn-environ": ONE_THREAD}
    if silence < math.inf:
        settings["distributed.scheduler.worker-ttl"] = f"{silence} s"  # then a silent worker is replaced, too
    require("dask", "cluster").config.set(settings)
    return distributed.LocalCluster(
        n_workers=workers, threads_per_worker=1, processes=True, dashboard_address=None, silence_logs=40
    )


def _plugin(distributed: Any) -> Any:
    class Prepare(distributed.WorkerPlugin):
        name = "proxlin"

        def setup(self, worker: Any) -> None:
            prepare()

    return Prepare()


def engine_named(name: str, scheduler: str | None, workers: int, silence: float = SILENCE) -> Engine:
    return Dask(scheduler, workers, silence) if name == "dask" else Local(workers, silence)


def cores() -> int:
    """The cores that this process may use."""
    return len(os.sched_getaffinity(0)) if platform.system() == "Linux" else os.cpu_count() or 1
