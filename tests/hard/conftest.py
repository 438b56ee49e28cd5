"""Figures: what a hard test measured, for docs/reliability.md.

`figures(name, **numbers)` prints them and, if PROXLIN_FIGURES names a folder, keeps them there as NAME.json, which is
what `make hard` does.
"""

import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest


def pytest_ignore_collect(config: pytest.Config) -> bool | None:
    """Nothing here is imported for `make test`."""
    return True if config.getoption("-m") == "not hard" else None


@pytest.fixture(scope="session")
def figures() -> Callable[..., None]:
    def keep(name: str, **numbers: object) -> None:
        print(name, json.dumps(numbers))
        if folder := os.environ.get("PROXLIN_FIGURES"):
            Path(folder).mkdir(parents=True, exist_ok=True)
            (Path(folder) / f"{name}.json").write_text(json.dumps({name: numbers}) + "\n")

    return keep
