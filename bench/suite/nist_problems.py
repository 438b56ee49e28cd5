"""The 27 nonlinear regressions of NIST's StRD: y = model(b; x) + e, with certified b and residual
sum of squares.

A file holds two starting points, the certified values and the data. The models are written once, on
`m`, a module of elementary functions (numpy, jax.numpy, or cvxpy with its own atoms).
https://www.itl.nist.gov/div898/strd/nls/nls_main.shtml
"""

import itertools
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

PI = np.pi
NUMBER = r"[-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?"


@dataclass(frozen=True)
class Regression:
    """x (n, p), y (n,), two starting points (d,), the certified b (d,) and the certified sum of
    squares.
    """

    name: str
    x: np.ndarray
    y: np.ndarray
    starts: tuple[np.ndarray, np.ndarray]
    certified: np.ndarray
    squares: float

    def model(self, m: Any, b: Any, x: Any) -> Any:
        """The prediction for x = (x1, ...), a sequence of columns or of numbers."""
        return MODELS[self.name](m, b, *x)


FOLDER = Path(__file__).parents[2] / "tests" / "bench" / "nist"


def read(path: Path) -> Regression:
    """A .dat file: the lines `b1 = start1 start2 certified deviation`, the sum of squares, and what
    follows `Data:`.
    """
    text = path.read_text(encoding="ascii")
    head, _, data = text.rpartition("Data:")
    rows = re.findall(
        rf"^\s*b\d+ =\s+({NUMBER})\s+({NUMBER})\s+({NUMBER})\s+{NUMBER}\s*$", head, re.M
    )
    squares = re.search(rf"Residual Sum of Squares:\s+({NUMBER})", head)
    size = re.search(r"Number of Observations:\s+(\d+)", head)
    if not rows or squares is None or size is None or path.stem not in MODELS:
        raise ValueError(f"{path.name} is not a file of the 27 NIST regressions.")
    first, second, certified = np.array(rows, float).T
    table = np.array(
        [line.split() for line in data.splitlines()[1:] if line.strip()], float
    )
    if len(table) != int(size[1]):
        raise ValueError(
            f"{path.name} says {size[1]} observations and has {len(table)}."
        )
    # Nelson's model is of log y
    y = np.log(table[:, 0]) if path.stem == "Nelson" else table[:, 0]
    return Regression(
        path.stem, table[:, 1:], y, (first, second), certified, float(squares[1])
    )


def read_all() -> list[Regression]:
    return [read(FOLDER / f"{name}.dat") for name in sorted(MODELS)]


def digits(name: str, b: np.ndarray, certified: np.ndarray) -> float:
    """NIST's log relative error of the worst parameter, min_j -log10(|b_j - c_j| / |c_j|), at most
    11 as certified.

    Of all parameters that give the same curve (a bell with width -b, two terms swapped) the nearest
    count.
    """
    away = min(
        np.max(np.abs(same - certified) / np.abs(certified))
        for same in same_curve(name, np.asarray(b))
    )
    return (
        float(-np.log10(np.clip(away, 1e-11, np.inf))) if np.isfinite(away) else -np.inf
    )


def same_curve(name: str, b: np.ndarray) -> list[np.ndarray]:
    """The parameters of the model that give the same curve as b."""
    found = [b]
    for signs in FLIPS.get(name.rstrip("123"), ()):
        found += [np.where(np.isin(np.arange(len(b)), signs), -x, x) for x in found]
    swaps = SWAPS.get(name.rstrip("123"), [list(range(len(b)))])
    return [x[order] for x in found for order in swaps]


def _swapped(head: int, *terms: tuple[int, ...]) -> list[list[int]]:
    """The orders of parameters that permute terms; the first `head` stay."""
    orders = []
    for order in itertools.permutations(terms):
        to = list(range(head)) + [0] * sum(map(len, terms))
        for term, other in zip(terms, order, strict=True):
            for i, j in zip(term, other, strict=True):
                to[i] = j
        orders.append(to)
    return orders


# groups of parameters that may change their signs together, and orders of the parameters, that
# leave the curve as it is
FLIPS = {"Eckerle4": [(0, 1)], "Gauss": [(4,), (7,)]}
SWAPS = {
    "Gauss": _swapped(2, (2, 3, 4), (5, 6, 7)),
    "Lanczos": _swapped(0, (0, 1), (2, 3), (4, 5)),
    "MGH17": _swapped(1, (1, 3), (2, 4)),
    "ENSO": _swapped(3, (3, 4, 5), (6, 7, 8)),
}


def _chwirut(m, b, x):
    return m.exp(-b[0] * x) / (b[1] + b[2] * x)


def _gauss(m, b, x):
    bells = b[2] * m.exp(-(((x - b[3]) / b[4]) ** 2)) + b[5] * m.exp(
        -(((x - b[6]) / b[7]) ** 2)
    )
    return b[0] * m.exp(-b[1] * x) + bells


def _lanczos(m, b, x):
    return b[0] * m.exp(-b[1] * x) + b[2] * m.exp(-b[3] * x) + b[4] * m.exp(-b[5] * x)


def _cubics(m, b, x):
    top = b[0] + b[1] * x + b[2] * x**2 + b[3] * x**3
    return top / (1 + b[4] * x + b[5] * x**2 + b[6] * x**3)


def _saturation(m, b, x):
    return b[0] * (1 - m.exp(-b[1] * x))


def _cycle(m, x, period, cosine, sine):
    return cosine * m.cos(2 * PI * x / period) + sine * m.sin(2 * PI * x / period)


def _enso(m, b, x):
    return (
        b[0]
        + _cycle(m, x, 12, b[1], b[2])
        + _cycle(m, x, b[3], b[4], b[5])
        + _cycle(m, x, b[6], b[7], b[8])
    )


MODELS = {
    "Bennett5": lambda m, b, x: b[0] * m.exp(-m.log(b[1] + x) / b[2]),
    "BoxBOD": _saturation,
    "Chwirut1": _chwirut,
    "Chwirut2": _chwirut,
    "DanWood": lambda m, b, x: b[0] * m.exp(b[1] * m.log(x)),
    "ENSO": _enso,
    "Eckerle4": lambda m, b, x: b[0] / b[1] * m.exp(-0.5 * ((x - b[2]) / b[1]) ** 2),
    "Gauss1": _gauss,
    "Gauss2": _gauss,
    "Gauss3": _gauss,
    "Hahn1": _cubics,
    "Kirby2": lambda m, b, x: (
        (b[0] + b[1] * x + b[2] * x**2) / (1 + b[3] * x + b[4] * x**2)
    ),
    "Lanczos1": _lanczos,
    "Lanczos2": _lanczos,
    "Lanczos3": _lanczos,
    "MGH09": lambda m, b, x: b[0] * (x**2 + x * b[1]) / (x**2 + x * b[2] + b[3]),
    "MGH10": lambda m, b, x: b[0] * m.exp(b[1] / (x + b[2])),
    "MGH17": lambda m, b, x: b[0] + b[1] * m.exp(-x * b[3]) + b[2] * m.exp(-x * b[4]),
    "Misra1a": _saturation,
    "Misra1b": lambda m, b, x: b[0] * (1 - (1 + b[1] * x / 2) ** -2),
    "Misra1c": lambda m, b, x: b[0] * (1 - (1 + 2 * b[1] * x) ** -0.5),
    "Misra1d": lambda m, b, x: b[0] * b[1] * x / (1 + b[1] * x),
    "Nelson": lambda m, b, x1, x2: b[0] - b[1] * m.multiply(x1, m.exp(-b[2] * x2)),
    "Rat42": lambda m, b, x: b[0] / (1 + m.exp(b[1] - b[2] * x)),
    "Rat43": lambda m, b, x: b[0] * m.exp(-m.log(1 + m.exp(b[1] - b[2] * x)) / b[3]),
    "Roszman1": lambda m, b, x: b[0] - b[1] * x - m.arctan(b[2] / (x - b[3])) / PI,
    "Thurber": _cubics,
}
