"""Fixtures for real data, which is not part of the repository.

PROXLIN_DATA is the directory that holds it. Without it such a test is skipped, or fails if PROXLIN_STRICT is set.
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


@pytest.fixture(scope="session")
def data_file():
    """`data_file("nist/Misra1a.dat")` is the path of a real data file."""

    def find(name: str) -> Path:
        folder = os.environ.get("PROXLIN_DATA")
        if not folder:
            missing(f"PROXLIN_DATA is not set, so there is no {name}")
        path = Path(folder) / name
        if not path.exists():
            missing(f"PROXLIN_DATA has no {name}")
        return path

    return find


@pytest.fixture(scope="session")
def require():
    """`require(chromium is not None, "chromium is not installed")` skips, or fails under PROXLIN_STRICT."""

    def check(condition: object, reason: str) -> None:
        if not condition:
            missing(reason)

    return check
