"""Figures as SVG: what Matplotlib draws and nothing else, so that a figure from elsewhere can
neither run nor fetch.

    inline(svg, prefix)     the figure as an element of a page, written anew from the parts that are allowed

An SVG may hold scripts, links, styles and pages of HTML. Here an element, an attribute or a value
that is not on the lists below is an error, and what Matplotlib draws has none of them.
"""

import re
from html import escape
from xml.etree import ElementTree

SVG = "{http://www.w3.org/2000/svg}"
HREF = "{http://www.w3.org/1999/xlink}href"
METADATA = ("rdf:", "cc:", "dc:")
NAMESPACES = {
    "http://www.w3.org/1999/02/22-rdf-syntax-ns#": "rdf:",
    "http://creativecommons.org/ns#": "cc:",
    "http://purl.org/dc/elements/1.1/": "dc:",
}
START = (
    '<?xml version="1.0" encoding="utf-8" standalone="no"?>\n<!DOCTYPE svg PUBLIC "-//W3C//DTD SVG 1.1//EN"\n'
    '  "http://www.w3.org/Graphics/SVG/1.1/DTD/svg11.dtd">\n'
)
STYLE = "*{stroke-linejoin: round; stroke-linecap: butt}"
ELEMENTS = {
    *(
        "svg",
        "metadata",
        "defs",
        "style",
        "g",
        "path",
        "use",
        "clipPath",
        "rect",
        "text",
        "tspan",
        "image",
        "pattern",
    ),
    *("linearGradient", "stop", "filter", "feComposite", "feColorMatrix"),
}
PLAIN = re.compile(r"[\w\s.,#%+-]*")
REFERENCE = re.compile(r"url\(#[\w-]+\)")
ATTRIBUTES = {
    "id": re.compile(r"[\w.-]+"),
    "transform": re.compile(
        r"(\s*(translate|scale|rotate|matrix|skewX|skewY)\([\d\s.,e+-]*\))*\s*"
    ),
    "clip-path": REFERENCE,
    "filter": REFERENCE,
    "fill": re.compile(f"{PLAIN.pattern}|{REFERENCE.pattern}"),
    "type": re.compile(r"text/css|matrix"),
    **dict.fromkeys(
        (
            "d",
            "x",
            "y",
            "x1",
            "y1",
            "x2",
            "y2",
            "width",
            "height",
            "viewBox",
            "version",
            "offset",
        ),
        PLAIN,
    ),
    **dict.fromkeys(
        (
            "patternUnits",
            "gradientUnits",
            "preserveAspectRatio",
            "shape-rendering",
            "opacity",
        ),
        PLAIN,
    ),
    **dict.fromkeys(
        (
            "fill-opacity",
            "stroke",
            "stroke-width",
            "in",
            "in2",
            "operator",
            "k2",
            "k3",
            "values",
        ),
        PLAIN,
    ),
}
PROPERTIES = {
    *(
        "fill",
        "fill-opacity",
        "opacity",
        "stroke",
        "stroke-opacity",
        "stroke-width",
        "stroke-linejoin",
    ),
    *(
        "stroke-linecap",
        "stroke-dasharray",
        "stroke-dashoffset",
        "stop-color",
        "stop-opacity",
        "image-rendering",
    ),
    *(
        "font",
        "font-family",
        "font-size",
        "font-style",
        "font-weight",
        "font-stretch",
        "font-variant",
        "text-anchor",
    ),
}
PROPERTY = re.compile(rf"\s*([\w-]+)\s*:\s*([\w\s.,#%+'\"-]*|{REFERENCE.pattern})\s*")
TARGETS = {
    "use": re.compile(r"#[\w.-]+"),
    "image": re.compile(r"data:image/png;base64,[A-Za-z0-9+/=\s]*"),
}
DEEPEST = 100  # elements inside each other; a browser's own limit is 512


class Foreign(ValueError):
    """A figure has something that Matplotlib does not draw; what it is, in a few words."""


def inline(svg: str, prefix: str) -> str:
    """Return the figure as an element of a page, or raise Foreign; the prefix keeps the ids of
    figures apart.
    """
    text = svg.removeprefix(START)
    if not text.startswith("<svg"):
        raise Foreign("another start")
    writer = _Writer(prefix)
    parser = ElementTree.XMLParser(target=writer)
    try:
        parser.feed(text)
        parser.close()
    except ElementTree.ParseError as error:
        raise Foreign(f"broken XML, {error}") from error
    return "".join(writer.parts)


class _Writer:
    """Writes the elements again as the parser names them, in one pass: their depth is no depth of
    calls.
    """

    def __init__(self, prefix: str):
        self.prefix = prefix
        self.parts: list[str] = []
        self.open: list[str] = []
        # the ids of paths, which alone may be used again: they cannot hold each other
        self.paths: set[str] = set()
        self.others: set[str] = set()
        self.used: set[str] = set()

    def start(self, tag: str, attributes: dict[str, str]) -> None:
        name = _local(tag)
        if "metadata" not in self.open and name not in ELEMENTS:
            raise Foreign(f"the element {name[:40]!r}")
        if (name == "svg") != (not self.open) or len(self.open) > DEEPEST:
            raise Foreign("elements inside each other as in no figure")
        self.open.append(name)
        if "metadata" in self.open:
            if not name.startswith((*METADATA, "metadata")):
                raise Foreign(f"the element {name[:40]!r} among its metadata")
            return
        found = "".join(
            self._attribute(name, key, value) for key, value in attributes.items()
        )
        self.parts.append(f"<{name}{found}>")

    def end(self, tag: str) -> None:
        name = self.open.pop()
        if "metadata" not in (*self.open, name):
            self.parts.append(f"</{name}>")

    def data(self, text: str) -> None:
        if "metadata" in self.open or not text.strip():
            return
        if self.open[-1] == "style" and text != STYLE:
            raise Foreign("a style of its own")
        if self.open[-1] not in ("text", "tspan", "style"):
            raise Foreign("text outside of a text")
        self.parts.append(escape(text, quote=False))

    def pi(self, target: str, text: str | None = None) -> None:
        raise Foreign(f"the instruction {target[:40]!r}")

    def close(self) -> None:
        if self.used - self.paths or self.used & self.others:
            raise Foreign("a use of what is no path")

    def _attribute(self, element: str, name: str, value: str) -> str:
        """Return an attribute as text, or raise Foreign. The box on the page keeps its shape by
        viewBox alone.
        """
        if element == "svg" and name in ("width", "height", "version"):
            return ""
        if name == HREF and element in TARGETS and TARGETS[element].fullmatch(value):
            if element == "image":
                return f' xlink:href="{escape(value)}"'
            self.used.add(value[1:])
            return f' xlink:href="#{self.prefix}-{value[1:]}"'
        if name == "style":
            good = all(_property(each) for each in value.split(";"))
        else:
            good = name in ATTRIBUTES and ATTRIBUTES[name].fullmatch(value) is not None
        # Patterns of patterns and clips of clips could be drawn a billion times.
        nested = "url(" in value and {"pattern", "clipPath"} & set(self.open)
        if not good or nested:
            raise Foreign(f"the attribute {_local(name)[:40]!r} of {element!r}")
        if name == "id":
            (self.paths if element == "path" else self.others).add(value)
            value = f"{self.prefix}-{value}"
        return f' {name}="{escape(value).replace("url(#", f"url(#{self.prefix}-")}"'


def _local(tag: str) -> str:
    """Return the name of an element as Matplotlib writes it, "g" or "dc:title"; another namespace
    stays in front.
    """
    if tag.startswith(SVG):
        return tag.removeprefix(SVG)
    for address, short in NAMESPACES.items():
        if tag.startswith(f"{{{address}}}"):
            return short + tag.removeprefix(f"{{{address}}}")
    return f"?{tag}"


def _property(text: str) -> bool:
    match = PROPERTY.fullmatch(text)
    return not text.strip() or (match is not None and match[1] in PROPERTIES)
