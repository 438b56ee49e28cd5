"""Sweeps through the command line: the same bytes whatever happens on the way."""

import os
import random
import signal
import socket
import sqlite3
import subprocess
import sys
import time
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

import pytest

from processes import environment
from proxlin.errors import UserError
from proxlin.experiments.engine import cluster as dask_engine
from proxlin.experiments.engine import workers as engines
from proxlin.experiments.engine.base import Case
from proxlin.experiments.engine.config import parse, profiles

ASKED = ("reproduce", "chef", "--seed", "1", "--out")


def tables(folder: Path) -> dict[str, bytes]:
    return {
        path.name: path.read_bytes() for path in sorted((folder / "tables").iterdir())
    }


def finished(folder: Path) -> int:
    """The number of cases in the store; 0 before there is one."""
    try:
        with sqlite3.connect(
            f"file:{folder / 'results.sqlite'}?mode=ro", uri=True, timeout=30
        ) as connection:
            return connection.execute("SELECT count(*) FROM cases").fetchone()[0]
    except sqlite3.Error:
        return 0


@pytest.fixture
def sweep(cli):
    def run(out: Path, *more: object) -> tuple[int, str, str]:
        return cli(*ASKED, out, *more, experiments="toy_sweep")

    return run


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory):
    """The tables of a run that nothing disturbed, on one worker."""
    out = tmp_path_factory.mktemp("undisturbed")
    command = [sys.executable, "-m", "proxlin.cli", *ASKED, str(out), "--workers", "1"]
    subprocess.run(
        command,
        env=environment(PROXLIN_EXPERIMENTS="toy_sweep"),
        check=True,
        capture_output=True,
    )
    return tables(out)


def test_the_number_of_workers_does_not_change_a_byte(sweep, undisturbed, tmp_path):
    code, out, err = sweep(tmp_path, "--workers", 3)
    assert (code, err) == (0, "") and "cooking" in out
    assert tables(tmp_path) == undisturbed
    assert finished(tmp_path) == 16 and (tmp_path / "cases.parquet").exists()


def _killed(start, out: Path, counts: list[int], undisturbed: dict[str, bytes]) -> None:
    """Kill -9 the whole process group when so many cases are finished, and start again."""
    for count in counts:
        process = start(
            *ASKED, out, "--workers", 2, experiments="toy_sweep", start_new_session=True
        )
        deadline = time.monotonic() + 60
        while finished(out) < count and time.monotonic() < deadline:
            time.sleep(0.01)
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate()
        assert finished(out) >= count
    process = start(*ASKED, out, "--workers", 2, experiments="toy_sweep")
    _, err = process.communicate(timeout=120)
    assert process.returncode == 0, err
    assert tables(out) == undisturbed


def test_kill_9_of_everything_at_three_moments(start, undisturbed, tmp_path):
    _killed(start, tmp_path, [1, 6, 12], undisturbed)


@pytest.mark.slow
def test_kill_9_of_everything_at_twenty_moments(start, undisturbed, tmp_path):
    rng = random.Random(0)
    for each in range(10):
        _killed(
            start, tmp_path / str(each), sorted(rng.sample(range(17), 2)), undisturbed
        )


def test_a_worker_that_dies_is_replaced(sweep, undisturbed, tmp_path, monkeypatch):
    monkeypatch.setenv("TOY_KILL_ONCE", str(tmp_path / "killed"))
    code, _, err = sweep(tmp_path / "out", "--workers", 2)
    assert (code, err) == (0, "") and (tmp_path / "killed").exists()
    assert tables(tmp_path / "out") == undisturbed


def test_a_case_that_kills_every_worker_is_named(refused, tmp_path, monkeypatch):
    monkeypatch.setenv("TOY_DEADLY", "1")
    said = refused(*ASKED, tmp_path, "--workers", 1, experiments="toy_sweep")
    assert "died 3 times" in said and "'i': 5" in said and finished(tmp_path) > 0


def test_ctrl_c_keeps_what_is_finished(start, sweep, undisturbed, tmp_path):
    process = start(*ASKED, tmp_path, "--workers", 2, experiments="toy_sweep")
    deadline = time.monotonic() + 60
    while finished(tmp_path) < 3 and time.monotonic() < deadline:
        time.sleep(0.05)
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=60)
    kept = finished(tmp_path)
    assert (
        process.returncode == 130
        and err.startswith("Interrupted: ")
        and err.count("\n") == 1
    )
    assert 3 <= kept < 16
    assert sweep(tmp_path)[0] == 0 and tables(tmp_path) == undisturbed


def test_dask_gives_the_same_bytes_also_when_a_worker_is_killed(
    sweep, require, undisturbed, tmp_path, monkeypatch
):
    require(
        find_spec("distributed"), "needs distributed: pip install 'proxlin[cluster]'"
    )
    monkeypatch.setenv("TOY_KILL_ONCE", str(tmp_path / "killed"))
    code, _, err = sweep(tmp_path / "out", "--workers", 2, "--engine", "dask")
    assert code == 0, err
    assert (tmp_path / "killed").exists() and tables(tmp_path / "out") == undisturbed


# -------------------------------------------------------------------------- workers that are silent


def test_a_worker_that_is_stopped_is_replaced(
    sweep, undisturbed, tmp_path, monkeypatch
):
    monkeypatch.setenv("TOY_STOP_ONCE", str(tmp_path / "stopped"))
    code, _, err = sweep(tmp_path / "out", "--workers", 2, "--silence", 4)
    assert (code, err) == (0, "") and (tmp_path / "stopped").exists()
    assert tables(tmp_path / "out") == undisturbed


@pytest.mark.slow
def test_a_case_that_stops_every_worker_is_named(refused, tmp_path, monkeypatch):
    monkeypatch.setenv("TOY_STOP", "1")
    said = refused(
        *ASKED, tmp_path, "--workers", 1, "--silence", 4, experiments="toy_sweep"
    )
    assert "silent for 4 s" in said and "'i': 5" in said and finished(tmp_path) > 0


def test_lapack_has_one_thread_in_a_worker(monkeypatch):
    """Its idle threads spin, so that an exact step took fifty times the CPU time. A case tells its CPU time."""
    pytest.importorskip("threadpoolctl")
    for name in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"):
        monkeypatch.setenv(name, "2")
    before = dict(os.environ)
    engine = engines.Local(1)
    try:
        ((_, outcome),) = engine.outcomes([Case("toy_threads:count", {})])
    finally:
        engine.close()
    assert outcome.error is None
    threads = outcome.result["threads"]
    assert threads == [1] * len(threads) and threads
    assert 0 < outcome.run["cpu_seconds"] < 100
    assert dict(os.environ) == before


def test_silence_is_counted_while_awake(monkeypatch):
    """A sign of life is a number that changes; time in which this process itself slept is nobody's
    silence.
    """
    now = [0.0]
    monkeypatch.setattr(engines.time, "monotonic", lambda: now[0])
    watch = engines.Watch()
    assert watch.look({"a": 1.0, "b": 1.0}) == {"a": 0, "b": 0}
    now[0] = 1.0
    assert watch.look({"a": 1.0, "b": 2.0}) == {"a": 1, "b": 0}
    now[0] = 1e6
    assert watch.look({"a": 1.0, "c": 1.0}) == {"a": 1 + 4 * engines.BEAT, "c": 0}
    assert watch.look({"b": 2.0}) == {"b": 0}  # gone and back


@pytest.fixture
def cluster(require, tmp_path):
    """A Dask scheduler and two workers, processes of their own: (address, scheduler, workers)."""
    require(find_spec("distributed"), "distributed is not installed")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = f"tcp://127.0.0.1:{free.getsockname()[1]}"
    started = []

    def dask(*arguments: str) -> subprocess.Popen:
        command = [sys.executable, "-m", *arguments, "--no-dashboard"]
        null = subprocess.DEVNULL
        started.append(
            subprocess.Popen(
                command, env=environment(), stdout=null, stderr=null, cwd=tmp_path
            )
        )
        return started[-1]

    scheduler = dask(
        "distributed.cli.dask_scheduler",
        "--host",
        "127.0.0.1",
        "--port",
        address.rpartition(":")[2],
    )
    worker = ("distributed.cli.dask_worker", address, "--nthreads", "1", "--no-nanny")
    yield address, scheduler, [dask(*worker), dask(*worker)]
    for process in started:
        process.kill()
        process.wait()


def disturbed(start, cluster, out: Path, disturb) -> tuple[int, str]:
    """A sweep on the cluster, which is disturbed when two cases are finished: (exit code, standard
    error).
    """
    address, scheduler, workers = cluster
    given = ("--engine", "dask", "--scheduler", address, "--silence", 10)
    process = start(*ASKED, out, *given, experiments="toy_sweep")
    deadline = time.monotonic() + 240
    while finished(out) < 2 and time.monotonic() < deadline:
        time.sleep(0.02)
    disturb(scheduler, workers)
    _, err = process.communicate(timeout=120)
    return process.returncode, err


def stop(*processes: subprocess.Popen) -> None:
    for each in processes:
        each.send_signal(signal.SIGSTOP)


def test_a_scheduler_that_dies_is_one_sentence(
    start, sweep, undisturbed, cluster, tmp_path
):
    code, err = disturbed(
        start, cluster, tmp_path / "out", lambda scheduler, workers: scheduler.kill()
    )
    assert (
        code == 2
        and err.startswith("proxlin: the Dask scheduler at ")
        and err.count("\n") == 1
    ), err
    assert "every finished case is kept" in err and 2 <= finished(tmp_path / "out") < 16
    assert sweep(tmp_path / "out")[0] == 0 and tables(tmp_path / "out") == undisturbed


@pytest.mark.slow
@pytest.mark.parametrize("which", ["scheduler", "workers"])
def test_a_cluster_that_is_stopped_is_one_sentence(which, start, cluster, tmp_path):
    disturb = lambda scheduler, workers: stop(
        *([scheduler] if which == "scheduler" else workers)
    )
    code, err = disturbed(start, cluster, tmp_path / "out", disturb)
    word = (
        "does not answer any more"
        if which == "scheduler"
        else "has had no worker for 10 s"
    )
    assert code == 2 and word in err and err.count("\n") == 1, err
    assert "every finished case is kept" in err and 2 <= finished(tmp_path / "out") < 16


@pytest.mark.slow
def test_the_cases_of_a_stopped_worker_run_on_another(
    start, undisturbed, cluster, tmp_path
):
    code, err = disturbed(
        start, cluster, tmp_path / "out", lambda scheduler, workers: stop(workers[0])
    )
    assert (code, err) == (0, "") and tables(tmp_path / "out") == undisturbed


@pytest.mark.slow
def test_a_stopped_worker_of_our_own_cluster_is_replaced(
    sweep, require, undisturbed, tmp_path, monkeypatch
):
    require(find_spec("distributed"), "distributed is not installed")
    monkeypatch.setenv("TOY_STOP_ONCE", str(tmp_path / "stopped"))
    code, _, err = sweep(
        tmp_path / "out", "--workers", 1, "--engine", "dask", "--silence", 6
    )
    assert (code, err) == (0, "") and tables(tmp_path / "out") == undisturbed


def test_another_request_on_the_same_folder_is_refused(sweep, refused, tmp_path):
    assert sweep(tmp_path)[0] == 0
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    chef = ("reproduce", "chef", "--out", tmp_path)
    assert "another seed (1, not 2)" in refused(
        *chef, "--seed", 2, experiments="toy_sweep"
    )
    said = refused(*chef, "--seed", 1, "--profile", "paper", experiments="toy_sweep")
    assert "another profile (quick, not paper)" in said
    config = tmp_path.parent / "other.toml"
    config.write_text("[quick]\nsize = 7\n")
    assert "another config" in refused(
        *chef, "--seed", 1, "--config", config, experiments="toy_sweep"
    )
    assert {
        path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()
    } == before


def test_a_full_disk_is_one_sentence(start, sweep, undisturbed, tmp_path):
    """A limit on the size of files stands in for the disk; what was kept is good for going on."""
    process = start(*ASKED, tmp_path, experiments="toy_sweep", limit=20 * 1024)
    _, err = process.communicate(timeout=120)
    assert (
        process.returncode == 2 and err.startswith("proxlin: ") and err.count("\n") == 1
    ), err
    assert "results.sqlite" in err
    assert sweep(tmp_path)[0] == 0 and tables(tmp_path) == undisturbed


def test_bad_configs_and_engines_are_one_sentence(refused, tmp_path):
    bad = tmp_path / "bad.toml"
    ask = ("reproduce", "fig2", "--out", tmp_path / "out", "--config")
    assert "no such file" in refused(*ask, bad)
    bad.write_text("[quick]\nsample = [1]\n")
    assert "no setting sample" in refused(*ask, bad)
    assert "one experiment" in refused(
        "reproduce", "all", "--out", tmp_path / "out", "--config", bad
    )
    assert "--engine dask" in refused(
        "reproduce", "fig2", "--scheduler", "tcp://x:1", "--out", tmp_path / "out"
    )
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    "address",
    ["", " ", "nonsense", "tcp://nohost", "http://x", "tcp://:8786", "tcp://x:99999"],
)
def test_what_is_no_address_of_a_scheduler_is_refused(address):
    pytest.importorskip("distributed")
    with pytest.raises(UserError, match="is not the address") as raised:
        dask_engine.check_address(address)
    assert repr(address) in str(raised.value)


@pytest.mark.parametrize("address", ["", "tcp://nohost"])
def test_an_address_is_checked_before_the_work(address, refused, tmp_path):
    pytest.importorskip("distributed")
    out = tmp_path / "out"
    ask = ("reproduce", "fig2", "--out", out, "--engine", "dask", "--scheduler")
    assert "tcp://host:8786" in refused(*ask, address)
    assert not out.exists()


@pytest.mark.parametrize("address", ["nonsense", "tcp://127.0.0.1:1", "tls://x:1"])
def test_a_client_that_cannot_connect_is_closed(address, monkeypatch):
    """Else it waits for a minute at the end of the process, and says so with a traceback."""
    distributed = pytest.importorskip("distributed")
    clients = []

    class Client(distributed.Client):
        def __init__(self, *arguments, **options):
            clients.append(self)
            super().__init__(*arguments, **options)

    monkeypatch.setattr(distributed, "Client", Client)
    monkeypatch.setattr(dask_engine, "CONNECTING", "1s")
    with pytest.raises(UserError, match="no Dask scheduler answers"):
        next(dask_engine.Dask(address, 1).outcomes([]))
    assert [each.status for each in clients] == ["closed"]


@dataclass(frozen=True)
class Schema:
    sizes: tuple[int, ...]
    rate: float
    name: str = "x"

    def __post_init__(self):
        if self.rate <= 0:
            raise ValueError("rate has to be positive.")


def test_configs_are_checked():
    assert parse(Schema, {"sizes": [1, 2], "rate": 1}) == Schema((1, 2), 1.0)
    good = {"sizes": [1], "rate": 0.5}
    for config, word in (
        ({**good, "sise": 1}, "no setting sise"),
        ({"rate": 0.5}, "lacks the setting sizes"),
        ({**good, "sizes": 1}, "sizes has to be a list"),
        ({**good, "sizes": [1.5]}, "sizes has to be of the type int"),
        ({**good, "sizes": [True]}, "sizes has to be of the type int"),
        ({**good, "rate": "fast"}, "rate has to be of the type float"),
        ({**good, "name": 3}, "name has to be of the type str"),
        ({**good, "rate": -1}, "rate has to be positive"),
        ({**good, "rate": float("inf")}, "rate has to be a finite number"),
        ({**good, "sizes": [10**7]}, "sizes has to be a number up to 1000000"),
    ):
        with pytest.raises(UserError, match=word):
            parse(Schema, config)
    for text, word in (
        (b"[quick\n", "not a TOML file"),
        (b"\xff", "not a TOML file"),
        (b"[slow]\n", "slow is not a profile"),
        (b"[quick]\nx = " + b"1" * 5000, "not a TOML file"),
    ):
        with pytest.raises(UserError, match=word):
            profiles(text, "my.toml")


def test_a_dry_run_prints_cases_and_time(cli, tmp_path):
    code, out, _ = cli(
        "reproduce", "fig2", "--dry-run", "--workers", 2, "--out", tmp_path / "new"
    )
    assert (
        code == 0
        and "method=pli, width=64" in out
        and "more follow" in out
        and "with 2 workers" in out
    )
    assert not (tmp_path / "new").exists()
