"""Calls of an inner map counted at run time: phi, JVP and VJP, each weighted by the rows of the
batch it ran on.

    count = Counter()
    p = px.MeanOfLosses(count(inner), ...)
    with count.calls() as calls: ...
    calls.phi, calls.jvp, calls.vjp, calls.oracle, calls.traces

How: the image u passes through an identity that the compiler cannot see through (a pure callback),
a primitive of its own. Its JVP ticks phi on the way of the primal and jvp on that of the tangent,
whose transpose ticks vjp. The linear ticks depend on the phi tick, because a JVP or VJP needs the
phi it expands. Under vmap a tick weighs as many calls as the batch has rows. Nothing here has a
side effect for the compiler, so work that it drops is not counted.
"""

import functools
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import jax
import jax.extend.core
import jax.numpy as jnp
import numpy as np
from jax.interpreters import ad, batching, mlir

from proxlin.cost import Cost


@dataclass
class Calls:
    phi: int = 0
    jvp: int = 0
    vjp: int = 0
    oracle: int = 0
    # Python calls of the function: how often it was traced (or run without jit)
    traces: int = 0

    @property
    def cost(self) -> Cost:
        return Cost(self.phi, self.jvp, self.vjp, self.oracle)


@dataclass(eq=False)
class Counter:
    """Counts the calls of the inner maps it wraps; equality is identity, so it can be static in a
    trace.
    """

    total: Calls = field(default_factory=Calls)
    lock: Any = field(default_factory=threading.Lock)

    def __call__(self, inner: Callable) -> Callable:
        def counted(w: Any, sample: Any) -> jax.Array:
            self.add("traces", 1)
            return self.mark(inner(w, sample), "phi")

        return counted

    def mark(self, x: jax.Array, kind: str) -> jax.Array:
        """x itself, and a tick of `kind` when it is evaluated (kind "oracle" for an oracle's
        result).
        """
        return tick_p.bind(x, counter=self, kind=kind, weight=1)

    def add(self, kind: str, weight: int) -> None:
        with self.lock:
            setattr(self.total, kind, getattr(self.total, kind) + weight)

    @contextmanager
    def calls(self) -> Iterator[Calls]:
        """What is counted inside the block; read it after the block."""
        jax.effects_barrier()
        before, now = Calls(**vars(self.total)), Calls()
        yield now
        jax.effects_barrier()
        for name, old in vars(before).items():
            setattr(now, name, getattr(self.total, name) - old)


def count_calls(counter: Counter, function: Callable, *args: Any) -> Calls:
    """The calls of one run of function(*args), waited for."""
    with counter.calls() as calls:
        jax.block_until_ready(
            [x for x in jax.tree.leaves(function(*args)) if isinstance(x, jax.Array)]
        )
    return calls


def _one(counter: Counter, kind: str, weight: int, dtype: Any, *_: Any) -> np.ndarray:
    counter.add(kind, weight)
    return np.ones((), dtype)


def _run(
    x: jax.Array, *after: jax.Array, counter: Counter, kind: str, weight: int
) -> jax.Array:
    """x times a one that comes from the host; scalars of x and of what came before make it wait for
    them.
    """
    waits = [y.ravel()[0] for y in (x, *after)]
    one = jax.pure_callback(
        functools.partial(_one, counter, kind, weight, x.dtype),
        jax.ShapeDtypeStruct((), x.dtype),
        *waits,
    )
    return x * jnp.broadcast_to(one, x.shape)


def _primitive(name: str) -> Any:
    primitive = jax.extend.core.Primitive(name)
    primitive.def_impl(
        lambda *args, **params: jax.jit(functools.partial(_run, **params))(*args)
    )
    primitive.def_abstract_eval(lambda x, *_, **__: x)
    mlir.register_lowering(primitive, mlir.lower_fun(_run, multiple_results=False))
    return primitive


tick_p = _primitive("tick")  # x -> x, counts `kind`
# (t, u) -> t, linear in t, counts `kind` once u is known
tick_linear_p = _primitive("tick_linear")


def _batch(args: Any, dims: Any, *, counter: Counter, kind: str, weight: int) -> Any:
    size = next(x.shape[d] for x, d in zip(args, dims, strict=True) if d is not None)
    x = (
        jnp.broadcast_to(args[0][None], (size, *args[0].shape))
        if dims[0] is None
        else args[0]
    )
    primitive = tick_p if len(args) == 1 else tick_linear_p
    at = 0 if dims[0] is None else dims[0]
    return primitive.bind(
        x, *args[1:], counter=counter, kind=kind, weight=weight * size
    ), at


def _jvp(
    primals: Any, tangents: Any, *, counter: Counter, kind: str, weight: int
) -> Any:
    (x,), (t,) = primals, tangents
    u = tick_p.bind(x, counter=counter, kind=kind, weight=weight)
    if type(t) is ad.Zero or kind != "phi":
        return u, t
    return u, tick_linear_p.bind(t, u, counter=counter, kind="jvp", weight=weight)


def _jvp_linear(primals: Any, tangents: Any, **params: Any) -> Any:
    (x, u), (t, _) = primals, tangents
    out = tick_linear_p.bind(x, u, **params)
    return out, t if type(t) is ad.Zero else tick_linear_p.bind(t, u, **params)


def _transpose(
    ct: Any, x: Any, u: Any, *, counter: Counter, kind: str, weight: int
) -> Any:
    if type(ct) is ad.Zero:
        return ct, None
    other = {"jvp": "vjp", "vjp": "jvp"}[kind]
    return tick_linear_p.bind(ct, u, counter=counter, kind=other, weight=weight), None


for _p in (tick_p, tick_linear_p):
    batching.primitive_batchers[_p] = _batch
ad.primitive_jvps[tick_p] = _jvp
ad.primitive_jvps[tick_linear_p] = _jvp_linear
ad.primitive_transposes[tick_linear_p] = _transpose
