"""Phase retrieval: a signal from the squares of linear measurements, of which some are grossly wrong.

    b_i = |<a_i, x>|^2 for most i,      F(w) = (1/m) sum_i ||<a_i, w>|^2 - b_i|

    gaussian    a_i of independent standard Gaussian entries
    hadamard    the rows of H S_1, H S_2, ...; H a Hadamard matrix of entries +-1, S_j random signs
    coded       the rows of F D_1, F D_2, ...; F the Fourier matrix, D_j random codes: coded diffraction patterns

A complex signal is a pair of reals, w = (real part, imaginary part) of shape (2, n). It is known up to a phase, a
real one up to a sign.
"""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from ..inners import residual
from ..outers import L1
from ..problem import MeanOfLosses

KINDS = ("gaussian", "hadamard", "coded")


class Phase(NamedTuple):
    """Rows (m, n), the squares (m,) as measured, the signal, and which squares are wrong."""

    rows: np.ndarray
    squares: np.ndarray
    signal: np.ndarray
    wrong: np.ndarray


def square(w: Array, a: Array) -> Array:
    """Return |<a, w>|^2; both real (n,), or both pairs (2, n) of real and imaginary parts.

    >>> a = jnp.array([[1.0, 0.0], [0.0, 1.0]])  # (1, i)
    >>> float(square(jnp.array([[2.0, 0.0], [0.0, 3.0]]), a))  # |2 + i 3i|^2
    1.0
    """
    if w.ndim == 1:
        return (a @ w) ** 2
    real = a[0] @ w[0] - a[1] @ w[1]
    imaginary = a[0] @ w[1] + a[1] @ w[0]
    return real**2 + imaginary**2


def coded_pattern(w: Array, code: Array) -> Array:
    """Return |F (code * w)|^2 / n by one FFT, raveled, for an image w and a code (2, ...) of real and imaginary parts;
    w is real, of the shape of the image, or a pair (2, ...).
    """
    field = coded_field(w, code)
    # not abs(field)^2, whose derivative is nan where the field is 0
    return (field.real**2 + field.imag**2).ravel()


def coded_field(w: Array, code: Array) -> Array:
    """Return F (code * w) / sqrt n, a complex array: what spectral_start takes without a matrix."""
    wave = jax.lax.complex(code[0], code[1])
    image = w.astype(wave.dtype)
    if w.ndim == code.ndim:
        image = jax.lax.complex(w[0], w[1])
    return jnp.fft.fftn(wave * image, norm="ortho")


SQUARES = residual(square)
PATTERNS = residual(coded_pattern)


def phase_retrieval(rows: Any, squares: Any) -> MeanOfLosses:
    """Return F(w) = (1/m) sum_i ||<a_i, w>|^2 - b_i|, robust phase retrieval.

    Real rows are for a real signal w (n,). Complex rows are for a complex one, w (2, n) of real and imaginary parts.

    Parameters
    ----------
    rows : an array (m, n)
        The a_i, real or complex.
    squares : a vector (m,)
        The b_i.

    Returns
    -------
    a `MeanOfLosses`
        The problem, with f = |.|.

    Raises
    ------
    ValueError
        There are fewer measurements than unknowns, the shapes do not agree, or a square is complex or not finite.

    See Also
    --------
    spectral_start : a start for it.
    MeanOfLosses : the problem that it returns.

    Examples
    --------
    >>> import numpy as np
    >>> from proxlin.data.phase import phase_retrieval
    >>> problem = phase_retrieval(np.eye(2), np.array([4.0, 9.0]))
    >>> float(problem.value(np.array([2.0, -3.0])))
    0.0
    """
    shape = np.shape(rows)
    if len(shape) != 2 or np.shape(squares) != shape[:1]:
        raise ValueError(
            f"Phase retrieval needs rows (m, n) and m squares; the rows have the shape {shape}, the squares "
            f"{np.shape(squares)}."
        )
    if shape[0] < shape[1]:
        raise ValueError(
            f"Phase retrieval needs at least as many measurements as unknowns; there are {shape[0]} measurements of "
            f"{shape[1]} unknowns: measure more."
        )
    squares = np.asarray(squares)
    if np.iscomplexobj(squares) or not np.isfinite(squares).all():
        raise ValueError(
            "The squares of phase retrieval are finite real numbers |<a, x>|^2; take absolute squares and leave out "
            "what is missing."
        )
    return MeanOfLosses(SQUARES, L1(), (pairs(rows), squares))


def pairs(rows: Any) -> np.ndarray:
    """Return complex numbers (m, ...) as pairs (m, 2, ...) of real and imaginary parts, and real ones as they are."""
    rows = np.asarray(rows)
    if not np.iscomplexobj(rows):
        return rows
    return np.stack([rows.real, rows.imag], axis=1)


def measurements(
    kind: str, m: int, n: int, rng: np.random.Generator, is_complex: bool = False
) -> np.ndarray:
    """Return m rows (m, n) of a kind: gaussian, hadamard or coded.

    >>> rng = np.random.default_rng(0)
    >>> A = measurements("hadamard", 8, 4, rng)
    >>> (A.T @ A).tolist() == (8 * np.eye(4)).tolist()
    True
    """
    if kind not in KINDS:
        raise ValueError(
            f"The measurements are {kind!r}; take one of {', '.join(KINDS)}."
        )
    if m < n:
        raise ValueError(
            f"Phase retrieval needs at least as many measurements as unknowns; there are {m} measurements of {n} "
            "unknowns: measure more."
        )
    if kind == "hadamard" and (n < 1 or n & (n - 1)):
        raise ValueError(f"Hadamard measurements need n a power of two; it is {n}.")
    if kind == "gaussian":
        if is_complex:
            return (rng.normal(size=(m, n)) + 1j * rng.normal(size=(m, n))) / np.sqrt(2)
        return rng.normal(size=(m, n))
    if kind == "coded" and not is_complex:
        raise ValueError(
            "Coded diffraction patterns are complex; ask for a complex signal."
        )
    return np.concatenate(_blocks(kind, m, n, rng, is_complex))


def _blocks(
    kind: str, m: int, n: int, rng: np.random.Generator, is_complex: bool
) -> list[np.ndarray]:
    """Return blocks of n rows each, and at the end a random part of one."""
    whole = hadamard(n) if kind == "hadamard" else np.fft.fft(np.eye(n))
    blocks = []
    for begin in range(0, m, n):
        code = random_codes((n,), rng) if is_complex else rng.choice([-1.0, 1.0], n)
        block = whole * code
        kept = min(n, m - begin)
        if kept < n:
            block = block[np.sort(rng.permutation(n)[:kept])]
        blocks.append(block)
    return blocks


def hadamard(n: int) -> np.ndarray:
    """Return Sylvester's Hadamard matrix, H^T H = n I; n is a power of two."""
    H = np.ones((1, 1))
    while len(H) < n:
        H = np.block([[H, H], [H, -H]])
    return H


def random_codes(shape: tuple[int, ...], rng: np.random.Generator) -> np.ndarray:
    """Return codes 1, -1, i and -i, drawn at random."""
    return np.array([1, 1j, -1, -1j])[rng.integers(0, 4, shape)]


def draw_phase(
    kind: str,
    m: int,
    n: int,
    rng: np.random.Generator,
    is_complex: bool = False,
    corruption: float = 0.0,
    noise: float = 0.0,
) -> Phase:
    """Draw a signal of length 1 and its squares; a share `corruption` of them is replaced by gross errors.

    A gross error is the median of the squares times |Cauchy|: of the size of a measurement, with heavy tails. `noise`
    is the standard deviation of Gaussian noise on every square, relative to their mean.
    """
    if not 0 <= corruption < 1:
        raise ValueError(
            f"The share of gross errors lies between 0 and 1; it is {corruption}."
        )
    rows = measurements(kind, m, n, rng, is_complex)
    signal = rng.normal(size=n)
    if is_complex:
        signal = signal + 1j * rng.normal(size=n)
    signal = signal / np.linalg.norm(signal)
    clean = np.abs(rows @ signal) ** 2
    wrong = np.zeros(m, bool)
    wrong[rng.permutation(m)[: round(corruption * m)]] = True
    gross = np.median(clean) * np.abs(rng.standard_cauchy(m))
    noisy = clean + noise * clean.mean() * rng.normal(size=m)
    return Phase(rows, np.where(wrong, gross, noisy), signal, wrong)


def relative_distance(w: Any, signal: Any) -> np.ndarray:
    """Return min over signs, or phases, of |w - c x| / |x|, along the last axis or the last two of a pair.

    >>> float(relative_distance(np.array([-1.0, 2.0]), np.array([1.0, -2.0])))
    0.0
    """
    w = np.asarray(w)
    signal = np.asarray(signal)
    if np.iscomplexobj(signal):
        w = w[..., 0, :] + 1j * w[..., 1, :]
    inner = np.sum(w.conj() * signal, axis=-1)
    size = np.abs(inner)
    turn = np.where(size > 0, inner / np.where(size > 0, size, 1), 1)
    rest = np.linalg.norm(w * turn[..., None] - signal, axis=-1)
    return np.asarray(rest / np.linalg.norm(signal, axis=-1))
