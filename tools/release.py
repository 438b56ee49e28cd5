"""`make release`: build the sdist and the wheel, try them in an empty environment, and write the notes.

    python tools/release.py [--dirty]

An environment that holds nothing gets the wheel, then its extras one after the other, with the versions of
requirements.lock; after each step what a user would try first is tried. dist/ then holds the two archives, their
checksums, and the section of CHANGELOG.md as RELEASE_NOTES.md. Nothing is uploaded.
"""

import email
import hashlib
import os
import re
import shlex
import shutil
import subprocess
import sys
import tarfile
import tempfile
import time
import venv
import zipfile
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).parents[1]
DIST = ROOT / "dist"
NOTES = "RELEASE_NOTES.md"
TABLE = "x,y\n" + "".join(
    f"{i},{2 * i + 1 + (50 if i == 7 else 0)}\n" for i in range(40)
)
SMALL = """
import numpy as np, proxlin as px
x = np.arange(20.0)[:, None]
problem = px.MeanOfLosses(px.residual(lambda w, x: w * x), px.L1(), (x, 3 * x))
found = px.minimize(problem, np.zeros(1), px.prox_linear(), steps=20)
assert abs(float(found.w[0]) - 3) < 1e-4, found
print(px.__version__, px.__file__)
"""
FIT = ("proxlin", "fit", "table.csv", "--target", "y", "--quiet", "--out")
# What is tried in an environment with these extras: the command, its exit code, and a word of what it says.
TRIALS: dict[str, list[tuple[Sequence[str], int, str]]] = {
    "": [
        (("python", "-c", SMALL), 0, "{version}"),
        (("proxlin", "--version"), 0, "proxlin {version}"),
    ],
    "cli": [
        (("proxlin", "--help"), 0, "Not installed, for `fit`"),
        (("proxlin", "data", "list"), 0, "ijcnn1"),
        # its report needs more than the command line
        ((*FIT, "fit"), 2, "jinja2 is not installed: pip install 'jinja2"),
    ],
    "cli,experiments": [
        ((*FIT, "fit"), 0, ""),
        (
            ("proxlin", "predict", "fit/model.npz", "table.csv", "--out", "new.csv"),
            0,
            "",
        ),
    ],
    "cli,experiments,sklearn": [
        (("python", "-c", "from proxlin.sklearn import CompositeRegressor"), 0, ""),
        (("proxlin", "--help"), 0, "Usage: proxlin"),
    ],
}


def main(arguments: Sequence[str]) -> int:
    """Do all of it; return the exit code."""
    try:
        release("--dirty" in arguments)
    except Failed as error:
        print(f"release: {error}", file=sys.stderr)
        return 2
    return 0


class Failed(Exception):
    """A sentence on what does not hold."""


def release(dirty: bool) -> None:
    """Build, check, try, and write the notes; the first failure ends it."""
    version = version_of((ROOT / "src/proxlin/__init__.py").read_text())
    notes = section((ROOT / "CHANGELOG.md").read_text(), version)
    changed = run(["git", "status", "--porcelain"], ROOT)
    if changed.strip() and not dirty:
        raise Failed(
            "there are changes without a commit; commit them, or try with --dirty."
        )
    shutil.rmtree(DIST, ignore_errors=True)
    say(f"building proxlin {version}")
    # without isolation: the backend is the one of the lock; the wheel is built from the sdist
    run([sys.executable, "-m", "build", "--no-isolation", str(ROOT)], ROOT)
    sdist = DIST / f"proxlin-{version}.tar.gz"
    wheel = DIST / f"proxlin-{version}-py3-none-any.whl"
    check_archives(sdist, wheel, version)
    try_wheel(wheel, version)
    (DIST / NOTES).write_text(notes)
    sums = [f"{checksum(path)}  {path.name}\n" for path in (sdist, wheel)]
    (DIST / "SHA256SUMS").write_text("".join(sums))
    say(f"dist/ holds {', '.join(sorted(path.name for path in DIST.iterdir()))}")


def version_of(source: str) -> str:
    """Return the version, whose only home is proxlin.__version__."""
    found = re.search(r'^__version__ = "([^"]+)"', source, re.MULTILINE)
    if not found:
        raise Failed("src/proxlin/__init__.py has no line __version__ = ...")
    return found[1]


def section(changelog: str, version: str) -> str:
    """Return the notes of a version: its heading and all up to the next one."""
    parts = re.split(r"^(?=## )", changelog, flags=re.MULTILINE)
    for part in parts:
        heading, _, body = part.partition("\n")
        if re.match(rf"## {re.escape(version)}(?![\w.])", heading) and body.strip():
            return f"# proxlin {version}\n\n{body.strip()}\n"
    raise Failed(f"CHANGELOG.md has no section ## {version} with something in it.")


def check_archives(sdist: Path, wheel: Path, version: str) -> None:
    """Compare what the archives hold with the checkout and with each other."""
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
        info = f"proxlin-{version}.dist-info"
        metadata = email.message_from_bytes(archive.read(f"{info}/METADATA"))
    for field in (
        "Name",
        "Version",
        "Summary",
        "License-Expression",
        "Requires-Python",
    ):
        if not metadata[field]:
            raise Failed(f"the wheel says nothing of its {field}.")
    if metadata["Version"] != version:
        raise Failed(f"the wheel has the version {metadata['Version']}.")
    if "markdown" not in str(metadata["Description-Content-Type"]):
        raise Failed("the description is not said to be Markdown.")
    if not str(metadata.get_payload()).strip():
        raise Failed("the wheel has no description.")
    tracked = run(["git", "ls-files", "src/proxlin"], ROOT).split()
    inside = {name for name in names if name.startswith("proxlin/")}
    missing = {name.removeprefix("src/") for name in tracked} - inside
    if missing:
        raise Failed(f"the wheel lacks {min(missing)}.")
    with tarfile.open(sdist) as archive:
        sources = {name.partition("/")[2] for name in archive.getnames()}
    for name in (*tracked, "pyproject.toml", "README.md", "LICENSE", "Makefile"):
        if name not in sources:
            raise Failed(f"the sdist lacks {name}.")
    say(
        f"the archives hold all {len(tracked)} files of the package, and their metadata"
    )


def try_wheel(wheel: Path, version: str) -> None:
    """Install the wheel into an empty environment, with more and more extras, and use it."""
    with tempfile.TemporaryDirectory(prefix="proxlin-release-") as place:
        folder = Path(place)
        venv.create(folder / "venv", with_pip=True)
        (folder / "table.csv").write_text(TABLE)
        for extras, trials in TRIALS.items():
            start = time.monotonic()
            wanted = f"{wheel}[{extras}]" if extras else str(wheel)
            lock = ("-c", str(ROOT / "requirements.lock"))
            used(folder, ("python", "-m", "pip", "install", "-q", *lock, wanted))
            used(folder, ("python", "-m", "pip", "check"))
            for command, code, words in trials:
                said = used(folder, command, code)
                if words.format(version=version) not in " ".join(said.split()):
                    raise Failed(
                        f"{command[0]} {command[1]} did not say {words!r}: {said}"
                    )
            if not extras:
                follow_hint(folder)
            taken = time.monotonic() - start
            which = f"with {extras}" if extras else "without extras"
            say(f"{which}: pip check and {len(trials)} commands, {taken:.0f} s")


def follow_hint(folder: Path) -> None:
    """Do what the command line says where its extra is missing: then it must work."""
    said = used(folder, ("proxlin", "--help"), 2)
    hint = re.search(r"typer is not installed: pip install (.+)\.\n", said)
    if not hint:
        raise Failed(
            f"without typer, proxlin --help does not say what to install: {said}"
        )
    lock = ("-c", str(ROOT / "requirements.lock"))
    packages = shlex.split(hint[1])
    used(folder, ("python", "-m", "pip", "install", "-q", *lock, *packages))
    used(folder, ("proxlin", "--help"))


def used(folder: Path, command: Sequence[str], code: int = 0) -> str:
    """Run a command of the environment as a user in an empty folder would."""
    program, *arguments = command
    own = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("PYTHON", "PROXLIN_"))
    }
    own |= {"PROXLIN_CACHE": str(folder / "cache"), "COLUMNS": "1000"}
    return run([str(folder / "venv/bin" / program), *arguments], folder, code, own)


def run(
    command: Sequence[str],
    folder: Path,
    code: int = 0,
    variables: dict[str, str] | None = None,
) -> str:
    """Return what a command printed; it must end with this exit code."""
    done = subprocess.run(
        command, cwd=folder, capture_output=True, text=True, check=False, env=variables
    )
    if done.returncode != code:
        shown = " ".join(command)[:200]
        raise Failed(
            f"{shown} ended with {done.returncode}, not {code}:\n{done.stdout}{done.stderr}"
        )
    return done.stdout + done.stderr


def checksum(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def say(text: str) -> None:
    print(f"release: {text}.", flush=True)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
