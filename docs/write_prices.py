"""Write the table of prices on the page docs/methods.md.

    python docs/write_prices.py             writes the table anew
    python docs/write_prices.py --check     says whether that would change it

The numbers are what the solvers themselves charge: `solver.prices(problem, w)`, in effective passes (phi + JVP + VJP
calls) / 2n. The laws of the solvers compare these prices with the calls that an instrumented phi counts.
"""

import sys
from collections.abc import Callable
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np

import proxlin as px
from proxlin.cost import Cost, Prices
from proxlin.networks import MLP
from proxlin.solvers.base import AbstractSolver

HERE = Path(__file__).parent
PAGE = HERE / "methods.md"
BEGIN = "<!-- This table is written by docs/write_prices.py. -->\n"
END = "<!-- The end of the table. -->\n"
SAMPLES = 64  # of the problem that is priced; a pass does not depend on it
OUTPUTS = (1, 10)  # k: a column for each

Price = Callable[[Prices], Cost]
STEP: Price = lambda prices: prices.step
EPOCH_OF_SINGLES: Price = lambda prices: prices.step * SAMPLES
ONE_INNER_EPOCH: Price = lambda prices: prices.step + prices.epoch
# Each but the first inner epoch of SVRG has a snapshot of its own: a subgradient of the subproblem.
ONE_MORE: Price = lambda prices: prices.epoch + prices.subgradient
ONE_MORE_DUAL: Price = lambda prices: prices.epoch
INIT: Price = lambda prices: prices.init

SMOOTHED = px.pli(1.0, 0.1, 1, step=0.1)
EVERY_STEP = px.pli(1.0, 0.1, 1, step=0.1, accept=False)
ROWS: tuple[tuple[str, AbstractSolver, Price], ...] = (
    ("an epoch of `sgd`, `truncated`", px.sgd(0.1), EPOCH_OF_SINGLES),
    ("a step of `subgradient_descent`", px.subgradient_descent(0.1), STEP),
    ("an epoch of `svrg`, with its snapshot", px.svrg(0.1), STEP),
    (
        "an epoch of `casimir_svrg`, with its snapshot",
        px.casimir_svrg(0.1, step=0.1),
        STEP,
    ),
    (
        "an outer step of `pli(kappa, nu)` with one inner epoch",
        SMOOTHED,
        ONE_INNER_EPOCH,
    ),
    ("the same with `accept=False`", EVERY_STEP, ONE_INNER_EPOCH),
    ('the same with `inner="svrg"`', px.pli(1.0, 0.1, 1, 0.1, "svrg"), ONE_INNER_EPOCH),
    ("each further inner epoch, with its snapshot", SMOOTHED, ONE_MORE),
    ("the start of `pli(kappa, nu)`: F and the first snapshot", SMOOTHED, INIT),
    (
        "an outer step of `pli(kappa)`, dual ascent, with one inner epoch",
        px.pli(1.0),
        ONE_INNER_EPOCH,
    ),
    ("each further inner epoch of dual ascent", px.pli(1.0), ONE_MORE_DUAL),
    ("the Jacobian of a step of `prox_linear`", px.prox_linear(1.0), STEP),
    (
        "a value of F, in an adaptive step",
        px.prox_linear(),
        lambda prices: prices.value,
    ),
)


def table() -> str:
    """Return the table in Markdown."""
    problems = [_problem(k) for k in OUTPUTS]
    head = " | ".join(f"k = {k}" for k in OUTPUTS)
    lines = [f"| passes | {head} |", "|---" * (1 + len(OUTPUTS)) + "|"]
    for label, solver, price in ROWS:
        costs = [price(solver.prices(problem, w)) for problem, w in problems]
        numbers = " | ".join(f"{cost.passes(SAMPLES):g}" for cost in costs)
        lines.append(f"| {label} | {numbers} |")
    return "\n".join([*lines, ""])


def _problem(k: int) -> tuple[px.MeanOfLosses, list]:
    """Return a problem whose phi has k outputs, and parameters; only their shapes matter."""
    predict = MLP((3, 4, k))
    data = (np.ones((SAMPLES, 3), np.float32), np.ones((SAMPLES, k), np.float32))
    problem = px.MeanOfLosses(px.residual(predict), px.L2(), data)
    return problem, predict.init(jax.random.key(0), jnp.float32)


def page(old: str) -> str:
    """Return the text of the page with the table of today."""
    before, _, rest = old.partition(BEGIN)
    _, _, after = rest.partition(END)
    return before + BEGIN + table() + END + after


def main(arguments: list[str]) -> int:
    """Write the table anew; with --check, say whether that would change it."""
    name = PAGE.relative_to(HERE.parent)
    old = PAGE.read_text(encoding="utf-8")
    new = page(old)
    if arguments == ["--check"]:
        print(
            f"{name} has the prices of today."
            if new == old
            else f"{name} is out of date: run python docs/write_prices.py."
        )
        return int(new != old)
    PAGE.write_text(new, encoding="utf-8")
    print(f"{name} has the prices of today.")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
