"""Ctrl-C and SIGTERM on the command line: whole files, one sentence, and the exit code that shells
expect.

Python raises KeyboardInterrupt wherever the main thread happens to be: inside a callback of JAX it
is lost, and an interpreter that shuts down while XLA compiles ends in SIGSEGV or SIGABRT. So
nothing is raised here. The signal wakes a thread, which takes the temporaries away, ends the
workers and leaves the process without shutting it down. It does not wait for compiled code, and a
second Ctrl-C changes nothing.
"""

import os
import signal
import sys
import threading
from contextlib import suppress
from typing import Any

from ..files.writing import abandon

HEARD = (signal.SIGINT, signal.SIGTERM)
CLEAR = b"\r\x1b[2K\x1b[?25h"  # erase the line, show the cursor
FLUSH = 1.0  # seconds; a pipe that nobody reads takes nothing

# taken once, by whatever ends the process: a signal, or the command that is done
_END = threading.Lock()
_sentence = ["Interrupted: no file is left half-written."]


def leave_at_signals() -> None:
    """Let Ctrl-C and SIGTERM end this process from here on, unless it was started to ignore them."""
    ours = [
        each
        for each in HEARD
        if signal.getsignal(each) in (signal.default_int_handler, signal.SIG_DFL)
    ]
    awake, wake = os.pipe()
    os.set_blocking(wake, False)
    signal.set_wakeup_fd(wake, warn_on_full_buffer=False)
    threading.Thread(
        target=_watch,
        args=(awake, frozenset(ours)),
        name="proxlin-signals",
        daemon=True,
    ).start()
    # The process that Python keeps for semaphores takes them away, and need not say so after our
    # sentence.
    sys.warnoptions.append("ignore:resource_tracker:UserWarning")
    for each in ours:
        # a handler in Python is what makes the signal a byte in the pipe
        signal.signal(each, _nothing)


def stay_at_signals() -> None:
    """Give the signals back to Python, for a command that passes them on."""
    signal.set_wakeup_fd(-1)
    for each, usual in zip(
        HEARD, (signal.default_int_handler, signal.SIG_DFL), strict=True
    ):
        if signal.getsignal(each) is _nothing:
            signal.signal(each, usual)


def too_late() -> None:
    """Ignore the signals: the command is done, and only the interpreter has yet to end.

    Does not return if a signal came first, as the process then ends any moment.
    """
    _END.acquire()
    for each in HEARD:
        if signal.getsignal(each) is _nothing:
            signal.signal(each, signal.SIG_IGN)


def say_at_interrupt(sentence: str) -> None:
    """Choose the sentence that an interruption leaves on the standard error."""
    _sentence[0] = sentence


def _nothing(*_: object) -> None:
    """Handle a signal in the thread that watches for it, and not here."""


def _watch(awake: int, ours: frozenset[int]) -> None:
    while True:
        for number in os.read(awake, 1):
            if number in ours:
                _leave(number)


def _leave(number: int) -> None:
    _END.acquire()
    try:
        abandon()
        _end_workers()
        for step in (
            lambda: _flush(sys.__stdout__),
            lambda: _flush(sys.__stderr__),
            _say,
        ):
            # which may never come back
            thread = threading.Thread(target=step, daemon=True)
            thread.start()
            thread.join(FLUSH)
    finally:
        os._exit(128 + number)


def _end_workers() -> None:
    """Kill the processes of a sweep; one that is just being started ends by itself, as nobody sends
    it a case.
    """
    if "multiprocessing.process" in sys.modules:
        for child in sys.modules["multiprocessing.process"].active_children():
            child.kill()


def _flush(stream: Any) -> None:
    """Send off what is printed already."""
    with suppress(OSError, ValueError, AttributeError):  # closed, or none at all
        stream.flush()


def _say() -> None:
    """Print the sentence; on a terminal, in place of a progress bar, which has hidden the cursor."""
    for descriptor in (1, 2):
        with suppress(OSError):
            if os.isatty(descriptor):
                os.write(descriptor, CLEAR)
    with suppress(OSError):
        os.write(2, f"{_sentence[0]}\n".encode())
