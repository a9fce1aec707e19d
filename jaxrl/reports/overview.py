"""The results of a run: main values, learning curve, and phases."""

import math

import numpy as np

from jaxrl.envs import hooks
from jaxrl.reports import charts, html
from jaxrl.reports.charts import Line, Span
from jaxrl.reports.html import Markup, section, tag
from jaxrl.reports.load_runs import Curve, Record
from jaxrl.reports.resources import ELAPSED, SPEED, peak_memory
from jaxrl.utils import formatting, stats

RETURN, EVALUATED, LOSS = "rollout/ep_rew_mean", "eval/mean_reward", "train/R_loss"
BEST, SUCCESS = "eval/best_mean_reward", "eval/success_rate"


def line(label: str, curve: Curve, color: int = 0) -> Line:
    """Return a metric as a line of a chart."""
    return Line(label, curve.steps, curve.values, color)


def tiles(record: Record) -> Markup:
    """Return the main results of a run in large type."""
    last = record.last
    progress = f"{record.step / record.planned:.0%} of the plan" if record.planned else ""
    values = [*_outcomes(record), (record.unit, html.steps(record.step), progress)]
    if (elapsed := last(ELAPSED)) is not None:
        values.append(("time", formatting.duration(elapsed), "compilation included"))
    if len(speeds := record.finite(SPEED)):
        values.append(("steps per second", f"{np.median(speeds):,.0f}", "median of the cycles"))
    if (most := peak_memory(record)) is not None:
        values.append(("memory", f"{most:,.0f} MiB", "peak"))
    return html.tiles(values)


def _outcomes(record: Record) -> list[tuple[str, str, str]]:
    """Return evaluated returns, or else returns in training, or else the loss; and success."""
    last, short, values = record.last, html.number, []
    if (mean := record.outcome(EVALUATED)) is not None:
        spread = f"± {short(last('eval/std_reward'))}" if math.isfinite(mean) else ""
        values.append(("last evaluation", stats.format_aggregate(mean, short), spread))
        values.append(("best evaluation", short(last(BEST)), ""))
    elif (mean := record.outcome(RETURN)) is not None:
        values.append(("return in training", stats.format_aggregate(mean, short), "not evaluated"))
    elif (loss := record.outcome(LOSS)) is not None:
        values.append(("loss of the learnt reward", stats.format_aggregate(loss, short), ""))
    for name, remark in ((SUCCESS, "in evaluation"), ("rollout/success_rate", "in training")):
        if (rate := last(name)) is not None:
            return [*values, ("success", f"{rate:.1%}", remark)]
    return values


def learning_curve(record: Record) -> Markup:
    """Return the learning curve: returns, or the loss of a run without episodes."""
    curves = record.curves
    if EVALUATED in curves or RETURN in curves:
        lines = [line("training", curves[RETURN], 1)] if RETURN in curves else []
        lines += [_evaluated(record)] if EVALUATED in curves else []
        drawn = charts.chart(f"return over {record.unit}", lines, class_="large")
        return section("Learning curve", drawn, note="evaluation: mean ± standard deviation")
    if LOSS not in curves:
        return Markup("")
    lines = [line("loss of the learnt reward", curves[LOSS])]
    drawn = charts.chart(f"R_loss over {record.unit}", lines, log=True, class_="large")
    return section("Learning curve", drawn)


def _evaluated(record: Record) -> Line:
    rows = [row for row in record.rows if EVALUATED in row]
    steps, mean = (np.array([row[n] for row in rows], np.float64) for n in ("step", EVALUATED))
    deviation = np.array([row.get("eval/std_reward", np.nan) for row in rows])
    return Line("evaluation", steps, mean, 0, mean - deviation, mean + deviation)


def learning_phases(record: Record) -> Markup:
    """Return the learning phases of a run, if its environment defines some."""
    report = hooks.learning_phases(record.config, record.rows)
    if report is None:
        return Markup("")
    spans = [Span(str(i), p.start, p.end) for i, p in enumerate(report.phases, 1)]
    succeeded = [Line("", report.steps, report.success_rate)]
    terms = [Line(n, report.steps, v, i) for i, (n, v) in enumerate(report.terms.items())]
    rows = [
        (i, p.name, f"{html.steps(p.start)} to {html.steps(p.end)}", p.rule)
        for i, p in enumerate(report.phases, 1)
    ]
    return section(
        "Phases",
        tag(
            "div",
            charts.chart("success rate of episodes", succeeded, spans=spans, class_="large"),
            charts.chart("reward terms, relative to maximum", terms, spans=spans, class_="large"),
            class_="pair",
        ),
        html.table(("", "phase", record.unit, "lasts"), rows, "phases"),
    )
