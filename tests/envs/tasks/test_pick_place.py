"""The pick-and-place task: grip, rewards, termination, start states and curriculum."""

import dataclasses
from types import SimpleNamespace

import jax
import jax.numpy as jnp
import mujoco
import numpy as np
import pytest

from jaxrl.config import PickConfig
from jaxrl.envs.env_state import strong, typed_like
from jaxrl.envs.tasks.pick_place import arm, reward
from jaxrl.envs.tasks.pick_place import env as pick_place
from jaxrl.envs.tasks.pick_place.arm import HOME, Pose
from jaxrl.envs.tasks.pick_place.env import CUBE, TARGET, PickPlace
from jaxrl.envs.tasks.pick_place.reward import Snapshot, Task
from tests.helpers.playing import in_physics

CONFIG = PickConfig()
# Joint angles with the cup on top of a cube in the usual place, pointing down.
ABOVE = np.float32([-0.291, 0.921, 0.0, -1.733, 0.0, 0.488, 0.0])
ON, OFF = 1.0, -1.0
FIXED = ("geom_xpos", "geom_xmat", "site_xpos", "site_xmat")


@pytest.fixture(scope="module")
def env():
    return PickPlace(CONFIG)


@pytest.fixture(scope="module")
def play(env):
    """Compile each function once, since compiling physics is slow."""

    def step(state, action):
        return typed_like(env.step(state, action), state)

    functions = {"step": step, "start": lambda *given: strong(env.start(*given))}
    return SimpleNamespace(**{name: in_physics(jax.jit(f)) for name, f in functions.items()})


def _action(suction, *speeds):
    return jnp.asarray([*speeds, *[0.0] * (7 - len(speeds)), suction], jnp.float32)


def _begin(play, joints=HOME, cube=CUBE.usual, target=TARGET.usual):
    return play.start(*(jnp.asarray(given, jnp.float32) for given in (joints, cube, target)))


def _at_cube(play, target=TARGET.usual):
    """Start with the cup at the cube, instead of at home."""
    return _begin(play, joints=ABOVE, target=target)


def _repeat(play, state, action, number):
    for _ in range(number):
        state = play.step(state, action)
    return state


def _cube(state):
    return np.asarray(state.pipeline_state.qpos[7:10])


def test_kinematics_match_mujoco(env):
    random, theirs = np.random.default_rng(0), mujoco.MjData(env.arm.model)

    @jax.jit
    def kinematics(qpos):
        return env.arm._chain.kinematics(env.arm._data(Pose(qpos, jnp.zeros(13), jnp.zeros(13))))

    for _ in range(3):
        qpos = random.normal(size=14).astype(np.float32)
        qpos[10:] /= np.linalg.norm(qpos[10:])
        ours = kinematics(qpos)
        theirs.qpos[:] = qpos
        mujoco.mj_kinematics(env.arm.model, theirs)
        for name in ("xanchor", "xaxis", "xpos", "xquat", "xmat", "xipos", "ximat", *FIXED):
            expected = getattr(theirs, name)
            got = np.asarray(getattr(ours, name)).reshape(expected.shape)
            np.testing.assert_allclose(got, expected, atol=1e-5, err_msg=name)


def test_arm_dimensions_and_masses_match_the_robot():
    model = mujoco.MjModel.from_xml_path(str(arm.MODEL))
    data = mujoco.MjData(model)
    mujoco.mj_kinematics(model, data)
    assert data.body("link_7").xpos == pytest.approx([0, 0, 1.261])  # straight up
    data.qpos[[3, 5]] = -np.pi / 2, np.pi / 2
    mujoco.mj_kinematics(model, data)
    assert data.body("link_7").xpos == pytest.approx([0.4, 0, 0.699])  # elbow and wrist bent
    masses = model.body_mass[1:8]
    np.testing.assert_allclose(masses, [4, 4, 3, 2.7, 1.7, 1.8, 0.33], atol=1e-9)


def test_commanded_speeds_are_reached_within_joint_limits(play):
    state = _begin(play)
    state = _repeat(play, state, _action(OFF, 0.5, 0, 0, 0, 0, 0, -1.0), 5)
    speeds = state.pipeline_state.qvel[:7]
    np.testing.assert_allclose(speeds, [0.75, 0, 0, 0, 0, 0, -1.5], atol=0.05)
    state = _repeat(play, state, _action(OFF, 0, 0, 0, 0, 0, 0, -1.0), 70)
    assert -3.06 < state.pipeline_state.qpos[6] < -3.0


def test_held_cube_follows_and_released_cube_falls(play):
    state = play.step(_at_cube(play), _action(ON))
    assert state.info["held"] and state.metrics["held"] == 1
    state = _repeat(play, state, _action(0.0, 0, -0.5), 12)  # lift with a suction command of 0
    assert state.info["held"] and _cube(state)[2] > 0.15
    gap = np.linalg.norm(_cube(state) - np.asarray(state.info["tip"]))
    assert gap == pytest.approx(arm.TOUCHING, abs=0.005)
    height = _cube(state)[2]
    state = play.step(state, _action(OFF))
    assert not state.info["held"] and state.metrics["drops"] == 1
    state = _repeat(play, state, _action(OFF), 40)
    assert _cube(state)[2] == pytest.approx(0.025, abs=0.003) and height > 0.15
    assert abs(state.pipeline_state.qvel[9]) < 0.05  # at rest on the table


def test_grasp_preserves_the_cubes_orientation(play):
    """With a slanted cup, the cube stays level and is pulled in until it touches."""
    slanted = [-0.677, 0.906, 0.371, -2.017, 0.624, -0.158, 0.8]  # 24 degrees
    state = play.step(_begin(play, joints=slanted), _action(ON))
    assert state.info["held"]
    state = _repeat(play, state, _action(ON), 10)
    assert abs(state.pipeline_state.qpos[10]) > 0.995  # still level
    assert np.max(np.abs(state.pipeline_state.qvel[7:])) < 0.2
    state = _repeat(play, state, _action(ON, 0, -0.5), 10)
    gap = np.linalg.norm(_cube(state) - np.asarray(state.info["tip"]))
    assert _cube(state)[2] > 0.12 and gap == pytest.approx(arm.TOUCHING, abs=0.005)


def test_held_cube_pressed_onto_the_table_is_stable(play):
    state = play.step(_at_cube(play), _action(ON))
    fastest, lowest = 0.0, 1.0
    for _ in range(25):
        state = play.step(state, _action(ON, 0, 0.5, 0, 0, 0, 0.5))
        fastest = max(fastest, np.max(np.abs(state.pipeline_state.qvel[7:10])))
        lowest = min(lowest, _cube(state)[2])
    assert state.info["held"] and fastest < 1.5 and lowest > 0.005


def test_cup_grips_only_when_near_and_on(play):
    far = _begin(play)
    assert not play.step(far, _action(ON)).info["held"]
    near = _at_cube(play)
    assert not play.step(near, _action(OFF)).info["held"]
    assert not play.step(near, _action(-0.1)).info["held"]


def test_cube_is_at_rest_until_gripped(play):
    state = _begin(play)
    state = _repeat(play, state, _action(ON, 0.3), 20)
    np.testing.assert_allclose(_cube(state), CUBE.usual, atol=1e-3)


def test_few_solver_iterations_match_many(play):
    """Grasp, lift and carry against MuJoCo with many solver iterations."""
    model = mujoco.MjModel.from_xml_path(str(arm.MODEL))
    model.opt.timestep, model.opt.iterations, model.opt.ls_iterations = 0.04 / 20, 100, 50
    data = mujoco.MjData(model)
    data.qpos[:7], data.qpos[7:10] = ABOVE, CUBE.usual
    state = _at_cube(play)
    data.eq_active[0], model.eq_data[0, 3:10] = 1, state.info["grip"]
    for _ in range(25):
        speeds = [0.3, -0.4, 0, 0.2, 0, 0, 0]
        state = play.step(state, _action(ON, *speeds))
        data.ctrl[:] = 1.5 * np.asarray(speeds)
        mujoco.mj_step(model, data, 20)
    np.testing.assert_allclose(state.pipeline_state.qpos[:7], data.qpos[:7], atol=0.02)
    np.testing.assert_allclose(_cube(state), data.qpos[7:10], atol=0.02)


def test_cube_held_at_the_target_is_a_success(play):
    cube = np.asarray(CUBE.usual)
    state = _at_cube(play, target=cube + [0, 0, 0.045])
    after = _repeat(play, state, _action(ON), CONFIG.hold - 1)
    assert after.metrics["success"] == 0 and after.done == 0 and after.info["held"]
    after = play.step(after, _action(ON))
    assert after.metrics["success"] == 1 and after.done == 1 and not after.info["held"]
    assert after.metrics["reward_success"] == CONFIG.success_reward
    unheld = _repeat(play, state, _action(OFF), CONFIG.hold)
    assert unheld.metrics["success"] == 0 and unheld.done == 0


def test_cube_out_of_reach_terminates_without_success(play):
    state = _begin(play, cube=[1.1, 0.0, 0.025])
    state = play.step(state, _action(OFF))
    assert state.done == 1 and state.metrics["success"] == 0
    assert state.metrics["reward_drop"] == -CONFIG.drop_cost


def test_observation_layout(env, play):
    state = play.step(_at_cube(play), _action(ON))
    joints, speeds, tip, cube, target, to_cube, to_target, held, stayed = np.split(
        np.asarray(state.obs), np.cumsum([7, 7, 3, 3, 3, 3, 3, 1])
    )
    pose = state.pipeline_state
    np.testing.assert_array_equal(joints, pose.qpos[:7])
    np.testing.assert_array_equal(speeds, pose.qvel[:7])
    np.testing.assert_array_equal(cube, _cube(state))
    np.testing.assert_allclose(target, TARGET.usual)
    np.testing.assert_allclose(to_cube, cube - tip, atol=1e-7)
    np.testing.assert_allclose(to_target, target - cube, atol=1e-7)
    assert held == 1 and stayed == 0 and state.obs.shape == (env.observation_size,)


TASK = Task(target=jnp.asarray([0.5, 0.4, 0.125]), start=jnp.asarray([0.5, 0.0, 0.025]))


def _snapshot(tip, cube, held):
    return Snapshot(jnp.asarray(tip), jnp.asarray(cube), jnp.asarray(held))


def _terms(before, now, success=False, lost=False):
    rewards = reward.terms(
        CONFIG, before, now, TASK, jnp.asarray(success, float), jnp.asarray(lost)
    )
    return {
        name: pytest.approx(float(value), abs=1e-4) for name, value in rewards._asdict().items()
    }


def test_approach_reward_is_symmetric():
    far = _snapshot([0.5, 0.0, 0.325], TASK.start, False)
    near = _snapshot([0.5, 0.0, 0.125], TASK.start, False)
    nothing = {"grasp": 0, "lift": 0, "place": 0, "success": 0, "drop": 0, "time": -0.02}
    assert _terms(far, near) == nothing | {"approach": 0.2 * 5}
    assert _terms(near, far) == nothing | {"approach": -0.2 * 5}


def test_grasp_lift_and_place_rewards():
    free = _snapshot([0.5, 0.0, 0.065], TASK.start, False)
    held = _snapshot([0.5, 0.0, 0.065], TASK.start, True)
    up = _snapshot([0.5, 0.0, 0.165], [0.5, 0.0, 0.125], True)
    there = _snapshot([0.5, 0.4, 0.165], TASK.target, True)
    begun, lifted, carried = _terms(free, held), _terms(held, up), _terms(up, there, success=True)
    assert begun["grasp"] == 2.0 and begun["approach"] == 0.04 * 5 and begun["lift"] == 0.0
    assert lifted["lift"] == 1.0 and lifted["grasp"] == 0.0 and lifted["approach"] == 0.0
    assert lifted["place"] == 5 * (np.hypot(0.4, 0.1) - 0.4)
    assert carried["place"] == 5 * 0.4 and carried["success"] == 10.0 and carried["lift"] == 0.0


def test_dropping_reverses_rewards_and_costs_extra():
    up = _snapshot([0.5, 0.2, 0.165], [0.5, 0.2, 0.125], True)
    dropped = _terms(up, up._replace(held=jnp.asarray(False)))
    assert dropped["grasp"] == -2.0 and dropped["lift"] == -1.0 and dropped["drop"] == -0.5
    assert dropped["place"] == -5 * (np.hypot(0.4, 0.1) - 0.2)


def _starts(difficulty, level=None):
    env = PickPlace(dataclasses.replace(CONFIG, difficulty=difficulty))
    given = () if level is None else ({"level": jnp.float32(level)},)
    keys = jax.random.split(jax.random.key(0), 500)
    states = in_physics(jax.jit(jax.vmap(lambda key: env.reset(key, *given))))(keys)
    joints = np.asarray(states.pipeline_state.qpos[:, :7])
    assert 0.028 < np.max(np.abs(joints - HOME)) <= 0.03 + 1e-6
    return np.asarray(states.info["start"]), np.asarray(states.info["target"])


def _assert_spread(places, area, level):
    usual, low, high = (np.asarray(corner) for corner in area)
    near, far = usual + level * (low - usual), usual + level * (high - usual)
    assert np.all(places >= near - 1e-5) and np.all(places <= far + 1e-5)
    np.testing.assert_allclose(places.min(0), near, atol=0.02 * level + 1e-6)
    np.testing.assert_allclose(places.max(0), far, atol=0.02 * level + 1e-6)


@pytest.mark.parametrize(
    "difficulty, level, cube, target",
    [
        ("easy", None, 0.0, 0.0),
        ("medium", None, 1.0, 0.0),
        ("hard", None, 1.0, 1.0),
        ("curriculum", 0.3, 0.3, 0.3),
        ("curriculum", None, 1.0, 1.0),  # as in evaluation
    ],
)
def test_difficulty_sets_the_spread_of_cube_and_target(difficulty, level, cube, target):
    cubes, targets = _starts(difficulty, level)
    _assert_spread(cubes, CUBE, cube)
    _assert_spread(targets, TARGET, target)


def test_curriculum_level_grows_with_success_and_never_shrinks():
    env = PickPlace(dataclasses.replace(CONFIG, difficulty="curriculum", raise_by=0.4))
    now, seen = env.first_curriculum(), []
    assert now["level"] == np.float32(pick_place.FIRST_LEVEL)
    for rate in (0.79, 0.81, 0.0, 0.9, None, 1.0, 0.2):
        metrics = {} if rate is None else {"rollout/success_rate": rate}
        now, logged = env.update_curriculum(now, metrics)
        seen.append(logged["level"])
    assert seen == pytest.approx([0.1, 0.5, 0.5, 0.9, 0.9, 1.0, 1.0])
    assert now["level"].dtype == np.float32 and env.last_curriculum() == {"level": 1.0}


@pytest.mark.parametrize("difficulty", ["easy", "medium", "hard"])
def test_fixed_difficulties_have_no_curriculum(difficulty):
    env = PickPlace(dataclasses.replace(CONFIG, difficulty=difficulty))
    assert env.first_curriculum() == env.last_curriculum() == ()


def test_render_state_and_start_position(env, play):
    state = _begin(play, cube=(0.4, -0.2, 0.025), target=(0.5, 0.1, 0.2))
    shown = env.render_state(state)
    assert shown["qpos"].shape == (env.mj_model.nq,)
    assert shown["mocap_pos"].shape == (env.mj_model.nmocap, 3)
    np.testing.assert_allclose(shown["mocap_pos"][0], [0.5, 0.1, 0.2])
    np.testing.assert_allclose(env.start_position(state), [0.4, -0.2])
