"""Sweeps that survive anything: cases on worker processes, each committed as it finishes.

    results = [stored or run(case) for case in cases]

A result is a function of its case alone: every worker has one XLA thread, so neither the number of workers, nor which
of them runs a case, nor the order changes a byte. Engines differ in where the workers are.
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
    """`sweep(cases)` -> their results in the order asked, from the store or from the engine."""

    experiment: str
    store: Store
    engine: Engine
    progress: "Bar"
    about: dict  # revision and versions, kept with every case
    known: dict[str, dict] = field(default_factory=dict)  # the results seen so far, by key

    def __call__(self, cases: Sequence[Case]) -> list[dict]:
        asked = {case_key(case): case for case in cases}
        for key in asked.keys() - self.known.keys():
            if (result := self.store.case(key)) is not None:
                self.known[key] = result
                self.progress.kept(asked[key])
        missing = [case for key, case in asked.items() if key not in self.known]
        for case, outcome in self.engine.outcomes(sorted(missing, key=_longest_first)):
            self.known[case_key(case)] = self._keep(case, outcome)
            self.progress.done(case)
        return [self.known[case_key(case)] for case in cases]

    def _keep(self, case: Case, outcome: Outcome) -> dict:
        if outcome.error is not None:
            raise UserError(outcome.error) if outcome.wrong_use else RuntimeError(f"{case.task}: {outcome.error}")
        content = {"task": case.task, "settings": dict(case.settings)}
        key = case_key(case)
        self.store.add_case(key, self.experiment, content, outcome.result or {}, outcome.run | self.about)
        return self.store.case(key) or {}  # as it will be read when the sweep goes on


def _longest_first(case: Case) -> float:
    return -case.work  # so that the workers end together


class Bar:
    """Cases done, the share of the work, and the remaining time: a rich bar on a terminal, else a line now and then."""

    EVERY = 30.0  # seconds between two lines where there is no terminal

    def __init__(self, plan: Plan | None, say: Callable[[str], None], terminal: bool):
        self.total, self.work = (plan.cases, plan.work) if plan else (0, 0.0)
        self.count, self.share, self.fresh, self.say = 0, 0.0, 0.0, say
        self.start = self.last = time.monotonic()
        self.rich = _rich_bar(self.total) if terminal and self.total else None

    def __enter__(self) -> "Bar":
        return self

    def __exit__(self, *_: object) -> None:
        if self.rich is not None:
            self.rich.stop()

    def kept(self, case: Case) -> None:
        """A case that an earlier run finished."""
        self.count += 1
        self.share += case.work / self.work if self.work else 0.0
        self._show(time.monotonic())

    def done(self, case: Case) -> None:
        self.fresh += case.work / self.work if self.work else 0.0
        self.kept(case)

    def _show(self, now: float) -> None:
        text = f"{self.count} of {max(self.total, self.count)} cases"
        if self.rich is not None:
            self.rich.update(self.rich.task_ids[0], completed=min(self.share, 1.0), text=text + self._left(now))
        elif now - self.last > self.EVERY:
            self.last = now
            self.say(text + self._left(now))

    def _left(self, now: float) -> str:
        if not self.fresh > 0 or self.share >= 1:
            return ""
        left = (now - self.start) * (1 - self.share) / self.fresh
        return f", about {left / 60:.0f} min left" if left > 90 else f", about {left:.0f} s left"


def _rich_bar(total: int) -> Any:
    try:
        from rich import progress
    except ModuleNotFoundError:
        return None
    bar = progress.Progress(
        progress.TextColumn("  {task.fields[text]}"),
        progress.BarColumn(),
        progress.TaskProgressColumn(),
        progress.TimeElapsedColumn(),
    )
    bar.add_task("sweep", total=1.0, text=f"0 of {total} cases")
    bar.start()
    return bar
