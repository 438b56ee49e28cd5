"""The error that is the user's to mend: one sentence that names the culprit and the way out."""

from importlib import import_module
from types import ModuleType


class UserError(Exception):
    """Wrong use or bad input. The command line prints it as one sentence and exits with code 2."""


class MissingExtra(UserError, ImportError):
    """An optional dependency is not installed."""


def require(module: str, extra: str) -> ModuleType:
    """Import an optional dependency, or say which extra brings it."""
    try:
        return import_module(module)
    except ModuleNotFoundError as error:
        if error.name != module.partition(".")[0]:
            raise
        raise MissingExtra(f"{error.name} is not installed: pip install 'proxlin[{extra}]'.") from error
