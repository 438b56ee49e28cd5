"""What the laws of outer functions share: the functions and sizes they run on, points of every
kind, the excess.
"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import zoo

EPS = np.finfo(float).eps
BLOCK = 64
every = pytest.mark.parametrize("name", zoo.OUTERS)
every_proximable = pytest.mark.parametrize("name", zoo.PROXIMABLE)
every_support = pytest.mark.parametrize("name", zoo.SUPPORTS)
every_base = pytest.mark.parametrize(
    "name", [n for n in zoo.SHARP_OR_NOT if n in zoo.PROXIMABLE]
)
every_size = pytest.mark.parametrize(
    "name, k", [(n, k) for n, case in zoo.OUTERS.items() for k in case.sizes]
)
sizes = pytest.mark.parametrize("k", [1, 7])
steps = pytest.mark.parametrize("step", [0.1, 1.0, 30.0])


def points(k: int, m: int = 45, seed: int = 0) -> np.ndarray:
    """Points of R^k of every kind: small and large, with zeros and ties, on the axes and the
    diagonal.
    """
    rng = np.random.default_rng(seed)
    some = rng.normal(size=(m, k)) * 10.0 ** rng.uniform(-2, 2, (m, 1))
    some[: m // 4] = np.round(some[: m // 4])
    special = [
        np.zeros(k),
        np.ones(k),
        -np.ones(k),
        20 * np.ones(k),
        -20 * np.ones(k),
        *np.eye(k),
        *(-np.eye(k)),
    ]
    return np.concatenate([some, special])


def at_all(function, *rows: np.ndarray) -> np.ndarray:
    """function at each row, in blocks of one size, so that every law shares the same few compiled
    operations.
    """
    m = len(rows[0])
    padded = [np.concatenate([x, np.repeat(x[-1:], -m % BLOCK, axis=0)]) for x in rows]
    blocks = [
        jax.vmap(function)(*(jnp.asarray(x[start : start + BLOCK]) for x in padded))
        for start in range(0, m, BLOCK)
    ]
    return np.concatenate([np.asarray(x) for x in blocks])[:m]


def outer_of(name: str):
    return zoo.OUTERS[name].outer


def excess(f, x: np.ndarray, v: np.ndarray, z: np.ndarray) -> np.ndarray:
    """max over z of f(x_i) + <v_i, z - x_i> - f(z): positive where v_i is not a subgradient at x_i;
    relative.
    """
    fx, fz = at_all(f.value, x), at_all(f.value, z)
    gaps = fx[:, None] + (v @ z.T - np.sum(v * x, axis=1)[:, None]) - fz[None]
    products = np.abs(v) @ np.abs(z).T + np.sum(np.abs(v * x), axis=1)[:, None]
    return np.max(
        gaps / (1 + np.abs(fx)[:, None] + np.abs(fz)[None] + products), axis=1
    )
