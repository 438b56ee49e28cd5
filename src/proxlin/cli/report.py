"""`proxlin report DIR`: tables, figures and the page again, from stored results."""

import json
from pathlib import Path
from typing import Annotated

import typer

from ..errors import printable
from .options import Debug, Json, Quiet


def report(
    folder: Annotated[
        Path,
        typer.Argument(metavar="DIR", help="A folder that `proxlin reproduce` wrote."),
    ],
    as_json: Json = False,
    quiet: Quiet = False,
    debug: Debug = False,
) -> int:
    """Write tables, figures and report.html again from the stored results; --json prints the
    verdicts on the claims.
    """
    from ..experiments.engine import report
    from ..experiments.engine.store import open_store

    with open_store(folder, create=False) as store:
        records = store.finished()
        page = report.write(folder, records, store.cases())
    if as_json:
        print(
            json.dumps(
                {"report": str(page), "verdicts": report.verdicts(records)}, indent=1
            )
        )
    elif not quiet:
        print(printable(f"Report: {page}"))
    return 0
