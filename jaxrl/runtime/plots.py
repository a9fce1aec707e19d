"""Pictures of a run: its learning curve, and where its episodes succeeded."""

from pathlib import Path

import numpy as np

from jaxrl.runtime.sinks import read_jsonl


def learning_curve(folder: Path, title: str) -> Path | None:
    """Draw plots/learning_curve.png from metrics.jsonl; None when there is nothing to draw."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt
    from matplotlib.ticker import EngFormatter

    rows = read_jsonl(folder / "metrics.jsonl")
    styles = _styles(rows)
    figure, axes = plt.subplots(figsize=(7, 4), dpi=120)
    drawn = False
    for name, (label, color, width) in styles.items():
        points = [(row["step"], row[name]) for row in rows if name in row]
        if points:
            drawn = True
            axes.plot(*zip(*points, strict=True), label=label, color=color, linewidth=width)
    band = [r for r in rows if "eval/std_reward" in r]
    if band:
        steps = [r["step"] for r in band]
        low = [r["eval/mean_reward"] - r["eval/std_reward"] for r in band]
        high = [r["eval/mean_reward"] + r["eval/std_reward"] for r in band]
        axes.fill_between(steps, low, high, color="#1f4e79", alpha=0.15, linewidth=0)
    if not drawn:
        plt.close(figure)
        return None
    axes.set(xlabel="environment steps", ylabel="episode return", title=title)
    if "train/R_loss" in styles:
        axes.set(xlabel="gradient steps", ylabel="R_loss", yscale="log")
    axes.xaxis.set_major_formatter(EngFormatter())
    axes.grid(alpha=0.25)
    axes.legend(frameon=False)
    axes.spines[["top", "right"]].set_visible(False)
    figure.tight_layout()
    path = folder / "plots" / "learning_curve.png"
    path.parent.mkdir(exist_ok=True)
    figure.savefig(path)
    plt.close(figure)
    return path


def _styles(rows: list[dict[str, float]]) -> dict[str, tuple[str, str, float]]:
    """Return what to draw, as (label, color, width): returns, or a loss where nobody played."""
    played = any("rollout/ep_rew_mean" in row or "eval/mean_reward" in row for row in rows)
    if not played and any("train/R_loss" in row for row in rows):
        return {"train/R_loss": ("loss of the learnt reward", "#1f4e79", 2.2)}
    return {
        "rollout/ep_rew_mean": ("training episodes", "#9bb7d4", 1.4),
        "eval/mean_reward": ("evaluation (mean ± std)", "#1f4e79", 2.2),
    }


def outcomes(path: Path, starts: np.ndarray, successes: np.ndarray) -> None:
    """Draw where episodes started, [episodes, 2], and which of them succeeded."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(figsize=(5, 5), dpi=120)
    for won, label, color, mark in (
        (True, "success", "#1f4e79", "o"),
        (False, "failure", "#c0392b", "x"),
    ):
        chosen = starts[successes == won]
        axes.scatter(*chosen.T, label=f"{label} ({len(chosen)})", color=color, marker=mark, s=18)
    axes.set(
        xlabel="x at the start", ylabel="y at the start", title=f"{successes.mean():.1%} succeeded"
    )
    axes.set_aspect("equal", adjustable="datalim")
    axes.grid(alpha=0.25)
    axes.legend(frameon=False)
    axes.spines[["top", "right"]].set_visible(False)
    figure.tight_layout()
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path)
    plt.close(figure)
