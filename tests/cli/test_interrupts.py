"""Ctrl-C and SIGTERM at any moment: whole files, one sentence, exit code 130 or 143, nobody left running."""

import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

HERE = Path(__file__).parent
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
from proxlin.interrupts import leave_at_signals
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
    process = subprocess.Popen([sys.executable, "-c", CHILD + code, *map(str, arguments)], stdout=pipe, stderr=pipe)
    assert process.stderr.readline() == b"ready\n"
    return process


@pytest.mark.parametrize("moment", MOMENTS)
def test_whatever_the_main_thread_is_at(moment, tmp_path):
    (tmp_path / "a").write_bytes(b"old")
    process = child(MOMENTS[moment], tmp_path)
    time.sleep(0.2)
    code, err = interrupted(process, signal.SIGINT, signal.SIGINT)
    assert (code, err.decode()) == (130, SENTENCE)
    assert [path.name for path in tmp_path.rglob("*")] == ["a"] and (tmp_path / "a").read_bytes() == b"old"


def test_terminate_is_143():
    code, err = interrupted(child(MOMENTS["asleep"]), signal.SIGTERM)
    assert (code, err.decode()) == (143, SENTENCE)


def test_what_is_printed_is_flushed():
    process = child("print('a line'); time.sleep(600)")
    time.sleep(0.2)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=60)
    assert (process.returncode, out, err.decode()) == (130, b"a line\n", SENTENCE)


def test_a_process_that_was_told_to_ignore_ctrl_c_does():
    """As a shell tells those in the background, and nohup."""
    code = CHILD.replace("signal.default_int_handler", "signal.SIG_IGN")
    process = subprocess.Popen(
        [sys.executable, "-c", f"{code}time.sleep(0.5); print('done')"], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    assert process.stderr.readline() == b"ready\n"
    process.send_signal(signal.SIGINT)
    out, _ = process.communicate(timeout=60)
    assert (process.returncode, out) == (0, b"done\n")


def test_a_command_that_ends_as_the_signal_comes_is_interrupted_or_done():
    """Never something between the two, such as a sentence and exit code 0."""
    code = "from proxlin.interrupts import too_late; time.sleep({}); too_late(); print('done', flush=True)"
    for wait in (0.04, 0.05, 0.052, 0.06):
        process = child(code.format(wait))
        time.sleep(0.05)
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=60)
        assert (process.returncode, out, err.decode()) in [(130, b"", SENTENCE), (0, b"done\n", "")]


def test_a_command_that_is_done_is_not_interrupted_any_more():
    process = child("from proxlin.interrupts import too_late; too_late(); os.write(2, b'now\\n'); time.sleep(0.5)")
    assert process.stderr.readline() == b"now\n"
    assert interrupted(process, signal.SIGINT, signal.SIGTERM) == (0, b"")


# ---------------------------------------------------------------------------------- whole commands, at random moments

COMMAND = """
import os, signal, sys
signal.signal(signal.SIGINT, signal.default_int_handler)
import proxlin.cli, proxlin.interrupts
os.write(1, b"ready\\n")
sys.exit(proxlin.cli.main())
"""
TRIES = 20


class Case:
    """A command, the folder that it writes to, and how to see that the folder is whole."""

    def __init__(self, work: Path):
        self.work, self.out = work, work / "out"
        self.table = work / "table.csv"
        rng = np.random.default_rng(0)
        rows = [f"{a},{b},{a - 2 * b}\n" for a, b in rng.normal(size=(200, 2))]
        self.table.write_text("a,b,y\n" + "".join(rows))
        path = os.pathsep.join([str(HERE), *filter(None, [os.environ.get("PYTHONPATH")])])
        cache = {"PROXLIN_CACHE": str(work / "cache")}
        self.environment = {**os.environ, "PYTHONPATH": path, "PROXLIN_EXPERIMENTS": "toy,toy_sweep", **cache}

    def start(self, *arguments: object) -> subprocess.Popen:
        """Start the command in a group of processes of its own, as a shell does."""
        process = subprocess.Popen(
            [sys.executable, "-c", COMMAND, *map(str, arguments)],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=self.environment,
            start_new_session=True,
        )
        assert process.stdout.readline() == "ready\n"
        return process

    def seconds(self, *arguments: object) -> float:
        """How long it takes if nobody interrupts it; leaves what it writes."""
        began = time.monotonic()
        process = self.start(*arguments)
        _, err = process.communicate()
        assert process.returncode == 0, err
        return time.monotonic() - began

    def interrupt(self, moment: float, twice: bool, *arguments: object) -> tuple[int, str]:
        """Ctrl-C to the whole group, workers included."""
        process = self.start(*arguments)
        time.sleep(moment)
        for _ in range(1 + twice):
            with_group(process.pid, signal.SIGINT)
            time.sleep(0.005)
        _, err = process.communicate(timeout=60)
        deadline = time.monotonic() + 20
        while with_group(process.pid, 0) and time.monotonic() < deadline:
            time.sleep(0.05)
        assert not with_group(process.pid, 0), "a worker is left"
        return process.returncode, err

    def unfinished(self) -> list[Path]:
        return list(self.work.rglob("*.part"))


def with_group(group: int, number: int) -> bool:
    try:
        os.killpg(group, number)
    except ProcessLookupError:
        return False
    return True


def same_fit(out: Path) -> None:
    """The model, the metrics and the page are of one fit."""
    with np.load(out / "model.npz") as arrays:
        about = json.loads(arrays["json"].tobytes())["about"]
    metrics = json.loads((out / "metrics.json").read_text())
    assert about == {name: metrics[name] for name in about}
    assert f"{about['seconds']}" in (out / "report.html").read_text()


def whole_page(out: Path) -> None:
    assert not (out / "report.html").exists() or (out / "report.html").read_text().rstrip().endswith("</html>")


def whole_table(out: Path) -> None:
    assert not out.exists() or len(out.read_text().splitlines()) == 201


COMMANDS = {
    "fit": (("fit", "{table}", "--target", "y", "--hidden", "4", "--out", "{out}"), same_fit),
    "predict": (("predict", "{work}/model.npz", "{table}", "--out", "{out}"), whole_table),
    "advise": (("advise", "{table}", "--target", "y", "--hidden", "4", "--budget", "5"), None),
    "reproduce": (("reproduce", "chef", "--workers", "2", "--out", "{out}"), whole_page),
    "report": (("report", "{out}"), whole_page),
    "data make": (("data", "make", "ijcnn1"), None),
}


@pytest.mark.hard
@pytest.mark.parametrize("name", COMMANDS)
def test_ctrl_c_at_random_moments(name, tmp_path):
    arguments, check = COMMANDS[name]
    case = Case(tmp_path)
    asked = [each.format(work=case.work, table=case.table, out=case.out) for each in arguments]
    if name == "predict":
        case.seconds("fit", case.table, "--target", "y", "--hidden", "0", "--out", tmp_path / "first")
        (tmp_path / "first" / "model.npz").rename(tmp_path / "model.npz")
    if name == "report":
        case.seconds("reproduce", "aardvark", "--out", case.out)
    longest = case.seconds(*asked)
    rng = random.Random(name)
    ended = []
    for number in range(TRIES):
        share = rng.uniform(0.0, 1.0) if number % 4 else rng.uniform(0.9, 1.0)  # where files are written
        if name == "reproduce":
            subprocess.run(["rm", "-rf", str(case.out)], check=True)
        code, err = case.interrupt(share * longest, number % 2 == 1, *asked)
        ended.append(code)
        if code == 130:
            assert err.startswith("Interrupted: ") and err.count("\n") == 1, err
        else:
            assert code == 0 and "Interrupted" not in err, (code, err)  # it was faster this time
        assert case.unfinished() == []
        if check is not None:
            check(case.out)
    print(name, {code: ended.count(code) for code in set(ended)})
    assert ended.count(130) >= TRIES // 2
