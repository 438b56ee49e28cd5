"""What shared programs save: CPU seconds of four threads that compile the same program, and of bagging.

    threads    four threads call `minimize` with the same shapes: they share one program, or have one each
    bagging    five estimators of scikit-learn's bagging: rows of weight 0 stay in place, or are dropped

"apart" is what there was before: every call has other shapes (a column less, or the rows that were drawn), and
compiles its own programs. Each case runs in a process of its own, without a persistent cache.
"""

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor

CASES = ("threads shared", "threads apart", "bagging shared", "bagging apart")
THREADS = 4
ESTIMATORS = 5


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="bench.studies.sharing", description=__doc__)
    parser.add_argument("--case", choices=CASES, help="one of them, here")
    parser.add_argument("--only", choices=("threads", "bagging"))
    arguments = parser.parse_args(argv)
    if arguments.case:
        print(json.dumps(measured(arguments.case)))
        return 0
    for case in CASES:
        if arguments.only in (None, case.split()[0]):
            print(f"{case:15s} {_apart(case):.1f} s of CPU", flush=True)
    return 0


def _apart(case: str) -> float:
    """Measure in a fresh process."""
    environment = {
        k: v for k, v in os.environ.items() if not k.startswith("JAX_COMPILATION")
    }
    command = [sys.executable, "-m", "bench.studies.sharing", "--case", case]
    run = subprocess.run(
        command, env=environment, capture_output=True, text=True, check=True
    )
    return json.loads(run.stdout.splitlines()[-1])


def measured(case: str) -> float:
    """Return the CPU seconds of a case, after its imports."""
    what, how = case.split()
    run = (threads if what == "threads" else bagging)(how == "shared")
    begun = time.process_time()
    run()
    return time.process_time() - begun


def threads(shared: bool) -> Callable[[], object]:
    """Return four fits by exact prox-linear at once, of as many columns, or of one less each."""
    import jax.numpy as jnp
    import numpy as np

    import proxlin as px

    rng = np.random.default_rng(0)
    x = rng.normal(size=(2000, 20)).astype(np.float32)
    y = rng.normal(size=(2000, 5)).astype(np.float32)
    phi = px.residual(lambda w, x: jnp.tanh(x @ w))

    def fit(d: int) -> float:
        problem = px.MeanOfLosses(phi, px.L2(), (x[:, :d], y))
        return px.minimize(problem, jnp.zeros((d, 5)), px.prox_linear(), steps=2).value

    columns = [20 - (0 if shared else i) for i in range(THREADS)]
    pool = ThreadPoolExecutor(THREADS)
    return lambda: list(pool.map(fit, columns))


def bagging(shared: bool) -> Callable[[], object]:
    """Return fits to weights as bagging draws them, through `BaggingRegressor`, or of the rows drawn."""
    import numpy as np
    from sklearn.ensemble import BaggingRegressor

    import proxlin as px
    from proxlin.sklearn import CompositeRegressor

    rng = np.random.default_rng(0)
    x = rng.normal(size=(300, 4))
    y = x @ rng.normal(size=4) + rng.standard_t(3, size=300)
    estimator = CompositeRegressor(hidden=8, solver=px.prox_linear(), steps=5)
    if shared:
        ensemble = BaggingRegressor(estimator, ESTIMATORS, random_state=0)
        return lambda: ensemble.fit(x, y)

    def fits() -> Iterable[object]:
        for _ in range(ESTIMATORS):
            rows, counts = np.unique(rng.integers(0, 300, 300), return_counts=True)
            yield estimator.fit(x[rows], y[rows], sample_weight=counts)

    return lambda: list(fits())


if __name__ == "__main__":
    raise SystemExit(main())
