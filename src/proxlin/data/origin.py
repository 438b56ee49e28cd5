"""Where the data of a study come from: its file, another file, a stand-in, or the study's own
generator.
"""

from dataclasses import dataclass
from typing import Literal

SYNTHETIC = "synthetic"


@dataclass(frozen=True)
class Origin:
    """A data set by its name. `source` says in words where it comes from; `content` is a checksum
    or its like.

    file          the file that the name stands for
    another file  a file that the user gave in its place
    synthetic     made up in its place, because there is no file
    generated     made by the study itself, so that nothing real is missing

    >>> Origin("ijcnn1", "synthetic", "made up", "synthetic").label
    'ijcnn1 (synthetic)'
    """

    name: str
    kind: Literal["file", "another file", "synthetic", "generated"]
    source: str
    content: str

    @property
    def stands_in(self) -> bool:
        """Return whether it takes the place of the data set that it is named after."""
        return self.kind not in ("file", "generated")

    @property
    def label(self) -> str:
        """Return the name for tables and figures, which says so if it is a stand-in."""
        if self.stands_in:
            return f"{self.name} ({self.kind})"
        return self.name


def generated(name: str, source: str) -> Origin:
    """Return the origin of the data of a study that makes its own.

    Parameters
    ----------
    name : a text
        The name of the data.
    source : a text
        Where they come from, in words.

    Returns
    -------
    an `Origin`
        For `study(..., data=(origin,))`.

    See Also
    --------
    experiments.engine.study.study : takes it.

    Examples
    --------
    >>> from proxlin.data.origin import generated
    >>> generated("planes", "drawn by the study").label
    'planes'
    """
    return Origin(name, "generated", source, "generated")
