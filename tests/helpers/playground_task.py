"""A task written for Playground's interface, outside of its package, that computes no physics."""

import jax
import jax.numpy as jnp
import mujoco
from ml_collections import config_dict
from mujoco import mjx
from mujoco_playground import MjxEnv, State
from mujoco_playground._src.locomotion.go1 import joystick

_XML = """
<mujoco>
  <worldbody>
    <body name="cart">
      <joint name="slide" type="slide" axis="1 0 0"/>
      <geom type="box" size="0.1 0.1 0.1" mass="2"/>
    </body>
  </worldbody>
  <actuator><motor joint="slide"/></actuator>
</mujoco>
"""


def default_config():
    return config_dict.create(
        ctrl_dt=0.1,
        sim_dt=0.1,
        episode_length=6,
        action_repeat=1,
        impl="warp",
        goal=config_dict.create(distance=0.25, give_up=2.0),
    )


class Cart(MjxEnv):
    """Push a cart to its goal: an action moves it by dt / mass; noise comes from `info["rng"]`.

    The task gives up (truncates) beyond a distance.
    """

    def __init__(self, config=None, config_overrides=None):
        super().__init__(config or default_config(), config_overrides)
        assert self._config.impl == "jax"
        self._mj_model = mujoco.MjModel.from_xml_string(_XML)
        self._mjx_model = mjx.put_model(self._mj_model, impl=self._config.impl)

    def reset(self, rng):
        rng, key = jax.random.split(rng)
        data = mjx.make_data(self._mj_model, impl=self._config.impl)
        data = data.replace(qpos=jax.random.uniform(key, (1,)))
        info = {"rng": rng, "steps": 0, "truncation": jnp.zeros(())}
        metrics = {"reward/success": jnp.zeros(()), "tries": 0}
        zero = jnp.zeros(())
        return State(data, self._observe(data, zero), zero, zero, metrics, info)

    def step(self, state, action):
        mass = self._mjx_model.body_mass[1]
        data = state.data.replace(qpos=state.data.qpos + self.dt * action / mass)
        state.info["rng"], key = jax.random.split(state.info["rng"])
        state.info["steps"] += 1
        distance = jnp.abs(data.qpos[0])
        state.info["truncation"] = (distance > self._config.goal.give_up).astype(float)
        state.metrics["reward/success"] = (distance < self._config.goal.distance).astype(float)
        return state.replace(
            data=data,
            obs=self._observe(data, jax.random.normal(key)),
            reward=-distance,
            done=state.info["truncation"],
        )

    def _observe(self, data, noise):
        return {
            "state": jnp.stack([data.qpos[0], noise]),
            "privileged_state": jnp.stack([data.qpos[0], noise, self._mjx_model.body_mass[1]]),
        }

    xml_path = ""
    action_size = 1

    @property
    def mj_model(self):
        return self._mj_model

    @property
    def mjx_model(self):
        return self._mjx_model


class NeedsConfig(Cart):
    """Its configuration is an argument without a default."""

    def __init__(self, config, config_overrides=None):
        super().__init__(config, config_overrides)


class SharedDefault(Cart):
    """Its configuration is the default of its argument, as in Playground's own classes."""

    def __init__(self, config=default_config(), config_overrides=None):  # noqa: B008
        super().__init__(config, config_overrides)


class OwnGo1(joystick.Joystick):
    """A task that builds on one of Playground's, with its robot."""


class LostModel(Cart):
    """A task whose own model is missing."""

    def __init__(self, config=None, config_overrides=None):
        super().__init__(config, config_overrides)
        mujoco.MjModel.from_xml_path("mine.xml")


def randomize(model, rng):
    """Randomise masses as Playground's own functions do: a batch of models, and its axes."""

    def sample(key):
        return model.body_mass.at[1].set(jax.random.uniform(key, minval=1.0, maxval=4.0))

    in_axes = jax.tree.map(lambda _: None, model)
    in_axes = in_axes.tree_replace({"body_mass": 0})
    return model.tree_replace({"body_mass": jax.vmap(sample)(rng)}), in_axes
