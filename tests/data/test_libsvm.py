"""LIBSVM files and the sets read from them: the parser's twin, bad input by its line, the cache,
real files.
"""

import bz2
import gzip
import lzma

import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import proxlin as px
from proxlin.data import cache, classification, libsvm
from proxlin.data.equations import equations
from proxlin.errors import UserError

COMPRESS = {"": bytes, ".bz2": bz2.compress, ".gz": gzip.compress, ".xz": lzma.compress}
TEXT = b"""2 1:0.5 3:-2
1 2:1e3  # a comment

1
2 qid:7 1:-1 2:0 4:.25
"""


@pytest.fixture
def folders(tmp_path, monkeypatch):
    """An empty cache, and a PROXLIN_DATA that holds a small file under the name of ijcnn1."""
    monkeypatch.setenv("PROXLIN_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("PROXLIN_DATA", str(tmp_path / "data"))
    file = tmp_path / "data" / "small.bz2"
    file.parent.mkdir()
    file.write_bytes(bz2.compress(TEXT))
    source = classification.Source("small.bz2", cache.sha256(file), 4, 4, 0.5)
    monkeypatch.setitem(classification.SOURCES, "ijcnn1", source)
    return tmp_path


# ------------------------------------------------------------------------------------------ reading


@pytest.mark.parametrize("suffix", COMPRESS)
def test_reads_text_and_compressed_files(tmp_path, suffix):
    path = tmp_path / "named as it likes"
    path.write_bytes(COMPRESS[suffix](TEXT))
    table = libsvm.read(path)
    np.testing.assert_array_equal(table.labels, [1, -1, -1, 1])
    dense = [[0.5, 0, -2, 0], [0, 1000, 0, 0], [0, 0, 0, 0], [-1, 0, 0, 0.25]]
    np.testing.assert_array_equal(table.dense(), dense)
    np.testing.assert_array_equal(table.sparse().dense(), dense)
    assert libsvm.read(path, 9).dense().shape == (4, 9)


NUMBERS = st.floats(-1e100, 1e100, allow_nan=False).map(lambda x: float(f"{x:.17g}"))
ROWS = st.lists(
    st.tuples(st.booleans(), st.dictionaries(st.integers(1, 30), NUMBERS, max_size=5)),
    min_size=2,
)


@settings(max_examples=60, deadline=None)
@given(ROWS, st.sampled_from(["0", "-1", "1"]), st.sampled_from(["2", "+3.5"]))
def test_what_is_written_is_read(tmp_path_factory, rows, low, high):
    rows = [(True, rows[0][1]), (False, rows[1][1]), *rows[2:]]
    lines = [
        " ".join(
            [high if up else low, *(f"{i}:{x!r}" for i, x in sorted(entries.items()))]
        )
        for up, entries in rows
    ]
    path = tmp_path_factory.mktemp("written") / "file"
    path.write_text("\n".join(lines))
    table = libsvm.read(path, 30)
    naive = np.zeros((len(rows), 30))
    for row, (_, entries) in zip(naive, rows, strict=True):
        for i, x in entries.items():
            row[i - 1] = x
    np.testing.assert_array_equal(table.dense(), naive)
    np.testing.assert_array_equal(table.labels, [1 if up else -1 for up, _ in rows])
    norms = np.linalg.norm(table.normalized().dense(), axis=1)
    np.testing.assert_allclose(norms, np.any(naive != 0, axis=1), rtol=1e-12)


@pytest.mark.parametrize(
    ("text", "line", "words"),
    [
        (b"1 1:2\n2 1:x\n", 2, "'1:x' is not index:value"),
        (b"1 1:2\n2 1\n", 2, "'1' is not index:value"),
        (b"1 1:2\n2 1:1 a:3\n", 2, "'a:3' is not index:value"),
        (b"1 1:2\nyes 1:1\n", 2, "the label 'yes' is not"),
        (b"1 1:2\n\n# more\n1,2 1:1\n", 4, "the label '1,2' is not"),
        (b"\x00\xff\x00\x01 what is this\n", 1, "is not a finite number"),
        (b"1 1:2\n2 3:1 2:1\n", 2, "the index 2 comes after 3"),
        (b"1 1:2\n2 3:1 3:1\n", 2, "the index 3 comes after 3"),
        (b"1 1:2\n2 0:1 1:1\n", 2, "the index 0 is not between 1 and"),
        (b"1 1:2\n2 -1:1\n", 2, "the index -1 is not between 1 and"),
        (b"1 1:2\n2 99999999999:1\n", 2, "the index 99999999999 is not between"),
        (b"1 1:2\n2 5:1\n", 2, "the index 5 is not between 1 and 4"),
        (b"1 1:2\n2 " + b"1" * 5000 + b":1\n", 2, "is not between 1 and 4"),
        (b"1 1:2\n2 1:nan\n", 2, "'nan' of index 1 is not finite"),
        (b"1 1:2\n2 1:1\n1 2:-inf\n", 3, "'-inf' of index 2 is not finite"),
        (b"1 1:2\n2 1:1e999\n", 2, "'1e999' of index 1 is not finite"),
        (b"1 1:2\nnan 1:1\n", 2, "the label 'nan' is not a finite number"),
        (b"1 1:2\n2 1:1\n3 1:1\n", 3, "the label 3 is a third one, after 1 and 2"),
        (b"1 1:2\n1 1:1\n", 2, "all labels up to here, the end, are 1"),
        (b"", 1, "the file has no rows"),
        (b"\n# nothing\n", 1, "the file has no rows"),
    ],
)
def test_bad_files_are_refused_by_their_line(folders, text, line, words):
    path = folders / "bad.bz2"
    path.write_bytes(bz2.compress(text))
    with pytest.raises(UserError) as refused:
        classification.get("ijcnn1", path, cache.sha256(path))
    sentence = str(refused.value)
    assert (
        sentence.startswith(f"{path}, line {line}: ")
        and words in sentence
        and sentence.endswith(".")
    )
    assert not list(folders.glob("cache/**/*.npz")) and not list(
        folders.glob("cache/**/.*")
    )


@pytest.mark.parametrize("suffix", [".bz2", ".gz", ".xz"])
def test_truncated_and_damaged_compression(tmp_path, suffix):
    path = tmp_path / "file"
    rng = np.random.default_rng(0)
    whole = COMPRESS[suffix](
        b"".join(
            b"%d 1:%f\n" % (1 + i % 2, x) for i, x in enumerate(rng.normal(size=3000))
        )
    )
    path.write_bytes(whole[: len(whole) // 2])
    with pytest.raises(
        UserError, match=r"file, line \d+: the compressed file ends too early\.$"
    ):
        libsvm.read(path)
    path.write_bytes(whole[:3000] + bytes(64) + whole[3064:])
    with pytest.raises(UserError, match=r"file, line \d+: .*\.$"):
        libsvm.read(path)


def test_files_that_are_not_there(folders):
    for path in (folders / "nothing", folders):
        with pytest.raises(UserError, match=str(path)):
            libsvm.read(path)
        with pytest.raises(UserError, match=str(path)):
            classification.get("ijcnn1", path)
    with pytest.raises(
        UserError, match="no data set mnist; take one of ijcnn1, ijcnn1.t, covtype"
    ):
        classification.load("mnist")


# ----------------------------------------------------------------------------------- sets and cache


def test_a_file_is_read_once(folders, monkeypatch):
    first = classification.load("ijcnn1", say=pytest.fail)
    np.testing.assert_allclose(np.linalg.norm(first.x, axis=1), [1, 1, 0, 1])
    assert (first.source, first.synthetic, first.columns) == ("small.bz2", False, 4)
    monkeypatch.setattr(classification, "read", lambda *_: pytest.fail("read again"))
    again = classification.load("ijcnn1", say=pytest.fail, dtype=np.float32)
    assert again.x.dtype == again.y.dtype == np.float32
    np.testing.assert_allclose(again.x, first.x, rtol=1e-6)


@pytest.mark.parametrize("damage", ["older", "cut", "other", "foreign"])
def test_an_old_or_damaged_entry_is_rebuilt(folders, damage):
    classification.load("ijcnn1")
    path = classification.entry("ijcnn1")
    whole = path.read_bytes()
    if damage == "older":
        with np.load(path) as file:
            np.savez(path, **{**file, "format": np.int64(cache.FORMAT - 1)})
    else:
        path.write_bytes(
            {
                "cut": whole[:-200],
                "other": b"not a zip",
                "foreign": whole[:300] + bytes(9) + whole[309:],
            }[damage]
        )
    assert classification.cached("ijcnn1") is None
    assert len(classification.load("ijcnn1")) == 4
    assert classification.cached("ijcnn1") is not None


def test_a_wrong_checksum_is_refused_unless_it_is_given(folders):
    file = folders / "data/small.bz2"
    file.write_bytes(bz2.compress(b"0 1:1\n1 1:2\n"))
    with pytest.raises(
        UserError,
        match=r"small.bz2: its SHA-256 is \w+, which is not known for ijcnn1, and it has 2 rows where ijcnn1 has 4",
    ):
        classification.load("ijcnn1")
    assert not (folders / "cache").exists()
    classification.get("ijcnn1", file, cache.sha256(file).upper())
    data = classification.load("ijcnn1")
    assert len(data) == 2 and data.source.startswith(
        "another file for ijcnn1, SHA-256 "
    )


def test_nothing_half_written_is_left(folders, monkeypatch):
    def half(file, arrays):
        file.write(b"half")
        raise OSError(28, "No space left on device", "cache")

    monkeypatch.setattr(cache, "write_arrays", half)
    # a cache that cannot be written is no reason not to work
    assert len(classification.load("ijcnn1")) == 4
    with pytest.raises(OSError, match="No space left"):
        classification.get("ijcnn1", folders / "data/small.bz2")
    assert not [path for path in folders.glob("cache/**/*") if path.is_file()]


def test_synthetic_data_is_said_aloud(folders):
    said = []
    data = classification.load("ijcnn1.t", said.append)
    assert (
        data.synthetic and data.x.shape == (91_701, 22) and "synthetic" in data.source
    )
    assert len(said) == 1 and "synthetic" in said[0] and "ijcnn1.t" in said[0]
    assert abs(np.mean(data.y > 0) - 0.095) < 1e-3
    with pytest.raises(UserError, match="ijcnn1.t is missing beside"):
        classification.parts("ijcnn1", say=said.append)


def test_parts_never_share_a_row(folders, monkeypatch):
    monkeypatch.setitem(
        classification.SOURCES,
        "covtype",
        classification.Source("none", "", 1000, 5, 0.4),
    )
    said = []
    parts = classification.parts("covtype", seed=3, say=said.append)
    assert [len(part) for part in (parts.train, parts.validation, parts.test)] == [
        640,
        160,
        200,
    ]
    rows = np.concatenate(
        [part.x for part in (parts.train, parts.validation, parts.test)]
    )
    assert len(np.unique(rows, axis=0)) == 1000
    again, other = (
        classification.parts("covtype", seed=seed, say=said.append) for seed in (3, 4)
    )
    np.testing.assert_array_equal(parts.test.x, again.test.x)
    assert not np.array_equal(parts.test.x, other.test.x)
    small = classification.Source("none", "", 50, 5, 0.4)
    for name in ("ijcnn1", "ijcnn1.t"):
        monkeypatch.setitem(classification.SOURCES, name, small)
    monkeypatch.delenv("PROXLIN_DATA")
    parts = classification.parts("ijcnn1", say=said.append)
    assert [len(part) for part in (parts.train, parts.validation, parts.test)] == [
        40,
        10,
        50,
    ]


@pytest.mark.parametrize(
    ("columns", "entries", "sparse"),
    [(300, 12, True), (22, 5, False), (100_000, 40, True)],
)
def test_sparse_data_stays_sparse_where_that_is_faster(columns, entries, sparse):
    rng = np.random.default_rng(1)
    index = np.sort(
        rng.integers(0, columns // entries, (64, entries))
        + np.arange(entries) * (columns // entries)
    )
    starts = np.arange(65) * entries
    y = np.where(rng.random(64) < 0.5, -1.0, 1.0)
    table = libsvm.Table(
        y,
        starts,
        index.ravel().astype(np.int32),
        rng.normal(size=64 * entries),
        columns,
    )
    data = classification.labelled("words", table.normalized(), "here")
    assert isinstance(data.x, px.SparseRows) == sparse and data.columns == columns
    half = data[np.arange(32)]
    assert len(half) == 32 and half.columns == columns
    if columns == 100_000:
        p = equations(half.x, half.y)
        solution = px.minimize(
            p,
            jnp.zeros(columns),
            px.stochastic_gauss_newton(0.1, 16, 8, subsolver="apg"),
            steps=3,
        )
        assert solution.value < solution.history["value"][0]


# --------------------------------------------------------------------------------------- real files


def real(name, data_file, tmp_path, monkeypatch):
    monkeypatch.setenv("PROXLIN_CACHE", str(tmp_path))
    data_file(classification.SOURCES[name].file)
    data = classification.load(name, say=pytest.fail)
    source = classification.SOURCES[name]
    assert data.x.shape == (source.rows, source.columns)
    np.testing.assert_allclose(np.linalg.norm(data.x, axis=1), 1, rtol=1e-12)
    assert abs(np.mean(data.y > 0) - source.positive) < 1e-4
    return data


def test_ijcnn1(data_file, tmp_path, monkeypatch):
    data = real("ijcnn1", data_file, tmp_path, monkeypatch)
    assert np.sum(data.y < 0) == 45_137 and np.sum(data.y > 0) == 4_853


@pytest.mark.slow
def test_the_test_set_and_covtype(data_file, tmp_path, monkeypatch):
    data = real("ijcnn1.t", data_file, tmp_path, monkeypatch)
    assert np.sum(data.y < 0) == 82_989 and np.sum(data.y > 0) == 8_712
    data = real("covtype", data_file, tmp_path, monkeypatch)
    assert np.sum(data.y < 0) == 297_711 and np.sum(data.y > 0) == 283_301
