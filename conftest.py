"""How every test and docstring example runs: JAX on the CPU in x64, with nothing promoted silently, and types checked.

This file stands at the root because the examples in src/ need it too.
"""

import os
from itertools import count
from pathlib import Path

os.environ.setdefault("JAX_PLATFORMS", "cpu")
# The tests compile much and run little: what LLVM does last is left out. bench/ measures what users get.
os.environ["XLA_FLAGS"] = (
    "--xla_backend_optimization_level=0 --xla_llvm_disable_expensive_passes=true " + os.environ.get("XLA_FLAGS", "")
)
if "PYTEST_XDIST_WORKER" in os.environ:  # two workers on two cores: one compute thread each
    os.environ["XLA_FLAGS"] += " --xla_cpu_multi_thread_eigen=false"
    for pool in ("NPROC", "OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "NUMBA_NUM_THREADS"):
        os.environ.setdefault(pool, "1")

import jax
from jaxtyping import install_import_hook

jax.config.update("jax_enable_x64", True)
jax.config.update("jax_numpy_dtype_promotion", "strict")
jax.config.update("jax_numpy_rank_promotion", "raise")

# Every annotation of the package is checked at run time, in shape and type. Must come before its first import.
install_import_hook("proxlin", "beartype.beartype")

# A compiled program takes several memory maps, of which a process has 65,530; a worker once crashed, maybe of it.
MAPS, FILES, TESTS = 20_000, Path("/proc/self/maps"), count()


def pytest_runtest_teardown() -> None:
    if next(TESTS) % 20 == 0 and FILES.exists() and FILES.read_bytes().count(b"\n") > MAPS:
        jax.clear_caches()
