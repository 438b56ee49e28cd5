"""Write the numbers of docs/gallery/phase.md from a finished run of `proxlin reproduce phase`.

    python docs/write_phase.py FOLDER

It copies the figures and tables of the folder into docs/gallery/phase, and writes what stands between two marks of the
page: pictures, and tables of the shares of successes with their 95 % intervals. Everything else on the page is written
by hand.
"""

import csv
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path

HERE = Path(__file__).parent
PAGE = HERE / "gallery" / "phase.md"
STORED = HERE / "gallery" / "phase"
BEGIN = "<!-- What follows is written by docs/write_phase.py. -->\n"
END = "<!-- The end of what it writes. -->\n"
FIGURES = {
    "ratio": "The share of recovered signals over m/n, with 95 % intervals",
    "corruption": "The share of recovered signals over the share of gross errors, with 95 % intervals",
    "convergence": "The error after each exact step, for four levels of noise",
    "image": "The image, its spectral start, and what was recovered from corrupted patterns",
}
TABLES = ("successes", "convergence", "image")
PROMISED = 0.95
Row = dict[str, str]


def take(folder: Path) -> None:
    """Copy the figures and the tables of a folder."""
    STORED.mkdir(exist_ok=True)
    for name in FIGURES:
        shutil.copyfile(folder / "figures" / f"phase-{name}.png", STORED / f"{name}.png")  # fmt: skip
    for name in TABLES:
        shutil.copyfile(folder / "tables" / f"phase-{name}.csv", STORED / f"{name}.csv")


def written(successes: Sequence[Row]) -> str:
    """Return what the page says between the marks."""
    pictures = {name: f"![{text}](phase/{name}.png)\n" for name, text in FIGURES.items()}  # fmt: skip
    clean = [row for row in successes if not float(row["corruption"])]
    last = {row["arena"]: row["ratio"] for row in successes if float(row["corruption"])}
    dirty = [row for row in successes if row["ratio"] == last.get(row["arena"])]
    return "\n".join(
        [
            "## Over the number of measurements\n",
            pictures["ratio"],
            table(clean, "ratio", "{:g}"),
            threshold(clean) + "\n",
            "## Over the share of gross errors\n",
            pictures["corruption"],
            table(dirty, "corruption", "{:.0%}"),
            "## What noise does to quadratic convergence\n",
            pictures["convergence"],
            "## An image\n",
            pictures["image"],
            "All numbers are in [successes.csv](phase/successes.csv), [convergence.csv](phase/convergence.csv) and "
            "[image.csv](phase/image.csv).\n",
        ]
    )


def table(rows: Sequence[Row], axis: str, form: str) -> str:
    """Return a line for each arena, start and method, and a column for each value of the axis."""
    at = sorted({float(row[axis]) for row in rows})
    cells = {
        (row["arena"], row["start"], row["method"], float(row[axis])): share(row)
        for row in rows
    }
    lines = list(dict.fromkeys(key[:3] for key in cells))
    names = {"ratio": "m/n", "corruption": "gross errors"}
    head = f"| recovered of a hundred, by {names[axis]} | " + " | ".join(
        form.format(x) for x in at
    )
    text = [head + " |", "|---" * (len(at) + 1) + "|"]
    for arena, start, method in lines:
        found = [cells.get((arena, start, method, x), "") for x in at]
        name = f"{arena.replace('-', ' ')}, {start} start, {method}"
        text.append(f"| {name} | " + " | ".join(found) + " |")
    return "\n".join(text) + "\n"


def share(row: Row) -> str:
    """Return a share of successes with its interval, of a hundred."""
    value, low, high = (100 * float(row[name]) for name in ("share", "low", "high"))
    return f"{value:.0f} [{low:.0f}, {high:.0f}]"


def threshold(rows: Sequence[Row]) -> str:
    """Return the sentence on the least m/n from which on the judged arena has the promised successes."""
    arena = rows[0]["arena"]
    mine = [
        row
        for row in rows
        if (row["arena"], row["start"], row["method"])
        == (arena, "spectral", "exact prox-linear")
    ]
    mine.sort(key=lambda row: float(row["ratio"]))
    least = first(mine, "share")
    since = "no m/n of ours on" if least is None else f"m/n = {least:g} on"
    above = [f"{float(row['ratio']):g}" for row in mine if float(row["low"]) > PROMISED]
    return (
        f"In {arena.replace('-', ' ')} with n = {mine[0]['n']}, exact steps from spectral starts recover at least "
        f"{PROMISED:.0%} of the signals from {since}; the whole interval is above {PROMISED:.0%} at m/n = "
        f"{', '.join(above) or 'none of ours'}."
    )


def first(rows: Sequence[Row], name: str) -> float | None:
    """Return the least ratio from which on a column is at least what is promised; None if there is none."""
    least = None
    for row in reversed(rows):
        if float(row[name]) < PROMISED:
            break
        least = float(row["ratio"])
    return least


def main(folders: Sequence[str]) -> int:
    if len(folders) != 1:
        print(__doc__)
        return 2
    take(Path(folders[0]))
    with (STORED / "successes.csv").open(newline="", encoding="utf-8") as file:
        successes = list(csv.DictReader(file))
    before, _, rest = PAGE.read_text(encoding="utf-8").partition(BEGIN)
    _, _, after = rest.partition(END)
    new = before + BEGIN + "\n" + written(successes) + "\n" + END + after
    PAGE.write_text(new, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
