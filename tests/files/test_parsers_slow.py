"""Every parser by hypothesis: what is written is read, a naive second parser agrees, and rubbish is
one sentence.
"""

import csv
import io
import json
import math
import tempfile
from pathlib import Path

import hypothesis.extra.numpy as arrays
import hypothesis.strategies as st
import jax
import jax.numpy as jnp
import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest
from hypothesis import HealthCheck, given, settings

import proxlin as px
from good_files import READERS, model_files, outcome
from guard import limited
from proxlin.cost import Cost, Status
from proxlin.data import libsvm, sequences
from proxlin.data.formats.texts import MISSING
from proxlin.data.frames import LARGEST, read_frame
from proxlin.errors import UserError
from proxlin.experiments.engine.config import parse, profiles
from proxlin.experiments.engine.store import content_key, open_store
from proxlin.files import npz as archives
from proxlin.run.solution import Solution
from proxlin.tables.columns import encoder_of
from proxlin.tables.model import load_models, pack_models
from proxlin.tables.standardize import units_of

pytestmark = pytest.mark.slow
EXAMPLES = 200
much = settings(
    max_examples=EXAMPLES,
    deadline=None,
    derandomize=True,
    database=None,
    suppress_health_check=list(HealthCheck),
)
finite = st.floats(-1e100, 1e100, allow_subnormal=False)


def written(content: bytes | str, name: str) -> Path:
    """A new file of that name in the test's own folder."""
    path = Path(tempfile.mkdtemp(dir=written.folder)) / name
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return path


@pytest.fixture(autouse=True)
def folder(tmp_path):
    written.folder = tmp_path


@pytest.mark.parametrize("name", READERS)
@much
@given(
    content=st.one_of(
        st.binary(max_size=300), st.text(max_size=200).map(lambda text: text.encode())
    )
)
def test_rubbish_is_one_sentence(name, content):
    with pytest.MonkeyPatch.context() as patch:
        path = written(content, next(iter(READERS[name].seeds())))
        patch.setenv("PROXLIN_CACHE", str(path.parent))
        outcome(READERS[name], path)


# ------------------------------------------------------------------------------------------- LIBSVM

TOKENS = st.one_of(
    st.sampled_from(
        [
            "1",
            "2",
            "-1",
            "+1",
            "0",
            "1:1",
            "2:0.5",
            "3:-1e3",
            "qid:3",
            "#",
            "# 1:2",
            "1:",
            ":1",
            "a",
            "1:nan",
        ]
    ),
    st.builds(lambda i, x: f"{i}:{x!r}", st.integers(-1, 12), finite),
    st.builds(lambda x: f"{x!r}", finite),
    st.text("0123456789:.e+- #\x00", max_size=8),
)
LINES = st.lists(st.lists(TOKENS, max_size=5).map(" ".join), max_size=6)


def naive_libsvm(text: str) -> tuple[list[float], list[dict[int, float]]] | None:
    """Labels and rows, or None if the file is to be refused."""
    labels, rows = [], []
    for line in text.split("\n"):
        tokens = line.partition("#")[0].split()
        if not tokens:
            continue
        try:
            label, row = float(tokens[0]), {}
            for token in (
                tokens[2:]
                if tokens[1:] and tokens[1].startswith("qid:")
                else tokens[1:]
            ):
                index, value = token.split(":")
                row[int(index)] = float(value)
                if list(row) != sorted(row) or (
                    len(row) > 1 and int(index) == list(row)[-2]
                ):
                    return None
        except ValueError:
            return None
        if (
            not math.isfinite(label)
            or not all(map(math.isfinite, row.values()))
            or any(i < 1 for i in row)
        ):
            return None
        labels.append(label)
        rows.append(row)
    return (labels, rows) if len(set(labels)) == 2 else None


@much
@given(lines=LINES)
def test_libsvm_agrees_with_a_naive_parser(lines):
    text = "\n".join(lines)
    expected = naive_libsvm(text)
    try:
        table = libsvm.read(written(text, "a"), 12)
    except UserError:
        assert expected is None or any(i > 12 for row in expected[1] for i in row), text
        return
    assert expected is not None, text
    labels, rows = expected
    naive = np.zeros((len(rows), 12))
    for dense, row in zip(naive, rows, strict=True):
        for i, x in row.items():
            dense[i - 1] = x
    np.testing.assert_array_equal(table.dense(), naive)
    np.testing.assert_array_equal(
        table.labels, np.where(np.array(labels) == min(labels), -1, 1)
    )


# ------------------------------------------------------------------------------------------- tables

NAMES = st.lists(
    st.text("abcXYZ 0_-é", min_size=1, max_size=6).map(lambda x: f"n{x}z"),
    min_size=1,
    max_size=4,
    unique=True,
)
WORDS = st.text("abc,;|\"'\n éλ#%{}", min_size=1, max_size=8).map(lambda x: f"t{x}t")
CELLS = st.one_of(st.none(), WORDS)


@st.composite
def columns(draw, texts=WORDS):
    """Columns by name: of numbers or of texts, with gaps."""
    n = draw(st.integers(1, 8))
    found = {}
    for name in draw(NAMES):
        kind = draw(st.sampled_from([finite, texts]))
        found[name] = draw(st.lists(st.one_of(st.none(), kind), min_size=n, max_size=n))
    return found


def same(frame, expected: dict[str, list]) -> None:
    assert frame.names == tuple(expected)
    for column, cells in zip(frame.columns, expected.values(), strict=True):
        if all(cell is None for cell in cells):
            assert column.missing.all()
        elif column.numeric:
            np.testing.assert_array_equal(
                column.cells,
                np.array([np.nan if x is None else x for x in cells], float),
            )
        else:
            assert column.cells.tolist() == cells


@much
@given(
    table=columns(),
    separator=st.sampled_from([",", ";", "\t", "|"]),
    ends=st.sampled_from(["\n", "\r\n"]),
)
def test_what_csv_writes_is_read(table, separator, ends):
    text = io.StringIO()
    writer = csv.writer(text, delimiter=separator, lineterminator=ends)
    if len(table) == 1 and separator != "\t":  # nothing tells the separator then
        table = table | {"n2": [1.0] * len(next(iter(table.values())))}
    writer.writerow(table)
    writer.writerows(
        [
            ["" if x is None else x for x in row]
            for row in zip(*table.values(), strict=True)
        ]
    )
    name = "a.tsv" if separator == "\t" else "a.csv"
    expected = {
        name.strip(): [x.strip() if isinstance(x, str) else x for x in cells]
        for name, cells in table.items()
    }
    path = written(text.getvalue(), name)
    if ends == "\r\n" or any(
        isinstance(x, str) and "\n" in x for cells in table.values() for x in cells
    ):
        try:
            same(read_frame(path), expected)
        except UserError as error:  # a line that is one empty cell is no row to some
            assert "Expected" in str(error) or "no rows" in str(error), error
    elif len(table) > 1:
        same(read_frame(path), expected)


@much
@given(table=columns(st.text("abcdé ", min_size=1, max_size=8).map(lambda x: f"t{x}t")))
def test_what_is_written_as_arff_is_read(table):
    kind = lambda cells: (
        "string" if any(isinstance(x, str) for x in cells) else "numeric"
    )
    head = "".join(
        f"@ATTRIBUTE '{name}' {kind(cells)}\n" for name, cells in table.items()
    )
    rows = "".join(
        ",".join(_arff(x) for x in row) + "\n"
        for row in zip(*table.values(), strict=True)
    )
    same(read_frame(written(f"@RELATION r\n{head}@DATA\n{rows}", "a.arff")), table)


def _arff(cell) -> str:
    return "?" if cell is None else f"'{cell}'" if isinstance(cell, str) else repr(cell)


KINDS = (
    pa.float64(),
    pa.float32(),
    pa.int8(),
    pa.int64(),
    pa.uint64(),
    pa.bool_(),
    pa.string(),
    pa.date32(),
)
KINDS += (
    pa.dictionary(pa.int8(), pa.string()),
    pa.list_(pa.int8()),
    pa.binary(),
    pa.timestamp("us"),
    pa.null(),
)


@much
@given(data=st.data())
def test_parquet_of_any_type_is_read_or_refused(data):
    n = data.draw(st.integers(0, 4))
    plain = {
        "float": st.floats(),
        "int": st.integers(0, 127),
        "bool": st.booleans(),
        "str": WORDS,
        "bytes": st.binary(),
    }
    plain |= {
        "list": st.lists(st.integers(0, 9), max_size=2),
        "date": st.dates(),
        "time": st.datetimes(),
        "none": st.none(),
    }
    names = (
        "float",
        "float",
        "int",
        "int",
        "int",
        "bool",
        "str",
        "date",
        "str",
        "list",
        "bytes",
        "time",
        "none",
    )
    made = {}
    for name in data.draw(NAMES):
        place = data.draw(st.integers(0, len(KINDS) - 1))
        cells = data.draw(
            st.lists(st.one_of(st.none(), plain[names[place]]), min_size=n, max_size=n)
        )
        made[name] = (
            pa.array(cells, KINDS[place], from_pandas=False)
            if place != 1
            else pa.array(np.array(cells, float), KINDS[1])
        )
    buffer = io.BytesIO()
    pyarrow.parquet.write_table(pa.table(made), buffer)
    try:
        frame = read_frame(written(buffer.getvalue(), "a.parquet"))
    except UserError as error:
        assert str(error).endswith(".") and "\n" not in str(error)
        return
    assert frame.names == tuple(made) and len(frame) == n
    for name, array in made.items():
        if pa.types.is_floating(array.type):
            kept = [
                math.nan if x is None or math.isinf(x) else x for x in array.to_pylist()
            ]
            np.testing.assert_array_equal(frame[name].cells, np.array(kept, float))


@much
@given(
    cells=st.lists(
        st.one_of(
            st.sampled_from([*MISSING, "x", "1", "2", "1e3", "0x1", "1_0", "١"]),
            finite.map(repr),
        ),
        min_size=1,
    )
)
def test_the_rule_of_numbers_and_texts(cells):
    """Over half of the filled cells decide, and then every other cell is an error."""
    number = lambda x: x.isascii() and "_" not in x and "x" not in x
    filled = [x for x in cells if x not in MISSING]
    numbers = [x for x in filled if number(x)]
    path = written("name,other\n" + "".join(f"{x},1\n" for x in cells), "a.csv")
    if filled and 2 * len(numbers) <= len(filled):
        assert read_frame(path)["name"].cells.tolist() == [
            None if x in MISSING else x for x in cells
        ]
    elif len(numbers) < len(filled):
        with pytest.raises(
            UserError,
            match=f"row {1 + next(i for i, x in enumerate(cells) if x in filled and not number(x))},",
        ):
            read_frame(path)
    else:
        np.testing.assert_array_equal(
            read_frame(path)["name"].cells,
            [math.nan if x in MISSING else float(x) for x in cells],
        )


@much
@given(table=columns(), shift=finite)
def test_columns_become_numbers_and_units_can_be_undone(table, shift):
    path = written(json.dumps(0), "a.csv")
    frame = read_frame(_as_parquet(path, table))
    try:
        X, _ = encoder_of(frame, []).encode(frame)
    except UserError as error:
        assert "filled cell" in str(error) or "no column left" in str(error)
        return
    assert (
        X.shape == (len(frame), encoder_of(frame, []).width)
        and np.isfinite(X).all()
        and np.abs(X).max() <= LARGEST
    )
    y = X[:, :1] + shift
    units = units_of(X, y)
    assert np.isfinite(units.features(X)).all() and np.isfinite(units.targets(y)).all()
    np.testing.assert_allclose(
        units.given(units.targets(y)), y, rtol=1e-12, atol=1e-12 * np.abs(y).max()
    )


def _as_parquet(path: Path, table: dict[str, list]) -> Path:
    path = path.with_suffix(".parquet")
    kind = lambda cells: (
        pa.string() if any(isinstance(x, str) for x in cells) else pa.float64()
    )
    pyarrow.parquet.write_table(
        pa.table({name: pa.array(cells, kind(cells)) for name, cells in table.items()}),
        path,
    )
    return path


# ------------------------------------------------------------------------------ arrays and archives

DTYPES = st.one_of(
    arrays.integer_dtypes(),
    arrays.unsigned_integer_dtypes(),
    arrays.floating_dtypes(sizes=(16, 32, 64)),
)
ARRAYS = arrays.arrays(
    st.one_of(DTYPES, arrays.boolean_dtypes(), arrays.unicode_string_dtypes(max_len=9)),
    arrays.array_shapes(min_dims=0, min_side=0),
)


@much
@given(
    found=st.dictionaries(
        st.text("abcw0.", min_size=1, max_size=5), ARRAYS, max_size=4
    ),
    fortran=st.booleans(),
)
def test_an_archive_is_what_numpy_reads(found, fortran):
    found = {
        name: np.asfortranarray(x) if fortran and x.ndim else x
        for name, x in found.items()
        if not name.endswith(".npy")
    }
    buffer = io.BytesIO()
    np.savez(buffer, **{f"{name}_": x for name, x in found.items()})
    path = written(buffer.getvalue(), "a.npz")
    read = archives.read_arrays(path)
    with np.load(path, allow_pickle=False) as expected:
        assert set(read) == set(expected.files)
        for name, array in read.items():
            np.testing.assert_array_equal(array, expected[name])
            assert (
                array.dtype == expected[name].dtype.newbyteorder("=")
                and array.shape == expected[name].shape
            )


@much
@given(array=ARRAYS)
def test_a_mapped_array_is_what_numpy_reads(array):
    buffer = io.BytesIO()
    np.save(buffer, array)
    path = written(buffer.getvalue(), "a.npy")
    if array.size:
        np.testing.assert_array_equal(archives.mapped(path), np.load(path))
    else:
        with pytest.raises(archives.Damaged):
            archives.mapped(path)


@much
@given(count=st.integers(1, 6), seed=st.integers(0, 99))
def test_words_survive_their_file(count, seed):
    words = sequences.synthetic_words(count, seed)
    inside = np.arange(words.labels.shape[1])[None] < words.lengths[:, None]
    parts = {
        "pixels": np.packbits(words.pixels[inside], axis=1),
        "labels": words.labels[inside],
    }
    buffer = io.BytesIO()
    np.savez_compressed(buffer, **parts, word_lengths=words.lengths, folds=words.folds)
    read, longest = (
        sequences.load_words(written(buffer.getvalue(), "words.npz")),
        words.lengths.max(),
    )
    np.testing.assert_array_equal(read.pixels, words.pixels[:, :longest])
    np.testing.assert_array_equal(read.labels, words.labels[:, :longest])
    assert read.text() == words.text()


LEAVES = arrays.arrays(
    st.sampled_from([np.float64, np.float32, np.int32]),
    arrays.array_shapes(min_dims=0, max_dims=2),
)
PLAIN = st.one_of(st.none(), st.booleans(), st.integers(-9, 9), st.text(max_size=4))
TREES = st.recursive(
    st.one_of(LEAVES, PLAIN),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3),
        st.lists(inner, max_size=2).map(tuple),
        st.dictionaries(st.text(max_size=4), inner, max_size=3),
    ),
    max_leaves=6,
)


@much
@given(
    w=TREES,
    history=arrays.arrays(float, st.integers(1, 5)),
    counts=st.tuples(*[st.integers(0, 2**70)] * 4),
    value=st.floats(),
)
def test_a_solution_survives_its_file(w, history, counts, value):
    columns = dict.fromkeys(("step", "passes", "seconds", "value", "a metric"), history)
    old = Solution(
        w,
        value,
        Status.budget,
        "A message.",
        Cost(*counts),
        columns,
        {"a": jnp.ones(2)},
        "sgd",
        7,
        5,
    )
    path = written(b"", "solution")
    old.save(path)
    new = px.load_solution(path)
    assert jax.tree.structure(new.w) == jax.tree.structure(w)
    for x, y in zip(jax.tree.leaves(new.w), jax.tree.leaves(w), strict=True):
        np.testing.assert_array_equal(x, y)
        assert not isinstance(y, np.ndarray) or x.dtype == y.dtype
    assert (
        new.cost == old.cost
        and new.status == old.status
        and (new.value == value or math.isnan(value))
    )
    for name, column in columns.items():
        np.testing.assert_array_equal(new.history[name], column)
    again, third = written(b"", "again"), written(b"", "third")
    new.save(again)  # its history is in the order of the names now, and stays so
    px.load_solution(again).save(third)
    assert third.read_bytes() == again.read_bytes()


@pytest.mark.parametrize("name", ["network.npz", "linear.npz"])
def test_a_model_survives_its_file(name):
    content = model_files()[name]
    assert pack_models(load_models(written(content, name))) == content


# ------------------------------------------------------------------------------ configs and results

SCALARS = st.one_of(
    st.booleans(),
    st.integers(-(10**6), 10**6),
    finite,
    st.text(max_size=6),
    st.lists(st.integers(0, 9), max_size=3),
)
TABLES = st.dictionaries(st.text("abc_", min_size=1, max_size=5), SCALARS, max_size=4)


def naive_toml(value) -> str:
    if isinstance(value, list):
        return f"[{', '.join(map(naive_toml, value))}]"
    if isinstance(value, str):
        return '"' + "".join(f"\\U{ord(c):08x}" for c in value) + '"'
    return (
        str(value).lower()
        if isinstance(value, bool)
        else repr(value).replace("e+", "e")
    )


@much
@given(quick=TABLES, paper=TABLES)
def test_what_is_written_as_toml_is_read(quick, paper):
    lines = []
    for name, table in (("quick", quick), ("paper", paper)):
        lines += [
            f"[{name}]",
            *(f"{key} = {naive_toml(value)}" for key, value in table.items()),
        ]
    assert profiles("\n".join(lines).encode(), "a.toml") == {
        "quick": quick,
        "paper": paper,
    }


@much
@given(
    change=st.dictionaries(
        st.sampled_from(["samples", "ratios", "passes", "seeds", "noise", "tie", "x"]),
        st.one_of(SCALARS, st.none(), st.floats(), st.integers()),
        min_size=1,
    )
)
def test_a_config_is_used_or_refused(change):
    from proxlin.experiments.engine.config import shipped
    from proxlin.experiments.regression import Config

    try:
        made = parse(Config, shipped("fig2")["quick"] | change)
    except UserError as error:
        assert str(error).endswith(".") and len(str(error).splitlines()) == 1, error
        return
    kind = lambda x: tuple(x) if isinstance(x, list) else x
    assert all(getattr(made, name) == kind(value) for name, value in change.items())


JSON = st.recursive(
    st.one_of(
        st.none(),
        st.booleans(),
        st.integers(),
        finite,
        st.text(st.characters(codec="utf-8")),
    ),
    lambda x: st.lists(x, max_size=2),
    max_leaves=3,
)
ROWS = st.dictionaries(st.text("abc", min_size=1), JSON, max_size=3)


@much
@given(cases=st.lists(st.tuples(ROWS, ROWS), max_size=3))
def test_cases_survive_the_store(cases):
    with limited(), open_store(written(b"", "x").parent) as store:
        expected = []
        for settings_, result in cases:
            key = content_key(task="t", settings=settings_)
            assert key == content_key(
                settings=dict(reversed(settings_.items())), task="t"
            )
            store.add_case(
                key,
                "toy",
                {"task": "t", "settings": settings_},
                result,
                {"seconds": 1.0},
            )
            expected.append(
                (
                    key,
                    {
                        "experiment": "toy",
                        "key": key,
                        **settings_,
                        **result,
                        "run_seconds": 1.0,
                    },
                )
            )
        first = dict(reversed(expected))  # a case that is there already stays
        assert store.cases() == [first[key] for key in sorted(first)]
        assert (
            all(store.case(key) is not None for key in first)
            and store.case("none") is None
        )
