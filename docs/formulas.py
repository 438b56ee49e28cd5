"""Typeset the formulas of the pages as MathML, when the site is built: browsers draw it without a
script, a font or a network.

    $x_i$    $$ F(w) = ... $$        LaTeX in a page, which forges show too
    <math>...</math>                 in the site

A hook of mkdocs.yml. The extension arithmatex finds the formulas (never those inside of code); a
formula that is no LaTeX ends the build.
"""

import re
from html import unescape
from typing import Any

from math_core import LatexToMathML

FOUND = re.compile(
    r'<(span|div) class="arithmatex">\\[(\[](.*?)\\[)\]]</\1>', re.DOTALL
)
LATEX = LatexToMathML()


def on_page_content(html: str, **_: Any) -> str:
    """Return the page with every formula as MathML; a displayed one scrolls where it is too wide."""
    return FOUND.sub(_typeset, html)


def _typeset(found: re.Match[str]) -> str:
    displayed = found[1] == "div"
    math = LATEX.convert_with_local_state(
        unescape(found[2]).strip(), displaystyle=displayed
    )
    return f'<div class="formula">{math}</div>' if displayed else math
