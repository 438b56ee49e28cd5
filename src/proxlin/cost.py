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

    Parameters
    ----------
    phi : an integer
        Evaluations of phi at one sample.
    jvp : an integer
        Products of the Jacobian of one sample with a vector.
    vjp : an integer
        Products of its transpose with a vector.
    oracle : an integer
        Calls of a combinatorial oracle.

    See Also
    --------
    Prices : what each call costs.
    Solution : has the cost of a run.

    Examples
    --------
    >>> import proxlin as px
    >>> px.Cost(phi=1, vjp=1) * 10 + px.Cost(phi=5)
    Cost(phi=15, jvp=0, vjp=10, oracle=0)
    >>> (px.Cost(phi=1, vjp=1) * 10).passes(10)
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
        """Return effective passes over n samples, (phi + jvp + vjp) / 2n: an SGD epoch is one pass.

        Parameters
        ----------
        n : an integer
            The number of samples.

        Returns
        -------
        a number
            The effective passes.
        """
        return (self.phi + self.jvp + self.vjp) / (2 * n)


def _count() -> Any:
    return eqx.field(default=0, converter=lambda count: jnp.asarray(count, jnp.int32))


class Calls(eqx.Module):
    """How often a step called each part of a problem, as counts that a compiled loop can add up.

    `epoch` counts the epochs of an inner solver. The problem prices each call, oracle calls of f included.

    Parameters
    ----------
    value : a count
        Values of F on the problem of the step.
    subgradient : a count
        Subgradients of it.
    push : a count
        Products of its Jacobian with a vector.
    pull : a count
        Products of the transpose with a vector.
    expand : a count
        Expansions with a dense Jacobian.
    epoch : a count
        Epochs of an inner solver.

    See Also
    --------
    Info : a step returns its calls in it.
    Prices : what each call costs.

    Examples
    --------
    >>> import proxlin as px
    >>> total = px.Calls(value=1) + px.Calls(value=2, pull=1)
    >>> int(total.value), int(total.pull)
    (3, 1)
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
    """The price of each call, at given shapes; `step` is paid for every step and `init` once.

    Parameters
    ----------
    step : a `Cost`
        The fixed price of a step.
    init : a `Cost`
        The price of the initial state.
    value : a `Cost`
        A value of F.
    subgradient : a `Cost`
        A subgradient of F.
    push : a `Cost`
        A product of the Jacobian with a vector.
    pull : a `Cost`
        A product of its transpose with a vector.
    expand : a `Cost`
        An expansion with a dense Jacobian.
    epoch : a `Cost`
        An epoch of an inner solver.

    See Also
    --------
    Cost : what is counted.
    Calls : how often each call was made.
    AbstractSolver : its method `prices` returns them.

    Examples
    --------
    >>> import proxlin as px
    >>> prices = px.Prices(step=px.Cost(phi=2), value=px.Cost(phi=10))
    >>> prices.total(3, px.Calls(value=1))
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
        """Return the cost of so many steps and of the calls that they counted, in Python integers.

        Parameters
        ----------
        steps : an integer
            The number of steps.
        calls : `Calls`, or None
            What the steps counted beyond their fixed price.

        Returns
        -------
        a `Cost`
            What was spent.
        """
        cost = self.step * steps
        if calls is None:
            return cost
        for field in fields(calls):
            price: Cost = getattr(self, field.name)
            # What costs nothing is not fetched from the device.
            if price != Cost():
                cost = cost + price * int(getattr(calls, field.name))
        return cost

    def passes(self, steps: Any, calls: Calls | None, n: int) -> Any:
        """Return the effective passes of init, so many steps and the calls that they counted, inside
        of a compiled program: a floating-point number, where `total` has Python integers.

        Parameters
        ----------
        steps : a number
            The number of steps.
        calls : `Calls`, or None
            What the steps counted beyond their fixed price.
        n : an integer
            The number of samples.

        Returns
        -------
        a number
            The effective passes.
        """
        spent = self.init.passes(n) + self.step.passes(n) * jnp.asarray(steps, float)
        if calls is None:
            return spent
        for field in fields(calls):
            price: Cost = getattr(self, field.name)
            spent = spent + price.passes(n) * getattr(calls, field.name).astype(float)
        return spent


class Status(enum.StrEnum):
    """How a run ended: converged, almost, budget, stopped, stalled or diverged, also by their numbers
    from 0 on.

    See Also
    --------
    Solution : has a status.
    Result : has its number.

    Examples
    --------
    >>> import proxlin as px
    >>> px.Status.budget == "budget", px.Status(2) == "budget"
    (True, True)
    >>> px.Status.stalled.sentence
    'No step decreases F any more, at this accuracy of the arithmetic.'
    """

    converged = "converged"
    almost = "almost"
    budget = "budget"
    stopped = "stopped"
    stalled = "stalled"
    diverged = "diverged"

    @property
    def sentence(self) -> str:
        """Return what the status means.

        Returns
        -------
        a text
            One sentence.
        """
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
