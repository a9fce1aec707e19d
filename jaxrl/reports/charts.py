"""Line charts as HTML around an SVG that stretches: text keeps its size on every screen."""

import json
import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from jaxrl.reports import html
from jaxrl.reports.html import Markup, tag

_MAX_PARTS = 240  # of a curve, each drawn by its lowest and highest point
_LEAST_RANGE = 0.05  # of an axis, as a fraction of its largest value
_DECADES = 3.0  # range from which on the scale is logarithmic


class Line(NamedTuple):
    """A curve, optionally with a band around it."""

    label: str
    x: np.ndarray
    y: np.ndarray
    color: int = 0
    low: np.ndarray | None = None
    high: np.ndarray | None = None
    faint: bool = False


class Span(NamedTuple):
    """A marked range of the x-axis."""

    label: str
    start: float
    end: float


class _Axis(NamedTuple):
    low: float
    high: float
    log: bool = False

    def place(self, values: np.ndarray) -> np.ndarray:
        """Return values as percentages of the axis from low to high."""
        low, high = self.low, self.high
        if self.log:
            low, high = math.log10(low), math.log10(high)
            values = np.log10(np.where(values > 0, values, np.nan))
        return 100 * (values - low) / (high - low)


def ticks(low: float, high: float, most: int = 5) -> list[float]:
    """Return round numbers from low to high: steps of 1, 2 or 5 times a power of ten."""
    rough = (high - low) / most
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(s * power for s in (1, 2, 5, 10) if s * power >= rough * (1 - 1e-9))
    first, last = math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9)
    return [float(f"{i * step:.10g}") for i in range(first, last + 1)]


def decades(low: float, high: float, most: int = 5) -> list[float]:
    """Return powers of ten from low to high; with their doubles and fivefolds if they are few."""
    first, last = math.floor(math.log10(low)), math.ceil(math.log10(high))
    step = math.ceil((last - first) / most)
    parts = (1, 2, 5) if last - first <= 2 else (1,)
    every = [part * 10.0**i for i in range(first, last + 1, step) for part in parts]
    return [value for value in every if low <= value <= high]


def downsample(line: Line, most: int = _MAX_PARTS) -> Line:
    """Return a long curve with fewer points: the lowest and the highest of each part."""
    if len(line.x) <= 2 * most:
        return line
    indices = [0, len(line.x) - 1]
    for part in np.array_split(np.arange(len(line.x)), most):
        finite = part[np.isfinite(line.y[part])]
        indices += [finite[line.y[finite].argmin()], finite[line.y[finite].argmax()]] * bool(
            len(finite)
        )
        indices += part[~np.isfinite(line.y[part])][:1].tolist()  # a gap stays one
    chosen = np.unique(indices)
    cut = [None if column is None else column[chosen] for column in (line.low, line.high)]
    return line._replace(x=line.x[chosen], y=line.y[chosen], low=cut[0], high=cut[1])


def chart(
    title: str,
    lines: Sequence[Line],
    *,
    spans: Sequence[Span] = (),
    log: bool | None = None,
    class_: str = "",
    full_name: str | None = None,
) -> Markup:
    """Return a chart whose values a pointer can read; log=None chooses the scale by the range."""
    lines = [downsample(line) for line in lines]
    x, y = _axes(lines, log)
    head = tag("figcaption", tag("b", title), tag("small", "log" if y.log else ""), *_keys(lines))
    drawn = "".join([*_spans(spans, x), *_grid(y), *(_draw(line, x, y) for line in lines)])
    svg = Markup(
        f'<svg viewBox="0 0 100 100" preserveAspectRatio="none" aria-hidden="true">{drawn}</svg>'
    )
    plot = tag("div", svg, *_marks(spans, x), *_labels(x, y), tag("i"), class_="plot")
    data = json.dumps([_pointer_data(line, x) for line in lines], separators=(",", ":"))
    return tag("figure", head, plot, class_=f"chart {class_}", title=full_name, data_lines=data)


def _axes(lines: Sequence[Line], log: bool | None) -> tuple[_Axis, _Axis]:
    every = [c for line in lines for c in (line.y, line.low, line.high) if c is not None]
    values = np.concatenate([np.zeros(0), *every])
    values = values[np.isfinite(values)]
    across = np.concatenate([np.zeros(0), *(line.x for line in lines)])
    low, high = (values.min(), values.max()) if len(values) else (0.0, 1.0)
    if log is None:
        log = bool(low > 0 and high / low > 10**_DECADES)
    if log and low > 0:
        return _across(across), _Axis(low / 1.2, high * 1.2, log=True)
    low, high = widened(float(low), float(high))
    room = 0.06 * (high - low)
    return _across(across), _Axis(low - room, high + room)


def widened(low: float, high: float) -> tuple[float, float]:
    """Return a range that is not narrow beside its values, which would show nothing but noise."""
    missing = _LEAST_RANGE * max(abs(low), abs(high)) - (high - low)
    if low == high == 0:
        missing = 1.0
    return low - max(missing, 0) / 2, high + max(missing, 0) / 2


def _across(values: np.ndarray) -> _Axis:
    """Return an axis from 0, unless the curves are far from it."""
    low, high = (float(values.min()), float(values.max())) if len(values) else (0.0, 1.0)
    low = 0.0 if low <= 0.5 * high or low == high else low
    return _Axis(low, high if high > low else low + 1.0)


def _keys(lines: Sequence[Line]) -> list[Markup]:
    """Return a legend with each curve's last value, or the one under the pointer."""
    keys = [tag("span", class_="at")]
    for line in lines:
        finite = line.y[np.isfinite(line.y)]
        last = tag("output", html.number(float(finite[-1])) if len(finite) else "–")
        faint = " hidden" if line.faint else ""
        keys.append(tag("span", line.label, " ", last, class_=f"key c{line.color}{faint}"))
    return keys


def _grid(y: _Axis) -> list[str]:
    return [f'<path class="grid" d="M0 {100 - p:.2f}H100"/>' for p, _ in _places(y)]


def _places(axis: _Axis) -> list[tuple[float, float]]:
    """Return positions of ticks, in percent, and their values."""
    values = decades(axis.low, axis.high) if axis.log else ticks(axis.low, axis.high)
    return list(zip(axis.place(np.array(values)).tolist(), values, strict=True))


def _labels(x: _Axis, y: _Axis) -> list[Markup]:
    up = [tag("span", _tick(v), class_="y", style=f"bottom:{p:.2f}%") for p, v in _places(y)]
    along = [tag("span", _tick(v), class_="x", style=f"left:{p:.2f}%") for p, v in _places(x)]
    return up + along


def _tick(value: float) -> str:
    """Return the value of a tick, which has few digits, as text."""
    return html.steps(value) if abs(value) >= 1e4 else f"{value:.6g}"


def _spans(spans: Sequence[Span], x: _Axis) -> list[str]:
    edges = x.place(np.array([(span.start, span.end) for span in spans]).reshape(-1, 2))
    return [
        f'<rect class="span s{i}" x="{a:.2f}" width="{b - a:.2f}" height="100"/>'
        for i, (a, b) in enumerate(edges)
    ]


def _marks(spans: Sequence[Span], x: _Axis) -> list[Markup]:
    centers = x.place(np.array([(span.start + span.end) / 2 for span in spans]))
    return [
        tag("span", span.label, class_="mark", style=f"left:{place:.2f}%")
        for span, place in zip(spans, centers, strict=True)
    ]


def _draw(line: Line, x: _Axis, y: _Axis) -> str:
    """Return a curve and its band, with gaps at non-finite values."""
    across = x.place(line.x)
    drawn = ""
    if line.low is not None and line.high is not None:
        low, high = 100 - y.place(line.low), 100 - y.place(line.high)
        fine = np.isfinite(low) & np.isfinite(high)
        edge = [*_points(across[fine], high[fine]), *_points(across[fine], low[fine])[::-1]]
        drawn = f'<polygon class="band c{line.color}" points="{" ".join(edge)}"/>' if edge else ""
    faint = " faint" if line.faint else ""
    height = 100 - y.place(line.y)
    segments, dots = [], []
    for piece in np.split(np.arange(len(height)), np.flatnonzero(~np.isfinite(height))):
        piece = piece[np.isfinite(height[piece])]
        points = _points(across[piece], height[piece])
        if points:
            (segments if len(points) > 1 else dots).append("M" + "L".join(points))
    drawn += (
        f'<path class="line c{line.color}{faint}" d="{"".join(segments)}"/>' if segments else ""
    )
    marks = "".join(f"{dot}h0" for dot in dots)  # a line of no length has round ends
    return drawn + (f'<path class="line dot c{line.color}{faint}" d="{marks}"/>' if marks else "")


def _points(across: np.ndarray, height: np.ndarray) -> list[str]:
    return [f"{a:.2f},{b:.2f}" for a, b in zip(across, height, strict=True)]


def _pointer_data(line: Line, x: _Axis) -> dict:
    """Return what a pointer can read: positions in percent, steps and values."""
    values = [None if not math.isfinite(v) else float(f"{v:.5g}") for v in line.y]
    return {"p": x.place(line.x).round(2).tolist(), "x": line.x.tolist(), "y": values}
