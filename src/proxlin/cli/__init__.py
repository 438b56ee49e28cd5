"""The command line of proxlin: `main` runs it, and each command has a file of its own."""

from .main import main

__all__ = ["main"]
