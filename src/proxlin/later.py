"""Names of a package that load when they are first asked for (PEP 562).

    __getattr__ = later(__name__, {"many": ("multistart", "solve_many")})

A module of the package must not have the name of what is in it: importing the module would hide that.
"""

from collections.abc import Callable
from importlib import import_module
from typing import Any


def later(package: str, names: dict[str, tuple[str, ...]]) -> Callable[[str], Any]:
    """Return the `__getattr__` of a package, from its names by the modules that they live in."""
    homes = {name: module for module, all_of in names.items() for name in all_of}

    def find(name: str) -> Any:
        if name not in homes:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        return getattr(import_module(f"{package}.{homes[name]}"), name)

    return find
