"""Texts as numbers: which cells are numbers, and a sentence for the first that is none.

numbers are over half of the filled cells      the column is numeric, and any other cell is an error
... with those in another notation             an error too: 12,5 or $12 is no category
else                                           the column is text
"""

import re
import unicodedata
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...errors import UserError
from .columns import Column, host, objects, pyarrow, written

DECIMALS = (".", ",")
# what may stand between thousands, and what is taken for it: people write other spaces and
# apostrophes than those of the keyboard
THOUSANDS = {
    ",": ",",
    ".": r"\.",
    " ": "[ \u00a0\u2009\u202f]",
    "'": "['\u2019]",
}
EXPONENT = r"(?:[eE][+-]?\d+)?"
# how a sentence writes an argument and its value: decimal="," or --decimal ,
Written = Callable[[str, str], str]


@dataclass(frozen=True)
class Numerals:
    """How numbers are written: the sign before the decimals, and what stands between thousands."""

    decimal: str = "."
    thousands: str | None = None

    def __post_init__(self):
        if self.decimal not in DECIMALS:
            raise UserError(f'decimal is "." or ","; it is {self.decimal!r}.')
        if self.thousands is None:
            return
        if self.thousands not in THOUSANDS:
            raise UserError(
                "thousands is a comma, a point, a space, an apostrophe or None; "
                f"it is {self.thousands!r}."
            )
        if self.thousands == self.decimal:
            raise UserError(
                f"decimal and thousands are both {self.decimal!r}; they have to differ."
            )

    @property
    def pattern(self) -> str:
        """Return a regular expression for a number."""
        whole = r"\d+"
        if self.thousands is not None:
            whole = rf"(?:\d{{1,3}}(?:{THOUSANDS[self.thousands]}\d{{3}})+|\d+)"
        point = re.escape(self.decimal)
        # No two repetitions meet: a run of digits that ends in rubbish takes time in its length.
        return rf"[+-]?(?:{whole}(?:{point}\d*)?|{point}\d+){EXPONENT}"

    def matches(self, text: str) -> bool:
        """Return whether a text is a number."""
        return re.fullmatch(self.pattern, text, re.ASCII) is not None

    def plain(self, text: str) -> str:
        """Return the number as Python writes it.

        >>> Numerals(",", ".").plain("1.000,5")
        '1000.5'
        """
        if self.thousands is not None:
            text = re.sub(THOUSANDS[self.thousands], "", text)
        return text.replace(self.decimal, ".")

    def options(self, written: Written) -> str:
        """Return the arguments that ask for these numerals."""
        asked = []
        if self.decimal != ".":
            asked.append(written("decimal", self.decimal))
        if self.thousands is not None:
            asked.append(written("thousands", self.thousands))
        return " and ".join(asked)


PLAIN = Numerals()
# the simplest first: a sentence names the first that makes a number of a cell
ALL = (
    *(Numerals(decimal) for decimal in DECIMALS),
    *(
        Numerals(decimal, thousands)
        for thousands in THOUSANDS
        for decimal in DECIMALS
        if decimal != thousands
    ),
)
# a number in any notation, perhaps of money or in percent
LIKE_A_NUMBER = (
    r"^[+-]?(?:\p{Sc} ?)?(?:"
    + "|".join(each.pattern for each in ALL)
    + r")(?: ?(?:\p{Sc}|%))?$"
)


class NeedsArgument(UserError):
    """A refusal that another argument would mend. `sentence` says which, written as the caller would
    write it.
    """

    def __init__(self, sentence: Callable[[Written], str]):
        UserError.__init__(self, sentence(as_argument))
        self.sentence = sentence


def as_argument(name: str, value: str) -> str:
    """Write an argument as Python does.

    >>> as_argument("decimal", ",")
    'decimal=","'
    """
    if name == "category":
        return f"categories=[{value!r}]"
    return f'{name}="{value}"'


@dataclass(frozen=True)
class Reading:
    """How a file is read: its numerals, the sheet of a workbook, and columns that are categories
    whatever their cells look like.
    """

    numerals: Numerals = PLAIN
    sheet: str | int | None = None
    categories: Collection[str] = ()


def column_of(
    source: str,
    name: str,
    texts: Any,
    reading: Reading = Reading(),
    place: Callable[[int], str] = lambda row: f"row {row + 1}",
) -> Column:
    """Return a column of texts (an Arrow array, null where missing) as numbers or texts by the rule
    above; `place` is what a sentence calls a row.
    """
    if name in reading.categories:
        return Column(name, objects(texts))
    numerals = reading.numerals
    compute = pyarrow("pyarrow.compute")
    is_number = compute.match_substring_regex(texts, f"^{numerals.pattern}$")
    filled = len(texts) - texts.null_count
    count = compute.sum(is_number).as_py() or 0
    if filled and 2 * count <= filled:
        like_one = compute.match_substring_regex(texts, LIKE_A_NUMBER)
        either = compute.or_(is_number, like_one)
        if 2 * (compute.sum(either).as_py() or 0) <= filled:
            return Column(name, objects(texts))
        wrong = host(compute.and_not(like_one, is_number).fill_null(False))
    else:
        wrong = ~host(is_number.fill_null(True))
    if not wrong.any():
        cells = _numbers(texts, numerals)
        wrong = np.isinf(cells)  # 1e999 matches, and is none
        if not wrong.any():
            return Column(name, cells)
    row = int(np.argmax(wrong))
    text = texts[row].as_py()
    where = f"{source}, {place(row)}, column {name!r}"
    raise NeedsArgument(lambda written: _sentence(where, name, text, numerals, written))


def _numbers(texts: Any, numerals: Numerals) -> np.ndarray:
    compute = pyarrow("pyarrow.compute")
    if numerals.thousands is not None:
        between = THOUSANDS[numerals.thousands]
        texts = compute.replace_substring_regex(texts, between, "")
    if numerals.decimal != ".":
        texts = compute.replace_substring(texts, numerals.decimal, ".")
    return np.array(host(texts.cast(pyarrow().float64())), np.float64)


def _sentence(
    where: str, name: str, text: str, numerals: Numerals, written: Written
) -> str:
    """Return what is wrong with a cell and what helps."""
    shown = text if len(text) <= 40 else f"{text[:40]}..."
    kind = "finite number" if _is_infinite(text) else "number"
    return (
        f"{where}: {shown!r} is no {kind}; "
        f"{_way_out(text, numerals, written)}, or {written('category', name)} takes the "
        "column as texts."
    )


def _is_infinite(text: str) -> bool:
    try:
        return bool(np.isinf(float(text)))
    except ValueError:
        return False


def _way_out(text: str, numerals: Numerals, say: Written) -> str:
    """Return what makes a number of a cell: other numerals, or its sign removed."""
    ways = list(_ways(text))
    if ways:
        return ", and ".join(
            f"with {each.options(say)} it is {written(float(each.plain(text)))}"
            if each != PLAIN
            else f"without {numerals.options(say)} it is {written(float(text))}"
            for each in ways
        )
    signs = [each for each in text if _is_sign(each)]
    bare = "".join(each for each in text if not _is_sign(each)).strip()
    if signs and any(each.matches(bare) for each in ALL):
        return f"remove the {signs[0]!r} from the column"
    return "most of the column is numbers, so mend the cell"


def _ways(text: str) -> Iterator[Numerals]:
    """Yield the simplest numerals that make a number of the text, one for each number: 1,000 may be
    1 or 1000.
    """
    found = set()
    for each in ALL:
        if each.matches(text):
            x = float(each.plain(text))
            if np.isfinite(x) and x not in found:
                found.add(x)
                yield each


def _is_sign(character: str) -> bool:
    return character == "%" or unicodedata.category(character) == "Sc"
