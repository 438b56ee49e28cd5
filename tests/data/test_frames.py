"""Tables: the same columns from every format, the rule for numbers and texts, and sentences for
what is wrong.
"""

import csv
import datetime
import gzip
import io
import random
import zipfile
from decimal import Decimal
from fractions import Fraction

import numpy as np
import openpyxl
import pandas as pd
import pyarrow as pa
import pyarrow.feather
import pyarrow.parquet
import pytest

from good_files import READERS, outcome, workbook
from proxlin.data.formats import arrow, columns, excel, texts
from proxlin.data.formats.numerals import ALL, Numerals
from proxlin.data.frames import as_frame, read_frame
from proxlin.data.parts import parts_of
from proxlin.errors import UserError

TEXTS = {
    "table.csv": "x,kind,y\n1.5,a,2\n,b,3\n-2e3,,4\n",
    "table.tsv": "x\tkind\ty\n1.5\ta\t2\nNA\tb\t3\n-2e3\t\t4\n",
    "semicolon.csv": '\ufeff"x" ; "kind";y\r\n1.5;"a";2\r\n;b;3\r\n-2e3;?;4\r\n',
    "table.arff": "% a comment\n@RELATION r\n@attribute 'x' real\n@attribute kind {a, b}\n@attribute y integer\n"
    "\n@DATA\n1.5,'a',2\n% another\n?,b,3\n-2e3,?,4\n",
}


TABLE = pa.table({"x": [1.5, None, -2e3], "kind": ["a", "b", None], "y": [2, 3, 4]})
WRITERS = {
    "table.parquet": lambda path: pyarrow.parquet.write_table(TABLE, path),
    "lz4.feather": lambda path: pyarrow.feather.write_feather(TABLE, path, "lz4"),
    "zstd.feather": lambda path: pyarrow.feather.write_feather(TABLE, path, "zstd"),
    "stream.arrow": lambda path: write_stream(path),
    "table.xlsx": lambda path: path.write_bytes(
        workbook(
            [TABLE.column_names, *(tuple(row.values()) for row in TABLE.to_pylist())]
        )
    ),
    "table.csv.gz": lambda path: path.write_bytes(
        gzip.compress(TEXTS["table.csv"].encode())
    ),
    "table.TSV.gz": lambda path: path.write_bytes(
        gzip.compress(TEXTS["table.tsv"].encode())
    ),
}


def write_stream(path):
    with pa.ipc.new_stream(path, TABLE.schema) as writer:
        writer.write_table(TABLE)


@pytest.mark.parametrize("name", [*TEXTS, *WRITERS])
def test_every_format_gives_the_same_columns(tmp_path, name):
    path = tmp_path / name
    if name in TEXTS:
        path.write_bytes(TEXTS[name].encode())
    else:
        WRITERS[name](path)
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
            r"row 2, column 'x': 'two' is no number; most of the column is numbers, so mend the cell, or "
            r"categories=\['x'\] takes the column as texts.",
        ),
        (
            "t.csv",
            "x,y\n1,2\ninf,3\n4,5\n",
            r"row 2, column 'x': 'inf' is no finite number",
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
        ("t.arrow", "hello", "is not an Arrow or Feather file, or it is damaged"),
        ("t.feather", b"FEA1" + bytes(20), "is of the first version of Feather"),
        ("t.xlsx", "hello", "is not an Excel workbook"),
        (
            "t.xlsx",
            b"\xd0\xcf\x11\xe0" + bytes(600),
            "in the old format of Excel or has",
        ),
        ("t.xls", b"\xd0\xcf\x11\xe0", ".xls files are not read; save it as .xlsx"),
        ("t.json", "[]", ".json files are not read; save it as CSV"),
        ("t.csv.gz", "hello", "cannot be unpacked"),
        ("t.csv.gz", gzip.compress(b"x,y\n1,2\n", mtime=0)[:-4], "cannot be unpacked"),
        ("t.csv.gz", gzip.compress(b"", mtime=0), "is empty"),
    ],
)
def test_what_is_wrong_is_a_sentence(tmp_path, name, text, sentence):
    path = tmp_path / name
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    with pytest.raises(UserError, match=sentence):
        read_frame(path)


@pytest.mark.parametrize("kind", ["array", "list", "pandas"])
def test_a_column_of_complex_numbers_is_refused_by_its_name(kind):
    cells = np.arange(5) + 1j
    columns = {"x": list(cells) if kind == "list" else cells, "y": np.arange(5.0)}
    table = pd.DataFrame(columns) if kind == "pandas" else columns
    sentence = "The column 'x' of the table holds complex numbers; give their real and"
    with pytest.raises(UserError, match=sentence):
        as_frame(table)


@pytest.mark.parametrize(
    "huge",
    [10**400, -(10**400), Fraction(10**400)],
    ids=["integer", "negative", "fraction"],
)
def test_a_whole_number_without_a_float_is_too_large(huge):
    cells = np.array([1, None, huge], dtype=object)
    with pytest.raises(UserError, match=r"row 3, column 'x': -?inf is too large"):
        as_frame({"x": cells, "y": [1.0, 2.0, 3.0]})


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


# ----------------------------------------------------------------------------------------- numerals


@pytest.mark.parametrize("numerals", ALL)
def test_a_number_written_by_numerals_is_read_by_them(tmp_path, numerals):
    """Every number, written with or without its thousands, comes back as it was."""
    rng = np.random.default_rng(0)
    values = np.round(rng.normal(size=60) * 10 ** rng.integers(0, 9, 60), 3)
    values = np.append(values, [0.0, 1000.0, -1e6, 999.5])
    swap = {",": numerals.thousands or "", ".": numerals.decimal}
    texts = ["".join(swap.get(c, c) for c in f"{x:,.3f}") for x in values]
    texts += [f"{x:.3f}".replace(".", numerals.decimal) for x in values]
    path = tmp_path / "t.csv"
    with path.open("w", newline="") as file:
        writer = csv.writer(file, delimiter=";")
        writer.writerows([("x", "y"), *((text, 1) for text in texts)])
    found = read_frame(path, numerals.decimal, numerals.thousands)["x"].cells
    np.testing.assert_array_equal(found, np.tile(values, 2))


@pytest.mark.parametrize(
    ("cells", "sentence"),
    [
        (["12,5", "3,5"], """'12,5' is no number; with decimal="," it is 12.5, or"""),
        (
            ["1,000", "2,000"],
            """with decimal="," it is 1, and with thousands="," it is 1000, or""",
        ),
        (["1,000.3"], """with thousands="," it is 1000.3, or"""),
        (["1.000,3"], """with decimal="," and thousands="." it is 1000.3, or"""),
        (["1\u202f000"], """with thousands=" " it is 1000, or"""),
        (["1\u2019000"], """with thousands="'" it is 1000, or"""),
        (["$12", "$13"], "'$12' is no number; remove the '$' from the column, or"),
        (["12,5 \u20ac"], "remove the '\u20ac' from the column, or"),
        (["1", "2", "3%"], "row 3, column 'x': '3%' is no number; remove the '%'"),
        (["1", "2" * 200_000 + "x", "3"], f"'{'2' * 40}...' is no number; most"),
        (["1", "x" * 99, "3"], f"'{'x' * 40}...' is no number; most of the column"),
        (["1e999", "1", "2"], "'1e999' is no finite number"),
    ],
)
def test_a_cell_that_is_nearly_a_number_is_quoted_with_what_helps(
    tmp_path, cells, sentence
):
    path = tmp_path / "t.csv"
    path.write_text("x;y\n" + "".join(f"{cell};1\n" for cell in cells))
    with pytest.raises(UserError) as caught:
        read_frame(path)
    assert sentence in str(caught.value) and str(caught.value).endswith(
        "categories=['x'] takes the column as texts."
    )
    frame = read_frame(path, categories=["x"])
    assert frame["x"].cells.tolist() == cells


def test_what_the_sentence_advises_works(tmp_path):
    path = tmp_path / "t.csv"
    path.write_text("x;y\n1.234,5;1\n7;2\n")
    np.testing.assert_array_equal(read_frame(path, ",", ".")["x"].cells, [1234.5, 7])
    with pytest.raises(UserError, match="""without decimal="," it is 1.5"""):
        path.write_text("x;y\n1.5;1\n2.5;2\n")
        read_frame(path, ",")


def test_texts_that_are_no_numbers_in_any_notation_are_categories(tmp_path):
    path = tmp_path / "t.csv"
    cells = ["1.2.3", "12.05.2024", "555 1234", "10-20", "A1", "1,00", "x"]
    path.write_text("x;y\n" + "".join(f"{cell};1\n" for cell in cells))
    assert read_frame(path)["x"].cells.tolist() == cells


def test_wrong_numerals():
    for decimal, thousands, sentence in (
        (";", None, "decimal is"),
        (".", "-", "thousands is a comma"),
        (",", ",", "they have to differ"),
    ):
        with pytest.raises(UserError, match=sentence):
            Numerals(decimal, thousands)


def test_categories_of_every_format(tmp_path):
    """Numbers that are names become the texts that a CSV file has for them."""
    content = {
        "zip": [10115, 7, None],
        "y": [1.5, 2.0, 3.0],
        "flag": [True, False, True],
    }
    pyarrow.parquet.write_table(pa.table(content), tmp_path / "t.parquet")
    (tmp_path / "t.csv").write_text("zip,y,flag\n10115,1.5,1\n7,2,0\n,3,1\n")
    rows = zip(*content.values(), strict=True)
    (tmp_path / "t.xlsx").write_bytes(workbook([tuple(content), *rows]))
    for name in ("t.parquet", "t.csv", "t.xlsx"):
        frame = read_frame(tmp_path / name, categories=["zip", "flag"])
        assert frame["zip"].cells.tolist() == ["10115", "7", None], name
        assert frame["flag"].cells.tolist() == ["1", "0", "1"], name
        assert frame["y"].numeric
    with pytest.raises(UserError, match="has no column 'zp'; did you mean 'zip'"):
        read_frame(tmp_path / "t.csv", categories=["zp"])


# ------------------------------------------------------------------------------------------- sheets


def saved(path, change=lambda sheet: None, rows=((1, 2.5), (3, 4.5)), names=("x", "y")):
    """A workbook with a change made to its sheet."""
    book = openpyxl.load_workbook(io.BytesIO(workbook([names, *rows])))
    change(book.active)
    book.save(path)
    return path


def test_cells_of_a_sheet(tmp_path):
    """Dates are texts, truth values and numbers that are stored as texts are numbers, #N/A is
    missing, rows without a cell are none, and a table may begin anywhere.
    """
    moment = datetime.datetime(2024, 1, 31, 12, 30)
    rows = [
        (None, None, None, None, None, None),
        (None, "x", "day", "flag", "y", "long"),
        (None, 1, datetime.date(2024, 1, 31), True, "2.5", datetime.timedelta(1.5)),
        (None, None, None, None, None, None),
        (None, 10**16 + 1, moment, False, "#N/A", datetime.timedelta(0.25)),
    ]
    path = tmp_path / "t.xlsx"
    path.write_bytes(workbook(rows))
    frame = read_frame(path)
    assert frame.source == f"{path}, sheet 'Data'" and len(frame) == 2
    np.testing.assert_array_equal(frame["x"].cells, [1, 1e16])
    assert frame["day"].cells.tolist() == ["2024-01-31", "2024-01-31T12:30:00"]
    np.testing.assert_array_equal(frame["flag"].cells, [1, 0])
    np.testing.assert_array_equal(frame["y"].cells, [2.5, np.nan])
    np.testing.assert_array_equal(frame["long"].cells, [1.5, 0.25])


def test_the_decimal_of_a_sheet_is_that_of_its_texts(tmp_path):
    path = tmp_path / "t.xlsx"
    path.write_bytes(workbook([("x", "y"), (1.5, "2,5"), (2.5, "1.000,5")]))
    frame = read_frame(path, ",", ".")
    np.testing.assert_array_equal(frame["x"].cells, [1.5, 2.5])
    np.testing.assert_array_equal(frame["y"].cells, [2.5, 1000.5])
    with pytest.raises(UserError, match="cell B2, column 'y': '2,5' is no number"):
        read_frame(path)


def test_which_sheet(tmp_path):
    path = tmp_path / "t.xlsx"
    path.write_bytes(workbook([("x",), (1,)], Notes=[], More=[("z",), (5,)]))
    for sheet, name in (("Data", "x"), ("More", "z"), (1, "x"), ("3", "z")):
        assert read_frame(path, sheet=sheet).names == (name,)
    for sheet, sentence in (
        (None, "has 2 sheets, .*; take one, such as sheet=.Data.[.]"),
        ("Mor", "has no sheet 'Mor'; did you mean 'More'"),
        (4, "has no sheet 4; its sheets are 'Data', 'Notes', 'More', counted from 1"),
        ("0", "has no sheet 0"),
        ("Notes", "sheet 'Notes' is empty"),
    ):
        with pytest.raises(UserError, match=sentence):
            read_frame(path, sheet=sheet)
    path.write_bytes(workbook([], Notes=[], More=[("z",), (5,)]))
    assert read_frame(path).names == ("z",)
    path.write_bytes(workbook([]))
    with pytest.raises(UserError, match="has no sheet with a table in it"):
        read_frame(path)
    (tmp_path / "t.csv").write_text("x,y\n1,2\n")
    with pytest.raises(UserError, match="is no workbook, so it has no sheet 'Data'"):
        read_frame(tmp_path / "t.csv", sheet="Data")


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (lambda sheet: sheet.merge_cells("A2:A3"), "the cells A2:A3 are merged"),
        (lambda sheet: sheet.__setitem__("B3", "=1+1"), "cell B3 is a formula without"),
        (lambda sheet: sheet.__setitem__("B3", "#DIV/0!"), "cell B3: its formula gave"),
        (lambda sheet: sheet.__setitem__("D3", 7), "cell D3 is filled, and its column"),
        (lambda sheet: sheet.__setitem__("A1", 5.0), None),
        (lambda sheet: sheet.delete_rows(2, 5), "has a header and no rows"),
        (lambda sheet: sheet.__setitem__("B1", "x"), "two columns named 'x'"),
        (lambda sheet: sheet.__setitem__("XFD1048576", 7), "cell XFD1048576 is filled"),
    ],
)
def test_what_is_wrong_with_a_sheet_is_a_sentence(tmp_path, change, sentence):
    path = saved(tmp_path / "t.xlsx", change)
    if sentence is None:
        assert read_frame(path).names == ("5", "y")
        return
    with pytest.raises(UserError, match=sentence):
        read_frame(path)


def test_a_formula_counts_with_the_value_that_is_kept(tmp_path):
    """openpyxl keeps none, so that one is put beside the formula as Excel does."""
    path = saved(tmp_path / "t.xlsx", lambda sheet: sheet.__setitem__("B3", "=1+1"))
    part = "xl/worksheets/sheet1.xml"
    repacked(path, {part: lambda text: text.replace(b"</f><v />", b"</f><v>2</v>")})
    np.testing.assert_array_equal(read_frame(path)["y"].cells, [2.5, 2.0])


def repacked(path, changes):
    """Change parts of a workbook by functions of their content."""
    with zipfile.ZipFile(path) as archive:
        parts = {name: archive.read(name) for name in archive.namelist()}
    for name, change in changes.items():
        before = parts[name]
        parts[name] = change(before)
        assert parts[name] != before, "the test changes nothing"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in parts.items():
            archive.writestr(name, content)


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


@pytest.mark.parametrize("coded", [False, True])
@pytest.mark.parametrize("name", ["t.parquet", "t.feather", "t.arrow", "a folder"])
def test_infinities_are_refused_in_every_format(tmp_path, name, coded):
    cells = pa.array([1.0, None, -np.inf, 4.0])
    infinite = pa.table({"x": cells.dictionary_encode() if coded else cells})
    path = tmp_path / name
    with pytest.raises(UserError, match="row 3, column 'x': -inf is too large"):
        if name == "t.parquet":
            pyarrow.parquet.write_table(infinite, path)
            read_frame(path)
        elif name == "a folder":
            path.mkdir()
            pyarrow.parquet.write_table(infinite, path / "1.parquet")
            found = parts_of(path)
            assert found is not None
            found.whole()
        else:
            pyarrow.feather.write_feather(infinite, path, compression="uncompressed")
            read_frame(path)


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
    monkeypatch.setattr(columns, "UNPACKED", 2 * 20_000 * 8)
    monkeypatch.setattr(columns, "EXPANSION", 10)
    with pytest.raises(
        UserError, match=r"unpacks from 0.0 to 0 MiB; .* 10 times its size is not read"
    ):
        read_frame(path)
    monkeypatch.setattr(columns, "EXPANSION", 1000)
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


def test_a_workbook_that_unpacks_to_much_is_refused_before_it_is_parsed(
    tmp_path, monkeypatch
):
    path = saved(tmp_path / "t.xlsx")
    part = "xl/worksheets/sheet1.xml"
    repacked(path, {part: lambda text: text + b" " * 2**20})
    assert len(read_frame(path)) == 2
    monkeypatch.setattr(columns, "UNPACKED", 2**19)
    monkeypatch.setattr(columns, "EXPANSION", 10)
    monkeypatch.setattr(excel, "_opened", lambda *_, **__: pytest.fail("it was parsed"))
    with pytest.raises(UserError, match="10 times its size is not read"):
        read_frame(path)


@pytest.mark.parametrize("part", ["xl/workbook.xml", "xl/worksheets/sheet1.xml"])
def test_a_workbook_with_entities_is_refused(tmp_path, part):
    """Ten entities of ten each, nine times, are a thousand million texts."""
    laughs = "".join(f'<!ENTITY e{i} "{f"&e{i - 1};" * 10}">' for i in range(1, 10))
    doctype = f'<!DOCTYPE x [<!ENTITY e0 "ha">{laughs}]>'.encode()
    path = saved(tmp_path / "t.xlsx")
    repacked(path, {part: lambda text: doctype + text.partition(b"?>")[2] or text})
    with pytest.raises(UserError, match="has a document type in its XML"):
        read_frame(path)


def test_rows_and_cells_without_end_are_refused(tmp_path, monkeypatch):
    path = saved(tmp_path / "t.xlsx")
    repacked(
        path,
        {
            "xl/worksheets/sheet1.xml": lambda text: text.replace(
                b'<row r="3"', b'<row r="999999999999"'
            )
        },
    )
    with pytest.raises(UserError, match="has a cell too far from the others"):
        read_frame(path)
    path = saved(tmp_path / "t.xlsx")
    monkeypatch.setattr(excel, "CELLS", 5)
    with pytest.raises(UserError, match="has a cell too far from the others"):
        read_frame(path)


def test_packed_arrow_is_refused_before_it_is_unpacked(tmp_path, monkeypatch):
    """Of coded texts too; and a buffer may claim any size."""
    path = tmp_path / "t.feather"
    table = pa.table({"x": np.zeros(20_000), "kind": repeated(20_000, "a" * 9)})
    pyarrow.feather.write_feather(table, path, "zstd")
    assert len(read_frame(path)) == 20_000
    monkeypatch.setattr(columns, "UNPACKED", 20_000 * 8)
    monkeypatch.setattr(columns, "EXPANSION", 10)
    monkeypatch.setattr(
        pa.ipc, "open_stream", lambda *_: pytest.fail("it was unpacked")
    )
    with pytest.raises(UserError, match="10 times its size is not read"):
        read_frame(path)


def test_the_size_of_arrow_is_counted_from_its_buffers():
    """Against Arrow's own count of the same columns, in batches, packed or not."""
    table = pa.table(
        {
            "x": np.arange(5000.0),
            "kind": pa.array(["ab", "c", None, "d"] * 1250),
            "coded": pa.array(["ab", "c", None, "d"] * 1250).dictionary_encode(),
        }
    )
    for packed in (None, "lz4", "zstd"):
        buffer = io.BytesIO()
        options = pa.ipc.IpcWriteOptions(compression=packed)
        with pa.ipc.new_stream(buffer, table.schema, options=options) as writer:
            writer.write_table(table, max_chunksize=1000)
        buffer.seek(0)
        messages = list(arrow._messages(pa.ipc, buffer))
        counted = sum(map(arrow._message_bytes, messages))
        known = table.nbytes + 8 * 5000
        assert known <= counted <= 2.5 * known + 10_000


@pytest.mark.parametrize(
    "name", ["table, Excel", "table, Arrow", "table, gzip", "table, numerals"]
)
def test_every_fault_of_a_byte_is_read_or_refused(name, tmp_path):
    """Every place where the file may end, and every byte of it flipped; some of them here, and
    thousands in `make slow`.
    """
    rng = random.Random(name)
    for each, content in READERS[name].seeds().items():
        for place in sorted(rng.sample(range(len(content)), 40)):
            flipped = bytearray(content)
            flipped[place] ^= 1 << rng.randrange(8)
            for damaged in (content[:place], bytes(flipped)):
                (tmp_path / each).write_bytes(damaged)
                outcome(READERS[name], tmp_path / each)
        assert [path.name for path in tmp_path.iterdir()] == [each]
        (tmp_path / each).unlink()


def test_gzip_that_unpacks_to_more_than_the_memory_is_refused(tmp_path, monkeypatch):
    path = tmp_path / "t.csv.gz"
    path.write_bytes(gzip.compress(b"x,y\n" + b"1,2\n" * 1000))
    assert len(read_frame(path)) == 1000
    monkeypatch.setattr(texts, "free_memory", lambda: 5 * 3000)
    with pytest.raises(UserError, match="unpacks to more than the 0.0 GiB"):
        read_frame(path)
