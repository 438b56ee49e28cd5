"""Columns of a table as numbers: values, 0/1 for each category, and flags for what is missing."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from ..data.frames import Column, Frame
from ..errors import UserError

LEVELS = 50  # different texts of a column that are encoded; more are names, not categories
KINDS = {True: "numbers", False: "texts"}


@dataclass(frozen=True)
class Feature:
    """How a column becomes numbers: its value with `fill` where missing and a flag for that, or one 0/1 a level."""

    name: str
    levels: tuple[str, ...] | None  # None: numeric
    fill: float = 0.0
    flag: bool = False

    @property
    def width(self) -> int:
        return 1 + self.flag if self.levels is None else len(self.levels)

    def encode(self, column: Column) -> np.ndarray:
        missing = column.missing
        if self.levels is not None:
            return np.stack([column.cells == level for level in self.levels], axis=1).astype(np.float64)
        values = np.full(len(missing), self.fill) if missing.all() else np.where(missing, self.fill, column.cells)
        return np.stack([values, missing] if self.flag else [values], axis=1).astype(np.float64)

    def note(self, column: Column) -> list[str]:
        """A sentence on cells that are missing or were not seen before."""
        missing, new = int(column.missing.sum()), set()
        if self.levels is not None:
            new = {cell for cell in column.cells if cell is not None} - set(self.levels)
        taken = f"taken as its median {self.fill:.6g}" if self.levels is None else "in none of its categories"
        notes = [f"column {self.name!r}: {missing} of {len(column.cells)} cells are missing, {taken}"] * bool(missing)
        if new:
            which = f"{min(new)!r}" if len(new) == 1 else f"{len(new)} categories such as {min(new)!r}"
            notes.append(f"column {self.name!r}: {which}, not seen in the fit, taken as none of its categories")
        return notes


@dataclass(frozen=True)
class Encoder:
    """The features of a table in their order, and why others were left out."""

    features: tuple[Feature, ...]
    left_out: tuple[str, ...] = ()

    @property
    def width(self) -> int:
        return sum(feature.width for feature in self.features)

    def encode(self, frame: Frame) -> tuple[np.ndarray, list[str]]:
        """(n, p) numbers, and notes on what was missing or not seen before."""
        columns = [frame[feature.name] for feature in self.features]  # a missing one is said first
        for feature, column in zip(self.features, columns, strict=True):
            if column.numeric != (feature.levels is None) and not column.missing.all():
                raise UserError(
                    f"{frame.source}, column {feature.name!r} holds {KINDS[column.numeric]}; "
                    f"the model was fitted to {KINDS[not column.numeric]}."
                )
        pairs = list(zip(self.features, columns, strict=True))
        parts = [feature.encode(column) for feature, column in pairs]
        return np.concatenate(parts, axis=1), [note for each, column in pairs for note in each.note(column)]


def encoder_of(frame: Frame, targets: Sequence[str]) -> Encoder:
    """All columns but the targets. What cannot help is left out with a reason; an empty column is an error."""
    features, left_out = [], []
    for place, column in enumerate(frame.columns):
        if column.name in targets:
            continue
        if column.missing.all():
            raise UserError(f"{frame.source}, column {column.name!r} has no filled cell; remove it.")
        reason = _useless(column, place, len(frame))
        if reason:
            left_out.append(f"column {column.name!r} is left out: {reason}")
        else:
            features.append(_feature(column))
    if not features:
        raise UserError(f"{frame.source} has no column left to predict {', '.join(targets)} from.")
    return Encoder(tuple(features), tuple(left_out))


def _feature(column: Column) -> Feature:
    filled = column.cells[~column.missing]
    if column.numeric:
        return Feature(column.name, None, float(np.median(filled)), bool(column.missing.any()))
    return Feature(column.name, tuple(sorted(set(filled))))


def _useless(column: Column, place: int, n: int) -> str | None:
    filled = column.cells[~column.missing]
    different = len(set(filled))
    if different == 1 and len(filled) == n:
        return "it is constant"
    if not column.numeric and different > min(LEVELS, n // 2):
        return f"{different} different texts in {n} rows are no categories"
    unnamed = column.name == f"column {place + 1}"  # what read_frame calls it; R writes row numbers so
    counts = unnamed and column.numeric and len(filled) == n and np.all(filled == np.round(filled))
    return "it numbers the rows" if counts and np.all(np.diff(filled) > 0) else None


def targets_of(frame: Frame, targets: Sequence[str]) -> tuple[np.ndarray, np.ndarray]:
    """(n, k) values, and the rows in which none is missing."""
    if len(set(targets)) < len(targets):
        raise UserError(f"--target {', '.join(targets)}: name each column once.")
    columns = [frame[name] for name in targets]
    for column in columns:
        filled = column.cells[~column.missing]
        if not filled.size:
            raise UserError(f"{frame.source}, column {column.name!r} has no filled cell; it cannot be a target.")
        if not column.numeric:
            raise UserError(f"{frame.source}, column {column.name!r} holds texts; a target must be numeric.")
        if np.all(filled == filled[0]):
            raise UserError(
                f"{frame.source}, column {column.name!r} is {filled[0]:g} in every row; a target must vary."
            )
    there = ~np.any([column.missing for column in columns], axis=0)
    return np.stack([column.cells for column in columns], axis=1), there
