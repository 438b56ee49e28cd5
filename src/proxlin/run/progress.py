"""Progress of a run: a bar with value and pass where rich is installed, plain lines where it is not."""

import importlib.util
import sys
from typing import Any


class Progress:
    """A context that shows records; silent unless asked for."""

    def __init__(self, on: bool, passes: float | int | None, steps: int | None, name: str):
        self.goal = ("passes", passes) if passes is not None else ("step", steps)
        self.name = name
        self.bar: Any = _rich_bar(self.goal[1]) if on and importlib.util.find_spec("rich") else None
        self.plain = on and self.bar is None

    def __enter__(self) -> "Progress":
        if self.bar is not None:
            self.bar.start()
            self.task = self.bar.add_task(self.name, total=self.goal[1], value="")
        return self

    def __exit__(self, *_: Any) -> None:
        if self.bar is not None:
            self.bar.stop()

    def show(self, record: dict[str, Any]) -> None:
        text = f"F = {record['value']:.6g} at pass {record['passes']:.4g}"
        if self.bar is not None:
            self.bar.update(self.task, completed=record[self.goal[0]], value=text)
        elif self.plain:
            print(f"{self.name}: {text}", file=sys.stderr)


def _rich_bar(total: float | int | None) -> Any:
    from rich.console import Console
    from rich.progress import BarColumn, TextColumn, TimeRemainingColumn
    from rich.progress import Progress as Bar

    columns = (TextColumn("{task.description}"), BarColumn(), TextColumn("{task.fields[value]}"), TimeRemainingColumn())
    return Bar(*columns, console=Console(stderr=True))
