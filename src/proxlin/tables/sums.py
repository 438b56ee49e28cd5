"""Linear fits of a table in parts, by sums over its rows that are the same for every order of reading.

    B <- B - (sum_i s_i H_i)^-1 sum_i s_i g_i,         u_i = [z_i 1] B - y_i

g_i and H_i are gradient and Hessian of f(u_i) in B (k columns, one for each target). A loss of absolute
values has no Hessian. Its exact fit needs few rows (Portnoy and Koenker 1997): where a residual keeps its
sign, the loss is linear in B, and of all of these rows only the sum of their gradients is kept.

    min_B  sum over rows near the fit of f(u_i) + <sum of the gradients of the others, B>

is solved in memory, and one look at all rows tells whether the others have kept their signs.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from jaxtyping import Float

from ..data.frames import Frame
from ..data.parts import AbstractParts
from .described import HELD, VALIDATION, Described, Encoded, Plan
from .standardize import Units
from .training import EXACT_STEPS

SAME = 1e-9  # deviations of the residuals; a smaller change of the fitted values ends the passes
NEAR = 4_000_000  # numbers of rows near a fit that are kept in memory, at most
NEAREST = 0.05  # the share of the rows over which an absolute value is rounded at first
ROUNDED = 3  # passes with a rounded loss, where too many rows are near the fit at first
HALVINGS = 30
INNER = 200  # steps of Newton's method in memory; ten are usual
LITTLE = (
    1e-4  # of the curvature of all rows, which is added to that of the rows near a kink
)
LEAST = 1e-11  # deviations: the width over which absolute values are rounded at last
# numbers and arrays that are added chunk by chunk; a sum of arrays without axes is a number
Row = tuple[Any, ...]
FLAT = 1e-9  # of a column's size; less is left of it by the columns before it


@dataclass(frozen=True)
class Loss:
    """A convex loss, or that of an MM-estimate, by its slope in units of the residuals.

    low and high are the slopes far away, width is where the slope bends: sigma clip(u / width, low,
    high) and so on. "l2" is the norm of several targets.
    """

    kind: str  # "squared", "clipped", "norm" or "bisquare"
    low: float = -1.0
    high: float = 1.0
    width: float = 1.0

    def parts(self, u: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return the loss of each row, its slope (n, k), and its curvature (n, k); that of a norm is
        1 / |u|, of a matrix that the caller knows.
        """
        if self.kind == "squared":
            return (u * u).sum(1) / 2, u, np.ones_like(u)
        if self.kind == "norm":
            size = np.maximum(np.linalg.norm(u, axis=1, keepdims=True), self.width)
            return size[:, 0], u / size, np.broadcast_to(1 / size, u.shape)
        if self.kind == "bisquare":
            t = u / self.width
            left = np.maximum(1 - t * t, 0)
            value = self.width**2 / 6 * (1 - left**3)
            return value.sum(1), u * left**2, left * (1 - 5 * t * t)
        # sup over v in [low, high] of v u - width (v - middle)^2 / 2: the absolute value, rounded
        middle = (self.low + self.high) / 2
        v = np.clip(middle + u / self.width, self.low, self.high)
        value = v * u - self.width * (v - middle) ** 2 / 2
        inside = (v > self.low) & (v < self.high)
        return value.sum(1), v, inside / self.width

    @property
    def absolute(self) -> bool:
        """Return whether the loss bends at 0 alone."""
        return self.kind == "clipped" and self.width == 0.0


@dataclass(frozen=True)
class Line:
    """A linear fit that is asked for: its loss, the rows it sees, and where it is now.

    `without` are the roles of rows that it does not see; B (p + 1, k) is in `units`.
    """

    loss: Loss
    units: Units
    without: tuple[int, ...]
    B: Float[np.ndarray, "q k"]

    def residuals(self, design: np.ndarray, rows: Encoded) -> np.ndarray:
        """Return [z 1] B - y of rows that are in units already."""
        return design @ self.B - self.units.targets(rows.y)


ALL: tuple[int, ...] = ()
JUDGED = (HELD,)
TRAINED = (HELD, VALIDATION)


def design_of(units: Units, X: np.ndarray) -> np.ndarray:
    """Return [z 1]."""
    return np.column_stack([units.features(X), np.ones(len(X))])


@dataclass(frozen=True)
class Sums:
    """The work of a pass: value, gradient and Hessian of each line at its B."""

    plan: Plan
    lines: tuple[Line, ...]

    def __call__(self, frame: Frame, start: int) -> list[Row]:
        rows = self.plan.encoded(frame, start)
        # all lines have the same units of the features
        design = design_of(self.lines[0].units, rows.X)
        found = []
        for line in self.lines:
            seen = ~np.isin(rows.role, line.without)
            whole = bool(seen.all())
            D = design if whole else design[seen]
            own = rows if whole else rows.rows(seen)
            u = line.residuals(D, own)
            found.append(_sums(line.loss, D, u, own.s))
        return found


def _sums(loss: Loss, D: np.ndarray, u: np.ndarray, s: np.ndarray | None) -> Row:
    """Return the sum of losses, of gradients (q, k) and of Hessians: (k, q, q), or (q k, q k) of a
    norm.
    """
    value, v, h = loss.parts(u)
    if s is not None:
        value = value * s
        v = v * s[:, None]
        h = h * s[:, None]
    k = u.shape[1]
    if loss.kind == "norm":
        q = D.shape[1]
        direction = u * np.sqrt(h)  # u / |u|^(1/2)
        size = np.maximum(np.linalg.norm(u, axis=1, keepdims=True), loss.width)
        hessian = np.empty((q, k, q, k))
        for i in range(k):
            for j in range(k):
                weight = (i == j) * h[:, 0] - direction[:, i] * direction[:, j] / (
                    size[:, 0] ** 2
                )
                hessian[:, i, :, j] = (D * weight[:, None]).T @ D
        curved = hessian.reshape(q * k, q * k)
    else:
        curved = np.stack([_gram(D, h[:, j]) for j in range(k)])
    return np.asarray(value.sum()), D.T @ v, curved


def _gram(D: np.ndarray, h: np.ndarray) -> np.ndarray:
    """Return D' diag(h) D; most rows of a rounded absolute value have no curvature."""
    some = h != 0
    if some.mean() < 0.5:
        D = D[some]
        h = h[some]
    return (D * h[:, None]).T @ D


def summed(parts: AbstractParts, table: Described, lines: Sequence[Line]) -> list[Row]:
    """Return the sums of one pass, added in the order of the rows."""
    total = None
    for found in parts.each(Sums(table.plan, tuple(lines))):
        if total is None:
            total = found
            continue
        total = [
            tuple(a + b for a, b in zip(one, two, strict=True))
            for one, two in zip(total, found, strict=True)
        ]
    assert total is not None
    return total


@dataclass(frozen=True)
class Triangle:
    """The work of the pass that tells which columns follow from others: R of the QR decomposition of
    [1 z] of a chunk, with the columns in an order.
    """

    plan: Plan
    units: Units
    order: np.ndarray

    def __call__(self, frame: Frame, start: int) -> np.ndarray:
        z = self.units.features(self.plan.encoded(frame, start).X)
        return triangle(np.column_stack([np.ones(len(z)), z[:, self.order]]))


def triangle(A: np.ndarray) -> np.ndarray:
    """Return R with R'R = A'A, square."""
    q = A.shape[1]
    if len(A) < q:
        A = np.concatenate([A, np.zeros((q - len(A), q))])
    return np.asarray(np.linalg.qr(A, mode="r"))


def independent_columns(
    parts: AbstractParts, table: Described, units: Units
) -> np.ndarray:
    """Return the columns that do not follow from a constant and the columns before them, over all rows,
    as `linear.independent` does in memory.
    """
    order = np.argsort(table.encoder.first_levels, kind="stable")
    R = None
    for found in parts.each(Triangle(table.plan, units, order)):
        R = found if R is None else triangle(np.concatenate([R, found]))
    assert R is not None
    center = np.abs(R[0, 1:])
    size = np.linalg.norm(R[1:, 1:], axis=0)
    left = np.abs(np.diag(R))[1:]
    good = (left > FLAT * size) & (size > FLAT * center)
    return np.sort(order[good])


def fitted(
    parts: AbstractParts,
    table: Described,
    lines: Sequence[Line],
    kept: np.ndarray,
    scale: Sequence[np.ndarray],
) -> tuple[list[Line], list[bool]]:
    """Return the lines at their minimisers over all rows that they see, and whether each has come to
    rest. `scale` are the deviations of the residuals of each line, in its units.
    """
    columns = np.append(kept, table.encoder.width)
    now = list(lines)
    done = [False] * len(now)
    smooth = [i for i, line in enumerate(now) if not line.loss.absolute]
    for i, found in _newton(
        parts, table, [now[i] for i in smooth], columns, [scale[i] for i in smooth]
    ):
        now[smooth[i]], done[smooth[i]] = found
    rough = [i for i, line in enumerate(now) if line.loss.absolute]
    if rough:
        some = _absolute(
            parts, table, [now[i] for i in rough], columns, [scale[i] for i in rough]
        )
        for i, (line, rests) in zip(rough, some, strict=True):
            now[i] = line
            done[i] = rests
    return now, done


def _newton(
    parts: AbstractParts,
    table: Described,
    lines: Sequence[Line],
    columns: np.ndarray,
    scale: Sequence[np.ndarray],
    passes: int = EXACT_STEPS,
) -> list[tuple[int, tuple[Line, bool]]]:
    """Return each line at its minimiser, and whether it has come to rest: Newton's method, with steps
    that are halved until the loss falls. All lines share their passes.
    """
    found: list[tuple[int, tuple[Line, bool]]] = []
    going = list(range(len(lines)))
    now = list(lines)
    base: dict[int, tuple[Line, float, np.ndarray]] = {}
    for _ in range(passes):
        if not going:
            break
        sums = summed(parts, table, [now[i] for i in going])
        still = []
        for i, (total, gradient, hessian) in zip(going, sums, strict=True):
            value = float(total)
            rounding = 1e-13 * abs(value)
            if i in base and value > base[i][1] + rounding:
                before, _, step = base[i]
                base[i] = (before, base[i][1], step / 2)
                if np.abs(step).max() <= LEAST:
                    found.append((i, (before, True)))
                    continue
                now[i] = replace(before, B=before.B + step / 2)
                still.append(i)
                continue
            step = newton_step(now[i].loss, gradient, hessian, columns)
            base[i] = (now[i], value, step)
            now[i] = replace(now[i], B=now[i].B + step)
            # The features have deviation 1: this bounds the change of the fitted values, about.
            small = np.linalg.norm(step, axis=0) <= SAME * scale[i]
            if now[i].loss.kind == "squared" or np.all(small):
                found.append((i, (now[i], True)))
            else:
                still.append(i)
        going = still
    return found + [(i, (now[i], False)) for i in going]


def newton_step(
    loss: Loss, gradient: np.ndarray, hessian: np.ndarray, columns: np.ndarray
) -> np.ndarray:
    """Return -H^-1 g in the columns that have a coefficient, 0 in the others."""
    step = np.zeros_like(gradient)
    k = gradient.shape[1]
    if loss.kind == "norm":
        own = (columns[:, None] * k + np.arange(k)).ravel()
        flat = _solve(hessian[np.ix_(own, own)], gradient.ravel()[own])
        step[columns] = -flat.reshape(len(columns), k)
        return step
    for j in range(k):
        here = hessian[j][np.ix_(columns, columns)]
        step[columns, j] = -_solve(here, gradient[columns, j])
    return step


def _solve(H: np.ndarray, g: np.ndarray) -> np.ndarray:
    """Return H^-1 g, where directions of no curvature or a negative one count with its size."""
    values, axes = np.linalg.eigh((H + H.T) / 2)
    least = max(1e-12 * np.abs(values).max(initial=0.0), np.finfo(float).tiny)
    return axes @ ((axes.T @ g) / np.maximum(np.abs(values), least))


# --------------------------------------------------------------------------------- absolute values


@dataclass(frozen=True)
class Near:
    """The work of a pass for absolute values: the rows near the fit, the gradients of the others, and
    how many rows that were not near before have changed their sign since.
    """

    plan: Plan
    lines: tuple[Line, ...]
    width: Row  # (k,) of each line: nearer rows are kept
    before: tuple[tuple[np.ndarray, np.ndarray] | None, ...]  # B and width of the fit

    def __call__(self, frame: Frame, start: int) -> list[list[Row]]:
        rows = self.plan.encoded(frame, start)
        design = design_of(self.lines[0].units, rows.X)
        every = zip(self.lines, self.width, self.before, strict=True)
        return [self._line(design, rows, *each) for each in every]

    def _line(
        self,
        design: np.ndarray,
        rows: Encoded,
        line: Line,
        width: np.ndarray,
        before: tuple[np.ndarray, np.ndarray] | None,
    ) -> list[Row]:
        seen = ~np.isin(rows.role, line.without)
        D = design[seen]
        own = rows.rows(seen)
        u = line.residuals(D, own)
        s = np.ones(len(u)) if own.s is None else own.s
        found = []
        for j in range(u.shape[1]):
            wrong = np.zeros(())
            if before is not None:
                B, last = before
                old = replace(line, B=B).residuals(D, own)[:, j]
                changed = (np.abs(old) > last[j]) & (np.sign(old) != np.sign(u[:, j]))
                wrong = np.float64(changed.sum())
            near = np.abs(u[:, j]) <= width[j]
            v = np.where(u[:, j] > 0, line.loss.high, line.loss.low) * s
            gradient = D.T @ np.where(near, 0.0, v)
            found.append((wrong, gradient, D[near], u[near, j], s[near]))
        return found


def _absolute(
    parts: AbstractParts,
    table: Described,
    lines: Sequence[Line],
    columns: np.ndarray,
    scale: Sequence[np.ndarray],
) -> list[tuple[Line, bool]]:
    """Return the exact fits of absolute values, or of quantiles."""
    now = list(lines)
    room = NEAR // len(columns)
    # the residuals of the rows in memory tell how many rows of the table lie near a fit
    share = min(1.0, room / table.rows)
    if share < 2 * NEAREST:
        rounded = [
            replace(
                line,
                loss=replace(
                    line.loss, width=float(np.max(_width(table, line, NEAREST)))
                ),
            )
            for line in now
        ]
        for i, (line, _) in _newton(parts, table, rounded, columns, scale, ROUNDED):
            now[i] = replace(now[i], B=line.B)
    before: list[tuple[np.ndarray, np.ndarray] | None] = [None] * len(now)
    rests = [False] * len(now)
    for _ in range(EXACT_STEPS):
        width = tuple(_width(table, line, share) for line in now)
        sums = _near(parts, Near(table.plan, tuple(now), width, tuple(before)))
        for i, found in enumerate(sums):
            wrong = sum(float(each[0]) for each in found)
            rests[i] = before[i] is not None and wrong == 0
            if rests[i]:
                continue
            before[i] = (now[i].B, width[i])
            B = now[i].B.copy()
            for j, (_, gradient, D, u, s) in enumerate(found):
                B[columns, j] += reduced(
                    now[i].loss,
                    D[:, columns],
                    u,
                    s,
                    gradient[columns],
                    float(scale[i][j]),
                )
            now[i] = replace(now[i], B=B)
        if all(rests):
            break
    return list(zip(now, rests, strict=True))


def _near(parts: AbstractParts, work: Near) -> list[list[Row]]:
    """Return the sums of one pass and the rows near each fit, in the order of the rows."""
    every = list(parts.each(work))
    total = []
    for i in range(len(work.lines)):
        targets = []
        for j in range(len(every[0][i])):
            chunks = [found[i][j] for found in every]
            wrong = sum(each[0] for each in chunks)
            gradient = sum(each[1] for each in chunks)
            rows = [np.concatenate([each[m] for each in chunks]) for m in (2, 3, 4)]
            targets.append((wrong, gradient, *rows))
        total.append(targets)
    return total


def _width(table: Described, line: Line, share: float) -> np.ndarray:
    """Return the distance from the fit within which a share of the rows lies, for each target."""
    if share >= 1:
        return np.full(line.B.shape[1], np.inf)
    u = line.residuals(design_of(line.units, table.kept.X), table.kept)
    return np.quantile(np.abs(u), share, axis=0)


def reduced(
    loss: Loss, D: np.ndarray, u: np.ndarray, s: np.ndarray, c: np.ndarray, scale: float
) -> np.ndarray:
    """Return argmin_b sum_i s_i f(u_i + d_i b) + <c, b>: Newton's method on rounded losses, which come
    nearer and nearer to f (Madsen and Nielsen 1993).
    """
    b = np.zeros(D.shape[1])
    width = 0.1 * scale
    while True:
        rounded = replace(loss, width=width)
        b = _descend(rounded, D, u, s, c, b, scale)
        if width <= LEAST * scale:
            return b
        width = max(width / 10, LEAST * scale)


def _descend(
    loss: Loss,
    D: np.ndarray,
    u: np.ndarray,
    s: np.ndarray,
    c: np.ndarray,
    b: np.ndarray,
    scale: float,
) -> np.ndarray:
    def value_of(b: np.ndarray) -> float:
        value, _, _ = loss.parts((u + D @ b)[:, None])
        return float(s @ value + c @ b)

    little = (D * (LITTLE * s / scale)[:, None]).T @ D
    value = value_of(b)
    for _ in range(INNER):
        _, v, h = loss.parts((u + D @ b)[:, None])
        inside = h[:, 0] > 0
        weight = (s * h[:, 0])[inside]
        gradient = D.T @ (s * v[:, 0]) + c
        hessian = (D[inside] * weight[:, None]).T @ D[inside]
        # Too few rows may be inside for a curvature in each direction: a little of all rows is added.
        step = -_solve(hessian + little, gradient)
        # the fit is not far
        size = np.abs(D @ step).max(initial=0.0) if len(D) else 0.0
        if size > scale:
            step = step * (scale / size)
        for _ in range(HALVINGS):
            after = value_of(b + step)
            if after < value:
                break
            step = step / 2
        else:
            return b
        b = b + step
        value = after
        if np.linalg.norm(step) <= LEAST * scale / 10:
            return b
    return b
