"""Planning on JAX's device: the same search as that of one clip on the CPU, in MJX."""

import jax
import jax.numpy as jnp
import mujoco
import numpy as np
import pytest

from jaxrl.clips import plan as plan_command
from jaxrl.config.mppi import MPPIConfig
from jaxrl.motion import batched_mppi, library, mppi, synthetic
from jaxrl.motion.batched_mppi import BatchedPlanner
from jaxrl.motion.clip import Clip
from jaxrl.motion.formats import native
from jaxrl.motion.humanoid import Humanoid

FPS, FRAMES = 30.0, 16
SEARCH = MPPIConfig(samples=64, frames=5, rounds=2)
# A box that floats, and swings an arm by a weak servo. What touches a floor takes long to compile.
ARM = """<mujoco>
  <option gravity="0 0 0"/>
  <worldbody>
    <body name="box">
      <freejoint/>
      <geom type="box" size="0.3 0.3 0.1" mass="20"/>
      <body name="arm" pos="0 0 0.1">
        <joint name="arm" axis="0 1 0"/>
        <geom type="capsule" fromto="0 0 0 0.4 0 0" size="0.03" mass="1"/>
      </body>
    </body>
  </worldbody>
  <contact><exclude body1="box" body2="arm"/></contact>
  <actuator><position name="arm" joint="arm" kp="30" kv="2" ctrlrange="-2 2"/></actuator>
</mujoco>"""


@pytest.fixture(scope="module")
def humanoid():
    return Humanoid(mujoco.MjModel.from_xml_string(ARM), FPS, 2)


@pytest.fixture(scope="module")
def clips(humanoid):
    """A swing, its beginning, and one that makes the physics diverge."""
    qpos = np.zeros((FRAMES, 8))
    qpos[:, 3] = 1.0
    qpos[:, 7] = 0.8 * np.sin(4.0 * np.pi * np.arange(FRAMES) / FPS)
    built = library.build([Clip("swing", FPS, False, qpos)], humanoid.model, FPS)
    swing = jax.tree.map(np.asarray, built.captured)
    wild = swing._replace(qvel=swing.qvel * np.float32(1e12) + np.float32(1e12))
    return swing, *(jax.tree.map(lambda x: x[:6], clip) for clip in (swing, wild))


@pytest.fixture(scope="module")
def planner(humanoid):
    return BatchedPlanner(humanoid, SEARCH)


@pytest.fixture(scope="module")
def plans(planner, clips):
    ticks = []
    found = planner.plan(clips, lambda: ticks.append(None))
    assert len(ticks) == FRAMES - 1
    return found


def _simulated(humanoid, clip, targets):
    """Return the poses [F, nq] that MuJoCo reaches."""
    data = mujoco.MjData(humanoid.model)
    data.qpos[:], data.qvel[:] = clip.qpos[0], clip.qvel[0]
    poses = [data.qpos.copy()]
    for target in targets[1:]:
        data.ctrl[:] = np.clip(target, humanoid.low, humanoid.high)
        mujoco.mj_step(humanoid.model, data, humanoid.substeps)
        poses.append(data.qpos.copy())
    return np.array(poses)


def test_mujoco_reproduces_the_plans(humanoid, clips, plans):
    for clip, plan in zip(clips[:2], plans[:2], strict=True):
        assert plan.qpos.shape == clip.qpos.shape and plan.substeps == humanoid.substeps
        targets = mppi.servo_targets(humanoid, plan.qpos, plan.qvel) + plan.feedforward
        np.testing.assert_allclose(plan.qpos, _simulated(humanoid, clip, targets), atol=2e-3)
        np.testing.assert_array_equal(plan.qpos[0], np.float64(clip.qpos[0]))


def test_plans_are_as_good_as_those_of_one_clip_at_a_time(humanoid, clips, plans):
    """Errors of the arm: servos alone cannot turn it around fast enough."""
    swing = clips[0]
    alone = _simulated(humanoid, swing, mppi.servo_targets(humanoid, swing.qpos, swing.qvel))
    one = mppi.Planner(humanoid, SEARCH).plan(swing)
    error, of_one, of_all = (
        np.abs(qpos[:, 7] - swing.qpos[:, 7]).mean() for qpos in (alone, one.qpos, plans[0].qpos)
    )
    assert of_all < 0.5 * error and of_all < 1.3 * of_one, (error, of_one, of_all)


def test_diverging_physics_gives_no_plan_of_that_clip(plans):
    assert plans[2] is None


def test_goals_are_those_of_the_search_of_one_clip(humanoid, planner, clips):
    padded = planner._padded(clips)
    for number, clip in enumerate(clips):
        servos = mppi.servo_targets(humanoid, clip.qpos, clip.qvel)
        for frame in (1, len(clip.qpos) - 1):
            one = jax.tree.map(lambda x, number=number: x[number], padded)
            found = batched_mppi._goal(one, frame, SEARCH.frames)
            expected = mppi.goal_of(clip, servos, frame, SEARCH.frames)
            jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-6), found, expected)


def test_noise_and_average_are_those_of_the_search_of_one_clip():
    random = np.random.default_rng(0)
    noise = random.normal(size=(3, 7, 2))
    mixed = np.einsum("fg,sgu->sfu", batched_mppi.correlation_matrix(7), noise)
    np.testing.assert_allclose(mixed, mppi.correlate(noise), rtol=1e-12)
    samples, cost = random.normal(size=(20, 4, 2)), random.uniform(size=20)
    cost[3] = np.nan
    found = batched_mppi._average(jnp.float32(samples), jnp.asarray(cost))
    np.testing.assert_allclose(found, mppi.average(samples, cost), rtol=1e-4, atol=1e-5)


def test_command_plans_clips_of_similar_lengths_together(tmp_path, bones, monkeypatch, capsys):
    batches = []

    class Recording:
        def __init__(self, humanoid, config):
            pass

        def plan(self, clips, tick):
            batches.append([len(clip.qpos) for clip in clips])
            return [None] * len(clips)

    monkeypatch.setattr(batched_mppi, "BatchedPlanner", Recording)
    clip = synthetic.stepping(bones, seconds=0.5)._replace(loops=False)
    for name, frames in {"a": 5, "b": 3, "c": 4}.items():
        native.write(tmp_path / f"{name}.npz", clip._replace(qpos=clip.qpos[:frames]), bones)
    given = [str(tmp_path), str(tmp_path / "out"), "--physics", "mjx", "--at-once", "2"]
    assert plan_command.main(given) == 0
    assert batches == [[3, 4], [5]]
    assert capsys.readouterr().out.count("no plan found") == 3
