"""Ctrl-C and SIGTERM at any moment: whole files, one sentence, exit code 130 or 143, nobody left
running.
"""

import os
import pty
import signal
import subprocess
import sys
import time
from contextlib import suppress

import pytest

SENTENCE = "Interrupted: no file is left half-written.\n"

# What the main thread does when the signal comes. None of these ends by itself.
MOMENTS = {
    "asleep": "time.sleep(600)",
    "in Python": "while True: pass",
    "in a callback that loses exceptions": """
class Lost:
    def __del__(self):
        while True: pass
Lost()
""",
    "in a handler": """
while True:
    try:
        time.sleep(600)
    except BaseException:
        pass
""",
    "in a lock": "lock = threading.Lock(); lock.acquire(); lock.acquire()",
    "as a file is written": """
from proxlin.files import write_folder
def stuck(file):
    file.write(b'half')
    file.flush()
    time.sleep(600)
write_folder(sys.argv[1], {'a': b'new', 'deep/b': stuck})
""",
    "as standard output is full": "sys.stdout.write('x' * 10**7); time.sleep(600)",
}
CHILD = """
import os, signal, sys, threading, time
from proxlin.cli.interrupts import leave_at_signals
for each in (signal.SIGINT, signal.SIGTERM):
    signal.signal(each, signal.default_int_handler if each == signal.SIGINT else signal.SIG_DFL)
leave_at_signals()
os.write(2, b"ready\\n")
"""


def interrupted(process: subprocess.Popen, *signals: int) -> tuple[int, str]:
    """Send the signals, one soon after the other: the exit code and the rest of the standard error."""
    for each in signals:
        process.send_signal(each)
        time.sleep(0.02)
    err = process.stderr.read()
    process.stdout.close()
    process.stderr.close()
    return process.wait(60), err


def child(code: str, *arguments: object) -> subprocess.Popen:
    pipe = subprocess.PIPE
    process = subprocess.Popen(
        [sys.executable, "-c", CHILD + code, *map(str, arguments)],
        stdout=pipe,
        stderr=pipe,
    )
    assert process.stderr.readline() == b"ready\n"
    return process


@pytest.mark.parametrize("moment", MOMENTS)
def test_whatever_the_main_thread_is_at(moment, tmp_path):
    (tmp_path / "a").write_bytes(b"old")
    process = child(MOMENTS[moment], tmp_path)
    time.sleep(0.2)
    code, err = interrupted(process, signal.SIGINT, signal.SIGINT)
    assert (code, err.decode()) == (130, SENTENCE)
    assert [path.name for path in tmp_path.rglob("*")] == ["a"] and (
        tmp_path / "a"
    ).read_bytes() == b"old"


def test_terminate_is_143():
    code, err = interrupted(child(MOMENTS["asleep"]), signal.SIGTERM)
    assert (code, err.decode()) == (143, SENTENCE)


def test_what_is_printed_is_flushed():
    process = child("print('a line'); time.sleep(600)")
    time.sleep(0.2)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=60)
    assert (process.returncode, out, err.decode()) == (130, b"a line\n", SENTENCE)


def test_a_terminal_gets_its_cursor_back():
    """A progress bar has hidden it, and has taken the place of the standard streams."""
    code = """
from rich.console import Console
from rich.progress import Progress
with Progress(console=Console(stderr=True)) as bar:
    bar.add_task('at work', total=1.0)
    os.write(1, b'begun')
    time.sleep(600)
"""
    terminal, end = pty.openpty()
    environment = {**os.environ, "TERM": "xterm"}
    process = subprocess.Popen(
        [sys.executable, "-c", CHILD + code],
        stdout=subprocess.PIPE,
        stderr=end,
        stdin=end,
        env=environment,
    )
    os.close(end)
    assert process.stdout.read(5) == b"begun"
    process.send_signal(signal.SIGINT)
    assert process.wait(60) == 130
    process.stdout.close()
    shown = b""
    with suppress(OSError):  # how Linux says that a terminal is at its end
        while more := os.read(terminal, 10_000):
            shown += more
    os.close(terminal)
    assert shown.rindex(b"\x1b[?25h") > shown.rindex(b"\x1b[?25l")
    assert shown.endswith(SENTENCE.replace("\n", "\r\n").encode())


def test_a_process_that_was_told_to_ignore_ctrl_c_does():
    """As a shell tells those in the background, and nohup."""
    code = CHILD.replace("signal.default_int_handler", "signal.SIG_IGN")
    process = subprocess.Popen(
        [sys.executable, "-c", f"{code}time.sleep(0.5); print('done')"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    assert process.stderr.readline() == b"ready\n"
    process.send_signal(signal.SIGINT)
    out, _ = process.communicate(timeout=60)
    assert (process.returncode, out) == (0, b"done\n")


def test_a_command_that_ends_as_the_signal_comes_is_interrupted_or_done():
    """Never something between the two, such as a sentence and exit code 0."""
    code = "from proxlin.cli.interrupts import too_late; time.sleep({}); too_late(); print('done', flush=True)"
    for wait in (0.04, 0.05, 0.052, 0.06):
        process = child(code.format(wait))
        time.sleep(0.05)
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=60)
        assert (process.returncode, out, err.decode()) in [
            (130, b"", SENTENCE),
            (0, b"done\n", ""),
        ]


def test_a_command_that_is_done_is_not_interrupted_any_more():
    process = child(
        "from proxlin.cli.interrupts import too_late; too_late(); os.write(2, b'now\\n'); time.sleep(0.5)"
    )
    assert process.stderr.readline() == b"now\n"
    assert interrupted(process, signal.SIGINT, signal.SIGTERM) == (0, b"")
