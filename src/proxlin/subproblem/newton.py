"""Newton's method on many small subproblems side by side: a lane for each.

    min_d  sum_i f_i(u_i + B_i d) + <slope, d> + weight/2 |d|^2       f_i(z) = max_{v in V} <z, v> - rho_i/2 |v|^2

f is smooth where it is damped around dual variables v0, and its gradient there is one of its maximizers:

    max_{v in V} <z, v> - rho/2 |v|^2 - sigma/2 |v - v0|^2,        v = maximizer(z + sigma v0, rho + sigma)

One iteration is a pass over the rows. It finds z and v, the gradient r = slope + weight d + B'v, the matrix
weight I + B' dv/dz B, and the certified gap of (d, v). Where r is small, v0 = v is the better anchor and sigma
shrinks: this is the proximal point method on the dual, which ends at the exact minimiser whatever sigma is. With the
dual variables of the last step, one or two iterations are enough.

The lanes are the last axis of every array, so that the processor works on neighbours.
"""

import abc
import functools
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import Array

from ..outers.sets import AbstractSet

OVERSHOOT = (
    0.5  # the share of the first slope along a step that may be left beyond the minimum
)
CENTERED = 0.5  # the share of the gap that r may have before v0 moves
SHRINK = 0.3  # of sigma, when v0 moves
FIRST = 0.1  # sigma at the begin, in units of mean |z_i|
SHARE = 0.3  # the share of the decrease that the gap of an early step may have
MOST = 100  # a guard: the step is tried as it is, and does not end a run here


class AbstractJacobians(eqx.Module):
    """The matrices B of all lanes, k n rows and d columns each."""

    @abc.abstractmethod
    def push(self, x: Array) -> Array:
        """Return B x, (k, n, S)."""

    @abc.abstractmethod
    def push_sizes(self, x: Array) -> Array:
        """Return |B| |x|, (k, n, S)."""

    @abc.abstractmethod
    def pull(self, v: Array) -> Array:
        """Return B'v, (d, S)."""

    @abc.abstractmethod
    def pull_sizes(self, v: Array) -> tuple[Array, Array]:
        """Return B'v, and the sum of the entries of |B|'|v|, which is a bound for the norm of the rounding in it."""

    @abc.abstractmethod
    def system(
        self, v: Array, a: Array, b: Array | None, others: list[Array]
    ) -> tuple[Array, Any, list[Array]]:
        """Return B'v, the matrix B' (diag(a) - b b') B, and the sums of the others (n, S) over blocks."""

    @abc.abstractmethod
    def solve(self, H: Any, weight: Array, r: Array) -> Array:
        """Return (H + weight I)^-1 r, (d, S), for a matrix H of `system`."""

    @abc.abstractmethod
    def picked(self, which: Array, other: Any) -> Any:
        """Return these matrices in some lanes, and the other ones elsewhere."""


class Narrow(AbstractJacobians):
    """B (d, k, n, S), written out number by number: few columns, and the lanes side by side."""

    B: Array

    @staticmethod
    def laid_out(B: Array) -> Array:
        """Return B (n, k, d) of one lane as it lies here; the lanes come last."""
        return B.T

    def push(self, x: Array) -> Array:
        return total([b * e[None, None, :] for b, e in zip(self.B, x, strict=True)])

    def push_sizes(self, x: Array) -> Array:
        pairs = zip(self.B, x, strict=True)
        return total([jnp.abs(b * e[None, None, :]) for b, e in pairs])

    def pull(self, v: Array) -> Array:
        return jnp.stack(sums([b * v for b in self.B]))

    def pull_sizes(self, v: Array) -> tuple[Array, Array]:
        turns = total([jnp.abs(b * v) for b in self.B])
        *pulled, turn = sums([*[b * v for b in self.B], turns])
        return jnp.stack(pulled), turn

    def system(
        self, v: Array, a: Array, b: Array | None, others: list[Array]
    ) -> tuple[Array, list[list[Array]], list[Array]]:
        B = self.B
        d = B.shape[0]
        pairs = [(i, j) for i in range(d) for j in range(i + 1)]
        weighted = [a * x for x in B]
        whole = sums([*[x * v for x in B], *[weighted[i] * B[j] for i, j in pairs]])
        by_block = [*others]
        if b is not None:
            along = [jnp.sum(b * x, axis=0) for x in B]
            by_block += [along[i] * along[j] for i, j in pairs]
        blocks = sums([x[None] for x in by_block])
        H: list[list[Array]] = [[] for _ in range(d)]
        for place, (i, _) in enumerate(pairs):
            number = whole[d + place]
            if b is not None:
                number = number - blocks[len(others) + place]
            H[i].append(number)
        return jnp.stack(whole[:d]), H, blocks[: len(others)]

    def solve(self, H: list[list[Array]], weight: Array, r: Array) -> Array:
        lift = 1 + 4 * jnp.finfo(r.dtype).eps
        lifted = [[*row[:-1], (row[-1] + weight) * lift] for row in H]
        return solve_lanes(cholesky_of_lanes(lifted), r)

    def picked(self, which: Array, other: "Narrow") -> "Narrow":
        return Narrow(jnp.where(which[None, None, None, :], self.B, other.B))


class Wide(AbstractJacobians):
    """B (S, k, n, d): products of matrices, a lane after the other."""

    B: Array

    @staticmethod
    def laid_out(B: Array) -> Array:
        """Return B (n, k, d) of one lane as it lies here; the lanes come first."""
        return jnp.swapaxes(B, 0, 1)

    def push(self, x: Array) -> Array:
        return _pushed(self.B, x)

    def push_sizes(self, x: Array) -> Array:
        return _pushed(jnp.abs(self.B), jnp.abs(x))

    def pull(self, v: Array) -> Array:
        return _pulled(self.B, v)

    def pull_sizes(self, v: Array) -> tuple[Array, Array]:
        widths = jnp.sum(jnp.abs(self.B), axis=-1)
        turn = jnp.sum(widths * jnp.abs(jnp.moveaxis(v, -1, 0)), axis=(1, 2))
        return self.pull(v), turn

    def system(
        self, v: Array, a: Array, b: Array | None, others: list[Array]
    ) -> tuple[Array, Array, list[Array]]:
        B = self.B
        lanes, _, _, d = B.shape
        turned = jnp.moveaxis(a, -1, 0)[..., None] * B
        if b is not None:
            b = jnp.moveaxis(b, -1, 0)[..., None]
            turned = turned - b * jnp.sum(b * B, axis=1, keepdims=True)
        left = B.reshape(lanes, -1, d)
        H = jnp.einsum("sri,srj->sij", left, turned.reshape(lanes, -1, d))
        return self.pull(v), H, [jnp.sum(x, axis=0) for x in others]

    def solve(self, H: Array, weight: Array, r: Array) -> Array:
        d = H.shape[-1]
        lift = 1 + 4 * d * jnp.finfo(r.dtype).eps
        ones = jnp.eye(d, dtype=H.dtype)
        H = H + ones[None] * (weight[:, None, None] + (lift - 1) * H)

        # One lane after the other: a batch of factorisations waits inside of XLA's threads for others of them, so two
        # programs at once, one in each thread, would wait for each other for ever (jaxlib 0.10.2, from order 40 or so).
        def one(system: tuple[Array, Array]) -> Array:
            H, r = system
            return jax.scipy.linalg.cho_solve((jnp.linalg.cholesky(H), True), r)

        return jax.lax.map(one, (H, r.T)).T

    def picked(self, which: Array, other: "Wide") -> "Wide":
        return Wide(jnp.where(which[:, None, None, None], self.B, other.B))


def _pushed(B: Array, x: Array) -> Array:
    return jnp.moveaxis(jnp.einsum("sknd,ds->skn", B, x), 0, -1)


def _pulled(B: Array, v: Array) -> Array:
    lanes, _, _, d = B.shape
    rows = jnp.moveaxis(v, -1, 0).reshape(lanes, 1, -1)
    return (rows @ B.reshape(lanes, -1, d))[:, 0].T


class Lanes(eqx.Module):
    """The subproblems: B, u (k, n, S), rho (n, S), slope (d, S), and a weight for each lane."""

    V: AbstractSet
    B: AbstractJacobians
    u: Array
    rho: Array
    slope: Array
    weight: Array
    start: Array  # the value at d = 0

    def of_blocks(self, method: Callable, *arrays: Array) -> Any:
        """Return method(*arrays) of the set, which knows (blocks, k) and (blocks,)."""
        k, n, lanes = self.u.shape
        rows = [x.reshape(k, -1).T if x.ndim == 3 else x.reshape(-1) for x in arrays]

        def back(x: Array) -> Array:
            return x.T.reshape(k, n, lanes) if x.ndim == 2 else x.reshape(n, lanes)

        return jax.tree.map(back, method(*rows))


class State(eqx.Module):
    """The point d of every lane, the dual variables v there, the step along which it was reached and the slope there,
    v0 and sigma, the least sigma, the gap, and the iterations.
    """

    d: Array
    v: Array
    step: Array
    length: Array
    fall: Array
    v0: Array
    sigma: Array
    floor: Array
    gap: Array
    decrease: Array
    share: Array
    count: Array

    def solved(self, goal: Array) -> Array:
        """Whether the gap is at most the goal, or so small a share of the decrease that it does not matter yet."""
        return (self.gap <= goal) | (self.gap <= self.share * self.decrease)


def first_state(lanes: Lanes, v0: Array) -> State:
    """Start at d = 0 with these dual variables."""
    V = lanes.V
    still = jnp.zeros_like(lanes.slope)
    none = jnp.zeros_like(lanes.weight)
    lengths = jnp.sqrt(jnp.sum(lanes.u * lanes.u, axis=0))
    some = jnp.maximum(jnp.sum(lengths > 0, axis=0, dtype=lengths.dtype), 1)
    mean = jnp.sum(lengths, axis=0) / some
    unit = jnp.where((mean > 0) & jnp.isfinite(mean), mean, jnp.ones_like(mean))
    unit = unit / jnp.asarray(V.size(), unit.dtype)
    # sigma v0 is added to z: below the root of eps, rounding of z would tell in v.
    floor = 10 * jnp.finfo(unit.dtype).eps ** 0.5 * unit
    # An f that is smooth itself needs no sigma.
    smooth = jnp.min(jnp.where(lengths > 0, lanes.rho, jnp.inf), axis=0) > floor
    floor = jnp.where(smooth, none, floor)
    return State(
        d=still,
        v=v0,
        step=still,
        length=none,
        fall=none,
        v0=v0,
        sigma=jnp.where(smooth, none, jnp.maximum(FIRST * unit, floor)),
        floor=floor,
        gap=jnp.full_like(unit, jnp.inf),
        decrease=none,
        share=jnp.full_like(unit, SHARE),
        count=jnp.zeros(unit.shape, jnp.int32),
    )


def advance(lanes: Lanes, goal: Array, s: State) -> State:
    """Look at d + length step: go back where that is too far, else take a new step. Lanes with a gap of at most the
    goal stay where they are.
    """
    V = lanes.V
    going = ~s.solved(goal)
    d = s.d + s.length[None, :] * s.step
    z = lanes.u + lanes.B.push(d)
    around = z + s.sigma[None, None, :] * s.v0
    rho = lanes.rho + s.sigma[None, :]
    v = lanes.of_blocks(V.maximizer, around, rho)
    a, b = lanes.of_blocks(V.response, around, rho)
    excess = lanes.of_blocks(V.excess, z, v, lanes.rho)
    linear = jnp.sum(z * v, axis=0) - lanes.rho / 2 * jnp.sum(v * v, axis=0)
    r, H, (beyond, rest_of_value) = lanes.B.system(v, a, b, [excess, linear])
    proximal = lanes.weight[None, :] * d
    value = beyond + rest_of_value + jnp.sum((lanes.slope + proximal / 2) * d, axis=0)
    r = r + lanes.slope + proximal
    rest = jnp.sum(r * r, axis=0) / (2 * lanes.weight)
    gap = beyond + rest
    gap = jnp.where(jnp.isfinite(gap), gap, jnp.inf)
    decrease = lanes.start - value
    done = (gap <= goal) | (gap <= s.share * decrease)

    # Along the step the slope rises from -fall: where it is beyond the minimum, a secant goes back.
    along = jnp.sum(r * s.step, axis=0)
    too_far = (s.length > 0) & ~(along <= OVERSHOOT * s.fall) & ~done
    back = s.length * s.fall / (s.fall + along)
    back = jnp.where(jnp.isfinite(back), back, s.length / 2)

    step = -lanes.B.solve(H, lanes.weight, r)
    centered = rest <= CENTERED * jnp.maximum(beyond, goal)
    moves = centered & (s.sigma > 0) & ~too_far & ~done
    fall = -jnp.sum(r * step, axis=0)
    one = jnp.ones_like(fall)
    fresh = jnp.where(moves | done, jnp.zeros_like(one), one)
    keep = too_far | ~going
    return State(
        d=jnp.where(keep[None, :], s.d, d),
        v=jnp.where(keep[None, None, :], s.v, v),
        step=jnp.where(keep[None, :], s.step, step),
        length=jnp.where(going, jnp.where(too_far, back, fresh), s.length),
        fall=jnp.where(keep, s.fall, fall * fresh),
        v0=jnp.where((moves & going)[None, None, :], v, s.v0),
        sigma=jnp.where(moves & going, jnp.maximum(SHRINK * s.sigma, s.floor), s.sigma),
        floor=s.floor,
        gap=jnp.where(going, gap, s.gap),
        decrease=jnp.where(going, decrease, s.decrease),
        share=s.share,
        count=jnp.where(going, s.count + 1, s.count),
    )


def sums(parts: list[Array]) -> list[Array]:
    """Return the sums over rows of arrays (k, n, S), (S,) each: all of them in one pass, which is what an iteration
    takes time for.
    """
    zero = jnp.zeros((), parts[0].dtype)

    def add(x: tuple, y: tuple) -> tuple:
        return tuple(a + b for a, b in zip(x, y, strict=True))

    return list(jax.lax.reduce(tuple(parts), (zero,) * len(parts), add, (0, 1)))


def total(parts: list[Array]) -> Array:
    """Return the sum of arrays."""
    return functools.reduce(jnp.add, parts)


def cholesky_of_lanes(G: list[list[Array]]) -> list[list[Array]]:
    """Return L with L L' = G in every lane, the diagonal inverted; G by the rows of its lower half.

    It is written out: there are a few numbers in each lane, and many lanes.
    """
    L: list[list[Array]] = []
    for i, row in enumerate(G):
        new: list[Array] = []
        for j in range(i + 1):
            left = row[j]
            for a, b in zip(new[:j], (L[j] if j < i else new)[:j], strict=True):
                left = left - a * b
            new.append(jax.lax.rsqrt(left) if i == j else left * L[j][j])
        L.append(new)
    return L


def solve_lanes(L: list[list[Array]], x: Array) -> Array:
    """Return (L L')^-1 x, (d, S)."""
    d = len(L)
    y: list[Array] = []
    for i in range(d):
        left = x[i]
        for j in range(i):
            left = left - L[i][j] * y[j]
        y.append(left * L[i][i])
    for i in reversed(range(d)):
        left = y[i]
        for j in range(i + 1, d):
            left = left - L[j][i] * y[j]
        y[i] = left * L[i][i]
    return jnp.stack(y)
