"""What a run reached: figures in large type, the learning curve, and phases."""

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
    """Return what a run reached, in large type."""
    last = record.last
    share = f"{record.step / record.planned:.0%} of the plan" if record.planned else ""
    found = [*_learnt(record), (record.unit, html.steps(record.step), share)]
    if (elapsed := last(ELAPSED)) is not None:
        found.append(("time", formatting.duration(elapsed), "compilation included"))
    if len(speeds := record.finite(SPEED)):
        found.append(("steps per second", f"{np.median(speeds):,.0f}", "median of the cycles"))
    if (most := peak_memory(record)) is not None:
        found.append(("memory", f"{most:,.0f} MiB", "at most"))
    return html.tiles(found)


def _learnt(record: Record) -> list[tuple[str, str, str]]:
    """Return how good it became, by the best measure there is."""
    last, short, found = record.last, html.number, []
    if (mean := record.outcome(EVALUATED)) is not None:
        spread = f"± {short(last('eval/std_reward'))}" if math.isfinite(mean) else ""
        found.append(("last evaluation", stats.written(mean, short), spread))
        found.append(("best evaluation", short(last(BEST)), ""))
    elif (mean := record.outcome(RETURN)) is not None:
        found.append(("return in training", stats.written(mean, short), "not evaluated"))
    elif (loss := record.outcome(LOSS)) is not None:
        found.append(("loss of the learnt reward", stats.written(loss, short), ""))
    for name, told in ((SUCCESS, "in evaluation"), ("rollout/success_rate", "in training")):
        if (rate := last(name)) is not None:
            return [*found, ("success", f"{rate:.1%}", told)]
    return found


def learning_curve(record: Record) -> Markup:
    """Return the curve people look at first: returns, or a loss where nobody played."""
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
            charts.chart("share of episodes that succeed", succeeded, spans=spans, class_="large"),
            charts.chart("reward terms, of the most each paid", terms, spans=spans, class_="large"),
            class_="pair",
        ),
        html.table(("", "phase", record.unit, "lasts"), rows, "phases"),
    )
