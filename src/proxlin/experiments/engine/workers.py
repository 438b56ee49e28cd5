"""Where the cases of a sweep run: processes on this machine, or a Dask cluster (`cluster.py`).

    outcomes(cases)  yields (case, outcome) once for each, as they finish, in any order

A worker that dies is replaced and its case run again; a case that kills three workers is named. A
worker is as good as dead when it has given no sign of life for `silence` seconds: stopped, swapped
out, or cut off.
"""

import importlib
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
from ...errors import UserError
from ...files.writing import uninterrupted
from .base import Case
from .store import content_key

# a worker that dies (out of memory, killed) has its case run again, but not for ever
ATTEMPTS = 3
# seconds without a sign of life; a worker gives one every BEAT, also while it computes
SILENCE = 300.0
BEAT = 0.5  # seconds
STARTUP = 60.0  # seconds that a process may take until its first sign of life
# One thread a worker: NPROC is the size of XLA's pool, whose threads hand small kernels to each
# other; the flag keeps matrix products on the thread that runs the program. LAPACK has a pool of its
# own, whose idle threads spin: an exact step then takes ten times the CPU time on a busy machine.
ONE_THREAD = {
    "NPROC": "1",
    "OMP_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
    "MKL_NUM_THREADS": "1",
    "XLA_FLAGS": "--xla_cpu_multi_thread_eigen=false",
}


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
    """Return the key under which the store has the result of a case."""
    return content_key(
        task=case.task, settings=dict(case.settings), version=__version__
    )


def prepare() -> None:
    """Make this process a worker: one XLA thread, which has to be said before JAX starts its pool, and
    64-bit numbers.

    LAPACK reads its variables when NumPy is imported, which is before this: a worker inherits them
    (`one_threaded`).
    """
    os.environ.update(_settings())
    use_64_bits()


def _settings() -> dict[str, str]:
    """Return the variables of a process with one thread, with the flags that it has already."""
    flags = os.environ.get("XLA_FLAGS", "")
    if ONE_THREAD["XLA_FLAGS"] not in flags:
        flags = f"{flags} {ONE_THREAD['XLA_FLAGS']}".strip()
    return ONE_THREAD | {"XLA_FLAGS": flags}


@contextmanager
def one_threaded() -> Iterator[None]:
    """Let processes that are started here have one thread from their first import on; this one keeps
    its variables.
    """
    settings = _settings()
    before = {name: os.environ.get(name) for name in settings}
    os.environ.update(settings)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


def use_64_bits() -> None:
    """Let JAX have 64-bit numbers, whether it is imported already or not; importing it takes a
    second.
    """
    os.environ["JAX_ENABLE_X64"] = "1"
    if "jax" in sys.modules:
        sys.modules["jax"].config.update("jax_enable_x64", True)


def execute(task: str, settings: dict) -> Outcome:
    """Run one case here; an error becomes an outcome."""
    start = time.perf_counter()
    busy = time.process_time()
    result = None
    error = None
    wrong_use = False
    try:
        # JAX is imported here, and not before, so that a process can say first how many threads it has.
        from ...files.programs import keep_programs

        keep_programs()
        module, name = task.split(":")
        result = getattr(importlib.import_module(module), name)(settings)
    except UserError as raised:
        error = str(raised)
        wrong_use = True
    except Exception:
        error = traceback.format_exc()
    run = {
        "seconds": time.perf_counter() - start,
        # of all threads: on a busy machine the seconds above say little
        "cpu_seconds": time.process_time() - busy,
        "host": platform.node(),
    }
    return Outcome(result, error, wrong_use, run)


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
        # a longer time is one in which this process was asleep
        passed = min(now - self.last, 4 * BEAT)
        self.last = now
        silence = dict.fromkeys(beats, 0.0)
        for who, beat in beats.items():
            if self.beats.get(who, math.nan) == beat:
                silence[who] = self.silence[who] + passed
        self.beats = dict(beats)
        self.silence = silence
        return silence


@dataclass
class _Worker:
    """A process with the case that it runs, None if it waits, and the groups that it has compiled."""

    process: Any
    pipe: Connection
    beats: Any  # a number in shared memory, which the worker counts up
    case: Case | None
    groups: set[str]


class Local:
    """Spawned processes on this machine (never forked: JAX has threads)."""

    def __init__(self, workers: int, silence: float = SILENCE):
        self.count = workers
        self.workers: list[_Worker] = []
        self.silence = silence
        self.watch = Watch()

    def outcomes(self, cases: Sequence[Case]) -> Iterator[tuple[Case, Outcome]]:
        """Yield each case with its outcome as it finishes; a case whose worker is lost runs again."""
        waiting = deque(cases)
        deaths: Counter[int] = Counter()
        while waiting or self._busy():
            self._hand_out(waiting)
            lost = self._silent()
            for worker in self._heard_from():
                try:
                    outcome = worker.pipe.recv()
                except (EOFError, OSError):
                    lost.append(worker)
                    continue
                case = worker.case
                worker.case = None
                assert case is not None
                yield case, outcome
            for worker in lost:
                if worker.case is not None:  # else it answered after all
                    self._bury(worker)
                    self._count_death(worker.case, deaths)
                    waiting.appendleft(worker.case)

    def close(self) -> None:
        """End every worker."""
        for worker in list(self.workers):
            self._bury(worker)

    def _busy(self) -> list[_Worker]:
        return [worker for worker in self.workers if worker.case is not None]

    def _count_death(self, case: Case, deaths: Counter[int]) -> None:
        """Count a worker that the case took with it, and give up on a case that took several."""
        deaths[id(case)] += 1
        if deaths[id(case)] >= ATTEMPTS:
            raise UserError(
                f"a worker died {ATTEMPTS} times on the case {dict(case.settings)}, or was silent for "
                f"{self.silence:g} s; it may lack memory."
            )

    def _hand_out(self, waiting: deque[Case]) -> None:
        """Give each idle worker a case, after starting as many as there are cases for."""
        wanted = min(self.count, len(waiting) + len(self._busy()))
        while len(self.workers) < wanted:
            self.workers.append(_start())
        for worker in self.workers:
            if worker.case is None and waiting:
                self._send(worker, self._choose(worker, waiting))

    def _choose(self, worker: _Worker, waiting: deque[Case]) -> Case:
        """Take a case whose group this worker has compiled, else one of a group that no worker has,
        else the first.
        """
        compiled = set().union(*(each.groups for each in self.workers))
        known = (case for case in waiting if case.group in worker.groups)
        fresh = (case for case in waiting if case.group not in compiled)
        case = next(known, None) or next(fresh, None) or waiting[0]
        waiting.remove(case)
        return case

    def _send(self, worker: _Worker, case: Case) -> None:
        worker.case = case
        worker.groups.add(case.group)
        with suppress(OSError):  # it died: `_heard_from` finds its pipe at an end
            worker.pipe.send((case.task, dict(case.settings)))

    def _heard_from(self) -> list[_Worker]:
        """Wait for a moment; returns the workers that have sent something, or whose pipe is at its
        end.
        """
        ready = wait([worker.pipe for worker in self._busy()], BEAT)
        return [worker for worker in self.workers if worker.pipe in ready]

    def _silent(self) -> list[_Worker]:
        """Return the workers that have a case and have given no sign of life for too long."""
        silence = self.watch.look(
            {id(worker): float(worker.beats.value) for worker in self.workers}
        )
        lost = []
        for worker in self._busy():
            limit = self.silence
            if not worker.beats.value:  # it is still starting
                limit = max(limit, STARTUP)
            if silence[id(worker)] > limit:
                lost.append(worker)
        return lost

    def _bury(self, worker: _Worker) -> None:
        self.workers.remove(worker)
        worker.pipe.close()
        worker.process.kill()
        worker.process.join()


def _start() -> _Worker:
    """Start a worker that has nothing to do yet."""
    context = get_context("spawn")
    here, there = context.Pipe()
    beats = context.RawValue("Q", 0)
    process = context.Process(target=_serve, args=(there, beats), daemon=True)
    with (
        one_threaded(),
        uninterrupted(),
        without_ctrl_c(),
    ):  # a worker whose parent ends as it starts leaves a traceback
        process.start()
    there.close()
    return _Worker(process, here, beats, None, set())


@contextmanager
def without_ctrl_c() -> Iterator[None]:
    """Block Ctrl-C for the threads and processes that are started here; this one hears it
    afterwards.
    """
    # else it is started on the way, and unblocks the signal
    resource_tracker.ensure_running()
    before = signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _serve(pipe: Connection, beats: Any) -> None:
    """Run cases in a worker, which ends when its parent does, since then the pipe does."""
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


def engine_named(
    name: str, scheduler: str | None, workers: int, silence: float = SILENCE
) -> Engine:
    """Return the engine "local" or "dask"; the latter may use a scheduler that runs already."""
    if name == "dask":
        from .cluster import Dask

        return Dask(scheduler, workers, silence)
    return Local(workers, silence)


def cores() -> int:
    """Return the number of cores that this process may use."""
    if platform.system() == "Linux":
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
