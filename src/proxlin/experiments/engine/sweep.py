"""Sweeps that survive anything: cases on worker processes, each committed as it finishes.

    results = [stored or run(case) for case in cases]

A result is a function of its case alone: every worker has one XLA thread, so neither the number of
workers, nor which of them runs a case, nor the order changes a byte. Engines differ in where the
workers are.
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from ...errors import UserError
from .base import Case, Plan
from .store import Store
from .workers import Engine, Outcome, case_key


@dataclass
class Sweep:
    """`sweep(cases)` returns their results in the order asked, from the store or from the engine."""

    experiment: str
    store: Store
    engine: Engine
    progress: "Bar"
    about: dict  # revision and versions, kept with every case
    # the results seen so far, by key
    known: dict[str, dict] = field(default_factory=dict)

    def __call__(self, cases: Sequence[Case]) -> list[dict]:
        asked = {case_key(case): case for case in cases}
        missing = [case for key, case in asked.items() if not self._stored(key, case)]
        # so that the workers end together
        longest_first = sorted(missing, key=lambda case: -case.work)
        for case, outcome in self.engine.outcomes(longest_first):
            self.known[case_key(case)] = self._keep(case, outcome)
            self.progress.done(case)
        return [self.known[case_key(case)] for case in cases]

    def _stored(self, key: str, case: Case) -> bool:
        """Tell whether the result of a case is known, after a look into the store."""
        if key in self.known:
            return True
        result = self.store.case(key)
        if result is None:
            return False
        self.known[key] = result
        self.progress.kept(case)
        return True

    def _keep(self, case: Case, outcome: Outcome) -> dict:
        """Commit the outcome of a case; returns its result as it will be read when the sweep goes
        on.
        """
        if outcome.wrong_use:
            raise UserError(outcome.error)
        if outcome.error is not None:
            raise RuntimeError(f"{case.task}: {outcome.error}")
        content = {"task": case.task, "settings": dict(case.settings)}
        key = case_key(case)
        self.store.add_case(
            key,
            self.experiment,
            content,
            outcome.result or {},
            outcome.run | self.about,
        )
        return self.store.case(key) or {}


class Bar:
    """Cases done, the share of the work, and the remaining time: a rich bar on a terminal, else a
    line now and then.
    """

    EVERY = 30.0  # seconds between two lines where there is no terminal

    def __init__(self, plan: Plan | None, say: Callable[[str], None], terminal: bool):
        self.plan = plan or Plan([], 0, 0.0)
        self.say = say
        self.count = 0
        self.share = 0.0  # of the work, done now or by an earlier run
        self.fresh = 0.0  # of the work, done now
        self.start = time.monotonic()
        self.last = self.start
        self.rich: Any = None
        if terminal and self.plan.cases:
            # here, because it brings JAX, which a command need not wait for
            from ...run.progress import rich_bar

            self.rich = rich_bar("  cases", 1.0)

    def __enter__(self) -> "Bar":
        if self.rich is not None:
            self.rich.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self.rich is not None:
            self.rich.stop()

    def kept(self, case: Case) -> None:
        """Count a case that an earlier run finished."""
        self.count += 1
        self.share += self._share(case)
        self._show(time.monotonic())

    def done(self, case: Case) -> None:
        """Count a case that this run finished."""
        self.fresh += self._share(case)
        self.kept(case)

    def _share(self, case: Case) -> float:
        if not self.plan.work:
            return 0.0
        return case.work / self.plan.work

    def _show(self, now: float) -> None:
        text = (
            f"{self.count} of {max(self.plan.cases, self.count)} cases{self._left(now)}"
        )
        if self.rich is not None:
            self.rich.update(
                self.rich.task_ids[0], completed=min(self.share, 1.0), text=text
            )
        elif now - self.last > self.EVERY:
            self.last = now
            self.say(text)

    def _left(self, now: float) -> str:
        """Return the remaining time in words, by how fast the cases of this run were."""
        if self.fresh <= 0 or self.share >= 1:
            return ""
        left = (now - self.start) * (1 - self.share) / self.fresh
        if left > 90:
            return f", about {left / 60:.0f} min left"
        return f", about {left:.0f} s left"
