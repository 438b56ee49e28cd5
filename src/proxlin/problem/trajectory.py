"""A trajectory: u_t = stage(x_{t+1}, w_t, data_t), x rolled out from x0 by the controls w, c_t = s_t / T."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from ..cost import Cost, Prices
from ..inners import Bound, Linearized
from ..outers import AbstractOuter
from ..precision import in_the_precision_of_w
from ..rollouts import Stages, check_controls, outputs, stages
from ..types import Params, dtype_of
from .base import AbstractProblem, _replace, construct
from .chain import Chain, chain
from .expansion import Expansion


class Trajectory(AbstractProblem):
    """The problem of choosing controls, F(w) = (1/T) sum_t s_t f(stage(x_{t+1}, w_t, data_t)) + ridge/2
    |w|^2 + g(w), with x_{t+1} = dynamics(x_t, w_t) from x_0.

    The controls w are an array (T, m). Stage t sees the state that its control leads to; a term for
    the end is a stage whose weight, in its row of data, is large in the last row and 0 before. An
    exact prox-linear step takes time linear in T: its linear systems are solved by a Riccati
    recursion. Every stage depends on all controls before it, so there are no mini-batches.

    Parameters
    ----------
    dynamics : a function of (x, u)
        The next state, an array like x.
    stage : a function of (x, u, row)
        The residuals of a stage, an array (k,) or one number: x is the state after the control u.
    outer : an outer function, such as `px.L1()` or `px.Parts(...)`
        f.
    x0 : an array (s,)
        The first state.
    data : a tree of arrays with a leading axis T
        What the stages are told: targets, weights, times.
    ridge : a number
        The weight of |w|^2 / 2, at least 0.
    weights : a vector (T,), or None
        One weight for each stage, scaled to mean 1.
    penalty : a penalty such as `px.Bounds(-1.0, 1.0)`, or None
        A convex term g(w). With one, an exact step forms the Jacobian.

    Raises
    ------
    TypeError
        dynamics or stage is no function, or outer is no outer function.
    ValueError
        x0 is no vector, or the data have no common leading axis.

    See Also
    --------
    rollout : the states that controls lead to.
    Parts : different losses for different residuals of a stage.
    prox_linear : the solver for it.

    Examples
    --------
    >>> import jax.numpy as jnp
    >>> import numpy as np
    >>> import proxlin as px
    >>> push = lambda x, u: jnp.array([x[0] + 0.5 * x[1], x[1] + 0.5 * u[0]])
    >>> goal = lambda x, u, target: jnp.array([x[0] - target, 0.1 * u[0]])
    >>> p = px.Trajectory(push, goal, px.L1(), np.zeros(2), np.ones(8))
    >>> float(p.value(np.zeros((8, 1))))
    1.0
    >>> found = px.solve(p, jnp.zeros((8, 1)), px.prox_linear(), tol=1e-6)
    >>> bool(found.value < 0.6)
    True
    """

    def __init__(
        self,
        dynamics: Callable,
        stage: Callable,
        outer: AbstractOuter,
        x0: Any,
        data: Any,
        ridge: Any = 0.0,
        weights: Any = None,
        penalty: Any = None,
    ):
        inner = stages(dynamics, stage, x0)
        construct(self, inner, outer, data, ridge, weights, penalty)
        self.split = None  # a chain of stages is not split among devices

    def coefficients(self) -> Float[Array, " m"]:
        return self._weights(jnp.result_type(float))

    @in_the_precision_of_w
    def stack(self, w: Params) -> Float[Array, "m k"]:
        check_controls(w, len(self))
        u = self.inner(w, self.data)
        self.outer.check(u.shape[1])
        return u

    @in_the_precision_of_w
    def push(self, w: Params, direction: Params) -> Float[Array, "m k"]:
        return jax.jvp(self.stack, (w,), (direction,))[1]

    @in_the_precision_of_w
    def pull(self, w: Params, v: Float[Array, "m k"]) -> Params:
        return jax.vjp(self.stack, w)[1](v)[0]

    @in_the_precision_of_w
    def chain(self, w: Params) -> Chain:
        """Return the first-order expansion at w, stage by stage.

        Parameters
        ----------
        w : an array (T, m)
            The controls.

        Returns
        -------
        a `Chain`
            The blocks u, their coefficients c, and the links between stages.
        """
        check_controls(w, len(self))
        inner = self.inner
        u = None
        at = w
        if isinstance(inner, Linearized):
            u = self.stack(w)
            at = inner.anchor.astype(w.dtype)
            inner = inner.inner
        assert isinstance(inner, Stages)
        there, links = inner.links(at, self.data)
        if u is None:
            u = there
        self.outer.check(u.shape[1])
        return chain(w, self.coefficients().astype(u.dtype), u, links)

    @in_the_precision_of_w
    def expand(self, w: Params) -> Expansion:
        return self.chain(w).dense()

    def prices(self, w: Params) -> Prices:
        n = len(self)
        image = self._image_price()
        oracle = Cost(oracle=n * self.outer.oracle_calls)
        return Prices(
            value=image + oracle,
            subgradient=image + Cost(vjp=n) + oracle,
            push=Cost(phi=n, jvp=n),
            pull=Cost(phi=n, vjp=n),
            expand=image + Cost(jvp=n * (self._states() + w.shape[1])),
        )

    def outputs(self, w: Params) -> int:
        check_controls(w, len(self))
        return outputs(self.inner, w, self.data)

    def traced(self, w: Params) -> "Trajectory":
        if not isinstance(self.inner, Stages):
            return self
        check_controls(w, len(self))
        return _replace(self, inner=self.inner.traced(w, self.data))

    def padded(self) -> "Trajectory":
        return self  # a row more would be a stage more

    def in_one_chunk(self, w: Params) -> bool:
        return True

    def __getitem__(self, batch: Any) -> AbstractProblem:
        raise TypeError(
            "A Trajectory has no mini-batches, as every stage depends on all controls before it; take a solver that "
            "looks at all of it, such as px.prox_linear() or px.lbfgs()."
        )

    def each(self, function: Callable) -> Any:
        return self[0]

    def _states(self) -> int:
        inner = self.inner
        while isinstance(inner, Linearized | Bound):
            inner = inner.inner
        assert isinstance(inner, Stages)
        return inner.x0.shape[0]

    def _losses(self, w: Params) -> tuple[Array, Params]:
        u, pull = jax.vjp(self.stack, w)
        c = self._weights(dtype_of(w))
        value = jnp.sum(c * jax.vmap(self.outer.value)(u))
        v = c[:, None] * jax.vmap(self.outer.subgradient)(u)
        return value, pull(v)[0]
