"""The synthetic multi-output regression of the paper: y = teacher(x) + sigma xi.

x ~ N(0, diag(1/j^2)) in R^p;   teacher an MLP whose weights w* are standard normal;   sigma = |w*| / sqrt(SNR)
"""

from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np

from ..networks import MLP
from ..types import Params

NOISES = ("laplace", "gaussian", "student")
DEGREES = 3.0  # of freedom of the Student noise: heavy tails, but a finite variance


@dataclass(frozen=True)
class Teacher:
    """What generates the data; everything random follows from `seed`, and n does not change the test set."""

    seed: int
    snr: float
    activation: str = "elu"
    noise: str = "laplace"
    inputs: int = 128
    outputs: int = 10
    width: int = 256

    def __post_init__(self):
        if self.noise not in NOISES:
            raise ValueError(f"No noise is called {self.noise!r}; take one of {', '.join(NOISES)}.")
        if not self.snr > 0:
            raise ValueError(f"The signal-to-noise ratio must be positive; it is {self.snr}.")

    def sample(self, n: int, part: str) -> "Sample":
        """n samples of a part ("train", "validation" or "test"), each part from a stream of its own."""
        w, sigma = self._weights()
        rng = np.random.default_rng([self.seed, 1 + ("train", "validation", "test").index(part)])
        x = rng.normal(size=(n, self.inputs)) / np.arange(1, self.inputs + 1)
        xi = np.random.default_rng([self.seed, 101 + ("train", "validation", "test").index(part)])
        clean = np.asarray(jax.vmap(MLP(self._sizes, self.activation, bias=False), (None, 0))(w, jnp.asarray(x)))
        return Sample(x, clean + sigma * self._noise(xi, clean.shape), clean, sigma)

    @property
    def _sizes(self) -> tuple[int, int, int]:
        return (self.inputs, self.width, self.outputs)

    def _weights(self) -> tuple[Params, float]:
        rng = np.random.default_rng([self.seed, 0])
        inputs, width, outputs = self._sizes
        first, second = rng.normal(size=(width, inputs)), rng.normal(size=(outputs, width))
        size = float(np.sqrt(np.sum(first**2) + np.sum(second**2)))
        return [{"W": first}, {"W": second}], size / self.snr**0.5

    def _noise(self, rng: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
        if self.noise == "laplace":
            return rng.laplace(size=shape)
        return rng.normal(size=shape) if self.noise == "gaussian" else rng.standard_t(DEGREES, size=shape)


@dataclass(frozen=True)
class Sample:
    """Inputs x, noisy targets y, the teacher's own outputs, and the noise level sigma."""

    x: np.ndarray
    y: np.ndarray
    clean: np.ndarray
    sigma: float
