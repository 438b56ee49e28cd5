"""Ctrl-C at random moments of whole commands: whole files, one sentence, exit code 130, no worker
left.
"""

import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from processes import environment

pytestmark = pytest.mark.slow

COMMAND = """
import os, signal, sys
signal.signal(signal.SIGINT, signal.default_int_handler)
import proxlin.cli, proxlin.cli.interrupts
leave_at_signals = proxlin.cli.interrupts.leave_at_signals
proxlin.cli.interrupts.leave_at_signals = lambda: (leave_at_signals(), os.write(1, b"ready\\n"))
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
        self.environment = environment(
            PROXLIN_EXPERIMENTS="toy,toy_sweep", PROXLIN_CACHE=str(work / "cache")
        )

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

    def interrupt(
        self, moment: float, twice: bool, *arguments: object
    ) -> tuple[int, str]:
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
        about = json.loads(arrays["json"].tobytes())["models"][0]["about"]
    metrics = json.loads((out / "metrics.json").read_text())
    assert about == {name: metrics[name] for name in about}
    assert f"{about['seconds']}" in (out / "report.html").read_text()


def whole_page(out: Path) -> None:
    assert not (out / "report.html").exists() or (
        out / "report.html"
    ).read_text().rstrip().endswith("</html>")


def whole_table(out: Path) -> None:
    assert not out.exists() or len(out.read_text().splitlines()) == 201


COMMANDS = {
    "fit": (
        ("fit", "{table}", "--target", "y", "--hidden", "4", "--out", "{out}"),
        same_fit,
    ),
    "predict": (
        ("predict", "{work}/model.npz", "{table}", "--out", "{out}"),
        whole_table,
    ),
    "advise": (
        (
            "advise",
            "{table}",
            "--target",
            "y",
            "--hidden",
            "4",
            "--budget",
            "5",
            "--quiet",
        ),
        None,
    ),
    "reproduce": (
        ("reproduce", "chef", "--workers", "2", "--out", "{out}"),
        whole_page,
    ),
    "report": (("report", "{out}"), whole_page),
    "data make": (("data", "make", "ijcnn1"), None),
}


@pytest.mark.parametrize("name", COMMANDS)
def test_ctrl_c_at_random_moments(name, tmp_path, figures):
    arguments, check = COMMANDS[name]
    case = Case(tmp_path)
    asked = [
        each.format(work=case.work, table=case.table, out=case.out)
        for each in arguments
    ]
    if name == "predict":
        case.seconds(
            "fit",
            case.table,
            "--target",
            "y",
            "--hidden",
            "0",
            "--out",
            tmp_path / "first",
        )
        (tmp_path / "first" / "model.npz").rename(tmp_path / "model.npz")
    if name == "report":
        case.seconds("reproduce", "aardvark", "--out", case.out)
    longest = case.seconds(*asked)
    rng = random.Random(name)
    ended: Counter = Counter()
    while ended[130] < TRIES:
        assert ended.total() < 4 * TRIES, ended
        # files are written last
        share = (
            rng.uniform(0.9, 1.0) if ended.total() % 4 == 0 else rng.uniform(0.0, 1.0)
        )
        if name == "reproduce":
            shutil.rmtree(case.out, ignore_errors=True)
        code, err = case.interrupt(share * longest, ended.total() % 2 == 1, *asked)
        ended[code] += 1
        if code == 130:
            assert err.startswith("Interrupted: ") and err.count("\n") == 1, err
        else:
            # it was faster this time
            assert code == 0 and "Interrupted" not in err, (code, err)
        assert case.unfinished() == []
        if check is not None:
            check(case.out)
    figures(
        f"ctrl-c-{name.replace(' ', '-')}", interrupted=ended[130], finished=ended[0]
    )


def test_ctrl_c_during_a_benchmark(tmp_path, figures):
    """The benchmark, the suite around it and the command end together; the rows are whole or none."""
    if not (Path(__file__).parents[2] / "bench" / "__main__.py").exists():
        pytest.skip("needs bench/, which is in a checkout of the repository")
    case = Case(tmp_path)
    out = tmp_path / "rows.json"
    rng = random.Random("bench")
    for number in range(TRIES):
        moment = rng.uniform(1.0, 16.0)
        code, err = case.interrupt(
            moment, number % 2 == 1, "bench", "--only", "oracles", "--json", out
        )
        assert code == 130 and "Traceback" not in err, (code, err)
        if out.exists():
            json.loads(out.read_text())
    figures("ctrl-c-bench", interrupted=TRIES)
