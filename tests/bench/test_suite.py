"""How the benchmarks measure and report, without running one: rounds, ratios, caps, the table and
its JSON.
"""

import argparse
import json
import subprocess
import sys
from pathlib import Path

import pytest

from bench import __main__ as suite
from bench import harness, table

ROOT = Path(__file__).parents[2]


def fake(*times):
    """A run that takes these times, one after the other, and counts its calls."""

    def run():
        run.calls += 1
        return times[min(run.calls, len(times)) - 1]

    run.calls = 0
    return run


def test_a_race_pairs_the_times_of_a_round():
    (row,) = harness.race(
        "case", fake(1.0, 2.0, 4.0), {"peer": fake(2.0, 8.0, 12.0)}, 3, compile=0.5
    )
    assert (row["ours"], row["theirs"], row["compile"]) == (2.0, 8.0, 0.5)
    assert (row["low"], row["ratio"], row["high"]) == (2.5, 3.0, 3.5)  # of 2, 4 and 3


def test_a_race_without_peers_has_our_quartiles():
    (row,) = harness.race("case", fake(1.0, 2.0, 4.0), {}, 3, compile=0.5)
    assert (row["peer"], row["fast"], row["ours"], row["slow"], row["compile"]) == (
        "",
        1.5,
        2.0,
        3.0,
        0.5,
    )
    assert "ours 2 s (1.5 s to 3 s)" in harness.show(
        row
    ) and "2 s (1.5 s to 3 s)" in table.cells(row)


def test_slow_cut_off_inexact_and_missing_peers_are_all_named():
    slow, cut, inexact = fake(61.0), fake(float("inf")), fake(None)
    peers = {"slow": slow, "cut": cut, "inexact": inexact, "absent": None}
    rows = {row["peer"]: row for row in harness.race("case", fake(2.0), peers, 5)}
    assert slow.calls == cut.calls == inexact.calls == 1
    assert rows["slow"]["ratio"] == 30.5 and rows["slow"]["note"] == ""
    assert (
        rows["cut"]["over"] == 120.0
        and rows["cut"]["ratio"] == 60.0
        and "> 120 s" in harness.show(rows["cut"])
    )
    assert (
        rows["inexact"]["ratio"] is None
        and rows["inexact"]["note"] == "accuracy not reached"
    )
    assert rows["absent"]["note"] == "not installed" and rows["absent"]["ours"] == 2.0


def test_ours_has_to_reach_the_accuracy():
    with pytest.raises(AssertionError, match="case"):
        harness.race("case", fake(None), {"peer": fake(1.0)}, 1)


def test_targets_go_into_the_note():
    peers = {
        "fast": fake(0.5),
        "twin": fake(3.0),
        "cut": fake(float("inf")),
        "free": fake(1.0),
        "absent": None,
    }
    rows = harness.race("case", fake(1.0), peers, 1, notes={"twin": "said"})
    targets = {"fast": 1 / 1.15, "twin": 1.5, "cut": 200.0, "absent": 2.0}
    notes = {row["peer"]: row["note"] for row in harness.judged(rows, targets)}
    assert notes["fast"] == "target: ours <= 1.15 x MISSED"
    assert notes["twin"] == "target >= 1.5 kept; said"
    assert notes["cut"] == "target >= 200 undecided"
    assert notes["free"] == "" and notes["absent"] == "not installed"


def test_a_benchmark_leaves_its_rows_when_it_fails(tmp_path, capsys):
    def rows(arguments: argparse.Namespace):
        yield harness.count("problems solved", "peer", 27, arguments.repeats)
        raise RuntimeError

    file = tmp_path / "rows.json"
    with pytest.raises(RuntimeError):
        harness.run_as_command("fake", "", rows, ["--json", str(file)], repeats=3)
    assert [row["theirs"] for row in json.loads(file.read_text())] == [3]
    assert "ours 27, theirs 3" in capsys.readouterr().out


@pytest.fixture
def report():
    peers = {
        "torch": fake(0.003),
        "optax, scan": fake(0.0005),
        "slow": fake(float("inf")),
        "pyepo": None,
    }
    rows = harness.race("a | b", fake(0.001), peers, 1, compile=2.0)
    rows += harness.race("step", fake(1.0), {"a plain sum": fake(0.1)}, 1)  # no peer
    rows += [harness.count("training", "limit", 1.2, 1.5, "kept", "GiB")]
    done = {"seconds": 3.0, "status": "done", "rows": json.loads(json.dumps(rows))}
    failed = {"seconds": 1.0, "status": "failed", "rows": []}
    return suite._about() | {"benchmarks": {"steps": done, "nist": failed}}


def test_the_table_as_text(report):
    lines = table.text(report, suite.SUITE).splitlines()
    (torch,) = [line for line in lines if " torch  " in line]
    assert (
        torch.split("  ")[0] == "a | b"
        and "1 ms" in torch
        and "3 (3 to 3)" in torch
        and "2 s" in torch
    )
    assert any("> 120 s" in line and "> 1.2e+05" in line for line in lines)
    assert any("1.2 GiB" in line and "1.5 GiB" in line for line in lines)
    assert lines[-4:] == [
        "as fast or faster in 2 of 3 comparisons with a peer",
        "behind: a | b / optax, scan (0.5)",
        "not installed: pyepo",
        "failed: nist",
    ]


def test_the_table_in_a_page(report):
    text = table.markdown(report, suite.SUITE)
    lines = [line for line in text.splitlines() if line.startswith("|")]
    assert {line.replace("\\|", "").count("|") for line in lines} == {
        len(table.HEAD) + 1
    }
    assert "### 3. SGD and PLI steps" in text and f"jax {suite._version('jax')}" in text
    page = f"before\n{table.BEGIN}\nold\n{table.END}\nafter\n"
    once = table.between_markers(page, text)
    assert once == table.between_markers(once, text)
    assert (
        once.startswith("before\n") and once.endswith("\nafter\n") and "old" not in once
    )
    with pytest.raises(ValueError, match="needs one line"):
        table.between_markers("no markers", text)


def test_the_page_has_the_markers():
    assert table.between_markers((ROOT / "docs" / "performance.md").read_text(), "")


def test_versions_of_what_is_not_there_are_none():
    about = suite._about()
    assert about["versions"]["jax"] and about["cpu"] and about["cores"] >= 1
    assert suite._version("no-such-distribution") is None


def bench(*arguments):
    command = [sys.executable, "-m", "bench", *arguments]
    return subprocess.run(
        command, cwd=ROOT, capture_output=True, text=True, check=False
    )


def test_the_list():
    listed = bench("--list")
    assert listed.returncode == 0
    assert [line.split()[0] for line in listed.stdout.splitlines()][
        1 : 1 + len(suite.SUITE)
    ] == list(suite.SUITE)
    assert {"advisor", "memory", "words"} <= set(
        listed.stdout.split()
    ) and "harness" not in listed.stdout


def test_wrong_use(tmp_path, capsys):
    assert suite.main(["--only", "nope"]) == 2
    assert capsys.readouterr().err.startswith("bench: --only nope: there is robust, ")
    assert suite.main(["--only", "steps", "--docs"]) == 2
    assert (
        suite.main(["--ours", "--docs"])
        == suite.main(["--ours", "--only", "nist"])
        == 2
    )
    assert suite.main(["--from", "no-such-file"]) == 2
    for number, text in enumerate(("{", "[]", "{}", '{"benchmarks": 3}')):
        (tmp_path / f"{number}.json").write_text(text)
        assert suite.main(["--from", str(tmp_path / f"{number}.json")]) == 2
    (tmp_path / "file").touch()
    for only in ([], ["--only", "steps"]):
        assert suite.main([*only, "--json", str(tmp_path / "file" / "rows.json")]) == 2
        assert capsys.readouterr().err.endswith("cannot be written.\n")


INTERRUPTED = """
import signal, sys
from bench import __main__ as suite
signal.signal(signal.SIGINT, signal.default_int_handler)
suite.CALL = '''
import json, os, pathlib, signal, sys, time
pathlib.Path(sys.argv[2]).write_text(json.dumps([dict(case="{name}", peer="p", ours=1.0, theirs=2.0, unit="s")]))
os.kill(os.getppid(), signal.SIGINT)
time.sleep(60)
'''
sys.exit(suite.main(sys.argv[1:]))
"""


def test_ctrl_c_keeps_the_rows_so_far(tmp_path, capsys):
    file = tmp_path / "new" / "bench.json"
    command = [sys.executable, "-c", INTERRUPTED, "--json", str(file)]
    found = subprocess.run(
        command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=60
    )
    assert found.returncode == 130, found.stderr
    kept = json.loads(file.read_text())["benchmarks"]
    assert list(kept) == ["robust"] and kept["robust"]["status"] == "interrupted"
    assert [row["case"] for row in kept["robust"]["rows"]] == [
        "robust"
    ] and "interrupted: robust" in found.stdout
    assert suite.main(["--from", str(file)]) == 130
    assert found.stdout.endswith(capsys.readouterr().out)


def test_a_run_goes_on_where_it_was_stopped(monkeypatch, tmp_path, capsys):
    """What is done is kept, what failed or was interrupted runs again, in the order of the suite."""
    ran = []

    def part(name, options):
        ran.append(name)
        return {
            "seconds": 1.0,
            "date": "now",
            "load": 0.0,
            "status": "done",
            "rows": [],
        }

    monkeypatch.setattr(suite, "_part", part)
    file = tmp_path / "run.json"
    assert suite.main(["--only", "nist", "--json", str(file)]) == 0
    report = json.loads(file.read_text())
    report["benchmarks"]["steps"] = report["benchmarks"]["nist"] | {"status": "failed"}
    file.write_text(json.dumps(report))
    for name in ("steps", "robust", "nist"):
        options = ["--only", name, "--json", str(file), "--go-on"]
        assert suite.main(options) == 0
    assert ran == ["nist", "steps", "robust"]
    assert list(json.loads(file.read_text())["benchmarks"]) == [
        "robust",
        "steps",
        "nist",
    ]
    file.write_text("no report")
    assert suite.main(["--only", "nist", "--json", str(file), "--go-on"]) == 2
    assert "is not the JSON of a run of the suite" in capsys.readouterr().err


def test_what_a_run_lacks_stays_on_the_page(report):
    """In the order of the suite, and without a second copy."""
    page = f"{table.BEGIN}\nold\n{table.END}"
    whole = table.between_markers(page, table.markdown(report, suite.SUITE))
    later = report | {"benchmarks": {"robust": report["benchmarks"]["steps"]}}
    kept = table.sections(whole, suite.SUITE)
    assert set(kept) == {"steps", "nist"}
    text = table.markdown(later, suite.SUITE, kept)
    titles = [line[4:] for line in text.splitlines() if line.startswith("### ")]
    assert titles == [suite.SUITE[name] for name in ("robust", "steps", "nist")]
    assert kept["steps"] in text
