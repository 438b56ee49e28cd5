"""A declared, deterministic search for the best setting on a grid: bracket, then coordinate moves, then fill up.

    round 1      every point of the bracket
    then         the unseen neighbours of the best point along one axis after the other, until a whole turn finds
                 nothing better
    then         the unseen points nearest to the best one, until `budget` points were tried

A numeric axis is an unbounded lattice center * ratio^j, so that the best point is never at the edge of a grid that was
too small, unless the axis says that it ends there. What is tried next is a function of the results alone.
"""

import itertools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from ..checks import MOST, described, flag, real, whole

Setting = dict[str, float | int | str]
Point = tuple[int, ...]


@dataclass(frozen=True)
class Lattice:
    """center * ratio^j for all integers j, or for low <= j <= high where the axis ends. `bracket`: the j to start with.

    >>> Lattice(1.0, 10.0, (-1, 1)).value(-2)
    0.01
    """

    center: float
    ratio: float
    bracket: tuple[int, ...] = (0,)
    low: int | None = None
    high: int | None = None

    def __post_init__(self):
        real(self.center, "center of Lattice")
        real(self.ratio, "ratio of Lattice", low=0.0, open=True)
        for end, name in ((self.low, "low"), (self.high, "high")):
            if end is not None:
                whole(end, f"{name} of Lattice", low=-MOST)
        _check_bracket(self)

    def value(self, j: int) -> float:
        return float(f"{self.center * self.ratio**j:.3g}")  # a number a person can read

    def near(self, j: int) -> list[int]:
        return [x for x in (j - 1, j + 1) if self.inside(x)]

    def inside(self, j: int) -> bool:
        return (self.low is None or j >= self.low) and (self.high is None or j <= self.high)

    def ends(self, j: int) -> bool:
        """Whether j is where the axis ends."""
        return j in (self.low, self.high)


@dataclass(frozen=True)
class Choice:
    """One of the options, each a neighbour of each other; or of those beside it, if they are `ordered`."""

    options: tuple[float | int | str, ...]
    bracket: tuple[int, ...] = (0,)
    ordered: bool = False

    def __post_init__(self):
        if not isinstance(self.options, tuple | list) or not self.options:
            raise TypeError(f"options of Choice must be a tuple of one or more; it is {described(self.options)}.")
        flag(self.ordered, "ordered of Choice")
        _check_bracket(self)

    def value(self, j: int) -> float | int | str:
        return self.options[j]

    def near(self, j: int) -> list[int]:
        return [x for x in ((j - 1, j + 1) if self.ordered else range(len(self.options))) if self.inside(x) and x != j]

    def inside(self, j: int) -> bool:
        return 0 <= j < len(self.options)

    def ends(self, j: int) -> bool:
        return self.ordered and j in (0, len(self.options) - 1)


Axis = Lattice | Choice


def _check_bracket(axis: Axis) -> None:
    """Raise a sentence unless a search along an axis can begin at its bracket."""
    who = f"bracket of {type(axis).__name__}"
    if not isinstance(axis.bracket, tuple | list) or not axis.bracket:
        raise TypeError(f"{who} must be a tuple of one or more whole numbers; it is {described(axis.bracket)}.")
    for j in axis.bracket:
        if not axis.inside(whole(j, f"An entry in the {who}", low=-MOST)):
            raise ValueError(f"{who} has {j}, where the axis has no point.")


@dataclass(frozen=True)
class Grid:
    """The settings that a search may try: an axis for each name, and how many settings it tries in all."""

    axes: Mapping[str, Axis]
    budget: int

    def setting(self, point: Point) -> Setting:
        return {name: axis.value(j) for (name, axis), j in zip(self.axes.items(), point, strict=True)}

    def bracket(self) -> list[Point]:
        return list(itertools.product(*(axis.bracket for axis in self.axes.values())))[: self.budget]

    def at_end(self, point: Point) -> list[str]:
        """The axes on which a point sits where the axis ends."""
        return [name for (name, axis), j in zip(self.axes.items(), point, strict=True) if axis.ends(j)]


@dataclass
class Search:
    """The state of a search: `ask` for points, `tell` their scores (less is better; inf or nan: diverged)."""

    grid: Grid

    def __post_init__(self):
        self.scores: dict[Point, float] = {}
        self._axis = self._quiet = 0
        self._last: Point | None = None

    @property
    def best(self) -> Point:
        """The point of least score; of equal ones the first tried."""
        return min(self.scores, key=lambda point: self.scores[point])

    def ranked(self, count: int) -> list[Point]:
        """The best points, best first."""
        return sorted(self.scores, key=lambda point: self.scores[point])[:count]

    def tell(self, scores: Mapping[Point, float]) -> None:
        self.scores |= {point: math.inf if math.isnan(score) else score for point, score in scores.items()}

    def ask(self) -> list[Point]:
        """The points to try next; none when the budget is spent."""
        left = self.grid.budget - len(self.scores)
        if left <= 0:
            return []
        if not self.scores:
            return self.grid.bracket()
        return (self._moves() or self._nearest())[:left]

    def _moves(self) -> list[Point]:
        """The unseen neighbours along the next axis that has any; none after a whole turn without a better point."""
        axes, best = list(self.grid.axes.values()), self.best
        if best != self._last:
            self._last, self._quiet = best, 0
        while self._quiet < len(axes):
            axis, self._axis, self._quiet = self._axis, (self._axis + 1) % len(axes), self._quiet + 1
            around = [(*best[:axis], j, *best[axis + 1 :]) for j in axes[axis].near(best[axis])]
            if unseen := [point for point in around if point not in self.scores]:
                return unseen
        return []

    def _nearest(self) -> list[Point]:
        for radius in itertools.count(2):
            if unseen := [point for point in self._shell(radius) if point not in self.scores]:
                return unseen
            if radius > 2 * self.grid.budget:
                return []
        return []

    def _shell(self, radius: int) -> Iterator[Point]:
        """The points whose indices differ from the best one's by `radius` in all."""
        axes, best = list(self.grid.axes.values()), self.best
        for moves in itertools.product(range(-radius, radius + 1), repeat=len(axes)):
            if sum(map(abs, moves)) == radius:
                point = tuple(j + move for j, move in zip(best, moves, strict=True))
                if all(axis.inside(j) for axis, j in zip(axes, point, strict=True)):
                    yield point


def search_all(
    searches: Sequence[Search], evaluate: Callable[[list[tuple[int, Setting]]], Sequence[float]]
) -> Sequence[Search]:
    """Run searches side by side, round by round: `evaluate` gets (which search, setting) and returns their scores."""
    while True:
        asked = [(i, point) for i, search in enumerate(searches) for point in search.ask()]
        if not asked:
            return searches
        scores = evaluate([(i, searches[i].grid.setting(point)) for i, point in asked])
        for (i, point), score in zip(asked, scores, strict=True):
            searches[i].tell({point: score})
