"""Tables: the same columns from every format, the rule for numbers and texts, and sentences for
what is wrong.
"""

from decimal import Decimal

import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest

from proxlin.data import frames
from proxlin.data.frames import read_frame
from proxlin.errors import UserError

TEXTS = {
    "table.csv": "x,kind,y\n1.5,a,2\n,b,3\n-2e3,,4\n",
    "table.tsv": "x\tkind\ty\n1.5\ta\t2\nNA\tb\t3\n-2e3\t\t4\n",
    "semicolon.csv": '\ufeff"x" ; "kind";y\r\n1.5;"a";2\r\n;b;3\r\n-2e3;?;4\r\n',
    "table.arff": "% a comment\n@RELATION r\n@attribute 'x' real\n@attribute kind {a, b}\n@attribute y integer\n"
    "\n@DATA\n1.5,'a',2\n% another\n?,b,3\n-2e3,?,4\n",
}


@pytest.mark.parametrize("name", [*TEXTS, "table.parquet"])
def test_every_format_gives_the_same_columns(tmp_path, name):
    path = tmp_path / name
    if name in TEXTS:
        path.write_bytes(TEXTS[name].encode())
    else:
        columns = {"x": [1.5, None, -2e3], "kind": ["a", "b", None], "y": [2, 3, 4]}
        pyarrow.parquet.write_table(pa.table(columns), path)
    frame = read_frame(path)
    assert frame.names == ("x", "kind", "y") and len(frame) == 3
    np.testing.assert_array_equal(frame["x"].cells, [1.5, np.nan, -2e3])
    assert (
        frame["kind"].cells.tolist() == ["a", "b", None] and not frame["kind"].numeric
    )
    np.testing.assert_array_equal(frame["y"].cells, [2, 3, 4])
    assert [column.missing.sum() for column in frame.columns] == [1, 1, 0]
    assert frame.rows(np.array([2, 0]))["y"].cells.tolist() == [4, 2]


@pytest.mark.parametrize(
    ("name", "text", "sentence"),
    [
        (
            "t.csv",
            "x,y\n1,2\ntwo,3\n4,5\n",
            r"row 2, column 'x': 'two' is not a finite number, as the other cells are",
        ),
        (
            "t.csv",
            "x,y\n1,2\ninf,3\n4,5\n",
            r"row 2, column 'x': 'inf' is not a finite number",
        ),
        ("t.csv", "x,y\n1,2\n1e200,3\n", r"row 2, column 'x': 1e\+200 is too large"),
        ("t.csv", "x,x\n1,2\n", "there are two columns named 'x'"),
        ("t.csv", "1,2\n3,4\n", "its first line holds numbers"),
        ("t.csv", "", "is empty"),
        ("t.csv", "\n1,2\n", "has no header line"),
        (
            "t.csv",
            "x" * 200_000 + ",y\n1,2\n",
            "the header line: field larger than field limit",
        ),
        ("t.csv", "x,y\n", "has a header and no rows"),
        ("t.csv", "x,y\n1,2\n1,2,3\n", "Expected 2 columns, got 3"),
        ("t.csv", b"x,y\n\xff\xfe,2\n", "UTF-?8"),
        ("t.arff", "hello", "is not an ARFF file"),
        ("t.arff", "@attribute x real\n@data\n", "has no rows after @data"),
        ("t.arff", "@attribute x real\n@data\n{0 1}\n", "is a sparse ARFF file"),
        ("t.parquet", "hello", "is not a Parquet file"),
    ],
)
def test_what_is_wrong_is_a_sentence(tmp_path, name, text, sentence):
    path = tmp_path / name
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    with pytest.raises(UserError, match=sentence):
        read_frame(path)


def test_a_name_that_is_not_there(tmp_path):
    path = tmp_path / "t.csv"
    path.write_text("height,weight\n1,2\n")
    with pytest.raises(
        UserError, match=r"has no column 'hieght'; did you mean 'height'\?$"
    ):
        read_frame(path)["hieght"]
    with pytest.raises(UserError, match="there is no such file"):
        read_frame(tmp_path / "none.csv")


def test_a_file_too_large_for_the_memory(tmp_path):
    path = tmp_path / "t.csv"
    with path.open("wb") as file:
        file.truncate(2**40)  # sparse: takes no room
    with pytest.raises(
        UserError,
        match=r"needs about 5120.0 GiB of memory to be read, and .* GiB are free",
    ):
        read_frame(path)


def test_half_of_the_cells_decide(tmp_path):
    path = tmp_path / "t.csv"
    path.write_text("a,b,c\n1,x,\n2,1,\nx,y,\n")
    with pytest.raises(UserError, match="row 3, column 'a'"):
        read_frame(path)
    path.write_text("a,b,c\n1,x,\ny,1,\n")
    frame = read_frame(path)
    assert not frame["a"].numeric and not frame["b"].numeric  # half is not over half
    assert frame["c"].missing.all()


# ----------------------------------------------------------------------------------- from strangers


def parquet(path, columns, **settings):
    pyarrow.parquet.write_table(pa.table(columns), path, **settings)
    return path


@pytest.mark.parametrize(
    "kind",
    [pa.int64(), pa.uint64(), pa.int8(), pa.decimal128(38, 0), pa.decimal256(60, 2)],
)
def test_whole_numbers_of_any_size_are_the_same_from_parquet_and_csv(tmp_path, kind):
    """Above 2^53 both round to the nearest float64."""
    most = {pa.int8(): 2**7 - 1, pa.int64(): 2**63 - 1, pa.uint64(): 2**64 - 1}.get(
        kind, 10**37
    )
    whole = [0, 1, most, most - 1, most // 3, None]
    packed = parquet(
        tmp_path / "a.parquet",
        {
            "x": pa.array(
                [each and Decimal(each) for each in whole], pa.decimal256(60, 2)
            ).cast(kind)
        },
    )
    text = tmp_path / "a.csv"
    text.write_text(
        "x\n" + "".join("NA\n" if each is None else f"{each}\n" for each in whole)
    )
    np.testing.assert_array_equal(
        read_frame(packed)["x"].cells, read_frame(text)["x"].cells
    )


def test_columns_that_are_coded(tmp_path):
    """A dictionary of texts, of bytes or of numbers, with gaps, is the column that it stands for."""
    places = pa.array([1, 0, None, 1], pa.int8())
    columns = {
        "texts": pa.DictionaryArray.from_arrays(places, pa.array(["a", "b"])),
        "large": pa.DictionaryArray.from_arrays(
            places, pa.array(["a", "b"], pa.large_string())
        ),
        "bytes": pa.array([b"b", b"a", None, b"b"]),
        "numbers": pa.DictionaryArray.from_arrays(places, pa.array([2**60 + 1, 5])),
    }
    for store_schema in (True, False):
        frame = read_frame(
            parquet(tmp_path / "a.parquet", columns, store_schema=store_schema)
        )
        for name in ("texts", "large", "bytes"):
            assert frame[name].cells.tolist() == ["b", "a", None, "b"]
        np.testing.assert_array_equal(frame["numbers"].cells, [5, 2.0**60, np.nan, 5])


def test_no_columns(tmp_path):
    with pytest.raises(UserError, match="has no columns"):
        read_frame(parquet(tmp_path / "a.parquet", {}))


def repeated(cells: int, text: str) -> pa.Array:
    return pa.DictionaryArray.from_arrays(np.zeros(cells, np.int32), pa.array([text]))


def test_a_small_file_of_huge_columns_is_refused_before_it_is_unpacked(
    tmp_path, monkeypatch
):
    """A limit lowered for the test: twenty thousand cells of one text in two kilobytes."""
    path = parquet(
        tmp_path / "a.parquet", {"x": repeated(20_000, "a"), "y": np.zeros(20_000)}
    )
    assert len(read_frame(path)) == 20_000
    monkeypatch.setattr(frames, "UNPACKED", 2 * 20_000 * 8)
    monkeypatch.setattr(frames, "EXPANSION", 10)
    with pytest.raises(
        UserError, match=r"unpacks from 0.0 to 0 MiB; .* 10 times its size is not read"
    ):
        read_frame(path)
    monkeypatch.setattr(frames, "EXPANSION", 1000)
    assert len(read_frame(path)) == 20_000


def test_a_list_of_a_billion_is_refused_by_its_type(tmp_path):
    with pytest.raises(UserError, match=r"column 'x': a column of the type list"):
        read_frame(parquet(tmp_path / "a.parquet", {"x": [[1, 2]], "y": [1.0]}))


def test_a_text_that_repeats_is_kept_once(tmp_path):
    """300 cells of ten million letters, in a file of two kilobytes, were 4.2 GiB."""
    columns = {"x": repeated(300, "x" * 10_000_000), "y": np.arange(300.0)}
    path = parquet(
        tmp_path / "a.parquet", columns, compression="zstd", store_schema=False
    )
    cells = read_frame(path)["x"].cells
    assert (
        path.stat().st_size < 5000
        and len(cells[0]) == 10_000_000
        and all(each is cells[0] for each in cells)
    )
