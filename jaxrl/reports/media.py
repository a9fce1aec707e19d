"""What lies in a run folder to be looked at: films, pictures, tables of clips."""

import base64
import html
from pathlib import Path
from typing import Any

from jaxrl.reports import html as markup
from jaxrl.reports.html import Markup, tag

_TYPES = {".gif": "image/gif", ".png": "image/png", ".mp4": "video/mp4", ".html": "text/html"}
# The page draws these itself, and is not part of itself.
_DRAWN_ANYWAY = ("plots/learning_curve.png", "plots/phases.png", "report.html")
_EACH, _ALL = 12_000_000, 30_000_000  # bytes


def files(folder: Path) -> list[Path]:
    """Return films and pictures of a run, the newest first."""
    places = (folder, folder / "videos", folder / "plots")
    found = [file for place in places for file in place.glob("*") if file.suffix in _TYPES]
    drawn = {folder / name for name in _DRAWN_ANYWAY}
    return sorted(set(found) - drawn, key=lambda file: (-file.stat().st_mtime, file.name))


def films(folder: Path, most: int | None = None) -> Markup:
    """Return all films and pictures as parts of the page; too large ones as links."""
    room, shown = _ALL, []
    for file in files(folder)[:most]:
        size = file.stat().st_size
        fits = size <= min(_EACH, room)
        room -= size if fits else 0
        shown.append(_shown(file, folder) if fits else _link(file, folder))
    return tag("div", *shown, class_="films") if shown else Markup("")


def _shown(file: Path, folder: Path) -> Markup:
    name = str(file.relative_to(folder))
    if file.suffix == ".html":  # a page of its own, which may draw but not reach ours
        page = html.escape(file.read_text(encoding="utf-8", errors="replace"))
        body = Markup(f'<iframe sandbox="allow-scripts" loading="lazy" srcdoc="{page}"></iframe>')
        return tag("figure", body, tag("small", name), class_="wide")
    data = base64.b64encode(file.read_bytes()).decode()
    source = f"data:{_TYPES[file.suffix]};base64,{data}"
    if file.suffix == ".mp4":
        body = Markup(f'<video controls loop muted playsinline src="{source}"></video>')
    else:
        body = Markup(f'<img alt="{html.escape(name)}" src="{source}">')
    return tag("figure", body, tag("small", name))


def _link(file: Path, folder: Path) -> Markup:
    name = str(file.relative_to(folder))
    size = f"{file.stat().st_size / 1e6:.0f} MB"
    return tag("p", "too large to be put in here: ", tag("a", name, href=name), f", {size}")


def clip_tables(folder: Path) -> list[Markup]:
    """Return the tables of motion clips that evaluations wrote."""
    return [
        Markup(tag("h3", file.name) + clips)
        for file in sorted(folder.glob("*.tsv"))
        if (clips := _clips(file))
    ]


def _clips(file: Path) -> Markup:
    lines = file.read_text(encoding="utf-8", errors="replace").splitlines()
    head, *rows = [line.split("\t") for line in lines if line] or [[]]
    marks = {i for i, name in enumerate(head) if name.endswith("success")}
    cells = [[_cell(text, i in marks) for i, text in enumerate(row)] for row in rows]
    return markup.table(head, cells, "figures") if cells else Markup("")


def _cell(text: str, is_mark: bool) -> Any:
    if is_mark and text in ("0", "1"):
        return tag("span", *("✓" if text == "1" else "✗"), class_="good" if text == "1" else "bad")
    try:
        return float(text)
    except ValueError:
        return text
