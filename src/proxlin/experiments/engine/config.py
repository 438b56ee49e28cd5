"""Configs are data: TOML files with a table for each profile, checked against a frozen dataclass.

[quick]            [paper]                                         [rules.C4]
samples = [64]     samples = [64, 128, 256, 512, 1024, 2048]       asks = "more"

The table `rules` belongs to both profiles: a rule does not depend on the size of the run that it judges.
"""

import tomllib
from collections.abc import Mapping
from dataclasses import MISSING, fields, is_dataclass
from importlib.resources import files
from typing import Any, TypeVar, get_args, get_origin, get_type_hints

from ...errors import UserError
from .base import PROFILES

T = TypeVar("T")
LARGEST = 1_000_000  # whole number in a config: they are sizes and counts
LARGEST_FLOAT = 1e150  # so that the square of a number in a config is finite


def shipped(name: str) -> dict[str, dict[str, object]]:
    """Return the profiles of a config that comes with the package."""
    content = files("proxlin").joinpath(f"experiments/configs/{name}.toml").read_bytes()
    return profiles(content, f"configs/{name}.toml")


def profiles(content: bytes, where: str) -> dict[str, dict[str, object]]:
    """Return the tables of a TOML text, one for each profile."""
    try:
        found = tomllib.loads(content.decode())
    except (
        ValueError,
        RecursionError,
    ) as error:  # also for 5,000 digits, or 1,000 brackets
        raise UserError(f"{where} is not a TOML file: {str(error)[:200]}.") from error
    shared = {"rules": found.pop("rules")} if "rules" in found else {}
    for name, table in found.items():
        if name not in PROFILES or not isinstance(table, dict):
            raise UserError(
                f"{where}: {_shown(name)[1:-1]} is not a profile; the tables are {', '.join(PROFILES)} and rules."
            )
    return {name: {**table, **shared} for name, table in found.items()}


def parse(schema: type[T], config: Mapping[str, object], table: str = "") -> T:
    """Return the config as a `schema`, and refuse one that lacks a field, has another or one of a
    wrong type. `table` is the name of a table inside of a config.
    """
    where = f"The table {table} of the config" if table else "The config"
    hints = get_type_hints(schema)
    known = {each.name: each for each in fields(schema)}  # pyright: ignore[reportArgumentType]
    for name in config:
        if name not in known:
            raise UserError(
                f"{where} has no setting {_shown(name)[1:-1]}; it has {', '.join(known)}."
            )
    values = {}
    for name, each in known.items():
        if name in config:
            values[name] = _convert(config[name], hints[name], name)
        elif each.default is MISSING and each.default_factory is MISSING:
            raise UserError(f"{where} lacks the setting {name}.")
    try:
        return schema(**values)
    except ValueError as error:
        raise UserError(f"{where} cannot be used: {error}") from error


def _convert(value: Any, kind: Any, name: str) -> Any:
    """Return the value as its field has it: a list as a tuple, a whole number as a float where one
    is wanted.
    """
    if get_origin(kind) is tuple:
        if not isinstance(value, list | tuple):
            raise UserError(
                f"The setting {name} has to be a list; it is {_shown(value)}."
            )
        each_kind = get_args(kind)[0]
        return tuple(_convert(each, each_kind, name) for each in value)
    if get_origin(kind) is dict:
        if not isinstance(value, Mapping):
            raise UserError(
                f"The setting {name} has to be a table; it is {_shown(value)}."
            )
        each_kind = get_args(kind)[1]
        return {key: _convert(each, each_kind, key) for key, each in value.items()}
    if isinstance(kind, type) and is_dataclass(kind) and isinstance(value, Mapping):
        return parse(kind, value, _shown(name)[1:-1])
    if kind is float and type(value) in (int, float):
        if not abs(value) < LARGEST_FLOAT:
            raise UserError(
                f"The setting {name} has to be a finite number below {LARGEST_FLOAT:g}."
            )
        return float(value)
    if type(value) is not kind:  # by the type itself, since True is an instance of int
        raise UserError(
            f"The setting {name} has to be of the type {kind.__name__}; it holds {_shown(value)}."
        )
    if kind is int and abs(value) > LARGEST:
        raise UserError(
            f"The setting {name} has to be a number up to {LARGEST}; it is larger."
        )
    return value


def _shown(value: Any) -> str:
    """Return a value as a message shows it, cut where it is long."""
    return repr(value)[:60]
