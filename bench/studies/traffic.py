"""What travels between devices in one step of each method, counted in the compiled program, and the
seconds of a step.

The bytes are those of the whole array of each collective: the result of an all-reduce or
all-gather, the operand of a reduce-scatter. In a ring of D devices each sends 2 (D - 1) / D of it
for an all-reduce and (D - 1) / D for the others. A loop whose length is known counts as often as it
turns; one that ends by itself is counted for one turn, on a line of its own.
"""

import argparse
import dataclasses
import json
import math
import re
import statistics
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from bench.harness import apart, duration
from proxlin.files.writing import write_file

COLLECTIVES = (
    "all-reduce",
    "all-gather",
    "reduce-scatter",
    "all-to-all",
    "collective-permute",
    "collective-broadcast",
)
BYTES = {"pred": 1, "bf16": 2, "f16": 2}
NAMES = r"%([\w.\-]+)"
FORCED = "--xla_force_host_platform_device_count="
# what travels is the same
QUICK = " --xla_backend_optimization_level=0 --xla_llvm_disable_expensive_passes=true"


# ----------------------------------------------------------------------------------------- counting


@dataclasses.dataclass(frozen=True)
class Traffic:
    """The collectives of a step, by kind: (calls, bytes); and those of one turn of each loop that
    ends by itself.
    """

    calls: dict[str, tuple[int, int]]
    loops: tuple["Traffic", ...]

    def times(self, count: int) -> "Traffic":
        return Traffic(
            {kind: (count * c, count * b) for kind, (c, b) in self.calls.items()},
            self.loops,
        )

    def __add__(self, other: "Traffic") -> "Traffic":
        total = dict(self.calls)
        for kind, (c, b) in other.calls.items():
            before = total.get(kind, (0, 0))
            total[kind] = (before[0] + c, before[1] + b)
        return Traffic(total, self.loops + other.loops)

    def sums(self) -> tuple[int, int]:
        """All calls, all bytes."""
        return sum(c for c, _ in self.calls.values()), sum(
            b for _, b in self.calls.values()
        )


def traffic(program: str) -> Traffic:
    """The traffic of the text of a compiled program (HLO after partitioning)."""
    parts = dict(_computations(program))
    entry = next(name for name in parts if name.startswith("ENTRY "))
    return _of(entry, parts, _parts(program))


def _computations(program: str) -> Iterator[tuple[str, list[str]]]:
    name, lines = None, []
    for line in program.splitlines():
        opened = re.match(rf"(ENTRY )?{NAMES} \(.*\{{$", line)
        if opened:
            name, lines = (opened[1] or "") + opened[2], []
        elif line.startswith("}") and name is not None:
            yield name, lines
            name = None
        elif name is not None:
            lines.append(line)


def _parts(program: str) -> int:
    return int((re.search(r"num_partitions=(\d+)", program) or [0, 1])[1])


def _of(name: str, parts: dict[str, list[str]], devices: int) -> Traffic:
    total = Traffic({}, ())
    for line in parts[name]:
        found = re.search(rf"= (.*?) ({'|'.join(COLLECTIVES)})(-start)?\(", line)
        if found:
            size = _bytes(found[1]) * (devices if found[2] == "reduce-scatter" else 1)
            total += Traffic({found[2]: (1, size)}, ())
        elif " while(" in line:
            total += _loop(line, parts, devices)
        elif " call(" in line:
            total += _of(re.search(rf"to_apply={NAMES}", line)[1], parts, devices)  # type: ignore[index]
        elif " conditional(" in line:
            total += _branches(line, parts, devices)
    return total


def _loop(line: str, parts: dict[str, list[str]], devices: int) -> Traffic:
    body = _of(re.search(rf"body={NAMES}", line)[1], parts, devices)  # type: ignore[index]
    body += _of(re.search(rf"condition={NAMES}", line)[1], parts, devices)  # type: ignore[index]
    count = re.search(r'known_trip_count[^\d}]*"?n"?[^\d}]*(\d+)', line)
    if count:
        return body.times(int(count[1]))
    return Traffic({}, (body,)) if body.calls or body.loops else Traffic({}, ())


def _branches(line: str, parts: dict[str, list[str]], devices: int) -> Traffic:
    """The one with most bytes."""
    names = re.search(r"branch_computations=\{(.*?)\}", line)
    listed = (
        re.findall(NAMES, names[1])
        if names
        else re.findall(rf"(?:true|false)_computation={NAMES}", line)
    )
    return max(
        (_of(each, parts, devices) for each in listed),
        key=lambda t: (t.sums()[1], len(t.loops)),
    )


def _bytes(shape: str) -> int:
    total = 0
    for kind, sizes in re.findall(r"(\w+)\[([\d,]*)\]", shape):
        each = BYTES.get(kind) or int(re.sub(r"\D", "", kind) or 8) // 8
        total += each * math.prod(int(size) for size in sizes.split(",") if size)
    return total


# -------------------------------------------------------------------------------------------- cases


@dataclasses.dataclass(frozen=True)
class Sizes:
    """n samples of p inputs and k outputs, a linear map of d = p k parameters; a batch of b of
    them. 4 bytes each.
    """

    n: int = 2048
    p: int = 24
    k: int = 4
    b: int = 64

    @property
    def d(self) -> int:
        return self.p * self.k

    @property
    def row(self) -> int:
        return self.p + self.k


# 2 d >= n k: a system of n k rows; min(n k, d) > 6000: matrix-free
WIDE, LONG = Sizes(n=32), Sizes(p=1504)


def cases() -> dict[str, tuple[Any, Any, Sizes]]:
    """name: (class of the problem, solver, sizes)."""
    import proxlin as px

    mean, loss, usual = px.MeanOfLosses, px.LossOfMean, Sizes()
    return {
        "subgradient_descent": (mean, px.subgradient_descent(0.1), usual),
        "sgd, b = 64": (mean, px.sgd(0.1, usual.b), usual),
        "sgd, b = 1": (mean, px.sgd(0.1), usual),
        "stochastic_prox_linear, b = 64": (
            mean,
            px.stochastic_prox_linear(0.1, usual.b),
            usual,
        ),
        "svrg, an epoch": (mean, px.svrg(0.01), usual),
        "pli, casimir_svrg": (mean, px.pli(1.0, 0.1), usual),
        "pli, dual": (mean, px.pli(1.0), usual),
        "prox_linear, 2 d < n k": (mean, px.prox_linear(1.0), usual),
        "prox_linear, 2 d >= n k": (mean, px.prox_linear(1.0), WIDE),
        "prox_linear, matrix-free": (mean, px.prox_linear(1.0), LONG),
        "f(mean): subgradient_descent": (loss, px.subgradient_descent(0.1), usual),
        "f(mean): prox_linear": (loss, px.prox_linear(1.0), usual),
        "f(mean): stochastic_gauss_newton, b = 64": (
            loss,
            px.stochastic_gauss_newton(1.0, usual.b),
            usual,
        ),
    }


def step_of(kind: Any, solver: Any, sizes: Sizes) -> tuple[Any, list]:
    """One step as `minimize` compiles it, on all devices there are, and its arguments."""
    import jax
    import jax.numpy as jnp
    import numpy as np

    import proxlin as px
    from proxlin.compiled import _compile, _split

    rng = np.random.default_rng(0)
    X, Y = (
        rng.normal(size=(sizes.n, m)).astype(np.float32) for m in (sizes.p, sizes.k)
    )
    problem = kind(px.residual(lambda w, x: x @ w), px.L2(), px.shard((X, Y)))
    w = jnp.zeros((sizes.p, sizes.k), jnp.float32)
    state = jax.tree.map(jnp.asarray, jax.tree.map(np.asarray, solver.init(problem, w)))
    drawn = solver.draw(problem, jax.random.key(0), 1)[0]
    leaves, structure = _split((solver, problem, state, drawn))
    return _compile(_step, leaves, structure), leaves


def _step(solver: Any, problem: Any, state: Any, drawn: Any) -> Any:
    return solver.step(problem, state, drawn)


def measure(name: str, repeats: int) -> dict[str, Any]:
    """The traffic and the seconds of a step, on as many devices as this process has."""
    import jax

    from bench.harness import seconds

    kind, solver, sizes = cases()[name]
    call, leaves = step_of(kind, solver, sizes)
    found = traffic(call.as_text())
    times = [seconds(lambda: call(leaves)) for _ in range(repeats + 1)][1:]
    return {
        "case": name,
        "devices": len(jax.devices()),
        **dataclasses.asdict(sizes),
        "traffic": dataclasses.asdict(found),
        "seconds": statistics.median(times) if times else None,
    }


# ----------------------------------------------------------------------------------------- printing


def lines(row: dict[str, Any]) -> Iterator[str]:
    """The line of a step, and one for each of its loops."""
    head = f"{row['case']:42s} {row['devices']:d} devices"
    time = "" if row["seconds"] is None else f"   {duration(row['seconds'])}"
    yield f"{head}  {_show(row['traffic'])}{time}"
    yield from (
        f"{'':42s} {text}"
        for text in _show_loops(row["traffic"]["loops"], "a turn of its loop")
    )


def _show_loops(loops: Any, what: str) -> Iterator[str]:
    for loop in loops:
        yield f"{what}: {_show(loop)}"
        yield from _show_loops(loop["loops"], f"  {what} inside")


def _show(found: dict[str, Any]) -> str:
    if not found["calls"]:
        return "nothing"
    return ", ".join(
        f"{c} {kind} {b:,d} bytes" for kind, (c, b) in found["calls"].items()
    )


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m bench.studies.traffic",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "--devices",
        type=int,
        nargs="+",
        default=[1, 2, 4],
        help="forced host devices (1 2 4)",
    )
    parser.add_argument(
        "--only", metavar="TEXT", default="", help="cases whose name holds it"
    )
    parser.add_argument(
        "--repeats", type=int, default=5, help="runs of each step; 0: count alone (5)"
    )
    parser.add_argument(
        "--json", metavar="FILE", type=Path, help="write the rows there too"
    )
    arguments = parser.parse_args(argv)
    kept = []
    for name in cases():
        for devices in arguments.devices if arguments.only in name else ():
            flags = f"{FORCED}{devices}{'' if arguments.repeats else QUICK}"
            row = apart(
                "bench.studies.traffic:measure",
                name,
                arguments.repeats,
                start=180.0,
                env={"XLA_FLAGS": flags},
            )
            kept.append(row or {"case": name, "devices": devices, "traffic": None})
            print("\n".join(lines(row)) if row else f"{name}: over 300 s", flush=True)
            if arguments.json:
                write_file(arguments.json, json.dumps(kept, indent=1).encode())
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
