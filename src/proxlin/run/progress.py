"""Progress of a run: a bar with value and pass where rich is installed, plain lines where it is not."""

import importlib.util
import sys
from typing import Any


class Progress:
    """A context that shows records; silent unless asked for."""

    def __init__(self, on: bool, passes: float | int | None, steps: int | None, name: str):
        self.goal = ("passes", passes) if passes is not None else ("step", steps)
        self.name = name
        self.bar: Any = None
        if on:
            self.bar = rich_bar(name, self.goal[1], stderr=True)
        self.plain = on and self.bar is None

    def __enter__(self) -> "Progress":
        if self.bar is not None:
            self.bar.start()
        return self

    def __exit__(self, *_: Any) -> None:
        if self.bar is not None:
            self.bar.stop()

    def show(self, record: dict[str, Any]) -> None:
        """Show how far the run is."""
        text = f"F = {record['value']:.6g} at pass {record['passes']:.4g}"
        if self.bar is not None:
            self.bar.update(self.bar.task_ids[0], completed=record[self.goal[0]], text=text)
        elif self.plain:
            print(f"{self.name}: {text}", file=sys.stderr)


def rich_bar(name: str, total: float | int | None, stderr: bool = False) -> Any:
    """Return a bar of one task that has a text beside it, or None where rich is not installed.

    `bar.update(bar.task_ids[0], completed=..., text=...)` moves it.
    """
    if importlib.util.find_spec("rich") is None:
        return None
    from rich import progress
    from rich.console import Console

    bar = progress.Progress(
        progress.TextColumn("{task.description}"),
        progress.BarColumn(),
        progress.TextColumn("{task.fields[text]}"),
        progress.TimeRemainingColumn(),
        console=Console(stderr=stderr),
    )
    bar.add_task(name, total=total, text="")
    return bar
