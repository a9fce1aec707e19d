"""What `jaxrl.fit` takes: names of presets, changes, environments of one's own."""

import jax
import jax.numpy as jnp
import pytest
from brax.envs import base

import jaxrl
from jaxrl import train
from jaxrl.errors import UserError
from jaxrl.training import fit

SMALL = {"num_envs": 16, "ppo.num_minibatches": 2, "devices": 1}


class Windy(base.Env):
    """Pays the wind at every step."""

    episode_length, observation_size, action_size, backend = 5, 1, 1, "none"

    def __init__(self, wind=0.0, name="flat"):
        self.wind, self.name = wind, name

    def reset(self, rng):
        obs = jax.random.uniform(rng, (1,))
        return base.State(obs, obs, jnp.zeros(()), jnp.zeros(()))

    def step(self, state, action):
        return state.replace(reward=jnp.float32(self.wind))


class Needy(Windy):
    def __init__(self, wind):
        super().__init__(wind)


def gusty():
    return Windy(wind=7.0)


@pytest.fixture
def built(monkeypatch):
    """`jaxrl.fit` without training: returns the program."""
    monkeypatch.setattr(fit, "fit_program", lambda program, *_, **__: program)
    return jaxrl.fit


def _reward(program):
    env = program.env.env
    return float(env.step(env.reset(jax.random.key(0)), jnp.zeros(1)).reward)


def test_presets_are_named_and_changed(built):
    program = built("cartpole", **SMALL, **{"ppo.lam": 0.7, "network.hidden": [4]})
    config = program.config
    assert (config.env, config.num_envs, config.ppo.lam) == ("cartpole", 16, 0.7)
    assert config.network.hidden == (4,)
    both = built([jaxrl.presets.get("cartpole", seed=s) for s in (1, 2)], **SMALL)
    assert [(m.seed, m.num_envs) for m in both.members] == [(1, 16), (2, 16)]


@pytest.mark.parametrize(
    "changes, problem",
    [
        ({"num_envs": "64"}, "--num-envs must be an integer, not '64'"),
        ({"ppo.lam": 2.0}, "--ppo.lam must lie between 0 and 1"),
        ({"num_env": 64}, "There is no setting 'num_env'. Did you mean 'num_envs'"),
        ({"env_args": {"a b": 1}}, "--env-args: write wind=0.3, not 'a b=1'"),
        ({"env_args": {"wind": 1}}, "--env-args: 'cartpole': .*takes no arguments"),
        ({"ppo": 3}, "'ppo' is a group of settings: name one of them, as 'ppo.name'"),
        ({"callbacks": print}, r"callbacks: give a list, as callbacks=\[print\]"),
        ({"callbacks": 3}, "callbacks: give a list"),
    ],
)
def test_wrong_changes_get_the_errors_of_the_command_line(built, changes, problem):
    with pytest.raises(UserError, match=problem):
        built("cartpole", **SMALL | changes)


@pytest.mark.parametrize("config", [5, ["cartpole", "ant"], {"env": "ant"}])
def test_settings_of_a_wrong_type_are_named(built, config):
    with pytest.raises(UserError, match="config: give the name of a preset"):
        built(config)


def test_policies_are_loaded_from_paths():
    with pytest.raises(UserError, match="load_policy: give a run folder"):
        jaxrl.load_policy(5)


def test_environments_are_classes_factories_or_instances(built):
    for env, args, reward in (
        (Windy, {"wind": 0.3}, 0.3),
        (f"{__name__}:Windy", {"wind": -2}, -2.0),
        (gusty, None, 7.0),
        (Windy(wind=5.0), None, 5.0),
        (Windy, {"name": "hills"}, 0.0),
    ):
        program = built(env=env, env_args=args, **SMALL)
        assert _reward(program) == pytest.approx(reward)
    assert program.config.env == f"{__name__}:Windy" and program.env.env.name == "hills"
    flags = ["--env", f"{__name__}:Windy", "--env-args", "wind=4", "name=hills"]
    config = train._parse(flags).config
    assert _reward(built(config, **SMALL)) == 4.0


@pytest.mark.parametrize(
    "env, args, problem",
    [
        (Windy, {"wnd": 1}, "takes no wnd; leave it out. Did you mean 'wind'"),
        (Needy, None, "Needy' needs wind: --env-args wind=VALUE"),
        (lambda: Windy(), None, "define it with `def`"),
    ],
)
def test_environments_that_cannot_be_built_are_refused(built, env, args, problem):
    with pytest.raises(UserError, match=problem):
        built(env=env, env_args=args, **SMALL)
