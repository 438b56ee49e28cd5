"""What a run returns, and its file: arrays in one .npz, their structure in JSON, nothing that could
run code.
"""

import dataclasses
import json
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import numpy as np

from ..cost import Cost, Status
from ..files.npz import read_arrays, write_arrays
from ..files.reading import as_path
from ..files.writing import write_file
from ..precision import as_jax
from ..types import Params, with_arrays
from .page import curve, table

FORMAT = 1
# a count in a file; a larger one is damage, and may be too large for a float
LARGEST = 2**128


# What the answer is called elsewhere, and here.
ELSEWHERE = {
    "x": "the answer is .w",
    "fun": "F at the answer is .value",
    "nit": "the steps are .history['step']",
    "nfev": "the calls are counted in .cost",
    "success": "how the run ended is .status",
}


@dataclasses.dataclass(frozen=True, repr=False, eq=False)
class Solution:
    """The answer of `minimize`: w, F(w), how and why it ended, what it cost, and the history.

    Two solutions are equal if every number of them is. A notebook shows a small table and the curve
    of F.

    Parameters
    ----------
    w : a tree
        The last iterate; where the run diverged, the best finite one.
    value : a number
        F(w).
    status : a `Status`
        How the run ended.
    message : a text
        Why it ended, in a sentence.
    cost : a `Cost`
        The calls of phi, of its derivatives and of an oracle.
    history : a dict of 1-D arrays
        "step", "passes", "seconds", "value", and one for each metric.
    state : a tree
        The state of the solver, for `resume`.
    solver : a word
        The name of the solver.
    seed : an integer
        The seed of the run.
    n : an integer
        The number of samples.

    See Also
    --------
    minimize : returns it.
    load_solution : reads one from a file.
    Result : the answer of `solve`.

    Examples
    --------
    >>> import tempfile
    >>> import numpy as np
    >>> import proxlin as px
    >>> p = px.MeanOfLosses(lambda w, x: w - x, px.L1(), np.array([[1.0], [2.0], [9.0]]))
    >>> solution = px.minimize(p, np.zeros(1), px.subgradient_descent(1.0), steps=3)
    >>> solution.solver, str(solution.status), solution.w.round(6).tolist()
    ('subgradient_descent', 'budget', [2.0])
    >>> [row["step"] for row in solution.records()]
    [0, 1, 2, 3]
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     solution.save(f"{folder}/run.npz")
    ...     again = px.load_solution(f"{folder}/run.npz")
    >>> again == solution
    True
    """

    w: Params
    value: float
    status: Status
    message: str
    cost: Cost
    history: dict[str, np.ndarray]
    state: Any
    solver: str
    seed: int
    n: int

    def __repr__(self) -> str:
        first = self.history["value"][0]
        return (
            f"Solution({self.solver}: {self.status}; F from {first:.6g} to {self.value:.6g} in "
            f"{self.history['step'][-1]} steps, {self.history['passes'][-1]:.3g} passes, "
            f"{self.history['seconds'][-1]:.3g} s)\n  {self.message}"
        )

    def _repr_html_(self) -> str:
        """Return a small table and the curve of F, which a notebook shows."""
        history = self.history
        rows = {
            "solver": self.solver,
            "status": str(self.status),
            "F": f"from {history['value'][0]:.6g} to {self.value:.6g}",
            "steps": str(history["step"][-1]),
            "passes": f"{history['passes'][-1]:.3g}",
            "seconds": f"{history['seconds'][-1]:.3g}",
            "message": self.message,
        }
        return table(rows, curve(history["passes"], history["value"], "F"))

    def __eq__(self, other: Any) -> bool:
        """Return whether two solutions are the same in every number; a state that was saved and
        loaded is the same state.
        """
        if not isinstance(other, Solution):
            return NotImplemented
        names = [
            field.name for field in dataclasses.fields(self) if field.name != "state"
        ]
        mine = [getattr(self, name) for name in names]
        theirs = [getattr(other, name) for name in names]
        return _same(mine, theirs) and _same(
            state_leaves(self.state), state_leaves(other.state)
        )

    __hash__ = None  # pyright: ignore[reportAssignmentType]

    def __getattr__(self, name: str) -> Any:
        hint = f": {ELSEWHERE[name]}" if name in ELSEWHERE else ""
        raise AttributeError(f"A Solution has no {name!r}{hint}.")

    def records(self) -> list[dict[str, Any]]:
        """Return the history as rows of plain numbers, with the solver and the seed:
        `pandas.DataFrame(solution.records())`.

        polars takes them as well; the rows of several runs can be added up into one table.

        Returns
        -------
        a list of dicts
            One for each record.
        """
        columns = [column.tolist() for column in self.history.values()]
        run = {"solver": self.solver, "seed": self.seed}
        return [
            run | dict(zip(self.history, row, strict=True))
            for row in zip(*columns, strict=True)
        ]

    def save(self, path: str | Path) -> None:
        """Write the solution to a file; `load_solution` reads it, and `minimize(..., resume=...)`
        goes on from it.

        Of several processes, which all hold the same solution, the first one writes it.

        Parameters
        ----------
        path : a path
            The file to write; one that is there is replaced, in one piece.
        """
        if jax.process_index() > 0:
            return
        arrays: dict[str, np.ndarray] = {}
        structure = {
            "format": FORMAT,
            "w": _encode(self.w, arrays, "w"),
            "value": self.value,
            "status": str(self.status),
            "message": self.message,
            "cost": dataclasses.asdict(self.cost),
            "history": sorted(self.history),
            "solver": self.solver,
            "seed": self.seed,
            "n": self.n,
        }
        for i, leaf in enumerate(state_leaves(self.state)):
            arrays[f"state{i}"] = leaf
        for name, column in self.history.items():
            arrays[f"history.{name}"] = column
        text = np.frombuffer(json.dumps(structure).encode(), np.uint8)
        write_file(path, lambda file: write_arrays(file, {"structure": text, **arrays}))


def _same(a: Any, b: Any) -> bool:
    """Return whether two trees have one structure, and leaves of the same dtypes and numbers; nan is
    nan.
    """
    mine, structure = jax.tree.flatten(a)
    theirs, other = jax.tree.flatten(b)
    return structure == other and all(map(_same_leaf, mine, theirs))


def _same_leaf(a: Any, b: Any) -> bool:
    if not isinstance(a, np.ndarray | jax.Array):
        # nan != nan, and a float of Python may be one
        return bool(a == b or (a != a and b != b)) and type(a) is type(b)
    if not isinstance(b, np.ndarray | jax.Array) or a.dtype != b.dtype:
        return False
    return np.array_equal(a, b, equal_nan=a.dtype.kind in "fc")


class SavedState(eqx.Module):
    """The leaves of a solver's state, until a solver and a problem give them their structure again."""

    leaves: list[np.ndarray]


def state_leaves(state: Any) -> list[np.ndarray]:
    """The arrays of a state, in order."""
    return (
        state.leaves
        if isinstance(state, SavedState)
        else [np.asarray(x) for x in jax.tree.leaves(state)]
    )


def load_solution(path: str | Path, like: Params = None) -> Solution:
    """Return the solution saved at path.

    Nodes of w other than dict, list and tuple (an equinox module, say) are not in the file.

    Parameters
    ----------
    path : a path
        A file that `Solution.save` wrote.
    like : a tree, or None
        A tree of the structure of w, where w has other nodes than dict, list and tuple.

    Returns
    -------
    a `Solution`
        It is equal to the one that was saved, and `minimize(..., resume=solution)` goes on from it.

    Raises
    ------
    TypeError
        path is no path.
    FileNotFoundError
        There is no such file.
    ValueError
        The file is no solution, or damaged, or needs `like`.

    See Also
    --------
    Solution : `Solution.save` writes the file.
    minimize : goes on from it.

    Examples
    --------
    >>> import tempfile
    >>> import numpy as np
    >>> import proxlin as px
    >>> p = px.MeanOfLosses(lambda w, x: w - x, px.L1(), np.array([[1.0], [2.0], [9.0]]))
    >>> solution = px.minimize(p, np.zeros(1), px.subgradient_descent(1.0), steps=3)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     solution.save(f"{folder}/run.npz")
    ...     again = px.load_solution(f"{folder}/run.npz")
    >>> px.minimize(p, np.zeros(1), px.subgradient_descent(1.0), steps=5, resume=again).history["step"].tolist()
    [0, 1, 2, 3, 4, 5]
    """
    path = as_path(path)
    structure, arrays = _read(path)
    if structure["format"] != FORMAT:
        found = str(structure["format"])[:20]
        raise ValueError(
            f"{path} is a solution of format {found}; this version reads {FORMAT}."
        )
    count = sum(name.startswith("state") for name in arrays)
    return Solution(
        w=_decode(structure["w"], arrays, with_arrays(like), path),
        value=float(structure["value"]),
        status=Status(structure["status"]),
        message=str(structure["message"]),
        cost=Cost(**structure["cost"]),
        history={name: arrays[f"history.{name}"] for name in structure["history"]},
        state=SavedState([arrays[f"state{i}"] for i in range(count)]),
        solver=str(structure["solver"]),
        seed=int(structure["seed"]),
        n=int(structure["n"]),
    )


def _read(path: Path) -> tuple[dict, dict[str, np.ndarray]]:
    """The structure and the arrays of a file, or a sentence: it is opened as plain arrays only,
    never unpickled.
    """
    if not path.is_file():
        raise FileNotFoundError(f"There is no solution at {path}.")
    try:
        arrays = read_arrays(path)
        structure = json.loads(arrays.pop("structure").tobytes())
        if structure["format"] != FORMAT:
            return structure, {}
        wanted = {f"history.{name}" for name in structure["history"]} | set(
            _names(structure["w"])
        )
        if missing := wanted - set(arrays):
            raise KeyError(missing)
        _check(structure, arrays)
    except (
        AttributeError,
        KeyError,
        TypeError,
        ValueError,
        RecursionError,
        OverflowError,
        OSError,
    ) as error:
        raise ValueError(
            f"{path} is not a solution written by Solution.save, or it is damaged."
        ) from error
    return structure, arrays


def _check(structure: dict, arrays: dict[str, np.ndarray]) -> None:
    """Raise unless the parts are of the right kinds: a damaged file may still be an archive of
    arrays and JSON.
    """
    columns = [arrays[f"history.{name}"] for name in structure["history"]]
    states = [name for name in arrays if name.startswith("state")]
    cost = structure["cost"]
    good = {"step", "passes", "seconds", "value"} <= set(structure["history"])
    good &= (
        len({column.shape for column in columns}) == 1
        and columns[0].ndim == 1
        and len(columns[0]) > 0
    )
    good &= all(x.dtype.kind in "biuf" for x in arrays.values()) and all(
        x.dtype.kind in "if" for x in columns
    )
    good &= sorted(states) == sorted(f"state{i}" for i in range(len(states)))
    good &= cost.keys() == {each.name for each in dataclasses.fields(Cost)}
    good &= all(
        type(x) is int and 0 <= x < LARGEST for x in (*cost.values(), structure["n"])
    )
    good &= type(structure["seed"]) is int and abs(structure["seed"]) < 2**64
    good &= type(structure["value"]) in (int, float) and isinstance(
        float(structure["value"]), float
    )
    good &= structure["status"] in [str(each) for each in Status]
    if not (
        good and all(isinstance(structure[name], str) for name in ("message", "solver"))
    ):
        raise ValueError


def _names(node: Any) -> list[Any]:
    """The arrays that an encoded tree refers to."""
    match node:
        case {"value": _}:
            return []
        case {"array": name}:
            return [name]
        case {"dict": dict(named)}:
            children = list(named.values())
        case {"list": list(children)} | {"tuple": list(children)}:
            pass
        case {"leaves": list(names), "type": str()}:
            return names
        case _:
            raise ValueError
    return [name for child in children for name in _names(child)]


def _encode(node: Any, arrays: dict[str, np.ndarray], name: str) -> Any:
    """A tree of dicts, lists and tuples as JSON, its arrays by name; another node keeps its leaves
    in order.
    """
    if node is None or isinstance(node, bool | int | float | str):
        return {"value": node}
    if isinstance(node, np.ndarray | jax.Array):
        arrays[name] = np.asarray(node)
        return {"array": name}
    if type(node) is dict and all(isinstance(key, str) for key in node):
        return {
            "dict": {
                key: _encode(child, arrays, f"{name}.{key}")
                for key, child in node.items()
            }
        }
    if type(node) in (list, tuple):
        return {
            type(node).__name__: [
                _encode(child, arrays, f"{name}.{i}") for i, child in enumerate(node)
            ]
        }
    leaves = [
        leaf
        for leaf in jax.tree.leaves(node)
        if eqx.is_array(leaf) or isinstance(leaf, np.ndarray)
    ]
    for i, leaf in enumerate(leaves):
        arrays[f"{name}.{i}"] = np.asarray(leaf)
    return {
        "leaves": [f"{name}.{i}" for i in range(len(leaves))],
        "type": type(node).__name__,
    }


def _decode(node: dict, arrays: dict[str, np.ndarray], like: Any, path: Path) -> Any:
    if "value" in node:
        return node["value"]
    if "array" in node:
        return as_jax(arrays[node["array"]])
    if "dict" in node:
        given = like if isinstance(like, dict) else {}
        return {
            key: _decode(child, arrays, given.get(key), path)
            for key, child in node["dict"].items()
        }
    for kind in (list, tuple):
        if kind.__name__ in node:
            children = node[kind.__name__]
            given = (
                like
                if isinstance(like, list | tuple) and len(like) == len(children)
                else [None] * len(children)
            )
            return kind(
                _decode(child, arrays, g, path)
                for child, g in zip(children, given, strict=True)
            )
    if like is None:
        raise ValueError(
            f"{path} has a {node['type']} in w, whose structure is not in the file; give like=w."
        )
    dynamic, static = eqx.partition(
        like, lambda x: eqx.is_array(x) or isinstance(x, np.ndarray)
    )
    leaves, treedef = jax.tree.flatten(dynamic)
    if len(leaves) != len(node["leaves"]):
        raise ValueError(
            f"{path} has {len(node['leaves'])} arrays in its {node['type']}, but like has {len(leaves)}."
        )
    return eqx.combine(
        treedef.unflatten([as_jax(arrays[name]) for name in node["leaves"]]),
        static,
    )
