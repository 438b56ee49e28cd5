"""The `proxlin` command: exit code 0 done; 2 wrong use or bad input, said in one sentence; 130
interrupted; 1 a bug.

Nothing heavy is imported here, so that `proxlin --version` answers at once; typer is needed from
`app` on.
"""

import sys
from collections.abc import Sequence

from .. import __version__
from ..errors import UserError, printable, require


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line and return the exit code; without arguments those of the process, which
    signals then end.
    """
    if arguments is not None:
        return _run(list(arguments))
    if sys.argv[1:] == ["--version"]:
        return _run(["--version"])  # at once
    from .interrupts import leave_at_signals, too_late

    leave_at_signals()
    code = _run(sys.argv[1:])
    too_late()
    return code


def _run(arguments: list[str]) -> int:
    if arguments == ["--version"]:
        print(f"proxlin {__version__}")
        return 0
    try:
        require("typer", "cli")
        from .app import run

        return run(arguments)
    except KeyboardInterrupt:
        return 130
    except Exception as error:
        if "--debug" in arguments:
            import traceback

            print(printable(traceback.format_exc(), keep="\n"), file=sys.stderr, end="")
        if isinstance(error, UserError):
            print(printable(f"proxlin: {error}"), file=sys.stderr)
            return 2
        said = f"proxlin: internal error, {type(error).__name__}: {error}; --debug shows where."
        print(printable(said), file=sys.stderr)
        return 1


if __name__ == "__main__":
    sys.exit(main())
