"""A study on a9a, of which a server on 127.0.0.1 has a few rows: PROXLIN_EXPERIMENTS=toy_data, TOY_MIRROR=http://..."""

import os

from proxlin.data import catalog, classification
from proxlin.experiments.engine.base import Context, Experiment, Result, register

SHAPE = (40, 3, 0.5)  # of mirror.ROWS

for name in ("a9a", "a9a.t"):
    classification.SOURCES[name] = classification.Source(f"libsvm/{name}", "", *SHAPE)
    catalog.REMOTES[name] = catalog.Remote(
        (f"{os.environ.get('TOY_MIRROR')}/{name}",), 1_000_000, "made up", "nowhere"
    )


def run(context: Context) -> Result:
    context.say(f"on {context.data[0].label}")
    return Result(tables={"data": [{"label": context.data[0].label}]})


register(
    Experiment(
        "badger",
        "A toy on data",
        (),
        run,
        {"quick": {}, "paper": {}},
        data=lambda config: (classification.origin_of("a9a"),),
    )
)
