"""The first cells of a sweep, kept small, so that a run elsewhere can be compared with them before it ends.

    cell = key, task, settings, and some numbers of the result by their place in it:  "trials/3/values/7"

The order of the cases is that of the sweep, so that an interrupted run has the first cells too.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from .store import Store, content_key

COUNT = 5  # cells of a study
ENTRIES = 100  # of a result; evenly spaced ones of a longer result
# Two entries agree within a share of the larger one, or within a number at the level of round-off. The same processor
# gives the same digits; another one rounds differently, and the steps of a run amplify that.
RELATIVE = 1e-3
ABSOLUTE = 1e-10
CLOCK = (
    "seconds"  # an entry with this word in its place is a time, which no two runs share
)

Cell = Mapping[str, Any]


def first_cells(store: Store, experiment: str) -> list[dict[str, Any]]:
    """Return the first cells of an experiment, fewer if it has fewer."""
    cells = []
    for key, content, result in store.first(experiment, COUNT):
        found = list(entries(result))
        every = max(1, math.ceil(len(found) / ENTRIES))
        cells.append({"key": key, **content, "entries": dict(found[::every])})
    return cells


def entries(result: Any, place: str = "") -> Iterator[tuple[str, Any]]:
    """Yield each number, text, truth and None of a result with its place; times are left out."""
    if isinstance(result, Mapping):
        parts = sorted(result.items())
    elif isinstance(result, Sequence) and not isinstance(result, str):
        parts = list(enumerate(result))
    else:
        yield place.removeprefix("/"), result
        return
    for name, part in parts:
        if CLOCK not in str(name):
            yield from entries(part, f"{place}/{name}")


@dataclass(frozen=True)
class Agreement:
    """How many of the stored first cells a folder has, how many of these have the same digits, and where it
    differs.
    """

    found: int
    stored: int
    same: int
    differences: list[str]


def compare_cells(store: Store, version: str, stored: Sequence[Cell]) -> Agreement:
    """Compare the cells of a folder, made by some version, with the stored ones."""
    found = 0
    same = 0
    differences = []
    for cell in stored:
        key = content_key(task=cell["task"], settings=cell["settings"], version=version)
        result = store.case(key)
        if result is None:
            continue
        found += 1
        here = dict(entries(result))
        there = cell["entries"]
        apart = [place for place in there if not _agree(here, there, place)]
        if apart:
            place = apart[0]
            differences.append(
                f"cell {cell['key'][:8]}: {len(apart)} of {len(there)} entries differ, first {place}: "
                f"{here.get(place, 'missing')} here, {there[place]} stored"
            )
        same += all(repr(here.get(place)) == repr(there[place]) for place in there)
    return Agreement(found, len(stored), same, differences)


def _agree(here: Mapping[str, Any], there: Mapping[str, Any], place: str) -> bool:
    """Tell whether both have the same at a place, numbers within the tolerance."""
    if place not in here:
        return False
    one = here[place]
    two = there[place]
    if not _is_number(one) or not _is_number(two):
        return type(one) is type(two) and one == two
    if math.isnan(one) or math.isnan(two):
        return math.isnan(one) and math.isnan(two)
    return math.isclose(one, two, rel_tol=RELATIVE, abs_tol=ABSOLUTE)


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
