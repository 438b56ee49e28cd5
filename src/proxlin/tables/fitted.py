"""`px.fit`: a robust fit of a table, and what it can tell.

fit = px.fit("prices.csv", "price")
fit.summary()   fit.outliers()   fit.predict(rows, interval=0.9)   fit.plot()   fit.save("fit.npz")
"""

import os
import re
import warnings
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import jax
import numpy as np

from ..checks import check_seed, described, one_of, whole
from ..data.frames import Column, Frame, as_frame
from ..data.parts import AbstractParts, parts_of
from ..errors import UserError
from ..files.programs import keep_programs
from ..files.reading import as_path, free_memory
from ..files.writing import write_file
from ..inference.conformal import check_level
from .asked import LOSSES, Asked
from .columns import MOST
from .described import Sizes
from .engine import Report
from .engine import fit as fit_frame
from .formula import Formula, formula_of, is_formula
from .linear import ERRORS
from .losses import QUANTILE
from .model import Model, load_models, pack_models
from .streaming import fit_parts
from .tellings import Listing, summary_of, suspects_of
from .training import SOLVERS, Say

if TYPE_CHECKING:
    from matplotlib.figure import Figure

WIDEST = 100_000  # hidden units; more is a slip of the hand
ALIASES = {"squares": "squared", "median": "l1"}
NAMED = ("l2", "l1", "huber", "squares", "quantile", "mm")  # losses, in a sentence
# what differs between the notes of two parts of a table
COUNTED = re.compile(r"[0-9]+ of [0-9]+ (?=cells)|: .*(?=, not seen in the fit)")


@dataclass(frozen=True)
class Fit:
    """A robust fit of a table, as `px.fit` returns it and `px.load_fit` reads it.

    Parameters
    ----------
    models : a tuple
        The fit; of several quantiles, one for each.
    notes : a tuple of texts
        What a reader of the fit should know about the data.

    See Also
    --------
    fit : returns it.
    load_fit : reads it from a file.

    Examples
    --------
    >>> import numpy as np
    >>> import proxlin as px
    >>> x = np.arange(40.0)
    >>> y = 2 * x + np.sin(x)
    >>> y[7] = 140.0
    >>> fit = px.fit({"x": x, "y": y}, "y", hidden=0)
    >>> [(row["row"], row["hint"]) for row in fit.outliers().rows]
    [(8, 'y may be 10 times too large: 140 for 14')]
    """

    models: tuple[Model, ...]
    notes: tuple[str, ...] = ()

    @property
    def targets(self) -> tuple[str, ...]:
        """Return the names of the targets.

        Returns
        -------
        a tuple of texts
            The names.
        """
        return self.models[0].asked.targets

    @property
    def quantiles(self) -> tuple[float, ...]:
        """Return the levels that were fitted, none for a loss that is no quantile.

        Returns
        -------
        a tuple of numbers
            The levels.
        """
        levels = (model.asked.level for model in self.models)
        return tuple(level for level in levels if level is not None)

    def summary(self, level: float = 0.95) -> Listing:
        """Return the coefficients of the linear fit in the units of the table, with standard errors,
        t intervals and p-values; errors on held-out rows; and what to beware of.

        Parameters
        ----------
        level : a number between 0 and 1
            That of the intervals.

        Returns
        -------
        a listing
            It prints as a text, shows as a table in a notebook, and has `rows`, a dict for each
            coefficient.

        Raises
        ------
        ValueError
            The level is not between 0 and 1.
        """
        return summary_of(self.models, self.notes, check_level(level, "level"))

    def outliers(self, level: float = 0.05) -> Listing:
        """Return the rows that do not go with the others, the most extreme first.

        Parameters
        ----------
        level : a number between 0 and 1
            The share of false alarms among the rows whose target is suspected, if the residuals of
            the others are normal (false discovery rate). Rows with far features are listed too.

        Returns
        -------
        a listing
            It prints as a text, shows as a table in a notebook, and has `rows`, a dict for each
            suspect: its row from 1, the scaled residual, the robust distance of its features, the
            column that is likely wrong, and a hint where a slip of a factor explains it.

        Raises
        ------
        ValueError
            The level is not between 0 and 1.
        """
        return suspects_of(self._middle, check_level(level, "level"))

    def predict(self, rows: Any, interval: float | None = None) -> Any:
        """Return the targets of each row, in their own units.

        Parameters
        ----------
        rows : a path, a frame, or a dict of columns
            A table with the columns of the fit.
        interval : a number between 0 and 1, or None
            The probability with which a band holds the target of a new row.

        Returns
        -------
        an array, or three
            Predictions (n,), or (n, targets) for several; of several quantiles they have a last axis
            of levels and never cross. With an interval: predictions, lower ends and upper ends.

        Raises
        ------
        ValueError
            A column is missing, a prediction overflows, or the interval needs more rows than the fit
            had for it.

        Warns
        -----
        UserWarning
            Cells are missing, or have a category that the fit had not seen.
        """
        given = in_parts(rows, self.categories)
        if isinstance(given, AbstractParts):
            chunks = self.read_from(given).each(whole_chunk)
        else:
            chunks = [given or as_frame(rows, self.categories)]
        found = [self._values(frame) for frame in chunks]
        values = np.concatenate([each for each, _ in found])
        for note in said_once(note for _, notes in found for note in notes):
            warnings.warn(f"{note}.", stacklevel=2)
        if interval is None:
            return self._shaped(values)
        middle = values[..., len(self.models) // 2]
        low, high = self._middle.bands(middle, check_level(interval))
        return tuple(self._shaped(each[..., None]) for each in (middle, low, high))

    def columns(
        self, frame: Frame, interval: float | None = None
    ) -> tuple[dict[str, np.ndarray], list[str]]:
        """Return predictions as named columns, with those of bands if asked for, and notes on cells
        that the fit had not seen.

        Parameters
        ----------
        frame : a table
            As `proxlin.data.frames.read_frame` returns it.
        interval : a number between 0 and 1, or None
            The probability with which a band holds the target of a new row.

        Returns
        -------
        a dict of vectors, and a list of texts
            Columns such as "price", "price low" and "price high"; and the notes.
        """
        values, notes = self._values(frame)
        found = {}
        for j, target in enumerate(self.targets):
            if len(self.models) == 1:
                found[target] = values[:, j, 0]
                continue
            for i, level in enumerate(self.quantiles):
                found[f"{target} {level:g}"] = values[:, j, i]
        if interval is not None:
            middle = values[..., len(self.models) // 2]
            low, high = self._middle.bands(middle, check_level(interval))
            for j, target in enumerate(self.targets):
                found[f"{target} low"] = low[:, j]
                found[f"{target} high"] = high[:, j]
        return found, notes

    def read_from(self, parts: AbstractParts) -> AbstractParts:
        """Return a table in parts with the columns that predictions need.

        Parameters
        ----------
        parts : a table in parts
            As `proxlin.data.parts.parts_of` returns it.

        Returns
        -------
        a table in parts
            With fewer columns, where the fit has no formula.
        """
        model = self.models[0]
        if model.formula is not None:
            return parts
        empty = names_of(parts)
        return parts.only([empty[each.name].name for each in model.encoder.features])

    def _values(self, frame: Frame) -> tuple[np.ndarray, list[str]]:
        """Return (n, targets, levels) predictions, of which quantiles do not cross, and notes."""
        with jax.enable_x64(True):
            found = [model.predict(frame) for model in self.models]
        values = np.stack([each for each, _ in found], axis=-1)
        return np.sort(values, axis=-1), found[0][1]

    def plot(self) -> "Figure":
        """Return a picture of the fit: fitted against true targets, residuals against fitted values,
        residuals against the distance of the features, and the largest effects.

        Returns
        -------
        a figure of Matplotlib
            Save it with `savefig`; a notebook shows it.
        """
        from .pictures import draw_model

        return draw_model(self._middle)[0]

    def save(self, path: str | os.PathLike) -> None:
        """Write the fit to a file, without pickles: `px.load_fit` and `proxlin predict` read it.

        The file holds the model, its findings, and up to 2,000 rows of targets for pictures.

        Parameters
        ----------
        path : a path
            Usually with the ending .npz.
        """
        write_file(as_path(path), pack_models(self.models))

    def __repr__(self) -> str:
        asked = self._middle.asked
        about = self._middle.about
        error = about["metrics"][0]["median absolute error"]
        return (
            f"Fit of {', '.join(self.targets)} to {about['rows']} rows by {asked.loss}; median absolute error on "
            f"{about['held_out']} held-out rows: {error:.4g}"
        )

    def _repr_html_(self) -> str:
        return self.summary()._repr_html_() + self.outliers()._repr_html_()

    @property
    def _middle(self) -> Model:
        """Return the model of the middle quantile, or the only one."""
        return self.models[len(self.models) // 2]

    @property
    def categories(self) -> tuple[str, ...]:
        """Return the columns of a table that are to be read as texts.

        Returns
        -------
        a tuple of texts
            Their names.
        """
        model = self.models[0]
        if model.formula is not None:  # C(...) makes texts of numbers itself
            return ()
        return model.encoder.categories

    def _shaped(self, values: np.ndarray) -> np.ndarray:
        """Return (n, k, levels) without the axes that have one entry."""
        if len(self.targets) == 1:
            values = values[:, 0]
        if values.shape[-1] == 1:
            values = values[..., 0]
        return values


def fit(
    table: Any,
    target: str | Sequence[str],
    *,
    features: Sequence[str] | None = None,
    weights: Any = None,
    loss: str = "l2",
    quantile: float | Sequence[float] | None = None,
    hidden: int | None = None,
    errors: str = "formula",
    categories: Sequence[str] = (),
    solver: str = "auto",
    seed: int = 0,
) -> Fit:
    """Fit a model to a table that a few wrong rows do not spoil, and find these rows.

    The model is a network or a linear model, whichever predicts unseen rows better; hidden=0 asks for
    the linear one. Beside either of them the fit has the linear coefficients with their uncertainty.

    Parameters
    ----------
    table : a path, a frame of pandas, polars, Arrow or Dask, or a dict of columns
        The table. Texts are categories, and missing cells are allowed. A folder of Parquet files and a
        frame of Dask are read in parts, and need not fit into memory.
    target : a column, several columns, or a formula
        What to predict: "price", ["width", "height"], or "log(price) ~ area + C(city)".
    features : a list of columns, or None
        What to predict it from; None is all other columns.
    weights : a column, or None
        How much each row counts, 0 or more: a row of weight 2 counts in the fit as two rows. It is no
        feature. Errors on held-out rows and prediction bands are of the rows as they are.
    loss : a word
        "l2" (the norm of the residual of all targets; for one target the absolute error), "l1",
        "huber" (1.345 times the scale of the residuals), "squares", "quantile", or "mm" (linear;
        bounds the pull of wrong features too).
    quantile : a number between 0 and 1, or several
        The levels of loss="quantile".
    hidden : an integer, or None
        The width of the hidden layer; 0 is a linear model. None is 64, and 0 for loss="mm".
    errors : a word
        How standard errors are found: "formula" as R has them for this loss, "sandwich", or
        "bootstrap"; "mm" has "formula" only.
    categories : a list of columns
        Columns whose numbers are names, such as postal codes.
    solver : a word
        "auto", "prox_linear", "sgd" or "truncated".
    seed : an integer
        Everything random follows from it.

    Returns
    -------
    a `Fit`
        With `summary`, `outliers`, `predict`, `plot` and `save`.

    Raises
    ------
    ValueError
        The table cannot be fitted like this; the sentence says why.

    See Also
    --------
    Fit : what comes back.
    load_fit : reads a saved fit.
    sklearn.CompositeRegressor : the estimator for arrays.

    Examples
    --------
    >>> import numpy as np
    >>> import proxlin as px
    >>> x = np.arange(40.0)
    >>> city = np.where(x % 3 == 0, "Oslo", "Rome")
    >>> y = 2 * x + 5 * (city == "Rome") + np.sin(x)
    >>> y[5] = 900.0
    >>> fit = px.fit({"x": x, "city": city, "y": y}, "y ~ x + city", loss="mm")
    >>> [(row["name"], round(row["estimate"])) for row in fit.summary().rows]
    [('intercept', 0), ('x', 2), ('city = Rome', 5)]
    """
    categories = _names(categories, "categories", "a list of columns")
    given = in_parts(table, categories)
    if given is None:
        given = as_frame(table, categories)
    given, formula, asked = asked_for(
        given,
        target,
        features=features,
        weights=weights,
        loss=loss,
        quantile=quantile,
        hidden=hidden,
        errors=errors,
        solver=solver,
        seed=seed,
    )
    keep_programs()
    return fit_of(fit_all(given, asked, lambda what, share: None, formula))


def in_parts(
    table: Any, categories: Collection[str] = ()
) -> AbstractParts | Frame | None:
    """Return a folder of Parquet files, a frame of Dask, or a Parquet file too large for memory in parts,
    as one table where it has few rows; None for any other table.
    """
    parts = parts_of(table, categories)
    if parts is None:
        return None
    cells = parts.rows * len(parts.names)
    if isinstance(table, str | Path) and Path(table).is_file():
        # as `read_frame` takes it: as it is read, as columns, and while one becomes the other
        fits = 3 * 8 * cells <= free_memory()
        return None if fits and parts.rows <= MOST else parts
    if parts.rows <= Sizes().rows and cells <= Sizes().cells:
        return parts.whole()
    return parts


def names_of(parts: AbstractParts) -> Frame:
    """Return the columns of a table in parts without their cells."""
    return Frame(parts.source, tuple(Column(name, np.empty(0)) for name in parts.names))


def said_once(notes: Iterable[str]) -> list[str]:
    """Return notes of parts of a table, one of those that differ in their counts and examples only.

    >>> said_once(["column 'x1': 1 of 5 cells are missing", "column 'x1': 2 of 5 cells are missing"])
    ["column 'x1': 1 of 5 cells are missing"]
    """
    first: dict[str, str] = {}
    for note in notes:
        first.setdefault(COUNTED.sub("", note), note)
    return list(first.values())


def whole_chunk(frame: Frame, start: int) -> Frame:
    """Return a chunk of a table in parts as it is."""
    return frame


def asked_for(
    table: Frame | AbstractParts,
    target: str | Sequence[str],
    *,
    features: Sequence[str] | None = None,
    weights: Any = None,
    loss: str = "l2",
    quantile: float | Sequence[float] | None = None,
    hidden: int | None = None,
    errors: str = "formula",
    solver: str = "auto",
    seed: int = 0,
) -> tuple[Frame | AbstractParts, Formula | None, list[Asked]]:
    """Return the columns of the fit, the formula if there is one, and what to fit; or raise a
    sentence.
    """
    frame = table if isinstance(table, Frame) else names_of(table)
    if isinstance(table, AbstractParts) and is_formula(target):
        raise UserError(
            f"{table.source} is read in parts, of which no formula is computed; put its columns into the table."
        )
    frame, formula, targets = _columns(frame, target, features, weights)
    losses = _losses(loss, quantile)
    if weights is not None and losses == ("mm",):
        raise UserError("loss 'mm' takes no weights; take 'huber' or 'l1'.")
    if hidden is None:
        hidden = 0 if losses == ("mm",) else 64
    hidden = whole(hidden, "hidden", low=0, high=WIDEST)
    if losses == ("mm",) and hidden:
        raise UserError("loss 'mm' is for linear models; give hidden=0.")
    one_of(errors, "errors", ERRORS)
    if losses == ("mm",) and errors != "formula":
        raise UserError(
            f"loss 'mm' has the standard errors of lmrob, by a formula; leave errors={errors!r} out, or take 'huber'."
        )
    one_of(solver, "solver", SOLVERS)
    check_seed(seed)
    asked = [
        Asked(targets, each, hidden, solver, seed, errors, weights) for each in losses
    ]
    if isinstance(table, AbstractParts):
        for name in targets:
            frame[name]  # it is there, or a sentence says so
        return table.only(frame.names), None, asked
    return frame, formula, asked


def fit_all(
    frame: Frame | AbstractParts,
    asked: Sequence[Asked],
    say: Say,
    formula: Formula | None = None,
) -> list[Report]:
    """Return the fit of each loss that was asked for: one, or one for each quantile."""
    with jax.enable_x64(True):
        if isinstance(frame, AbstractParts):
            return [fit_parts(frame, each, say) for each in asked]
        return [fit_frame(frame, each, say, formula) for each in asked]


def fit_of(reports: Sequence[Report]) -> Fit:
    """Return what `px.fit` returns, of the reports of the engine."""
    notes = dict.fromkeys(note for report in reports for note in report.notes)
    return Fit(tuple(report.model for report in reports), tuple(notes))


def load_fit(path: str | os.PathLike) -> Fit:
    """Read a fit that `Fit.save` or `proxlin fit` wrote. Nothing in the file is run.

    Parameters
    ----------
    path : a path
        Such as fit/model.npz.

    Returns
    -------
    a `Fit`
        The fit, without the notes about its table.

    Raises
    ------
    ValueError
        The file is no fit, or damaged, or of another format.

    See Also
    --------
    fit : makes one.

    Examples
    --------
    >>> import numpy as np, tempfile
    >>> import proxlin as px
    >>> fit = px.fit({"x": np.arange(20.0), "y": np.arange(20.0) ** 2}, "y", loss="mm")
    >>> path = tempfile.mkdtemp() + "/fit.npz"
    >>> fit.save(path)
    >>> bool(np.all(px.load_fit(path).predict({"x": [3.0]}) == fit.predict({"x": [3.0]})))
    True
    """
    return Fit(load_models(as_path(path)))


def _columns(
    frame: Frame,
    target: str | Sequence[str],
    features: Sequence[str] | None,
    weights: Any,
) -> tuple[Frame, Formula | None, tuple[str, ...]]:
    """Return the columns of the fit, the formula if there is one, and the names of the targets."""
    extra = ()
    if weights is not None:
        if not isinstance(weights, str):
            raise UserError(
                "weights is the name of a column; put the numbers into the table."
            )
        extra = (frame[weights].name,)  # a missing one is said first
    if is_formula(target):
        if features is not None:
            raise UserError("A formula names the features; leave features out.")
        assert isinstance(target, str)
        formula = formula_of(target, frame)
        return frame, formula, formula.targets
    targets = _names(target, "target", "a column, a list of columns or a formula")
    if weights in targets:
        raise UserError(f"{weights!r} is both a target and a weight.")
    if not targets:
        raise UserError("Name a target: a column of the table, or several.")
    if features is not None:
        features = _names(features, "features", "a list of columns")
        twice = [name for name in features if name in targets]
        if twice:
            raise UserError(f"{twice[0]!r} is both a target and a feature.")
        if weights in features:
            raise UserError(f"{weights!r} is both a weight and a feature.")
        columns = tuple(frame[name] for name in (*targets, *features, *extra))
        frame = Frame(frame.source, columns)
    return frame, None, targets


def _names(given: Any, name: str, what: str) -> tuple[str, ...]:
    """Return one or several names of columns, or raise a sentence."""
    if isinstance(given, str):
        return (given,)
    # an array of no axes cannot be gone through, though it has the method
    if isinstance(given, Iterable) and getattr(given, "ndim", 1) > 0:
        names = tuple(given)
        if all(isinstance(each, str) for each in names):
            return names
    raise UserError(f"{name} must be {what}; it is {described(given)}.")


def _losses(loss: str, quantile: float | Sequence[float] | None) -> tuple[str, ...]:
    """Return the names of the losses in `Asked`, or raise a sentence."""
    # a list is no key of a dict
    if not isinstance(loss, str) or ALIASES.get(loss, loss) not in LOSSES:
        one_of(loss, "loss", NAMED)
    loss = ALIASES.get(loss, loss)
    if loss != "quantile":
        if quantile is not None:
            raise UserError(
                "quantile goes with loss 'quantile'; leave one of them out."
            )
        return (loss,)
    if quantile is None:
        raise UserError("loss 'quantile' needs a level: quantile=0.9, or several.")
    levels = [quantile] if np.ndim(quantile) == 0 else list(quantile)  # type: ignore[arg-type]
    if not levels:
        raise UserError("quantile names no level; give one between 0 and 1.")
    checked = sorted({check_level(level, "quantile") for level in levels})
    return tuple(f"{QUANTILE}{level!r}" for level in checked)
