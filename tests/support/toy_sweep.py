"""A sweep of short cases in two rounds, for tests: PROXLIN_EXPERIMENTS=toy_sweep.

TOY_KILL_ONCE=FILE: a case kills its worker unless FILE exists; TOY_DEADLY=1: a case kills every
worker. TOY_STOP_ONCE and TOY_STOP: the same, but the worker is stopped (SIGSTOP): it neither works
nor ends.
"""

import math
import os
import signal
import time
from pathlib import Path

from proxlin.experiments.engine.base import (
    Case,
    Context,
    Experiment,
    Plan,
    Result,
    register,
)

ROUND = 8


def cook(settings: dict) -> dict:
    if (
        settings["i"] == 3
        and (once := os.environ.get("TOY_KILL_ONCE"))
        and not Path(once).exists()
    ):
        Path(once).touch()
        os._exit(9)
    if settings["i"] == 5 and os.environ.get("TOY_DEADLY"):
        os._exit(9)
    if (
        settings["i"] == 3
        and (once := os.environ.get("TOY_STOP_ONCE"))
        and not Path(once).exists()
    ):
        Path(once).touch()
        os.kill(os.getpid(), signal.SIGSTOP)
    if settings["i"] == 5 and os.environ.get("TOY_STOP"):
        os.kill(os.getpid(), signal.SIGSTOP)
    time.sleep(0.1)
    value = sum(math.sin(j * settings["i"]) for j in range(1000))
    return {"value": value, "diverged": float("inf") if settings["i"] == 2 else 0.0}


def cases(first: int) -> list[Case]:
    return [
        Case("toy_sweep:cook", {"i": first + i}, work=1.0 + i) for i in range(ROUND)
    ]


def run(context: Context) -> Result:
    context.say("cooking")
    one = context.sweep(cases(context.seed))
    # the second round follows from the first
    start = 100 if sum(each["value"] for each in one) > 0 else 200
    two = context.sweep(cases(start))
    rows = [{"i": i, **each} for i, each in enumerate(one + two)]
    return Result({"dishes": rows})


register(
    Experiment(
        *(
            "chef",
            "A toy that sweeps",
            (),
            run,
            {"quick": {"size": 1}, "paper": {"size": 2}},
        ),
        lambda config, seed: Plan(cases(seed), 2 * ROUND, 2.0),
    )
)
