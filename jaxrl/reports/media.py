"""Videos, images and tables of clips in a run folder."""

import base64
import html
from pathlib import Path
from typing import Any

from jaxrl.reports import html as markup
from jaxrl.reports.html import Markup, tag

_TYPES = {".gif": "image/gif", ".png": "image/png", ".mp4": "video/mp4", ".html": "text/html"}
# The page draws these itself, or is one of them.
_EXCLUDED = ("plots/learning_curve.png", "plots/phases.png", "report.html")
_MAX_BYTES, _MAX_TOTAL_BYTES = 12_000_000, 30_000_000


def files(folder: Path) -> list[Path]:
    """Return the videos and images of a run, the newest first."""
    folders = (folder, folder / "videos", folder / "plots")
    present = [file for place in folders for file in place.glob("*") if file.suffix in _TYPES]
    excluded = {folder / name for name in _EXCLUDED}
    return sorted(set(present) - excluded, key=lambda file: (-file.stat().st_mtime, file.name))


def embedded(folder: Path, most: int | None = None) -> Markup:
    """Return the videos and images embedded in the page; large ones as links."""
    room, parts = _MAX_TOTAL_BYTES, []
    for file in files(folder)[:most]:
        size = file.stat().st_size
        fits = size <= min(_MAX_BYTES, room)
        room -= size if fits else 0
        parts.append(_embed(file, folder) if fits else _link(file, folder))
    return tag("div", *parts, class_="media") if parts else Markup("")


def _embed(file: Path, folder: Path) -> Markup:
    name = str(file.relative_to(folder))
    if file.suffix == ".html":  # in a sandbox: it may draw, not access the report
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
    return tag("p", "too large to embed: ", tag("a", name, href=name), f", {size}")


def clip_tables(folder: Path) -> list[Markup]:
    """Return the tables of motion clips of all evaluations."""
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
