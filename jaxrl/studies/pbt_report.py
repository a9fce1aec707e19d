"""The report of population-based training: its members at the end, and the best one's schedule."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from jaxrl.config import TrainConfig
from jaxrl.errors import UserError
from jaxrl.loggers import metrics_log, run_dir
from jaxrl.studies import report
from jaxrl.studies.study import Between, Study

_COLOR, _GREY = "#1f6fb4", "#8a8f98"


class History(NamedTuple):
    """What the members did, one row per evaluation."""

    folders: list[Path]
    steps: np.ndarray  # [evaluations]
    scores: np.ndarray  # [evaluations, members]
    parents: np.ndarray  # [evaluations, members]: whose weights each took over after it
    values: dict[str, np.ndarray]  # [evaluations, members] of each searched setting, before it


def histories(chosen: Study, run: Path, members: Sequence[TrainConfig]) -> History:
    """Read the history of a population from the logs of its members."""
    folders = run_dir.of_members(run, members)
    logs = []
    for folder in folders:
        rows = metrics_log.read(folder / "metrics.jsonl").rows
        logs.append({int(row["step"]): row for row in rows if "pbt/parent" in row})
    steps = sorted(set.intersection(*(set(log) for log in logs)))
    if not steps:
        raise UserError(f"'{run}' has no evaluation that all members reached.")

    def column(name: str) -> np.ndarray:
        return np.array([[log[step].get(name, np.nan) for log in logs] for step in steps])

    values = {path: column(f"pbt/{path.rpartition('.')[2]}") for path in chosen.search}
    parents = column("pbt/parent").astype(int)
    return History(folders, np.array(steps), column(chosen.metric), parents, values)


def lineage(history: History, member: int) -> list[int]:
    """Return whose weights a member had at each evaluation, the last one its own."""
    line = [member]
    for parents in history.parents[-2::-1]:
        line.append(int(parents[line[-1]]))
    return line[::-1]


def write(name: str, chosen: Study, history: History, out: Path) -> None:
    """Write pbt.md and pbt.png."""
    order = _order(chosen, history)
    draw(chosen, history, order[0]).savefig(out / "pbt.png", dpi=130)
    smoke = "\nA smoke test (`--smoke`): these are not results.\n" if chosen.is_smoke_test else ""
    text = f"""# Population-based training of {name}

{len(order)} members of the preset `{chosen.preset}`, {report.short(history.steps[-1])} steps
each, compared by `{chosen.metric}`. After every evaluation the worst quarter took over the weights
and settings of the best quarter, and perturbed the settings.
The best policy is in `{history.folders[order[0]].relative_to(out)}`.

{_members(chosen, history, order)}

Settings of the best member and of those whose weights it has:

{_schedule(chosen, history, order[0])}

![scores and settings of all members](pbt.png)
{smoke}"""
    (out / "pbt.md").write_text(text, encoding="utf-8")
    print(f"written to {out / 'pbt.md'}")


def _order(chosen: Study, history: History) -> list[int]:
    """Return the members, the best first; those without a score come last."""
    final = history.scores[-1] * (1.0 if chosen.lower_is_better else -1.0)
    return np.argsort(np.where(np.isnan(final), np.inf, final), kind="stable").tolist()


def _members(chosen: Study, history: History, order: list[int]) -> str:
    replaced = (history.parents != np.arange(len(order))).sum(0)
    lines = [_head([f"`{chosen.metric}`", *history.values, "times replaced", "first weights"])]
    for member in order:
        first = lineage(history, member)[0]
        score = [report.short(history.scores[-1, member])]
        settings = [_text(each[-1, member]) for each in history.values.values()]
        lines.append(_row([*score, *settings, str(replaced[member]), f"member {first}"]))
    return "\n".join(lines)


def _schedule(chosen: Study, history: History, member: int) -> str:
    line = lineage(history, member)
    lines = [_head(["steps", "member", f"`{chosen.metric}`", *history.values])]
    for i, each in enumerate(line):
        settings = [_text(values[i, each]) for values in history.values.values()]
        score = report.short(history.scores[i, each])
        lines.append(_row([report.short(history.steps[i]), str(each), score, *settings]))
    return "\n".join(lines)


def draw(chosen: Study, history: History, best: int) -> Figure:
    """Draw scores and settings of all members, and those of the best one's lineage."""
    panels: dict[str, np.ndarray] = {chosen.metric: history.scores, **history.values}
    figure = Figure(figsize=(3.4 * len(panels) + 0.4, 3.0), layout="constrained")
    line = lineage(history, best)
    for axes, (name, values) in zip(figure.subplots(1, len(panels)), panels.items(), strict=True):
        steps, followed, style = history.steps, values[np.arange(len(line)), line], "default"
        if name != chosen.metric:  # settings stay the same from one evaluation to the next
            steps, style = np.append(0, steps), "steps-pre"
            values, followed = np.vstack([values[:1], values]), np.append(followed[:1], followed)
        thin = {"color": _GREY, "linewidth": 0.7, "markersize": 3, "alpha": 0.5}
        axes.plot(steps, values, ".-", drawstyle=style, **thin)
        axes.plot(steps, followed, drawstyle=style, color=_COLOR, linewidth=2)
        choices = chosen.search.get(name)
        if isinstance(choices, Between) and choices.log:
            axes.set_yscale("log")
        axes.set_title(name, fontsize=9)
        axes.spines[["top", "right"]].set_visible(False)
        axes.xaxis.set_major_locator(MaxNLocator(4))
        axes.xaxis.set_major_formatter(report.steps_label)
        axes.tick_params(labelsize=8)
    figure.supxlabel(
        "environment steps of each member (blue: the best one, before that its ancestors)",
        fontsize=9,
    )
    return figure


def _head(names: list[str]) -> str:
    return _row(names) + "\n" + "|---:" * len(names) + "|"


def _row(cells: Sequence[Any]) -> str:
    return f"| {' | '.join(map(str, cells))} |"


def _text(value: float) -> str:
    return f"{value:.4g}"
