"""Progress of a run: a bar with value and pass, by rich in a terminal and by IPython in a notebook;
plain lines where neither is there.
"""

import importlib.util
import sys
from html import escape
from typing import Any


class Progress:
    """A context that shows records; silent unless asked for."""

    def __init__(
        self, on: bool, passes: float | int | None, steps: int | None, name: str
    ):
        self.goal = ("passes", passes) if passes is not None else ("step", steps)
        self.name = name
        self.bar: Any = None
        if on and in_notebook():
            self.bar = NotebookBar(name, self.goal[1])
        elif on:
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
        if compiling >= 0.05:  # less would be shown as 0.0
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


def in_notebook() -> bool:
    """Return whether a kernel runs this process, so that a cell can show HTML."""
    ipython = sys.modules.get("IPython")
    shell = None if ipython is None else ipython.get_ipython()
    return shell is not None and "IPKernelApp" in shell.config


class NotebookBar:
    """A bar below the cell of a notebook, moved as one of rich.

    rich itself would need ipywidgets there, which few notebooks have; IPython is always there.
    """

    task_ids = (0,)

    def __init__(self, name: str, total: float | int | None):
        self.name = name
        self.total = total
        self.completed: float | int = 0
        self.text = ""
        self.handle: Any = None
        self.percent = -1

    def start(self) -> None:
        from IPython.display import display

        self.handle = display(self._shown(), raw=True, display_id=True)

    def stop(self) -> None:
        """Leave the last text without the bar, which would look unfinished after a run that converged."""
        words = self._words()
        last = {"text/plain": words, "text/html": escape(words)}
        self.handle.update(last, raw=True)

    def update(self, task: int, text: str, completed: float | int = 0) -> None:
        self.text = text
        self.completed = completed
        percent = int(100 * completed / self.total) if self.total else 0
        # A run may have a million records; a browser would draw them all.
        if percent != self.percent:
            self.percent = percent
            self.handle.update(self._shown(), raw=True)

    def _words(self) -> str:
        return f"{self.name}: {self.text}"

    def _shown(self) -> dict[str, str]:
        words = self._words()
        bar = f'<progress value="{self.completed:g}" max="{self.total or 1:g}"></progress>'
        return {"text/plain": words, "text/html": f"{bar} {escape(words)}"}
