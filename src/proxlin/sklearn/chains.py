"""Labels of sequences, read together.

    score(c) = sum_t unary(w, x_t)[c_t] + sum_t T[c_t, c_{t+1}]

The label of a position depends on its features and, through T, on the labels of its neighbours.
"""

import dataclasses
import warnings
from collections.abc import Callable, Sequence
from typing import Any, no_type_check

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils.metaestimators import available_if
from sklearn.utils.multiclass import check_classification_targets, unique_labels
from sklearn.utils.validation import check_is_fitted, validate_data

from ..checks import MOST, described, flag, one_of, real
from ..cost import Status
from ..data.metrics import marginals, outputs
from ..data.sequences import ChainScores, encoded
from ..files.programs import keep_programs
from ..inners import augmented_scores
from ..networks import ACTIVATIONS
from ..oracles import Chains
from ..outers import AbstractOuter, EntropyHinge, StructuredHinge
from ..problem import MeanOfLosses
from ..run import minimize
from ..solvers import AbstractSolver, check_solver
from ..tables.standardize import Units, units_of
from ..types import Params
from .arguments import seed_of, source_of, weights_of, widths_of
from .descent import Descent, descend, ridged
from .outputs import NamedOutputs, names_of
from .ridges import USUAL, choose_ridge, folds_of
from .sequences import flattened, groups_of, insides, is_table, joined, padded
from .shared_pairs import Grouped, SharedPairs
from .warm_start import check_widths, goes_on, in_other_features

LOSSES = ("hinge", "crf")
CALLS = 2000  # evaluations of F and its gradient, at most, where `passes` does not say


def _has_probabilities(model: Any) -> bool:
    """Whether scores are logarithms of probabilities; where they are not, say so."""
    if isinstance(model.loss, str) and model.loss == "crf":
        return True
    raise AttributeError(
        f'predict_proba needs loss="crf"; the scores of loss={model.loss!r} are no probabilities.'
    )


class StructuredClassifier(NamedOutputs, ClassifierMixin, BaseEstimator):
    """Chains of labels by a linear score or a network, with weights for pairs of neighbours.

        min_w  (1/n) sum_i s_i f_nu(w; x_i, c_i) + ridge/2 |w|^2,     x scaled, s the sample weights
        hinge:  f_nu = nu log sum_c exp((score(c) + wrong(c, c_i)) / nu) - score(c_i),    wrong counts wrong labels
        crf:    f = log sum_c exp(score(c)) - score(c_i)

    X is a list of n arrays (length_i, features) and y one of n arrays of labels, of any type; a 2-D
    X with a 1-D y is n sequences of length one. `predict` returns what y was; `score` is the share
    of right labels over all positions, and `predict_proba` (of loss "crf") the probability of each
    label. Sequences of about the same length are padded together (see `px.Chains`); a sample
    weight belongs to a sequence. `n_iter_` is the number of steps of the last fit, and `ridge_` its
    ridge.

    Parameters
    ----------
    loss : "hinge" or "crf"
        The margin-rescaled hinge, above it by at most nu log |Y| (nu -> 0 is the hinge itself); or
        the loss of a conditional random field.
    nu : a positive number
        The smoothing of the hinge.
    hidden : an integer or a list of integers
        0 is linear; 64 or (64, 64) are widths of hidden layers.
    activation : a word
        The smooth activation of hidden layers: "tanh", "elu", "softplus", "gelu" or "sigmoid".
    ridge : a number, or "auto"
        The weight of |w|^2 / 2. "auto" takes the one of least loss on sequences that are held out
        of smaller fits, and 1e-3 where a solver is given, in `partial_fit` and for one sequence.
    solver : "auto", or a solver such as `px.sgd(0.01)`
        "auto" is L-BFGS on all the data, deterministic; a solver is given the hinge without its
        smoothing.
    passes : a number, or None
        The most passes over the data.
    tol : a number
        "auto" ends where no entry of the gradient is larger.
    warm_start : True or False
        Whether a further `fit` starts where the last one ended, with the same classes.
    random_state : an integer, or None
        The randomness of the start of a network, and of a stochastic solver.

    See Also
    --------
    sklearn.CompositeRegressor : regression.
    Chains, EntropyHinge, StructuredHinge : what a fit is made of.

    Examples
    --------
    >>> import numpy as np
    >>> from proxlin.sklearn import StructuredClassifier
    >>> x = [np.array([[1.0], [0.0]]), np.array([[0.9]]), np.array([[0.1], [0.8], [0.0]])]
    >>> y = [np.array(["b", "a"]), np.array(["b"]), np.array(["a", "b", "a"])]
    >>> model = StructuredClassifier().fit(x, y)
    >>> [labels.tolist() for labels in model.predict(x)]
    [['b', 'a'], ['b'], ['a', 'b', 'a']]
    """

    n_features_in_: int  # by validate_data
    classes_: np.ndarray

    # scikit-learn wants a constructor that takes anything; fit says what is wrong
    @no_type_check
    def __init__(
        self,
        loss: str = "hinge",
        *,
        nu: float | int = 1.0,
        hidden: int | Sequence[int] = 0,
        activation: str = "elu",
        ridge: str | float | int = "auto",
        solver: str | AbstractSolver = "auto",
        passes: float | int | None = None,
        tol: float | int = 1e-6,
        warm_start: bool = False,
        random_state: Any = None,
    ):
        self.loss = loss
        self.nu = nu
        self.hidden = hidden
        self.activation = activation
        self.ridge = ridge
        self.solver = solver
        self.passes = passes
        self.tol = tol
        self.warm_start = warm_start
        self.random_state = random_state

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> "StructuredClassifier":
        """Fit from 0 or, for a network, from a start drawn by random_state, or from the last fit if
        `warm_start`; return the estimator.

        Parameters
        ----------
        X : a list of arrays (length_i, features), or an array (n, features)
            The sequences.
        y : a list of arrays (length_i,), or an array (n,)
            Their labels.
        sample_weight : a vector (n,), or None
            One weight for each sequence.

        Returns
        -------
        the estimator
            Itself, fitted.
        """
        keep_programs()
        self._check_settings()
        again = goes_on(self)
        x, lengths, labels, s = self._checked(X, y, sample_weight, reset=not again)
        if not again:
            check_classification_targets(labels)
            self.classes_ = np.unique(labels)
        before = None
        if again:
            check_widths(self._w["letter"], self.hidden)
            before = self._units
        self._standardize(x, np.repeat(s, lengths))
        warning = None
        with jax.enable_x64(True):
            w = self._start() if before is None else self._from(before)
            if isinstance(self.solver, str):
                found = self._descended(x, lengths, labels, s, w)
                self._keep(found.w, found.steps)
                if found.largest > self.tol:
                    warning = (
                        f"L-BFGS ended with an entry {found.largest:.1e} in the gradient, above tol = {self.tol:g}: "
                        f"give more passes, more ridge or a larger tol."
                    )
            else:
                self.ridge_ = self._given_ridge()
                problem = self._problem(x, lengths, labels, s)
                seed = seed_of(self.random_state)
                self.solution_ = minimize(
                    problem, w, self.solver, passes=self.passes, seed=seed
                )
                self._keep(self.solution_.w, int(self.solution_.history["step"][-1]))
                if self.solution_.status == Status.diverged:
                    warning = f"{self.solution_.message} Take a smaller step."
        if warning is not None:
            warnings.warn(warning, ConvergenceWarning, stacklevel=2)
        self._calls = 0
        return self

    def partial_fit(
        self, X: Any, y: Any, classes: Any = None, sample_weight: Any = None
    ) -> "StructuredClassifier":
        """Take a stochastic proximal point, argmin_x F_B(x) + sqrt(t)/2 |x - w|^2 on the batch, at
        call t = 1, 2, ...; return the estimator.

        The first call decides the units of the features and, unless `classes` are given, the labels
        there are.

        Parameters
        ----------
        X : a list of arrays (length_i, features), or an array (n, features)
            The sequences of a batch.
        y : a list of arrays (length_i,), or an array (n,)
            Their labels.
        classes : a list of labels, or None
            All labels there are; None takes those of the first batch.
        sample_weight : a vector (n,), or None
            One weight for each sequence.

        Returns
        -------
        the estimator
            Itself, after the step.
        """
        self._check_settings()
        first = "_w" not in vars(self)
        x, lengths, labels, s = self._checked(X, y, sample_weight, reset=first)
        if first:
            check_classification_targets(labels)
            known = classes
            if known is None:
                known = labels
            self.classes_ = unique_labels(known)
            self._standardize(x, np.repeat(s, lengths))
            self._calls = 0
        self._calls += 1
        with jax.enable_x64(True):
            if first:
                w = self._start()
            else:
                w = jax.tree.map(jnp.asarray, self._w)
            self.ridge_ = self._given_ridge()
            problem = self._problem(x, lengths, labels, s).regularize(
                self._calls**0.5, w
            )
            # one step of many: it need not be exact
            found = descend(problem.value_and_subgradient, w, self._budget(), self.tol)
            self._keep(found.w, found.steps)
        return self

    def predict(self, X: Any) -> Any:
        """Return the labels of best score.

        Parameters
        ----------
        X : a list of arrays (length_i, features), or an array (n, features)
            The sequences.

        Returns
        -------
        a list of arrays (length_i,), or an array (n,)
            The labels; series after `set_output`.
        """
        check_is_fitted(self)
        x, lengths = self._positions(X)
        labels = self.classes_[self._read(x, lengths, self._decoded)]
        if is_table(X):
            return self._contained(labels, X)
        parts = np.split(labels, np.cumsum(lengths)[:-1])
        return [
            self._contained(part, rows) for part, rows in zip(parts, X, strict=True)
        ]

    @available_if(_has_probabilities)
    def predict_proba(self, X: Any) -> Any:
        """Return the probability of each label at each position, whatever its neighbours are: the
        marginals of the conditional random field.

        The labels of `predict` are those of the best sequence, which need not be the likeliest ones
        of each position.

        Parameters
        ----------
        X : a list of arrays (length_i, features), or an array (n, features)
            The sequences.

        Returns
        -------
        a list of arrays (length_i, classes), or an array (n, classes)
            The probabilities, in the order of `classes_`.

        Raises
        ------
        AttributeError
            The loss is not "crf": scores of a hinge are no probabilities.
        """
        check_is_fitted(self)
        x, lengths = self._positions(X)
        found = self._read(x, lengths, self._marginals)
        if is_table(X):
            return found
        return np.split(found, np.cumsum(lengths)[:-1])

    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """Return the share of right labels over all positions, each with the weight of its
        sequence.

        Parameters
        ----------
        X : a list of arrays (length_i, features), or an array (n, features)
            The sequences.
        y : a list of arrays (length_i,), or an array (n,)
            Their labels.
        sample_weight : a vector (n,), or None
            One weight for each sequence.

        Returns
        -------
        a number
            The share, between 0 and 1.
        """
        found = self.predict(X)
        truth = joined(X, y)
        weights = sample_weight
        if weights is not None:
            weights = np.asarray(weights, np.float64)
            # a sum of huge weights would overflow
            weights = weights / (weights.max() or 1.0)
        if not is_table(X):
            if weights is not None:
                weights = np.repeat(weights, [len(each) for each in found])
            found = np.concatenate([np.asarray(each) for each in found])
        return float(np.average(np.asarray(found) == truth, weights=weights))

    @property
    def pairs_(self) -> np.ndarray:
        """Return T (classes, classes): the score of a label (row) followed by another (column).

        Returns
        -------
        an array (classes, classes)
            T.

        Raises
        ------
        AttributeError
            There was no fit.
        """
        if "_w" not in vars(self):
            raise AttributeError("pairs_ is there after fit.")
        return self._w["pairs"]

    def __sklearn_is_fitted__(self) -> bool:
        return "_w" in vars(self)

    def _check_settings(self) -> None:
        """Raise a sentence about the first setting that is none."""
        one_of(self.loss, "loss", LOSSES)
        real(self.nu, "nu", low=0.0, open=True)
        widths_of(self.hidden)
        one_of(self.activation, "activation", ACTIVATIONS)
        if not isinstance(self.ridge, str):
            real(self.ridge, "ridge", low=0.0)
        elif self.ridge != "auto":
            raise ValueError(
                f'ridge must be "auto" or a number; it is {described(self.ridge)}.'
            )
        is_word = isinstance(self.solver, str)
        if is_word and self.solver != "auto":
            raise ValueError(
                f'solver must be "auto" or a solver such as px.sgd(0.01); it is {described(self.solver)}.'
            )
        if not is_word:
            check_solver(self.solver)
        if self.passes is not None:
            real(self.passes, "passes", low=0.0)
        real(self.tol, "tol", low=0.0)
        flag(self.warm_start, "warm_start")
        source_of(self.random_state)

    def _checked(
        self, X: Any, y: Any, weights: Any, *, reset: bool
    ) -> tuple[Any, Any, Any, Any]:
        """Return positions (total, p), lengths (n,), labels (total,) and weights (n,) of mean 1.

        Sequences of weight 0 are left out.
        """
        flat, lengths = flattened(X)
        if y is None:
            raise ValueError("requires y to be passed, but the target y is None")
        found = validate_data(self, flat, joined(X, y), reset=reset, dtype=np.float64)
        x, labels = map(np.asarray, found)
        if reset:
            self._target_names = names_of(y, 1)
        if lengths is None:
            lengths = np.ones(len(x), int)
        s = weights_of(weights, lengths)
        used = s > 0
        each = np.repeat(used, lengths)
        return x[each], lengths[used], labels[each], s[used] / s[used].mean()

    def _standardize(self, x: np.ndarray, s: np.ndarray) -> None:
        """Choose the units of the features: over all positions a column d = x - mean x becomes
        d / sqrt(mean d^4 / mean d^2).

        A normal column is divided by 1.7 deviations of it, and a column of 0 and 1 that is seldom 1
        by about one: its deviation would make the few ones large numbers, whose weights no ridge
        holds.
        """
        units = units_of(x, x[:, :0], s)  # no targets to scale
        fourth = np.average(units.features(x) ** 4, axis=0, weights=s)
        peaked = np.sqrt(np.where(fourth > 0, fourth, 1.0))
        self._units = dataclasses.replace(units, x_scale=units.x_scale * peaked)

    def _problem(
        self, x: np.ndarray, lengths: np.ndarray, labels: np.ndarray, s: np.ndarray
    ) -> MeanOfLosses:
        predict = self._model(int(lengths.max()))
        y = encoded(predict.oracle, padded(self._places(labels), lengths))
        data = (padded(self._units.features(x), lengths), lengths), y
        inner, outer = self._loss(predict)
        return MeanOfLosses(
            inner,
            outer,
            jax.tree.map(jnp.asarray, data),
            ridge=self.ridge_,
            weights=jnp.asarray(s),
        )

    def _places(self, labels: np.ndarray) -> np.ndarray:
        """Return the places of labels in classes_."""
        unknown = np.setdiff1d(labels, self.classes_)
        if len(unknown):
            raise ValueError(
                f"y has the label {unknown.tolist()[0]!r}, which is not among the classes of the first call."
            )
        return np.searchsorted(self.classes_, labels)

    def _grouped(
        self, x: np.ndarray, lengths: np.ndarray, labels: np.ndarray
    ) -> Grouped:
        """Return the loss of sequences, those of about the same length padded together."""
        letter = self._model(1).letter
        margin, nu = 0.0, 1.0
        if self.loss == "hinge":
            margin, nu = 1.0, float(self.nu)
        places = self._places(labels)
        x = self._units.features(x)
        groups = []
        for group in groups_of(lengths):
            each = np.repeat(group, lengths)
            within = lengths[group]
            part = SharedPairs(
                letter,
                jnp.asarray(padded(x[each], within)),
                jnp.asarray(padded(places[each], within)),
                jnp.asarray(insides(within)),
                margin,
                nu,
            )
            groups.append((group, part))
        return Grouped(groups)

    def _descended(
        self,
        x: np.ndarray,
        lengths: np.ndarray,
        labels: np.ndarray,
        s: np.ndarray,
        w: Params,
    ) -> Descent:
        """Return where L-BFGS from w ends, with the ridge given or chosen."""
        chains = self._grouped(x, lengths, labels)
        calls = self._budget()
        self.ridge_ = self._given_ridge()
        if isinstance(self.ridge, str):
            self.ridge_ = choose_ridge(
                chains,
                folds_of(x, lengths, self._places(labels), s),
                self._start(),
                convex=not widths_of(self.hidden),
                calls=calls,
            )
        shares = s / s.sum()
        evaluate = ridged(lambda w: chains.value_and_gradient(w, shares), self.ridge_)
        return descend(evaluate, w, calls, self.tol)

    def _given_ridge(self) -> float:
        """Return the ridge that was given, or the usual one."""
        return USUAL if isinstance(self.ridge, str) else float(self.ridge)

    def _budget(self) -> int:
        """Return how many evaluations of F and its gradient a fit may take."""
        if self.passes is None:
            return CALLS
        # scipy counts in integers of C
        return int(min(np.ceil(self.passes), MOST))

    def _loss(self, predict: ChainScores) -> tuple[Callable, AbstractOuter]:
        oracle = predict.oracle
        if self.loss == "crf":
            return PlainScores(predict), EntropyHinge(oracle).smooth(1.0)
        inner = augmented_scores(predict, oracle)
        if isinstance(self.solver, str):  # L-BFGS needs a smooth function
            return inner, EntropyHinge(oracle).smooth(self.nu)
        return inner, StructuredHinge(oracle)

    def _model(self, longest: int) -> ChainScores:
        oracle = Chains(longest, len(self.classes_))
        return ChainScores(
            oracle,
            self.n_features_in_,
            widths_of(self.hidden),
            activation=self.activation,
        )

    def _start(self) -> Params:
        """Return a random start of a network, and 0 for a linear model, whose problem is convex."""
        model = self._model(1)
        key = jax.random.key(seed_of(self.random_state))
        if len(model.letter.sizes) > 2:
            return model.init(key, jnp.float64)
        shapes = jax.eval_shape(lambda: model.init(key, jnp.float64))
        # by numpy: nothing to compile
        return jax.tree.map(lambda leaf: np.zeros(leaf.shape, leaf.dtype), shapes)

    def _from(self, before: Units) -> Params:
        """Return the parameters of the last fit, whose features had other units."""
        first, *others = self._w["letter"]
        letter = [in_other_features(first, before, self._units), *others]
        return jax.tree.map(jnp.asarray, {**self._w, "letter": letter})

    def _keep(self, w: Params, steps: int) -> None:
        self._w = jax.tree.map(np.asarray, w)
        self.n_iter_ = steps

    def _positions(self, X: Any) -> tuple[np.ndarray, np.ndarray]:
        """Return the positions of new sequences, in the units of the fit, and their lengths."""
        flat, lengths = flattened(X)
        x = np.asarray(validate_data(self, flat, reset=False, dtype=np.float64))
        if lengths is None:
            lengths = np.ones(len(x), int)
        return self._units.features(x), lengths

    def _read(
        self, x: np.ndarray, lengths: np.ndarray, read: Callable[..., np.ndarray]
    ) -> np.ndarray:
        """Return what `read` finds at each position, sequences of about the same length together."""
        found: np.ndarray | None = None
        for group in groups_of(lengths):
            each = np.repeat(group, lengths)
            part = read(x[each], lengths[group])
            if found is None:
                found = np.empty((len(x), *part.shape[1:]), part.dtype)
            found[each] = part
        assert found is not None
        return found

    def _decoded(self, x: np.ndarray, lengths: np.ndarray) -> np.ndarray:
        """Return the places in classes_ of the best labels, one for each position."""
        layers = self._w["letter"]
        if lengths.max() == 1 and len(layers) == 1:
            return np.argmax(x @ layers[0]["W"].T + layers[0]["b"], axis=1)
        with jax.enable_x64(True):
            predict, w, data, inside = self._padded(x, lengths)
            oracle = predict.oracle
            return np.asarray(outputs(predict, oracle, w, data, oracle.decode))[inside]

    def _marginals(self, x: np.ndarray, lengths: np.ndarray) -> np.ndarray:
        """Return the probability of each label at each position."""
        with jax.enable_x64(True):
            predict, w, data, inside = self._padded(x, lengths)
            oracle = predict.oracle
            return np.asarray(marginals(predict, oracle, w, data, Shares(oracle)))[
                inside
            ]

    def _padded(self, x: np.ndarray, lengths: np.ndarray) -> tuple[Any, Any, Any, Any]:
        """Return the model, its parameters and the data of padded sequences, and which of their
        positions are real.
        """
        predict = self._model(int(lengths.max()))
        data = (padded(x, lengths), lengths)
        w, data = jax.tree.map(jnp.asarray, (self._w, data))
        return predict, w, data, insides(lengths)


class Shares(eqx.Module):
    """The part of marginals that belongs to single positions, (length, labels)."""

    oracle: Chains

    def __call__(self, y: Array) -> Array:
        unary, _ = self.oracle.split(y)
        return unary


class PlainScores(eqx.Module):
    """phi(w, (x, y)) = (s, <s, y>), s = predict(w, x): `augmented_scores` without the cost, for the
    likelihood.
    """

    predict: ChainScores

    def __call__(self, w: Params, sample: Any) -> Array:
        x, y = sample
        scores = self.predict(w, x)
        return jnp.append(
            scores, jnp.sum(jnp.where(y > 0, scores, jnp.zeros_like(scores)))
        )
