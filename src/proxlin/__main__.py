"""`python -m proxlin`: the command `proxlin`, where its folder is not on the path."""

from .cli import main

if __name__ == "__main__":
    raise SystemExit(main())
