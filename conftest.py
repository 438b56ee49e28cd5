"""How every test and docstring example runs: JAX on the CPU in x64, with nothing promoted silently,
and types checked.

This file stands at the root because the examples in src/ need it too.
"""

import os
import shutil
import tempfile
from itertools import count
from pathlib import Path
from typing import Any

os.environ.setdefault("JAX_PLATFORMS", "cpu")
# The tests compile much and run little, so LLVM optimises nothing, and the older emitters make its
# work smaller: four times as quick. bench/ measures what users get.
os.environ["XLA_FLAGS"] = (
    "--xla_backend_optimization_level=0 --xla_llvm_disable_expensive_passes=true "
    "--xla_cpu_use_fusion_emitters=false " + os.environ.get("XLA_FLAGS", "")
)
# Two workers on two cores have one compute thread each. `make matrix` asks for two as well.
os.environ.setdefault("PROXLIN_TEST_THREADS", "1")
if "PYTEST_XDIST_WORKER" in os.environ:
    if os.environ["PROXLIN_TEST_THREADS"] == "1":
        os.environ["XLA_FLAGS"] += " --xla_cpu_multi_thread_eigen=false"
    for pool in (
        "NPROC",
        "OMP_NUM_THREADS",
        "OPENBLAS_NUM_THREADS",
        "NUMBA_NUM_THREADS",
    ):
        os.environ.setdefault(pool, os.environ["PROXLIN_TEST_THREADS"])

# One folder of compiled programs for the run: its workers share them, and the processes that tests
# start read them.
if "PROXLIN_TEST_PROGRAMS" not in os.environ:
    os.environ["PROXLIN_TEST_PROGRAMS"] = tempfile.mkdtemp(prefix="proxlin-programs-")
    os.environ["PROXLIN_TEST_OWNER"] = str(os.getpid())
os.environ["JAX_COMPILATION_CACHE_DIR"] = os.environ["PROXLIN_TEST_PROGRAMS"]
os.environ["JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES"] = "-1"

import jax
from jax._src.lru_cache import LRUCache
from jaxtyping import install_import_hook

import called

jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.05)
# A process that a test starts may be killed by it, so it writes no programs.
os.environ["JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS"] = "1000000"


def _put(self: LRUCache, key: str, value: bytes) -> None:
    """Add a program by a rename: as JAX writes it, another worker could read the half of it."""
    path = Path(os.environ["PROXLIN_TEST_PROGRAMS"]) / f"{key}-cache"
    part = path.with_name(f"{key}.{os.getpid()}.part")
    part.write_bytes(value)
    part.rename(path)


LRUCache.put = _put

jax.config.update("jax_enable_x64", True)
jax.config.update("jax_numpy_dtype_promotion", "strict")
jax.config.update("jax_numpy_rank_promotion", "raise")

# Every annotation of the package is checked at run time, in shape and type. Must come before its
# first import.
called.install()
install_import_hook("proxlin", "beartype.beartype")

# A compiled program takes several memory maps, of which a process has 65,530; a worker once
# crashed, maybe of it.
MAPS, FILES, TESTS = 20_000, Path("/proc/self/maps"), count()


def pytest_configure(config: Any) -> None:
    config.pluginmanager.register(called)


def pytest_runtest_teardown() -> None:
    if (
        next(TESTS) % 20 == 0
        and FILES.exists()
        and FILES.read_bytes().count(b"\n") > MAPS
    ):
        jax.clear_caches()


def pytest_unconfigure() -> None:
    if os.environ["PROXLIN_TEST_OWNER"] == str(os.getpid()):
        shutil.rmtree(os.environ["PROXLIN_TEST_PROGRAMS"], ignore_errors=True)
