"""How good is `px.advise` between the two families of `bench.studies.advisor`?

    python -m bench.studies.advisor_between run     one JSON line for each truth and answer; goes on where it stopped
    python -m bench.studies.advisor_between show    the tables; --docs writes docs/gallery/advisor.md and between.csv

Truth of a cell: ten draws, large validation and test sets. Each method searches 24 settings on the first draw
in runs of 100 effective passes; its two best run on all draws, judged by the test loss at the mark of least
validation loss. The better of PLI and exact prox-linear stands for Gauss-Newton. The two sides are compared
three times, draw by draw:

    passes      100 effective passes each
    quicker     each in the seconds of the quicker side
    slower      each in the seconds of the slower side; the quicker side is tuned anew, 12 settings, with as many
                passes as fit into them

Seconds are CPU seconds of one thread, and between two marks the least over the draws.
A side is better where the 95 % t interval of the log ratio excludes 0 and does not lie within 1 %.

The rule, stated before the first run of these cells (RULE below). The advisor gets another draw, no validation
set, and the default budget. An answer is right where it names the better side; "cannot tell" is wrong. Of the cells
that have a better side, at least 0.8 should be right: "reproduced" if Clopper and Pearson's 95 % interval begins
there or above, "not reproduced" if it ends below, else "not resolved". The first question of QUESTIONS over all
cells is the one that decides; the other questions and the families are told in the same way. With 54 decided cells
50 right ones reproduce 0.8, and 36 or fewer refute it; with 30 it is 29 and 18.
Two pilots ran eleven and five phase cells on other draws. Their seconds were noise on a busy machine: one run of
SGD took 0.002 to 0.08 s. So a race now has one clock (the least seconds of its folds from mark to mark), its
quicker side runs on for the seconds of the slower one, and this study counts seconds of CPU time on one thread,
for the truth and for the advisor. The rule and the race stayed, and no draw of the pilots is judged.
The first eight answers (draw 3050) showed that one delayed run cuts the settings and passes of a race. So each
timing of its plan is the median of three now, and all answers that are judged are of the draw 3051.
"""

import argparse
import csv
import importlib
import io
import json
import math
import os
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import asdict, dataclass
from functools import lru_cache, partial
from itertools import product
from pathlib import Path
from statistics import fmean
from types import SimpleNamespace
from typing import Any

import numpy as np

from bench.studies._advisor_cells import FAMILIES, Cell, cells, parts_of
from proxlin.experiments.engine.workers import Local, prepare
from proxlin.files.writing import write_file
from proxlin.theory.rules import Rule, Share

CELLS = Path(__file__).parents[2] / "docs" / "gallery" / "advisor" / "between.csv"
PAGE = CELLS.parents[1] / "advisor.md"
BEGIN, END = "<!-- between: begin -->", "<!-- between: end -->"
PASSES, SETTINGS, LONGER_SETTINGS, FINALISTS, DRAWS = 100.0, 24, 12, 2, 10
LONGEST = 16  # times the passes, at most, of the quicker side in the seconds of the slower one
FIRST = 3000  # draw of the tuned runs: 3000 to 3009
DRAW = 3051  # the draw that the advisor sees
BUDGET = 60.0  # seconds, the default
BAND = 0.01
PROMISED = 0.8
RULE = Rule("at least")
LIMITS = ("passes", "quicker", "slower")
# the answer, and the limit under which the better side is looked up
QUESTIONS = {
    "verdict": ("recommendation", "passes"),
    "side to take": ("take", "passes"),
    "statement at equal seconds": ("in_time", "quicker"),
    "statement with the seconds of the slower side": ("in_more_time", "slower"),
    "side to take, with the seconds of the slower side": ("take", "slower"),
}
SIDES = ("sgd", "gauss-newton")
BETTER = (*SIDES, "equal", "not resolved")
ANSWERS = (*SIDES, "cannot tell")


# ------------------------------------------------------------------------------------------ the truth


@dataclass(frozen=True)
class Trace:
    """A run at its marks: seconds until then, validation and test loss."""

    seconds: np.ndarray
    validation: np.ndarray
    test: np.ndarray

    def best(self, seconds: float = math.inf) -> int:
        """Return the mark of least validation loss within so many seconds; the start always counts."""
        reached = self.seconds <= max(seconds, float(self.seconds[0]))
        usable = reached & np.isfinite(self.validation)
        return int(np.argmin(np.where(usable, self.validation, np.inf)))

    def loss(self, seconds: float = math.inf) -> float:
        return float(self.test[self.best(seconds)])


def use_cpu_clock() -> None:
    """Let runs of this process count CPU seconds: with one thread they are those of a machine without
    other programs.
    """
    module: Any = importlib.import_module("proxlin.compiled")
    module.time = SimpleNamespace(perf_counter=time.process_time)


def path_of(method: Any, setting: dict, cell: Cell, draw: int, passes: float) -> Trace:
    """Run one setting on one draw, as the race of the advisor does, and look at the test loss too."""
    from proxlin.run import follow, minimize
    from proxlin.tuning import race
    from proxlin.tuning.axes import CHECKPOINTS

    parts = parts_of(cell, draw)
    test = partial(_value(), parts.test)
    if method is race.EXACT:
        judges = {"validation": partial(_value(), parts.validation), "test": test}
        history = minimize(
            parts.train, parts.w, method.make({}), passes=passes, metrics=judges
        ).history
        inside = history["passes"] <= passes + 1e-9
        validation = np.where(inside, history["validation"], np.inf)
        return Trace(
            history["seconds"][inside], validation[inside], history["test"][inside]
        )
    found = follow(
        parts.train,
        parts.w,
        method.make(setting),
        parts.validation.value,
        [passes * mark / 100 for mark in CHECKPOINTS],
        seed=draw,
        patience=race.PATIENCE * passes,
        watch={"test": test},
    )
    return Trace(found.seconds, found.measures, found.watched["test"])


@lru_cache(maxsize=1)
def _value() -> Callable:
    """Return the compiled value of a problem at w; draws share its program."""
    import equinox as eqx

    return eqx.filter_jit(lambda problem, w: problem.value(w))


def tuned(method: Any, cell: Cell, passes: float, settings: int) -> Any:
    """Return the best setting of a method and its path on every draw."""
    from proxlin.tuning.search import Grid, tune_grids

    def evaluate(trials: Sequence[Any]) -> list[Trace]:
        return [
            path_of(method, setting, cell, FIRST + seed, passes)
            for _, setting, seed in trials
        ]

    grid = Grid(method.axes, settings if method.axes else 1)
    (best,) = tune_grids(
        [grid], evaluate, _mean_validation, seeds=[DRAWS], finalists=FINALISTS
    )
    return best


def _mean_validation(paths: Sequence[Trace]) -> float:
    return fmean(float(each.validation[each.best()]) for each in paths)


def truth(settings: dict[str, Any]) -> dict[str, Any]:
    """Return the test losses of both sides under each limit, and what they ran."""
    from proxlin.tuning import race

    use_cpu_clock()
    cell = Cell(**settings["cell"])
    begun = time.monotonic()
    first = parts_of(cell, FIRST)
    methods = race.methods_of(first.train, first.w, PASSES)
    found = {each.name: tuned(each, cell, PASSES, SETTINGS) for each in methods}
    named = {each.name: each for each in methods}
    rivals = [name for name in found if name != "sgd"]
    gauss_newton = min(rivals, key=lambda name: _mean_validation(found[name].runs))
    sides = {"sgd": "sgd", "gauss-newton": gauss_newton}
    paths = {side: on_one_clock(found[name].runs) for side, name in sides.items()}
    seconds = {side: _seconds(runs) for side, runs in paths.items()}
    quicker, slower = sorted(SIDES, key=lambda side: seconds[side])
    more = PASSES * min(LONGEST, max(2, math.ceil(seconds[slower] / seconds[quicker])))
    method = named[sides[quicker]]
    if method.axes:  # its lattices are centred anew, for as many passes
        again = race.methods_of(first.train, first.w, more)
        method = next(each for each in again if each.name == method.name)
    longer = tuned(method, cell, more, LONGER_SETTINGS)
    long_paths = on_one_clock(longer.runs)
    return {
        "passes": {side: _losses(runs) for side, runs in paths.items()},
        "quicker": {
            side: _losses(runs, seconds[quicker]) for side, runs in paths.items()
        },
        "slower": {
            quicker: _losses(long_paths, seconds[slower]),
            slower: _losses(paths[slower], seconds[slower]),
        },
        "seconds": seconds,
        "gauss_newton": gauss_newton,
        "settings": {name: dict(each.setting) for name, each in found.items()},
        "longer": {"passes": more, "setting": dict(longer.setting)},
        "took": time.monotonic() - begun,
        "load": os.getloadavg()[0],
    }


def on_one_clock(paths: Sequence[Trace]) -> list[Trace]:
    """Return the runs of one setting with the clock that they share, as in the race of the advisor."""
    from proxlin.tuning.race import steady_clock

    clock = steady_clock([each.seconds for each in paths])
    return [
        Trace(clock[: len(each.seconds)], each.validation, each.test) for each in paths
    ]


def _seconds(paths: Sequence[Trace]) -> float:
    return float(np.median([each.seconds[-1] for each in paths]))


def _losses(paths: Sequence[Trace], seconds: float = math.inf) -> list[float]:
    return [each.loss(seconds) for each in paths]


# ------------------------------------------------------------------------------------------ the advisor


def answer(settings: dict[str, Any]) -> dict[str, Any]:
    """Return what the advisor says of a draw of a cell."""
    import proxlin as px

    use_cpu_clock()
    parts = parts_of(Cell(**settings["cell"]), settings["draw"])
    begun = time.monotonic()
    advice = px.advise(parts.train, parts.w, budget=settings["budget"])
    return {
        "recommendation": advice.recommendation,
        "take": advice.take,
        "in_time": stated(advice.equal_seconds.low, advice.equal_seconds.high),
        "in_more_time": stated(advice.longer_seconds.low, advice.longer_seconds.high),
        "gain": [advice.gain.value, advice.gain.low, advice.gain.high],
        "gain_in_time": [
            advice.equal_seconds.value,
            advice.equal_seconds.low,
            advice.equal_seconds.high,
        ],
        "gain_in_more_time": [
            advice.longer_seconds.value,
            advice.longer_seconds.low,
            advice.longer_seconds.high,
        ],
        "losses": {side: list(each) for side, each in advice.losses.items()},
        "codes": advice.codes,
        "run_seconds": advice.seconds,
        "settings": advice.plan.settings,
        "passes": advice.plan.passes,
        "position": advice.position,
        "took": time.monotonic() - begun,
        "load": os.getloadavg()[0],
    }


def stated(low: float, high: float) -> str:
    """Return the side that an interval of Gauss-Newton's gain names."""
    if low > 0:
        return "gauss-newton"
    if high < 0:
        return "sgd"
    return "cannot tell"


# ------------------------------------------------------------------------------------------ the store


def key_of(kind: str, label: str, draw: int, budget: float) -> tuple:
    """Return what is run once: the truth of a cell, or an answer on a draw with a budget."""
    return (kind, label) if kind == "truth" else (kind, label, draw, budget)


def read(file: Path) -> dict[tuple, dict[str, Any]]:
    """Return what is done; a line that a kill cut off is not."""
    if not file.exists():
        return {}
    done = {}
    for line in file.read_text(encoding="utf-8").splitlines():
        try:
            row = json.loads(line)
        except json.JSONDecodeError:
            continue
        done[key_of(row["kind"], row["label"], row["draw"], row["budget"])] = row
    return done


def run(file: Path, draw: int, budget: float, families: Sequence[str]) -> None:
    """Run what the file lacks, on one worker, and append a line for each."""
    from proxlin.experiments.engine.base import Case

    done = read(file)
    asked = [each for each in cells() if each.family in families]
    cases = []
    for cell in asked:
        for kind in ("truth", "answer"):
            if key_of(kind, cell.label(), draw, budget) in done:
                continue
            settings = {"cell": asdict(cell)}
            if kind == "answer":
                settings |= {"draw": draw, "budget": budget}
            task = f"bench.studies.advisor_between:{kind}"
            cases.append(Case(task, settings, 30.0, cell.shapes()))
    print(f"{len(asked)} cells, {len(cases)} cases to run", flush=True)
    # a thread of its own for each call of XLA waits for a core each time: five times as long on a busy machine
    os.environ.setdefault("JAX_CPU_ENABLE_ASYNC_DISPATCH", "false")
    file.parent.mkdir(parents=True, exist_ok=True)
    with closing(Local(1)) as engine, file.open("a", encoding="utf-8") as lines:
        if file.stat().st_size and not file.read_bytes().endswith(b"\n"):
            lines.write("\n")
        for case, outcome in engine.outcomes(cases):
            label = Cell(**case.settings["cell"]).label()
            kind = case.task.split(":")[1]
            if outcome.result is None:
                print(f"{kind} of {label} failed: {outcome.error}", flush=True)
                continue
            row = {"kind": kind, "label": label, "draw": draw, "budget": budget}
            lines.write(json.dumps(row | outcome.result) + "\n")
            lines.flush()
            took = "{seconds:.0f} s, {cpu_seconds:.0f} of the CPU".format_map(
                outcome.run
            )
            print(f"{kind} of {label}: {took}", flush=True)


# ------------------------------------------------------------------------------------------ the judgement


def rows_of(file: Path, draw: int, budget: float) -> Iterator[dict[str, Any]]:
    """Yield a flat row for each cell that has its truth and its answer."""
    done = read(file)
    for cell in cells():
        known = done.get(key_of("truth", cell.label(), draw, budget))
        given = done.get(key_of("answer", cell.label(), draw, budget))
        if known is None or given is None:
            continue
        row: dict[str, Any] = asdict(cell)
        for limit in LIMITS:
            row |= _compared(known[limit], limit)
        row |= {f"seconds_{side}": known["seconds"][side] for side in SIDES}
        row |= {"gauss_newton": known["gauss_newton"]}
        row |= {
            name: given[name]
            for name in ("recommendation", "take", "in_time", "in_more_time")
        }
        low, high = given["gain"][1:]
        row |= {"gain": given["gain"][0], "gain_low": low, "gain_high": high}
        row |= {name: given[name] for name in ("settings", "passes", "took")}
        yield row


def _compared(losses: dict[str, list[float]], limit: str) -> dict[str, Any]:
    """Return Gauss-Newton's test loss over SGD's, less 1, its interval, and the better side."""
    from proxlin.experiments.tuning import compare, winner

    one, two = (np.asarray(losses[side]) for side in SIDES)
    found = compare(one, two)
    return {
        f"{limit}_ratio": found.shown(found.mean),
        f"{limit}_low": found.shown(found.low),
        f"{limit}_high": found.shown(found.high),
        f"{limit}_better": winner(found, BAND, *SIDES),
    }


def share(rows: Sequence[dict[str, Any]], question: str) -> Share:
    """Return how many of the cells that have a better side got it as the answer."""
    given, limit = QUESTIONS[question]
    decided = [row for row in rows if row[f"{limit}_better"] in SIDES]
    right = sum(row[given] == row[f"{limit}_better"] for row in decided)
    return Share(right, len(decided), PROMISED)


def needed(trials: int) -> tuple[int | None, int | None]:
    """Return the fewest right answers that reproduce the promised share, and the most that refute it."""
    judged = {x: RULE.judge(Share(x, trials, PROMISED)) for x in range(trials + 1)}
    keeping = [x for x, each in judged.items() if each == "reproduced"]
    refuting = [x for x, each in judged.items() if each == "not reproduced"]
    return (
        min(keeping) if keeping else None,
        max(refuting) if refuting else None,
    )


def told(rows: Sequence[dict[str, Any]]) -> str:
    """Return the tables of the page, in Markdown."""
    settings = Counter(row["settings"] for row in rows)
    counts = ", ".join(
        f"{count} with {tried}" for tried, count in sorted(settings.items())
    )
    whole = sum(row["passes"] == PASSES for row in rows)
    parts = [
        f"{len(rows)} of the {len(cells())} cells are done. The default budget raced all {PASSES:g} passes in "
        f"{whole} of them (settings of each method: {counts}).",
        _table(("limit", "family", "cells", *map(_better, BETTER)), _truths(rows)),
        _table(
            ("question", "family", "right", "95 % interval", "at least 0.8 are right"),
            _shares(rows),
        ),
        _resolved(rows),
        _table(
            ("better at equal passes", *(f"verdict {each}" for each in ANSWERS)),
            _answers(rows),
        ),
        *_misses(rows),
    ]
    return "\n\n".join(parts)


def _better(side: str) -> str:
    return f"{side} better" if side in SIDES else side


def _table(head: Sequence[str], rows: Iterable[Sequence[Any]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(map(str, line)) + " |" for line in lines)


def _truths(rows: Sequence[dict[str, Any]]) -> Iterator[list[Any]]:
    for limit, family in product(LIMITS, FAMILIES):
        mine = [row[f"{limit}_better"] for row in rows if row["family"] == family]
        yield [limit, family, len(mine), *(mine.count(each) for each in BETTER)]


def _shares(rows: Sequence[dict[str, Any]]) -> Iterator[list[Any]]:
    for question, family in product(QUESTIONS, (*FAMILIES, "all")):
        found = share(
            [row for row in rows if family in ("all", row["family"])], question
        )
        right = f"{found.successes} of {found.trials}"
        if not found.trials:
            yield [question, family, right, "", "no decided cell"]
            continue
        interval = f"[{found.low:.2f}, {found.high:.2f}]"
        yield [question, family, right, interval, RULE.judge(found)]


def _resolved(rows: Sequence[dict[str, Any]]) -> str:
    """Return what the rule can tell with as many decided cells."""
    trials = share(rows, next(iter(QUESTIONS))).trials
    keeping, refuting = needed(trials)
    show = (
        f"{keeping} right ones show"
        if keeping
        else "not even all of them right would show"
    )
    refute = (
        f"{refuting} or fewer refute it"
        if refuting is not None
        else "none of them right would not refute it"
    )
    return f"With {trials} decided cells {show} that at least {PROMISED:g} are right, and {refute}."


def _answers(rows: Sequence[dict[str, Any]]) -> Iterator[list[Any]]:
    for better in BETTER:
        given = [
            row["recommendation"] for row in rows if row["passes_better"] == better
        ]
        yield [better, *(given.count(each) for each in ANSWERS)]


def _misses(rows: Sequence[dict[str, Any]]) -> Iterator[str]:
    """Yield the cells whose verdict is wrong, and the most that the side to take loses."""
    worst, where = 0.0, "none"
    lines = []
    for row in rows:
        label = Cell(**{name: row[name] for name in Cell.__dataclass_fields__}).label()
        ratio = 1 + row["passes_ratio"]
        loss = (ratio if row["take"] == "gauss-newton" else 1 / max(ratio, 1e-9)) - 1
        if loss > worst and row["passes_better"] in SIDES:
            worst, where = loss, label
        if row["passes_better"] not in (*BETTER[2:], row["recommendation"]):
            lines.append(
                [label, f"{ratio - 1:+.1%}", row["recommendation"], row["take"]]
            )
    if lines:
        yield _table(
            ("missed", "Gauss-Newton's test loss over SGD's", "verdict", "taken"), lines
        )
    yield f"In decided cells the side to take has at most {worst:.1%} more test loss than the other ({where})."


def write(rows: Sequence[dict[str, Any]]) -> None:
    text = io.StringIO()
    writer = csv.DictWriter(text, list(rows[0]), lineterminator="\n")
    writer.writeheader()
    for row in rows:
        writer.writerow(
            {name: f"{x:.5g}" if isinstance(x, float) else x for name, x in row.items()}
        )
    write_file(CELLS, text.getvalue().encode())
    page = with_tables(PAGE.read_text(encoding="utf-8"), told(rows))
    write_file(PAGE, page.encode())


def with_tables(page: str, tables: str) -> str:
    """Return the page with the tables between its two markers."""
    before, _, rest = page.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not end:
        raise ValueError(f"the page needs a line {BEGIN} and after it a line {END}.")
    return f"{before}{BEGIN}\n\n{tables}\n\n{END}{after}"


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="bench.studies.advisor_between",
        description=__doc__,
        formatter_class=argparse.RawTextHelpFormatter,
    )
    parser.add_argument("what", choices=("run", "show"))
    parser.add_argument("--families", nargs="+", choices=FAMILIES, default=FAMILIES)
    parser.add_argument("--draw", type=int, default=DRAW, help="that the advisor sees")
    parser.add_argument("--budget", type=float, default=BUDGET, help="of the advisor")
    parser.add_argument(
        "--out", type=Path, default=Path("results") / "advisor-between" / "cells.jsonl"
    )
    parser.add_argument(
        "--docs", action="store_true", help="write the page and between.csv"
    )
    arguments = parser.parse_args(argv)
    prepare()
    if arguments.what == "run":
        run(arguments.out, arguments.draw, arguments.budget, arguments.families)
        return 0
    rows = [
        row
        for row in rows_of(arguments.out, arguments.draw, arguments.budget)
        if row["family"] in arguments.families
    ]
    if not rows:
        print(f"{arguments.out} has no cell yet; run it first.")
        return 1
    print(told(rows))
    if arguments.docs:
        write(rows)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
