"""Compile once, call often: one cache of programs for the whole package, bounded and shared by
threads.

    the same program   =  the same function, structure of arguments, shapes of arrays and settings of JAX
    kept               =  the programs used last, while they fit into MAPS memory maps and BYTES of HLO

A program that is dropped stays valid for whoever holds it, and gives back its memory after that.
"""

import contextlib
import ctypes
import dataclasses
import functools
import threading
import time
import types
import weakref
from collections import OrderedDict
from collections.abc import Callable
from typing import Any

import jax
import jax.core
import numpy as np
from jax.sharding import NamedSharding, PartitionSpec

from .types import on_device

# Linux gives a process 65,530 memory maps. An exact prox-linear step takes 750 of them (30 MB), sgd
# 80 (5 MB).
MAPS = 12_000
# Arrays that phi closes over are copied into the HLO of its programs, and no map tells of them.
BYTES = 2**30
# Results without a program (prices) are small; this bounds their number.
ENTRIES = 1024
# JAX keeps 2 to 3 MiB of traces for every new shape, for ever. It forgets them whenever so many
# programs have been made.
FORGET = 100


# How XLA compiles a program that is asked for quickly: in a quarter of the time, while its loops over
# entries take about three times as long (docs/decisions/0009). LAPACK and matrix products stay as
# they are.
QUICK = {
    "xla_backend_optimization_level": 0,
    "xla_llvm_disable_expensive_passes": True,
    "xla_cpu_use_fusion_emitters": False,
}


class Compiled:
    """function(*fixed, *args) and its seconds; arrays are arguments, all else is structure.

    Compiling is untimed; `compiling` is what it took so far. With `quick` set a program is compiled
    quickly rather than well: for one that runs for less time than its compilation takes. A function
    must be hashable and return arrays alone. What is fixed is looked at once, and the args of a
    function at its first call alone: they keep their structure and shapes, as the state of a solver
    does.
    """

    def __init__(self, *fixed: Any, quick: bool = False):
        self.fixed = fixed
        self.quick = quick
        self.compiling = 0.0
        self.leaves, _ = _split(fixed)
        self.known: dict[Callable, Callable] = {}

    def __call__(self, function: Callable, *args: Any) -> tuple[Any, float]:
        if function not in self.known:
            start = time.perf_counter()
            leaves, structure = _split((*self.fixed, *args))
            self.known[function] = _program(function, leaves, structure, self.quick)
            self.compiling += time.perf_counter() - start
        program = self.known[function]
        leaves = self.leaves + [
            leaf for leaf in jax.tree.leaves(args) if _is_array(leaf)
        ]
        start = time.perf_counter()
        result = program(leaves)
        # jax.block_until_ready does more around it, inside of the clock
        for leaf in jax.tree.leaves(result):
            leaf.block_until_ready()
        seconds = time.perf_counter() - start
        return result, seconds


def call(function: Callable, *args: Any) -> Any:
    """Return function(*args), arrays alone, from a compiled program; inside a trace the function
    itself is traced.
    """
    leaves, structure = _split(args)
    if any(isinstance(leaf, jax.core.Tracer) for leaf in leaves):
        return function(*args)
    return _program(function, leaves, structure)(leaves)


def compiled(function: Callable) -> Callable:
    """Decorate a function of positional arguments so that it runs by `call`."""
    return functools.wraps(function)(functools.partial(call, function))


def of_shapes(function: Callable, *args: Any) -> Any:
    """Return function(*args), which depends on the shapes and structure of its arguments alone:
    found once for each.

    The arguments are traced, never computed with: an eager operation on arrays of a new shape would
    leave a program of some megabytes in JAX's caches.
    """
    leaves, structure = _split(args)

    def trace() -> Any:
        found = []
        jax.eval_shape(
            lambda leaves: found.append(function(*structure.join(leaves))), leaves
        )
        return found[0]

    return _CACHE.find(_Key(function, leaves, structure), trace)


def remembered(function: Callable, *args: Any) -> Any:
    """Return function(*args) for the shapes of its arguments, found once for each."""
    leaves, structure = _split(args)
    shapes = [jax.ShapeDtypeStruct(leaf.shape, leaf.dtype) for leaf in leaves]
    key = _Key(function, shapes, structure)
    return _CACHE.find(key, lambda: function(*structure.join(shapes)))


def shapes_of(function: Callable, *args: Any) -> Any:
    """Return the shapes and dtypes of function(*args), arrays alone, without running it.

    Unlike `eqx.filter_eval_shape` it leaves nothing of the arguments in JAX's caches, such as a phi
    and its closure.
    """
    leaves, structure = _split(args)
    return jax.eval_shape(lambda leaves: function(*structure.join(leaves)), leaves)


def clear_caches() -> None:
    """Drop every compiled program that proxlin keeps, and with it the memory and the functions that
    it holds.

    A run that is under way keeps its own until it ends. The next call of each compiles again. What
    JAX keeps of its own (traces, programs of single operations) is dropped by `jax.clear_caches()`.

    See Also
    --------
    minimize, solve : keep programs here.

    Examples
    --------
    >>> import proxlin as px
    >>> px.clear_caches()
    """
    _CACHE.clear()


@dataclasses.dataclass(frozen=True)
class _Structure:
    """All of a tree but its arrays: how it is built, and its other leaves, None in the places of
    the arrays.
    """

    treedef: Any
    others: list

    def join(self, arrays: list) -> Any:
        """Return the tree with these arrays."""
        left = iter(arrays)
        leaves = [next(left) if other is None else other for other in self.others]
        return self.treedef.unflatten(leaves)


def _split(args: Any) -> tuple[list, _Structure]:
    """Return the arrays of a tree, those of NumPy as jax arrays, and all the rest of it."""
    arrays = []
    others = []
    leaves, treedef = jax.tree.flatten(args)
    for leaf in leaves:
        if isinstance(leaf, _NUMPY):
            arrays.append(on_device(leaf))
            others.append(None)
        elif _is_array(leaf):
            arrays.append(leaf)
            others.append(None)
        else:
            others.append(leaf)
    return arrays, _Structure(treedef, others)


_NUMPY = (np.ndarray, np.generic)
_ARRAYS = (jax.Array, *_NUMPY, jax.ShapeDtypeStruct)


def _is_array(leaf: Any) -> bool:
    return isinstance(leaf, _ARRAYS)


def _program(
    function: Callable, leaves: list, structure: _Structure, quick: bool = False
) -> Callable:
    if jax.config.jax_disable_jit:  # pyright: ignore[reportAttributeAccessIssue]
        return lambda leaves: function(*structure.join(leaves))
    return _CACHE.find(
        _Key(function, leaves, structure, quick),
        lambda: _compile(function, leaves, structure, quick),
    )


def _compile(
    function: Callable, leaves: list, structure: _Structure, quick: bool
) -> Callable:
    def run(leaves: list) -> Any:
        return function(*structure.join(leaves))

    lowered = jax.jit(run, out_shardings=_everywhere(leaves)).lower(leaves)
    if quick and jax.default_backend() == "cpu":
        try:
            return lowered.compile(compiler_options=QUICK)
        except jax.errors.JaxRuntimeError as error:
            # Another release of XLA may not know one of these options.
            if "compile option" not in str(error):
                raise
    return lowered.compile()


def _everywhere(leaves: list) -> NamedSharding | None:
    """Return where to leave a result so that each process can read it: whole on every device, if
    there are several.
    """
    meshes = [x.sharding.mesh for x in leaves if isinstance(x.sharding, NamedSharding)]
    if not meshes or meshes[0].size == 1:
        return None
    return NamedSharding(meshes[0], PartitionSpec())


# ------------------------------------------------------------------------------ which program it is

# A program depends on these beside its arguments.
_SETTINGS = (
    "jax_enable_x64",
    "jax_default_matmul_precision",
    "jax_default_prng_impl",
    "jax_threefry_partitionable",
)


def _shape_of(leaf: Any) -> Any:
    if isinstance(leaf, jax.ShapeDtypeStruct):
        return leaf.shape, leaf.dtype
    return leaf.aval, leaf.sharding


class _Key:
    """The identity of a program: two calls share it if and only if their keys are equal.

    Python says 1 == True == 1.0 and 0.0 == -0.0, for which programs differ, and nan != nan; so
    numbers are compared by type and bits. What Python compares by identity (functions, above all)
    is held weakly: a lambda that nobody has any more cannot be asked for again, so its program is
    of no use.
    """

    def __init__(
        self,
        function: Callable,
        leaves: list,
        structure: _Structure,
        quick: bool = False,
    ):
        self.weak: list[weakref.ref] = []
        self.hash: int | None = None
        self.parts = (
            quick,
            self._part(function),
            tuple(map(_shape_of, leaves)),
            self._tree(structure.treedef),
            tuple(map(self._part, structure.others)),
            tuple(getattr(jax.config, name) for name in _SETTINGS),
        )

    def __hash__(self) -> int:
        if self.hash is None:
            self.hash = hash(self.parts)
        return self.hash

    def __eq__(self, other: Any) -> bool:
        return self.parts == other.parts

    def is_dead(self) -> bool:
        """Return whether a function of the program is gone."""
        return any(ref() is None for ref in self.weak)

    def _tree(self, treedef: Any) -> Any:
        """Return the structure of a tree as nested tuples, None for a leaf."""
        node = treedef.node_data()
        if node is None:
            return None
        kind, static = node
        return kind, self._part(static), tuple(map(self._tree, treedef.children()))

    def _part(self, x: Any) -> Any:
        """Return something that is equal for two objects if and only if they make the same program."""
        kind = type(x)
        if kind is float:
            return kind, x.hex()
        if kind is complex:
            return kind, x.real.hex(), x.imag.hex()
        if isinstance(x, _NUMPY):
            return kind, x.dtype.str, x.shape, x.tobytes()
        if isinstance(x, tuple | list):
            return kind, tuple(map(self._part, x))
        if isinstance(x, dict):
            return kind, tuple(self._part(item) for item in x.items())
        if isinstance(x, types.MethodType):
            return kind, self._part(x.__func__), self._part(x.__self__)
        if kind.__eq__ is object.__eq__:
            return self._weakly(x)
        if dataclasses.is_dataclass(x) and not isinstance(x, type):
            values = [getattr(x, field.name) for field in dataclasses.fields(x)]
            return kind, tuple(map(self._part, values))
        return kind, x

    def _weakly(self, x: Any) -> Any:
        """Return a weak reference to x, or x itself where it has no room for one."""
        try:
            ref = weakref.ref(x)
        except TypeError:
            return x
        self.weak.append(ref)
        return ref


# ------------------------------------------------------------------------------------- what is kept


@dataclasses.dataclass(eq=False)
class _Slot:
    """The place of one program: whoever holds the lock makes it, and the others wait for it."""

    lock: Any = dataclasses.field(default_factory=threading.Lock)
    made: bool = False
    value: Any = None
    maps: int = 0
    bytes: int = 0


class _Cache:
    """Programs by their keys, those used last at the end."""

    def __init__(self):
        # of the table; it is never held while anything is compiled
        self.lock = threading.Lock()
        self.slots: OrderedDict[_Key, _Slot] = OrderedDict()
        self.fresh = 0  # programs made since JAX last forgot its traces

    def find(self, key: _Key, make: Callable[[], Any]) -> Any:
        """Return what make() returned for this key, once for all threads. What failed is tried
        again.
        """
        try:
            slot = self._slot(key)
        except TypeError:  # structure that cannot be hashed, such as a jax array in a static field: no reuse
            return make()
        if slot.made:
            return slot.value
        with slot.lock:
            if not slot.made:
                before = _count_maps()
                slot.value = make()
                # What other threads compile meanwhile is counted here too: then less is kept, never
                # more.
                slot.maps = max(0, _count_maps() - before)
                slot.bytes = _count_bytes(slot.value)
                slot.made = True
                self._keep_to_the_limits()
        return slot.value

    def clear(self) -> None:
        """Drop everything."""
        with self.lock:
            dropped = list(self.slots.values())
            self.slots.clear()
        del dropped  # outside of the lock: what runs when an object dies may call us
        _give_back()

    def _slot(self, key: _Key) -> _Slot:
        with self.lock:
            slot = self.slots.setdefault(key, _Slot())
            self.slots.move_to_end(key)
            return slot

    def _keep_to_the_limits(self) -> None:
        """Drop what is dead, then what was used longest ago, until the rest fits into the limits."""
        with self.lock:
            dead = [key for key in self.slots if key.is_dead()]
            dropped = [self.slots.pop(key) for key in dead]
            maps = sum(slot.maps for slot in self.slots.values())
            size = sum(slot.bytes for slot in self.slots.values())
            while len(self.slots) > 1 and (
                maps > MAPS or size > BYTES or len(self.slots) > ENTRIES
            ):
                _, oldest = self.slots.popitem(last=False)
                maps -= oldest.maps
                size -= oldest.bytes
                dropped.append(oldest)
            self.fresh += 1
            forget = self.fresh >= FORGET
            if forget:
                self.fresh = 0
        room = len(dropped) > len(dead)
        del dropped  # outside of the lock, as in `clear`
        if forget:
            # Functions that the user compiled are compiled again at their next call; nothing else
            # changes.
            jax.clear_caches()
        if forget or room:
            _give_back()


def _count_maps() -> int:
    """Count the memory maps of this process; 0 where the system does not list them."""
    try:
        with open("/proc/self/maps", "rb") as file:
            return file.read().count(b"\n")
    except OSError:
        return 0


def _give_back() -> None:
    """Return to the system what the C library holds of dropped programs, some hundred MiB after a
    hundred of them; a library other than glibc has no call for it.
    """
    with contextlib.suppress(AttributeError, OSError, TypeError):
        ctypes.CDLL(None).malloc_trim(0)


def _count_bytes(value: Any) -> int:
    """Count the bytes of a program's HLO; 0 for anything else."""
    if not isinstance(value, jax.stages.Compiled):
        return 0
    executable = value.runtime_executable()
    if executable is None:
        return 0
    return sum(
        len(module.as_serialized_hlo_module_proto())
        for module in executable.hlo_modules()
    )


_CACHE = _Cache()
