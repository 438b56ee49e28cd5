"""A limit on the time and the memory of one piece of work, for input that may make it endless or
huge.
"""

import faulthandler
import resource
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager

SECONDS = 10.0  # for one input; a machine with much else to do is slow too
ROOM = 4 * 2**30  # bytes of address space above what is taken at the start


class Endless(Exception):
    """The work took longer than it may."""


@contextmanager
def limited(seconds: float = SECONDS) -> Iterator[None]:
    """Endless after so many seconds; compiled code that never comes back ends the process, with a
    traceback.
    """

    def stop(*_: object) -> None:
        raise Endless(f"over {seconds:g} s")

    before = signal.signal(signal.SIGALRM, stop)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    faulthandler.dump_traceback_later(6 * seconds, exit=True, file=sys.__stderr__)
    try:
        yield
    finally:
        faulthandler.cancel_dump_traceback_later()
        signal.setitimer(signal.ITIMER_REAL, 0.0)
        signal.signal(signal.SIGALRM, before)


@contextmanager
def little_memory(room: int = ROOM) -> Iterator[None]:
    """MemoryError for what takes more than `room` bytes of new addresses, by the kernel's own
    limit.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (_addresses() + room, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, (soft, hard))


def _addresses() -> int:
    with open("/proc/self/statm") as file:
        return int(file.read().split()[0]) * resource.getpagesize()


def forget_peak() -> int:
    """Begin to watch the memory of the process: MiB that it has now."""
    with open("/proc/self/clear_refs", "w") as file:
        file.write("5")
    return peak()


def peak() -> int:
    """The most memory that the process has had since then, in MiB."""
    with open("/proc/self/status") as file:
        return next(
            int(line.split()[1]) >> 10 for line in file if line.startswith("VmHWM")
        )
