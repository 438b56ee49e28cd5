"""Files under attack by the system: a fault at every call that writes, and two writers of one file."""

import subprocess
import sys
from pathlib import Path

import pytest

from writers import compete, faults

pytestmark = pytest.mark.slow

SAVER = """
import sys, time
import jax.numpy as jnp
import proxlin as px
problem = px.MeanOfLosses(lambda w, x: x - w, px.L2(), jnp.ones((4, 2)))
solution = px.minimize(problem, jnp.zeros(2), px.sgd(0.1), steps=int(sys.argv[2]))
end, count = time.monotonic() + 20, 0
while time.monotonic() < end:
    solution.save(sys.argv[1])
    px.load_solution(sys.argv[1])
    count += 1
print(count)
"""


@pytest.mark.parametrize(
    "scenario",
    [
        "file",
        "new_file",
        "folder",
        "new_folder",
        "save",
        "program",
        "fit",
        "new_fit",
        "parts",
        "fit_save",
        "predict",
        "report",
        "reproduce",
    ],
)
def test_faults_at_every_call(scenario, tmp_path, figures):
    """tests/support/faults.py says what the folder may be afterwards; here, which of the outcomes
    there are.
    """
    found = faults(scenario, tmp_path / "work")
    figures(f"faults-{scenario}", **found)
    assert found["failed, old"] and found["killed, old"] and found["killed, new"]
    # several files, in a folder that exists
    together = scenario in ("folder", "fit", "parts", "report", "reproduce")
    assert together == ("killed, finished" in found)


def test_two_writers_for_a_while(tmp_path, figures):
    figures("two-writers", **compete(tmp_path, 20.0))


def test_two_processes_save_one_solution(tmp_path: Path, figures):
    command = [sys.executable, "-c", SAVER, str(tmp_path / "solution.npz")]
    pipe = subprocess.PIPE
    savers = [
        subprocess.Popen([*command, steps], stdout=pipe, stderr=pipe, text=True)
        for steps in "24"
    ]
    ended = [saver.communicate(timeout=300) for saver in savers]
    assert [saver.returncode for saver in savers] == [0, 0], ended
    figures("two-savers", saves=sum(int(out) for out, _ in ended), errors=0)
    assert [path.name for path in tmp_path.iterdir()] == ["solution.npz"]
