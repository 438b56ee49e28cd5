"""What a run cost, counted in Python integers, and how it ended: each status has its sentence."""

import enum
from dataclasses import dataclass, fields
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp


@dataclass(frozen=True)
class Cost:
    """What was spent: calls of phi_i, of a JVP, of a VJP and of a combinatorial oracle.

    A JVP or a VJP also counts the phi it evaluates, so a subgradient of one sample is `Cost(phi=1,
    vjp=1)`.

    >>> Cost(phi=1, vjp=1) * 10 + Cost(phi=5)
    Cost(phi=15, jvp=0, vjp=10, oracle=0)
    >>> (Cost(phi=1, vjp=1) * 10).passes(10)
    1.0
    """

    phi: int = 0
    jvp: int = 0
    vjp: int = 0
    oracle: int = 0

    def __add__(self, other: "Cost") -> "Cost":
        return Cost(
            self.phi + other.phi,
            self.jvp + other.jvp,
            self.vjp + other.vjp,
            self.oracle + other.oracle,
        )

    def __mul__(self, count: int) -> "Cost":
        count = int(count)
        return Cost(
            self.phi * count, self.jvp * count, self.vjp * count, self.oracle * count
        )

    __rmul__ = __mul__

    def passes(self, n: int) -> float:
        """Return effective passes over n samples, (phi + jvp + vjp) / 2n: an SGD epoch is one pass."""
        return (self.phi + self.jvp + self.vjp) / (2 * n)


def _count() -> Any:
    return eqx.field(default=0, converter=lambda count: jnp.asarray(count, jnp.int32))


class Calls(eqx.Module):
    """How often a step called each part of a problem, as counts that a compiled loop can add up.

    `epoch` counts the epochs of an inner solver. The problem prices each call, oracle calls of f included.
    """

    value: Any = _count()
    subgradient: Any = _count()
    push: Any = _count()
    pull: Any = _count()
    expand: Any = _count()
    epoch: Any = _count()

    def __add__(self, other: "Calls") -> "Calls":
        return jax.tree.map(jnp.add, self, other)


@dataclass(frozen=True)
class Prices:
    """What each call costs, at given shapes; `step` is paid for every step and `init` once.

    >>> prices = Prices(step=Cost(phi=2), value=Cost(phi=10))
    >>> prices.total(3, Calls(value=jnp.int32(1)))
    Cost(phi=16, jvp=0, vjp=0, oracle=0)
    """

    step: Cost = Cost()
    init: Cost = Cost()
    value: Cost = Cost()
    subgradient: Cost = Cost()
    push: Cost = Cost()
    pull: Cost = Cost()
    expand: Cost = Cost()
    epoch: Cost = Cost()

    def total(self, steps: int, calls: Calls | None) -> Cost:
        """Return the cost of so many steps and of the calls that they counted, in Python integers."""
        cost = self.step * steps
        if calls is None:
            return cost
        for field in fields(calls):
            price: Cost = getattr(self, field.name)
            cost = cost + price * int(getattr(calls, field.name))
        return cost

    def passes(self, steps: Any, calls: Calls | None, n: int) -> Any:
        """Return the effective passes of init, so many steps and the calls that they counted, inside
        of a compiled program: a floating-point number, where `total` has Python integers.
        """
        spent = self.init.passes(n) + self.step.passes(n) * jnp.asarray(steps, float)
        if calls is None:
            return spent
        for field in fields(calls):
            price: Cost = getattr(self, field.name)
            spent = spent + price.passes(n) * getattr(calls, field.name).astype(float)
        return spent


class Status(enum.StrEnum):
    """converged, almost, budget, stopped, stalled or diverged, also by their numbers from 0 on.

    >>> Status.budget == "budget", Status(2) == "budget", Status.stalled.sentence
    (True, True, 'No step decreases F any more, at this accuracy of the arithmetic.')
    """

    converged = "converged"
    almost = "almost"
    budget = "budget"
    stopped = "stopped"
    stalled = "stalled"
    diverged = "diverged"

    @property
    def sentence(self) -> str:
        return _SENTENCES[self]

    @classmethod
    def _missing_(cls, value: object) -> "Status | None":
        members = list(cls)
        if isinstance(value, int) and 0 <= value < len(members):
            return members[value]
        return None


_SENTENCES = {
    Status.converged: "The tolerance was reached.",
    Status.almost: "The accuracy of the arithmetic does not allow a certificate of the tolerance.",
    Status.budget: "The budget was spent.",
    Status.stopped: "The stop rule said so.",
    Status.stalled: "No step decreases F any more, at this accuracy of the arithmetic.",
    Status.diverged: "The iterates diverged; w is the best finite one seen.",
}
