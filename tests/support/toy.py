"""An experiment that takes no time, for tests: PROXLIN_EXPERIMENTS=toy."""

from matplotlib.figure import Figure

from proxlin.data.origin import generated
from proxlin.experiments.engine.base import (
    Context,
    Experiment,
    Result,
    Verdict,
    register,
)
from proxlin.plots.drawing import Drawing, Point

EVIL = "<script>alert('x')</script> & \"quotes\""


def run(context: Context) -> Result:
    context.say("at work")
    steps = range(3 if context.profile == "quick" else 5)
    rows = [
        {"step": t, "value": context.seed + 1 / (t + 1), "who": EVIL} for t in steps
    ]
    figure = Figure()
    figure.subplots().plot([row["value"] for row in rows])
    points = [
        Point(0, row["step"], row["value"], f"{EVIL} {row['step']}") for row in rows
    ]
    return Result(
        tables={"curve": rows},
        figures={"curve": Drawing(figure, points)},
        verdicts=[Verdict("C1", "not resolved", "0.5", "0.4 to 0.6")],
        notes=[f"A note: {EVIL}"],
        warnings=["A warning."],
    )


CONFIGS = {"quick": {"steps": 3}, "paper": {"steps": 5}}
DATA = generated("toys", f"made up: {EVIL}")
register(
    Experiment("aardvark", "A toy", ("C1",), run, CONFIGS, data=lambda config: (DATA,))
)
