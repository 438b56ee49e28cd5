"""`proxlin advise FILE --target COLUMN`: does Gauss-Newton pay on a table of one's own?"""

import json
import math
import sys
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ..errors import UserError, printable
from .options import (
    Category,
    Debug,
    Decimal,
    Hidden,
    Quiet,
    Seed,
    Sheet,
    Table,
    Target,
    Thousands,
    check_hidden,
    check_numerals,
    check_seed,
    print_notes,
    read_table,
)

if TYPE_CHECKING:
    from ..tables.columns import Numbers

ROWS = 10  # two in each of five folds
SETUP = """import jax
import proxlin as px
from proxlin.data.frames import read_frame
from proxlin.networks import MLP
from proxlin.tables.columns import numbers_of
from proxlin.tables.standardize import units_of

jax.config.update("jax_enable_x64", True)
table = numbers_of(read_frame({arguments}), {targets!r})
units = units_of(table.X, table.y)
predict = MLP({sizes!r})
w = predict.init(jax.random.key({seed}))
data = (units.features(table.X), units.targets(table.y))
problem = px.MeanOfLosses(px.residual(predict), px.L2(), data)
"""


def advise(
    file: Table,
    target: Target,
    hidden: Hidden = 64,
    budget: Annotated[
        float, typer.Option(help="Seconds that the race may take, compiling apart.")
    ] = 60.0,
    passes: Annotated[
        float, typer.Option(help="Effective passes that a fit may take.")
    ] = 100.0,
    decimal: Decimal = ".",
    thousands: Thousands = None,
    sheet: Sheet = None,
    category: Category = None,
    seed: Seed = 0,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print the evidence as JSON.")
    ] = False,
    quiet: Quiet = False,
    debug: Debug = False,
) -> int:
    """Does Gauss-Newton pay on these data, or should SGD be taken? With the evidence, and code to
    paste.
    """
    check_hidden(hidden)
    if not 0 < budget < math.inf:
        raise UserError(f"--budget {budget:g}: take a positive number of seconds.")
    if not 0 < passes < math.inf:
        raise UserError(f"--passes {passes:g}: take a positive number.")
    check_numerals(decimal, thousands)
    check_seed(seed)
    categories = category or []
    frame = read_table(file, decimal, thousands, sheet, categories)
    from ..tables.columns import numbers_of

    table = numbers_of(frame, target, ROWS)
    if not quiet:
        print_notes(table.notes)
    sizes = (table.X.shape[1], table.y.shape[1])
    if hidden:
        sizes = (table.X.shape[1], hidden, table.y.shape[1])
    options = {
        "decimal": (decimal, "."),
        "thousands": (thousands, None),
        "sheet": (sheet, None),
        "categories": (categories, []),
    }
    given = [f"{name}={x!r}" for name, (x, usual) in options.items() if x != usual]
    setup = SETUP.format(
        arguments=", ".join([repr(str(file)), *given]),
        targets=list(target),
        sizes=sizes,
        seed=seed,
    )

    def say(text: str) -> None:
        if not quiet:
            print(text, file=sys.stderr, flush=True)

    asked = {"budget": budget, "passes": passes, "seed": seed, "say": say}
    advice = _advise(table, sizes, asked)
    snippet = setup + advice.snippet.removeprefix("import proxlin as px\n")
    if as_json:
        print(json.dumps(advice.as_dict() | {"snippet": snippet}, indent=1))
    else:
        text = str(advice).replace(advice.snippet.rstrip(), snippet.rstrip())
        print(printable(text, keep="\n"))
    return 0


def _advise(table: "Numbers", sizes: tuple[int, ...], asked: dict[str, Any]) -> Any:
    from ..experiments.engine.workers import use_64_bits

    use_64_bits()  # a quadratic phase is not seen in 32
    import jax

    from ..files.programs import keep_programs

    keep_programs()
    from ..inners import residual
    from ..networks import MLP
    from ..outers import L2
    from ..problem import MeanOfLosses
    from ..tables.standardize import units_of
    from ..tuning.advisor import advise

    units = units_of(table.X, table.y)
    predict = MLP(sizes)
    data = (units.features(table.X), units.targets(table.y))
    problem = MeanOfLosses(residual(predict), L2(), data)
    return advise(problem, predict.init(jax.random.key(asked["seed"])), **asked)
