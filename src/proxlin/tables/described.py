"""What a table in parts is like, after one look at each row: its columns, and rows that are kept.

    u_i = hash(seed, i) in [0, 1)         a number of row i, whatever part it is in and whoever reads it
    held out: u < a      validation: a <= u < b      sample: b <= u < c      the others are streamed only

A sample tells medians, scales and bins. What a sample may miss is of all rows: which cells are missing,
the categories, and whether a column is constant.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from jaxtyping import Float, Int

from ..data.frames import Column, Frame
from ..data.parts import AbstractParts, joined
from ..errors import UserError
from .asked import Asked
from .columns import KINDS, LEVELS, Encoder, Feature

HELD, VALIDATION, SAMPLE, OTHER = range(4)


@dataclass(frozen=True)
class Sizes:
    """How many rows are kept in memory: held out for errors, to end training in time, and as a sample.

    The first two are at most the share `most` of the rows each, and all are fewer where rows are wide.
    """

    held: int = 25_000
    validation: int = 25_000
    sample: int = 100_000
    most: float = 0.1
    cells: int = 4_000_000

    @property
    def rows(self) -> int:
        """Return how many rows a table has that is kept as a whole."""
        return self.held + self.validation + self.sample

    def shares(self, rows: int, width: int) -> tuple[float, float, float]:
        """Return the ends a, b and c of the numbers of rows that are kept."""
        room = min(1.0, self.cells / (self.rows * width))
        held = min(self.most, room * self.held / rows)
        validation = held + min(self.most, room * self.validation / rows)
        return held, validation, min(1.0, validation + room * self.sample / rows)


def row_numbers(seed: int, rows: Int[np.ndarray, " n"]) -> Float[np.ndarray, " n"]:
    """Return a number in [0, 1) for each row, by the seed (splitmix64, Steele et al. 2014).

    >>> row_numbers(0, np.arange(3)).round(3).tolist()
    [0.883, 0.432, 0.026]
    """
    golden = np.uint64(0x9E3779B97F4A7C15)
    with np.errstate(over="ignore"):
        z = rows.astype(np.uint64) + np.uint64(1) + (np.uint64(seed) << np.uint64(32))
        z = z * golden
        z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        z = z ^ (z >> np.uint64(31))
    return (z >> np.uint64(11)).astype(np.float64) / 2.0**53


@dataclass
class Seen:
    """What was seen of a column so far."""

    numeric: bool | None = None  # None: no cell is filled yet
    filled: int = 0
    missing: int = 0
    low: float = np.inf
    high: float = -np.inf
    levels: set[str] = field(default_factory=set)
    where: str = ""

    def of(self, column: Column, source: str) -> "Seen":
        """Return what is seen of a column of a chunk."""
        missing = column.missing
        filled = column.cells[~missing]
        seen = Seen(None, len(filled), int(missing.sum()), where=source)
        if not len(filled):
            return seen
        seen.numeric = column.numeric
        if column.numeric:
            seen.low = float(filled.min())
            seen.high = float(filled.max())
        else:
            # one more than is encoded tells that they are too many
            seen.levels = set(sorted(set(filled))[: LEVELS + 1])
        return seen

    def join(self, other: "Seen", name: str) -> None:
        """Add what was seen in another chunk, or raise a sentence where it is of another kind."""
        kinds = {self.numeric, other.numeric} - {None}
        if other.numeric is not None and len(kinds) > 1:
            raise UserError(
                f"{other.where}, column {name!r} holds {KINDS[other.numeric]}, and {KINDS[not other.numeric]} in the "
                "parts before it."
            )
        if self.numeric is None:
            self.numeric = other.numeric
        self.filled += other.filled
        self.missing += other.missing
        self.low = min(self.low, other.low)
        self.high = max(self.high, other.high)
        self.levels |= other.levels
        self.levels = set(sorted(self.levels)[: LEVELS + 1])


@dataclass(frozen=True)
class Look:
    """The work of the first pass: what a chunk is like, and its rows that are kept."""

    asked: Asked
    shares: tuple[float, float, float]

    def __call__(self, frame: Frame, start: int) -> "Chunk":
        numbers = start + np.arange(len(frame))
        # of all rows: a target of one value is refused before rows are left out
        targets = [Seen().of(frame[name], frame.source) for name in self.asked.targets]
        there = ~np.any([frame[name].missing for name in self.asked.targets], axis=0)
        counts, s = counted(frame, self.asked, start)
        used = there & counts
        place = row_numbers(self.asked.seed, numbers)
        kept = used & (place < self.shares[2])
        part = frame if used.all() else frame.rows(np.flatnonzero(used))
        columns = [Seen().of(column, frame.source) for column in part.columns]
        return Chunk(
            targets,
            columns,
            int(used.sum()),
            int((~there).sum()),
            int((there & ~counts).sum()),
            float(s[used].sum()),
            frame.rows(np.flatnonzero(kept)),
            numbers[kept],
        )


@dataclass(frozen=True)
class Chunk:
    """What a chunk is like."""

    targets: list[Seen]
    columns: list[Seen]
    used: int
    without_target: int
    without_weight: int
    weight: float
    kept: Frame
    numbers: Int[np.ndarray, " m"]


def counted(frame: Frame, asked: Asked, start: int) -> tuple[np.ndarray, np.ndarray]:
    """Return which rows have a weight above 0, and how much each row counts."""
    if asked.weights is None:
        return np.ones(len(frame), bool), np.ones(len(frame))
    column = frame[asked.weights]
    where = f"{frame.source}, column {column.name!r}"
    if not column.numeric:
        raise UserError(f"{where} holds no numbers; a weight is a number.")
    if column.missing.any():
        row = start + int(np.argmax(column.missing)) + 1
        raise UserError(f"{where} is missing in row {row}; each row needs a weight.")
    if column.cells.min() < 0:
        row = start + int(np.argmin(column.cells)) + 1
        raise UserError(
            f"{where} is {column.cells.min():g} in row {row}; a weight is 0 or more."
        )
    return column.cells > 0, column.cells


@dataclass(frozen=True)
class Plan:
    """How the rows of a table become numbers: small, as each part of the table gets a copy of it."""

    encoder: Encoder
    asked: Asked
    shares: tuple[float, float, float]
    weight: float  # the mean, of the rows that have every target and count

    def encoded(self, frame: Frame, start: int | Int[np.ndarray, " n"]) -> "Encoded":
        """Return the rows that have every target and count, as numbers; `start` is the number of the
        first row, or those of all rows.
        """
        numbers = start + np.arange(len(frame)) if isinstance(start, int) else start
        used = ~np.any([frame[name].missing for name in self.asked.targets], axis=0)
        s = None
        if self.asked.weights is not None:
            first = int(numbers[0]) if len(numbers) else 0
            counts, s = counted(frame, self.asked, first)
            used &= counts
        if not used.all():
            frame = frame.rows(np.flatnonzero(used))
            numbers = numbers[used]
        if s is not None:
            s = s[used] / self.weight
        y = [_as_numbers(frame[name]) for name in self.asked.targets]
        place = row_numbers(self.asked.seed, numbers)
        role = np.searchsorted(np.array(self.shares), place, side="right")
        X = self.encoder.numbers(frame)
        return Encoded(X, np.stack(y, axis=1), s, numbers, role)


@dataclass(frozen=True)
class Described:
    """A table in parts: how its rows become numbers, how many there are, and those kept in memory."""

    plan: Plan
    rows: int  # that have every target and count
    kept: "Encoded"
    notes: list[str]

    @property
    def encoder(self) -> Encoder:
        return self.plan.encoder


@dataclass(frozen=True)
class Encoded:
    """Rows as numbers: features, targets, how much each counts, its number in the table from 0, and its
    role.
    """

    X: Float[np.ndarray, "n p"]
    y: Float[np.ndarray, "n k"]
    s: Float[np.ndarray, " n"] | None
    numbers: Int[np.ndarray, " n"]
    role: Int[np.ndarray, " n"]

    def rows(self, index: np.ndarray) -> "Encoded":
        """Return some of the rows."""
        s = None if self.s is None else self.s[index]
        return Encoded(
            self.X[index], self.y[index], s, self.numbers[index], self.role[index]
        )


def _as_numbers(column: Column) -> np.ndarray:
    # a column without a filled cell has no type, and no row of it is used
    return column.cells if column.numeric else np.empty(0)


def described(parts: AbstractParts, asked: Asked, sizes: Sizes) -> Described:
    """Look at every row once."""
    for name in (*asked.targets, *((asked.weights,) if asked.weights else ())):
        assert name in parts.names
    shares = sizes.shares(parts.rows, len(parts.names))
    targets = [Seen() for _ in asked.targets]
    columns = [Seen() for _ in parts.names]
    used = without_target = without_weight = 0
    weight = 0.0
    frames = []
    numbers = []
    for chunk in parts.each(Look(asked, shares)):
        for name, seen, own in zip(asked.targets, targets, chunk.targets, strict=True):
            seen.join(own, name)
        for name, seen, own in zip(parts.names, columns, chunk.columns, strict=True):
            seen.join(own, name)
        used += chunk.used
        without_target += chunk.without_target
        without_weight += chunk.without_weight
        weight += chunk.weight
        if len(chunk.numbers):
            frames.append(chunk.kept)
            numbers.append(chunk.numbers)
    for name, seen in zip(asked.targets, targets, strict=True):
        _check_target(parts.source, name, seen)
    if not frames:
        raise UserError(
            f"{parts.source} has {used} rows with every target; more are needed."
        )
    kept = joined(parts.source, frames)
    others = {*asked.targets, asked.weights}
    seen_of = dict(zip(parts.names, columns, strict=True))
    names = [name for name in parts.names if name not in others]
    encoder = _encoder(parts.source, names, seen_of, kept, used, asked.targets)
    mean = weight / used
    plan = Plan(encoder, asked, shares, mean)
    rows = plan.encoded(kept, np.concatenate(numbers))
    notes = [
        f"the table has {parts.rows} rows and is read in parts: medians, scales, trees and standard errors are of "
        f"{len(rows.numbers)} rows drawn by the seed"
    ]
    if without_weight:
        notes.append(
            f"{without_weight} of {parts.rows} rows have no weight and are left out"
        )
    if without_target:
        notes.append(
            f"{without_target} of {parts.rows} rows miss a target and are left out"
        )
    for feature in encoder.features:
        missing = seen_of[feature.name].missing
        if missing:
            taken = "in none of its categories"
            if feature.levels is None:
                taken = f"taken as its median {feature.fill:.6g}"
            notes.append(
                f"column {feature.name!r}: {missing} of {used} cells are missing, {taken}"
            )
    notes += encoder.left_out
    return Described(plan, used, rows, notes)


def _check_target(source: str, name: str, seen: Seen) -> None:
    where = f"{source}, column {name!r}"
    if seen.numeric is None:
        raise UserError(f"{where} has no filled cell; it cannot be a target.")
    if not seen.numeric:
        raise UserError(f"{where} holds texts; a target must be numeric.")
    if seen.low == seen.high:
        raise UserError(f"{where} is {seen.low:g} in every row; a target must vary.")


def _encoder(
    source: str,
    names: Sequence[str],
    seen_of: dict[str, Seen],
    kept: Frame,
    rows: int,
    targets: Sequence[str],
) -> Encoder:
    """Return how columns become numbers: medians are of the rows kept, all else is of all rows."""
    features = []
    left_out = []
    for name in names:
        seen = seen_of[name]
        if seen.numeric is None:
            raise UserError(f"{source}, column {name!r} has no filled cell; remove it.")
        reason = None
        if not seen.missing and (seen.low == seen.high or len(seen.levels) == 1):
            reason = "it is constant"
        elif not seen.numeric and len(seen.levels) > min(LEVELS, rows // 2):
            reason = f"more than {LEVELS} different texts are no categories"
        if reason:
            left_out.append(f"column {name!r} is left out: {reason}")
        elif seen.numeric:
            column = kept[name]
            filled = column.cells[~column.missing]
            fill = float(np.median(filled)) if len(filled) else seen.low
            features.append(Feature(name, None, fill, seen.missing > 0))
        else:
            features.append(Feature(name, tuple(sorted(seen.levels))))
    if not features:
        raise UserError(
            f"{source} has no column left to predict {', '.join(targets)} from."
        )
    return Encoder(tuple(features), tuple(left_out))
