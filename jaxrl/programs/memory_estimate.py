"""How large a run will be, before anything is allocated."""

import math

import jax
import jax.numpy as jnp

from jaxrl import rollout
from jaxrl.algorithms.off_policy.replay import ReplayState
from jaxrl.algorithms.ppo import value_parts
from jaxrl.config import OnPolicyConfig, REPPOConfig, TrainConfig
from jaxrl.envs.gymnasium.env import GymnasiumEnv
from jaxrl.envs.vector_env import VectorEnv
from jaxrl.errors import UserError
from jaxrl.learning import exploration
from jaxrl.networks import cnn
from jaxrl.networks.actor_critic import has_images
from jaxrl.networks.mlp import layer_widths
from jaxrl.networks.recurrent import GATES
from jaxrl.programs import gymnasium
from jaxrl.programs.device import DeviceProgram
from jaxrl.programs.gymnasium import GymnasiumProgram
from jaxrl.programs.offline import OfflineProgram
from jaxrl.programs.program import Program
from jaxrl.types import EnvSpec, PyTree, TrainState
from jaxrl.utils import device_memory, processes, sharding, trees
from jaxrl.utils.formatting import plural


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


def _rollout(program: DeviceProgram | GymnasiumProgram) -> PyTree:
    """Return the shapes of one rollout."""
    if isinstance(program, GymnasiumProgram):
        return gymnasium.abstract_rollout(program)
    algorithm, learning = program.algorithm, program.config.learning

    def collect(state, key):
        params, policy = algorithm.policy_params(state.learner), algorithm.policy(False)
        pool = program.env.sample_pool(key)
        return rollout.collect(
            program.env,
            policy,
            params,
            state.collector,
            key,
            learning.rollout_length,
            pool,
            learning.horizon,
        )[1]

    key = jax.eval_shape(jax.random.key, 0)  # nothing is allocated: there may be no room
    return jax.eval_shape(collect, program.abstract_state(), key)


def report(program: Program) -> str:
    """Return the sizes of everything a run holds, and an estimate of its peak."""
    if isinstance(program, OfflineProgram):
        return _offline(program)
    assert isinstance(program, DeviceProgram | GymnasiumProgram)
    population, program = program, program.alone
    config, experience = program.config, _rollout(program)
    state, spec, each = program.abstract_state(), program.spec, program.agents
    agents = f" × {each} agents" if each > 1 else ""
    shapes = jax.tree.map(lambda s: f"{s.dtype}{list(s.shape)}", spec.obs)
    kind = "discrete" if spec.action.discrete else "continuous, in [-1, 1]"
    parts, peak = _describe(program, state, experience)
    several = bool(population.members)
    whole, steps = ("of each member", "steps") if several else ("in all", "environment steps")
    rows = [
        ("observation", str(shapes)),
        ("action", f"{spec.action.size} {kind}"),
        ("devices", sharding.describe(program.mesh)),
        ("environments", f"{config.num_envs:,}{agents}"),
        ("environment steps per iteration", f"{config.steps_per_iteration:,}"),
        (f"iterations {whole}", f"{config.total_iterations:,}"),
        (f"{steps} {whole}", f"{config.total_iterations * config.steps_per_iteration:,}"),
        (f"gradient steps {whole}", f"{config.total_iterations * config.learning.updates:,}"),
        ("networks", megabytes(num_bytes(state.learner.params))),
        ("learner", megabytes(num_bytes(state.learner))),
        ("environments' states", megabytes(num_bytes(state.collector.env))),
        ("rollout", megabytes(num_bytes(experience))),
        *_environment(program),
        *parts,
        ("estimated peak on all devices", megabytes(peak)),
        *_seeds(population, peak),
    ]
    return "\n".join(f"  {name:<31} {value}" for name, value in rows)


def _environment(program: DeviceProgram | GymnasiumProgram) -> list[tuple[str, str]]:
    """Return the sizes that the environment reports of its own arrays."""
    sizes = program.env.hooks.memory_sizes
    return [(name, megabytes(size)) for name, size in sizes().items()] if sizes else []


def _seeds(program: Program, peak: int) -> list[tuple[str, str]]:
    """Say how many members there is room for, each of which needs `peak` bytes."""
    rows, number, devices = [], len(program.members), program.mesh.size
    if number:
        per_device = number // devices
        each = f" on each of {devices} devices" if devices > 1 else ""
        rows.append(
            (f"estimated peak of {per_device} together", megabytes(per_device * peak) + each)
        )
    free = device_memory.free()
    if free is not None and isinstance(program, DeviceProgram):
        present = devices if number else len(jax.devices())
        rows += [
            ("free memory of a device", megabytes(free)),
            ("seeds that fit (--num-seeds)", f"about {free // peak * present:,}"),
        ]
    return rows


def too_many(program: DeviceProgram) -> str | None:
    """Say beforehand that members will hardly fit; None where they should."""
    room, number = device_memory.free(), len(program.members) // program.mesh.size
    need = estimated_peak(program.alone)
    if room is None or number * need <= room:
        return None
    return (
        f"{number} members need about {megabytes(number * need)} of a device that has "
        f"{megabytes(room)} free: about {room // need} fit"
    )


def estimated_peak(program: DeviceProgram) -> int:
    """Return how many bytes one run needs, on all devices together."""
    return _describe(program, program.abstract_state(), _rollout(program))[1]


def refuse_too_large(program: Program) -> None:
    """Raise UserError if the training state and start states are larger than the memory.

    XLA may wait for ever on a CPU when they cannot be allocated, or the system kills the run.
    """
    starts = max(len(program.members), 1) * num_bytes(_starts(program))
    need = num_bytes(program.abstract_state()) + starts
    need //= processes.count()  # the fraction of this one
    room = device_memory.of_all_devices(program.mesh.size // processes.count())
    why = ""
    if room is not None and need > room:
        why = f"This run needs {megabytes(need)} of memory at least; there are {megabytes(room)}."
    processes.raise_together(why and too_large(program, why))


def _starts(program: Program) -> dict[str, PyTree]:
    """Return the shapes of a cycle's pool of start states, and of an evaluation's environments."""
    if not isinstance(program, DeviceProgram):
        return {}
    env, number = program.env, program.config.eval.num_envs
    if env.template.trials or not number:
        return {"start states": env.abstract_pool()}
    played = jax.tree.map(
        lambda s: jax.ShapeDtypeStruct((number, *s.shape), s.dtype), env.template.state_shapes
    )
    return {"start states": env.abstract_pool(), "evaluation": played}


def refuse_episodes(env: VectorEnv | GymnasiumEnv, number: int, flag: str = "--episodes") -> None:
    """Raise UserError if episodes played side by side need more memory than there is."""
    room = device_memory.of_all_devices(1)
    if room is None or isinstance(env, GymnasiumEnv) or (env.template.trials and not env.trials):
        return
    need = 2 * number * num_bytes(env.template.state_shapes)  # where each starts, and where it is
    if need > room:
        raise UserError(
            f"{flag}: {number:,} episodes side by side need {megabytes(need)} of memory; there "
            f"are {megabytes(room)}. Play fewer at once, with another --seed each time."
        )


def too_large(program: Program, why: str = "Out of memory.") -> str:
    """Say what did not fit: the largest arrays of a run, and the flags that make them smaller."""
    lines = [f"{why} The largest arrays, by an estimate before the start:"]
    if program.members:
        lines[:0] = [f"{len(program.members)} members were too many at once: lower --num-seeds."]
        program = program.alone
    for name, leaf, flags in largest(program):
        shape = f"{leaf.dtype}{list(leaf.shape)}"
        lines.append(f"  {megabytes(num_bytes(leaf)):>14}  {name} {shape}: lower {flags}")
    return "\n".join([*lines, "--dry-run shows all sizes."])


def largest(program: Program, number: int = 5) -> list[tuple[str, jax.ShapeDtypeStruct, str]]:
    """Return the largest arrays as (name, shape, flags), the largest first."""
    config, state = program.config, program.abstract_state()
    length = f"--{config.algo_section}.rollout-length"
    carry = state.collector.carry
    noise = carry.noise if isinstance(carry, exploration.Carry) else ()
    parts: dict[str, tuple[PyTree, str]] = {
        "replay": (state.collector.replay, "--offpolicy.buffer-size"),
        "environments": (state.collector.env, "--num-envs"),
        "recurrent carry": (exploration.network_carry(carry), "--num-envs, --network.rnn-size"),
        "noise": (noise, "--num-envs, --network.hidden"),
        "learner": (state.learner, "--network.hidden, --network.critic-hidden"),
    }
    flags = {"start states": "--task.reset-pool", "evaluation": "--eval.num-envs"}
    parts |= {name: (tree, flags[name]) for name, tree in _starts(program).items()}
    if isinstance(program, DeviceProgram | GymnasiumProgram):
        parts["rollout"] = (_rollout(program), f"--num-envs, {length}")
    found = [
        (f"{part}/{name}", leaf, flags)
        for part, (tree, flags) in parts.items()
        for name, leaf in trees.named_leaves(tree).items()
    ]
    return sorted(found, key=lambda each: -num_bytes(each[1]))[:number]


def _offline(program: OfflineProgram) -> str:
    """Describe recorded episodes, and what a chunk of them and an iteration's batches take."""
    data, config, number = program.data, program.config, max(len(program.members), 1)
    c, state = config.offpolicy, program.abstract_state()
    step = 2 * num_bytes(data.spec.obs) + 4 * data.spec.action.size + 4 + 1
    sampled = 0 if config.rrd.reward_only else c.batch_size
    if c.reward == "rrd":
        sampled += config.rrd.episodes * config.rrd.sample_size
    at_once = 1 if has_images(data.spec) else c.train_batches
    batches, chunk = at_once * sampled * step, data.chunk_steps * step
    rows = [
        ("training steps", f"{data.steps:,} in {plural(len(data.chunks), 'chunk')}"),
        ("a chunk", f"{data.chunk_steps:,} steps × {step:,} bytes = {megabytes(chunk)}"),
        (
            "batches sampled at once",
            f"{at_once} × {sampled:,} steps × {step:,} bytes = {megabytes(batches)}",
        ),
        ("networks", megabytes(num_bytes(state.learner.params))),
        # Samples have a normalised twin.
        ("estimated peak", megabytes(chunk + number * 2 * batches + num_bytes(state))),
        ("gradient steps in all", f"{config.total_iterations * c.train_batches:,}"),
    ]
    return "\n".join(f"  {name:<31} {value}" for name, value in rows)


def _describe(
    program: DeviceProgram | GymnasiumProgram, state: TrainState, experience: PyTree
) -> tuple[list, int]:
    """Describe what the algorithm learns from; return that, and the estimated peak in bytes."""
    of_section = {"ppo": _segments, "offpolicy": _replay}
    describe = of_section.get(program.config.algo_section, _steps)
    return describe(program, state, experience)


def _steps(
    program: DeviceProgram | GymnasiumProgram, state: TrainState, experience: PyTree
) -> tuple[list, int]:
    """Describe a batch of single steps."""
    net, settings = program.config.network, program.config.learning
    assert isinstance(settings, OnPolicyConfig)
    batch = program.env.rows * settings.rollout_length
    rows = [
        ("batch", f"{program.env.rows:,} rows × {settings.rollout_length} steps = {batch:,}"),
        ("minibatch", f"{batch // settings.num_minibatches:,} steps"),
    ]
    widths, embeddings = layer_widths(net.hidden, net.residual_blocks), 0
    if isinstance(settings, REPPOConfig):
        # Of all next steps, and their shuffled twin.
        widths, embeddings = [*net.critic_hidden], 4 * batch * net.critic_hidden[-1]
        rows.append(("embeddings", megabytes(embeddings)))
    # While targets are computed, a layer holds its input and its output: the first one the
    # observations of the whole rollout, as float32.
    inputs = 4 * batch * value_parts.input_width(program.env.spec)
    widest = inputs + 2 * 4 * batch * max([*widths, *cnn.layer_sizes(program.env.spec.obs)])
    return rows, num_bytes(state) + 3 * num_bytes(experience) + 2 * embeddings + widest


def _segments(
    program: DeviceProgram | GymnasiumProgram, state: TrainState, experience: PyTree
) -> tuple[list, int]:
    """Describe PPO's batch."""
    config, rows, spec = program.config, program.env.rows, program.env.spec
    ppo, shards = config.ppo, program.mesh.size
    minibatch = num_bytes(experience) // ppo.num_minibatches
    parts = value_parts.choose(ppo, config.network, spec, rows, shards)
    values = value_parts.num_bytes(ppo, config.network, spec, rows) // parts
    gradient = _gradient_bytes(config, spec, rows)
    # The state and the rollout, the rollout's normalised twin, one shuffled minibatch, and what
    # the networks hold while they are at work.
    peak = num_bytes(state) + 2 * num_bytes(experience) + 3 * minibatch + max(values, gradient)
    batch = rows * ppo.rollout_length
    segments = batch // ppo.horizon
    per_minibatch = segments // ppo.num_minibatches
    return [
        ("batch", f"{rows:,} rows × {ppo.rollout_length} steps = {batch:,}"),
        (
            "segments",
            f"{segments:,} of {plural(ppo.horizon, 'step')}, {per_minibatch:,} per minibatch",
        ),
        ("minibatch", f"{batch // ppo.num_minibatches:,} steps = {megabytes(minibatch)}"),
        (
            "its gradient",
            f"{megabytes(gradient)} in {ppo.accumulate} parts (--ppo.accumulate)"
            if ppo.accumulate > 1
            else megabytes(gradient),
        ),
        ("values", f"in {plural(parts, 'part')} of {megabytes(values)} (--ppo.value-parts)"),
    ], peak


def _gradient_bytes(config: TrainConfig, spec: EnvSpec, rows: int) -> int:
    """Return the bytes of all layers and of one-hot tokens in the gradient of a minibatch's part.

    A layer's input waits there for the gradient.
    """
    net, ppo = config.network, config.ppo
    gates = GATES.get(net.rnn, 0) * net.rnn_size
    layers = [gates] * net.rnn_layers
    actor = layer_widths(net.hidden, net.residual_blocks)
    actor += layers if net.rnn_of != "critic" else []
    critic = layer_widths(net.critic_hidden, net.residual_blocks)
    critic += layers if net.rnn_of != "actor" else []
    both = 2  # actor and critic have convolutions of their own
    convolutions = both * sum(cnn.layer_sizes(spec.obs))
    tokens = value_parts.input_width(spec) if spec.tokens else 0
    steps = rows * ppo.rollout_length // (ppo.num_minibatches * ppo.accumulate)
    twice = 2  # a gradient beside each activation
    return 4 * steps * (twice * (sum(actor) + sum(critic) + convolutions) + tokens)


def _replay(
    program: DeviceProgram | GymnasiumProgram, state: TrainState, experience: PyTree
) -> tuple[list, int]:
    """Describe the replay buffer, and the batches of an iteration."""
    config, stored = program.config, state.collector.replay
    c, rrd = config.offpolicy, config.rrd
    if not isinstance(stored, ReplayState):  # an algorithm of the user's own
        return [], num_bytes(state) + 2 * num_bytes(experience)
    rows, length = jax.tree.leaves(stored.ring.steps)[0].shape[:2]
    step = num_bytes(stored.ring.steps) // (rows * length)
    per_batch = c.batch_size * step
    if c.reward == "rrd":
        per_batch += rrd.episodes * rrd.sample_size * step
    batches = c.train_batches * per_batch
    shape = f"{rows:,} rows × {length:,} steps × {step:,} bytes"
    lines = [
        ("steps stored", f"{rows * length:,} ({shape})"),
        ("replay", megabytes(num_bytes(stored))),
        ("batch", f"{per_batch:,} bytes × {c.train_batches} = {megabytes(batches)}"),
    ]
    whole = 0
    if c.reward == "rrd" and rrd.features != "none":
        sampled = max(c.train_batches * rrd.batch_size, program.env.longest_episode)
        whole = sampled * step
        lines.append(("whole episodes", f"{sampled:,} steps × {step:,} bytes = {megabytes(whole)}"))
    # Samples have a normalised twin; whole episodes have features besides, and their squares.
    return lines, num_bytes(state) + num_bytes(experience) + 2 * batches + 4 * whole
