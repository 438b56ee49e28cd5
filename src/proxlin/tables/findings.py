"""What a fit found, beside its model: coefficients with their uncertainty, suspect rows, effects of
features, and the residuals that bands are made of.

Findings are plain numbers and texts. They are stored in the file of a model, so that a loaded fit can
tell the same as a fresh one.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float, Int

from .asked import Asked
from .columns import Encoder
from .leverage import decided_by_features
from .linear import Line
from .suspects import Numeric, crowd, feature_distances, suspects

SHOWN = 2000  # rows that are kept for pictures; more hide each other
POINTS = 21  # of the curve of an effect
AVERAGED = 200  # rows over which an effect is averaged
AT_ONCE = 50_000  # rows of effects that are predicted together, about
Predict = Callable[[np.ndarray], np.ndarray]


@dataclass(frozen=True)
class Findings:
    """The findings of a fit.

    `lines` are the linear fits of the targets (there may be none), `names` the columns that their
    coefficients belong to, `scale` the scale of each target's residuals, `residuals` those of rows
    that the judged fit had not seen, `shown` the rows kept for pictures, `limit` the distance within
    which features are usual, and `warnings` sentences on what to beware of.
    """

    lines: tuple[Line, ...]
    names: tuple[str, ...]
    scale: Float[np.ndarray, " k"]
    residuals: Float[np.ndarray, "m k"]
    suspects: tuple[dict[str, Any], ...]
    effects: tuple[dict[str, Any], ...]
    shown: "Shown"
    limit: float
    warnings: tuple[str, ...]


@dataclass(frozen=True)
class Shown:
    """Rows for pictures: their numbers in the table from 1, targets, fitted values, and distances."""

    rows: Int[np.ndarray, " m"]
    y: Float[np.ndarray, "m k"]
    fitted: Float[np.ndarray, "m k"]
    distance: Float[np.ndarray, " m"]


def numeric_columns(encoder: Encoder) -> list[Numeric]:
    """Return the columns of the table that are numbers, with their place among the encoded ones."""
    found = []
    place = 0
    for feature in encoder.features:
        if feature.levels is None:
            found.append(Numeric(feature.name, place))
        place += feature.width
    return found


def findings_of(
    X: Float[np.ndarray, "n c"],
    y: Float[np.ndarray, "n k"],
    rows: Int[np.ndarray, " n"],
    encoder: Encoder,
    asked: Asked,
    predict: Predict,
    scale: Float[np.ndarray, " k"],
    lines: tuple[Line, ...],
    residuals: Float[np.ndarray, "m k"],
    s: Float[np.ndarray, " n"] | None = None,
    total: int | None = None,
) -> Findings:
    """Look at the rows with the fit, and return what is found.

    s says how much each row counts; `total` is how many rows the table has, where these are but some
    of them.
    """
    targets = asked.targets
    seed = asked.seed
    numeric = numeric_columns(encoder)
    far = feature_distances(X, numeric, seed)
    fitted = predict(X)
    listed = []
    warnings = []
    for j, target in enumerate(targets):
        own = lambda rows, j=j: predict(rows)[:, j]
        listed += suspects(
            *(X, y[:, j], own, float(scale[j]), target, numeric, far, rows + 1),
            total,
        )
        many = crowd((y[:, j] - fitted[:, j]) / scale[j], target, total)
        if many is not None:
            warnings.append(many)
    # over all targets, the most extreme first
    listed.sort(key=lambda each: -abs(each["scaled residual"]))
    rng = np.random.default_rng(seed)
    part = np.arange(len(X))
    if len(X) > SHOWN:
        # whatever else is drawn, the suspects are
        bad = np.isin(rows + 1, [each["row"] for each in listed])
        others = rng.permutation(np.flatnonzero(~bad))[: max(0, SHOWN - bad.sum())]
        part = np.sort(np.concatenate([np.flatnonzero(bad), others]))
    shown = Shown(rows[part] + 1, y[part], fitted[part], far[0][part])
    if asked.loss != "mm":
        warnings += decided_by_features(
            X, y, rows, asked, lines, far, s, whole=total is None
        )
    return Findings(
        lines=lines,
        names=encoder.names,
        scale=np.asarray(scale, float),
        residuals=residuals,
        suspects=tuple(listed),
        effects=tuple(_effects(X, encoder, targets, predict, rng)),
        shown=shown,
        limit=float(far[1]),
        warnings=tuple(warnings),
    )


def _effects(
    X: np.ndarray,
    encoder: Encoder,
    targets: Sequence[str],
    predict: Predict,
    rng: np.random.Generator,
) -> list[dict[str, Any]]:
    """Return, for each feature and target, the mean prediction when the feature has some value in
    all rows and the other features are as they are (partial dependence).
    """
    part = X[rng.permutation(len(X))[:AVERAGED]]
    found = []
    for group in _groups(_grids(X, encoder), len(part)):
        # one prediction for some features: a call costs more than its rows
        changed = np.concatenate([_changed(part, grid) for grid in group])
        values = predict(changed)
        first = 0
        for grid in group:
            count = len(grid.settings)
            own = values[first : first + count * len(part)]
            first += len(own)
            means = own.reshape(count, len(part), -1).mean(axis=1)
            for j, target in enumerate(targets):
                effect = {
                    "feature": grid.feature,
                    "target": target,
                    "at": grid.labels,
                    "mean": means[:, j].tolist(),
                    "size": float(np.ptp(means[:, j])),
                }
                found.append(effect)
    return found


@dataclass(frozen=True)
class Grid:
    """The values of a feature at which its effect is looked at, and its columns under each of them."""

    feature: str
    labels: list[Any]
    settings: Float[np.ndarray, "values columns"]
    columns: list[int]


def _grids(X: np.ndarray, encoder: Encoder) -> list[Grid]:
    """Return quantiles of each column of numbers, and all levels of each category."""
    found = []
    place = 0
    for feature in encoder.features:
        if feature.levels is None:
            values = X[:, place]
            grid = np.unique(np.quantile(values, np.linspace(0.02, 0.98, POINTS)))
            labels = [float(value) for value in grid]
            settings = grid[:, None]
            columns = [place]
        else:
            labels = list(feature.levels)
            settings = np.eye(len(labels))
            columns = list(range(place, place + len(labels)))
        place += feature.width
        found.append(Grid(feature.name, labels, settings, columns))
    return found


def _groups(grids: Sequence[Grid], rows: int) -> list[list[Grid]]:
    """Return grids that are looked at together: as many as AT_ONCE rows have room for."""
    groups: list[list[Grid]] = []
    left = 0
    for grid in grids:
        count = rows * len(grid.settings)
        if not groups or count > left:
            groups.append([])
            left = AT_ONCE
        groups[-1].append(grid)
        left -= count
    return groups


def _changed(part: np.ndarray, grid: Grid) -> np.ndarray:
    """Return the rows under each setting of a feature."""
    changed = np.tile(part, (len(grid.settings), 1))
    changed[:, grid.columns] = np.repeat(grid.settings, len(part), axis=0)
    return changed


# --------------------------------------------------------------------------------------------- file


def packed(findings: Findings) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """Return the findings as JSON and arrays."""
    text = {
        "lines": [
            {
                "target": line.target,
                "kind": line.kind,
                "reason": line.reason,
                "scale": line.scale,
                "rows": line.rows,
                "converged": line.converged,
            }
            for line in findings.lines
        ],
        "names": list(findings.names),
        "suspects": list(findings.suspects),
        "effects": list(findings.effects),
        "limit": findings.limit,
        "warnings": list(findings.warnings),
    }
    arrays = {
        "scale": findings.scale,
        "residuals": findings.residuals,
        "shown.rows": findings.shown.rows,
        "shown.y": findings.shown.y,
        "shown.fitted": findings.shown.fitted,
        "shown.distance": findings.shown.distance,
    }
    for i, line in enumerate(findings.lines):
        arrays[f"line{i}.kept"] = line.kept
        arrays[f"line{i}.coefficients"] = line.coefficients
        if line.covariance is not None:
            arrays[f"line{i}.covariance"] = line.covariance
    return text, arrays


def unpacked(
    text: dict[str, Any],
    arrays: dict[str, np.ndarray],
    width: int,
    targets: tuple[str, ...],
) -> Findings:
    """Return findings in which every type, shape and size is right, or raise ValueError or what comes
    of a damaged file.
    """
    k = len(targets)
    names = tuple(_text(name) for name in text["names"])
    _demand(len(names) == width)
    lines = []
    for i, about in enumerate(text["lines"]):
        kept = _whole(arrays[f"line{i}.kept"], 1)
        _demand(np.all((kept >= 0) & (kept < width)))
        coefficients = _floats(arrays[f"line{i}.coefficients"], (len(kept) + 1,))
        cov = arrays.get(f"line{i}.covariance")
        if cov is not None:
            cov = _floats(cov, (len(coefficients), len(coefficients)))
        _demand(about["target"] in targets and type(about["converged"]) is bool)
        lines.append(
            Line(
                about["target"],
                kept,
                coefficients,
                cov,
                _text_or_none(about["kind"]),
                _text_or_none(about["reason"]),
                float(about["scale"]),
                int(about["rows"]),
                about["converged"],
            )
        )
    m = arrays["shown.rows"].shape[0]
    shown = Shown(
        _whole(arrays["shown.rows"], 1),
        _floats(arrays["shown.y"], (m, k)),
        _floats(arrays["shown.fitted"], (m, k)),
        _floats(arrays["shown.distance"], (m,)),
    )
    residuals = arrays["residuals"]
    return Findings(
        lines=tuple(lines),
        names=names,
        scale=_floats(arrays["scale"], (k,)),
        residuals=_floats(residuals, (residuals.shape[0], k)),
        suspects=tuple(_suspect(each) for each in text["suspects"]),
        effects=tuple(_effect(each) for each in text["effects"]),
        shown=shown,
        limit=float(text["limit"]),
        warnings=tuple(_text(each) for each in text["warnings"]),
    )


def _suspect(given: dict[str, Any]) -> dict[str, Any]:
    numbers = ("value", "fitted", "scaled residual", "false discovery rate", "distance")
    return {
        "row": int(given["row"]),
        "target": _text(given["target"]),
        **{name: float(given[name]) for name in numbers},
        "far": bool(given["far"]),
        "column": _text_or_none(given["column"]),
        "hint": _text_or_none(given["hint"]),
    }


def _effect(given: dict[str, Any]) -> dict[str, Any]:
    at = [each if isinstance(each, str) else float(each) for each in given["at"]]
    mean = [float(each) for each in given["mean"]]
    _demand(len(at) == len(mean) and np.all(np.isfinite(mean)))
    return {
        "feature": _text(given["feature"]),
        "target": _text(given["target"]),
        "at": at,
        "mean": mean,
        "size": float(given["size"]),
    }


def _text(given: Any) -> str:
    _demand(isinstance(given, str))
    return given


def _text_or_none(given: Any) -> str | None:
    return None if given is None else _text(given)


def _floats(x: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
    _demand(x.dtype == np.float64 and x.shape == shape and np.all(np.isfinite(x)))
    return x


def _whole(x: np.ndarray, axes: int) -> np.ndarray:
    _demand(x.dtype == np.int64 and x.ndim == axes)
    return x


def _demand(truth: Any) -> None:
    if not truth:
        raise ValueError
