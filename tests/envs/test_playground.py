"""MuJoCo Playground's tasks, and others written for its interface."""

import subprocess
from dataclasses import replace
from pathlib import Path

import jax
import jax.numpy as jnp
import mujoco
import numpy as np
import pytest

pytest.importorskip("mujoco_playground")

from jaxrl import evaluate, export, programs, render, train
from jaxrl.config import TaskConfig, env_names, overrides, presets
from jaxrl.envs import factory, playground, playground_patches, registry
from jaxrl.envs.brax_patches import import_brax
from jaxrl.errors import UserError
from jaxrl.policies import load
from jaxrl.programs import device
from jaxrl.utils import streams
from tests.helpers import playground_task

CART = "tests.helpers.playground_task:Cart"
SMALL = [
    *("--num-envs", "8", "--epochs", "1", "--cycles", "1", "--iterations", "1"),
    *("--ppo.rollout-length", "8", "--ppo.num-minibatches", "2", "--eval.num-envs", "0"),
    *("--devices", "1"),
    *("--network.hidden", "8", "--network.critic-hidden", "8"),
]


@pytest.fixture(scope="module", autouse=True)
def _rank_promotion():
    with jax.numpy_rank_promotion("allow"):  # Playground relies on it
        yield


@pytest.fixture(scope="module")
def tasks():
    import_brax()
    from mujoco_playground import registry

    return registry


def _cart(**task):
    config = presets.get(
        "custom", env=CART, num_envs=3, **{f"task.{k}": v for k, v in task.items()}
    )
    return config, factory.build(config)


def test_every_task_has_a_preset(tasks):
    listed = env_names.DM_CONTROL + env_names.LOCOMOTION + env_names.MANIPULATION
    assert sorted(listed) == sorted(tasks.ALL_ENVS)
    assert {f"playground:{name}" for name in listed} <= presets.PRESETS.keys()


TASKS = [*env_names.DM_CONTROL, *env_names.LOCOMOTION, *env_names.MANIPULATION]


@pytest.mark.sweep
@pytest.mark.parametrize("name", TASKS)
def test_every_task_is_built_and_traced(name):
    folder = playground.find_menagerie(None)
    if any(not (folder / each).is_dir() for each in playground.menagerie_folders(name)):
        pytest.skip(f"its robot is not in {folder}")
    assert factory.build(presets.get(f"playground:{name}")).template.action.size > 0


@pytest.mark.parametrize("name", TASKS)
def test_presets_repeat_actions_as_the_tasks_say(tasks, name):
    config, own = presets.get(f"playground:{name}"), tasks.get_default_config(name)
    assert config.task.action_repeat == own.action_repeat
    assert own.episode_length % config.task.action_repeat == 0


def test_a_task_behind_brax_s_interface_is_the_same_task(tasks):
    """A step of ours is compiled from the same operations as Playground's own."""
    ours = registry.make("playground:PendulumSwingup")
    own = tasks.load("PendulumSwingup", config_overrides={"impl": "jax"})

    def lowered(env):
        start = jax.eval_shape(env.reset, jax.ShapeDtypeStruct((2,), jnp.uint32))
        leaves, structure = jax.tree.flatten(start)

        def step(leaves, action):
            state = env.step(jax.tree.unflatten(structure, leaves), action)
            return state.obs, state.reward, state.done, state.info

        return jax.jit(step).lower(leaves, jax.ShapeDtypeStruct((1,), jnp.float32)).as_text()

    assert lowered(ours) == lowered(own)
    assert ours.episode_length == 1000 and ours.dt == own.dt and ours.action_size == 1


def test_custom_task_needs_no_registration():
    config, env = _cart()
    template = env.template
    assert template.episode_length == env.episode_length == 6
    assert {k: v.shape for k, v in template.state_shapes.obs.items()} == {
        "state": (2,),
        "privileged_state": (3,),
    }
    assert template.state_shapes.metrics.keys() == {"reward/success", "tries", "success"}


def test_success_lasts_until_the_episode_ends():
    env = registry.make(CART)
    state, reached = env.reset(jax.random.PRNGKey(0)), []
    for target in (1.0, 0.1, 1.0):
        move = (target - state.pipeline_state.qpos) / 0.1 * 2
        state = env.step(state, move)
        reached.append((float(state.metrics["reward/success"]), float(state.metrics["success"])))
    assert reached == [(0, 0), (1, 1), (0, 1)]


def test_truncation_by_the_task_is_no_termination():
    _, env = _cart(config=("goal.give_up=0.5",), random_first_age=False)

    @jax.jit
    def play(key):
        state, pool = env.reset(key), env.sample_pool(key)
        return env.step(state, jnp.full((3, 1), 100.0), pool, key)

    state, result = play(jax.random.key(0))
    assert result.truncated.all() and not result.terminated.any()
    # The true successor, not the start of the next episode.
    assert (result.next_obs["state"][:, 0] > 4).all()
    assert (state.packed.obs["state"][:, 0] < 1.5).all()


def test_no_two_episodes_have_the_same_noise():
    """64 episodes of 3 environments start in a pool of 2 states."""
    _, env = _cart(reset_pool=2, random_first_age=False)

    @jax.jit
    def play(key):
        pool = env.sample_pool(key)

        def step(state, key):
            state, result = env.step(state, jnp.zeros((3, 1)), pool, key)
            return state, result.next_obs["state"][:, 1]

        return jax.lax.scan(step, env.reset(key, pool), jax.random.split(key, 64 * 6))[1]

    noise = np.asarray(play(jax.random.key(0))).reshape(64, 6, 3).transpose(0, 2, 1).reshape(-1, 6)
    assert len(np.unique(noise, axis=0)) == 64 * 3


def test_the_task_s_own_configuration_is_changed_by_path():
    _, env = _cart(config=("goal.distance=0.5", "episode_length=4"))
    assert env.env.inner.unwrapped._task._config.goal.distance == 0.5
    assert env.episode_length == 4


def test_a_class_that_needs_its_configuration_gets_its_module_s():
    env = registry.make("tests.helpers.playground_task:NeedsConfig")
    assert env.unwrapped._task._config.impl == "jax"


def test_changes_do_not_reach_the_next_task_of_the_same_class():
    """Playground's own classes have a configuration as the default of an argument."""
    changed = TaskConfig(config=("episode_length=4", "goal.distance=9.0"))
    name = "tests.helpers.playground_task:SharedDefault"
    assert registry.make(name, None, changed).episode_length == 4
    assert registry.make(name).episode_length == 6
    assert registry.make(name)._task._config.goal.distance == 0.25


def test_another_action_repeat_than_the_task_s_is_reported(capsys):
    _cart(config=("action_repeat=2",), action_repeat=1)[1].template  # noqa: B018
    assert "made for --task.action-repeat 2, not 1" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("goal.distanc=1",), "no 'goal.distanc'. Did you mean 'goal.distance'"),
        (("goal.distance=near",), "goal.distance|distance"),
        (("goal",), "write noise.level=0.3, not 'goal'"),
        (("impl=warp",), "needs the package warp-lang"),
    ],
)
def test_wrong_changes_of_the_configuration_are_named(words, message):
    with pytest.raises(UserError, match=message) as caught:
        _cart(config=words)[1].template  # noqa: B018
    assert "--task." in str(caught.value)


def test_unknown_names_get_the_nearest():
    with pytest.raises(UserError, match="Did you mean 'playground:CheetahRun'"):
        registry.make("playground:CheetaRun")
    with pytest.raises(UserError, match="Did you mean 'playground:CheetahRun'"):
        presets.get("playground:CheetaRun")


def test_an_argument_that_jax_has_dropped_still_clips():
    """Two tasks name it."""
    np.testing.assert_array_equal(
        playground_patches._clip(jnp.array([-3.0, 3.0]), a_max=1.0), [-3, 1]
    )
    np.testing.assert_array_equal(playground_patches._clip(jnp.array([-3.0, 3.0]), -1, 2), [-1, 2])
    np.testing.assert_array_equal(
        playground_patches._clip(jnp.array([-3.0, 3.0]), -1, a_max=2), [-1, 2]
    )


def test_only_warnings_of_deprecated_parts_are_dropped(capfd):
    model = """<mujoco><compiler settotalmass="1"/><worldbody><body><joint type="slide"/>
      <geom size="1"/></body></worldbody></mujoco>"""
    with playground_patches.quiet():
        mujoco.MjModel.from_xml_string(model)
        playground_patches._print_unless_deprecated("unstable simulation")
    assert capfd.readouterr().err == "warning: MuJoCo: unstable simulation\n"
    mujoco.MjModel.from_xml_string(model)
    assert "deprecated" in capfd.readouterr().err


def test_a_missing_package_is_named(monkeypatch):
    monkeypatch.setattr(playground_patches.importlib.util, "find_spec", lambda _: None)
    with pytest.raises(UserError, match=r"'\.\[playground\]'"):
        playground.make("playground:CheetahRun", TaskConfig())


# Robots


@pytest.fixture
def no_clone(monkeypatch):
    """Fail if anything is downloaded."""

    def refuse(*arguments, **_):
        raise AssertionError(f"{arguments} was started")

    monkeypatch.setattr(subprocess, "Popen", refuse)
    monkeypatch.setattr(subprocess, "run", refuse)
    monkeypatch.delenv(playground.MENAGERIE_VARIABLE, raising=False)


def test_missing_robots_are_not_downloaded(no_clone, tmp_path, monkeypatch):
    go1 = "playground:Go1JoystickFlatTerrain"
    with pytest.raises(
        UserError, match=r"unitree_go1 of mujoco_menagerie.*git clone.*--task.assets"
    ):
        registry.make(go1, None, TaskConfig(assets=tmp_path))
    monkeypatch.setenv(playground.MENAGERIE_VARIABLE, str(tmp_path))
    with pytest.raises(UserError, match=str(tmp_path)):
        registry.make(go1)
    monkeypatch.delenv(playground.MENAGERIE_VARIABLE)
    if not playground.find_menagerie(None).exists():
        with pytest.raises(UserError, match="unitree_go1"):
            registry.make(go1)


@pytest.mark.parametrize(
    "name", ["Go1JoystickFlatTerrain", "BarkourJoystick", "PandaPickCube", "AlohaHandOver"]
)
def test_an_incomplete_copy_is_named(name, no_clone, tmp_path):
    for folder in playground.menagerie_folders(name):
        (tmp_path / folder / "assets").mkdir(parents=True)
    with pytest.raises(UserError, match=r"is incomplete: '.+' .*is missing"):
        registry.make(f"playground:{name}", None, TaskConfig(assets=tmp_path))


def test_custom_task_reads_the_same_robots(no_clone, tmp_path):
    """The file of an incomplete copy is named; a file of the user's own is not taken for one."""
    (tmp_path / "unitree_go1" / "assets").mkdir(parents=True)
    task = TaskConfig(assets=tmp_path)
    with pytest.raises(UserError, match=r"incomplete: 'unitree_go1/assets/\w+.stl' is missing"):
        registry.make("tests.helpers.playground_task:OwnGo1", None, task)
    with pytest.raises(ValueError, match="mine.xml"):
        registry.make("tests.helpers.playground_task:LostModel", None, task)


def test_missing_assets_folder_falls_back_to_env_variable(tmp_path, monkeypatch):
    """As where a run is evaluated on another machine than it was trained on."""
    monkeypatch.setenv(playground.MENAGERIE_VARIABLE, str(tmp_path))
    assert playground.find_menagerie(tmp_path / "gone") == tmp_path
    monkeypatch.delenv(playground.MENAGERIE_VARIABLE)
    if not playground.find_menagerie(None).exists():
        assert playground.find_menagerie(tmp_path / "gone") == tmp_path / "gone"


def test_the_folder_is_stored_as_an_absolute_path(monkeypatch):
    monkeypatch.setenv("HOME", "/somewhere")
    assert str(TaskConfig(assets=Path("~/robots")).assets) == "/somewhere/robots"
    assert TaskConfig(assets=Path("robots")).assets == Path.cwd() / "robots"


@pytest.mark.parametrize("name", [*env_names.LOCOMOTION, *env_names.MANIPULATION])
def test_every_robot_s_folder_is_known(name):
    assert playground.menagerie_folders(name)


# Domain randomisation


def test_a_randomiser_of_batches_randomises_one_model():
    model = registry.make(CART).sys
    one = playground.unbatched(playground_task.randomize)
    masses = {float(one(model, jax.random.PRNGKey(i)).body_mass[1]) for i in range(5)}
    assert len(masses) == 5 and all(1 <= mass <= 4 for mass in masses)
    again = one(model, jax.random.PRNGKey(0))
    assert again.body_inertia is model.body_inertia and again.body_mass.shape == (2,)


def test_evaluations_have_the_model_s_physics_unless_asked(monkeypatch):
    """Training samples masses; an evaluation starts with 2 kg, or samples too."""
    monkeypatch.setattr(
        factory, "_randomizer", lambda _: playground.unbatched(playground_task.randomize)
    )
    _, env = _cart(randomize="anything:else")

    @jax.jit
    def masses(key):
        envs = (
            env,
            factory.for_evaluation(env, 3),
            factory.for_evaluation(env, 3, randomize=True),
        )
        return [each.reset(key).packed.obs["privileged_state"][:, 2] for each in envs]

    trained, nominal, randomized = map(np.asarray, masses(jax.random.key(0)))
    np.testing.assert_array_equal(nominal, 2)
    assert len(np.unique(trained)) == len(np.unique(randomized)) == 3


@pytest.mark.parametrize("randomize", [False, True])
def test_evaluation_uses_nominal_physics_by_default(randomize, monkeypatch):
    monkeypatch.setattr(
        factory, "_randomizer", lambda _: playground.unbatched(playground_task.randomize)
    )
    config, _ = _cart(randomize="anything:else")
    config = overrides.changed(
        config, {"eval.randomize": randomize, "devices": 1, "ppo.num_minibatches": 1}
    )
    sample = device._Pure(programs.build_device(config)).sample

    def masses(stream):
        leaves = jax.jit(sample)(np.uint32(0), np.uint32(stream), np.uint32(0), (), ())
        mass = next(leaf for leaf in leaves if leaf.shape == (3, 3))
        return np.asarray(mass)[:, 2]

    assert len(np.unique(masses(streams.TRAIN))) == 3
    assert len(np.unique(masses(streams.EVALUATE))) == (3 if randomize else 1)


def test_tasks_without_a_randomiser_say_which_have_one(tasks):
    with pytest.raises(UserError, match=r"no randomiser of its own; these have:.*Go1"):
        playground.randomizer("playground:CheetahRun")


def test_only_tasks_of_playground_have_one():
    config = replace(presets.get("cartpole"), task=TaskConfig(randomize="playground"))
    with pytest.raises(UserError, match="not a MuJoCo Playground task"):
        factory.build(config)


# The commands


def test_train_evaluate_render_and_export_a_task(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    run = tmp_path / "run"
    env = ["--env", CART, "--task.randomize", "tests.envs.test_playground:heavier"]
    assert train.main([*env, *SMALL, "--run-dir", str(run)]) == 0
    assert evaluate.main([str(run), *env, "--episodes", "5"]) == 0
    printed = capsys.readouterr().out
    assert "with the randomised physics of training:" in printed and "success_rate" in printed
    assert render.main([str(run), *env, "--out", "cart.html"]) == 0
    assert (tmp_path / "cart.html").stat().st_size > 10_000
    assert export.main([str(run)]) == 0
    policy, state = load.load_policy(run), np.ones((3, 2), np.float32)
    action = policy({"state": state})  # what only the critic sees may be left out
    whole = policy({"state": state, "privileged_state": np.ones((3, 3), np.float32)})
    assert action.shape == (3, 1)
    np.testing.assert_array_equal(action, whole)


def heavier(model, key):
    mass = model.body_mass.at[1].set(jax.random.uniform(key, minval=3.0, maxval=4.0))
    return model.replace(body_mass=mass)
