"""Uniform indices, drawn at once for an epoch.

One call of the cipher gives two of them; `jax.random.randint` takes four calls for two indices.
"""

import math

import jax
import jax.numpy as jnp
from jax.extend.random import threefry_2x32
from jaxtyping import Array

from ..types import Key


def integers(key: Key, shape: tuple[int, ...], n: int) -> Array:
    """floor(bits n / 2^32), bits of 32: uniform in 0, ..., n - 1 up to n / 2^32, as uint32 (no
    index from the end).

    >>> drawn = integers(jax.random.key(0), (2, 3), 5)
    >>> drawn.shape, bool(jnp.all(drawn < 5))
    ((2, 3), True)
    """
    words = jax.random.key_data(key).astype(jnp.uint32).ravel()[:2]
    bits = threefry_2x32(words, jnp.arange(math.prod(shape), dtype=jnp.uint32)).reshape(
        shape
    )
    # the product of 64 bits by halves: without x64 there is no uint64
    high, low = bits >> 16, bits & 0xFFFF
    n_high, n_low = jnp.uint32(n >> 16), jnp.uint32(n & 0xFFFF)
    middle = high * n_low + (low * n_low >> 16)
    return high * n_high + (middle >> 16) + ((low * n_high + (middle & 0xFFFF)) >> 16)
