"""Robust multi-output regression.

    min_w  (1/n) sum_i s_i f(predict(w, x_i) - y_i) + ridge/2 |w|^2

x and y are standardised, s are the sample weights.
"""

import warnings
from collections.abc import Sequence
from typing import Any, no_type_check

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array
from sklearn.base import BaseEstimator, RegressorMixin
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils import Tags
from sklearn.utils.validation import check_is_fitted, validate_data

from ..checks import described
from ..compiled import Compiled, call
from ..cost import Status
from ..files.programs import keep_programs
from ..inners import residual
from ..networks import MLP
from ..outers import AbstractOuter, AbstractProximable, Quantile
from ..problem import MeanOfLosses
from ..run import Solution, minimize
from ..solvers import AbstractSolver
from ..subproblem import solve_subproblem
from ..tables.losses import LOSSES, NEARLY_SUPPORT, at_scale, has_scale
from ..tables.standardize import LEAST, Units, powers_of, residual_scale, units_of
from ..types import Params, on_device
from .arguments import refuse_texts, seed_of, weights_of, widths_of
from .outputs import NamedOutputs, names_of
from .warm_start import (
    check_widths,
    goes_on,
    in_other_features,
    in_other_targets,
)

ROUNDS = 100  # of a fit and the scale of its residuals; ten to thirty are usual
SAME = 1e-6  # relative; a smaller change of the scale ends the rounds


class CompositeRegressor(NamedOutputs, RegressorMixin, BaseEstimator):
    """A linear model or a network fitted under a nonsmooth loss of all targets at once.

        min_w  (1/n) sum_i s_i f(predict(w, x_i) - y_i) + ridge/2 |w|^2,     x and y standardised, s the sample weights

    The delta of `px.Huber(delta)` (the epsilon of scikit-learn's HuberRegressor) and the nu of
    `px.L2().smooth(nu)` are multiples of `scale_`, the scale of each target's residuals: 1.4826
    times their median absolute value, found together with the fit. "huber" is `px.Huber(1.345)`.
    Linear models of moderate size are solved exactly.

    A budget that ends before tol is reached is a ConvergenceWarning, unless tol is None. `n_iter_`
    is the number of steps of the last fit, `scale_` the scale of the residuals, one for each
    target, `solution_` what `px.minimize` returned last, and `feature_names_in_` the names of the
    columns of X, where it had some.

    Parameters
    ----------
    loss : a word or an outer function
        "l2" (the norm of the residual, not its square), "l1", "linf", "huber", "squared" or
        "squares", "median", "quantile", or such as `px.Quantile(0.9)`; or "mm", the MM-estimate of a
        linear model, which bounds the pull of wrong features too.
    quantile : a number between 0 and 1
        The level of loss="quantile".
    hidden : an integer or a list of integers
        0 is linear; 64 or (64, 64) are widths of hidden layers.
    activation : a word
        The smooth activation of hidden layers: "tanh", "elu", "softplus", "gelu" or "sigmoid".
    ridge : a number
        The weight of |w|^2 / 2.
    solver : "auto", or a solver such as `px.sgd(0.01)`
        The method.
    passes : a number, or None
        The budget in passes over the data, as in `px.minimize`.
    steps : an integer, or None
        The budget in steps, as in `px.minimize`.
    tol : a number, or None
        The tolerance, as in `px.minimize`.
    warm_start : True or False
        Whether a further `fit` starts where the last one ended, in place of a new start. On the same
        rows it takes fewer steps to the same answer, where there is one answer.
    random_state : an integer, or None
        The randomness of the start of a network, and of a stochastic solver.

    See Also
    --------
    sklearn.StructuredClassifier : labels of sequences.
    MeanOfLosses, minimize : what a fit is made of.

    Examples
    --------
    >>> import numpy as np
    >>> from proxlin.sklearn import CompositeRegressor
    >>> x = np.arange(8.0)[:, None]
    >>> y = 2 * x[:, 0] + 1
    >>> y[7] = 100
    >>> model = CompositeRegressor("huber", warm_start=True).fit(x, y)
    >>> model.predict([[10.0]]).round(3).tolist(), model.coef_.round(3).tolist()
    ([21.0], [2.0])
    >>> steps = model.n_iter_
    >>> model.fit(x, y).n_iter_ < steps
    True
    """

    n_features_in_: int  # by validate_data

    # scikit-learn wants a constructor that takes anything; fit says what is wrong
    @no_type_check
    def __init__(
        self,
        loss: str | AbstractOuter = "l2",
        *,
        quantile: float = 0.5,
        hidden: int | Sequence[int] = 0,
        activation: str = "tanh",
        ridge: float = 1e-8,
        solver: str | AbstractSolver = "auto",
        passes: float | None = None,
        steps: int | None = None,
        tol: float | None = 1e-12,
        warm_start: bool = False,
        random_state: Any = None,
    ):
        self.loss = loss
        self.quantile = quantile
        self.hidden = hidden
        self.activation = activation
        self.ridge = ridge
        self.solver = solver
        self.passes = passes
        self.steps = steps
        self.tol = tol
        self.warm_start = warm_start
        self.random_state = random_state

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> "CompositeRegressor":
        """Fit from a start drawn by random_state, or from the last fit if `warm_start`; return the
        estimator.

        Parameters
        ----------
        X : an array or a frame (n, features)
            The features.
        y : an array, a series or a frame, (n,) or (n, targets)
            The targets.
        sample_weight : a vector (n,), or None
            One weight for each row.

        Returns
        -------
        the estimator
            Itself, fitted.
        """
        if isinstance(self.loss, str) and self.loss == "mm":
            return self._fit_mm(X, y, sample_weight)
        keep_programs()
        again = goes_on(self)
        X, y, s = self._checked(X, y, sample_weight, first=not again)
        before = None
        if again:
            check_widths(self._w, self.hidden)
            before = self._units
        self._standardize(X, y, s)
        with jax.enable_x64(True):
            start = self._start() if before is None else self._from(before)
            self._keep(self._fitted(X, y, s, start, again))
        self._calls = 0
        return self

    def partial_fit(
        self, X: Any, y: Any, sample_weight: Any = None
    ) -> "CompositeRegressor":
        """Take a stochastic prox-linear step on the rows, min_x F_B(x) + sqrt(t)/2 |x - w|^2 at call t
        = 1, 2, ...; return the estimator.

        The first call decides the units of features and targets. Where the loss has a scale (see
        `loss`) the first call begins with a fit to its rows, whose residuals decide that scale.

        Parameters
        ----------
        X : an array or a frame (n, features)
            The features of a batch.
        y : an array, a series or a frame, (n,) or (n, targets)
            Its targets.
        sample_weight : a vector (n,), or None
            One weight for each row.

        Returns
        -------
        the estimator
            Itself, after the step.
        """
        first = "_w" not in vars(self)
        X, y, s = self._checked(X, y, sample_weight, first=first)
        if first:
            self._standardize(X, y, s)
            self._calls = 0
        self._calls += 1
        with jax.enable_x64(True):
            if not first:
                w = jax.tree.map(jnp.asarray, self._w)
            elif has_scale(self._loss(), y.shape[1]):
                w = self._fitted(X, y, s, self._start(), again=False)
            else:
                w = self._start()
            self._keep(
                solve_subproblem(
                    self._problem(X, y, s), w, self._calls**0.5, tol=1e-10
                ).w
            )
        return self

    def predict(self, X: Any) -> Any:
        """Return the targets of each row, in their own units.

        Parameters
        ----------
        X : an array or a frame (n, features)
            The features.

        Returns
        -------
        an array (n,) or (n, targets)
            The predictions; a series or a frame after `set_output`.

        Raises
        ------
        ValueError
            A prediction overflows.
        """
        check_is_fitted(self)
        given = np.asarray(validate_data(self, X, reset=False, dtype=np.float64))
        found = self._units.given(self._outputs(self._w, self._units.features(given)))
        wrong = ~np.isfinite(found).all(axis=1)
        if wrong.any():
            raise ValueError(
                f"The prediction for row {wrong.argmax()} of X overflows; its features are out of range."
            )
        if self._flat:
            found = found[:, 0]
        return self._contained(found, X)

    @property
    def coef_(self) -> np.ndarray:
        """Return the slopes of the linear model in the units of the data: (features,) or (targets,
        features).

        Returns
        -------
        an array
            The slopes.
        """
        self._linear("coef_")
        units = self._units
        with np.errstate(over="ignore"):
            coef = self._w[0]["W"] * (units.y_scale[:, None] / units.x_scale)
        if not np.all(np.isfinite(coef)):
            raise ValueError(
                "coef_ overflows in the units of X and y; give X in larger units or y in smaller ones."
            )
        return self._for_one(coef)

    @property
    def intercept_(self) -> Any:
        """Return the prediction of the linear model where all features are 0.

        Returns
        -------
        a number, or an array (targets,)
            The prediction.
        """
        self._linear("intercept_")
        units = self._units
        layer = self._w[0]
        at_zero = layer["b"] - layer["W"] @ (units.x_center / units.x_scale)
        return self._for_one(units.given(at_zero[None])[0])

    def __sklearn_is_fitted__(self) -> bool:
        return "_w" in vars(self)

    def __sklearn_tags__(self) -> Tags:
        tags = RegressorMixin.__sklearn_tags__(self)
        tags.target_tags.multi_output = True
        return tags

    def _for_one(self, values: np.ndarray) -> Any:
        """Return what has an entry for each target without that axis, where y had none."""
        if self._flat:
            return values[0]
        return values

    def _linear(self, name: str) -> None:
        """Raise unless there is a fitted linear model."""
        if "_w" not in vars(self) or len(self._w) > 1:
            raise AttributeError(
                f"{name} is there for a fitted linear model alone (hidden=0)."
            )

    def _checked(
        self, X: Any, y: Any, weights: Any, *, first: bool
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return the rows, y with a column for each target, and weights of mean 1."""
        given = y
        rules = {"reset": first, "multi_output": True, "y_numeric": True}
        try:
            X, y = validate_data(self, X, y, dtype=np.float64, **rules)
        except ValueError as error:
            refuse_texts(X, error)
            raise
        y = np.asarray(y, np.float64)
        s = weights_of(weights, X)
        if first:
            self._flat = y.ndim == 1
        y = y.reshape(len(y), -1)
        if first:
            self._target_names = names_of(given, y.shape[1])
        if not first and y.shape[1] != len(self._units.y_scale):
            raise ValueError(
                f"y has {y.shape[1]} targets; the first call had {len(self._units.y_scale)}."
            )
        # A row without weight stays in its place, as a copy of one that has some: so every draw of
        # a bagging ensemble has the shape of all rows and shares one compiled program, and no
        # number of that row is ever looked at.
        rows = np.where(s > 0, np.arange(len(s)), np.argmax(s > 0))
        return X[rows], y[rows], s / s.mean()

    def _standardize(self, X: np.ndarray, y: np.ndarray, s: np.ndarray) -> None:
        """Choose the units of features and targets, and a first scale for the loss."""
        self._units = units_of(X, y, s)
        self._sigma = NEARLY_SUPPORT

    def _fitted(
        self, X: np.ndarray, y: np.ndarray, s: np.ndarray, w: Params, again: bool
    ) -> Params:
        """Return the minimiser from w. For a loss with a scale it is that at the scale of its own
        residuals, beginning with the scale that w leaves if w is the answer of another fit.

        That is a fixed point of fits and of the scales they leave, as in R's `rlm`. Numbers alone
        change from one round to the next, so all rounds share one compiled program.
        """
        given = self._units
        seed = seed_of(self.random_state)
        matters = has_scale(self._loss(), y.shape[1])
        self.n_iter_ = 0
        # the scale of the loss in this round, once a first fit has told one
        taken = None
        if matters and again:
            taken = self._residual_scale(w, X, y, s, given)
            w = self._in_units(given.of_residuals(taken), w)
        for _ in range(ROUNDS):
            problem = self._problem(X, y, s)
            solution = minimize(
                problem,
                w,
                self.solver,
                passes=self.passes,
                steps=self.steps,
                tol=self.tol,
                seed=seed,
            )
            w = solution.w
            self.n_iter_ += int(solution.history["step"][-1])
            scale = self._residual_scale(w, X, y, s, given)
            if not matters:
                break
            # A run that spent its budget is no minimiser, so that its scale would never come to
            # rest.
            ended = solution.status not in (Status.converged, Status.stalled)
            if taken is not None and (
                ended or np.all(np.abs(scale - taken) <= SAME * scale)
            ):
                break
            taken = scale
            w = self._in_units(given.of_residuals(scale), w)
        else:
            _warn(
                f"The scale of the residuals still moved after {ROUNDS} fits; the loss may have two answers."
            )
        self.scale_ = self._for_one(scale)
        self._warn_of(solution)
        self.solution_ = solution
        return w

    def _in_units(self, units_and_sigma: tuple[Units, float], w: Params) -> Params:
        """Take other units for the targets and return the parameters that predict the same in them."""
        before = self._units
        self._units, self._sigma = units_and_sigma
        return [*w[:-1], in_other_targets(w[-1], before, self._units)]

    def _from(self, before: Units) -> Params:
        """Return the parameters of the last fit, whose units were others."""
        first = in_other_features(self._w[0], before, self._units)
        w = [first, *self._w[1:]]
        w[-1] = in_other_targets(w[-1], before, self._units)
        return jax.tree.map(on_device, w)

    def _residual_scale(
        self, w: Params, X: np.ndarray, y: np.ndarray, s: np.ndarray, given: Units
    ) -> np.ndarray:
        """Return the scale of each target's residuals at w in the units of y, at least LEAST of the
        target's own.
        """
        units = self._units
        away = units.targets(y) - self._outputs(
            jax.tree.map(np.asarray, w), units.features(X)
        )
        return np.maximum(
            residual_scale(away, s) * units.y_scale, LEAST * given.y_scale
        )

    def _warn_of(self, solution: Solution) -> None:
        """Say that a run did not end where it should have."""
        if solution.status == Status.diverged:
            _warn(f"{solution.message} Take a smaller step.")
        elif solution.status == Status.budget and self.tol is not None:
            _warn(
                f"{solution.message} The tolerance {self.tol:g} was not reached in {self.n_iter_} steps: give more "
                f"passes or steps, or a larger tol (tol=None: the budget is the end)."
            )

    def _outputs(self, w: Params, x: np.ndarray) -> np.ndarray:
        """Return (n, targets) in the units of the fit; what overflows is infinite or nan."""
        if len(w) == 1:
            with np.errstate(over="ignore", invalid="ignore"):
                return x @ w[0]["W"].T + w[0]["b"]
        with jax.enable_x64(True):
            return np.asarray(call(_images, self._network(), w, x))

    def _loss(self) -> AbstractProximable:
        loss = self.loss
        if isinstance(loss, str) and loss == "quantile":
            return Quantile(self.quantile)
        if isinstance(loss, str) and loss == "squares":
            loss = "squared"
        if isinstance(loss, str) and loss in LOSSES:
            loss = LOSSES[loss]()
        if isinstance(loss, str) and loss == "mm":
            raise ValueError(
                "loss 'mm' looks at all rows at once; take fit, or another loss for partial_fit."
            )
        if not isinstance(loss, AbstractProximable):
            known = ", ".join((*LOSSES, "quantile", "mm"))
            raise ValueError(
                f"loss must be one of {known}, or such as px.Quantile(0.9); it is {described(loss)}."
            )
        return loss

    def _fit_mm(self, X: Any, y: Any, weights: Any) -> "CompositeRegressor":
        """Fit the MM-estimate of each target; return the estimator."""
        if widths_of(self.hidden):
            raise ValueError("loss 'mm' is for linear models; give hidden=0.")
        if weights is not None:
            raise ValueError(
                "loss 'mm' finds the weights of the rows itself; leave sample_weight out, or take another loss."
            )
        from ..inference import mm_estimate

        X, y, _ = self._checked(X, y, None, first=True)
        units = powers_of(X, y)
        design = np.column_stack([np.ones(len(X)), units.features(X)])
        seed = seed_of(self.random_state)
        found = [mm_estimate(design, column, seed) for column in units.targets(y).T]
        coefficients = np.stack([each.coefficients for each in found])
        scales = np.array([each.scale for each in found])
        self._units = units
        self._w = [{"W": coefficients[:, 1:], "b": coefficients[:, 0]}]
        self._sigma = 1.0
        self._calls = 0
        self.n_iter_ = 1
        self.scale_ = self._for_one(scales * units.y_scale)
        if not all(each.converged for each in found):
            _warn("The steps of the MM-estimate did not come to rest.")
        return self

    def _problem(self, X: np.ndarray, y: np.ndarray, s: np.ndarray) -> MeanOfLosses:
        loss = at_scale(self._loss(), y.shape[1], self._sigma)
        data = (
            on_device(self._units.features(X)),
            on_device(self._units.targets(y)),
        )
        return MeanOfLosses(
            residual(self._network()),
            loss,
            data,
            ridge=self.ridge,
            weights=on_device(s),
        )

    def _network(self) -> MLP:
        sizes = (self.n_features_in_, *widths_of(self.hidden), len(self._units.y_scale))
        return MLP(sizes, self.activation)

    def _start(self) -> Params:
        """Return a random start of a network, and 0 for a linear model, whose problem is convex."""
        network = self._network()
        if widths_of(self.hidden):
            key = jax.random.key(seed_of(self.random_state))
            # One program: its operations one by one take ten times as long to compile.
            w, _ = Compiled(network, quick=True)(MLP.init, key, jnp.float64)
            return w
        features = network.sizes[0]
        targets = network.sizes[-1]
        zeros = {"W": np.zeros((targets, features)), "b": np.zeros(targets)}
        return [jax.tree.map(on_device, zeros)]

    def _keep(self, w: Params) -> None:
        self._w = jax.tree.map(np.asarray, w)


def _images(network: MLP, w: Params, x: Array) -> Array:
    return jax.vmap(lambda row: network(w, row))(x)


def _warn(sentence: str) -> None:
    warnings.warn(sentence, ConvergenceWarning, stacklevel=4)
