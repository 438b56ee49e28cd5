"""Excel workbooks (.xlsx, .xlsm): one sheet, whose first filled row holds the names of the columns.

Cells become the texts that a CSV file would have, so that one rule tells numbers from texts: 1 and 0
for truth values, 2024-01-31 for a date. A formula counts with the value that Excel has kept.
"""

import datetime
import struct
import warnings
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from io import BufferedIOBase
from pathlib import Path
from typing import Any, NoReturn
from xml.etree.ElementTree import ParseError
from xml.parsers import expat

from ...errors import UserError, require
from ...files.reading import reason
from .columns import (
    Frame,
    check_fits,
    check_unpacked,
    nearest,
    pyarrow,
    size_of,
    written,
)
from .numerals import NeedsArgument, Reading, column_of
from .texts import MISSING, named

# bytes that a byte of XML may take while it is read (22 measured, on eight million bytes of <x/>)
MEMORY = 32
LAST_ROW = 2**20  # of a sheet
CELLS = 2**25  # of a sheet that is read, those between filled ones too
NOT_AVAILABLE = "#N/A"  # the one error that says that a value is missing
DAY = datetime.timedelta(days=1)
CHUNK = 2**16  # bytes of a part that are looked at, at a time
OLD_OR_LOCKED = (
    b"\xd0\xcf\x11\xe0"  # Microsoft's older container; a password uses it too
)
# What zipfile, expat and openpyxl raise for files that are damaged.
BROKEN = (
    *(zipfile.BadZipFile, zlib.error, struct.error, ParseError, expat.ExpatError),
    *(EOFError, OSError, KeyError, IndexError, ValueError, TypeError, OverflowError),
    *(AttributeError, NotImplementedError, RuntimeError, AssertionError),
)


def read_excel(path: Path, file: BufferedIOBase, reading: Reading) -> Frame:
    """Read a sheet of a workbook, every part of which is looked at before it is parsed."""
    if file.read(len(OLD_OR_LOCKED)) == OLD_OR_LOCKED:
        raise UserError(
            f"{path} is in the old format of Excel or has a password; save it as .xlsx without one."
        )
    require("openpyxl", "cli")
    with _sentences(path):
        _check_parts(path, file)
        book = _opened(file, values=True)
        try:
            sheet = _chosen(path, book, reading)
            source = f"{path}, sheet {sheet.title!r}"
            _check_merged(source, file, sheet)
            grid = _grid(source, sheet, reading)
        finally:
            book.close()
        _check_formulas(source, file, sheet.title, grid)
        return grid.frame(source, reading)


@contextmanager
def _sentences(path: Path) -> Iterator[None]:
    """Turn whatever goes wrong with a damaged file into a sentence, and keep openpyxl's warnings on
    styles and charts to itself.
    """
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    except UserError:
        raise
    except BROKEN as error:
        raise UserError(
            f"{path} is not an Excel workbook (.xlsx), or it is damaged ({reason(error)[:80]})."
        ) from error


def _check_parts(path: Path, file: BufferedIOBase) -> None:
    """Refuse an archive that is huge when unpacked, and XML that defines entities, which can grow
    without bound; Excel writes none.
    """
    size = size_of(file)
    with zipfile.ZipFile(file) as archive:
        parts = archive.infolist()
        unpacked = sum(part.file_size for part in parts)
        check_unpacked(path, size, unpacked)
        check_fits(path, MEMORY * unpacked)
        for part in parts:
            if part.filename.lower().endswith((".xml", ".rels")):
                with archive.open(part) as content:
                    _check_prolog(path, content)


def _check_prolog(path: Path, content: Any) -> None:
    """Parse up to the first element: a definition of a document type stands before it."""
    begun = []

    def refuse(*_: Any) -> NoReturn:
        raise UserError(
            f"{path} has a document type in its XML, which no workbook has; it is not read."
        )

    parser = expat.ParserCreate()
    parser.StartDoctypeDeclHandler = refuse
    parser.StartElementHandler = lambda *_: begun.append(True)
    while not begun and (chunk := content.read(CHUNK)):
        parser.Parse(chunk)


def _opened(file: BufferedIOBase, values: bool) -> Any:
    """Open the workbook, with the values of formulas or with the formulas."""
    file.seek(0)
    return require("openpyxl", "cli").load_workbook(
        file, read_only=True, data_only=values, keep_links=False
    )


def _chosen(path: Path, book: Any, reading: Reading) -> Any:
    """Return the sheet asked for by name or number; if none is, the only one with something in it."""
    sheets = {sheet.title: sheet for sheet in book.worksheets}
    names = ", ".join(map(repr, sheets))
    asked = reading.sheet
    if asked in sheets:
        return sheets[asked]
    if asked is not None:
        number = str(asked)
        if number.isascii() and number.isdigit() and 0 < int(number) <= len(sheets):
            return list(sheets.values())[int(number) - 1]
        if number.isdigit():
            raise UserError(
                f"{path} has no sheet {number}; its sheets are {names}, counted from 1."
            )
        raise UserError(f"{path} has no sheet {asked!r}{nearest(number, list(sheets))}")
    filled = [sheet for sheet in sheets.values() if next(_rows(path, sheet), None)]
    if len(filled) > 1:
        first = filled[0].title
        raise NeedsArgument(
            lambda written: (
                f"{path} has {len(filled)} sheets, {names}; take one, such as {written('sheet', first)}."
            )
        )
    if not filled:
        raise UserError(f"{path} has no sheet with a table in it.")
    return filled[0]


def _rows(source: str | Path, sheet: Any) -> Iterator[tuple[int, tuple[Any, ...]]]:
    """Yield the number and the cells of each row that has a filled cell.

    What the sheet says of its size is not believed, and rows and cells between filled ones count:
    the cell XFD1048576 alone would make 17 thousand million.
    """
    sheet.reset_dimensions()
    seen = 0
    for number, row in enumerate(sheet.iter_rows(), 1):
        seen += len(row)
        if number > LAST_ROW or seen > CELLS:
            raise UserError(
                f"{source} has a cell too far from the others; give the table alone, or as CSV."
            )
        if any(cell.value is not None for cell in row):
            yield number, row


@dataclass(frozen=True)
class _Grid:
    """The names of the columns and where they are, and the texts of each row, with its number."""

    names: list[str]
    letters: list[str]
    numbers: list[int]
    rows: list[list[str | None]]

    def frame(self, source: str, reading: Reading) -> Frame:
        """Return the columns, as numbers or texts."""
        arrow = pyarrow()
        columns = []
        for j, (name, letter) in enumerate(zip(self.names, self.letters, strict=True)):
            texts = arrow.array([row[j] for row in self.rows], arrow.string())
            place = lambda row, letter=letter: f"cell {letter}{self.numbers[row]}"
            columns.append(column_of(source, name, texts, reading, place))
        return Frame(source, tuple(columns))


def _grid(source: str, sheet: Any, reading: Reading) -> _Grid:
    rows = _rows(source, sheet)
    _, header = next(rows, (0, ()))
    if not header:
        raise UserError(f"{source} is empty.")
    places = [j for j, cell in enumerate(header) if cell.value is not None]
    # a table need not begin in the first column
    start, end = places[0], places[-1] + 1
    letter = require("openpyxl.utils", "cli").get_column_letter
    texts = [_text(source, cell, reading) or "" for cell in header[start:end]]
    numbers = []
    kept = []
    for number, row in rows:
        for j in (*range(min(start, len(row))), *range(end, len(row))):
            if row[j].value is not None:
                raise UserError(
                    f"{source}, cell {letter(j + 1)}{number} is filled, and its column has no name; the first filled "
                    "row has to hold the names of all columns."
                )
        cells = [_text(source, cell, reading) for cell in row[start:end]]
        kept.append(cells + [None] * (end - start - len(cells)))
        numbers.append(number)
    letters = [letter(j + 1) for j in range(start, end)]
    return _Grid(named(source, texts), letters, numbers, kept)


def _text(source: str, cell: Any, reading: Reading) -> str | None:
    """Return a cell as the text that a CSV file would have, None where it is missing."""
    value = cell.value
    if value is None:
        return None
    if cell.data_type == "e":
        if value == NOT_AVAILABLE:
            return None
        raise UserError(
            f"{source}, cell {cell.coordinate}: its formula gave the error {value!r}; mend it or empty the cell."
        )
    if isinstance(value, bool):
        return str(int(value))
    if isinstance(value, int | float):
        return written(float(value)).replace(".", reading.numerals.decimal)
    if isinstance(value, datetime.datetime | datetime.date | datetime.time):
        return value.isoformat().removesuffix("T00:00:00")
    if isinstance(value, datetime.timedelta):  # as Excel counts it, in days
        return written(value / DAY).replace(".", reading.numerals.decimal)
    text = str(value).strip()
    return None if text in MISSING else text


def _check_merged(source: str, file: BufferedIOBase, sheet: Any) -> None:
    """Refuse merged cells: but for the first of them, they would be missing."""
    part = getattr(sheet, "_worksheet_path", None)
    if part is None:
        return
    found = []

    def begin(name: str, attributes: dict[str, str]) -> None:
        if name.rpartition(":")[2] == "mergeCell" and not found:
            found.append(attributes.get("ref", "of a sheet"))

    parser = expat.ParserCreate()
    parser.StartElementHandler = begin
    file.seek(0)
    with zipfile.ZipFile(file) as archive, archive.open(part) as content:
        while not found and (chunk := content.read(CHUNK)):
            parser.Parse(chunk)
    if found:
        raise UserError(
            f"{source}: the cells {found[0]} are merged; a table has a cell for each value, so unmerge them."
        )


def _check_formulas(source: str, file: BufferedIOBase, title: str, grid: _Grid) -> None:
    """Refuse a formula without a value: programs that write workbooks leave it to Excel to compute
    it, and it is no missing cell.
    """
    if all(None not in row for row in grid.rows):
        return
    rows = dict(zip(grid.numbers, grid.rows, strict=True))
    book = _opened(file, values=False)
    try:
        for number, row in _rows(source, book[title]):
            for cell in row:
                if cell.data_type != "f" or cell.column_letter not in grid.letters:
                    continue
                j = grid.letters.index(cell.column_letter)
                if number in rows and rows[number][j] is None:
                    raise UserError(
                        f"{source}, cell {cell.coordinate} is a formula without a value; open the file in Excel or "
                        "LibreOffice and save it, so that it is computed."
                    )
    finally:
        book.close()
