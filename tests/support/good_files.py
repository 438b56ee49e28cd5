"""Every reader of the package, with good files for it: what the slow tests damage.

    READERS    name -> Reader(seeds, read, errors)

`read(path)` uses what it reads as a caller would; whatever the file holds, it returns or raises one of `errors`.
"""

import base64
import bz2
import datetime
import functools
import gzip
import io
import lzma
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pyarrow as pa
import pyarrow.parquet

import damage
import proxlin as px
from guard import limited
from proxlin.data import cache, classification, libsvm, maps, sequences, terrain
from proxlin.data.frames import read_frame
from proxlin.errors import UserError
from proxlin.experiments import experiments
from proxlin.experiments.engine import report
from proxlin.experiments.engine.config import profiles
from proxlin.experiments.engine.store import FILE, open_store
from proxlin.tables.asked import Asked
from proxlin.tables.columns import encoder_of, numbers_of, targets_of
from proxlin.tables.findings import Findings, Shown
from proxlin.tables.formula import Formula, Term
from proxlin.tables.linear import Line
from proxlin.tables.losses import QUANTILE
from proxlin.tables.model import Model, load_models, pack_models
from proxlin.tables.standardize import units_of
from proxlin.tables.training import network_of


@dataclass(frozen=True)
class Reader:
    """Good files by name, how one is read in a folder of its own, its errors, and what takes the
    file apart.
    """

    seeds: Callable[[], dict[str, bytes]]
    read: Callable[[Path], object]
    errors: tuple[type[Exception], ...] = (UserError,)
    codec: damage.Codec | None = None


def outcome(reader: Reader, path: Path) -> str:
    """ "read" or "refused"; any other end of it is an error of the test."""
    try:
        with limited():
            reader.read(path)
    except reader.errors as error:
        sentence = str(error)
        assert sentence.endswith((".", "?")) and len(sentence.splitlines()) == 1, (
            sentence
        )
        return "refused"
    return "read"


# -------------------------------------------------------------------------------------------- texts

SVM = b"".join(
    b"%d %s\n"
    % (1 + i % 2, b" ".join(b"%d:%r" % (j, (i * j) % 7 / 4) for j in range(1, 6)))
    for i in range(9)
)
COLOURS = ("red", "green", "blue", "")
ROWS = [
    (f"{0.25 * i - 1:g}", COLOURS[i % 4], f"{3 * i % 11}", f"{i * i - 4.5}")
    for i in range(24)
]
NAMES = ("a", "colour", "b", "y")
ARFF = (
    "@relation r\n@attribute a real\n@attribute 'colour' {red, green, blue}\n"
    "@attribute b integer\n@attribute y real\n"
)


def _text(separator: str = ",", head: bool = True) -> bytes:
    lines = [NAMES, *ROWS] if head else ROWS
    return "".join(separator.join(line) + "\n" for line in lines).encode()


def _arff() -> bytes:
    return (ARFF + "@data\n").encode() + _text(head=False).replace(b",,", b",?,")


def _parquet() -> dict[str, bytes]:
    columns = dict(zip(NAMES, zip(*ROWS, strict=True), strict=True))
    typed = {
        name: list(x) if name == "colour" else [float(cell) for cell in x]
        for name, x in columns.items()
    }
    found = {}
    for compression in ("none", "snappy", "zstd"):
        buffer = io.BytesIO()
        pyarrow.parquet.write_table(pa.table(typed), buffer, compression=compression)
        found[f"{compression}.parquet"] = buffer.getvalue()
    return found


def _arrow() -> dict[str, bytes]:
    """Files and a stream, packed and not, one of them with coded texts."""
    columns = dict(zip(NAMES, zip(*ROWS, strict=True), strict=True))
    table = pa.table(
        {
            name: pa.array(x if name == "colour" else [float(cell) for cell in x])
            for name, x in columns.items()
        }
    )
    coded = table.set_column(1, "colour", table["colour"].dictionary_encode())
    found = {}
    for name, each, packed in (
        ("plain.arrow", table, None),
        ("packed.feather", table, "lz4"),
        ("coded.feather", coded, "zstd"),
    ):
        buffer = io.BytesIO()
        options = pa.ipc.IpcWriteOptions(compression=packed)
        with pa.ipc.new_file(buffer, each.schema, options=options) as writer:
            writer.write_table(each, max_chunksize=10)
        found[name] = buffer.getvalue()
    buffer = io.BytesIO()
    with pa.ipc.new_stream(buffer, table.schema) as writer:
        writer.write_table(table)
    return found | {"stream.arrow": buffer.getvalue()}


def workbook(rows: list[tuple], **sheets: list[tuple]) -> bytes:
    """A workbook of a sheet "Data", and of others."""
    import openpyxl

    book = openpyxl.Workbook()
    book.active.title = "Data"
    for title, each in {"Data": rows, **sheets}.items():
        sheet = book[title] if title == "Data" else book.create_sheet(title)
        for row in each:
            sheet.append(row)
    buffer = io.BytesIO()
    book.save(buffer)
    return buffer.getvalue()


@functools.cache
def _excel() -> dict[str, bytes]:
    day = datetime.date(2024, 1, 1)
    rows = [
        (
            float(a),
            colour or None,
            i % 2 == 0,
            day + datetime.timedelta(i // 8),
            float(y),
        )
        for i, (a, colour, _, y) in enumerate(ROWS)
    ]
    return {"a.xlsx": workbook([("a", "colour", "flag", "day", "y"), *rows])}


def _use_frame(path: Path) -> None:
    """What `proxlin fit` and `proxlin advise` do with a table before they compute."""
    frame = read_frame(path)
    table = numbers_of(frame, frame.names[-1:])
    units = units_of(table.X, table.y)
    assert np.isfinite(units.targets(table.y)).all()
    assert np.isfinite(units.features(table.X)).all()


def _use_numerals(path: Path) -> None:
    read_frame(path, ",", ".", categories=("colour",))


def _use_libsvm(path: Path) -> None:
    table = libsvm.read(path)
    assert (
        set(np.unique(table.labels)) <= {-1.0, 1.0}
        and np.isfinite(table.normalized().values).all()
    )
    classification.labelled("read", table, "here")


def _use_config(path: Path) -> None:
    """What `proxlin reproduce NAME --config NAME.toml` does before it runs."""
    experiment = experiments()[path.stem]
    assert experiment.check is not None
    for table in profiles(path.read_bytes(), str(path)).values():
        experiment.check(table)


def _configs() -> dict[str, bytes]:
    return {
        path.name: path.read_bytes()
        for path in files("proxlin").joinpath("experiments/configs").iterdir()
        if "toml" in path.name
    }


# ----------------------------------------------------------------------------------------- archives


def _npz(**arrays: np.ndarray) -> bytes:
    buffer = io.BytesIO()
    np.savez(buffer, allow_pickle=False, **arrays)
    return buffer.getvalue()


def _words() -> bytes:
    words = sequences.synthetic_words(12)
    inside = np.arange(words.labels.shape[1])[None] < words.lengths[:, None]
    pixels = np.packbits(words.pixels[inside], axis=1)
    return _npz(
        pixels=pixels,
        labels=words.labels[inside],
        word_lengths=words.lengths,
        folds=words.folds,
    )


def _use_words(path: Path) -> None:
    words = sequences.load_words(path)
    words.text()
    words.data()


@functools.cache
def _maps() -> dict[str, bytes]:
    made = maps.terrain_maps(3, 2, 3, 4)
    arrays = {
        "maps": made.pixels,
        "vertex_weights": -made.rewards,
        "shortest_paths": made.paths.reshape(3, 2, 3),
    }
    found = {}
    for part, array in arrays.items():
        buffer = io.BytesIO()
        np.save(buffer, array, allow_pickle=False)
        found[f"train_{part}.npy"] = buffer.getvalue()
    return found


def _use_maps(path: Path) -> None:
    for name, content in _maps().items():
        if name != path.name:
            (path.parent / name).write_bytes(content)
    maps.load_warcraft(path.parent, check=False).tiles()


@functools.cache
def _tiles() -> dict[str, bytes]:
    from PIL import Image

    found = {}
    for j, name in enumerate(terrain.TERRAINS):
        buffer = io.BytesIO()
        Image.fromarray(np.full((16, 16, 3), 40 * j, np.uint8)).save(buffer, "PNG")
        found[f"{name}.png"] = buffer.getvalue()
    return found


def _use_tiles(path: Path) -> None:
    for name, content in _tiles().items():
        if name != path.name:
            (path.parent / name).write_bytes(content)
    terrain.read_tiles(path.parent, 8)


def _cache() -> bytes:
    table = libsvm.Table(*_small(), width=5)
    arrays = {
        "labels": table.labels,
        "starts": table.starts,
        "columns": table.columns,
        "values": table.values,
    }
    return _npz(
        format=np.int64(cache.FORMAT),
        width=np.array(5),
        sha256=np.array("0" * 64),
        usual=np.array(True),
        source=np.array("somewhere"),
        **arrays,
    )


def _small() -> tuple[np.ndarray, ...]:
    starts = np.array([0, 2, 3], np.int64)
    return (
        np.array([-1.0, 1.0]),
        starts,
        np.array([0, 3, 4], np.int32),
        np.array([1.0, -2.0, 0.5]),
    )


def _use_cache(path: Path) -> None:
    """Damaged is as good as none, so no error at all. The entry stands in the folder of the file."""
    arrays = cache.fetch(path.stem)
    if arrays is None:
        return
    found = classification.table_of(arrays)
    if found is not None:
        classification.labelled("ijcnn1", found.table.normalized(), found.sha256)


@functools.cache
def model_files() -> dict[str, bytes]:
    """A network with categories and missing cells, and a linear model, each at two quantiles."""
    found = {}
    with_colours = b"a,colour,y\n" + b"".join(
        f"{a},{c},{y}\n".encode() for a, c, _, y in ROWS
    )
    for name, hidden in (("network.npz", 3), ("linear.npz", 0)):
        frame = _frame_of(with_colours)
        y, _ = targets_of(frame, ["y"])
        encoder = encoder_of(frame, ["y"])
        X, _ = encoder.encode(frame)
        network = network_of(encoder.width, hidden, 1)
        w = jax.vmap(lambda key, network=network: network.init(key, jnp.float32))(
            jax.random.split(jax.random.key(0))
        )
        models = [
            Model(
                Asked(("y",), f"{QUANTILE}{level!r}", hidden),
                FORMULA if hidden else None,
                encoder,
                units_of(X, y),
                w,
                findings_for(encoder, ("y",)),
                {"rows": 24, "settings": {"ridge": 0.1}},
            )
            for level in (0.25, 0.75)
        ]
        found[name] = pack_models(models)
    return found


# what a formula is in a file: a name, a product, and numbers for each category
FORMULA = Formula(
    "y ~ a + a:colour",
    ("y",),
    (Term(("a",)), Term(("a", "colour"), ("green", "red"))),
)


def findings_for(encoder: Any, targets: tuple[str, ...]) -> Findings:
    """Findings of the right shapes: one target with a covariance, the others without."""
    k, p = len(targets), encoder.width
    kept = np.arange(p)
    lines = tuple(
        Line(
            target,
            kept,
            np.ones(p + 1),
            np.eye(p + 1) if j == 0 else None,
            "as rlm" if j == 0 else None,
            None if j == 0 else "no reason",
            1.0,
            24,
            True,
        )
        for j, target in enumerate(targets)
    )
    suspect = {
        "row": 3,
        "target": targets[0],
        "value": 1.0,
        "fitted": 2.0,
        "scaled residual": -5.0,
        "false discovery rate": 0.01,
        "distance": 1.5,
        "far": False,
        "column": targets[0],
        "hint": None,
    }
    effect = {
        "feature": encoder.features[0].name,
        "target": targets[0],
        "at": [0.0, 1.0],
        "mean": [1.0, 2.0],
        "size": 1.0,
    }
    shown = Shown(np.arange(4), np.ones((4, k)), np.zeros((4, k)), np.ones(4))
    return Findings(
        lines,
        encoder.names,
        np.ones(k),
        np.linspace(-1, 1, 12 * k).reshape(12, k),
        (suspect,),
        (effect,),
        shown,
        3.0,
        ("a warning",),
    )


def _frame_of(content: bytes) -> Any:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "table.csv"
        path.write_bytes(content)
        return read_frame(path)


def _use_model(path: Path) -> None:
    model = load_models(path)[0]
    cells = {
        f.name: ["0.5", "", "1"] if f.levels is None else ["red", "", "pink"]
        for f in model.encoder.features
    }
    if len(cells) == len(model.encoder.features) and all(
        not set(name) & set('\n\r,"') for name in cells
    ):
        X, _ = model.encoder.encode(_columns(cells))
        assert X.shape == (3, model.encoder.width)


def _columns(cells: dict[str, list[str]]) -> Any:
    from proxlin.data.formats.numerals import column_of
    from proxlin.data.frames import Frame

    arrays = {
        name: pa.array([cell or None for cell in column], pa.string())
        for name, column in cells.items()
    }
    return Frame(
        "new", tuple(column_of("new", name, column) for name, column in arrays.items())
    )


@functools.cache
def _problem() -> Any:
    x, y = np.linspace(-1, 1, 12).reshape(6, 2), np.ones((6, 1))
    inner = px.residual(lambda w, x: x @ w["W"] + w["b"][0])
    return px.MeanOfLosses(inner, px.L1(), (x, y)), {
        "W": jnp.zeros((2, 1)),
        "b": (jnp.zeros(1), None),
    }


@functools.cache
def _solutions() -> dict[str, bytes]:
    problem, w = _problem()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "solution"
        px.minimize(problem, w, px.sgd(0.1), steps=4).save(path)
        return {"solution.npz": path.read_bytes()}


def _use_solution(path: Path) -> None:
    solution = px.load_solution(path)
    repr(solution), solution.records()
    solution.save(path.with_name("again.npz"))
    problem, w = _problem()
    like = lambda tree: [(np.shape(x), x.dtype) for x in jax.tree.leaves(tree)]
    same = jax.tree.structure(solution.w) == jax.tree.structure(w) and like(
        solution.w
    ) == like(w)
    if same and solution.history["step"][-1] == 4:
        px.minimize(problem, w, px.sgd(0.1), steps=4, resume=solution)


# -------------------------------------------------------------------------------------------- store

DRAWING = b'<svg width="1" height="1" viewBox="0 0 1 1" xmlns="http://www.w3.org/2000/svg"><g id="panel-0"/></svg>'
SVG = base64.b64encode(DRAWING).decode()
PNG = base64.b64encode(b"\x89PNG").decode()
RECORD = {
    "experiment": "toy",
    "title": "A toy",
    "profile": "quick",
    "seed": 0,
    "config": {"sizes": [1, 2]},
    "tables": {"one": [{"x": 1.0, "name": "a"}, {"x": None, "name": "b"}]},
    "timings": {"two": [{"seconds": 1.5}]},
    "figures": {"f": {"svg": SVG, "png": PNG}},
    "drawings": {"f": {"group": "", "label": "", "points": [[0, 0.5, 0.5, "here"]]}},
    "data": [{"name": "toys", "kind": "generated", "source": "carved"}],
    "verdicts": [
        {"claim": "C1", "verdict": "reproduced", "profile": "quick", "data": "toys"}
        | {"number": "1", "interval": "0 to 2", "rule": "Holds if it is above 0."}
    ],
    "notes": ["A note."],
    "warnings": [],
    "run": {"started": "now", "seconds": 1.0, "workers": 1},
}


@functools.cache
def _stores() -> dict[str, bytes]:
    with tempfile.TemporaryDirectory() as folder:
        with open_store(Path(folder)) as store:
            store.begin(
                "toy", {"profile": "quick", "seed": 0, "config": {}, "version": "0"}
            )
            store.add_case(
                "k1",
                "toy",
                {"task": "t", "settings": {"i": 1}},
                {"loss": 0.5},
                {"seconds": 1.0},
            )
            store.add_case(
                "k2",
                "toy",
                {"task": "t", "settings": {"i": 2}},
                {"loss": None},
                {"seconds": 2.0},
            )
            store.finish("toy", RECORD)
        return {FILE: (Path(folder) / FILE).read_bytes()}


def _use_store(path: Path) -> None:
    """What `proxlin report` does, and what `proxlin reproduce` asks first."""
    with open_store(path.parent, create=False) as store:
        report.write(path.parent, store.finished(), store.cases())
        store.case("k1")
        store.begin(
            "toy", {"profile": "quick", "seed": 0, "config": {}, "version": "0"}
        )


READERS: dict[str, Reader] = {
    "libsvm, text": Reader(lambda: {"a.svm": SVM}, _use_libsvm),
    "libsvm, gzip": Reader(
        lambda: {"a.gz": gzip.compress(SVM)}, _use_libsvm, codec=damage.inside_gzip
    ),
    "libsvm, bz2": Reader(
        lambda: {"a.bz2": bz2.compress(SVM)}, _use_libsvm, codec=damage.inside_bz2
    ),
    "libsvm, xz": Reader(
        lambda: {"a.xz": lzma.compress(SVM)}, _use_libsvm, codec=damage.inside_xz
    ),
    "table, CSV": Reader(
        lambda: {"a.csv": _text(), "b.csv": _text(";"), "c.csv": _text("|")}, _use_frame
    ),
    "table, TSV": Reader(lambda: {"a.tsv": _text("\t")}, _use_frame),
    "table, ARFF": Reader(lambda: {"a.arff": _arff()}, _use_frame),
    "table, numerals": Reader(
        lambda: {"a.csv": _text(";").replace(b".", b",")}, _use_numerals
    ),
    "table, gzip": Reader(
        lambda: {
            "a.csv.gz": gzip.compress(_text()),
            "b.tsv.gz": gzip.compress(_text("\t")),
        },
        _use_frame,
        codec=damage.inside_gzip,
    ),
    "table, Excel": Reader(_excel, _use_frame, codec=damage.inside_workbook),
    "table, Arrow": Reader(_arrow, _use_frame),
    "table, Parquet": Reader(_parquet, _use_frame),
    "words": Reader(
        lambda: {"words.npz": _words()}, _use_words, codec=damage.inside_zip
    ),
    "maps": Reader(_maps, _use_maps),
    "tiles": Reader(_tiles, _use_tiles),
    "cache": Reader(lambda: {"entry.npz": _cache()}, _use_cache, (), damage.inside_zip),
    "config": Reader(_configs, _use_config),
    "store": Reader(_stores, _use_store, codec=damage.inside_sqlite),
    "solution": Reader(_solutions, _use_solution, (ValueError,), damage.inside_zip),
    "model": Reader(model_files, _use_model, codec=damage.inside_zip),
}
