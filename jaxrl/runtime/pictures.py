"""Watching a policy: one episode as pictures, in a file."""

from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np

from jaxrl.algorithms import acting
from jaxrl.config import TrainConfig
from jaxrl.envs import build as environments
from jaxrl.envs.host import HostEnv
from jaxrl.errors import UserError
from jaxrl.runtime.policies import LoadedPolicy


def frames(
    policy: LoadedPolicy, config: TrainConfig, seed: int, deterministic: bool
) -> list[np.ndarray]:
    """Play one episode and draw every state of it, the first and the last included."""
    env = environments.build(config)
    if isinstance(env, HostEnv) or not hasattr(env.env.inner, "draw"):
        raise UserError(f"The environment '{config.env}' cannot draw itself.")
    env = environments.for_drawing(env)
    act = acting.make_policy(policy.networks, deterministic)
    length = -(-env.episode_length // env.action_repeat)

    @jax.jit
    def play(params, key):
        key_reset, key_act = jax.random.split(key)
        state = env.reset(key_reset, stagger=False)

        def turn(loop, key):
            state, carry = loop
            action, carry, _ = act(params, env.observe(state), carry, key)
            after, outcome = env.advance(state, action)
            return (after, carry), (after.world, outcome.terminated[0] | outcome.truncated[0])

        start = (state, policy.initial_carry(env.rows))
        _, (later, over) = jax.lax.scan(turn, start, jax.random.split(key_act, length))
        worlds = jax.tree.map(lambda a, b: jnp.concatenate([a[None], b]), state.world, later)
        return env.brax_state(worlds).pipeline_state, over

    inside, over = jax.device_get(play(policy.params, jax.random.key(seed)))
    last = int(np.argmax(over)) + 1 if over.any() else length
    states = (jax.tree.map(lambda leaf, t=t: leaf[t, 0], inside) for t in range(last + 1))
    return [env.env.inner.draw(state) for state in states]


def save(pictures: list[np.ndarray], path: Path, frames_per_second: float) -> None:
    """Write a GIF of all pictures, or a PNG of the middle one."""
    from PIL import Image

    path.parent.mkdir(parents=True, exist_ok=True)
    if path.suffix == ".png":
        Image.fromarray(pictures[len(pictures) // 2]).save(path)
        return
    # Few flat colours: a palette keeps the file small and loses nothing.
    images = [Image.fromarray(p).convert("P", palette=Image.Palette.ADAPTIVE) for p in pictures]
    pause = round(1000 / frames_per_second)
    images[0].save(path, save_all=True, append_images=images[1:], duration=pause, loop=0)
