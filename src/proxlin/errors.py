"""The error that is the user's to mend: one sentence that names the culprit and the way out; and
how it is shown.
"""

import re
from importlib import import_module
from importlib.metadata import PackageNotFoundError, requires
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
        raise missing_extra(str(error.name), extra) from error


def missing_extra(module: str, extra: str) -> MissingExtra:
    """Return the error of a module that an extra would bring."""
    return MissingExtra(f"{module} is not installed: {install_command(extra)}.")


def install_command(extra: str) -> str:
    """Return the command that installs what an extra of the package needs.

    It names the packages of the extra and not proxlin[extra], so it is right for a checkout, for a wheel and for an
    index.
    """
    try:
        asked = requires("proxlin") or []
    except (
        PackageNotFoundError
    ):  # the sources are on the path, and nothing is installed
        return f"pip install '.[{extra}]' in the checkout"
    ours = re.compile(rf"""([^;]+?)\s*;\s*extra == ['"]{extra}['"]""")
    found = [match[1] for each in asked if (match := ours.fullmatch(each))]
    return f"pip install {' '.join(repr(each) for each in found)}"
