"""A tree of penalties: g(w) = sum of the penalty of each array of w."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array

from ..checks import described, outline, with_jax_arrays
from ..types import Params, dtype_of, parameters
from .base import AbstractPenalty
from .terms import AbstractTerm


def _is_leaf(x: Any) -> bool:
    return x is None or isinstance(x, AbstractPenalty)


def as_penalties(penalty: Any) -> "Penalties | None":
    """Return the penalty of a problem: one for all of w, a tree of them, or None."""
    leaves = jax.tree.leaves(penalty, is_leaf=_is_leaf)
    for leaf in leaves:
        if _is_leaf(leaf):
            continue
        hint = ""
        if isinstance(leaf, type) and issubclass(leaf, AbstractPenalty):
            hint = f": call it, px.{leaf.__name__}(...)"
        if isinstance(leaf, int | float) and not isinstance(leaf, bool):
            hint = f": for an l1 term of this weight write px.L1Penalty({leaf!r}), for bounds px.Bounds(low, high)"
        raise TypeError(
            f"penalty must be one such as px.NonNegative() or px.L1Penalty(0.1), a tree of them, or None; it has "
            f"{described(leaf)}{hint}."
        )
    if all(leaf is None for leaf in leaves):
        return None
    return Penalties(with_jax_arrays(penalty))


class Penalties(eqx.Module):
    """g(w), the sum over the arrays of w. The tree is that of w, or the beginning of it: a penalty
    in the place of a subtree is for every array of that.
    """

    tree: Any

    def each(self, w: Params) -> list[tuple[AbstractPenalty | None, Array]]:
        """Return the arrays of w with their penalties, in the order of `ravel_pytree`."""
        penalties, treedef = jax.tree.flatten(self.tree, is_leaf=_is_leaf)
        subtrees = treedef.flatten_up_to(parameters(w))
        return [
            (penalty, x)
            for penalty, subtree in zip(penalties, subtrees, strict=True)
            for x in jax.tree.leaves(subtree)
        ]

    def by_entries(self) -> bool:
        """Whether every penalty is a sum over entries that an interior point knows."""
        leaves = jax.tree.leaves(self.tree, is_leaf=_is_leaf)
        return all(leaf is None or leaf.by_entries for leaf in leaves)

    def value(self, w: Params) -> Array:
        """Return g(w)."""
        values = [p.value(x) for p, x in self.each(w) if p is not None]
        return sum(values, jnp.zeros((), dtype_of(w)))

    def subgradient(self, w: Params) -> Params:
        """Return a subgradient of g at w, a tree of its parameters."""
        return self._with(
            w,
            [
                jnp.zeros_like(x) if p is None else p.subgradient(x)
                for p, x in self.each(w)
            ],
        )

    def prox(self, w: Params, step: Any) -> Params:
        """Return argmin_y g(y) + |y - w|^2 / 2 step."""
        return self._with(
            w, [x if p is None else p.prox(x, step) for p, x in self.each(w)]
        )

    def nearest(self, w: Params) -> Params:
        """Return the point nearest to w where g is finite."""
        return self._with(
            w, [x if p is None else p.nearest(x) for p, x in self.each(w)]
        )

    def kinks(self, w: Params) -> Params:
        """Return which entries of w sit at a kink or at a bound."""
        return self._with(
            w,
            [
                jnp.zeros(x.shape, bool) if p is None else p.kinks(x)
                for p, x in self.each(w)
            ],
        )

    def pinned(self, w: Params) -> Params:
        """Return w, with the entries at kinks and bounds as functions of the numbers of g."""
        return self._with(w, [x if p is None else p.pinned(x) for p, x in self.each(w)])

    def excess(self, w: Params, best: Params, slope: Params) -> Array:
        """Return g(w) - g(best) - <slope, w - best>, for a subgradient `slope` at `best`."""
        each = zip(
            self.each(w), jax.tree.leaves(best), jax.tree.leaves(slope), strict=True
        )
        found = [p.excess(x, y, s) for (p, x), y, s in each if p is not None]
        return sum(found, jnp.zeros((), dtype_of(w)))

    def snapped(self, w: Params, best: Params) -> Params:
        """Return w, with the entries of `best` that sit at a kink or at a bound."""
        leaves = []
        for (p, x), y in zip(self.each(w), jax.tree.leaves(best), strict=True):
            leaves.append(x if p is None else jnp.where(p.kinks(y), y, x))
        return self._with(w, leaves)

    def terms(
        self, w: Params, unit: Array, scale: Array
    ) -> "list[tuple[slice, AbstractTerm]] | None":
        """Return g(w + unit e) / scale for an interior point: a term for each slice of the raveled
        e, or None where one has no such form.
        """
        found = []
        start = 0
        for penalty, x in self.each(w):
            part = slice(start, start + x.size)
            start += x.size
            if penalty is None or x.size == 0:
                continue
            term = penalty.term(x, unit, scale)
            if term is None:
                return None
            found.append((part, term))
        return found

    def check(self, w: Params) -> None:
        """Raise a sentence unless the tree and the numbers of g fit w."""
        penalties, treedef = jax.tree.flatten(self.tree, is_leaf=_is_leaf)
        try:
            subtrees = treedef.flatten_up_to(parameters(w))
        except (ValueError, TypeError) as error:
            raise ValueError(
                f"The penalty must have the structure of w, or be one penalty for all of w: w is {outline(w)}, and the "
                f"penalty is {outline(self.tree, _is_leaf)}."
            ) from error
        paths = jax.tree_util.tree_leaves_with_path(self.tree, is_leaf=_is_leaf)
        for penalty, subtree, (path, _) in zip(penalties, subtrees, paths, strict=True):
            if penalty is None:
                continue
            for rest, x in jax.tree_util.tree_leaves_with_path(subtree):
                name = "w" + jax.tree_util.keystr((*path, *rest))
                penalty.check(x.shape, name)

    def _with(self, w: Params, leaves: list) -> Params:
        return jax.tree.unflatten(jax.tree.structure(parameters(w)), leaves)
