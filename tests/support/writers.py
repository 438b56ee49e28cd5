"""Processes that write files: one whose system calls fail, and two that write the same files at
once.
"""

import json
import subprocess
import sys
from pathlib import Path

from processes import SUPPORT, environment

WRITER = """
import sys, time
from proxlin.files import write_file, write_folder
end, mine, count = time.monotonic() + float(sys.argv[2]), sys.argv[3].encode() * 200_000, 0
while time.monotonic() < end:
    write_file(sys.argv[1] + "/file", mine)
    write_folder(sys.argv[1] + "/out", {name: mine for name in ("a", "deep/b", "c")})
    count += 1
print(count)
"""


def python(code: str, *arguments: object, **options: object) -> subprocess.Popen:
    return subprocess.Popen(
        [sys.executable, "-c", code, *map(str, arguments)], **options
    )


def faults(scenario: str, work: Path, *kinds: str) -> dict[str, int]:
    """Run faults.py in a process without JAX and its threads, as it forks."""
    command = [
        sys.executable,
        "-W",
        "ignore",
        str(SUPPORT / "faults.py"),
        scenario,
        str(work),
        *kinds,
    ]
    found = subprocess.run(
        command, env=environment(), capture_output=True, text=True, check=False
    )
    assert found.returncode == 0, found.stderr[-2000:]
    return json.loads(found.stdout.splitlines()[-1])


def compete(folder: Path, seconds: float) -> dict[str, int]:
    """Let two processes write the same files and read them meanwhile: how often each."""
    pipe = subprocess.PIPE
    writers = [
        python(WRITER, folder, seconds, mine, stdout=pipe, stderr=pipe, text=True)
        for mine in "xy"
    ]
    reads = 0
    while any(writer.poll() is None for writer in writers):
        for path in (folder / "file", folder / "out/a", folder / "out/deep/b"):
            if path.exists():
                content = path.read_bytes()
                assert content in (b"x" * 200_000, b"y" * 200_000)
                reads += 1
    written = [writer.communicate() for writer in writers]
    assert all(err == "" for _, err in written), written
    # of one writer
    assert (
        len(
            {
                path.read_bytes()
                for path in (folder / "out").rglob("*")
                if path.is_file()
            }
        )
        == 1
    )
    return {"writes": sum(int(out) for out, _ in written), "reads": reads}
