"""The synthetic multi-output regression of the paper: y = teacher(x) + sigma xi.

x ~ N(0, diag(1/j^2)) in R^p;   teacher an MLP whose weights w* are standard normal;   sigma = |w*| / sqrt(SNR)
"""

from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np

from ..networks import MLP
from ..types import Params

PARTS = ("train", "validation", "test")
NOISES = ("laplace", "gaussian", "student")
DEGREES = 3.0  # of freedom of the Student noise: heavy tails, but a finite variance


@dataclass(frozen=True)
class Teacher:
    """What generates the data; everything random follows from `seed`, and n does not change the
    test set.
    """

    seed: int
    snr: float
    activation: str = "elu"
    noise: str = "laplace"
    inputs: int = 128
    outputs: int = 10
    width: int = 256

    def __post_init__(self):
        if self.noise not in NOISES:
            raise ValueError(
                f"No noise is called {self.noise!r}; take one of {', '.join(NOISES)}."
            )
        if not self.snr > 0:
            raise ValueError(
                f"The signal-to-noise ratio must be positive; it is {self.snr}."
            )

    def sample(self, n: int, part: str) -> "Sample":
        """Draw n samples of a part ("train", "validation" or "test"), each part from a stream of
        its own.
        """
        w, sigma = self._weights()
        stream = 1 + PARTS.index(part)
        rng = np.random.default_rng([self.seed, stream])
        x = rng.normal(size=(n, self.inputs)) / np.arange(1, self.inputs + 1)
        teacher = MLP(self._sizes, self.activation, bias=False)
        clean = np.asarray(jax.vmap(teacher, (None, 0))(w, jnp.asarray(x)))
        noise_rng = np.random.default_rng([self.seed, 100 + stream])
        noise = self._noise(noise_rng, clean.shape)
        return Sample(x, clean + sigma * noise, clean, sigma)

    @property
    def _sizes(self) -> tuple[int, int, int]:
        return (self.inputs, self.width, self.outputs)

    def _weights(self) -> tuple[Params, float]:
        rng = np.random.default_rng([self.seed, 0])
        inputs, width, outputs = self._sizes
        first = rng.normal(size=(width, inputs))
        second = rng.normal(size=(outputs, width))
        size = float(np.sqrt(np.sum(first**2) + np.sum(second**2)))
        sigma = size / self.snr**0.5
        return [{"W": first}, {"W": second}], sigma

    def _noise(self, rng: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
        if self.noise == "laplace":
            return rng.laplace(size=shape)
        if self.noise == "gaussian":
            return rng.normal(size=shape)
        return rng.standard_t(DEGREES, size=shape)


@dataclass(frozen=True)
class Sample:
    """Inputs x, noisy targets y, the teacher's own outputs, and the noise level sigma."""

    x: np.ndarray
    y: np.ndarray
    clean: np.ndarray
    sigma: float
