"""The covariances of curve fits, of many curves at once.

squares    s^2 (J'J)^-1,  s^2 = sum r^2 / (m - d)         scipy's pcov
others     A^-1 B A^-1 / m                                px.covariance with kind="sandwich"
"""

from typing import Any

import equinox as eqx
import jax
import numpy as np
from jaxtyping import Array, Bool, Float

from ...compiled import call
from ...outers import AbstractOuter
from ..hessians import Jump, jump_of, kernel_hessians, nid_hessians
from ..parts import Parts, at_kinks
from ..sandwich import sandwich
from .curve import Curve

AT_ONCE = 2**22  # second derivatives of a batch of curves, 32 MB
EPS = float(np.finfo(np.float64).eps)

Curves = Float[np.ndarray, "curves d"]
Rows = Float[np.ndarray, "curves m"]
Matrices = Float[np.ndarray, "curves d d"]


def squares_covariances(
    curve: Curve,
    w: Curves,
    r: Rows,
    counts: Bool[np.ndarray, "curves m"] | None,
    absolute: bool,
) -> tuple[Matrices, str]:
    """Return s^2 (J'J)^-1 of each curve, s = 1 if sigma is absolute; inf where J'J is singular."""
    jacobians = np.asarray(call(_many_jacobians, curve, w))
    if counts is not None:
        jacobians = jacobians * counts[..., None]
    _, m, d = jacobians.shape
    n = np.full(len(w), m) if counts is None else counts.sum(axis=1)
    # in units in which the columns of J have length 1: what is singular does not depend on units
    size = np.linalg.norm(jacobians, axis=1)
    size = np.where((size > 0) & np.isfinite(size), size, 1.0)
    unit = np.nan_to_num(jacobians / size[:, None, :])
    _, values, axes = np.linalg.svd(unit, full_matrices=False)
    singular = (values <= EPS * max(m, d) * values[:, :1]).any(axis=1) | (n < d)
    why = ": the data do not tell the parameters apart"
    safe = np.where(singular[:, None], 1.0, values)
    half = axes / safe[:, :, None] / size[:, None, :]
    pcov = np.swapaxes(half, 1, 2) @ half
    if not absolute:
        left = n - d
        if not singular.any():
            why = ": there are as many parameters as points, and no noise to see"
        singular |= left <= 0
        pcov *= (np.sum(r**2, axis=1) / np.maximum(left, 1))[:, None, None]
    pcov[singular | ~np.isfinite(pcov).all(axis=(1, 2))] = np.inf
    return pcov, why


def robust_covariances(
    curve: Curve,
    outer: AbstractOuter,
    deltas: np.ndarray | None,
    y: Rows,
    w: Curves,
    free: Bool[np.ndarray, "curves d"],
    counts: Bool[np.ndarray, "curves m"] | None,
) -> tuple[Matrices, str]:
    """Return the sandwich of each curve, 0 for parameters that are not free; inf where there is none,
    and the reason of the first. Huber's loss has a delta for each curve.
    """
    many, m = y.shape
    d = w.shape[1]
    found = np.full((many, d, d), np.inf)
    why = ""
    jump = jump_of(outer, 1)
    if jump is None and not np.isfinite(outer.smoothness(1)):
        name = type(outer).__name__
        return found, f": {name} has kinks without a density; take px.bootstrap"
    outers = jax.tree.map(lambda x: np.broadcast_to(x, (many, *np.shape(x))), outer)
    if deltas is not None:
        outers = eqx.tree_at(lambda f: f.delta, outers, np.atleast_1d(deltas))
    chunk = min(many, max(1, AT_ONCE // (m * d * d)))
    for start in range(0, many, chunk):
        # The last chunk is as long as the others, so that one program does all of them.
        rows = np.minimum(np.arange(start, start + chunk), many - 1)
        part = jax.tree.map(lambda x, rows=rows: x[rows], (outers, y, w))
        made = [np.asarray(x) for x in call(_many_parts, curve, *part)]
        for j, i in enumerate(range(start, min(start + chunk, many))):
            s = np.ones(m)
            if counts is not None:
                s = counts[i] / counts[i].mean()
            try:
                found[i] = _covariance([x[j] for x in made], s, free[i], jump)
            except ValueError as error:
                why = why or f": {error}".removesuffix(".").replace("covariance: ", "")
    return found, why


def _covariance(
    made: list[np.ndarray],
    s: Float[np.ndarray, " m"],
    free: Bool[np.ndarray, " d"],
    jump: Jump | None,
) -> Float[np.ndarray, "d d"]:
    """Return the covariance of one curve, of what `_many_parts` made of it."""
    u, v, hessian, jacobian, second = made
    d = len(free)
    cov = np.zeros((d, d))
    if not free.any():
        return cov
    jacobian = jacobian[:, free]
    second = second[:, free][:, :, free]
    if not (np.isfinite(jacobian).all() and np.isfinite(second).all()):
        raise ValueError("the derivatives of f are not finite at popt")
    count = int(free.sum())
    found = Parts(
        s=s,
        u=u[:, None],
        v=v[:, None],
        jacobian=jacobian[:, None, :],
        curvature=np.zeros((count, count)),
        ridge=0.0,
        slope=np.zeros(count),
        eps=EPS,
    )
    hessians = hessian[:, None, None]
    if jump is not None:
        hessians = kernel_hessians(found, jump)
        found = at_kinks(found, (jump.low, jump.high), np.abs(found.u))
        if not second.any():
            two_fits = nid_hessians(found, jump)
            hessians = hessians if two_fits is None else two_fits
    weights = s * found.v[:, 0] / len(s)
    curvature = np.einsum("n,nde->de", weights, second)
    found = Parts(**(vars(found) | {"curvature": curvature}))
    cov[np.ix_(free, free)] = sandwich(found, hessians)
    return cov


def _many_jacobians(curve: Curve, w: Array) -> Array:
    return jax.vmap(curve.jacobian)(w)


def _many_parts(curve: Curve, outers: Any, y: Array, w: Array) -> tuple[Array, ...]:
    """Return u, the derivatives of f there, and those of the curve, for each curve."""

    def one(outer: AbstractOuter, y: Array, w: Array) -> tuple[Array, ...]:
        u = curve.heights(w) - y
        slope = lambda u: outer.subgradient(u[None])[0]
        v = jax.vmap(slope)(u)
        hessian = jax.vmap(jax.jacfwd(slope))(u)
        second = jax.jacfwd(curve.jacobian)(w)
        return u, v, hessian, curve.jacobian(w), second

    return jax.vmap(one)(outers, y, w)
