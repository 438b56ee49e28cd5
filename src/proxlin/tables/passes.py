"""A network trained by mini-batches of a table in parts.

Row groups are read in an order that the seed draws, a chunk of each of `TOGETHER` of them in turn, into a
buffer of rows. Each buffer gives as many mini-batches as it has rows for, drawn as in memory; then it is
filled again. The fit ends where it did best on rows that it does not see.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np

from ..data.frames import Frame
from ..data.parts import AbstractParts
from ..inners import residual
from ..problem import MeanOfLosses
from ..types import Params
from .described import SAMPLE, VALIDATION, Described, Plan
from .outputs import predict
from .search import losses_of, nearer
from .standardize import Units
from .training import (
    ADAM,
    DRAWN,
    LARGEST,
    LEAST,
    PASSES,
    PIECES,
    SMALLEST,
    STEPS,
    Say,
    Setting,
    Task,
    begin,
    columns_for,
    onward,
    resized,
)

TOGETHER = 8  # row groups that are read side by side
BUFFER = 8_000_000  # numbers of the rows that are in memory at once, about
# rows that a fit sees, at most: more only where the table has more, each of which is seen once
MOST = 10_000_000


@dataclass(frozen=True)
class Drawn:
    """The work that gives the rows of a chunk to be trained on: features, targets and weights as
    float32, in units.

    Targets are no farther from the linear fit B than `limit`; None: they are as they are.
    """

    plan: Plan
    units: Units
    B: np.ndarray
    limit: np.ndarray | None

    def __call__(self, frame: Frame, start: int) -> tuple[np.ndarray, ...]:
        rows = self.plan.encoded(frame, start)
        rows = rows.rows(rows.role >= SAMPLE)
        z = self.units.features(rows.X)
        y = self.units.targets(rows.y)
        if self.limit is not None:
            y = nearer(y, z @ self.B[:-1] + self.B[-1], self.limit)
        s = np.ones(len(z)) if rows.s is None else rows.s
        with np.errstate(over="ignore"):
            return tuple(each.astype(np.float32) for each in (z, y, s))


def network_of_parts(
    parts: AbstractParts,
    table: Described,
    work: Drawn,
    task: Task,
    setting: Setting,
    say: Say,
) -> Params:
    """Return the network of a setting, trained on all rows of the table that are not kept for other
    ends; the rows of the task tell where it is at its best.
    """
    p = task.x.shape[1]
    n = table.rows * (1 - table.plan.shares[1])
    batch = int(np.clip(2 ** round(math.log2(n / STEPS)), SMALLEST, LARGEST))
    seen = min(PASSES * n, max(n, MOST))
    unit = DRAWN * batch
    size = unit * int(np.clip(BUFFER // (unit * columns_for(p)), 1, 5))
    buffers = max(1, math.ceil(max(LEAST, seen / batch) * batch / size))
    steps = size // batch
    narrow = task.starts([setting], [0], jnp.float32)
    w = resized(narrow, _wide_starts(task, setting))
    method = ("adam", batch)
    # the weights are those of a buffer, and the step is of size 1 / ADAM's units
    ridge = jnp.asarray([setting.ridge], jnp.float32)
    step = jnp.asarray([setting.step * ADAM], jnp.float32)
    key = jax.random.key(task.seed)
    unseen = table.kept.role[table.kept.role >= VALIDATION] == VALIDATION
    best = narrow
    least = np.inf
    state = None
    looks = {math.ceil((i + 1) * buffers / PIECES) for i in range(PIECES)}
    rows = _buffers(parts, work, size, columns_for(p), task.seed)
    for i in range(buffers):
        x, y, s = next(rows)
        data = (jnp.asarray(x), jnp.asarray(y))
        problem = MeanOfLosses(
            residual(_wide(task).network()), task.outer(), data, ridge=1.0
        )
        each = (ridge, jnp.asarray(s)[None], step)
        if state is None:
            state = begin(method, problem, w, each)
        counts = tuple(jnp.int32(c) for c in (i * steps, steps, buffers * steps))
        state, w = onward(method, problem, state, key, each, counts)
        if i + 1 in looks:
            now = resized(w, narrow)
            errors = predict(task.network(), now, task.x[unseen])[0] - task.y[unseen]
            losses = losses_of(task, np.nan_to_num(errors, nan=np.inf)[None])[0]
            loss = float(np.average(losses, weights=task.importance()[unseen]))
            if loss <= least:
                best = now
                least = loss
            say("network", (i + 1) / buffers)
    return jax.tree.map(np.asarray, best)


def _wide(task: Task) -> Task:
    """Return the task with columns of zeros, as tables of about this width share a program."""
    p = task.x.shape[1]
    x = np.zeros((1, columns_for(p)))
    return Task(
        *(x, task.y[:1], task.hidden, task.loss, task.solver, task.seed), task.sigma
    )


def _wide_starts(task: Task, setting: Setting) -> Params:
    return _wide(task).starts([setting], [0], jnp.float32)


def _buffers(
    parts: AbstractParts, work: Drawn, size: int, width: int, seed: int
) -> Iterator[tuple[np.ndarray, ...]]:
    """Yield rows in buffers of one size, pass after pass over the table."""
    k = len(work.plan.asked.targets)
    buffer = tuple(
        np.zeros(shape, np.float32) for shape in ((size, width), (size, k), size)
    )
    filled = 0
    for chunk in _chunks(parts, work, seed):
        begin_at = 0
        while begin_at < len(chunk[0]):
            take = min(size - filled, len(chunk[0]) - begin_at)
            for into, rows in zip(buffer, chunk, strict=True):
                part = rows[begin_at : begin_at + take]
                if into.ndim == 2:
                    into[filled : filled + take, : part.shape[1]] = part
                else:
                    into[filled : filled + take] = part
            begin_at += take
            filled += take
            if filled == size:
                # a copy: the arrays of a step that still runs are not written over
                yield tuple(each.copy() for each in buffer)
                filled = 0


def _chunks(
    parts: AbstractParts, work: Drawn, seed: int
) -> Iterator[tuple[np.ndarray, ...]]:
    """Yield chunks of rows without end, in a new order of the row groups in each pass."""
    epoch = 0
    while True:
        order = np.random.default_rng([seed, epoch]).permutation(len(parts.counts))
        yield from parts.each(work, order.tolist(), TOGETHER)
        epoch += 1
