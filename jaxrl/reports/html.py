"""Pieces of HTML: what is not marked as such is text, and is escaped."""

import html
import math
from collections.abc import Iterable, Sequence
from typing import Any

from jaxrl.utils import formatting


class Markup(str):
    """Text that is HTML already."""


def text(value: Any) -> Markup:
    """Return a value as HTML: numbers as people read them, all else as it is."""
    if isinstance(value, Markup):
        return value
    return Markup(html.escape(number(value) if is_number(value) else str(value)))


def is_number(value: Any) -> bool:
    """Tell whether a value is a number to be shown as one."""
    return isinstance(value, int | float) and not isinstance(value, bool)


def number(value: float | None) -> str:
    """Write a number as people read it, or that there is none."""
    if value is None:
        return "–"
    return formatting.short(value) if math.isfinite(value) else str(value)


def steps(value: float) -> str:
    """Write a count of steps in few letters."""
    for size, unit in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(value) >= size:
            return f"{value / size:.3g} {unit}"
    return f"{value:.4g}"


def tag(name: str, *children: Any, **attributes: Any) -> Markup:
    """Return an element; `class_` is its class, and None leaves an attribute out."""
    told = "".join(
        f' {key.rstrip("_").replace("_", "-")}="{html.escape(str(value))}"'
        for key, value in attributes.items()
        if value is not None
    )
    return Markup(f"<{name}{told}>{''.join(map(text, children))}</{name}>")


def table(head: Sequence[Any], rows: Iterable[Sequence[Any]], class_: str | None = None) -> Markup:
    """Return a table that scrolls by itself where it is too wide; numbers stand right."""
    lines = [
        tag("tr", *(tag("td", cell, class_="n" if is_number(cell) else None) for cell in row))
        for row in rows
    ]
    top = tag("thead", tag("tr", *(tag("th", title) for title in head))) if any(head) else ""
    return tag("div", tag("table", top, tag("tbody", *lines), class_=class_), class_="scroll")


def section(title: str, *children: Any, note: str = "") -> Markup:
    """Return a part of the page that can be folded; nothing where there is nothing to show."""
    shown = [child for child in children if child]
    if not shown:
        return Markup("")
    remark = tag("small", note) if note else ""
    return tag("details", tag("summary", tag("h2", title), remark), *shown, open="")


def tiles(figures: Iterable[tuple[str, str, str]]) -> Markup:
    """Return figures in large type: (what, how much, remark)."""
    return tag(
        "div",
        *(
            tag("div", tag("span", what), tag("b", much), tag("small", remark), class_="tile")
            for what, much, remark in figures
        ),
        class_="tiles",
    )
