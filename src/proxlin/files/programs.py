"""Compiled programs on the disk: JAX's persistent cache, in the cache folder of proxlin.

The command line, the estimators, `px.fit` and `px.curve_fit` switch it on, so that the second process does not
compile what the first one did. It stays off where the user has a cache of JAX's already, or PROXLIN_PROGRAMS is 0.
"""

import os
import tempfile
import warnings
from contextlib import suppress
from pathlib import Path
from typing import Any

import jax

from ..errors import MissingExtra
from .folders import cache_folder

# of compiling, above which a program is kept: reading one takes about half as long
SECONDS = 0.02
MOST = (
    2**29
)  # bytes of programs: when there are more, the oldest go until half of it is left


def keep_programs() -> None:
    """Let JAX keep the programs that it compiles from now on, for other processes."""
    if os.environ.get("PROXLIN_PROGRAMS") == "0":
        return
    if jax.config.jax_compilation_cache_dir is not None:  # pyright: ignore[reportAttributeAccessIssue]
        return
    try:
        folder = cache_folder() / "programs"
        folder.mkdir(parents=True, exist_ok=True)
        _drop_oldest(folder)
    except (
        OSError,
        MissingExtra,
    ):  # a home that cannot be written to, or no platformdirs
        return
    _write_whole_files()
    # An entry that cannot be read is compiled again; nobody has to know.
    warnings.filterwarnings("ignore", message="Error (reading|writing) persistent")
    jax.config.update("jax_compilation_cache_dir", str(folder))
    jax.config.update("jax_persistent_cache_min_compile_time_secs", SECONDS)
    jax.config.update("jax_persistent_cache_min_entry_size_bytes", 0)
    # What was compiled before now has told JAX that there is no cache.
    from jax.experimental.compilation_cache import compilation_cache

    compilation_cache.reset_cache()


def _drop_oldest(folder: Path) -> None:
    """Keep the folder to its size, by what was written longest ago."""
    entries = []
    for path in folder.iterdir():
        try:
            stat = path.stat()
        except OSError:  # another process dropped it
            continue
        entries.append((stat.st_mtime, stat.st_size, path))
    total = sum(size for _, size, _ in entries)
    if total <= MOST:
        return
    for _, size, path in sorted(entries):
        path.unlink(missing_ok=True)
        total -= size
        if total <= MOST // 2:
            return


def _write_whole_files() -> None:
    """Let JAX write an entry by a rename: a process that is killed would else leave a half of it,
    which JAX never replaces.
    """
    try:
        from jax._src.lru_cache import LRUCache
    except ImportError:  # another release of JAX: entries are then written as it does
        return

    def put(self: Any, key: str, value: bytes) -> None:
        folder = Path(str(self.path))
        number, name = tempfile.mkstemp(prefix=".part-", dir=folder)
        try:
            with open(number, "wb") as file:
                file.write(value)
            os.replace(name, folder / f"{key}-cache")
        except BaseException:  # such as a full disk, which is not to fill up with parts
            with suppress(OSError):
                os.unlink(name)
            raise

    LRUCache.put = put
