"""Elements of HTML: everything but `Markup` is text, and is escaped."""

import html
import math
from collections.abc import Iterable, Sequence
from typing import Any

from jaxrl.utils import formatting


class Markup(str):
    """Text that is HTML already."""


def text(value: Any) -> Markup:
    """Return a value as HTML: numbers formatted, text escaped."""
    if isinstance(value, Markup):
        return value
    return Markup(html.escape(number(value) if is_number(value) else str(value)))


def is_number(value: Any) -> bool:
    """Return whether a value is a number, and not a bool."""
    return isinstance(value, int | float) and not isinstance(value, bool)


def number(value: float | None) -> str:
    """Return a number as text; a dash for None."""
    if value is None:
        return "–"
    return formatting.short(value) if math.isfinite(value) else str(value)


def steps(value: float) -> str:
    """Return a number of steps as short text: 1.5 M."""
    for size, unit in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(value) >= size:
            return f"{value / size:.3g} {unit}"
    return f"{value:.4g}"


def tag(name: str, *children: Any, **attributes: Any) -> Markup:
    """Return an element; `class_` is its class, and None leaves an attribute out."""
    attributes_text = "".join(
        f' {key.rstrip("_").replace("_", "-")}="{html.escape(str(value))}"'
        for key, value in attributes.items()
        if value is not None
    )
    return Markup(f"<{name}{attributes_text}>{''.join(map(text, children))}</{name}>")


def table(head: Sequence[Any], rows: Iterable[Sequence[Any]], class_: str | None = None) -> Markup:
    """Return a table that scrolls if it is too wide, with numbers aligned right."""
    lines = [
        tag("tr", *(tag("td", cell, class_="n" if is_number(cell) else None) for cell in row))
        for row in rows
    ]
    top = tag("thead", tag("tr", *(tag("th", title) for title in head))) if any(head) else ""
    return tag("div", tag("table", top, tag("tbody", *lines), class_=class_), class_="scroll")


def section(title: str, *children: Any, note: str = "") -> Markup:
    """Return a section that can be folded; an empty one is left out."""
    parts = [child for child in children if child]
    if not parts:
        return Markup("")
    remark = tag("small", note) if note else ""
    return tag("details", tag("summary", tag("h2", title), remark), *parts, open="")


def tiles(values: Iterable[tuple[str, str, str]]) -> Markup:
    """Return values in large type, each as (name, value, remark)."""
    return tag(
        "div",
        *(
            tag("div", tag("span", name), tag("b", value), tag("small", remark), class_="tile")
            for name, value, remark in values
        ),
        class_="tiles",
    )
