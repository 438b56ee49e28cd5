"""`proxlin data get` against a server on 127.0.0.1: whole, cut off, wrong, missing, moved, slow, twice at once."""

import bz2
import gzip
import hashlib
import io
import os
import pty
import signal
import subprocess
import sys
import tarfile
from contextlib import suppress
from dataclasses import replace
from functools import partial

import numpy as np
import pytest

from mirror import ROWS, served
from processes import environment
from proxlin.cli.main import main
from proxlin.data import (
    catalog,
    classification,
    letters,
    maps,
    sequences,
    warcraft,
)
from proxlin.errors import UserError

RNG = np.random.default_rng(0)
LINES = [
    f"{(-1) ** i} " + " ".join(f"{j}:{x:.6f}" for j, x in enumerate(row, 1))
    for i, row in enumerate(RNG.normal(size=(2000, 22)))
]
FILE = bz2.compress("\n".join(LINES).encode())
TEST = bz2.compress("\n".join(LINES[:500]).encode())
SUM = hashlib.sha256(FILE).hexdigest()


@pytest.fixture
def mirror(tmp_path, monkeypatch):
    """A server that has ijcnn1 and its test set, of 2,000 and 500 rows, and an empty cache."""
    monkeypatch.setenv("PROXLIN_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("PROXLIN_DATA", raising=False)
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
        monkeypatch.delenv(name, raising=False)
    with served() as mirror:
        mirror.files = {"/ijcnn1.bz2": FILE, "/ijcnn1.t.bz2": TEST}
        for name, content, rows in (("ijcnn1", FILE, 2000), ("ijcnn1.t", TEST, 500)):
            known = hashlib.sha256(content).hexdigest()
            source = classification.Source(f"libsvm/{name}.bz2", known, rows, 22, 0.5)
            monkeypatch.setitem(classification.SOURCES, name, source)
            at(monkeypatch, name, f"{mirror.address}/{name}.bz2")
        yield mirror


def at(monkeypatch, name: str, *addresses: str) -> None:
    """Let these be the addresses of a data set."""
    remote = replace(catalog.REMOTES[name], addresses=addresses)
    monkeypatch.setitem(catalog.REMOTES, name, remote)


@pytest.fixture
def get(capsys):
    """Run `proxlin data get ...` in this process: (exit code, standard output, standard error)."""

    def run(*arguments: object) -> tuple[int, str, str]:
        code = main(["data", "get", *map(str, arguments)])
        return code, *capsys.readouterr()

    return run


@pytest.fixture
def refused(get, tmp_path):
    """Run it where it must fail: one sentence, exit code 2, and nothing in the cache but a part."""

    def run(*arguments: object) -> str:
        code, out, err = get(*arguments)
        *said, last = err.splitlines()
        assert (code, out) == (2, "") and all(
            line.startswith("Downloading ") for line in said
        )
        assert last.startswith("proxlin: ") and last.endswith(".")
        assert {path.suffix for path in files(tmp_path)} <= {".part", ".tag"}
        return last

    return run


def files(folder) -> list:
    return [path for path in folder.glob("cache/**/*") if path.is_file()]


def parts(folder) -> list[bytes]:
    return [path.read_bytes() for path in files(folder) if path.suffix == ".part"]


# ------------------------------------------------------------------------------------------- whole


def test_one_command_gets_a_set_and_its_test_set(get, mirror, tmp_path):
    code, out, err = get("ijcnn1")
    first, second = out.splitlines()
    assert code == 0 and SUM in first and "which is known" in first
    assert first.startswith("ijcnn1: 2,000 x 22.") and second.startswith(
        "ijcnn1.t: 500"
    )
    assert f"Downloading {mirror.address}/ijcnn1.bz2.\n" in err
    assert sorted(path.name for path in files(tmp_path)) == [
        "ijcnn1.npz",
        "ijcnn1.t.npz",
    ]
    assert len(classification.load("ijcnn1", say=pytest.fail)) == 2000
    assert classification.origin_of("ijcnn1").kind == "file"
    # what is there is not asked for again
    mirror.files.clear()
    code, out, _ = get("ijcnn1")
    assert (
        code == 0 and out.count("in the cache already") == 2 and len(mirror.asked) == 2
    )


@pytest.mark.parametrize("known", ["md5", "none"])
def test_what_was_checked_is_said_and_no_more(get, mirror, monkeypatch, known):
    md5 = hashlib.md5(FILE).hexdigest() if known == "md5" else ""
    source = replace(classification.SOURCES["ijcnn1"], sha256="", md5=md5)
    monkeypatch.setitem(classification.SOURCES, "ijcnn1", source)
    code, out, _ = get("ijcnn1")
    assert code == 0 and SUM in out
    if known == "md5":
        assert "its md5 is the one on public record" in out
        assert classification.origin_of("ijcnn1").kind == "file"
    else:
        assert "not known here: rows, columns and labels were counted" in out
        assert classification.origin_of("ijcnn1").kind == "another file"


@pytest.mark.parametrize("wrong", ["rows", "labels"])
def test_an_unknown_file_with_other_counts_is_refused(refused, mirror, wrong):
    lines = [
        line.replace("-1 ", "1 ", 1) if i > 9 else line for i, line in enumerate(LINES)
    ]
    if wrong == "rows":
        lines = LINES[:-1]
    mirror.files["/ijcnn1.bz2"] = bz2.compress("\n".join(lines).encode())
    said = refused("ijcnn1")
    assert f"{mirror.address}/ijcnn1.bz2: its SHA-256 is" in said
    assert ("1,999 rows" if wrong == "rows" else "a share 0.9975") in said


def test_another_mirror_by_its_address(get, mirror):
    mirror.files = {"/deep/mine.bz2": FILE, "/deep/ijcnn1.t.bz2": TEST}
    code, out, _ = get("ijcnn1", "--from", f"{mirror.address}/deep/mine.bz2?now=1")
    assert code == 2  # a query belongs to the address
    mirror.files["/deep/mine.bz2?now=1"] = FILE
    code, out, _ = get("ijcnn1", "--from", f"{mirror.address}/deep/mine.bz2?now=1")
    assert code == 0 and "ijcnn1.t: 500 x 22" in out
    assert catalog.place("ijcnn1").source == f"{mirror.address}/deep/mine.bz2?now=1"


def test_a_test_set_that_is_not_beside_it_is_a_note(get, mirror):
    del mirror.files["/ijcnn1.t.bz2"]
    code, out, err = get("ijcnn1", "--from", f"{mirror.address}/ijcnn1.bz2")
    assert code == 0 and out.count("\n") == 1
    assert "Its test set is not beside it" in err and "proxlin data get ijcnn1.t" in err


def test_an_answer_without_a_length_and_a_server_that_packs(get, mirror):
    mirror.length = False
    assert get("ijcnn1")[0] == 0


# ------------------------------------------------------------------------------------------ cut off


def test_a_cut_is_mended_at_once(get, mirror):
    mirror.cuts = [len(FILE) // 3, len(FILE) // 3]
    code, out, _ = get("ijcnn1")
    assert code == 0 and "which is known" in out
    third = len(FILE) // 3
    assert [wanted for path, wanted in mirror.asked if path == "/ijcnn1.bz2"] == [
        None,
        f"bytes={third}-",
        f"bytes={2 * third}-",
    ]


def test_the_same_command_goes_on_where_it_ended(refused, get, mirror, tmp_path):
    mirror.cuts = [50_000, *[0] * 20]
    said = refused("ijcnn1")
    assert "50,000" in said and "the same command goes on from there" in said
    assert parts(tmp_path) == [FILE[:50_000]]
    mirror.cuts.clear()
    mirror.asked.clear()
    code, out, _ = get("ijcnn1")
    assert code == 0 and "which is known" in out
    assert mirror.asked[0] == ("/ijcnn1.bz2", "bytes=50000-")


@pytest.mark.parametrize("server", ["no ranges", "no tag", "weak tag", "another file"])
def test_a_part_that_cannot_go_on_begins_again(
    refused, get, mirror, server, monkeypatch
):
    mirror.tag = {"no tag": None, "weak tag": 'W/"one"'}.get(server, mirror.tag)
    mirror.ranges = server != "no ranges"
    mirror.cuts = [50_000, *[0] * 20]
    refused("ijcnn1")
    mirror.cuts.clear()
    if server == "another file":
        mirror.tag = '"two"'
        changed = bz2.compress("\n".join(LINES[::-1]).encode())
        mirror.files["/ijcnn1.bz2"] = changed
    code, out, _ = get("ijcnn1")
    assert code == 0
    out = out.splitlines()[0]
    wanted = hashlib.sha256(mirror.files["/ijcnn1.bz2"]).hexdigest()
    assert wanted in out and ("which is known" in out) == (server != "another file")


def test_a_part_that_is_longer_than_the_file_begins_again(get, mirror, tmp_path):
    mirror.cuts = [50_000, *[0] * 20]
    get("ijcnn1")
    mirror.cuts.clear()
    (part,) = [path for path in files(tmp_path) if path.suffix == ".part"]
    part.write_bytes(FILE + b"more")
    mirror.statuses["/ijcnn1.bz2"] = 416
    code, _, err = get("ijcnn1")
    assert code == 2 and "416" not in err.splitlines()[0] and not parts(tmp_path)
    del mirror.statuses["/ijcnn1.bz2"]
    assert get("ijcnn1")[0] == 0


# -------------------------------------------------------------------------------------------- wrong


def test_a_wrong_checksum(refused, get, mirror):
    said = refused("ijcnn1", "--sha256", "0" * 64)
    assert "the SHA-256 of the file is not 000" in said
    code, out, _ = get("ijcnn1", "--sha256", SUM.upper())
    assert code == 0 and SUM in out


def test_the_first_mirror_that_works(get, refused, mirror, monkeypatch):
    bad = [f"{mirror.address}/{path}" for path in ("gone", "moved", "lies")]
    mirror.statuses["/moved"] = 503
    mirror.files["/lies"] = b"<html>Please log in</html>"
    at(monkeypatch, "ijcnn1", *bad)
    said = refused("ijcnn1")
    assert "answered 404" in said and "answered 503" in said and "line 1" in said
    at(monkeypatch, "ijcnn1", *bad, f"{mirror.address}/ijcnn1.bz2")
    code, out, err = get("ijcnn1")
    assert code == 0 and "which is known" in out and err.count("Downloading") == 5


@pytest.mark.parametrize(
    ("address", "words"),
    [
        ("{}/none.bz2", "answered 404 (Not Found)"),
        ("http://127.0.0.1:1/x", "cannot be reached"),
        ("ftp://127.0.0.1/x", "only http and https"),
        ("http://[x", "cannot be had"),
        ("file:///x", "only http and https"),
    ],
)
def test_addresses_that_give_nothing(refused, mirror, address, words):
    assert words in refused("ijcnn1", "--from", address.format(mirror.address))


def test_a_redirect_is_followed_and_a_circle_is_not(get, refused, mirror):
    mirror.redirects["/old"] = "/ijcnn1.bz2"
    mirror.redirects["/round"] = "/round"
    assert "redirects" in refused("ijcnn1", "--from", f"{mirror.address}/round")
    mirror.cuts = [40_000]
    code, out, _ = get("ijcnn1", "--from", f"{mirror.address}/old")
    assert code == 0 and "which is known" in out
    assert ("/ijcnn1.bz2", "bytes=40000-") in mirror.asked


def test_a_silent_server_is_given_up(refused, get, mirror, tmp_path):
    mirror.stalls.add("/ijcnn1.bz2")
    said = refused("ijcnn1", "--timeout", 0.3)
    assert "sent nothing for 0.3 seconds, and the same command goes on" in said
    assert parts(tmp_path)[0] and FILE.startswith(parts(tmp_path)[0])
    mirror.stalls.clear()
    assert get("ijcnn1", "--timeout", 20)[0] == 0
    assert "--timeout 0" in get("ijcnn1", "--timeout", 0)[2]


def test_a_proxy_of_the_environment_is_used(get, mirror, monkeypatch):
    monkeypatch.setenv("http_proxy", mirror.address)
    monkeypatch.setenv("no_proxy", "")
    mirror.files |= {"http://data.invalid/ijcnn1.bz2": FILE}
    code, _, err = get("ijcnn1", "--from", "http://data.invalid/ijcnn1.bz2")
    assert code == 0 and "Its test set is not beside it" in err
    assert mirror.asked[0][0] == "http://data.invalid/ijcnn1.bz2"
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:1")
    code, _, err = get("ijcnn1", "--from", "http://data.invalid/ijcnn1.bz2")
    assert code == 2 and "was not reached through the proxy" in err


# ---------------------------------------------------------------------------- processes and terminals


def test_ctrl_c_leaves_a_part_and_nothing_else(start, mirror, get, tmp_path):
    mirror.stalls.add("/ijcnn1.bz2")
    address = f"{mirror.address}/ijcnn1.bz2"
    process = start("data", "get", "ijcnn1", "--from", address, "--sha256", SUM)
    assert mirror.half_sent.wait(300)
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=300)
    assert process.returncode == 130 and "Interrupted" in err
    left = {path.name: path for path in files(tmp_path)}
    assert not [name for name in left if name.endswith((".npz", ".bz2"))]
    mirror.stalls.clear()
    mirror.go.set()
    code, _, _ = get("ijcnn1", "--from", address)
    assert code == 0
    assert sorted(path.name for path in files(tmp_path)) == [
        "ijcnn1.npz",
        "ijcnn1.t.npz",
    ]


def test_two_processes_at_once_download_once(mirror):
    mirror.stalls.add("/a9a")
    mirror.files = {"/a9a": ROWS, "/a9a.t": ROWS}
    asked = ["data", "get", "a9a", "--timeout", "600"]
    code = (
        f"import sys, toy_data; from proxlin.cli import main; sys.exit(main({asked}))"
    )
    start = partial(
        subprocess.Popen,
        [sys.executable, "-c", code],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment(TOY_MIRROR=mirror.address),
    )
    first = start()
    assert mirror.half_sent.wait(300)
    second = start()
    assert "waiting for it" in second.stderr.readline()
    mirror.go.set()
    said = [each.communicate(timeout=300)[0] for each in (first, second)]
    assert [first.returncode, second.returncode] == [0, 0]
    assert [path for path, _ in mirror.asked] == ["/a9a", "/a9a.t"]
    assert "It is from" in said[0] and "in the cache already" in said[1]


STUDY = (sys.executable, "-m", "proxlin.cli", "reproduce", "badger", "--out")


def at_terminal(mirror, out, answer: bytes) -> tuple[int, str]:
    """Run the study of toy_data at a terminal where a person gives this answer."""
    terminal, end = pty.openpty()
    process = subprocess.Popen(
        [*STUDY, out],
        stdin=end,
        stdout=end,
        stderr=end,
        env=environment(
            PROXLIN_EXPERIMENTS="toy_data", TOY_MIRROR=mirror.address, TERM="dumb"
        ),
    )
    os.close(end)
    shown = b""
    with suppress(OSError):  # how Linux says that a terminal is at its end
        while more := os.read(terminal, 10_000):
            shown += more
            if b"[y/N]" in shown and answer:
                os.write(terminal, answer)
                answer = b""
    os.close(terminal)
    return process.wait(300), shown.decode()


def test_a_person_is_asked_once_and_nobody_is_waited_for(mirror, tmp_path):
    mirror.files = {"/a9a": ROWS, "/a9a.t": ROWS}
    code, shown = at_terminal(mirror, tmp_path / "no", b"\n")
    assert code == 0 and "a9a: not here" in shown and "on a9a (synthetic)" in shown
    assert not mirror.asked
    # the folder goes on with the data it was begun with, and asks no more
    code, shown = at_terminal(mirror, tmp_path / "no", b"")
    assert code == 0 and "[y/N]" not in shown
    # no terminal: nothing is asked, and the command that gets the data is named
    piped = subprocess.run(
        [*STUDY, tmp_path / "pipe"],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        env=environment(PROXLIN_EXPERIMENTS="toy_data", TOY_MIRROR=mirror.address),
        check=True,
    )
    assert "`proxlin data get a9a` downloads it" in piped.stdout
    assert not mirror.asked
    code, shown = at_terminal(mirror, tmp_path / "yes", b"y\n")
    assert code == 0 and "on a9a (another file)" in shown and "(synthetic)" not in shown
    assert [path for path, _ in mirror.asked] == ["/a9a", "/a9a.t"]


# ------------------------------------------------------------------------------- words and Warcraft


def letter_data(words: sequences.Words) -> bytes:
    """Words in the format of letter.data."""
    lines = []
    for word in range(len(words)):
        length = words.lengths[word]
        for t in range(length):
            follows = len(lines) + 2 if t + 1 < length else -1
            letter = sequences.ALPHABET[words.labels[word, t]]
            head = [len(lines) + 1, letter, follows, word + 1, t + 1, words.folds[word]]
            lines.append("\t".join(map(str, [*head, *words.pixels[word, t]])) + "\t\n")
    return "".join(lines).encode()


def test_the_words_are_converted(get, refused, mirror, monkeypatch, tmp_path):
    made = sequences.synthetic_words(200)
    address = f"{mirror.address}/letter.data.gz"
    at(monkeypatch, "ocr_letters", address)
    mirror.files["/letter.data.gz"] = gzip.compress(letter_data(made))
    assert "it has 200 words" in refused("ocr_letters")
    monkeypatch.setattr(letters, "COUNTS", (200, int(made.lengths.sum())))
    code, out, _ = get("ocr_letters")
    assert code == 0 and "were counted, and nothing else was checked" in out
    assert sequences.words_origin().kind == "file"
    read = sequences.words_of(sequences.words_origin().content)
    for name in ("pixels", "labels", "lengths", "folds"):
        np.testing.assert_array_equal(getattr(read, name), getattr(made, name))
    assert catalog.place("ocr_letters").source == address


def test_the_real_words_come_out_of_letter_data(data_file, tmp_path, monkeypatch):
    monkeypatch.setenv("PROXLIN_CACHE", str(tmp_path / "cache"))
    words = sequences.load_words(data_file("sequences/ocr_letters.npz"))
    path = tmp_path / "letter.data"
    path.write_bytes(letter_data(words))
    assert letters.digest(letters.convert(path)) == letters.DIGEST
    assert "are those that are known" in letters.get_words(path, None, "here")


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda text: text[:-300], "fields where there must be 134"),
        (lambda text: b"7".join(text.rsplit(b"-1", 1)), "ends before its last word"),
        (lambda text: b"\x1f\x8b" + text, "the packed file is damaged"),
        (lambda text: text.replace(b"\ta\t", b"\tA\t"), "is no letter from a to z"),
        (lambda text: text.replace(b"\t1\t\n", b"\t2\t\n"), "neither 0 nor 1"),
        (lambda text: b"\n", "line 1: it has 0 fields"),
    ],
)
def test_bad_letter_data_is_a_sentence(tmp_path, change, words):
    path = tmp_path / "letter.data"
    path.write_bytes(change(letter_data(sequences.synthetic_words(40))))
    with pytest.raises(UserError, match=words) as refused:
        letters.convert(path)
    assert str(refused.value).startswith(str(path))


def archive(arrays: dict[str, np.ndarray], mode: str = "w:gz") -> bytes:
    """The arrays by their path in a tar archive."""
    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode=mode) as tar:
        link = tarfile.TarInfo("warcraft/12x12/train_maps.npy")
        link.type = tarfile.SYMTYPE
        link.linkname = "/etc/passwd"
        tar.addfile(link)
        for name, array in arrays.items():
            content = io.BytesIO()
            np.save(content, array)
            member = tarfile.TarInfo(name)
            member.size = len(content.getvalue())
            content.seek(0)
            tar.addfile(member, content)
    return made.getvalue()


def test_the_warcraft_maps_are_unpacked(get, refused, mirror, monkeypatch, tmp_path):
    arrays = {}
    for split in warcraft.SPLITS:
        folder = f"../warcraft/12x12/{split}"
        arrays |= {
            f"{folder}_maps.npy": RNG.integers(0, 256, (3, 32, 32, 3)).astype(np.uint8),
            f"{folder}_vertex_weights.npy": RNG.random((3, 4, 4)).astype(np.float16),
            f"{folder}_shortest_paths.npy": np.stack([np.eye(4, dtype=np.uint8)] * 3),
            f"warcraft/18x18/{split}_maps.npy": np.zeros(3),
        }
    content = archive(arrays)
    address = f"{mirror.address}/maps"
    at(monkeypatch, "warcraft", address)
    mirror.files["/maps"] = content
    with pytest.raises(UserError, match="`proxlin data get warcraft` downloads them"):
        maps.load_warcraft()
    said = refused("warcraft")
    assert "the md5 of train_maps.npy in it is not that of the public file" in said
    sums = {}
    for path, array in arrays.items():
        buffer = io.BytesIO()
        np.save(buffer, array)
        name = path.rpartition("/")[2]
        if "12x12" in path and not name.startswith("val"):
            sums[name] = hashlib.md5(buffer.getvalue()).hexdigest()
    monkeypatch.setattr(maps, "CHECKSUMS", sums)
    code, out, _ = get("warcraft")
    assert code == 0 and "val was not checked" in out
    loaded = maps.load_warcraft(split="test")
    assert loaded.grid == (4, 4) and len(loaded) == 3
    np.testing.assert_array_equal(
        loaded.pixels, arrays["../warcraft/12x12/test_maps.npy"]
    )
    kept = sorted(path.relative_to(tmp_path / "cache") for path in files(tmp_path))
    assert len(kept) == 10 and {path.parts[0] for path in kept} == {"warcraft"}
    assert catalog.place("warcraft").source == address
    monkeypatch.setattr(warcraft, "MD5", hashlib.md5(content).hexdigest())
    local = tmp_path / "maps.tar.gz"
    local.write_bytes(content)
    code, out, _ = get("warcraft", "--from", local)
    assert code == 0 and "its md5 is the one on public record" in out


@pytest.mark.parametrize("damage", ["cut", "no archive", "empty"])
def test_a_bad_archive_is_a_sentence(refused, mirror, monkeypatch, damage):
    whole = archive({"warcraft/12x12/train_maps.npy": RNG.random(5000)})
    content = {"cut": whole[: len(whole) // 2], "no archive": b"no" * 999}
    mirror.files["/maps"] = content.get(damage, archive({}))
    at(monkeypatch, "warcraft", f"{mirror.address}/maps")
    said = refused("warcraft")
    assert f"{mirror.address}/maps: " in said
    assert ("no whole tar archive" in said) == (damage != "empty")


def test_every_data_set_has_an_address_and_a_place(tmp_path, monkeypatch):
    """Law: what can be read by name can be had by name, from https first."""
    monkeypatch.setenv("PROXLIN_CACHE", str(tmp_path))
    assert classification.SOURCES.keys() <= catalog.REMOTES.keys()
    for name, remote in catalog.REMOTES.items():
        assert remote.addresses[0].startswith("https://") and remote.page.startswith(
            "https://"
        )
        assert remote.size > 1e5 and remote.licence and catalog.shape(name)
        if name in classification.SOURCES:
            source = classification.SOURCES[name]
            assert remote.addresses[0].endswith(source.file.rpartition("/")[2])
            assert len(source.md5) == 32 and len(source.sha256) in (0, 64)
