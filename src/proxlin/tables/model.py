"""A fitted model and its file: a .npz of plain arrays with a JSON text, in which nothing can run."""

import dataclasses
import io
import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax
import numpy as np

from .. import __version__
from ..data.frames import Frame
from ..errors import UserError
from ..files.npz import read_arrays, write_arrays
from ..files.reading import check_readable
from ..files.writing import finish
from ..inference import conformal_band
from ..types import Params
from .asked import CONVEX, Asked
from .columns import Encoder, Feature
from .findings import Findings, packed, unpacked
from .formula import Formula, Term
from .outputs import predict
from .standardize import Units
from .training import network_of

FORMAT = 2  # of the file; another one is refused
DEEPEST = 16  # trees; a deeper one has more nodes than any fit makes
DAMAGED = (
    *(
        AttributeError,
        KeyError,
        IndexError,
        TypeError,
        ValueError,
        RecursionError,
        NotImplementedError,
        EOFError,
    ),
    *(OverflowError, OSError),  # an integer such as 10^400; a disk that fails
)
UNITS = tuple(field.name for field in dataclasses.fields(Units))


@dataclass(frozen=True)
class Model:
    """The mean of some fits of one network, in the units of the table it was fitted to, and what was
    found beside it.

    `formula` computes the columns that the encoder reads, where there is one.
    """

    asked: Asked
    formula: Formula | None
    encoder: Encoder
    units: Units
    w: Params  # each leaf with a leading axis of fits
    findings: Findings
    about: dict[str, Any]  # settings chosen, metrics and the version, for a reader
    trees: tuple[int, int] = (0, 0)  # beside the network, their number and depth

    def predict(self, frame: Frame) -> tuple[np.ndarray, list[str]]:
        """Return (n, k) predictions in the units of the targets, and notes on cells that the fit
        had not seen.
        """
        if self.formula is not None:
            frame = self.formula.apply(frame)
        X, notes = self.encoder.encode(frame)
        found = self.outputs(X)
        wrong = ~np.isfinite(found).all(axis=1)
        if wrong.any():
            raise UserError(
                f"{frame.source}, row {wrong.argmax() + 1}: the prediction overflows; its features, or the weights of "
                f"the model, are too large."
            )
        return found, notes

    def outputs(self, X: np.ndarray) -> np.ndarray:
        """Return (n, k) predictions for encoded rows; what overflows is infinite or nan."""
        network = network_of(
            self.encoder.width,
            self.asked.hidden,
            len(self.asked.targets),
            self.trees,
        )
        return self.units.given(
            predict(network, self.w, self.units.features(X)).mean(axis=0)
        )

    def bands(self, values: np.ndarray, level: float) -> tuple[np.ndarray, np.ndarray]:
        """Return the ends of bands around predictions that hold new rows with probability `level`.

        Around a quantile the two ends are found apart, as half of the rows need not be below it.
        """
        symmetric = self.asked.level is None
        ends = np.array(
            [
                conformal_band(column, level, symmetric)
                for column in self.findings.residuals.T
            ]
        )
        return values + ends[:, 0], values + ends[:, 1]

    @property
    def fits(self) -> int:
        """Return how many fits the prediction is the mean of."""
        return len(jax.tree.leaves(self.w)[0])

    def packed(self) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
        """Return the model as JSON and arrays."""
        found, numbers = packed(self.findings)
        formula = None
        if self.formula is not None:
            formula = dataclasses.asdict(self.formula)
        text = {
            "asked": dataclasses.asdict(self.asked),
            "formula": formula,
            "features": [
                dataclasses.asdict(feature) for feature in self.encoder.features
            ],
            "left_out": self.encoder.left_out,
            "about": self.about,
            "findings": found,
            "trees": list(self.trees),
        }
        arrays = {f"findings.{name}": value for name, value in numbers.items()}
        arrays |= {
            f"w{i}": np.asarray(leaf) for i, leaf in enumerate(jax.tree.leaves(self.w))
        }
        arrays |= {
            f"units.{name}": value
            for name, value in dataclasses.asdict(self.units).items()
        }
        return text, arrays


def pack_models(models: Sequence[Model]) -> bytes:
    """Return the content of the file of some models: one, or one for each quantile."""
    texts = []
    arrays = {}
    for i, model in enumerate(models):
        text, own = model.packed()
        texts.append(text)
        arrays |= {f"{i}.{name}": value for name, value in own.items()}
    whole = {"format": FORMAT, "version": __version__, "models": texts}
    arrays["json"] = np.frombuffer(json.dumps(whole).encode(), np.uint8)
    buffer = io.BytesIO()
    write_arrays(buffer, arrays)
    return buffer.getvalue()


def load_models(path: str | Path) -> tuple[Model, ...]:
    """Return the models saved at path. Every array is checked before it is made, and nothing is
    unpickled.
    """
    path = Path(path)
    finish(path.parent)
    check_readable(path)
    try:
        arrays = read_arrays(path)
        text = json.loads(arrays.pop("json").tobytes())
        found = text["format"]
        if found == FORMAT:
            models = tuple(
                _model(each, _beginning(arrays, f"{i}."))
                for i, each in enumerate(text["models"])
            )
            _demand(models and _belong_together(models))
            return models
        version = text.get("version")
    except DAMAGED as error:
        raise UserError(
            f"{path} is not a model written by proxlin fit, or it is damaged."
        ) from error
    raise UserError(
        f"{path} is a model of format {str(found)[:20]} (proxlin {str(version)[:20]}); "
        f"proxlin {__version__} reads format {FORMAT}: fit it again."
    )


def _belong_together(models: Sequence[Model]) -> bool:
    """Whether it is one model, or the same fit at rising quantiles."""
    if len(models) == 1:
        return True
    levels = [level for model in models if (level := model.asked.level) is not None]
    if len(levels) < len(models) or levels != sorted(set(levels)):
        return False
    first = models[0]
    return all(
        model.asked.targets == first.asked.targets
        and model.encoder == first.encoder
        and model.formula == first.formula
        for model in models
    )


def _beginning(arrays: dict[str, np.ndarray], prefix: str) -> dict[str, np.ndarray]:
    """Return the arrays whose names begin with a prefix, without it."""
    return {
        name.removeprefix(prefix): value
        for name, value in arrays.items()
        if name.startswith(prefix)
    }


def _model(text: dict[str, Any], arrays: dict[str, np.ndarray]) -> Model:
    """Return a model with everything of the right type, shape and size, or raise one of the errors
    DAMAGED.
    """
    targets = _texts(text["asked"]["targets"])
    asked = Asked(**(text["asked"] | {"targets": targets}))
    _demand(type(asked.hidden) is int and asked.hidden >= 0)
    _demand(asked.weights is None or isinstance(asked.weights, str))
    level = asked.level
    _demand(asked.targets and all(isinstance(name, str) for name in targets))
    _demand(asked.loss in (*CONVEX, "mm") or (level is not None and 0 < level < 1))
    features = tuple(_feature(**each) for each in text["features"])
    encoder = Encoder(features, _texts(text["left_out"]))
    p = encoder.width
    k = len(targets)
    units = Units(
        **{name: _floats(arrays[f"units.{name}"], np.float64) for name in UNITS}
    )
    _demand(units.x_center.shape == units.x_scale.shape == (p,))
    _demand(units.y_center.shape == units.y_scale.shape == (k,))
    _demand(np.all(units.x_scale > 0) and np.all(units.y_scale > 0))
    count, depth = text["trees"]
    _demand(type(count) is int and type(depth) is int)
    _demand(count >= 0 and 0 <= depth <= DEEPEST)
    network = network_of(p, asked.hidden, k, (count, depth))
    shapes = jax.eval_shape(network.init, jax.random.key(0))
    leaves, treedef = jax.tree.flatten(shapes)
    given = [arrays[f"w{i}"] for i in range(len(leaves))]
    fits = given[0].shape[0]
    _demand(fits > 0)
    for x, leaf in zip(given, leaves, strict=True):
        _demand(x.shape == (fits, *leaf.shape))
    w = treedef.unflatten([_floats(x, given[0].dtype) for x in given])
    findings = unpacked(text["findings"], _beginning(arrays, "findings."), p, targets)
    formula = None
    if text["formula"] is not None:
        formula = _formula(**text["formula"])
    if count and asked.hidden:
        feature = w["trees"]["feature"]
        _demand(np.all((feature >= 0) & (feature < p) & (feature == np.round(feature))))
    about = dict(text["about"])
    trees = (count, depth)
    return Model(asked, formula, encoder, units, w, findings, about, trees)


def _formula(text: str, targets: list[str], terms: list[dict[str, Any]]) -> Formula:
    found = []
    for term in terms:
        levels = term["levels"]
        if levels is not None:
            levels = _texts(levels)
        found.append(Term(_texts(term["factors"]), levels))
    _demand(isinstance(text, str))
    return Formula(text, _texts(targets), tuple(found))


def _feature(name: str, levels: list[str] | None, fill: float, flag: bool) -> Feature:
    _demand(isinstance(name, str) and type(flag) is bool and math.isfinite(fill))
    if levels is None:
        return Feature(name, None, float(fill), flag)
    return Feature(name, _texts(levels), float(fill), flag)


def _texts(given: list[str]) -> tuple[str, ...]:
    _demand(isinstance(given, list) and all(isinstance(each, str) for each in given))
    return tuple(given)


def _floats(x: np.ndarray, dtype: Any) -> np.ndarray:
    _demand(x.dtype == dtype and x.dtype != np.uint8 and np.all(np.isfinite(x)))
    return x


def _demand(truth: Any) -> None:
    if not truth:
        raise ValueError
