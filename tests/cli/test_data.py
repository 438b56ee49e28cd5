"""`proxlin data`: what is there, files into the cache, and what is refused in one sentence with exit code 2."""

import bz2
import json

import numpy as np
import pytest

from proxlin.cli.main import main
from proxlin.data import cache, catalog, classification

TEXT = b"1 1:2 3:1\n2 2:4\n"


@pytest.fixture
def small(tmp_path, monkeypatch):
    """Small files in place of ijcnn1 and its test set; an empty cache and no PROXLIN_DATA."""
    monkeypatch.setenv("PROXLIN_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("PROXLIN_DATA", raising=False)
    for name, file in (("ijcnn1", "small.bz2"), ("ijcnn1.t", "small.t.bz2")):
        path = tmp_path / file
        path.write_bytes(bz2.compress(TEXT * (1 if name == "ijcnn1" else 2)))
        source = classification.Source(f"below/{file}", cache.sha256(path), 2, 3, 0.5)
        monkeypatch.setitem(classification.SOURCES, name, source)
    return tmp_path


@pytest.fixture
def run(capsys):
    """Run `proxlin data ...` in this process: (exit code, standard output, standard error)."""

    def run(*arguments: object) -> tuple[int, str, str]:
        code = main(["data", *map(str, arguments)])
        return code, *capsys.readouterr()

    return run


def test_get_keeps_a_file_and_its_test_set(run, small):
    code, out, err = run("get", "ijcnn1", "--from", small / "small.bz2")
    assert (
        (code, err) == (0, "")
        and "ijcnn1: 2 x 3. Its SHA-256 is" in out
        and "ijcnn1.t: 4 x 3. Its SHA-256 is" in out
    )
    assert sorted(path.name for path in (small / "cache/libsvm").iterdir()) == [
        "ijcnn1.npz",
        "ijcnn1.t.npz",
    ]
    code, out, _ = run("list")
    lines = out.splitlines()
    assert (
        code == 0
        and lines[0].endswith(f"in the cache, from {small / 'small.bz2'}")
        and "581,012 x 54" in lines[2]
    )
    assert lines[2].endswith("CC BY 4.0           not here: proxlin data get covtype")
    parts = classification.parts("ijcnn1", validation=0.5, say=pytest.fail)
    assert [len(part) for part in (parts.train, parts.validation, parts.test)] == [
        1,
        1,
        4,
    ]


def test_get_finds_the_file_in_the_data_folder(run, small, monkeypatch):
    (small / "below").mkdir()
    for file in ("small.bz2", "small.t.bz2"):
        (small / file).rename(small / "below" / file)
    monkeypatch.setenv("PROXLIN_DATA", str(small))
    assert "in PROXLIN_DATA" in run("list")[1]
    assert run("get", "ijcnn1")[0] == 0 and (small / "cache/libsvm/ijcnn1.npz").exists()


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("get", "nope"), "no data set nope"),
        (("get", "ijcnn1", "--from", "missing"), "missing: there is no such file"),
        (("get", "ijcnn1", "--from", "small.t.bz2"), "small.t.bz2: its SHA-256 is"),
        (("make", "nope"), "no data set nope"),
        (("get", "ijcnn1", "--form", "x"), "--form"),
        ((), "Missing command"),
    ],
)
def test_refuses_in_one_sentence(run, small, monkeypatch, arguments, words):
    monkeypatch.chdir(small)
    code, _, err = run(*arguments)
    assert code == 2 and words in err
    assert err.startswith("proxlin: ") and err.endswith(".\n") and err.count("\n") == 1
    assert not (small / "cache").exists()


def test_a_broken_line_is_named_and_leaves_nothing(run, small):
    bad = small / "bad.bz2"
    bad.write_bytes(bz2.compress(TEXT + b"1 3:1 2:1\n"))
    code, _, err = run("get", "ijcnn1", "--from", bad, "--sha256", cache.sha256(bad))
    assert (code, err) == (
        2,
        f"proxlin: {bad}, line 3: the index 2 comes after 3; they must increase.\n",
    )
    bad.write_bytes(bz2.compress(TEXT * 1000)[:-20])
    code, _, err = run("get", "ijcnn1", "--from", bad, "--sha256", cache.sha256(bad))
    assert code == 2 and "the compressed file ends too early" in err
    assert not (small / "cache").exists()


def test_a_cache_that_cannot_be_written(run, small, monkeypatch):
    (small / "file").write_text("mine")
    monkeypatch.setenv("PROXLIN_CACHE", str(small / "file"))
    code, _, err = run("get", "ijcnn1", "--from", small / "small.bz2")
    assert (
        code == 2
        and str(small / "file") in err
        and (small / "file").read_text() == "mine"
    )


def test_check_and_make(run, small, monkeypatch):
    monkeypatch.setitem(
        classification.SOURCES, "covtype", classification.Source("none", "", 10, 3, 0.4)
    )
    code, out, _ = run("make", "covtype")
    assert code == 0 and "10 x 3 synthetic" in out
    with np.load(small / "cache/synthetic/covtype.npz") as made:
        assert made["x"].shape == (10, 3) and set(made["y"]) == {-1.0, 1.0}
    run("get", "ijcnn1", "--from", small / "small.bz2")
    entry = classification.entry("ijcnn1")
    entry.write_bytes(entry.read_bytes()[:-50])
    code, out, _ = run("check")
    assert code == 0 and "is old or damaged and will be rebuilt" in out.splitlines()[0]
    listed = json.loads(run("list", "--json")[1])
    assert [each["name"] for each in listed] == list(catalog.REMOTES)
    assert listed[0]["holds"] == "2 x 3" and listed[0]["licence"]
    (small / "below").mkdir()
    (small / "below/small.bz2").write_bytes(b"something else")
    monkeypatch.setenv("PROXLIN_DATA", str(small))
    code, _, err = run("check")
    assert code == 2 and "small.bz2: its SHA-256 is not that of ijcnn1" in err


def test_every_data_command_has_help_with_an_example(cli):
    code, out, _ = cli("data", "--help")
    assert code == 0 and all(name in out for name in ("list", "get", "make", "check"))
    code, out, _ = cli("data", "get", "--help")
    assert code == 0 and "Example: proxlin data get" in out
