"""What the sweep engine adds to the work itself.

    case       one case of Figure 2 (n = 1000, width 512, 100 epochs of SGD, judged at 21 checkpoints) over the bare
               compiled loop of the same steps: <= 1.2
    threads    that case with XLA's default pool over the same with one thread, in processes of their own
    workers    a sweep of at least 5 minutes (--minutes) on two workers against one: >= 1.7 times faster
    NAME       of a study (--cases NAME): CPU seconds of one case of each method in the paper profile, warm, and
               what the plan says over it

Repeats of the case are interleaved with the bare loop; one XLA thread, as in a worker. Compilation
is apart.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator

# before NumPy is imported, as in a worker
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

from proxlin.experiments.engine.workers import prepare
from proxlin.files.writing import write_file

CASE = {
    "method": "sgd",
    "width": 512,
    "n": 1000,
    "snr": 1e5,
    "activation": "elu",
    "noise": "laplace",
    "accounting": "passes",
    "seed": 0,
    "judges": True,
    "passes": 100.0,
    "patience": 1000.0,
    "validation": 1000,
    "test": 4096,
    "step": 0.003,
    "decay": 0.5,
}
CONFIG = """
[quick]
samples = [512]
ratios = [1e1, {ratios}]
widths = [512]
passes = 100.0
patience = 1000.0
settings = 12
finalists = 1
search_seeds = 1
fresh = false
seeds = 2
views = 1
validation = 1000
test = 4096
activation = "elu"
noise = "laplace"
check = []
variants = []
variant_samples = []
variant_ratios = []
variant_seeds = 2

[rules.C4-overall]
asks = "more"
band = 0.01

[rules.C4-clearest]
asks = "more"
band = 0.01

[rules.C5]
asks = "equal"
band = 0.01
"""


def case_row(repeats: int) -> dict:
    import jax
    import jax.numpy as jnp
    import numpy as np

    from proxlin.experiments.regression_task import Arena, problems_of, solver_of, train
    from proxlin.run.loop import Limits, advance

    arena = Arena(512, 1000, 1e5, "elu", "laplace")
    problem = problems_of(arena, 0, 1000, 4096)[0]
    solver = solver_of("sgd", CASE, 1000, 100.0)
    w = arena.student().init(jax.random.key(0), jnp.float32)

    @jax.jit
    def bare(solver, problem, w, key):
        state = solver.init(problem, w)
        return advance(
            problem, solver, state, key, jnp.int32(0), Limits(jnp.int32(100_000))
        )[0]

    runs = {
        "case": lambda: train(CASE),
        "bare": lambda: jax.block_until_ready(
            bare(solver, problem, w, jax.random.key(0))
        ),
    }
    seconds = {name: [] for name in runs}
    for repeat in range(repeats + 1):
        for name, run in runs.items():
            start = time.perf_counter()
            run()
            if repeat:  # the first compiles
                seconds[name].append(time.perf_counter() - start)
    ratio = np.quantile(
        np.array(seconds["case"]) / np.array(seconds["bare"]), [0.25, 0.5, 0.75]
    ).tolist()
    return {
        "row": "case",
        "seconds": float(np.median(seconds["case"])),
        "ratio": ratio[1],
        "low": ratio[0],
        "high": ratio[2],
        "target": "<= 1.2",
    }


CHILD = """
import os, time
os.environ.update({"XLA_FLAGS": "--xla_cpu_multi_thread_eigen=false", "OMP_NUM_THREADS": "1", "JAX_ENABLE_X64": "1"})
from bench.studies.sweep import CASE
from proxlin.experiments.regression_task import train
train(CASE)  # compiles
start = time.perf_counter()
train(CASE)
print(time.perf_counter() - start)
"""


def threads_row(repeats: int) -> dict:
    """Interleaved; the environment of this process, a worker's, is that of the second."""
    seconds: dict[str, list[float]] = {"pool": [], "one": []}
    pool = {name: value for name, value in os.environ.items() if name != "NPROC"}
    for _ in range(repeats):
        for name, environment in (("pool", pool), ("one", {**pool, "NPROC": "1"})):
            done = subprocess.run(
                [sys.executable, "-c", CHILD],
                env=environment,
                capture_output=True,
                text=True,
                check=True,
            )
            seconds[name].append(float(done.stdout))
    ratios = sorted(a / b for a, b in zip(seconds["pool"], seconds["one"], strict=True))
    middle, time_of_one = ratios[len(ratios) // 2], sorted(seconds["one"])[repeats // 2]
    return {
        "row": "threads",
        "seconds": time_of_one,
        "ratio": middle,
        "low": ratios[0],
        "high": ratios[-1],
        "target": "",
    }


def workers_row(minutes: float) -> dict:
    """The same sweep on one worker and then on two, both in folders of their own."""
    cells = max(1, round(minutes * 60 / 28))  # a cell takes about 28 s of one core
    ratios = ", ".join(f"{10 ** (5 + 2 * i / cells):.6g}" for i in range(cells))
    seconds = {}
    with tempfile.TemporaryDirectory() as folder:
        config = os.path.join(folder, "config.toml")
        with open(config, "w", encoding="utf-8") as file:
            file.write(CONFIG.format(ratios=ratios))
        for workers in (1, 2):
            command = [
                sys.executable,
                "-m",
                "proxlin.cli",
                "reproduce",
                "fig2",
                "--quiet",
                "--config",
                config,
            ]
            command += [
                "--workers",
                str(workers),
                "--out",
                os.path.join(folder, str(workers)),
            ]
            start = time.perf_counter()
            subprocess.run(command, check=True)
            seconds[workers] = time.perf_counter() - start
    return {
        "row": "workers",
        "seconds": seconds[1],
        "ratio": seconds[1] / seconds[2],
        "target": ">= 1.7",
    }


def cases_of(name: str) -> Iterator[dict]:
    """Time the case of a study's plan that is thought to be the longest, for each method and data set."""
    from proxlin.experiments import experiments
    from proxlin.experiments.engine.workers import execute

    study = experiments(wanted=[name])[name]
    longest = {}
    for case in study.plan(study.config("paper"), 1).first:
        label = (case.settings.get("data", ""), case.settings.get("method", ""))
        if label not in longest or case.work > longest[label].work:
            longest[label] = case
    for (data, method), case in longest.items():
        for _ in range(2):  # the first compiles
            start = time.process_time()
            outcome = execute(case.task, dict(case.settings))
            seconds = time.process_time() - start
        if outcome.error is not None:
            raise RuntimeError(outcome.error)
        yield {
            "row": f"{name} {data} {method}",
            "seconds": seconds,
            "ratio": case.work / seconds,
            "target": "",
        }


def measured(arguments: argparse.Namespace) -> Iterator[dict]:
    """Measure what is asked for, row by row."""
    if arguments.cases:
        yield from cases_of(arguments.cases)
        return
    yield case_row(arguments.repeats)
    yield threads_row(3)
    if arguments.minutes:
        yield workers_row(arguments.minutes)


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="bench.studies.sweep",
        description=__doc__,
        formatter_class=argparse.RawTextHelpFormatter,
    )
    parser.add_argument("--repeats", type=int, default=7)
    parser.add_argument(
        "--minutes",
        type=float,
        default=0.0,
        help="length of the sweep on one worker; 0 leaves it out",
    )
    parser.add_argument("--cases", metavar="NAME", help="of a study; nothing else runs")
    parser.add_argument("--json", metavar="FILE")
    arguments = parser.parse_args(argv)
    prepare()
    table = []
    for row in measured(arguments):
        table.append(row)
        spread = f" ({row['low']:.2f} to {row['high']:.2f})" if "low" in row else ""
        print(
            f"{row['row']:8s} {row['seconds']:8.2f} s   {row['ratio']:.2f}{spread}   {row['target']}",
            flush=True,
        )
    if arguments.json:
        write_file(arguments.json, json.dumps(table, indent=1).encode())
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
