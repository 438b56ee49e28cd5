"""w_{t+1} = argmin_x model_t(x) + |x - w_t|^2 / 2 step_t: SGD, Polyak, prox-linear and PLI are one
solver.
"""

from collections.abc import Callable
from typing import Any, ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array

from ..checks import flag, whole
from ..cost import Prices
from ..problem import AbstractProblem, MeanOfLosses
from ..schedules import as_schedule
from ..types import Key, Params, dtype_of, is_concrete
from .base import AbstractSolver, Info, State, check_penalty
from .models import AbstractModel, Linear, ProxLinear, Truncated


class ModelBased(AbstractSolver):
    """The solver w_{t+1} = argmin_x model_t(x) + |x - w_t|^2 / 2 step_t, of a model, a schedule and a
    batch size.

    An epoch is n // batch_size steps. With `replace=False` every epoch is a new permutation of the
    samples.

    Parameters
    ----------
    model : a model
        How F is approximated at w.
    schedule : a function of t
        The steps; 1 / step is kappa.
    batch_size : an integer, or None
        The samples of a step; None is the full batch.
    replace : True or False
        Whether samples are drawn with replacement.

    See Also
    --------
    AbstractModel : what a model is.
    sgd, truncated, stochastic_prox_linear : return such solvers.

    Examples
    --------
    >>> import proxlin as px
    >>> px.sgd(0.1, batch_size=8)
    ModelBased(model=Linear(), schedule=Constant(s=0.1), batch_size=8)
    """

    takes_penalty: ClassVar[bool] = True  # the model says more

    model: AbstractModel
    schedule: Callable
    batch_size: int | None = eqx.field(static=True)
    replace: bool = eqx.field(default=True, static=True)

    def init(self, problem: AbstractProblem, w: Params) -> State:
        return State(w, jnp.zeros((), jnp.int32), self.model.init(problem, w))

    def draw(self, problem: AbstractProblem, key: Key, count: int) -> Array:
        """Return the indices of count batches, or a key for each step on the full batch.

        Parameters
        ----------
        problem : a problem
            F.
        key : a key of `jax.random`
            The randomness of these steps.
        count : an integer
            The number of steps.

        Returns
        -------
        an array
            It has a leading axis of steps.
        """
        if self.batch_size is None:
            return jax.random.split(key, count)
        n = problem.samples()
        b = self.batch_size
        if self.replace:
            drawn = jax.random.randint(key, (count, b), 0, n, jnp.int32)
        else:
            each = self.epoch(problem)
            keys = jax.random.split(key, -(-count // each))
            orders = jax.vmap(
                lambda k: jax.random.permutation(k, n)[: each * b].astype(jnp.int32)
            )(keys)
            drawn = orders.reshape(-1, b)[:count]
        return drawn[:, 0] if b == 1 else drawn

    def step(
        self, problem: AbstractProblem, state: State, drawn: Array
    ) -> tuple[State, Info]:
        batch = problem if self.batch_size is None else problem[drawn]
        w, memory, info = self.model.minimize(
            batch, state.w, self.size(state), drawn, state.memory
        )
        return State(w, state.t + 1, memory), info

    def size(self, state: State) -> Array:
        """Return the size of the next step.

        Parameters
        ----------
        state : a `State`
            The state before the step.

        Returns
        -------
        a number
            The step.
        """
        return jnp.asarray(self.schedule(state.t)).astype(dtype_of(state.w))

    def epoch(self, problem: AbstractProblem) -> Any:
        if self.batch_size is None:
            return 1
        return problem.batches(self.batch_size)

    def is_exact(self) -> bool:
        return self.model.exact

    def is_random(self) -> bool:
        return not self.full_batch()

    def allows_padding(self) -> bool:
        # A permutation of n samples is not the beginning of one of more samples.
        return self.model.one_pass and (self.batch_size is None or self.replace)

    def full_batch(self) -> bool:
        return self.batch_size is None and self.model.one_pass

    def prices(self, problem: AbstractProblem, w: Params) -> Prices:
        if self.batch_size is not None:
            problem = problem[jnp.zeros((self.batch_size,), jnp.int32)]
        return self.model.prices(problem, w)

    def check(self, problem: AbstractProblem) -> None:
        AbstractSolver.check(self, problem)
        self.model.check(problem)
        check_penalty(problem, self.model.takes_penalty, self.name())
        self._check_curvature(problem)
        if self.batch_size is None:
            return
        if isinstance(self.model, ProxLinear) and not isinstance(problem, MeanOfLosses):
            raise TypeError(
                f"{self.name()} needs a problem of the class MeanOfLosses; take stochastic_gauss_newton."
            )
        if not self.replace and self.batch_size > len(problem):
            raise ValueError(
                f"A batch of {self.batch_size} without replacement needs as many samples; there are {len(problem)}."
            )

    def _check_curvature(self, problem: AbstractProblem) -> None:
        """Raise a sentence where neither a proximal term nor a ridge bounds the steps."""
        first = self.schedule(jnp.zeros((), jnp.int32))
        if not is_concrete(first) or not np.any(np.isinf(first)):
            return
        ridge = None if problem.quadratic is None else problem.quadratic.weight
        if ridge is None or (is_concrete(ridge) and not np.all(np.asarray(ridge) > 0)):
            raise ValueError(
                f"{self.name()} with kappa = 0 needs a problem with ridge > 0; give a kappa above 0, or the problem a "
                f"ridge."
            )

    def remedy(self) -> str:
        first = jnp.asarray(self.schedule(jnp.zeros((), jnp.int32)))
        return self.model.remedy(float(jnp.max(first)))

    def name(self) -> str:
        return self.model.name(self.batch_size is None)


def sgd(step: Any, batch_size: Any = 1, replace: bool = True) -> ModelBased:
    """Return the stochastic subgradient method, w - step v, v in d(f o phi_i)(w); eq. (2) of the
    paper.

    For `LossOfMean` the mini-batch estimate is biased, as the paper says.

    Parameters
    ----------
    step : a number or a schedule
        The step.
    batch_size : an integer
        The samples of a step.
    replace : True or False
        Whether samples are drawn with replacement; False takes every sample once in an epoch.

    Returns
    -------
    a solver
        For `px.minimize`.

    See Also
    --------
    subgradient_descent : the full batch.
    truncated : is safe for large steps.
    svrg : has less variance.
    Averaged, BestSoFar : wrappers for its answer.

    Examples
    --------
    >>> import numpy as np
    >>> import proxlin as px
    >>> p = px.MeanOfLosses(lambda w, x: w - x, px.L1(), np.array([[1.0], [2.0], [9.0]]))
    >>> solution = px.minimize(p, np.zeros(1), px.sgd(px.InverseSqrt(1.0)), passes=20)
    >>> solution.solver, bool(solution.value < 3.5)
    ('sgd', True)
    """
    schedule = as_schedule(step, "step")
    return ModelBased(
        Linear(), schedule, whole(batch_size, "batch_size"), flag(replace, "replace")
    )


def subgradient_descent(step: Any) -> ModelBased:
    """Return w - step v, v in dF(w), on the full batch: GD.

    Parameters
    ----------
    step : a number or a schedule
        The step.

    Returns
    -------
    a solver
        For `px.minimize`.

    See Also
    --------
    sgd : looks at one batch in a step.
    lbfgs : is quicker where f is smooth.
    prox_linear : is quicker where phi is nonlinear.

    Examples
    --------
    >>> import numpy as np
    >>> import proxlin as px
    >>> p = px.MeanOfLosses(lambda w, x: w - x, px.L1(), np.array([[1.0], [2.0], [9.0]]))
    >>> px.minimize(p, np.zeros(1), px.subgradient_descent(1.0), steps=3).w.round(6).tolist()
    [2.0]
    """
    return ModelBased(Linear(), as_schedule(step, "step"), None)


def truncated(step: Any, lower: Any = 0.0, batch_size: Any = 1) -> ModelBased:
    """Return w - min(step, (F_i(w) - lower) / |v|^2) v: the linear model cut at a lower bound of
    F_i (Polyak).

    Parameters
    ----------
    step : a number or a schedule
        The largest step.
    lower : a number
        A lower bound of every F_i.
    batch_size : an integer
        The samples of a step.

    Returns
    -------
    a solver
        For `px.minimize`.

    See Also
    --------
    sgd : the model without the cut.
    stochastic_prox_linear : a better model, for a higher price.

    Examples
    --------
    >>> import numpy as np
    >>> import proxlin as px
    >>> p = px.MeanOfLosses(lambda w, x: w - x, px.L1(), np.array([[2.0], [2.0], [2.0]]))
    >>> px.minimize(p, np.zeros(1), px.truncated(100.0), passes=1).w.tolist()  # one step is enough
    [2.0]
    """
    return ModelBased(
        Truncated(lower), as_schedule(step, "step"), whole(batch_size, "batch_size")
    )


def stochastic_prox_linear(step: Any, batch_size: Any = 32) -> ModelBased:
    """Return w+ = argmin_x (1/b) sum_{i in batch} f(phi_i(w) + J_i (x - w)) + |x - w|^2 / (2 step),
    exactly.

    It is solved through its dual, of size batch_size * k; 1/step is kappa.

    Parameters
    ----------
    step : a number or a schedule
        1 / kappa.
    batch_size : an integer
        The samples of a step.

    Returns
    -------
    a solver
        For `px.minimize`.

    See Also
    --------
    prox_linear : the full batch.
    pli : the full batch, without a matrix.
    stochastic_gauss_newton : the method for `LossOfMean`.

    Examples
    --------
    >>> import proxlin as px
    >>> px.stochastic_prox_linear(0.1, batch_size=8)
    ModelBased(model=ProxLinear(tol=1e-10), schedule=Constant(s=0.1), batch_size=8)
    """
    return ModelBased(
        ProxLinear(), as_schedule(step, "step"), whole(batch_size, "batch_size")
    )
