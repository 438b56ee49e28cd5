"""A start for phase retrieval: the direction that large measurements share, and its length.

    b_i = |<a_i, x>|^2 for most i,      Y = sum_i T(b_i / s) a_i a_i^*,      T(y) = (y - 1) / (y + sqrt(m/n) - 1)

The direction d is the leading eigenvector of Y, with s from the median of b. T is bounded (Mondelli and Montanari,
"Fundamental limits of weak recovery with applications to phase retrieval"), so that a gross error counts no more than a
large measurement. The length r makes (1/m) sum_i |r^2 |<a_i, d>|^2 - b_i| least, as in Duchi and Ruan, "Solving (most)
of a set of quadratic equalities": r^2 is a weighted median.
"""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from ..checks import check_numbers, check_width, described, whole
from ..types import Key, is_concrete
from .solve import checked_key

# The median of |g|^2 for a standard Gaussian g, real and complex: the scale s is the median of b over it.
MEDIAN_REAL = 0.45493642
MEDIAN_COMPLEX = 0.69314718
# T has a pole at y = 1 - sqrt(m/n); this keeps it away from y >= 0 where m is close to n.
LEAST_SHIFT = 0.25
KRYLOV = 60  # Lanczos vectors: the leading eigenvalue is well apart where recovery is possible at all
DENSE = 512  # unknowns up to which Y is formed and decomposed


def spectral_start(
    measurements: Any,
    squares: Any,
    like: Any = None,
    *,
    iterations: int = KRYLOV,
    key: Key | None = None,
) -> Array:
    """Return a start for phase retrieval from b_i = |<a_i, x>|^2, of which a part may be grossly wrong.

    The direction is the leading eigenvector of sum_i T(b_i / s) a_i a_i^* with a bounded T and s from the median of b;
    the length is a weighted median. Both bear a share of gross errors. It is determined up to a sign, or up to a phase.
    The function can be jitted and vmapped.

    Parameters
    ----------
    measurements : an array (m, n), or a function
        The rows a_i, real or complex; or, without a matrix, the linear function of w that returns all <a_i, w>, real or
        complex, as an array of the shape of `squares`.
    squares : an array
        The b_i, one for each measurement.
    like : an array, or None
        An array of the shape and dtype of w, for a function. For an array, None is a vector (n,) where it is real, and
        real and imaginary parts (2, n) where it is complex; a real vector (n,) asks for a real signal of complex rows.
    iterations : an integer
        The Lanczos vectors where the matrix is not formed: with more than 512 unknowns, or a function.
    key : a key of `jax.random`, or None
        The first Lanczos vector; None is `jax.random.key(0)`.

    Returns
    -------
    an array
        The start, of the shape of `like`.

    Raises
    ------
    ValueError
        There are fewer measurements than unknowns, shapes do not agree, a number is not finite, or half of the squares
        are 0.
    TypeError
        A function comes without `like`, squares or `like` are complex, or numbers have 16 bits.

    See Also
    --------
    data.phase.phase_retrieval : the problem to minimise from there.
    multistart : solves one problem from many starts.

    Examples
    --------
    >>> import numpy as np
    >>> import proxlin as px
    >>> rng = np.random.default_rng(0)
    >>> x = np.array([3.0, -4.0, 0.0])
    >>> A = rng.normal(size=(30, 3))
    >>> b = (A @ x) ** 2
    >>> b[:3] = 1e3  # gross errors
    >>> w = px.spectral_start(A, b)
    >>> bool(abs(w @ x) > 0.9 * 5 * np.linalg.norm(w))
    True
    """
    if key is not None:
        key = checked_key(key, "spectral_start")
    squares = _checked_squares(squares)
    _demand_a_length(squares)
    measure, like = _checked_measurements(measurements, squares, like)
    count = whole(iterations, "iterations of spectral_start", low=2)
    amplitudes = lambda w: _parts(measure(w)).reshape(-1, squares.size)
    example = jax.eval_shape(measure, like)
    returned = jnp.zeros((), example.dtype)
    check_width("What the measurements of spectral_start return", returned)
    if example.shape != squares.shape:
        raise ValueError(
            f"spectral_start needs one square for each measurement; the measurements have the shape {example.shape} "
            f"and the squares {squares.shape}."
        )
    is_complex = jnp.issubdtype(example.dtype, jnp.complexfloating)
    numbers = squares.size * (2 if is_complex else 1)
    if numbers < like.size:
        raise ValueError(
            f"spectral_start needs at least as many measurements as unknowns; there are {squares.size} measurements of "
            f"{_unknowns(like, is_complex)} unknowns: measure more."
        )
    b = squares.reshape(-1).astype(like.dtype)
    T = _bounded(b, is_complex, squares.size / _unknowns(like, is_complex))

    def Y(w: Array) -> Array:
        out, pull = jax.vjp(amplitudes, w.reshape(like.shape))
        (back,) = pull(out * T[None])
        return back.reshape(-1) / squares.size

    if like.size <= DENSE:
        matrix = jax.vmap(Y)(jnp.eye(like.size, dtype=like.dtype))
        direction = jnp.linalg.eigh(matrix)[1][:, -1]
    else:
        key = jax.random.key(0) if key is None else key
        first = jax.random.normal(key, (like.size,), like.dtype)
        direction = _leading(Y, first, min(count, like.size))
    direction = direction.reshape(like.shape)
    return direction * jnp.sqrt(_scale(b, jnp.sum(amplitudes(direction) ** 2, axis=0)))


def _checked_squares(squares: Any) -> Array:
    check_numbers(squares, "The squares of spectral_start")
    if np.size(squares) == 0:
        raise ValueError(
            "spectral_start needs at least one of the squares; there is none."
        )
    if jnp.issubdtype(jnp.result_type(squares), jnp.complexfloating):
        raise TypeError(
            "The squares of spectral_start are real numbers |<a, x>|^2; these are complex: take their absolute squares."
        )
    # the width first: not every processor computes with 16 bits
    b = _floating(squares, "The array of squares")
    _demand_finite(b, "squares")
    return b


def _floating(x: Any, name: str) -> Array:
    """Return an array of floating-point or complex numbers; integers become real numbers."""
    check_width(f"{name} of spectral_start", x)
    x = jnp.asarray(x)
    if jnp.issubdtype(x.dtype, jnp.inexact):
        return x
    return x.astype(jnp.result_type(float))


def _demand_a_length(squares: Array) -> None:
    """Raise a sentence where the median of the squares says that the signal is 0."""
    if is_concrete(squares) and not bool(jnp.median(squares) > 0):
        raise ValueError(
            "At least half of the squares of spectral_start are 0 or negative, so they do not say how long the signal "
            "is; give the squares |<a, x>|^2 of a signal that is not 0."
        )


def _checked_measurements(
    measurements: Any, squares: Array, like: Any
) -> tuple[Callable[[Array], Any], Array]:
    """Return the function w -> <a_i, w> and an array like w."""
    if callable(measurements):
        if like is None:
            raise TypeError(
                "spectral_start needs like=, an array of the shape of w, where the measurements are a function."
            )
        like = _floating(like, "like")
        if jnp.issubdtype(like.dtype, jnp.complexfloating):
            raise TypeError(
                "like of spectral_start is complex; w holds the real and imaginary parts of a signal as two real "
                "arrays, jnp.zeros((2, *shape))."
            )
        return measurements, like
    check_numbers(measurements, "The measurements of spectral_start")
    if np.ndim(measurements) != 2 or squares.shape != np.shape(measurements)[:1]:
        raise ValueError(
            f"spectral_start needs rows (m, n) and m squares; the measurements are {described(measurements)} and the "
            f"squares have the shape {squares.shape}."
        )
    A = _floating(measurements, "The array of measurements")
    _demand_finite(A, "measurements")
    if is_concrete(A) and not bool(jnp.any(A != 0)):
        raise ValueError("The measurements of spectral_start are all 0.")
    m, n = A.shape
    if m < n:
        raise ValueError(
            f"spectral_start needs at least as many measurements as unknowns; there are {m} measurements of {n} "
            "unknowns: measure more."
        )
    if like is None:
        is_complex = jnp.issubdtype(A.dtype, jnp.complexfloating)
        like = jnp.zeros((2, n) if is_complex else (n,), jnp.real(A).dtype)
    like = _floating(like, "like")
    if like.shape not in ((n,), (2, n)):
        raise ValueError(
            f"like of spectral_start has the shape {like.shape}; rows of {n} entries want ({n},), or (2, {n}) for real "
            "and imaginary parts."
        )

    def measure(w: Array) -> Array:
        if w.ndim == 1:
            return A @ w.astype(A.dtype)
        return A @ jax.lax.complex(w[0], w[1]).astype(jnp.result_type(A, 1j))

    return measure, like


def _demand_finite(x: Any, name: str) -> None:
    if is_concrete(x) and not bool(jnp.all(jnp.isfinite(jnp.asarray(x)))):
        raise ValueError(
            f"The {name} of spectral_start must be finite; one is nan or infinite."
        )


def _parts(u: Array) -> Array:
    """Return real and imaginary parts, along a new first axis; of real numbers themselves alone."""
    if jnp.issubdtype(u.dtype, jnp.complexfloating):
        return jnp.stack([u.real, u.imag])
    return u[None]


def _unknowns(like: Array, is_complex: bool) -> int:
    """Return n: pairs of real and imaginary parts count once."""
    if is_complex and like.shape[0] == 2:
        return like.size // 2
    return like.size


def _bounded(b: Array, is_complex: bool, ratio: float) -> Array:
    """Return T(b / s)."""
    median = MEDIAN_COMPLEX if is_complex else MEDIAN_REAL
    # where half of the squares are 0 the median has no scale
    s = jnp.maximum(jnp.median(b) / median, jnp.finfo(b.dtype).tiny)
    y = jnp.maximum(b, jnp.zeros_like(b)) / s
    shift = max(ratio**0.5 - 1, LEAST_SHIFT)
    # (y - 1) / (y + shift), written so that an infinite quotient has the limit 1
    return 1 - (1 + shift) / (y + shift)


def _scale(b: Array, squares: Array) -> Array:
    """Return the minimiser r^2 >= 0 of sum_i |r^2 q_i - b_i|: the median of b_i / q_i, with weights q_i."""
    q = jnp.maximum(squares, jnp.finfo(b.dtype).tiny)
    order = jnp.argsort(b / q)
    weights = jnp.cumsum(q[order])
    place = jnp.searchsorted(weights, weights[-1] / 2)
    return jnp.maximum((b / q)[order][place], jnp.zeros((), b.dtype))


def _leading(Y: Callable[[Array], Array], first: Array, count: int) -> Array:
    """Return the leading eigenvector on a Krylov space of so many vectors, each made orthogonal twice to all before."""
    n = first.size
    V = jnp.zeros((count, n), first.dtype).at[0].set(first / jnp.linalg.norm(first))
    images = jnp.zeros_like(V)

    def grow(i: Array, state: tuple[Array, Array]) -> tuple[Array, Array]:
        V, images = state
        image = Y(V[i])
        rest = image
        for _ in range(2):
            rest = rest - V.T @ (V @ rest)
        # an invariant space ends the growth: a rest of rounding errors must not become a direction
        length = jnp.linalg.norm(rest)
        small = length <= 1e3 * jnp.finfo(first.dtype).eps * jnp.linalg.norm(image)
        following = jnp.where(small, jnp.zeros_like(rest), rest / length)
        return V.at[i + 1].set(following, mode="drop"), images.at[i].set(image)

    V, images = jax.lax.fori_loop(0, count, grow, (V, images))
    small = V @ images.T
    # zero rows stand for nothing, and must not win over negative eigenvalues
    empty = jnp.sum(V**2, axis=1) < 0.5
    least = -jnp.sum(jnp.abs(small)) - 1
    small = (small + small.T) / 2 + jnp.diag(jnp.where(empty, least, 0.0))
    ritz = jnp.linalg.eigh(small)[1][:, -1]
    direction = ritz @ V
    return direction / jnp.linalg.norm(direction)
