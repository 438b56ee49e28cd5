"""Fixtures for what a machine may lack: real data that cannot ship with the tests, a browser, an optional package.

A test that needs it is skipped with a reason that names it and where to get it, or fails if PROXLIN_STRICT is set.
"""

import os
from pathlib import Path
from typing import NoReturn

import pytest


def missing(reason: str) -> NoReturn:
    """Skip the test that called, or fail it under PROXLIN_STRICT: for what a machine may lack (data, a browser)."""
    if os.environ.get("PROXLIN_STRICT"):
        pytest.fail(f"{reason} (PROXLIN_STRICT is set)", pytrace=False)
    pytest.skip(reason)


# The real data files that tests read, and where to get them.
SOURCES = {
    "libsvm/ijcnn1.bz2": "from https://www.csie.ntu.edu.tw/~cjlin/libsvmtools/datasets/binary.html",
    "libsvm/ijcnn1.t.bz2": "from https://www.csie.ntu.edu.tw/~cjlin/libsvmtools/datasets/binary.html",
    "libsvm/covtype.libsvm.binary.bz2": "from https://www.csie.ntu.edu.tw/~cjlin/libsvmtools/datasets/binary.html",
    "sequences/ocr_letters.npz": "from https://ai.stanford.edu/~btaskar/ocr, packed as data/sequences.py says",
    "tables/rf1.arff": "from the multi-target data of Mulan, https://mulan.sourceforge.net/datasets-mtr.html",
    "tiles/tileset_forest_water.png": "with the other forest sheets from https://github.com/Andrettin/Wyrmsun (CC0)",
}


@pytest.fixture(scope="session")
def data_file():
    """`data_file("libsvm/ijcnn1.bz2")` is the path of a real data file, one of SOURCES."""

    def find(name: str) -> Path:
        source, folder = SOURCES[name], os.environ.get("PROXLIN_DATA")
        if not folder or not (Path(folder) / name).exists():
            missing(f"needs {name} below the folder that PROXLIN_DATA names; get it {source}")
        return Path(folder) / name

    return find


@pytest.fixture(scope="session")
def require():
    """`require(path is not None, "needs chromium: apt install chromium")` skips, or fails under PROXLIN_STRICT."""

    def check(condition: object, reason: str) -> None:
        if not condition:
            missing(reason)

    return check
