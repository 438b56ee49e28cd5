"""Quantile fits of many rows look at few of them, and are those of all rows."""

import numpy as np
import pytest

from proxlin.inference import hessians


def objective(x, u, s, tau, e):
    away = u + x @ e
    return float(s @ np.maximum((1 - tau) * away, -tau * away))


@pytest.mark.parametrize("tau", [0.05, 0.5, 0.8])
@pytest.mark.parametrize("kind", ["normal", "heavy", "rare", "weights"])
def test_rows_near_the_fit_decide(tau, kind, monkeypatch):
    """Against the program of all rows; a rare category is in no row of the first sample."""
    rng = np.random.default_rng(1)
    n = 3000
    x = np.column_stack([rng.normal(size=(n, 3)), np.ones(n)])
    noise = rng.normal(size=n)
    s = np.ones(n)
    if kind == "heavy":
        noise = rng.standard_cauchy(n)
    if kind == "rare":
        x[:, 0] = np.arange(n) < 12
        noise[:12] += 50
    if kind == "weights":
        s = rng.exponential(size=n)
    u = x @ [3.0, -1.0, 0.5, 2.0] + noise
    asked = []
    program = hessians._program
    monkeypatch.setattr(
        hessians, "_program", lambda x, *rest: asked.append(len(x)) or program(x, *rest)
    )
    whole = hessians.quantile_step(x, u, s, tau)
    assert asked == [n]
    asked.clear()
    monkeypatch.setattr(hessians, "MANY", 200)
    found = hessians.quantile_step(x, u, s, tau)
    assert max(asked) < n / 2
    least = objective(x, u, s, tau, whole)
    assert objective(x, u, s, tau, found) == pytest.approx(least, rel=1e-9)
