"""One preset, several seeds in one program: evaluated returns as lines of JSON.

    python -m benchmarks.seeds sac-hopper --num-seeds 3 [any flag of jaxrl.train]

Small networks do not fill an accelerator, so that three seeds cost little more than one. Nothing
is saved but what is printed: steps, seconds since the process began, and one return for each seed.
"""

import argparse
import json
import sys
import time

BEGAN = time.time()

from dataclasses import replace  # noqa: E402

from jaxrl import train  # noqa: E402
from jaxrl.errors import exit_status  # noqa: E402
from jaxrl.programs import program  # noqa: E402
from jaxrl.training import population  # noqa: E402


def tell(point: population.Point) -> None:
    line = {
        "step": point.step,
        "seconds": round(time.time() - BEGAN, 2),
        "returns": [round(float(value), 3) for value in point.returns],
    }
    print(json.dumps(line), flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--num-seeds", type=int, default=3)
    known, flags = parser.parse_known_args()
    config = train._parse(flags).config
    program.compile_sooner()
    seeds = range(config.seed, config.seed + known.num_seeds)
    population.train([replace(config, seed=seed) for seed in seeds], tell)


if __name__ == "__main__":
    sys.exit(exit_status(main))
