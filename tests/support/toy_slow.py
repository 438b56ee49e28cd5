"""An experiment that does not end by itself, and one that fails, for tests:
PROXLIN_EXPERIMENTS=toy_slow.
"""

import time

from proxlin.experiments.engine.base import Context, Experiment, Result, register


def sleep(context: Context) -> Result:
    context.say("asleep")
    time.sleep(600)
    return Result()


def fail(context: Context) -> Result:
    raise ZeroDivisionError("on purpose")


register(Experiment("sloth", "A toy that sleeps", (), sleep))
register(Experiment("lemming", "A toy that fails", (), fail))
