"""Progress of a run: a bar with value and pass where rich can show one, plain lines where it
cannot.
"""

import importlib.util
import sys
from typing import Any


class Progress:
    """A context that shows records; silent unless asked for."""

    def __init__(
        self, on: bool, passes: float | int | None, steps: int | None, name: str
    ):
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

    def say(self, text: str) -> None:
        """Show what happens before the first record."""
        if self.bar is not None:
            self.bar.update(self.bar.task_ids[0], text=text)
        elif self.plain:
            print(f"{self.name}: {text}", file=sys.stderr)

    def show(self, record: dict[str, Any], compiling: float = 0.0) -> None:
        """Show how far the run is, and the seconds that it took and that compiling took."""
        text = f"F = {record['value']:.6g} at pass {record['passes']:.4g}"
        if compiling > 0:
            text += f" ({record['seconds']:.2g} s, and {compiling:.1f} s compiling)"
        if self.bar is not None:
            self.bar.update(
                self.bar.task_ids[0], completed=record[self.goal[0]], text=text
            )
        elif self.plain:
            print(f"{self.name}: {text}", file=sys.stderr)

    def show_count(self, ended: int, count: int) -> None:
        """Show how many of so many have ended."""
        text = f"{ended} of {count}"
        if self.bar is not None:
            self.bar.update(self.bar.task_ids[0], completed=ended, text=text)
        elif self.plain:
            print(f"{self.name}: {text}", file=sys.stderr)


def rich_bar(name: str, total: float | int | None, stderr: bool = False) -> Any:
    """Return a bar of one task that has a text beside it, or None where it could not be shown: rich
    is not installed, or a notebook has no ipywidgets, which rich needs there.

    `bar.update(bar.task_ids[0], completed=..., text=...)` moves it.
    """
    if importlib.util.find_spec("rich") is None:
        return None
    from rich import progress
    from rich.console import Console

    console = Console(stderr=stderr)
    if console.is_jupyter and importlib.util.find_spec("ipywidgets") is None:
        return None
    bar = progress.Progress(
        progress.TextColumn("{task.description}"),
        progress.BarColumn(),
        progress.TextColumn("{task.fields[text]}"),
        progress.TimeRemainingColumn(),
        console=console,
    )
    bar.add_task(name, total=total, text="")
    return bar
