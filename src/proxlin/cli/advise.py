"""`proxlin advise FILE --target COLUMN`: does Gauss-Newton pay on a table of one's own?"""

import json
import math
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from ..errors import UserError
from .options import Debug, Hidden, Seed, Target, check_hidden, check_seed

SETUP = """import jax
import proxlin as px
from proxlin.data.tables import read_table, rescaled, standardized
from proxlin.networks import MLP

jax.config.update("jax_enable_x64", True)
x, y = read_table({path!r}).split({targets!r})
predict = MLP({sizes!r})
w = predict.init(jax.random.key({seed}))
problem = px.MeanOfLosses(px.residual(predict), px.L2(), (standardized(x), rescaled(y)))
"""


def advise(
    file: Annotated[
        Path,
        typer.Argument(
            metavar="FILE", help="A CSV, TSV, Parquet or ARFF file of numbers."
        ),
    ],
    target: Target,
    hidden: Hidden = 64,
    budget: Annotated[
        float, typer.Option(help="Seconds that it may take, about.")
    ] = 60.0,
    passes: Annotated[
        float, typer.Option(help="Effective passes that a fit may take.")
    ] = 100.0,
    seed: Seed = 0,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print the evidence as JSON.")
    ] = False,
    quiet: Annotated[bool, typer.Option("--quiet", help="No progress.")] = False,
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
    check_seed(seed)
    from ..data.tables import read_table

    table = read_table(file)
    x, y = table.split(target)
    if len(table) < 10:
        raise UserError(f"{file} has {len(table)} samples; advice needs 10 or more.")
    sizes = (x.shape[1], y.shape[1])
    if hidden:
        sizes = (x.shape[1], hidden, y.shape[1])
    setup = SETUP.format(path=str(file), targets=list(target), sizes=sizes, seed=seed)

    def say(text: str) -> None:
        if not quiet:
            print(text, file=sys.stderr, flush=True)

    advice = _advise(
        x, y, sizes, {"budget": budget, "passes": passes, "seed": seed, "say": say}
    )
    snippet = setup + advice.snippet.removeprefix("import proxlin as px\n")
    if as_json:
        print(json.dumps(advice.as_dict() | {"snippet": snippet}, indent=1))
    else:
        print(str(advice).replace(advice.snippet.rstrip(), snippet.rstrip()))
    return 0


def _advise(x: Any, y: Any, sizes: tuple[int, ...], asked: dict[str, Any]) -> Any:
    from ..experiments.engine.workers import use_64_bits

    use_64_bits()  # a quadratic phase is not seen in 32
    import jax

    from ..files.programs import keep_programs

    keep_programs()
    from ..data.tables import rescaled, standardized
    from ..inners import residual
    from ..networks import MLP
    from ..outers import L2
    from ..problem import MeanOfLosses
    from ..tuning.advisor import advise

    predict = MLP(sizes)
    problem = MeanOfLosses(residual(predict), L2(), (standardized(x), rescaled(y)))
    return advise(problem, predict.init(jax.random.key(asked["seed"])), **asked)
