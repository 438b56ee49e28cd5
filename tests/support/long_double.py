"""Subproblems once more, in long double and with formulas of their own: what a certificate is judged by.

P(x) = sum_i c_i f(J_i x - y_i) + ridge/2 |x|^2 + kappa/2 |x - w|^2 + g(x)
D(v) = min_x sum_i c_i (<v_i, J_i x - y_i> - rho/2 |v_i|^2) + the same quadratics + g(x),     v_i in V
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

import proxlin as px
from zoo import GroupNorm

LONG = np.longdouble
N, K, D = 6, 3, 4  # blocks, their entries, parameters

# ------------------------------------------------------------ the sets V, once more, in long double


def norms(z):
    return np.sqrt(np.sum(z * z, axis=-1))


def ball(v):
    return v / np.maximum(norms(v), 1)[:, None]


def box(low, high):
    return lambda v: np.clip(v, LONG(low), LONG(high))


def simplex(v):
    """The projection onto the simplex, by bisection on its threshold."""
    low, high = np.max(v, axis=-1, keepdims=True) - 1, np.max(v, axis=-1, keepdims=True)
    for _ in range(80):
        middle = (low + high) / 2
        above = np.sum(np.maximum(v - middle, 0), axis=-1, keepdims=True) > 1
        low, high = np.where(above, middle, low), np.where(above, high, middle)
    v = np.maximum(v - low, 0)
    return v / np.sum(v, axis=-1, keepdims=True)


def cross(v):
    inside = np.sum(np.abs(v), axis=-1, keepdims=True) <= 1
    return np.where(inside, v, np.sign(v) * simplex(np.abs(v)))


def groups(v):
    return np.concatenate([ball(v[:, :2]), np.clip(v[:, 2:], -1, 1)], axis=1)


def ends(low, high):
    """sum_j max(low z_j, high z_j)."""
    return lambda z: np.sum(np.maximum(LONG(low) * z, LONG(high) * z), axis=-1)


LOW, HIGH = (float(x) for x in px.Quantile(0.25).bounds())
PLAIN = {  # name -> (f, f in long double, the projection onto V in long double)
    "L2": (px.L2(), norms, ball),
    "L1": (px.L1(), ends(-1, 1), box(-1, 1)),
    "LInf": (px.LInf(), lambda z: np.max(np.abs(z), axis=-1), cross),
    "Max": (px.Max(), lambda z: np.max(z, axis=-1), simplex),
    "Hinge": (px.Hinge(), ends(0, 1), box(0, 1)),
    "Quantile": (px.Quantile(0.25), ends(LOW, HIGH), box(LOW, HIGH)),
    "GroupNorm": (GroupNorm(), lambda z: norms(z[:, :2]) + np.abs(z[:, 2]), groups),
}


def smoothed(rho, project):
    """max_{v in V} <z, v> - rho/2 |v|^2."""

    def f(z):
        v = project(z / LONG(rho))
        return np.sum(z * v, axis=-1) - LONG(rho) / 2 * np.sum(v * v, axis=-1)

    return f


CASES = {  # name -> (f, rho, f in long double, the projection onto V in long double)
    **{name: (outer, 0.0, f, project) for name, (outer, f, project) in PLAIN.items()},
    **{
        f"{name}.smooth({nu})": (outer.smooth(nu), nu, smoothed(nu, project), project)
        for name, (outer, _, project) in PLAIN.items()
        for nu in (0.25, 4.0)
    },
    "Huber": (px.Huber(0.5), 1.0, smoothed(1.0, box(-0.5, 0.5)), box(-0.5, 0.5)),
    "Huber.smooth(1)": (
        px.Huber(0.5).smooth(1.0),
        2.0,
        smoothed(2.0, box(-0.5, 0.5)),
        box(-0.5, 0.5),
    ),
    "SquaredL2": (px.SquaredL2(), 1.0, smoothed(1.0, lambda v: v), lambda v: v),
    "SquaredL2.smooth(1)": (
        px.SquaredL2().smooth(1.0),
        2.0,
        smoothed(2.0, lambda v: v),
        lambda v: v,
    ),
}

# ------------------------------------------------------------------------------------ the instances


def bits(rng, shape, count):
    return rng.integers(-(2**count), 2**count, shape).astype(float) / 2**count


def instances(seed, count, dtype, any_units):
    """X, y, w, kappa and ridge, exact in float32: |X| from 1e-8 to 1e8, and so is |w| unless f has
    units of its own.
    """
    rng = np.random.default_rng(seed)
    features = 2.0 ** rng.integers(-26, 27, count)
    units = 2.0 ** rng.integers(-26, 27, count) if any_units else 1 / features
    X = bits(rng, (count, N, K, D), 6) * features[:, None, None, None]
    w = bits(rng, (count, D), 5) * units[:, None]
    y = bits(rng, (count, N, K), 8) * (features * units)[:, None, None]
    natural = features / units  # |J|^2 / F
    kappa = natural * 2.0 ** rng.integers(-12, 8, count)
    ridge = natural * np.where(
        rng.random(count) < 0.5, 0.0, 2.0 ** rng.integers(-8, 4, count)
    )
    return [x.astype(dtype) for x in (X, y, w, kappa, ridge)]


class Penalty(NamedTuple):
    """g, and argmin_x g(x) + |x - t|^2 / (2 step)."""

    value: Callable[[Any], Any] = lambda x: LONG(0)
    prox: Callable[[Any, Any], Any] = lambda t, step: t


class Twin(NamedTuple):
    """A subproblem with J (m, k, d), y (m, k), c (m,) and w (d,), all of it in long double."""

    J: Any
    y: Any
    c: Any
    w: Any
    kappa: Any
    ridge: Any
    penalty: Penalty = Penalty()

    def image(self, x):
        return self.J @ x - self.y

    def quadratics(self, x):
        away = x - self.w
        return self.ridge / 2 * x @ x + self.kappa / 2 * away @ away

    def primal(self, f, x):
        loss = np.sum(self.c * f(self.image(x)))
        return loss + self.quadratics(x) + self.penalty.value(x)

    def dual_point(self, v):
        """Return the x of D(v)."""
        weight = self.kappa + self.ridge
        pulled = np.einsum("n,nk,nkd->d", self.c, v, self.J)
        return self.penalty.prox((self.kappa * self.w - pulled) / weight, 1 / weight)

    def dual(self, rho, v):
        """Return D(v); rho is a number, or one for each entry."""
        x = self.dual_point(v)
        terms = np.sum(v * self.image(x) - np.asarray(rho, LONG) / 2 * v * v, axis=-1)
        return np.sum(self.c * terms) + self.quadratics(x) + self.penalty.value(x)

    def size(self, f, rho, x, v, slope=0):
        """Return the sum of the terms of P and D without their signs, which their rounding grows with.

        f moves by at most max(slope, |v|) with each entry of its image.
        """
        far = np.abs(x) + np.abs(self.dual_point(v)) + np.abs(self.w)
        reached = np.abs(self.J) @ far + np.abs(self.y)
        images = np.maximum(np.abs(v), slope) * reached
        duals = images + np.asarray(rho, LONG) * v * v
        losses = np.abs(f(self.image(x))) + np.sum(duals, axis=-1)
        quadratics = (self.kappa + self.ridge) * far @ far
        return np.sum(self.c * losses) + quadratics + self.penalty.value(x)


class Found(NamedTuple):
    """What the library says of an instance: its answers, in any precision."""

    x: Any
    v: Any
    gap: Any
    value: Any
    error: Any
    goal: Any  # the gap that was wanted


class Verdict(NamedTuple):
    false_gap: bool
    false_value: bool
    reached: bool


def judged(case, twin: Twin, found: Found, dtype) -> Verdict:
    """Say whether the gap and the value are true, and whether the gap is the wanted one but for rounding."""
    _, rho, f, project = case
    x = np.asarray(found.x, LONG)
    v = project(np.asarray(found.v, LONG))
    P = twin.primal(f, x)
    D = twin.dual(rho, v)
    # the rounding of P - D here
    ours = 64 * np.finfo(LONG).eps * twin.size(f, rho, x, v)
    # z has its rounding, and a kink the slope of f, also where v is small
    close = 8 * np.finfo(dtype).eps * twin.size(f, rho, x, v, slope=1)
    return Verdict(
        false_gap=not LONG(found.gap) + ours >= P - D,
        false_value=not abs(LONG(found.value) - P) <= close,
        reached=bool(LONG(found.gap) - LONG(found.error) <= LONG(found.goal)),
    )
