"""`proxlin.files`: whole files, whatever is in their place and whatever goes wrong."""

import errno
import json
import os
import re
import stat
import subprocess
import threading
from pathlib import Path

import pytest

from proxlin.files import writing as files
from proxlin.files.writing import check_folder, check_writable, write_file, write_folder
from writers import compete, faults, python


def names(folder: Path) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*"))


def test_bytes_or_a_function_that_writes(tmp_path):
    write_file(tmp_path / "a", b"one")
    write_file(
        tmp_path / "deep" / "er" / "b",
        lambda file: [file.write(b"tw"), file.write(b"o")],
    )
    assert (tmp_path / "a").read_bytes() == b"one" and (
        tmp_path / "deep/er/b"
    ).read_bytes() == b"two"
    assert names(tmp_path) == ["a", "deep", "deep/er", "deep/er/b"]


def test_a_link_stays_and_its_target_is_replaced(tmp_path):
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to("middle")
    (tmp_path / "middle").symlink_to("real/file")
    for content in (b"first", b"second"):  # the link leads to nothing, then to a file
        write_file(tmp_path / "link", content)
        assert (tmp_path / "link").is_symlink() and (
            tmp_path / "real/file"
        ).read_bytes() == content
    assert names(tmp_path) == ["link", "middle", "real", "real/file"]


def test_a_circle_of_links_is_refused(tmp_path):
    (tmp_path / "a").symlink_to("a")
    with pytest.raises(OSError, match="symbolic links"):
        write_file(tmp_path / "a", b"x")
    assert names(tmp_path) == ["a"] and (tmp_path / "a").is_symlink()


def test_a_pipe_is_written_to(tmp_path):
    pipe, found = tmp_path / "pipe", []
    os.mkfifo(pipe)
    reader = threading.Thread(target=lambda: found.append(pipe.read_bytes()))
    reader.start()
    check_writable(pipe)
    write_file(pipe, b"x" * 100_000)
    reader.join(30)
    assert (
        found == [b"x" * 100_000]
        and stat.S_ISFIFO(pipe.stat().st_mode)
        and names(tmp_path) == ["pipe"]
    )


def test_a_device_is_written_to(tmp_path):
    device = tmp_path / "null"
    try:
        os.mknod(device, 0o666 | stat.S_IFCHR, os.makedev(1, 3))
        os.close(os.open(device, os.O_WRONLY))
    except PermissionError:
        device = Path("/dev/null")  # which nobody but root could replace
    (tmp_path / "link").symlink_to(device)
    for path in (device, tmp_path / "link"):
        check_writable(path)
        write_file(path, b"gone")
        assert stat.S_ISCHR(device.stat().st_mode) and (tmp_path / "link").is_symlink()


def test_a_full_device_is_an_error_that_names_it():
    with pytest.raises(OSError, match="No space left") as raised:
        write_file("/dev/full", b"x")
    assert raised.value.filename == "/dev/full"


@pytest.mark.parametrize("name", ["/dev/stdout", "/proc/self/fd/1", "/dev/fd/1"])
def test_standard_output_keeps_what_it_had(name, tmp_path):
    act = "os.write(1, b'a'); write_file(sys.argv[1], b'b'); os.write(1, b'c')"
    code = f"import os, sys; from proxlin.files import write_file; {act}"
    with (tmp_path / "file").open("wb") as file:
        assert python(code, name, stdout=file).wait() == 0
    assert (tmp_path / "file").read_bytes() == b"abc"
    assert python(code, name, stdout=subprocess.PIPE).communicate()[0] == b"abc"


def test_permissions_are_kept_or_follow_the_umask(tmp_path):
    private, fresh = tmp_path / "private", tmp_path / "fresh"
    private.touch()
    private.chmod(0o640)
    before = os.umask(0o027)
    try:
        for path in (private, fresh, tmp_path / "new" / "file"):
            write_file(path, b"x")
    finally:
        os.umask(before)
    modes = [
        stat.S_IMODE(path.stat().st_mode)
        for path in (private, fresh, tmp_path / "new", tmp_path / "new/file")
    ]
    assert modes == [0o640, 0o640, 0o750, 0o640]


def test_a_planted_name_is_not_followed(tmp_path, monkeypatch):
    """Even one that was guessed: a link to a file of somebody else's choice."""
    victim = tmp_path / "victim"
    victim.write_bytes(b"mine")
    (tmp_path / "planted").symlink_to(victim)
    monkeypatch.setattr(files, "_temporary", lambda path: tmp_path / "planted")
    with pytest.raises(FileExistsError):
        write_file(tmp_path / "out", b"x")
    assert victim.read_bytes() == b"mine" and not (tmp_path / "out").exists()


def test_a_folder_writes_nothing_outside_of_itself(tmp_path):
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "victim").write_bytes(b"mine")
    out = tmp_path / "out"
    out.mkdir()
    (out / "page").symlink_to("../victim")
    (out / "figures").symlink_to("../elsewhere")
    before = names(tmp_path)
    for name in ("page", "figures/a.svg"):
        with pytest.raises(OSError, match="leads out of its folder"):
            write_folder(out, {"table": b"1", name: b"2"})
    assert names(tmp_path) == before and (tmp_path / "victim").read_bytes() == b"mine"


@pytest.mark.parametrize("kind", ["folder", "pipe", "file above", "read-only"])
def test_what_cannot_be_replaced_is_found_before_the_work(kind, tmp_path):
    out = tmp_path / "out"
    write_folder(out, {"a": b"old", "figures/b": b"old"})
    place = out / "c"
    if kind == "folder":
        place.mkdir()
    elif kind == "pipe":
        os.mkfifo(place)
    elif kind == "file above":
        place.write_bytes(b"a file")
        place /= "below"
    else:
        place.write_bytes(b"a file")
        place.chmod(0o400)
        if os.access(place, os.W_OK):
            pytest.skip("root writes anything")
    before, new = (
        names(tmp_path),
        dict.fromkeys(("a", "figures/b", str(place.relative_to(out))), b"new"),
    )
    for act in (lambda: check_folder(out, new), lambda: write_folder(out, new)):
        with pytest.raises(OSError, match=r".") as raised:
            act()
        assert raised.value.filename == str(place)
    assert names(tmp_path) == before and (out / "a").read_bytes() == b"old"


def test_a_check_leaves_nothing(tmp_path):
    check_folder(tmp_path / "new" / "out", ["a", "figures/b"])
    check_folder(tmp_path, ["a", "figures/b"])
    check_writable(tmp_path / "new" / "file")
    assert names(tmp_path) == []


def test_a_folder_that_another_process_made_in_the_meantime(tmp_path):
    def late(file):
        write_folder(tmp_path / "out", {"theirs": b"2"})
        file.write(b"1")

    write_folder(tmp_path / "out", {"ours": late})
    assert names(tmp_path) == ["out", "out/ours", "out/theirs"]


def test_an_interrupt_takes_temporaries_away(tmp_path):
    """`KeyboardInterrupt`, as in a notebook, in the midst of any of them."""
    write_folder(tmp_path, {"a": b"old"})

    def interrupted(file):
        file.write(b"x")
        raise KeyboardInterrupt

    for act in (
        lambda: write_folder(tmp_path, {"a": b"new", "deep/b": interrupted}),
        lambda: write_folder(tmp_path / "new", {"a": b"new", "b": interrupted}),
        lambda: write_file(tmp_path / "a", interrupted),
    ):
        with pytest.raises(KeyboardInterrupt):
            act()
    assert names(tmp_path) == ["a"] and (tmp_path / "a").read_bytes() == b"old"


ABANDONED = """
import os, sys, threading
from pathlib import Path
from proxlin import files

reached = threading.Event()
def stuck(file):
    file.write(b"half")
    file.flush()
    reached.set()
    threading.Event().wait()

folder = Path(sys.argv[1])
for contents in ({folder: {"a": b"new", "deep/b": stuck}}, {folder / "new": {"a": stuck}}):
    reached.clear()
    threading.Thread(target=files.write_folder, args=next(iter(contents.items())), daemon=True).start()
    reached.wait()
assert len(list(folder.rglob("*.part"))) == 3, list(folder.rglob("*"))
files.abandon()
os._exit(0)
"""


def test_a_process_that_leaves_takes_its_temporaries_along(tmp_path):
    write_file(tmp_path / "a", b"old")
    assert python(ABANDONED, tmp_path).wait(60) == 0
    assert names(tmp_path) == ["a"] and (tmp_path / "a").read_bytes() == b"old"


def test_two_writers(tmp_path):
    found = compete(tmp_path, 1.0)
    assert found["writes"] > 1 and found["reads"] > 0
    assert names(tmp_path) == [
        "file",
        "out",
        "out/a",
        "out/c",
        "out/deep",
        "out/deep/b",
    ]


def test_faults_at_every_call_of_a_file(tmp_path):
    found = faults("file", tmp_path / "work")
    assert (
        found["killed, old"]
        and found["killed, new"]
        and "killed, finished" not in found
    )


def test_faults_at_every_call_of_a_compiled_program(tmp_path):
    """An entry of JAX's cache is there as a whole, and a full disk leaves no part of one."""
    found = faults("program", tmp_path / "work")
    assert found["failed, old"] and found["killed, old"] and found["killed, new"]


def test_errors_and_kills_at_every_call_of_a_folder(tmp_path):
    found = faults("folder", tmp_path / "work", "error", "kill after")
    assert (
        found["failed, old"] > 20
        and found["killed, old"]
        and found["killed, new"]
        and found["killed, finished"]
    )


@pytest.mark.parametrize(
    "plan",
    [
        '{"a": "../b"}',
        '{"../b": "../.b.0123456789abcdef.part"}',
        '{"a": "b"}',
        '["a"]',
        "{",
        "[" * 100_000,
        '{"a": 1}',
    ],
)
def test_the_plan_of_a_stranger_renames_nothing_else(plan, tmp_path):
    """Only a temporary file gets a name, and only the name that it is made for."""
    folder = tmp_path / "folder"
    folder.mkdir()
    for path in (
        tmp_path / "b",
        tmp_path / ".b.0123456789abcdef.part",
        folder / "a",
        folder / "b",
    ):
        path.write_bytes(path.name.encode())
    (folder / files.PLAN).write_text(plan)
    files.finish(folder)
    left = {
        str(path.relative_to(tmp_path)): path.read_bytes()
        for path in tmp_path.rglob("*")
        if path.is_file()
    }
    assert left == {
        "b": b"b",
        ".b.0123456789abcdef.part": b".b.0123456789abcdef.part",
        "folder/a": b"a",
        "folder/b": b"b",
    }


def test_a_new_folder_appears_as_a_whole(tmp_path):
    found = faults("new_folder", tmp_path / "work", "kill after")
    assert (
        found["killed, old"]
        and found["killed, new"]
        and "killed, finished" not in found
    )


class Recorder:
    """`os`, with a record of the calls that decide what a power cut leaves."""

    def __init__(self):
        self.calls: list[tuple[str, str]] = []
        self.paths: dict[int, str] = {}

    def __getattr__(self, name: str):
        return getattr(os, name)

    def open(self, path, *arguments) -> int:
        descriptor = os.open(path, *arguments)
        self.paths[descriptor] = str(path)
        return descriptor

    def fsync(self, descriptor: int) -> None:
        self.calls.append(("fsync", self.paths[descriptor]))
        os.fsync(descriptor)

    def rename(self, old, new) -> None:
        self.calls.append(("rename", f"{old} -> {new}"))
        os.rename(old, new)

    def replace(self, old, new) -> None:
        self.calls.append(("rename", f"{old} -> {new}"))
        os.replace(old, new)


@pytest.fixture
def calls(monkeypatch, tmp_path):
    """What was synced and renamed, with the names of temporaries and backups shortened."""
    recorder = Recorder()
    monkeypatch.setattr(files, "os", recorder)

    def found() -> list[str]:
        lines = [f"{name} {what}" for name, what in recorder.calls]
        lines = [line.replace(str(tmp_path), "~") for line in lines]
        return [re.sub(r"\.([a-z]+)\.\w{16}\.part", r"\1.part", line) for line in lines]

    return found


def test_a_file_is_on_the_disk_before_its_name_is(calls, tmp_path):
    """Else a power cut could leave the new name with no content, which no kill of a process shows."""
    write_file(tmp_path / "a", b"new")
    assert calls() == ["fsync ~/a.part", "rename ~/a.part -> ~/a", "fsync ~"]


def test_files_of_a_folder_and_their_plan_are_on_the_disk_before_their_names(
    calls, tmp_path
):
    (tmp_path / "in").mkdir()
    write_folder(tmp_path, {"a": b"new", "in/b": b"new"})
    assert calls() == [
        "fsync ~/a.part",
        "fsync ~/in/b.part",
        f"fsync ~/{files.PLAN}",
        "fsync ~",
        "rename ~/a.part -> ~/a",
        "rename ~/in/b.part -> ~/in/b",
        "fsync ~",
        "fsync ~/in",
    ]


def test_a_new_folder_is_on_the_disk_before_its_name_is(calls, tmp_path):
    write_folder(tmp_path / "out", {"a": b"new", "in/b": b"new"})
    assert calls() == [
        "fsync ~/out.part/a",
        "fsync ~/out.part/in/b",
        "fsync ~/out.part",
        "fsync ~/out.part/in",
        "rename ~/out.part -> ~/out",
        "fsync ~",
    ]


def test_renames_that_are_done_later_last_too(calls, tmp_path):
    temporary = "in/.a.0123456789abcdef.part"
    (tmp_path / "in").mkdir()
    (tmp_path / temporary).write_bytes(b"new")
    (tmp_path / files.PLAN).write_text(json.dumps({"in/a": temporary}))
    files.finish(tmp_path)
    assert calls() == ["rename ~/in/a.part -> ~/in/a", "fsync ~/in", "fsync ~"]


def test_errors_without_a_name_get_one(tmp_path):
    def full(file):
        raise OSError(errno.ENOSPC, "No space left on device")

    with pytest.raises(OSError, match="No space left") as raised:
        write_file(tmp_path / "a", full)
    assert raised.value.filename == str(tmp_path / "a") and names(tmp_path) == []
    (tmp_path / "folder").mkdir()
    with pytest.raises(IsADirectoryError) as raised:
        write_file(tmp_path / "folder", b"")
    sentence = f"Is a directory: {str(tmp_path / 'folder')!r}"
    assert str(raised.value).endswith(sentence)  # and no " -> None" after it
