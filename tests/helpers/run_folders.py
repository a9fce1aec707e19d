"""Synthetic run folders for tests of reports, without training."""

import json
from dataclasses import replace
from pathlib import Path

from jaxrl.config import presets, serialization
from jaxrl.envs.tasks.pick_place import phases

CARTPOLE = presets.get("cartpole")


def points(number=6, seed=0, size=100):
    """Return log rows whose returns rise by 10 per row, plus the seed."""
    rows = []
    for i in range(1, number + 1):
        row = {
            "step": i * size,
            "rollout/ep_rew_mean": 10.0 * i + seed,
            "rollout/diverged": 0.0,
            "train/loss": 1.0 / i,
            "time/fps": 1000.0,
            "time/cycle_seconds": 2.0,
            "time/compile_seconds": 5.0,
            "time/memory_mb": 100.0 + i,
            "time/time_elapsed": 5.0 + 3.0 * i,
        }
        if i % 2 == 0:
            metrics = {"mean_reward": 11.0 * i + seed, "std_reward": 2.0, "best_mean_reward": 66.0}
            row |= {f"eval/{name}": value for name, value in metrics.items()}
            row["time/eval_seconds"] = 0.5
        rows.append(row)
    return rows


def make(folder: Path, rows=None, config=CARTPOLE, **changes) -> Path:
    """Write a run folder."""
    folder.mkdir(parents=True)
    config = replace(config, **changes)
    (folder / "config.json").write_text(serialization.to_json(config))
    rows = points(seed=config.seed) if rows is None else rows
    (folder / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (folder / "command.txt").write_text("python -m jaxrl.train cartpole\n")
    provenance = {
        "python": "3.11.7",
        "versions": {"jax": "0.10.2"},
        "devices": ["gpu: H", "gpu: H"],
    }
    provenance |= {
        "started": "2026-11-15T17:08:28+0000",
        "git": {"commit": "abc", "changed": [" M x"]},
    }
    (folder / "provenance.json").write_text(json.dumps(provenance))
    return folder


def picking(successes, grasps, size=1000):
    """Return the log of a pick-and-place run with these fractions of successes and grasps."""
    rows = []
    for i, (success, grasp) in enumerate(zip(successes, grasps, strict=True), 1):
        terms = {"approach": grasp, "grasp": 2.0 * grasp, "lift": grasp, "place": success}
        terms |= {"success": 10.0 * success}
        rows.append(
            {"step": i * size, phases.SUCCESS: success}
            | {phases.metric(term): value for term, value in terms.items()}
        )
    return rows
