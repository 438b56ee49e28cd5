"""Where proxlin keeps what it makes: PROXLIN_CACHE, else the platform's cache directory."""

import os
from pathlib import Path

from ..errors import require


def cache_folder() -> Path:
    """Return the directory for what is made or fetched; it need not exist yet."""
    folder = os.environ.get("PROXLIN_CACHE")
    if folder:
        return Path(folder)
    return require("platformdirs", "experiments").user_cache_path(
        "proxlin", appauthor=False
    )
