"""Charts: ticks, coordinates, gaps and downsampling."""

import json
import re
from html import unescape

import numpy as np
import pytest
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from jaxrl.reports import charts, plots
from jaxrl.reports.charts import Line, Span


@pytest.mark.parametrize(
    ("low", "high"), [(0, 1), (-3.2, 17), (0, 458_752), (1e-14, 9e-14), (999.9, 1000.2), (-1e9, -5)]
)
def test_ticks_are_round_numbers_as_in_matplotlib(low, high):
    found = charts.ticks(low, high)
    assert 2 <= len(found) <= 6 and low <= found[0] and found[-1] <= high
    # The step is one that matplotlib may choose, and ticks are multiples of it.
    candidates = [MaxNLocator(n, steps=[1, 2, 5, 10]).tick_values(low, high) for n in range(2, 12)]
    sizes = [values[1] - values[0] for values in candidates]
    size = found[1] - found[0]
    assert any(np.isclose(size, other) for other in sizes)
    np.testing.assert_allclose(np.array(found) / size, np.round(np.array(found) / size), atol=1e-4)


def test_logarithmic_ticks():
    assert charts.decades(0.5, 2000) == [1, 10, 100, 1000]
    assert charts.decades(0.02, 0.3) == pytest.approx([0.02, 0.05, 0.1, 0.2])
    assert len(charts.decades(1e-12, 1e12)) <= 6


@pytest.mark.parametrize(
    ("low", "high", "expected"),
    [
        (0, 10, (0, 10)),
        (999, 1000, (974.5, 1024.5)),
        (-5, -5, (-5.125, -4.875)),
        (0, 0, (-0.5, 0.5)),
    ],
)
def test_narrow_ranges_are_widened(low, high, expected):
    assert charts.widened(low, high) == pytest.approx(expected)


def test_noise_does_not_fill_a_chart():
    text = charts.chart("t", [Line("a", np.array([0.0, 1.0]), np.array([998.1, 998.4]))])
    heights = [float(p.split(",")[1]) for p in _path(text)[1:].split("L")]
    assert abs(heights[0] - heights[1]) < 1


def test_legends_of_plots_lie_above_them():
    axes = Figure().subplots()
    axes.plot([0, 1], label="a")
    axes.set_title("t")
    plots.legend_above(axes)
    legend = axes.get_legend().get_window_extent()
    assert axes.bbox.y1 <= legend.y0 and legend.y1 <= axes.title.get_window_extent().y0


def _path(text, kind='line c0"'):
    found = re.findall(rf'class="{kind} d="([^"]*)"', text)
    return found[0] if found else ""


def test_single_points_of_plots_are_dots():
    axes = plots.pyplot().subplots()[1]
    returns = np.array([[1.0, 2.0], [3.0, 4.0]])
    plots.seed_curves(axes, np.array([5]), returns[:, :1], "k", width=1, single=True)
    assert [line.get_marker() for line in axes.lines] == ["o"] * 3
    plots.seed_curves(axes, np.array([5, 6]), returns, "k", width=1)
    assert axes.lines[-1].get_marker() == "None"


def test_points_have_the_right_coordinates():
    x, y = np.array([0.0, 50.0, 100.0]), np.array([0.0, 10.0, 5.0])
    text = charts.chart("t", [Line("a", x, y)])
    points = [tuple(map(float, p.split(","))) for p in _path(text)[1:].split("L")]
    margin = 0.06 * 10
    for (px, py), vx, vy in zip(points, x, y, strict=True):
        assert px == pytest.approx(vx)
        assert py == pytest.approx(100 - 100 * (vy + margin) / (10 + 2 * margin), abs=0.01)


def test_non_finite_values_are_gaps():
    y = np.array([1.0, 2.0, np.nan, 3.0, np.inf, 4.0, 5.0])
    text = charts.chart("t", [Line("a", np.arange(7.0), y)])
    assert [piece.count("L") for piece in _path(text).split("M")[1:]] == [1, 1]
    assert _path(text, 'line dot c0"').count("h0") == 1  # the 3, alone between gaps
    lines = json.loads(unescape(re.search(r'data-lines="([^"]*)"', text)[1]))
    assert lines[0]["y"] == [1, 2, None, 3, None, 4, 5]
    for empty in (np.zeros(0), np.full(3, np.nan)):
        assert 'class="line' not in charts.chart("t", [Line("a", np.arange(len(empty)), empty)])


def test_single_points_are_dots_and_constants_are_drawn():
    text = charts.chart("t", [Line("a", np.array([5.0]), np.array([-2.0]))])
    assert _path(text, 'line dot c0"') == "M100.00,50.00h0"  # the axis begins at 0
    assert charts.chart("t", [Line("a", np.arange(3.0), np.zeros(3))])


def test_wide_ranges_have_a_log_scale():
    x = np.arange(3.0)
    text = charts.chart("t", [Line("a", x, np.array([1e-4, 1.0, 1e4]))])
    heights = [float(p.split(",")[1]) for p in _path(text)[1:].split("L")]
    assert heights[1] == pytest.approx(50, abs=0.01) and "<small>log</small>" in text
    assert "<small>log</small>" not in charts.chart("t", [Line("a", x, np.array([-1.0, 1, 1e4]))])
    # A log scale is requested, but 0 has no logarithm.
    assert "log" not in charts.chart("t", [Line("a", x, np.array([0.0, 1, 2]))], log=True)


def test_downsampling_keeps_ends_extremes_and_gaps():
    rng = np.random.default_rng(0)
    y = rng.normal(size=100_000)
    y[777], y[50_000], y[300:302] = 99.0, -99.0, np.nan
    line = Line("a", np.arange(len(y)), y, low=y - 1, high=y + 1)
    short = charts.downsample(line, 100)
    assert len(short.x) <= 203
    assert {0, 777, 50_000, 99_999} <= set(short.x.tolist())
    assert np.isnan(short.y).sum() == 1
    np.testing.assert_array_equal(short.low, short.y - 1)
    assert charts.downsample(short, 200) is short


def test_bands_spans_and_escaped_labels():
    x = np.array([0.0, 10.0])
    line = Line("<b>", x, x, low=x - 1, high=x + 1)
    text = charts.chart('"t" & more', [line], spans=[Span("1", 0, 4), Span("2", 4, 10)])
    shaded = re.findall(r'class="span s\d" x="([\d.]+)" width="([\d.]+)"', text)
    assert shaded == [("0.00", "40.00"), ("40.00", "60.00")]
    assert "&lt;b&gt;" in text and "<b>&quot;t&quot; &amp; more</b>" in text
    assert text.count("<b>") == 1
    assert text.count("<polygon") == 1 and text.count('class="mark"') == 2
