"""Let the n-th system call of `proxlin.files` (`writing` and `programs`) fail, stop half-way, or be
the last one of its process, for all n.

    python faults.py SCENARIO WORK [FAULT ...]      prints what came of it, as JSON

Each try is a forked process, so that `kill -9` is what it says. It writes into a copy of an old
folder, which afterwards has to be the old one or the new one:

    an error      everything as it was, no temporary left (or everything new, if only the cleaning up failed)
    a kill        every file whole; where it came between two renames, the folder is the new one after `files.finish`
"""

import errno
import io
import json
import os
import shutil
import signal
import sys
from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from proxlin.cli.fit import FILES
from proxlin.errors import UserError
from proxlin.files import programs
from proxlin.files import writing as files

CALLS = (
    "open",
    "close",
    "dup",
    "fsync",
    "rename",
    "replace",
    "link",
    "mkdir",
    "makedirs",
    "rmdir",
    "unlink",
    "fchmod",
)
CLEANING = ("rmdir", "unlink")
FAULTS = (
    "error",
    "full",
    "full from here",
    "half",
    "kill before",
    "kill after",
    "kill half-way",
)
# these happen to writes alone
WRITES = ("full", "full from here", "half", "kill half-way")
DONE, FAILED, NOT_REACHED = 10, 20, 30

State = dict[str, bytes]


class Fault:
    """Counts the calls, and does what it is for at the n-th."""

    def __init__(self, n: int, kind: str):
        self.n, self.kind, self.count, self.reached, self.call = n, kind, 0, False, ""

    def __call__(
        self, name: str, function: Callable[..., Any], *arguments: Any, **options: Any
    ) -> Any:
        if self.kind in WRITES and name != "write":
            return function(*arguments, **options)
        self.count += 1
        if self.count != self.n and not (
            self.kind == "full from here" and self.count > self.n
        ):
            return function(*arguments, **options)
        self.reached, self.call = True, name
        if self.kind == "error":
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        if self.kind.startswith("full"):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        if self.kind == "kill before":
            os.kill(os.getpid(), signal.SIGKILL)
        if self.kind in ("half", "kill half-way"):
            arguments = (bytes(arguments[0])[: -(-len(arguments[0]) // 2)],)
        result = function(*arguments, **options)
        if self.kind.startswith("kill"):
            os.kill(os.getpid(), signal.SIGKILL)
        return result

    def install(self) -> None:
        """Put itself between `proxlin.files` and the system; SQLite, the lock and downloads make calls of their own."""
        fault = self

        class System:
            def __getattr__(self, name: str) -> Any:
                function = getattr(os, name)
                if name not in CALLS:
                    return function
                return lambda *arguments, **options: fault(
                    name, function, *arguments, **options
                )

        class Raw(io.FileIO):
            def write(self, data: Any) -> Any:
                return fault("write", lambda part: os.write(self.fileno(), part), data)

        for module in (files, programs):
            module.os = System()
            module.open = lambda descriptor, mode: io.BufferedWriter(
                Raw(descriptor, "w")
            )


def state(folder: Path) -> State:
    """The files that a reader would see: hidden temporaries are none."""
    found = (
        path
        for path in sorted(folder.rglob("*"))
        if path.is_file() and path.name != files.PLAN
    )
    return {
        str(each.relative_to(folder)): each.read_bytes()
        for each in found
        if ".part" not in str(each)
    }


def names(folder: Path) -> set[str]:
    return {str(path.relative_to(folder)) for path in folder.rglob("*")}


def attempt(act: Callable[[Path], None], folder: Path, fault: Fault) -> tuple[int, str]:
    """Run it in a process of its own: how that ended, and which call the fault was at."""
    here, there = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(here)
        quiet = os.open(os.devnull, os.O_WRONLY)
        os.dup2(quiet, 1)
        os.dup2(quiet, 2)
        fault.install()
        code = FAILED
        try:
            act(folder)
            code = DONE
        except (OSError, UserError):
            pass
        finally:
            os.write(there, fault.call.encode())
            os._exit(code if fault.reached else NOT_REACHED)
    os.close(there)
    _, status = os.waitpid(child, 0)
    with open(here, "rb") as pipe:
        return os.waitstatus_to_exitcode(status), pipe.read().decode()


def every_call(
    act: Callable[[Path], None], old: Path, work: Path, kinds: tuple[str, ...]
) -> Counter:
    """Try every fault at every call; raises AssertionError where the folder is neither the old one
    nor the new one.
    """
    new = work / "new"
    shutil.copytree(old, new, symlinks=True)
    act(new)
    before, after = state(old), state(new)
    assert before != after
    found: Counter = Counter()
    for kind in kinds:
        n = 0
        while True:
            n += 1
            folder = work / f"{kind}-{n}"
            shutil.copytree(old, folder, symlinks=True)
            code, call = attempt(act, folder, Fault(n, kind))
            if code == NOT_REACHED:
                assert state(folder) == after
                break
            what = f"{kind} at call {n} ({call}), exit code {code}"
            left = call not in CLEANING and names(folder) != names(old)
            came = judged(what, code, state(folder), before, after, left)
            if came == "killed, between":
                for place in (
                    folder,
                    *(each for each in folder.rglob("*") if each.is_dir()),
                ):
                    files.finish(place)
                assert state(folder) == after, (
                    f"{what}: the folder is mixed, and stays so"
                )
                came = "killed, finished"
            found[came] += 1
            shutil.rmtree(folder)
    return found


def judged(
    what: str, code: int, now: State, before: State, after: State, left: bool
) -> str:
    """Say what the folder is after a fault, or that it is what it must not be."""
    if code == -signal.SIGKILL:
        known = all(
            content in (before.get(name), after.get(name))
            for name, content in now.items()
        )
        assert known and now.keys() >= before.keys(), (
            f"{what}: a file is damaged or gone"
        )
        if now not in (before, after):
            return "killed, between"
        return "killed, old" if now == before else "killed, new"
    if code == FAILED:
        assert now in (before, after), f"{what}: the folder is mixed"
        assert now == after or not left, f"{what}: something is left behind"
        return "failed, old" if now == before else "failed, new"
    assert code == DONE, f"{what}: internal error"
    assert now == after, f"{what}: it did not fail, but the folder is not the new one"
    return "done"


def _folder(contents: Mapping[str, bytes]) -> Callable[[Path], None]:
    return lambda folder: files.write_folder(folder / "out", contents)


OLD = {"a.csv": b"old a", "figures/b.svg": b"old b", "model.npz": b"old model"}
NEW = {
    "a.csv": b"new a" * 5000,
    "figures/b.svg": b"new b",
    "figures/c.png": b"new c",
    "model.npz": b"new model",
}


def in_pieces(file: Any) -> None:
    for _ in range(3):
        file.write(b"new model" * 2000)


def scenario_file(old: Path) -> Callable[[Path], None]:
    """One file, through a link."""
    (old / "real").mkdir()
    (old / "real" / "model.npz").write_bytes(b"old model")
    (old / "link").symlink_to(Path("real") / "model.npz")
    return lambda folder: files.write_file(folder / "link", in_pieces)


def scenario_new_file(old: Path) -> Callable[[Path], None]:
    (old / "other").write_bytes(b"another file")
    return lambda folder: files.write_file(folder / "model.npz", in_pieces)


def scenario_folder(old: Path) -> Callable[[Path], None]:
    files.write_folder(old / "out", OLD)
    return _folder(NEW)


def scenario_new_folder(old: Path) -> Callable[[Path], None]:
    (old / "other").write_bytes(b"another file")
    return lambda folder: files.write_folder(folder / "deep" / "out", NEW)


def scenario_save(old: Path) -> Callable[[Path], None]:
    """Save a solution over another one."""
    import jax.numpy as jnp

    import proxlin as px

    problem = px.MeanOfLosses(lambda w, x: x - w, px.L2(), jnp.ones((4, 2)))
    before, after = (
        px.minimize(problem, jnp.zeros(2), px.sgd(0.1), steps=count) for count in (2, 4)
    )
    before.save(old / "solution.npz")
    after.save(old.parent / "warm.npz")
    return lambda folder: after.save(folder / "solution.npz")


def scenario_program(old: Path) -> Callable[[Path], None]:
    """A compiled program in the cache, over another one: what JAX calls to keep it."""
    from types import SimpleNamespace

    from jax._src.lru_cache import LRUCache

    programs._write_whole_files()
    (old / "key-cache").write_bytes(b"another program")
    return lambda folder: LRUCache.put(
        SimpleNamespace(path=folder), "key", b"new program" * 2000
    )


def _table(work: Path, rows: int = 30) -> Path:
    table = work / "table.csv"
    table.write_text("a,y\n" + "".join(f"{i},{i * i % 7}\n" for i in range(rows)))
    return table


def _fitted(work: Path) -> dict[str, bytes]:
    """What a fit writes, in one call: drawing it again for every fault would take an hour."""
    return _written_by_fit(work, _table(work), "--solver", "sgd")


def _written_by_fit(work: Path, table: Path, *options: str) -> dict[str, bytes]:
    from proxlin.cli.main import main
    from proxlin.tables import page

    written: list[dict[str, bytes]] = []
    page.write_folder = lambda folder, contents: written.append(contents)
    out = ("--out", str(work / "out"), "--quiet")
    asked = ("--target", "y", "--hidden", "0", *options)
    assert main(["fit", str(table), *asked, *out]) == 0
    assert len(written) == 1 and set(written[0]) == set(FILES)
    return written[0]


def _saved(work: Path, path: Path) -> Any:
    """Return a fit of the table, saved there."""
    import proxlin as px

    fit = px.fit(_table(work), "y", hidden=0, solver="sgd")
    fit.save(path)
    return fit


def scenario_fit(old: Path) -> Callable[[Path], None]:
    """Write the folder of a fit over that of another one."""
    files.write_folder(old / "out", dict.fromkeys(FILES, b"of another fit"))
    return _folder(_fitted(old.parent))


def scenario_new_fit(old: Path) -> Callable[[Path], None]:
    (old / "other").write_bytes(b"another file")
    return _folder(_fitted(old.parent))


def scenario_parts(old: Path) -> Callable[[Path], None]:
    """Write the folder of a fit of Parquet parts over that of another one."""
    import pandas as pd

    table = pd.read_csv(_table(old.parent, 600))
    parts = old.parent / "parts"
    parts.mkdir()
    for i, rows in enumerate((table[:300], table[300:])):
        rows.to_parquet(parts / f"{i}.parquet", row_group_size=100)
    files.write_folder(old / "out", dict.fromkeys(FILES, b"of another fit"))
    return _folder(_written_by_fit(old.parent, parts))


def scenario_fit_save(old: Path) -> Callable[[Path], None]:
    """`Fit.save` over another file."""
    fit = _saved(old.parent, old.parent / "warm.npz")
    (old / "model.npz").write_bytes(b"of another fit")
    return lambda folder: fit.save(folder / "model.npz")


def scenario_predict(old: Path) -> Callable[[Path], None]:
    """`predict --out` over another file: what it writes is computed once, and written piece by piece."""
    from proxlin.cli import predict
    from proxlin.cli.main import main

    model = old.parent / "model.npz"
    _saved(old.parent, model)
    pieces: list[bytes] = []

    class Kept:
        def write(self, data: bytes) -> None:
            pieces.append(data)

    predict.write_file = lambda path, content: content(Kept())
    table = old.parent / "table.csv"
    out = str(old.parent / "warm.csv")
    assert main(["predict", str(model), str(table), "--out", out, "--quiet"]) == 0
    (old / "out.csv").write_bytes(b"of another model")

    def act(folder: Path) -> None:
        files.check_writable(folder / "out.csv")
        files.write_file(
            folder / "out.csv", lambda file: [file.write(each) for each in pieces]
        )

    return act


def _results(old: Path) -> Callable[..., Callable[[Path], None]]:
    """A folder of results whose files are older than its database."""
    from proxlin.cli.main import main

    os.environ["PROXLIN_EXPERIMENTS"] = "toy"
    assert main(["reproduce", "aardvark", "--quiet", "--out", str(old)]) == 0
    for path in old.rglob("*.*"):
        if path.is_file() and path.name not in ("results.sqlite", ".lock"):
            path.write_bytes(b"of an earlier report")

    def command(*arguments: str) -> Callable[[Path], None]:
        def act(folder: Path) -> None:
            code = main([each.format(folder=folder) for each in arguments])
            if code == 2:
                raise UserError("refused")
            assert code == 0

        return act

    return command


def scenario_report(old: Path) -> Callable[[Path], None]:
    return _results(old)("report", "{folder}")


def scenario_reproduce(old: Path) -> Callable[[Path], None]:
    return _results(old)("reproduce", "aardvark", "--out", "{folder}")


def main(name: str, work: Path, kinds: tuple[str, ...]) -> None:
    old = work / "old"
    old.mkdir(parents=True)
    act = globals()[f"scenario_{name}"](old)
    print(json.dumps(every_call(act, old, work, kinds or FAULTS)))


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), tuple(sys.argv[3:]))
