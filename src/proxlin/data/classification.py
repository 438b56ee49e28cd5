"""Two-class data sets by name: ijcnn1 and covtype, rows normalised, labels -1 and +1.

`load("ijcnn1")` takes the cache, else the file in PROXLIN_DATA (which is then cached), else synthetic data of the same
shape, and says which. `parts` are what an experiment needs: train, validation and test.
"""

import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from ..errors import UserError
from ..files.reading import check_readable
from ..inners import SparseRows
from . import cache
from .libsvm import Table, read
from .origin import SYNTHETIC, Origin

SPARSE = 12  # longest rows of at most 1/12 of the columns stay sparse: 300 columns cross between 12 and 28 entries
DENSE_BYTES = 2**31  # a dense array above this is not made


@dataclass(frozen=True)
class Source:
    """A file: where it is below PROXLIN_DATA, its checksum, its shape, and the share of its larger label."""

    file: str
    sha256: str
    rows: int
    columns: int
    positive: float


SOURCES = {
    "ijcnn1": Source(
        "libsvm/ijcnn1.bz2",
        "b38a4198ce142d43e96fb86d17b87211feec1f909ac344fa057455c69de29de3",
        49_990,
        22,
        0.0971,
    ),
    "ijcnn1.t": Source(
        "libsvm/ijcnn1.t.bz2",
        "acd1db430684fdd3f0c768ecc49aa8e749d0004fc117611220c2aa576a7b6a24",
        91_701,
        22,
        0.0950,
    ),
    "covtype": Source(
        "libsvm/covtype.libsvm.binary.bz2",
        "2e3600919f627064b0970259d8e1fa3594cae0d67843c31209aa471eb2b1e86e",
        581_012,
        54,
        0.4876,
    ),
}
# Of an entry in the cache: the kind of each array and its number of axes.
FIELDS = {"labels": ("f", 1), "starts": ("i", 1), "columns": ("i", 1), "values": ("f", 1)}
FIELDS |= {"width": ("i", 0), "sha256": ("U", 0)}
TESTS = {"ijcnn1": "ijcnn1.t"}  # data sets that come with a test set of their own


@dataclass(frozen=True)
class Labelled:
    """Rows x, an array or `SparseRows`, with labels y = -1 or +1; `source` says where they come from.

    `content` is the checksum of their file, or "synthetic".
    """

    name: str
    x: Any
    y: np.ndarray
    source: str
    content: str

    @property
    def synthetic(self) -> bool:
        return self.content == SYNTHETIC

    def __len__(self) -> int:
        return len(self.y)

    @property
    def columns(self) -> int:
        return self.x.columns if isinstance(self.x, SparseRows) else self.x.shape[1]

    def __getitem__(self, rows: slice | np.ndarray) -> "Labelled":
        x = self.x
        part = SparseRows(x.indices[rows], x.values[rows], x.columns) if isinstance(x, SparseRows) else x[rows]
        return replace(self, x=part, y=self.y[rows])


@dataclass(frozen=True)
class Parts:
    """Tune on `validation`, which is a part of the training set; judge on `test`, once."""

    train: Labelled
    validation: Labelled
    test: Labelled
    origin: Origin


def load(name: str, say: Callable[[str], Any] = print, dtype: Any = np.float64) -> Labelled:
    """A data set by its name, rows normalised; real where it can be had, and `say` is told where it is not."""
    sha256 = known(name).sha256
    if (found := cached(name)) is not None:
        table, sha256 = found
    elif (path := in_data_folder(name)) is not None:
        table = get(name, path, keep=False)
    else:
        say(f"{name}: no file of it in PROXLIN_DATA or the cache, so synthetic data of its shape is used.")
        return synthetic(name, dtype)
    return labelled(name, table, origin(name, sha256), dtype, sha256)


def parts(
    name: str,
    seed: int = 0,
    validation: float = 0.2,
    test: float = 0.2,
    say: Callable[[str], Any] = print,
    dtype: Any = np.float64,
) -> Parts:
    """Shares of the rows by a seeded permutation; a set with a test set of its own keeps all of its rows to train."""
    data = load(name, say, dtype)
    contents = {name: data.content}
    order = np.random.default_rng(seed).permutation(len(data))
    if name in TESTS:
        held = load(TESTS[name], say, dtype)
        contents[held.name] = held.content
    else:
        count = round(test * len(data))
        held, order = data[np.sort(order[:count])], order[count:]
    count = round(validation * len(order))
    return Parts(data[np.sort(order[count:])], data[np.sort(order[:count])], held, _origin(name, contents))


def origin_of(name: str) -> Origin:
    """Where the rows of `parts(name)` come from, its test set included."""
    return _origin(name, {each: _content(each) for each in (name, TESTS.get(name)) if each is not None})


def _content(name: str) -> str:
    """The checksum of the file that `load` would take, or "synthetic"."""
    if (found := cached(name)) is not None:
        return found[1]
    return SYNTHETIC if in_data_folder(name) is None else known(name).sha256


def _origin(name: str, contents: Mapping[str, str]) -> Origin:
    """The origin of a data set from the contents of its files."""
    missing = [each for each, content in contents.items() if content == SYNTHETIC]
    if missing and len(missing) < len(contents):
        raise UserError(
            f"{missing[0]} is missing beside the other part of {name}; `proxlin data get {missing[0]}` reads its file "
            f"into the cache."
        )
    if missing:
        source = (
            f"synthetic data of its shape, because neither PROXLIN_DATA nor the cache has a file of it "
            f"(`proxlin data get {name}` reads one into the cache)"
        )
        return Origin(name, "synthetic", source, SYNTHETIC)
    usual = all(content == known(each).sha256 for each, content in contents.items())
    source = " and ".join(origin(each, content) for each, content in contents.items())
    return Origin(name, "file" if usual else "another file", source, " ".join(contents.values()))


def known(name: str) -> Source:
    if name not in SOURCES:
        raise UserError(f"there is no data set {name}; take one of {', '.join(SOURCES)}.")
    return SOURCES[name]


def labelled(name: str, table: Table, source: str, dtype: Any = np.float64, content: str = "") -> Labelled:
    """Dense or sparse, whichever is faster; what would be too large an array stays sparse."""
    longest = int(np.diff(table.starts).max(initial=0))
    dense = longest * SPARSE > table.width and len(table) * table.width * np.dtype(dtype).itemsize <= DENSE_BYTES
    x = table.dense(dtype) if dense else table.sparse(dtype)
    return Labelled(name, x, table.labels.astype(dtype), source, content)


# ------------------------------------------------------------------------------------------------------- real files


def in_data_folder(name: str) -> Path | None:
    folder = cache.data_folder()
    path = folder / known(name).file if folder else None
    return path if path is not None and path.exists() else None


def get(name: str, path: Path, sha256: str | None = None, keep: bool = True) -> Table:
    """The normalised rows of a file, checked and kept in the cache; keep=False: if that can be written."""
    source = known(name)
    wanted = (sha256 or source.sha256).lower()
    check_readable(path)
    found = cache.sha256(path)
    if found != wanted:
        raise UserError(
            f"{path}: its SHA-256 is {found}, but that of {name} is {wanted}; if you trust the file, "
            f"give its own as sha256."
        )
    table = read(path, source.columns).normalized()
    try:
        cache.store(_entry(name), _arrays(table, found))
    except OSError:
        if keep:
            raise
    return table


def origin(name: str, sha256: str) -> str:
    """The file that data came from, in words."""
    source = known(name)
    return Path(source.file).name if sha256 == source.sha256 else f"another file for {name}, SHA-256 {sha256}"


def entry(name: str) -> Path:
    """The file in the cache."""
    return cache.entry(_entry(name))


def _entry(name: str) -> str:
    known(name)
    return f"libsvm/{name}"


def cached(name: str) -> tuple[Table, str] | None:
    """What the cache has of a data set, if it is whole, and the checksum of the file that it was."""
    arrays = cache.fetch(_entry(name))
    return None if arrays is None else table_of(arrays)


def table_of(arrays: dict[str, np.ndarray]) -> tuple[Table, str] | None:
    """The table that `_arrays` took apart, and its checksum; None if the arrays are not those of a table."""
    if arrays.keys() != FIELDS.keys() or any(arrays[name].ndim != axes for name, (_, axes) in FIELDS.items()):
        return None
    if any(arrays[name].dtype.kind not in kind for name, (kind, _) in FIELDS.items()):
        return None
    labels, starts, columns, values, width, sha256 = (arrays[name] for name in FIELDS)
    whole = len(starts) == len(labels) + 1 and starts[0] == 0 and starts[-1] == len(columns) == len(values)
    inside = whole and np.all(np.diff(starts) >= 0) and np.all((columns >= 0) & (columns < width))
    good = inside and np.isfinite(values).all() and np.isin(labels, (-1.0, 1.0)).all()
    return (Table(labels, starts, columns, values, int(width)), str(sha256)) if good else None


def _arrays(table: Table, sha256: str) -> dict[str, np.ndarray]:
    return {
        "labels": table.labels,
        "starts": table.starts,
        "columns": table.columns,
        "values": table.values,
        "width": np.array(table.width),
        "sha256": np.array(sha256),
    }


# ------------------------------------------------------------------------------------------------------- synthetic


def synthetic(name: str, dtype: Any = np.float64) -> Labelled:
    """The shape and the labels' shares of a data set: x normal with a decaying spectrum, y by a noisy plane.

    A data set and its test set have one plane. Nothing random but by the name.
    """
    source = known(name)
    base = next((train for train, test in TESTS.items() if test == name), name)
    plane = np.random.default_rng(zlib.crc32(base.encode())).normal(size=source.columns)
    rng = np.random.default_rng(zlib.crc32(f"rows of {name}".encode()))
    x = rng.normal(size=(source.rows, source.columns)) / np.sqrt(np.arange(1, source.columns + 1))
    x /= np.linalg.norm(x, axis=1, keepdims=True)
    score = x @ plane
    score += 0.5 * score.std() * rng.normal(size=source.rows)
    y = np.where(score > np.quantile(score, 1 - source.positive), 1.0, -1.0)
    return Labelled(name, x.astype(dtype), y.astype(dtype), f"synthetic, of the shape of {name}", SYNTHETIC)
