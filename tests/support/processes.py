"""Where the repository is, and how tests start Python in a process of its own."""

import os
from pathlib import Path

SUPPORT = Path(__file__).parent
ROOT = SUPPORT.parents[1]


def environment(**more: str) -> dict[str, str]:
    """Return the variables of this process, with the toys and the zoo on the path, and `more`."""
    path = os.pathsep.join(
        [str(SUPPORT), *filter(None, [os.environ.get("PYTHONPATH")])]
    )
    return {**os.environ, "PYTHONPATH": path, **more}
