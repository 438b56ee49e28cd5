"""The error that is the user's to mend: one sentence that names the culprit and the way out; and
how it is shown.
"""

from importlib import import_module
from types import ModuleType


class UserError(ValueError):
    """Wrong use or bad input. The command line prints it as one sentence and exits with code 2."""


class MissingExtra(UserError, ImportError):
    """An optional dependency is not installed."""


def printable(text: str, keep: str = "") -> str:
    r"""Return the text with every control character as an escape, for a terminal to show and never
    to obey.

    >>> print(printable("red\x1b[31m, two\nlines"))
    red\x1b[31m, two\nlines
    """
    return "".join(_shown(character, keep) for character in text)


def _shown(character: str, keep: str) -> str:
    if character in keep or character.isprintable():
        return character
    return character.encode("unicode_escape").decode()


def require(module: str, extra: str) -> ModuleType:
    """Import an optional dependency, or say which extra brings it."""
    try:
        return import_module(module)
    except ModuleNotFoundError as error:
        if error.name != module.partition(".")[0]:
            raise
        raise MissingExtra(
            f"{error.name} is not installed: pip install 'proxlin[{extra}]'."
        ) from error
