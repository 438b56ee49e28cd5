"""The table of prices on the page of methods is what the solvers charge today."""

import importlib.util
from pathlib import Path
from types import ModuleType

import pytest

from proxlin.solvers.casimir import norm_price

DOCS = Path(__file__).parents[2] / "docs"


@pytest.fixture(scope="module")
def write_prices() -> ModuleType:
    spec = importlib.util.spec_from_file_location(
        "write_prices", DOCS / "write_prices.py"
    )
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_table_has_the_prices_of_today(write_prices):
    stored = write_prices.PAGE.read_text(encoding="utf-8")
    assert write_prices.page(stored) == stored, (
        "docs/methods.md does not have the prices of today. Write them with `python docs/write_prices.py`, look at "
        "them, and commit the page."
    )
    assert stored.count(write_prices.BEGIN) == stored.count(write_prices.END) == 1


def test_another_price_would_change_the_page(write_prices, monkeypatch):
    stored = write_prices.PAGE.read_text(encoding="utf-8")
    dearer = [
        (label, solver, lambda prices, price=price: price(prices) * 2)
        for label, solver, price in write_prices.ROWS
    ]
    monkeypatch.setattr(write_prices, "ROWS", dearer)
    assert write_prices.page(stored) != stored


def test_the_price_of_the_estimate_is_that_of_the_page(write_prices):
    stored = write_prices.PAGE.read_text(encoding="utf-8")
    problem, w = write_prices._problem(1)
    n = len(problem)
    assert f"for {norm_price(problem, w).passes(n) * n:g} / n passes" in stored
