"""The library: velocities, look-ups between frames, turned references, and drawing."""

from functools import partial

import jax
import jax.numpy as jnp
import mujoco
import numpy as np
import pytest

from jaxrl.errors import UserError
from jaxrl.motion import library, synthetic
from jaxrl.motion.amp_features import AMPFeatures
from jaxrl.motion.clip import Plan
from jaxrl.motion.formats import native

QUERY = jax.jit(library.query)  # compiled as a whole, which is faster than one by one
QUERY_CAPTURED = jax.jit(partial(library.query, captured=True))


@pytest.fixture(scope="module")
def two(bones, model):
    """A clip that moves and turns, and a shorter one."""
    clip = synthetic.stepping(bones, fps=60.0)
    time = np.arange(len(clip.qpos)) / clip.fps
    qpos = clip.qpos.copy()
    qpos[:, 0] += 0.5 * time
    qpos[:, 3], qpos[:, 6] = np.cos(0.4 * time), np.sin(0.4 * time)  # 0.8 rad/s about z
    short = synthetic.stepping(bones, seconds=1.0)
    return library.build([clip._replace(qpos=qpos), short], model)


def test_clips_are_padded_to_the_longest(two):
    assert two.names == ("stepping", "stepping")
    assert two.reference.position.shape == (2, 61, 15, 3)
    np.testing.assert_array_equal(two.frames, [61, 31])
    np.testing.assert_allclose(library.duration(two, jnp.arange(2)), [2.0, 1.0])
    np.testing.assert_array_equal(two.reference.qpos[1, 60], two.reference.qpos[1, 30])


def test_velocities_are_differences_of_what_is_shown(two):
    """Of positions for the bodies; for the root, in the world and in its own frame."""
    shown = jax.tree.map(lambda x: np.asarray(x[0], np.float64), two.reference)
    expected = (shown.position[2:] - shown.position[:-2]) * two.fps / 2
    np.testing.assert_allclose(shown.velocity[2:-2], expected[1:-1], atol=0.06)
    assert np.abs(expected).max() > 0.8
    np.testing.assert_allclose(shown.qvel[:, :3], shown.velocity[:, 0], atol=1e-6)
    np.testing.assert_allclose(shown.qvel[:, 5], 0.8, atol=1e-5)
    np.testing.assert_allclose(shown.spin[:, 0, 2], 0.8, atol=1e-5)


def test_what_is_shown_is_what_mujoco_computes(two, model, bones):
    """A simulator set to qpos and qvel has the velocities of the library."""
    data = mujoco.MjData(model)
    i, eps = 17, 1e-5
    data.qpos[:] = np.asarray(two.reference.qpos[0, i], np.float64)
    mujoco.mj_kinematics(model, data)
    before = data.xpos[1:].copy()
    mujoco.mj_integratePos(model, data.qpos, np.float64(two.reference.qvel[0, i]), eps)
    mujoco.mj_kinematics(model, data)
    moved = (data.xpos[1:] - before) / eps
    np.testing.assert_allclose(two.reference.velocity[0, i], moved, atol=1e-3)


def test_queries_at_frames_give_the_frames(two):
    clip = jnp.asarray([0, 0, 1, 1, 0, 1])
    time = jnp.asarray([0.0, 30.0 / 30, 7.0 / 30, 99.0, -1.0, 1.0])
    frame = [0, 30, 7, 30, 0, 30]
    for found in (
        QUERY(two, clip, time),
        jax.jit(jax.vmap(library.query, (None, 0, 0)))(two, clip, time),
    ):
        for name, values, stored in zip(found._fields, found, two.reference, strict=True):
            np.testing.assert_allclose(values, stored[clip, frame], atol=2e-5, err_msg=name)


def test_queries_between_frames_lie_between(two, bones):
    found = QUERY(two, jnp.asarray(0), jnp.asarray(10.5 / 30))
    truth = synthetic.stepping(bones, fps=60.0).qpos[21]
    np.testing.assert_allclose(found.qpos[7:], truth[7:], atol=3e-3)
    np.testing.assert_allclose(jnp.linalg.norm(found.rotation, axis=-1), 1.0, atol=1e-6)
    np.testing.assert_allclose(found.qpos[6], np.sin(0.4 * 10.5 / 30), atol=1e-6)


def test_turned_references_agree_with_mujoco(two, model):
    angle = jnp.asarray([0.0, 1.0, -2.5])
    shown = QUERY(two, jnp.zeros(3, jnp.int32), jnp.full(3, 0.7))
    found = jax.jit(library.rotate_yaw)(shown, angle)
    np.testing.assert_allclose(found.position[0], shown.position[0], atol=1e-6)
    data, motion = mujoco.MjData(model), np.empty(6)
    for i in (1, 2):
        data.qpos[:], data.qvel[:] = found.qpos[i], found.qvel[i]
        mujoco.mj_forward(model, data)
        # The query mixes frames, hence not exactly.
        np.testing.assert_allclose(found.position[i], data.xpos[1:], atol=2e-3)
        for body in (0, 5, 14):
            kind = mujoco.mjtObj.mjOBJ_XBODY
            mujoco.mj_objectVelocity(model, data, kind, body + 1, motion, 0)
            np.testing.assert_allclose(found.velocity[i, body], motion[3:], atol=0.03)
            np.testing.assert_allclose(found.spin[i, body], motion[:3], atol=0.03)


def test_draws_follow_the_weights(two):
    keys = jax.random.split(jax.random.key(0), 400)
    clip, time = jax.jit(jax.vmap(library.sample, (None, 0, None)))(
        two, keys, jnp.asarray([0.0, 2.0])
    )
    assert (clip == 1).all()
    assert 0 <= time.min() < 0.1 and 0.9 < time.max() <= 1.0
    clip, time = jax.jit(jax.vmap(library.sample, (None, 0)))(two, keys)
    assert 0.4 < clip.mean() < 0.6
    assert (time <= library.duration(two, clip)).all()


def test_all_captured_clips_make_a_library(motions, model):
    built = library.build(library.load_clips(str(motions), model), model)
    assert len(built.names) == 14
    for leaf in jax.tree.leaves(built):
        assert np.isfinite(leaf).all()
    assert np.abs(built.reference.qvel).max() < 25.0
    np.testing.assert_allclose(library.duration(built, 13), 38 / 30, atol=1e-6)  # the walk


def test_loops_are_repeated_until_they_last(tmp_path, bones, model):
    for name, loops in (("a", True), ("b", False)):
        clip = synthetic.stepping(bones, seconds=1.0)._replace(loops=loops)
        native.write(tmp_path / f"{name}.npz", clip, bones)
    built = library.build(library.load_clips(str(tmp_path), model, min_seconds=2.5), model)
    np.testing.assert_array_equal(built.frames, [91, 31])


def test_a_planned_clip_is_followed_along_its_plan(bones, model):
    """With the plan's own speeds, and pushes between frames as between anything else."""
    clip = synthetic.stepping(bones, seconds=1.0)
    rng, qpos = np.random.default_rng(0), clip.qpos.copy()
    qpos[:, 2] += 0.1
    plan = Plan(qpos, rng.normal(size=(31, model.nv)), rng.normal(size=(31, model.nu)), 3)
    built = library.build([clip, clip._replace(plan=plan)], model)
    both, time = jnp.arange(2), jnp.full(2, 10.5 / 30)
    followed, captured = QUERY(built, both, time), QUERY_CAPTURED(built, both, time)
    for shown in captured:
        np.testing.assert_array_equal(shown[0], shown[1])
    np.testing.assert_allclose(followed.position[0], captured.position[0])
    np.testing.assert_allclose(
        followed.position[1] - captured.position[1], [[0, 0, 0.1]] * 15, atol=1e-6
    )
    np.testing.assert_allclose(followed.qvel[1], plan.qvel[10:12].mean(0), atol=1e-6)
    push = library.feedforward(built, both, time)
    np.testing.assert_allclose(
        push, [np.zeros(model.nu), plan.feedforward[10:12].mean(0)], atol=1e-6
    )


def test_clips_without_plans_are_kept_once(two):
    assert two.reference.qpos is two.captured.qpos
    assert not two.planned and not np.any(two.feedforward)


def test_the_manner_of_moving_is_that_of_the_capture(bones, model):
    """A plan may be rough; what a discriminator is shown is the clip."""
    clip, style = synthetic.stepping(bones, seconds=1.0), AMPFeatures(bones, frames=3)
    rng = np.random.default_rng(0)
    plan = Plan(clip.qpos + 0.1, rng.normal(size=(31, model.nv)), np.zeros((31, model.nu)), 3)
    draw = jax.jit(lambda built: style.demonstrations(built, jax.random.key(0), 4))
    bare, planned = (library.build([clip._replace(plan=p)], model) for p in (None, plan))
    np.testing.assert_array_equal(draw(bare), draw(planned))


def test_demonstrations_are_drawn_evenly_and_are_whole(bones, model, monkeypatch):
    """Of every moment with a whole history, none more often than others."""
    clips = [synthetic.stepping(bones, seconds=s) for s in (1.0, 0.2)]
    built = library.build([c._replace(name=str(i)) for i, c in enumerate(clips)], model)
    style = AMPFeatures(bones, frames=16)  # half of the first clip, more than the second
    monkeypatch.setattr(
        AMPFeatures,
        "history",
        lambda self, _, clip, time, *, captured: jnp.stack([clip * 1.0, time]),
    )
    clip, time = np.asarray(style.demonstrations(built, jax.random.key(0), 2000)).T
    assert np.all(clip == 0)
    assert time.min() >= 0.5 and time.max() <= 1.0
    counts, _ = np.histogram(time, bins=10, range=(0.5, 1.0))
    assert counts.min() > 150 and counts.max() < 250


def test_histories_before_a_clips_start_are_not_shown(bones, model):
    built = library.build([synthetic.stepping(bones, seconds=1.0)], model)
    style = AMPFeatures(bones, frames=4)
    times = jnp.arange(6) / jnp.float32(30.0)
    histories = jax.jit(jax.vmap(lambda time: style.history(built, jnp.asarray(0), time)))(times)
    for frame, history in enumerate(histories):
        missing = max(3 - frame, 0)
        rows = np.any(np.asarray(history) != 0.0, axis=1)
        np.testing.assert_array_equal(rows, [False] * missing + [True] * (4 - missing))
        assert bool(jnp.any(style.window(history) != 0.0)) == (missing == 0)


def test_a_plan_is_of_one_rate(bones, model):
    clip = synthetic.stepping(bones, fps=60.0)
    zeros = np.zeros((len(clip.qpos), model.nv)), np.zeros((len(clip.qpos), model.nu))
    with pytest.raises(UserError, match="planned at 60 frames per second; 30 are used"):
        library.build([clip._replace(plan=Plan(clip.qpos, *zeros, 3))], model)


def test_a_library_of_nothing_is_refused(model):
    with pytest.raises(UserError, match="at least one clip"):
        library.build([], model)


def test_two_clips_of_one_name_are_refused(tmp_path, bones, model):
    """By names clips are shown, judged and planned: nobody could tell which one is meant."""
    native.write(tmp_path / "hop.npz", synthetic.stepping(bones), bones)
    (tmp_path / "hop.txt").write_text("{}")
    with pytest.raises(UserError, match="2 clips are called 'hop'; rename one"):
        library.load_clips(str(tmp_path), model)
