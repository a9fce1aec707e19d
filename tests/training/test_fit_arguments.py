"""What `jaxrl.fit` takes: names of presets, changes, environments of one's own."""

import functools

import jax
import jax.numpy as jnp
import pytest
from brax.envs import base

import jaxrl
from jaxrl import evaluate, train
from jaxrl.errors import UserError
from jaxrl.loggers import run_dir
from jaxrl.training import fit, summary
from jaxrl.utils import user_code

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
        ({"callback": []}, "fit takes no 'callback'. Did you mean 'callbacks'"),
        ({"lr": 1e-3}, r"no setting 'lr'. Did you mean \*\*{'ppo.learning_rate': ...}, or"),
        ({"learning_rate": 1e-3}, r"Did you mean \*\*{'ppo.learning_rate': ...}, or"),
        ({"env_args": 5}, r"env_args: give a dict, as env_args={'wind': 0.3}, not 5"),
        ({"env": 5}, "env: give an environment's class, .*, not 5"),
        ({"algorithm": 3}, "algorithm: give a function, or its name as module:function, not 3"),
        ({"network": 3}, "network: give a function"),
        ({"extra_loss": 3}, "extra_loss: give a function"),
        ({"sinks": print}, r"sinks: give a list of functions of \(steps, row\), not <built-in"),
        ({"sinks": [5]}, r"sinks: give a list of functions of \(steps, row\), not \[5\]"),
        ({"verbose": "loud"}, "verbose must be 0, 1 or 2, not 'loud'"),
    ],
)
def test_wrong_changes_get_the_errors_of_the_command_line(built, changes, problem):
    with pytest.raises(UserError, match=problem):
        built("cartpole", **SMALL | changes)


@pytest.mark.parametrize("config", [5, ["cartpole", "ant"], {"env": "ant"}])
def test_settings_of_a_wrong_type_are_named(built, config):
    with pytest.raises(UserError, match="config: give the name of a preset"):
        built(config)


@pytest.mark.parametrize(
    "function, problem",
    [
        (jaxrl.load_policy, "load_policy: give a run folder"),
        (jaxrl.load_reward, "load_reward: give a run folder"),
        (jaxrl.resume, "resume: give a run folder, not 5"),
        (jaxrl.presets.get, "presets.get: give the name of a preset"),
    ],
)
def test_paths_and_names_of_a_wrong_type_are_named(function, problem):
    with pytest.raises(UserError, match=problem):
        function(5)


def test_environments_are_classes_factories_or_instances(built):
    for env, args, reward in (
        (Windy, {"wind": 0.3}, 0.3),
        (f"{__name__}:Windy", {"wind": -2}, -2.0),
        (gusty, None, 7.0),
        (Windy(wind=5.0), None, 5.0),
        (lambda: Windy(wind=6.0), None, 6.0),
        (functools.partial(Windy, wind=8.0), None, 8.0),
        (Windy, {"name": "hills"}, 0.0),
    ):
        program = built(env=env, env_args=args, **SMALL)
        assert _reward(program) == pytest.approx(reward)
    assert program.config.env == f"{__name__}:Windy" and program.env.env.name == "hills"
    flags = ["--env", f"{__name__}:Windy", "--env-args", "wind=4", "name=hills"]
    config = train._parse(flags).config
    assert _reward(built(config, **SMALL)) == 4.0


def test_environments_without_a_name_are_given_again_to_resume(tmp_path, capsys):
    def wind():
        return functools.partial(Windy, wind=8.0)

    run, small = tmp_path / "run", SMALL | {"ppo.rollout_length": 4, "iterations": 1, "cycles": 1}
    config = jaxrl.presets.get("custom", **small, **{"eval.num_envs": 4})
    result = jaxrl.fit(config, env=wind(), epochs=1, run_dir=run)
    assert "give `env` again: jaxrl.resume(run, env=...)" in capsys.readouterr().out
    assert result.last_evaluation["eval/mean_reward"] == pytest.approx(40.0)
    user_code._REGISTERED.clear()  # as in another process
    with pytest.raises(UserError, match=r"has no name.* jaxrl.resume\(run, env=\.\.\.\)"):
        jaxrl.resume(run, epochs=2)
    named = ["--env", f"{__name__}:lambda"]
    assert evaluate.main([str(run), "--episodes", "2", *named]) == 2
    assert "Give the same one again" in capsys.readouterr().err
    result = jaxrl.resume(run, env=wind(), epochs=2)
    assert result.last_evaluation["eval/mean_reward"] == pytest.approx(40.0)
    assert summary.resume_command(run, config) != summary.resume_command(
        run, run_dir.read_config(run, env=f"{__name__}:lambda")
    )


def test_environments_in_place_of_settings_are_answered_with_env(built):
    with pytest.raises(UserError, match="An environment of your own is given as env="):
        built(lambda: Windy())


@pytest.mark.parametrize(
    "env, args, problem",
    [
        (Windy, {"wnd": 1}, "takes no wnd; leave it out. Did you mean 'wind'"),
        (Needy, None, "Needy' needs wind: --env-args wind=VALUE"),
    ],
)
def test_environments_that_cannot_be_built_are_refused(built, env, args, problem):
    with pytest.raises(UserError, match=problem):
        built(env=env, env_args=args, **SMALL)
