"""The imitation task: observations, rewards, start states and termination."""

import copy
import dataclasses
import functools
from types import SimpleNamespace

import jax
import jax.numpy as jnp
import mujoco
import numpy as np
import pytest
from scipy.spatial.transform import Rotation

from jaxrl.config import MotionConfig
from jaxrl.envs.env_state import strong, typed_like
from jaxrl.envs.tasks import motion_env
from jaxrl.envs.tasks.imitation import Imitation, next_frame
from jaxrl.errors import UserError
from jaxrl.evaluation.episodes import Episodes
from jaxrl.motion import clip_sampling, skeleton, synthetic
from jaxrl.motion import library as libraries
from jaxrl.motion.clip import Plan
from jaxrl.motion.formats import native
from jaxrl.motion.humanoid import Humanoid
from jaxrl.physics.precision import physics
from tests.helpers.playing import in_physics

FPS = 30.0
STEPS = 4  # of the short clip: it has one frame more


@pytest.fixture(scope="module")
def env():
    """Three clips: two seconds that move and rotate, five frames, and five frames with a plan."""
    model = skeleton.load_model()
    clip = synthetic.stepping(skeleton.describe(model))
    time, qpos = np.arange(len(clip.qpos)) / FPS, clip.qpos.copy()
    qpos[:, 0] += 0.1 * time
    qpos[:, 3], qpos[:, 6] = np.cos(0.1 * time), np.sin(0.1 * time)
    short = clip._replace(name="short", qpos=clip.qpos[: STEPS + 1], loops=False)
    humanoid = Humanoid(model, FPS, 4)
    planned = short._replace(name="planned", plan=_plan(humanoid, clip.qpos[0]))
    library = libraries.build([clip._replace(qpos=qpos), short, planned], model, FPS)
    return Imitation(MotionConfig(substeps=4), humanoid, library)


def _plan(humanoid, qpos):
    """Return the plan that MuJoCo executes for random servo targets."""
    data = mujoco.MjData(humanoid.model)
    data.qpos[:] = qpos
    data.ctrl[:] = np.random.default_rng(0).uniform(-0.4, 0.4, 28)
    data.ctrl[:] = np.clip(data.ctrl, humanoid.low, humanoid.high)
    states = [(data.qpos.copy(), data.qvel.copy())]
    for _ in range(STEPS):
        mujoco.mj_step(humanoid.model, data, humanoid.substeps)
        states.append((data.qpos.copy(), data.qvel.copy()))
    qpos, qvel = (np.array(x) for x in zip(*states, strict=True))
    servo_targets = jax.vmap(humanoid.servo_target)(jnp.array(qpos), jnp.array(qvel))
    return Plan(qpos, qvel, data.ctrl - np.asarray(servo_targets), humanoid.substeps)


@pytest.fixture(scope="module")
def play(env):
    """Compile each function once, since compiling physics is slow."""

    def step(state, action):
        return typed_like(env.step(state, action), state)

    functions = {
        "step": step,
        "begin": lambda *given: strong(env._start(*given)),
        "record": env.record,
        "render_state": env.render_state,
    }
    return SimpleNamespace(**{name: in_physics(jax.jit(f)) for name, f in functions.items()})


def _at(play, clip=0, time=0.0, yaw=0.0, is_trial=False):
    place = {"clip": np.int32(clip), "time": np.float32(time), "yaw": np.float32(yaw)}
    return play.begin(place, np.float32(is_trial))


def _trial_start(env, play, clip):
    """Return `env.trial(clip)`, by the compiled start."""
    other = copy.copy(env)
    other._start = lambda place, is_trial: _at(play, **place, is_trial=is_trial)
    return other.trial(clip)


def _sampled(env, keys, *curriculum):
    """Return the clips, times and yaws [keys] that `env.reset` starts from."""
    other = copy.copy(env)
    other._start = lambda place: tuple(place.values())
    return map(np.asarray, jax.jit(jax.vmap(lambda key: other.reset(key, *curriculum)))(keys))


def _shifted(state, metres, axis=1):
    """Shift the humanoid sideways, or up."""
    pose = state.pipeline_state
    moved = pose.replace(qpos=pose.qpos.at[axis].add(metres))
    return dataclasses.replace(state, pipeline_state=moved)


ZERO_ACTION = jnp.zeros(28)


def test_sizes(env, play):
    assert (env.observation_size, env.action_size, env.num_trials) == (583, 28, 3)
    assert _at(play).obs.shape == (223 + 360,)
    far = Imitation(dataclasses.replace(env.config, future=(1, 5, 15)), env.humanoid, env.library)
    with physics():
        seen = jax.eval_shape(far.trial, jnp.int32(0)).obs
    assert seen.shape == (far.observation_size,) == (223 + 3 * 360,)
    # Longer than the longest clip, so that the clip's end comes first.
    assert env.episode_length >= 60


def test_reset_starts_at_a_frame_of_a_clip(env, play):
    keys = jax.random.split(jax.random.PRNGKey(0), 64)
    clip, time, yaw = _sampled(env, keys, clip_sampling.init(3))
    states = [_at(play, *start) for start in zip(clip, time, yaw, strict=True)]
    found = [jax.device_get(play.record(state)) for state in states]
    state, found = (jax.tree.map(lambda *x: np.stack(x), *each) for each in (states, found))
    for name, value in {"clip": clip, "time": time, "yaw": yaw}.items():
        np.testing.assert_array_equal(state.info[name], value)
    frame = time * FPS
    np.testing.assert_allclose(frame, np.round(frame), atol=1e-4)
    assert set(clip) == {0, 1, 2}
    assert frame.min() >= 0 and (frame <= np.where(clip == 0, 59.01, STEPS - 0.99)).all()
    assert len(set(np.round(frame[clip == 0]))) > 15
    assert yaw.min() < -2 and yaw.max() > 2
    # The humanoid has the clip's pose and velocity.
    qpos, qvel = env.library.reference.qpos, env.library.reference.qvel
    rows = np.asarray(env.library.start)[clip] + np.round(frame).astype(int)
    np.testing.assert_allclose(state.pipeline_state.qpos[:, 7:], qpos[rows][:, 7:], atol=1e-5)
    np.testing.assert_allclose(state.pipeline_state.qvel[:, 3:], qvel[rows][:, 3:], atol=1e-4)
    captured = clip != 2
    np.testing.assert_allclose(found["position"][captured], found["captured"][captured], atol=2e-5)


def test_zero_actions_follow_the_plan_and_reward_uses_the_clip(env, play):
    """With zero actions the servos reproduce MuJoCo's plan; rewards compare with the clip."""
    state, motion = _at(play, clip=2), env.library.reference.position
    clip, plan = (motion[env.library.rows(i)] for i in (1, 2))
    for frame in range(1, STEPS + 1):
        state = play.step(state, ZERO_ACTION)
        found = play.record(state)
        np.testing.assert_allclose(found["position"], plan[frame], atol=2e-3)
        expected = clip[frame]
        np.testing.assert_allclose(found["captured"], expected, atol=1e-6)
    assert float(state.metrics["distance"]) < 2e-3  # distance to the plan
    error = np.mean(np.square(found["position"] - found["captured"]))
    assert error > 1e-3
    term = 0.5 * np.exp(-100.0 * error)
    assert float(state.metrics["reward_position"]) == pytest.approx(term, rel=2e-3)
    ghost = play.render_state(state)["ghost"]
    captured = env.library.captured.qpos[env.library.rows(2)]
    np.testing.assert_allclose(ghost, captured[STEPS], atol=1e-6)


def test_planned_clip_observes_and_terminates_by_its_plan(env, play):
    """Both clips start alike and then differ."""
    seen, planned = _at(play, clip=1).obs, _at(play, clip=2).obs
    assert np.abs(seen[223:] - planned[223:]).max() > 0.05
    # The plan is up to 0.1 m from the clip: 0.2 m from the plan is allowed, 0.3 m is not.
    for metres, lost in ((0.2, False), (0.3, True)):
        state = _shifted(_at(play, clip=2, time=(STEPS - 2) / FPS), metres)
        assert bool(play.step(state, ZERO_ACTION).done) == lost


def test_clips_are_sampled_by_curriculum_weights(env):
    keys = jax.random.split(jax.random.PRNGKey(1), 64)
    only = clip_sampling.init(3).replace(weights=jnp.asarray([0.0, 1.0, 0.0]))
    clip, *_ = _sampled(env, keys, only)
    assert (clip == 1).all()


@pytest.mark.parametrize("start, fraction", [("start", 1.0), ("hybrid", 0.75)])
def test_start_modes_start_at_the_first_frame(env, start, fraction):
    config = dataclasses.replace(
        env.config, start=start, hybrid_fraction=0.75, random_heading=False
    )
    other = Imitation(config, env.humanoid, env.library)
    keys = jax.random.split(jax.random.PRNGKey(2), 400)
    _, time, yaw = _sampled(other, keys)
    # Of uniform starts, one in sixty or one in four is at time 0 by chance.
    assert fraction <= np.mean(time == 0.0) + 0.06 <= fraction + 0.2
    assert (yaw == 0).all()


def test_each_step_advances_time_by_one_frame(play):
    state = _at(play, time=0.5)
    for i in range(1, 4):
        state = play.step(state, ZERO_ACTION)
        assert float(state.info["time"]) == pytest.approx(0.5 + i / FPS, abs=1e-6)
        assert state.info["clip"] == 0 and not state.done


def test_end_of_the_clip_truncates_the_episode(play):
    state = _at(play, clip=1)
    for i in range(1, STEPS + 1):
        state = play.step(state, ZERO_ACTION)
        assert state.done == state.info["truncation"] == (i == STEPS)


def test_exceeding_the_distance_limit_terminates(play):
    """A body more than 0.25 m off terminates, also in the last frame of a clip."""
    near, far = (_shifted(_at(play), metres) for metres in (0.2, 0.3))
    assert not play.step(near, ZERO_ACTION).done
    lost = play.step(far, ZERO_ACTION)
    assert lost.done and not lost.info["truncation"]
    last = play.step(_shifted(_at(play, 1, (STEPS - 1) / FPS), 0.3), ZERO_ACTION)
    assert last.done and not last.info["truncation"]


def test_trial_runs_to_the_clips_end_without_termination(env, play):
    state = _shifted(_trial_start(env, play, 1), 3.0)
    assert state.info["clip"] == 1 and state.info["time"] == 0 and state.info["yaw"] == 0
    for i in range(1, STEPS + 1):
        state = play.step(state, ZERO_ACTION)
        assert state.done == state.info["truncation"] == (i == STEPS)


@pytest.mark.parametrize("yaw", [1.0, -2.7])
def test_observation_and_reward_are_invariant_to_yaw(play, yaw):
    """Observation and reward are the same in any direction, before and after a step.

    The step is in the air: pyramidal friction is not quite isotropic.
    """
    action = jnp.asarray(np.random.default_rng(0).uniform(-0.1, 0.1, 28), jnp.float32)
    plain, turned = _at(play, time=0.5), _at(play, time=0.5, yaw=yaw)
    assert np.abs(plain.pipeline_state.qpos[:7] - turned.pipeline_state.qpos[:7]).max() > 0.05
    np.testing.assert_allclose(turned.obs, plain.obs, atol=2e-5)
    plain, turned = (play.step(_shifted(one, 0.1, axis=2), action) for one in (plain, turned))
    np.testing.assert_allclose(turned.obs, plain.obs, atol=1e-3)
    assert float(turned.reward) == pytest.approx(float(plain.reward), abs=1e-4)


def _body_motion(env, qpos, qvel):
    """Return MuJoCo's positions, rotations, velocities and angular velocities of the bodies."""
    data, motion = mujoco.MjData(env.humanoid.model), np.empty((15, 6))
    data.qpos[:], data.qvel[:] = qpos, qvel
    mujoco.mj_forward(env.humanoid.model, data)
    for body, row in enumerate(motion):
        kind = mujoco.mjtObj.mjOBJ_XBODY
        mujoco.mj_objectVelocity(env.humanoid.model, data, kind, body + 1, row, 0)
    rotations = Rotation.from_quat(data.xquat[1:], scalar_first=True)
    return data.xpos[1:].copy(), rotations, motion[:, 3:], motion[:, :3]


def test_reward_terms_match_mujocos_body_motion(env, play):
    """Recompute each term in float64 with SciPy's rotations."""
    action = jnp.asarray(np.random.default_rng(1).uniform(-0.3, 0.3, 28), jnp.float32)
    start, frame = _at(play, time=0.5), 16
    after = play.step(start, action)
    now = _body_motion(env, after.pipeline_state.qpos, after.pipeline_state.qvel)
    reference = env.library.reference
    expected = _body_motion(env, reference.qpos[frame], reference.qvel[frame])
    errors = [np.mean((a - b) ** 2) for a, b in zip(now, expected, strict=True) if a is not now[1]]
    errors.insert(1, np.mean((now[1] * expected[1].inv()).magnitude() ** 2))
    weights, scales = (0.5, 0.3, 0.1, 0.1), (100.0, 10.0, 0.1, 0.1)
    terms = [w * np.exp(-k * e) for w, k, e in zip(weights, scales, errors, strict=True)]
    names = ("position", "rotation", "velocity", "spin")
    for name, value in zip(names, terms, strict=True):
        assert float(after.metrics[f"reward_{name}"]) == pytest.approx(value, rel=2e-3), name
        assert value < 0.999 * weights[names.index(name)], "the step should not be perfect"
    cost = float(after.metrics["reward_power"])
    assert cost < 0
    assert float(after.reward) == pytest.approx(sum(terms) + cost, abs=1e-3)
    distance = np.linalg.norm(now[0] - expected[0], axis=-1).mean()
    assert float(after.metrics["distance"]) == pytest.approx(distance, rel=1e-3)


def test_power_cost_matches_mujoco(env, play):
    """In the air, where only the servos act, after the same steps in MuJoCo."""
    start = _shifted(_at(play, time=0.5), 0.1, axis=2)
    reference = jax.tree.map(lambda x: x[16], env.library.reference)
    target = np.clip(
        env._target(reference, jnp.zeros(28), ZERO_ACTION), env.humanoid.low, env.humanoid.high
    )
    data = mujoco.MjData(env.humanoid.model)
    data.qpos[:], data.qvel[:] = start.pipeline_state.qpos, start.pipeline_state.qvel
    data.ctrl[:] = target
    for _ in range(env.humanoid.substeps):
        mujoco.mj_step(env.humanoid.model, data)
    assert (np.abs(data.actuator_force) < env.humanoid.model.actuator_forcerange[:, 1]).all()
    watts = np.abs(data.qfrc_actuator * data.qvel).sum()
    cost = float(play.step(start, ZERO_ACTION).metrics["reward_power"])
    assert watts > 1.0 and cost == pytest.approx(-0.0005 * watts, rel=1e-2)


def test_perfect_tracking_earns_the_sum_of_the_weights(env, play):
    """The humanoid is placed on the clip directly, at no power cost."""
    there = _at(play, time=16 / FPS).pipeline_state
    puppet = copy.copy(env.humanoid)
    puppet.move = lambda pose, target: (there, jnp.zeros(()))
    config = dataclasses.replace(env.config, weights=(0.4, 0.3, 0.2, 0.05))
    with physics():
        after = jax.jit(Imitation(config, puppet, env.library).step)(
            _at(play, time=0.5), ZERO_ACTION
        )
    assert float(after.reward) == pytest.approx(0.95, abs=1e-5)
    assert float(after.metrics["distance"]) == pytest.approx(0.0, abs=1e-5)


def test_failed_clips_exceed_the_training_distance(env):
    """The worst body of any valid frame is compared with the configured limit."""
    played = np.zeros((5, 3, 15, 3), np.float32)
    played[4, 0, 3, 0] = 0.26
    played[4, 1, 3, 0] = 9.0  # after the end
    # `captured` is ignored here: training terminates by the distance to `reference`.
    trace = {
        "position": played,
        "reference": np.zeros_like(played),
        "captured": played + 9.0,
    }
    episodes = Episodes(np.zeros(3), np.int32([5, 4, 5]), None, trace)
    after, values = env.update_curriculum_from_trials(env.first_curriculum(), episodes)
    np.testing.assert_allclose(after.failures, [1.0, 0.0, 0.0])
    np.testing.assert_allclose(after.weights, [0.1 + 0.7, 0.1, 0.1], atol=1e-6)
    assert values["max_weight"] == pytest.approx(0.8) and values["failed_clips"] == 1
    wider = dataclasses.replace(env.config, distance=0.3)
    _, values = Imitation(wider, env.humanoid, env.library).update_curriculum_from_trials(
        after, episodes
    )
    assert values["failed_clips"] == 0


def _trial(env, play, clip):
    """Play a clip to its end with zero actions; return its length and the padded trace.

    Evaluation plays all clips in one program, which tests/reports/test_clips.py tests with an
    environment that compiles faster.
    """
    state, found = _trial_start(env, play, clip), []
    while not state.done:
        state = play.step(state, ZERO_ACTION)
        found.append(jax.device_get(play.record(state)))
    more = [found[-1]] * (env.episode_length - len(found))
    return len(found), jax.tree.map(lambda *each: np.stack(each), *found, *more)


def test_trials_play_every_clip_to_its_end_and_report_it(env, play):
    """With zero actions the servos follow the clips well for a while."""
    lengths, traces = zip(*(_trial(env, play, clip) for clip in range(env.num_trials)), strict=True)
    assert lengths == (60, STEPS, STEPS)
    trace = jax.tree.map(lambda *each: np.stack(each, axis=1), *traces)
    assert trace["position"].shape == (env.episode_length, 3, 15, 3)
    long, short = (env.library.reference.position[env.library.rows(i)] for i in (0, 1))
    np.testing.assert_allclose(trace["captured"][:60, 0], long[1:], atol=2e-5)
    np.testing.assert_allclose(trace["captured"][:STEPS, 1], short[1:], atol=2e-5)
    left_out = np.asarray(env.humanoid.skeleton.bodies)[~trace["success_bodies"][0, 0]]
    assert sorted(left_out) == ["left_wrist", "right_wrist"]  # our humanoid has no toes
    episodes = Episodes(np.zeros(3), np.int32(lengths), None, trace)
    clips = env.trial_report(episodes).table
    assert [clip["name"] for clip in clips] == ["stepping", "short", "planned"]
    assert clips[1]["strict_success"] and 0 < clips[1]["mpjpe"] < 50


def test_absolute_actions_span_the_servo_range_around_rest(env):
    humanoid = env.humanoid
    none, full = jnp.zeros(28), jnp.ones(28)
    np.testing.assert_allclose(env.absolute_target(none), humanoid.angles(humanoid.model.qpos0))
    np.testing.assert_allclose(env.absolute_target(full), humanoid.high, rtol=1e-6)
    np.testing.assert_allclose(env.absolute_target(-2.0 * full), humanoid.low, rtol=1e-6)


@pytest.fixture(scope="module")
def varied(env):
    """The same clips, mirrored, and up to a fifth slower or faster; the planned one left out."""
    config = dataclasses.replace(env.config, mirror=True, speed=0.2)
    library = env.library.replace(planned=())
    return Imitation(config, env.humanoid, library)


def test_episodes_vary_in_side_and_speed(env, varied):
    """The start is drawn as before; a slower clip lasts longer, and starts are whole frames."""
    keys = jax.random.split(jax.random.key(0), 300)
    plain, place = (jax.jit(jax.vmap(each.sample_start))(keys) for each in (env, varied))
    assert set(plain) == {"clip", "time", "yaw"}
    np.testing.assert_array_equal(place["clip"], plain["clip"])
    np.testing.assert_array_equal(place["yaw"], plain["yaw"])
    assert 120 < np.sum(place["mirrored"]) < 180
    speed, seconds = np.asarray(place["clip_speed"]), np.asarray(varied.duration(place))
    counts, _ = np.histogram(speed, 4, (0.8, 1.2))
    assert counts.min() > 50
    np.testing.assert_allclose(seconds, libraries.duration(env.library, place["clip"]) / speed)
    frames = np.asarray(place["time"]) * FPS
    np.testing.assert_allclose(frames, np.round(frames), atol=1e-4)
    long = np.asarray(place["clip"]) == 0
    assert np.corrcoef(frames[long], np.asarray(plain["time"])[long] / speed[long])[0, 1] > 0.999
    assert (place["time"] <= seconds - 1 / FPS + 1e-6).all()
    # The slowest 61 frames become 76.25; a frame at both ends is to spare.
    assert varied.episode_length == 77 + 2


def test_references_are_mirrored_and_play_at_their_speed(env, varied):
    place = {"clip": jnp.int32(0), "time": jnp.float32(0.5), "yaw": jnp.float32(0.0)}
    varied_place = place | {"mirrored": jnp.ones(()), "clip_speed": jnp.float32(1.2)}
    look = jax.jit(lambda where: varied.reference(where, 0.25))
    found, plain = look(varied_place), env.reference(place | {"time": jnp.float32(0.75 * 1.2)})
    left, right = (env.humanoid.skeleton.bodies.index(f"{side}_knee") for side in ("left", "right"))
    flip = jnp.array([1.0, -1.0, 1.0])
    np.testing.assert_allclose(found.position[left], flip * plain.position[right], atol=1e-5)
    np.testing.assert_allclose(found.velocity[left], 1.2 * flip * plain.velocity[right], atol=1e-4)
    np.testing.assert_allclose(found.spin[left], -1.2 * flip * plain.spin[right], atol=1e-4)
    assert np.abs(plain.spin[right]).max() > 0.1
    # As it is: the same clip without change, but for the rounding of a compiled program.
    as_is = varied.start_of(jnp.int32(0)) | {"time": jnp.float32(0.5)}
    same = functools.partial(np.testing.assert_allclose, rtol=1e-6, atol=1e-7)
    jax.tree.map(same, look(as_is), env.reference(place, 0.25))


def test_feedforward_of_plans_is_mirrored(env, varied):
    place = {"clip": jnp.int32(2), "time": jnp.float32(2 / FPS), "yaw": jnp.zeros(())}
    place |= {"mirrored": jnp.ones(()), "clip_speed": jnp.ones(())}
    names = [env.humanoid.model.actuator(i).name for i in range(28)]
    found, plain = (
        dict(zip(names, each.feedforward(place), strict=True)) for each in (varied, env)
    )
    assert found["left_knee"] == plain["right_knee"] != plain["left_knee"]
    assert found["left_hip_x"] == -plain["right_hip_x"] and found["chest_y"] == plain["chest_y"]


class _Puppet(Humanoid):
    """No physics: it stays as it is, or takes the pose that the first action asks for."""

    def move(self, pose, target):
        there = jnp.asarray(self.poses)[target[0].astype(jnp.int32)]
        return pose.replace(qpos=jnp.where(target[0] > 0, there, pose.qpos)), jnp.zeros(())


@pytest.fixture(scope="module")
def disturbed(env):
    """Every episode begins lying, and every step has a push; actions are 0 (stay) or a frame."""
    puppet = _Puppet(env.humanoid.model, FPS, 4)
    puppet.poses = env.library.reference.qpos[env.library.rows(0)]
    config = dataclasses.replace(
        env.config,
        **{"push": 0.5, "push_every": 1 / FPS, "fallen_starts": 1.0, "recovery_seconds": 0.2},
        random_heading=False,
        start="start",
    )
    built = Imitation(config, puppet, env.library)
    built._target = lambda reference, feedforward, action: action
    return built


@pytest.fixture(scope="module")
def play_disturbed(disturbed):
    step = in_physics(jax.jit(lambda *given: typed_like(disturbed.step(*given), given[0])))
    return step, in_physics(jax.jit(lambda key: strong(disturbed.reset(key))))


def _first_clip(reset):
    """Return a start in the clip that moves."""
    states = map(reset, jax.random.split(jax.random.PRNGKey(0), 20))
    return next(state for state in states if state.info["clip"] == 0)


def _action(frame):
    return jnp.zeros(28).at[0].set(frame)


def test_clip_waits_while_the_humanoid_stands_up(env, disturbed, play_disturbed):
    step, reset = play_disturbed
    state = _first_clip(reset)
    assert state.pipeline_state.qpos[2] < 0.4 and not state.pipeline_state.qvel.any()
    np.testing.assert_allclose(state.pipeline_state.qpos[:2], 0.0, atol=1e-5)
    assert state.info["recovery"] == pytest.approx(0.2) and state.info["gap"] > 0.3
    lying = step(state, _action(0))
    assert lying.info["time"] == 0.0 and lying.done == lying.info["truncation"] == 0.0
    assert lying.metrics["recovering"] == 1.0 and lying.metrics["distance"] > 0.25
    assert lying.metrics["reward_recovery"] == pytest.approx(0.0, abs=1e-5)
    up = step(lying, _action(1))  # at the clip's second frame, near its first
    assert up.metrics["recovered"] == 1.0 and up.info["recovery"] == 0.0
    assert up.metrics["reward_recovery"] == pytest.approx(
        5.0 * float(lying.metrics["distance"] - up.metrics["distance"]), rel=1e-4
    )
    assert float(up.reward) == pytest.approx(
        sum(float(value) for name, value in up.metrics.items() if name.startswith("reward_"))
    )
    on = step(up, _action(1))
    assert on.info["time"] == pytest.approx(1 / FPS) and on.metrics["recovering"] == 0.0
    np.testing.assert_allclose(on.metrics["distance"], 0.0, atol=1e-5)
    assert on.metrics["reward_recovery"] == 0.0


def test_who_does_not_stand_up_is_terminated_late(play_disturbed):
    step, reset = play_disturbed
    state = _first_clip(reset)
    done = []
    for _ in range(7):
        state = step(state, _action(0))
        done.append(float(state.done))
    assert done == [0.0] * 6 + [1.0]  # after six frames, 0.2 s, and the step that follows


def test_references_stand_still_while_a_clip_waits(env, disturbed):
    place = {"clip": jnp.int32(0), "time": jnp.float32(0.5), "yaw": jnp.float32(0.0)}
    waiting, moving = (
        disturbed.reference(place | {"recovery": jnp.float32(left)}) for left in (0.1, 0.0)
    )
    plain = env.reference(place)
    jax.tree.map(np.testing.assert_array_equal, moving, plain)
    np.testing.assert_array_equal(waiting.qpos, plain.qpos)
    assert np.abs(plain.velocity).max() > 0.05
    assert not np.any(waiting.velocity) and not np.any(waiting.qvel) and not np.any(waiting.spin)


def test_pushes_spare_trials(disturbed, play_disturbed):
    step, reset = play_disturbed
    speeds = []
    state = _first_clip(reset)
    for _ in range(3):
        before, state = state, step(state, _action(0))
        change = state.pipeline_state.qvel - before.pipeline_state.qvel
        assert not change[2:].any()
        speeds.append(float(jnp.linalg.norm(change)))
    np.testing.assert_allclose(speeds, 0.5, rtol=1e-4)
    trial = dataclasses.replace(state, info=state.info | {"is_trial": jnp.float32(1.0)})
    after = step(trial, _action(0))
    np.testing.assert_array_equal(after.pipeline_state.qvel, trial.pipeline_state.qvel)
    asked = copy.copy(disturbed)
    asked.config = dataclasses.replace(disturbed.config, push_trials=True)
    key = jax.random.PRNGKey(1)
    pushed = asked._pushed(key, trial.pipeline_state.qvel, trial.info["is_trial"])
    assert float(jnp.linalg.norm(pushed - trial.pipeline_state.qvel)) == pytest.approx(0.5)


def test_trials_are_like_other_episodes(disturbed, play_disturbed):
    """They begin on their feet, in a state of the same shape."""
    start = _first_clip(play_disturbed[1])
    with physics():
        trial = jax.eval_shape(lambda clip: strong(disturbed.trial(clip)), jnp.int32(0))
    assert jax.tree.map(lambda x: (x.shape, x.dtype), start) == jax.tree.map(
        lambda x: (x.shape, x.dtype), trial
    )
    info = disturbed._disturbances(jax.random.PRNGKey(0))
    assert info["recovery"] == 0.0


def test_episodes_last_as_long_as_a_recovery_and_the_clip(env, disturbed):
    assert disturbed.episode_length == env.episode_length + 6


def test_plans_can_be_left_out(env, tmp_path):
    """The same frames are followed, by the captured motion alone."""
    bones = env.humanoid.skeleton
    clip = synthetic.stepping(bones, seconds=STEPS / FPS)
    plan = _plan(env.humanoid, clip.qpos[0])
    native.write(tmp_path / "clip.npz", clip._replace(plan=plan), bones)
    config = MotionConfig(substeps=4, clips=tmp_path)
    with_plan, without = (
        motion_env.load_parts(dataclasses.replace(config, plans=plans))[2]
        for plans in (True, False)
    )
    assert with_plan.planned == ("clip",) and without.planned == ()
    np.testing.assert_array_equal(without.reference.qpos, with_plan.captured.qpos)
    assert np.any(with_plan.feedforward) and not np.any(without.feedforward)


def test_planned_clips_keep_their_speed(env):
    config = dataclasses.replace(env.config, speed=0.1)
    with pytest.raises(UserError, match="'planned' has a plan, which is feasible at its own speed"):
        Imitation(config, env.humanoid, env.library)


def test_time_does_not_drift_over_long_clips():
    frames = 8 * 60 * 30
    end = jax.lax.fori_loop(0, frames, lambda _, time: next_frame(time), jnp.zeros(()))
    assert float(end) == pytest.approx(frames / 30.0, abs=1e-4)


def test_crops_are_clips_of_their_own():
    config = MotionConfig(crop_seconds=0.5)  # of the generated clip, 2 s
    library = motion_env.load_parts(config)[2]
    assert library.names == tuple(f"stepping[{i}]" for i in range(4))
    np.testing.assert_array_equal(library.frames, [16] * 4)
