"""How large a run will be, before anything is allocated."""

import math

import jax
import jax.numpy as jnp

from jaxrl import rollout as collecting
from jaxrl.envs import names
from jaxrl.runtime import hosted
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


def _experience(program: Program) -> PyTree:
    """Return the shapes of one rollout."""
    if names.is_hosted(program.config.env):
        return hosted.abstract_experience(program)
    algorithm, ppo = program.algorithm, program.config.ppo

    def collect(state, key):
        params, policy = algorithm.policy_params(state.learner), algorithm.policy(False)
        pool = program.env.pool(key)
        return collecting.rollout(
            program.env,
            policy,
            params,
            state.collector,
            key,
            ppo.rollout_length,
            pool,
            ppo.bptt_horizon,
        )[1]

    return jax.eval_shape(collect, programs.abstract_state(program), jax.random.key(0))


def report(program: Program) -> str:
    """Return the sizes of everything a run holds, and an estimate of its peak."""
    config, experience = program.config, _experience(program)
    state = programs.abstract_state(program)
    spec = program.env.spec
    minibatch = num_bytes(experience) // config.ppo.num_minibatches
    # The state and the rollout, the rollout's normalised twin, and one shuffled minibatch with
    # room for its activations: measured peaks lie near this sum. Tokens are judged as zeros and
    # ones, before and after each step.
    peak = num_bytes(state) + 2 * num_bytes(experience) + 3 * minibatch
    if spec.tokens:
        width = math.prod(spec.obs.shape[:-1]) * sum(spec.tokens)
        peak += 2 * 4 * program.env.rows * config.ppo.rollout_length * width
    length, parts = config.ppo.rollout_length, config.ppo.num_minibatches
    horizon = config.ppo.horizon
    batch = program.env.rows * length
    segments = batch // horizon
    each = program.env.rows // config.num_envs
    agents = f" × {each} agents" if each > 1 else ""
    shapes = jax.tree.map(lambda s: f"{s.dtype}{list(s.shape)}", spec.obs)
    kind = "choices" if spec.action.discrete else "numbers in [-1, 1]"
    rows = [
        ("observation", str(shapes)),
        ("action", f"{spec.action.size} {kind}"),
        ("devices", f"{program.mesh.size} × {program.mesh.devices.flat[0].device_kind}"),
        ("environments", f"{config.num_envs:,}{agents}"),
        ("environment steps per iteration", f"{config.steps_per_iteration:,}"),
        ("batch", f"{program.env.rows:,} rows × {length} steps = {batch:,}"),
        ("segments", f"{segments:,} of {horizon} steps, {segments // parts:,} per minibatch"),
        ("iterations in all", f"{config.total_iterations:,}"),
        ("environment steps in all", f"{config.total_iterations * config.steps_per_iteration:,}"),
        ("actor and critic", megabytes(num_bytes(state.learner.params))),
        ("learner", megabytes(num_bytes(state.learner))),
        ("environments' states", megabytes(num_bytes(state.collector))),
        ("rollout", megabytes(num_bytes(experience))),
        ("estimated peak on all devices", megabytes(peak)),
    ]
    return "\n".join(f"  {name:<31} {value}" for name, value in rows)
