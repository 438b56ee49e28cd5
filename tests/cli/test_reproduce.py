"""`proxlin reproduce`: what it writes, what it refuses, and what survives an interruption."""

import os
import signal
import sqlite3
import sys
from pathlib import Path

import pytest


def contents(folder: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


def test_writes_everything_and_goes_on_where_it_was(cli, tmp_path):
    code, out, err = cli("reproduce", "aardvark", "--out", tmp_path)
    assert (
        (code, err) == (0, "")
        and "at work" in out
        and f"Report: {tmp_path}/report.html" in out
    )
    assert "C1: not resolved (quick profile; data: toys)" in out
    assert set(contents(tmp_path)) == {
        *(
            ".lock",
            "results.sqlite",
            "report.html",
            "tables/aardvark-curve.csv",
            "timings/runs.csv",
        ),
        "tables/verdicts.csv",
        *(f"figures/aardvark-curve.{suffix}" for suffix in ("svg", "png", "pdf")),
    }
    assert (tmp_path / "tables/aardvark-curve.csv").read_text().splitlines()[:2] == [
        "step,value,who,profile,data",
        '0,1.0,"<script>alert(\'x\')</script> & ""quotes""",quick,toys',
    ]
    code, out, _ = cli("reproduce", "aardvark", "--out", tmp_path)
    assert code == 0 and "kept from an earlier run" in out and "at work" not in out


def test_the_same_request_gives_the_same_bytes(cli, tmp_path):
    for folder in ("one", "two"):
        cli("reproduce", "aardvark", "--out", tmp_path / folder)
    for part in ("tables", "figures"):
        assert contents(tmp_path / "one" / part) == contents(tmp_path / "two" / part)


def test_dry_run_touches_nothing(cli, tmp_path):
    code, out, _ = cli("reproduce", "aardvark", "--dry-run", "--out", tmp_path / "new")
    assert (code, out) == (0, "aardvark: A toy\n") and not (tmp_path / "new").exists()


def test_only_and_quiet(cli, tmp_path):
    code, out, err = cli(
        *("reproduce", "all", "--only", "aardvark", "--quiet", "--out", tmp_path),
        experiments="toy,toy_slow",
    )
    assert (code, out, err) == (0, "", "") and (tmp_path / "report.html").exists()


def test_refuses_wrong_options(refused, tmp_path):
    out = tmp_path / "out"
    assert "aardvark" in refused("reproduce", "nosuch", "--out", out)
    assert "quick, paper" in refused(
        "reproduce", "aardvark", "--profile", "fast", "--out", out
    )
    assert "--workers -1" in refused(
        "reproduce", "aardvark", "--workers", "-1", "--out", out
    )
    assert "--seed -1" in refused("reproduce", "aardvark", "--seed", "-1", "--out", out)
    assert "--engine slurm" in refused(
        "reproduce", "aardvark", "--engine", "slurm", "--out", out
    )
    assert "no_such_module" in refused(
        "reproduce", "all", "--out", out, experiments="no_such_module"
    )
    assert not out.exists()


def test_refuses_an_out_that_is_a_file(refused, tmp_path):
    file = tmp_path / "file"
    file.write_text("mine")
    assert str(file) in refused("reproduce", "aardvark", "--out", file)
    assert str(file) in refused("reproduce", "aardvark", "--out", file / "below")
    assert file.read_text() == "mine"


@pytest.mark.skipif(
    sys.platform != "linux",
    reason="names a folder that not even root can write to, by Linux's /proc",
)
def test_refuses_an_out_that_cannot_be_written(refused, tmp_path):
    assert "/proc/proxlin" in refused("reproduce", "aardvark", "--out", "/proc/proxlin")
    assert "/proc/self" in refused("reproduce", "aardvark", "--out", "/proc/self")
    if os.geteuid() != 0:  # root writes anywhere
        tmp_path.chmod(0o500)
        assert str(tmp_path) in refused("reproduce", "aardvark", "--out", tmp_path)


def test_refuses_a_database_that_is_not_its_own(refused, tmp_path):
    database = tmp_path / "results.sqlite"
    database.write_text(
        "not a database, but long enough to be taken for the header of one " * 10
    )
    before = database.read_bytes()
    assert "results.sqlite" in refused("reproduce", "aardvark", "--out", tmp_path)
    assert database.read_bytes() == before

    database.unlink()
    with sqlite3.connect(database) as connection:
        connection.execute("CREATE TABLE mine (x)")
    assert "format 0" in refused("reproduce", "aardvark", "--out", tmp_path)


def test_an_experiment_that_fails_keeps_the_others(cli, tmp_path):
    asked = (
        "reproduce",
        "all",
        "--only",
        "aardvark",
        "--only",
        "lemming",
        "--out",
        tmp_path,
    )
    code, _, err = cli(*asked, experiments="toy,toy_slow")
    assert (
        code == 1
        and err
        == "proxlin: internal error, ZeroDivisionError: on purpose; --debug shows where.\n"
    )
    assert (tmp_path / "tables/aardvark-curve.csv").exists()
    code, _, err = cli(
        "reproduce", "lemming", "--debug", "--out", tmp_path, experiments="toy_slow"
    )
    assert code == 1 and "Traceback" in err


def test_interrupt_keeps_what_is_finished_and_a_second_command_waits_its_turn(
    start, cli, refused, tmp_path
):
    asked = (
        "reproduce",
        "all",
        "--only",
        "aardvark",
        "--only",
        "sloth",
        "--out",
        tmp_path,
    )
    process = start(*asked, experiments="toy,toy_slow")
    assert any("asleep" in line for line in process.stdout)

    before = contents(tmp_path)
    assert "another proxlin command" in refused(
        "reproduce", "aardvark", "--out", tmp_path
    )
    assert "another proxlin command" in refused("report", tmp_path)
    assert contents(tmp_path) == before

    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=60)
    assert (
        process.returncode == 130
        and err.startswith("Interrupted: ")
        and "Traceback" not in err
    )
    assert contents(tmp_path) == before

    code, out, _ = cli("reproduce", "aardvark", "--out", tmp_path)
    assert code == 0 and "kept from an earlier run" in out
