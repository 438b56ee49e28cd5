"""top(10) on 64 grids, against a numba loop of the same recursion and the peers that are installed; and an SGD step.

    python -m bench --only oracles            python -c "from bench.oracles import main; main(['--json', 'FILE'])"

Ours is jax.jit(jax.vmap(oracle.top)); compile time is apart; repeats are interleaved, so that a busy machine hits all.
A ratio is (time of the other) / (time of ours) for a peer and (time of ours) / (time of numba) for the target. Peers
are slow, and get a few of the same instances; each is first made to agree on the best scores.
"""

import argparse
import itertools
import json
import os
import time
import warnings
from collections.abc import Callable
from importlib.util import find_spec
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numba
import numpy as np

import proxlin as px
from proxlin.data.maps import TileRewards, terrain_maps
from proxlin.oracles import Chains, MonotonePaths

BATCH, COUNT = 64, 10
TARGET = 3.0  # issue 6: at most 3 times numba
AHEAD = 20.0  # issue 6: ahead of every peer by 20 times
STEP = 2.0  # issue 6: an SGD step is at most 2 times the network's own forward and backward pass
CALLS = 10  # of ours in a round against a peer, which takes 1000 times as long and leaves the caches cold
FEW = {"networkx": 4, "pyepo": 16, "torch_struct": 2}  # instances for a peer: seconds, not minutes


@numba.njit
def top_grids(a, rows, cols, count):
    """The recursion of MonotonePaths.top, cell by cell: merge two sorted lists, keep pointers, follow them back."""
    batch = a.shape[0]
    scores = np.full((batch, count), -np.inf, a.dtype)
    members = np.zeros((batch, count, rows * cols), a.dtype)
    lists = np.empty((rows, cols, count), a.dtype)
    source = np.empty((rows, cols, count), np.int32)  # rank above, or -1 - rank to the left
    length = np.zeros((rows, cols), np.int32)
    for b in range(batch):
        for r in range(rows):
            for c in range(cols):
                reward = a[b, r * cols + c]
                if r == 0 and c == 0:
                    lists[0, 0, 0], length[0, 0] = reward, 1
                    continue
                above = length[r - 1, c] if r > 0 else 0
                left = length[r, c - 1] if c > 0 else 0
                i = j = 0
                length[r, c] = min(count, above + left)
                for k in range(length[r, c]):
                    if j >= left or (i < above and lists[r - 1, c, i] >= lists[r, c - 1, j]):
                        lists[r, c, k], source[r, c, k] = lists[r - 1, c, i] + reward, i
                        i += 1
                    else:
                        lists[r, c, k], source[r, c, k] = lists[r, c - 1, j] + reward, -1 - j
                        j += 1
        for k in range(length[rows - 1, cols - 1]):
            scores[b, k] = lists[rows - 1, cols - 1, k]
            r, c, rank = rows - 1, cols - 1, k
            members[b, k, r * cols + c] = 1
            while r > 0 or c > 0:
                rank = source[r, c, rank]
                if rank >= 0:
                    r -= 1
                else:
                    c, rank = c - 1, -1 - rank
                members[b, k, r * cols + c] = 1
    return scores, members


def networkx_paths(grids: np.ndarray, side: int) -> Callable[[], list]:
    """Yen's k shortest paths in the directed grid; costs are shifted to be positive (all paths have one length)."""
    import networkx

    graphs = []
    for grid in grids:
        graph = networkx.DiGraph()
        cost = (grid.max() + 1 - grid).reshape(side, side)
        for r, c in itertools.product(range(side), repeat=2):
            for into in ((r + 1, c), (r, c + 1)):
                if max(into) < side:
                    graph.add_edge((r, c), into, weight=float(cost[into]))
        graphs.append(graph)

    def run():
        ends = (0, 0), (side - 1, side - 1)
        return [list(itertools.islice(networkx.shortest_simple_paths(g, *ends, "weight"), COUNT)) for g in graphs]

    def scores():
        return [
            [sum(grid[r * side + c] for r, c in path) for path in found]
            for grid, found in zip(grids, run(), strict=True)
        ]

    return agreeing(run, scores)


def pyepo_paths(grids: np.ndarray, side: int) -> Callable[[], list]:
    """OR-tools' linear program of the grid through PyEPO: one best path, not ten."""
    from pyepo.model.ort import shortestPathModel

    model = shortestPathModel((side, side))
    costs = [[-float(grid[into]) for _, into in model.arcs] for grid in grids]

    def run():
        found = []
        for cost in costs:
            model.setObj(cost)
            found.append(model.solve()[1])
        return found

    return agreeing(run, lambda: [[grid[0] - value] for grid, value in zip(grids, run(), strict=True)])


def torch_struct_chains(unary: np.ndarray, pairwise: np.ndarray) -> Callable[[], Any]:
    """The k-max semiring of torch-struct; its potentials are (n, z_{n+1}, z_n), unary scores added in."""
    import torch
    import torch_struct

    edges = np.swapaxes(pairwise, -1, -2) + unary[:, 1:, :, None]
    edges[:, 0] += unary[:, 0, None, :]
    potentials = torch.tensor(edges)
    warnings.filterwarnings("ignore", message=".*does not define `arg_constraints`", category=UserWarning)
    run = lambda: torch_struct.LinearChainCRF(potentials).topk(COUNT)
    return agreeing(run, lambda: (run() * potentials).sum((2, 3, 4)).T.detach().numpy())


def agreeing(run: Callable, scores: Callable) -> Callable:
    """run, with the scores of what it finds beside it, (instances, paths)."""
    run.scores = scores
    return run


def interleaved(runs: dict[str, tuple[Callable, int]], repeats: int) -> dict[str, dict]:
    """First call apart (compile time), then `repeats` rounds over all of them: microseconds for an instance."""
    first = {name: clock(run) for name, (run, _) in runs.items()}
    times = {name: [] for name in runs}
    for _ in range(repeats):
        for name, (run, instances) in runs.items():
            times[name].append(clock(run) / instances * 1e6)
    return {
        name: {
            "first_call_seconds": first[name],
            "median_us": float(np.median(t)),
            "low_us": float(np.quantile(t, 0.1)),
            "high_us": float(np.quantile(t, 0.9)),
            "all_us": t,
        }
        for name, t in times.items()
    }


def clock(run: Callable) -> float:
    start = time.perf_counter()
    jax.block_until_ready(run())
    return time.perf_counter() - start


def spread(top: dict, bottom: dict) -> tuple[float, float, float]:
    """The median of the paired ratios and their 10% and 90% quantiles."""
    ratios = np.array(top["all_us"]) / np.array(bottom["all_us"])
    return float(np.median(ratios)), float(np.quantile(ratios, 0.1)), float(np.quantile(ratios, 0.9))


def compare(case: str, ours: tuple[Callable, int], name: str, other: tuple[Callable, int], repeats: int) -> dict:
    """One row, printed and returned: the target for numba and the network, the distance to a peer."""
    times = interleaved({"proxlin": ours, name: other}, repeats)
    least = {"numba": TARGET, "network": STEP}.get(name)
    over, under = (times[name], times["proxlin"]) if least is None else (times["proxlin"], times[name])
    ratio, low, high = spread(over, under)
    kept = ratio >= AHEAD if least is None else ratio <= least
    what = f"{name} / proxlin (at least {AHEAD:g})" if least is None else f"proxlin / {name} (at most {least:g})"
    mine, theirs = times["proxlin"]["median_us"], times[name]["median_us"]
    first = times["proxlin"]["first_call_seconds"]
    print(
        f"{case:24s} proxlin {mine:8.1f} us   {name} {theirs:9.1f} us   {what}: {ratio:.2f} [{low:.2f}, {high:.2f}]   "
        f"{'kept' if kept else 'MISSED'}   compile {first:.2f} s",
        flush=True,
    )
    row = {"case": case, "other": name, "ratio": ratio, "low": low, "high": high, "kept": kept}
    return row | {"proxlin_us": mine, "other_us": theirs, "proxlin_first_call_seconds": first}


def installed(case: str, module: str) -> bool:
    """Whether a peer is there; if not, it is named as missing."""
    there = find_spec(module) is not None
    if not there:
        print(f"{case:24s} {module}: not installed, no row", flush=True)
    return there


def against(case: str, name: str, ours: Callable, peer: Callable, expected: np.ndarray) -> dict:
    """A row for a peer, on its few instances, after it found the same scores."""
    found = np.asarray(peer.scores())
    if not np.allclose(found, expected[: len(found), : found.shape[1]], atol=1e-3):
        raise AssertionError(f"proxlin and {name} disagree on {case}")
    many = lambda: [ours() for _ in range(CALLS)]
    return compare(case, (many, CALLS * BATCH), name, (peer, len(found)), 3)


def grids(side: int, dtype: type, repeats: int) -> list[dict]:
    oracle = MonotonePaths(side, side)
    a = np.random.default_rng(side).normal(size=(BATCH, oracle.size())).astype(dtype)
    on_device = jnp.asarray(a)
    top = jax.jit(jax.vmap(lambda a: oracle.top(a, COUNT)))
    scores, members = top_grids(a, side, side, COUNT)
    mine, found = jax.jit(jax.vmap(lambda a: oracle.top(a, COUNT)))(on_device)
    if not (np.allclose(mine, scores, atol=1e-4) and np.mean(np.asarray(found) != members) < 1e-3):
        raise AssertionError("proxlin and the numba loop disagree")

    case, ours = f"grid {side}x{side} {np.dtype(dtype).name}", lambda: top(on_device)
    rows = [compare(case, (ours, BATCH), "numba", (lambda: top_grids(a, side, side, COUNT), BATCH), repeats)]
    for name, build in (("networkx", networkx_paths), ("pyepo", pyepo_paths)):
        if dtype is np.float64 and installed(case, name):
            rows.append(against(case, name, ours, build(a[: FEW[name]], side), scores))
    return rows


def chains(length: int, labels: int, repeats: int) -> list[dict]:
    oracle, rng = Chains(length, labels), np.random.default_rng(length)
    unary = rng.normal(size=(BATCH, length, labels)).astype(np.float32)
    pairwise = rng.normal(size=(BATCH, length - 1, labels, labels)).astype(np.float32)
    a = jnp.concatenate([unary.reshape(BATCH, -1), pairwise.reshape(BATCH, -1)], axis=1)
    case, top = f"chain {length} of {labels} float32", jax.jit(jax.vmap(lambda a: oracle.top(a, COUNT)))
    if installed(case, "torch_struct"):
        few = FEW["torch_struct"]
        peer = torch_struct_chains(unary[:few], pairwise[:few])
        return [against(case, "torch_struct", lambda: top(a), peer, np.asarray(top(a)[0]))]
    times = interleaved({"proxlin": (lambda: top(a), BATCH)}, repeats)["proxlin"]
    print(f"{case:24s} proxlin {times['median_us']:8.1f} us   compile {times['first_call_seconds']:.2f} s", flush=True)
    return [{"case": case, "other": None, "proxlin_us": times["median_us"]}]


def steps(channels: tuple[int, ...], repeats: int) -> dict:
    """SGD on one map at a time, against the same scan with the sum of the network's rewards in place of the loss."""
    maps = terrain_maps(BATCH)
    predict = TileRewards(maps.tile, channels)
    inner = px.augmented_scores(predict, maps.oracle)
    problem = px.MeanOfLosses(inner, px.StructuredHinge(maps.oracle), maps.data())
    w = predict.init(jax.random.key(0), jnp.float32)
    order = jnp.arange(BATCH, dtype=jnp.int32)
    move = lambda w, g: jax.tree.map(lambda w, g: w - jnp.float32(1e-4) * g, w, g)
    total = lambda w, problem, i: jnp.sum(predict(w, problem.data[0][i]))

    @eqx.filter_jit  # the problem is an argument: a constant would be folded into the program
    def sgd(w, problem):
        return jax.lax.scan(lambda w, i: (move(w, problem[i].subgradient(w)), None), w, order)[0]

    @eqx.filter_jit
    def network(w, problem):
        return jax.lax.scan(lambda w, i: (move(w, jax.grad(total)(w, problem, i)), None), w, order)[0]

    case = f"SGD step, CNN {'-'.join(map(str, channels))}"
    return compare(case, (lambda: sgd(w, problem), BATCH), "network", (lambda: network(w, problem), BATCH), repeats)


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="bench.oracles", description="The K best outputs, against numba.")
    parser.add_argument("--json", metavar="FILE", help="write the rows there too")
    parser.add_argument("--repeats", type=int, default=40)
    arguments = parser.parse_args(argv)
    jax.config.update("jax_enable_x64", True)
    load, cores = os.getloadavg()[0], os.cpu_count()
    print(f"top({COUNT}) on a batch of {BATCH}; microseconds for one instance, medians of {arguments.repeats} rounds")
    print(f"load {load:.1f} on {cores} cores: read nothing into a run on a busy machine")
    rows = []
    for side, dtype in itertools.product((12, 24), (np.float32, np.float64)):
        rows += grids(side, dtype, arguments.repeats)
    rows += chains(14, 26, max(arguments.repeats // 4, 1))
    rows += [steps(channels, max(arguments.repeats // 4, 1)) for channels in ((8, 16), (16, 32))]
    if arguments.json:
        with open(arguments.json, "w", encoding="utf-8") as file:
            json.dump({"load": load, "cores": cores, "rows": rows}, file, indent=1)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
