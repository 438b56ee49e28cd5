"""The experiments of the paper, each of which registers itself when its module is imported.

A module of your own joins them through the environment: `PROXLIN_EXPERIMENTS=my_module proxlin reproduce all`, where
`my_module` is importable (several are separated by commas) and calls `proxlin.experiments.base.register`.
"""

from collections.abc import Iterable
from importlib import import_module

from ..errors import UserError
from .base import Experiment, registered

# Imported on demand by `experiments`. A new experiment is a module and a line here.
MODULES: tuple[str, ...] = ("illustration",)


def experiments(more: Iterable[str] = ()) -> dict[str, Experiment]:
    """Every experiment by name: the package's own and those that the modules in `more` register."""
    for module in MODULES:
        try:
            import_module(f"{__name__}.{module}")
        except ModuleNotFoundError as error:
            raise UserError(f"{error.name} is not installed: pip install 'proxlin[experiments]'.") from error
    for module in more:
        try:
            import_module(module)
        except ModuleNotFoundError as error:
            raise UserError(
                f"PROXLIN_EXPERIMENTS: {module} cannot be imported ({error}); its folder has to be on PYTHONPATH."
            ) from error
    return registered()
