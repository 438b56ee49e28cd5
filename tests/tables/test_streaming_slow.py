"""A table larger than memory, and a cluster whose worker dies."""

import os
import subprocess
import sys

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import proxlin as px
from proxlin.data.parts import DaskParts
from proxlin.tables import fitted
from proxlin.tables.described import Sizes

GIB = float(os.environ.get("PROXLIN_TEST_GIB", "10"))  # of the made-up table
LIMIT = 2.0  # GiB of memory
COLUMNS = 20
GROUP = 250_000

# `ru_maxrss` of a process that was just started is the peak of the one that started it.
PEAK = """
def peak():
    lines = open("/proc/self/status").read().splitlines()
    (line,) = (line for line in lines if line.startswith("VmHWM"))
    return int(line.split()[1]) / 2**20
"""
FIT = f"""{PEAK}
import sys
import proxlin as px
fit = px.fit(sys.argv[1], "y")
fit.save(sys.argv[2])
print(fit.models[0].about["rows"], peak())
"""
PREDICT = f"""{PEAK}
import sys
from proxlin.cli import main
code = main(["predict", *sys.argv[1:]])
print(code, peak())
"""


def write(path, groups: int, seed: int) -> int:
    """Write a file of made-up rows, and return how many bytes it has."""
    rng = np.random.default_rng(seed)
    writer = None
    for _ in range(groups):
        x = rng.normal(size=(GROUP, COLUMNS))
        city = rng.integers(0, 3, GROUP)
        y = 2 * x[:, 0] + np.sin(2 * x[:, 1]) + np.abs(x[:, 2]) + 0.5 * (city == 1)
        y += 0.3 * rng.standard_t(3, size=GROUP)
        names = pa.DictionaryArray.from_arrays(city, ["Oslo", "Rome", "Bonn"])
        table = pa.table(
            {f"x{j}": x[:, j] for j in range(COLUMNS)} | {"city": names, "y": y}
        )
        if writer is None:
            writer = pq.ParquetWriter(path, table.schema, compression="none")
        writer.write_table(table, row_group_size=GROUP)
    assert writer is not None
    writer.close()
    return path.stat().st_size


@pytest.mark.slow
def test_a_table_larger_than_memory(tmp_path, figures):
    size = 0
    files = 0
    folder = tmp_path / "table"
    folder.mkdir()
    while size < GIB * 2**30:
        size += write(folder / f"{files:04d}.parquet", 6, files)
        files += 1
    model = tmp_path / "fit.npz"
    asked = [sys.executable, "-c", FIT, str(folder), str(model)]
    done = subprocess.run(asked, capture_output=True, text=True, check=True)
    rows, peak = (float(word) for word in done.stdout.split())
    assert rows == files * 6 * GROUP
    assert peak < LIMIT
    fit = px.load_fit(model)
    effect = {row["name"]: row["estimate"] for row in fit.summary().rows}
    # the slope of the first column is 2, and its standard error is far below this
    assert abs(effect["x0"] - 2) < 0.01
    out = tmp_path / "predictions.csv"
    asked = [sys.executable, "-c", PREDICT, str(model), str(folder), "--out", str(out)]
    done = subprocess.run([*asked, "--quiet"], capture_output=True, text=True, check=True)  # fmt: skip
    code, predicting = (float(word) for word in done.stdout.split()[-2:])
    assert code == 0 and predicting < LIMIT
    peaks = {"fit_gib": round(peak, 2), "predict_gib": round(predicting, 2)}
    figures("streaming", gib=GIB, rows=int(rows), **peaks)
    with out.open() as lines:
        assert sum(1 for _ in lines) == rows + 1


@pytest.mark.slow
@pytest.mark.parametrize("hidden", [0, 8], ids=["linear", "network"])
def test_a_worker_that_dies_changes_nothing(hidden, tmp_path, monkeypatch):
    """Sums are added, and batches come, in the order of the partitions, whoever reads them."""
    distributed = pytest.importorskip("distributed")
    frames = pytest.importorskip("dask.dataframe")
    small = Sizes(held=2000, validation=2000, sample=4000)
    monkeypatch.setattr(fitted, "Sizes", lambda: small)
    fit_parts = fitted.fit_parts
    monkeypatch.setattr(
        fitted, "fit_parts", lambda *asked: fit_parts(*asked, sizes=small)
    )
    clusters = []
    begun = []
    died = []
    begin = DaskParts.begin

    def and_kill(parts, part, work):
        """Kill a worker in the middle of the second pass, while it has parts to read."""
        begun.append(begin(parts, part, work))
        if len(begun) == 12:
            died.append(next(iter(clusters[0].workers.values())).pid)
            os.kill(died[0], 9)
        return begun[-1]

    monkeypatch.setattr(DaskParts, "begin", and_kill)
    folder = tmp_path / "table"
    folder.mkdir()
    rng = np.random.default_rng(0)
    for i in range(8):
        x = rng.normal(size=(3000, 3))
        y = x[:, 0] + 0.3 * rng.standard_t(3, size=3000)
        table = {"a": x[:, 0], "b": x[:, 1], "c": x[:, 2], "y": y}
        pq.write_table(pa.table(table), folder / f"{i}.parquet")
    frame = frames.read_parquet(folder)
    one = px.fit(folder, "y", loss="huber", hidden=hidden)
    with (
        distributed.LocalCluster(
            n_workers=2, threads_per_worker=1, dashboard_address=None
        ) as cluster,
        distributed.Client(cluster),
    ):
        clusters.append(cluster)
        two = px.fit(frame, "y", loss="huber", hidden=hidden)
    assert died
    rows = zip(one.summary().rows, two.summary().rows, strict=True)
    for a, b in rows:
        assert a["estimate"] == pytest.approx(b["estimate"], rel=1e-10)
    np.testing.assert_allclose(
        one.predict(folder), two.predict(folder), rtol=1e-5, atol=1e-5
    )
