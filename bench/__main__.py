"""Run the benchmarks: `python -m bench [--only NAME] [--list]`.

A benchmark is a module in this folder with a function `main(argv) -> int`. Each runs in a process of its own, so that
one's JAX settings and memory do not touch the next.
"""

import argparse
import ast
import subprocess
import sys
from pathlib import Path

FOLDER = Path(__file__).parent


def names() -> list[str]:
    """The modules of this folder that define `main`, found without importing them."""
    return sorted(path.stem for path in FOLDER.glob("*.py") if path.stem != "__main__" and _has_main(path))


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m bench", description="Run the benchmarks of proxlin.")
    parser.add_argument("--only", metavar="NAME", help="run this one only")
    parser.add_argument("--list", action="store_true", help="print the names, and run nothing")
    arguments = parser.parse_args(argv)
    there = names()
    if arguments.only is not None and arguments.only not in there:
        print(f"bench: --only {arguments.only}: there is {', '.join(there) or 'no benchmark yet'}.", file=sys.stderr)
        return 2
    if arguments.list or not there:
        print("\n".join(there) or "There is no benchmark yet.")
        return 0
    failed = [name for name in there if arguments.only in (None, name) and _run(name) != 0]
    if failed:
        print(f"Failed: {', '.join(failed)}.", file=sys.stderr)
    return 1 if failed else 0


def _has_main(path: Path) -> bool:
    body = ast.parse(path.read_text(encoding="utf-8")).body
    return any(isinstance(node, ast.FunctionDef) and node.name == "main" for node in body)


def _run(name: str) -> int:
    print(f"== {name}", flush=True)
    call = f"import sys; from bench.{name} import main; sys.exit(main([]))"
    return subprocess.run([sys.executable, "-c", call], cwd=FOLDER.parent, check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
