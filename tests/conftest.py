"""What every test may ask for: data or a browser that a machine may lack, and a place for the
figures of slow tests.

A test that needs what is not there is skipped with a reason that names it and where to get it, or
fails if PROXLIN_STRICT is set.
"""

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import NoReturn

import pytest


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Import neither the shared code as if it were tests, nor for `make test` what is slow as a
    whole.
    """
    slow = (
        collection_path.name.endswith("_slow.py")
        and config.getoption("-m") == "not slow"
    )
    return True if slow or collection_path.name == "support" else None


def missing(reason: str) -> NoReturn:
    """Skip the test that called, or fail it under PROXLIN_STRICT: for what a machine may lack
    (data, a browser).
    """
    if os.environ.get("PROXLIN_STRICT"):
        pytest.fail(f"{reason} (PROXLIN_STRICT is set)", pytrace=False)
    pytest.skip(reason)


BROWSERS = ("chromium", "chromium-browser", "google-chrome")

# The real data files that tests read, and where to get them.
SOURCES = {
    "libsvm/ijcnn1.bz2": "from https://www.csie.ntu.edu.tw/~cjlin/libsvmtools/datasets/binary.html",
    "libsvm/ijcnn1.t.bz2": "from https://www.csie.ntu.edu.tw/~cjlin/libsvmtools/datasets/binary.html",
    "libsvm/covtype.libsvm.binary.bz2": "from https://www.csie.ntu.edu.tw/~cjlin/libsvmtools/datasets/binary.html",
    "sequences/ocr_letters.npz": "from https://ai.stanford.edu/~btaskar/ocr, packed as data/sequences.py says",
    "tables/engel.csv": "as CSV from the R package quantreg (data engel)",
    "tables/hbk.csv": "as CSV from the R package robustbase (data hbk)",
    "tables/rf1.arff": "from the multi-target data of Mulan, https://mulan.sourceforge.net/datasets-mtr.html",
    "tables/stackloss.csv": "as CSV from R (data stackloss)",
    "tables/starsCYG.csv": "as CSV from the R package robustbase (data starsCYG)",
    "tiles/tileset_forest_water.png": "with the other forest sheets from https://github.com/Andrettin/Wyrmsun (CC0)",
}


@pytest.fixture(scope="session")
def data_file():
    """`data_file("libsvm/ijcnn1.bz2")` is the path of a real data file, one of SOURCES."""

    def find(name: str) -> Path:
        source, folder = SOURCES[name], os.environ.get("PROXLIN_DATA")
        if not folder or not (Path(folder) / name).exists():
            missing(
                f"needs {name} below the folder that PROXLIN_DATA names; get it {source}"
            )
        return Path(folder) / name

    return find


@pytest.fixture(scope="session")
def require():
    """`require(path is not None, "needs chromium: apt install chromium")` skips, or fails under PROXLIN_STRICT."""

    def check(condition: object, reason: str) -> None:
        if not condition:
            missing(reason)

    return check


@pytest.fixture(scope="module")
def browser(require):
    """Debian's Chromium, driven by playwright. It closes with the module: its loop would stop other asyncio."""
    from playwright.sync_api import sync_playwright

    path = next(filter(None, map(shutil.which, BROWSERS)), None)
    require(
        path is not None,
        f"needs a browser on PATH, one of {', '.join(BROWSERS)}: apt install chromium",
    )
    with sync_playwright() as playwright:
        sandbox = ["--no-sandbox"] if os.geteuid() == 0 else []
        browser = playwright.chromium.launch(executable_path=path, args=sandbox)
        yield browser
        browser.close()


@pytest.fixture(scope="session")
def figures() -> Callable[..., None]:
    """`figures(name, **numbers)` prints what a slow test measured, for docs/reliability.md.

    If PROXLIN_FIGURES names a folder, as in `make slow`, they are kept there as NAME.json.
    """

    def keep(name: str, **numbers: object) -> None:
        print(name, json.dumps(numbers))
        if folder := os.environ.get("PROXLIN_FIGURES"):
            Path(folder).mkdir(parents=True, exist_ok=True)
            (Path(folder) / f"{name}.json").write_text(
                json.dumps({name: numbers}) + "\n"
            )

    return keep
