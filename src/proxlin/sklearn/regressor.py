"""Robust multi-output regression.

    min_w  (1/n) sum_i s_i f(predict(w, x_i) - y_i) + ridge/2 |w|^2

x and y are standardised, s are the sample weights.
"""

from collections.abc import Sequence
from numbers import Integral
from typing import Any, no_type_check

import jax
import jax.numpy as jnp
import numpy as np
from sklearn.base import BaseEstimator, RegressorMixin
from sklearn.utils import Tags, check_random_state
from sklearn.utils.validation import _check_sample_weight, check_is_fitted, validate_data

from ..inners import residual
from ..networks import MLP
from ..outers import L1, L2, AbstractOuter, AbstractProximable, Huber, LInf, Quantile, SquaredL2
from ..problem import MeanOfLosses
from ..solvers import AbstractSolver, minimize, solve_subproblem
from ..types import Params
from ..units import units_of

LOSSES: dict[str, Any] = {
    "l2": L2,
    "l1": L1,
    "linf": LInf,
    "huber": Huber,
    "squared": SquaredL2,
    "median": lambda: Quantile(0.5),
}


class CompositeRegressor(RegressorMixin, BaseEstimator):
    """A linear model or a network fitted under a nonsmooth loss of all targets at once.

    loss: "l2" (the norm of the residual, not its square), "l1", "linf", "huber", "squared", "median", or an outer
    function such as `px.Quantile(0.9)`, of residuals in units of each target's robust deviation.
    hidden: 0 is linear; 64 or (64, 64) are widths of hidden layers, with a smooth activation.
    solver: "auto", or a solver such as `px.sgd(0.01)`; linear models of moderate size are solved exactly.
    passes, steps, tol: budgets of `px.minimize`.

    >>> x = np.arange(8.0)[:, None]
    >>> y = 2 * x[:, 0] + 1
    >>> y[7] = 100
    >>> CompositeRegressor().fit(x, y).predict([[10.0]]).round(3).tolist()
    [21.0]
    """

    n_features_in_: int  # by validate_data

    @no_type_check  # scikit-learn wants a constructor that takes anything; fit says what is wrong
    def __init__(
        self,
        loss: str | AbstractOuter = "l2",
        *,
        hidden: int | Sequence[int] = 0,
        activation: str = "tanh",
        ridge: float = 1e-8,
        solver: str | AbstractSolver = "auto",
        passes: float | None = None,
        steps: int | None = None,
        tol: float | None = 1e-12,
        random_state: Any = None,
    ):
        self.loss = loss
        self.hidden = hidden
        self.activation = activation
        self.ridge = ridge
        self.solver = solver
        self.passes = passes
        self.steps = steps
        self.tol = tol
        self.random_state = random_state

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> "CompositeRegressor":
        """The minimiser, from a start drawn by random_state."""
        X, y, s = self._checked(X, y, sample_weight, first=True)
        self._standardize(X, y, s)
        with jax.enable_x64(True):
            w = self._start()
            budget = {"passes": self.passes, "steps": self.steps, "tol": self.tol}
            seed = int(check_random_state(self.random_state).randint(2**31 - 1))
            self.solution_ = minimize(self._problem(X, y, s), w, self.solver, seed=seed, **budget)
            self._keep(self.solution_.w)
        self._calls = 0
        return self

    def partial_fit(self, X: Any, y: Any, sample_weight: Any = None) -> "CompositeRegressor":
        """One stochastic prox-linear step on the rows given: min_x F_B(x) + sqrt(t)/2 |x - w|^2, at call t = 1, 2, ...

        The first call decides the units of features and targets.
        """
        first = "_w" not in vars(self)
        X, y, s = self._checked(X, y, sample_weight, first=first)
        if first:
            self._standardize(X, y, s)
            self._calls = 0
        self._calls += 1
        with jax.enable_x64(True):
            w = self._start() if first else jax.tree.map(jnp.asarray, self._w)
            self._keep(solve_subproblem(self._problem(X, y, s), w, self._calls**0.5, tol=1e-10).w)
        return self

    def predict(self, X: Any) -> np.ndarray:
        check_is_fitted(self)
        x = (validate_data(self, X, reset=False, dtype=np.float64) - self._center) / self._scale
        if len(self._w) == 1:
            z = x @ self._w[0]["W"].T + self._w[0]["b"]
        else:
            with jax.enable_x64(True):
                z = np.asarray(jax.vmap(lambda row: self._network()(self._w, row))(jnp.asarray(x)))
        z = z * self._y_scale + self._y_center
        return z[:, 0] if self._flat else z

    @property
    def coef_(self) -> np.ndarray:
        """Of the linear model, in the units of the data: (features,) or (targets, features)."""
        self._linear("coef_")
        coef = self._w[0]["W"] * self._y_scale[:, None] / self._scale
        return coef[0] if self._flat else coef

    @property
    def intercept_(self) -> Any:
        self._linear("intercept_")
        W, b = self._w[0]["W"], self._w[0]["b"]
        intercept = (b - W @ (self._center / self._scale)) * self._y_scale + self._y_center
        return intercept[0] if self._flat else intercept

    def __sklearn_is_fitted__(self) -> bool:
        return "_w" in vars(self)

    def __sklearn_tags__(self) -> Tags:
        tags = RegressorMixin.__sklearn_tags__(self)
        tags.target_tags.multi_output = True
        return tags

    def _linear(self, name: str) -> None:
        if "_w" not in vars(self) or len(self._w) > 1:
            raise AttributeError(f"{name} is there for a fitted linear model alone (hidden=0).")

    def _checked(self, X: Any, y: Any, weights: Any, *, first: bool) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Rows of weight above 0, y with a column for each target, and weights of mean 1."""
        X, y = validate_data(self, X, y, reset=first, dtype=np.float64, multi_output=True, y_numeric=True)
        y = np.asarray(y, np.float64)
        s = _check_sample_weight(weights, X, dtype=np.float64, ensure_non_negative=True)
        if not np.any(s > 0):
            raise ValueError("All sample weights are 0.")
        if first:
            self._flat = y.ndim == 1
        y = y.reshape(len(y), -1)
        if not first and y.shape[1] != len(self._y_scale):
            raise ValueError(f"y has {y.shape[1]} targets; the first call had {len(self._y_scale)}.")
        used = s > 0
        return X[used], y[used], s[used] / s[used].mean()

    def _standardize(self, X: np.ndarray, y: np.ndarray, s: np.ndarray) -> None:
        """Features by mean and deviation; targets by median and median absolute deviation, which outliers leave."""
        units = units_of(X, y, s)
        self._center, self._scale = units.x_center, units.x_scale
        self._y_center, self._y_scale = units.y_center, units.y_scale

    def _problem(self, X: np.ndarray, y: np.ndarray, s: np.ndarray) -> MeanOfLosses:
        x, z = (X - self._center) / self._scale, (y - self._y_center) / self._y_scale
        loss = LOSSES[self.loss]() if isinstance(self.loss, str) and self.loss in LOSSES else self.loss
        if not isinstance(loss, AbstractProximable):
            raise ValueError(f"loss must be one of {', '.join(LOSSES)}, or such as px.Quantile(0.9); it is {loss!r}.")
        data = jnp.asarray(x), jnp.asarray(z)
        return MeanOfLosses(residual(self._network()), loss, data, ridge=self.ridge, weights=jnp.asarray(s))

    def _network(self) -> MLP:
        given = list(self.hidden) if isinstance(self.hidden, Sequence) else [self.hidden]
        if any(not isinstance(width, Integral) or isinstance(width, bool) or width < 0 for width in given):
            raise ValueError(f"hidden must be 0, a width or a list of widths; it is {self.hidden!r}.")
        return MLP((self.n_features_in_, *(int(h) for h in given if h), len(self._y_scale)), self.activation)

    def _start(self) -> Params:
        """0 for a linear model, whose problem is convex."""
        network = self._network()
        key = jax.random.key(int(check_random_state(self.random_state).randint(2**31 - 1)))
        w = network.init(key, jnp.float64)
        return jax.tree.map(jnp.zeros_like, w) if len(w) == 1 else w

    def _keep(self, w: Params) -> None:
        self._w = jax.tree.map(np.asarray, w)
