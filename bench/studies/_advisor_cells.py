"""The cells of `bench.studies.advisor_between`: problems that lie between the two families of
`bench.studies.advisor`, where SGD or Gauss-Newton won nearly all.

    phase      m squares |<a_i, x>|^2 of a real signal of n numbers; with noise, and with gross errors
    network    a tanh network of width 16 fitted by one of width 4, 16 or 64, from 8 inputs to 2 outputs
    table      96 rows of a real table, fitted by a linear model or a tanh network of width 32

A draw of a cell is a new signal, a new teacher, or a new split of the table. Validation and test rows
have the noise of the training rows and none of their gross errors.
"""

from dataclasses import dataclass
from functools import lru_cache
from itertools import product
from typing import Any, NamedTuple

import numpy as np

FAMILIES = ("phase", "network", "table")
VALIDATION, TEST = (
    500,
    1024,
)  # rows; a table that has fewer gives a third of its rest and the rest
TRAINED = 96  # rows of a table
SHAPES = (
    (16, 64),
    (32, 192),
)  # of a phase retrieval: numbers of the signal, and squares
TABLES: dict[str, tuple[str, ...]] = {
    "diabetes": ("target",),
    "enb.arff": ("Y1", "Y2"),
    "jura.arff": ("Cd", "Co", "Cu"),
    "engel.csv": ("foodexp",),
    "NOxEmissions.csv": ("LNOx",),
    "digits": (),  # ten 0/1 targets
}


@dataclass(frozen=True)
class Cell:
    """A distribution of problems.

    source      the measurements, the activation, or the table
    n           rows to train on
    size        numbers of the signal, or the width of the network; 0 is a linear model
    noise       of a phase retrieval, over the mean square; 1 / sqrt SNR of a network
    corruption  the share of squares that are gross errors
    """

    family: str
    source: str
    n: int
    size: int
    noise: float = 0.0
    corruption: float = 0.0

    def label(self) -> str:
        numbers = f"n={self.n} size={self.size}"
        if self.family != "table":
            numbers += f" noise={self.noise:g}"
        if self.family == "phase":
            numbers += f" corruption={self.corruption:g}"
        return f"{self.family} {self.source} {numbers}"

    def shapes(self) -> str:
        """Return what cells that share their programs have in common."""
        return f"{self.family} {self.source} {self.n} {self.size}"


class Parts(NamedTuple):
    """Training, validation and test problem, and the start."""

    train: Any
    validation: Any
    test: Any
    w: Any


def cells() -> list[Cell]:
    """Return all cells; those that share their programs one after the other, and some of each family
    first, so that a run that was stopped tells of all of them.
    """
    small, large = SHAPES
    return [
        *_networks(4),
        *_phases(*small),
        *_tables(32),
        *_networks(64),
        *_networks(16),
        *_phases(*large),
        *_tables(0),
    ]


def _networks(width: int) -> list[Cell]:
    ratios = (1e1, 1e2, 1e3, 1e4, 1e6, 1e8)
    return [
        Cell("network", "tanh", 64, width, float(f"{snr**-0.5:.3g}")) for snr in ratios
    ]


def _phases(n: int, m: int) -> list[Cell]:
    levels = product((0.0, 0.01, 0.1, 0.5), (0.0, 0.1, 0.25))
    return [Cell("phase", "gaussian", m, n, *each) for each in levels]


def _tables(width: int) -> list[Cell]:
    return [Cell("table", source, TRAINED, width) for source in TABLES]


@lru_cache(maxsize=16)
def parts_of(cell: Cell, draw: int) -> Parts:
    """Return a draw of a cell."""
    if cell.family == "phase":
        return _phase(cell, draw)
    if cell.family == "network":
        return _network(cell, draw)
    return _table(cell, draw)


def _phase(cell: Cell, draw: int) -> Parts:
    """All rows measure one signal; only training squares are replaced by gross errors, which are the
    median square times |Cauchy|.
    """
    import jax.numpy as jnp

    import proxlin as px
    from proxlin.data.phase import draw_phase, phase_retrieval

    rng = np.random.default_rng([draw, cell.n])
    total = cell.n + VALIDATION + TEST
    drawn = draw_phase(cell.source, total, cell.size, rng, noise=cell.noise)
    squares = drawn.squares.copy()
    wrong = rng.permutation(cell.n)[: round(cell.corruption * cell.n)]
    squares[wrong] = np.median(squares) * np.abs(rng.standard_cauchy(len(wrong)))
    train, validation, test = (
        phase_retrieval(drawn.rows[rows], squares[rows])
        for rows in _split(np.arange(total), cell.n, VALIDATION)
    )
    kept = slice(cell.n)
    start = px.spectral_start(jnp.asarray(drawn.rows[kept]), jnp.asarray(squares[kept]))
    return Parts(train, validation, test, start)


def _network(cell: Cell, draw: int) -> Parts:
    from proxlin.data.regression import Teacher

    teacher = Teacher(draw, cell.noise**-2, cell.source, "laplace", 8, 2, 16)
    sizes = {"train": cell.n, "validation": VALIDATION, "test": TEST}
    samples = [teacher.sample(count, part) for part, count in sizes.items()]
    return _fits([(each.x, each.y) for each in samples], cell.size, draw)


def _table(cell: Cell, draw: int) -> Parts:
    """Return a random split of a table, in units of its training rows."""
    from proxlin.tables.standardize import units_of

    X, y = table_of(cell.source)
    order = np.random.default_rng([draw, 0]).permutation(len(X))
    judged = min(VALIDATION, (len(X) - cell.n) // 3)
    parts = _split(order[: cell.n + judged + TEST], cell.n, judged)
    units = units_of(X[parts[0]], y[parts[0]])
    samples = [(units.features(X[rows]), units.targets(y[rows])) for rows in parts]
    return _fits(samples, cell.size, draw)


def _fits(samples: list[tuple[Any, Any]], width: int, draw: int) -> Parts:
    """Return problems of the l2 norm, with a linear model where the width is 0."""
    import jax
    import jax.numpy as jnp

    import proxlin as px

    x, y = samples[0]
    hidden = (width,) if width else ()
    student = px.MLP((x.shape[1], *hidden, y.shape[1]))
    train, validation, test = (
        px.MeanOfLosses(px.residual(student), px.L2(), (jnp.asarray(x), jnp.asarray(y)))
        for x, y in samples
    )
    return Parts(train, validation, test, student.init(jax.random.key(draw)))


def _split(rows: np.ndarray, n: int, judged: int) -> list[np.ndarray]:
    return np.split(rows, [n, n + judged])


@lru_cache(maxsize=8)
def table_of(name: str) -> tuple[np.ndarray, np.ndarray]:
    """Return the features and the targets of a table."""
    if name == "diabetes":
        from sklearn.datasets import load_diabetes

        X, y = map(np.asarray, load_diabetes(return_X_y=True))
        return X, y[:, None]
    if name == "digits":
        from sklearn.datasets import load_digits

        X, y = map(np.asarray, load_digits(return_X_y=True))
        y = y.astype(int)
        return X, np.eye(10)[y]
    from proxlin.data.cache import data_folder
    from proxlin.data.frames import read_frame
    from proxlin.tables.columns import numbers_of

    folder = data_folder()
    if folder is None:
        raise SystemExit("PROXLIN_DATA is not set; it names the folder with tables/.")
    table = numbers_of(read_frame(folder / "tables" / name), TABLES[name])
    return table.X, table.y
