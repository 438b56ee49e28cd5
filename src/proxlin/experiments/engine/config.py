"""Configs are data: TOML files with a table for each profile, checked against a frozen dataclass.

[quick]            [paper]
samples = [64]     samples = [64, 128, 256, 512, 1024, 2048]
"""

import tomllib
import types
from collections.abc import Mapping
from dataclasses import MISSING, fields
from importlib.resources import files
from typing import Any, TypeVar, get_args, get_origin, get_type_hints

from ...errors import UserError
from .base import PROFILES

T = TypeVar("T")
LARGEST = 1_000_000  # whole number in a config: they are sizes and counts


def shipped(name: str) -> dict[str, dict[str, object]]:
    """The profiles of a config that comes with the package."""
    return profiles(files("proxlin").joinpath(f"experiments/configs/{name}.toml").read_bytes(), f"configs/{name}.toml")


def profiles(content: bytes, where: str) -> dict[str, dict[str, object]]:
    """The tables of a TOML text, one for each profile."""
    try:
        found = tomllib.loads(content.decode())
    except (ValueError, RecursionError) as error:  # also of 5,000 digits, or 1,000 brackets
        raise UserError(f"{where} is not a TOML file: {str(error)[:200]}.") from error
    for name, table in found.items():
        if name not in PROFILES or not isinstance(table, dict):
            raise UserError(f"{where}: {_shown(name)[1:-1]} is not a profile; the tables are {', '.join(PROFILES)}.")
    return found


def parse(schema: type[T], config: Mapping[str, object]) -> T:
    """The config as a `schema`: every field there and of its type, none unknown."""
    hints = get_type_hints(schema)
    names = [each.name for each in fields(schema)]  # pyright: ignore[reportArgumentType]
    for name in config:
        if name not in names:
            raise UserError(f"The config has no setting {_shown(name)[1:-1]}; it has {', '.join(names)}.")
    values = {}
    for each in fields(schema):  # pyright: ignore[reportArgumentType]
        if each.name in config:
            values[each.name] = _convert(config[each.name], hints[each.name], each.name)
        elif each.default is MISSING and each.default_factory is MISSING:
            raise UserError(f"The config lacks the setting {each.name}.")
    try:
        return schema(**values)
    except ValueError as error:
        raise UserError(f"The config cannot be used: {error}") from error


def _convert(value: Any, kind: Any, name: str) -> Any:
    origin = get_origin(kind)
    if origin is tuple:
        if not isinstance(value, list | tuple):
            raise UserError(f"The setting {name} has to be a list; it is {_shown(value)}.")
        return tuple(_convert(each, get_args(kind)[0], name) for each in value)
    if origin in (types.UnionType,) and value is None:
        return None
    wanted = kind if origin is None else get_args(kind)[0]
    if wanted is int and type(value) is int and abs(value) > LARGEST:
        raise UserError(f"The setting {name} has to be a number up to {LARGEST}; it is larger.")
    if wanted is float and type(value) in (int, float) and not abs(value) < 1e150:
        raise UserError(f"The setting {name} has to be a finite number below 1e150.")
    if wanted is float and isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    if not isinstance(value, wanted) or (isinstance(value, bool) and wanted is not bool):
        raise UserError(f"The setting {name} has to be of the type {wanted.__name__}; it holds {_shown(value)}.")
    return value


def _shown(value: Any) -> str:
    return repr(value)[:60]
