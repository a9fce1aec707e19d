"""One preset, several seeds in one program: evaluated returns as lines of JSON.

    python -m benchmarks.seeds sac-hopper --num-seeds 3 [any flag of jaxrl.train]

Small networks do not fill an accelerator, so that three seeds cost little more than one. Nothing
is saved but what is printed: steps, seconds since the process began, and one return for each seed.
"""

import argparse
import json
import time

BEGAN = time.time()

import jax  # noqa: E402
import numpy as np  # noqa: E402

from jaxrl import train  # noqa: E402
from jaxrl.runtime import program as programs  # noqa: E402
from jaxrl.runtime.compiled import compile_programs  # noqa: E402


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--num-seeds", type=int, default=3)
    known, flags = parser.parse_known_args()
    config = train._parse(flags).config
    programs.use_compilation_cache()
    program = programs.build(config)
    compiled = compile_programs(program, range(config.seed, config.seed + known.num_seeds))
    state = compiled.first_state()
    compiled.wait()
    for cycles in range(1, config.total_cycles + 1):
        state, _ = compiled.train(state, cycles - 1)
        if cycles % config.cycles and cycles < config.total_cycles:
            continue
        played = compiled.evaluate(program.algorithm.policy_params(state.learner), cycles)
        returns = np.mean(np.asarray(played.returns, np.float64), axis=1)
        line = {
            "step": cycles * config.iterations * config.steps_per_iteration,
            "seconds": round(time.time() - BEGAN, 2),
            "returns": [round(float(value), 3) for value in returns],
            "skipped": int(jax.device_get(state.learner.skipped).sum()),
        }
        print(json.dumps(line), flush=True)


if __name__ == "__main__":
    main()
