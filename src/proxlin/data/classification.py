"""Two-class data sets by name: ijcnn1, covtype, a9a and w8a, rows normalised, labels -1 and +1.

`load("ijcnn1")` takes the cache, else the file in PROXLIN_DATA (which is then cached), else synthetic data of the same
shape, and says which. `parts` are what an experiment needs: train, validation and test.
"""

import zlib
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np

from ..errors import UserError
from ..inners import SparseRows
from . import cache
from .libsvm import Table, read
from .origin import SYNTHETIC, Origin

# longest rows of at most 1/12 of the columns stay sparse: 300 columns cross between 12 and 28
# entries
SPARSE = 12
DENSE_BYTES = 2**31  # a dense array above this is not made
ROUNDING = 1e-4  # of the shares of labels, which have four digits below


@dataclass(frozen=True)
class Source:
    """A file: where it is below PROXLIN_DATA, its checksum, its shape, and the share of its larger
    label.

    `sha256` is that of a copy whose content was looked at; `md5` is what public records say of the
    file on the LIBSVM site. Either may be unknown, "".
    """

    file: str
    sha256: str
    rows: int
    columns: int
    positive: float
    md5: str = ""


SOURCES = {
    "ijcnn1": Source(
        "libsvm/ijcnn1.bz2",
        "b38a4198ce142d43e96fb86d17b87211feec1f909ac344fa057455c69de29de3",
        49_990,
        22,
        0.0971,
        "c3e9162f8e38e0b6c0e02d313a59de2b",
    ),
    "ijcnn1.t": Source(
        "libsvm/ijcnn1.t.bz2",
        "acd1db430684fdd3f0c768ecc49aa8e749d0004fc117611220c2aa576a7b6a24",
        91_701,
        22,
        0.0950,
        "66433ab8089acee9e56dc61ac89a2fe2",
    ),
    "covtype": Source(
        "libsvm/covtype.libsvm.binary.bz2",
        "2e3600919f627064b0970259d8e1fa3594cae0d67843c31209aa471eb2b1e86e",
        581_012,
        54,
        0.4876,
        "0d3439b314ce13e2f8b903b12bb3ea20",
    ),
    "a9a": Source(
        "libsvm/a9a", "", 32_561, 123, 0.2408, "fb3596510d780aaf76a06dc721d49662"
    ),
    "a9a.t": Source(
        "libsvm/a9a.t", "", 16_281, 123, 0.2362, "f0bb16cf1ee3e80ff560e9d132ee647e"
    ),
    "w8a": Source(
        "libsvm/w8a", "", 49_749, 300, 0.0297, "05cdbfad8de0af3887c0e6f42fddc32b"
    ),
    "w8a.t": Source(
        "libsvm/w8a.t", "", 14_951, 300, 0.0304, "938543adbdc198246247d5d2015f01e8"
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
    "usual": ("b", 0),
    "source": ("U", 0),
}
# data sets that come with a test set of their own
TESTS = {"ijcnn1": "ijcnn1.t", "a9a": "a9a.t", "w8a": "w8a.t"}


@dataclass(frozen=True)
class Labelled:
    """Rows x, an array or `SparseRows`, with labels y = -1 or +1; `source` says where they come
    from.

    `content` is the checksum of their file, or "synthetic"; `usual` says whether it is a known one.
    """

    name: str
    x: Any
    y: np.ndarray
    source: str
    content: str
    usual: bool = False

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


class Kept(NamedTuple):
    """What the cache has of a data set: its rows, the checksum of the file that it was, whether
    that is a known one, and where the file was.
    """

    table: Table
    sha256: str
    usual: bool
    source: str


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
    known(name)
    kept = cached(name)
    path = in_data_folder(name)
    if kept is None and path is not None:
        kept = get(name, path, keep=False)
    if kept is None:
        say(
            f"{name}: no file of it in PROXLIN_DATA or the cache, so synthetic data of its shape is used."
        )
        return synthetic(name, dtype)
    return labelled(
        name, kept.table, origin(name, kept), dtype, kept.sha256, kept.usual
    )


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
    used = [data]
    order = np.random.default_rng(seed).permutation(len(data))
    if name in TESTS:
        held = load(TESTS[name], say, dtype)
        used.append(held)
    else:
        count = round(test * len(data))
        held = data[np.sort(order[:count])]
        order = order[count:]
    count = round(validation * len(order))
    watched = data[np.sort(order[:count])]
    train = data[np.sort(order[count:])]
    return Parts(
        train, watched, held, _together(name, [_origin(each) for each in used])
    )


def origin_of(name: str) -> Origin:
    """Return where the rows of `parts(name)` come from, its test set included."""
    names = [name]
    if name in TESTS:
        names.append(TESTS[name])
    return _together(name, [_found(each) for each in names])


def _origin(data: Labelled) -> Origin:
    if data.synthetic:
        return _stand_in(data.name)
    kind = "file" if data.usual else "another file"
    return Origin(data.name, kind, data.source, data.content)


def _found(name: str) -> Origin:
    """Return where the rows that `load` would take come from."""
    kept = cached(name)
    path = in_data_folder(name)
    if kept is not None:
        kind = "file" if kept.usual else "another file"
        return Origin(name, kind, origin(name, kept), kept.sha256)
    if path is None:
        return _stand_in(name)
    content = cache.sha256(path)
    usual = is_usual(name, path, content)
    kind = "file" if usual else "another file"
    return Origin(name, kind, _file_in_words(name, content, usual), content)


def _stand_in(name: str) -> Origin:
    source = (
        f"synthetic data of its shape, because neither PROXLIN_DATA nor the cache has a file of it "
        f"(`proxlin data get {name}` downloads it)"
    )
    return Origin(name, "synthetic", source, SYNTHETIC)


def _together(name: str, origins: list[Origin]) -> Origin:
    """Return the origin of a data set from those of its files."""
    missing = [each for each in origins if each.kind == "synthetic"]
    if missing and len(missing) < len(origins):
        first = missing[0].name
        raise UserError(
            f"{first} is missing beside the other part of {name}; `proxlin data get {first}` downloads it."
        )
    if missing:
        return _stand_in(name)
    kind = "file"
    if any(each.kind != "file" for each in origins):
        kind = "another file"
    source = " and ".join(each.source for each in origins)
    return Origin(name, kind, source, " ".join(each.content for each in origins))


def known(name: str) -> Source:
    """Return the file of a data set, or raise a sentence."""
    if name not in SOURCES:
        raise UserError(
            f"there is no data set {name}; take one of {', '.join(SOURCES)}."
        )
    return SOURCES[name]


def labelled(
    name: str,
    table: Table,
    source: str,
    dtype: Any = np.float64,
    content: str = "",
    usual: bool = False,
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
    return Labelled(name, x, table.labels.astype(dtype), source, content, usual)


# --------------------------------------------------------------------------------------- real files


def in_data_folder(name: str) -> Path | None:
    """Return the file of a data set in PROXLIN_DATA, if it is there."""
    source = known(name)
    folder = cache.data_folder()
    if folder is None:
        return None
    path = folder / source.file
    return path if path.exists() else None


def get(
    name: str,
    path: Path,
    sha256: str | None = None,
    keep: bool = True,
    source: str | None = None,
) -> Kept:
    """Return the normalised rows of a file, checked and kept in the cache; keep=False: if that can
    be written.

    With `sha256` the file must have this checksum. Without it, a file with an unknown checksum must have
    the rows, columns and labels of the data set. `source` is where it was had, if not at its path.
    """
    expected = known(name)
    found = cache.check_sha256(path, sha256)
    usual = is_usual(name, path, found)
    table = read(path, expected.columns)
    if not usual and not sha256:
        _check_counts(name, path, found, table)
    kept = Kept(table.normalized(), found, usual, source or str(path))
    try:
        cache.store(_entry(name), _arrays(kept))
    except OSError:
        if keep:
            raise
    return kept


def is_usual(name: str, path: Path, sha256: str) -> bool:
    """Return whether a checksum of a file, SHA-256 or else md5, is known for the data set."""
    source = known(name)
    if source.sha256 and sha256 == source.sha256:
        return True
    return bool(source.md5) and cache.md5(path) == source.md5


def _check_counts(name: str, path: Path, sha256: str, table: Table) -> None:
    """Refuse a file with another number of rows, or with other shares of the labels."""
    source = known(name)
    share = float(np.mean(table.labels > 0))
    if len(table) != source.rows:
        why = f"it has {len(table):,d} rows where {name} has {source.rows:,d}"
    elif abs(share - source.positive) > ROUNDING:
        why = f"a share {share:.4f} of its labels is the larger one, where {name} has {source.positive:.4f}"
    else:
        return
    raise UserError(
        f"{path}: its SHA-256 is {sha256}, which is not known for {name}, and {why}; if you trust the file, "
        f"give its own as sha256."
    )


def origin(name: str, kept: Kept) -> str:
    """Say which file data came from."""
    return _file_in_words(name, kept.sha256, kept.usual)


def _file_in_words(name: str, sha256: str, usual: bool) -> str:
    if usual:
        return Path(known(name).file).name
    return f"another file for {name}, SHA-256 {sha256}"


def entry(name: str) -> Path:
    """Return the file in the cache."""
    return cache.entry(_entry(name))


def _entry(name: str) -> str:
    known(name)
    return f"libsvm/{name}"


def cached(name: str) -> Kept | None:
    """Return what the cache has of a data set, if it is whole."""
    arrays = cache.fetch(_entry(name))
    if arrays is None:
        return None
    return table_of(arrays)


def table_of(arrays: dict[str, np.ndarray]) -> Kept | None:
    """Return the table that `_arrays` took apart, and what is known of its file; None if the arrays
    are not those of a table.
    """
    if {
        name: (array.dtype.kind, array.ndim) for name, array in arrays.items()
    } != FIELDS:
        return None
    labels, starts, columns, values, width, sha256, usual, source = (
        arrays[name] for name in FIELDS
    )
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
    table = Table(labels, starts, columns, values, int(width))
    return Kept(table, str(sha256), bool(usual), str(source))


def _arrays(kept: Kept) -> dict[str, np.ndarray]:
    table = kept.table
    return {
        "labels": table.labels,
        "starts": table.starts,
        "columns": table.columns,
        "values": table.values,
        "width": np.array(table.width),
        "sha256": np.array(kept.sha256),
        "usual": np.array(kept.usual),
        "source": np.array(kept.source),
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
