"""Draw docs/rooms.svg, the picture of the rooms of the package, from the imports of its source.

    python docs/draw_rooms.py

An arrow from A to B says that a file of A imports a file of B. Two kinds of arrows are left out,
because they would hide the others: arrows to the ground floor, on which every room stands, and
arrows that follow from two others.
"""

import ast
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from html import escape
from itertools import pairwise
from pathlib import Path

HERE = Path(__file__).parent
PACKAGE = HERE.parent / "src" / "proxlin"
PICTURE = HERE / "rooms.svg"

# The floors from the ground up, and what each room is for. A room imports only from its own floor
# and from those below.
FLOORS: tuple[tuple[str, dict[str, str]], ...] = (
    (
        "ground",
        {
            "types": "names for arrays",
            "precision": "float64 without x64",
            "checks": "refusals of wrong use",
            "inputs": "lists and frames",
            "slips": "errors of phi, explained",
            "shown": "texts of values",
            "errors": "UserError",
            "cost": "calls, prices, status",
            "files": "atomic writes, npz",
            "compiled": "programs kept by shape",
            "jaxprs": "functions by what they compute",
            "later": "names that load late",
            "trees": "arithmetic of trees",
        },
    ),
    (
        "parts",
        {
            "outers": "f, and its set V",
            "oracles": "best paths and chains",
            "inners": "phi of one sample",
            "rollouts": "dynamics, stage by stage",
            "networks": "small networks",
            "schedules": "step sizes",
            "penalties": "bounds and norms of w",
        },
    ),
    ("problem", {"problem": "F, its mini-batches, its expansions"}),
    (
        "methods",
        {
            "subproblem": "one convex model, certified",
            "solvers": "one step of a method",
            "run": "the one loop",
        },
    ),
    (
        "answers",
        {
            "theory": "constants, noise window, intervals",
            "inference": "covariances, scales, outliers",
            "tuning": "search, tune, advise",
            "data": "files, generators, measures",
        },
    ),
    (
        "users",
        {
            "sklearn": "estimators",
            "tables": "fit and predict a table",
            "plots": "figures and pages",
        },
    ),
    (
        "studies",
        {"experiments": "the figures of the paper, and the engine that sweeps"},
    ),
    ("command", {"cli": "one file for each command"}),
)
LEGEND = "A → B: a file of A imports a file of B. Arrows to L0, and arrows that follow from others, are not drawn."
FLOOR = {room: number for number, (_, rooms) in enumerate(FLOORS) for room in rooms}

WIDTH = 880
LABEL = 84  # the column on the left, with the names of the floors
MARGIN = 20
BOX_HEIGHT = 56
BOX_WIDEST = 232
GAP = 30  # between two boxes of a floor; long arrows pass here
SPREAD = 9  # between two arrows that pass through the same gap
ARC = 26  # the height of an arrow that jumps over a room
HEAD = 5  # the length of the head of an arrow
STOREY = 104  # from the top of one floor to the top of the next
LINE_LETTERS = 6.1  # the width of a small letter, to break the lines of a box


@dataclass(frozen=True)
class Box:
    room: str
    purpose: str
    left: float
    top: float
    width: float

    @property
    def right(self) -> float:
        return self.left + self.width

    @property
    def bottom(self) -> float:
        return self.top + BOX_HEIGHT

    @property
    def middle(self) -> float:
        return self.left + self.width / 2


# ------------------------------------------------------------------------------------------ imports


def imports() -> set[tuple[str, str]]:
    """Return the pairs (room, other room) where a file of the first imports something of the
    second.
    """
    rooms = {
        path.stem
        for path in PACKAGE.iterdir()
        if path.suffix == ".py" or (path / "__init__.py").exists()
    }
    rooms -= {"__init__", "__main__"}
    if rooms != FLOOR.keys():
        raise ValueError(
            f"FLOORS in docs/draw_rooms.py and src/proxlin differ in {sorted(rooms ^ FLOOR.keys())}."
        )
    pairs = set()
    for path in PACKAGE.rglob("*.py"):
        parts = path.relative_to(PACKAGE).with_suffix("").parts
        pairs |= {
            (parts[0], other)
            for other in _rooms_in(path, parts)
            if parts[0] in rooms and other in rooms
        }
    return {(room, other) for room, other in pairs if room != other}


def _rooms_in(path: Path, parts: tuple[str, ...]) -> Iterator[str]:
    """Yield the first name below `proxlin` of everything that a file imports."""
    package = ["proxlin", *parts[:-1]]
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            names = [alias.name.split(".") for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            above = package[: len(package) + 1 - node.level] if node.level else []
            module = node.module.split(".") if node.module else []
            names = [[*above, *module, alias.name] for alias in node.names]
        else:
            continue
        yield from (name[1] for name in names if name[0] == "proxlin" and len(name) > 1)


def arrows(pairs: set[tuple[str, str]]) -> list[tuple[str, str]]:
    """Return the pairs to draw: neither those that end on the ground floor nor those that follow
    from two others.
    """
    upward = sorted(
        f"{room} imports {other}" for room, other in pairs if FLOOR[other] > FLOOR[room]
    )
    if upward:
        raise ValueError(f"imports only go down, but {', '.join(upward)}.")
    below: dict[str, set[str]] = {room: set() for room in FLOOR}
    for room, other in pairs:
        below[room].add(other)
    drawn = []
    for room, other in sorted(pairs):
        detours = below[room] - {other}
        follows = any(other in _reachable(below, detour) for detour in detours)
        if FLOOR[other] > 0 and not follows:
            drawn.append((room, other))
    return drawn


def _reachable(below: dict[str, set[str]], room: str) -> set[str]:
    found: set[str] = set()
    waiting = [room]
    while waiting:
        new = below[waiting.pop()] - found
        found |= new
        waiting += new
    return found


# ------------------------------------------------------------------------------------------- places


def boxes() -> dict[str, Box]:
    """Return the place of every room: the floors from the bottom up, the rooms of a floor side by
    side.
    """
    placed = {}
    for number, (_, rooms) in enumerate(FLOORS):
        top = _top(number)
        room_for_boxes = WIDTH - LABEL - 2 * MARGIN - (len(rooms) - 1) * GAP
        width = min(room_for_boxes / len(rooms), BOX_WIDEST)
        if len(rooms) == 1:
            width = 1.6 * BOX_WIDEST
        taken = len(rooms) * width + (len(rooms) - 1) * GAP
        left = LABEL + (WIDTH - LABEL - taken) / 2
        for room, purpose in rooms.items():
            placed[room] = Box(room, purpose, left, top, width)
            left += width + GAP
    return placed


def _top(number: int) -> float:
    return MARGIN + (len(FLOORS) - 1 - number) * STOREY


def paths(drawn: list[tuple[str, str]], placed: dict[str, Box]) -> list[str]:
    """Return the curve of every arrow. Arrows that share a side of a box, or a gap of a floor, are
    spread over it.
    """
    down = [pair for pair in drawn if FLOOR[pair[0]] > FLOOR[pair[1]]]
    beside = [pair for pair in drawn if pair not in down]
    ends = {pair: _ports(pair, down, placed) for pair in down}
    channels = _channels(ends, placed)
    curves = [_beside(placed[room], placed[other]) for room, other in beside]
    for room, other in down:
        start, end = ends[room, other]
        points = [(start, placed[room].bottom)]
        for number in range(FLOOR[room] - 1, FLOOR[other], -1):
            x = channels[room, other, number]
            top = _top(number)
            points += [(x, top), (x, top + BOX_HEIGHT)]
        points.append((end, placed[other].top - HEAD))
        curves.append(_curve(points))
    return curves


def _ports(
    pair: tuple[str, str], down: list[tuple[str, str]], placed: dict[str, Box]
) -> tuple[float, float]:
    """Return the x at which an arrow leaves the first room and the x at which it reaches the
    second.
    """
    room, other = pair
    start = _port(placed, room, other, [b for a, b in down if a == room])
    end = _port(placed, other, room, [a for a, b in down if b == other])
    return start, end


def _channels(
    ends: dict[tuple[str, str], tuple[float, float]], placed: dict[str, Box]
) -> dict[tuple[str, str, int], float]:
    """Return, for every arrow and every floor that it crosses, the x at which it crosses."""
    users: dict[tuple[int, float], list[tuple[str, str]]] = {}
    for (room, other), (start, end) in ends.items():
        for number in range(FLOOR[room] - 1, FLOOR[other], -1):
            share = (FLOOR[room] - number) / (FLOOR[room] - FLOOR[other])
            row = [placed[each] for each in FLOORS[number][1]]
            gap = _nearest_gap(row, start + share * (end - start))
            users.setdefault((number, gap), []).append((room, other))
    channels = {}
    for (number, gap), pairs in users.items():
        order = sorted(pairs, key=lambda pair: ends[pair][1])
        for place, (room, other) in enumerate(order):
            channels[room, other, number] = gap + SPREAD * (
                place - (len(order) - 1) / 2
            )
    return channels


def _port(placed: dict[str, Box], room: str, other: str, others: list[str]) -> float:
    """Return where on its side of a room the arrow from or to `other` starts or ends."""
    order = sorted(
        others, key=lambda each: (_direction(placed, room, each), placed[each].middle)
    )
    box = placed[room]
    return box.left + box.width * (order.index(other) + 1) / (len(order) + 1)


def _direction(placed: dict[str, Box], room: str, other: str) -> float:
    """Return the x that an arrow between a room and another has on the floor next to the room."""
    storeys = FLOOR[other] - FLOOR[room]
    if abs(storeys) == 1:
        return placed[other].middle
    way = placed[other].middle - placed[room].middle
    next_floor = FLOOR[room] + (1 if storeys > 0 else -1)
    row = [placed[each] for each in FLOORS[next_floor][1]]
    return _nearest_gap(row, placed[room].middle + way / abs(storeys))


def _nearest_gap(row: list[Box], wanted: float) -> float:
    """Return the free x beside or between the boxes of a floor that is nearest to the wanted one."""
    free = [
        row[0].left - GAP,
        *((a.right + b.left) / 2 for a, b in pairwise(row)),
        row[-1].right + GAP,
    ]
    return min(free, key=lambda x: abs(x - wanted))


def _beside(box: Box, other: Box) -> str:
    """Return the arrow to a box of the same floor: straight to its neighbour, else an arc above
    those between.
    """
    leftward = other.left < box.left
    start = box.left if leftward else box.right
    end = other.right + HEAD if leftward else other.left - HEAD
    if abs(start - end) < 2 * GAP:
        y = box.top + BOX_HEIGHT / 2
        return f"M{start:.0f} {y:.0f} L{end:.0f} {y:.0f}"
    a = box.middle
    b = other.middle
    arc = box.top - ARC
    return f"M{a:.0f} {box.top:.0f} C{a:.0f} {arc:.0f} {b:.0f} {arc:.0f} {b:.0f} {box.top - HEAD:.0f}"


def _curve(points: list[tuple[float, float]]) -> str:
    """Return the path through the points, vertical at each of them."""
    path = f"M{points[0][0]:.0f} {points[0][1]:.0f}"
    for (x, y), (to_x, to_y) in pairwise(points):
        half = (to_y - y) * 0.55
        path += f" C{x:.0f} {y + half:.0f} {to_x:.0f} {to_y - half:.0f} {to_x:.0f} {to_y:.0f}"
    return path


# ------------------------------------------------------------------------------------------ drawing

# The picture brings its own background, so that it can be read on a light page and on a dark one.
STYLE = """
  .page { fill: #ffffff; }
  .floor { fill: #f1f3fb; }
  .box { fill: #ffffff; stroke: #3f51b5; stroke-width: 1.2; }
  .arrow { fill: none; stroke: #6b7280; stroke-width: 1.3; marker-end: url(#head); }
  .head { fill: #6b7280; }
  text { font-family: system-ui, -apple-system, "Segoe UI", Roboto, "DejaVu Sans", sans-serif; }
  .name { font-size: 14px; font-weight: 600; fill: #1f2937; text-anchor: middle; }
  .purpose { font-size: 11px; fill: #4b5563; text-anchor: middle; }
  .level { font-size: 14px; font-weight: 600; fill: #3f51b5; }
  .title { font-size: 11px; fill: #4b5563; }
  @media (prefers-color-scheme: dark) {
    .page { fill: #1e2129; }
    .floor { fill: #272b36; }
    .box { fill: #1e2129; stroke: #9fa8da; }
    .arrow { stroke: #a3a9b8; }
    .head { fill: #a3a9b8; }
    .name { fill: #f3f4f6; }
    .purpose, .title { fill: #c3c8d4; }
    .level { fill: #9fa8da; }
  }
"""


def picture() -> str:
    """Return the SVG."""
    placed = boxes()
    legend = _top(0) + BOX_HEIGHT + 38
    height = legend + MARGIN
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height:.0f}" role="img">',
        "<title>The rooms of proxlin and their imports</title>",
        f"<style>{STYLE}</style>",
        '<defs><marker id="head" viewBox="0 0 8 8" refX="3" refY="4" markerWidth="7" markerHeight="7" orient="auto">'
        '<path class="head" d="M0 0 L8 4 L0 8 z"/></marker></defs>',
        f'<rect class="page" width="{WIDTH}" height="{height:.0f}" rx="10"/>',
    ]
    for number, (title, rooms) in enumerate(FLOORS):
        lines += _floor(number, title, placed[next(iter(rooms))].top)
    lines += [
        f'<path class="arrow" d="{path}"/>' for path in paths(arrows(imports()), placed)
    ]
    for box in placed.values():
        lines += _drawn(box)
    lines.append(
        f'<text class="title" x="{MARGIN}" y="{legend:.0f}">{escape(LEGEND)}</text>'
    )
    return "\n".join([*lines, "</svg>", ""])


def _floor(number: int, title: str, top: float) -> list[str]:
    middle = top + BOX_HEIGHT / 2
    return [
        f'<rect class="floor" x="{MARGIN / 2:.0f}" y="{top - 10:.0f}" width="{WIDTH - MARGIN}" '
        f'height="{BOX_HEIGHT + 20}" rx="8"/>',
        f'<text class="level" x="{MARGIN}" y="{middle - 2:.0f}">L{number}</text>',
        f'<text class="title" x="{MARGIN}" y="{middle + 14:.0f}">{escape(title)}</text>',
    ]


def _drawn(box: Box) -> list[str]:
    rows = _broken(box.purpose, box.width - 12)
    first = box.top + 24 - 6 * (len(rows) - 1)
    lines = [
        f'<rect class="box" x="{box.left:.0f}" y="{box.top:.0f}" width="{box.width:.0f}" '
        f'height="{BOX_HEIGHT}" rx="6"/>',
        f'<text class="name" x="{box.middle:.0f}" y="{first:.0f}">{box.room}</text>',
    ]
    for number, row in enumerate(rows):
        y = first + 17 + 13 * number
        lines.append(
            f'<text class="purpose" x="{box.middle:.0f}" y="{y:.0f}">{escape(row)}</text>'
        )
    return lines


def _broken(text: str, width: float) -> list[str]:
    """Break a text into lines that fit into a box."""
    lines = [""]
    for word in text.split():
        longer = f"{lines[-1]} {word}".strip()
        if len(longer) * LINE_LETTERS <= width or not lines[-1]:
            lines[-1] = longer
        else:
            lines.append(word)
    return lines


def main(arguments: list[str]) -> int:
    """Draw the picture anew; with --check, say whether that would change it."""
    name = PICTURE.relative_to(HERE.parent)
    drawn = picture()
    if arguments == ["--check"]:
        current = PICTURE.read_text(encoding="utf-8") == drawn
        print(
            f"{name} shows the imports."
            if current
            else f"{name} is out of date: run python docs/draw_rooms.py."
        )
        return int(not current)
    PICTURE.write_text(drawn, encoding="utf-8")
    print(f"{name} is drawn anew.")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
