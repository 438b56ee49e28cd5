"""The interface of an oracle: linear maximisation over a finite set of 0/1 vectors."""

import abc
import functools
from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax.custom_batching import custom_vmap
from jaxtyping import Array, Float, Num, Shaped

from ..checks import described, whole

Vector = Num[Array | np.ndarray, " m"]


class AbstractOracle(eqx.Module):
    """Linear maximisation over a finite set Y of 0/1 vectors of R^m.

        score(a) = max_{y in Y} <a, y>        argmax(a) = the first y that reaches it
        log_partition(a) = log sum_{y in Y} exp <a, y>        marginals(a) = sum_y y exp(<a, y> - log_partition(a))

    A part score of -inf forbids the part: an output through it has the score -inf and counts as one
    that does not exist. A part score of nan or +inf makes every score nan; members stay 0/1 (they
    are those that avoid such parts) and nothing hangs. Integers are taken as floats of the default
    width.

    `score`, `top` and `log_partition` can be differentiated once, in either mode: d score_k = <member_k, da>.
    All methods take one instance; `jax.vmap` of them runs the dynamic program once, on the whole batch.

    To add an oracle, write the abstract methods; `best` and `expectations` see a batch of checked
    scores.

    See Also
    --------
    MonotonePaths, Chains : the oracles that are there.
    StructuredHinge, EntropyHinge : the losses of an oracle.

    Examples
    --------
    >>> import numpy as np
    >>> import proxlin as px
    >>> grid = px.MonotonePaths(2, 2)
    >>> a = np.array([1.0, 2.0, 3.0, 1.0])
    >>> float(grid.score(a)), grid.argmax(a).tolist()
    (5.0, [1.0, 0.0, 1.0, 1.0])
    >>> grid.size(), grid.count(), grid.ones(), grid.diameter()
    (4, 2, 3, 2)
    >>> grid.marginals(np.zeros(4)).round(6).tolist()
    [1.0, 0.5, 0.5, 1.0]
    """

    @abc.abstractmethod
    def size(self) -> int:
        """Return m, the number of parts.

        Returns
        -------
        an integer
            m.
        """

    @abc.abstractmethod
    def count(self) -> int:
        """Return |Y|, the number of outputs.

        Returns
        -------
        an integer
            |Y|, an exact Python integer (it may exceed 2^64).
        """

    @abc.abstractmethod
    def ones(self) -> int:
        """Return max_y |y|^2, the largest number of parts of an output.

        Returns
        -------
        an integer
            The largest number of parts.
        """

    @abc.abstractmethod
    def diameter(self) -> int:
        """Return max_{y, y'} |y - y'|^2, the largest number of parts in which two outputs differ.

        Returns
        -------
        an integer
            The number of parts.
        """

    @abc.abstractmethod
    def cost(self, y: Shaped[Array | np.ndarray, " m"]) -> Float[Array, " m"]:
        """Return the Hamming cost by parts: <cost(y), y'> is the number of mistakes of y' when y is
        the truth.

        Parameters
        ----------
        y : a vector (m,) of 0 and 1
            The true output.

        Returns
        -------
        a vector (m,)
            The cost of each part.
        """

    @abc.abstractmethod
    def best(
        self, a: Float[Array, "b m"], count: int
    ) -> tuple[Float[Array, "b k"], Float[Array, "b k m"]]:
        """Return what `top` returns, for a batch whose entries are finite or -inf; members of a score
        -inf may be anything finite.

        Parameters
        ----------
        a : an array (b, m)
            The scores of the parts, one row for each instance.
        count : an integer
            How many outputs are asked for.

        Returns
        -------
        a pair of arrays
            Scores (b, count) and members (b, count, m).
        """

    @abc.abstractmethod
    def expectations(
        self, a: Float[Array, "b m"]
    ) -> tuple[Float[Array, " b"], Float[Array, "b m"]]:
        """Return `log_partition` and `marginals` for a batch of finite entries.

        Parameters
        ----------
        a : an array (b, m)
            The scores of the parts, one row for each instance.

        Returns
        -------
        a pair of arrays
            The log partition functions (b,) and the marginals (b, m).
        """

    def score(self, a: Vector) -> Float[Array, ""]:
        """Return max_y <a, y>.

        Parameters
        ----------
        a : a vector (m,)
            The scores of the parts.

        Returns
        -------
        a number
            The maximum; -inf where every output is forbidden.
        """
        return self.top(a, 1)[0][0]

    def argmax(self, a: Vector) -> Float[Array, " m"]:
        """Return argmax_y <a, y>, always 0/1: the first one in the order of `top`.

        Parameters
        ----------
        a : a vector (m,)
            The scores of the parts.

        Returns
        -------
        a vector (m,) of 0 and 1
            The output of the best score.
        """
        return self.top(a, 1)[1][0]

    def top(
        self, a: Vector, count: int
    ) -> tuple[Float[Array, " k"], Float[Array, "k m"]]:
        """Return the `count` outputs of largest <a, y>, best first, distinct.

        Where fewer outputs exist, the rest has the score -inf and members 0, last. The order is
        total and does not depend on count: top(a, j) is the beginning of top(a, k) for j <= k.

        Parameters
        ----------
        a : a vector (m,)
            The scores of the parts.
        count : an integer
            How many outputs are asked for.

        Returns
        -------
        a pair of arrays
            Scores (count,) and members (count, m).
        """
        count = whole(count, "The number of outputs asked of `top`")
        return _top(self, check_vector(self, a), count)

    def log_partition(self, a: Vector) -> Float[Array, ""]:
        """Return log sum_y exp <a, y>; at temperature nu: nu * log_partition(a / nu).

        Parameters
        ----------
        a : a vector (m,)
            The scores of the parts.

        Returns
        -------
        a number
            The log partition function.
        """
        return _log_partition(self, check_vector(self, a))

    def marginals(self, a: Vector) -> Float[Array, " m"]:
        """Return sum_y y exp(<a, y>) / sum_y exp(<a, y>), the gradient of `log_partition`.

        Parameters
        ----------
        a : a vector (m,)
            The scores of the parts.

        Returns
        -------
        a vector (m,)
            The probability of each part.
        """
        return _expectations(self, check_vector(self, a))[1]

    def operator_norm(self, count: int | None = None) -> float:
        """Return a bound of |C P|^2 over all P whose rows are `count` outputs (y, -1) (None: all),
        C = I - 11'/count.

            |C P|^2 <= min(count, |Y|) * diameter / 4

        The simplex smoothing h_nu(P u) has the Hessian P_S' C P_S / nu on its support S, so its
        gradient is operator_norm(K) / nu-Lipschitz in u as long as at most K outputs are in the
        support. C removes the column of -1 (the weights sum to one), which |P|^2 itself would count
        |Y| times. Proof: P_S' C P_S is |S| times the covariance of a uniform row, and the variance
        of <y, v> is at most a quarter of its range squared, which is at most diameter |v|^2 / 4.
        The same bound without |S| holds for the entropy smoothing.

        Parameters
        ----------
        count : an integer, or None
            How many outputs P has; None is all of them.

        Returns
        -------
        a number
            The bound.
        """
        rows = self.count()
        if count is not None:
            rows = min(count, rows)
        return rows * self.diameter() / 4


def check_oracle(oracle: Any, who: str) -> None:
    """Raise a sentence unless oracle is one."""
    if not isinstance(oracle, AbstractOracle):
        raise TypeError(
            f"{who} needs an oracle, such as px.Chains(5, 3); it got {described(oracle)}."
        )


def check_vector(
    oracle: AbstractOracle, a: Shaped[Array | np.ndarray, "..."]
) -> Float[Array, " m"]:
    """Return a as a floating vector of the right size, or raise a sentence."""
    a = jnp.asarray(a)
    if a.shape != (oracle.size(),):
        raise ValueError(
            f"{oracle} takes a vector of {oracle.size()} parts, but the array has the shape {a.shape}."
        )
    if jnp.issubdtype(a.dtype, jnp.floating):
        return a
    return a.astype(float)


def forbidden(oracle: AbstractOracle, dtype: Any) -> float:
    """Return a finite score for a forbidden part: below every allowed output, and finite summed
    over an output.
    """
    largest = float(jnp.finfo(dtype).max)
    return -largest / (8 * (oracle.ones() + 1))


def flatten_vmap(solve: Callable) -> Callable:
    """Return solve, a function from (b, m) to arrays (b, ...), such that a vmap over n of it is one
    call on (n b, m).

    The dynamic programs keep the batch in the last axis, where it fills the vector registers; the plain batching of a
    `lax.scan` would move it to the front (14 against 11 us for a grid, at 64 grids of 12x12 in float32).
    """
    call = custom_vmap(solve)

    @call.def_vmap
    def rule(size, _, a):
        _, batch, parts = a.shape
        merged = call(a.reshape(size * batch, parts))
        split = jax.tree.map(lambda x: x.reshape(size, batch, *x.shape[1:]), merged)
        return split, jax.tree.map(lambda _: True, split)

    return call


@functools.partial(jax.jit, static_argnames="count")
def _top(oracle, a, count):
    solve = flatten_vmap(lambda batch: oracle.best(batch, count))

    @jax.custom_jvp
    def top(a):
        allowed = jnp.where(jnp.isfinite(a), a, -jnp.inf)
        scores, members = jax.tree.map(lambda x: x[0], solve(allowed[None]))
        exists = scores > -jnp.inf
        scores = jnp.where(_broken(a), jnp.nan, scores)
        return scores, jnp.where(exists[:, None], members, 0)

    @top.defjvp
    def tangent(primals, tangents):
        (change,) = tangents
        scores, members = top(*primals)
        return (scores, members), (members @ change, jnp.zeros_like(members))

    return top(a)


@jax.jit
def _expectations(oracle, a):
    # A forbidden part gets a large finite score: its probability is exactly 0, and no inf - inf
    # arises in the gradient.
    floor = forbidden(oracle, a.dtype)

    def solve(expectations, a):
        allowed = jnp.where(jnp.isfinite(a), a, floor)
        value, marginals = jax.tree.map(lambda x: x[0], expectations(allowed[None]))
        exists = value > floor / 2
        value = jnp.where(exists, value, -jnp.inf)
        value = jnp.where(_broken(a), jnp.nan, value)
        return value, jnp.where(exists, marginals, 0)

    fast = jax.custom_jvp(functools.partial(solve, flatten_vmap(oracle.expectations)))
    # a custom batching rule cannot be differentiated
    plain = functools.partial(solve, oracle.expectations)
    fast.defjvp(functools.partial(jax.jvp, plain))
    return fast(a)


@jax.jit
def _log_partition(oracle, a):
    @jax.custom_jvp
    def log_partition(a):
        return _expectations(oracle, a)[0]

    @log_partition.defjvp
    def tangent(primals, tangents):
        (change,) = tangents
        value, marginals = _expectations(oracle, *primals)
        return value, marginals @ change

    return log_partition(a)


def _broken(a):
    return jnp.any(jnp.isnan(a) | (a == jnp.inf))
