"""Train presets to the end, one process each, and print what they reached and how fast.

    python -m benchmarks.learning ant hopper --out results/ [-- --seed 1]

Wall-clock time counts from the start of the process to its end: imports, compilation and
evaluation included. Steps per second is the median over cycles, compilation excluded.
"""

import argparse
import json
import subprocess
import sys
import time
from pathlib import Path
from statistics import median


def run(preset: str, out: Path, extra: list[str]) -> dict:
    folder = out / preset
    command = [sys.executable, "-m", "jaxrl.train", preset, "--run-dir", str(folder), *extra]
    began = time.monotonic()
    done = subprocess.run(command, capture_output=True, text=True)
    wall = time.monotonic() - began
    if done.returncode:
        print(done.stdout[-2000:], done.stderr[-3000:], file=sys.stderr)
        return {"preset": preset, "failed": done.returncode}
    rows = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    evaluations = [row for row in rows if "eval/mean_reward" in row]
    return {
        "preset": preset,
        "steps": rows[-1]["step"],
        "wall_s": round(wall, 1),
        "compile_s": round(rows[-1]["time/compile_seconds"], 1),
        "steps_per_s": round(median(row["time/fps"] for row in rows)),
        "best": round(max(row["eval/mean_reward"] for row in evaluations), 1),
        "final": round(evaluations[-1]["eval/mean_reward"], 1),
        "final_std": round(evaluations[-1]["eval/std_reward"], 1),
        "curve": [[row["step"], round(row["eval/mean_reward"], 1)] for row in evaluations],
    }


def main() -> None:
    parser = argparse.ArgumentParser(description="Train presets to the end and print a table.")
    parser.add_argument("presets", nargs="+")
    parser.add_argument("--out", type=Path, default=Path("runs/benchmark"))
    arguments, extra = parser.parse_known_args()
    extra = [argument for argument in extra if argument != "--"]
    results = []
    for preset in arguments.presets:
        results.append(run(preset, arguments.out, extra))
        print(json.dumps(results[-1]), flush=True)
    (arguments.out / "learning.json").write_text(json.dumps(results, indent=2))
    columns = [
        "preset",
        "steps",
        "wall_s",
        "compile_s",
        "steps_per_s",
        "best",
        "final",
        "final_std",
    ]
    print("\n| " + " | ".join(columns) + " |\n|" + "---|" * len(columns))
    for result in results:
        print("| " + " | ".join(str(result.get(column, "-")) for column in columns) + " |")


if __name__ == "__main__":
    main()
