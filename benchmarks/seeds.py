"""One preset, several seeds in one program: evaluated returns as lines of JSON.

    python -m benchmarks.seeds sac-hopper --num-seeds 3 [any flag of jaxrl.train]

Small networks do not fill an accelerator, so three seeds cost little more than one. The lines
hold steps, seconds since the process began, and one return for each seed.
"""

import argparse
import json
import sys
import time

BEGAN = time.time()

import contextlib  # noqa: E402
import tempfile  # noqa: E402
from dataclasses import replace  # noqa: E402
from pathlib import Path  # noqa: E402

import numpy as np  # noqa: E402

import jaxrl  # noqa: E402
from jaxrl import train  # noqa: E402
from jaxrl.callbacks import CallbackContext  # noqa: E402
from jaxrl.errors import exit_status  # noqa: E402
from jaxrl.loggers import run_dir  # noqa: E402


def last_return(folder: Path) -> float:
    """Return the mean return of the last evaluation of a run."""
    with np.load(folder / "evaluations.npz", allow_pickle=False) as data:
        return float(np.mean(data["results"][-1]))


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--num-seeds", type=int, default=3)
    known, flags = parser.parse_known_args()
    config = train._parse(flags).config
    out, seeds = sys.stdout, range(config.seed, config.seed + known.num_seeds)

    with tempfile.TemporaryDirectory() as folder:
        log = replace(config.log, tensorboard=False)
        members = [replace(config, seed=s, log=log, run_dir=Path(folder) / "run") for s in seeds]

        class Report:
            def on_evaluation(self, context: CallbackContext) -> None:
                places = run_dir.of_members(context.folder, members)
                line = {
                    "step": context.step,
                    "seconds": round(time.time() - BEGAN, 2),
                    "returns": [round(last_return(place), 3) for place in places],
                }
                print(json.dumps(line), file=out, flush=True)

        with contextlib.redirect_stdout(sys.stderr):  # stdout is for JSON only
            jaxrl.fit(members, callbacks=[Report()])


if __name__ == "__main__":
    sys.exit(exit_status(main))
