"""Make what mkdocs can show of a page: formulas as MathML, and code blocks whose options are for the tests.

    $x_i$    $$ F(w) = ... $$     ->  <math>...</math>, drawn without a script, a font or a network
    ```python no-run              ->  ```python

A hook of mkdocs.yml. The extension arithmatex finds the formulas (never those inside of code); a
formula that is no LaTeX ends the build.
"""

import re
from html import unescape
from typing import Any

from math_core import LatexToMathML

FENCE = re.compile(r"^```python (no-run|needs \w+)$", re.MULTILINE)
FORMULA = re.compile(
    r'<(span|div) class="arithmatex">\\[(\[](.*?)\\[)\]]</\1>', re.DOTALL
)
LATEX = LatexToMathML()


def on_page_markdown(markdown: str, **_: Any) -> str:
    """Return a page without the options of code blocks, which mkdocs would take for text."""
    return FENCE.sub("```python", markdown)


def on_page_content(html: str, **_: Any) -> str:
    """Return the page with every formula as MathML; a displayed one scrolls where it is too wide."""
    return FORMULA.sub(_typeset, html)


def _typeset(found: re.Match[str]) -> str:
    displayed = found[1] == "div"
    math = LATEX.convert_with_local_state(
        unescape(found[2]).strip(), displaystyle=displayed
    )
    return f'<div class="formula">{math}</div>' if displayed else math
