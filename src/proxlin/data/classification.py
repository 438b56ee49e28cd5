"""Two-class data sets by name: ijcnn1 and covtype, rows normalised, labels -1 and +1.

`load("ijcnn1")` takes the cache, else the file in PROXLIN_DATA (which is then cached), else synthetic data of the same
shape, and says which. `parts` are what an experiment needs: train, validation and test.
"""

import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import jax
import numpy as np

from ..errors import UserError
from ..files.reading import check_readable
from ..inners import SparseRows
from . import cache
from .libsvm import Table, read
from .origin import SYNTHETIC, Origin

# longest rows of at most 1/12 of the columns stay sparse: 300 columns cross between 12 and 28
# entries
SPARSE = 12
DENSE_BYTES = 2**31  # a dense array above this is not made


@dataclass(frozen=True)
class Source:
    """A file: where it is below PROXLIN_DATA, its checksum, its shape, and the share of its larger
    label.
    """

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
# The arrays of an entry in the cache: the kind of each and its number of axes.
FIELDS = {
    "labels": ("f", 1),
    "starts": ("i", 1),
    "columns": ("i", 1),
    "values": ("f", 1),
    "width": ("i", 0),
    "sha256": ("U", 0),
}
TESTS = {"ijcnn1": "ijcnn1.t"}  # data sets that come with a test set of their own


@dataclass(frozen=True)
class Labelled:
    """Rows x, an array or `SparseRows`, with labels y = -1 or +1; `source` says where they come
    from.

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
        if isinstance(self.x, SparseRows):
            return self.x.columns
        return self.x.shape[1]

    def __getitem__(self, rows: slice | np.ndarray) -> "Labelled":
        x = jax.tree.map(lambda array: array[rows], self.x)
        return replace(self, x=x, y=self.y[rows])


@dataclass(frozen=True)
class Parts:
    """Tune on `validation`, which is a part of the training set; judge on `test`, once."""

    train: Labelled
    validation: Labelled
    test: Labelled
    origin: Origin


def load(
    name: str, say: Callable[[str], Any] = print, dtype: Any = np.float64
) -> Labelled:
    """Return a data set by its name, rows normalised; real where it can be had, and `say` is told
    where it is not.
    """
    sha256 = known(name).sha256
    found = cached(name)
    path = in_data_folder(name)
    if found is not None:
        table, sha256 = found
    elif path is not None:
        table = get(name, path, keep=False)
    else:
        say(
            f"{name}: no file of it in PROXLIN_DATA or the cache, so synthetic data of its shape is used."
        )
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
    """Split the rows by a seeded permutation; a set with a test set of its own keeps all of its
    rows to train.
    """
    data = load(name, say, dtype)
    contents = {name: data.content}
    order = np.random.default_rng(seed).permutation(len(data))
    if name in TESTS:
        held = load(TESTS[name], say, dtype)
        contents[held.name] = held.content
    else:
        count = round(test * len(data))
        held = data[np.sort(order[:count])]
        order = order[count:]
    count = round(validation * len(order))
    watched = data[np.sort(order[:count])]
    train = data[np.sort(order[count:])]
    return Parts(train, watched, held, _origin(name, contents))


def origin_of(name: str) -> Origin:
    """Return where the rows of `parts(name)` come from, its test set included."""
    names = [name]
    if name in TESTS:
        names.append(TESTS[name])
    return _origin(name, {each: _content(each) for each in names})


def _content(name: str) -> str:
    """Return the checksum of the file that `load` would take, or "synthetic"."""
    found = cached(name)
    if found is not None:
        _, sha256 = found
        return sha256
    if in_data_folder(name) is None:
        return SYNTHETIC
    return known(name).sha256


def _origin(name: str, contents: Mapping[str, str]) -> Origin:
    """Return the origin of a data set from the contents of its files."""
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
    kind = "file" if usual else "another file"
    source = " and ".join(origin(each, content) for each, content in contents.items())
    return Origin(name, kind, source, " ".join(contents.values()))


def known(name: str) -> Source:
    """Return the file of a data set, or raise a sentence."""
    if name not in SOURCES:
        raise UserError(
            f"there is no data set {name}; take one of {', '.join(SOURCES)}."
        )
    return SOURCES[name]


def labelled(
    name: str, table: Table, source: str, dtype: Any = np.float64, content: str = ""
) -> Labelled:
    """Return the rows dense or sparse, whichever is faster; what would be too large an array stays
    sparse.
    """
    longest = int(np.diff(table.starts).max(initial=0))
    size = len(table) * table.width * np.dtype(dtype).itemsize
    if longest * SPARSE > table.width and size <= DENSE_BYTES:
        x = table.dense(dtype)
    else:
        x = table.sparse(dtype)
    return Labelled(name, x, table.labels.astype(dtype), source, content)


# --------------------------------------------------------------------------------------- real files


def in_data_folder(name: str) -> Path | None:
    """Return the file of a data set in PROXLIN_DATA, if it is there."""
    source = known(name)
    folder = cache.data_folder()
    if folder is None:
        return None
    path = folder / source.file
    return path if path.exists() else None


def get(name: str, path: Path, sha256: str | None = None, keep: bool = True) -> Table:
    """Return the normalised rows of a file, checked and kept in the cache; keep=False: if that can
    be written.
    """
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
    """Say which file data came from."""
    source = known(name)
    if sha256 == source.sha256:
        return Path(source.file).name
    return f"another file for {name}, SHA-256 {sha256}"


def entry(name: str) -> Path:
    """Return the file in the cache."""
    return cache.entry(_entry(name))


def _entry(name: str) -> str:
    known(name)
    return f"libsvm/{name}"


def cached(name: str) -> tuple[Table, str] | None:
    """Return what the cache has of a data set, if it is whole, and the checksum of the file that it
    was.
    """
    arrays = cache.fetch(_entry(name))
    if arrays is None:
        return None
    return table_of(arrays)


def table_of(arrays: dict[str, np.ndarray]) -> tuple[Table, str] | None:
    """Return the table that `_arrays` took apart, and its checksum; None if the arrays are not
    those of a table.
    """
    if {
        name: (array.dtype.kind, array.ndim) for name, array in arrays.items()
    } != FIELDS:
        return None
    labels, starts, columns, values, width, sha256 = (arrays[name] for name in FIELDS)
    good = (
        len(starts) == len(labels) + 1
        and starts[0] == 0
        and starts[-1] == len(columns) == len(values)
        and np.all(np.diff(starts) >= 0)
        and np.all((columns >= 0) & (columns < width))
        and np.isfinite(values).all()
        and np.isin(labels, (-1.0, 1.0)).all()
    )
    if not good:
        return None
    return Table(labels, starts, columns, values, int(width)), str(sha256)


def _arrays(table: Table, sha256: str) -> dict[str, np.ndarray]:
    return {
        "labels": table.labels,
        "starts": table.starts,
        "columns": table.columns,
        "values": table.values,
        "width": np.array(table.width),
        "sha256": np.array(sha256),
    }


# ---------------------------------------------------------------------------------------- synthetic


def synthetic(name: str, dtype: Any = np.float64) -> Labelled:
    """Make data of the shape and the labels' shares of a data set: x has a decaying spectrum, y is
    a noisy plane's.

    A data set and its test set have one plane. Everything random follows from the name.
    """
    source = known(name)
    train_names = {test: train for train, test in TESTS.items()}
    base = train_names.get(name, name)
    plane = _random(base).normal(size=source.columns)
    rng = _random(f"rows of {name}")
    x = rng.normal(size=(source.rows, source.columns)) / np.sqrt(
        np.arange(1, source.columns + 1)
    )
    x /= np.linalg.norm(x, axis=1, keepdims=True)
    score = x @ plane
    score += 0.5 * score.std() * rng.normal(size=source.rows)
    threshold = np.quantile(score, 1 - source.positive)
    y = np.where(score > threshold, 1.0, -1.0)
    return Labelled(
        name,
        x.astype(dtype),
        y.astype(dtype),
        f"synthetic, of the shape of {name}",
        SYNTHETIC,
    )


def _random(text: str) -> np.random.Generator:
    return np.random.default_rng(zlib.crc32(text.encode()))
