"""The error that is the user's to mend: one sentence that names the culprit and the way out; and how it is shown."""

from importlib import import_module
from types import ModuleType


class UserError(Exception):
    """Wrong use or bad input. The command line prints it as one sentence and exits with code 2."""


def printable(text: str, keep: str = "") -> str:
    r"""Return the text with every control character as an escape, for a terminal to show and never to obey.

    >>> print(printable("red\x1b[31m, two\nlines"))
    red\x1b[31m, two\nlines
    """
    shown = (c if c in keep or c.isprintable() else c.encode("unicode_escape").decode() for c in text)
    return "".join(shown)


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
