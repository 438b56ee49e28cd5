"""Figure 3: a map that was not trained on, its rewards, and what constant-step SGD learned of them.

The settings are those of Figure 4 (`planning.py`), with a middling step and ridge.
"""

import numpy as np

from ..plots.pages import Row
from ..plots.pictures import draw_map
from ..tuning.search import Setting
from .engine.base import Case, Context, Result
from .engine.config import shipped
from .engine.study import plan_of, study
from .planning import Config, case_of, origins_of, short
from .planning_task import GRIDS, parts_of
from .tuning import first_seed


def picture_case(config: Config, seed: int) -> Case:
    """Return the case of constant-step SGD with a middling step and ridge."""
    ridge = sorted(config.ridges)[len(config.ridges) // 2]
    setting: Setting = {"step": GRIDS["sgd"]["step"].value(0)}
    return case_of("sgd", ridge, config, setting, seed, "picture")


def run(config: Config, context: Context) -> Result:
    """Show the first unseen map of the first seed, and what SGD learned about it."""
    case = picture_case(config, first_seed(context))
    (learned,) = context.sweep([case])
    test = parts_of(case.settings)[2][:1]
    optimal = test.optimal()
    truth = test.rewards[0]
    label = test.paths[0].reshape(test.grid)
    scores = np.asarray(learned["rewards"]).reshape(test.grid)
    path = np.asarray(learned["path"]).reshape(test.grid)
    rows: list[Row] = [
        {
            "row": i,
            "column": j,
            "reward": float(truth[i, j]),
            "learned": float(scores[i, j]),
            "label": int(label[i, j]),
            "predicted": int(path[i, j]),
        }
        for i, j in np.ndindex(*test.grid)
    ]
    collected = float(np.sum(truth * path))
    off = float(optimal.nearest(path.reshape(1, -1))[0])
    step = case.settings["step"]
    ridge = short(case.settings["ridge"])
    notes = [
        f"A map that was not trained on, with one of its {optimal.count()[0]:.0f} optimal paths. The predicted path "
        f"collects {collected:g} of {optimal.score[0]:g} and is {off:g} cells off the nearest optimal one. Trained by "
        f"SGD with the step {step:g} and ridge {ridge}/n on {config.maps} maps and one optimal path of each.",
        "Rewards are learned up to a scale and a constant: all monotone paths have the same number of cells.",
    ]
    figure = draw_map(test.pixels[0], truth, label, scores, path)
    return Result({"map": rows}, {"map": figure}, (), notes)


STUDY = study(
    "fig3",
    "Figure 3: a map, its rewards and what was learned of them",
    Config,
    run,
    lambda config, seed: plan_of([picture_case(config, 1000 * seed)]),
    origins_of,
    configs=shipped("fig4"),
)
