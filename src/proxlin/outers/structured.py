"""Structural hinges: f(u) = max_{y in Y} <u[:m], y> - u[m], Y given by an oracle, with two
smoothings.

With u = (scores + cost(y), <scores, y>) (`augmented_scores`) f is the margin-rescaled hinge, the
same for every sample. There is no prox, projection or conjugate: Y is known through its best
members only. So f_nu is no Moreau envelope in u; it smooths the maximum over the scores z_y =
<u[:m], y>.
"""

import abc
import math
from typing import Any, ClassVar

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from ..checks import whole
from ..oracles.base import AbstractOracle, check_oracle
from ..types import Number, Scalar
from .base import AbstractOuter, Vector
from .smoothing import smoothing


class AbstractStructured(AbstractOuter):
    """f with subgradients (y, -1), or means of such: |(y, -1)| <= sqrt(oracle.ones() + 1)."""

    oracle_calls: ClassVar[int] = 1
    oracle: eqx.AbstractVar[AbstractOracle]

    def __check_init__(self) -> None:
        check_oracle(self.oracle, type(self).__name__)

    @abc.abstractmethod
    def mean(self, u: Vector) -> Float[Array, " m"]:
        """Return the output y, or the mean of outputs, whose (y, -1) is the subgradient at u.

        Parameters
        ----------
        u : a vector (m + 1,)
            The part scores with their cost, and the score of the truth.

        Returns
        -------
        a vector (m,)
            The output, or the mean.
        """

    def subgradient(self, u: Vector) -> Float[Array, " k"]:
        u = self._checked(u)
        return jnp.append(self.mean(u), -jnp.ones((), u.dtype))

    def lipschitz(self, k: int) -> Scalar:
        self.check(k)
        return math.sqrt(self.oracle.ones() + 1)

    def sharpness(self, k: int) -> Scalar:
        return 0.0

    def check(self, k: int) -> None:
        wanted = self.oracle.size() + 1
        if k != wanted:
            raise ValueError(
                f"{type(self).__name__} over {self.oracle} takes {wanted} numbers (the part scores "
                f"with their cost, and the score of the truth: see augmented_scores), but the inner map returns {k}."
            )

    def _checked(self, u: Vector) -> Array:
        self.check(u.shape[0])
        return jnp.asarray(u)


class AbstractHinge(AbstractStructured):
    """f(u) = max_{y in Y} <u[:m], y> - u[m]; what differs is its smoothing."""

    def value(self, u: Vector) -> Float[Array, ""]:
        u = self._checked(u)
        return self.oracle.score(u[:-1]) - u[-1]

    def mean(self, u: Vector) -> Float[Array, " m"]:
        return self.oracle.argmax(u[:-1])


class StructuredHinge(AbstractHinge):
    """The structural hinge f(u) = max_{y in Y} <u[:m], y> - u[m].

    `smooth(nu)` takes the `top` best outputs: f_nu <= f <= f_nu + nu / 2.

    Parameters
    ----------
    oracle : an oracle, such as `px.Chains(5, 3)`
        The set Y of outputs, of m parts each.
    top : an integer
        How many of the best outputs `smooth(nu)` takes.

    See Also
    --------
    EntropyHinge : the same f, smoothed over all outputs.
    augmented_scores : the inner map that goes with it.
    MonotonePaths, Chains : oracles.

    Examples
    --------
    >>> import numpy as np
    >>> import proxlin as px
    >>> f = px.StructuredHinge(px.MonotonePaths(2, 2))
    >>> u = np.array([1.0, 2.0, 3.0, 1.0, 4.0])
    >>> float(f.value(u)), f.subgradient(u).tolist()
    (1.0, [1.0, 0.0, 1.0, 1.0, -1.0])
    """

    oracle: AbstractOracle
    top: int = eqx.field(static=True)

    def __init__(self, oracle: AbstractOracle, top: Any = 10):
        self.oracle = oracle
        self.top = whole(
            top, "The number `top` of outputs in the smoothing of StructuredHinge"
        )

    def smooth(self, nu: Scalar) -> "SimplexSmoothing":
        return SimplexSmoothing(self.oracle, self.top, nu)


class EntropyHinge(AbstractHinge):
    """The structural hinge f(u) = max_{y in Y} <u[:m], y> - u[m], as StructuredHinge, but `smooth(nu)`
    takes all outputs.

    f <= f_nu <= f + nu log|Y|.

    Parameters
    ----------
    oracle : an oracle, such as `px.Chains(5, 3)`
        The set Y of outputs, of m parts each.

    See Also
    --------
    StructuredHinge : the same f, smoothed over the best outputs.
    augmented_scores : the inner map that goes with it.

    Examples
    --------
    >>> import numpy as np
    >>> import proxlin as px
    >>> f = px.EntropyHinge(px.MonotonePaths(2, 2))
    >>> u = np.array([1.0, 2.0, 3.0, 1.0, 4.0])
    >>> float(f.value(u)), bool(f.smooth(0.1).value(u) >= f.value(u))
    (1.0, True)
    """

    oracle: AbstractOracle

    def smooth(self, nu: Scalar) -> "EntropySmoothing":
        return EntropySmoothing(self.oracle, nu)


class SimplexSmoothing(AbstractStructured):
    """The smoothing of `StructuredHinge`, f_nu(u) = max_{p in simplex} <p, z> - nu/2 |p|^2 - u[m], z
    the scores of the `top` best outputs.

    grad f_nu = (sum_k p_k y_k, -1) with p = max((z - threshold) / nu, 0). Law: f_nu <= f <= f_nu +
    nu / 2. Where `exact(u)`, f_nu is the same maximum over all outputs, and its gradient is
    smoothness(k)-Lipschitz; where not, an output beyond the `top` first has been left out, and the
    gradient may jump when outputs change places: raise top. Law: f.smooth(nu).smooth(more) =
    f.smooth(nu + more).

    Parameters
    ----------
    oracle : an oracle
        The set Y of outputs.
    top : an integer
        How many of the best outputs are looked at.
    nu : a positive number
        How much the maximum is smoothed.

    See Also
    --------
    StructuredHinge : `StructuredHinge(oracle).smooth(nu)` returns it.
    EntropyHinge : has the smoothing over all outputs.

    Examples
    --------
    >>> import numpy as np
    >>> import proxlin as px
    >>> f = px.StructuredHinge(px.MonotonePaths(2, 2), top=2).smooth(2.0)
    >>> u = np.array([1.0, 2.0, 3.0, 1.0, 4.0])
    >>> float(f.value(u)), f.subgradient(u).tolist()
    (0.125, [1.0, 0.25, 0.75, 1.0, -1.0])
    """

    oracle: AbstractOracle
    top: int = eqx.field(static=True)
    nu: Number

    def __init__(self, oracle: AbstractOracle, top: int, nu: Any):
        self.oracle = oracle
        self.top = top
        self.nu = smoothing(nu)

    def value(self, u: Vector) -> Float[Array, ""]:
        u = self._checked(u)
        nu = self.nu.astype(u.dtype)
        z, _ = self._best(u)
        p, _ = project_sorted(z, nu)
        # an output that does not exist has p = 0: no 0 * inf
        below = jnp.where(z > -jnp.inf, z - z[0], 0)
        return z[0] + jnp.sum(p * below) - nu / 2 * jnp.sum(p * p) - u[-1]

    def mean(self, u: Vector) -> Float[Array, " m"]:
        z, members = self._best(u)
        p, _ = project_sorted(z, self.nu.astype(u.dtype))
        return p @ members

    def exact(self, u: Vector) -> Bool[Array, ""]:
        """Return whether `top` was enough: z_(top + 1) is at most the threshold, or no other output
        exists.

        Parameters
        ----------
        u : a vector (m + 1,)
            The part scores with their cost, and the score of the truth.

        Returns
        -------
        True or False
            Whether `top` was enough, as an array of no axes.
        """
        u = self._checked(u)
        z, _ = self.oracle.top(u[:-1], self._count() + 1)
        _, threshold = project_sorted(z[:-1], self.nu.astype(u.dtype))
        return z[-1] <= threshold

    def smooth(self, nu: Scalar) -> "SimplexSmoothing":
        return SimplexSmoothing(self.oracle, self.top, self.nu + smoothing(nu))

    def smoothness(self, k: int) -> Scalar:
        """Return operator_norm(top) / nu, valid where `exact`: at most `top` outputs are then in
        the support.

        Parameters
        ----------
        k : an integer
            The number of outputs of phi, m + 1.

        Returns
        -------
        a number
            The Lipschitz constant of the gradient.
        """
        self.check(k)
        return self.oracle.operator_norm(self.top) / self.nu

    def _count(self) -> int:
        return min(self.top, self.oracle.count())

    def _best(self, u: Vector) -> tuple[Float[Array, " c"], Float[Array, "c m"]]:
        return self.oracle.top(u[:-1], self._count())


class EntropySmoothing(AbstractStructured):
    """The smoothing of `EntropyHinge`, f_nu(u) = nu log sum_{y in Y} exp(<u[:m], y> / nu) - u[m].

    grad f_nu = (marginals(u[:m] / nu), -1). Laws: f <= f_nu <= f + nu log|Y|, from above; at nu =
    1, without the cost, it is the loss of a conditional random field; f.smooth(nu).smooth(more) =
    f.smooth(nu + more).

    Parameters
    ----------
    oracle : an oracle
        The set Y of outputs.
    nu : a positive number
        How much the maximum is smoothed.

    See Also
    --------
    EntropyHinge : `EntropyHinge(oracle).smooth(nu)` returns it.
    StructuredHinge : has the smoothing over the best outputs.

    Examples
    --------
    >>> import numpy as np
    >>> import proxlin as px
    >>> f = px.EntropyHinge(px.MonotonePaths(2, 2)).smooth(1.0)
    >>> round(float(f.value(np.zeros(5))), 6)  # log 2: there are two paths
    0.693147
    """

    oracle: AbstractOracle
    nu: Number

    def __init__(self, oracle: AbstractOracle, nu: Any):
        self.oracle = oracle
        self.nu = smoothing(nu)

    def value(self, u: Vector) -> Float[Array, ""]:
        u = self._checked(u)
        nu = self.nu.astype(u.dtype)
        return nu * self.oracle.log_partition(u[:-1] / nu) - u[-1]

    def mean(self, u: Vector) -> Float[Array, " m"]:
        return self.oracle.marginals(u[:-1] / self.nu.astype(u.dtype))

    def smooth(self, nu: Scalar) -> "EntropySmoothing":
        return EntropySmoothing(self.oracle, self.nu + smoothing(nu))

    def smoothness(self, k: int) -> Scalar:
        """Return diameter / (4 nu): the Hessian is the covariance of the outputs over nu (see
        `operator_norm`).

        Parameters
        ----------
        k : an integer
            The number of outputs of phi, m + 1.

        Returns
        -------
        a number
            The Lipschitz constant of the gradient.
        """
        self.check(k)
        return self.oracle.diameter() / (4 * self.nu)


def project_sorted(
    z: Float[Array, " c"], nu: Float[Array, ""]
) -> tuple[Float[Array, " c"], Float[Array, ""]]:
    """Return p = argmax_{p in simplex} <p, z> - nu/2 |p|^2 for falling z, and its threshold.

        p = max((z - threshold) / nu, 0)
        threshold = max_k (z_1 + ... + z_k - nu) / k

    Entries of -inf get p = 0; if all are -inf, p is the first unit vector.
    """
    first = jnp.where(jnp.isneginf(z[0]), 0, z[0])  # no inf - inf below
    below = (z - first).at[0].set(0)
    count = jnp.arange(1, z.shape[0] + 1, dtype=z.dtype)
    threshold = jnp.max((jnp.cumsum(below) - nu) / count)
    p = jnp.maximum((below - threshold) / nu, 0)
    return p, first + threshold
