"""Columns of a table as numbers: values, 0/1 for each category, and flags for what is missing."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ..data.frames import Column, Frame
from ..errors import UserError

# rows that are used, at most: as many as the memory of one machine has room for
MOST = 10_000_000
# different texts of a column that are encoded; more are names, not categories
LEVELS = 50
KINDS = {True: "numbers", False: "texts"}


@dataclass(frozen=True)
class Feature:
    """How a column becomes numbers: its value with `fill` where missing and a flag for that, or one
    0/1 a level.
    """

    name: str
    levels: tuple[str, ...] | None  # None: numeric
    fill: float = 0.0
    flag: bool = False

    @property
    def width(self) -> int:
        """Return how many numbers a cell becomes."""
        if self.levels is None:
            return 1 + self.flag
        return len(self.levels)

    @property
    def names(self) -> tuple[str, ...]:
        """Return a name for each number."""
        if self.levels is not None:
            return tuple(f"{self.name} = {level}" for level in self.levels)
        if self.flag:
            return (self.name, f"{self.name} is missing")
        return (self.name,)

    def encode(self, column: Column) -> np.ndarray:
        """Return (n, width) numbers."""
        if self.levels is not None:
            return np.stack(
                [column.cells == level for level in self.levels], axis=1
            ).astype(np.float64)
        missing = column.missing
        if missing.all():  # its cells are no numbers
            values = np.full(len(missing), self.fill)
        else:
            values = np.where(missing, self.fill, column.cells)
        parts = [values]
        if self.flag:
            parts.append(missing)
        return np.stack(parts, axis=1).astype(np.float64)

    def notes(self, column: Column) -> list[str]:
        """Return sentences on cells that are missing or were not seen before."""
        notes = []
        taken = "in none of its categories"
        if self.levels is None:
            taken = f"taken as its median {self.fill:.6g}"
        missing = int(column.missing.sum())
        if missing:
            notes.append(
                f"column {self.name!r}: {missing} of {len(column.cells)} cells are missing, {taken}"
            )
        if self.levels is None:
            return notes
        new = set(column.cells) - {None, *self.levels}
        if new:
            which = f"{min(new)!r}"
            if len(new) > 1:
                which = f"{len(new)} categories such as {which}"
            notes.append(
                f"column {self.name!r}: {which}, not seen in the fit, taken as none of its categories"
            )
        return notes


@dataclass(frozen=True)
class Encoder:
    """The features of a table in their order, and why others were left out."""

    features: tuple[Feature, ...]
    left_out: tuple[str, ...] = ()

    @property
    def width(self) -> int:
        """Return how many numbers a row becomes."""
        return sum(feature.width for feature in self.features)

    @property
    def names(self) -> tuple[str, ...]:
        """Return a name for each number of a row."""
        return tuple(name for feature in self.features for name in feature.names)

    @property
    def first_levels(self) -> np.ndarray:
        """Return which numbers of a row are the first category of a column."""
        first = np.zeros(self.width, bool)
        place = 0
        for feature in self.features:
            first[place] = feature.levels is not None
            place += feature.width
        return first

    @property
    def categories(self) -> tuple[str, ...]:
        """Return the names of the columns that are texts."""
        return tuple(each.name for each in self.features if each.levels is not None)

    def encode(self, frame: Frame) -> tuple[np.ndarray, list[str]]:
        """Return (n, p) numbers, and notes on what was missing or not seen before."""
        # a missing one is said first
        columns = [frame[feature.name] for feature in self.features]
        pairs = list(zip(self.features, columns, strict=True))
        for feature, column in pairs:
            if column.numeric != (feature.levels is None) and not column.missing.all():
                raise UserError(
                    f"{frame.source}, column {feature.name!r} holds {KINDS[column.numeric]}, {column.first()}; "
                    f"the model was fitted to {KINDS[not column.numeric]}."
                )
        notes = [note for feature, column in pairs for note in feature.notes(column)]
        return self.numbers(frame), notes

    def numbers(self, frame: Frame) -> np.ndarray:
        """Return (n, p) numbers of columns that are of the right kind."""
        parts = [feature.encode(frame[feature.name]) for feature in self.features]
        return np.concatenate(parts, axis=1)


def encoder_of(frame: Frame, targets: Sequence[str]) -> Encoder:
    """Return how all columns but the targets become numbers.

    What cannot help is left out with a reason; an empty column is an error.
    """
    features = []
    left_out = []
    for place, column in enumerate(frame.columns):
        if column.name in targets:
            continue
        if column.missing.all():
            raise UserError(
                f"{frame.source}, column {column.name!r} has no filled cell; remove it."
            )
        reason = _useless(column, place, len(frame))
        if reason:
            left_out.append(f"column {column.name!r} is left out: {reason}")
        else:
            features.append(_feature(column))
    if not features:
        raise UserError(
            f"{frame.source} has no column left to predict {', '.join(targets)} from."
        )
    return Encoder(tuple(features), tuple(left_out))


def _feature(column: Column) -> Feature:
    filled = column.cells[~column.missing]
    if column.numeric:
        return Feature(
            column.name, None, float(np.median(filled)), bool(column.missing.any())
        )
    return Feature(column.name, tuple(sorted(set(filled))))


def _useless(column: Column, place: int, n: int) -> str | None:
    """Return why a column cannot help, or None."""
    filled = column.cells[~column.missing]
    different = len(set(filled))
    if different == 1 and len(filled) == n:
        return "it is constant"
    if not column.numeric and different > min(LEVELS, n // 2):
        return f"{different} different texts in {n} rows are no categories"
    # `read_frame` calls a column so that has no name; R writes the numbers of the rows into one.
    unnamed = column.name == f"column {place + 1}"
    if unnamed and column.numeric and len(filled) == n:
        whole = np.all(filled == np.round(filled))
        if whole and np.all(np.diff(filled) > 0):
            return "it numbers the rows"
    return None


def targets_of(frame: Frame, targets: Sequence[str]) -> tuple[np.ndarray, np.ndarray]:
    """Return (n, k) values, and the rows in which none is missing."""
    if len(set(targets)) < len(targets):
        raise UserError(
            f"The targets {', '.join(targets)} name a column twice; name each column once."
        )
    columns = [frame[name] for name in targets]
    for column in columns:
        filled = column.cells[~column.missing]
        if not filled.size:
            raise UserError(
                f"{frame.source}, column {column.name!r} has no filled cell; it cannot be a target."
            )
        if not column.numeric:
            raise UserError(
                f"{frame.source}, column {column.name!r} holds texts, {column.first()}; a target must be numeric."
            )
        if np.all(filled == filled[0]):
            raise UserError(
                f"{frame.source}, column {column.name!r} is {filled[0]:g} in every row; a target must vary."
            )
    there = ~np.any([column.missing for column in columns], axis=0)
    return np.stack([column.cells for column in columns], axis=1), there


@dataclass(frozen=True)
class Numbers:
    """The rows of a table that have every target, as numbers, and what a reader should know."""

    encoder: Encoder
    X: np.ndarray
    y: np.ndarray
    rows: np.ndarray  # their numbers in the table, from 0
    notes: list[str]


def numbers_of(
    frame: Frame,
    targets: Sequence[str],
    least: int = 1,
    rng: np.random.Generator | None = None,
) -> Numbers:
    """Return features and targets as numbers, of at most MOST rows, drawn by rng; fewer than `least`
    are an error.
    """
    y, there = targets_of(frame, targets)
    rows = np.flatnonzero(there)
    notes = []
    if not there.all():
        notes.append(
            f"{int((~there).sum())} of {len(frame)} rows miss a target and are left out"
        )
    if len(rows) > MOST:
        notes.append(f"{MOST} of {len(rows)} rows, drawn at random, are used")
        rng = rng or np.random.default_rng(0)
        rows = np.sort(rng.choice(rows, MOST, replace=False))
    frame = frame.rows(rows)
    n = len(frame)
    if n < least:
        count = f"{n} rows" if n != 1 else "1 row"
        raise UserError(
            f"{frame.source} has {count} with every target; {least} or more are needed."
        )
    encoder = encoder_of(frame, targets)
    X, about_cells = encoder.encode(frame)
    return Numbers(encoder, X, y[rows], rows, [*notes, *about_cells, *encoder.left_out])
