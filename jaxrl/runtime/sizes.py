"""How large a run will be, before anything is allocated."""

import math

import jax
import jax.numpy as jnp

from jaxrl import rollout as collecting
from jaxrl.runtime import program as programs
from jaxrl.runtime.program import Program
from jaxrl.types import PyTree


def num_bytes(tree: PyTree) -> int:
    """Return the size of all arrays of a tree, abstract or not."""
    total = 0
    for leaf in jax.tree.leaves(tree):
        width = 8 if jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key) else leaf.dtype.itemsize
        total += math.prod(leaf.shape) * width
    return total


def megabytes(number: int) -> str:
    """Write a size as people read it."""
    return f"{number / 2**20:,.1f} MiB"


def report(program: Program) -> str:
    """Return the sizes of everything a run holds, and an estimate of its peak."""
    config, algorithm = program.config, program.algorithm
    state = programs.abstract_state(program)

    def collect(state, key):
        params = algorithm.policy_params(state.learner)
        policy = algorithm.policy(False)
        length = config.ppo.rollout_length
        return collecting.rollout(program.env, policy, params, state.collector, key, length)[1]

    experience = jax.eval_shape(collect, state, jax.random.key(0))
    spec = program.env.spec
    minibatch = num_bytes(experience) // config.ppo.num_minibatches
    # The state and the rollout, the rollout's normalised twin, and one shuffled minibatch with
    # room for its activations: measured peaks lie near this sum.
    peak = num_bytes(state) + 2 * num_bytes(experience) + 3 * minibatch
    shapes = jax.tree.map(lambda s: f"{s.dtype}{list(s.shape)}", spec.obs)
    kind = "choices" if spec.action.discrete else "numbers in [-1, 1]"
    rows = [
        ("observation", str(shapes)),
        ("action", f"{spec.action.size} {kind}"),
        ("devices", f"{program.mesh.size} × {program.mesh.devices.flat[0].device_kind}"),
        ("steps per iteration", f"{config.steps_per_iteration:,}"),
        ("steps per minibatch", f"{config.steps_per_iteration // config.ppo.num_minibatches:,}"),
        ("iterations in all", f"{config.total_iterations:,}"),
        ("environment steps in all", f"{config.total_iterations * config.steps_per_iteration:,}"),
        ("actor and critic", megabytes(num_bytes(state.learner.params))),
        ("learner", megabytes(num_bytes(state.learner))),
        ("environments", megabytes(num_bytes(state.collector))),
        ("rollout", megabytes(num_bytes(experience))),
        ("estimated peak on all devices", megabytes(peak)),
    ]
    return "\n".join(f"  {name:<30} {value}" for name, value in rows)
