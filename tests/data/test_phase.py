"""Phase retrieval: its measurements and their adjoints, spectral starts, recovery from them, and what is refused."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import proxlin as px
from proxlin.data.phase import (
    PATTERNS,
    coded_field,
    draw_phase,
    hadamard,
    measurements,
    pairs,
    phase_retrieval,
    random_codes,
    relative_distance,
)

KINDS = [("gaussian", False), ("gaussian", True), ("hadamard", False)]
KINDS += [("hadamard", True), ("coded", True)]


def overlap(w, signal):
    """|<w, x>| / (|w| |x|), which no sign or phase changes."""
    if np.iscomplexobj(signal):
        w = w[0] + 1j * w[1]
    return abs(np.vdot(w, signal)) / np.linalg.norm(w) / np.linalg.norm(signal)


@pytest.mark.parametrize(("kind", "is_complex"), KINDS)
def test_recovery_from_a_spectral_start(kind, is_complex):
    rng = np.random.default_rng(0)
    drawn = draw_phase(kind, 8 * 16, 16, rng, is_complex, corruption=0.1)
    assert drawn.wrong.sum() == 13
    start = px.spectral_start(drawn.rows, drawn.squares)
    assert start.shape == ((2, 16) if is_complex else (16,))
    assert overlap(np.asarray(start), drawn.signal) > 0.7
    problem = phase_retrieval(drawn.rows, drawn.squares)
    found = px.solve(problem, start, steps=30, tol=1e-9)
    assert relative_distance(found.w, drawn.signal) < 1e-6


def test_clean_squares_have_no_loss_at_the_signal():
    rng = np.random.default_rng(1)
    drawn = draw_phase("coded", 24, 8, rng, True)
    problem = phase_retrieval(drawn.rows, drawn.squares)
    turned = drawn.signal * np.exp(0.7j)
    assert float(problem.value(pairs(turned[None])[0])) < 1e-12
    assert relative_distance(pairs(turned[None])[0], drawn.signal) < 1e-12


def test_measurements_are_those_of_their_names():
    H = hadamard(8)
    assert np.array_equal(H.T @ H, 8 * np.eye(8)) and set(H.ravel()) == {-1.0, 1.0}
    rng = np.random.default_rng(2)
    A = measurements("coded", 12, 6, rng, True)
    assert np.allclose(A.conj().T @ A, 12 * np.eye(6))
    assert measurements("hadamard", 11, 8, rng).shape == (11, 8)


def test_coded_fields_keep_lengths_and_have_an_adjoint():
    rng = np.random.default_rng(3)
    code = jnp.asarray(pairs(random_codes((1, 4, 6), rng))[0])
    w = jnp.asarray(rng.normal(size=(4, 6)))
    parts = lambda w: jnp.stack([coded_field(w, code).real, coded_field(w, code).imag])
    out, pull = jax.vjp(parts, w)
    v = jnp.asarray(rng.normal(size=out.shape))
    assert float(jnp.sum(out**2)) == pytest.approx(float(jnp.sum(w**2)))
    assert float(jnp.sum(out * v)) == pytest.approx(float(jnp.sum(w * pull(v)[0])))


def test_the_start_without_a_matrix_is_that_of_the_matrix():
    rng = np.random.default_rng(4)
    n = 600  # above it no matrix is formed
    A = rng.normal(size=(8 * n, n))
    x = rng.normal(size=n)
    b = (A @ x) ** 2
    b[: len(b) // 10] = 100 * b.max()
    w = px.spectral_start(A, b)
    assert overlap(np.asarray(w), x) > 0.8
    again = px.spectral_start(lambda w: jnp.asarray(A) @ w, b, jnp.zeros(n))
    assert relative_distance(again, np.asarray(w)) < 1e-10
    small = A[:400, :50]
    few = (small @ x[:50]) ** 2
    dense = px.spectral_start(small, few)
    whole = jax.jit(px.spectral_start)(small, few)
    assert relative_distance(whole, np.asarray(dense)) < 1e-8


def test_an_image_from_coded_patterns_by_a_function():
    rng = np.random.default_rng(5)
    image = rng.random((8, 8))
    code = jnp.asarray(pairs(random_codes((8, 8, 8), rng)))
    fields = jax.vmap(coded_field, in_axes=(None, 0))
    b = jnp.abs(fields(jnp.asarray(image), code)) ** 2
    start = px.spectral_start(lambda w: fields(w, code), b, jnp.zeros((8, 8)))
    assert overlap(np.ravel(start), image.ravel()) > 0.8
    problem = px.MeanOfLosses(PATTERNS, px.L1(), (code, b.reshape(8, -1)))
    found = px.solve(problem, start, steps=30, tol=1e-9)
    assert relative_distance(np.ravel(found.w), image.ravel()) < 1e-6


A = np.ones((4, 3))
REFUSED = [
    (lambda: px.spectral_start(A[:2], np.ones(2)), ValueError, "measure more"),
    (lambda: px.spectral_start(A, np.ones(3)), ValueError, r"squares have the shape"),
    (lambda: px.spectral_start(A, 1j * np.ones(4)), TypeError, "absolute squares"),
    (lambda: px.spectral_start(A, np.full(4, np.nan)), ValueError, "finite"),
    (lambda: px.spectral_start(A, np.ones(0)), ValueError, "there is none"),
    (lambda: px.spectral_start(lambda w: A @ w, np.ones(4)), TypeError, "like="),
    (lambda: px.spectral_start(A, np.zeros(4)), ValueError, "half of the squares"),
    (lambda: px.spectral_start(0 * A, np.ones(4)), ValueError, "all 0"),
    (
        lambda: px.spectral_start(lambda w: A @ w, np.ones(4), np.zeros(3) * 1j),
        TypeError,
        "real and imaginary parts",
    ),
    (
        lambda: px.spectral_start(A, np.ones(4), np.zeros(5)),
        ValueError,
        r"like of spectral_start has the shape \(5,\)",
    ),
    (
        lambda: px.spectral_start(lambda w: A @ w, np.ones(5), np.zeros(3)),
        ValueError,
        "one square for each measurement",
    ),
    (
        lambda: px.spectral_start(A.astype(np.float16), np.ones(4)),
        TypeError,
        "The array of measurements of spectral_start is float16; convert it with .astype",
    ),
    (
        lambda: px.spectral_start(A, np.ones(4, np.float16)),
        TypeError,
        "The array of squares of spectral_start is float16",
    ),
    (
        lambda: px.spectral_start(lambda w: A @ w, np.ones(4), np.zeros(3, np.float16)),
        TypeError,
        "like of spectral_start is float16",
    ),
    (
        lambda: px.spectral_start(
            lambda w: (A @ w).astype(jnp.float16), np.ones(4), np.zeros(3)
        ),
        TypeError,
        "What the measurements of spectral_start return is float16",
    ),
    (lambda: phase_retrieval(A[:2], np.ones(2)), ValueError, "measure more"),
    (lambda: phase_retrieval(A, np.ones(3)), ValueError, "m squares"),
    (lambda: phase_retrieval(A, 1j * np.ones(4)), ValueError, "finite real numbers"),
    (
        lambda: measurements("fourier", 4, 2, np.random.default_rng(0)),
        ValueError,
        "take one of",
    ),
    (
        lambda: measurements("hadamard", 6, 3, np.random.default_rng(0)),
        ValueError,
        "power of two",
    ),
    (
        lambda: measurements("coded", 6, 3, np.random.default_rng(0)),
        ValueError,
        "ask for a complex signal",
    ),
    (
        lambda: draw_phase("gaussian", 4, 2, np.random.default_rng(0), corruption=1.0),
        ValueError,
        "between 0 and 1",
    ),
]


@pytest.mark.parametrize(("call", "error", "words"), REFUSED)
def test_wrong_use_is_refused_in_a_sentence(call, error, words):
    with pytest.raises(error, match=words):
        call()
