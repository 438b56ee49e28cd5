"""Docstrings are plain text; the API pages need Markdown. This griffe extension of mkdocs.yml turns
one into the other.

<u, v>  f*  w_t       ->  the same characters, not a tag or emphasis
name: what it is      ->  an item of a list
>>> example           ->  a code block
"""

import re
from typing import Any

from griffe import Extension, Object

ITEM = re.compile(r"([a-z_]+(?:, [a-z_]+)*): ")
CODE = re.compile(r"(`[^`]*`)")


class PlainText(Extension):
    """The docstring of every object, as Markdown."""

    def on_object(self, *, obj: Object, **_: Any) -> None:
        if obj.docstring is not None:
            obj.docstring.value = markdown(obj.docstring.value)


def markdown(text: str) -> str:
    return "\n\n".join(_block(block) for block in re.split(r"\n\s*\n", text))


def _block(block: str) -> str:
    if block.startswith(">>>"):
        return f"```pycon\n{block}\n```"
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
