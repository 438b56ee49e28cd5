"""The rows of the data: passes in chunks that fit in memory, and rows split over devices.

    sum_i g(row_i)  =  all-reduce of sum_{i here} g(row_i)                              one g travels, whatever n is
    rows of a batch =  reduce-scatter of (row_i where it lies, 0 elsewhere)             one row for each sample

These are written out with `jax.shard_map`: left to itself, XLA gathers the whole data for a slice
whose start it does not know. Parameters, and all that a run returns, are whole on every device.
"""

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.extend.core
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec
from jaxtyping import Array, PyTree

from ..checks import described
from ..inputs import as_arrays
from ..precision import is_wide, scope
from ..types import is_concrete

AXIS = "data"


@dataclasses.dataclass(frozen=True)
class Split:
    """Rows in equal parts over some axes of a mesh of devices."""

    mesh: Mesh
    axes: tuple[str, ...]

    @property
    def parts(self) -> int:
        return int(np.prod([self.mesh.shape[axis] for axis in self.axes]))

    @property
    def by_rows(self) -> NamedSharding:
        return NamedSharding(self.mesh, PartitionSpec(self.axes))

    @property
    def everywhere(self) -> NamedSharding:
        return NamedSharding(self.mesh, PartitionSpec())

    def place(self, rows: PyTree) -> PyTree:
        """The same rows, those of each device there; where they lie so already, nothing moves."""
        return jax.device_put(rows, self.by_rows)

    def total(self, function: Callable, rows: PyTree) -> PyTree:
        """function(rows here, sum over devices) on each device; what it returns must be the same on
        all of them.
        """
        add_up = lambda x: jax.lax.psum(x, self.axes)
        return self._on_each(
            lambda part: function(part, add_up), self.by_rows.spec, PartitionSpec()
        )(rows)

    def stack(self, function: Callable, rows: PyTree) -> PyTree:
        """function(rows here) on each device, one row for each: nothing travels."""
        return self._on_each(function, self.by_rows.spec, self.by_rows.spec)(rows)

    def take(self, rows: PyTree, batch: Array) -> tuple[PyTree, "Split | None"]:
        """rows[batch] and how they are split: evenly where their number allows it, else all of them
        everywhere.
        """
        n = jax.tree.leaves(rows)[0].shape[0]
        each, even = (
            n // self.parts,
            batch.ndim == 1 and batch.shape[0] % self.parts == 0,
        )

        def local(part: PyTree, batch: Array) -> PyTree:
            at = (
                jnp.clip(jnp.where(batch < 0, batch + n, batch), 0, n - 1)
                - jax.lax.axis_index(self.axes) * each
            )
            here = (at >= 0) & (at < each)
            return jax.tree.map(
                lambda x: self._join(
                    _zero_unless(here, x.at[at].get(mode="clip")), even
                ),
                part,
            )

        where = (
            (self.by_rows.spec, PartitionSpec()),
            self.by_rows.spec if even else PartitionSpec(),
        )
        return self._on_each(local, *where)(
            rows, batch.astype(jnp.int32)
        ), self if even else None

    def gather(self, rows: PyTree) -> PyTree:
        """All rows everywhere."""
        return jax.tree.map(
            lambda x: jax.lax.with_sharding_constraint(x, self.everywhere), rows
        )

    def _join(self, x: Array, even: bool) -> Array:
        number = x.astype(jnp.int32) if x.dtype == bool else x
        if even:
            return jax.lax.psum_scatter(
                number, self.axes, scatter_dimension=0, tiled=True
            ).astype(x.dtype)
        return jax.lax.psum(number, self.axes).astype(x.dtype)

    def _on_each(self, function: Callable, arguments: Any, results: Any) -> Callable:
        # without check_vma: it would ask a user's scan inside phi to mark its carry as varying over
        # devices
        return jax.shard_map(
            function,
            mesh=self.mesh,
            in_specs=arguments,
            out_specs=results,
            check_vma=False,
        )


def _zero_unless(here: Array, x: Array) -> Array:
    return jnp.where(
        here.reshape(here.shape + (1,) * (x.ndim - here.ndim)), x, jnp.zeros_like(x)
    )


def split_of(data: PyTree) -> Split | None:
    """How the arrays are split along their first axis; None where they are whole."""
    found = {_split_of_one(x) for x in jax.tree.leaves(data)}
    if len(found) > 1:
        raise ValueError(
            "The arrays of the data are split over devices in different ways; take px.shard of all of it."
        )
    return found.pop() if found else None


def _split_of_one(x: Any) -> Split | None:
    sharding = x.sharding if isinstance(x, jax.Array) and is_concrete(x) else None
    if (
        not isinstance(sharding, NamedSharding)
        or sharding.is_fully_replicated
        or not isinstance(sharding.mesh, Mesh)
    ):
        return None
    first, *others = sharding.spec
    if first is None or any(other is not None for other in others):
        raise ValueError(
            f"Data is split over devices along its first axis only; here is an array with {sharding.spec}."
        )
    # of automatic axes, whatever the given one has
    mesh = Mesh(sharding.mesh.devices, sharding.mesh.axis_names)
    return Split(mesh, first if isinstance(first, tuple) else (first,))


def shard(data: PyTree, devices: Sequence[Any] | None = None) -> PyTree:
    """Return the same arrays, their rows in equal parts over devices (all there are, if None).

    As the data of a problem, `px.MeanOfLosses(inner, outer, px.shard((X, Y)))`, it makes every
    pass, Gram product and mini-batch run on all of them. On several processes (after
    `jax.distributed.initialize`) each brings its own rows, as many as each other; the rows of the
    problem are those of process 0, then of process 1, and so on.

    Parameters
    ----------
    data : a tree of arrays with a leading axis n
        The samples.
    devices : a list of devices of JAX, or None
        Where the rows go; None is all devices.

    Returns
    -------
    a tree of arrays
        The data, for `px.MeanOfLosses` or `px.LossOfMean`.

    Raises
    ------
    TypeError
        devices is no list of devices, or an array has random keys.
    ValueError
        An array has no leading axis, or its rows cannot be split evenly.

    See Also
    --------
    MeanOfLosses, LossOfMean : take it as `data`.

    Examples
    --------
    >>> import jax
    >>> import numpy as np
    >>> import proxlin as px
    >>> px.shard(np.ones((6, 2)), jax.devices()[:1]).shape
    (6, 2)
    """
    given = jax.devices() if devices is None else devices
    if (
        not isinstance(given, list | tuple)
        or not given
        or not all(isinstance(each, jax.Device) for each in given)
    ):
        raise TypeError(
            f"devices must be a list of one or more devices of JAX, or None; it is {described(devices)}."
        )
    devices = sorted(given, key=lambda device: device.process_index)
    data = as_arrays(data)
    for x in jax.tree.leaves(data):
        if not isinstance(x, np.ndarray | jax.Array) or x.ndim == 0:
            raise ValueError(
                f"shard needs arrays with a leading axis of samples; it got {described(x)}."
            )
        if jnp.issubdtype(x.dtype, jax.dtypes.prng_key):
            raise TypeError(
                "Random keys cannot be split over devices as they are; give jax.random.key_data of them."
            )
    _check_rows([x.shape[0] for x in jax.tree.leaves(data)], devices)
    place = NamedSharding(Mesh(np.asarray(devices), (AXIS,)), PartitionSpec(AXIS))

    def put(x: Any) -> Array:
        with scope(is_wide(x)):
            return jax.make_array_from_process_local_data(place, np.asarray(x))

    return jax.tree.map(put, data)


def _check_rows(rows: list[int], devices: Sequence[Any]) -> None:
    """Raise the same sentence on every process unless each device gets as many rows as the others."""
    mine = sum(device.process_index == jax.process_index() for device in devices)
    if jax.process_count() > 1:
        # It takes a while to import, and few need it.
        from jax.experimental import multihost_utils

        every = np.asarray(
            multihost_utils.process_allgather(np.asarray([mine, *rows]))
        ).reshape(jax.process_count(), -1)
        if (every != every[0]).any() or mine == 0:
            raise ValueError(
                f"Every process must bring as many rows, for as many devices, as the others; of process 0, 1, ... the "
                f"devices are {every[:, 0].tolist()} and the rows {every[:, 1:].max(axis=1).tolist()}."
            )
    for n in rows:
        if n % mine:
            raise ValueError(
                f"{n} rows cannot be split evenly over {mine} devices; leave out {n % mine} of them, or give as many "
                f"devices as divide {n}."
            )


# bytes of intermediate values of one chunk; a few of them live at once in a VJP
BUDGET = 256 * 2**20
# the same where small chunks cost nothing: each of some twenty values a row then stays in the cache
CACHE = 32 * 2**20


def chunk_size(
    function: Callable, rows: PyTree, n: int, budget: int | None = None
) -> int:
    """How many of n rows go at once, from the size of what function(row) computes on its way
    (shapes alone).

    `budget`: the bytes of a chunk, `BUDGET` if None.
    """
    if n <= 8:
        return n
    row = jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape[1:], x.dtype), rows)
    closed = jax.make_jaxpr(function)(row)
    size = max(1, _bytes_that_depend(closed.jaxpr, set(closed.jaxpr.invars)))
    fewest = -(-n // max(1, (budget or BUDGET) // size))
    # Chunks of one size where up to twice as many are: a last chunk of another size is compiled
    # apart. Else one more, so that at least two are in the loop, which XLA would unroll for one.
    even = (count for count in range(fewest, 2 * fewest + 1) if n % count == 0)
    return -(-n // next(even, fewest + 1))


def scan_rows(
    step: Callable,
    init: PyTree,
    rows: PyTree,
    n: int,
    chunk: int,
    split: Split | None = None,
) -> tuple[PyTree, PyTree]:
    """step(carry, chunk of rows) -> (carry, one row for each) over all rows, each of them once.

    Of rows that are split, each device scans its own, and the carries are added up: init must be
    zero.
    """
    if split is not None:

        def here(part: PyTree) -> tuple[PyTree, PyTree]:
            carry, stacked = scan_rows(step, init, part, n // split.parts, chunk)
            return jax.lax.psum(carry, split.axes), stacked

        by_rows = split.by_rows.spec
        return split._on_each(here, by_rows, (PartitionSpec(), by_rows))(rows)
    if chunk >= n:
        return step(init, rows)
    full = n - n % chunk

    def body(carry: PyTree, start: Array) -> tuple[PyTree, PyTree]:
        here = lambda x: jax.lax.dynamic_slice_in_dim(x, start, chunk)
        return step(carry, jax.tree.map(here, rows))

    carry, stacked = jax.lax.scan(body, init, jnp.arange(0, full, chunk))
    stacked = jax.tree.map(lambda x: x.reshape(-1, *x.shape[2:]), stacked)
    if full == n:
        return carry, stacked
    rest = jax.tree.map(lambda x: x[full:], rows)
    # The rest is in no loop. The barrier keeps XLA from sharing its phi between two passes at one w,
    # so that the price of a pass does not depend on n.
    rest, carry, stacked = jax.lax.optimization_barrier((rest, carry, stacked))
    carry, last = step(carry, rest)
    return carry, jax.tree.map(lambda *x: jnp.concatenate(x), stacked, last)


def fold_rows(
    step: Callable,
    init: PyTree,
    rows: PyTree,
    n: int,
    chunk: int,
    split: Split | None = None,
) -> PyTree:
    """step(carry, chunk of rows) over all rows; of rows that are split, as `scan_rows` does."""
    return scan_rows(
        lambda carry, part: (step(carry, part), None), init, rows, n, chunk, split
    )[0]


def map_rows(
    function: Callable, rows: PyTree, n: int, chunk: int, split: Split | None = None
) -> PyTree:
    """function(chunk of rows), stacked along the rows; of rows that are split, each device maps its
    own.
    """
    if split is not None:
        return split.stack(
            lambda part: map_rows(function, part, n // split.parts, chunk), rows
        )
    return scan_rows(lambda _, part: (None, function(part)), None, rows, n, chunk)[1]


def _bytes_that_depend(jaxpr: Any, sources: set) -> int:
    """The bytes of all values of a jaxpr that depend on its sources."""
    total = 0
    for equation in jaxpr.eqns:
        if not any(
            not isinstance(x, jax.extend.core.Literal) and x in sources
            for x in equation.invars
        ):
            continue
        sources.update(equation.outvars)
        total += sum(x.aval.size * x.aval.dtype.itemsize for x in equation.outvars)
        for inner in _inner_jaxprs(equation.params):
            total += _bytes_that_depend(inner, set(inner.invars))
    return total


def _inner_jaxprs(params: dict) -> list[Any]:
    found = [getattr(p, "jaxpr", p) for p in params.values()]
    return [p for p in found if isinstance(p, jax.extend.core.Jaxpr)]
