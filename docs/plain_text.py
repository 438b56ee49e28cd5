"""Docstrings are plain text; the API pages need Markdown. This griffe extension of mkdocs.yml turns
one into the other.

<u, v>  f*  w_t       ->  the same characters, not a tag or emphasis
name: what it is      ->  an item of a list
name : a type         ->  a row of a table, which mkdocstrings makes
See Also              ->  links to other names
>>> example           ->  a code block, which mkdocstrings makes

Classes of equinox get their `__init__` at run time, so their signature is taken from there.
"""

import inspect
import re
from importlib import import_module
from pathlib import Path
from typing import Any

from griffe import Class, Extension, Function, Object, Parameter, ParameterKind
from griffe import Parameters as Signature

ITEM = re.compile(r"([a-z_]+(?:, [a-z_]+)*): ")
CODE = re.compile(r"(`[^`]*`)")
HEADING = re.compile(r"([A-Z][A-Za-z ]+)\n-+\n")
ADDRESS = re.compile(r"^::: (\S+)$", re.MULTILINE)


class PlainText(Extension):
    """The docstring of every object, as Markdown."""

    def __init__(self) -> None:
        self.addresses = shown_on(Path(__file__).parent / "api")

    def on_object(self, *, obj: Object, **_: Any) -> None:
        if obj.docstring is None:
            return
        if isinstance(obj, Class) and "Parameters\n---" in obj.docstring.value:
            add_signature(obj)
        obj.docstring.value = markdown(obj.docstring.value, self.addresses)


def add_signature(obj: Class) -> None:
    """Give a class whose `__init__` nobody wrote the one that it has at run time."""
    written = "__init__" in obj.members or "dataclass" in obj.labels
    if written or any("dataclass" in str(each.value) for each in obj.decorators):
        return
    made = getattr(import_module(obj.module.path), obj.name)
    parameters = [Parameter("self", kind=ParameterKind.positional_or_keyword)]
    for each in inspect.signature(made).parameters.values():
        default = None if each.default is each.empty else repr(each.default)
        kind = ParameterKind.positional_or_keyword
        parameters.append(Parameter(each.name, kind=kind, default=default))
    function = Function("__init__", parameters=Signature(*parameters))
    obj.set_member("__init__", function)


def shown_on(folder: Path) -> dict[str, str]:
    """Return the address of every name on the pages, by what a See Also calls it: the name itself,
    or the name with its rooms.
    """
    found = {}
    for page in sorted(folder.glob("*.md")):
        for address in ADDRESS.findall(page.read_text()):
            rooms = address.removeprefix("proxlin.")
            found[rooms] = address
            found.setdefault(rooms.rpartition(".")[2], address)
    return found


def markdown(text: str, addresses: dict[str, str]) -> str:
    """Return a docstring, its sections as numpydoc has them."""
    section = ""
    blocks = []
    for block in re.split(r"\n\s*\n", text):
        heading = HEADING.match(block)
        if heading:
            section = heading[1]
            block = block[heading.end() :]
        if section == "See Also":
            block = "\n".join(_near(line, addresses) for line in block.splitlines())
        elif section in ("Parameters", "Returns", "Raises"):
            block = "\n".join(map(_row, block.splitlines()))
        elif section != "Examples":
            block = _block(block)
        blocks.append(heading[0] + block if heading else block)
    return "\n\n".join(blocks)


def _block(block: str) -> str:
    if block.startswith("    "):  # a formula
        return block
    lines = block.splitlines()
    if not ITEM.match(lines[0]):
        return _escaped(block)
    return "\n".join(_item(line) for line in lines)


def _item(line: str) -> str:
    found = ITEM.match(line)
    return (
        f"- `{found[1]}`: {_escaped(line[found.end() :])}"
        if found
        else f"    {_escaped(line)}"
    )


def _row(line: str) -> str:
    """Return a name and its type, which are code in the table, or a line of what they are."""
    if line.startswith(" "):
        return "    " + _escaped(line.lstrip())
    return line.replace("`", "")


def _near(line: str, addresses: dict[str, str]) -> str:
    """Return a line of See Also as an item of a list, its names as links."""
    names, _, text = line.partition(" : ")
    links = [f"[`{name}`][{addresses[name]}]" for name in names.split(", ")]
    return f"- {', '.join(links)}: {_escaped(text)}"


def _escaped(text: str) -> str:
    """Every second part is code in backticks, and stays."""
    parts = CODE.split(text)
    plain = [
        re.sub(r"([*_\\]|^[+-](?= ))", r"\\\1", part).replace("<", "&lt;")
        for part in parts[::2]
    ]
    return "".join(
        x for pair in zip(plain, [*parts[1::2], ""], strict=True) for x in pair
    )
