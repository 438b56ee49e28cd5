"""A declared, deterministic search for the best setting on a grid: bracket, then coordinate moves,
then fill up.

    round 1      every point of the bracket
    then         the unseen neighbours of the best point along one axis after the other, until a whole turn finds
                 nothing better
    then         the unseen points nearest to the best one, until `budget` points were tried

A numeric axis is an unbounded lattice center * ratio^j, so that the best point is never at the edge
of a grid that was too small, unless the axis says that it ends there. What is tried next is a
function of the results alone.
"""

import itertools
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, NamedTuple, TypeVar

from ..checks import MOST, described, flag, real, whole

Setting = dict[str, Any]  # the value on each axis, by the axis' name
Point = tuple[int, ...]  # the place on each axis
Run = TypeVar("Run")


@dataclass(frozen=True)
class Lattice:
    """An axis of the numbers center * ratio^j for all integers j, or for low <= j <= high where the
    axis ends.

    Parameters
    ----------
    center : a number
        The number at j = 0.
    ratio : a positive number
        The quotient of two neighbours.
    bracket : a tuple of integers
        The j to start with.
    low : an integer, or None
        The least j; None has no end.
    high : an integer, or None
        The largest j; None has no end.

    See Also
    --------
    Choice : an axis of options.
    Space : a grid of axes.

    Examples
    --------
    >>> import proxlin as px
    >>> px.Lattice(1.0, 10.0, (-1, 1)).value(-2)
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
        if self.low is not None:
            whole(self.low, "low of Lattice", low=-MOST)
        if self.high is not None:
            whole(self.high, "high of Lattice", low=-MOST)
        _check_bracket(self)

    def value(self, j: int) -> float:
        """Return the number at j, rounded to what a person can read.

        Parameters
        ----------
        j : an integer
            The place on the axis.

        Returns
        -------
        a number
            The number there.
        """
        return float(f"{self.center * self.ratio**j:.3g}")

    def near(self, j: int) -> list[int]:
        """Return the neighbours of j.

        Parameters
        ----------
        j : an integer
            The place on the axis.

        Returns
        -------
        a list of integers
            Its neighbours.
        """
        return [x for x in (j - 1, j + 1) if self.inside(x)]

    def inside(self, j: int) -> bool:
        """Return whether the axis has a point at j.

        Parameters
        ----------
        j : an integer
            The place on the axis.

        Returns
        -------
        True or False
            Whether it has.
        """
        return (self.low is None or j >= self.low) and (
            self.high is None or j <= self.high
        )

    def ends(self, j: int) -> bool:
        """Return whether j is where the axis ends.

        Parameters
        ----------
        j : an integer
            The place on the axis.

        Returns
        -------
        True or False
            Whether it is.
        """
        return j in (self.low, self.high)


@dataclass(frozen=True)
class Choice:
    """An axis of options, each a neighbour of each other; or of those beside it, if they are
    `ordered`.

    Parameters
    ----------
    options : a tuple
        What there is to choose from.
    bracket : a tuple of integers
        The places of the options to start with.
    ordered : True or False
        Whether the options have an order.

    Raises
    ------
    TypeError
        options is no tuple, or empty.

    See Also
    --------
    Lattice : an axis of numbers.
    Space : a grid of axes.

    Examples
    --------
    >>> import proxlin as px
    >>> axis = px.Choice((1, 8, 64), bracket=(0, 2), ordered=True)
    >>> axis.value(1), axis.near(0), axis.ends(2)
    (8, [1], True)
    """

    options: tuple[Any, ...]
    bracket: tuple[int, ...] = (0,)
    ordered: bool = False

    def __post_init__(self):
        if not isinstance(self.options, tuple | list) or not self.options:
            raise TypeError(
                f"options of Choice must be a tuple of one or more; it is {described(self.options)}."
            )
        flag(self.ordered, "ordered of Choice")
        _check_bracket(self)

    def value(self, j: int) -> Any:
        """Return option j.

        Parameters
        ----------
        j : an integer
            The place of the option.

        Returns
        -------
        an option
            The one there.
        """
        return self.options[j]

    def near(self, j: int) -> list[int]:
        """Return the neighbours of j.

        Parameters
        ----------
        j : an integer
            The place of the option.

        Returns
        -------
        a list of integers
            Its neighbours.
        """
        others = range(len(self.options))
        if self.ordered:
            others = (j - 1, j + 1)
        return [x for x in others if self.inside(x) and x != j]

    def inside(self, j: int) -> bool:
        """Return whether there is an option j.

        Parameters
        ----------
        j : an integer
            The place of the option.

        Returns
        -------
        True or False
            Whether there is.
        """
        return 0 <= j < len(self.options)

    def ends(self, j: int) -> bool:
        """Return whether j is the first or the last of ordered options.

        Parameters
        ----------
        j : an integer
            The place of the option.

        Returns
        -------
        True or False
            Whether it is.
        """
        return self.ordered and j in (0, len(self.options) - 1)


Axis = Lattice | Choice


def _check_bracket(axis: Axis) -> None:
    """Raise a sentence unless a search along an axis can begin at its bracket."""
    who = f"bracket of {type(axis).__name__}"
    if not isinstance(axis.bracket, tuple | list) or not axis.bracket:
        raise TypeError(
            f"{who} must be a tuple of one or more whole numbers; it is {described(axis.bracket)}."
        )
    for j in axis.bracket:
        if not axis.inside(whole(j, f"An entry in the {who}", low=-MOST)):
            raise ValueError(f"{who} has {j}, where the axis has no point.")


@dataclass(frozen=True)
class Grid:
    """The settings that a search may try: an axis for each name, and how many settings it tries in
    all.
    """

    axes: Mapping[str, Axis]
    budget: int

    def setting(self, point: Point) -> Setting:
        """Return the values of a point on its axes."""
        return {name: axis.value(j) for name, axis, j in self._along(point)}

    def bracket(self) -> list[Point]:
        """Return the points that a search begins with."""
        ranges = [axis.bracket for axis in self.axes.values()]
        return list(itertools.product(*ranges))[: self.budget]

    def at_end(self, point: Point) -> list[str]:
        """Return the axes on which a point sits where the axis ends."""
        return [name for name, axis, j in self._along(point) if axis.ends(j)]

    def inside(self, point: Point) -> bool:
        """Return whether every axis has its coordinate of the point."""
        return all(axis.inside(j) for _, axis, j in self._along(point))

    def _along(self, point: Point) -> Iterator[tuple[str, Axis, int]]:
        return zip(self.axes, self.axes.values(), point, strict=True)


@dataclass
class Search:
    """The state of a search: `ask` for points, `tell` their scores (less is better; inf or nan:
    diverged).
    """

    grid: Grid

    def __post_init__(self):
        self.scores: dict[Point, float] = {}
        self._axis = 0  # the axis along which the next move goes
        self._quiet = 0  # axes tried since the best point was found
        self._last: Point | None = None  # the best point at the last move

    @property
    def best(self) -> Point:
        """Return the point of least score; of equal ones the first tried."""
        return self.ranked(1)[0]

    def ranked(self, count: int) -> list[Point]:
        """Return the best points, best first."""
        return sorted(self.scores, key=self.scores.__getitem__)[:count]

    def tell(self, point: Point, score: float) -> None:
        """Note the score of a point that was asked for."""
        if math.isnan(score):
            score = math.inf
        self.scores[point] = score

    def ask(self) -> list[Point]:
        """Return the points to try next; none when the budget is spent."""
        left = self.grid.budget - len(self.scores)
        if left <= 0:
            return []
        if not self.scores:
            return self.grid.bracket()
        return (self._moves() or self._nearest())[:left]

    def _moves(self) -> list[Point]:
        """Return the unseen neighbours along the next axis that has any; none after a turn without
        a better point.
        """
        axes = list(self.grid.axes.values())
        best = self.best
        if best != self._last:
            self._last = best
            self._quiet = 0
        while self._quiet < len(axes):
            at = self._axis
            self._axis = (at + 1) % len(axes)
            self._quiet += 1
            around = [(*best[:at], j, *best[at + 1 :]) for j in axes[at].near(best[at])]
            if unseen := self._unseen(around):
                return unseen
        return []

    def _nearest(self) -> list[Point]:
        """Return the unseen points at the least distance from the best one."""
        # The end is for a grid of fewer points than the budget, which has none left at any
        # distance.
        for radius in range(2, 2 * self.grid.budget + 2):
            if unseen := self._unseen(self._shell(radius)):
                return unseen
        return []

    def _unseen(self, points: Iterable[Point]) -> list[Point]:
        return [point for point in points if point not in self.scores]

    def _shell(self, radius: int) -> Iterator[Point]:
        """Generate the points whose indices differ from the best one's by `radius` in all."""
        best = self.best
        for moves in itertools.product(range(-radius, radius + 1), repeat=len(best)):
            point = tuple(j + move for j, move in zip(best, moves, strict=True))
            if sum(map(abs, moves)) == radius and self.grid.inside(point):
                yield point


def search_all(
    searches: Sequence[Search],
    evaluate: Callable[[list[tuple[int, Point]]], Sequence[float]],
) -> None:
    """Run searches side by side, round by round: `evaluate` gets (which search, point) and returns
    their scores.
    """
    while asked := [
        (i, point) for i, search in enumerate(searches) for point in search.ask()
    ]:
        for (i, point), score in zip(asked, evaluate(asked), strict=True):
            searches[i].tell(point, score)


class Trial(NamedTuple):
    """One evaluation: a setting of the grid number `which`, on one seed or fold."""

    which: int
    setting: Setting
    seed: int


@dataclass(frozen=True)
class Best(Generic[Run]):
    """The setting of least score on a grid with its run on each seed, and what the search saw."""

    setting: Setting
    runs: tuple[Run, ...]
    searched: float  # the least score in the search
    ends: tuple[str, ...]  # the axes that end at the chosen setting
    # every setting with its runs, in the order of the search
    tried: tuple[tuple[Setting, tuple[Run, ...]], ...]


def tune_grids(
    grids: Sequence[Grid],
    evaluate: Callable[[list[Trial]], Sequence[Run]],
    score: Callable[[Sequence[Run]], float],
    *,
    seeds: Sequence[int],
    searched: int = 1,
    finalists: int = 1,
) -> list[Best[Run]]:
    """Search each grid on its first seeds, run the best settings on all seeds, and take the one of
    least score.

        search on `searched` seeds  ->  `finalists` of grid i on seeds[i] seeds  ->  the least score

    All grids are searched side by side, so that `evaluate`, which may run many trials at once,
    never waits for one of them. It returns a run for each trial, and `score` makes one number of
    the runs of a setting. No trial is run twice.
    """
    runs: list[dict[Point, list[Run]]] = [{} for _ in grids]

    def extend(points: list[tuple[int, Point]], most: Sequence[int]) -> None:
        """Run the points of grid i on those of its first most[i] seeds that they lack."""
        lacking = [
            (i, point, seed)
            for i, point in points
            for seed in range(len(runs[i].setdefault(point, [])), most[i])
        ]
        if not lacking:
            return
        results = evaluate(
            [Trial(i, grids[i].setting(point), seed) for i, point, seed in lacking]
        )
        for (i, point, _), result in zip(lacking, results, strict=True):
            runs[i][point].append(result)

    def scores(points: list[tuple[int, Point]]) -> list[float]:
        extend(points, [searched] * len(grids))
        return [score(runs[i][point]) for i, point in points]

    searches = [Search(grid) for grid in grids]
    search_all(searches, scores)
    extend(
        [
            (i, point)
            for i, search in enumerate(searches)
            for point in search.ranked(finalists)
        ],
        seeds,
    )
    return [
        _best(search, each, finalists, score)
        for search, each in zip(searches, runs, strict=True)
    ]


def _best(
    search: Search,
    runs: Mapping[Point, list[Run]],
    finalists: int,
    score: Callable[[Sequence[Run]], float],
) -> Best[Run]:
    """Return the finalist of least score; of equal ones the better in the search."""
    grid = search.grid
    point = min(search.ranked(finalists), key=lambda point: score(runs[point]))
    tried = tuple((grid.setting(each), tuple(found)) for each, found in runs.items())
    least = search.scores[search.best]
    return Best(
        grid.setting(point), tuple(runs[point]), least, tuple(grid.at_end(point)), tried
    )
