"""`make quick`: lint, types and the tests of the rooms that changed, in about a minute.

What changed is the difference to the branch `main`, or to the last commit where there is no other
branch, and every file that git does not know yet. `make test` is what a change must pass in the
end.

    src/proxlin/outers/norms.py    ->  tests/outers, and the examples in the docstrings of the file
    tests/run/test_compiled.py     ->  that file
    docs/fit.md                    ->  its Python blocks, and the tests of the site

This file is also a plugin of pytest: tests that would begin when the time is up are skipped, and a
last line says so.
"""

import os
import random
import subprocess
import sys
import time
from collections.abc import Iterable
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
# after which no test begins; the rest of the minute is for starting and for the last tests
SECONDS = 40.0
# seconds for the tests, however long a busy machine took to collect them
AT_LEAST = 15.0
RUFF = (("check", "--quiet"), ("format", "--check", "--quiet"))
STARTED = "PROXLIN_QUICK_STARTED"
ALWAYS = ("tests/package/test_layering.py",)  # it takes a second
# Where a room is tested beside the folder of its name, which it may not have.
TESTED_IN = {
    "__init__": ("tests/package",),
    "__main__": ("tests/cli/test_start.py",),
    "types": ("tests/package",),
    "checks": ("tests/package",),
    "errors": ("tests/package",),
    "inputs": ("tests/package/test_front_door.py", "tests/package/test_bad_input.py"),
    "later": ("tests/package/test_contract.py", "tests/package/test_packaging.py"),
    "trees": ("tests/solvers", "tests/problem/test_laws.py"),
    "precision": (
        "tests/package/test_front_door.py",
        "tests/problem/test_parameters.py",
    ),
    "shown": ("tests/package/test_front_door.py", "tests/tables/test_fit_object.py"),
    "slips": ("tests/package/test_slips.py",),
    "cost": ("tests/problem",),
    "rollouts": ("tests/problem/test_trajectory.py",),
    "compiled": ("tests/run",),
    "jaxprs": ("tests/run/test_sharing.py",),
    "networks": ("tests/inners",),
    "schedules": ("tests/solvers",),
    "tables": ("tests/cli/test_fit.py",),
    "plots": (
        "tests/cli/test_report.py",
        "tests/cli/test_strangers.py",
        "tests/experiments/test_theory.py",
        "tests/tables/test_fit_object.py",
    ),
}


class Deadline:
    """Mix the tests, so that every law has its turn, and skip those that would begin too late."""

    def __init__(self, started: float):
        self.until = started + SECONDS

    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        random.Random(0).shuffle(items)  # every worker has to find the same order

    def pytest_collection_finish(self) -> None:
        self.until = max(self.until, time.time() + AT_LEAST)

    def pytest_runtest_setup(self) -> None:
        if time.time() > self.until:
            pytest.skip(f"not begun within {SECONDS:.0f} seconds; `make test` runs it")


def pytest_configure(config: pytest.Config) -> None:
    config.pluginmanager.register(Deadline(float(os.environ[STARTED])))


def git(*arguments: str) -> list[str]:
    """Return the lines that git prints, none where it fails."""
    run = subprocess.run(
        ["git", *arguments], cwd=ROOT, capture_output=True, text=True, check=False
    )
    return run.stdout.splitlines() if run.returncode == 0 else []


def changed() -> list[Path]:
    """Return the files that differ from `main`, as far as they still exist, relative to the root."""
    base = (
        git("merge-base", "HEAD", "main")
        or git("merge-base", "HEAD", "origin/main")
        or ["HEAD"]
    )
    names = git("diff", "--name-only", base[0]) + git(
        "ls-files", "--others", "--exclude-standard"
    )
    return [Path(name) for name in dict.fromkeys(names) if (ROOT / name).is_file()]


def tests_of_room(room: str) -> Iterable[str]:
    """Yield the folder of the room, and where else it is tested."""
    if (ROOT / "tests" / room).is_dir():
        yield f"tests/{room}"
    yield from TESTED_IN.get(room, ())


def tests_of(path: Path) -> Iterable[str]:
    """Yield what pytest should run because a file changed."""
    if path.parts[:2] == ("src", "proxlin") and path.suffix == ".py":
        yield from tests_of_room(Path(path.parts[2]).stem)
        yield str(path)
    elif path.parts[0] == "tests" and path.name.startswith("test_"):
        yield str(path)
    elif path.suffix == ".md" or path.parts[0] == "docs":
        yield "tests/docs/test_site.py"
        yield "tests/docs/test_architecture.py"
        if "```python\n" in (ROOT / path).read_text(encoding="utf-8", errors="ignore"):
            yield f"tests/docs/test_snippets.py::test_blocks_run[{path}]"


def chosen(files: list[Path]) -> list[str]:
    """Return the arguments of pytest: what the files ask for, as far as it exists, each once."""
    names = dict.fromkeys(
        [*(name for path in files for name in tests_of(path)), *ALWAYS]
    )
    return [name for name in names if (ROOT / name.split("::")[0]).exists()]


def main() -> int:
    files = changed()
    source = [
        str(path)
        for path in files
        if path.parts[:1] == ("src",) and path.suffix == ".py"
    ]
    tests = chosen(files)
    print(f"{len(files)} files changed; the tests: {' '.join(tests)}", flush=True)
    python = [sys.executable, "-m"]
    environment = {**os.environ, STARTED: str(time.time())}
    codes = [
        subprocess.run([*python, "ruff", *what, "."], cwd=ROOT, check=False).returncode
        for what in RUFF
    ]
    environment["PYTHONPATH"] = os.pathsep.join(
        [str(ROOT / "tests/support"), os.environ.get("PYTHONPATH", "")]
    )
    # The types are checked while the tests run: a minute has room for both only side by side.
    types = (
        subprocess.Popen(
            [*python, "pyright", "--pythonpath", sys.executable, *source], cwd=ROOT
        )
        if source
        else None
    )
    options = ["-q", "-p", "quick", "-m", "not slow and not reference"]
    code = subprocess.run(
        [*python, "pytest", *options, *tests], cwd=ROOT, env=environment, check=False
    ).returncode
    codes.append(0 if code == pytest.ExitCode.NO_TESTS_COLLECTED else code)
    if types is not None:
        codes.append(types.wait())
    return int(any(codes))


if __name__ == "__main__":
    sys.exit(main())
