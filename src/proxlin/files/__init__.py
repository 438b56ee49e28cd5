"""Files: written as a whole, read only if they are ordinary, and arrays in archives that run no
code.
"""

from .writing import (
    PLAN,
    Content,
    abandon,
    check_folder,
    check_writable,
    finish,
    uninterrupted,
    write_file,
    write_folder,
)

__all__ = [
    "PLAN",
    "Content",
    "abandon",
    "check_folder",
    "check_writable",
    "finish",
    "uninterrupted",
    "write_file",
    "write_folder",
]
