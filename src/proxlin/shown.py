"""What is shown of a solver, a function or a problem: numbers as numbers, large arrays by shape."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from .types import is_concrete, is_here

FEW = 6  # a vector of at most so many entries is written out


def shown(module: eqx.Module) -> str:
    """Return the text of a module with its numbers in it.

    >>> from proxlin import Huber, sgd
    >>> shown(Huber(0.3)), shown(sgd(0.1, batch_size=8))
    ('Huber(delta=0.3)', 'ModelBased(model=Linear(), schedule=Constant(s=0.1), batch_size=8)')
    """
    return eqx.tree_pformat(jax.tree.map(_of_leaf, module))


class _Text:
    """A text that stands in the place of an array, without quotes."""

    def __init__(self, text: str):
        self.text = text

    def __repr__(self) -> str:
        return self.text


def _of_leaf(x: Any) -> Any:
    is_array = isinstance(x, np.ndarray | np.generic | jax.Array)
    if not is_array or jnp.issubdtype(x.dtype, jax.dtypes.extended):
        return x
    if _is_short(x):
        numbers = np.asarray(x)
        # str of a NumPy scalar is the shortest text that tells it from others of its dtype
        if numbers.ndim == 0:
            return _Text(str(numbers[()]))
        return _Text("[" + ", ".join(str(entry) for entry in numbers) + "]")
    kind = "bool"
    if x.dtype.kind != "b":
        kind = f"{x.dtype.kind}{8 * x.dtype.itemsize}"
    return _Text(f"{kind}[{','.join(map(str, x.shape))}]")


def _is_short(x: Any) -> bool:
    """Return whether the numbers of x can be looked at, and are few."""
    if not is_concrete(x) or not is_here(x) or x.ndim > 1 or x.size > FEW:
        return False
    return not (isinstance(x, jax.Array) and x.is_deleted())
