"""The experiments of the paper, each of which registers itself when its module is imported.

A study is a file, NAME.py; what its workers run is in NAME_task.py. A module of your own joins them
through the environment: `PROXLIN_EXPERIMENTS=my_module proxlin reproduce all`, where `my_module` is
importable (several are separated by commas) and calls `proxlin.experiments.engine.base.register`.
"""

from collections.abc import Iterable
from importlib import import_module

from ..errors import UserError, missing_extra
from .engine.base import Experiment, registered

# The experiments by the module that registers them, imported on demand. A new one is a module and a
# line here.
MODULES: dict[str, tuple[str, ...]] = {
    "equations": ("fig5",),
    "figure1": ("fig1",),
    "phase": ("phase",),
    "planning": ("fig4",),
    "planning_picture": ("fig3",),
    "proposition1": ("prop1",),
    "proposition2": ("prop2",),
    "recovery": ("recovery",),
    "regression": ("fig2",),
    "words": ("words",),
}


def experiments(
    more: Iterable[str] = (), wanted: Iterable[str] = ()
) -> dict[str, Experiment]:
    """Return the experiments by name: those that the modules in `more` register, and the package's
    own.

    If all of `wanted` are found among some of them, the other modules are not imported.
    """
    for module in more:
        try:
            import_module(module)
        except ModuleNotFoundError as error:
            raise UserError(
                f"PROXLIN_EXPERIMENTS: {module} cannot be imported ({error}); its folder has to be on PYTHONPATH."
            ) from error
    for module in _homes(set(wanted)):
        try:
            import_module(f"{__name__}.{module}")
        except ModuleNotFoundError as error:
            raise missing_extra(str(error.name), "experiments") from error
    return registered()


def _homes(wanted: set[str]) -> Iterable[str]:
    """Return the modules to import for these experiments; all of them if one is unknown, or if none
    is named.
    """
    missing = wanted - registered().keys()
    homes = {name: module for module, names in MODULES.items() for name in names}
    if not wanted or not missing <= homes.keys():
        return MODULES
    return {homes[name] for name in missing}
