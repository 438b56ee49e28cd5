"""A formula such as "price ~ log(area) + C(city)": the columns that a fit sees, computed from those of
a table.

    derived = formula.apply(frame)            a column for each term, as `Encoder` reads them

formulaic parses the grammar of R (`+ : * - ** ( )`). What stands between its operators is evaluated
here, and may hold columns, numbers, arithmetic and a few functions only: a formula is stored in model
files, and a file of a stranger must not be able to run anything.
"""

import ast
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..data.frames import Column, Frame
from ..errors import UserError, require

FUNCTIONS: dict[str, Callable[[Any], Any]] = {
    "log": np.log,
    "log10": np.log10,
    "log2": np.log2,
    "log1p": np.log1p,
    "exp": np.exp,
    "expm1": np.expm1,
    "sqrt": np.sqrt,
    "abs": np.abs,
    "sin": np.sin,
    "cos": np.cos,
    "tanh": np.tanh,
    "I": lambda x: x,
}
OPERATORS: dict[type, Callable[[Any, Any], Any]] = {
    ast.Add: np.add,
    ast.Sub: np.subtract,
    ast.Mult: np.multiply,
    ast.Div: np.divide,
    ast.Pow: np.power,
}
CATEGORY = re.compile(r"C\((.*)\)", re.DOTALL)
QUOTED = re.compile(r"`([^`]*)`")
LONGEST = 2000  # characters of an expression; ast may recurse as deep as it is long


@dataclass(frozen=True)
class Term:
    """A product of factors. `levels` are those of its categories, one text for each combination,
    where numbers are multiplied with categories.
    """

    factors: tuple[str, ...]
    levels: tuple[str, ...] | None = None

    @property
    def name(self) -> str:
        return ":".join(_plain(each) for each in self.factors)


@dataclass(frozen=True)
class Formula:
    """The targets and terms of a formula, with the levels seen in the fit."""

    text: str
    targets: tuple[str, ...]
    terms: tuple[Term, ...]

    def apply(self, frame: Frame, targets: bool = False) -> Frame:
        """Return the table of the terms, and of the targets too if asked for."""
        columns = []
        if targets:
            columns += [_numbers(frame, each) for each in self.targets]
        for term in self.terms:
            columns += _columns(frame, term)
        return Frame(frame.source, tuple(columns))


def is_formula(target: Any) -> bool:
    return isinstance(target, str) and "~" in target


def formula_of(text: str, frame: Frame) -> Formula:
    """Parse a formula for this table, whose categories decide the levels."""
    targets, terms = _parsed(text, frame)
    found = []
    for factors in terms:
        term = Term(factors)
        kinds = {_is_category(frame, each) for each in factors}
        if kinds == {True, False}:
            cells = _crossed(frame, factors).cells
            term = Term(factors, tuple(sorted({cell for cell in cells if cell})))
        found.append(term)
    return Formula(text, targets, tuple(found))


def _parsed(text: str, frame: Frame) -> tuple[tuple[str, ...], list[tuple[str, ...]]]:
    """Return the expressions on the left, and the factors of each term on the right."""
    formulaic = require("formulaic", "formula")
    left, _, right = text.partition("~")
    if "~" in right:
        raise UserError(f"The formula {text!r} has two signs ~; one is right.")
    others = [name for name in frame.names if name != left.strip().strip("`")]
    if right.strip() == ".":
        right = " + ".join(f"`{name}`" for name in others)
    try:
        parsed = formulaic.Formula(f"{left} ~ {right}")
        targets = [list(term.factors) for term in parsed.lhs]
        terms = [list(term.factors) for term in parsed.rhs]
    except (
        formulaic.errors.FormulaicError,
        AttributeError,
        SyntaxError,
        TypeError,
        RecursionError,
    ) as error:
        raise UserError(
            f'The formula {text!r} is not understood; write it as "target ~ column + C(category)".'
        ) from error
    names = [[_expression(factor) for factor in term] for term in terms]
    if ["1"] not in names:
        raise UserError(
            f"The formula {text!r} takes the intercept away; every fit here has one."
        )
    if any(len(term) != 1 for term in targets):
        raise UserError(
            f"The formula {text!r} has a product on its left; write one with I(a * b)."
        )
    kept = [tuple(term) for term in names if term != ["1"]]
    return tuple(_expression(term[0]) for term in targets), kept


def _expression(factor: Any) -> str:
    """Return the text of a factor; a column with an odd name stands in signs of `."""
    text = str(factor.expr)
    if factor.eval_method.name == "LOOKUP" and not text.isidentifier():
        return f"`{text}`"
    return text


# ------------------------------------------------------------------------------------------ columns


def _columns(frame: Frame, term: Term) -> list[Column]:
    """Return the column of a term; of numbers times categories, one for each level."""
    numbers = [each for each in term.factors if not _is_category(frame, each)]
    if len(numbers) == len(term.factors):
        return [Column(term.name, _product(frame, numbers))]
    crossed = _crossed(frame, term.factors)
    if not numbers:
        return [Column(term.name, crossed.cells)]
    values = _product(frame, numbers)
    assert term.levels is not None
    return [
        Column(f"{term.name}[{level}]", np.where(crossed.cells == level, values, 0.0))
        for level in term.levels
    ]


def _product(frame: Frame, expressions: Sequence[str]) -> np.ndarray:
    values = np.ones(len(frame))
    for each in expressions:
        values = values * _numbers(frame, each).cells
    return values


def _crossed(frame: Frame, factors: Sequence[str]) -> Column:
    """Return the categories among the factors as one column of texts, None where one is missing."""
    columns = [_category(frame, each) for each in factors if _is_category(frame, each)]
    rows = zip(*(column.cells for column in columns), strict=True)
    cells = [None if None in row else ":".join(row) for row in rows]
    return Column(":".join(factors), np.array(cells, object))


def _is_category(frame: Frame, expression: str) -> bool:
    """Return whether a factor is C(...), or names a column of texts."""
    if CATEGORY.fullmatch(expression):
        return True
    name = _plain(expression)
    return name in frame.names and not frame[name].numeric


def _category(frame: Frame, expression: str) -> Column:
    inside = CATEGORY.fullmatch(expression)
    name = _plain(inside[1] if inside else expression)
    return frame[name].as_texts()


def _plain(name: str) -> str:
    return name.strip().strip("`")


def _numbers(frame: Frame, expression: str) -> Column:
    """Return an expression of columns as numbers; nan where a column has none."""
    if _plain(expression) in frame.names:
        return Column(_plain(expression), frame[_plain(expression)].cells)
    if len(expression) > LONGEST:
        raise UserError(f"The formula has a term of {len(expression)} characters.")
    quoted: dict[str, str] = {}

    def hide(match: re.Match) -> str:
        quoted[f"quoted_{len(quoted)}"] = match[1]
        return f"quoted_{len(quoted) - 1}"

    try:
        tree = ast.parse(QUOTED.sub(hide, expression).strip(), mode="eval").body
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise UserError(f"The term {expression!r} is not understood.") from error
    with np.errstate(all="ignore"):
        found = _evaluated(tree, frame, expression, quoted)
        values = np.broadcast_to(np.asarray(found, float), len(frame)).copy()
    used = [
        frame[quoted.get(node.id, node.id)]
        for node in ast.walk(tree)
        if isinstance(node, ast.Name) and quoted.get(node.id, node.id) in frame.names
    ]
    missing = np.any([column.missing for column in used], axis=0)
    wrong = ~np.isfinite(values) & ~missing
    if wrong.any():
        raise UserError(
            f"{frame.source}, row {int(wrong.argmax()) + 1}: {expression} is not finite there; change the formula, or "
            f"leave such rows out."
        )
    return Column(expression, values)


def _evaluated(node: ast.AST, frame: Frame, whole: str, quoted: dict[str, str]) -> Any:
    """Return the value of a tree of columns, numbers, arithmetic and FUNCTIONS; refuse all else."""
    if isinstance(node, ast.Constant) and isinstance(node.value, int | float):
        return float(node.value)
    if isinstance(node, ast.Name):
        column = frame[quoted.get(node.id, node.id)]
        if not column.numeric:
            raise UserError(
                f"{frame.source}, column {column.name!r} holds texts, {column.first()}; {whole} needs numbers."
            )
        return column.cells
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        return -_evaluated(node.operand, frame, whole, quoted)
    if isinstance(node, ast.BinOp) and type(node.op) in OPERATORS:
        left = _evaluated(node.left, frame, whole, quoted)
        right = _evaluated(node.right, frame, whole, quoted)
        return OPERATORS[type(node.op)](left, right)
    if isinstance(node, ast.Call) and len(node.args) == 1 and not node.keywords:
        name = _function(node.func)
        if name in FUNCTIONS:
            return FUNCTIONS[name](_evaluated(node.args[0], frame, whole, quoted))
    raise UserError(
        f"The term {whole!r} is not understood; a formula may hold columns, numbers, + - * / ** inside I(...), and the "
        f"functions {', '.join(name for name in FUNCTIONS if name != 'I')}."
    )


def _function(node: ast.AST) -> str:
    """Return the name of a function, also of one such as np.log."""
    if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
        return node.attr if node.value.id == "np" else ""
    return node.id if isinstance(node, ast.Name) else ""
